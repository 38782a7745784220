"""What a mention says beside the name in it: denied, suspected, of the family, in the past.

The method is that of NegEx and ConText: phrases before or behind a name say in what context it
stands, until a phrase ends their scope; some phrases only look like that and belong to the name. A
mention is short, so the name is what remains when the phrases at its ends are taken off.

References:
  Chapman et al., A simple algorithm for identifying negated findings and diseases in discharge
  summaries, Journal of Biomedical Informatics 34, 2001.
  Harkema et al., ConText: an algorithm for determining negation, experiencer, and temporal status
  from clinical reports, Journal of Biomedical Informatics 42, 2009.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from coder_jax.mapping.coded_list import Answer, Status
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import tab_separated
from data_pipeline.process import BadInput, did_you_mean

_CONTEXTS = ("negated", "possible", "hypothetical", "family", "history")
_LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "pt")
# The rules that are always used, a file for each language. No phrase of one is a word of another.
OWN_RULES = tuple(Path(__file__).with_name(f"context_{one}.tsv") for one in _LANGUAGES)

_LINK, _NAME, _END = "link", "name", "end"
_KINDS = (*_CONTEXTS, _LINK, _NAME, _END)
_BEFORE, _START, _AFTER, _ANYWHERE = "before", "start", "after", ""
_PLACES = {_LINK: (_BEFORE, _AFTER), _NAME: (_ANYWHERE,), _END: (_ANYWHERE,)}
_OF_A_CONTEXT = (_BEFORE, _START, _AFTER)
_FEWEST = 2  # letters of a name
_EDGE = " \t\u00a0.,;:=-–()[]{}\"'"
_WORD = re.compile(r"\w+")
_PART = re.compile(r"\([^()]*\)|[^\s()]+")  # of a phrase
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_MINUS = re.compile(r"\s*(?:\(\s*[-–−]\s*\)|\[\s*[-–−]\s*\])\s*$")  # "fever (-)"
# "(-) fever"; (-)-epinephrine is a substance
_MINUS_FIRST = re.compile(r"^\s*(?:\(\s*[-–−]\s*\)|\[\s*[-–−]\s*\])(?!\s*[-‐–−])\s*")
_STOP = re.compile(r"[,;:.(]")
# Brackets as signs that a phrase may have: "fever (no)" is "fever: no".
_WITHOUT_BRACKETS = str.maketrans("([{)]}", ":::   ")


class _Rule(NamedTuple):
    phrase: str
    kind: str
    place: str


class InContext(NamedTuple):
    """A mention, taken apart.

    Attributes:
      contexts: of _CONTEXTS, in their order; none where the mention is a name alone.
      name: what is left without the phrases; the mention itself where there are none.
    """

    contexts: tuple[str, ...]
    name: str


class ContextRules:
    """Phrases that tell the context of a name.

    Args:
      paths: files of phrase<TAB>kind<TAB>place, read as one; lines that begin with # are comments.
        In a phrase, (a|b) stands for either, (a|) for a or nothing, and at its end (>a|b) for a
        name that begins with either. Letters with accents stand for those without, too: lists are
        often typed so. Kind is one of _CONTEXTS, with the place "before" (the name), "after" or
        "start" (of the mention alone); "link", a phrase that may stand between another and the name
        ("before" or "after" this); "name", which looks like one of these but belongs to a name; or
        "end", which ends the scope of what is before it.
      encoding: of files that are not UTF-8.

    Raises:
      BadInput: a file that cannot be read, or a broken line.
    """

    def __init__(self, paths: Sequence[Path] = OWN_RULES, encoding: str | None = None):
        rules = [rule for path in paths for rule in _read(path, encoding)]
        rules.sort(key=lambda one: -len(one.phrase))  # "no evidence of" before "no"

        def joined(kinds: Sequence[str], *places: str) -> tuple[str, dict[str, str]]:
            some = [one for one in rules if one.kind in kinds and one.place in places]
            named = [f"(?P<r{number}>{_pattern(one.phrase)})" for number, one in enumerate(some)]
            kinds_of = {f"r{number}": one.kind for number, one in enumerate(some)}
            return f"(?:{'|'.join(named) or '(?!)'})", kinds_of

        def compiled(pattern: str) -> re.Pattern[str]:
            return re.compile(pattern, re.IGNORECASE)

        first, self._of_first = joined(_CONTEXTS, _BEFORE, _START)
        later, _ = joined(_CONTEXTS, _BEFORE)
        last, self._of_last = joined(_CONTEXTS, _AFTER)
        link_before, _ = joined((_LINK,), _BEFORE)
        link_after, _ = joined((_LINK,), _AFTER)
        name, _ = joined((_NAME,), _ANYWHERE)
        end, _ = joined((_END,), _ANYWHERE)
        self._first, self._last = compiled(first), compiled(rf"{last}\s*$")
        self._later = compiled(rf"(?:[,;.]\s*|(?<!\w){_unnamed(end)}\s*){_unnamed(later)}")
        self._link_before, self._link_after = compiled(link_before), compiled(rf"{link_after}\s*$")
        self._name, self._name_last = compiled(name), compiled(rf"{name}\s*$")
        self._end = compiled(end)
        common = frozenset(
            word for one in rules if one.kind == _LINK for word in _WORD.findall(one.phrase.lower())
        )
        of_contexts = [one.phrase for one in rules if one.kind in _CONTEXTS]
        self._needed = frozenset().union(*(_needed(one, common) for one in of_contexts))

    def read(self, mention: str) -> InContext:
        """The contexts of a mention and the name in it."""
        given, mention = mention, _MINUS.sub(" negative", _MINUS_FIRST.sub("no ", mention))
        if self._needed.isdisjoint(_WORD_OR_SIGN.findall(mention.lower())):
            return InContext((), given)
        found: list[str] = []
        text = self._up_to_end(self._of_beginning(mention, found), found)
        text = self._of_ending(text, found)
        if not found and (later := self._later.search(mention)):  # "cough, no fever"
            part = mention[later.start() :].lstrip(_EDGE)
            if (end := self._end.match(part)) is not None:
                part = part[end.end() :].lstrip(_EDGE)
            text = self._up_to_end(self._of_beginning(part, found), found)
        name = text.strip(_EDGE)
        if not found or sum(map(str.isalpha, name)) < _FEWEST:
            return InContext((), given)
        return InContext(tuple(one for one in _CONTEXTS if one in found), name)

    def around(self, before: Sequence[str], name: str, behind: Sequence[str]) -> tuple[str, ...]:
        """The contexts of a name in a text, as the words around it in its sentence say them.

        The longest words before the name that make a mention in context with it count, and else
        those behind it: "mother had no [fever]", "[pneumonia] was ruled out". What the name itself
        says is left to `read`.

        Args:
          before, behind: words and signs, each with the blank that follows it.
          name: as it stands in the text.
        """
        if self.read(name).contexts:
            return ()
        bare = name.strip(_EDGE)
        for first in range(len(before)):
            read = self.read("".join(before[first:]) + name)
            if read.contexts and read.name.endswith(bare):
                return read.contexts
        for last in range(len(behind), 0, -1):
            if last < len(behind) and self.read("".join(behind[last - 1 :])).contexts:
                continue  # "fever, no cough": it is said of what follows
            read = self.read(f"{name} {''.join(behind[:last])}")
            if read.contexts and read.name == bare:
                return read.contexts
        return ()

    def _up_to_end(self, text: str, found: list[str]) -> str:
        end = self._end.search(text) if found else None
        return text[: end.start()] if end and end.start() else text

    def _of_beginning(self, text: str, found: list[str]) -> str:
        """Takes phrases off the beginning; adds their kinds to `found`."""
        begun = text.lstrip(_EDGE)
        denied = 0
        while True:
            rest = begun
            while link := self._link_before.match(rest):
                rest = rest[link.end() :].lstrip(_EDGE)
            for part in dict.fromkeys((begun, rest)):
                phrase = None if self._name.match(part) else self._first.match(part)
                if phrase is not None:
                    break
            else:
                return rest if found else text
            kind = self._of_first[str(phrase.lastgroup)]
            behind = part[phrase.end() :]
            denied = denied + 1 if kind == "negated" else 0
            found.append(kind)
            if denied == 2:  # "denies no fever": nobody knows
                found[:] = [one for one in found if one != "negated"] + ["possible"]
            if _STOP.match(behind.lstrip()):
                denied = 0
            begun = behind.lstrip(_EDGE)

    def _of_ending(self, text: str, found: list[str]) -> str:
        """Takes phrases off the end; adds their kinds to `found`."""
        while True:
            text = text.rstrip(_EDGE)
            flat = text.translate(_WITHOUT_BRACKETS)
            phrase = None if self._name_last.search(flat) else self._last.search(flat)
            if phrase is None or not phrase.start():
                return text
            found.append(self._of_last[str(phrase.lastgroup)])
            text = text[: phrase.start()].rstrip(_EDGE)
            while (link := self._link_after.search(text)) and link.start():
                text = text[: link.start()].rstrip(_EDGE)


@cache
def own_rules() -> ContextRules:
    """The rules of this project, read once."""
    return ContextRules()


def _unnamed(pattern: str) -> str:
    """A pattern whose groups have no names, which may stand but once."""
    return re.sub(r"\(\?P<r\d+>", "(?:", pattern)


def _pattern(phrase: str) -> str:
    """The pattern of a phrase: whole words, any blanks between them, (a|b) for either."""
    # What may be absent takes its blank along.
    phrase = re.sub(r" \(([^()]*)\|\)", lambda one: f"( {one[1].replace('|', '| ')}|)", phrase)
    phrase = re.sub(r"\((?! )([^()]*)\|\) ", lambda one: f"({one[1].replace('|', ' |')} |)", phrase)
    signs = [sign if sign in "(|)" else _sign(sign) for sign in phrase]
    pattern = "".join("(?:" if sign == "(" else sign for sign in signs).replace("(?:>", "(?=")
    # Between words there is a blank, around a sign there may be none.
    pattern = re.sub(r"(?<=\w)\\ (?=\w)", r"\\s+", pattern).replace("\\ ", r"\s*")
    return rf"(?:(?<!\w)(?<!\w-)|(?!\w)){pattern}(?:(?!\w)(?![-/]\w)|(?<!\w))"


def _sign(sign: str) -> str:
    """The pattern of a letter or sign, with the other ways in which it is typed."""
    if sign == "'":
        return "['’]"
    plain = unicodedata.normalize("NFD", sign)[0]
    return re.escape(sign) if plain == sign else f"[{sign}{plain}]"


def _needed(phrase: str, common: frozenset[str]) -> frozenset[str]:
    """Words and signs of which a mention has one where it has the phrase.

    Of a phrase of several parts, those of one part suffice: of that with the longest words.

    Args:
      phrase: as a file has it.
      common: words that many mentions have, to be avoided.
    """
    phrase = phrase.lower()
    parts = _PART.findall(phrase)
    found: list[frozenset[str]] = []
    if " ".join(parts) == phrase:  # else there are brackets in brackets, or beside a letter
        for part in parts:
            words = [_WORD.findall(one) for one in part.strip("()").split("|")]
            if all(words) and not part.startswith("(>"):
                found.append(frozenset(max(one, key=len) for one in words))
    words_of_all = frozenset(_WORD.findall(phrase))
    kept = max(
        found,
        key=lambda words: (words.isdisjoint(common), min(map(len, words))),
        default=words_of_all - common or words_of_all or frozenset(phrase) - frozenset(" (|)"),
    )
    return kept | {"".join(unicodedata.normalize("NFD", sign)[0] for sign in one) for one in kept}


def _read(path: Path, encoding: str | None = None) -> list[_Rule]:
    rules = []
    for number, fields in tab_separated(path, encoding):
        if fields[0].startswith("#"):
            continue
        phrase, kind, place = (*fields, "", "")[:3]
        if kind not in _KINDS or len(fields) > 3:
            raise BadInput(
                f"{path}:{number}: found {fields!r}; expected phrase<TAB>kind<TAB>place, a "
                f"kind of {', '.join(_KINDS)}{did_you_mean(kind, list(_KINDS))}"
            )
        places = _PLACES.get(kind, _OF_A_CONTEXT)
        if place not in places:
            expected = " or ".join(places) or "none"
            raise BadInput(
                f"{path}:{number}: found the place {place!r} of {phrase!r}; expected {expected}, "
                f"as for all phrases of the kind {kind}"
            )
        try:
            re.compile(_pattern(phrase))
        except re.error as error:
            raise BadInput(
                f"{path}:{number}: found {phrase!r}, whose brackets do not close; expected "
                "(a|b) for either of two"
            ) from error
        if re.fullmatch(_pattern(phrase), ""):
            raise BadInput(
                f"{path}:{number}: found {phrase!r}, which may be empty; expected a word"
            )
        rules.append(_Rule(phrase, kind, place))
    return rules


# -------------------------------------------------------------------------------------------------
# The answer to a mention in context.

MOST_CHARACTERS = 500  # of a name; the longest of the UMLS, aside from chemicals, have some 300
ContextMode = Literal["leave-out", "code", "keep"]


class AnswersMentions(Protocol):
    """A normalizer: of terms, of classes, or of recall and rank."""

    @property
    def dictionary(self) -> Dictionary: ...

    @property
    def write_out(self) -> Callable[[str], str]: ...

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]: ...


class ContextNormalizer:
    """A normalizer that tells in which context a mention has its name.

    A mention in context is looked up twice, as it stands and by its name alone. Where the term that
    is nearest to the whole says the same context ("Family history of breast cancer", "No pain") and
    is no further away than that of the name, it is an answer as any other. Else the name is what
    counts, and the answer is no plain one: its status is CONTEXT, or NO_ANSWER.
    """

    def __init__(
        self,
        normalizer: AnswersMentions,
        rules: ContextRules | None = None,
        mode: ContextMode = "leave-out",
    ):
        """
        Args:
          normalizer: that answers.
          rules: which phrases tell a context; None: those of this project.
          mode: what becomes of a mention in context. leave-out: no answer, with the concept of the
            name as what was nearest. code: the concept of the name. keep: the concept of the
            mention as it stands.
        """
        self.normalizer, self.mode = normalizer, mode
        self.rules = rules or own_rules()

    @property
    def dictionary(self) -> Dictionary:
        return self.normalizer.dictionary

    def answers(
        self, mentions: Sequence[str], k: int = 1, around: Sequence[tuple[str, ...]] = ()
    ) -> list[Answer]:
        """The answer to each mention, with up to k candidates; see `SameStringNormalizer`.

        Args:
          mentions: strings.
          k: candidates per mention.
          around: of each mention the contexts that its text says (`ContextRules.around`), beside
            those that it says itself; none: it has no text.
        """
        # Written out first: a user's FH may be an enzyme. A whole text is no name, and not read.
        names = [one if len(one) <= MOST_CHARACTERS else "" for one in mentions]
        read = [self.rules.read(self.normalizer.write_out(one)) for one in names]
        told = {row for row, contexts in enumerate(around) if contexts and not read[row].contexts}
        for row in told:
            read[row] = InContext(around[row], mentions[row])
        rows = [row for row, one in enumerate(read) if one.contexts]
        found = self.normalizer.answers([*mentions, *(read[row].name for row in rows)], k)
        answers, of_names = found[: len(mentions)], found[len(mentions) :]
        for row, of_name in zip(rows, of_names, strict=True):
            whole, contexts = answers[row], read[row].contexts
            if not whole.candidates or (
                row not in told and self._is_in_term(whole, of_name, contexts)
            ):
                continue  # a placeholder, or a term of the dictionary
            chosen = whole if self.mode == "keep" or not of_name.candidates else of_name
            answers[row] = self._in_context(mentions[row], chosen, contexts)
        return answers

    def _is_in_term(self, whole: Answer, of_name: Answer, contexts: tuple[str, ...]) -> bool:
        """Whether the nearest term says the context itself, and is as near as that of the name."""
        best = whole.candidates[0]
        nearest = max((one.similarity for one in of_name.candidates[:1]), default=-1.0)
        return whole.status in (Status.EXACT, Status.LEARNT) or (
            whole.concept is not None
            and best.similarity >= nearest
            and self.rules.read(best.term).contexts == contexts
        )

    def _in_context(self, mention: str, answer: Answer, contexts: tuple[str, ...]) -> Answer:
        told = f"context: {', '.join(contexts)}"
        reason = f"{told}; {answer.reason}" if answer.reason else told
        is_answer = self.mode != "leave-out" and answer.concept is not None
        return replace(
            answer,
            mention=mention,
            status=Status.CONTEXT if is_answer else Status.NO_ANSWER,
            reason=reason,
            context=contexts,
        )
