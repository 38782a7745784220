"""The benchmark of MLNorm's two steps: systems that do the same work, and what a step needs."""

import dataclasses
import json
import subprocess
import sys

import pytest

from benchmarks import class_steps
from benchmarks.class_work import _SMALL, ClassWork
from benchmarks.our_class_step import _batch_of, _step_of
from benchmarks.program_cost import read_cost

ENCODER = dataclasses.replace(
    _SMALL, vocab_size=1_100, hidden_size=8, num_layers=1, num_heads=1, intermediate_size=8
)
TINY = {
    **{"terms": 16, "candidates": 5, "width": 6, "tokens": 5, "steps": 3},
    "encoder": ENCODER,
}
MEMORY = {"arguments": 3 * 10**8, "temporaries": 10**7, "peak": 32 * 10**7}


def losses(name, work):
    system = class_steps._make_system(name, work)
    batches = [system.prepare(step, work.stored(step)) for step in range(work.steps)]
    return [float(system.step(batch)) for batch in batches]


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("step", [2, 1])
def test_the_peer_does_the_same_work(step, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # the peer's process asks for it
    work = ClassWork(step=step, classes=2_500, **TINY)
    ours = losses("ours", work)
    assert losses("torch", work) == pytest.approx(ours, rel=1e-4)
    assert len(set(ours)) == 3 and ours[0] > 3, "5 candidates of 16 terms, or 250 of a group"


def cost_of(work, devices):
    _, step = _step_of(work, devices)
    return read_cost(step.lower(_batch_of(work, step, work.stored(0))).compile())


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 8])
def test_a_second_step_needs_no_more_for_more_classes(devices):
    """Beside the state, which lies there: no copy of the table, no gradient of it, nothing sent."""
    few, many = (cost_of(ClassWork(step=2, classes=c, **TINY), devices) for c in (60_000, 600_000))
    table = 540_000 * 3 * 4 * TINY["width"] / devices
    assert many.arguments - few.arguments == pytest.approx(table, rel=0.15)
    assert many.peak - many.arguments == few.peak - few.arguments < table / 3
    assert many.sent == few.sent


def test_candidates_are_of_the_terms_group_and_concepts():
    work = ClassWork(step=2, classes=2_503)
    terms = work.stored(3)
    assert terms.classes.shape == (128, 101) and terms.classes.max() < 2_503
    assert (terms.classes % 10 == terms.semantic_groups[:, None]).all()
    assert terms.classes.max() > 2_490 and (terms.classes == work.stored(3).classes).all()


class Process:
    """A system in this process."""

    def __init__(self, name, work, make):
        assert make is class_steps._make_system
        self.name, self.losses, self.start_s = name, [5.0, 4.0], 1.0
        self.second = 0.5 if name == "ours" else 1.0

    def take(self, steps):
        return self.second

    def close(self):
        return {"peak_memory": 2 * 10**9, "peak_device": None, "processor_s": 0.75}


@pytest.fixture
def quick(monkeypatch):
    """Nothing is compiled or timed; 1.5 GB of memory are free."""
    found = {**MEMORY, "available": 15 * 10**8, "device": "cpu"}
    monkeypatch.setattr(class_steps, "SystemProcess", Process)
    monkeypatch.setattr(class_steps, "in_a_process", lambda call, work: dict(found))
    return found


def test_the_command(quick, tmp_path, capsys):
    quick["available"] = 10**11
    given = ["--classes", "30000", "2000", "--json", str(tmp_path / "steps.json")]
    assert class_steps.main(given) == class_steps.main(given) == 0
    out = capsys.readouterr().out
    assert (
        "| 2 | 2,000 | ours | 0.5000 | 0.5000-0.5000 | 0.750 | 256 | 1.00 | 0.30 | 0.02 | 2.00 |"
        in out
    )
    assert (
        "| 2 | 30,000 | torch | 1.0000 | 1.0000-1.0000 | 0.750 | 128 | 2.00 | - | - | 2.00 |" in out
    )
    rows = json.loads((tmp_path / "steps.json").read_text())["rows"]
    assert [(row["step"], row["classes"], len(row["systems"])) for row in rows] == [
        *((2, 2_000, 2), (2, 30_000, 2), (1, 2_000, 2)),
        (1, 30_000, 1),  # a dense product with all classes is the peer's for the fewest
    ]
    assert rows[0]["rows_used"] < 2_000 < 9_000 < rows[1]["rows_used"] <= 128 * 101
    assert rows[0]["systems"]["ours"]["steps_a_round"] == 6


def test_what_does_not_fit_is_left_out_and_said(quick, capsys):
    assert class_steps.main(["--classes", "2000"]) == 0
    said = capsys.readouterr()
    assert "left out: torch, step 2, 2,000 classes: needs 1.1 GB of the 1.5 that" in said.err
    assert "torch |" not in said.out and "| 1 | 2,000 | ours | 0.5000" in said.out
    quick["available"] = 10**9
    assert class_steps.main(["--classes", "2000", "--steps", "1", "--systems", "ours"]) == 0
    said = capsys.readouterr()
    assert "| 1 | 2,000 | ours | - | - | - | - | - | 0.30 | 0.02 | does not fit |" in said.out


@pytest.mark.parametrize("theirs", [5.1, float("nan")])
def test_systems_that_differ_are_not_compared(quick, theirs, monkeypatch, capsys):
    quick["available"] = 10**11
    start = Process.__init__

    def differs(self, name, *rest):
        start(self, name, *rest)
        self.losses = [5.0, 4.0] if name == "ours" else [theirs, 4.0]

    monkeypatch.setattr(Process, "__init__", differs)
    assert class_steps.main(["--classes", "2000"]) == 2
    assert "the systems do not do the same work" in capsys.readouterr().err


def test_without_torch_there_is_no_peer(quick, monkeypatch, capsys):
    quick["available"] = 10**11
    monkeypatch.setattr(class_steps.importlib.util, "find_spec", lambda name: None)
    assert class_steps.main(["--classes", "2000"]) == 0
    assert "torch |" not in capsys.readouterr().out


@pytest.mark.slow
def test_it_needs_no_tensorflow(repo):
    """As on a machine with a GPU."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['tensorflow', 'tensorflow_datasets']))\n"
        "from benchmarks import class_steps, our_class_step\n"
        "from benchmarks.class_work import ClassWork\n"
        "print(our_class_step._step_of(ClassWork(step=2, classes=2000))[0].name)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True)
    assert found.stdout.strip() == "mlnorm_classes", found.stderr
