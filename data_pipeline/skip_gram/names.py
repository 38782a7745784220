"""Names of a dictionary, found in text with the concept that each means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import ahocorasick

from data_pipeline.dataset.dictionary import read_dictionary, read_entries, read_identifiers
from data_pipeline.files.tables import content_hash, read_text
from data_pipeline.process import BadInput
from data_pipeline.sources.release_files import is_rrf_terms
from data_pipeline.sources.text import Annotation, Document, only_words, sentence_spans, token_spans

# -------------------------------------------------------------------------------------------------
# Which names are searched for in text, and the concepts of each.

# Words that are frequent matches of disease dictionaries without meaning a disease, and English
# words that are also abbreviations.
_STOP_NAMES = frozenset(
    """
    condition conditions cancer cancers disease diseases tumor tumors tumour tumours diagnosis
    disorder disorders mutation mutations infection infections complex syndrome syndromes symptom
    symptoms sign signs finding findings patient patients lesion lesions illness problem problems
    mg mm cm nm km kg et al men go bind rich air arm cord ask ten ion fed gave bad add ups bid pale
    pig cup tar lord caps bo id deletion mutated marker simple sensitive sensitivity regression
    infectious helix recurrence differentiating genetic inherited recurrent primary secondary
    abnormality abnormalities injury injuries deficiency complication complications present
    a about after all also am an and any are as at be been but by can could did do does for from
    get had has have he her him his how i if in into is it its let may me more most my no nor not
    now of off on one or our out over own per said same see she so some such than that the their
    them then they this to too two under up us use was we were what when who why will with would
    you your acute aid aims apart arc arms art back cap care case cat cell cells chronic cold drop
    ear end face fact fall fan far fast fat fit gap gas great hand hot ice key lab large lead led
    low major map mass met mild minor non normal old pet plan rat rest rod sad set severe
    small spot star step stop tag task time trap type war wave
    """.split()
)


def _surface(tokens: Iterable[str]) -> str:
    """Tokens as one string in which each token is between blanks: the form in which names are
    matched.
    """
    return "".join(f" {token} " for token in tokens)


def _surface_of(name: str) -> str:
    """The matching form of a name."""
    return _surface(token for token, _, _ in token_spans(name))


@dataclass(frozen=True)
class NameDictionary:
    """The names to find, in matching form, and their concepts.

    Attributes:
      concepts_of: the concepts of each name, but for those that are excluded.
      concepts: all, without excluded ones.
      codes: other identifiers of a concept -> it, where they are of one only.
      abbreviations: names of one word that the dictionary never writes but in capitals, such as
        AIDS: text means them only where it does so, too.
      excluded, excluded_names: concepts, and the names that one of them has.
      record: what a manifest says of it.
    """

    concepts_of: Mapping[str, tuple[str, ...]]
    concepts: frozenset[str]
    codes: Mapping[str, str]
    abbreviations: frozenset[str]
    excluded: frozenset[str]
    excluded_names: frozenset[str]
    record: Mapping[str, object]

    def concept(self, identifier: str) -> str:
        """The concept that a text's identifier means; "" for an unknown identifier."""
        return identifier if identifier in self.concepts else self.codes.get(identifier, "")


def read_names(
    path: Path,
    languages: Sequence[str] = (),
    types: Sequence[str] = (),
    exclude: Path | None = None,
) -> NameDictionary:
    """The names of a dictionary, whatever file it is.

    Args:
      path: as `read_entries` takes it.
      languages, types: of a dataset, a release or such a table: terms in these languages, concepts
        of these semantic types. Empty: all.
      exclude: a list of concepts, as `read_identifiers` takes it. None of their names is looked
        for, even if others have it, too.

    Raises:
      BadInput: another thing, or a list of concepts none of which is in the dictionary.
    """
    held, codes, abbreviations = _read(path, languages, types)
    excluded = frozenset(read_identifiers(exclude)) if exclude is not None else frozenset()
    known = {concept for concepts in held.values() for concept in concepts}
    if excluded and not excluded & known:
        raise BadInput(
            f"--exclude-concepts {exclude}: found {sorted(excluded)[0]!r} and {len(excluded) - 1:,}"
            f" more, none of which {path} has; expected its concepts, such as {min(known)!r}"
        )
    closed = frozenset(name for name, concepts in held.items() if excluded & concepts.keys())
    return NameDictionary(
        {name: tuple(concepts) for name, concepts in held.items() if name not in closed},
        frozenset(known - excluded),
        {
            code: next(iter(concepts))
            for code, concepts in codes.items()
            if len(concepts) == 1 and not excluded & concepts.keys()
        },
        abbreviations,
        excluded | {code for code, concepts in codes.items() if excluded & concepts.keys()},
        closed,
        {
            "source": str(path),
            "names": len(held),
            "concepts": len(known),
            "excluded_concepts": len(excluded & known),
            "excluded_names": len(closed),
            "content_hash": content_hash((name, *concepts) for name, concepts in held.items()),
        },
    )


_Held = dict[str, dict[str, None]]  # a name or a code -> its concepts, in order


def _read(
    path: Path, languages: Sequence[str], types: Sequence[str]
) -> tuple[_Held, _Held, frozenset[str]]:
    """The concepts of each name and of each other identifier, and the names in capitals only."""
    held: _Held = {}
    codes: _Held = {}
    small: set[str] = set()
    for name, concept in _pairs(path, languages, types, codes):
        tokens = [token for token, _, _ in token_spans(name)]
        if only_words(tokens):
            held.setdefault(_surface(tokens), {})[concept] = None
            if len(tokens) > 1 or not name.isupper():
                small.add(_surface(tokens))
    if not held:
        raise BadInput(f"{path}: found no name that has a word; give another dictionary")
    # A dictionary written in capitals throughout says nothing by them.
    return held, codes, frozenset(held.keys() - small) if small else frozenset()


def _pairs(
    path: Path, languages: Sequence[str], types: Sequence[str], codes: _Held
) -> Iterator[tuple[str, str]]:
    """(name, concept) pairs in the dictionary's order; also fills in codes."""
    if path.is_dir() or is_rrf_terms(path) or languages or types:
        dictionary = read_dictionary(path, languages=languages, types=types, raw=True)
        for _, term, concept in dictionary.pairs():
            yield term, concept
        for concept in sorted(dictionary.concept_set):
            for _, code in dictionary.about(concept).codes:
                codes.setdefault(code, {})[concept] = None
        return
    for entry in read_entries(path):
        for code in entry.codes[1:]:
            codes.setdefault(code, {})[entry.codes[0]] = None
        for name in entry.names:
            yield name, entry.codes[0]


def read_stop_names(path: Path | None) -> frozenset[str]:
    """The names of `_STOP_NAMES` and of a file, one per line, in matching form."""
    more = read_text(path).split("\n") if path is not None else []
    return frozenset(_surface_of(name) for name in (*_STOP_NAMES, *more) if name.strip())


# -------------------------------------------------------------------------------------------------
# The search for names in the sentences of a document, and the choice of the concept meant.

_MOST_TOKENS = 1000  # of a sentence; gensim cuts what has more than 10,000


class Mention(NamedTuple):
    """A name in a sentence: tokens first .. last - 1, and the concept meant, or ""."""

    first: int
    last: int
    concept: str


class Sentence(NamedTuple):
    """Tokens (punctuation and stop words included), and mentions from left to right."""

    tokens: list[str]
    mentions: list[Mention]


class _Candidate(NamedTuple):
    """A possible mention. Candidates are sorted; the smallest takes its tokens first."""

    rank: int  # 0: annotated, 1: a name of what the document is about, 2: of the dictionary
    minus_length: int  # in tokens
    first: int
    last: int
    concept: str
    ambiguous: bool


_SOURCES = ("annotated", "of the document", "of the dictionary")


class _NameMatcher:
    """Finds all names of a set in a text at once (Aho and Corasick 1975)."""

    def __init__(self, names: Iterable[str], stop: Container[str] = ()):
        """
        Args:
          names: as `_surface` writes them.
          stop: names that are not looked for; nor are such of one sign, or without a letter.
        """
        self.names = [name for name in names if name not in stop and _can_be_found(name)]
        self._automaton = ahocorasick.Automaton()
        for name in self.names:
            self._automaton.add_word(name, name)
        self._automaton.make_automaton()

    def matches(self, tokens: Collection[str]) -> list[tuple[int, int, str]]:
        """(first token, end token, name) of every occurrence of a name."""
        if not self.names:
            return []
        hits = list(self._automaton.iter(_surface(tokens)))
        if not hits:
            return []
        token_of, end = {}, -1
        for place, token in enumerate(tokens, start=1):
            end += len(token) + 2
            token_of[end] = place
        # Each token is between blanks of its own, so that matches begin and end with whole tokens.
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
      stop: names, as `_surface` writes them, that are mentions only where they are annotated.
      counts: of mentions by where they come from, and of what was left out.
    """

    dictionary: NameDictionary | None
    stop: frozenset[str] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        names = () if self.dictionary is None else self.dictionary.concepts_of
        self.matcher = _NameMatcher(names, self.stop)

    def sentences(self, document: Document) -> Iterator[Sentence]:
        """The sentences of a document that contain a word."""
        about = self._concepts(document.concepts)
        own = None
        if len(about) == 1 and document.names:
            own = _NameMatcher(dict.fromkeys(map(_surface_of, document.names)), self.stop)
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
                        candidates.append(_Candidate(1, start - end, start, end, about[0], False))
            if self.dictionary is not None:
                for start, end, name in self.matcher.matches(tokens):
                    if name in self.dictionary.abbreviations:
                        _, begin, behind = spans[start]
                        if not document.text[first + begin : first + behind].isupper():
                            continue
                    concept, ambiguous = self._meant(self.dictionary.concepts_of[name], about)
                    candidates.append(_Candidate(2, start - end, start, end, concept, ambiguous))
            yield from _cut(Sentence(tokens, self._chosen(candidates, len(tokens))))

    def _concepts(self, identifiers: Iterable[str]) -> list[str]:
        """The distinct concepts that a text's identifiers name, without excluded ones."""
        if self.dictionary is None:
            return list(dict.fromkeys(identifiers))
        found = (self.dictionary.concept(one) for one in identifiers)
        return list(dict.fromkeys(one for one in found if one))

    def _is_excluded(self, name: str) -> bool:
        return self.dictionary is not None and name in self.dictionary.excluded_names

    @staticmethod
    def _meant(concepts: Collection[str], about: Collection[str]) -> tuple[str, bool]:
        """The concept that is meant, or "", and whether the name is ambiguous."""
        if len(concepts) > 1:
            concepts = [concept for concept in concepts if concept in about]
            if len(concepts) != 1:
                return "", True
        return next(iter(concepts), ""), False

    def _annotated(
        self, annotations: Iterable[Annotation], spans: list[tuple[str, int, int]], offset: int
    ) -> Iterator[_Candidate]:
        """The annotations that begin in a sentence, which itself begins at `offset`."""
        for one in annotations:
            first, last = one.first - offset, one.last - offset
            inside = [k for k, (_, start, end) in enumerate(spans) if start < last and end > first]
            if not inside or spans[inside[0]][1] < first or spans[inside[-1]][2] > last:
                self.counts["left out: annotation of a part of a word"] += 1
                continue
            start, end = inside[0], inside[-1] + 1
            name = _surface(token for token, _, _ in spans[start:end])
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
            yield _Candidate(0, start - end, start, end, concept, ambiguous)

    def _chosen(self, candidates: list[_Candidate], length: int) -> list[Mention]:
        """Mentions that do not overlap, from left to right; earlier candidates in the order win."""
        if not candidates:
            return []
        taken, chosen = [False] * length, []
        for one in sorted(candidates):
            if any(taken[one.first : one.last]):
                continue
            taken[one.first : one.last] = [True] * (one.last - one.first)
            chosen.append(Mention(one.first, one.last, one.concept))
            self.counts[f"mentions {_SOURCES[one.rank]}"] += 1
            self.counts["mentions of one of several concepts, without any"] += one.ambiguous
        return sorted(chosen)


def _cut(sentence: Sentence) -> Iterator[Sentence]:
    """A sentence, cut into pieces if it is too long; mentions across a cut are dropped."""
    tokens, mentions = sentence
    for start in range(0, len(tokens), _MOST_TOKENS):
        some = tokens[start : start + _MOST_TOKENS]
        inside = [
            Mention(one.first - start, one.last - start, one.concept)
            for one in mentions
            if start <= one.first and one.last <= start + len(some)
        ]
        kept = [one for one in inside if only_words(some[one.first : one.last])]
        if only_words(some):
            yield Sentence(some, kept)
