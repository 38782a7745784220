"""Whether an encoder to start from fits the data, its license, and that of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from coder_jax.models.bert_config import BertConfig
from coder_jax.models.hf_weights import check_vocabulary
from coder_jax.runs.files import small_files
from coder_jax.runs.folder import read_identity
from coder_jax.training.start import OtherRun, read_other_run
from data_pipeline.dataset.tokenize_terms import load_tokenizer, tokenizer_hash
from data_pipeline.process.errors import BadInput


def check_tokenizer(manifest: Mapping[str, Any], folder: Path, init: str) -> None:
    """BadInput if the dataset was tokenized with another tokenizer than the encoder's own."""
    found, expected = tokenizer_hash(load_tokenizer(folder)), manifest["tokenizer"]["hash"]
    if found != expected:
        raise BadInput(
            f"the tokenizer of {init} has hash {found[:12]}, but the dataset was tokenized with "
            f"{manifest['tokenizer']['name']}, hash {expected[:12]}; build the dataset with "
            f"--tokenizer {init}, or start from the other encoder"
        )


def check_length(manifest: Mapping[str, Any], config: BertConfig, init: str) -> None:
    """BadInput if the dataset's terms have pieces or places that the encoder does not know."""
    check_vocabulary(manifest["tokenizer"]["vocab_size"], config, init)
    longest = manifest["tokenizer"]["max_length"]
    if longest > config.longest_term:
        raise BadInput(
            f"the dataset's terms have up to {longest} tokens, but {init} has "
            f"{config.longest_term} positions; build it with a smaller --max-length"
        )


def read_license(folder: Path) -> str | None:
    """The license that the model card in a Hugging Face folder states, if there is one."""
    card = folder / "README.md"
    return ModelCard.load(card).data.license if card.exists() else None


def read_run(out: str, *, best: bool, noted: Mapping[str, Any] | None) -> OtherRun:
    """A run whose encoder is to start from; the rest is as in `read_other_run`.

    Raises:
        BadInput: also if what it trained is no BERT.
    """
    identity = read_identity(small_files(out))
    system = identity["config"]["system"]
    if "encoder" not in identity["start"] or "model" not in system:
        raise BadInput(
            f"--init {out} is a run of the system {system['name']!r}, which trains no BERT; "
            "expected a model folder, a hub id or a run that trained one"
        )
    return read_other_run("--init", out, best=best, noted=noted)
