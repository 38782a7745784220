"""NumPy's files of one array, read so that a damaged one is said, whatever NumPy makes of it."""

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
