"""Aligned arrays begin where TensorFlow and XLA want them, with the shape that was asked for."""

import numpy as np
import pytest

from data_pipeline.dataset.aligned import ALIGNMENT, aligned, is_aligned


@pytest.mark.parametrize("shape", [7, (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int64])
def test_arrays_begin_at_a_multiple(shape, dtype):
    for _ in range(5):  # one may by chance
        array = aligned(shape, dtype)
        assert array.shape == np.empty(shape).shape and array.dtype == dtype
        assert array.ctypes.data % ALIGNMENT == 0 and is_aligned(array) and array.flags.writeable


def test_nothing_has_its_shape():
    assert aligned(0, np.int32).shape == (0,) and aligned((0, 4), np.float32).shape == (0, 4)


def test_what_is_not_aligned():
    array = aligned((8, 32), np.float32)
    assert is_aligned(array[1:]) and not is_aligned(array[:, 1:]) and not is_aligned(array[:, :16])
    assert not is_aligned(array.reshape(-1)[1:])
