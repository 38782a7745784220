"""Rows of vectors: of an array, or of a file that is mapped a few rows at a time; unit length."""

from __future__ import annotations

from collections.abc import Sequence
from io import RawIOBase
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from data_pipeline.dataset.aligned import aligned
from data_pipeline.files.array_files import map_array
from data_pipeline.process.errors import BadInput

ENCODE = "encode the terms again with `python -m coder_jax encode`"
ROWS_IN_CACHE = 512  # made unit at a time; NumPy would take memory anew for each step with more


class Rows(Protocol):
    """What `search` and the evaluations take for vectors: an array, or what reads like one.

    Attributes:
      shape: (n, D).
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows of a slice, or of an array of their numbers, [n, D]."""


class RowsOfFile:
    """The vectors of a .npy file, float [n, D]; only the rows that are asked for are read.

    For a slice the file is mapped anew, and let go with the rows: in one mapping of the whole file
    all rows that were ever read would count as memory of this process until the system needs it.
    Numbered rows are read run by run, as a mapping would read the surroundings of each from the
    disk, too: megabytes for a row that lies alone.

    Args:
      path: of the file.
      remedy: what to do if it is damaged, for the message.

    Attributes:
      path, shape, dtype: of the file.

    Raises:
      BadInput: the file cannot be read, or has no rows that lie one after the other.
    """

    def __init__(self, path: Path, remedy: str = ENCODE):
        mapped = map_array(path, remedy)
        if mapped.dtype.kind != "f" or mapped.ndim != 2 or not mapped.flags.c_contiguous:
            raise BadInput(
                f"{path}: found {mapped.dtype} of shape {mapped.shape}, or by columns; expected "
                f"float vectors [n, D], row by row; {remedy}"
            )
        self.path, self.shape, self.dtype = path, mapped.shape, mapped.dtype
        self._offset = mapped.offset

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All rows, in memory or mapped: for `np.asarray`."""
        return np.array(self[:], dtype, copy=copy)

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        if isinstance(rows, slice):
            return np.load(self.path, mmap_mode="r")[rows]
        distinct, places = np.unique(rows, return_inverse=True)
        if len(distinct) and not 0 <= distinct[0] <= distinct[-1] < len(self):
            raise IndexError(
                f"found rows {distinct[0]} to {distinct[-1]}; expected 0 to {len(self) - 1}"
            )
        found = np.empty((len(distinct), self.shape[1]), self.dtype)
        starts = np.flatnonzero(np.diff(distinct, prepend=-2) > 1).tolist()
        row_bytes = self.dtype.itemsize * self.shape[1]
        with self.path.open("rb", buffering=0) as file:
            for start, end in zip(starts, [*starts[1:], len(distinct)], strict=False):
                file.seek(self._offset + int(distinct[start]) * row_bytes)
                _read_whole(file, found[start:end])
        return found if np.array_equal(distinct, rows) else found[places]


class JoinedRows:
    """The rows of several, those of one after those of the other; float32.

    Attributes:
      shape: (n, D), n of all.
    """

    def __init__(self, parts: Sequence[Rows]):
        self._parts = parts
        self._starts = np.cumsum([0, *map(len, parts)]).tolist()
        self.shape = (self._starts[-1], parts[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        part_of = np.searchsorted(self._starts, numbers, side="right") - 1
        found = np.empty((len(numbers), self.shape[1]), np.float32)
        for number in np.unique(part_of):
            is_here = part_of == number
            if not 0 <= number < len(self._parts):
                raise IndexError(f"found the row {numbers[is_here][0]}; there are {len(self)}")
            found[is_here] = self._parts[number][numbers[is_here] - self._starts[number]]
        return found


def given_vectors(given: Any) -> np.ndarray | None:
    """The vectors that a user of Python gives, [n, D]; None for what holds no numbers.

    One vector is a row. BadInput for vectors of several widths, or more dimensions.
    """
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise BadInput(f"found vectors of several widths ({error}); expected one width") from error
    if array.dtype.kind not in "fiu" or array.shape == (0,):
        return None
    if array.ndim not in (1, 2):
        raise BadInput(f"found an array of shape {array.shape}; expected vectors [n, D] or [D]")
    return np.atleast_2d(array)


def _read_whole(file: RawIOBase, rows: np.ndarray) -> None:
    """Fills consecutive rows from where the file stands; EOFError if it ends before."""
    rest = rows.reshape(-1).view(np.uint8).data
    while len(rest):
        read = file.readinto(rest)
        if not read:
            raise EOFError(f"{file}: {len(rest)} bytes fewer than its header says")
        rest = rest[read:]


def unit(
    vectors: np.ndarray,
    what: str = "vectors",
    dtype: Any = np.float32,
    numbers: np.ndarray | None = None,
) -> np.ndarray:
    """Rows of length 1, [n, D] of `dtype`, aligned for the devices; zeros stay.

    Args:
      vectors: float [n, D].
      what, numbers: for messages, what the rows are, and the number of each if not its place.

    Raises:
      BadInput: a value is not finite.
    """
    found = aligned(np.shape(vectors), dtype)
    lengths = np.empty((len(vectors), 1), dtype)
    for first in range(0, len(vectors), ROWS_IN_CACHE):
        part = slice(first, first + ROWS_IN_CACHE)
        rows = np.asarray(vectors[part], dtype)
        lengths[part] = np.linalg.norm(rows, axis=1, keepdims=True)
        is_usable = np.isfinite(lengths[part]) & (lengths[part] > 0)
        np.divide(rows, np.where(is_usable, lengths[part], 1), out=found[part])
    broken = np.flatnonzero(~np.isfinite(lengths))
    if len(broken):
        first = broken[0] if numbers is None else numbers[broken[0]]
        raise BadInput(
            f"found {len(broken)} {what} of {len(vectors)} with NaN or infinite values (first: row "
            f"{first}); expected finite numbers: check the weights"
        )
    return found


def products(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Dot products of all rows of one with all of the other, float [n, m].

    Raises:
      BadInput: vectors of two widths.
    """
    if here.shape[1] != there.shape[1]:
        raise BadInput(
            f"found vectors of widths {here.shape[1]} and {there.shape[1]}; expected one width"
        )
    return here @ there.T
