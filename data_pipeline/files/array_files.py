"""Files of one NumPy array: damaged ones and full disks are said, whatever NumPy makes of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from data_pipeline.process.errors import BadInput


def map_array(path: Path, remedy: str) -> np.memmap:
    """The array in a .npy file, mapped: nothing is read before it is used.

    Args:
        path: the file.
        remedy: what to do about a damaged one, for the message.

    Raises:
        BadInput: if it cannot be read, or is no such file.
    """
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy reads the header as Python, which fails in many ways
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"{path} cannot be read ({problem}); {remedy}") from error
    if not isinstance(mapped, np.memmap):  # an .npz by another name
        mapped.close()
        raise BadInput(f"{path} holds several arrays; expected a .npy file of one; {remedy}")
    return mapped


def write_array(
    path: Path, shape: Sequence[int], dtype: np.dtype, parts: Iterable[np.ndarray]
) -> None:
    """Write a .npy file of rows that come in parts, so that not all are in memory at once.

    They are written, not mapped: where a disk is full that is an error, but a mapping would end the
    process without a word (SIGBUS).

    Args:
        path: the file; one that is there is replaced.
        shape, dtype: of all rows.
        parts: [n, ...] of that dtype, which are all rows together.
    """
    header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            part.tofile(file)
