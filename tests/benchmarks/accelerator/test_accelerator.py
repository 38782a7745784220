"""The command: what is run, what is kept, what is said; and, slowly, all of it at its smallest."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from launchers import bash
from tiny_bert import write_model
from tiny_run import write_tiny_dataset

from benchmarks.accelerator import __main__ as command
from benchmarks.accelerator import prepare
from benchmarks.accelerator.parts import KINDS
from benchmarks.accelerator.run_part import EndedPart
from benchmarks.results_file import keep_rows
from data_pipeline.dataset.store import MANIFEST
from data_pipeline.process import BadInput


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder as `--prepare` writes it, of a tiny dataset."""
    folder = tmp_path_factory.mktemp("made") / "prepared"
    write_model(folder.with_name("model"))
    write_tiny_dataset(folder / "dataset", folder.with_name("model"))
    (folder / "terms.txt").write_text("heart attack\n")
    machine = {"commit": "abc", "date": "2026-11-24T03:00"}
    (folder / "prepared.json").write_text(json.dumps({"data": "tiny", "machine": machine}))
    return folder


@pytest.fixture
def prepared(made, tmp_path):
    """A copy of it in a folder of results."""
    return Path(shutil.copytree(made, tmp_path / "out" / "prepared"))


@pytest.fixture
def ran(monkeypatch):
    """The names of the parts that are run, none of which takes any time; some fail."""
    names, failing = [], {}

    def run_part(part, out, limit, log):
        names.append(part.name)
        log.touch()
        if part.name in failing:
            return EndedPart(1.0, failing[part.name])
        out.write_text(json.dumps({"rows": [{"row": part.name}]}))
        return EndedPart(1.0, None)

    monkeypatch.setattr(command, "run_part", run_part)
    monkeypatch.setattr(command, "page", lambda parts, about: f"{len(parts)} {about['data']}\n")
    # What the command sets for the processes of parts must not stay in this one.
    for name in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return names, failing


def read(out, name="accelerator_small"):
    return {row["part"]: row for row in json.loads((out / f"{name}.json").read_text())["rows"]}


def test_all_parts_are_kept_with_the_machine(prepared, ran, capsys):
    out = prepared.parent
    assert command.main([str(out), "--small"]) == 0
    rows = read(out)
    assert list(rows) == ran[0] and {row["kind"] for row in rows.values()} == set(KINDS)
    for name, row in rows.items():
        assert row["rows"] == [{"row": name}] and row["missing"] is None
        assert row["machine"]["commit"] and row["seconds"] == 1.0 and row["command"]
    assert (out / "accelerator_small.md").read_text() == f"{len(rows)} tiny\n"
    kept = json.loads((out / "accelerator_small.json").read_text())
    assert kept["prepared"]["data"] == "tiny"
    assert "| `search` | 1 |" in capsys.readouterr().out


def test_what_fails_costs_itself_and_what_needs_it(prepared, ran):
    ran[1].update({"models": "no flax"})
    out = prepared.parent
    assert command.main([str(out), "--small"]) == 0  # search needs no models
    rows = read(out)
    assert rows["models"]["missing"] == "no flax" and rows["models"]["rows"] == []
    assert rows["parity, tiny"]["missing"] == "models is missing: no flax"
    assert "parity, tiny" not in ran[0] and rows["search"]["missing"] is None
    ran[1].update(search="no memory")
    assert command.main([str(out), "--small"]) == 1  # nothing was measured
    assert read(out) == rows, "what was there stays"


@pytest.mark.slow
def test_some_parts_alone_keep_the_others(prepared, ran):
    out = prepared.parent
    assert command.main([str(out), "--small"]) == 0
    ran[0].clear()
    ran[1].update(search="no rival")
    assert command.main([str(out), "--small", "--parts", "parity", "search"]) == 0
    assert ran[0] == ["device", "models", "parity, tiny", "search"]
    assert read(out)["train step, tiny"]["missing"] is None and read(out)["search"]["missing"]
    keep_rows(out / "accelerator_small.json", [{"part": "of another version"}], ("part",))
    assert command.main([str(out), "--small"]) == 0  # all anew
    assert "of another version" not in read(out)


def test_a_flag_is_measured_beside_the_step_without(prepared, ran, capsys):
    out = prepared.parent
    assert command.main([str(out), "--small", "--parts", "flags"]) == 0
    first, *flags = ran[0][2:]
    assert first == "memory, tiny, bfloat16" and len(flags) == 2
    ran[1].update({first: "no memory"})
    before = read(out)
    assert command.main([str(out), "--small", "--parts", "flags"]) == 1
    assert f"left out: {first} is missing: no memory" in capsys.readouterr().out
    assert read(out) == before


def test_a_kind_that_only_helps_may_be_asked_for(prepared, ran):
    assert command.main([str(prepared.parent), "--small", "--parts", "device"]) == 0
    ran[1].update(device="no driver")
    assert command.main([str(prepared.parent), "--small", "--parts", "device"]) == 1


def test_a_small_trial_leaves_what_was_measured(prepared, ran):
    out = prepared.parent
    assert command.main([str(out)]) == 0
    assert command.main([str(out), "--small"]) == 0
    assert "parity, base" in read(out, "accelerator") and "parity, tiny" in read(out)


def test_parts_on_other_data_are_refused(prepared, ran, capsys):
    out = prepared.parent
    assert command.main([str(out), "--small"]) == 0
    about = prepared / "prepared.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"data": "another"}))
    assert command.main([str(out), "--small", "--parts", "search"]) == 2
    assert "was measured on other data than what is prepared here" in capsys.readouterr().err
    assert command.main([str(out), "--small"]) == 0


def test_what_there_is_no_time_for_is_said(prepared, ran, capsys):
    out = prepared.parent
    assert command.main([str(out), "--small", "--minutes", "0"]) == 1
    assert not ran[0] and not (out / "accelerator_small.json").exists()
    said = capsys.readouterr().out
    assert "left out: 0 s of the time are left, it is expected to take 15 |" in said
    assert "Nothing was measured" in said


def test_the_list_runs_nothing_and_needs_nothing(tmp_path, ran, capsys):
    assert command.main([str(tmp_path), "--list"]) == 0
    assert not ran[0] and not list(tmp_path.iterdir())
    lines = capsys.readouterr().out.splitlines()
    assert any("python -m benchmarks.train_step" in line for line in lines)
    assert any("XLA_FLAGS=--xla_gpu_enable_triton_gemm=false python" in line for line in lines)


def test_packages_that_travelled_can_be_imported(prepared, ran, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")

    def unpack(wheels, site):
        assert wheels == prepared / "wheels"
        return ["anyascii"]

    monkeypatch.setattr(command, "unpack_missing", unpack)
    assert command.main([str(prepared.parent), "--small", "--parts", "search"]) == 0
    first, second = os.environ["PYTHONPATH"].split(os.pathsep)
    assert first == "/of/the/user" and Path(second).name == "site" and sys.path[-1] == second


def test_nothing_prepared_is_said(tmp_path, capsys):
    assert command.main([str(tmp_path)]) == 2
    assert "manifest.json; expected what `bash benchmarks/accelerator.sh" in capsys.readouterr().err
    assert command._MANIFEST == MANIFEST


def test_options_of_the_other_machine_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.parse([str(tmp_path), "--wheels", "3.12"])
    assert "belong to --prepare" in capsys.readouterr().err


def test_what_is_there_is_not_written_over(prepared):
    args = command.parse([str(prepared.parent), "--prepare"])
    with pytest.raises(BadInput, match="is there already"):
        prepare.prepare(args, prepared)


def test_the_script(repo, tmp_path):
    script = repo / "benchmarks" / "accelerator.sh"
    help_ = bash(script, "--help", cwd=tmp_path, CODER_JAX_PYTHON="/nowhere")
    assert help_.returncode == 0 and "bash benchmarks/accelerator.sh --prepare OUT" in help_.stdout
    assert "#" not in help_.stdout and "set -euo" not in help_.stdout
    none = bash(script, "out", cwd=tmp_path, CODER_JAX_PYTHON="/nowhere")
    assert none.returncode == 2 and "'/nowhere' is no Python" in none.stderr
    bare = tmp_path / "python"  # without any package
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    lacking = bash(script, "out", cwd=tmp_path, CODER_JAX_PYTHON=bare)
    assert lacking.returncode == 2 and "the Python package jax is not installed" in lacking.stderr
    there = bash(script, "out", cwd=tmp_path, CODER_JAX_PYTHON=sys.executable)
    assert there.returncode == 2 and "out/prepared/dataset/manifest.json" in there.stderr


@pytest.mark.slow
def test_all_of_it_at_its_smallest(repo, tmp_path, hpo_path, minilm_path):
    """Minutes: prepared from the packages alone, then each part on the CPU."""
    script = repo / "benchmarks" / "accelerator.sh"
    settings = {"cwd": tmp_path, "CODER_JAX_PYTHON": sys.executable, "JAX_PLATFORMS": "cpu"}
    made = bash(script, "--prepare", "there", "--small", **settings)
    assert made.returncode == 0, made.stderr
    shutil.copytree(tmp_path / "there" / "prepared", tmp_path / "here")
    size = sum(path.stat().st_size for path in (tmp_path / "here").rglob("*") if path.is_file())
    assert size < 40e6
    flags = ("--small", "--prepared", "here", "--minutes", "30")
    ran = bash(script, "out", *flags, **settings)
    assert ran.returncode == 0, ran.stderr
    rows = read(tmp_path / "out")
    missing = {name: row["missing"] for name, row in rows.items() if row["missing"]}
    assert missing.pop("xla_gpu_no_such_flag=true").startswith("Unknown flag in XLA_FLAGS: --xla")
    assert missing.pop("search", "no rival").startswith("no rival")  # where there is no faiss
    assert not missing
    exact, rounded = rows["parity, tiny"]["rows"]
    assert exact["difference"]["losses"] == exact["difference"]["vectors"] == 0
    assert 0 < rounded["difference"]["losses"] < 0.01
    (train,) = rows["train step, tiny"]["rows"]
    assert train["largest_difference"] < 1e-4
    (memory,) = rows["memory, tiny, bfloat16"]["rows"]
    assert memory["planned"]["all"] > 0 and memory["compile_s"][0] > 0
    plain, cached = (rows[f"group, tiny, 8 pairs, {n} chunks"]["rows"][0] for n in (1, 2))
    assert plain["terms"] == cached["terms"] == 16 and plain["relations"] == 0
    assert plain["losses"] == pytest.approx(cached["losses"], rel=1e-2)
    (flag,) = rows["xla_gpu_enable_triton_gemm=false"]["rows"]
    assert flag["flags"] == "xla_gpu_enable_triton_gemm=false"
    page = (tmp_path / "out" / "accelerator_small.md").read_text()
    assert "## Train step beside PyTorch" in page and "## Flags of XLA" in page
