"""The window of the log: means, rates, and the stop at a loss that is not finite."""

import jax.numpy as jnp
import pytest

from coder_jax.training.window import Window
from data_pipeline.process.errors import BadInput


def metrics(loss, grad_norm=1.0):
    return {"loss": jnp.float32(loss), "grad_norm": jnp.float32(grad_norm)}


def test_means_over_the_steps_of_a_window():
    window = Window(256, lambda step: step / 10, "checkpoints in runs/x")
    for step, loss in enumerate([2.0, 4.0, 9.0], 1):
        with window.waiting():
            pass
        window.add(step, metrics(loss), fill=0.1 * step)
    values = window.close()
    assert values["loss"] == pytest.approx(5.0) and values["fill"] == pytest.approx(0.2)
    assert values["learning_rate"] == pytest.approx(0.2)  # of the step that was taken at 2
    assert values["terms_per_s"] > 0 and 0 <= values["data_wait"] < 1
    window.add(4, metrics(7.0), fill=1.0)
    assert window.close()["loss"] == pytest.approx(7.0)  # the first window is forgotten


def test_pauses_do_not_count(monkeypatch):
    clock = iter([0.0, 1.0, 101.0, 102.0])  # begins, pause from 1 to 101, closes
    monkeypatch.setattr("coder_jax.training.window.time.monotonic", lambda: next(clock, 102.0))
    window = Window(100, lambda step: 0.0, "")
    with window.paused():
        pass
    window.add(1, metrics(1.0), fill=1.0)
    assert window.close()["terms_per_s"] == pytest.approx(50.0)


@pytest.mark.parametrize("bad", [metrics(float("nan")), metrics(1.0, float("inf"))])
def test_a_step_that_is_not_finite_is_named_at_the_next(bad):
    window = Window(256, lambda step: 1e-5, "checkpoints in runs/x")
    window.add(7, bad, fill=1.0)
    with pytest.raises(BadInput, match=r"step 7: .*1e-05.*checkpoints in runs/x are good"):
        window.add(8, metrics(1.0), fill=1.0)
