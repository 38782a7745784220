"""A run that is made longer: what its run.json says, and what its checkpoints said before."""

import pytest

from coder_jax.runs.extension import as_it_was, going_on
from coder_jax.runs.folder import read_identity
from data_pipeline.files.identity import RUN, write_identity
from data_pipeline.process.errors import BadInput


def run_of(steps, **parts):
    optimizer = {"steps": steps, "learning_rate": 0.1}
    config = {"optimizer": optimizer, "recipe": "small", "system": {"name": "coder"}, "start": ""}
    return {"format": RUN.format, "config": config, "start": {}, "dataset": {"hash": "a"}, **parts}


def test_the_same_run_goes_on_as_it_is():
    assert going_on(run_of(6), run_of(6), "runs/x", step=3, extend=False) == run_of(6)
    assert going_on(run_of(6), run_of(6), "runs/x", step=3, extend=True) == run_of(6)


def test_more_steps_must_be_asked_for_and_are_written_down():
    with pytest.raises(BadInput, match=r"holds a run of 6 steps, and --steps is 9\. .* --extend"):
        going_on(run_of(6), run_of(9), "runs/x", step=3, extend=False)
    longer = going_on(run_of(6), run_of(9), "runs/x", step=3, extend=True)
    assert longer == run_of(9, extended=[{"step": 3, "from": 6, "to": 9}])
    # From then on it is a run of nine steps, with or without the flag; and may be extended again.
    for extend in (False, True):
        assert going_on(longer, run_of(9), "runs/x", step=6, extend=extend) == longer
    again = going_on(longer, run_of(20), "runs/x", step=9, extend=True)
    assert again["extended"] == [
        {"step": 3, "from": 6, "to": 9},
        {"step": 9, "from": 9, "to": 20},
    ]
    # What its checkpoints say: of the run as it was when they were written.
    assert as_it_was(again, run_of(6)) == run_of(6)
    assert as_it_was(again, longer) == longer
    assert as_it_was(again, again) == again
    assert as_it_was(run_of(6), again) == run_of(6)


def test_fewer_steps_are_refused():
    with pytest.raises(BadInput, match="a run of 6 steps, and --steps is 5: a run cannot become"):
        going_on(run_of(6), run_of(5), "runs/x", step=3, extend=True)


def test_a_change_that_no_checkpoint_has_can_be_taken_back_or_made_another():
    longer = run_of(9000, extended=[{"step": 3, "from": 6, "to": 9000}])
    assert going_on(longer, run_of(9000), "runs/x", step=3, extend=False) == longer
    assert going_on(longer, run_of(6), "runs/x", step=3, extend=False) == run_of(6)
    with pytest.raises(BadInput, match="a run of 6 steps, and --steps is 5: a run cannot become"):
        going_on(longer, run_of(5), "runs/x", step=3, extend=True)
    with pytest.raises(BadInput, match=r"a run of 6 steps, and --steps is 9\. .* --extend"):
        going_on(longer, run_of(9), "runs/x", step=3, extend=False)
    nine = run_of(9, extended=[{"step": 3, "from": 6, "to": 9}])
    assert going_on(longer, run_of(9), "runs/x", step=3, extend=True) == nine
    # With a checkpoint of before that step it is made anew there (--restore-step).
    earlier = run_of(9000, extended=[{"step": 2, "from": 6, "to": 9000}])
    assert going_on(longer, run_of(9000), "runs/x", step=2, extend=False) == earlier
    # From the next checkpoint on it stays.
    with pytest.raises(BadInput, match="a run of 9,000 steps, and --steps is 6: a run cannot"):
        going_on(longer, run_of(6), "runs/x", step=4, extend=True)


def test_a_run_without_a_checkpoint_begins_anew():
    with pytest.raises(BadInput, match="add --extend: it begins anew, at the learning rate"):
        going_on(run_of(6), run_of(9), "runs/x", step=0, extend=False)


def test_another_difference_is_told_with_that_of_the_steps():
    other = run_of(9, dataset={"hash": "b"})
    with pytest.raises(BadInput, match=r"config.optimizer.steps: 6 there, 9 here\n  dataset.hash"):
        going_on(run_of(6), other, "runs/x", step=3, extend=True)


def test_the_folder_says_so(tmp_path):
    longer = going_on(run_of(6), run_of(9), "runs/x", step=3, extend=True)
    write_identity(tmp_path / RUN.file, RUN, longer)
    assert read_identity(tmp_path) == longer
    longer["extended"][0]["step"] = "three"
    write_identity(tmp_path / RUN.file, RUN, longer)
    with pytest.raises(BadInput, match=r"extended\[0\]\.step is .*three"):
        read_identity(tmp_path)
