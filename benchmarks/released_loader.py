"""Batches made as in CODER's released PyTorch code: the peer of `benchmarks.input_pipeline`.

Written from a description of that code, set up as its best users would: everything is held as
Python strings, MRCONSO's first row of each LUI, MRREL as a set; the dataset draws a relation row
and terms of its two concepts with Python's `random`; terms are tokenized when they are drawn, all
terms of a step by one call of the fast tokenizer, and padded to 32; a torch DataLoader hands them
out. Its triplets, repeats and groups are those of the BatchSpec, and the terms of both pipelines
are cleaned by the same rules.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer

from benchmarks.ingest_peers import clean_term, rows
from data_pipeline.batches.spec import BatchSpec

PADDED_LENGTH = 32

Item = tuple[int, int, int, list[str], list[str]]


class ReleasedDataset(Dataset):
    """Relation rows of a release, and the terms of their concepts, in memory.

    Args:
        release: folder of plain RRF files.
        spec: how many repeats an item has.
        items: the length of an epoch, one triplet each; each is drawn anew, at random.
    """

    def __init__(self, release: Path, spec: BatchSpec, items: int):
        self.repeats, self.items = spec.repeats, items
        self.terms: dict[str, list[str]] = {}
        seen = set()
        for cui, lui, text in rows(release, "MRCONSO", ["CUI", "LUI", "STR"]):
            if lui not in seen:
                seen.add(lui)
                term = clean_term(text)
                if term:
                    self.terms.setdefault(cui, []).append(term)
        del seen
        found = set()
        wanted = ["CUI1", "REL", "CUI2", "RELA"]
        for head, rel, tail, rela in rows(release, "MRREL", wanted):
            if head != tail and head in self.terms and tail in self.terms and (rel or rela):
                found.add(f"{head}\t{rel}|{rela}\t{tail}")
        self.relations = list(found)
        del found
        labels = sorted({row.split("\t")[1] for row in self.relations})
        self.label_number = {label: number for number, label in enumerate(labels)}
        self.concept_number = {cui: number for number, cui in enumerate(self.terms)}

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, _: int) -> Item:
        head, label, tail = random.choice(self.relations).split("\t")
        return (
            self.concept_number[head],
            self.label_number[label],
            self.concept_number[tail],
            random.choices(self.terms[head], k=self.repeats),
            random.choices(self.terms[tail], k=self.repeats),
        )


class Collate:
    """The collate function: tensors of a step's items; one call tokenizes all terms.

    The result is `input_ids` int64 [G, 2k, 32] and `concepts` int64 [G, 2k], heads first; and
    `relations` int64 [G, U].
    """

    def __init__(self, tokenizer: str, spec: BatchSpec):
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        self.spec = spec

    def __call__(self, items: list[Item]) -> dict[str, torch.Tensor]:
        spec = self.spec
        terms: list[str] = []
        concepts = []
        for first in range(0, len(items), spec.triplets):
            group = items[first : first + spec.triplets]
            for concept, side in ((0, 3), (2, 4)):  # heads, then tails
                for item in group:
                    terms += item[side]  # type: ignore[arg-type]
                    concepts += [item[concept]] * spec.repeats
        ids = self.tokenizer(
            terms,
            padding="max_length",
            truncation=True,
            max_length=PADDED_LENGTH,
            return_tensors="pt",
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        return {
            "input_ids": ids.view(spec.groups, -1, PADDED_LENGTH),
            "concepts": torch.tensor(concepts).view(spec.groups, -1),
            "relations": torch.tensor([item[1] for item in items]).view(spec.groups, -1),
        }


def released_batches(dataset: Dataset, collate: Collate, workers: int) -> Iterator[dict[str, Any]]:
    """Batches of whole steps, practically endless, made by that many worker processes."""
    return iter(
        DataLoader(
            dataset,
            batch_size=collate.spec.groups * collate.spec.triplets,
            collate_fn=collate,
            num_workers=workers,
            # A fork of a process whose tokenizer has threads would wait for them forever.
            worker_init_fn=_without_threads,
            drop_last=True,
        )
    )


def _without_threads(_: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
