"""A build that was cut off goes on; a folder that is there is not replaced without leave."""

import fcntl
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tiny_build import left_behind, manifest_of
from tiny_ontology import write_ontology

from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.dataset import write as write_dataset
from data_pipeline.dataset.store import open_dataset
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput


class Killed(BaseException):
    """Stands for the end of the process: nothing in the build catches it."""


def kill_after(monkeypatch, shards: int) -> None:
    """Ends the build when that many shards are written, in the midst of the next one."""
    write, written = write_dataset._write_shard, []

    def write_some(writer, file, blocks, bar):
        if len(written) == shards:
            file.with_name(file.name + ".unfinished").write_bytes(b"half a shard")
            raise Killed
        written.append(file)
        return write(writer, file, blocks, bar)

    monkeypatch.setattr(write_dataset, "_write_shard", write_some)


def test_a_killed_build_goes_on(options, tmp_path, monkeypatch):
    straight = manifest_of(build_dataset(replace(options, out=tmp_path / "straight")))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=2)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    with pytest.raises(BadInput, match="run the same build command again"):
        open_dataset(options.out)
    with pytest.raises(BadInput, match="did not finish"):
        open_dataset(work)
    before = {p.name: p.stat().st_mtime_ns for p in work.glob("*.tfrecord-*-of-00003")}
    assert len(before) == 2
    out = build_dataset(options)
    after = {p.name: p.stat().st_mtime_ns for p in out.glob("*.tfrecord-*-of-00003")}
    assert len(after) == 3 and before.items() < after.items()
    assert manifest_of(out)["content_hash"] == straight["content_hash"]
    assert left_behind(out) == left_behind(tmp_path / "straight")
    assert [name for name in left_behind(out) if "tfrecord" not in name] == [
        "dataset_info.json", "features.json", "heldout", "manifest.json", "tokenizer",
    ]  # fmt: skip
    assert [name[-14:] for name in left_behind(out) if "tfrecord" in name] == [
        f"{index:05d}-of-00003" for index in range(3)
    ]
    assert left_behind(tmp_path) == ["out", "straight"]


def test_other_arguments_start_over(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    out = build_dataset(replace(options, max_length=7))
    assert not work.exists() and left_behind(tmp_path) == ["out"]
    assert np.diff(open_dataset(out).token_start).max() == 7


def test_a_changed_source_starts_over(options, tmp_path, monkeypatch):
    source = write_ontology(tmp_path / "own.obo", 2100)
    options = replace(options, source=source)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    write_ontology(source, 2200)
    straight = manifest_of(build_dataset(replace(options, out=tmp_path / "straight")))
    assert manifest_of(build_dataset(options))["content_hash"] == straight["content_hash"]


def test_an_existing_dataset_is_not_touched_without_leave(options):
    first = manifest_of(build_dataset(options))
    with pytest.raises(BadInput) as error:
        build_dataset(replace(options, max_length=7))
    assert "already holds a dataset: tiny 7, 2,500 concepts, 4,066 terms" in str(error.value)
    assert "Add --overwrite to replace it" in str(error.value)
    assert manifest_of(options.out) == first
    build_dataset(replace(options, max_length=7, overwrite=True))
    assert manifest_of(options.out)["tokenizer"]["max_length"] == 7
    assert left_behind(options.out.parent) == ["out"]


def test_reuse_returns_only_the_same_dataset(options):
    build_dataset(options)
    built = (options.out / "manifest.json").stat().st_mtime_ns
    assert build_dataset(options, reuse=True) == options.out
    assert (options.out / "manifest.json").stat().st_mtime_ns == built
    with pytest.raises(BadInput, match="already holds a dataset"):
        build_dataset(replace(options, seed=1), reuse=True)


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_build_that_was_killed_when_it_was_done_is_only_tidied(options, monkeypatch, overwrite):
    def killed(path, ignore_errors=False):
        if path.is_dir():  # the older dataset
            raise Killed

    build_dataset(replace(options, seed=1))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(shutil, "rmtree", killed)
        build_dataset(replace(options, overwrite=True))
    assert len(left_behind(options.out.parent)) == 2 and any(options.out.glob("*tfrecord-*.json"))
    built = (options.out / "manifest.json").stat().st_ino
    for _ in range(1 if overwrite else 2):
        assert build_dataset(replace(options, overwrite=overwrite)) == options.out
        assert (options.out / "manifest.json").stat().st_ino == built
        assert left_behind(options.out.parent) == ["out"]
        assert not any(options.out.glob("*tfrecord-*.json"))
    build_dataset(replace(options, overwrite=True))  # of a damaged one, say
    assert (options.out / "manifest.json").stat().st_ino != built


@pytest.mark.parametrize("fault", ["version", "shard"])
def test_a_dataset_that_cannot_be_read_is_replaced_with_leave(options, fault):
    build_dataset(options)
    before = manifest_of(options.out)
    if fault == "version":
        write_json(options.out / "manifest.json", before | {"format": "coder_jax triplets 1"})
    else:
        next(options.out.glob("*.tfrecord-*")).unlink()
    with pytest.raises(BadInput, match="an older version of coder_jax|the file is missing"):
        build_dataset(options)
    build_dataset(replace(options, overwrite=True), reuse=True)
    assert manifest_of(options.out)["content_hash"] == before["content_hash"]
    assert open_dataset(options.out).heads.size
    assert left_behind(options.out.parent) == ["out"]


@pytest.mark.parametrize("manifest", ['{"format": "zip 1"}', "[1]", "not JSON"])
def test_the_manifest_of_another_program_is_never_replaced(options, manifest):
    options.out.mkdir()
    (options.out / "manifest.json").write_text(manifest)
    with pytest.raises(
        BadInput, match="has the format|holds a list; expected a JSON object|not JSON"
    ):
        build_dataset(replace(options, overwrite=True))
    assert (options.out / "manifest.json").read_text() == manifest


def test_a_foreign_folder_is_never_replaced(options):
    options.out.mkdir()
    (options.out / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="exists and is not a dataset; expected a new folder"):
        build_dataset(replace(options, overwrite=True))
    assert left_behind(options.out) == ["thesis.txt"]


def test_two_builds_at_once(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # a build needs it for itself
        with pytest.raises(BadInput, match="another process is building in"):
            build_dataset(options)
        with pytest.raises(BadInput, match="another process is building in"):
            build_dataset(replace(options, seed=1))
    assert build_dataset(options) == options.out


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_full_disk_while_writing_a_shard(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after(patch, shards=1)
        build_dataset(options)
    (work,) = tmp_path.glob(".out.building-*")
    unfinished = next(work.glob("*.unfinished"))
    unfinished.unlink()
    unfinished.symlink_to("/dev/full")  # the kernel's own disk without room
    with pytest.raises(BadInput) as error:
        build_dataset(options)
    assert "the disk is full" in str(error.value) and "No space left" in str(error.value)
    assert "GB are free" in str(error.value)
    assert f"run the same command again: finished shards are kept in {work}" in str(error.value)
    assert left_behind(tmp_path) == [work.name]  # no folder that looks complete
    assert not unfinished.is_symlink(), "nothing of it is left"
    assert open_dataset(build_dataset(options)).manifest.counts.concepts == 2500
