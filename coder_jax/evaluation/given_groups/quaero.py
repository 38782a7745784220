"""QUAERO: French drug leaflets and titles, the test sets of CLEF eHealth 2015 and 2016."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from coder_jax.evaluation.benchmark import Flag, Found, Given
from coder_jax.evaluation.given_groups.benchmark import GroupedMentions, chosen_groups
from coder_jax.evaluation.given_groups.counts import COUNTINGS
from coder_jax.evaluation.given_groups.mention_sets import mention_sets
from data_pipeline.sources.corpora.quaero import GROUPS, is_quaero, read_quaero


@dataclass(frozen=True)
class Quaero(GroupedMentions):
    """The test sets that are there, EMEA and MEDLINE apart."""

    formats: ClassVar[str] = (
        "QUAERO:   the folder QUAERO_FrenchMed with its BRAT files, or a .tar.gz or .zip of it"
    )
    about: ClassVar[str] = """\
QUAERO    the folder QUAERO_FrenchMed with its BRAT files, or a .tar.gz or .zip of it; searched in
          the terms of --dictionary whose concepts have the mention's semantic group, which is
          given. Precision, recall and F1 of one CUI per mention, MRR and acc@1, on EMEA and MEDLINE
          of 2015 (dev) and 2016 (test). Rows beside them: gold that the dictionary holds alone, and
          the majority CUI of the training mentions.\
"""
    flags: ClassVar[tuple[Flag, ...]] = (
        Flag(
            "--threshold",
            "also score with no answer below these cosines (or probabilities, of a classifier)",
            default=[],
            argparse={"nargs": "+", "type": float, "metavar": "SCORE"},
        ),
        Flag(
            "--semantic-groups",
            f"score mentions of these groups alone, and search theirs ({', '.join(GROUPS)})",
            default=[],
            argparse={"nargs": "+", "choices": GROUPS, "metavar": "GROUP"},
        ),
        Flag(
            "--count-as",
            "how mentions with several gold CUIs count: mlnorm (its code: each CUI is a mention), "
            "brateval (CLEF's tool), brateval-any (the tool, one CUI in common is enough); "
            "default: mlnorm",
            default="mlnorm",
            argparse={"choices": tuple(COUNTINGS)},
        ),
    )
    flags_under: ClassVar[str] = "mentions with semantic groups"

    @classmethod
    def claims(cls, found: Found) -> bool:
        return is_quaero(found.path)

    @classmethod
    def read(cls, given: Given) -> Self:
        successor = given.retired_cuis.successor if given.retired_cuis else {}
        corpus = read_quaero(given.path)
        sets = mention_sets(corpus, str(given.path), chosen_groups(given), successor)
        return cls.of_sets(given, sets)
