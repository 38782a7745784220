"""Files of one array: written in parts, read as one; a full disk is an error."""

import numpy as np
import pytest
from devices import FULL, device

from data_pipeline.files.array_files import map_array, write_array
from data_pipeline.process.command import message_of


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 4), (0, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_parts_are_one_array(tmp_path, shape, dtype):
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = tmp_path / "rows.npy"
    for _ in range(2):  # a file that is there is replaced
        write_array(path, shape, whole.dtype, np.array_split(whole, [2, 2, 3]))
    assert np.load(path).dtype == dtype
    if whole.size:
        np.testing.assert_array_equal(map_array(path, "make it again"), whole)


def test_a_full_disk_is_an_error_that_is_told(tmp_path):
    rows = np.ones((4_096, 64), np.float32)
    with pytest.raises(OSError) as caught:
        write_array(device(tmp_path / "full", FULL), rows.shape, rows.dtype, [rows])
    assert "make room" in str(message_of(caught.value))
