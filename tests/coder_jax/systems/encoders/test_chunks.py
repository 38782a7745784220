"""Rows made in chunks: stopped, gone on with, and by a device that makes another number at once."""

import numpy as np
import pytest

from coder_jax.systems.encoders import chunks
from coder_jax.systems.encoders.chunks import is_made, remove_rows, write_rows
from data_pipeline.process.errors import BadInput


class Fails(Exception):
    """In the middle of the work."""


def rows_of(path, chunk, *, fail_at=None, about="these"):
    """The array that is written, and the bounds of the chunks that were made."""
    made = []

    def make(first, last):
        if first == fail_at:
            raise Fails
        made.append((first, last))
        return np.arange(2 * first, 2 * last).reshape(-1, 2)

    try:
        write_rows(path, 10, make, chunk=chunk, about=about, what="rows")
    except Fails:
        return None, made
    return np.load(path), made


@pytest.mark.parametrize(
    ("chunk", "about", "made"),
    [
        (4, "these", [(8, 10)]),
        (4, "others", [(0, 4), (4, 8), (8, 10)]),
        (5, "these", [(0, 5), (5, 10)]),
        (3, "these", [(0, 3), (3, 6), (6, 9), (9, 10)]),
    ],
)
def test_it_goes_on_with_what_is_of_the_same(tmp_path, chunk, about, made):
    path = tmp_path / "rows.npy"
    assert rows_of(path, 4, fail_at=8) == (None, [(0, 4), (4, 8)])
    rows, again = rows_of(path, chunk, about=about)
    assert again == made
    np.testing.assert_array_equal(rows, np.arange(20).reshape(10, 2))
    assert set(tmp_path.iterdir()) == {path, tmp_path / "rows.npy.about"}, "chunks are gone"
    assert rows_of(path, chunk, about=about)[1] == [], "what is there is not made again"
    assert len(rows_of(path, chunk, about="still others")[1]) == -(-10 // chunk)
    remove_rows(path, tmp_path / "never_made.npy")
    assert not list(tmp_path.iterdir())


def test_what_is_left_of_chunks_goes(tmp_path):
    """A kill while they are removed."""
    path = tmp_path / "rows.npy"
    rows_of(path, 10)
    left = tmp_path / ".rows.npy.chunks"
    left.mkdir()
    assert not is_made(path, "others", 10) and left.exists()
    assert is_made(path, "these", 10) and not left.exists()


def test_a_host_that_does_not_see_the_folder_stops(tmp_path, monkeypatch):
    """As the second of two with an --out in a bucket, of which each has a copy."""
    monkeypatch.setattr(chunks, "is_first", lambda: False)
    with pytest.raises(BadInput, match="this host does not see .* not in a bucket"):
        rows_of(tmp_path / "rows.npy", 10)


def test_a_whole_file_is_known_by_its_note_alone(tmp_path):
    """A kill before the note is written, or the file of an older version: it is made anew."""
    path = tmp_path / "rows.npy"
    rows_of(path, 10)
    (tmp_path / "rows.npy.about").unlink()
    assert rows_of(path, 10)[1] == [(0, 10)]
