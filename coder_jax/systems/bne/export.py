"""A trained encoder of names as a folder for the Hub, and what is known of it.

Beside the files of `models.names.files`
  cleaning.json     a tokenizer whose normalizers clean a string
  name_encoder.py   the encoder in PyTorch, without coder_jax; a sentence-transformers module
  modules.json      that module, and vectors of length 1
  coder_jax.json    cleaning, recipe, dataset
  README.md         the model card
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.readers.name_reader import NameReader
from coder_jax.export.folder import check_out
from coder_jax.export.model_card import check_card, model_card
from coder_jax.export.sentence_transformers_files import NORMALIZE, write_modules
from coder_jax.export.verify import (
    PROBE_TERMS,
    largest_difference,
    load_module,
    require_torch,
    sentence_transformers_vectors,
    with_proof,
)
from coder_jax.models.encoder_settings import OF_NAMES, EncoderSettings, write_settings
from coder_jax.models.names.files import NameFiles, write_name_encoder
from coder_jax.systems.encoders.trained import told_of_run
from coder_jax.training.proof import PROOF
from coder_jax.training.system import SavedRun
from data_pipeline.batches.names.alphabet import Alphabet
from data_pipeline.files.contents import LONGEST
from data_pipeline.files.whole_files import whole_folder
from data_pipeline.process.errors import BadInput
from data_pipeline.skip_gram.store import open_vectors
from data_pipeline.terminology.cleaning.in_tokenizers import with_cleaning

if TYPE_CHECKING:
    from coder_jax.systems.bne.objective import BneSystem

VECTORS = "vectors"  # in the folder of a run: its copy of the vectors that it began with
MODULE, CLEANING = "name_encoder.py", "cleaning.json"


def trained_names(system: BneSystem, run: SavedRun) -> TermEncoder:
    """The encoder of a run."""
    about = run.identity["start"]
    reader = NameReader(
        system.config(about),
        run.params["encoder"],
        Alphabet(about["alphabet"]),
        open_vectors(run.folder / VECTORS).words,
    )
    return TermEncoder(reader, None, settings_of(run.identity["dataset"]))


def settings_of(dataset: Mapping[str, Any]) -> EncoderSettings:
    """How terms become vectors: cleaned as those of the dataset were, of any length."""
    return EncoderSettings(pooling=OF_NAMES, cleaning=dataset["cleaning"], max_length=LONGEST)


def export_names(
    system: BneSystem,
    run: SavedRun,
    out: Path,
    *,
    card: Mapping[str, Any] | None = None,
    pytorch_bin: bool = False,
) -> dict[str, float]:
    """Export a run.

    Args:
        system, run: what was trained.
        out: the folder to write; an earlier export there is replaced, anything else refused.
        card: what the model card says in place of, or beside, what is known of the run.
        pytorch_bin: BadInput, as no old software reads such a model.

    Returns:
        The largest difference of unit vectors for PyTorch, and for sentence-transformers where that
        is installed.

    Raises:
        BadInput: an `out` that is something else, a disk that is full, or PyTorch missing.
        RuntimeError: the export's vectors are not the run's. Nothing is left behind.
    """
    require_torch()
    if pytorch_bin:
        raise BadInput(
            "--pytorch-bin is for BERTs; an encoder of names (BNE) has model.safetensors: leave "
            "the flag out"
        )
    about = {**describe(system, run), **(card or {})}
    check_card(about)
    check_out(out)
    encoder = trained_names(system, run)
    try:
        with whole_folder(out) as new:
            write_files(new, encoder, about)
            differences = compare(new, encoder, run.notes.get(PROOF))
            for path in new.glob("*.safetensors"):  # written for the owner alone
                shutil.copymode(new / "config.json", path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{out} could not be written: {error}; nothing was left there") from error
    return differences


def write_files(folder: Path, encoder: TermEncoder, about: Mapping[str, Any]) -> None:
    """Everything that an export holds."""
    reader = encoder.reader
    assert isinstance(reader, NameReader)
    write_name_encoder(
        folder, NameFiles(reader.config, reader.params, reader.alphabet, reader.vectors)
    )
    cleaning = Tokenizer(WordLevel({}, unk_token=""))  # never asked for a token
    cleaning = with_cleaning(cleaning, encoder.settings.cleaning)
    cleaning.save(str(folder / CLEANING))
    shutil.copyfile(Path(__file__).with_name("torch_module.py"), folder / MODULE)
    write_modules(folder, [("", "name_encoder.NameEncoder"), ("1_Normalize", NORMALIZE)])
    known = {name: about[name] for name in ("recipe", "dataset_hash", "languages") if name in about}
    versions = {name: version(name) for name in ("jax", "flax")}
    write_settings(folder, encoder.settings, known | {"versions": versions})
    (folder / "README.md").write_text(model_card(about, encoder.settings), encoding="utf-8")


def compare(
    folder: Path, encoder: TermEncoder, proof: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """The largest difference of the export's vectors, by library that opens it.

    They are compared with the encoder's of PROBE_TERMS, and with those that training gave.

    Raises:
        RuntimeError: if one is too large, or NaN.
    """
    ours, terms = with_proof(encoder.encode(PROBE_TERMS), proof)
    module = load_module(folder / MODULE).NameEncoder(folder)
    theirs: dict[str, np.ndarray] = {"PyTorch": module.encode(terms).numpy()}
    if importlib.util.find_spec("sentence_transformers") is not None:
        found = sentence_transformers_vectors(folder, terms, trust_remote_code=True)
        theirs["sentence-transformers"] = found
    return {
        name: largest_difference(
            ours, vectors, f"the export opened by {name} gives vectors that", folder
        )
        for name, vectors in theirs.items()
    }


def describe(system: BneSystem, run: SavedRun) -> dict[str, Any]:
    """What the model card tells of a run, from run.json and metrics.jsonl."""
    dataset, vectors = run.identity["dataset"], run.identity["vectors"]
    return {
        **told_of_run(system, run),
        "data": {
            "terminology": f"{dataset['name']} {dataset['release']}",
            "concepts": f"{dataset['counts']['concepts']:,}",
            "terms": f"{dataset['counts']['terms']:,}",
            "cleaning": dataset["cleaning"],
            "vectors of words": f"skip-grams ({vectors['variant']}), hash "
            f"{vectors['content_hash'][:12]}",
        },
    }
