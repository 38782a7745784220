"""Term strings as a source has them in, cleaned term strings out: named rule sets, columnar.

Every rule set folds runs of white space (Unicode, line breaks included) to one blank and strips the
ends, so a cleaned term never holds a tab or a line break. A term may become the empty string; the
build drops and counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import polars as pl

from data_pipeline.process.errors import BadInput

Strings = TypeVar("Strings", pl.Expr, pl.Series)

# A balanced pair of round brackets with up to two further levels inside.
_BRACKETED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"


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
    without_brackets = without_nos.str.replace_all(_BRACKETED, "")
    return _fold_blanks(without_brackets.str.replace_all("-", " ", literal=True))


CLEANING: dict[str, Callable] = {"paper": _paper_rules, "none": _fold_blanks}


def clean(terms: Strings, rules: str) -> Strings:
    """Cleaned terms of a polars string expression or Series, by the rule set named `rules`.

    Raises BadInput for an unknown name; the names are the keys of `CLEANING`.
    """
    if rules not in CLEANING:
        raise BadInput(f"unknown cleaning {rules!r}; expected one of {', '.join(sorted(CLEANING))}")
    return CLEANING[rules](terms)


def clean_term(term: str, rules: str) -> str:
    """One cleaned term; exactly what `clean` gives, since it is `clean` on a column of one row.

    For many terms call `clean(polars.Series(terms), rules)`: it is far quicker per term.
    """
    return clean(pl.Series([term], dtype=pl.String), rules)[0]
