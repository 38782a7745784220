"""The page: what was measured, what was not and why."""

import pytest

from benchmarks.accelerator import report

MACHINE = {
    "date": "2026-11-24T03:00+00:00",
    "processor": "a processor",
    "cores": 16,
    "memory_gib": 128.0,
    "load_before": 0.5,
    "python": "3.12.3",
    "versions": {"jax": "0.11"},
    "commit": "abc",
}
PREPARED = {"data": "hp", "terms": 3, "machine": MACHINE | {"commit": "def"}}


def part(name, kind, rows=(), missing=None, note="", load=0.5):
    return {
        "part": name,
        "kind": kind,
        "rows": list(rows),
        "missing": missing,
        "note": note,
        "seconds": 12.3,
        "limit_s": 60.0,
        "machine": MACHINE | {"load_before": load},
    }


@pytest.fixture
def tables(monkeypatch):
    """Each module's table says which rows it got."""

    class Module:
        def __init__(self, name):
            self.table = lambda rows: f"{name.removeprefix('benchmarks.')}: {rows}"

    monkeypatch.setattr(report.importlib, "import_module", Module)


def test_the_page(tables):
    usual, flag, other = (
        {"encoder": encoder, "dtype": "bfloat16", "flags": flags}
        for encoder, flags in (("a", "none"), ("a", "x=1"), ("b", "none"))
    )
    parts = [
        part("parity, a", "parity", [1, 2]),
        part("parity, b", "parity", [3], load=4.0),
        part("train step", "train_step", [4], note="recipe: no package"),
        part("memory, b", "memory", [other]),
        part("memory, a", "memory", [usual]),
        part("search", "search", missing="no rival | here"),
        part("flag", "flags", [flag]),
        part("other flag", "flags", missing="Unknown flag"),
    ]
    page = report.page(parts, PREPARED)
    lines = page.splitlines()
    assert sum("16 cores of a processor" in line for line in lines) == 1
    assert "Batches and terms of hp, prepared at commit def, 2026-11-24." in lines
    assert "| `parity, a` | 12 | 60 | measured |" in lines
    assert "| `train step` | 12 | 60 | measured; without recipe: no package |" in lines
    assert "| `search` | 12 | 60 | left out: no rival / here |" in lines
    assert "accelerator.parity: [1, 2]" in lines and "accelerator.parity: [3]" in lines
    assert "train_step: 4" in lines
    assert f"accelerator.step: {[other, usual]}" in lines  # together
    assert f"accelerator.step: {[usual, flag]}" in lines  # flags beside the same step without
    assert "## Search" not in lines and "## Flags of XLA" in lines


def test_a_part_that_was_not_run_has_no_limit(tables):
    row = part("flag", "flags", missing="3 s left") | {"limit_s": None, "seconds": 0.0}
    assert "| `flag` | 0 | - | left out: 3 s left |" in report.summary([row])
