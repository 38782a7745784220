"""The draw of terms: every term of a dataset once an epoch, in an order of each epoch's own.

No state: the order is a stateless permutation, as in `groups.py`.
"""

from collections.abc import Sequence

import numpy as np

from data_pipeline.batches.draws.term_spec import TermSpec
from data_pipeline.batches.order import key, permute
from data_pipeline.dataset.quiet_tensorflow import as_tensor, tf
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY, groups_of


class TermDraw:
    """The terms of any step, all of them or those of one host.

    A row is a term with a semantic group of its concept: a term whose concept is of two groups has
    two rows, one whose concept is of none has one with the group `ANY`.

    Args:
        dataset: the opened dataset.
        spec: what a batch is made of.

    Raises:
        BadInput: if the dataset has fewer rows than a step takes.
    """

    def __init__(self, dataset: TripletDataset, spec: TermSpec):
        spec.validate()
        self.spec = spec
        terms, groups = term_rows(dataset, spec.languages)
        self.size = int(terms.size)
        if self.size < spec.terms:
            of = f" in {' '.join(spec.languages)}" if spec.languages else ""
            raise BadInput(
                f"the dataset has {self.size} terms{of} with a semantic group, but a step takes "
                f"{spec.terms} different ones; use fewer (--terms), or build with fewer filters"
            )
        self.row_terms, self.row_groups = tf.constant(terms), tf.constant(groups)
        concepts = np.repeat(
            np.arange(dataset.term_start.size - 1, dtype=np.int32), np.diff(dataset.term_start)
        )
        self.concepts = as_tensor(concepts)

    def rows(self, step: tf.Tensor, groups: np.ndarray) -> tf.Tensor:
        """int64 [G, N]: the rows that parts of a step take, numbered as in `term_rows`."""
        spec = self.spec
        step = tf.cast(step, tf.int64)
        # An epoch is a whole number of steps, so that no step mixes two permutations; the few rows
        # at the end of its order are left out, others in each epoch.
        steps_per_epoch = self.size // spec.terms
        epoch, within = step // steps_per_epoch, step % steps_per_epoch
        share = spec.terms // spec.groups
        place = tf.constant(groups, tf.int64)[:, None] * share + tf.range(share, dtype=tf.int64)
        index = within * spec.terms + place
        keys = tf.broadcast_to(key(spec.seed, "permutation", epoch), tf.shape(index))
        return tf.cast(permute(index, self.size, keys), tf.int64)

    def __call__(self, step: tf.Tensor, groups: np.ndarray) -> dict[str, tf.Tensor]:
        """The draw of G parts of a step, each of N terms.

        Args:
            step: int64 scalar.
            groups: int [G], the numbers of the parts within the step.

        Returns:
            `terms` int64, `concepts` and `semantic_groups` int32, [G, N] each.
        """
        rows = self.rows(step, groups)
        terms = tf.gather(self.row_terms, rows)
        return {
            "terms": terms,
            "concepts": tf.gather(self.concepts, terms),
            "semantic_groups": tf.cast(tf.gather(self.row_groups, rows), tf.int32),
        }


def term_rows(
    dataset: TripletDataset, languages: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a dataset: each term with each semantic group of its concept.

    Of the groups that the dataset was built with (--semantic-groups), or of all.

    Args:
        dataset: the opened dataset.
        languages: of the terms that are wanted; none: all.

    Returns:
        (terms, groups): int64 and uint8 [rows], sorted by term, then by group.

    Raises:
        BadInput: if the dataset has no term in a language.
    """
    wanted_N = dataset.in_languages(languages)
    bits_C = groups_of(dataset)
    no_group = np.uint16(1 << ANY)
    bits_C = np.where(bits_C == no_group, no_group, bits_C & ~no_group)
    bits_N = np.where(wanted_N, np.repeat(bits_C, np.diff(dataset.term_start)), np.uint16(0))
    parts = [np.flatnonzero(bits_N >> group & 1) for group in range(ANY + 1)]
    terms = np.concatenate(parts)
    groups = np.repeat(np.arange(ANY + 1, dtype=np.uint8), [part.size for part in parts])
    order = np.lexsort((groups, terms))
    return terms[order], groups[order]
