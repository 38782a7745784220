"""Generators and rankers of a folder: a run, an export, or, as a generator, any encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.hf_files import here_or_fetched
from coder_jax.runs.folder import system_name
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.recall_rank.prediction.candidates import (
    CandidateGenerator,
    GeneratorEnsemble,
)
from coder_jax.systems.recall_rank.prediction.export import is_generator, read_generator
from coder_jax.systems.recall_rank.prediction.term_ranker import TermRanker, is_ranker
from coder_jax.systems.recall_rank.ranker import RankSystem
from data_pipeline.process.errors import BadInput


def load_generator(path: str | Path, encoder: TermEncoder | None = None) -> CandidateGenerator:
    """The generator of a run of `recall`, of its export, or of any encoder.

    Args:
        path: its folder, or the hub id of an export or an encoder.
        encoder: of an export or an encoder, if it is loaded already.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    found = system_name(path)
    if found == RankSystem.name or (found is None and is_ranker(path)):
        raise BadInput(f"{path} is a ranker; expected a generator or an encoder")
    if found is not None:
        system, run = load_run(Path(path))
        trained = system.trained(run)
        trained.encoder.name = f"{path}, step {run.step}"
        return CandidateGenerator(trained.encoder, trained.tables.get("number"))
    encoder = encoder or TermEncoder.from_pretrained(path)
    return (
        read_generator(here_or_fetched(path), encoder)
        if is_generator(path)
        else CandidateGenerator(encoder)
    )


def load_generators(
    paths: Sequence[str | Path], encoders: Sequence[TermEncoder | None] | None = None
) -> GeneratorEnsemble:
    """Several generators as one, or one; each as `load_generator` reads it.

    Args:
        paths: of each.
        encoders: of each, as far as they are loaded already.

    Raises:
        BadInput: as `load_generator` and `GeneratorEnsemble`, or if one is given twice.
    """
    names = [str(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"--model: found {name} twice; expected each model once")
    given = encoders or [None] * len(paths)
    return GeneratorEnsemble(
        [load_generator(path, encoder) for path, encoder in zip(paths, given, strict=True)]
    )


def load_ranker(path: str | Path) -> TermRanker:
    """The ranker of a run of `rank`, or of its export.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    if (found := system_name(path)) == RankSystem.name:
        system, run = load_run(Path(path))
        ranker: TermRanker = system.trained(run).tables["ranker"]
        return ranker
    if found is not None or not is_ranker(path):
        what = f"a run of the system {found!r}" if found else "no ranker"
        raise BadInput(f"{path}: found {what}; expected a run of the recipe rank, or its export")
    return TermRanker.from_pretrained(path)
