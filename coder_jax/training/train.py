"""The training run: a configuration and a source of batches in, a trained encoder on disk out.

Read `train` from top to bottom: it is the whole run.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from huggingface_hub import ModelCard

from coder_jax.devices.feed import Feed, SaveClock
from coder_jax.devices.hosts import barrier, first_decides, is_first, must_agree
from coder_jax.devices.memory_plan import check_memory, plan_memory
from coder_jax.devices.mesh import local_copy
from coder_jax.evaluation.normalization.heldout import HeldOut, in_words
from coder_jax.models.bert import Bert, abstract_bert
from coder_jax.models.bert_config import BertConfig
from coder_jax.models.hf_files import find_folder
from coder_jax.models.hf_weights import check_vocabulary, load_bert
from coder_jax.runs.checkpoint import Checkpoints
from coder_jax.runs.files import RunFiles
from coder_jax.runs.folder import check_identity, claim_run_folder, identity, read_identity
from coder_jax.runs.metrics import MetricsLog, Window
from coder_jax.training.config import Config, to_json
from coder_jax.training.lazy_rows import settle
from coder_jax.training.optimizer import learning_rate
from coder_jax.training.run_step import RunStep, make_run_step
from coder_jax.training.state import (
    TrainState,
    merge_encoder,
    new_state,
    split_encoder,
)
from data_pipeline.batches.spec import RowPlan, StepCut
from data_pipeline.dataset.tokenize_terms import load_tokenizer, tokenizer_hash
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import Stopped


class BatchSource(Protocol):
    """Where batches come from: a `BatchMaker` over a dataset, or `BatchFiles` written before."""

    folder: Path
    """Holds `tokenizer/`, and `heldout/` if terms were held out."""
    cut: StepCut
    """How the steps are cut for the devices."""
    plan: RowPlan
    """The numbers of rows that a block can have."""
    manifest: Mapping[str, Any]
    """Of the dataset."""

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """This host's batches of first_step to last_step - 1, as `BatchMaker.batch` says."""
        ...


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a finished run has to say."""

    out: str
    steps: int
    seconds: float  # of training with its evaluations, in all processes of the run
    heldout: dict[str, float]  # scores of the last evaluation; empty if there was none


def initial_encoder(config: Config, manifest: Mapping[str, Any]) -> tuple[Bert, dict[str, Any]]:
    """The encoder that a new run starts from, and what `identity` keeps of it.

    Raises:
        BadInput: if the dataset was tokenized with another tokenizer than the encoder's own.
    """
    init = config.model.init
    folder = find_folder(init)
    found = tokenizer_hash(load_tokenizer(folder))
    expected = manifest["tokenizer"]["hash"]
    if found != expected:
        raise BadInput(
            f"the tokenizer of {init} has hash {found[:12]}, but the dataset was tokenized with "
            f"{manifest['tokenizer']['name']}, hash {expected[:12]}; build the dataset with "
            f"--tokenizer {init}, or start from the other encoder"
        )
    bert, hf_config, report = load_bert(folder, pooling=config.model.pooling)
    say(str(report))
    check_vocabulary(manifest["tokenizer"]["vocab_size"], bert.config, init)
    longest = manifest["tokenizer"]["max_length"]
    if longest > bert.config.longest_term:
        raise BadInput(
            f"the dataset's terms have up to {longest} tokens, but {init} has "
            f"{bert.config.longest_term} positions; build it with a smaller --max-length"
        )
    return bert, {
        "config": hf_config,
        "pooler": bert.pooler is not None,
        "license": read_license(folder),
    }


def read_license(folder: Path) -> str | None:
    """The license that the model card in a Hugging Face folder states, if there is one."""
    card = folder / "README.md"
    return ModelCard.load(card).data.license if card.exists() else None


def encoder_structure(config: Config, encoder: Mapping[str, Any]) -> Bert:
    """The encoder as shapes, with the run's dropout and arithmetic."""
    bert_config, rate = BertConfig.from_hf(encoder["config"]), config.model.dropout
    if rate is not None:
        bert_config = dataclasses.replace(bert_config, hidden_dropout=rate, attention_dropout=rate)
    return abstract_bert(bert_config, jnp.dtype(config.model.dtype), pooler=encoder["pooler"])


def resolve_dtype(config: Config) -> Config:
    """The configuration with `auto` decided, so that a run never changes its arithmetic."""
    if config.model.dtype != "auto":
        return config
    dtype: Any = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    return dataclasses.replace(config, model=dataclasses.replace(config.model, dtype=dtype))


def say(text: str) -> None:
    """Print on the first host alone."""
    if is_first():
        print(text)


def train(config: Config, source: BatchSource) -> RunResult:
    """Train until the last step; go on where the run in `config.run.out` stopped, if there is one.

    Every host calls it with the same configuration and its own source. A run that is asked to stop
    (`data_pipeline.process.stopping`) saves after the step that is under way.

    Args:
        config: the run.
        source: its batches.

    Raises:
        Stopped: if the run was asked to stop, once it has saved.
        BadInput: if the run folder belongs to another run, if tokenizer and dataset do not fit, if
            the state does not fit into the devices, or if the loss is not finite; the checkpoints
            that are there stay as they are.
    """
    # ---- Config ----
    config = resolve_dtype(config)
    config.validate()
    run = config.run
    for name, value in to_json(config).items():
        for setting, chosen in value.items() if isinstance(value, dict) else [(name, value)]:
            must_agree(setting, chosen)
    must_agree("the content hash of --data", source.manifest["content_hash"])
    barrier("all hosts agree")  # before anything is written
    _check_dataset(config, source)
    heldout = None
    if run.eval_steps:
        heldout = HeldOut(source.folder, source.manifest, config.model.pooling, run.eval_terms)

    # ---- Run folder ----
    with RunFiles(run.out) as files:
        bert = None
        if (files.here / "run.json").exists():
            there = read_identity(files.here)
            encoder = there["encoder"]
            check_identity(there, identity(config, source.manifest, encoder), files.name)
        else:
            bert, encoder = initial_encoder(config, source.manifest)
        this_run = identity(config, source.manifest, encoder)
        if is_first():
            claim_run_folder(files.here, this_run, source.folder / "tokenizer")
            files.publish()
        barrier("the run folder is there")
        files.fetch()
        if not (files.here / "run.json").exists():
            raise BadInput(f"this host sees no run in {files.name}; --out must be shared by all")
        check_identity(read_identity(files.here), this_run, files.name)
        with contextlib.closing(Checkpoints(Path(run.out), run.save_steps)) as checkpoints:
            if bert is None and checkpoints.latest is None:  # it stopped before its first
                bert, _ = initial_encoder(config, source.manifest)
            return _take_steps(config, source, files, checkpoints, this_run, bert, heldout)


def _check_dataset(config: Config, source: BatchSource) -> None:
    """BadInput if the dataset lacks what the loss needs."""
    if config.loss.mu and not source.manifest["relations"]:
        raise BadInput(
            f"mu is {config.loss.mu}, but {source.folder} has no relations; use --mu 0 to train on "
            "synonyms alone"
        )
    if config.loss.type_weight and not source.manifest["semantic_types"]:
        raise BadInput(
            f"type_weight is {config.loss.type_weight}, but {source.folder} has no semantic types "
            "(MRSTY.RRF); use --type-weight 0"
        )


def _take_steps(
    config: Config,
    source: BatchSource,
    files: RunFiles,
    checkpoints: Checkpoints,
    this_run: dict[str, Any],
    bert: Bert | None,
    heldout: HeldOut | None,
) -> RunResult:
    """The run from its folder on: from `bert`, or if that is None from the newest checkpoint."""
    run, steps = config.run, config.optimizer.steps
    made, state = _prepare(config, source, checkpoints, this_run, bert)
    first_step = int(state.step)
    log = MetricsLog(files.here, first_step, steps)
    window = Window(
        config.batch.terms, learning_rate(config.optimizer), f"checkpoints in {files.name}"
    )
    clock = SaveClock(run.save_minutes)
    feed = Feed(made.mesh, source.cut, source.plan, clock)
    scores: dict[str, float] = {}

    def look(step: int) -> dict[str, float]:
        """Scores on the held-out terms; none if the run is asked to stop meanwhile."""
        if heldout is None or (step % run.eval_steps and step < steps):
            return scores
        window.check()  # do not score what a loss that is not finite has touched
        with window.paused(), contextlib.suppress(Stopped):
            return _score_heldout(heldout, made, state, step, log)
        return {}

    # ---- Loop ----
    try:
        if first_step and not first_decides(log.has_scores(first_step)):
            scores = look(first_step)  # the run was stopped while it looked
        batches = feed(source.batches(first_step, steps))
        for step in range(first_step + 1, steps + 1):
            with window.waiting():
                fed = next(batches)
            state, metrics = made.train_step(state, fed.batch)
            window.add(step, metrics, fill=fed.fill)
            last = step == steps
            if step % run.log_steps == 0 or last:
                values = window.close()
                log.write(step, values)
                log.show(step, {name: values[name] for name in ("loss", "terms_per_s")})
            scores = look(step)
            stop = feed.stop
            if last:
                state = settle(state, config.optimizer)
            if step % run.save_steps == 0 or feed.save or last or stop:
                window.check()
                files.publish()  # before: what a checkpoint goes on from is there with it
                checkpoints.save(state, step, this_run)
                clock.restart()
            if stop and not (last and (scores or heldout is None)):
                raise Stopped
    finally:
        log.close()
    return RunResult(files.name, steps, log.seconds, scores)


def _score_heldout(
    heldout: HeldOut, made: RunStep, state: TrainState, step: int, log: MetricsLog
) -> dict[str, float]:
    """The scores of the encoder of the moment, also written and said; Stopped if asked to."""
    encoder_params = local_copy(made.mesh, state.params["encoder"])
    found = heldout.scores(merge_encoder(made.graph, encoder_params))
    log.write(step, {"eval": {"heldout": found}})
    log.say(f"step {step}: held-out {in_words(found)}")
    return found


def _prepare(
    config: Config,
    source: BatchSource,
    checkpoints: Checkpoints,
    this_run: dict[str, Any],
    bert: Bert | None,
) -> tuple[RunStep, TrainState]:
    """The step and the state before it: what `_take_steps` begins with."""
    structure = encoder_structure(config, this_run["encoder"])
    relations, types = (len(source.manifest[name]) for name in ("relations", "semantic_types"))
    made = make_run_step(config, structure, relations, types)
    assert source.cut == made.cut, "batches are cut for another mesh"
    plan = plan_memory(made.like, structure, config.batch, source.cut, source.plan)
    say(check_memory(plan))
    if bert is None:
        return made, checkpoints.restore(made.like, this_run, config.run.restore_step)
    noise, seed = config.model.relation_noise, config.batch.seed
    encoder = split_encoder(bert)[1]
    return made, new_state(made.like, encoder, made.optimizer, noise=noise, seed=seed)
