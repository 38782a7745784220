"""Folders of mentions as arrays, written and read, with the candidate lists of a ranker."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, overload

import numpy as np
import polars as pl
from msgspec import UNSET, Meta, UnsetType

from data_pipeline import process
from data_pipeline.dataset.store import TokenizerOfData
from data_pipeline.files.identity import MENTIONS, Count, Hash, read_identity, typed, write_identity
from data_pipeline.files.whole import map_array, recover_folder, whole_folder
from data_pipeline.process import BadInput, progress_bar
from data_pipeline.terminology.cleaning import clean
from data_pipeline.terminology.keywords import KeywordVocabulary, keyword_lines

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# -------------------------------------------------------------------------------------------------
# A folder of mentions, opened by `open_mentions` and written by `write_mentions`.
#
# Mentions are strings that people wrote, each with a *set* of gold concepts, all of which it means;
# beside them stands the dictionary, whose concepts have one name or several. What a concept is, the
# gold decides: where it is written as names (CHIP-2019), a concept is a distinct name, however many
# codes that has; where it is written as identifiers (MEDIC), a concept is one of these, and each of
# its names stands for it.
#
# The folder holds a .npy file for each array, manifest.json, tokenizer/ and words.tsv. NumPy alone
# reads it, and maps it: what is not used is not read.

MANIFEST = MENTIONS.file
WORDS = "words.tsv"
_Split = Literal["train", "dev", "test"]
SPLITS: tuple[_Split, ...] = get_args(_Split)
UNREACHABLE = -1  # a gold concept that the dictionary lacks
_AGAIN = f"make the folder again with `{MENTIONS.command} ... --overwrite`"


class StoredStrings(Sequence[str]):
    """Strings stored as one array of UTF-8 bytes; a string is decoded when it is indexed.

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
    """M mentions; the gold concepts of mention m are gold[gold_start[m] : gold_start[m + 1]],
    distinct.

    Attributes:
      mentions: TokenTable of M strings.
      gold_start: int64 [M + 1].
      gold: int32; concepts, UNREACHABLE for one that the dictionary lacks.
    """

    mentions: TokenTable
    gold_start: np.ndarray
    gold: np.ndarray

    def gold_sets(self) -> list[frozenset[int]]:
        """The gold set of each mention; one with UNREACHABLE in it can never be answered fully."""
        return [frozenset(part.tolist()) for part in np.split(self.gold, self.gold_start[1:-1])]

    def numbers(self) -> np.ndarray:
        """int64 [M]: the number of gold concepts of each mention, reachable or not."""
        return np.diff(self.gold_start)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """(mentions, concepts), int32 each: one pair for each reachable gold concept of a
        mention.
        """
        mentions = np.repeat(np.arange(len(self.mentions), dtype=np.int32), self.numbers())
        reachable = self.gold != UNREACHABLE
        return mentions[reachable], self.gold[reachable]


@dataclass(frozen=True)
class StoredArray:
    """What a .npy file of a folder of mentions holds: an array of one dimension."""

    dtype: Literal["uint8", "int32", "int64"]
    length: Count


@dataclass(frozen=True, kw_only=True)
class MentionManifest:
    """manifest.json of a folder of mentions."""

    format: str = MENTIONS.format
    name: str
    release: str
    cleaning: str
    relations: Annotated[list[str], Meta(max_length=0)]  # mentions have none; a run asks for them
    keyword_kinds: Annotated[list[str], Meta(max_length=7)]
    splits: list[_Split]
    counts: dict[str, Count]
    warnings: list[str]
    tokenizer: TokenizerOfData
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    arrays: dict[Annotated[str, Meta(pattern=r"^[a-z_.]+$")], StoredArray]
    content_hash: Hash
    candidates: dict[str, Any] | UnsetType = UNSET
    """How the candidates beside the mentions were found."""


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
      parent_start, parents: int64 [C + 1] and int32; the concepts that are a step broader than
        concept c, in the same form; none of any where no hierarchy was given.
      names: TokenTable of N names, those of a concept one after the other, its preferred first.
      name_concepts: int32 [N], ascending.
      splits: "train", and where they are given "dev" and "test".
      words: kind of keyword -> its words; the kinds are manifest.keyword_kinds, in that order.
    """

    folder: Path
    manifest: MentionManifest
    concepts: Sequence[str]
    code_start: np.ndarray
    codes: Sequence[str]
    branch_start: np.ndarray
    branches: np.ndarray
    parent_start: np.ndarray
    parents: np.ndarray
    names: TokenTable
    name_concepts: np.ndarray
    splits: Mapping[str, MentionSplit]
    words: Mapping[str, Sequence[str]]

    def name_start(self) -> np.ndarray:
        """int64 [C + 1]; the names of concept c are name_start[c] .. name_start[c + 1] - 1."""
        return np.searchsorted(self.name_concepts, np.arange(len(self.concepts) + 1))

    def broader(self, concepts: Iterable[int]) -> set[int]:
        """The concepts that are broader than some, by any number of steps, without these."""
        own = set(concepts)
        found, steps = set(own), list(own)
        while steps:
            one = steps.pop()
            above = self.parents[self.parent_start[one] : self.parent_start[one + 1]].tolist()
            steps += set(above) - found
            found.update(above)
        return found - own

    def codes_of(self, concept: int) -> list[str]:
        return list(self.codes[self.code_start[concept] : self.code_start[concept + 1]])


def starts(lengths: Iterable[int]) -> np.ndarray:
    """int64 [n + 1]: the start of each of n consecutive parts, and the end of the last one."""
    counts = np.fromiter(lengths, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


# ---- The arrays of a folder, by file name ----

_TABLE = {"text": "uint8", "text_start": "int64", "tokens": "int32", "start": "int64"} | {
    "kinds": "uint8"
}
_OF_DICTIONARY = {
    "concepts.text": "uint8",
    "concepts.text_start": "int64",
    "codes.text": "uint8",
    "codes.text_start": "int64",
    "code_start": "int64",
    "branch_start": "int64",
    "branches": "int32",
    "name_concepts": "int32",
    **{f"names.{part}": dtype for part, dtype in _TABLE.items()},
}


def _array_types(splits: Sequence[str], there: Container[str]) -> dict[str, str]:
    """The dtype of each array file of a folder with these splits; those of parents only if one of
    them is `there`.
    """
    of_splits = {
        f"{split}.{part}": dtype
        for split in splits
        for part, dtype in (_TABLE | {"gold_start": "int64", "gold": "int32"}).items()
    }
    parents = {"parent_start": "int64", "parents": "int32"}
    more = parents if any(name in there for name in parents) else {}
    return _OF_DICTIONARY | of_splits | more


def open_mentions(path: str | Path) -> MentionDataset:
    """Opens a folder that `write_mentions` made; its arrays are memory-mapped, and read once.

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
    manifest = read_identity(folder / MANIFEST, MENTIONS, MentionManifest)
    kinds, splits = manifest.keyword_kinds, manifest.splits
    arrays = {
        name: _mapped(folder, name, kind, manifest)
        for name, kind in _array_types(splits, manifest.arrays).items()
    }
    for name, array in arrays.items():
        _check_starts(folder, name, array, arrays)
    _check_entries(folder, manifest, arrays)
    if _content_hash(kinds, arrays) != manifest.content_hash:
        raise BadInput(f"{folder} is damaged: its arrays are not those of {MANIFEST}; {_AGAIN}")

    def strings(name: str) -> StoredStrings:
        return StoredStrings(arrays[f"{name}.text"], arrays[f"{name}.text_start"])

    def table(name: str) -> TokenTable:
        return TokenTable(strings(name), *(arrays[f"{name}.{part}"] for part in list(_TABLE)[2:]))

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
        parent_start=arrays.get("parent_start", np.zeros(len(arrays["code_start"]), np.int64)),
        parents=arrays.get("parents", np.zeros(0, np.int32)),
        **{name: arrays[name] for name in ("code_start", "branch_start", "branches")},
        name_concepts=arrays["name_concepts"],
    )


def _mapped(folder: Path, name: str, dtype: str, manifest: MentionManifest) -> np.ndarray:
    """An array of the folder, checked against the size in its manifest."""
    path, said = folder / f"{name}.npy", manifest.arrays.get(name)
    if said is None:
        raise BadInput(f"{folder / MANIFEST} does not speak of the array {name}; {_AGAIN}")
    if not said.length and path.is_file():  # nothing is there that could be mapped
        return np.zeros(0, dtype)
    array = map_array(path, _AGAIN)
    found, expected = (array.dtype.name, array.shape), (dtype, (said.length,))
    if found != expected or said.dtype != dtype:
        raise BadInput(f"{path} is damaged: found {found}, expected {expected}; {_AGAIN}")
    return array


def _check_starts(folder: Path, name: str, start: np.ndarray, arrays: Mapping[str, Any]) -> None:
    """Raise BadInput if an array of starts does not end at the length of the array that it
    divides.
    """
    if not name.endswith("start"):
        return
    divided = {"text_start": "text", "gold_start": "gold", "start": "tokens"} | {
        "code_start": "codes.text_start",
        "branch_start": "branches",
        "parent_start": "parents",
    }
    *room, part = name.split(".")
    parts = len(arrays[".".join([*room, divided[part]])]) - (part == "code_start")
    if not len(start) or start[0] or start[-1] != parts or (np.diff(start) < 0).any():
        raise BadInput(f"{folder / name}.npy is damaged: it does not divide {parts:,}; {_AGAIN}")


def _check_entries(
    folder: Path, manifest: MentionManifest, arrays: Mapping[str, np.ndarray]
) -> None:
    """Raise BadInput for numbers that no concept, token or keyword kind has."""
    concepts = len(arrays["concepts.text_start"]) - 1
    limits = {
        "tokens": (0, manifest.tokenizer.vocab_size),
        "kinds": (0, 1 << len(manifest.keyword_kinds)),
        "gold": (UNREACHABLE, concepts),
        "name_concepts": (0, concepts),
        "parents": (0, concepts),
    }
    for name, array in arrays.items():
        least, limit = limits.get(name.rpartition(".")[2], (0, 2**63 - 1))
        if len(array) and not least <= array.min() <= array.max() < limit:
            raise BadInput(
                f"{folder / name}.npy is damaged: found {array.min():,} to {array.max():,}, "
                f"expected {least:,} to {limit - 1:,}; {_AGAIN}"
            )
    if (np.diff(arrays["name_concepts"]) < 0).any():
        raise BadInput(f"{folder}/name_concepts.npy is damaged: it does not rise; {_AGAIN}")


def _content_hash(kinds: Sequence[str], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of all arrays, by name, and of the keyword kinds."""
    content = hashlib.sha256("\t".join(kinds).encode())
    for name, array in arrays.items():
        content.update(f"\n{name} {array.dtype.name} {len(array)}\n".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def _read_words(path: Path, kinds: Sequence[str]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {kind: [] for kind in kinds}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        for word, kind in (line.split("\t") for line in lines):
            words[kind].append(word)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path} is damaged ({type(error).__name__}: {error}); {_AGAIN}") from error
    return words


# -------------------------------------------------------------------------------------------------
# The writer of a folder of mentions: strings to tokens and keyword kinds, arrays to files.

ODD_LINES = "odd_lines.txt"
_AT_ONCE = 4096  # strings whose tokens are held as objects


def token_table(
    tokenizer: Tokenizer,
    strings: Sequence[str],
    *,
    cleaning: str,
    max_length: int,
    keywords: KeywordVocabulary,
    progress: str = "",
) -> tuple[TokenTable, int]:
    """Strings with their tokens, and the keyword kinds that overlap each token.

    Args:
      tokenizer: from `load_tokenizer`.
      strings: as the source has them, [n].
      cleaning: name of a rule set of `clean.CLEANING`; tokens and keywords are of cleaned strings.
      max_length: longest string in tokens, [CLS] and [SEP] included; longer ones are cut.
      keywords: what is marked.
      progress: what a progress bar says; "": there is none.

    Returns:
      the table, and how many strings were cut.
    """
    from data_pipeline.dataset.tokenizer import cut

    cleaned = clean(pl.Series(strings, dtype=pl.String), cleaning).to_list()
    tokens, kinds, lengths = [], [], []
    with progress_bar(total=len(strings), desc=progress, disable=not progress) as bar:
        for first in range(0, len(cleaned), _AT_ONCE):
            process.poll()
            some = cleaned[first : first + _AT_ONCE]
            for string, encoding in zip(some, tokenizer.encode_batch(some), strict=True):
                tokens += encoding.ids
                kinds.append(keywords.kinds_of_tokens(string, encoding.offsets))
                lengths.append(len(encoding.ids))
            bar.update(len(some))
    start = starts(lengths)
    flat = np.concatenate([np.zeros(0, np.uint8), *kinds])
    # [CLS] and [SEP] overlap no keyword, so the [SEP] that `cut` puts last has kind 0.
    cut_tokens, cut_start = cut(np.array(tokens, np.int32), start, max_length)
    table = TokenTable(list(strings), cut_tokens, cut_start, cut(flat, start, max_length)[0])
    return table, int((np.array(lengths, np.int64) > max_length).sum())


def _strings(name: str, strings: Sequence[str]) -> dict[str, np.ndarray]:
    stored = strings if isinstance(strings, StoredStrings) else StoredStrings.of(strings)
    return {f"{name}.text": stored.text, f"{name}.text_start": stored.start}


def _table(name: str, table: TokenTable) -> dict[str, np.ndarray]:
    rest = {f"{name}.{part}": getattr(table, part) for part in ("tokens", "start", "kinds")}
    return _strings(name, table.strings) | rest


def _arrays(dataset: MentionDataset) -> dict[str, np.ndarray]:
    plain = ("code_start", "branch_start", "branches", "name_concepts")
    arrays = {name: getattr(dataset, name) for name in plain}
    arrays |= _strings("concepts", dataset.concepts) | _strings("codes", dataset.codes)
    arrays |= _table("names", dataset.names)
    for name, split in dataset.splits.items():
        arrays |= _table(name, split.mentions)
        arrays |= {f"{name}.gold_start": split.gold_start, f"{name}.gold": split.gold}
    if len(dataset.parents):
        arrays |= {"parent_start": dataset.parent_start, "parents": dataset.parents}
    return {
        name: np.ascontiguousarray(arrays[name], np.dtype(dtype).newbyteorder("<"))
        for name, dtype in _array_types(list(dataset.splits), arrays).items()
    }


def write_mentions(
    out: Path, dataset: MentionDataset, tokenizer: str | Path, odd: Sequence[str] = ()
) -> MentionDataset:
    """Writes a folder of mentions, whole or not at all, and opens it.

    Args:
      out: the folder; what is there is replaced.
      dataset: what it is to hold; `arrays` and `content_hash` of its manifest are made here.
      tokenizer: folder or hub id of the tokenizer that made its tokens.
      odd: lines of ODD_LINES, what was odd in the input.
    """
    from data_pipeline.dataset.tokenizer import save_tokenizer

    arrays = _arrays(dataset)
    manifest = dataclasses.replace(
        dataset.manifest,
        arrays={
            name: typed({"dtype": array.dtype.name, "length": len(array)}, StoredArray, name)
            for name, array in arrays.items()
        },
        content_hash=_content_hash(dataset.manifest.keyword_kinds, arrays),
    )
    with whole_folder(out) as folder:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        save_tokenizer(tokenizer, folder / "tokenizer")
        (folder / WORDS).write_text(keyword_lines(dataset.words), encoding="utf-8")
        if odd:
            (folder / ODD_LINES).write_text("\n".join(odd) + "\n", encoding="utf-8")
        write_identity(folder / MANIFEST, MENTIONS, manifest)
    return open_mentions(out)


# -------------------------------------------------------------------------------------------------
# Candidate lists, stored in the folder of their mentions.
#
# FOLDER/candidates/SPLIT/  names.npy, distances.npy, numbers.npy (`CandidateLists`)
# FOLDER/candidates.tsv     the same for people

CANDIDATES, CANDIDATES_TABLE = "candidates", "candidates.tsv"
_CANDIDATES_AGAIN = "make the folder again with `python -m coder_jax candidates`"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateLists:
    """The k nearest concepts of M mentions, nearest first."""

    names: np.ndarray
    """int32 [M, k], the nearest name of each concept."""
    distances: np.ndarray
    """float32 [M, k], the Euclidean distance of this name."""
    numbers: np.ndarray
    """float32 [M, C], the probability that the mention has one, two, ..., C or more concepts."""

    @property
    def content_hash(self) -> str:
        """SHA-256 of all three arrays."""
        content = hashlib.sha256()
        for field in dataclasses.fields(self):
            array = getattr(self, field.name)
            content.update(f"{field.name} {array.dtype.name} {array.shape}\n".encode())
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()

    def of(self, rows: np.ndarray) -> CandidateLists:
        """The lists of some mentions, chosen by bool [M] or by their numbers."""
        fields = dataclasses.fields(self)
        return CandidateLists(**{field.name: getattr(self, field.name)[rows] for field in fields})

    def write(self, folder: Path, split: str) -> None:
        """Write the lists of a split into a new folder of mentions."""
        within = folder / CANDIDATES / split
        within.mkdir(parents=True)
        for field in dataclasses.fields(self):
            np.save(within / f"{field.name}.npy", getattr(self, field.name))


def read_lists(folder: Path, split: str, mentions: int, names: int) -> CandidateLists:
    """The candidate lists of a split.

    Args:
        folder: of mentions and their candidates.
        split: train, dev or test.
        mentions, names: how many there are.

    Raises:
        BadInput: if there are none, or they are not of these mentions.
    """
    within = folder / CANDIDATES / split
    if not within.is_dir():
        raise BadInput(
            f"{folder} has no candidates of its mentions of {split}; expected what "
            "`python -m coder_jax candidates --model ... --data ... --out ...` writes"
        )
    arrays = {
        field.name: map_array(within / f"{field.name}.npy", _CANDIDATES_AGAIN)
        for field in dataclasses.fields(CandidateLists)
    }
    shape = arrays["names"].shape
    for name, kind in {"names": "i", "distances": "f", "numbers": "f"}.items():
        found = arrays[name]
        expected = (mentions, found.shape[-1]) if name == "numbers" else (mentions, shape[-1])
        if found.dtype.kind != kind or found.shape != expected:
            raise BadInput(
                f"{within / name}.npy holds {found.dtype} {found.shape}; expected {expected}: "
                f"{_CANDIDATES_AGAIN}"
            )
    if arrays["names"].size and not 0 <= arrays["names"].min() <= arrays["names"].max() < names:
        raise BadInput(
            f"{within}/names.npy has numbers beyond the {names} names: {_CANDIDATES_AGAIN}"
        )
    return CandidateLists(**arrays)


def candidate_rows(lists: CandidateLists) -> np.ndarray:
    """int64 [M * k, 2]: the mention and the name of each candidate, ordered by mention."""
    mentions, k = lists.names.shape
    return np.stack([np.repeat(np.arange(mentions), k), np.ravel(lists.names)], axis=1)
