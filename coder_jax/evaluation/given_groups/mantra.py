"""MANTRA GSC with the semantic group of each mention given: `evaluate --given-groups`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from coder_jax.evaluation.benchmark import Found, Given
from coder_jax.evaluation.given_groups.benchmark import GroupedMentions, chosen_groups
from coder_jax.evaluation.given_groups.mention_sets import MentionSet
from coder_jax.evaluation.normalization.mantra_files import Mentions, corpora_in
from data_pipeline.process.errors import BadInput


@dataclass(frozen=True)
class GroupedMantra(GroupedMentions):
    """A set for each language and corpus; a mention of two groups is asked for in each."""

    formats: ClassVar[str] = ""
    about: ClassVar[str] = ""

    @classmethod
    def claims(cls, found: Found) -> bool:
        """Never: its files are those of `Mantra`, which asks for it."""
        return False

    @classmethod
    def read(cls, given: Given) -> Self:
        successor = given.retired_cuis.successor if given.retired_cuis else {}
        chosen = chosen_groups(given)
        sets = [
            mention_set(name, mentions, chosen, successor, str(given.path))
            for name, mentions in corpora_in(given.path).items()
        ]
        sets = [one for one in sets if one.texts]
        if not sets:
            raise BadInput(
                f"{given.path}: found no mentions of the semantic groups {', '.join(chosen)}; give "
                "others with --semantic-groups, or none for all"
            )
        return cls.of_sets(given, sets)


def mention_set(
    name: str,
    mentions: Mentions,
    chosen: tuple[str, ...],
    successor: Mapping[str, str],
    path: str,
) -> MentionSet:
    """The mentions of a corpus, each once for each group that its CUIs have.

    Of a CUI of several groups the first is taken. BadInput for a CUI without any.
    """
    noted: dict[tuple[str, str, str], list[str]] = {}
    for (unit, span), (text, cuis) in mentions.items():
        for cui, groups in cuis.items():
            if not groups:
                raise BadInput(
                    f"{path}: found no semantic group of {cui}, the mention {text!r} in {unit}; "
                    "expected one, in a note of a brat file or as grp of XML: fetch MANTRA GSC "
                    "again, or leave --given-groups out"
                )
            group = groups.split("|")[0]
            if not chosen or group in chosen:
                noted.setdefault((f"{unit}:{span}", text, group), []).append(cui)
    return MentionSet(
        name,
        [unit for unit, _, _ in noted],
        [text for _, text, _ in noted],
        [group for _, _, group in noted],
        [tuple(cuis) for cuis in noted.values()],
        [tuple(successor.get(cui, cui) for cui in cuis) for cuis in noted.values()],
        0,
        None,
    )
