"""The device mesh: the placement of arrays, memory use, and the devices of this machine."""

import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import xla_bridge
from jax.errors import JaxRuntimeError
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from coder_jax.devices.hosts import host_count
from coder_jax.devices.xla_settings import PEAK_TFLOPS
from data_pipeline.batches.packing import MOST_SHAPES, SHAPES_ON_ACCELERATORS
from data_pipeline.batches.spec import StepCut
from data_pipeline.process import BadInput, peak_memory

# -------------------------------------------------------------------------------------------------
# The device mesh, with two axes, and the placement of each array.
#
# The axis `groups` counts the blocks of a pass: each holds the rows and the losses of some groups,
# and needs nothing of the others but the sum of the gradients. Where there are more devices than
# groups, several of them, the axis `within`, share a block: its rows and its anchors.
#
# | array | place | |---|---| | packed rows of a batch [P, B, R, L] | B over `groups`, R over
# `within` | | other arrays of a batch [P, B, G, ...] | B over `groups` | | a part of the
# parameters, its gradient and moments | on every device; or one dimension over all |

AXES = ("groups", "within")
BLOCKS = PartitionSpec("groups")  # [B, ...]
EVERYWHERE = PartitionSpec()
# Smaller arrays (biases, norms) are replicated: gathering them would cost more than storing them.
_SMALLEST_TO_SHARD = 1 << 16


def make_mesh(groups: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh for `groups` groups per pass, over the given devices (default: all devices of all
    hosts).

    Devices of one host are neighbours, so that a host makes neighbouring blocks.
    """
    if devices is None:
        devices = jax.devices()
    chosen = sorted(devices, key=lambda device: (device.process_index, device.id))
    blocks = math.gcd(groups, len(chosen))
    grid = np.array(chosen).reshape(blocks, len(chosen) // blocks)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto, AxisType.Auto))


def local_mesh() -> Mesh:
    """A mesh with one axis, `data`, over the devices of this host."""
    return Mesh(np.array(jax.local_devices()), ("data",), axis_types=(AxisType.Auto,))


def step_cut(mesh: Mesh, passes: int, chunks: int = 1) -> StepCut:
    """How a step is cut for the mesh, and the blocks that this host's devices hold.

    Args:
        mesh: the devices.
        passes: of a step.
        chunks: into which the rows of a block, on each of its devices, are divided evenly.
    """
    here = jax.process_index()
    mine = [
        block
        for block, devices in enumerate(mesh.devices)
        if any(device.process_index == here for device in devices)
    ]
    return StepCut(
        passes=passes,
        blocks=mesh.shape["groups"],
        row_multiple=mesh.shape["within"] * chunks,
        first=mine[0],
        last=mine[-1] + 1 if len(mine) < mesh.shape["groups"] else None,
    )


def replicated(mesh: Mesh) -> NamedSharding:
    """On every device."""
    return NamedSharding(mesh, EVERYWHERE)


def batch_place(name: str, packed: Sequence[str]) -> PartitionSpec:
    """The sharding of an array of a batch, [P, B, ...]; `packed` names the arrays of packed
    rows.
    """
    return PartitionSpec(None, "groups", *(["within"] if name in packed else []))


def place_of(mesh: Mesh, shape: Sequence[int], spread: int | str | None) -> NamedSharding:
    """The sharding of an array of parameters.

    Args:
        mesh: the devices.
        shape: of the array.
        spread: the dimension that lies over all devices; "largest": the first that can, beginning
            with the largest, if the array is large; None: whole on each device.
    """
    if isinstance(spread, int) and spread < len(shape):
        return NamedSharding(mesh, _spread(shape, mesh, [spread]))
    if spread == "largest" and math.prod(shape) >= _SMALLEST_TO_SHARD:
        largest_first = sorted(range(len(shape)), key=lambda i: -shape[i])
        return NamedSharding(mesh, _spread(shape, mesh, largest_first))
    return replicated(mesh)


def _spread(shape: Sequence[int], mesh: Mesh, dimensions: list[int]) -> PartitionSpec:
    """The first of `dimensions` that divides over all devices, or over one axis; else none."""
    for axes in (AXES, AXES[:1], AXES[1:]):
        parts = math.prod(mesh.shape[axis] for axis in axes)
        for dimension in dimensions if parts > 1 else ():
            if shape[dimension] % parts == 0:
                return PartitionSpec(*[None] * dimension, axes)
    return PartitionSpec()


def spread_axes(mesh: Mesh, size: int) -> tuple[str, ...] | None:
    """The axes over which a dimension of this size is spread; None for none."""
    spread = _spread((size,), mesh, [0])
    return spread[0] if spread else None


def constrain(mesh: Mesh, array: jax.Array, place: PartitionSpec) -> jax.Array:
    """In traced code: constrains the sharding of an array and of its gradient."""
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, place))


def put_batch(
    mesh: Mesh, cut: StepCut, batch: Mapping[str, np.ndarray], packed: Sequence[str]
) -> dict[str, jax.Array]:
    """This host's blocks as part of the global batch on all devices; the copy is asynchronous.

    Args:
        mesh: the devices.
        cut: of the batch.
        batch: [P, blocks of this host, ...] each.
        packed: names of the arrays of packed rows.

    Returns:
        [P, B, ...] each, B the blocks of all hosts.
    """

    def put(name: str, mine: np.ndarray) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            first, last, _ = index[1].indices(cut.blocks)
            return mine[index[0], first - cut.first : last - cut.first, *index[2:]]

        shape = (mine.shape[0], cut.blocks, *mine.shape[2:])
        place = NamedSharding(mesh, batch_place(name, packed))
        return jax.make_array_from_callback(shape, place, part)

    return {name: put(name, array) for name, array in batch.items()}


def placed_batch_shapes(
    mesh: Mesh,
    cut: StepCut,
    shapes: Mapping[str, tuple[int, ...]],
    packed: Sequence[str],
    floats: Sequence[str] = (),
) -> dict[str, jax.ShapeDtypeStruct]:
    """The result of `put_batch`, as shapes with shardings.

    Args:
        mesh, cut, packed: as for `put_batch`.
        shapes: [P, blocks of this host, ...] each (`BatchSource.shapes`).
        floats: names of the arrays that are float32; the others are int32.
    """
    return {
        name: jax.ShapeDtypeStruct(
            (shape[0], cut.blocks, *shape[2:]),
            np.float32 if name in floats else np.int32,
            sharding=NamedSharding(mesh, batch_place(name, packed)),
        )
        for name, shape in shapes.items()
    }


def put_whole(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array that every host has in full, sharded over the devices."""
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def local_copy(mesh: Mesh, tree: Any) -> Any:
    """Sharded arrays as full arrays on one device of this host; all hosts must call it."""
    gathered = jax.jit(_same, out_shardings=replicated(mesh))(tree)
    return jax.tree.map(lambda array: array.addressable_data(0), gathered)


def _same(tree: Any) -> Any:  # one function, so that it is compiled once
    return tree


# -------------------------------------------------------------------------------------------------
# The memory that a compiled program needs on each device, as the compiler estimates it, what was
# used at most, and the rate of products at most.

_GIB = 2**30
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # begins what jax says of a device without memory left


def memory_advice(
    of_state: bool, *, can_spread: bool = False, more_passes: int = 0, more_chunks: int = 0
) -> str:
    """What makes a train step need less memory.

    Args:
        of_state: whether most of it is the state.
        can_spread: whether --shard-encoder would spread some of the state, and is not given.
        more_passes: a number of passes that would need less; 0 for none.
        more_chunks: likewise, of chunks (`RunConfig.cache_chunks`).
    """
    if of_state and can_spread:
        return "most is the state: use --shard-encoder, which spreads it over several devices"
    if of_state:
        return "most is the state: use devices with more memory, or more of them if it is spread"
    if more_passes:
        return f"most is at work: use more passes (--passes {more_passes}), which change no result"
    if more_chunks:
        return (
            f"most is at work: encode in more chunks (--cache-chunks {more_chunks}), which change "
            "no result"
        )
    return "most is at work: use more devices, or smaller batches"


def compiled_to_fit(lowered: jax.stages.Lowered, advice: str) -> jax.stages.Compiled:
    """A program, compiled.

    Raises:
        BadInput: if the compiler finds that a device has not enough memory, as that of TPUs does;
            with the advice.
    """
    try:
        return lowered.compile()
    except JaxRuntimeError as error:
        if OUT_OF_MEMORY not in str(error):
            raise
        raise BadInput(
            f"the compiler finds that the step does not fit ({str(error).splitlines()[0]:.500}); "
            f"{advice}"
        ) from error


def check_memory(
    compiled: jax.stages.Compiled,
    devices: int,
    advice: Callable[[bool], str] = memory_advice,
    *,
    fuller: float = 1.0,
) -> str:
    """The memory that a compiled train step needs on each device, in words.

    Args:
        compiled: of a step that takes its state's memory over.
        devices: over which it runs.
        advice: what makes it smaller, given whether most is the state.
        fuller: how many times as large the fullest batch can be.

    Raises:
        BadInput: if a device has less, with the advice.
    """
    found = compiled.memory_analysis()
    if found is None:
        return f"memory on each of {devices} devices: this platform's compiler does not say"
    held = found.argument_size_in_bytes
    new = found.output_size_in_bytes - found.alias_size_in_bytes  # what is no state
    total = held + new + found.temp_size_in_bytes
    limit = device_memory()
    plural = "s" if devices > 1 else ""
    said = (
        f"memory on each of {devices} device{plural}: {total / _GIB:.2f} of {limit / _GIB:.1f} GiB "
        f"(state and batch {held / _GIB:.2f}, at work {(total - held) / _GIB:.2f})"
    )
    if total > limit:
        raise BadInput(f"{said}: this does not fit; {advice(held > total / 2)}")
    if held + fuller * (total - held) > limit:
        return f"{said}\nwarning: the fullest batches may not fit; {advice(held > total / 2)}"
    return said


def device_memory() -> int:
    """Bytes that one device may use; on CPUs a device's share of the machine's, or container's,
    memory.
    """
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = _container_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return min([machine, *limits]) // jax.local_device_count()


def _container_limits(mine: Path, root: Path) -> Iterator[int]:
    """Bytes that Linux lets this process use: those of its control groups that have a limit.

    Args:
        mine: the file that names the groups of this process.
        root: where the groups are mounted; in a container, perhaps its own group in place of all.
    """
    for line in mine.read_text(encoding="utf-8").splitlines() if mine.exists() else ():
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        base, name = (root / "memory", "memory.limit_in_bytes") if kinds else (root, "memory.max")
        inside = Path(path.lstrip("/"))
        for file in (base / group / name for group in (inside, *inside.parents)):
            with suppress(OSError, ValueError):  # not there, or "max"
                yield int(file.read_text(encoding="utf-8"))


def peak_gigabytes() -> float:
    """GB (10^9 bytes) that the fullest device of this host has used; on CPUs, this process."""
    used = [device.memory_stats() or {} for device in jax.local_devices()]
    peaks = [stats["peak_bytes_in_use"] for stats in used if "peak_bytes_in_use" in stats]
    if peaks:
        return max(peaks) / 1e9
    return peak_memory()


def peak_tflops() -> float:
    """TFLOP/s of one of this host's devices at most, of `PEAK_TFLOPS`; 0 if it is not there."""
    kind = f"{jax.local_devices()[0].device_kind} ".replace("-", " ")
    return next((peak for name, peak in PEAK_TFLOPS.items() if kind.startswith(f"{name} ")), 0.0)


# -------------------------------------------------------------------------------------------------
# This machine's devices: which they are, the matching precision and number of programs, and advice
# if they do not start.

# jax's message when a platform of JAX_PLATFORMS, or a plugin, does not start.
_NO_BACKEND = "Unable to initialize backend"


def arithmetic(dtype: str) -> str:
    """The dtype of an encoder: "auto" is bfloat16 on an accelerator, float32 on CPUs."""
    if dtype != "auto":
        return dtype
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


def most_shapes() -> int:
    """For how many different numbers of packed rows programs are compiled."""
    return MOST_SHAPES if jax.default_backend() == "cpu" else SHAPES_ON_ACCELERATORS


def devices_in_words() -> str:
    """The devices of the run, such as "8 x NVIDIA H100 80GB HBM3 on 2 hosts"."""
    kinds = [device.device_kind for device in jax.devices()]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    names = [
        f"{count} x {'CPU' if kind == 'cpu' else kind}" if count > 1 or kind != "cpu" else "the CPU"
        for kind, count in counts.items()
    ]
    hosts = f" on {host_count()} hosts" if host_count() > 1 else ""
    return f"{', '.join(names)}{hosts}"


def this_machine() -> dict[str, Any]:
    """The machine on which figures were measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "devices": [str(device) for device in jax.devices()],
    }


@contextmanager
def devices_explained() -> Iterator[None]:
    """In the block, requested devices that jax cannot use raise BadInput with advice."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        # jax 0.10 only asserts that there is a backend where CUDA is asked for and no GPU is seen.
        nothing = not str(error) and not xla_bridge.backends_are_initialized()
        if not (nothing or _NO_BACKEND in str(error)):
            raise
        reason = str(error).partition("\n")[0] or "it sees no such device"
        asked = os.environ.get("JAX_PLATFORMS")
        if asked:
            remedy = (
                f"JAX_PLATFORMS is {asked!r}: unset it to use what is there (JAX_PLATFORMS=cpu is "
                "always), or see that this machine has such a device with its driver, and that "
                "this build of jax is for it (CODER_JAX_ACCELERATOR=cuda13, cuda12 or tpu when "
                "launch/train.sh makes the environment)"
            )
        else:
            remedy = (
                "jax is built for a device that does not start here: see to its driver, or set "
                "JAX_PLATFORMS=cpu to compute on the CPU"
            )
        raise BadInput(f"jax cannot start: {reason}. {remedy}") from error
