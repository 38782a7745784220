"""Ways of attention: each row's terms see themselves alone, by all ways alike."""

import jax
import numpy as np
import pytest
from tiny_bert import write_model
from tiny_run import SPEC, write_tiny_dataset

from benchmarks.accelerator import attention
from benchmarks.accelerator.attention_ways import (
    _BY_CUDNN,
    _BY_XLA,
    DROPPED,
    OURS,
    REFERENCE,
    make_ways,
)

SEGMENTS = np.array([[1, 1, 2, 2, 2, 0], [3, 3, 3, 3, 4, 4]], np.int32)
POSITIONS = np.array([[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 0, 1]], np.int32)


def by_hand(q, k, v):
    """Float64 attention within segments, [R, L, H, K]."""
    q, k, v = (np.asarray(one, np.float64) for one in (q, k, v))
    logits = np.einsum("rqhk,rvhk->rhqv", q, k) / np.sqrt(q.shape[-1])
    seen = SEGMENTS[:, None, :, None] == SEGMENTS[:, None, None, :]
    probs = np.where(seen, np.exp(logits), 0)
    return np.einsum("rhqv,rvhk->rqhk", probs / probs.sum(axis=-1, keepdims=True), v)


def test_all_ways_compute_the_same():
    ways = make_ways(SEGMENTS, POSITIONS, heads=2, width=8, dtype="float32")
    expected = by_hand(*ways.given[OURS][:3])
    for name in (OURS, _BY_XLA, REFERENCE):
        found = ways.all[name](*ways.given[name])
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
    dropped = ways.all[DROPPED](*ways.given[DROPPED])
    assert np.abs(dropped - expected).max() > 0.01


def test_only_the_reference_is_float32():
    ways = make_ways(SEGMENTS, POSITIONS, heads=2, width=8, dtype="bfloat16")
    assert {name: given[0].dtype for name, given in ways.given.items()} == {
        name: "float32" if name == REFERENCE else "bfloat16" for name in ways.all
    }
    # From the same numbers: only the arithmetic differs.
    exact, rounded = ways.given[REFERENCE][0], ways.given[OURS][0]
    assert (np.asarray(rounded, np.float32) == np.asarray(exact)).all()


def test_largest_differences():
    ones = np.ones((2, 2))
    results = {"a": ([ones, ones], ones), "b": ([ones, 3 * ones], 1.5 * ones)}
    assert attention._largest_differences(results, "what was refused") == {}
    assert attention._largest_differences(results, "a") == {
        "a": {"output": 0.0, "gradients": 0.0},
        "b": {"output": 0.5, "gradients": 2.0},
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attention")
    write_model(folder / "model")
    write_tiny_dataset(folder / "data", folder / "model")
    return folder / "data"


def test_the_rows_are_those_of_a_step(data):
    segments, positions = attention._read_rows(data, SPEC)
    assert segments.shape == positions.shape and segments.shape[1] == SPEC.row_length
    starts = (segments > 0) & (positions == 0)
    assert starts.sum() == SPEC.terms and segments.any(axis=1).all()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="cuDNN is there")
def test_without_a_gpu_cudnn_is_a_line(data):
    args = attention.parse(
        ["--data", str(data), "--groups", "4", "--triplets", "4", "--repeats", "2"]
        + ["--shapes", "tiny", "--rounds", "1", "--calls", "1"]
    )
    rows = {row["way"]: row for row in attention._compare("tiny", args)}
    assert rows[_BY_CUDNN]["refused"] == "RuntimeError: cuDNN is not detected."
    assert rows[_BY_CUDNN]["forward_us"] is None and rows[_BY_CUDNN]["from_ours"] is None
    for way in (OURS, DROPPED, _BY_XLA, REFERENCE):
        assert rows[way]["refused"] is None
        assert rows[way]["forward_us"] > 0 and rows[way]["both_us"] > 0
    assert rows[DROPPED]["from_float32"] is None
    assert 0 < rows[OURS]["from_float32"]["output"] < 0.05
    assert rows[OURS]["from_ours"] == {"output": 0.0, "gradients": 0.0}
    text = attention.table(list(rows.values()))
    assert f"| 4 x 16 | {_BY_CUDNN} | - | - | - | - | - | - |" in text
    assert f"Not measured: {_BY_CUDNN} (RuntimeError: cuDNN is not detected.)." in text


def test_a_way_that_fails_while_it_runs_is_refused_alone():
    ways = make_ways(SEGMENTS, POSITIONS, heads=2, width=8, dtype="float32")

    def refuse(*given):
        raise ValueError("no such width\nand more")

    made, results, refused = attention._compiled_ways(
        ways._replace(all={OURS: ways.all[OURS], _BY_CUDNN: refuse})
    )
    assert made.keys() == results.keys() == {OURS}
    assert refused == {_BY_CUDNN: "ValueError: no such width"}
