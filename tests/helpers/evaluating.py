"""Toy benchmarks, and `python -m coder_jax evaluate` on them in this process."""

import json
import types

from coder_jax.commands import evaluate
from coder_jax.encoding.vector_files import EncoderProtocol
from data_pipeline.flags import parsed

ENCODER = EncoderProtocol(
    model="toy",
    weights_hash="1f",
    tokenizer_hash="2e",
    pooling="cls",
    max_length=32,
    attend_padding=False,
    lowercases=True,
    cleaning="none",
    dtype="float32",
)


def write_toy(folder):
    """Mentions with a dictionary beside them, and pairs of terms."""
    heldout = folder / "heldout"
    heldout.mkdir()
    (heldout / "mentions.tsv").write_text(
        "mention\tCUI\nheart attack\tC1\nhigh blood pressure\tC2\nkidney stone\tC3\nnovel\tC9\n"
    )
    (heldout / "dictionary.tsv").write_text(
        "term\tCUI\nmyocardial infarction\tC1\ncardiac infarct\tC1\nhypertension\tC2\n"
        "raised arterial pressure\tC2\nnephrolithiasis\tC3\nrenal calculus\tC3\n"
        "Pain\tC4\npain\tC5\n"
    )
    (folder / "pairs.tsv").write_text("pain\tache\t9\npain\tkidney\t3\nfever\tasthma\t1\n")
    return folder


def records_in(path):
    return [types.SimpleNamespace(**record) for record in json.loads(path.read_text())["records"]]


def run(*arguments):
    return evaluate.run(parsed(evaluate.OPTIONS, [str(argument) for argument in arguments])[0])
