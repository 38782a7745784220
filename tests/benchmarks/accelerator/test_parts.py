"""The parts: each is a command that its module understands."""

import importlib
from pathlib import Path

import pytest

from benchmarks.accelerator import parts
from benchmarks.accelerator.report import _TITLES


def made(sizes, systems=()):
    return parts.make_parts(parts.Maker(Path("/prepared"), Path("/work"), sizes, 1200), systems)


@pytest.mark.parametrize("sizes", [parts.FULL, parts.SMALL], ids=["full", "small"])
def test_parts_have_names_of_their_own_and_need_what_comes_before(sizes):
    names = [part.name for part in made(sizes)]
    assert len(set(names)) == len(names)
    for number, part in enumerate(made(sizes)):
        assert set(part.needs) <= set(names[:number])
        assert part.kind in parts.KINDS and 0 < part.expected <= part.most
        assert ("work/" not in part.command) or part.needs[0] == parts.MODELS


def test_every_kind_is_there_and_has_a_table():
    for sizes in (parts.FULL, parts.SMALL):
        assert {part.kind for part in made(sizes)} == set(parts.KINDS)
    assert _TITLES.keys() == parts.KINDS.keys()


def test_what_is_expected_of_all_but_spare_parts_fits_into_the_time():
    required = [part for part in made(parts.FULL) if not part.spare]
    assert sum(part.expected for part in required) < 9 * 60
    most = {parts.DEVICE, parts.MODELS, "parity", "train_step", "group"}
    assert {part.kind for part in required} == most


def test_a_large_group_is_tried_with_and_without_chunks():
    whole, cached, *_ = (part for part in made(parts.FULL) if part.kind == "group")
    assert "--pairs 4096 --cache-chunks 1" in whole.command
    assert "--pairs 4096 --cache-chunks 16" in cached.command and not cached.spare


@pytest.mark.parametrize("sizes", [parts.FULL, parts.SMALL], ids=["full", "small"])
def test_modules_understand_their_arguments(sizes):
    for part in made(sizes):
        module = importlib.import_module(f"benchmarks.{part.module}")
        if hasattr(module, "parse"):
            args = module.parse([*part.arguments, "--json", "x"])
            assert args.json == Path("x")
        else:
            assert not part.arguments
        assert callable(module.main) and callable(module.table)


def test_flags_are_set_and_named():
    (flag, unknown) = (part for part in made(parts.SMALL) if part.kind == "flags")
    assert flag.xla_flags == "--xla_gpu_enable_triton_gemm=false"
    assert flag.name == flag.xla_flags.removeprefix("--") and flag.spare
    assert flag.command.startswith(f"XLA_FLAGS={flag.xla_flags} python -m benchmarks.")
    assert unknown.xla_flags not in parts._FLAGS


def test_a_peer_whose_package_is_missing_is_left_out_and_said(monkeypatch):
    real = parts.importlib.util.find_spec
    lacking = "pytorch_metric_learning"
    monkeypatch.setattr(
        parts.importlib.util, "find_spec", lambda name: None if name == lacking else real(name)
    )
    train = next(part for part in made(parts.FULL) if part.kind == "train_step")
    assert train.arguments[-3:] == ("--systems", "ours", "tuned")
    assert train.note == "recipe: the package pytorch_metric_learning is not here"
    asked = next(part for part in made(parts.FULL, ("ours",)) if part.kind == "train_step")
    assert asked.arguments[-2:] == ("--systems", "ours") and not asked.note
