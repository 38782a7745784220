"""What experiments share: commands that are stopped in time, and rows of several seeds."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest

from data_pipeline.process import BadInput
from launch.experiment import call, markdown, mean_rows, side_by_side

CHILD = """
import sys, time
from data_pipeline import process as stopping
from data_pipeline.process import run_command

def work():
    print("at work", flush=True)
    while not stopping.asked():
        time.sleep(0.05)
    time.sleep(1)  # a step takes longer than the experiment needs to pass the signal on
    print("saved", flush=True)
    stopping.poll()

sys.exit(run_command(work, when_asked="saving"))
"""
EXPERIMENT = """
import sys
from data_pipeline.process import run_command
from launch.experiment import call

sys.exit(run_command(lambda: call("child"), when_asked="stopping"))
"""


@pytest.mark.parametrize("whom", ["all", "the experiment"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_command_under_way_has_time_to_save(whom, number, status, tmp_path):
    """Ctrl-C at a terminal, and schedulers, signal all processes; `kill` the experiment alone."""
    (tmp_path / "child.py").write_text(CHILD)
    process = subprocess.Popen(
        [sys.executable, "-c", EXPERIMENT],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    while process.stdout.readline() != "at work\n":
        assert process.poll() is None
    if whom == "all":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    said, _ = process.communicate(timeout=180)
    assert said == "saved\n"
    assert process.returncode == status


def test_works_side_by_side(tmp_path, monkeypatch):
    """Two at a time, as they are done; what they print is in their logs."""
    (tmp_path / "child.py").write_text("import sys; print('child', sys.argv[1])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    logs = [tmp_path / f"{number}.txt" for number in range(4)]
    both = threading.Barrier(2, timeout=60)  # else the first two wait for ever

    def work(number):
        if number < 2:
            both.wait()
        call("child", str(number), log=logs[number])
        return number

    assert sorted(side_by_side(2, [partial(work, number) for number in range(4)])) == [0, 1, 2, 3]
    for number, log in enumerate(logs):
        assert log.read_text().splitlines()[1:] == [
            f"$ python -m child {number}",
            f"child {number}",
        ]


def test_no_other_work_begins_after_a_failure():
    begun = []

    def work(number):
        begun.append(number)
        if number == 1:
            raise BadInput("no")
        return number

    with pytest.raises(BadInput):
        list(side_by_side(1, [partial(work, number) for number in range(50)]))
    assert begun == [0, 1]


def test_several_seeds_are_one_row_of_means_and_standard_errors():
    rows = [
        {"system": "CODER", "pooling": pooling, "en acc@1": score, "sim spearman": known}
        for pooling, score, known in (
            ("cls", 0.70, 0.5),
            ("mean", 0.3, 0.1),
            ("cls", 0.72, None),
            ("cls", 0.74, 0.5),
        )
    ]
    assert markdown(mean_rows(rows, ("system", "pooling"))) == (
        "| system | pooling | en acc@1 | sim spearman |\n"
        "| --- | --- | --- | --- |\n"
        "| CODER | cls | 72.0 ± 1.2 | undefined |\n"  # 2 / sqrt(3) points
        "| CODER | mean | 30.0 | 0.100 |\n"
    )


def test_what_a_row_does_not_have_is_empty():
    rows = mean_rows([{"name": "a", "x map": 0.5}, {"name": "b"}], ("name",))
    assert markdown(rows).splitlines()[2:] == ["| a | 50.0 |", "| b |  |"]
