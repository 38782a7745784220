"""What the watch makes of errors; the watch at work is in test_hosts.py."""

import pytest
from jax.errors import JaxRuntimeError

from coder_jax.devices import watch as host_watch
from data_pipeline.process.errors import BadInput


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadInput("x"), 2),
        (OSError(28, "No space left on device"), 2),
        (OSError(5, "Input/output error"), 1),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 130),
        (SystemExit(4), 4),
    ],
)
def test_the_others_leave_with_the_status_of_the_command(error, status):
    assert host_watch.status_of(error) == status


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


RESET = "UNAVAILABLE: Connection reset by peer"
GLOO = f"UNKNOWN: Gloo AllGather failed: {RESET}"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (JaxRuntimeError(RESET), RESET),
        (caused(ValueError("cannot restore"), JaxRuntimeError(RESET)), RESET),
        (ValueError(GLOO), GLOO),  # jax raises both classes
        (JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"), None),
        # Of a hub or a bucket.
        (ConnectionResetError(104, "Connection reset by peer"), None),
        (caused(ValueError("GET https://...: Connection closed by peer"), OSError(RESET)), None),
    ],
)
def test_only_what_jax_says_means_a_lost_host(error, lost):
    assert host_watch.lost_host(error) == lost
