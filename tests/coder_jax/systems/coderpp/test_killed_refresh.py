"""A refresh of CODER++ that was cut off goes on to the bit; made of something else, it does not."""

import shutil

import numpy as np
import pytest
from neighbour_run import STEPS, files_in, index_of
from short_run import assert_same_parameters

from coder_jax.systems import coderpp as neighbours
from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import saved_steps
from coder_jax.training.refresh import Refresh
from coder_jax.training.run_folder import RunFiles
from data_pipeline.process import BadInput


@pytest.mark.slow
@pytest.mark.parametrize("where", ["embed_tokens", "nearest_others"])
def test_killed_inside_a_refresh_it_goes_on_to_the_bit(run, straight, tmp_path, where, monkeypatch):
    monkeypatch.setattr(neighbours, "_TERMS_AT_ONCE", 50)
    monkeypatch.setattr(neighbours, "_QUERIES_CPU", 60)
    out, whole, calls = tmp_path / "run", getattr(neighbours, where), []
    chunks = -(-len(index_of(straight, 2)) // (50 if where == "embed_tokens" else 60))

    def breaks(*args, **kwargs):
        calls.append(1)
        if len(calls) == chunks + 3:  # in the third chunk of the refresh after step 2
            raise ConnectionError("the machine is gone")
        return whole(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(neighbours, where, breaks)
        run(out)
    assert (out / "index" / ".2.partial").is_dir() and saved_steps(out) == [2]
    again = []
    monkeypatch.setattr(neighbours, where, lambda *a, **k: (again.append(1), whole(*a, **k))[1])
    run(out)
    assert len(again) == 2 * chunks - 2, "what was finished is not made again"
    for step in (2, 4):
        np.testing.assert_array_equal(index_of(out, step), index_of(straight, step))
    ours, theirs = load_run(out)[1], load_run(straight)[1]
    assert ours.step == STEPS
    assert_same_parameters(ours.params, theirs.params)
    assert not list((out / "index").glob(".*"))


@pytest.mark.slow
def test_killed_when_an_index_is_whole_it_is_not_made_again(run, straight, tmp_path, monkeypatch):
    """No checkpoint after the refresh of step 2 tells of it; vectors of a kill amid it are gone."""
    out, whole, publish = tmp_path / "run", neighbours.embed_tokens, RunFiles.publish
    made = out / "index" / "2"

    def killed(files):
        if made.exists():
            raise ConnectionError("the machine is gone")
        publish(files)

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(RunFiles, "publish", killed)
        run(out)
    assert saved_steps(out) == [2]
    (made / "vectors.npy").touch()
    calls = []
    patched = lambda *a, **k: (calls.append(1), whole(*a, **k))[1]  # noqa: E731
    monkeypatch.setattr(neighbours, "embed_tokens", patched)
    run(out)
    assert len(calls) == 1, "of the refresh after step 4"
    assert files_in(made) == files_in(straight / "index" / "2")
    assert_same_parameters(load_run(out)[1].params, load_run(straight)[1].params)


@pytest.mark.slow
def test_an_index_of_another_encoder_is_made_again(run, straight, tmp_path, monkeypatch):
    """As where a run goes another way to the same step: with other rates, on other devices."""
    out, make = tmp_path / "run", Refresh._make

    def make_beside_another(refresh, step, *rest):
        if step == 2:
            shutil.copytree(straight / "index" / "4", out / "index" / ".2.partial")
        return make(refresh, step, *rest)

    monkeypatch.setattr(Refresh, "_make", make_beside_another)
    run(out)
    np.testing.assert_array_equal(index_of(out, 2), index_of(straight, 2))


@pytest.mark.slow
def test_damaged_vectors_of_a_refresh_say_to_delete_them(data, tmp_path, monkeypatch):
    def damaged(path, *_, **__):
        path.write_bytes(b"\x93NUMPY, and no more")

    monkeypatch.setattr(neighbours, "write_rows", damaged)
    words = r"some\.npy.* delete it and give the same command again"
    with pytest.raises(BadInput, match=words):
        neighbours._write_vectors(tmp_path / "some.npy", data, None, pooling="cls", provenance="x")
    with pytest.raises(BadInput, match=words):
        neighbours._write_means(tmp_path / "some.npy", data, None, provenance="x")
