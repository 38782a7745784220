"""A file of triplets in; concepts and relations by number out, and what is known beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.relations.link_benchmark import LinkBenchmark


@dataclass(frozen=True)
class Links:
    """T triplets of C concepts.

    Attributes:
      heads, tails: int [T], concepts.
      relations: int [T], relations of the encoder; each that it does not know has a negative number
        of its own, and leads to the head itself, as it does for two synonyms in training.
    """

    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray


def relation_numbers(benchmark: LinkBenchmark, labels: Sequence[str]) -> dict[str, int]:
    """The number of each label of the file among the encoder's relations.

    A label that they lack has a negative number of its own.

    Args:
      benchmark: its labels are REL|RELA, or RELA alone.
      labels: REL|RELA, of the encoder's relations.

    Raises:
      BadInput: a RELA that several relations have.
    """
    by_name: dict[str, list[str]] = {}
    for label in labels:
        by_name.setdefault(label.partition("|")[2], []).append(label)
    number_of = {label: number for number, label in enumerate(labels)}
    numbers = {}
    for place, label in enumerate(dict.fromkeys(benchmark.pairs.labels)):
        meant = [label] if "|" in label else by_name.get(label, [label])
        if len(meant) > 1:
            raise BadInput(
                f"{benchmark.path}: found the label {label!r}, which may be {' or '.join(meant)}; "
                "expected one of these in full (and then CUI1 as head, CUI2 as tail)"
            )
        numbers[label] = number_of.get(meant[0], -1 - place)  # apart, or true concepts would mix
    return numbers


def numbered_links(benchmark: LinkBenchmark, numbers: Mapping[str, int]) -> Links:
    """The triplets of a file by number, in the direction of the encoder's relations.

    A label REL|RELA is read as in the dataset, from CUI1 to CUI2; RELA alone as the sentence "head
    RELA tail": so the head is CUI2.
    """
    concept_of = {concept: number for number, concept in enumerate(benchmark.concepts())}
    rows, pairs = [], benchmark.pairs
    for head, tail, label in zip(pairs.heads, pairs.tails, pairs.labels, strict=True):
        first, second = (head, tail) if "|" in label else (tail, head)
        rows.append((concept_of[first], numbers[label], concept_of[second]))
    return Links(*np.array(rows).T)


def known_links(benchmark: LinkBenchmark, numbers: Mapping[str, int]) -> Links:
    """The triplets of the dictionary's dataset between concepts of the file, of its relations.

    None where the dictionary is no dataset. `numbers` is as in `numbered_links`.
    """
    dictionary = benchmark.dictionary
    if dictionary is None or dictionary.dataset is None:
        return Links(*np.zeros((3, 0), int))
    # Only here is TensorFlow needed, to read the records of the dataset.
    from data_pipeline.dataset.store import open_dataset

    dataset = open_dataset(dictionary.dataset, strings=True)
    here = {concept: number for number, concept in enumerate(benchmark.concepts())}
    number_of = np.array([here.get(cui, -1) for cui in dataset.cuis or []])
    either = [(label, label.partition("|")[2]) for label in dataset.manifest["relations"]]
    named = [next((name for name in names if name in numbers), None) for names in either]
    is_asked = np.array([name is not None for name in named])
    relation_of = np.array([numbers[name] if name is not None else 0 for name in named])
    rows = np.flatnonzero(
        is_asked[dataset.relations]
        & (number_of[dataset.heads] >= 0)
        & (number_of[dataset.tails] >= 0)
    )
    return Links(
        number_of[dataset.heads[rows]],
        relation_of[dataset.relations[rows]],
        number_of[dataset.tails[rows]],
    )
