"""What tests of the build share: its options for a small ontology, and what it leaves."""

import json
from pathlib import Path

import tiny_bert

from data_pipeline.build_dataset.options import BuildOptions


def write_tokenizer(folder: Path) -> Path:
    """The folder, with a tokenizer in it."""
    tiny_bert.write_tokenizer(folder)
    return folder


def small_build(ontology: Path, tokenizer: Path, out: Path) -> BuildOptions:
    """Three shards and a hundred held-out terms."""
    return BuildOptions(source=ontology, out=out, tokenizer=tokenizer, hold_out=100, shards=3)


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
