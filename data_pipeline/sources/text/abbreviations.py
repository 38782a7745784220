"""Abbreviations that a text explains: "attention deficit disorder (ADD)"."""

from __future__ import annotations

import logging
import warnings


def abbreviations_of(text: str) -> dict[str, str]:
    """What each abbreviation of a text stands for; of one that is explained twice the last.

    By the letters of what stands before the brackets (Schwartz and Hearst 2003), as the library
    `abbreviations` has it. Phan et al. 2019 take Ab3P (Sohn et al. 2008), which finds somewhat more
    and is no Python package.

    Args:
      text: of one document, a paragraph a line.
    """
    # Imported here, as most commands need none; its import would set up the logging of the process,
    # which it does not where there is a handler. Its file has escapes that Python warns of when it
    # compiles them, which is the first import of an installation.
    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from abbreviations import schwartz_hearst
    finally:
        root.removeHandler(nothing)
    found = schwartz_hearst.extract_abbreviation_definition_pairs(doc_text=text)
    return {str(short): str(words) for short, words in found.items()}
