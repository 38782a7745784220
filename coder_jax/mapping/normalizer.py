"""Normalization of mentions: same string first, then nearest term, or no answer and the reason.

Each answer gets its status here.
"""

from __future__ import annotations

import abc
import functools
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from coder_jax.mapping.candidates import SAME, Candidates
from coder_jax.mapping.coded_list import Answer, Candidate, Status
from coder_jax.mapping.context import MOST_CHARACTERS
from coder_jax.mapping.spelling import TypingErrors, plain, same_letters, visible
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import SPREADSHEET_ERRORS, is_empty, read_rows, split_concepts
from data_pipeline.process import BadInput
from data_pipeline.terminology.cleaning import semantic_tags, without_tags

# -------------------------------------------------------------------------------------------------
# Exact matches: a dictionary's terms that have the same string as a mention.

_TERMS_AT_ONCE = 1 << 20


class _SameStrings:
    """Finds terms equal to a mention, apart from case and blanks.

    It holds 16 bytes for each term, whatever its length, beside the terms themselves.

    Attributes:
      terms: the strings that are compared, [n].
    """

    def __init__(self, terms: Sequence[str]):
        self.terms = terms
        parts = range(0, len(terms), _TERMS_AT_ONCE)  # or all strings would be there several times
        hashes = np.concatenate(
            [
                np.zeros(0, np.uint64),
                *(
                    same_letters(terms[one : one + _TERMS_AT_ONCE]).hash().to_numpy()
                    for one in parts
                ),
            ]
        )
        self.order = np.argsort(hashes, kind="stable")
        self.hashes = hashes[self.order]

    def rows(self, mentions: Sequence[str]) -> list[np.ndarray]:
        """For each mention the rows, int64 and ascending, of the terms with its string."""
        wanted = same_letters(mentions)
        hashes = wanted.hash().to_numpy()
        first = np.searchsorted(self.hashes, hashes, "left")
        last = np.searchsorted(self.hashes, hashes, "right")
        found = [self.order[begin:end] for begin, end in zip(first, last, strict=True)]
        # Two strings may have one hash.
        rows = np.concatenate([np.zeros(0, np.int64), *found])
        strings = same_letters([self.terms[row] for row in rows]).to_list()
        same, start = [], 0
        for string, some in zip(wanted.to_list(), found, strict=True):
            end = start + len(some)
            is_same = [other == string for other in strings[start:end]]
            same.append(some[np.array(is_same, bool)])
            start = end
        return same


# -------------------------------------------------------------------------------------------------
# Mentions without content: empty ones, numbers, and placeholders such as "n/a".
#
# An encoder finds a nearest term for every string, so these are recognized where the dictionary has
# no such string.

# Placeholders in the languages of hospitals' lists.
_PLACEHOLDERS = """
n/a|n.a.|n. a.|na|nil|none|null|nan|empty|blank|missing|unknown|unk|not known|not applicable
not available|not specified|not stated|not recorded|not documented|not done|no data|no entry
no information|to be confirmed|to be determined|tbc|tbd|tba|todo|test|xxx|xx|same|ditto|as above
pending|n/d|other|others|misc|miscellaneous|unspecified|various|yes|no|true|false
k.a.|k. a.|ka|keine angabe|keine angaben|keine|nicht bekannt|unbekannt|nicht anwendbar|entfällt
nicht zutreffend|leer|fehlt|sonstige|sonstiges|andere|anderes|nicht angegeben
diverse|diverses|ja|nein
n.b.|n. b.|o.b.|o. b.|ohne befund|siehe oben|s.o.|s. o.|dito
s/o|sans objet|non applicable|non renseigné|non renseignée|non précisé|non précisée|aucun|aucune
inconnu|inconnue|néant|idem|nsp|voir ci-dessus|autre|autres|divers|non spécifié|oui|non
no aplica|no disponible|desconocido|desconocida|ninguno|ninguna|sin datos|sin especificar|ídem
otro|otra|otros|otras|sí
non applicabile|sconosciuto|sconosciuta|nessuno|nessuna|non noto|non nota|altro|altra|altri|altre|sì
não aplicável|não se aplica|desconhecido|desconhecida|nenhum|nenhuma|sem dados
outro|outra|outros|outras|sim|não
niet van toepassing|n.v.t.|nvt|onbekend|geen|geen gegevens|overig|overige|anders|nee
nelze|neznámé|neuvedeno|není známo|bilinmiyor|yok|不明|なし|該当なし|无|不详|未知
"""
_PLACEHOLDER_WORDS = frozenset(
    text for line in _PLACEHOLDERS.split("\n") for text in line.strip().split("|") if text
)
# Notes that refer the reader elsewhere.
_ELSEWHERE = re.compile(
    r"(please )?(see|refer to|as per) (the )?"
    r"(attached|attachment|letter|report|above|below|notes?|file|chart|previous|comments?)\b"
    r"|(siehe|s\.) (anhang|anlage|brief|befund|bericht|oben|unten|akte)\b"
    r"|voir (le |la |les )?(pièce jointe|courrier|lettre|compte[- ]rendu|rapport|dossier|annexe)\b"
    r"|ver (el |la )?(nota|adjunto|carta|informe|anexo)\b"
)


# Further errors of spreadsheets, in whatever language: "#GESPERRT!", "#ERROR!", "Err:502". But
# "#NOF?" may be a fracture.
_ERROR = re.compile(r"#[^\s#]+!|err:\d{3}|#{3,}")


def why_unanswerable(mention: str) -> str:
    """Why no concept can be the answer to a mention, in a few words; "" if one can.

    No answer have: the empty string, one letter (but of scripts that write words in one sign, such
    as Chinese), what has no letters at all, placeholders such as "n/a" or "see attached", the
    errors of a spreadsheet such as "#REF!", and texts of more than 500 characters.
    """
    if len(mention) > MOST_CHARACTERS:
        return f"a text of {len(mention):,} characters, no name"
    text = " ".join(unicodedata.normalize("NFKC", mention).lower().split())
    letters = [sign for sign in text if sign.isalpha()]
    if not text:
        return "empty"
    if text in SPREADSHEET_ERRORS or _ERROR.fullmatch(text):
        return "an error of a spreadsheet"
    bare = text.strip(" .:;,!?*-_[](){}<>\"'")
    if text in _PLACEHOLDER_WORDS or bare in _PLACEHOLDER_WORDS or _ELSEWHERE.match(bare):
        return "a placeholder"
    if not letters:
        return "a number" if any(sign.isnumeric() for sign in text) else "no letters"
    # Chinese and Japanese signs are letters without upper and lower case.
    if len(letters) == 1 and letters[0].upper() != letters[0].lower() and len(text) == 1:
        return "one letter"
    return ""


# -------------------------------------------------------------------------------------------------
# A user's list of abbreviations: `MI<TAB>myocardial infarction`.


_HEADERS = ("abbreviation", "abbr", "acronym", "short", "abkürzung", "abréviation")


def read_abbreviations(path: str | Path, encoding: str | None = None) -> dict[str, str]:
    """What each abbreviation stands for.

    Args:
      path: a .tsv, .csv or .xlsx file with the columns abbreviation and words, with or without a
        header.
      encoding: of a file that is not UTF-8.

    Raises:
      BadInput: no such file, a broken row, or an abbreviation that stands for two things.
    """
    meaning: dict[str, str] = {}
    _, rows = read_rows(Path(path), otherwise=encoding)
    filled = [(line, fields) for line, fields in rows if not is_empty(fields)]
    if filled and filled[0][1][0].strip().lower() in _HEADERS:
        del filled[0]
    if not filled:
        raise BadInput(f"{path}: found no lines; expected abbreviation<TAB>words")
    for line, fields in filled:
        short, words = (field.strip() for field in [*fields, "", ""][:2])
        if not (short and words) or not is_empty(fields[2:]):
            raise BadInput(f"{path}:{line}: found {fields}; expected abbreviation<TAB>words")
        if meaning.setdefault(short, words) != words:
            raise BadInput(
                f"{path}: {short!r} stands for {meaning[short]!r} and for {words!r}; expected one "
                "meaning: remove the other line"
            )
    return meaning


def writer_out(abbreviations: Mapping[str, str]) -> Callable[[str], str]:
    """A function that writes out the abbreviations of a mention.

    Only whole words in the letters of the list count: with "MS" in the list, "MS" is written out
    and "ms" (a millisecond) is not. One with other signs in it, such as "n/v/d", counts in whatever
    case. Longer ones go first, so that "MI" does not cut "MI II" short.
    """
    if not abbreviations:
        return lambda mention: mention
    written = dict(abbreviations)
    for short, meaning in abbreviations.items():
        if re.search(r"\w[^\w\s]+\w", short):
            written = {short.upper(): meaning, short.lower(): meaning} | written
    longest_first = sorted(written, key=len, reverse=True)
    words = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
    return lambda mention: words.sub(lambda found: written[found[0]], mention)


def new_names(
    names: Sequence[tuple[str, str]], dictionary: Dictionary, abbreviations: Mapping[str, str]
) -> list[tuple[str, str]]:
    """The (name, concept) that a dictionary does not have, as mentions are looked up in it."""
    write_out = writer_out(abbreviations)
    wanted = dict.fromkeys((write_out(visible(name)), concept) for name, concept in names)
    concepts = {concept for _, concept in wanted}
    own = [(term, concept) for _, term, concept in dictionary.pairs() if concept in concepts]
    strings = same_letters([term for term, _ in own]).to_list()
    held = set(zip(strings, (concept for _, concept in own), strict=True))
    new = same_letters([name for name, _ in wanted]).to_list()
    pairs = zip(wanted, new, strict=True)
    return [pair for pair, string in pairs if string and (string, pair[1]) not in held]


# -------------------------------------------------------------------------------------------------
# The rule by which the nearest concept becomes the answer.


LIKELY = 0.5  # confidence: more likely right than wrong


class Confidence(NamedTuple):
    """The probability that an answer is right: a logistic regression on similarity and margin.

    The margin, by how much the second concept is further away, tells more than the similarity: near
    the right concept of "fracture of the left hand" is that of "fracture of the right hand".
    """

    intercept: float
    of_similarity: float
    of_margin: float

    @classmethod
    def fitted(cls, similarities: np.ndarray, margins: np.ndarray, right: np.ndarray) -> Confidence:
        """From mentions whose concept is known: float [n], float [n], bool [n].

        Where all are right, or none is, the likelihood is the same for all: Laplace's estimate.
        """
        if len(np.unique(right)) < 2:
            share = (np.sum(right) + 1) / (len(right) + 2)
            return cls(float(np.log(share / (1 - share))), 0.0, 0.0)
        from sklearn.linear_model import LogisticRegression  # takes a second

        model = LogisticRegression(C=10, max_iter=1000)
        model.fit(np.stack([similarities, margins], axis=1), right)
        return cls(float(model.intercept_[0]), *map(float, model.coef_[0]))

    def of(self, similarity: float, margin: float) -> float:
        """The probability, in [0, 1]."""
        logit = self.intercept + self.of_similarity * similarity + self.of_margin * margin
        return 1 / (1 + math.exp(-max(min(logit, 500.0), -500.0)))


@dataclass(frozen=True)
class Rule:
    """The conditions under which the nearest concept is the answer.

    Attributes:
      least_similarity: of the best term.
      measured: how likely an answer is right; None where nothing was measured.
      least_confidence: by `measured`.
    """

    least_similarity: float = -1.0
    measured: Confidence | None = None
    least_confidence: float = 0.0

    def confidence(self, similarity: float, margin: float) -> float | None:
        """The probability that the answer is right; None if nothing was measured."""
        return None if self.measured is None else self.measured.of(similarity, margin)

    def why_not(self, similarity: float, margin: float) -> str:
        """Why this is not an answer; "" if it is."""
        if similarity < self.least_similarity:
            return f"similarity {similarity:.3f} is below {self.least_similarity:.3f}"
        confidence = self.confidence(similarity, margin)
        if confidence is not None and confidence < self.least_confidence:
            return f"confidence {confidence:.3f} is below {self.least_confidence:.3f}"
        return ""


def margin_of(candidates: Sequence[Candidate]) -> float:
    """By how much the first of ranked candidates is more similar than the second; at least 0.

    The second is the next that contradicts no more than the first. Where all others contradict, it
    is the last, which one that was not found is not above.
    """
    if not candidates:
        return 0.0
    first, *others = candidates
    rivals = [one.similarity for one in others if first.differs or not one.differs]
    last = others[-1].similarity if others else 0.0
    return max(first.similarity - (rivals[0] if rivals else last), 0.0)


# -------------------------------------------------------------------------------------------------
# The normalizers.


class Near(NamedTuple):
    """The candidates of a string."""

    candidates: list[Candidate]  # best first
    number: int = 1  # so many of them are the answer
    probabilities: np.ndarray | None = None  # [k, A] of a ranker (`confidence.likeliest`)


class ExactNames:
    """Finds the concepts of a dictionary that have a mention's string."""

    def __init__(self, dictionary: Dictionary):
        """
        Args:
          dictionary: with its terms as the source writes them.
        """
        self.dictionary = dictionary
        self.tags = semantic_tags(dictionary.terms)
        self.same_strings = _SameStrings(self._without_tags(dictionary.terms))

    def _without_tags(self, terms: Sequence[str]) -> Sequence[str]:
        if not self.tags:
            return terms
        return without_tags(pl.Series(list(terms), dtype=pl.String), self.tags).to_list()

    def exact(self, mentions: Sequence[str]) -> list[list[tuple[int, Candidate]]]:
        """For each mention the concepts with its string, best first.

        Before each how it is written: 2 as the mention is, 1 in other case, 0 with another tag, -1
        an acronym in other case, which alone is no match. What names nothing in other letters, such
        as "NA" beside "Na" for sodium, is no match either.
        """
        found = []
        same = self.same_strings.rows(self._without_tags(mentions))
        for mention, rows in zip(mentions, same, strict=True):
            by_concept: dict[str, tuple[int, bool, str]] = {}
            for row in rows:
                term = self.dictionary.terms[row]
                for concept in split_concepts(self.dictionary.concepts[row]):
                    is_preferred = self.dictionary.about(concept).preferred == term
                    held = (_likeness_of_same(mention, term), is_preferred, term)
                    by_concept[concept] = max(by_concept.get(concept, held), held)
            # A stable order: where nothing tells concepts apart, the dictionary's.
            ranked = sorted(by_concept.items(), key=lambda one: one[1][:2], reverse=True)
            best = ranked[0][1][0] if ranked else -1
            is_short = len(mention.strip()) <= _SHORT and bool(why_unanswerable(mention))
            if best < 0 or is_short and best < 2:
                ranked = []
            found.append(
                [(alike, Candidate(concept, term, 1.0)) for concept, (alike, _, term) in ranked]
            )
        return found


class SameStringNormalizer(ExactNames, abc.ABC):
    """Answers mentions that are strings of the dictionary; a subclass answers all others."""

    def __init__(self, dictionary: Dictionary, abbreviations: Mapping[str, str] | None = None):
        """
        Args:
          dictionary: with its terms as the source writes them.
          abbreviations: what they stand for; mentions are looked up with these written out.
        """
        super().__init__(dictionary)
        self.write_out = writer_out(abbreviations or {})

    @functools.cached_property
    def _typing_errors(self) -> TypingErrors:
        return TypingErrors(self.same_strings.terms)

    @abc.abstractmethod
    def near(self, strings: Sequence[str], k: int) -> list[Near]:
        """The candidates of each string: at least k, best first."""

    @abc.abstractmethod
    def answer(self, mention: str, string: str, near: Near, k: int) -> Answer:
        """The answer to a mention that is no string of the dictionary.

        Args:
          mention: as it was given.
          string: as it was looked up, with abbreviations written out.
          near: what came into question.
          k: candidates.
        """

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]:
        """The answer to each mention, with up to k candidates.

        1. A string of the dictionary, case and blanks aside, is the answer, whatever is near it; a
           semantic tag at its end, such as "(disorder)", may be missing. Of several concepts that
           have it, those that write it exactly as the mention does come first, tag and case
           included; if they are several still, the answer is tied. An acronym in capitals is not
           the same string in other letters: "odd" may be a word, where "ODD" is none.
        2. What else names nothing (`why_unanswerable`) has no answer.
        3. A string of the dictionary with one typing error is misspelt (`TypingErrors`).
        4. Else the concept of the nearest term that does not contradict the mention. Of several
           that are equally near, the one whose term is written most like the mention.

        Args:
          mentions: strings.
          k: candidates per mention, at least 1.
        """
        if k < 1:
            raise BadInput(f"k is {k}; expected at least 1 concept per mention")
        strings = [self.write_out(visible(mention)) for mention in mentions]
        exact = self.exact(strings)
        why = [
            "" if found else why_unanswerable(one)
            for one, found in zip(strings, exact, strict=True)
        ]
        misspelt = self.misspelt(
            ["" if why[row] or exact[row] else string for row, string in enumerate(strings)]
        )
        # Strings whose exact matches suffice as candidates are not encoded.
        asked = [
            row
            for row in range(len(strings))
            if not why[row] and (k > 1 or not (exact[row] or len(misspelt[row]) == 1))
        ]
        near = self.near([strings[row] for row in asked], k)
        near_of = dict(zip(asked, near, strict=True))
        answers = []
        for row, mention in enumerate(mentions):
            others = near_of[row].candidates if row in near_of else []
            if why[row]:
                answers.append(Answer(mention, Status.NO_ANSWER, [], reason=why[row]))
            elif exact[row]:
                alike = [likeness for likeness, _ in exact[row]]
                found = [candidate for _, candidate in exact[row]]
                status = Status.TIED if alike.count(alike[0]) > 1 else Status.EXACT
                answers.append(_of_strings(mention, status, found, others, k))
            elif misspelt[row]:
                place = {one.concept: number for number, one in enumerate(others)}
                found = sorted(misspelt[row], key=lambda one: place.get(one.concept, len(place)))
                status = Status.TIED if len(found) > 1 else Status.MISSPELT
                answers.append(_of_strings(mention, status, found, others, k))
            else:
                answer = self.answer(mention, strings[row], near_of[row], k)
                if answer.concept and _is_lost_acronym(strings[row], answer.candidates[0].term):
                    answer = replace(answer, reason="the dictionary has it in capitals")
                answers.append(answer)
        return answers

    def misspelt(self, strings: Sequence[str]) -> list[list[Candidate]]:
        """For each string the concepts one of whose terms it is with a typing error."""
        found: list[list[Candidate]] = []
        rows_of = self._typing_errors.rows(self._without_tags(strings)) if any(strings) else []
        for rows, string in zip(rows_of or [[]] * len(strings), strings, strict=True):
            of_concept: dict[str, Candidate] = {}
            for row in rows:
                term = self.dictionary.terms[row]
                likeness = _written_like(string, term)
                for concept in split_concepts(self.dictionary.concepts[row]):
                    of_concept.setdefault(concept, Candidate(concept, term, likeness))
            found.append(list(of_concept.values()))
        return found


class Normalizer(SameStringNormalizer):
    """Maps mentions to the concepts of one dictionary.

    Example:
      encoder = TermEncoder.from_pretrained("runs/demo/export", cleaning="lookup")
      dictionary = read_dictionary("terms.tsv")
      encoded = encoder.encode_dictionary("terms.tsv")
      normalizer = Normalizer(dictionary, Candidates(encoder, encoded, "both"))
      for answer in normalizer.answers(["heart attack", "n/a"], k=3):
          print(answer.mention, answer.status, answer.concept)
    """

    def __init__(
        self,
        dictionary: Dictionary,
        candidates: Candidates,
        *,
        rule: Rule | None = None,
        abbreviations: Mapping[str, str] | None = None,
        learnt: Collection[tuple[str, str]] = (),
    ):
        """
        Args:
          dictionary: with its terms as the source writes them.
          candidates: of the same rows.
          rule: which of the nearest concepts are answers; None: all.
          abbreviations: what they stand for; mentions are looked up with these written out.
          learnt: the (name, concept) of the dictionary that people's decisions gave it.
        """
        encoded = candidates.encoded
        if dictionary.concepts != encoded.concepts:
            raise BadInput(
                f"the dictionary has {len(dictionary.concepts):,} rows and its vectors are of "
                f"{len(encoded.concepts):,} others; encode the same dictionary"
            )
        super().__init__(dictionary, abbreviations)
        self.candidates, self.rule = candidates, rule or Rule()
        self.learnt = frozenset(learnt)

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]:
        return [self._with_source(one) for one in super().answers(mentions, k)]

    def _with_source(self, answer: Answer) -> Answer:
        """An answer that says so if its term was learnt."""
        best = answer.candidates[0] if answer.concept is not None else None
        if best is None or (best.term, best.concept) not in self.learnt:
            return answer
        is_name = answer.status in (Status.EXACT, Status.MISSPELT)
        reason = "; ".join(filter(None, ("learnt", answer.reason)))
        return replace(answer, status=Status.LEARNT if is_name else answer.status, reason=reason)

    def near(self, strings: Sequence[str], k: int) -> list[Near]:
        return [Near(found) for found in self.candidates.ranked(strings, max(k, 2))]

    def answer(self, mention: str, string: str, near: Near, k: int) -> Answer:
        return _of_nearest(mention, string, near.candidates, k, self.rule)


def _likeness_of_same(mention: str, term: str) -> int:
    """Similarity of two strings that differ at most in case, blanks and semantic tag."""
    if _is_lost_acronym(mention, term):
        return -1
    one, other = " ".join(mention.split()), " ".join(term.split())
    if one == other:
        return 2
    if one.lower() == other.lower():
        return 1
    one, other = plain([mention, term])
    if one == other:
        return 2
    one, other = same_letters([mention, term])
    return int(one == other)


_SHORT = 3  # signs, of which case may make another word
_ACRONYM = 6  # letters, at most


def _is_lost_acronym(mention: str, term: str) -> bool:
    """Whether a term is an acronym in capitals that a mention has in other letters."""
    is_acronym = 2 <= len(term) <= _ACRONYM and term.isalpha() and term.isupper()
    return is_acronym and mention.strip() != term and mention.strip().upper() == term


def _of_strings(
    mention: str, status: Status, found: list[Candidate], near: list[Candidate], k: int
) -> Answer:
    """The answer to a mention that is a string of the dictionary, perhaps with a typing error.

    Args:
      mention: as it was given.
      status: of the answer.
      found: the concepts that have the string, best first, one or more.
      near: the concepts with the nearest terms, for the places behind those.
      k: candidates.
    """
    held = {one.concept for one in found}
    candidates = found + [one for one in near if one.concept not in held]
    return Answer(mention, status, candidates[:k], ties=len(found) - 1)


def _of_nearest(mention: str, string: str, near: list[Candidate], k: int, rule: Rule) -> Answer:
    """The answer to a mention that is no string of the dictionary.

    Args:
      mention: as it was given.
      string: as it was looked up.
      near: the concepts with the nearest terms, best first: all that are as near as the first.
      k: candidates.
      rule: what an answer must have.
    """
    if not near:  # letters alone may find nothing
        return Answer(mention, Status.NO_ANSWER, [], reason="nothing is written like it")
    best, margin = near[0], margin_of(near)
    tied = [one for one in near if best.similarity - one.similarity <= SAME and one[3:] == best[3:]]
    likeness = {one: _written_like(string, one.term) for one in tied}
    ranked = sorted(tied, key=likeness.__getitem__, reverse=True)
    ranked += [one for one in near if one not in likeness]
    rivals = sum(likeness[one] == likeness[ranked[0]] for one in tied) - 1
    confidence = rule.confidence(best.similarity, margin)
    unsure = rule.why_not(best.similarity, margin)
    differs = f"differs: {', '.join(best.differs)}" if best.differs else ""
    lost = f"lost: {', '.join(best.lost)}" if best.lost else ""
    reason = "; ".join(filter(None, (unsure, differs, lost)))
    # A promised share of right answers is never made up of what is known to be wrong.
    if unsure or (differs and rule.least_confidence > 0):
        status = Status.NO_ANSWER
    else:
        likely = confidence is None or confidence >= LIKELY
        near_or_not = Status.NEAR if likely else Status.DOUBTFUL
        status = Status.DIFFERS if differs else Status.TIED if rivals else near_or_not
    return Answer(mention, status, ranked[:k], len(tied) - 1, margin, confidence, reason)


def _written_like(mention: str, term: str) -> float:
    """Similarity of spelling, 0 to 1, ignoring case and blanks."""
    one, other = same_letters([mention, term])
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
