"""The devices of this machine as a whole: which they are, the arithmetic and the number of programs
that suit them, and what to do where they do not start.
"""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax._src import xla_bridge

from coder_jax.devices.agree import host_count
from data_pipeline.batches.packing import MOST_SHAPES, SHAPES_ON_ACCELERATORS
from data_pipeline.process.errors import BadInput

# How jax begins when a platform of JAX_PLATFORMS, or a plugin, does not start.
NO_BACKEND = "Unable to initialize backend"


def arithmetic(dtype: str) -> str:
    """The arithmetic of an encoder: "auto" is bfloat16 on an accelerator, float32 on CPUs."""
    if dtype != "auto":
        return dtype
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


def most_shapes() -> int:
    """How many numbers of packed rows programs are compiled for, as sources of batches take it."""
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


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
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
    """Within, devices that jax is told to use and cannot are BadInput, with what to do."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        # jax 0.10 only asserts that there is a backend where CUDA is asked for and no GPU is seen.
        nothing = not str(error) and not xla_bridge.backends_are_initialized()
        if not (nothing or NO_BACKEND in str(error)):
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
