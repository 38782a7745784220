"""The benchmark of what steps wait for: what a run's metrics say, and a small run of it."""

import json

import pytest
from tiny_bert import write_tokenizer
from tiny_rrf import write_release

from benchmarks import stalls
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions


def line(step, seconds, save=0.0, evaluation=1.0):
    pauses = {"save_s": save, "eval_s": evaluation, "compile_s": 7.0}
    return {"step": step, "loss": 1.0, "step_seconds": seconds, "data_wait": 0.25, **pauses}


def test_waits_are_means_of_what_was_before_a_line():
    """Saves after 3 and 6, of 2 s each; steps 4, 5 and 7 run beside them and take 3 s, not 1 s."""
    seconds = [1.0, 2.0, 3.0, 6.0, 9.0, 10.0, 13.0]
    saves = [0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 4.0]
    lines = [
        line(step, at, save, 1.0 if step < 6 else 5.0)
        for step, (at, save) in enumerate(zip(seconds, saves, strict=True), 1)
    ]
    found = stalls._waits(lines, save_steps=3, eval_steps=5)
    assert (found["step_s"], found["step_beside_a_save_s"]) == (1.0, 3.0)
    assert (found["save_s"], found["saves"]) == (2.0, 2)
    assert (found["eval_s"], found["evaluations"]) == (2.5, 2)
    assert (found["data_wait"], found["compile_s"]) == (0.25, 7.0)


@pytest.mark.parametrize(
    ("steps", "beside", "save", "cells"),
    [(2, None, None, "| - | - |"), (3, None, None, "| - | - |"), (4, 3.0, 2.0, "| 3.000 | 2.00 |")],
)
def test_a_run_that_is_too_short_says_so(steps, beside, save, cells):
    """A save after step 3: three steps end before its time is known, the fourth runs beside it."""
    seconds, saves = [1.0, 2.0, 3.0, 6.0], [0.0, 0.0, 0.0, 2.0]
    lines = [line(n + 1, seconds[n], saves[n]) for n in range(steps)]
    found = stalls._waits(lines, save_steps=3, eval_steps=50)
    assert (found["step_s"], found["step_beside_a_save_s"], found["save_s"]) == (1.0, beside, save)
    settings = {"shape": "tiny", "layers": 1, "terms": 2, "checkpoint_bytes": 1, "eval_terms": 5}
    assert cells in stalls.table([settings | found])


def test_too_few_steps_are_refused(capsys):
    with pytest.raises(SystemExit):
        stalls.parse(["--data", "data", "--steps", "2"])
    assert "--steps: found 2; expected 3 or more" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    write_tokenizer(tmp_path)
    data = tmp_path / "data"
    build_dataset(
        BuildOptions(
            source=write_release(tmp_path / "META"), out=data, tokenizer=tmp_path, hold_out=2
        )
    )
    words = ["--data", str(data), "--work", str(tmp_path), "--json", str(tmp_path / "stalls.json")]
    words += ["--shape", "tiny", "--layers", "1", "--pairs", "1", "--steps", "8"]
    assert stalls.main([*words, "--save-steps", "3", "--eval-steps", "4"]) == 0
    assert "| a tiny BERT, 1 layers | 2 |" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "stalls.json").read_text())["rows"]
    assert row["saves"] == 2 and row["evaluations"] == 2 and row["checkpoint_bytes"] > 1e6
