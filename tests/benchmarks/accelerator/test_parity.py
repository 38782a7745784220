"""Steps and vectors of two sides: what is said of them."""

import numpy as np
import pytest
from tiny_bert import single_row, write_model

from benchmarks.accelerator import parity
from benchmarks.accelerator.parity_side import SideResult, _vectors_of, read_found
from coder_jax.models.hf_weights import load_bert
from data_pipeline.process import BadInput

CPU = SideResult(np.array([2.0, 4.0]), np.float32([[1, 0], [0.6, 0.8]]), "cpu")


def test_the_differences():
    device = SideResult(np.array([2.0, 4.004]), np.float32([[1, 0], [0.8, 0.6]]), "GPU")
    gap = parity._difference(CPU, device)
    assert gap == {
        "losses": pytest.approx(1e-3),
        "vectors": pytest.approx(0.2),
        "cosine": pytest.approx(0.96),
    }
    assert parity._difference(CPU, CPU)["losses"] == parity._difference(CPU, CPU)["vectors"] == 0


@pytest.mark.parametrize(
    ("loss", "said"), [(4.0003, "as expected, within"), (4.0005, "NOT within")]
)
def test_float32_must_be_close(loss, said):
    """bfloat16 is told without a verdict."""
    row = {"encoder": "bert", "device": "GPU", "terms": 2, "reference": [2.0, 4.0]}
    rows = [
        {
            **row,
            "dtype": dtype,
            "losses": [2.0, other],
            "difference": parity._difference(CPU, found),
        }
        for dtype, other in (("float32", loss), ("bfloat16", 4.1))
        for found in [SideResult(np.array([2.0, other]), CPU.vectors, "GPU")]
    ]
    assert f"In float32 losses and vectors are {said} 0.0001" in parity.table(rows)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_is_refused(wrong):
    losses = CPU._replace(losses=np.array([2.0, wrong]), device="GPU")
    vectors = CPU._replace(vectors=np.float32([[1, 0], [0, wrong]]), device="GPU")
    for other in (losses, vectors):
        with pytest.raises(BadInput, match="GPU: .*expected finite losses and vectors"):
            parity._difference(CPU, other)
        with pytest.raises(BadInput, match="GPU"):
            parity._difference(other, CPU)


def test_a_side_is_read_as_it_was_written(tmp_path):
    np.savez(tmp_path / "x.npz", losses=CPU.losses, vectors=CPU.vectors, device=np.array("cpu"))
    found = read_found(tmp_path / "x.npz")
    assert found.device == "cpu" and (found.losses == CPU.losses).all()
    assert found.vectors.dtype == np.float32


@pytest.mark.slow
def test_vectors_are_means_of_each_term_alone(tmp_path):
    write_model(tmp_path / "model")
    terms = [[2, 7, 9, 3], [2, 30, 3], [2, 11, 12, 13, 14, 3]]
    tokens = np.concatenate(terms).astype(np.int32)
    start = np.cumsum([0, *map(len, terms)])
    found = _vectors_of(tmp_path / "model", tokens, start, "float32")
    bert, _, _ = load_bert(tmp_path / "model")
    for vector, ids in zip(found, terms, strict=True):
        mean = np.asarray(bert(*single_row(ids)))[0].mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_a_side_that_fails_is_named(tmp_path):
    class Failed:
        returncode = 3

        def wait(self):
            return self.returncode

    with pytest.raises(BadInput, match="process of device, bfloat16 ended with status 3"):
        parity._finish(parity._SIDES[1], Failed(), tmp_path / "none.npz")


def test_only_the_reference_is_put_on_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    begun = []
    monkeypatch.setattr(
        parity.subprocess, "Popen", lambda command, env: begun.append((command, env))
    )
    args = parity.parse(["--data", "dataset", "--encoder", "model"])
    for side in (parity._REFERENCE, *parity._SIDES):
        parity._start(side, args, tmp_path / "out.npz")
    assert [env["JAX_PLATFORMS"] for _, env in begun] == ["cpu", "cuda", "cuda"]
    dtypes = [command[command.index("--dtype") + 1] for command, _ in begun]
    assert dtypes == ["float32", "float32", "bfloat16"]
    assert all(env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false" for _, env in begun)
