"""Reading checkpoints on one host: for an export beside a run, and to see which are whole."""

import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from coder_jax.devices.agree import host_count
from coder_jax.devices.watch import lost_host
from coder_jax.runs.checksums import Damaged, check_sums, checksums
from coder_jax.runs.orbax_patches import atomicity, checkpoint_folder, quieten
from data_pipeline.process.errors import BadInput

Read = TypeVar("Read")


def saved_steps(out: Path) -> list[int]:
    """The steps with a checkpoint, oldest first, for readers beside a run that goes on."""
    folder = checkpoint_folder(out)
    names = ocp.path.step.standard_name_format(atomicity_options=atomicity(folder))
    return sorted(found.step for found in names.find_all(folder))


def newest_step(out: str) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    return max(saved_steps(Path(out)), default=0)


def best_step(out: Path) -> int:
    """The step of the best checkpoint that a run has, by the score that its system chooses by.

    Raises:
        BadInput: if the newest checkpoint, which tells it, cannot be read, or tells none.
    """
    folder = checkpoint_folder(out) / str(saved_steps(out)[-1])
    try:
        best = or_damaged(lambda: read_json_item(folder, "notes")).get("best")
    except Damaged as damage:
        raise BadInput(
            f"checkpoint {folder} cannot be read: {damage}; name another step"
        ) from damage
    if best is None or best[0] not in saved_steps(out):
        raise BadInput(
            f"checkpoint {folder} tells no best one: the run was not scored yet. Let it go on to "
            "its next scores (--eval-steps), or name a step of "
            f"{', '.join(map(str, saved_steps(out)))}"
        )
    return best[0]


def read_params(out: Path, step: int) -> dict[str, Any]:
    """The parameters of a run after `step` steps, as NumPy arrays, whatever devices they had.

    Raises:
        BadInput: if they cannot be read, or are not what was saved.
    """
    folder = checkpoint_folder(out) / str(step)
    try:
        return read_item(folder, "params")
    except Damaged as damage:
        raise BadInput(
            f"checkpoint {folder} cannot be read: {damage}; take another step"
        ) from damage


def read_extra(out: Path, step: int) -> Any:
    """What is neither parameter nor moment in a checkpoint (`TrainState.extra`), NumPy arrays.

    Raises:
        BadInput: if it cannot be read, or is not what was saved.
    """
    folder = checkpoint_folder(out) / str(step)
    try:
        return read_item(folder, "rest")["extra"]
    except Damaged as damage:
        raise BadInput(
            f"checkpoint {folder} cannot be read: {damage}; take another step"
        ) from damage


def read_saved_identity(out: Path, step: int) -> dict[str, Any]:
    """What run.json said when the checkpoint after `step` steps was saved.

    Raises:
        BadInput: if it cannot be read.
    """
    return read_text(out, step, "identity")


def read_notes(out: Path, step: int) -> dict[str, Any]:
    """What the run knew when the checkpoint after `step` steps was saved (`Checkpoints.save`).

    Raises:
        BadInput: if it cannot be read.
    """
    return read_text(out, step, "notes")


def read_text(out: Path, step: int, item: str) -> dict[str, Any]:
    """An item of a checkpoint that is JSON; BadInput if it cannot be read."""
    folder = checkpoint_folder(out) / str(step)
    try:
        return or_damaged(lambda: read_json_item(folder, item))
    except Damaged as damage:
        raise BadInput(
            f"checkpoint {folder} cannot be read: {damage}; take another step"
        ) from damage


def examine(folder: Path) -> str | None:
    """What is wrong with the checkpoint in `folder`, which this host alone reads; None if whole."""
    try:
        for item in ("params", "rest"):
            read_item(folder, item)
        for item in ("identity", "notes"):
            or_damaged(partial(read_json_item, folder, item))
    except Damaged as damage:
        return str(damage)
    return None


def read_item(folder: Path, item: str) -> Any:
    """One item of a checkpoint as NumPy arrays, without waiting for other hosts.

    Raises:
        Damaged: if it cannot be read, or is not what was saved.
    """
    alone = this_host()
    quieten()

    def read() -> tuple[Any, dict[str, int]]:
        saved = read_json_item(folder, "checksums")
        arrays = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
        with ocp.Checkpointer(arrays, multiprocessing_options=alone) as reader:
            shapes = numbered(reader.metadata(folder / item).item_metadata.tree)
            like = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)
            restored = reader.restore(folder / item, args=ocp.args.StandardRestore(like))
        return restored, saved

    restored, saved = or_damaged(read)
    saved = {name: value for name, value in saved.items() if name.startswith(f"{item}/")}
    check_sums(checksums({item: restored}), saved)
    return restored


def numbered(tree: Any) -> Any:
    """A tree as it was saved, from one whose numbers of children became text, as in metadata.

    nnx numbers the layers of an encoder, 0, 1, 2, ...; Orbax writes keys as text, by which 10 comes
    before 2. `check_keys` sees to it that no name which is saved looks like a number.
    """
    if isinstance(tree, list):
        return [numbered(child) for child in tree]
    if not isinstance(tree, dict):
        return tree
    numbers = bool(tree) and all(is_number(key) for key in tree)
    pairs = [(int(key) if numbers else key, numbered(child)) for key, child in tree.items()]
    return dict(sorted(pairs) if numbers else pairs)


def is_number(key: Any) -> bool:
    """Whether a key is the text of a number of a child."""
    return isinstance(key, str) and key.isascii() and key.isdecimal() and str(int(key)) == key


def check_keys(tree: Any) -> None:
    """ValueError if what is read later would not have the keys that are saved now."""
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        if any(is_number(getattr(key, "key", None)) for key in path):
            raise ValueError(
                f"{jax.tree_util.keystr(path)}: found a number as text; expected an integer, or a "
                "name that is no number: when it is read, a number is an integer"
            )


def read_json_item(folder: Path, item: str) -> dict[str, Any]:
    """One item of a checkpoint that is JSON, without waiting for other hosts."""
    alone = this_host()
    handler = ocp.JsonCheckpointHandler(multiprocessing_options=alone)
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
        return reader.restore(folder / item)


def this_host() -> ocp.options.MultiprocessingOptions:
    """What makes Orbax wait for no other host."""
    return ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(), active_processes={jax.process_index()}
    )


def or_damaged(read: Callable[[], Read]) -> Read:
    """What `read` gives; Damaged, in a line, where Orbax or tensorstore raise whatever they raise.

    After the first failed read Orbax drops the others, each of which then prints a traceback of its
    own; these are kept off the terminal, so that the message can be found.
    """
    hooks = sys.unraisablehook, sys.excepthook
    sys.unraisablehook, sys.excepthook = lambda _: None, lambda *_: None
    try:
        try:
            return read()
        except Exception as error:
            if host_count() > 1 and lost_host(error):
                raise  # that host's end, not the checkpoint's
            problem = in_a_line(error)
        gc.collect()  # the dropped reads
        time.sleep(0.2)  # those still under way in tensorstore's threads
    finally:
        sys.unraisablehook, sys.excepthook = hooks
    raise Damaged(problem)


def in_a_line(error: BaseException) -> str:
    """What an error of Orbax or tensorstore says, without the pages of settings behind it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split("[tensorstore_spec=")[0].split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-200:]}"
