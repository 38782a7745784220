"""Cleaning of term strings by named rule sets, for columns and as normalizers of a tokenizer."""

from __future__ import annotations

import functools
import json
import re
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from anyascii import anyascii

from data_pipeline.files.identity import read_json
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# -------------------------------------------------------------------------------------------------
# The rule sets, which clean columns of term strings.
#
# Every rule set folds runs of white space (Unicode, line breaks included) to one blank and strips
# the ends, so a cleaned term never holds a tab or a line break. A term may become the empty string;
# the build drops and counts it.
#
# `paper` is for training and for the papers' benchmarks, `lookup` for finding a term in a
# dictionary without losing what it says, `mlnorm` for MLNorm, which compares terms of several
# languages.

Strings = TypeVar("Strings", pl.Expr, pl.Series)
_TERMS_AT_ONCE = 1 << 20  # looked at: more need more memory

# Balanced round brackets with up to two further levels inside.
_BRACKETED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"


# The semantic tags, in brackets, at the end of SNOMED CT's fully specified names; they name the
# concept's hierarchy. Those of the international edition, and some that were used earlier.
_SEMANTIC_TAGS = frozenset(
    " ".join(
        """
    administration method, administrative concept, assessment scale, attribute, basic dose form,
    body structure, cell, cell structure, clinical drug, context-dependent category, core
    metadata concept, disorder, disposition, dose form, environment, environment / location,
    ethnic group, event, finding, foundation metadata concept, geographic location, inactive
    concept, intended site, life style, link assertion, linkage concept, medicinal product,
    medicinal product form, metadata, morphologic abnormality, namespace concept, navigational
    concept, number, observable entity, occupation, organism, owl metadata concept, packaged
    clinical drug, person, physical force, physical object, procedure, product, product name,
    qualifier value, racial group, real clinical drug, real medicinal product, real packaged
    clinical drug, record artifact, regime/therapy, release characteristic, religion/philosophy,
    role, situation, snomed rt+ctv3, social concept, special concept, specimen, staging scale,
    state of matter, substance, supplier, theoretical entity, transformation, tumor staging,
    unit of presentation
    """.split()
    ).split(", ")
)


def _fold_blanks(terms: Strings) -> Strings:
    return terms.str.replace_all(r"\s+", " ").str.strip_chars()


def _paper_rules(terms: Strings) -> Strings:
    """The rules of CODER's released code, in its order (the paper does not list them).

    1. lower-case;
    2. the word `nos` ("not otherwise specified") is removed where it stands between blanks or at an
       end of the term: "Pain NOS" -> "pain", "pain nos knee" -> "pain knee"; "pain, nos" keeps its
       comma ("pain,"), and "nosocomial" or "nos-1" are left alone;
    3. text in round brackets is removed with the brackets: "Cold (disorder)" -> "cold". Brackets
       inside brackets go with the outer pair, up to three levels (the released code stops at the
       first closing bracket and leaves the rest); a bracket without its partner stays, as do
       square and curly ones;
    4. every "-" becomes a blank: "x-ray" -> "x ray";
    5. white space is folded.

    A term that is nothing but brackets, dashes or `nos` becomes empty.
    """
    # Two blanks on each side let " nos " match at the ends and leave one blank.
    blank_ends = terms.str.to_lowercase().str.replace(r"^", "  ").str.replace(r"$", "  ")
    without_nos = blank_ends.str.replace_all(r"\s(?:nos\s+)+", " ")
    without_brackets = without_nos.str.replace_all(_BRACKETED, "")
    return _fold_blanks(without_brackets.str.replace_all("-", " ", literal=True))


def _lookup_rules(terms: Strings) -> Strings:
    """Only a SNOMED CT semantic tag at the end is deleted, and white space is folded.

    "Cold (disorder)" -> "Cold"; "Hemiplegia (left)" and "Diabetes mellitus (type 2)" stay.
    """
    return without_tags(_fold_blanks(terms), _SEMANTIC_TAGS)


def _mlnorm_rules(terms: Strings) -> Strings:
    """The rules of MLNorm's first released code, in its order; nothing is deleted.

    1. letters, quotes and signs beyond ASCII become ASCII, and all lower case: "Œdème d’Á" ->
       "oedeme d'a", "≥ 5 µg" -> ">= 5 ug", "β" -> "b". The code used Unidecode, which is GPL; this
       is anyascii, with Unidecode's reading of what `_CLASSICAL` has;
    2. a blank before and behind each ASCII punctuation mark: "l'os (droit)" -> "l ' os ( droit )";
    3. a blank between a letter and a digit, in both orders: "b12a" -> "b 12 a";
    4. white space is folded.
    """
    lower = _to_ascii(terms).str.to_lowercase()
    apart = lower.str.replace_all(r"([!-/:-@\[-`{-~])", " ${1} ")
    letter_digit = apart.str.replace_all(r"([a-z])([0-9])", "${1} ${2}")
    return _fold_blanks(letter_digit.str.replace_all(r"([0-9])([a-z])", "${1} ${2}"))


class _Ascii(dict[int, str]):
    """A table for `str.translate` that asks anyascii for characters it has not seen."""

    def __missing__(self, point: int) -> str:
        self[point] = anyascii(chr(point))
        return self[point]


# Greek letters of chemistry and genetics, which anyascii transcribes as modern Greek ("v" for
# beta).
_CLASSICAL = {"β": "b", "Β": "b", "η": "e", "Η": "e", "φ": "ph", "Φ": "ph", "×": "x"}
_TO_ASCII = _Ascii({ord(letter): ascii for letter, ascii in _CLASSICAL.items()})
"""What becomes of each code point, for `str.translate`."""


def _to_ascii(terms: Strings) -> Strings:
    if isinstance(terms, pl.Expr):
        return terms.map_batches(_to_ascii, return_dtype=pl.String, is_elementwise=True)
    beyond = (terms.str.len_bytes() != terms.str.len_chars()).arg_true()
    folded = [term.translate(_TO_ASCII) for term in terms.gather(beyond)]
    return terms.clone().scatter(beyond, pl.Series(folded, dtype=pl.String))


def without_tags(terms: Strings, tags: Collection[str]) -> Strings:
    """Terms without a semantic tag at the end, in any case.

    Args:
      terms: a polars string expression or Series.
      tags: such as {"disorder", "finding"}; with none the terms stay as they are. Of a dictionary
        `semantic_tags` says which it has.
    """
    if not tags:
        return terms
    return terms.str.replace(rf"(?i)(\S)\s+\((?:{_either(tags)})\)\s*$", "${1}")


def semantic_tags(terms: Sequence[str] | pl.Series) -> frozenset[str]:
    """The semantic tags of _SEMANTIC_TAGS that end at least one of the terms."""
    pattern = rf"(?i)\S\s+\(({_either(_SEMANTIC_TAGS)})\)\s*$"
    found: set[str] = set()
    for first in range(0, len(terms), _TERMS_AT_ONCE):
        part = pl.Series(terms[first : first + _TERMS_AT_ONCE], dtype=pl.String)
        found.update(part.str.extract(pattern).drop_nulls().str.to_lowercase().unique())
    return frozenset(found)


def lookup_rules(terms: Sequence[str] | pl.Series) -> str:
    """The rule set for looking mentions up among terms: 'lookup', or 'none'.

    A mention keeps its semantic tag where no term of the dictionary ends with one.
    """
    return "lookup" if semantic_tags(terms) else "none"


def _either(tags: Collection[str]) -> str:
    """A pattern that matches any of some words."""
    return "|".join(map(re.escape, sorted(tags)))


CLEANING: dict[str, Callable] = {
    "paper": _paper_rules,
    "lookup": _lookup_rules,
    "none": _fold_blanks,
    "mlnorm": _mlnorm_rules,
}
IN_WORDS = {
    "paper": "in lower case, without what stands in round brackets, without the word 'nos' and "
    "dashes, as CODER's released code has them",
    "lookup": "as they stand, but for a semantic tag of SNOMED CT at the end, such as "
    "'(disorder)'; all other brackets stay",
    "none": "as they stand, with all brackets",
    "mlnorm": "in lower case, accents and other signs as ASCII ('œdème' is 'oedeme'), a blank on "
    "both sides of each punctuation mark and between letters and digits; all brackets stay",
}
"""What becomes of terms by each rule set, white space aside; for help texts and model cards."""
ALL_IN_WORDS = ". ".join(f"{rules}: {what}" for rules, what in IN_WORDS.items())


def clean(terms: Strings, rules: str) -> Strings:
    """The terms of a polars string expression or Series, cleaned by the rule set `rules`.

    Raises BadInput for an unknown name; the names are the keys of `CLEANING`.
    """
    _check_rules(rules)
    return CLEANING[rules](terms)


def _check_rules(rules: str) -> None:
    """Raise BadInput for a name that is not a rule set's."""
    if rules not in CLEANING:
        raise BadInput(f"unknown cleaning {rules!r}; expected one of {', '.join(sorted(CLEANING))}")


# -------------------------------------------------------------------------------------------------
# A table from characters to strings in the format of SentencePiece's normalizer.
#
# `tokenizers.normalizers.Precompiled` takes it. Nothing but SentencePiece's trainer writes it,
# which would have to train a model for it. The format (sentencepiece/src/normalizer.cc, and darts.h
# of Darts-clone, of which the tree is): the size of the tree in bytes, the tree, and the strings,
# each with a 0 behind. All numbers are 32 bits, little-endian.
#
# The tree is a double array. Of the unit at place p a number o tells, as p ^ o, the base of its
# children: the child by a byte b lies at base ^ b and repeats b, and where a key ends, a leaf at
# the base itself has its value: where its string begins.

_BLOCK = 256  # the children of a unit lie within one block, as bytes differ in the last 8 bits only
_BLOCKS = 16  # the last ones, in which room is looked for
_LEAF, _HAS_LEAF, _OFFSET = 1 << 31, 1 << 8, 10  # of a unit: bits 0 to 7 are the byte


def _character_map(strings: Mapping[str, str]) -> bytes:
    """The table, in that format, of `strings`: from keys to their replacements.

    Args:
      strings: at least one. Keys and values without the character 0; no key begins with another.
    """
    place: dict[str, int] = {}
    text = bytearray()
    root: dict[int, Any] = {}
    for key, value in sorted(strings.items()):
        if value not in place:
            place[value] = len(text)
            text += value.encode() + b"\0"
        *path, last = key.encode()
        node = root
        for byte in path:
            node = node.setdefault(byte, {})
        node[last] = place[value]
    tree = np.array(_DoubleArray(root).units, "<u4").tobytes()
    return len(tree).to_bytes(4, "little") + tree + bytes(text)


class _DoubleArray:
    """The units of a double array, built from a tree of dictionaries (bytes to subtrees or
    values).
    """

    def __init__(self, root: dict[int, Any]) -> None:
        self.units: list[int] = []
        self.free: list[set[int]] = []  # the free places of each block
        self.bases: set[int] = set()  # those in use: with two at one, both would have all children
        self.leaves: dict[int, int] = {}  # the base of a leaf, by its value
        self._grow()
        self.free[0].remove(0)  # the root
        ahead = [(0, root)]
        while ahead:
            place, node = ahead.pop()
            if isinstance(node, dict):
                base = self._take(sorted(node))
                ahead += [(base ^ byte, child) for byte, child in node.items()]
                for byte in node:
                    self.units[base ^ byte] = byte
            else:
                self.units[place] |= _HAS_LEAF
                if node not in self.leaves:
                    self.leaves[node] = self._take([0])
                    self.units[self.leaves[node]] = _LEAF | node
                base = self.leaves[node]
            self.units[place] |= (place ^ base) << _OFFSET

    def _grow(self) -> None:
        self.free.append(set(range(len(self.units), len(self.units) + _BLOCK)))
        self.units += [0] * _BLOCK

    def _take(self, children: list[int]) -> int:
        """A free base at which the places of all these child bytes are free, too."""
        for free in self.free[-_BLOCKS:]:
            for place in free:
                base = place ^ children[0]
                if base not in self.bases and all(base ^ byte in free for byte in children):
                    self.bases.add(base)
                    free.difference_update(base ^ byte for byte in children)
                    return base
        self._grow()
        return self._take(children)


# -------------------------------------------------------------------------------------------------
# Cleaning inside a tokenizer: rule sets as its first normalizers, and their removal.
#
# An exported encoder is opened by libraries that know nothing of this project. Their tokenizer then
# cleans each string by itself, letter for letter as `clean` does. Here terms are cleaned before
# they are tokenized, by rules that may be chosen, so `load_tokenizer` takes these normalizers off.
#
# What a tokenizer sees as one of its special tokens, such as "[MASK]", it cuts out of a string
# before anything is normalized; such strings may come out in another way.

# The only letter whose lower case depends on its neighbours: at the end of a word (Unicode, 3.13).
_CASED = r"[\p{Cased}&&[^\p{Case_Ignorable}]]"  # what is both counts as the latter
_FINAL_SIGMA = _CASED + r"\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*" + _CASED + ")"
_BREAK = "\u0080"  # a control character: what a reader sees as one character ends before it
# A marker before the tokenizer's own rules (a Replace of this string by itself).
_END = "\u0080end of cleaning\u0080"
_NOWHERE = "\u0080in no clean string\u0080"  # before the name of an added token


def _cleaning_normalizers(rules: str) -> list[Any]:
    """Normalizers that, applied in order, clean each string as `clean(terms, rules)` does.

    Raises BadInput for an unknown name; the names are the keys of `CLEANING`.
    """
    from tokenizers import normalizers

    _check_rules(rules)
    fold_blanks = [_replace(r"\s+", " "), normalizers.Strip()]
    if rules == "paper":
        return [
            _replace(_FINAL_SIGMA, "ς"),
            normalizers.Lowercase(),
            _replace(r"(?<=\A|\s)nos(?=\s|\z)", ""),
            _replace(_BRACKETED, ""),
            normalizers.Replace("-", " "),
            *fold_blanks,
        ]
    if rules == "lookup":
        return [*fold_blanks, _replace(rf"(?i)(?<=\S)\s+\((?:{_either(_SEMANTIC_TAGS)})\)$", "")]
    if rules == "mlnorm":
        return [
            *_ascii_normalizers(),
            normalizers.Lowercase(),
            *(normalizers.Replace(mark, f" {mark} ") for mark in string.punctuation),
            _replace(r"(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])", " "),
            *fold_blanks,
        ]
    return fold_blanks


def _replace(pattern: str, by: str) -> Any:
    from tokenizers import Regex, normalizers

    return normalizers.Replace(Regex(pattern), by)


@functools.cache
def _ascii_normalizers() -> tuple[Any, ...]:
    """Normalizers that do what `str.translate(_TO_ASCII)` does.

    `normalizers.Precompiled` takes together what a reader sees as one character, such as a letter
    with its marks, and may drop all but the first code point: so these are parted before.
    """
    from tokenizers import normalizers

    beyond = (point for point in range(0x80, 0x110000) if not 0xD800 <= point < 0xE000)
    ascii_of = {chr(point): _TO_ASCII[point] for point in beyond}
    return (
        _replace(r"(?<=[^\x00-\x7F])", _BREAK),
        normalizers.Precompiled(_character_map({a: b for a, b in ascii_of.items() if b})),
        _replace(r"[^\x00-\x7F]", ""),
    )


def with_cleaning(tokenizer: Tokenizer, rules: str) -> Tokenizer:
    """Changes the tokenizer into one that cleans its input, and returns it.

    See `_cleaning_normalizers`. Tokens that were added to a vocabulary, such as the runs of blanks
    of ModernBERT's, are looked for in clean strings, and cleaned for that themselves: one that no
    clean string has would be found where it is not, or be empty. It gets a name that no string has.
    """
    from tokenizers import normalizers

    clean = normalizers.Sequence(_cleaning_normalizers(rules)).normalize_str
    added = tokenizer.get_added_tokens_decoder().values()
    looked_for = [one.content for one in added if one.normalized and not one.special]
    hidden = {name: _NOWHERE + name for name in looked_for if clean(name) != name}
    tokenizer = _renamed(tokenizer, hidden, normalized=False)
    own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    end = normalizers.Replace(_END, _END)
    tokenizer.normalizer = normalizers.Sequence([*_cleaning_normalizers(rules), end, *own])
    return tokenizer


def _renamed(tokenizer: Tokenizer, names: Mapping[str, str], *, normalized: bool) -> Tokenizer:
    """A tokenizer in which added tokens have other names (`names`) but the same ids.

    Args:
      tokenizer: left as it is.
      names: if there are none, the tokenizer itself comes back.
      normalized: whether they are looked for in normalized strings.
    """
    from tokenizers import Tokenizer

    if not names:
        return tokenizer
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:
        if token["content"] in names:
            token |= {"content": names[token["content"]], "normalized": normalized}
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        renamed: Any = {names.get(piece, piece): number for piece, number in vocabulary.items()}
    else:  # of SentencePiece
        renamed = [[names.get(piece, piece), score] for piece, score in vocabulary]
    content["model"]["vocab"] = renamed
    return Tokenizer.from_str(json.dumps(content))


def clean_in(folder: Path, rules: str) -> None:
    """Makes the tokenizer saved in a folder clean its input.

    Args:
      folder: of tokenizer.json and tokenizer_config.json.
      rules: the rule set, in place of one that it had.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = with_cleaning(without_cleaning(tokenizer), rules)
    tokenizer.save(str(folder / "tokenizer.json"))
    # One model's class builds its own normalizers; this class uses those of tokenizer.json.
    path = folder / "tokenizer_config.json"
    write_json(path, {**read_json(path), "tokenizer_class": "PreTrainedTokenizerFast"})


def without_cleaning(tokenizer: Tokenizer) -> Tokenizer:
    """Removes from the tokenizer what `with_cleaning` added, if anything, and returns it.

    Its definition is then what it was before, to the letter.
    """
    from tokenizers import normalizers

    normalizer = tokenizer.normalizer
    if not isinstance(normalizer, normalizers.Sequence):
        return tokenizer
    parts = [normalizer[place] for place in range(len(normalizer))]
    ends = [place for place, part in enumerate(parts) if _is_end(part)]
    if not ends:
        return tokenizer
    own = parts[ends[-1] + 1 :]
    tokenizer.normalizer = (own[0] if own else None) if len(own) < 2 else normalizers.Sequence(own)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    hidden = [name for name in added if name.startswith(_NOWHERE)]
    names = {name: name.removeprefix(_NOWHERE) for name in hidden}
    return _renamed(tokenizer, names, normalized=True)


def _is_end(part: Any) -> bool:
    from tokenizers import normalizers

    return isinstance(part, normalizers.Replace) and part.content == _END
