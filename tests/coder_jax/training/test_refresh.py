"""What an evaluation and a refresh of one step share is of that step alone."""

from types import SimpleNamespace

import numpy as np

from coder_jax.training.refresh import Refresh


def refresh_of(system, tmp_path):
    files = SimpleNamespace(folder=tmp_path, publish=lambda: None, fetch=lambda: None)
    return Refresh(system, files, None, {})


def test_what_was_computed_after_another_step_is_forgotten(tmp_path):
    refresh = refresh_of(None, tmp_path)
    refresh.computed_after(4)["vectors"] = np.ones(3)
    assert refresh.computed_after(4).keys() == {"vectors"}
    assert refresh.computed_after(6) == {} and refresh.computed_after(4) == {}


def test_a_refresh_sees_it_and_then_it_goes(tmp_path):
    seen = []

    def write(view, source, folder):
        seen.append((view.step, dict(view.computed)))
        (folder / "index").write_text("x")

    system = SimpleNamespace(refresh_steps=2, refresh=write)
    refresh = refresh_of(system, tmp_path)
    refresh.computed_after(2)["vectors"] = "those of step 2"
    state = SimpleNamespace(params={}, extra={})
    source = SimpleNamespace(with_index=lambda folder: folder.name)
    assert refresh.at(2, state, source, None)[0] == "2"
    assert refresh.computed_after(2) == {}
    refresh.computed_after(3)["vectors"] = "those of step 3"
    refresh.at(4, state, source, None)
    assert seen == [(2, {"vectors": "those of step 2"}), (4, {})]
