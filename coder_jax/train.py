"""The training run: a configuration and a source of batches in, a trained encoder on disk out.

Read `train` from top to bottom: it is the whole run.
"""

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from huggingface_hub import ModelCard

from coder_jax.bert import Bert, abstract_bert
from coder_jax.bert_config import BertConfig
from coder_jax.checkpoint import Checkpoints, claim_run_folder, identity, read_identity
from coder_jax.config import Config
from coder_jax.encoder import TermEncoder
from coder_jax.encoder_settings import EncoderSettings
from coder_jax.evaluation.benchmarks import NormalizationBenchmark, read_benchmark
from coder_jax.evaluation.normalization import evaluate_normalization
from coder_jax.hf_files import find_folder
from coder_jax.hf_weights import check_vocabulary, load_bert
from coder_jax.mesh import make_mesh, put_batch, replicated
from coder_jax.metrics import MetricsLog, Window
from coder_jax.optimizer import learning_rate, make_optimizer
from coder_jax.relations import init_relations
from coder_jax.state import abstract_state, merge_encoder, new_state, split_encoder
from coder_jax.step import make_train_step
from data_pipeline.errors import BadInput
from data_pipeline.tokenize_terms import load_tokenizer, tokenizer_hash


class BatchSource(Protocol):
    """Where batches come from: a `BatchMaker` over a dataset, or `BatchFiles` written before."""

    folder: Path
    """Holds `tokenizer/`, and `heldout/` if terms were held out."""
    manifest: Mapping[str, Any]
    """Of the dataset."""

    def batches(self, first_step: int, last_step: int) -> Iterator[dict[str, np.ndarray]]:
        """The batches of steps first_step to last_step - 1, each as `BatchMaker.batch` says."""
        ...


class HeldOut:
    """Normalization of the dataset's held-out terms, with the parameters of the moment.

    Args:
        source: `heldout/` in its folder has the mentions and the dictionary.
        pooling: how terms become vectors.
        most_terms: search at most so many terms: a quick look at a run, not its final score.

    Raises:
        BadInput: if no terms were held out when the dataset was built.
    """

    def __init__(self, source: BatchSource, pooling: str, most_terms: int):
        mentions = source.folder / "heldout" / "mentions.tsv"
        if not mentions.exists():
            raise BadInput(
                f"eval_steps is set, but {source.folder} has no held-out terms; build it with "
                "--hold-out, or use --eval-steps 0"
            )
        benchmark = read_benchmark("heldout", mentions)
        assert isinstance(benchmark, NormalizationBenchmark)
        self.benchmark = with_dictionary_of(benchmark, most_terms)
        self.tokenizer = load_tokenizer(source.folder / "tokenizer")
        self.settings = EncoderSettings(
            pooling=pooling,
            cleaning=source.manifest["cleaning"],
            max_length=source.manifest["tokenizer"]["max_length"],
        )

    def scores(self, bert: Bert) -> dict[str, float]:
        """acc@1, acc@5 and mrr of an encoder, and the number of terms that were searched."""
        encoder = TermEncoder(bert, self.tokenizer, self.settings)
        scores = evaluate_normalization(encoder.encode, self.benchmark).scores
        rounded = {name: round(scores[name], 4) for name in ("acc@1", "acc@5", "mrr")}
        return rounded | {"terms": len(self.benchmark.folds[0].dictionary.terms)}


def in_words(scores: Mapping[str, float]) -> str:
    """The scores of `HeldOut` for the terminal."""
    shown = "  ".join(f"{name} {scores[name]:.4f}" for name in ("acc@1", "acc@5", "mrr"))
    return f"{shown}  (among {scores['terms']:,} terms)"


def with_dictionary_of(
    benchmark: NormalizationBenchmark, most_terms: int
) -> NormalizationBenchmark:
    """The benchmark with the terms of its gold concepts, then others up to `most_terms` in all."""
    (fold,) = benchmark.folds
    terms, concepts = fold.dictionary.terms, fold.dictionary.concepts
    gold = set(fold.gold)
    order = sorted(range(len(terms)), key=lambda i: concepts[i] not in gold)
    order = order[: max(most_terms, sum(concept in gold for concept in concepts))]
    dictionary = dataclasses.replace(
        fold.dictionary, terms=[terms[i] for i in order], concepts=[concepts[i] for i in order]
    )
    return dataclasses.replace(benchmark, folds=[dataclasses.replace(fold, dictionary=dictionary)])


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a finished run has to say."""

    out: Path
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
    print(report)
    check_vocabulary(manifest["tokenizer"]["vocab_size"], bert.config, init)
    longest = manifest["tokenizer"]["max_length"]
    if longest > bert.config.max_positions:
        raise BadInput(
            f"the dataset's terms have up to {longest} tokens, but {init} has "
            f"{bert.config.max_positions} positions; build it with a smaller --max-length"
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


def train(config: Config, source: BatchSource, stop: threading.Event | None = None) -> RunResult:
    """Train until the last step; go on where the run in `config.run.out` stopped, if there is one.

    Args:
        config: the run.
        source: its batches.
        stop: once it is set, the run saves after the step that is under way, and stops.

    Raises:
        KeyboardInterrupt: if `stop` was set.
        BadInput: if the run folder belongs to another run, if tokenizer and dataset do not fit,
            or if the loss is not finite; the checkpoints that are there stay as they are.
    """
    # ---- Config ----
    config = resolve_dtype(config)
    config.validate()
    out, run, steps = Path(config.run.out), config.run, config.optimizer.steps
    stop = stop or threading.Event()
    relations = len(source.manifest["relations"]) if config.loss.mu else 0
    if config.loss.mu and not relations:
        raise BadInput(
            f"mu is {config.loss.mu}, but {source.folder} has no relations; use --mu 0 to train on "
            "synonyms alone"
        )
    heldout = HeldOut(source, config.model.pooling, run.eval_terms) if run.eval_steps else None

    # ---- Run folder ----
    bert = None
    if (out / "run.json").exists():
        encoder = read_identity(out)["encoder"]
    else:
        bert, encoder = initial_encoder(config, source.manifest)
    this_run = identity(config, source.manifest, encoder)
    claim_run_folder(out, this_run, source.folder / "tokenizer")
    checkpoints = Checkpoints(out, run.save_steps)
    if bert is None and checkpoints.latest is None:  # it stopped before its first checkpoint
        bert, _ = initial_encoder(config, source.manifest)

    # ---- Mesh, state ----
    mesh = make_mesh()
    structure = encoder_structure(config, encoder)
    graph, shapes = split_encoder(structure)
    optimizer = make_optimizer(config.optimizer)
    width, noise = structure.config.hidden_size, config.model.relation_noise
    if bert is None:
        like = abstract_state(shapes, relations, width, optimizer, replicated(mesh))
        state = checkpoints.restore(like, this_run)
    else:
        table = None
        if relations:
            table = init_relations(relations, width, noise=noise, seed=config.batch.seed)
        state = new_state(split_encoder(bert)[1], table, optimizer, replicated(mesh))
        del bert, table  # the state holds them now
    first_step = int(state.step)

    # ---- Step, logs ----
    train_step = make_train_step(
        graph,
        config.loss,
        optimizer,
        mesh,
        pooling=config.model.pooling,
        seed=config.batch.seed,
        dropout=True,
    )
    log = MetricsLog(out, first_step, steps)
    window = Window(config.batch.terms, learning_rate(config.optimizer), f"checkpoints in {out}")
    saved = time.monotonic()
    scores: dict[str, float] = {}

    # ---- Loop ----
    try:
        batches = source.batches(first_step, steps)
        for step in range(first_step + 1, steps + 1):
            with window.waiting():
                batch = next(batches)
            state, metrics = train_step(state, put_batch(mesh, batch))
            window.add(step, metrics, fill=float(np.mean(batch["segments"] > 0)))
            last = step == steps
            if step % run.log_steps == 0 or last:
                values = window.close()
                log.write(step, values)
                log.show(step, {name: values[name] for name in ("loss", "terms_per_s")})
            if heldout and (step % run.eval_steps == 0 or last):
                window.check()  # neither score nor keep what a loss that is not finite has touched
                with window.paused():
                    scores = heldout.scores(merge_encoder(graph, state.params["encoder"]))
                log.write(step, {"eval": {"heldout": scores}})
                log.say(f"step {step}: held-out {in_words(scores)}")
            due = time.monotonic() - saved > 60 * run.save_minutes
            if step % run.save_steps == 0 or due or last or stop.is_set():
                window.check()
                checkpoints.save(state, step, this_run)
                saved = time.monotonic()
            if stop.is_set() and not last:
                raise KeyboardInterrupt
    finally:
        log.close()
        checkpoints.close()
    return RunResult(out, steps, log.seconds, scores)
