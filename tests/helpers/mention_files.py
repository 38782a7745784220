"""Mentions and dictionaries of files that are there, as concepts and sets of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_pipeline.dataset.dictionary import read_entries
from data_pipeline.sources.corpora import read_gold
from data_pipeline.terminology.mentions import ConceptNames, MentionSet, concept_names, gold_form
from data_pipeline.terminology.mentions import mention_set as mentions_of


class Corpus(NamedTuple):
    dictionary: ConceptNames
    sets: dict[str, MentionSet]

    def mentions(self, *splits: str) -> list[str]:
        return [mention for split in splits for mention in self.sets[split].mentions]

    def gold(self, *splits: str) -> list[frozenset[int]]:
        sets = [self.sets[split] for split in splits]
        return [
            frozenset(part.tolist())
            for one in sets
            for part in np.split(one.gold, one.gold_start[1:-1])
        ]


def read_corpus(dictionary: Path, types: tuple[str, ...] = (), **files: Path) -> Corpus:
    entries = read_entries(dictionary)
    read = {split: read_gold(path, types) for split, path in files.items()}
    names = concept_names(entries, gold_form(entries, read["train"].rows))
    return Corpus(names, {split: mentions_of(found, names) for split, found in read.items()})


def chip(folder: Path) -> Corpus:
    splits = {split: folder / f"chip_cdn_{split}.csv" for split in ("train", "dev", "test")}
    return read_corpus(folder / "code.txt", **splits)


def medic(benchmarks: Path) -> Path:
    return benchmarks / "ncbi_disease" / "dictionary" / "medic_06Jul2012.txt"


def ncbi_disease(benchmarks: Path) -> Corpus:
    folder = benchmarks / "ncbi_disease"
    return read_corpus(
        medic(benchmarks),
        train=folder / "train" / "NCBItrainset_corpus.txt",
        dev=folder / "devel" / "NCBIdevelopset_corpus.txt",
        test=folder / "test" / "NCBItestset_corpus.txt",
    )


def bc5cdr(benchmarks: Path) -> Corpus:
    names = {"train": "Training", "dev": "Development", "test": "Test"}
    splits = {
        split: benchmarks / "bc5cdr" / f"CDR_{name}Set.PubTator.txt"
        for split, name in names.items()
    }
    return read_corpus(medic(benchmarks), ("Disease",), **splits)
