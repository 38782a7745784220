"""What XLA is told: nothing of the user's is changed, and this jaxlib understands it."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from coder_jax.devices.xla_settings import _YNN, set_up_xla


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """An environment of the test's own, put back as it was."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"):
        os.environ.pop(name, None)
    os.environ["CODER_JAX_CACHE"] = str(tmp_path)


def test_what_the_user_has_set_stays():
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=2 {_YNN}=dot"
    os.environ["JAX_COMPILATION_CACHE_DIR"] = "/elsewhere"
    before = dict(os.environ)
    set_up_xla()
    assert os.environ == before


def test_other_flags_are_kept_and_the_flag_is_added_once():
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    set_up_xla()
    set_up_xla()
    assert os.environ["XLA_FLAGS"].split() == [
        "--xla_force_host_platform_device_count=2",
        f"{_YNN}=reduce",
    ]


def test_no_flag_for_a_jaxlib_that_may_not_know_it(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "0.13.0")
    set_up_xla()
    assert "XLA_FLAGS" not in os.environ


def test_64_bits_that_other_programs_need_are_not_used():
    code = (
        "from coder_jax.devices.xla_settings import set_up_xla; set_up_xla()\n"
        "import jax.numpy as jnp, numpy as np; print(jnp.asarray(np.ones(1)).dtype)"
    )
    command, asked = [sys.executable, "-c", code], os.environ | {"JAX_ENABLE_X64": "1"}
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["float32"]


def test_products_are_not_ynnpacks_and_programs_are_kept(tmp_path):
    """In a process of its own: the flag is read when the backend starts."""
    code = (
        "from coder_jax.devices.xla_settings import set_up_xla; set_up_xla()\n"
        "import jax, jax.numpy as jnp\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((512, 512))).compile()\n"
        "print('ynn' in compiled.as_text())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"], done.stderr
    assert any((tmp_path / "compiled").iterdir())
