"""Recall and rank: a candidate generator, and a ranker with keyword-guided attention.

Liang, Xue and Ruan, A recall and rank model for Chinese procedure normalization, arXiv 2101.09101,
2021. From top to bottom: what both share, the generator's losses (section 3.1.1, equations 6 to 8),
scores, the generator (3.1), the ranker (3.2, equations 9 to 11), recipes, export.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from safetensors.numpy import save_file

from coder_jax.devices.hosts import is_first, log
from coder_jax.devices.mesh import local_copy
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.several_concepts import accuracy, number_accuracy
from coder_jax.evaluation.several_concepts import recall_at_k as recall_at
from coder_jax.export.folder import PROBE_TERMS, largest_difference, load_module
from coder_jax.models.bert import Bert, Probes, merge_encoder, split_encoder
from coder_jax.models.hf_files import EncoderSettings
from coder_jax.models.hf_weights import read_config
from coder_jax.systems.encoder_system import (
    PACKED,
    EncoderOfRun,
    EncoderSystem,
    Head,
    ModelConfig,
    RunWithEncoder,
    StartOfEncoder,
    drop_vectors,
    encoder_of,
    read_term_blocks,
    trained_bert,
)
from coder_jax.systems.group_losses import norm
from coder_jax.systems.recall_rank.candidates import (
    CandidateGenerator,
    NameVectors,
    mean_distances,
    nearest_wrong_names,
)
from coder_jax.systems.recall_rank.ranking import (
    KEYWORDS,
    RANKER,
    SCORE,
    Choice,
    Mask,
    Ranked,
    RankerSettings,
    TermRanker,
    answer_logits,
    answer_probabilities,
    keywords_of,
    packed,
    place_ranker,
    probabilities,
    ranked,
    read_head,
)
from coder_jax.training.run_folder import AnyDataOfRun
from coder_jax.training.system import (
    Batch,
    Config,
    Loss,
    OptimizerConfig,
    Params,
    Part,
    RunConfig,
    SavedRun,
    Scorer,
    StepKey,
    Tree,
    View,
)
from data_pipeline.batches.mentions import (
    MOST_NUMBERS,
    NAMES,
    NEGATIVES,
    RankBatches,
    RankSpec,
    RecallBatches,
    RecallSpec,
    fixed_negatives,
    inputs_of,
    pairs_of,
)
from data_pipeline.batches.spec import BatchSource, StepCut, check_least, check_rate
from data_pipeline.dataset.mentions import (
    WORDS,
    MentionDataset,
    MentionManifest,
    MentionSplit,
    candidate_rows,
    token_table,
)
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.files.identity import Count, read_json, typed
from data_pipeline.files.whole import write_json, written_whole
from data_pipeline.process import BadInput
from data_pipeline.terminology.keywords import keyword_lines

# -------------------------------------------------------------------------------------------------
# The content of run.json for generators and rankers, as types for `identity.typed`.


@dataclasses.dataclass(frozen=True, kw_only=True)
class MentionsOfRun(AnyDataOfRun):
    """The mentions of a run and their dictionary, in run.json."""

    counts: dict[str, Count]


class StartOfRanker(StartOfEncoder, frozen=True, kw_only=True):
    """What run.json says of the start of a ranker."""

    keyword_kinds: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MentionRun(RunWithEncoder):
    """run.json of a system that learns from mentions."""

    dataset: MentionsOfRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RankRun(MentionRun):
    """run.json of a ranker."""

    start: StartOfRanker

    @classmethod
    def start_of(cls, encoder: EncoderOfRun, manifest: MentionManifest) -> StartOfEncoder:
        types = read_config(encoder.config).type_vocab_size
        if types < 2:
            raise BadInput(
                f"the encoder has {types} token type; a ranker reads pairs, whose parts are told "
                "apart by two: use a BERT"
            )
        return StartOfRanker(encoder=encoder, keyword_kinds=list(manifest.keyword_kinds))


# -------------------------------------------------------------------------------------------------
# What generator and ranker share: mentions as data, one dense layer, the choice of checkpoint.

_INITIAL_SPREAD = 0.02  # of the normal distribution from which BERT's layers begin


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DenseHead(Head):
    """A dense layer on the encoder."""

    name: str
    outputs: int
    """Its width."""
    seed: int

    def part(self) -> Part:
        return Part(decay=True)

    def shapes(self, recorded_start: Any, width: int) -> Tree | None:
        sizes = {"kernel": (width, self.outputs), "bias": (self.outputs,)}
        return {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}

    def init_params(self, shapes: Tree) -> Tree:
        normal = jax.random.normal(jax.random.key(self.seed), shapes["kernel"].shape)
        return {"kernel": _INITIAL_SPREAD * normal, "bias": jnp.zeros(self.outputs)}

    def from_run(self, run: SavedRun, shapes: Tree, manifest: MentionManifest) -> Tree | None:
        return run.params[self.name]


def _summary_of_mentions(dataset: MentionsOfRun) -> dict[str, Any]:
    """The facts about the data for the model card, from run.json."""
    counts = dataset.counts
    return {
        "mentions": f"{dataset.name} {dataset.release}",
        "training mentions": f"{counts['train: mentions']:,}",
        "concepts": f"{counts['concepts']:,}",
        "names": f"{counts['names']:,}",
        "cleaning": dataset.cleaning,
    }


def _dev_mentions(data: MentionDataset) -> MentionSplit:
    """The mentions by which a run's best checkpoint is chosen.

    Raises:
        BadInput: if there are none.
    """
    if "dev" not in data.splits:
        raise BadInput(
            f"{data.folder} has no mentions to choose the best checkpoint by; build it with --dev "
            "or --hold-out, or leave out a fold, whose mentions then choose (--fold 1/5)"
        )
    return data.splits["dev"]


# -------------------------------------------------------------------------------------------------
# The losses of the candidate generator (Liang, Xue, Ruan 2021, section 3.1.1).
#
# Shapes: M mentions, K negatives of each, D width, C classes of the number of concepts.


def _triplet_margin_loss(
    mention_MD: jax.Array, name_MD: jax.Array, others_MKD: jax.Array, margin: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean over all triplets of max(0, D(mention, name) + margin - D(mention, other)).

    D is the Euclidean distance of vectors as they are, not of unit length (equations 6 and 7).

    Args:
        mention_MD: float32, of the mentions.
        name_MD: a name of a concept of each.
        others_MKD: names of other concepts.
        margin: m, in the units of the distance.

    Returns:
        (loss, metrics): the mean distances, and the share of triplets within the margin.
    """
    near_M1 = norm(mention_MD - name_MD)[:, None]
    far_MK = norm(mention_MD[:, None] - others_MKD)
    loss_MK = jax.nn.relu(near_M1 + margin - far_MK)
    return loss_MK.mean(), {
        "distance_name": near_M1.mean(),
        "distance_others": far_MK.mean(),
        "within_margin": (loss_MK > 0).mean(),
    }


def _number_loss(
    logits_MC: jax.Array, numbers_M: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean cross-entropy of the number of concepts of each mention (equation 8).

    Args:
        logits_MC: float32, scores of one, two, ... concepts.
        numbers_M: int32, the class of each mention, from 0.

    Returns:
        (loss, metrics): the share of mentions whose class has the largest score.
    """
    log_MC = jax.nn.log_softmax(logits_MC)
    of_class_M = jnp.take_along_axis(log_MC, numbers_M[:, None], axis=-1)[:, 0]
    right_M = logits_MC.argmax(-1) == numbers_M
    return -of_class_M.mean(), {"number_accuracy": right_M.mean()}


# -------------------------------------------------------------------------------------------------
# Scores by which a run's best checkpoint is chosen (Liang, Xue, Ruan 2021, 4.2).

_RECALL_AT = (1, 2, 5, 10)


def dev_scores(found: Ranked, gold: Sequence[frozenset[int]]) -> dict[str, float]:
    """Accuracy (of all mentions, of those with one and with several concepts), recall@k, number.

    What no mention counts for is left out.

    Args:
        found: the candidates of M mentions, best first, and the counts of their answers.
        gold: what each means.
    """
    answers = found.answers()
    right = accuracy(answers, gold)
    candidates = found.concepts.tolist()
    at = [k for k in _RECALL_AT if k <= found.concepts.shape[1]]
    scores = {
        "accuracy": right["total"].value,
        "uni": right["uni"].value,
        "multi": right["multi"].value,
        "number": number_accuracy(list(map(len, answers)), list(map(len, gold))).total,
        **{f"recall@{k}": share.value for k, share in recall_at(candidates, gold, at).items()},
    }
    return {name: round(value, 4) for name, value in scores.items() if value is not None}


# -------------------------------------------------------------------------------------------------
# The candidate generator: a common space of mentions and names, and the number of concepts.
#
# Liang, Xue and Ruan, A recall and rank model for Chinese procedure normalization, arXiv
# 2101.09101, 2021, section 3.1 (multi-task candidate generator, MTCG).

_NAME_VECTORS = "vectors of all names"  # in `View.computed`: float32 [N, D], of whatever length


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecallSystem(EncoderSystem):
    """One encoder for mentions and names, trained by triplets and by the number of concepts."""

    name: ClassVar[str] = "recall"
    title: ClassVar[str] = "Candidate generator of recall and rank"
    paper: ClassVar[str] = "Liang, Xue and Ruan 2021"
    content: ClassVar[type[RunWithEncoder]] = MentionRun
    scored: ClassVar[tuple[str, ...]] = ("encoder", "number")
    trains_pooler: ClassVar[bool] = True  # `_number_logits` reads it

    batch: RecallSpec = dataclasses.field(default_factory=RecallSpec)
    model: ModelConfig = ModelConfig(init="bert-base-chinese", pooling="mean")

    margin: float = 1.0
    """By how much other names must be farther from a mention than its own (m, equation 7)."""
    triplet_weight: float = 1.0
    """Weight of the loss of the triplets (equation 6: 1). With 0 only the number of concepts is
    learnt, and the best checkpoint is the one with the best numbers (table 8, BERT alone)."""
    number_weight: float = 1.0
    """Weight of the loss of the number of concepts beside that of the triplets (equation 6: 1)."""
    refresh_steps: int = 0
    """Steps after which the online negatives are found anew; 0: an epoch (section 3.1.2)."""

    @property
    def best(self) -> str:
        return "dev/accuracy" if self.triplet_weight else "dev/number"

    @property
    def heads(self) -> tuple[Head, ...]:
        return (_DenseHead(name="number", outputs=MOST_NUMBERS, seed=self.batch.seed),)

    def data_summary(self, dataset: MentionsOfRun) -> dict[str, Any]:
        return _summary_of_mentions(dataset)

    def hyperparameters(self) -> dict[str, Any]:
        weights = {"triplet weight": self.triplet_weight, "number weight": self.number_weight}
        return {"margin": self.margin, **weights}

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_least(self, 0, "margin", "triplet_weight", "number_weight", "refresh_steps")
        if not (self.triplet_weight or self.number_weight):
            raise BadInput(
                "--triplet-weight and --number-weight are 0: found no loss to train by; expected "
                "one of them above 0"
            )
        if self.model.pooling == "pooler":
            raise BadInput(
                "--pooling pooler: found no way to train a generator's vectors by it; expected "
                "cls, mean (the paper's) or pieces"
            )

    def resolved_for(self, source: BatchSource) -> Self:
        assert isinstance(source, RecallBatches)
        online = self.batch.negatives == "online"
        every = (self.refresh_steps or source.steps_per_epoch) if online else 0
        return dataclasses.replace(self, refresh_steps=every)

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        source = RecallBatches(data, self.batch, cut, **self.planned(rows, steps))
        log(f"an epoch of {data} has {source.steps_per_epoch:,} steps")
        return source

    # ---- The loss ----

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        """L = L_t + L_c (equation 6), averaged over the triplets and the mentions of the pass."""
        graph, _ = split_encoder(self.structure(recorded_start))
        seed = self.batch.seed

        def pass_loss(params: Params, extra: Tree, batch: Batch, step_key: StepKey) -> Any:
            bert = merge_encoder(graph, params["encoder"], step_key.remat)

            def read(rows: list[jax.Array], ids: jax.Array, terms: int) -> Any:
                tokens, positions, segments = rows
                return bert.vectors_and_first(
                    tokens, positions, segments, terms, self.model.pooling, ids
                )

            vector_BGND, first_BGND = read_term_blocks(read, batch, step_key, mesh, seed)
            blocks, groups, mentions = batch["numbers"].shape
            width = vector_BGND.shape[-1]
            names = slice(mentions, 2 * mentions)
            mention_MD, name_MD = (
                vector_BGND[:, :, part].reshape(-1, width) for part in (slice(mentions), names)
            )
            others_MKD = vector_BGND[:, :, 2 * mentions :].reshape(
                blocks * groups * mentions, -1, width
            )
            first_MD = first_BGND[:, :, :mentions].reshape(-1, width)
            triplets, metrics = _triplet_margin_loss(mention_MD, name_MD, others_MKD, self.margin)
            logits = _number_logits(bert, params["number"], first_MD)
            numbers, of_numbers = _number_loss(logits, batch["numbers"].reshape(-1))
            total = self.triplet_weight * triplets + self.number_weight * numbers
            losses = {"loss_triplet": triplets, "loss_number": numbers}
            return total, (extra, {**losses, **metrics, **of_numbers})

        return pass_loss

    # ---- Negatives by the current encoder ----

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """Finds the kn names of other concepts that are nearest to each mention (algorithm 1).

        With them the own name that is nearest, where own names are chosen so. Before the first
        step any names of others, as in the paper, and the own names most alike in characters.
        """
        assert isinstance(source, RecallBatches)
        data, kn = source.dataset, self.batch.negatives_per_pair
        params = local_copy(view.mesh, {name: view.params[name] for name in self.scored})
        if not is_first():  # one host finds them, the others wait
            return
        own_names = source.names
        if view.step == 0:
            rows = fixed_negatives(data, "random", kn, self.batch.seed).rows
        else:
            encoder = self.generator(params, view.recorded_start, source).encoder
            mentions = list(data.splits["train"].mentions.strings)
            vectors = encoder.encode(mentions, unit=False, progress=True)
            names = view.computed.get(_NAME_VECTORS)
            if names is None:
                names = encoder.encode(list(data.names.strings), unit=False, progress=True)
            rows = nearest_wrong_names(vectors, names, source.gold_names, kn)[source.mention_of]
            if own_names is not None:
                pairs = source.own.mentions, source.own.names
                own_names = source.own.best(-mean_distances([vectors], [names], *pairs))
        for name, array in ((NEGATIVES, rows), (NAMES, own_names)):
            if array is not None:
                with written_whole(folder / name) as path, path.open("wb") as file:
                    np.save(file, array)

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """Accuracy, recall@k and accuracy of the number, for the mentions of `_dev_mentions`."""
        assert isinstance(source, RecallBatches)
        data = source.dataset
        dev = _dev_mentions(data)
        gold = dev.gold_sets()

        def score(view: View) -> dict[str, dict[str, float]]:
            if not is_first():
                return {}
            generator = self.generator(view.params, view.recorded_start, source)
            names = generator.encode(list(data.names.strings), progress=True)
            if view.step and self.refresh_steps and view.step % self.refresh_steps == 0:
                (view.computed[_NAME_VECTORS],) = names
            keys = [NameVectors(vectors) for vectors in names]
            lists = generator.lists(list(dev.mentions.strings), keys, data.name_concepts)
            return {"dev": dev_scores(ranked(lists, data.name_concepts, None), gold)}

        return score

    def generator(
        self, params: Params, recorded_start: Any, source: BatchSource
    ) -> CandidateGenerator:
        """The generator with given parameters, on one device."""
        encoder = TermEncoder(
            self.encoder_with(params["encoder"], recorded_start),
            load_tokenizer(source.folder / "tokenizer"),
            EncoderSettings.of_data(source.manifest, self.model.pooling),
        )
        return CandidateGenerator(encoder, params["number"])

    # ---- What proves what leaves the run: probabilities of one, two, ... concepts, too ----

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        tokens, positions, segments = (rows[name] for name in PACKED)
        _, first = bert.vectors_and_first(tokens, positions, segments, terms, self.model.pooling)
        numbers = jax.nn.softmax(_number_logits(bert, params["number"], first))
        return {**super().proof_outputs(bert, params, extra, rows, terms), "numbers": numbers}

    def saved_outputs(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        generator = CandidateGenerator(encoder_of(run), run.params["number"])
        return {**super().saved_outputs(run, terms), "numbers": generator.numbers(terms)}

    # ---- When it is trained ----

    def tables(self, run: SavedRun) -> dict[str, Any]:
        return {"number": run.params["number"]}

    def write_beside(self, run: SavedRun, folder: Path) -> dict[str, float]:
        _write_head(folder / _NUMBER, run.params["number"])
        write_json(folder / GENERATOR, dataclasses.asdict(_GeneratorSettings("euclidean")))
        return {}


def _number_logits(bert: Bert, head: Mapping[str, jax.Array], first_MD: jax.Array) -> jax.Array:
    """float32 [M, C]: scores of one, two, ... concepts, from [CLS] through BERT's pooler.

    An encoder without a pooler gives [CLS] as it is.
    """
    pooled_MD = first_MD if bert.pooler is None else jnp.tanh(bert.pooler(first_MD))
    kernel, bias = head["kernel"], head["bias"]
    return jnp.dot(pooled_MD, kernel, precision=jax.lax.Precision.HIGHEST) + bias[None]


# -------------------------------------------------------------------------------------------------
# The ranker: is a candidate a concept of the mention? Its attention is guided by keywords.
#
# Liang, Xue and Ruan, A recall and rank model for Chinese procedure normalization, arXiv
# 2101.09101, 2021, section 3.2 (keyword-attentive ranker, KAR).

_HEAD_SITE = 1_000_003  # of dropout: no layer of an encoder and no jitter has this number


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankSystem(EncoderSystem):
    """An encoder of pairs, trained to tell right candidates from others."""

    name: ClassVar[str] = "rank"
    title: ClassVar[str] = "Ranker of recall and rank"
    paper: ClassVar[str] = "Liang, Xue and Ruan 2021"
    content: ClassVar[type[RunWithEncoder]] = _RankRun
    best = "dev/accuracy"
    scored: ClassVar[tuple[str, ...]] = ("encoder", "score")
    pools: ClassVar[bool] = False

    batch: RankSpec = dataclasses.field(default_factory=RankSpec)
    model: ModelConfig = ModelConfig(init="bert-base-chinese")

    mask: Mask = "after"
    """Where the masks of keywords apply: after the softmax of attention (equation 9), or before it
    (the authors' code)."""
    head_dropout: float = 0.3
    """Dropout rate of the vector of a pair (the authors' code)."""

    @property
    def heads(self) -> tuple[Head, ...]:
        outputs = 2 if self.batch.broader else 1
        return (_DenseHead(name="score", outputs=outputs, seed=self.batch.seed),)

    def data_summary(self, dataset: MentionsOfRun) -> dict[str, Any]:
        return _summary_of_mentions(dataset)

    def hyperparameters(self) -> dict[str, Any]:
        return {"keyword mask": f"{self.mask} the softmax", "head dropout": self.head_dropout}

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_rate(self, "head_dropout")
        if self.model.pooling != "cls":
            raise BadInput(
                f"--pooling {self.model.pooling}: a ranker's vector of a pair is the mean over "
                "[CLS] and the probes of keywords (section 3.2), and none other is learnt; leave "
                "--pooling out, and give another --out if a run began with it"
            )

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        source = RankBatches(data, self.batch, cut, **self.planned(rows, steps))
        log(f"an epoch of {data} has {source.steps_per_epoch:,} steps")
        return source

    # ---- The loss ----

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        """Mean cross-entropy over the pairs (equation 10), of two answers, or three (--broader)."""
        graph, _ = split_encoder(self.structure(recorded_start))
        seed = self.batch.seed
        number, after = len(recorded_start.keyword_kinds), self.mask == "after"

        def pass_loss(params: Params, extra: Tree, batch: Batch, step_key: StepKey) -> Any:
            bert = merge_encoder(graph, params["encoder"], step_key.remat)

            def read(rows: list[jax.Array], ids: jax.Array, pairs: int) -> jax.Array:
                tokens, positions, segments, kinds, types = rows
                probes = Probes(kinds=kinds, types=types, number=number, after=after)
                return bert.pair_vectors(tokens, positions, segments, probes, pairs, ids)

            vector_BGND = read_term_blocks(
                read, batch, step_key, mesh, seed, beside=("kinds", "types")
            )
            vector_ND = vector_BGND.reshape(-1, vector_BGND.shape[-1])
            vector_ND = drop_vectors(vector_ND, seed, step_key, _HEAD_SITE, self.head_dropout)
            logit_NA = answer_logits(vector_ND, params["score"])
            label_N = batch["labels"].reshape(-1)
            loss_N = optax.softmax_cross_entropy_with_integer_labels(logit_NA, label_N)
            right_N = logit_NA.argmax(-1) == label_N
            return loss_N.mean(), (extra, {"pair_accuracy": right_N.mean()})

        return pass_loss

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """Accuracy and other scores for the mentions of `_dev_mentions`, with and without the
        generator.
        """
        assert isinstance(source, RankBatches)
        data = source.dataset
        dev = _dev_mentions(data)
        lists = source.lists["dev"]
        rows = candidate_rows(lists)
        pairs = source.pairs_of(dev.mentions, rows)
        gold = dev.gold_sets()

        def score(view: View) -> dict[str, dict[str, float]]:
            if not is_first():
                return {}
            answers = place_ranker(
                self.encoder_with(view.params["encoder"], view.recorded_start),
                view.params["score"],
                probes=len(view.recorded_start.keyword_kinds),
                mask=self.mask,
            )
            found = probabilities(answers, pairs).reshape(*lists.names.shape, -1)
            both = dev_scores(ranked(lists, data.name_concepts, found), gold)
            alone = dev_scores(
                ranked(lists, data.name_concepts, found, Choice(fusion="rank")), gold
            )
            return {"dev": {**both, "rank alone": alone["accuracy"]}}

        return score

    # ---- What proves what leaves the run: probabilities of terms with their neighbours, too ----

    def rows_beside(self, source: BatchSource, terms: list[str]) -> Mapping[str, Any]:
        assert isinstance(source, RankBatches)

        kinds = list(source.manifest.keyword_kinds)
        table, _ = token_table(
            load_tokenizer(source.folder / "tokenizer"),
            terms,
            cleaning=source.manifest.cleaning,
            max_length=source.manifest.tokenizer.max_length,
            keywords=keywords_of(source.folder / WORDS, kinds),
        )
        rows, strings = _neighbours(len(terms)), inputs_of(table)
        pairs = pairs_of(strings, strings, rows, source.probes, self.batch.pair_length)
        chosen = np.arange(len(rows))
        return {
            "pairs": packed(pairs, chosen, self.batch.row_length),
            "probes": source.probes,
        }

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        probabilities_NA = answer_probabilities(
            bert,
            params["score"],
            rows["pairs"],
            pairs=terms,
            probes=rows["probes"].size,
            mask=self.mask,
        )
        found = super().proof_outputs(bert, params, extra, rows, terms)
        return {**found, "probabilities": probabilities_NA[:, 1:]}

    def saved_outputs(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        scores = _trained_ranker(self, run).score_pairs(terms, terms, _neighbours(len(terms)))
        return {**super().saved_outputs(run, terms), "probabilities": scores}

    # ---- When it is trained ----

    def tables(self, run: SavedRun) -> dict[str, Any]:
        return {"ranker": _trained_ranker(self, run)}

    def write_beside(self, run: SavedRun, folder: Path) -> dict[str, float]:
        ranker = _trained_ranker(self, run)
        _write_ranker(folder, ranker)
        return {"probabilities in PyTorch": _compare_ranker(folder, ranker)}


def _neighbours(terms: int) -> np.ndarray:
    """int64 [terms, 2]: pairs of each sample term and the next one."""
    return np.stack([np.arange(terms), np.roll(np.arange(terms), -1)], axis=1)


# -------------------------------------------------------------------------------------------------
# Recipes of recall and rank (Liang, Xue and Ruan 2021).
#
# Each is a page of a lab book: the command, how long it takes where, what to expect, and for each
# value where it stands. What a recipe does not set is the default of its system and batches:
#
# | value | where it stands |
# |---|---|
# | margin 1 on raw Euclidean distances; 4 names of others per mention; 10 candidates | paper, 3.1.1
#     and 4.2; 4 for each concept of a mention: released code |
# | online negatives, found anew each epoch; before the first step any names | paper, 3.1.2 |
# | number of concepts 1, 2, 3 and more, from [CLS] through BERT's pooler | classes: paper, 3.1.1;
#     pooler: released code alone |
# | keyword masks after the softmax, not normalized again | paper, equation 9; the released code has
#     them before it: --mask before |
# | mean over [CLS] and probes, one output, binary cross-entropy; dropout of .3 before it | paper,
#     3.2 and equation 10; dropout: released code alone |
# | AdamW at 2e-5 | paper, 4.2 |
# | 16 mentions or 64 pairs a step, constant rate, 20 epochs, the best by accuracy | released code
#     alone |

_SMALL = "sentence-transformers/all-MiniLM-L6-v2"
_ADAM = OptimizerConfig(
    learning_rate=2e-5, warmup_steps=0, schedule="constant", clip_norm=0.0, eps=1e-6
)


def recall() -> Config[RecallSystem]:
    """The candidate generator of recall and rank, on the data of the paper (CHIP-2019).

        python -m data_pipeline.build_mentions --train train.tsv --dictionary code.txt \\
            --hold-out 500 --tokenizer bert-base-chinese --out data/chip
        bash launch/train.sh --recipe recall --data data/chip --out runs/recall

    20 epochs of some 3,740 (mention, concept) pairs. Alone it has 90.1 % of the mentions right in
    the paper (table 3, where five models vote, it seems), and all concepts of 98.3 % among 10
    candidates (table 7). With other data set --eval-steps to an epoch, whose steps the log says.
    Not trained here.
    """
    return Config(
        recipe="recall",
        system=RecallSystem(),
        optimizer=dataclasses.replace(_ADAM, epochs=20, steps=4_660),
        run=RunConfig(eval_steps=233, save_steps=233),
    )


def rank() -> Config[RankSystem]:
    """The ranker of recall and rank, on the candidates of a generator for the paper's data.

        python -m coder_jax candidates --model runs/recall --data data/chip --out data/chip_lists
        bash launch/train.sh --recipe rank --data data/chip_lists --out runs/rank

    20 epochs of 35,000 pairs. Both together have 91.47 % of the mentions right in the paper (table
    3, where five models vote, it seems). With other data set --eval-steps to an epoch. Not trained
    here.
    """
    return Config(
        recipe="rank",
        system=RankSystem(),
        optimizer=dataclasses.replace(_ADAM, epochs=20, steps=10_920),
        run=RunConfig(eval_steps=546, save_steps=546),
    )


def recall_small() -> Config[RecallSystem]:
    """The candidate generator with a small encoder on a small machine.

        python -m data_pipeline.build_mentions --train NCBItrainset_corpus.txt --distinct \\
            --dev NCBIdevelopset_corpus.txt --dictionary medic.txt \\
            --tokenizer sentence-transformers/all-MiniLM-L6-v2 --out data/ncbi
        bash launch/train.sh --recipe recall_small --data data/ncbi --out runs/recall

    The rate is for so small an encoder. With other data give --epochs 3 or more. 609 steps on the
    training halves of NCBI disease and BC5CDR together took 18 minutes of one core, half of it to
    encode 76,237 names anew. Right of NCBI disease's 960 test mentions: 72.2 % (65.0 before
    training; 67.4 with TF-IDF negatives, 65.8 with random ones), and all concepts among ten
    candidates of 86.3 % (79.4). On CHIP-2019, six epochs: 85.3 and 97.6 %.
    """
    base = recall()
    return Config(
        recipe="recall_small",
        system=dataclasses.replace(base.system, model=ModelConfig(init=_SMALL, pooling="mean")),
        optimizer=dataclasses.replace(
            base.optimizer, epochs=0.0, steps=640, learning_rate=1e-4, schedule="linear"
        ),
        run=RunConfig(eval_steps=320, save_steps=320),
    )


def rank_small() -> Config[RankSystem]:
    """The ranker with a small encoder on a small machine.

        python -m coder_jax candidates --model runs/recall --data data/ncbi --out data/ncbi_lists
        bash launch/train.sh --recipe rank_small --data data/ncbi_lists --init runs/recall \\
            --out runs/rank

    10 candidates of 3,093 mentions (NCBI disease and BC5CDR) are an epoch of 967 steps, 9 minutes
    of one core; with other data give --epochs 3 or more. `--init runs/recall`, the generator's
    encoder, is a better start than MiniLM's own weights. Of the development mentions 77.6 % are
    right by the generator alone, 78.3 with the ranker after three epochs, and 80.6 after three more
    (--from runs/rank, with another --out and --seed).
    """
    base = rank()
    return Config(
        recipe="rank_small",
        system=dataclasses.replace(
            base.system,
            model=ModelConfig(init=_SMALL),
            batch=dataclasses.replace(base.system.batch, pairs=32),
        ),
        optimizer=dataclasses.replace(
            base.optimizer, epochs=0.0, steps=2_900, learning_rate=1e-4, schedule="linear"
        ),
        run=RunConfig(eval_steps=1_450, save_steps=725),
    )


# -------------------------------------------------------------------------------------------------
# The export of a generator or ranker.
#
# Beside what `export_encoder` writes, of a generator
#   generator.safetensors   kernel [W, C] and bias [C]: scores of the number of concepts
#   generator.json          what distances are
# and of a ranker
#   ranker.safetensors      kernel [D, A] and bias [A]: the scores of a pair, A is 1 or 2
#   ranker.json             keyword mask, cleaning, lengths, kinds of keywords
#   keywords.tsv            word TAB kind
#   term_ranker.py          all of it in PyTorch, without coder_jax

GENERATOR, _NUMBER = "generator.json", "generator.safetensors"
_MODULE = "term_ranker.py"


@dataclasses.dataclass(frozen=True)
class _GeneratorSettings:
    """generator.json."""

    distance: str


# ---- The generator ----


def read_generator(folder: Path, encoder: TermEncoder) -> CandidateGenerator:
    """The generator of an export, made with a given encoder.

    Raises:
        BadInput: if its files cannot be read.
    """
    typed(read_json(folder / GENERATOR), _GeneratorSettings, str(folder / GENERATOR))
    return CandidateGenerator(encoder, read_head(folder / _NUMBER))


# ---- The ranker ----


def _trained_ranker(system: RankSystem, run: SavedRun) -> TermRanker:
    """The ranker of a run."""
    saved = run.described(_RankRun)
    return TermRanker(
        trained_bert(run),
        load_tokenizer(run.folder / "tokenizer"),
        run.params["score"],
        keywords_of(run.folder / "words.tsv", saved.start.keyword_kinds),
        mask=system.mask,
        cleaning=saved.dataset.cleaning,
        max_length=saved.tokenizer.max_length,
        pair_length=system.batch.pair_length,
    )


def _write_ranker(folder: Path, ranker: TermRanker) -> None:
    """Write the ranker's files."""
    _write_head(folder / SCORE, ranker.head)
    (folder / KEYWORDS).write_text(keyword_lines(ranker.keywords.words), encoding="utf-8")
    settings = RankerSettings(
        mask=ranker.mask,
        cleaning=ranker.cleaning,
        max_length=ranker.max_length,
        pair_length=ranker.pair_length,
        keyword_kinds=ranker.keywords.kinds,
    )
    write_json(folder / RANKER, dataclasses.asdict(settings))
    shutil.copyfile(Path(__file__).with_name("torch_module.py"), folder / _MODULE)


def _compare_ranker(folder: Path, ranker: TermRanker) -> float:
    """The largest difference of probabilities between the exported PyTorch module and ours.

    Raises:
        RuntimeError: if it is too large, or NaN.
    """
    module = load_module(folder / _MODULE)
    words = [word for some in ranker.keywords.words.values() for word in list(some)[:3]]
    mentions = [*PROBE_TERMS, *words, " ".join(words)]
    names = [" ".join((mention, *words[:2])) for mention in reversed(mentions)]
    rows = np.stack([np.arange(len(mentions))] * 2, axis=1)
    ours = ranker.score_pairs(mentions, names, rows)
    theirs = module.TorchTermRanker(folder).score_pairs(list(zip(mentions, names, strict=True)))
    what = "the exported ranker gives probabilities that"
    return largest_difference(ours, theirs.numpy(), what, folder)


# ---- Both ----


def _write_head(path: Path, head: Mapping[str, Any]) -> None:
    """A dense layer as a safetensors file."""
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in head.items()}
    save_file(arrays, path, metadata={"format": "pt"})
