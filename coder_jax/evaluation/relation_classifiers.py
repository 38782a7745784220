"""Relation classifiers on fixed or fine-tuned vectors: training and scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
from flax import nnx

from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord, VectorFileProtocol
from coder_jax.evaluation.relation_pairs import FROZEN, RelationPairs
from coder_jax.evaluation.results import ABOUT, named, resampled
from coder_jax.evaluation.vectors import TERMS, TableVectors, Vectors, known_features
from coder_jax.models.bert import Bert
from data_pipeline import process
from data_pipeline.dataset.tokenizer import tokenize
from data_pipeline.process import BadInput
from data_pipeline.terminology.cleaning import clean

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.evaluation.relation_pairs import RelationHalves


# -------------------------------------------------------------------------------------------------
# Training of a linear softmax on pairs of vectors: W [e_h, e_t] + b, cross-entropy, Adam.
#
# Neither paper names optimizer or schedule. CODER's released code has Adam without weight decay,
# for encoders with a linear warm-up over the first 10 % of the steps and then a linear decay to
# zero, otherwise with a constant rate, and PyTorch's initial values of a linear layer. So does
# this.


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """Settings of the classifier's training; the defaults are those for fixed features of an
    encoder.

    Attributes:
      epochs: passes over the training pairs, each in a new random order.
      batch_pairs: pairs per step; the last step of an epoch has what is left.
      learning_rate: at its peak.
      warmup: share of the steps in which the rate rises linearly from zero; it then falls
        linearly to zero. None: a constant rate.
      seed: of the initial values and the order.
    """

    epochs: int = 50
    batch_pairs: int = 512
    learning_rate: float = 1e-3
    warmup: float | None = 0.1
    seed: int = 0


# (params, data, pairs int32 [B, 2], step or None where nothing is trained) -> logits [B, classes]
_Scorer = Callable[[Any, Any, jax.Array, jax.Array | None], jax.Array]


def _initial_layer(width: int, classes: int, seed: int) -> dict[str, jax.Array]:
    """W [width, classes] and b [classes], uniform in +-1 / sqrt(width), PyTorch's default."""
    bound = width**-0.5
    of_kernel, of_bias = jax.random.split(jax.random.key(seed))
    uniform = jax.random.uniform
    return {
        "W": uniform(of_kernel, (width, classes), minval=-bound, maxval=bound),
        "b": uniform(of_bias, (classes,), minval=-bound, maxval=bound),
    }


def _logits(params: Mapping[str, jax.Array], vectors_B2D: jax.Array) -> jax.Array:
    """W [e_h, e_t] + b of B pairs of vectors, float32 [B, classes]."""
    joined_BF = vectors_B2D.reshape(len(vectors_B2D), -1)
    product_BK = jnp.matmul(joined_BF, params["W"], precision=jax.lax.Precision.HIGHEST)
    return product_BK + params["b"][None]


def _pair_logits(
    params: Mapping[str, jax.Array], features_CD: jax.Array, pairs_B2: jax.Array, _: object
) -> jax.Array:
    """Logits of pairs of concepts, given as rows of their features: a `_Scorer`."""
    return _logits(params, features_CD[pairs_B2])


def _cross_entropy(logits_BK: jax.Array, labels_B: jax.Array, weights_B: jax.Array) -> jax.Array:
    """The weighted mean cross-entropy; a weight of 0 leaves a row out."""
    each_B = optax.softmax_cross_entropy_with_integer_labels(logits_BK, labels_B)
    return jnp.sum(each_B * weights_B) / jnp.sum(weights_B)


def _learning_rates(settings: ClassifierSettings, steps: int) -> optax.Schedule:
    """Step, from 0, -> learning rate."""
    if settings.warmup is None:
        return optax.constant_schedule(settings.learning_rate)
    rising = int(settings.warmup * steps)
    peak = settings.learning_rate
    rise = optax.linear_schedule(0.0, peak, rising)
    fall = optax.linear_schedule(peak, 0.0, steps - rising)
    return optax.join_schedules([rise, fall], [rising])


def _fit(
    params: Any, data: Any, scorer: _Scorer, rows: np.ndarray, settings: ClassifierSettings
) -> tuple[Any, float]:
    """Trains parameters with Adam; the parameters and the mean loss of the last epoch.

    Args:
      params: any tree of arrays.
      data: what else the scorer needs, on the devices.
      scorer: gives the logits of pairs.
      rows: int32 [n, 3], the training pairs and their labels.

    Raises:
      BadInput: the loss is not finite.
      Stopped: a signal asked for it.
    """
    size = min(settings.batch_pairs, len(rows))
    per_epoch = -(-len(rows) // size)
    optimizer = optax.adam(_learning_rates(settings, settings.epochs * per_epoch))

    @jax.jit
    def step(params, state, data, batch_B3, weights_B, number):
        def loss(params):
            logits_BK = scorer(params, data, batch_B3[:, :2], number)
            return _cross_entropy(logits_BK, batch_B3[:, 2], weights_B)

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    state = jax.jit(optimizer.init)(params)
    rng = np.random.default_rng(settings.seed)
    losses: list[jax.Array] = []
    for epoch in range(settings.epochs):
        order = rng.permutation(len(rows))
        losses = []
        for turn in range(per_epoch):
            process.poll()
            chosen = order[turn * size : (turn + 1) * size]
            weights = (np.arange(size) < len(chosen)).astype(np.float32)
            batch = rows[np.resize(chosen, size)]
            number = np.uint32(epoch * per_epoch + turn)
            arrays = jax.device_put((batch, weights, number))
            params, state, value = step(params, state, data, *arrays)
            losses.append(value * jax.device_put(np.float32(len(chosen))))
    final = float(np.sum(jax.device_get(losses)) / len(rows))
    if not np.isfinite(final):
        raise BadInput(
            f"found a training loss of {final}; expected a finite one: check the vectors for NaN"
        )
    return params, final


def _predict(
    params: Any, data: Any, scorer: _Scorer, rows: np.ndarray, block_pairs: int = 4096
) -> np.ndarray:
    """The class with the largest logit of each pair, int [n]; blocks of one shape."""
    score = jax.jit(lambda params, data, pairs_B2: scorer(params, data, pairs_B2, None))
    size = min(block_pairs, len(rows))
    predicted = []
    for first in range(0, len(rows), size):
        process.poll()
        block = rows[first : first + size, :2]
        scores_BK = jax.device_get(score(params, data, jax.device_put(np.resize(block, (size, 2)))))
        predicted.append(scores_BK[: len(block)].argmax(axis=1))
    return np.concatenate(predicted)


# -------------------------------------------------------------------------------------------------
# Relation classification (DDBRC): a linear softmax on the vectors of head and tail.
#
# CODER paper, section 4.6 and appendix A.4 (v1, section 4.4): y = softmax(W [e_h, e_t] + b),
# trained with cross-entropy for 50 epochs; the score is the accuracy on the test pairs. The vectors
# are fixed features (learning rate 1e-3, batches of 512 pairs) or trained along (encoders: 2e-5, 96
# pairs; word and concept vectors: 1e-3, 512 pairs).

FINE_TUNING = ClassifierSettings(batch_pairs=96, learning_rate=2e-5)
# Of word and concept vectors, fixed or trained along: the released code's rate is constant there.
TABLE_TRAINING = ClassifierSettings(warmup=None)


@dataclass(frozen=True)
class RelationResult:
    """Scores on the test pairs.

    Attributes:
      scores: "accuracy"; "macro_f1", the unweighted mean over the labels that a test pair has or
        was given, as scikit-learn's; "most_frequent", the accuracy of always answering the label
        that is most frequent in training; "accuracy_known", over the pairs whose two concepts have
        vectors, where some have not.
      labels: precision, recall, f1 and test pairs of each label.
      counts: pairs, labels, test pairs with a label unseen in training, concepts, and those
        missing (without a vector), unnamed, or retired (named after the concept that they were
        merged into).
      final_loss: the mean cross-entropy of the last epoch, in nats.
      intervals: of "accuracy" and "macro_f1", over test pairs that are drawn anew. The classifier
        stays as it was trained: another seed would move the scores, too.
    """

    scores: dict[str, float]
    labels: dict[str, dict[str, float]]
    counts: dict[str, int]
    final_loss: float
    intervals: dict[str, list[float]] = field(default_factory=dict)


def evaluate_relations(
    vectors: Vectors, benchmark: RelationHalves, settings: ClassifierSettings
) -> RelationResult:
    """Trains the classifier on fixed features and scores it.

    A concept without a vector gets the mean of all others, as in CODER's released code, and is
    counted.

    Raises:
      BadInput: no names for the concepts, or none has a vector.
      Stopped: a signal asked for it.
    """
    known, some = known_features(vectors, benchmark.keys(vectors.keyed_by), benchmark.path)
    features_CD = np.broadcast_to(some.mean(axis=0), (len(known), some.shape[1])).copy()
    features_CD[known] = some
    train, test, labels = _numbered(benchmark)
    start = _initial_layer(2 * some.shape[1], len(labels), settings.seed)
    features = jax.device_put(features_CD)
    params, final_loss = _fit(start, features, _pair_logits, train, settings)
    predicted = _predict(params, features, _pair_logits, test)
    return _relation_result(benchmark, labels, train, test, predicted, known, final_loss)


def _numbered(benchmark: RelationHalves) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Training and test pairs as int32 [n, 3] (head, tail, label), and the labels."""
    labels = benchmark.labels()
    number_of = {concept: number for number, concept in enumerate(benchmark.concepts())}
    label_of = {label: number for number, label in enumerate(labels)}

    def table(pairs: RelationPairs) -> np.ndarray:
        rows = zip(pairs.heads, pairs.tails, pairs.labels, strict=True)
        return np.array([(number_of[h], number_of[t], label_of[y]) for h, t, y in rows], np.int32)

    return table(benchmark.train), table(benchmark.test), labels


def _relation_result(
    benchmark: RelationHalves,
    labels: list[str],
    train: np.ndarray,
    test: np.ndarray,
    predicted: np.ndarray,
    known: np.ndarray,
    final_loss: float,
) -> RelationResult:
    """Scores of predictions for the test pairs."""
    gold = test[:, 2]
    by_label = {
        label: _label_scores(gold == number, predicted == number)
        for number, label in enumerate(labels)
    }
    occurring = np.union1d(gold, predicted)
    most_frequent = np.bincount(train[:, 2]).argmax()
    scores = {
        "accuracy": float(np.mean(predicted == gold)),
        "macro_f1": float(np.mean([by_label[labels[number]]["f1"] for number in occurring])),
        "most_frequent": float(np.mean(gold == most_frequent)),
    }
    both = known[test[:, 0]] & known[test[:, 1]]
    if not both.all():
        hits = (predicted == gold)[both]
        scores["accuracy_known"] = float(hits.mean()) if len(hits) else 0.0
    counts = {
        "train": len(train),
        "test": len(test),
        "labels": len(labels),
        "unseen": benchmark.unseen,
        "concepts": len(known),
        "missing": int((~known).sum()),
        "test_with_missing": int((~both).sum()),
        "unnamed": benchmark.unnamed,
        "retired": benchmark.retired,
    }
    # Independent of the training seed, so that all results draw the same pairs.
    drawn = resampled(np.stack([gold, predicted], axis=1), _drawn_scores, np.random.default_rng(0))
    intervals = named(("accuracy", "macro_f1"), drawn)
    return RelationResult(scores, by_label, counts, final_loss, intervals)


def _drawn_scores(distinct_U2: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `Statistic` of accuracy and macro F1, [B, 2], of pairs with gold and predicted label."""
    labels, numbers = np.unique(distinct_U2, return_inverse=True)
    is_gold_UL, is_predicted_UL = (
        side[:, None] == np.arange(len(labels)) for side in numbers.reshape(distinct_U2.shape).T
    )
    hits_BL = drawn_BU @ (is_gold_UL & is_predicted_UL)
    answers_BL = drawn_BU @ is_gold_UL + drawn_BU @ is_predicted_UL
    f1_BL = 2 * hits_BL / np.maximum(answers_BL, 1)
    macro_f1 = f1_BL.sum(axis=1) / (answers_BL > 0).sum(axis=1)
    return np.stack([hits_BL.sum(axis=1) / drawn_BU.sum(axis=1), macro_f1], axis=1)


def _label_scores(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Precision, recall and F1 of one label, and its test pairs; 0 where nothing is defined."""
    hits = int((gold & predicted).sum())
    precision, recall = hits / max(1, predicted.sum()), hits / max(1, gold.sum())
    f1 = 2 * hits / max(1, gold.sum() + predicted.sum())
    values = {"precision": precision, "recall": recall, "f1": f1, "pairs": gold.sum()}
    return {name: float(value) for name, value in values.items()}


def relation_record(
    benchmark: RelationHalves,
    result: RelationResult,
    features: str,
    settings: ClassifierSettings,
    encoder: EncoderRecord,
) -> EvaluationRecord:
    """The record of `evaluate_relations` (features FROZEN) or of fine-tuning (FINE_TUNED)."""
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="relation classification",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(result.scores),
        intervals=result.intervals,
        counts=result.counts,
        dictionary=benchmark.dictionary.description if benchmark.dictionary else None,
        scoring={
            "features": features,
            "trained": _trained(features, encoder),
            "classifier": "softmax of W [e_h, e_t] + b, cross-entropy, Adam",
            "vectors": "as they are, not of unit length",
            "labels": "of training and test pairs; unseen: test pairs whose label no training pair "
            "has",
            "macro_f1": "mean over the labels that a test pair has or was given",
            "concept": "its first term in the dictionary, or its identifier where it has none",
            "retired_cuis": benchmark.retired_cuis and benchmark.retired_cuis.description,
            "missing": "concepts without a vector get the mean of the others, trained with them",
            "intervals": f"{ABOUT}, test pairs drawn anew, with the same classifier",
            "final_loss": result.final_loss,
            **asdict(settings),
        },
        folds={
            label: {
                "scores": {name: value for name, value in part.items() if name != "pairs"},
                "counts": {"pairs": int(part["pairs"])},
            }
            for label, part in result.labels.items()
        },
        encoder=encoder,
    )


def _trained(features: str, encoder: EncoderRecord) -> str:
    """What is trained, in words."""
    if features == FROZEN:
        return "W, b"
    if isinstance(encoder, VectorFileProtocol):
        return f"W, b and the vectors of {encoder.keyed_by}"
    return "W, b and the encoder"


# -------------------------------------------------------------------------------------------------
# Relation classification with fine-tuned vectors, trained together with the linear softmax.
#
# Those of an encoder: terms are padded, not packed, as each step takes a whole batch of pairs,
# drawn anew. Or those of a file. Of word vectors each word's is trained, and concepts that share a
# word share it: a concept is the mean of its words at every step, as in CODER's released code,
# whose table is one of words. Of concept vectors each concept's is trained. The papers say only
# that both kinds are trained, and at which rate.
#
# Beware of the papers' fine-tuned column for them: the released code makes its table with PyTorch's
# `Embedding.from_pretrained`, which keeps it fixed unless asked not to, and it is not asked. So
# both of its settings train the same classifier on the same vectors, and the columns hardly differ.

_LENGTH_STEP = 8  # few shapes compile: lengths are rounded up to a multiple of it


class _PaddedTerms(NamedTuple):
    """Word pieces of N terms, one row each; length[i] of row i count."""

    tokens: np.ndarray  # int32 [N, L]
    lengths: np.ndarray  # int32 [N]


def _pad_tokens(encoder: TermEncoder, terms: Sequence[str]) -> _PaddedTerms:
    """Tokenizes terms, cleaned and cut as the encoder's settings say."""
    settings = encoder.settings
    cleaned = clean(pl.Series(list(terms), dtype=pl.String), settings.cleaning)
    prompted = (settings.prompt + cleaned).to_list() if settings.prompt else cleaned.to_list()
    tokens, start = tokenize(encoder.tokenizer, prompted, settings.max_length)
    lengths = np.diff(start).astype(np.int32)
    longest = settings.max_length if settings.attend_padding else int(lengths.max())
    width = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
    padded = np.full((len(lengths), width), encoder.bert.config.pad_token_id, np.int32)
    padded[np.arange(width) < lengths[:, None]] = tokens
    if settings.attend_padding:  # the padding counts as the term's own tokens
        lengths = np.full_like(lengths, settings.max_length)
    return _PaddedTerms(padded, lengths)


def _term_vectors(
    bert: Bert,
    tokens_NL: jax.Array,
    lengths_N: jax.Array,
    pooling: str,
    dropout_seed: jax.Array | None = None,
) -> jax.Array:
    """Vectors of padded terms, float32 [N, D], not normalized.

    Args:
      dropout_seed: uint32, another one in each step; no dropout if None.
    """
    count, length = tokens_NL.shape
    places_NL = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32)[None], (count, length))
    rows_N1 = jnp.arange(count, dtype=jnp.int32)[:, None]
    segments_NL = jnp.where(places_NL < lengths_N[:, None], rows_N1 + 1, 0)
    ids_NL = None
    if dropout_seed is not None:
        number_NL = rows_N1.astype(jnp.uint32) * length + places_NL.astype(jnp.uint32)
        ids_NL = dropout_seed * jnp.uint32(count * length) + number_NL
    return bert.term_vectors(tokens_NL, places_NL, segments_NL, count, pooling, ids_NL)


def fine_tune(
    encoder: TermEncoder, benchmark: RelationHalves, settings: ClassifierSettings = FINE_TUNING
) -> RelationResult:
    """Trains a copy of the encoder and the classifier on the training pairs, and scores both.

    Dropout is the encoder's own while it trains. The encoder that was given stays as it was.

    Raises:
      BadInput: no names for the concepts.
      Stopped: a signal asked for it.
    """
    train, test, labels = _numbered(benchmark)
    graph, weights = nnx.split(encoder.bert, nnx.Param)
    pooling = encoder.settings.pooling
    terms = jax.device_put(_pad_tokens(encoder, benchmark.keys(TERMS)))

    def scorer(params, terms, pairs_B2, dropout_seed):
        numbers_N = pairs_B2.reshape(-1)
        bert = nnx.merge(graph, params["encoder"])
        tokens_NL, lengths_N = terms.tokens[numbers_N], terms.lengths[numbers_N]
        vectors_ND = _term_vectors(bert, tokens_NL, lengths_N, pooling, dropout_seed)
        return _logits(params["layer"], vectors_ND.reshape(len(pairs_B2), 2, -1))

    width = 2 * encoder.bert.config.hidden_size
    start = {"encoder": weights, "layer": _initial_layer(width, len(labels), settings.seed)}
    params, final_loss = _fit(start, terms, scorer, train, settings)
    predicted = _predict(params, terms, scorer, test, settings.batch_pairs)
    known = np.ones(len(benchmark.concepts()), bool)
    return _relation_result(benchmark, labels, train, test, predicted, known, final_loss)


class _ConceptRows(NamedTuple):
    """The rows of a table that make up each of C concepts, and their weights; at most W per
    concept.
    """

    rows: np.ndarray  # int32 [C, W]
    shares: np.ndarray  # float32 [C, W], 1 in all; 0 where a concept has fewer rows


def _trainable_table(
    vectors: TableVectors, benchmark: RelationHalves
) -> tuple[np.ndarray, _ConceptRows, np.ndarray]:
    """The table to train, the rows of each concept, and which concepts have any.

    The first are float32 [V, D]; the last of them is that of all concepts without a vector, and
    begins as the mean of the others. Which have any: bool [C].
    """
    keys = benchmark.keys(vectors.keyed_by)
    known, some = known_features(vectors, keys, benchmark.path)
    of_key = [vectors.rows(key) for key in keys]
    used = sorted({row for rows in of_key for row in rows})
    number_of = {row: number for number, row in enumerate(used)}
    numbers = [[number_of[row] for row in rows] or [len(used)] for rows in of_key]
    counts = np.array([len(of_concept) for of_concept in numbers])
    present = np.arange(counts.max()) < counts[:, None]
    rows = np.zeros(present.shape, np.int32)
    rows[present] = [number for of_concept in numbers for number in of_concept]
    shares = (present / counts[:, None]).astype(np.float32)
    table = np.concatenate([vectors.table.vectors[used], some.mean(axis=0, keepdims=True)])
    return table.astype(np.float32), _ConceptRows(rows, shares), known


def _row_logits(params, concepts: _ConceptRows, pairs_B2: jax.Array, _: object) -> jax.Array:
    """Logits of pairs of concepts, each the mean of its rows of a trained table: a `_Scorer`."""
    vectors_B2WD = params["table"][concepts.rows[pairs_B2]]
    shares_B2W1 = concepts.shares[pairs_B2][..., None]
    return _logits(params["layer"], jnp.sum(vectors_B2WD * shares_B2W1, axis=2))


def fine_tune_table(
    vectors: TableVectors,
    benchmark: RelationHalves,
    settings: ClassifierSettings = TABLE_TRAINING,
) -> RelationResult:
    """Trains a copy of the vectors of words or concepts and the classifier, and scores both.

    Concepts without a vector share one, which is trained too.

    Raises:
      BadInput: no names for the concepts, or none has a vector.
      Stopped: a signal asked for it.
    """
    train, test, labels = _numbered(benchmark)
    table, concepts, known = _trainable_table(vectors, benchmark)
    layer = _initial_layer(2 * table.shape[1], len(labels), settings.seed)
    start = {"table": jax.device_put(table), "layer": layer}
    concepts = jax.device_put(concepts)
    params, final_loss = _fit(start, concepts, _row_logits, train, settings)
    predicted = _predict(params, concepts, _row_logits, test, settings.batch_pairs)
    return _relation_result(benchmark, labels, train, test, predicted, known, final_loss)
