"""Batches of MLNorm: terms with their candidate classes, and the file of the classes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from data_pipeline.batches.draws import TermDraw
from data_pipeline.batches.packing import decoded_terms, identity_of, kept_of
from data_pipeline.batches.spec import RowPlan, StepCut, TermSpec
from data_pipeline.dataset.store import TripletDataset, groups_of, open_dataset
from data_pipeline.files.whole import map_array, written_whole
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, group_number

# -------------------------------------------------------------------------------------------------
# Batches of precomputed term vectors with their candidate classes; no step encodes anything.
#
# OUT/vectors.npy              float32 [terms, D], the vector of each term of the dataset
# OUT/rows.npy                 int64 [rows], what `CandidateBatches.rows` says
# OUT/index/N/candidates.npy   int32 [rows, k], the candidates of each row of `_term_rows`; -1 for
# none

VECTORS, ROWS, CANDIDATES = "vectors.npy", "rows.npy", "candidates.npy"
ROW_GROUPS = 16  # in rows.npy a row is its term times this, plus its semantic group
AGAIN = "it is damaged: begin another run"


class CandidateBatches:
    """The batches of a run that trains a classifier of concepts.

    A batch has, [P, B, groups, N, ...] each, `vectors` (float32, [..., D]); and int32 `classes`
    [..., 1 + k], the class of the term's concept and its candidates; `class_groups`, the semantic
    groups of each of these as a bit set; `semantic_groups`, the group of the term. And, if asked
    for, `class_languages`, the languages in which each has a term, and `languages`, the term's.

    Args:
        folder: of the dataset.
        spec: what a step is made of.
        cut: how it is cut for the devices.
        width: D.
        candidates: k.
        languages: whether batches have languages.
    """

    packed: tuple[str, ...] = ()
    floats: tuple[str, ...] = ("vectors",)

    def __init__(
        self,
        folder: Path,
        spec: TermSpec,
        cut: StepCut,
        *,
        width: int,
        candidates: int,
        languages: bool = False,
    ):
        self.folder, self.spec, self.cut = folder, spec, cut
        self.dataset = open_dataset(folder)
        self.manifest, self.kept = self.dataset.manifest, kept_of(folder)
        self.draw = TermDraw(self.dataset, spec)
        self.concept_groups = groups_of(self.dataset)
        self.concept_languages = _languages_of(self.dataset) if languages else None
        self.groups = cut.groups(spec)
        self.width, self.candidates = width, candidates
        self.plan = RowPlan((1,))
        self.index: Path | None = None

    @property
    def rows(self) -> np.ndarray:
        """int64 [rows]: the term of each row times `ROW_GROUPS`, plus its semantic group."""
        return self.draw.row_terms * ROW_GROUPS + self.draw.row_groups

    @property
    def steps_per_epoch(self) -> float:
        """The steps in which each term comes once."""
        return self.draw.groups_per_epoch / self.spec.groups

    @property
    def identity(self) -> dict[str, Any]:
        """What the data must have in common with those of a run that is resumed."""
        return identity_of(self.manifest)

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch."""
        terms = (*self.groups.shape, self.spec.terms // self.spec.groups)
        classes = (*terms, 1 + self.candidates)
        shapes = {"vectors": (*terms, self.width), "classes": classes, "class_groups": classes}
        shapes["semantic_groups"] = terms
        if self.concept_languages is not None:
            shapes |= {"class_languages": classes, "languages": terms}
        return shapes

    def rows_in_use(self, batch: Mapping[str, np.ndarray]) -> int:
        """Always 1: nothing is packed."""
        return 1

    def fill(self, batch: Mapping[str, np.ndarray]) -> float:
        """The share of candidate places that are filled."""
        return float(np.mean(batch["classes"] >= 0))

    def some_terms(self) -> list[str]:
        """A few terms spread over the data, the same in every run."""
        return decoded_terms(self.folder, self.dataset.tokens, self.dataset.token_start)

    def with_index(self, index: Path) -> Self:
        """These batches with the candidates of an index.

        Raises:
            BadInput: if they are of other terms.
        """
        self.index = index
        self._candidates_of(index)
        return self

    def _candidates_of(self, index: Path) -> np.ndarray:
        return map_array(index / CANDIDATES, AGAIN, (len(self.draw.row_terms), self.candidates))

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """This host's batches of steps first_step to last_step - 1.

        Raises:
            BadInput: if files that the run has made are not as they were.
        """
        assert self.index is not None, "candidates come with the first refresh"
        candidates = self._candidates_of(self.index)
        path = self.index.parent.parent / VECTORS
        vectors = map_array(path, AGAIN, (int(self.dataset.term_start[-1]), self.width), "float32")
        terms_of, groups_of = self.draw.row_terms, self.draw.row_groups
        concept_of = self.draw.concepts
        for step in range(first_step, last_step):
            row = self.draw.rows(step, self.groups.ravel())
            row = row.reshape(*self.groups.shape, -1)
            own = concept_of[terms_of[row]][..., None]
            classes = np.concatenate([own, candidates[row]], axis=-1, dtype=np.int32)
            batch = {
                "vectors": vectors[terms_of[row]],
                "classes": classes,
                "class_groups": _sets_of(self.concept_groups, classes),
                "semantic_groups": groups_of[row].astype(np.int32),
            }
            if self.concept_languages is not None:
                batch["class_languages"] = _sets_of(self.concept_languages, classes)
                batch["languages"] = self.dataset.term_language[terms_of[row]].astype(np.int32)
            yield batch


def _sets_of(sets: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """int32 bit sets: the entry of `sets` for each class, 0 for class -1."""
    return np.where(classes < 0, 0, sets[np.maximum(classes, 0)].astype(np.int32))


def _languages_of(dataset: TripletDataset) -> np.ndarray:
    """int32 [C] bit sets: the languages in which each concept has a term; bit i for language i.

    Raises:
        BadInput: for more languages than bits.
    """
    if len(dataset.manifest.languages) > 31:
        raise BadInput(
            f"{dataset.folder} has {len(dataset.manifest.languages)} languages; expected at "
            "most 31 where terms are told from concepts of their language"
        )
    bits = np.left_shift(1, dataset.term_language.astype(np.int32))
    again, others, _ = dataset.occurrences
    np.bitwise_or.at(bits, again, np.left_shift(1, others.astype(np.int32)))
    return np.bitwise_or.reduceat(bits, dataset.term_start[:-1])


# -------------------------------------------------------------------------------------------------
# The file classes.tsv: which concept has which class number, and its semantic groups.
#
# One line per number: the concept, a tab, its semantic groups joined by blanks

CLASSES = "classes.tsv"


@dataclass(frozen=True)
class Classes:
    """The concepts that a classifier answers with.

    Attributes:
        concepts: by number.
        groups: uint16 [C], the semantic groups of each as a bit set; bit `ANY` always.
    """

    concepts: list[str]
    groups: np.ndarray


def classes_of(folder: Path) -> Classes:
    """The classes of a dataset.

    Raises:
        BadInput: if the folder cannot be read.
    """
    dataset = open_dataset(folder, strings=True)
    assert dataset.cuis is not None
    return Classes(dataset.cuis, groups_of(dataset))


def write_classes(folder: Path, classes: Classes) -> None:
    """Write classes.tsv."""
    with written_whole(folder / CLASSES) as path, path.open("w", encoding="utf-8") as file:
        for concept, bits in zip(classes.concepts, classes.groups.tolist(), strict=True):
            names = " ".join(name for number, name in enumerate(GROUPS) if bits >> number & 1)
            file.write(f"{concept}\t{names}\n")


def read_classes(folder: Path) -> Classes:
    """The classes of a run or of an export.

    Raises:
        BadInput: if the file is missing or broken; says where.
    """
    path = folder / CLASSES
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}; fetch the folder again") from error
    concepts, groups = [], np.full(len(lines), 1 << ANY, np.uint16)
    for number, line in enumerate(lines):
        concept, tab, names = line.partition("\t")
        if not (concept and tab):
            raise BadInput(
                f"{path}, line {number + 1}: found {line!r}; expected a concept, a tab and its "
                "semantic groups; fetch the folder again"
            )
        concepts.append(concept)
        for name in names.split():
            groups[number] |= 1 << group_number(name)
    return Classes(concepts, groups)
