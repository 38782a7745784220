"""Checkpoints against disks and people: damage is seen and named, nothing is ever lost."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from orbax.checkpoint._src.path import async_path

from coder_jax.training import checkpoints as checkpoint
from coder_jax.training.checkpoints import (
    Checkpoints,
    _check_sums,
    _checksum,
    _checksums,
    _Damaged,
    best_step,
    read_params,
    saved_steps,
)
from coder_jax.training.run_folder import claim_run_folder, lock_run
from data_pipeline.files.identity import RUN
from data_pipeline.process import BadInput

THIS_RUN = {"format": RUN.format, "config": {"seed": 0}}
NOTES = {"best": None, "index": None}


def state_after(step, scale=1.0):
    rng = np.random.default_rng(step)
    encoder = {name: jnp.float32(scale * rng.normal(size=(40, 8))) for name in ("a", "b")}
    params = {"encoder": encoder, "relations": jnp.float32(rng.normal(size=(3, 8, 8)))}
    return params, {"opt_state": optax.adam(0.1).init(params)}


def save(checkpoints, step, best=None, scale=1.0):
    params, rest = state_after(step, scale)
    notes = {**NOTES, "best": best}
    checkpoints.save(step, params, rest, identity=THIS_RUN, notes=notes)


def assert_same(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.fixture
def out(tmp_path):
    """A run folder with checkpoints of steps 2, 4 and 6."""
    folder = tmp_path / "run"
    folder.mkdir()
    checkpoints = Checkpoints(folder, keep_steps=[2])
    for step in (2, 4, 6):
        save(checkpoints, step)
    checkpoints.close()
    return folder


class Restored(NamedTuple):
    step: int
    params: Any
    rest: Any
    notes: dict


def restored(out, instead=0, like=None):
    with contextlib.closing(Checkpoints(out, keep_steps=[2])) as checkpoints:
        return Restored(*checkpoints.restore(*(like or state_after(0)), THIS_RUN, instead))


def largest_file(out, step, item="params"):
    """The file with the arrays of a checkpoint."""
    files = [path for path in (out / "checkpoints" / str(step) / item).rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "a bit flipped": flip_a_bit,
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_seen_named_and_stops_the_run(out, damage):
    DAMAGES[damage](largest_file(out, 6))
    with pytest.raises(BadInput, match=r"checkpoints/6 cannot be read: .* --restore-step 4 "):
        restored(out)
    assert saved_steps(out) == [2, 4, 6]  # not asked to go on: nothing has changed
    with pytest.raises(BadInput, match="checkpoints/6 cannot be read"):
        read_params(out, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "item",
    ["params", "rest", "identity", "notes", "checksums"],
)
def test_no_damage_to_any_file_is_taken_for_a_state(out, item, tmp_path):
    """Each file of a checkpoint in turn: it either makes no difference or is noticed."""
    (want, want_rest), noticed = state_after(6), 0
    folder = out / "checkpoints" / "6" / item
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for damage in ("a bit flipped", "missing"):
            DAMAGES[damage](path)
            try:
                found = restored(out)
            except BadInput:
                noticed += 1
            else:
                assert_same(found.params, want)
                assert_same(found.rest, want_rest)
                assert found.notes == NOTES
            path.write_bytes(whole)
    assert noticed >= 2
    assert_same(restored(out).params, want)


def caused_by(cause):
    error = ValueError("cannot restore")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "way_out"),
    [
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 bytes"), "make memory free"),
        (MemoryError("9 bytes"), "make memory free"),
        (caused_by(PermissionError(13, "Permission denied")), "check the rights"),
        (caused_by(ValueError("PERMISSION_DENIED: token has expired")), "check the rights"),
        (KeyError("no credentials"), "check the rights"),
    ],
)
def test_what_is_no_damage_is_not_called_so(out, monkeypatch, error, way_out):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(checkpoint, "client_errors", lambda: (KeyError,))  # of a bucket's library
    monkeypatch.setattr(checkpoint.ocp.CheckpointManager, "restore", fails)
    with pytest.raises(BadInput, match=f"may be whole .*: {way_out}.* same command") as raised:
        restored(out)
    assert "--restore-step" not in str(raised.value)


def test_a_flipped_bit_names_the_array(out):
    flip_a_bit(largest_file(out, 6))
    with pytest.raises(BadInput, match=r"params/\w+(/[ab])?.* came back with other values"):
        restored(out)


def test_goes_on_from_an_older_one_when_asked_and_deletes_nothing(out, capsys):
    flip_a_bit(largest_file(out, 6))
    damaged = largest_file(out, 6).read_bytes()
    assert_same(restored(out, instead=4).params, state_after(4)[0])
    assert saved_steps(out) == [2, 4]
    aside = out / "checkpoints" / "6.unreadable"
    assert damaged in [path.read_bytes() for path in aside.rglob("*") if path.is_file()]
    assert "renamed checkpoint 6" in capsys.readouterr().out

    # The same command again, as a launcher gives it, goes on from what came after.
    checkpoints = Checkpoints(out, keep_steps=[2])
    save(checkpoints, 6)
    checkpoints.close()
    assert_same(restored(out, instead=4).params, state_after(6)[0])
    flip_a_bit(largest_file(out, 6))
    restored(out, instead=2)
    assert saved_steps(out) == [2]
    assert {path.name for path in (out / "checkpoints").iterdir()} >= {
        *("6.unreadable", "6.unreadable-2", "4.unreadable")
    }


def test_a_step_that_is_not_there_or_not_whole_either_is_refused(out):
    flip_a_bit(largest_file(out, 6))
    with pytest.raises(BadInput, match="no checkpoint of step 5 before 6 .* it has 2, 4"):
        restored(out, instead=5)
    flip_a_bit(largest_file(out, 4))
    with pytest.raises(
        BadInput, match=r"checkpoints/4 cannot be read: .*newest before it that is whole is 2:"
    ):
        restored(out, instead=4)
    with pytest.raises(
        BadInput, match=r"newest before it that is whole is 2 \(4 cannot be read either\)"
    ):
        restored(out)
    flip_a_bit(largest_file(out, 2))
    with pytest.raises(BadInput, match="No other can be read; to start again"):
        restored(out)
    assert saved_steps(out) == [2, 4, 6]


def test_restored_on_other_devices_it_is_still_what_was_saved(out):
    """Checksums do not depend on how arrays are spread."""
    mesh = jax.make_mesh((8,), ("all",), (jax.sharding.AxisType.Auto,))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("all"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def place(leaf):
        divides = leaf.ndim and leaf.shape[0] % 8 == 0
        return jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=spread if divides else everywhere
        )

    state = restored(out, like=jax.tree.map(place, state_after(0)))
    assert state.params["encoder"]["a"].sharding.spec == spread.spec
    assert_same(state.params, state_after(6)[0])


def test_a_checksum_sees_every_element_its_place_and_its_bits():
    array = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    plain = int(_checksum(array))
    for index in np.ndindex(array.shape):
        changed = array.copy()
        changed[index] = np.nextafter(changed[index], np.inf, dtype=np.float32)
        assert int(_checksum(changed)) != plain
    assert int(_checksum(array[::-1].copy())) != plain
    assert int(_checksum(array.T.copy())) != plain
    assert int(_checksum(np.float32(0.0))) != int(_checksum(np.float32(-0.0)))
    for dtype in (np.int32, np.uint8, jnp.bfloat16):
        ones = np.ones(4, dtype)
        assert int(_checksum(ones)) != int(_checksum(ones * 0))
    assert _checksums({"a": array, "b": [array]}) == {"a": plain, "b/0": plain}
    with pytest.raises(_Damaged, match="b/0 and 1 more arrays"):
        _check_sums({"a": 1, "b/0": 2}, {"a": 1, "b/0": 3, "c": 4})


def test_a_checkpoint_that_makes_place_is_never_half_deleted_under_its_number(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep_steps=[100])
    for step in (1, 2, 3, 4):
        save(checkpoints, step)
        checkpoints.manager.wait_until_finished()
        assert (tmp_path / "checkpoints" / "deleted").exists() == (step > 2)
    checkpoints.close()
    assert saved_steps(tmp_path) == [3, 4]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["3", "4"]


def test_so_many_stay_as_were_asked_for(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep_steps=[3], most=2)
    for step in (*range(3, 16, 3), 16):
        save(checkpoints, step)
    checkpoints.close()
    assert saved_steps(tmp_path) == [12, 15, 16]


def test_the_best_checkpoint_stays_and_every_later_one_tells_which_it_is(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep_steps=[100])
    for step, best in ((1, None), (2, [2, 0.5]), (3, [2, 0.5]), (4, [2, 0.5]), (5, [2, 0.5])):
        save(checkpoints, step, best)
    checkpoints.close()
    assert saved_steps(tmp_path) == [2, 4, 5] and best_step(tmp_path) == 2
    with contextlib.closing(Checkpoints(tmp_path, keep_steps=[100])) as checkpoints:
        *_, notes = checkpoints.restore(*state_after(0), THIS_RUN)
        assert notes["best"] == [2, 0.5]
        save(checkpoints, 6, [6, 0.75])
        save(checkpoints, 7, [6, 0.75])
        save(checkpoints, 8, [6, 0.75])
    assert saved_steps(tmp_path) == [6, 7, 8] and best_step(tmp_path) == 6


@pytest.mark.slow
def test_a_checkpoint_without_the_files_that_describe_it_is_said_to_lack_them(out):
    (out / "checkpoints" / "6" / "params" / "_METADATA").unlink()
    with pytest.raises(BadInput, match="6 cannot be read: files of .*params are missing, among"):
        read_params(out, 6)


def test_a_run_without_scores_has_no_best_checkpoint(out):
    with pytest.raises(BadInput, match="tells no best one: .* name a step of 2, 4, 6"):
        best_step(out)


@pytest.mark.parametrize("item", ["identity", "notes", "checksums"])
def test_an_item_that_is_no_object_is_damage(out, item):
    (out / "checkpoints" / "6" / item / "metadata").write_text("-1")
    message = rf"checkpoints/6 cannot be read: {item} holds -1, where an object was saved"
    with pytest.raises(BadInput, match=f"{message}.*--restore-step 4"):
        restored(out)
    assert restored(out, instead=4).step == 4


def test_what_a_killed_save_left_is_cleared_and_never_read(out, monkeypatch):
    async def late(path):
        await asyncio.sleep(0.3)
        path.rmtree()

    monkeypatch.setattr(async_path, "rmtree", late)  # of what Orbax clears in the background
    folder = out / "checkpoints"
    shutil.copytree(folder / "6", folder / "8.orbax-checkpoint-tmp")
    assert saved_steps(out) == [2, 4, 6]
    assert restored(out).step == 6
    assert saved_steps(out) == [2, 4, 6] and not list(folder.glob("*tmp*"))


HOLDER = """
import sys, time
from pathlib import Path
from typing import Any, NamedTuple
from coder_jax.training.run_folder import lock_run
lock = lock_run(Path(sys.argv[1]))
print("locked", flush=True)
time.sleep(60)
"""


def test_one_process_per_run_folder_and_kill_9_frees_it(out, repo):
    (out / "run.json").write_text(json.dumps(THIS_RUN))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(out)], stdout=subprocess.PIPE, text=True, cwd=repo
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        for attempt in (
            lambda: lock_run(out),
            lambda: claim_run_folder(out, THIS_RUN, Path("unused"), ()),
        ):
            with pytest.raises(
                BadInput, match=f"process {holder.pid} on .* is training in .*another --out"
            ):
                attempt()
        assert read_params(out, 6)  # readers need no lock
    finally:
        holder.kill()
        holder.communicate()
    lock_run(out).close()
    lock_run(out).close()


def test_a_host_that_sees_the_first_hosts_checkpoints_late_waits_for_them(out, monkeypatch):
    newest = out / "checkpoints" / "6"
    newest.rename(out / "late")
    monkeypatch.setattr(checkpoint, "first_decides", lambda own: [2, 4, 6])
    monkeypatch.setattr(checkpoint, "_RELOAD_SECONDS", 0.05)
    comes = threading.Timer(1, lambda: (out / "late").rename(newest))
    comes.start()
    assert_same(restored(out).params, state_after(6)[0])
    comes.join()

    newest.rename(out / "late")
    monkeypatch.setattr(checkpoint, "_SEEN_WITHIN_SECONDS", 0.2)
    with pytest.raises(
        BadInput, match="first host sees the checkpoints 2, 4, 6, but this host sees 2, 4; --out"
    ):
        Checkpoints(out, keep_steps=[2])
    monkeypatch.undo()
    assert_same(restored(out).params, state_after(4)[0])
