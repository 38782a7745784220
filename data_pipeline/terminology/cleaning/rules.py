"""Term strings as a source has them in, cleaned term strings out: named rule sets, columnar.

Every rule set folds runs of white space (Unicode, line breaks included) to one blank and strips the
ends, so a cleaned term never holds a tab or a line break. A term may become the empty string; the
build drops and counts it.

`paper` is for training and for the papers' benchmarks, `lookup` for finding a term in a dictionary
without losing what it says, `mlnorm` for MLNorm, which compares terms of several languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import polars as pl
from anyascii import anyascii

from data_pipeline.process.errors import BadInput

Strings = TypeVar("Strings", pl.Expr, pl.Series)
TERMS_AT_ONCE = 1 << 20  # looked at: more need more memory

# A balanced pair of round brackets with up to two further levels inside.
BRACKETED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"


# What ends a fully specified name of SNOMED CT in brackets and says which hierarchy the concept is
# of; of the international edition, with some that were in use before.
SEMANTIC_TAGS = frozenset(
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
    # Two blanks in front and behind let " nos " match at the ends and leave one blank to spare.
    blank_ends = terms.str.to_lowercase().str.replace(r"^", "  ").str.replace(r"$", "  ")
    without_nos = blank_ends.str.replace_all(r"\s(?:nos\s+)+", " ")
    without_brackets = without_nos.str.replace_all(BRACKETED, "")
    return _fold_blanks(without_brackets.str.replace_all("-", " ", literal=True))


def _lookup_rules(terms: Strings) -> Strings:
    """Nothing is deleted but one semantic tag of SNOMED CT at the end, and white space folded.

    "Cold (disorder)" -> "Cold"; "Hemiplegia (left)" and "Diabetes mellitus (type 2)" stay.
    """
    return without_tags(_fold_blanks(terms), SEMANTIC_TAGS)


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
    """A table for `str.translate`; what it has not yet, it learns of anyascii."""

    def __missing__(self, point: int) -> str:
        self[point] = anyascii(chr(point))
        return self[point]


# Letters of chemistry and genetics that anyascii reads as modern Greek does ("v" for beta).
_CLASSICAL = {"β": "b", "Β": "b", "η": "e", "Η": "e", "φ": "ph", "Φ": "ph", "×": "x"}
TO_ASCII = _Ascii({ord(letter): ascii for letter, ascii in _CLASSICAL.items()})
"""What becomes of each code point, for `str.translate`."""


def _to_ascii(terms: Strings) -> Strings:
    if isinstance(terms, pl.Expr):
        return terms.map_batches(_to_ascii, return_dtype=pl.String, is_elementwise=True)
    beyond = (terms.str.len_bytes() != terms.str.len_chars()).arg_true()
    folded = [term.translate(TO_ASCII) for term in terms.gather(beyond)]
    return terms.clone().scatter(beyond, pl.Series(folded, dtype=pl.String))


def without_tags(terms: Strings, tags: Collection[str]) -> Strings:
    """Terms without the one of these semantic tags that ends them, in whatever case.

    Args:
      terms: a polars string expression or Series.
      tags: such as {"disorder", "finding"}; with none the terms stay as they are. Of a dictionary
        `semantic_tags` says which it has.
    """
    if not tags:
        return terms
    return terms.str.replace(rf"(?i)(\S)\s+\((?:{either(tags)})\)\s*$", "${1}")


def semantic_tags(terms: Sequence[str] | pl.Series) -> frozenset[str]:
    """Those of SEMANTIC_TAGS that end one or more of the terms."""
    pattern = rf"(?i)\S\s+\(({either(SEMANTIC_TAGS)})\)\s*$"
    found: set[str] = set()
    for first in range(0, len(terms), TERMS_AT_ONCE):
        part = pl.Series(terms[first : first + TERMS_AT_ONCE], dtype=pl.String)
        found.update(part.str.extract(pattern).drop_nulls().str.to_lowercase().unique())
    return frozenset(found)


def lookup_rules(terms: Sequence[str] | pl.Series) -> str:
    """The rule set by which mentions are looked up among terms: 'lookup', or 'none'.

    A mention keeps its semantic tag where no term of the dictionary ends with one.
    """
    return "lookup" if semantic_tags(terms) else "none"


def either(tags: Collection[str]) -> str:
    """A pattern for one of them."""
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
    """Cleaned terms of a polars string expression or Series, by the rule set named `rules`.

    Raises BadInput for an unknown name; the names are the keys of `CLEANING`.
    """
    check_rules(rules)
    return CLEANING[rules](terms)


def check_rules(rules: str) -> None:
    """BadInput for a name that is no rule set's."""
    if rules not in CLEANING:
        raise BadInput(f"unknown cleaning {rules!r}; expected one of {', '.join(sorted(CLEANING))}")
