"""Annotated abstracts in, mentions with the concepts of a dictionary that they mean out.

As Phan et al. 2019 (BNE), section 4.3, read NCBI disease and BC5CDR: abbreviations are written out
as their own document explains them; a composite mention ("ocular and auditory toxicity") is divided
where the file says into which parts; and only what has its concept in the dictionary counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from coder_jax.evaluation.benchmark import Given
from coder_jax.evaluation.normalization.benchmark import NormalizationFold
from coder_jax.mapping.abbreviations import writer_out
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import CONCEPT_SEPARATOR
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.pubtator import NONE, PREFIX, read_abstracts
from data_pipeline.sources.text.abbreviations import abbreviations_of

# What NCBI disease divides diseases into.
DISEASES = frozenset(("SpecificDisease", "DiseaseClass", "Modifier", "CompositeMention"))
TOGETHER = "+"  # between identifiers that only together are what is meant
# How UMLS and CTD call the vocabularies that the identifiers of PubTator are of.
VOCABULARIES = frozenset(("MSH", "MESH", "OMIM"))


@dataclass
class TextMentions:
    """The mentions of one type, such as Disease, in the order of the file.

    Attributes:
      strings: with abbreviations written out.
      gold: of each the identifiers, any of which is right.
      counts: what was done on the way, and left out.
    """

    strings: list[str] = field(default_factory=list)
    gold: list[tuple[str, ...]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, string: str, identifiers: str) -> None:
        """One mention, and its field of identifiers."""
        if TOGETHER in identifiers:
            self.counts["several concepts at once"] += 1
            return
        named = (PREFIX.sub("", one.strip()) for one in identifiers.split(CONCEPT_SEPARATOR))
        gold = tuple(dict.fromkeys(one for one in named if one and one != NONE))
        if not gold:
            self.counts["no identifier"] += 1
            return
        self.strings.append(string)
        self.gold.append(gold)

    @cached_property
    def answers(self) -> dict[str, tuple[str, ...]]:
        """The gold of each string, in small letters; of several the most frequent, then first."""
        seen: dict[str, Counter[tuple[str, ...]]] = {}
        for string, gold in zip(self.strings, self.gold, strict=True):
            seen.setdefault(string.lower(), Counter())[gold] += 1
        return {string: counts.most_common(1)[0][0] for string, counts in seen.items()}


def mentions_by_type(path: Path) -> dict[str, TextMentions]:
    """The mentions of an annotated file, by their type; those of NCBI disease are Disease.

    BadInput if it cannot be read.
    """
    found: dict[str, TextMentions] = {}
    for abstract in read_abstracts(path):
        written_out = writer_out(abbreviations_of(abstract.text))
        for mention in abstract.mentions:
            kind = "Disease" if mention.type in DISEASES else mention.type
            of_type = found.setdefault(kind, TextMentions())
            identifiers = mention.identifiers.split(CONCEPT_SEPARATOR)
            pairs = [(mention.text, mention.identifiers)]
            if len(mention.parts) == len(identifiers) > 1:
                pairs = list(zip(mention.parts, identifiers, strict=True))
                of_type.counts["composite mentions divided"] += 1
            for string, field_of_one in pairs:
                expanded = written_out(string)
                of_type.counts["abbreviations written out"] += expanded != string
                of_type.add(expanded, field_of_one)
    return found


class TextFolds(NamedTuple):
    """What `AnnotatedText` is made of; see there."""

    folds: list[NormalizationFold]
    exact: dict[str, list[str]]
    counts: dict[str, dict[str, int]]


def read_folds(given: Given) -> TextFolds:
    """The folds of an annotated file, one for each type of mention that the dictionary has.

    BadInput for a broken file, no dictionary, or one that has no concept of a mention.
    """
    dictionary = given.dictionary
    if dictionary is None:
        raise BadInput(
            f"{given.path}: found mentions in text and no dictionary to search; give --dictionary, "
            "such as MEDIC for diseases"
        )
    found = mentions_by_type(given.path)
    trained = [mentions_by_type(path) for path in training_files(given)]
    every = [one for some in (found, *trained) for one in some.values()]
    identifiers = sorted({one for some in every for gold in some.gold for one in gold})
    concepts = concepts_of_identifiers(dictionary, identifiers)

    def joined(gold: Sequence[str]) -> str:
        return CONCEPT_SEPARATOR.join(concepts[one] for one in gold if one in concepts)

    read = TextFolds([], {}, {})
    now = given.retired_cuis.now if given.retired_cuis else str
    for kind, mentions in found.items():
        pairs = list(zip(mentions.strings, map(joined, mentions.gold), strict=True))
        kept = [(string, gold) for string, gold in pairs if gold]
        read.counts[kind] = {**mentions.counts, "not in the dictionary": len(pairs) - len(kept)}
        if not kept:
            continue
        strings, gold = (list(column) for column in zip(*kept, strict=True))
        read.folds.append(NormalizationFold(kind, strings, gold, dictionary))
        if trained:
            answers: dict[str, tuple[str, ...]] = {}
            for some in reversed(trained):  # the first file counts, where two have a mention
                answers |= some[kind].answers if kind in some else {}
            read.exact[kind] = [now(joined(answers.get(one.lower(), ()))) for one in strings]
    if not read.folds:
        example = f"such as {identifiers[0]!r}" if identifiers else "there is no identifier"
        raise BadInput(
            f"{given.path}: found no mention whose concept ({example}) is in the dictionary "
            f"{dictionary.source} (such as {dictionary.concepts[0]!r}); expected one whose "
            "concepts are identifiers of MeSH or OMIM, or have them as codes, such as MEDIC"
        )
    return read


def training_files(given: Given) -> list[Path]:
    """The files of --exact-match that are meant for a benchmark."""
    files = []
    for argument in given.options.get("exact_match", []):
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            files.append(Path(argument))
        elif name == given.name:
            files.append(Path(path))
    return files


def concepts_of_identifiers(
    dictionary: Dictionary, identifiers: Sequence[str]
) -> Mapping[str, str]:
    """The concepts of a dictionary that identifiers of MeSH and OMIM mean, joined with "|".

    An identifier means the concept that is called so, or else those that have it as their code.
    """
    held = dictionary.concept_set
    found = {one: one for one in identifiers if one in held}
    missing = set(identifiers) - found.keys()
    if not missing:
        return found
    coded: dict[str, list[str]] = {}
    for concept in sorted(held):
        for vocabulary, code in dictionary.about(concept).codes:
            code = PREFIX.sub("", code)
            if code in missing and vocabulary.upper() in VOCABULARIES:
                coded.setdefault(code, []).append(concept)
    return found | {
        code: CONCEPT_SEPARATOR.join(dict.fromkeys(some)) for code, some in coded.items()
    }
