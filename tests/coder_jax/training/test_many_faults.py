"""One run of training disturbed again and again, at random moments: nothing is lost.

It prints where the disturbances fell. Each of the 90 ends a process, so it takes long:

    bash launch/test.sh -m slow tests/coder_jax/training/test_many_faults.py -s
"""

import collections
import random
import shutil
import signal

import pytest
from training_process import (
    TrainingProcess,
    assert_nothing_lost,
    assert_same_end,
    finish,
    last_line,
    make_data,
    newest,
)

LONG_STEPS = 400
KILLS = 60
# Half of them fall before the first step, so this many in a row without a save are no accident.
MOST_WITHOUT_PROGRESS = 30


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many_faults")
    make_data(folder)
    return folder


@pytest.fixture(scope="module")
def long_straight(long_folder):
    """The undisturbed run of the long part, and the seconds of a process until its first save."""
    out = long_folder / "straight"
    flags = ("--save-minutes", "0", "--save-steps", "50")
    finish(long_folder, out, LONG_STEPS, *flags)  # compiles
    again = TrainingProcess(long_folder, long_folder / "again", LONG_STEPS, *flags)
    while again.first_save is None:
        assert not again.ended(again.age + 0.1), again.said()
    again.kill()
    return out, again.first_save


class Disturber:
    """Disturbs runs at random moments, until so many disturbances were made.

    A moment is uniform between the start of a process and twice the time that it takes until its
    first save, measured as it goes.

    Args:
        folder: of batches.
        straight: the undisturbed run.
        first_save: seconds until a process saves first.
        seed: of the moments.
    """

    def __init__(self, folder, straight, first_save, seed):
        self.folder, self.straight, self.first_save = folder, straight, first_save
        self.random = random.Random(seed)
        self.where = collections.Counter()
        self.most_lost = self.without_progress = self.runs = 0

    def disturb(self, times, how):
        """Run after run, each to its end; `how(process)` disturbs one and says what it was at."""
        flags = ("--save-minutes", "0", "--save-steps", "50")
        while self.where.total() < times:
            self.runs += 1
            out = self.folder / f"run{self.runs}"
            while True:
                process = TrainingProcess(self.folder, out, LONG_STEPS, *flags)
                moment = self.random.random() * 2 * self.first_save
                if self.where.total() == times:
                    moment = 3600.0
                if process.ended(moment):
                    assert process.process.returncode == 0, process.said()
                    break
                self.one_more(process, moment, how)
            assert_same_end(out, self.straight, LONG_STEPS)
            shutil.rmtree(out)

    def one_more(self, process, moment, how):
        doing = how(process)
        self.where[doing] += 1
        saved, logged = newest(process.out), last_line(process.out)
        print(f"{self.where.total()} {doing} after {moment:.2f} s: step {saved} saved", flush=True)
        assert saved >= process.restored
        assert_nothing_lost(process.out, checkpoints=2)
        if doing in ("step", "save"):
            self.most_lost = max(self.most_lost, logged - saved)
        # A machine that has become slower: what was not seen by then takes longer than that.
        seen = process.first_save or max(moment, self.first_save)
        self.first_save += 0.2 * (seen - self.first_save)
        self.without_progress = 0 if saved > process.restored else self.without_progress + 1
        assert self.without_progress < MOST_WITHOUT_PROGRESS, process.said()


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing(long_folder, long_straight):
    disturber = Disturber(long_folder, *long_straight, seed=3)
    disturber.disturb(KILLS, TrainingProcess.kill)
    print(
        f"{KILLS} kills over {disturber.runs} runs of {LONG_STEPS} steps: "
        f"{dict(disturber.where)}; at most {disturber.most_lost} steps taken again"
    )
    assert set(disturber.where) == {"start-up", "compile", "step", "save"}
    assert disturber.most_lost <= 2  # every step is saved; the save of the last may be under way


@pytest.mark.slow
def test_sigterm_at_random_moments_loses_nothing(long_folder, long_straight):
    def stop(process):
        doing = process.doing()
        process.process.send_signal(signal.SIGTERM)
        status = process.end()
        # The signal just ends it before the command listens, and once it has nothing left to do.
        done = newest(process.out) == LONG_STEPS
        ended = status == -signal.SIGTERM and (doing == "start-up" or done)
        assert status == 75 or ended or (status == 0 and done), process.said()
        assert status != 75 or newest(process.out) == last_line(process.out)
        return doing

    disturber = Disturber(long_folder, *long_straight, seed=4)
    disturber.disturb(30, stop)
    print(f"30 times SIGTERM over {disturber.runs} runs: {dict(disturber.where)}")
