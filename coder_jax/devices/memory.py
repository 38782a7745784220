"""What a compiled program needs of each device's memory, as the compiler says, before it runs."""

import os

import jax

from data_pipeline.process.errors import BadInput

GIB = 2**30


def check_memory(
    compiled: jax.stages.Compiled, devices: int, *, fuller: float = 1.0, more_passes: int = 0
) -> str:
    """What a compiled train step needs on each device, in words.

    Args:
        compiled: of a step that takes its state's memory over.
        devices: over which it runs.
        fuller: how many times as large the fullest batch can be.
        more_passes: a number of passes that would need less; 0 for none.

    Raises:
        BadInput: if a device has less, with what makes it smaller.
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
        f"memory on each of {devices} device{plural}: {total / GIB:.2f} of {limit / GIB:.1f} GiB "
        f"(state and batch {held / GIB:.2f}, at work {(total - held) / GIB:.2f})"
    )
    if held > total / 2:
        helps = "most is the state: use more devices, or --shard-encoder, which spreads it"
    elif more_passes:
        helps = f"most is at work: use more passes (--passes {more_passes}), which change no result"
    else:
        helps = "most is at work: use more devices, or smaller batches"
    if total > limit:
        raise BadInput(f"{said}: this does not fit; {helps}")
    if held + fuller * (total - held) > limit:
        return f"{said}\nwarning: the fullest batches may not fit; {helps}"
    return said


def device_memory() -> int:
    """Bytes that one device may use; on a CPU its share of what the whole machine has."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return machine // jax.local_device_count()
