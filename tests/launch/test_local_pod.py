"""local_pod.sh: real processes on this machine, mostly with a stand-in for Python."""

import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from launchers import finish, program, start, wait_for
from tiny_bert import WORDS, write_model

from coder_jax import TermEncoder

# A stand-in for Python that says where it was put; with `-c` (a free port) it is Python.
SHOW_PLACE = f"""#!/bin/sh
[ "$1" != -c ] || exec {sys.executable} "$@"
echo "place $JAX_PROCESS_ID of $JAX_NUM_PROCESSES at $JAX_COORDINATOR_ADDRESS"
echo "platforms $JAX_PLATFORMS, fake devices $JAX_NUM_CPU_DEVICES, gpus $JAX_LOCAL_DEVICE_IDS"
for argument in "$@"; do echo "argument: $argument"; done
"""


@pytest.fixture
def pod(repo, tmp_path):
    """Runs local_pod.sh with a stand-in for Python."""

    def run(python: str, *words: object, **environment: object) -> subprocess.Popen:
        stand_in = program(tmp_path / "python", python)
        script = repo / "launch/local_pod.sh"
        return start(
            script,
            *words,
            cwd=tmp_path,
            CODER_JAX_PYTHON=stand_in,
            TMPDIR=tmp_path,
            **environment,
        )

    return run


def test_each_process_gets_its_place_and_a_log(pod, tmp_path):
    words = ("3", "--logs", "my logs", "--devices-per-host", "2", "--", "--recipe", "my own")
    status, out, err = finish(pod(SHOW_PLACE, *words))
    assert status == 0, err
    logs = [(tmp_path / "my logs" / f"host{host}.log").read_text() for host in range(3)]
    places = [re.search(r"place (\d) of 3 at (localhost:\d+)", log) for log in logs]
    assert [place[1] for place in places if place] == ["0", "1", "2"]
    assert len({place[2] for place in places if place}) == 1, "they meet at one address"
    for log in logs:
        assert "platforms cpu, fake devices 2, gpus \n" in log
        assert re.findall("argument: (.*)", log) == [
            *("-P", "-m", "coder_jax", "train", "--recipe", "my own")
        ]
    assert out.splitlines() == [f"[0] {line}" for line in logs[0].splitlines()]


def test_gpus_are_dealt_out(pod, tmp_path):
    words = (
        "2",
        "--logs",
        tmp_path / "logs",
        "--devices-per-host",
        "3",
        "--",
        "python",
        "x.py",
    )
    status, _, err = finish(pod(SHOW_PLACE, *words, JAX_PLATFORMS="cuda"))
    assert status == 0, err
    for host, gpus in enumerate(["0,1,2", "3,4,5"]):
        log = (tmp_path / f"logs/host{host}.log").read_text()
        assert f"platforms cuda, fake devices , gpus {gpus}\n" in log
        assert re.findall("argument: (.*)", log) == ["-P", "x.py"]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((0, 0), 0),
        ((75, 75), 75),
        ((0, 134), 75),
        ((134, 2), 2),
        ((2, 137), 2),
        ((75, 1), 1),
        ((130, 130), 130),
    ],
)
def test_the_status_is_that_of_what_failed_by_itself(pod, statuses, expected):
    both = f'[ "$1" != -c ] || exec {sys.executable} "$@"\nset -- {statuses[0]} {statuses[1]}\n'
    python = f'#!/bin/sh\n{both}[ "$JAX_PROCESS_ID" = 0 ] || shift\nexit "$1"\n'
    assert finish(pod(python, "2", "--", "--x"))[0] == expected


def test_the_others_are_killed_if_they_do_not_end_by_themselves(pod):
    python = (
        f'#!/bin/sh\n[ "$1" != -c ] || exec {sys.executable} "$@"\n'
        '[ "$JAX_PROCESS_ID" = 1 ] && exit 2\ntrap "" TERM\nsleep 600\n'
    )
    status, _, err = finish(pod(python, "3", "--grace", "1", "--", "--x"))
    assert status == 2, err
    assert "process 1 ended with status 2" in err
    assert "process 0 ended with status 137" in err


def test_all_start_again_at_one_address_as_often_as_asked(pod, tmp_path):
    python = (
        f'#!/bin/sh\n[ "$1" != -c ] || exec {sys.executable} "$@"\n'
        f'echo "$JAX_COORDINATOR_ADDRESS" >>"{tmp_path}/starts"\n'
        f'[ "$(wc -l <"{tmp_path}/starts")" -gt 4 ] || sleep 0.5\n'
        f'[ "$(wc -l <"{tmp_path}/starts")" -gt 4 ] || exit 75\n'
    )
    status, _, err = finish(pod(python, "2", "--restarts", "1", "--", "--x"))
    assert status == 75, err
    starts = (tmp_path / "starts").read_text().split()
    assert len(starts) == 4 and starts[0] == starts[1] and starts[2] == starts[3]
    assert finish(pod(python, "2", "--restarts", "1", "--", "--x"))[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_goes_to_all_of_them_and_nothing_starts_again(pod, tmp_path, number):
    name = signal.Signals(number).name.removeprefix("SIG")
    python = (
        f'#!/bin/bash\n[ "$1" != -c ] || exec {sys.executable} "$@"\n'
        f'trap "echo told; exit 75" {name}\n'
        f'touch "{tmp_path}/ready$JAX_PROCESS_ID"\nwhile :; do sleep 0.1; done\n'
    )
    process = pod(python, "2", "--logs", "logs", "--restarts", "5", "--", "--x")
    wait_for(tmp_path / "ready0", tmp_path / "ready1")
    process.send_signal(number)
    status, _, err = finish(process)
    assert status == 75, err
    for host in range(2):
        assert (tmp_path / f"logs/host{host}.log").read_text() == "told\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("two", "--", "x"), "the number of processes is 'two'"),
        (("0", "--", "x"), "expected 1 or more"),
        (("2",), "what shall the processes run"),
        (("2", "--"), "what shall the processes run"),
        (("2", "--recipe", "small"), "come after '--'"),
        (("2", "--logs"), "--logs needs a folder"),
        (("2", "--logs", "python/x", "--", "x"), "--logs: the folder 'python/x' cannot be made"),
        (("2", "--restarts", "x", "--", "x"), "--restarts is 'x'"),
    ],
)
def test_what_was_typed_wrong_is_named(pod, words, message):
    status, out, err = finish(pod(SHOW_PLACE, *words))
    assert (status, out) == (2, "") and message in err


@pytest.mark.slow
def test_two_processes_encode_one_file(repo, tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "Ordner für Ä"
    folder.mkdir()
    write_model(folder / "model")
    terms = [f"{first} {second}" for first in WORDS.split() for second in WORDS.split()]
    (folder / "terms.txt").write_text("\n".join(terms) + "\n")
    words = ("encode", "--model", "model", "--out", "vectors.npy", "terms.txt")
    process = start(
        *(repo / "launch/local_pod.sh", "2", "--logs", "logs", "--", *words),
        *("--terms-per-chunk", "10"),
        cwd=folder,
        CODER_JAX_PYTHON=sys.executable,
    )
    status, out, err = finish(process, timeout=600)
    assert status == 0, out + err
    assert f"vectors.npy: {len(terms)} vectors of width 32" in out
    assert "vectors.npy" not in (folder / "logs/host1.log").read_text(), "host 0 alone says it"
    expected = TermEncoder.from_pretrained(folder / "model").encode(terms)
    np.testing.assert_allclose(np.load(folder / "vectors.npy"), expected, rtol=0, atol=1e-6)
    assert {path.name for path in folder.iterdir()} == {
        *("model", "terms.txt", "logs", "vectors.npy", "vectors.npy.json")
    }


def test_jax_sees_the_devices_of_all_processes(repo, tmp_path):
    (tmp_path / "count.py").write_text(
        "import jax\nfrom coder_jax.devices import hosts\n\n"
        "def work():\n    print(jax.process_index(), jax.device_count(), flush=True)\n"
        "    return 0\n\nhosts.run_on_hosts(work)\n"
    )
    process = start(
        *(repo / "launch/local_pod.sh", "2", "--devices-per-host", "3", "--logs", "logs"),
        *("--", "python", "count.py"),
        cwd=tmp_path,
        CODER_JAX_PYTHON=sys.executable,
    )
    status, out, err = finish(process)
    assert status == 0, err
    assert "[0] 0 6\n" in out
    assert "1 6\n" in (tmp_path / "logs/host1.log").read_text()
