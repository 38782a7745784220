"""What a compiled step needs of memory: told as the compiler says, refused where it cannot fit."""

import functools
import re
import types

import jax
import jax.numpy as jnp
import pytest

from coder_jax.devices import mesh
from coder_jax.devices.mesh import _GIB, check_memory, device_memory, memory_advice
from data_pipeline.process import BadInput


def compiled(size):
    """A program that takes an array over, and works on several of its size."""

    def program(state, batch):
        wide = jnp.outer(batch, state)
        return state + jnp.tanh(wide).sum(axis=0), wide.sum()

    shapes = jax.ShapeDtypeStruct((size,), jnp.float32), jax.ShapeDtypeStruct((64,), jnp.float32)
    return jax.jit(program, donate_argnums=0).lower(*shapes).compile()


def test_it_is_what_the_compiler_says():
    program = compiled(2**20)
    found = program.memory_analysis()
    said = check_memory(program, devices=1)
    total, limit, held, work = map(float, re.findall(r"(\d+\.\d+)", said))
    assert limit == pytest.approx(device_memory() / _GIB, abs=0.06)
    assert total == pytest.approx(held + work, abs=0.011)
    # The state comes back in the memory it came in: it counts once.
    assert held == pytest.approx((2**20 + 64) * 4 / _GIB, abs=0.006)
    assert work * _GIB >= found.temp_size_in_bytes - 0.006 * _GIB


@pytest.mark.parametrize(
    ("held", "work", "can", "helps"),
    [
        (3 * _GIB, _GIB, {"can_spread": True}, "--shard-encoder"),
        (3 * _GIB, _GIB, {}, "devices with more memory"),
        (_GIB, 3 * _GIB, {"more_passes": 4, "can_spread": True}, "--passes 4"),
        (_GIB, 3 * _GIB, {"more_chunks": 2}, "--cache-chunks 2"),
        (_GIB, 3 * _GIB, {}, "smaller batches"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_helps(monkeypatch, held, work, can, helps):
    monkeypatch.setattr(mesh, "device_memory", lambda: 4 * _GIB - 1)
    sizes = {"argument": held, "output": held, "alias": held, "temp": work}
    found = types.SimpleNamespace(**{f"{name}_size_in_bytes": size for name, size in sizes.items()})
    program = types.SimpleNamespace(memory_analysis=lambda: found)
    advice = functools.partial(memory_advice, **can)
    with pytest.raises(BadInput, match=f"4.00 of 4.0 GiB .*this does not fit.*{helps}"):
        check_memory(program, 2, advice)
    monkeypatch.setattr(mesh, "device_memory", lambda: 4 * _GIB)
    assert check_memory(program, 2, advice).startswith("memory on each of 2 devices: 4.00")


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {"memory.max": "4096\n"}, 4096),
        ("0::/job/step\n", {"job/step/memory.max": "max\n", "job/memory.max": "4096\n"}, 4096),
        (
            "5:cpu:/\n4:memory:/docker/1f\n0::/\n",  # of which the container sees itself as root
            {"memory/memory.limit_in_bytes": "4096\n", "cpu/memory.limit_in_bytes": "1\n"},
            4096,
        ),
    ],
)
def test_a_container_has_less_memory_than_its_machine(tmp_path, monkeypatch, groups, limits, least):
    (tmp_path / "cgroup").write_text(groups)
    for name, limit in limits.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(limit)
    found = list(mesh._container_limits(tmp_path / "cgroup", tmp_path / "root"))
    assert min(found, default=None) == least
    assert not list(mesh._container_limits(tmp_path / "absent", tmp_path))  # no Linux
    if jax.default_backend() == "cpu":
        monkeypatch.setattr(mesh, "_container_limits", lambda *_: iter(()))
        of_machine = device_memory()
        monkeypatch.setattr(mesh, "_container_limits", lambda *_: iter(found))
        assert device_memory() == (least // 8 if least else of_machine)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("TPU v5 lite", 197),
        ("TPU v5", 459),
        ("TPU v6 lite", 918),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA L4", 121),
        ("NVIDIA L40", 0),
        ("cpu", 0),
    ],
)
def test_the_peak_of_a_device_is_known_by_its_name(monkeypatch, kind, peak):
    device = types.SimpleNamespace(device_kind=kind)
    monkeypatch.setattr(mesh.jax, "local_devices", lambda: [device])
    assert mesh.peak_tflops() == peak


def test_the_memory_is_that_of_the_fullest_device_or_of_the_process(monkeypatch):
    assert 0.05 < mesh.peak_gigabytes() < 500  # of this process
    devices = [
        types.SimpleNamespace(memory_stats=lambda peak=peak: {"peak_bytes_in_use": peak})
        for peak in (3 * 10**9, 5 * 10**9)
    ]
    monkeypatch.setattr(mesh.jax, "local_devices", lambda: devices)
    assert mesh.peak_gigabytes() == 5.0


def test_a_compiler_that_says_nothing_is_believed():
    program = types.SimpleNamespace(memory_analysis=lambda: None)
    assert "does not say" in check_memory(program, devices=2)
