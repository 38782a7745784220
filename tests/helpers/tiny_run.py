"""A tiny dataset for a tiny model, in memory or in a folder for a run in a process of its own."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
from tiny_bert import TINY
from tiny_dataset import tiny_dataset

from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.store import FIRST_CONCEPT, MANIFEST, Shard, TripletDataset, shard_name
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenizer_hash
from data_pipeline.dataset.write import _features
from data_pipeline.files.identity import DATASET, typed, write_identity
from data_pipeline.quiet_tensorflow import tf

SPEC = BatchSpec(groups=4, triplets=4, repeats=2, row_length=64)


def write_tiny_dataset(out: Path, model: Path) -> Path:
    """The folder of a dataset for the tiny model in `model`."""
    dataset = dataset_for(model, out)
    counts, file = dataclasses.asdict(dataset.manifest.counts), out / shard_name(0, 1)
    concepts, terms = counts["concepts"], counts["terms"]
    record = {
        FIRST_CONCEPT: 0,
        "n_terms": np.diff(dataset.term_start).astype(np.int32),
        "n_tokens": np.diff(dataset.token_start).astype(np.int32),
        "tokens": dataset.tokens,
        "term_languages": dataset.term_language,
        "n_vocabularies": np.ones(terms, np.uint16),
        "term_vocabularies": np.zeros(terms, np.uint16),
        "n_types": np.diff(dataset.type_start).astype(np.int32),
        "types": dataset.types,
        "n_triplets": np.bincount(dataset.heads, minlength=concepts).astype(np.int32),
        "relations": dataset.relations,
        "tails": dataset.tails,
        **{f"occurrence_{name}": array for name, array in dataset.occurrences._asdict().items()},
        "cuis": "\n".join(f"C{number}" for number in range(concepts)),
        "terms": "\n".join(f"term {number}" for number in range(terms)),
        "n_source_strings": np.ones(terms, np.uint16),
        "n_source_vocabularies": np.ones(terms, np.uint16),
        "source_vocabularies": np.zeros(terms, np.uint16),
        "source_strings": "\n" * (terms - 1),
        "n_codes": np.zeros(concepts, np.int32),
        "code_vocabularies": np.zeros(0, np.uint16),
        "codes": "",
    }
    with tf.io.TFRecordWriter(str(file)) as records:
        records.write(_features().serialize_example(record))
    shard = {"file": file.name, "bytes": file.stat().st_size, "records": 1, "codes": 0}
    shard |= dict.fromkeys(("source_strings", "source_vocabularies"), terms)
    shards = [typed(shard | counts, Shard, "the shard")]
    write_identity(out / MANIFEST, DATASET, dataclasses.replace(dataset.manifest, shards=shards))
    return out


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
