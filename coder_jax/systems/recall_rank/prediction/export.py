"""A trained generator or ranker as a folder for the Hub.

Beside what `export_encoder` writes, of a generator
  generator.safetensors   kernel [W, C] and bias [C]: scores of the number of concepts
  generator.json          what distances are
and of a ranker
  ranker.safetensors      kernel [D, 1] and bias [1]: the score of a pair
  ranker.json             keyword mask, cleaning, lengths, kinds of keywords
  keywords.tsv            word TAB kind
  term_ranker.py          all of it in PyTorch, without coder_jax
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from safetensors.numpy import save_file

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.verify import PROBE_TERMS, largest_difference, load_module
from coder_jax.models.hf_files import here_or_fetched
from coder_jax.systems.encoders.trained import export_trained, trained_bert
from coder_jax.systems.recall_rank.prediction.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.prediction.term_ranker import (
    KEYWORDS,
    RANKER,
    SCORE,
    RankerSettings,
    TermRanker,
    keywords_of,
    read_head,
)
from coder_jax.training.system import SavedRun
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.whole_files import write_json
from data_pipeline.terminology.keywords.vocabulary import (
    keyword_lines,
)

if TYPE_CHECKING:
    from coder_jax.systems.recall_rank.generator import RecallSystem
    from coder_jax.systems.recall_rank.ranker import RankSystem

GENERATOR, NUMBER = "generator.json", "generator.safetensors"
MODULE = "term_ranker.py"


class GeneratorSettings(TypedDict):
    """What generator.json must have."""

    distance: str


def is_generator(path: str | Path) -> bool:
    """Whether a model, by folder, address or hub id, is the export of a generator."""
    return (here_or_fetched(path) / GENERATOR).is_file()


# ---- The generator ----


def export_generator(
    system: RecallSystem, run: SavedRun, out: Path, **options: Any
) -> dict[str, float]:
    """Export a run of `recall`; what comes back, and what can go wrong, is as in
    `export_encoder`."""

    def write(folder: Path) -> dict[str, float]:
        write_head(folder / NUMBER, run.params["number"])
        write_json(folder / GENERATOR, {"distance": "euclidean"})
        return {}

    return export_trained(system, run, out, beside=write, **options)


def read_generator(folder: Path, encoder: TermEncoder) -> CandidateGenerator:
    """The generator of an export, whose encoder is given.

    Raises:
        BadInput: if its files cannot be read.
    """
    typed(read_json(folder / GENERATOR), GeneratorSettings, str(folder / GENERATOR))
    return CandidateGenerator(encoder, read_head(folder / NUMBER))


# ---- The ranker ----


def trained_ranker(system: RankSystem, run: SavedRun) -> TermRanker:
    """The ranker of a run."""
    identity: Any = run.identity
    kinds = identity["start"]["keyword_kinds"]
    return TermRanker(
        trained_bert(run),
        load_tokenizer(run.folder / "tokenizer"),
        run.params["score"],
        keywords_of(run.folder / "words.tsv", kinds),
        mask=system.mask,
        cleaning=identity["dataset"]["cleaning"],
        max_length=identity["tokenizer"]["max_length"],
        pair_length=system.batch.pair_length,
    )


def export_ranker(system: RankSystem, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
    """Export a run of `rank`; what comes back, and what can go wrong, is as in
    `export_encoder`."""
    ranker = trained_ranker(system, run)

    def write(folder: Path) -> dict[str, float]:
        write_ranker(folder, ranker)
        return {"probabilities in PyTorch": compare(folder, ranker)}

    return export_trained(system, run, out, beside=write, **options)


def write_ranker(folder: Path, ranker: TermRanker) -> None:
    """Write the files beside the encoder's."""
    write_head(folder / SCORE, ranker.head)
    (folder / KEYWORDS).write_text(keyword_lines(ranker.keywords.words), encoding="utf-8")
    settings: RankerSettings = {
        "mask": ranker.mask,
        "cleaning": ranker.cleaning,
        "max_length": ranker.max_length,
        "pair_length": ranker.pair_length,
        "keyword_kinds": ranker.keywords.kinds,
    }
    write_json(folder / RANKER, dict(settings))
    shutil.copyfile(Path(__file__).with_name("torch_module.py"), folder / MODULE)


def compare(folder: Path, ranker: TermRanker) -> float:
    """The largest difference of probabilities of the exported PyTorch module and ours.

    Raises:
        RuntimeError: if it is too large, or NaN.
    """
    module = load_module(folder / MODULE)
    words = [word for some in ranker.keywords.words.values() for word in list(some)[:3]]
    mentions = [*PROBE_TERMS, *words, " ".join(words)]
    names = [" ".join((mention, *words[:2])) for mention in reversed(mentions)]
    rows = np.stack([np.arange(len(mentions))] * 2, axis=1)
    ours = ranker.score_pairs(mentions, names, rows)
    theirs = module.TermRanker(folder).score_pairs(list(zip(mentions, names, strict=True)))
    what = "the exported ranker gives probabilities that"
    return largest_difference(ours, theirs.numpy(), what, folder)


# ---- Both ----


def write_head(path: Path, head: Mapping[str, Any]) -> None:
    """A dense layer as a safetensors file."""
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in head.items()}
    save_file(arrays, path, metadata={"format": "pt"})
