"""The training loop, independent of any paper; `train` is the whole run from top to bottom."""

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from coder_jax.devices.feed import Fed, Feed, SaveClock
from coder_jax.devices.hosts import barrier, first_decides, is_first, log, must_agree
from coder_jax.devices.mesh import devices_in_words, peak_gigabytes, peak_tflops
from coder_jax.training.checkpoints import Checkpoints, comes_into_sight, newest_step
from coder_jax.training.metrics import BOARD, MetricsLog, Profile, scores_in_words, tracking
from coder_jax.training.refresh import Refresh
from coder_jax.training.run_folder import (
    RunFiles,
    RunJson,
    as_saved,
    before_change,
    check_identity,
    claim_run_folder,
    going_on,
    identity,
    lock_run,
    read_identity_if_any,
    read_run_identity,
    steps_of,
    typed_run,
    without_provenance,
)
from coder_jax.training.start import load_start
from coder_jax.training.state import TrainState, learning_rate, new_state, overview
from coder_jax.training.step import make_step
from coder_jax.training.system import (
    Config,
    Notes,
    OptimizerConfig,
    Params,
    SavedRun,
    View,
    proved,
    to_json,
)
from data_pipeline.batches.spec import BatchSource
from data_pipeline.files.identity import RUN, typed, write_identity
from data_pipeline.process import BadInput, Stopped

# -------------------------------------------------------------------------------------------------
# Log intervals: mean metrics of their steps, speed and health.


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pace:
    """What a run's speed is judged by.

    Attributes:
        flops: of `System.flops`, of this host's terms of a step.
        share: of all terms of a step that are this host's.
        devices: of all hosts.
        peak: TFLOP/s of one device at most; 0 if it is not known.
    """

    flops: Callable[[np.ndarray], float] = lambda lengths: 0.0
    share: float = 1.0
    devices: int = 1
    peak: float = 0.0


class _Window:
    """The steps between two lines of the log: their mean metrics, speed and health.

    Device values are fetched a step late, so that the devices never wait for Python.

    Args:
        terms: terms in a step.
        schedule: step -> learning rate.
        safe: where the last good state is, for the message about a loss that is not finite.
        pace: by which its speed is judged.
    """

    def __init__(
        self, terms: int, schedule: Callable[[int], Any], safe: str, pace: _Pace | None = None
    ):
        self.terms, self.schedule, self.safe = terms, schedule, safe
        self.pace = pace or _Pace()
        self.under_way: tuple[int, dict[str, jax.Array]] | None = None
        self.pauses = dict.fromkeys(("compile_s", "save_s", "eval_s", "refresh_s"), 0.0)
        self.restart()

    def restart(self) -> None:
        """Begin a new window: what was before the call does not count."""
        self.began, self.waited, self.pause = time.monotonic(), 0.0, 0.0
        self.fetched: list[dict[str, float]] = []
        self.fills: list[float] = []
        self.tokens, self.flops = 0, 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Time in this block counts as waiting for data."""
        began = time.monotonic()
        yield
        self.waited += time.monotonic() - began

    @contextlib.contextmanager
    def paused(self, kind: str = "") -> Iterator[None]:
        """Time in this block does not count as training; a kind of `pauses` adds it up."""
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        self.pause += seconds
        if kind:
            self.pauses[kind] += seconds

    def add(
        self, step: int, metrics: dict[str, jax.Array], *, fill: float, lengths: np.ndarray
    ) -> None:
        """Record a step that was just started, and fetch the metrics of the one before."""
        self.check()
        self.under_way = step, metrics
        self.fills.append(fill)
        self.tokens += int(lengths.sum())
        self.flops += self.pace.flops(lengths)

    def check(self) -> None:
        """Fetch outstanding metrics.

        Raises:
            BadInput: if a loss or a gradient is not finite; names the step.
        """
        if self.under_way is None:
            return
        step, arrays = self.under_way
        values = {name: float(value) for name, value in jax.device_get(arrays).items()}
        self.under_way = None
        if not (math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])):
            raise BadInput(
                f"step {step}: the loss is {values['loss']} and the gradient norm "
                f"{values['grad_norm']} (learning rate {float(self.schedule(step - 1)):.3g}). The "
                f"run stops and saves nothing more; the {self.safe} are good. The same settings "
                "would fail at the same step: begin another run with a lower learning rate or in "
                "float32, from the initial encoder or from this run (--from)"
            )
        self.fetched.append(values)

    def close(self) -> dict[str, float]:
        """The means over the window, its speed and what it used; then it starts anew.

        `step_seconds`: of the window, pauses left out. `tokens_per_s`: that are no padding, where
        terms are packed. `tflop_per_s`: of one device, where the operations are known; `mfu`: their
        share of its peak. `peak_memory_gb` and the `pauses`: since the process began.
        """
        step = self.under_way[0] if self.under_way else 0
        self.check()
        seconds = max(time.monotonic() - self.began - self.pause, 1e-9)
        values = {
            name: float(np.mean([metrics[name] for metrics in self.fetched]))
            for name in self.fetched[0]
        }
        values |= {
            "learning_rate": float(self.schedule(step - 1)),
            "terms_per_s": self.terms * len(self.fetched) / seconds,
            "fill": float(np.mean(self.fills)),
            "data_wait": self.waited / seconds,
            "step_seconds": seconds,
            "peak_memory_gb": peak_gigabytes(),
            **self.pauses,
        }
        if self.tokens:
            values["tokens_per_s"] = self.tokens / self.pace.share / seconds
        rate = self.flops / self.pace.share / self.pace.devices / seconds / 1e12
        if rate:
            values["tflop_per_s"] = rate
        if rate and self.pace.peak:
            values["mfu"] = rate / self.pace.peak
        self.restart()
        return values


# -------------------------------------------------------------------------------------------------
# `train`, the whole run.


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a finished run."""

    out: str
    steps: int
    seconds: float  # of training with its evaluations, in all processes of the run
    scores: dict[str, dict[str, float]]  # of the last evaluation; empty if there was none


def _with_warmup_of(
    saved: RunJson, wanted: OptimizerConfig, resolved: OptimizerConfig
) -> OptimizerConfig:
    """What is wanted, in whole steps; a run that becomes longer keeps its warm-up.

    A warm-up that is wanted as a share is a share of the steps that the run began with.
    """
    first = before_change(saved, 0)
    warmup = first["config"]["optimizer"].get("warmup_steps")  # systems may have their own
    is_share = 0 < wanted.warmup_steps < 1
    if is_share and warmup == round(wanted.warmup_steps * steps_of(first)):
        return dataclasses.replace(resolved, warmup_steps=warmup)
    return resolved


def train(config: Config, source: BatchSource) -> RunResult:
    """Train until the last step; resume the run in `config.run.out` if there is one.

    Every host calls it with the same configuration and its own source. A run that is asked to stop
    (`data_pipeline.process`) saves after the step that is under way.

    Args:
        config: the run.
        source: its batches, of `System.open`.

    Raises:
        Stopped: if the run was asked to stop, once it has saved.
        BadInput: if the run folder belongs to another run, if the data does not fit, if the state
            does not fit into the devices, or if the loss is not finite; the checkpoints that are
            there stay as they are.
    """
    # ---- Config: must be the same on all hosts ----
    began = time.time()
    wanted = config.optimizer
    config = dataclasses.replace(
        config,
        system=config.system.resolved().resolved_for(source),
        optimizer=config.optimizer.resolved_for(source),
    )
    config.validate()
    system, run, steps = config.system, config.run, config.optimizer.steps
    for name, value in to_json(config).items():
        for setting, chosen in value.items() if isinstance(value, dict) else [(name, value)]:
            must_agree(setting, chosen)
    must_agree("the content hash of --data", _content_hash(source))
    barrier("all hosts agree")  # before anything is written
    score = system.scorer(source, run) if run.eval_steps else None

    with contextlib.ExitStack() as opened:
        # ---- Run folder: claimed for this run; a different run is refused ----
        files = opened.enter_context(RunFiles(run.out, source.kept))
        saved = first_decides(read_identity_if_any(files.folder, system.name, system.content))
        initial: Params | None = None
        if saved is None:
            if run.extend:
                raise BadInput(f"--extend: there is no run in {files.name}; see to --out")
            start, initial = load_start(config, source)
            saved = current = identity(to_json(config), source.identity, start)
        else:
            config = dataclasses.replace(
                config, optimizer=_with_warmup_of(saved, wanted, config.optimizer)
            )
            current = identity(to_json(config), source.identity, saved["start"])
            newest = first_decides(newest_step(run.out))
            going_on(saved, current, files.name, step=newest, extend=run.extend)  # or it is refused
        # As a run that resumes has it: what it could not read back fails before the first step.
        recorded_start = typed_run(saved, system.content, files.name).start
        if is_first():
            if initial is not None:
                system.try_export(
                    SavedRun(step=0, params=initial, identity=saved, folder=source.folder)
                )
            claim_run_folder(files.folder, saved, source.folder, source.kept)
            if files.url is None:  # before a service hears of the run; a bucket has no locks
                opened.enter_context(lock_run(files.folder) or contextlib.nullcontext())
            files.publish()
        barrier("the run folder is there")
        files.fetch()
        if not comes_into_sight((files.folder / RUN.file).exists):
            raise BadInput(f"this host sees no run in {files.name}; --out must be shared by all")
        check_identity(read_run_identity(files.folder), saved, files.name)

        # ---- Devices, optimizer, step: as shapes, compiled before anything is loaded ----
        step_of_run = make_step(config, recorded_start, source.packed)
        assert source.cut == step_of_run.cut, "batches are cut for another mesh"
        log(overview(step_of_run.like, step_of_run.parts, spread_largest=run.shard_encoder))
        log(_run_in_a_line(config))
        cut = source.cut
        window = _Window(
            system.terms,
            learning_rate(config.optimizer),
            f"checkpoints in {files.name}",
            _Pace(
                flops=partial(system.flops, recorded_start),
                share=((cut.last or cut.blocks) - cut.first) / cut.blocks,
                devices=step_of_run.mesh.size,
                peak=run.peak_tflops or peak_tflops(),
            ),
        )
        with window.paused("compile_s"):
            needed = step_of_run.compile(source, source.plan.sizes[0])
        log(f"{needed}; compiled in {window.pauses['compile_s']:.0f} s")

        # ---- State: 1. this run's newest checkpoint; 2. --from; 3. the start's own files ----
        # What is opened last is closed first: a slow service must not keep a checkpoint waiting.
        tracker = opened.enter_context(
            tracking(run.track, files.folder, files.name, to_json(config))
        )
        keep = [run.save_steps] + ([system.refresh_steps] if system.refresh_steps else [])
        checkpoints = opened.enter_context(
            contextlib.closing(Checkpoints(Path(run.out), keep, run.keep))
        )
        notes = Notes()
        like, optimizer = step_of_run.like, step_of_run.optimizer
        if checkpoints.latest is None:
            if initial is None:  # the run stopped before its first checkpoint
                again, initial = load_start(config, source, recorded_start)
                found_again = identity(to_json(config), source.identity, again)["start"]
                check_identity(saved["start"], found_again, f"the start of {files.name}")
            initial |= system.precompute(source, recorded_start, initial, files.folder)
            state = new_state(like, system, initial, step_of_run.parts, optimizer)
            first_step = 0
        else:
            first_step, params, rest, found = checkpoints.restore(
                like.params, like.rest, saved, run.restore_step
            )
            notes = typed(found, Notes, f"the notes of step {first_step} of {files.name}")
            state = TrainState.restored(like, first_step, params, rest)
            state = step_of_run.lazy.settled_until(state, steps_of(as_saved(saved, first_step)))
            log(f"going on after step {first_step:,}")
        del initial  # the devices have it
        this_run = going_on(saved, current, files.name, step=first_step, extend=True)
        if this_run != saved:  # longer: written where nothing is left that could fail before a step
            if is_first():
                write_identity(files.folder / RUN.file, RUN, this_run)
                files.publish()
            log(f"now a run of {steps:,} steps; it goes on from step {first_step:,}")

        # ---- Evaluation and tracking of the run ----
        metrics_log = opened.enter_context(
            contextlib.closing(MetricsLog(files.folder, first_step, steps, tracker, began))
        )
        profile = opened.enter_context(Profile(files.folder / BOARD, run.profiled))
        clock = SaveClock(run.save_minutes)
        feed = Feed(step_of_run.mesh, clock)
        refresh = Refresh(system, files, step_of_run.mesh, recorded_start)
        proof = system.proof(source, recorded_start)
        if checkpoints.latest is None:
            outputs = proved(proof, state.params, state.extra, step_of_run.one_host)
            notes = msgspec.structs.replace(notes, proof_of_start=outputs)
        scores: dict[str, dict[str, float]] = {}

        def evaluate(step: int, state: TrainState) -> dict[str, dict[str, float]]:
            """The scores after a step; none if the run is asked to stop meanwhile."""
            if score is None:
                return {}
            window.check()  # do not score what a loss that is not finite has touched
            with window.paused("eval_s"):
                view = View(
                    step=step,
                    params=step_of_run.one_host(
                        {name: state.params[name] for name in system.scored or state.params}
                    ),
                    extra=step_of_run.one_host(state.extra),
                    mesh=step_of_run.mesh,
                    recorded_start=recorded_start,
                    computed=refresh.computed_after(step),
                )
                found: dict[str, dict[str, float]] = {}
                with contextlib.suppress(Stopped):
                    found = score(view)
                found = first_decides(found)
            if found:
                metrics_log.write(step, {"eval": found})
                metrics_log.log(f"step {step}: {scores_in_words(found)}")
            return found

        def is_best(step: int) -> bool:
            """Whether the scores of a step are the best so far, which is then recorded."""
            nonlocal notes
            if system.best is None or not scores or step == 0:
                return False
            benchmark, metric = system.best.split("/")
            value = scores[benchmark][metric]
            if notes.best is not None and value <= notes.best[1]:
                return False
            notes = msgspec.structs.replace(notes, best=(step, value))
            return True

        def save(step: int, state: TrainState) -> None:
            """Save the state after a step."""
            nonlocal notes
            window.check()
            with window.paused("save_s"):
                outputs = proved(proof, state.params, state.extra, step_of_run.one_host)
                notes = msgspec.structs.replace(notes, proof=outputs)
                files.publish()  # before: what a checkpoint goes on from is there with it
                contents = msgspec.to_builtins(notes)
                checkpoints.save(step, state.params, state.rest, identity=this_run, notes=contents)
            clock.restart()

        # ---- Before the first step: the scores that curves begin with ----
        if score is not None and (first_step % run.eval_steps == 0 or first_step == steps):
            scores = first_decides(metrics_log.scores(first_step)) or evaluate(first_step, state)
            if not scores:
                raise Stopped  # nothing is lost: the step before is saved
            is_best(first_step)  # the run may have been stopped while it looked

        # ---- Loop ----
        batches: Iterator[Fed] = iter(())
        window.restart()
        for step in range(first_step + 1, steps + 1):
            if step - 1 == first_step or refresh.due(step - 1):
                with window.paused("refresh_s"):
                    source, index = refresh.at(step - 1, state, source, notes.index)
                    notes = msgspec.structs.replace(notes, index=index)
                    batches = feed(source, step - 1, refresh.until(step - 1, steps))
            with window.waiting():
                fed = next(batches)
            if fed.rows not in step_of_run.compiled:
                try:
                    with window.paused("compile_s"):
                        step_of_run.compile(source, fed.rows)
                except BadInput:  # it does not fit: what was learnt so far is kept
                    save(step - 1, state)
                    raise
            if profile.begins(step):
                window.check()  # the step before is no part of it
                with window.paused():
                    profile.start()
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                state, metrics = step_of_run(state, fed.batch, fed.rows)
            window.add(step, metrics, fill=fed.fill, lengths=fed.lengths)
            if profile.ends(step):
                window.check()
                with window.paused():
                    metrics_log.log(profile.stop())
            metrics_log.show(step)
            last = step == steps
            if last:
                state = step_of_run.lazy.settled(state)
            if step % run.log_steps == 0 or last:
                values = window.close()
                metrics_log.write(step, values)
                shown = ("loss", "terms_per_s", "tflop_per_s", "mfu")
                metrics_log.show(step, {name: values[name] for name in shown if name in values})
            evaluated = score is not None and (step % run.eval_steps == 0 or last)
            if evaluated:
                scores = evaluate(step, state)
            asked = evaluated and not scores  # to stop, while it looked
            stop = feed.stops() or asked
            best = evaluated and is_best(step)
            kept = step % run.save_steps == 0 or refresh.due(step)
            if last and asked and system.best is not None:
                raise Stopped  # the last checkpoint tells which is the best: it needs its score
            if kept or best or feed.saves() or last or stop:
                save(step, state)
            if stop and not (last and (scores or score is None)):
                raise Stopped
            if last:
                metrics_log.log_end(values)
    return RunResult(files.name, steps, metrics_log.seconds, scores)


def _run_in_a_line(config: Config) -> str:
    """A summary of the run that starts, in one line."""
    system, epochs = config.system, config.optimizer.epochs
    as_epochs = f" ({epochs:g} epochs)" if epochs else ""
    return (
        f"recipe {config.recipe}: {config.optimizer.steps:,} steps{as_epochs} of "
        f"{system.terms:,} terms on {devices_in_words()}, in {system.arithmetic}; compiling, which "
        "may take minutes"
    )


def _content_hash(source: BatchSource) -> str:
    """A hash of the data, which hosts compare; a copy may have been built by another command."""
    said = json.dumps(without_provenance(source.identity), sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()
