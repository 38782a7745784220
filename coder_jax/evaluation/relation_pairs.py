"""Files of relations: pairs of concepts, each with the label of its relation.

Of relation classification:

- DDBRC, as distributed with CODER: a folder with x_train.txt and x_test.txt of head<TAB>tail (CUIs)
  and y_train.txt and y_test.txt with the relation of each line;
- a folder with relations_train.tsv and relations_test.tsv, header head, tail, label.

Of link prediction: one such file with that header.

Term encoders need a name for each concept: the first term that the dictionary has of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from coder_jax.evaluation.benchmark import Benchmark, Given
from coder_jax.evaluation.vectors import TERMS
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import read_text, tab_separated
from data_pipeline.process import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

HALVES = ("train", "test")
FROZEN, FINE_TUNED = "frozen", "fine-tuned"  # what a classifier does with the vectors
HEADER = ["head", "tail", "label"]


@dataclass(frozen=True)
class RelationPairs:
    """Heads, tails, and the label of the relation from each head to its tail."""

    heads: list[str]
    tails: list[str]
    labels: list[str]


@dataclass(frozen=True)
class RelationFile(Benchmark):
    """Pairs of concepts with the label of their relation.

    Attributes:
      parts: the pairs, in one or several parts.
      names: the term of each concept that the dictionary has; the others are encoded as their
        identifier, as in CODER's released code. None without a dictionary.
      dictionary: what the names come from.
      retired: concepts that are named after the one that they were merged into.
    """

    name: str
    path: str
    parts: tuple[RelationPairs, ...]
    content_hash: str
    names: Mapping[str, str] | None = None
    dictionary: Dictionary | None = None
    retired: int = 0
    retired_cuis: RetiredCuis | None = None

    # A classifier takes vectors of any length.
    takes_features: ClassVar[bool] = True

    def named(self, given: Given) -> Self:
        """The same file with each concept named by its first term in the dictionary, if any.

        A retired concept has the name of the one that it was merged into. The concepts themselves
        stay as they are: files of concept vectors are as old as the benchmark.

        Raises:
          BadInput: the dictionary has none of the concepts.
        """
        dictionary, retired_cuis = given.dictionary, given.retired_cuis
        if dictionary is None:
            return self
        now = {concept: concept for concept in self.concepts()}
        if retired_cuis is not None:
            dictionary = dictionary.with_successors(retired_cuis)
            now = {concept: retired_cuis.now(concept) for concept in now}
        wanted = set(now.values())
        first_term: dict[str, str] = {}
        for _, term, concept in dictionary.pairs():
            if concept in wanted:
                first_term.setdefault(concept, term)
        names = {
            concept: first_term[successor]
            for concept, successor in now.items()
            if successor in first_term
        }
        if not names:
            raise BadInput(
                f"{self.path}: found none of its {len(now):,} concepts (such as "
                f"{next(iter(now))}) in the dictionary {dictionary.source} (such as "
                f"{dictionary.concepts[0]}); expected concepts of one vocabulary"
            )
        retired = sum(concept != now[concept] for concept in names)
        return replace(
            self, names=names, dictionary=dictionary, retired=retired, retired_cuis=retired_cuis
        )

    def concepts(self) -> list[str]:
        """The distinct concepts of all pairs."""
        return list(dict.fromkeys(c for part in self.parts for c in (*part.heads, *part.tails)))

    def keys(self, keyed_by: str) -> list[str]:
        """The key of each of `concepts`: its name, or itself; BadInput without names."""
        if keyed_by != TERMS:
            return self.concepts()
        if self.names is None:
            raise BadInput(
                f"{self.path}: found relations between CUIs and no names for them; give "
                "--dictionary with a dataset folder, a release, or a TSV file of term<TAB>CUI"
            )
        return [self.names.get(concept, concept) for concept in self.concepts()]

    @property
    def unnamed(self) -> int:
        """Concepts without a name, where there is a dictionary."""
        return sum(c not in self.names for c in self.concepts()) if self.names else 0


class RelationHalves(RelationFile):
    """Two parts: pairs to train a classifier on, and pairs to test it on."""

    @property
    def train(self) -> RelationPairs:
        """The first part."""
        return self.parts[0]

    @property
    def test(self) -> RelationPairs:
        """The second part."""
        return self.parts[1]

    def labels(self) -> list[str]:
        """The distinct labels of all pairs, sorted."""
        return sorted({*self.train.labels, *self.test.labels})

    @property
    def unseen(self) -> int:
        """Test pairs with a label that no training pair has."""
        seen = set(self.train.labels)
        return sum(label not in seen for label in self.test.labels)


def read_ddbrc(path: Path, half: str) -> RelationPairs:
    concepts, relations = path / f"x_{half}.txt", path / f"y_{half}.txt"
    rows = tab_separated(concepts)
    for number, fields in rows:
        if len(fields) != 2 or not all(fields):
            raise BadInput(
                f"{concepts}:{number}: found {fields!r}; expected head<TAB>tail: mend the line"
            )
    lines = enumerate(read_text(relations).split("\n"), start=1)
    labels = {number: line.strip() for number, line in lines if line.strip()}
    if alone := labels.keys() ^ {number for number, _ in rows}:
        raise BadInput(
            f"{relations}: found {len(labels):,} relations for {len(rows):,} pairs in {concepts}, "
            f"and only one of the two in line {min(alone)}; expected one for each, in the same "
            "line: fetch both files again, they may be of different versions"
        )
    return RelationPairs([f[0] for _, f in rows], [f[1] for _, f in rows], list(labels.values()))


def read_tsv(file: Path) -> RelationPairs:
    rows = tab_separated(file)
    if [field.lower() for field in rows[0][1]] == HEADER:
        rows = rows[1:]
    for number, fields in rows:
        if len(fields) != 3 or not all(fields):
            raise BadInput(
                f"{file}:{number}: found {fields!r}; expected head<TAB>tail<TAB>label: mend the "
                "line"
            )
    if not rows:
        raise BadInput(
            f"{file}: found a header and no rows; expected head<TAB>tail<TAB>label: fetch it again"
        )
    columns = list(zip(*(fields for _, fields in rows), strict=True))
    return RelationPairs(*(list(column) for column in columns))
