"""A folder of mentions in, its arrays out (`open_mentions`); `write.py` writes such ones.

Mentions are strings that people wrote, each with a *set* of gold concepts, all of which it means;
beside them stands the dictionary, whose concepts have one name or several. What a concept is, the
gold decides: where it is written as names (CHIP-2019), a concept is a distinct name, however many
codes that has; where it is written as identifiers (MEDIC), a concept is one of these, and each of
its names stands for it.

The folder holds a .npy file for each array, manifest.json, tokenizer/ and words.tsv. NumPy alone
reads it, and maps it: what is not used is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from data_pipeline.files.array_files import map_array
from data_pipeline.files.identity import MENTIONS, read_identity
from data_pipeline.files.whole_files import recover_folder
from data_pipeline.process.errors import BadInput

MANIFEST = MENTIONS.file
WORDS = "words.tsv"
SPLITS = ("train", "dev", "test")
UNREACHABLE = -1  # a gold concept that the dictionary lacks
AGAIN = f"make the folder again with `{MENTIONS.command} ... --overwrite`"


class StoredStrings(Sequence[str]):
    """Strings as their UTF-8 bytes, one after the other; a string is made when it is asked for.

    Attributes:
      text: uint8 [bytes].
      start: int64 [n + 1]; string i is text[start[i] : start[i + 1]].
    """

    def __init__(self, text: np.ndarray, start: np.ndarray):
        self.text, self.start = text, start

    @classmethod
    def of(cls, strings: Iterable[str]) -> StoredStrings:
        parts = [string.encode() for string in strings]
        return cls(np.frombuffer(b"".join(parts), np.uint8), starts(map(len, parts)))

    def __len__(self) -> int:
        return len(self.start) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(f"string {row} of {len(self)}")
        row %= len(self)
        return self.text[self.start[row] : self.start[row + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        text, start = self.text.tobytes(), self.start.tolist()
        for first, last in zip(start, start[1:], strict=False):
            yield text[first:last].decode()


@dataclass(frozen=True)
class TokenTable:
    """n strings and their tokens.

    Attributes:
      strings: as the source has them, before cleaning, [n].
      tokens: int32 [T], [CLS] first and [SEP] last in each.
      start: int64 [n + 1]; the tokens of string i are tokens[start[i] : start[i + 1]].
      kinds: uint8 [T]; bit k is set where a keyword of kind k overlaps the token.
    """

    strings: Sequence[str]
    tokens: np.ndarray
    start: np.ndarray
    kinds: np.ndarray

    def __len__(self) -> int:
        return len(self.start) - 1

    def of(self, row: int) -> np.ndarray:
        """The tokens of a string, int32 [length]."""
        return self.tokens[self.start[row] : self.start[row + 1]]


@dataclass(frozen=True)
class MentionSplit:
    """M mentions; the gold of mention m is gold[gold_start[m] : gold_start[m + 1]], all of which
    it means, each once.

    Attributes:
      mentions: TokenTable of M strings.
      gold_start: int64 [M + 1].
      gold: int32; concepts, UNREACHABLE for one that the dictionary lacks.
    """

    mentions: TokenTable
    gold_start: np.ndarray
    gold: np.ndarray

    def gold_sets(self) -> list[frozenset[int]]:
        """The gold of each mention. A set with UNREACHABLE in it can never be answered rightly."""
        return [frozenset(part.tolist()) for part in np.split(self.gold, self.gold_start[1:-1])]

    def numbers(self) -> np.ndarray:
        """How many gold concepts each mention has, reachable or not, int64 [M]."""
        return np.diff(self.gold_start)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """(mentions, concepts), int32 each: every mention with each of its reachable concepts."""
        mentions = np.repeat(np.arange(len(self.mentions), dtype=np.int32), self.numbers())
        reachable = self.gold != UNREACHABLE
        return mentions[reachable], self.gold[reachable]


@dataclass(frozen=True)
class MentionDataset:
    """A dictionary of C concepts with N names, and mentions of them.

    Attributes:
      folder: where it was read from.
      manifest: what manifest.json says.
      concepts: identifiers, [C]; where gold is written as names, these.
      code_start, codes: int64 [C + 1] and strings; concept c has the codes
        codes[code_start[c] : code_start[c + 1]], none or several.
      branch_start, branches: int64 [C + 1] and int32; the branches of the dictionary's tree that
        concept c is on, in the same form: what its codes begin with before the dot.
      names: TokenTable of N names, those of a concept one after the other, its preferred first.
      name_concepts: int32 [N], ascending.
      splits: "train", and where they are given "dev" and "test".
      words: kind of keyword -> its words; the kinds are manifest["keyword_kinds"], in that order.
    """

    folder: Path
    manifest: Mapping[str, Any]
    concepts: Sequence[str]
    code_start: np.ndarray
    codes: Sequence[str]
    branch_start: np.ndarray
    branches: np.ndarray
    names: TokenTable
    name_concepts: np.ndarray
    splits: Mapping[str, MentionSplit]
    words: Mapping[str, Sequence[str]]

    def name_start(self) -> np.ndarray:
        """int64 [C + 1]; the names of concept c are name_start[c] .. name_start[c + 1] - 1."""
        return np.searchsorted(self.name_concepts, np.arange(len(self.concepts) + 1))

    def codes_of(self, concept: int) -> list[str]:
        return list(self.codes[self.code_start[concept] : self.code_start[concept + 1]])


def starts(lengths: Iterable[int]) -> np.ndarray:
    """int64 [n + 1]: where each of n parts begins, and where the last one ends."""
    counts = np.fromiter(lengths, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


# ---- The arrays of a folder, by the names of their files ----

TABLE = {"text": "uint8", "text_start": "int64", "tokens": "int32", "start": "int64"} | {
    "kinds": "uint8"
}
OF_DICTIONARY = {
    **{"concepts.text": "uint8", "concepts.text_start": "int64"},
    **{"codes.text": "uint8", "codes.text_start": "int64", "code_start": "int64"},
    **{"branch_start": "int64", "branches": "int32", "name_concepts": "int32"},
    **{f"names.{part}": dtype for part, dtype in TABLE.items()},
}


def array_types(splits: Sequence[str]) -> dict[str, str]:
    """The array files of a folder with these splits, and what each holds."""
    of_splits = {
        f"{split}.{part}": dtype
        for split in splits
        for part, dtype in (TABLE | {"gold_start": "int64", "gold": "int32"}).items()
    }
    return OF_DICTIONARY | of_splits


def open_mentions(path: str | Path) -> MentionDataset:
    """A folder that `write_mentions` made; its arrays are mapped.

    Raises:
      BadInput: if it is missing, another thing, or damaged.
    """
    folder = Path(path)
    recover_folder(folder)  # of a build that was killed while it replaced another
    if not (folder / MANIFEST).is_file():
        raise BadInput(
            f"{folder} has no {MANIFEST}; expected a folder of mentions: make one with "
            f"`{MENTIONS.command}`"
        )
    manifest = read_identity(folder / MANIFEST, MENTIONS)
    kinds, splits = manifest["keyword_kinds"], manifest["splits"]
    arrays = {
        name: _mapped(folder, name, kind, manifest) for name, kind in array_types(splits).items()
    }
    for name, array in arrays.items():
        _check_starts(folder, name, array, arrays)

    def strings(name: str) -> StoredStrings:
        return StoredStrings(arrays[f"{name}.text"], arrays[f"{name}.text_start"])

    def table(name: str) -> TokenTable:
        return TokenTable(strings(name), *(arrays[f"{name}.{part}"] for part in list(TABLE)[2:]))

    return MentionDataset(
        folder=folder,
        manifest=manifest,
        concepts=strings("concepts"),
        codes=strings("codes"),
        names=table("names"),
        splits={
            name: MentionSplit(table(name), arrays[f"{name}.gold_start"], arrays[f"{name}.gold"])
            for name in splits
        },
        words=_read_words(folder / WORDS, kinds),
        **{name: arrays[name] for name in ("code_start", "branch_start", "branches")},
        name_concepts=arrays["name_concepts"],
    )


def _mapped(folder: Path, name: str, dtype: str, manifest: Mapping[str, Any]) -> np.ndarray:
    """An array of the folder, of the size that its manifest says."""
    path, said = folder / f"{name}.npy", manifest["arrays"].get(name)
    if said is None:
        raise BadInput(f"{folder / MANIFEST} does not speak of the array {name}; {AGAIN}")
    if not said["length"] and path.is_file():  # nothing is there that could be mapped
        return np.zeros(0, dtype)
    array = map_array(path, AGAIN)
    found, expected = (array.dtype.name, array.shape), (dtype, (said["length"],))
    if found != expected or said["dtype"] != dtype:
        raise BadInput(f"{path} is damaged: found {found}, expected {expected}; {AGAIN}")
    return array


def _check_starts(folder: Path, name: str, start: np.ndarray, arrays: Mapping[str, Any]) -> None:
    """BadInput if an array of starts does not end where what it divides does."""
    if not name.endswith("start"):
        return
    divided = {"text_start": "text", "gold_start": "gold", "start": "tokens"} | {
        "code_start": "codes.text_start",
        "branch_start": "branches",
    }
    *room, part = name.split(".")
    parts = len(arrays[".".join([*room, divided[part]])]) - (part == "code_start")
    if not len(start) or start[0] or start[-1] != parts or (np.diff(start) < 0).any():
        raise BadInput(f"{folder / name}.npy is damaged: it does not divide {parts:,}; {AGAIN}")


def _read_words(path: Path, kinds: Sequence[str]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {kind: [] for kind in kinds}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        for word, kind in (line.split("\t") for line in lines):
            words[kind].append(word)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path} is damaged ({type(error).__name__}: {error}); {AGAIN}") from error
    return words
