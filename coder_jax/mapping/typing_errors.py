"""Names in, the same with one typing error each out: a letter too few, too many, wrong, swapped."""

from __future__ import annotations

import random
from collections.abc import Sequence

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def misspelt(names: Sequence[str], seed: int = 0) -> list[str]:
    """Each name with one error at a random place, not the first letter where there are others.

    Args:
      names: strings; those of fewer than two letters stay as they are.
      seed: another one draws other errors.
    """
    draw = random.Random(seed)
    return [_one_error(name, draw) if len(name) > 1 else name for name in names]


def _one_error(name: str, draw: random.Random) -> str:
    place = draw.randrange(1, len(name))
    before, letter, after = name[:place], name[place], name[place + 1 :]
    kind = draw.choice(("too few", "too many", "wrong", "swapped"))
    if kind == "too few":
        return before + after
    if kind == "too many":
        return before + draw.choice(LETTERS) + letter + after
    if kind == "wrong" or not after or after[0] == letter:
        return before + draw.choice(LETTERS.replace(letter, "")) + after
    return before + after[0] + letter + after[1:]
