"""Characters as numbers: how a word is spelled.

The marks are those of the encoder of Phan et al. (its released checkpoint, minhcp/BNE, has a
trained row for each, among the characters and among the words).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

WORD, END_OF_WORD, NAME, END_OF_NAME, OLD_END, UNKNOWN, RAQUO = range(1, 8)
MARKS = ("<w>", "</w>", "<s>", "</s>", "</dsw>", "</unk>", "»")
"""What the numbers from 1 are; 0 is no character. The fifth and the last occur nowhere: they are in
the released shape."""
MOST_CHARACTERS = 32
SPELLING = MOST_CHARACTERS + 2
"""The longest spelling, with the marks of a word."""


@dataclass(frozen=True)
class Alphabet:
    """The characters that an encoder knows.

    Attributes:
        characters: each once; the first has the number after those of the marks.
    """

    characters: str

    @classmethod
    def of(cls, words: Iterable[str]) -> Alphabet:
        """All characters of some words that spellings show, sorted."""
        return cls("".join(sorted({one for word in words for one in word[:MOST_CHARACTERS]})))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {one: number for number, one in enumerate(self.characters, len(MARKS) + 1)}

    @property
    def size(self) -> int:
        """Numbers above 0: the marks and the characters."""
        return len(MARKS) + len(self.characters)

    def spell(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The spellings of words, `<w>` c1 .. cm `</w>` with m of at most 32.

        A character that is not in the alphabet is `</unk>`.

        Returns:
            (start, characters): int64 [n + 1] and int32; word i is spelled
            characters[start[i] : start[i + 1]].
        """
        number = self._numbers.get
        spelled = [
            [WORD, *(number(one, UNKNOWN) for one in word[:MOST_CHARACTERS]), END_OF_WORD]
            for word in words
        ]
        start = np.cumsum([0, *map(len, spelled)], dtype=np.int64)
        return start, np.array([one for word in spelled for one in word], np.int32)
