"""Terms as vectors that were made before, each with its candidate concepts, as batches.

For runs that train classes alone: no step encodes anything.

OUT/vectors.npy              float32 [terms, D], the vector of each term of the dataset
OUT/rows.npy                 int64 [rows], what `CandidateBatches.rows` says
OUT/index/N/candidates.npy   int32 [rows, k], the candidates of each row of `term_rows`; -1 for none
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from data_pipeline.batches.packed_groups import identity_of
from data_pipeline.batches.spec import RowPlan, StepCut, TermSpec
from data_pipeline.files.array_files import map_array
from data_pipeline.process.errors import BadInput

VECTORS, ROWS, CANDIDATES = "vectors.npy", "rows.npy", "candidates.npy"
ROW_GROUPS = 16  # in rows.npy a row is its term times this, plus its semantic group
AGAIN = "it is damaged: begin another run"


class CandidateBatches:
    """The batches of a run of classes.

    A batch has, [P, B, groups, N, ...] each, `vectors` (float32, [..., D]); and int32 `classes`
    [..., 1 + k], the class of the term's concept and its candidates; `class_groups`, the semantic
    groups of each of these as a bit set; `semantic_groups`, the group of the term.

    Args:
        folder: of the dataset.
        spec: what a step is made of.
        cut: how it is cut for the devices.
        width: D.
        candidates: k.
    """

    packed: tuple[str, ...] = ()
    floats: tuple[str, ...] = ("vectors",)
    kept: tuple[str, ...] = ("tokenizer",)

    def __init__(self, folder: Path, spec: TermSpec, cut: StepCut, *, width: int, candidates: int):
        # Only here does training meet TensorFlow.
        from data_pipeline.batches.draws.terms import TermDraw
        from data_pipeline.dataset.store import open_dataset
        from data_pipeline.terminology.semantic_groups import groups_of

        self.folder, self.spec, self.cut = folder, spec, cut
        self.dataset = open_dataset(folder)
        self.manifest: Mapping[str, Any] = self.dataset.manifest
        self.draw = TermDraw(self.dataset, spec)
        self.concept_groups = groups_of(self.dataset)
        self.groups = cut.groups(spec)
        self.width, self.candidates = width, candidates
        self.plan = RowPlan((1,))
        self.index: Path | None = None

    @property
    def rows(self) -> np.ndarray:
        """int64 [rows]: the term of each row times `ROW_GROUPS`, plus its semantic group."""
        return self.draw.row_terms.numpy() * ROW_GROUPS + self.draw.row_groups.numpy()

    @property
    def identity(self) -> dict[str, Any]:
        """What of the data must be the same when a run goes on."""
        return identity_of(self.manifest)

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a batch."""
        terms = (*self.groups.shape, self.spec.terms // self.spec.groups)
        return {
            "vectors": (*terms, self.width),
            "classes": (*terms, 1 + self.candidates),
            "class_groups": (*terms, 1 + self.candidates),
            "semantic_groups": terms,
        }

    def rows_in_use(self, batch: Mapping[str, np.ndarray]) -> int:
        """One: nothing is packed."""
        return 1

    def fill(self, batch: Mapping[str, np.ndarray]) -> float:
        """The part of the candidates that are any."""
        return float(np.mean(batch["classes"] >= 0))

    def with_index(self, index: Path) -> Self:
        """These batches with the candidates of an index.

        Raises:
            BadInput: if they are of other terms.
        """
        self.index = index
        self._candidates_of(index)
        return self

    def _candidates_of(self, index: Path) -> np.ndarray:
        found = map_array(index / CANDIDATES, AGAIN)
        expected = (self.draw.size, self.candidates)
        if found.shape != expected or found.dtype != np.int32:
            raise BadInput(
                f"{index / CANDIDATES} holds {found.dtype} {found.shape}; expected int32 "
                f"{expected}: {AGAIN}"
            )
        return found

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """This host's batches of steps first_step to last_step - 1.

        Raises:
            BadInput: if files that the run has made are not as they were.
        """
        from data_pipeline.dataset.quiet_tensorflow import tf

        assert self.index is not None, "candidates come with the first refresh"
        candidates = self._candidates_of(self.index)
        path = self.index.parent.parent / VECTORS
        vectors = map_array(path, AGAIN)
        expected = (int(self.dataset.term_start[-1]), self.width)
        if vectors.shape != expected or vectors.dtype != np.float32:
            raise BadInput(
                f"{path} holds {vectors.dtype} {vectors.shape}; expected float32 {expected}: "
                f"{AGAIN}"
            )
        terms_of, groups_of = self.draw.row_terms.numpy(), self.draw.row_groups.numpy()
        concept_of = self.draw.concepts.numpy()
        for step in range(first_step, last_step):
            row = self.draw.rows(tf.constant(step, tf.int64), self.groups.ravel()).numpy()
            row = row.reshape(*self.groups.shape, -1)
            own = concept_of[terms_of[row]][..., None]
            classes = np.concatenate([own, candidates[row]], axis=-1, dtype=np.int32)
            bits = self.concept_groups[np.maximum(classes, 0)].astype(np.int32)
            yield {
                "vectors": vectors[terms_of[row]],
                "classes": classes,
                "class_groups": np.where(classes < 0, 0, bits),
                "semantic_groups": groups_of[row].astype(np.int32),
            }
