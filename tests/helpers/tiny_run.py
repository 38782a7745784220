"""A tiny dataset for a tiny model, in memory or as batches for a run in a process of its own."""

import dataclasses
import shutil
from pathlib import Path

from tiny_bert import TINY
from tiny_dataset import tiny_dataset

from data_pipeline.batches.files import write_batches
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.batches.stream import BatchMaker
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenizer_hash

SPEC = BatchSpec(groups=4, triplets=4, repeats=2, row_length=64)


def write_tiny_batches(out: Path, model: Path, *, steps: int, spec: BatchSpec = SPEC) -> None:
    """Batches for the tiny model in `model`, with its tokenizer and two held-out terms."""
    dataset = dataset_for(model, out.with_name(out.name + "-dataset"))
    write_batches(BatchMaker(dataset, spec), out, 0, steps)


def dataset_for(model: Path, folder: Path) -> TripletDataset:
    """A dataset in memory for the tiny model, with its tokenizer and held-out terms in `folder`."""
    dataset = tiny_dataset(concepts=60, triplets=150, vocabulary=TINY.vocab_size)
    own = tokenizer_hash(load_tokenizer(model))
    tokenizer = dataclasses.replace(dataset.manifest.tokenizer, hash=own)
    manifest = dataclasses.replace(dataset.manifest, tokenizer=tokenizer)
    write_heldout(folder / "heldout")
    copy_tokenizer(model, folder / "tokenizer")
    return dataclasses.replace(dataset, folder=folder, manifest=manifest)


def copy_tokenizer(model: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    for path in (*model.glob("vocab.txt"), *model.glob("tokenizer*.json")):
        shutil.copy(path, folder)


def write_heldout(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "mentions.tsv").write_text("mention\tCUI\nheart attacks\tC1\nlimb pain\tC2\n")
    (folder / "dictionary.tsv").write_text(
        "term\tCUI\nheart attack\tC1\npain in limb\tC2\nrenal failure\tC3\n"
    )
