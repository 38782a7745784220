"""Which names stand where in the sentences of a document, and which concept each means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import ahocorasick

from data_pipeline.skip_gram.dictionary import NameDictionary, surface, surface_of
from data_pipeline.sources.text.documents import Annotation, Document
from data_pipeline.sources.text.sentences import sentence_spans
from data_pipeline.sources.text.words import only_words, token_spans

MOST_TOKENS = 1000  # of a sentence; gensim cuts what has more than 10,000


class Mention(NamedTuple):
    """A name in a sentence: its tokens first .. last - 1, and the concept it means, or ""."""

    first: int
    last: int
    concept: str


class Sentence(NamedTuple):
    """Tokens, marks and stop words among them, and mentions from left to right."""

    tokens: list[str]
    mentions: list[Mention]


class Candidate(NamedTuple):
    """What may become a mention; the least comes first, and takes its tokens."""

    rank: int  # 0: annotated, 1: a name of what the document is about, 2: of the dictionary
    minus_length: int  # in tokens
    first: int
    last: int
    concept: str
    ambiguous: bool


SOURCES = ("annotated", "of the document", "of the dictionary")


class NameMatcher:
    """Finds the names of a set in tokens, all at once (Aho and Corasick 1975)."""

    def __init__(self, names: Iterable[str], stop: Container[str] = ()):
        """
        Args:
          names: as `surface` writes them.
          stop: names that are not looked for; nor are such of one sign, or without a letter.
        """
        self.names = [name for name in names if name not in stop and _can_be_found(name)]
        self._automaton = ahocorasick.Automaton()
        for name in self.names:
            self._automaton.add_word(name, name)
        self._automaton.make_automaton()

    def matches(self, tokens: Collection[str]) -> list[tuple[int, int, str]]:
        """(first token, the one behind its last, name) of each place of each name."""
        if not self.names:
            return []
        hits = list(self._automaton.iter(surface(tokens)))
        if not hits:
            return []
        token_of, end = {}, -1
        for place, token in enumerate(tokens, start=1):
            end += len(token) + 2
            token_of[end] = place
        # Each token has blanks of its own, so that a match begins and ends with whole tokens.
        return [(token_of[end] - name.count("  ") - 1, token_of[end], name) for end, name in hits]


def _can_be_found(name: str) -> bool:
    words = only_words(name.split())
    return any(letter.isalpha() for word in words for letter in word) and sum(map(len, words)) > 1


@dataclass
class Annotator:
    """Finds the mentions of a document.

    What is annotated counts first, then names of what the document is about, then the names of the
    dictionary; of two that overlap the longer, then the left one. Case does not count, but for the
    dictionary's abbreviations.

    A name that several concepts have means the one that the document is about. If it is about
    none or several of these, the mention has no concept: a guess would teach something wrong.

    Attributes:
      dictionary: None: only annotations and names of documents are mentions, and the identifiers
        that these have are concepts.
      stop: names, as `surface` writes them, that are mentions only where they are annotated.
      counts: of mentions by where they come from, and of what was left out.
    """

    dictionary: NameDictionary | None
    stop: frozenset[str] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        names = () if self.dictionary is None else self.dictionary.concepts_of
        self.matcher = NameMatcher(names, self.stop)

    def sentences(self, document: Document) -> Iterator[Sentence]:
        """The sentences of a document that have a word."""
        about = self._concepts(document.concepts)
        own = None
        if len(about) == 1 and document.names:
            own = NameMatcher(dict.fromkeys(map(surface_of, document.names)), self.stop)
        waiting = sorted(document.annotations, key=lambda one: one.first, reverse=True)
        for first, last in sentence_spans(document.text):
            spans = token_spans(document.text[first:last])
            here = []
            while waiting and waiting[-1].first < last:
                here.append(waiting.pop())
            candidates = list(self._annotated(here, spans, first))
            tokens = [token for token, _, _ in spans]
            if own is not None:
                for start, end, name in own.matches(tokens):
                    if not self._is_excluded(name):
                        candidates.append(Candidate(1, start - end, start, end, about[0], False))
            if self.dictionary is not None:
                for start, end, name in self.matcher.matches(tokens):
                    if name in self.dictionary.abbreviations:
                        _, begin, behind = spans[start]
                        if not document.text[first + begin : first + behind].isupper():
                            continue
                    concept, ambiguous = self._meant(self.dictionary.concepts_of[name], about)
                    candidates.append(Candidate(2, start - end, start, end, concept, ambiguous))
            yield from _cut(Sentence(tokens, self._chosen(candidates, len(tokens))))

    def _concepts(self, identifiers: Iterable[str]) -> list[str]:
        """The concepts that identifiers of a text name, each once, excluded ones left out."""
        if self.dictionary is None:
            return list(dict.fromkeys(identifiers))
        found = (self.dictionary.concept(one) for one in identifiers)
        return list(dict.fromkeys(one for one in found if one))

    def _is_excluded(self, name: str) -> bool:
        return self.dictionary is not None and name in self.dictionary.excluded_names

    @staticmethod
    def _meant(concepts: Collection[str], about: Collection[str]) -> tuple[str, bool]:
        """The concept that is meant, or "", and whether it could be one or the other."""
        if len(concepts) > 1:
            concepts = [concept for concept in concepts if concept in about]
            if len(concepts) != 1:
                return "", True
        return next(iter(concepts), ""), False

    def _annotated(
        self, annotations: Iterable[Annotation], spans: list[tuple[str, int, int]], offset: int
    ) -> Iterator[Candidate]:
        """The annotations whose first character is in a sentence that begins at `offset`."""
        for one in annotations:
            first, last = one.first - offset, one.last - offset
            inside = [k for k, (_, start, end) in enumerate(spans) if start < last and end > first]
            if not inside or spans[inside[0]][1] < first or spans[inside[-1]][2] > last:
                self.counts["left out: annotation of a part of a word"] += 1
                continue
            start, end = inside[0], inside[-1] + 1
            name = surface(token for token, _, _ in spans[start:end])
            known = self.dictionary
            if known is not None and (
                name in known.excluded_names or known.excluded.intersection(one.concepts)
            ):
                self.counts["left out: annotation of an excluded concept"] += 1
                continue
            concepts = self._concepts(one.concepts)
            if one.concepts and not concepts:
                self.counts["annotated with a concept that the dictionary lacks"] += 1
            concept, ambiguous = self._meant(concepts, ())
            yield Candidate(0, start - end, start, end, concept, ambiguous)

    def _chosen(self, candidates: list[Candidate], length: int) -> list[Mention]:
        """Those that do not overlap, the first of their order; from left to right."""
        if not candidates:
            return []
        taken, chosen = [False] * length, []
        for one in sorted(candidates):
            if any(taken[one.first : one.last]):
                continue
            taken[one.first : one.last] = [True] * (one.last - one.first)
            chosen.append(Mention(one.first, one.last, one.concept))
            self.counts[f"mentions {SOURCES[one.rank]}"] += 1
            self.counts["mentions of one of several concepts, without any"] += one.ambiguous
        return sorted(chosen)


def _cut(sentence: Sentence) -> Iterator[Sentence]:
    """A sentence, or pieces of one that is too long; a mention that is cut is none."""
    tokens, mentions = sentence
    for start in range(0, len(tokens), MOST_TOKENS):
        some = tokens[start : start + MOST_TOKENS]
        inside = [
            Mention(one.first - start, one.last - start, one.concept)
            for one in mentions
            if start <= one.first and one.last <= start + len(some)
        ]
        kept = [one for one in inside if only_words(some[one.first : one.last])]
        if only_words(some):
            yield Sentence(some, kept)
