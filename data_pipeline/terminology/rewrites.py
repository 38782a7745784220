"""Names as people write them: another order of words, abbreviations, typing errors and the like.

A list from a hospital says "FRACTURE, FEMUR, lt" or "anaemia NOS" where a terminology says
"fracture of left femur" or "anemia". `Rewriter` writes names in that style. What a rule needs to
know (which words are abbreviated, spelt in two ways, or have a left and a right) it takes from the
names of the terminology itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl

_ENGLISH = "ENG"
_LIST_WORDS = ("of", "the", "unspecified", "nos", "other")  # that change no meaning in a list
_SMALL_WORDS = {"a", "an", "and", "for", "in", "of", "on", "the", "to", "with"}
# Behind one of these there is more than a thing and what it is like, so that no word may be moved.
_JOINTS = re.compile(
    r"\b(and|or|with|without|due|by|in|on|to|for|from|not|no|of|the|as|at)\b|[(),;:/\[\]]", re.I
)
_WORD = re.compile(r"[^\W\d_]+")

# British spelling -> American. A pair counts where the terminology has words of both spellings.
_SPELLINGS = (
    (re.compile("ae(?!$)"), "e"),
    (re.compile("oe(?!$)"), "e"),
    (re.compile(r"our(?=(s|al|ed|ing|less)?$)"), "or"),
    (re.compile(r"(?<=[^aeiou])re(?=s?$)"), "er"),
    (re.compile(r"is(?=(e|ed|er|es|ing|ation|ations)$)"), "iz"),
    (re.compile(r"ys(?=(e|ed|er|es|ing)$)"), "yz"),
    (re.compile(r"ll(?=(ed|ing)$)"), "l"),
    (re.compile("sulph"), "sulf"),
)
_LEAST_SPELT = 5  # letters: "four" is no British "for"
_LEAST_MISSPELT = 6  # letters; a shorter word is as likely another one
_SIDES = {"left": ("lt", "L", "lt."), "right": ("rt", "R", "rt.")}
_FIT_ALL = ("unspecified", "typing error")  # half of the time last, or there were little else
_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})


class _Dice:
    """Choices by one random number."""

    def __init__(self, random: int):
        self.random = random

    def below(self, size: int) -> int:
        """In [0, size)."""
        self.random, rest = divmod(self.random, size)
        return rest

    def shuffled(self, items: Sequence[str]) -> list[str]:
        """The items in another order, all orders equally likely."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in items]


class Rewriter:
    """Writes names as people write them, by one of the rules in `KINDS`.

    A rewritten name is never a name that the terminology has, of whatever concept: case apart, nor
    with the words in another order, "of", "unspecified" and the like apart (but those of the name
    itself).

    Args:
        names: of the terminology.
        concepts: int [n], rising; the concept of each name.
        languages: of each name, as the UMLS writes it; None: all are English.
    """

    def __init__(
        self, names: Sequence[str], concepts: np.ndarray, languages: Sequence[str] | None = None
    ):
        series = pl.Series(names, dtype=pl.String)
        self.short_of, self.long_of = _abbreviations(series, np.asarray(concepts))
        self.words = _words_of(series)
        english = series if languages is None else series.filter(pl.Series(languages) == _ENGLISH)
        self.spellings = _spelt_twice(_words_of(english))
        left, right = (
            frozenset(series.str.extract(rf"(?i)\b{side} (\p{{L}}{{3,}})$").str.to_lowercase())
            for side in _SIDES
        )
        self.sided = (left & right) - _SMALL_WORDS - {None}
        self.known = np.sort(_exact(series))
        self.known_words = np.sort(_same_words(series))

    def __call__(
        self, names: Sequence[str], languages: Sequence[str], random: np.ndarray
    ) -> tuple[list[str], list[str]]:
        """Each name rewritten, a pure function of the name, its language and its random number.

        Args:
            names: n of them.
            languages: of each, as the UMLS writes it; only of ENG all kinds are known.
            random: uint64 [n].

        Returns:
            (names, kinds): of the kind by which each was rewritten; a name that no kind fits stays
            as it is, and its kind is "".
        """
        rows, found, kinds = [], [], []
        for row, (name, language) in enumerate(zip(names, languages, strict=True)):
            for kind, written in self._candidates(name, language, int(random[row])):
                rows.append(row)
                found.append(written)
                kinds.append(kind)
        forms = pl.Series(found, dtype=pl.String)
        of_words, own = _same_words(forms), _same_words(pl.Series(names, dtype=pl.String))
        taken = np.isin(_exact(forms), self.known)
        taken |= np.isin(of_words, self.known_words) & (of_words != own[np.array(rows, np.int64)])
        result, chosen = list(names), [""] * len(names)
        for place in np.flatnonzero(~taken)[::-1]:  # so that the first of a name is written last
            result[rows[place]], chosen[rows[place]] = found[place], kinds[place]
        return result, chosen

    def _candidates(self, name: str, language: str, random: int) -> Iterator[tuple[str, str]]:
        """(kind, rewritten name) of all kinds that fit, in random order."""
        dice = _Dice(random)
        rules = _ENGLISH_RULES if language == _ENGLISH else _RULES
        kinds = dice.shuffled(tuple(rules))
        if dice.below(2):
            kinds.sort(key=_FIT_ALL.__contains__)
        for kind in kinds:
            written = " ".join((rules[kind](self, name, dice) or "").split())
            if written and written != name:
                yield kind, written

    def _abbreviated(self, name: str, dice: _Dice) -> str | None:
        """Words that the terminology abbreviates as their abbreviation, or the other way round."""
        words = name.split(" ")
        options = []
        for first in range(len(words)):
            for last in range(first + 2, min(first + 7, len(words) + 1)):
                short = self.short_of.get(" ".join(words[first:last]).lower())
                if short:
                    rest = words[last:]
                    if rest and rest[0].strip("(),") == short:  # which the name explains
                        rest = rest[1:]
                    options.append([*words[:first], short, *rest])
            long = self.long_of.get(words[first])
            if long:
                options.append([*words[:first], long, *words[first + 1 :]])
        return " ".join(options[dice.below(len(options))]) if options else None

    def _spelt(self, name: str, dice: _Dice) -> str | None:
        """Words that are spelt in two ways in the other way."""

        def other(match: re.Match[str]) -> str:
            word = match[0]
            found = self.spellings.get(word.lower(), word)
            return found.capitalize() if word[0].isupper() and found != word else found

        return _WORD.sub(other, name)

    def _misspelt(self, name: str, dice: _Dice) -> str | None:
        """One typing error in a long word, which does not make another word of it."""
        found = [
            match
            for match in _WORD.finditer(name)
            if len(match[0]) >= _LEAST_MISSPELT
            and _is_latin(match[0])
            and (name.isupper() or not match[0].isupper())  # no abbreviation
        ]
        if not found:
            return None
        match = found[dice.below(len(found))]
        word = match[0]
        place, kind = 1 + dice.below(len(word) - 2), dice.below(4)
        before, letter, after = word[:place], word[place], word[place + 1 :]
        wrong = (
            before + after,
            before + letter + letter + after,
            before + after[0] + letter + after[1:],
            before + _beside(letter, dice) + after,
        )[kind]
        if wrong == word or wrong.lower() in self.words:
            return None
        return name[: match.start()] + wrong + name[match.end() :]

    def _sided(self, name: str, dice: _Dice) -> str | None:
        """Left and right abbreviated or at the end; or added, where things of this kind have it."""
        words = name.split(" ")
        there = [place for place, word in enumerate(words) if word.lower() in _SIDES]
        if there:
            place = there[dice.below(len(there))]
            side, rest = words[place].lower(), words[:place] + words[place + 1 :]
            short = _SIDES[side][dice.below(len(_SIDES[side]))]
            return (
                " ".join([*words[:place], short, *words[place + 1 :]]),
                f"{' '.join(rest)}, {side}",
                f"{' '.join(rest)} ({short})",
            )[dice.below(3) if len(there) == 1 and rest else 0]
        if not any(word.strip(",").lower() in self.sided for word in words):
            return None
        side = ("left", "right")[dice.below(2)]
        forms = (f"{side} {name}", f"{name}, {side}", f"{name} {side}")
        return forms[dice.below(len(forms))]


def _reordered(rewriter: Rewriter, name: str, dice: _Dice) -> str | None:
    """Parts behind commas before the others: "fracture, femur, left" is "left femur fracture"."""
    parts = [part.strip() for part in name.split(", ")]
    if not 2 <= len(parts) <= 3 or any(_JOINTS.search(part) for part in parts):
        return None
    return " ".join(reversed(parts))


def _reordered_english(rewriter: Rewriter, name: str, dice: _Dice) -> str | None:
    """`_reordered`, and into the order of lists: "femur fracture", "femur, fracture of"."""
    if ", " in name:
        return _reordered(rewriter, name, dice)
    head, of, rest = name.partition(" of ")
    if of:
        rest = rest.removeprefix("the ")
        if _JOINTS.search(head) or _JOINTS.search(rest):
            return None
        return (f"{rest} {head}", f"{head}, {rest}", f"{rest}, {head}")[dice.below(3)]
    words = name.split(" ")
    if not 2 <= len(words) <= 5 or _JOINTS.search(name):
        return None
    if len(words[-1]) < 4 or not words[-1].isalpha() or words[-1].isupper():
        return None  # as "hepatitis B"
    return f"{words[-1]}, {' '.join(words[:-1])}"


def _unspecified(rewriter: Rewriter, name: str, dice: _Dice) -> str | None:
    """What lists say of a thing that is not told more of, added or left out."""
    without = re.sub(r"(?i),? \(?(nos|unspecified)\)?$|^unspecified ", "", name)
    if without != name:
        return without
    forms = (f"{name}, unspecified", f"{name} NOS", f"unspecified {name}", f"{name}, other")
    return forms[dice.below(len(forms))]


def _counted(rewriter: Rewriter, name: str, dice: _Dice) -> str | None:
    """The plural of the thing, or its singular."""
    head, of, rest = name.partition(" of ")
    before, word = re.fullmatch(r"(.*?)([^\W\d_]*)", head, re.S).groups()  # type: ignore[union-attr]
    if len(word) < 4 or not word.islower() or word.endswith(("ss", "is", "us", "ia", "ics", "ing")):
        return None
    if word.endswith("ies"):
        other = word[:-3] + "y"
    elif word.endswith("s"):
        other = word[:-2] if word.endswith(("xes", "ches", "shes")) else word[:-1]
    elif word.endswith("y") and word[-2] not in "aeiou":
        other = word[:-1] + "ies"
    else:
        other = word + ("es" if word.endswith(("x", "ch", "sh")) else "s")
    return before + other + of + rest


def _plain_letters(rewriter: Rewriter, name: str, dice: _Dice) -> str | None:
    """Without accents: "oedème" is "oedeme"; "Überdruck" is "Ueberdruck" or "Uberdruck"."""
    text = name.replace("œ", "oe").replace("Œ", "Oe").replace("ß", "ss")
    if dice.below(2):
        text = text.translate(_UMLAUTS)
    letters = (sign for sign in unicodedata.normalize("NFD", text))
    plain = "".join(sign for sign in letters if not "\u0300" <= sign <= "\u036f")
    return unicodedata.normalize("NFC", plain)


_Rule = Callable[[Rewriter, str, _Dice], str | None]
_RULES: dict[str, _Rule] = {
    "abbreviation": Rewriter._abbreviated,
    "accents": _plain_letters,
    "word order": _reordered,
    "typing error": Rewriter._misspelt,
}
_ENGLISH_RULES: dict[str, _Rule] = {
    **_RULES,
    "word order": _reordered_english,
    "plural": _counted,
    "side": Rewriter._sided,
    "spelling": Rewriter._spelt,
    "unspecified": _unspecified,
}
KINDS = tuple(_ENGLISH_RULES)
"""How names are rewritten; in languages other than English by the first four."""


def _is_latin(word: str) -> bool:
    return all("a" <= letter <= "\u024f" for letter in word.lower())


def _beside(letter: str, dice: _Dice) -> str:
    """A letter beside this one on a keyboard; the letter itself where it is on none."""
    for row in _KEYBOARD:
        place = row.find(letter)
        if place >= 0:
            near = [row[i] for i in (place - 1, place + 1) if 0 <= i < len(row)]
            return near[dice.below(len(near))]
    return letter


def _exact(names: pl.Series) -> np.ndarray:
    """uint64 [n]: a hash of each name, case apart."""
    return names.str.to_lowercase().hash().to_numpy()


def _same_words(names: pl.Series) -> np.ndarray:
    """uint64 [n]: a hash of the words of each name, whatever their order and case."""
    words = names.str.to_lowercase().str.extract_all(r"[\p{L}\p{N}]+")
    words = words.list.set_difference(pl.Series([list(_LIST_WORDS)]))
    return words.list.sort().list.join(" ").hash().to_numpy()


def _words_of(names: pl.Series) -> frozenset[str]:
    """The words of names, in lower case."""
    words = names.str.to_lowercase().str.extract_all(r"\p{L}+").explode().drop_nulls()
    return frozenset(words.unique())


def _spelt_twice(words: frozenset[str]) -> dict[str, str]:
    """The other spelling of each word that the terminology has in British and American."""
    other: dict[str, str] = {}
    for word in sorted(words):
        if len(word) < _LEAST_SPELT:
            continue
        for british, american in _SPELLINGS:
            spelt = british.sub(american, word)
            if spelt != word and spelt in words:
                other[word] = spelt
                other.setdefault(spelt, word)
                break
    return other


def _abbreviations(
    names: pl.Series, concepts: np.ndarray
) -> tuple[dict[str, str], dict[str, str | None]]:
    """The abbreviations of a terminology.

    From names that explain one, "magnetic resonance imaging (MRI)", and from concepts with both
    names; an abbreviation is the first letters of the words, small words apart.

    Returns:
        (short, long): the abbreviation of words, in lower case; and the words of an abbreviation,
        None where they differ.
    """
    short_of: dict[str, str] = {}
    long_of: dict[str, str | None] = {}

    def note(long: str, short: str) -> None:
        short_of.setdefault(long.lower(), short)
        before = long_of.setdefault(short, long)
        if before is not None and before.lower() != long.lower():
            long_of[short] = None

    explained = names.str.extract_groups(r"^([^()]{5,}) \(([A-Z][A-Z0-9]{1,6})\)").struct.unnest()
    for text, short in explained.drop_nulls().iter_rows():
        if long := _long_form(text, short):
            note(long, short)
    is_short = names.str.contains(r"^[A-Z][A-Z0-9]{1,6}$").fill_null(False).to_numpy()
    for row in np.flatnonzero(is_short):
        first, last = (np.searchsorted(concepts, concepts[row], side) for side in ("left", "right"))
        for other in names[int(first) : int(last)]:
            long = _long_form(other, names[int(row)])
            if long is not None and long == other:
                note(long, names[int(row)])
    return short_of, long_of


def _long_form(text: str, short: str) -> str | None:
    """The last words of a text, if their first letters are an abbreviation; two words or more."""
    words = text.split(" ")
    for first in range(len(words) - 2, -1, -1):
        told = [word for word in words[first:] if word.lower() not in _SMALL_WORDS]
        letters = "".join(word[:1] for word in re.split("[ -]", " ".join(told)))
        if len(letters) >= len(short):
            is_it = letters.upper() == short and words[first] in told
            return " ".join(words[first:]) if is_it else None
    return None
