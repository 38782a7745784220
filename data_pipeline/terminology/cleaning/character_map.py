"""A table from characters to strings in the format of SentencePiece's normalizer.

`tokenizers.normalizers.Precompiled` takes it. Nothing but SentencePiece's trainer writes it, which
would have to train a model for it. The format (sentencepiece/src/normalizer.cc, and darts.h of
Darts-clone, of which the tree is): the size of the tree in bytes, the tree, and the strings, each
with a 0 behind. All numbers are 32 bits, little-endian.

The tree is a double array. Of the unit at place p a number o tells, as p ^ o, the base of its
children: the child by a byte b lies at base ^ b and repeats b, and where a key ends, a leaf at the
base itself has its value: where its string begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

BLOCK = 256  # the children of a unit lie within one block, as bytes differ in the last 8 bits only
BLOCKS = 16  # the last ones, in which room is looked for
LEAF, HAS_LEAF, OFFSET = 1 << 31, 1 << 8, 10  # of a unit: bits 0 to 7 are the byte


def character_map(strings: Mapping[str, str]) -> bytes:
    """The table of `strings`, from keys to what replaces them.

    Args:
      strings: at least one. Keys and values without the character 0; no key begins with another.
    """
    place: dict[str, int] = {}
    text = bytearray()
    root: dict[int, Any] = {}
    for key, string in sorted(strings.items()):
        if string not in place:
            place[string] = len(text)
            text += string.encode() + b"\0"
        *path, last = key.encode()
        node = root
        for byte in path:
            node = node.setdefault(byte, {})
        node[last] = place[string]
    tree = np.array(_DoubleArray(root).units, "<u4").tobytes()
    return len(tree).to_bytes(4, "little") + tree + bytes(text)


class _DoubleArray:
    """The units of a tree of dictionaries, from bytes to subtrees or values."""

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
                self.units[place] |= HAS_LEAF
                if node not in self.leaves:
                    self.leaves[node] = self._take([0])
                    self.units[self.leaves[node]] = LEAF | node
                base = self.leaves[node]
            self.units[place] |= (place ^ base) << OFFSET

    def _grow(self) -> None:
        self.free.append(set(range(len(self.units), len(self.units) + BLOCK)))
        self.units += [0] * BLOCK

    def _take(self, children: list[int]) -> int:
        """A base that no other unit has, whose children by these bytes have free places."""
        for free in self.free[-BLOCKS:]:
            for place in free:
                base = place ^ children[0]
                if base not in self.bases and all(base ^ byte in free for byte in children):
                    self.bases.add(base)
                    free.difference_update(base ^ byte for byte in children)
                    return base
        self._grow()
        return self._take(children)
