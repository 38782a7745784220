"""Arrays whose memory TensorFlow and JAX can use as it is; others they would copy."""

import math

import numpy as np
from numpy.typing import DTypeLike

# Bytes; TensorFlow aborts on a tensor that does not begin at a multiple of it, and XLA on a CPU
# copies such an array first.
ALIGNMENT = 64


def aligned(shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """An array of this shape that begins at a multiple of 64 bytes; its content is undefined.

    NumPy's own begin at a multiple of 16.
    """
    dtype = np.dtype(dtype)
    size = math.prod(np.atleast_1d(shape).tolist()) * dtype.itemsize
    bytes_ = np.empty(size + ALIGNMENT, np.uint8)
    first = -bytes_.ctypes.data % ALIGNMENT
    return bytes_[first : first + size].view(dtype).reshape(shape)


def is_aligned(array: np.ndarray) -> bool:
    """Whether TensorFlow and JAX can use the array's memory as it is."""
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0
