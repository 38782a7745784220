"""Mentions whose semantic group is given, normalized to one CUI each.

The task of MLNorm (Wajsbürt et al. 2021): places and groups of mentions are given, the CUI is asked
for. The corpora are `quaero.Quaero` and, with --given-groups, `mantra.GroupedMantra`. Answers are
searched among the concepts of the mention's group alone. Whatever is a `GroupNormalizer` is scored:
`score` makes one of an encoder, by nearest terms; `score_normalizer` takes any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Self

from coder_jax.evaluation.benchmark import Benchmark, Given, Options
from coder_jax.evaluation.given_groups.counts import COUNTINGS
from coder_jax.evaluation.given_groups.mention_sets import MentionSet
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.cells import Table
from coder_jax.evaluation.results.published import QUAERO, PublishedRow
from coder_jax.evaluation.vectors.vectors import Vectors, terms_only
from data_pipeline.dataset.dictionaries.groups import groups_of_concepts
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import content_hash, split_concepts
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis
from data_pipeline.terminology.semantic_groups import group_number

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization.group_normalizer import GroupNormalizer


@dataclass(frozen=True)
class GroupedMentions(Benchmark):
    """Sets of mentions, each of which has a semantic group and gold CUIs.

    Attributes:
      sets: their mentions and gold CUIs, in the CUIs of today where a list of retired ones is
        given, of which `retired` stand in for a retired one.
      dictionary: the terms of concepts that have a group of some mention; None: no dictionary.
      groups: concept -> its semantic groups as a bit set; of the dictionary.
      chosen: the groups whose mentions are scored; none: all.
    """

    name: str
    path: str
    sets: list[MentionSet]
    content_hash: str
    dictionary: Dictionary | None = None
    groups: dict[str, int] | None = None
    chosen: tuple[str, ...] = ()
    retired: int = 0
    retired_cuis: RetiredCuis | None = None

    kind: ClassVar[str] = "semantic group given"
    published: ClassVar[tuple[PublishedRow, ...]] = QUAERO

    @classmethod
    def of_sets(cls, given: Given, sets: list[MentionSet]) -> Self:
        """The benchmark of sets with gold as it is called today.

        BadInput for a dictionary that does not fit, see `searching`.
        """
        retired = given.retired_cuis
        successor = retired.successor if retired else {}
        rows = (
            (one.name, *row, " ".join(cuis))
            for one in sets
            for *row, cuis in zip(one.documents, one.groups, one.texts, one.noted, strict=True)
        )
        benchmark = cls(
            given.name,
            str(given.path),
            sets,
            content_hash(rows),
            chosen=chosen_groups(given),
            retired=sum(cui in successor for one in sets for cuis in one.noted for cui in cuis),
            retired_cuis=retired,
        )
        return benchmark if given.dictionary is None else benchmark.searching(given.dictionary)

    def searching(self, dictionary: Dictionary) -> Self:
        """The benchmark with what is searched: of a dictionary, the terms of the mentions' groups.

        BadInput for a dictionary without semantic groups, or that holds no gold CUI in its group.
        """
        if self.retired_cuis is not None:
            dictionary = dictionary.with_successors(self.retired_cuis)
        asked = 0
        for group in {group for one in self.sets for group in one.groups}:
            asked |= 1 << group_number(group)
        bits = {c: b for c, b in groups_of_concepts(dictionary).items() if b & asked}
        kept = [
            row
            for row, joined in enumerate(dictionary.concepts)
            if not bits.keys().isdisjoint(split_concepts(joined))
        ]
        narrowed = replace(
            dictionary,
            terms=[dictionary.terms[row] for row in kept],
            concepts=[
                "|".join(c for c in split_concepts(dictionary.concepts[row]) if c in bits)
                for row in kept
            ],
            languages=dictionary.languages and [dictionary.languages[row] for row in kept],
            vocabularies=dictionary.vocabularies and [dictionary.vocabularies[row] for row in kept],
        )
        if not any(one.reachable(bits).any() for one in self.sets):
            example = self.sets[0]
            raise BadInput(
                f"{self.path}: found none of its gold CUIs (such as {example.gold[0][0]!r} of "
                f"{example.texts[0]!r}, {example.groups[0]}) in the dictionary {dictionary.source} "
                f"(such as {dictionary.concepts[0]!r}); expected UMLS CUIs, and concepts of the "
                "mentions' semantic groups"
            )
        return replace(self, dictionary=narrowed, groups=bits)

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of mentions and terms; BadInput for none, or concept vectors."""
        terms_only(keyed_by, self.path)
        sides = [*(one.texts for one in self.sets), self._searched().terms]
        return list(dict.fromkeys(chain.from_iterable(sides)))

    def dictionaries(self) -> list[Dictionary]:
        return [self._searched()]

    def _searched(self) -> Dictionary:
        if self.dictionary is None:
            raise BadInput(
                f"{self.path}: found mentions with semantic groups and no dictionary to search; "
                "give --dictionary with a dataset folder, the MRCONSO.RRF of a release with "
                "MRSTY.RRF beside it, or a table with the columns term, concept and semantic_type"
            )
        return self.dictionary

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation.normalization.group_normalizer import NearestTerms

        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        nearest = NearestTerms(vectors.encode, self._searched(), self.groups or {})
        return self.score_normalizer(nearest, encoder, options, missing=missing)

    def score_normalizer(
        self,
        normalizer: GroupNormalizer,
        encoder: EncoderRecord,
        options: Options,
        *,
        missing: int = 0,
        similarity: str = "cosine of the nearest term",
    ) -> EvaluationRecord:
        """The record of whatever answers mentions, such as a classifier over concepts.

        Args:
          normalizer: asked once for each distinct mention and group.
          encoder: for the record.
          options: threshold, count_as, seed, predictions.
          missing: strings that have no vector.
          similarity: what its scores are.
        """
        from coder_jax.evaluation.given_groups.answers import described
        from coder_jax.evaluation.given_groups.scores import Scorer

        scorer = Scorer(self, normalizer, COUNTINGS[options["count_as"]], options["threshold"])
        record = scorer.record(encoder, options, missing=missing, similarity=similarity)
        answers = described(scorer, encoder.pooling, options["predictions"])
        return replace(record, answers=answers)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """A row for each set and threshold, and below it what is said in `about`."""
        from coder_jax.evaluation.given_groups.table import table

        return table(records, cls.published)


def chosen_groups(given: Given) -> tuple[str, ...]:
    """The groups whose mentions are asked for; none: all."""
    return tuple(dict.fromkeys(given.options.get("semantic_groups") or ()))
