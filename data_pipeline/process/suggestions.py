"""What a mistyped name may have meant."""

import argparse
import difflib
from collections.abc import Iterable, Sequence

from data_pipeline.process.errors import BadInput


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """ "; did you mean NAME?" with the known name that is most like it; "" where none is."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(found.lower(), names, n=1)
    return f"; did you mean {names[near[0]]}?" if near else ""


def check_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse flags that a parser does not have, with the one that may be meant.

    argparse itself names them last, after all that is missing because of them.

    Raises:
        BadInput: for a word that begins with -- and is no flag, nor the beginning of one.
    """
    known = parser._option_string_actions
    for word in words:
        if word == "--":
            return
        flag = word.partition("=")[0]
        if flag.startswith("--") and not any(name.startswith(flag) for name in known):
            raise BadInput(
                f"there is no option {flag}{did_you_mean(flag, known)} "
                f"(`{parser.prog} --help` lists all)"
            )
