"""Processes that are measured: what they answer, and that one which fails ends all."""

import os
import select
import subprocess
import sys

import pytest

from benchmarks.process import Child, huge_pages, in_a_process, run_child
from data_pipeline.process import BadInput

ECHO = "import sys\nfor line in sys.stdin: print(line, flush=True, end='')"
FAILS = "import sys; sys.exit('no such release')"


def test_a_child_answers_and_ends():
    child = Child([sys.executable, "-c", ECHO])
    assert child.ask("[1, 2]") == [1, 2]
    assert child.ask("3") == 3
    ended = child.finish()
    assert ended.seconds > 0 and ended.peak_gb > 0 and ended.said == ""


def test_a_child_that_fails_is_named(capfd):
    with pytest.raises(BadInput, match="ended with status 1; see above"):
        run_child([sys.executable, "-c", FAILS])
    assert "no such release" in capfd.readouterr().err


def test_a_question_to_a_child_that_has_ended(capfd):
    child = Child([sys.executable, "-c", FAILS])
    child._listener.join()  # it has ended, or is about to
    with pytest.raises(BadInput, match="ended with status 1; see above"):
        child.ask("1" * 100_000)


def test_a_child_that_fails_ends_all(repo):
    """Another that waits for a question must not keep the process alive."""
    code = (
        "import sys\n"
        "from benchmarks.process import Child\n"
        "from data_pipeline.process import run_command\n"
        "def work():\n"
        f"    waits = Child([sys.executable, '-c', {ECHO!r}])\n"
        f"    Child([sys.executable, '-c', {FAILS!r}]).answer()\n"
        "sys.exit(run_command(work, when_asked=None))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    assert "no such release" in done.stderr and "ended with status 1" in done.stderr


SLEEPS = """
import os, time
from benchmarks.process import in_a_process

def work():
    os.write(1, b"at work")
    time.sleep(600)

if __name__ == "__main__":
    in_a_process(work)
"""


def test_a_process_ends_with_the_one_that_started_it(repo, tmp_path):
    """At once, not when its work is done: then nobody holds the pipe that both write to."""
    (script := tmp_path / "sleeps.py").write_text(SLEEPS)
    environment = os.environ | {"PYTHONPATH": str(repo)}
    with subprocess.Popen(
        [sys.executable, script], env=environment, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        assert os.read(started.stdout.fileno(), 100) == b"at work"
        started.kill()
        readable, _, _ = select.select([started.stdout], [], [], 20)
        assert readable and os.read(started.stdout.fileno(), 100) == b"", "it works on"


def test_a_call_in_a_process():
    assert in_a_process(os.getpid) != os.getpid()
    with pytest.raises(FileNotFoundError):
        in_a_process(os.stat, "/nowhere")
    with pytest.raises(BadInput, match="a process was killed"):
        in_a_process(os.abort)


@pytest.mark.parametrize("before", [None, "glibc.malloc.check=0"])
def test_huge_pages_are_asked_for_and_the_environment_is_put_back(monkeypatch, before):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if before:
        monkeypatch.setenv("GLIBC_TUNABLES", before)
    with pytest.raises(KeyError), huge_pages():
        assert in_a_process(os.getenv, "GLIBC_TUNABLES") == "glibc.malloc.hugetlb=1"
        raise KeyError
    assert os.environ.get("GLIBC_TUNABLES") == before
