"""Our step alone: what a program plans, and what the table says."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.accelerator import step

ROW = {
    "encoder": "base",
    "dtype": "bfloat16",
    "relations": 1200,
    "terms": 2048,
    "cache_chunks": 1,
    "device": "a card",
    "flags": step._USUAL,
    "compile_s": [31.04, 29.5],
    "planned": {
        "state": 9_000_000_000,
        "results": 1_000_000,
        "work": 2_000_000_000,
        "code": 10_000_000,
        "all": 11_011_000_000,
    },
    "used": {"bytes_in_use": 1, "peak_bytes_in_use": 12_500_000_000},
    "peak_memory": 4_200_000_000,
    "losses": [1.5, 1.4],
    "step_s": 0.08,
    "rounds_s": [0.07, 0.08, 0.09],
}


def test_planned_memory():
    many = jax.ShapeDtypeStruct((1000, 1000), jnp.float32)
    kept = jax.jit(lambda x: (x + 1, x.sum()), donate_argnums=0).lower(many).compile()
    found = step._planned_memory(kept)
    assert found["state"] == 4_000_000
    assert found["results"] < 1000  # what is kept in the place of the argument is no result
    assert found["all"] == sum(found[name] for name in ("state", "results", "work", "code"))
    new = step._planned_memory(jax.jit(lambda x: x + 1).lower(many).compile())
    assert new["results"] == 4_000_000

    class Silent:
        def memory_analysis(self):
            return None

    assert step._planned_memory(Silent()) is None


def test_the_table_has_each_flag_beside_the_step_without():
    flag = ROW | {"flags": "xla_gpu_autotune_level=0", "step_s": 0.1, "used": None}
    others = [ROW | {"dtype": "float32", "step_s": 0.3}, ROW | {"device": "another", "step_s": 0.2}]
    text = step.table([ROW, flag | {"planned": None}, *others])
    lines = text.splitlines()[2:6]
    work = "base, bfloat16, 2,048 terms, 1,200 matrices"
    assert lines[0] == (
        f"| {work} | none | 0.0800 | 0.0700-0.0900 | 1.000 | 31.0 + 29.5 "
        "| 9.00 | 2.00 | 11.01 | 12.50 | 1.500000 |"
    )
    assert f"| {work} | `xla_gpu_autotune_level=0` | 0.1000 |" in lines[1]
    assert "| 1.250 | 31.0 + 29.5 | - | - | - | - | 1.500000 |" in lines[1]
    assert "| 0.3000 | 0.0700-0.0900 | 1.000 |" in lines[2]  # another work
    assert "| 0.2000 | 0.0700-0.0900 | 1.000 |" in lines[3]  # another device
    assert "on the host: 4.20, 4.20, 4.20, 4.20 GB" in text
    groups = step.table([ROW | {"relations": 0}, ROW | {"relations": 0, "cache_chunks": 16}])
    assert "2,048 terms, one group |" in groups and "one group in 16 chunks |" in groups


@pytest.mark.parametrize(("size", "text"), [(None, "-"), (1_234_000_000, "1.23")])
def test_giga(size, text):
    assert step._giga(size) == text
