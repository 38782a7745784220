"""An export as ONNX files (float32 and int8), which are compared with the export's own vectors."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coder_jax.encoding.encoder import TermEncoder, nearest_concepts
from coder_jax.encoding.readers import ONNX_FILES
from coder_jax.export.folder import PROBE_TERMS, largest_difference, require_torch
from coder_jax.export.model_card import FOLDER
from coder_jax.models.hf_files import EncoderSettings, read_settings
from coder_jax.models.names import is_name_encoder
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.files.identity import read_json
from data_pipeline.files.whole import written_whole
from data_pipeline.process import BadInput, tell
from data_pipeline.sources.corpora import mention_rows

_TOLERANCE = 1e-4  # of unit vectors, float32
_OPSET = 18


class OnnxChecks(NamedTuple):
    """What the ONNX files of an export were found to be.

    Attributes:
      difference: the largest of an element of unit vectors, between model.onnx and the export.
      cosine: the mean and the smallest, between vectors of model_int8.onnx and of the export; None
        where it was not written.
      found: acc@1 of held-out names by the export and by model_int8.onnx; None where there are no
        such names.
    """

    difference: float
    cosine: tuple[float, float] | None = None
    found: tuple[float, float] | None = None

    def __str__(self) -> str:
        """The checks in words."""
        words = [f"ONNX Runtime {self.difference:.1e}"]
        if self.cosine is not None:
            words.append("int8: cosine {:.4f} on average, {:.4f} at least".format(*self.cosine))
        if self.found is not None:
            words.append(
                "acc@1 of held-out names {:.1f} (float32: {:.1f})".format(*self.found[::-1])
            )
        return ", ".join(words)


def add_onnx(folder: Path, *, int8: bool = False, heldout: Path | None = None) -> OnnxChecks:
    """Writes model.onnx, and with `int8` model_int8.onnx, into an export, and compares them.

    What was found is added to the model card, README.md.

    Args:
      folder: an export of a BERT.
      int8: also write weights of eight bits, by dynamic quantization.
      heldout: a folder with mentions.tsv and dictionary.tsv, whose names are looked up by both
        with `int8`, if they are there.

    Raises:
      BadInput: PyTorch is missing, or the encoder is no BERT.
      ModuleNotFoundError: a package of the extra `onnx` is missing.
      RuntimeError: the vectors of model.onnx are not the export's. It is not left behind.
    """
    require_torch()
    # Before any work: what is not installed is said by name, with the extra that brings it.
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401

    if is_name_encoder(folder):
        raise BadInput(f"--onnx: {folder} is an encoder of names (BNE); expected one with a BERT")
    settings = read_settings(folder)
    encoder = TermEncoder.from_pretrained(folder)
    ours = encoder.encode(PROBE_TERMS)
    whole, small = (folder / name for name in ONNX_FILES.values())
    write_graph(folder, whole, settings)
    try:
        theirs = TermEncoder.from_pretrained(folder, backend="onnx").encode(PROBE_TERMS)
        what = f"the vectors of {whole.name}"
        checks = OnnxChecks(largest_difference(ours, theirs, what, folder, _TOLERANCE))
        if int8:
            write_int8(whole, small)
            checks = _check_int8(encoder, folder, checks, ours, heldout)
    except BaseException:
        whole.unlink(missing_ok=True)
        small.unlink(missing_ok=True)
        raise
    with (folder / "README.md").open("a", encoding="utf-8") as card:
        card.write(_section(checks, folder, settings))
    return checks


def write_graph(folder: Path, path: Path, settings: EncoderSettings) -> None:
    """The encoder as an ONNX graph of any number of terms of any length."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    inputs = ["input_ids", "attention_mask"]
    if model.config.model_type == "bert":
        inputs.append("token_type_ids")
    outputs = ["last_hidden_state"] + ["pooler_output"] * (settings.pooling == "pooler")

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = self.model(**dict(zip(inputs, given, strict=True)))
            return tuple(found[name] for name in outputs)

    # With padding: transformers leaves the mask out of the graph of a batch that has none.
    example = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    any_size = {axis: torch.export.Dim.DYNAMIC for axis in (0, 1)}
    tell(f"writing {path}")
    with written_whole(path) as unfinished, _silent():
        torch.onnx.export(
            Graph(),
            tuple(example.clone() for _ in inputs),  # one tensor would be one input
            str(unfinished),
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=((any_size,) * len(inputs),),
            dynamo=True,
            external_data=False,
            opset_version=_OPSET,
        )


def write_int8(whole: Path, small: Path) -> None:
    """Weights of eight bits; what goes through them is rounded as it comes."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    tell(f"writing {small}")
    with written_whole(small) as unfinished, _silent():
        quantize_dynamic(whole, unfinished, weight_type=QuantType.QInt8, per_channel=True)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Leaves out what PyTorch and ONNX Runtime print and warn of while they convert."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _check_int8(
    encoder: TermEncoder,
    folder: Path,
    checks: OnnxChecks,
    ours: np.ndarray,
    heldout: Path | None,
) -> OnnxChecks:
    small = TermEncoder.from_pretrained(folder, backend="onnx-int8")
    cosines = (ours * small.encode(PROBE_TERMS)).sum(axis=1)
    found = None
    if heldout is not None and (heldout / "mentions.tsv").is_file():
        found = _found(encoder, heldout), _found(small, heldout)
    return checks._replace(cosine=(float(cosines.mean()), float(cosines.min())), found=found)


def _found(encoder: TermEncoder, heldout: Path) -> float:
    """acc@1: the percentage of held-out names whose nearest concept is the right one."""
    terms = read_dictionary(heldout / "dictionary.tsv")
    dictionary = encoder.encode_dictionary(terms, progress=True, cache=False)
    names, concepts = zip(*mention_rows(heldout / "mentions.tsv"), strict=True)
    matches = nearest_concepts(encoder.encode(list(names)), dictionary, 1)
    pairs = zip(matches, concepts, strict=True)
    right = [match[0].concept in concept.split("|") for match, concept in pairs]
    return 100 * float(np.mean(right))


_VECTORS = {  # of each pooling, in the code of the card
    "cls": "hidden[:, 0]",
    "mean": "(hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)",
    "pieces": "(hidden * mask[..., None]).sum(1) / np.maximum(mask.sum(1, keepdims=True), 1)",
    "pooler": "hidden",
}


def _code(folder: Path, settings: EncoderSettings) -> str:
    """How model.onnx is used with ONNX Runtime and the library tokenizers alone."""
    config = read_json(folder / "config.json")
    types = ', "token_type_ids": 0 * ids' if config["model_type"] == "bert" else ""
    output = "pooler_output" if settings.pooling == "pooler" else "last_hidden_state"
    pieces = "mask = mask * np.roll(mask, -1, 1)\nmask[:, [0, -1]] = 0  # neither [CLS] nor [SEP]\n"
    return f"""```python
import os
import numpy as np
import onnxruntime
from huggingface_hub import snapshot_download
from tokenizers import Tokenizer

{FOLDER}
tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
tokenizer.enable_truncation({settings.max_length})
tokenizer.enable_padding(pad_id={config["pad_token_id"]})
session = onnxruntime.InferenceSession(os.path.join(folder, "{ONNX_FILES["onnx"]}"))
batch = tokenizer.encode_batch(["heart attack", "myocardial infarction"])
ids = np.array([one.ids for one in batch], np.int64)
mask = np.array([one.attention_mask for one in batch], np.int64)
inputs = {{"input_ids": ids, "attention_mask": mask{types}}}
(hidden,) = session.run(["{output}"], inputs)
{pieces if settings.pooling == "pieces" else ""}vectors = {_VECTORS[settings.pooling]}
vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
```"""


def _section(checks: OnnxChecks, folder: Path, settings: EncoderSettings) -> str:
    """What the model card says of the files."""
    lines = [
        "\n\n## ONNX\n",
        f"`{ONNX_FILES['onnx']}` is the encoder for ONNX Runtime. Its vectors differ from those of "
        f"the other files by at most {checks.difference:.1e}.",
    ]
    if checks.cosine is not None:
        lines.append(
            f"`{ONNX_FILES['onnx-int8']}` has weights of eight bits. The cosine between its "
            "vectors and the others is {:.4f} on average and {:.4f} at least.".format(
                *checks.cosine
            )
        )
    if checks.found is not None:
        lines.append(
            "The first answer is right for {1:.1f} % of the held-out names; by the other files it "
            "is right for {0:.1f} %.".format(*checks.found)
        )
    return "\n".join([*lines, "", _code(folder, settings), ""])
