"""A user's own list of abbreviations: `MI<TAB>myocardial infarction`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from data_pipeline.files.rows import two_columns
from data_pipeline.process.errors import BadInput


def read_abbreviations(path: str | Path) -> dict[str, str]:
    """What each abbreviation stands for, from a TSV file of abbreviation<TAB>words.

    Raises:
      BadInput: no such file, a broken row, or an abbreviation that stands for two things.
    """
    meaning: dict[str, str] = {}
    for short, words in two_columns(Path(path), "abbreviation<TAB>words"):
        if meaning.setdefault(short, words) != words:
            raise BadInput(
                f"{path}: {short!r} stands for {meaning[short]!r} and for {words!r}; expected one "
                "meaning: remove the other line"
            )
    return meaning


def writer_out(abbreviations: Mapping[str, str]) -> Callable[[str], str]:
    """A function that writes out the abbreviations of a mention.

    Only whole words in the letters of the list count: with "MS" in the list, "MS" is written out
    and "ms" (a millisecond) is not. Longer ones go first, so that "MI" does not cut "MI II" short.
    """
    if not abbreviations:
        return lambda mention: mention
    longest_first = sorted(abbreviations, key=len, reverse=True)
    words = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
    return lambda mention: words.sub(lambda found: abbreviations[found[0]], mention)
