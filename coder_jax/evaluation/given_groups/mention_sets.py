"""The test sets of QUAERO as columns: mentions with gold, and what training mentions would say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coder_jax.evaluation.given_groups.majority import majority_answers, majority_cuis
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.quaero import PARTS, QuaeroMention
from data_pipeline.terminology.semantic_groups import group_number

# Test set -> the year whose test set it was, and the sets that its systems could be trained on.
TEST_SETS = {"dev": ("2015", ("train",)), "test": ("2016", ("train", "dev"))}

Corpus = Mapping[tuple[str, str], Sequence[QuaeroMention]]


@dataclass(frozen=True)
class MentionSet:
    """M mentions that have a note; `MentionSet.without_note` others are left out, as papers do.

    Attributes:
      name: "EMEA 2015".
      documents, texts, groups: of each mention.
      noted, gold: its CUIs as noted, and as they are called today.
      without_note: how many mentions have none.
      majority: the CUI that the (group, string) mostly has in the training mentions, None where it
        is not among them; None for all where the corpus has no training set.
    """

    name: str
    documents: list[str]
    texts: list[str]
    groups: list[str]
    noted: list[tuple[str, ...]]
    gold: list[tuple[str, ...]]
    without_note: int
    majority: list[str | None] | None

    @property
    def mistyped(self) -> int:
        """How many gold CUIs are none, such as C153057."""
        return sum(not is_cui(cui) for cuis in self.noted for cui in cuis)

    def reachable(self, groups: Mapping[str, int]) -> np.ndarray:
        """Which gold CUIs can be answered, bool [items], mention after mention.

        Args:
          groups: concept -> the groups that it is searched in, a bit set.
        """
        found = [
            groups.get(cui, 0) >> group_number(group) & 1
            for group, cuis in zip(self.groups, self.gold, strict=True)
            for cui in cuis
        ]
        return np.array(found, bool)


def is_cui(found: str) -> bool:
    return len(found) == 8 and found[0] == "C" and found[1:].isdecimal()


def mention_sets(
    corpus: Corpus, path: str, chosen: Sequence[str], successor: Mapping[str, str]
) -> list[MentionSet]:
    """The test sets that a corpus has.

    Args:
      corpus: from `read_quaero`.
      path: of the corpus, for messages.
      chosen: groups whose mentions are taken; none: all.
      successor: retired CUI -> the one that stands for it.

    Raises:
      BadInput: neither dev nor test, or no mention of the chosen groups.
    """
    kept = {
        key: [one for one in mentions if not chosen or one.group in chosen]
        for key, mentions in corpus.items()
    }

    def columns(
        mentions: Sequence[QuaeroMention],
    ) -> tuple[list[str], list[str], list[tuple[str, ...]]]:
        noted = [one for one in mentions if one.note is not None]
        gold = [tuple(successor.get(cui, cui) for cui in one.cuis) for one in noted]
        return [one.group for one in noted], [one.text for one in noted], gold

    sets = []
    for named, (year, trained_on) in TEST_SETS.items():
        training = [one for key in kept if key[0] in trained_on for one in kept[key]]
        known = majority_cuis(*columns(training)) if training else None
        for part in PARTS:
            mentions = kept.get((named, part), [])
            groups, texts, gold = columns(mentions)
            if not gold:
                continue
            noted = [one for one in mentions if one.note is not None]
            sets.append(
                MentionSet(
                    f"{part} {year}",
                    [one.document for one in noted],
                    texts,
                    groups,
                    [one.cuis for one in noted],
                    gold,
                    len(mentions) - len(noted),
                    majority_answers(known, groups, texts) if known is not None else None,
                )
            )
    if not sets:
        asked = f" of the semantic groups {', '.join(chosen)}" if chosen else ""
        raise BadInput(
            f"{path}: found no mentions{asked} with a CUI in dev (2015) or test (2016), only in "
            f"{', '.join(sorted({key[0] for key in corpus}))}; expected one of these sets, as "
            "nothing is scored on training mentions"
        )
    return sets
