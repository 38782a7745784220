"""MLNorm: step 1 trains an encoder and class rows by a softmax, step 2 rows for all concepts.

Wajsbürt, Sarfati and Tannier, Medical concept normalization in French using multilingual
terminologies and contextual embeddings, Journal of Biomedical Informatics 114, 2021. From top to
bottom: what both steps share, token jitter, step 1 (sections 4.2 and 4.3.1, equations 4 and 5),
step 2 (section 4.3.2, equations 6 and 7), recipes, held-out terms, export.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.sharding import Mesh
from msgspec import UNSET, UnsetType
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coder_jax.devices.hosts import barrier, is_first, log
from coder_jax.devices.mesh import EVERYWHERE, constrain, local_copy
from coder_jax.encoding.embed import embed_tokens, place
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import KeptRows, search
from coder_jax.export.folder import PROBE_TERMS, largest_difference, load_module
from coder_jax.models.bert import Bert, inner_segments, merge_encoder, split_encoder
from coder_jax.models.dropout import GOLDEN_RATIO, mix_bits
from coder_jax.models.hf_files import EncoderSettings
from coder_jax.systems.encoder_system import (
    PACKED,
    ConfigOfEncoder,
    EncoderOfRun,
    EncoderRun,
    EncoderSystem,
    Head,
    ModelConfig,
    RunWithEncoder,
    StartOfEncoder,
    SystemOfEncoder,
    drop_vectors,
    encoder_of,
    provenance_of,
    term_vectors,
    token_ids,
    write_rows,
)
from coder_jax.systems.mlnorm.classifier import (
    ConceptClassifier,
    apply_head,
    head_shapes,
    new_head,
    new_statistics,
    train_head,
)
from coder_jax.systems.mlnorm.softmax import (
    candidate_scores,
    class_scores,
    class_softmax_loss,
    padded_rows,
    unit_rows,
    with_means,
)
from coder_jax.training.run_folder import Run
from coder_jax.training.system import (
    ONCE,
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
    check_proof,
)
from data_pipeline.batches.candidates import (
    AGAIN,
    CANDIDATES,
    CLASSES,
    ROW_GROUPS,
    ROWS,
    VECTORS,
    CandidateBatches,
    classes_of,
    read_classes,
    write_classes,
)
from data_pipeline.batches.spec import BatchSource, StepCut, TermSpec, check_least, check_rate
from data_pipeline.dataset.store import Manifest
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.files.identity import Count, Positive, read_json, typed
from data_pipeline.files.tables import split_concepts
from data_pipeline.files.whole import map_array, write_json, written_whole
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import mention_rows
from data_pipeline.terminology.semantic_groups import ANY, GROUPS

# -------------------------------------------------------------------------------------------------
# What run.json of MLNorm holds beside what that of any encoder does.


class StartOfClasses(StartOfEncoder, frozen=True, kw_only=True):
    """What run.json says of a run's start."""

    concepts: Count
    row_length: float | UnsetType = UNSET  # of the second step: of the rows that the first learnt


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ClassesRun(EncoderRun):
    """run.json of a system that learns classes."""

    start: StartOfClasses

    @classmethod
    def start_of(cls, encoder: EncoderOfRun, manifest: Manifest) -> StartOfClasses:
        return StartOfClasses(encoder=encoder, concepts=manifest.counts.concepts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FirstStep(SystemOfEncoder):
    """What the second step reads of the settings of the first."""

    width: Positive
    scale: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ConfigOfFirst(ConfigOfEncoder):
    system: _FirstStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FirstRun(_ClassesRun):
    """run.json of the first step."""

    config: _ConfigOfFirst


# -------------------------------------------------------------------------------------------------
# What both steps of MLNorm share: one row (its class) for each concept of the dataset.

_PROVED = 64  # classes


class _ClassHead(Head):
    """A part that belongs to the classes: the rows, or the head that maps vectors to their
    space.
    """

    def __init__(self, name: str, part: Part, width: int, seed: int):
        self.name, self.width, self.seed = name, width, seed
        self._part = part

    def part(self) -> Part:
        return self._part

    def shapes(self, recorded_start: Any, width: int) -> Tree:
        head, statistics = head_shapes(width, self.width)
        rows = padded_rows(recorded_start.concepts)
        return {
            "head": head,
            "statistics": statistics,
            "classes": jax.ShapeDtypeStruct((rows, self.width), jnp.float32),
            "class_groups": jax.ShapeDtypeStruct((rows,), jnp.uint16),
        }[self.name]

    def init_params(self, shapes: Tree) -> Tree:
        """Initializes the head and the rows; groups and statistics are read."""
        key = jax.random.key(self.seed)
        if self.name == "head":
            return new_head(shapes, jax.random.fold_in(key, 0))
        assert self.name == "classes", f"{self.name} is read"
        # Xavier's uniform, as the released code has it.
        bound = (6 / (shapes.shape[0] + shapes.shape[1])) ** 0.5
        of_classes = jax.random.fold_in(key, 1)
        return jax.random.uniform(of_classes, shapes.shape, minval=-bound, maxval=bound)


def _check_scale(system: MLNormSystem | MLNormClassesSystem) -> None:
    """Raise BadInput for an impossible width or scale."""
    check_least(system, 1, "width")
    if not 0 < system.scale <= 40:
        raise BadInput(
            f"--scale is {system.scale}; expected more than 0 and at most 40 (e^-2s is computed)"
        )


def _class_heads(system: MLNormSystem | MLNormClassesSystem, **parts: Part) -> tuple[Head, ...]:
    return tuple(
        _ClassHead(name, part, system.width, system.batch.seed) for name, part in parts.items()
    )


def _cosines_with_classes(
    bert: Bert, params: Params, statistics: Tree, rows: Mapping[str, Any], terms: int, pooling: str
) -> dict[str, jax.Array]:
    """The proof of a run's classes: cosines of terms with the first classes."""
    tokens, positions, segments = (rows[name] for name in PACKED)
    pooled = bert.term_vectors(tokens, positions, segments, terms, pooling)
    vectors = apply_head(params["head"], statistics, pooled)
    classes = unit_rows(params["classes"][:_PROVED])
    return {"cosines": jnp.dot(vectors, classes.T, precision=jax.lax.Precision.HIGHEST)}


def _saved_cosines(
    system: MLNormSystem | MLNormClassesSystem, run: SavedRun, terms: list[str]
) -> dict[str, np.ndarray]:
    """The same cosines, computed by the classifier read from a run."""
    classes = np.asarray(unit_rows(jnp.asarray(run.params["classes"][:_PROVED])))
    return {"cosines": _trained_classifier(system, run).encode(terms) @ classes.T}


# -------------------------------------------------------------------------------------------------
# Token jitter: during training some word pieces swap places and some are dropped.
#
# Not in the paper; the first released code has it (`compute_mask_and_shuffle` in
# deep_multilingual_normalization/model.py, with noise 0.5, drop 0.1, two pieces kept). Of each
# term, between [CLS] and [SEP]:
#
# - each piece has its place, 0, 1, ..., plus normal noise; the pieces are sorted by this sum. With
#   a noise of 0.5 a piece comes before the one before it with p = P(N(0, 1) > sqrt 2) = 0.08;
# - each piece has a uniform draw; it is left out if the draw is less than the rate, unless the draw
#   is one of the two lowest of its term. So of two pieces none goes, and one of n goes only where
#   three draws or more are low: rarely, and never all.
#
# The places that are left out become padding behind [SEP].
#
# Shapes: B blocks of R rows, L tokens of a row.

_NOISE_SITE, _DROP_SITE = 1_000_001, 1_000_002  # of random numbers: no other use has these
_ALWAYS_KEPT = 2  # pieces of a term
_LAST = jnp.finfo(jnp.float32).max  # of [SEP]: behind all pieces but those that are left out


def _draws(ids_BRL: jax.Array, site: int) -> jax.Array:
    """float32 in (0, 1), uniform on a grid of 2^-23: one per token, different at each site.

    Args:
        ids_BRL: uint32, `token_ids`: seed, step, term and place decide, however terms are packed.
        site: a number for what is drawn.
    """
    bits = mix_bits(ids_BRL + jnp.uint32(GOLDEN_RATIO * (site + 1) & 0xFFFFFFFF))
    return ((bits >> 9).astype(jnp.float32) + 0.5) * 2.0**-23


def _normal(uniform: jax.Array) -> jax.Array:
    """Uniform draws in (0, 1), turned into standard normal ones."""
    return 2**0.5 * jax.lax.erf_inv(2 * uniform - 1)


def _jitter(
    tokens_RL: jax.Array,
    positions_RL: jax.Array,
    segments_RL: jax.Array,
    normal_RL: jax.Array,
    uniform_RL: jax.Array,
    *,
    noise: float,
    drop: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The packed rows after jitter: tokens, positions, segments.

    Args:
        tokens_RL, positions_RL, segments_RL: int32, packed rows (`data_pipeline.batches.packing`).
        normal_RL: float32, of deviation 1, for each token.
        uniform_RL: float32 in (0, 1), for each token.
        noise: standard deviation of the noise of a place, in places.
        drop: the draw below which a piece is left out.
    """
    is_piece = inner_segments(segments_RL) > 0
    begins = segments_RL != jnp.pad(segments_RL, ((0, 0), (1, 0)))[:, :-1]
    slots = jnp.broadcast_to(jnp.arange(tokens_RL.shape[1])[None, :], tokens_RL.shape)
    term = jax.lax.cummax(jnp.where(begins, slots, 0), axis=1)  # the slot where it begins
    lower_RLL = is_piece[:, None, :] & (uniform_RL[:, None, :] < uniform_RL[:, :, None])
    lower_RLL &= segments_RL[:, None, :] == segments_RL[:, :, None]
    dropped = is_piece & (uniform_RL < drop) & (lower_RLL.sum(-1) >= _ALWAYS_KEPT)
    key = jnp.where(dropped, jnp.inf, positions_RL + noise * normal_RL)
    key = jnp.where(is_piece, key, jnp.where(begins, -jnp.inf, _LAST))
    key = jnp.where(segments_RL > 0, key, 0.0)  # padding stays where it is
    _, _, tokens_RL, dropped = jax.lax.sort(
        (term, key, tokens_RL, dropped), dimension=1, is_stable=True, num_keys=2
    )
    tokens, positions, segments = (
        jnp.where(dropped, 0, array) for array in (tokens_RL, positions_RL, segments_RL)
    )
    return tokens, positions, segments


def _jittered(batch: Batch, ids_BRL: jax.Array, *, noise: float, drop: float) -> Batch:
    """The arrays of a pass with the rows of its B blocks jittered.

    Args:
        batch: with `tokens`, `positions` and `segments` [B, R, L].
        ids_BRL: uint32, `token_ids` of the batch.
        noise, drop: of `_jitter`.
    """
    of_block: Callable[..., tuple[jax.Array, ...]] = jax.vmap(
        partial(_jitter, noise=noise, drop=drop)
    )
    tokens, positions, segments = (batch[name] for name in PACKED)
    normal_BRL = _normal(_draws(ids_BRL, _NOISE_SITE))
    uniform_BRL = _draws(ids_BRL, _DROP_SITE)
    rows = of_block(tokens, positions, segments, normal_BRL, uniform_BRL)
    return {**batch, **dict(zip(PACKED, rows, strict=True))}


# -------------------------------------------------------------------------------------------------
# MLNorm's first step: an encoder, a head and one row per concept, by a softmax over all of them.
#
# Wajsbürt, Sarfati and Tannier, Medical concept normalization in French using multilingual
# terminologies and contextual embeddings, Journal of Biomedical Informatics 114, 2021, sections 4.2
# and 4.3.1.

_POOLED_SITE = 1_000_000  # of dropout: no layer of an encoder has this number


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLNormSystem(EncoderSystem):
    """Encoder, head and classes are trained together; the loss needs the whole batch."""

    name: ClassVar[str] = "mlnorm"
    content: ClassVar[type[RunWithEncoder]] = _ClassesRun
    title: ClassVar[str] = "MLNorm"
    paper: ClassVar[str] = "Wajsbürt, Sarfati and Tannier 2021"
    whole: ClassVar[bool] = True
    scored: ClassVar[tuple[str, ...]] = ()  # all

    batch: TermSpec = dataclasses.field(default_factory=TermSpec)
    model: ModelConfig = ModelConfig(
        init="bert-base-multilingual-uncased", pooling="pieces", dropout=0.2
    )
    width: int = 350
    """Width of the vectors that are compared with the classes."""
    scale: float = 20.0
    """Factor of the cosines in the softmax (s)."""
    within_group: bool = True
    """The softmax is over the concepts of the term's semantic group (the paper), or over all (what
    the released code does in this step)."""
    head_learning_rate_factor: float = 400.0
    """Head and classes learn at this multiple of the encoder's rate, without a warm-up: 8e-3."""
    jitter_noise: float = 0.0
    """Word pieces are sorted by their place plus normal noise of this deviation, in training alone;
    0.5 in the released code, not in the paper."""
    jitter_drop: float = 0.0
    """Rate at which word pieces are left out, in training alone, but for two of a term; 0.1 in the
    released code, not in the paper."""

    @property
    def jitters(self) -> bool:
        """Whether word pieces are moved or dropped."""
        return self.jitter_noise > 0 or self.jitter_drop > 0

    def hyperparameters(self) -> dict[str, Any]:
        of = "the semantic group" if self.within_group else "the dataset"
        values = {"softmax": f"{self.scale:g} x cosine, over all concepts of {of}"}
        if self.jitters:
            values["token jitter"] = f"noise {self.jitter_noise:g}, drop {self.jitter_drop:g}"
        return values

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        _check_scale(self)
        if not 0 <= self.jitter_noise < math.inf:
            raise BadInput(f"--jitter-noise is {self.jitter_noise}; expected 0 or more")
        check_rate(self, "jitter_drop")

    def check_data(self, manifest: Manifest, folder: Path) -> None:
        if self.within_group and not manifest.semantic_types:
            raise BadInput(
                f"{folder} has no semantic types, but the softmax is over the concepts of a "
                "semantic group; use --no-within-group, or a release with semantic types"
            )

    # ---- Parameters ----

    @property
    def heads(self) -> tuple[Head, ...]:
        rate = self.head_learning_rate_factor
        return _class_heads(
            self,
            head=Part(rate=rate, warms_up=False),
            classes=Part(rate=rate, warms_up=False, spread=0),
            class_groups=Part(rate=None, spread=0),
        )

    def shapes(self, recorded_start: Any) -> tuple[Params, Tree]:
        """Shapes; the running statistics of the head are in `extra`."""
        params, _ = super().shapes(recorded_start)
        return params, head_shapes(self.structure(recorded_start).config.hidden_size, self.width)[1]

    def init_params(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        new, _ = super().init_params(params, extra)
        return new, new_statistics(extra)

    def precompute(
        self, source: BatchSource, recorded_start: Any, initial: Params, folder: Path
    ) -> Params:
        classes = classes_of(source.folder)
        if is_first():
            write_classes(folder, classes)
        groups = np.zeros(padded_rows(recorded_start.concepts), np.uint16)
        groups[: len(classes.concepts)] = classes.groups
        return {"class_groups": groups}

    # ---- The loss ----

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        """Cross-entropy of the softmax over the concepts (equation 5), averaged over the terms."""
        structure = self.structure(recorded_start)
        graph, _ = split_encoder(structure)
        rate = structure.config.hidden_dropout
        seed = self.batch.seed

        def pass_loss(params: Params, extra: Tree, batch: Batch, step_key: StepKey) -> Any:
            bert = merge_encoder(graph, params["encoder"], step_key.remat)
            if self.jitters:
                ids = token_ids(batch, step_key, seed)
                batch = _jittered(batch, ids, noise=self.jitter_noise, drop=self.jitter_drop)
            vector_BGNW = term_vectors(bert, batch, step_key, mesh, self.model.pooling, seed)
            pooled_NW = vector_BGNW.reshape(-1, vector_BGNW.shape[-1])
            pooled_NW = constrain(mesh, pooled_NW, EVERYWHERE)
            pooled_NW = drop_vectors(pooled_NW, seed, step_key, _POOLED_SITE, rate)
            vector_ND, extra = train_head(params["head"], extra, pooled_NW)
            class_N = batch["concepts"].reshape(-1)
            group_N = batch["semantic_groups"].reshape(-1)
            if not self.within_group:
                group_N = jnp.full_like(group_N, ANY)
            scores = class_scores(
                vector_ND,
                params["classes"],
                params["class_groups"],
                class_N,
                group_N,
                scale=self.scale,
                mesh=mesh,
            )
            loss, metrics = class_softmax_loss(scores)
            return loss, (extra, metrics)

        return pass_loss

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1 and other scores of held-out terms, by the nearest term and by the classes."""
        nearest = super().scorer(source, run)
        assert nearest is not None
        heldout = _HeldOutClasses(self, source)

        def score(view: View) -> dict[str, dict[str, float]]:
            return {**nearest(view), "classes": heldout.scores(view)}

        return score

    # ---- What proves what leaves the run: cosines with the first classes ----

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        cosines = _cosines_with_classes(bert, params, extra, rows, terms, self.model.pooling)
        return super().proof_outputs(bert, params, extra, rows, terms) | cosines

    def saved_outputs(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        return super().saved_outputs(run, terms) | _saved_cosines(self, run, terms)

    # ---- When it is trained ----

    def tables(self, run: SavedRun) -> dict[str, Any]:
        return {"classes": _trained_classifier(self, run)}

    def write_beside(self, run: SavedRun, folder: Path) -> dict[str, float]:
        return _write_classifier(folder, _trained_classifier(self, run), run.folder / CLASSES)


# -------------------------------------------------------------------------------------------------
# MLNorm's second step: rows for all concepts, by a softmax over candidates; the encoder stays.
#
# Wajsbürt, Sarfati and Tannier 2021, section 4.3.2. The vectors of all terms are made once.
# Concepts that the first step has not learnt start at the mean of their terms (equation 6). For
# each term the k concepts of its group with the nearest rows are found once (equation 7; with the
# means among the rows, as in the released code); a step tells the concept of each of its terms from
# all candidates of its terms, and moves only these rows.

_TERMS_AT_ONCE = 16_384
# Arrays of a batch: the sets of each class, and the set that a term's class must have.
_AMONG = (("class_groups", "semantic_groups"), ("class_languages", "languages"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLNormClassesSystem(EncoderSystem):
    """Rows of classes are trained, on vectors of an encoder and a head that another run trained."""

    name: ClassVar[str] = "mlnorm_classes"
    content: ClassVar[type[RunWithEncoder]] = _ClassesRun
    title: ClassVar[str] = "MLNorm"
    paper: ClassVar[str] = "Wajsbürt, Sarfati and Tannier 2021"
    whole: ClassVar[bool] = True
    encodes_rows: ClassVar[bool] = False
    scored: ClassVar[tuple[str, ...]] = ()  # all
    init_needs_extra: ClassVar[bool] = True

    batch: TermSpec = dataclasses.field(default_factory=TermSpec)
    model: Annotated[ModelConfig, Flag(hidden=True)] = ModelConfig(pooling="pieces")

    width: int = 350
    """Width of the vectors that are compared with the classes."""
    scale: float = 20.0
    """Factor of the cosines in the softmax (s)."""
    candidates: int = 100
    """k: how many nearest concepts of its group each term adds. The softmax runs over the concepts
    and candidates of all terms of the step."""
    means: Literal["new", "all"] = "new"
    """Which rows start at the mean of their concept's terms: those that the first step has not
    learnt (the paper), or all (the released code)."""
    within_language: bool = False
    """Whether a term is told only from concepts that have a term in its language. Else a term of a
    language in which few concepts have a name teaches all others that they are not meant in it."""
    refresh_steps: int = 0
    """Steps after which candidates are found anew; 0: once, before the first step, as in the
    paper."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        _check_scale(self)
        check_least(self, 1, "candidates")
        check_least(self, 0, "refresh_steps")

    def resolved_for(self, source: BatchSource) -> Self:
        return dataclasses.replace(self, refresh_steps=self.refresh_steps or ONCE)

    def hyperparameters(self) -> dict[str, Any]:
        return {
            "softmax": f"{self.scale:g} x cosine, over the candidates of all terms of a step, "
            f"{self.candidates} of each",
            "trained": "classes alone",
        }

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        if rows:
            raise BadInput("--rows: the terms of this recipe come as vectors, not in packed rows")
        return CandidateBatches(
            data,
            self.batch,
            cut,
            width=self.width,
            candidates=self.candidates,
            languages=self.within_language,
        )

    # ---- Parameters ----

    @property
    def heads(self) -> tuple[Head, ...]:
        return _class_heads(
            self,
            head=Part(rate=None),
            statistics=Part(rate=None),
            classes=Part(spread=0, touched="classes", untouched="stay"),
            class_groups=Part(rate=None, spread=0),
        )

    def parts(self) -> dict[str, Part]:
        return {**super().parts(), "encoder": Part(rate=None)}

    def load_initial(
        self, source: BatchSource, recorded_start: Any = None
    ) -> tuple[StartOfEncoder, Params]:
        raise BadInput(
            "this recipe trains classes on the vectors of a run of the recipe mlnorm; give its "
            "folder as --from"
        )

    def init_from_run(self, run: SavedRun, source: BatchSource) -> tuple[StartOfClasses, Params]:
        name = run.described(Run).config.system.name
        if name != MLNormSystem.name:
            raise BadInput(
                f"--from: found a run of the system {name!r}; expected one of "
                f"{MLNormSystem.name!r}, the first of the two steps"
            )
        saved = run.described(_FirstRun)
        system = saved.config.system
        for name, there in (("width", system.width), ("scale", system.scale)):
            if there != getattr(self, name):
                raise BadInput(
                    f"--from: the run has {name} {there}, this run has "
                    f"{getattr(self, name)}; give --{name} {there}"
                )
        ours, theirs = source.manifest, saved.dataset
        for what, mine, other in (
            ("tokenizer", ours.tokenizer.hash[:12], saved.tokenizer.hash[:12]),
            ("cleaning", ours.cleaning, theirs.cleaning),
            ("name of the terminology", ours.name, theirs.name),
            ("release", ours.release, theirs.release),
        ):
            if mine != other:
                raise BadInput(
                    f"--from: the run was trained on a dataset whose {what} is {other}, that of "
                    f"{source.folder} is {mine}; expected the same: build one with the other's"
                )
        check_proof(lambda terms: self.saved_outputs(run, terms), run, "--from: the run")
        learnt = np.linalg.norm(np.asarray(run.params["classes"]), axis=1)
        recorded_start = msgspec.structs.replace(
            _ClassesRun.start_of(saved.start.encoder, source.manifest),
            row_length=float(learnt[learnt > 0].mean()),
        )
        carried = {name: run.params[name] for name in ("encoder", "head")}
        return recorded_start, {
            **carried,
            "statistics": run.extra,
            "classes": self.learnt(run, source),
        }

    def learnt(self, run: SavedRun, source: BatchSource) -> np.ndarray:
        """float32 [C, D]: the other run's rows in this run's order of concepts; 0 for missing
        ones.
        """
        theirs = read_classes(run.folder).concepts
        ours = classes_of(source.folder).concepts
        number = {concept: row for row, concept in enumerate(theirs)}
        rows = np.array([number.get(concept, -1) for concept in ours])
        classes = np.zeros((padded_rows(len(ours)), self.width), np.float32)
        if self.means == "new":
            known = np.flatnonzero(rows >= 0)
            classes[known] = np.asarray(run.params["classes"])[rows[known]]
            log(f"{len(known):,} of {len(ours):,} classes start as the other run has learnt them")
        return classes

    def precompute(
        self, source: BatchSource, recorded_start: Any, initial: Params, folder: Path
    ) -> Params:
        assert isinstance(source, CandidateBatches)
        listed = classes_of(source.folder)
        encoder, head = initial["encoder"], {**initial["head"], **initial["statistics"]}
        self.write_vectors(source, recorded_start, encoder, head, folder / VECTORS)
        if is_first():
            write_classes(folder, listed)
            with written_whole(folder / ROWS) as path, path.open("wb") as file:
                np.save(file, source.rows)
        barrier("what candidates are found for")
        classes = np.array(initial["classes"])
        classes[: len(listed.concepts)] = with_means(
            classes[: len(listed.concepts)],
            map_array(folder / VECTORS, AGAIN),
            source.dataset.term_start,
            source.dataset.term_counts(),
            length=recorded_start.row_length,
        )
        groups = np.zeros(len(classes), np.uint16)
        groups[: len(listed.concepts)] = listed.groups
        return {"class_groups": groups, "classes": classes}

    def write_vectors(
        self,
        source: CandidateBatches,
        recorded_start: Any,
        encoder: Any,
        head: dict[str, np.ndarray],
        path: Path,
    ) -> None:
        """Write the vector of each term, without dropout and with the running statistics."""
        placed = place(self.encoder_with(encoder, recorded_start))
        data = source.dataset
        to_class = jax.jit(apply_head)

        def make(first: int, last: int) -> np.ndarray:
            start = data.token_start[first : last + 1]
            tokens = np.asarray(data.tokens[start[0] : start[-1]], np.int32)
            pooled = embed_tokens(
                placed, tokens, start - start[0], pooling=self.model.pooling, unit=False
            )
            return np.asarray(to_class(head, head, jnp.asarray(pooled)))

        write_rows(
            path,
            int(data.term_start[-1]),
            make,
            chunk=_TERMS_AT_ONCE,
            provenance=provenance_of(source.manifest, encoder, head),
            what="vectors of all terms",
        )

    # ---- Candidates ----

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """Finds the k nearest concepts in each term's group; float32, exact."""
        table, groups = (
            np.asarray(local_copy(view.mesh, view.params[name]))
            for name in ("classes", "class_groups")
        )
        run = folder.parent.parent
        vectors, rows = map_array(run / VECTORS, AGAIN), map_array(run / ROWS, AGAIN)
        unit = np.asarray(unit_rows(jnp.asarray(table)))
        of_group: dict[int, tuple[np.ndarray, KeptRows]] = {}

        def make(first: int, last: int) -> np.ndarray:
            terms, numbers = np.divmod(rows[first:last], ROW_GROUPS)
            found = np.full((last - first, self.candidates), -1, np.int32)
            for number in np.unique(numbers).tolist():
                if number not in of_group:
                    concepts = np.flatnonzero(groups >> number & 1)
                    is_every = concepts.size == len(unit)
                    of_group[number] = concepts, KeptRows(unit if is_every else unit[concepts])
                concepts, keys = of_group[number]
                count = min(self.candidates, concepts.size)
                mine = np.flatnonzero(numbers == number)
                _, nearest = search(vectors[terms[mine]], keys, count)
                found[mine, :count] = concepts[nearest]
            return found

        write_rows(
            folder / CANDIDATES,
            len(rows),
            make,
            chunk=_TERMS_AT_ONCE,
            provenance=hashlib.sha256(np.ascontiguousarray(table).data).hexdigest(),
            what="candidates of all terms",
        )

    # ---- The loss ----

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        """Cross-entropy over the union of the concepts and candidates of the step's terms.

        Of each term those that are of its semantic group (and have a term in its language, if
        asked); the candidates of one term are negatives of all others.
        """

        def pass_loss(params: Params, extra: Tree, batch: Batch, step_key: StepKey) -> Any:
            whole = {
                name: constrain(mesh, array.reshape(-1, *array.shape[3:]), EVERYWHERE)
                for name, array in batch.items()
            }
            scores = candidate_scores(
                whole["vectors"],
                params["classes"],
                whole["classes"],
                *((whole[sets], whole[own]) for sets, own in _AMONG if own in whole),
                scale=self.scale,
            )
            loss, metrics = class_softmax_loss(scores)
            return loss, (extra, metrics)

        return pass_loss

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1 and other scores of held-out terms, by the classes."""
        heldout = _HeldOutClasses(self, source)
        return lambda view: {"classes": heldout.scores(view)}

    # ---- What proves what leaves the run: cosines with the first classes ----

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        cosines = _cosines_with_classes(
            bert, params, params["statistics"], rows, terms, self.model.pooling
        )
        return super().proof_outputs(bert, params, extra, rows, terms) | cosines

    def saved_outputs(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        return super().saved_outputs(run, terms) | _saved_cosines(self, run, terms)

    # ---- When it is trained ----

    def tables(self, run: SavedRun) -> dict[str, Any]:
        return {"classes": _trained_classifier(self, run)}

    def write_beside(self, run: SavedRun, folder: Path) -> dict[str, float]:
        return _write_classifier(folder, _trained_classifier(self, run), run.folder / CLASSES)


# -------------------------------------------------------------------------------------------------
# Recipes of MLNorm (Wajsbürt, Sarfati and Tannier 2021), and one for small machines.
#
# Each is a page of a lab book: the command, how long it takes where, what to expect, and for each
# value where it stands. What a recipe does not set is the default of `MLNormSystem` and `TermSpec`:
#
# | value | where it stands |
# |---|---|
# | mean of the word pieces, linear to 350, ReLU, batch norm, 20 x cosine | paper, 4.2 and 5 |
# | batch norm's scale and shift | released code alone |
# | the softmax over the concepts of the mention's semantic group | paper, equation 5; the released
#     code takes all concepts in step 1: --no-within-group |
# | 128 terms a step; dropout 0.2; terms of at most 100 pieces | paper, 5; that [CLS] and [SEP] are
#     among them: released code |
# | each term once an epoch, and each training mention | released code alone |
# | encoder 2e-5, head and classes 8e-3; Adam with 0.9 and 0.999 | paper, 5 |
# | encoder after a warm-up of a tenth, head and classes without; all fall to 0 | paper, 4.3.2; that
#     step 2 falls from its first step on: released code |
# | ten semantic groups | released code; of the corpus: paper, 3.2 |
# | classes from Xavier's uniform, head as PyTorch begins a linear layer | released code alone |
# | no weight decay, gradients not clipped | released code alone |


def mlnorm() -> Config[MLNormSystem]:
    """Step 1 of the paper: French terms and their English mirror, encoder and classes together.

        python -m data_pipeline.build --source umls-2014AB.zip --languages FRE ENG --mirror FRE \\
            --semantic-groups ANAT CHEM DEVI DISO GEOG LIVB OBJC PHEN PHYS PROC --cleaning mlnorm \\
            --max-length 100 --tokenizer bert-base-multilingual-uncased --keep-suppressed \\
            --out data/fr_mirror
        bash launch/train.sh --recipe mlnorm --data data/fr_mirror --out runs/s1
        python -m coder_jax evaluate --model runs/s1 --threshold 0.5 --json s1.json \\
            --benchmark quaero=QUAERO_FrenchMed

    Five hours on one P40 in the paper. Its score with French and English terms alone, it seems: F1
    .678 on Quaero's EMEA of 2015, without answers whose probability is below 0.5 (table 5; our copy
    lost the names of its rows). 15 epochs of its terms, 128 a step; UMLS 2014AB has some 720,000
    (table 1), which makes 85,000 steps. Not trained to its end here.
    """
    optimizer = OptimizerConfig(
        epochs=15, steps=84_900, warmup_steps=0.1, weight_decay=0.0, clip_norm=0.0
    )
    return Config(recipe="mlnorm", system=MLNormSystem(), optimizer=optimizer)


def mlnorm_classes() -> Config[MLNormClassesSystem]:
    """Step 2 of the paper: rows for all concepts, those of English names alone too.

        python -m data_pipeline.build --source umls-2014AB.zip --languages FRE ENG --mirror FRE \\
            --sources ENG=CHV,SNOMEDCT_US,MTH,NCI,MSH \\
            --semantic-groups ANAT CHEM DEVI DISO GEOG LIVB OBJC PHEN PHYS PROC --cleaning mlnorm \\
            --max-length 100 --tokenizer bert-base-multilingual-uncased --keep-suppressed \\
            --out data/fr_all
        bash launch/train.sh --recipe mlnorm_classes --data data/fr_all --from runs/s1 --out runs/s2
        python -m coder_jax evaluate --model runs/s2 --threshold 0.1 --json s2.json \\
            --benchmark quaero=QUAERO_FrenchMed

    Two hours on one P40 in the paper. Its scores after both steps: F1 .765 on Quaero's EMEA of
    2015, .737 on MEDLINE's, without answers whose probability is below 0.1 (table 3). With
    --supervised QUAERO_FrenchMed in both builds .851 and .790: an epoch shows each training mention
    once. 5 epochs of up to 3.0 million terms, 128 a step; rows learn at 8e-3, which falls in a line
    to 0 from the first step. The encoder stays, so no step encodes. Not trained to its end here.
    """
    optimizer = OptimizerConfig(
        epochs=5,
        steps=118_000,
        learning_rate=8e-3,
        warmup_steps=0,
        weight_decay=0.0,
        clip_norm=0.0,
    )
    return Config(recipe="mlnorm_classes", system=MLNormClassesSystem(), optimizer=optimizer)


def mlnorm_small() -> Config[MLNormSystem]:
    """Step 1 with a small encoder on a small machine, for terms of one or two languages.

        python -m data_pipeline.build --source openmeta --languages FRE ENG --mirror FRE \\
            --semantic-groups ANAT CHEM DEVI DISO GEOG LIVB OBJC PHEN PHYS PROC --cleaning mlnorm \\
            --max-length 32 --hold-out 1000 --hold-out-languages FRE --out data/fr \\
            --tokenizer sentence-transformers/all-MiniLM-L6-v2
        bash launch/train.sh --recipe mlnorm_small --data data/fr --out runs/s1
        bash launch/train.sh --recipe mlnorm_classes --data data/fr_all --from runs/s1 \\
            --steps 2000 --out runs/s2

    (data/fr_all as data/fr, with --sources ENG=NCI,MSH and --exclude-terms
    data/fr/heldout/mentions.tsv in place of --hold-out.) Three epochs of 56,694 French and English
    terms of an open terminology, 13,255 concepts: 22 minutes on two CPU cores that were busy.
    Right of 1,000 French names that were held out, in percent, means of three seeds:

    | terms to learn from | steps | most probable class | among five | nearest of 10,000 terms |
    |---|---:|---:|---:|---:|
    | none | 0 | | | 62.4 |
    | French and English | 1,300 | 66.7 ± 0.3 | 85.1 ± 0.5 | 80.1 |
    | French, --languages FRE | 840 | 48.8 ± 0.3 | 72.1 ± 0.3 | 72.5 |
    | English, --languages ENG | 1,210 | 29.8 ± 0.8 | 46.4 ± 0.8 | 63.4 |

    Step 2 on 54,970 concepts: 13 minutes; of 300 French names of a public test 72 % of the 57 whose
    concept has a French name (67 before), and 57 % of the 23 whose concept has none (none before).

    On all 296,772 concepts (without --sources; an hour, most of it for the vectors) one epoch at
    8e-3 is too fast. Right of 298 of these names, of the 57 and of the other 241, in percent:

    | | all | 57 | 241 |
    |---|---:|---:|---:|
    | nearest term, by the same vectors | 62.1 | 75.4 | 58.9 |
    | learnt rows, and means for the others: where step 2 begins | 64.8 | 26.3 | 73.9 |
    | 1,500 steps at 5e-4 | 66.1 | 33.3 | 73.9 |
    | 3,000 steps at 1e-3, --within-language | 66.1 | 38.6 | 72.6 |
    | 3,000 steps at 2e-3 | 60.4 | 52.6 | 62.2 |
    | 4,000 steps at 3e-3, --within-language | 54.4 | 61.4 | 52.7 |
    | means for all (--means all) | 61.1 | 59.6 | 61.4 |
    | 3,000 steps at 1e-3 from these | 58.7 | 68.4 | 56.4 |
    | 3,000 steps at 1e-3 from these, --within-language | 60.7 | 66.7 | 59.3 |

    French names of concepts that have one draw all French mentions to themselves as they are
    learnt; less so where a French term is told from concepts with a French name alone.
    """
    base = mlnorm()
    system = dataclasses.replace(
        base.system,
        model=ModelConfig(
            init="sentence-transformers/all-MiniLM-L6-v2", pooling="pieces", dropout=0.1
        ),
        batch=TermSpec(row_length=32),
        head_learning_rate_factor=80.0,
    )
    return Config(
        recipe="mlnorm_small",
        system=system,
        optimizer=dataclasses.replace(
            base.optimizer, epochs=0.0, steps=1_300, warmup_steps=0.1, learning_rate=1e-4
        ),
        run=RunConfig(eval_steps=325, save_steps=325),
    )


# -------------------------------------------------------------------------------------------------
# Held-out terms, scored during training: how often their concept is the most probable one.


class _HeldOutClasses:
    """acc@1, acc@5 and MRR of held-out terms, by the classes of their given group.

    The group of a term is one of its concept's; of a term without any the softmax is over all.

    Args:
        system: of the run.
        source: whose folder has `heldout/`.
    """

    def __init__(self, system: MLNormSystem | MLNormClassesSystem, source: BatchSource):
        self.system = system
        lines = mention_rows(source.folder / "heldout" / "mentions.tsv")
        self.classes = classes_of(source.folder)
        number = {concept: row for row, concept in enumerate(self.classes.concepts)}
        rows = [[number[c] for c in split_concepts(line[1]) if c in number] for line in lines]
        known = [(line[0], gold) for line, gold in zip(lines, rows, strict=True) if gold]
        self.mentions = [mention for mention, _ in known]
        self.gold = [gold for _, gold in known]
        bits = [int(self.classes.groups[gold[0]]) & ~(1 << ANY) for gold in self.gold]
        self.numbers = np.array([(b & -b).bit_length() - 1 if b else ANY for b in bits])
        if not getattr(system, "within_group", True):
            self.numbers = np.full(len(bits), ANY)
        self.tokenizer = load_tokenizer(source.folder / "tokenizer")
        self.settings = EncoderSettings.of_data(source.manifest, system.model.pooling)

    def scores(self, view: View) -> dict[str, float]:
        """The scores of a run at one of its steps, and the number of classes; {} on further
        hosts.
        """
        if not is_first():
            return {}
        classifier = ConceptClassifier(
            TermEncoder(
                self.system.encoder_with(view.params["encoder"], view.recorded_start),
                self.tokenizer,
                self.settings,
            ),
            {**view.params["head"], **(view.extra or view.params["statistics"])},
            np.asarray(view.params["classes"]),
            self.classes,
            scale=self.system.scale,
        )
        found, _ = classifier.nearest_of(classifier.encode(self.mentions), self.numbers, 100)
        ranks = [
            next((place + 1 for place, row in enumerate(rows) if row in gold), np.inf)
            for rows, gold in zip(found.tolist(), self.gold, strict=True)
        ]
        rank = np.array(ranks, float)
        scores = {
            "acc@1": (rank <= 1).mean(),
            "acc@5": (rank <= 5).mean(),
            "mrr": (1 / rank).mean(),
        }
        rounded = {name: round(float(value), 4) for name, value in scores.items()}
        return {**rounded, "classes": len(self.classes.concepts)}


# -------------------------------------------------------------------------------------------------
# The export of a concept classifier: the encoder for the Hub, the head and the classes.
#
# Beside what `export_encoder` writes
#   classes.safetensors    classes [C, D], one row per concept; the head's kernel [W, D], bias,
#                          scale, shift, and its running mean and variance, [D] each
#   classes.tsv            the concept of each row and its semantic groups
#   classifier.json        the scale of cosines
#   concept_classifier.py  all of it in PyTorch, without coder_jax

_TABLE, CLASSIFIER, _MODULE = "classes.safetensors", "classifier.json", "concept_classifier.py"


@dataclasses.dataclass(frozen=True)
class _Settings:
    """classifier.json."""

    scale: float


def _trained_classifier(
    system: MLNormSystem | MLNormClassesSystem, run: SavedRun
) -> ConceptClassifier:
    """The classifier of a run."""
    return ConceptClassifier(
        encoder_of(run),
        {**run.params["head"], **(run.extra or run.params["statistics"])},
        run.params["classes"],
        read_classes(run.folder),
        scale=system.scale,
    )


def _write_classifier(
    folder: Path, classifier: ConceptClassifier, classes: Path
) -> dict[str, float]:
    """Write the classifier's files, and return how far PyTorch differs from us."""
    tensors = {"classes": classifier.table, **classifier.head}
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(contiguous, folder / _TABLE, metadata={"format": "pt"})
    shutil.copyfile(classes, folder / CLASSES)
    write_json(folder / CLASSIFIER, dataclasses.asdict(_Settings(classifier.scale)))
    shutil.copyfile(Path(__file__).with_name("torch_module.py"), folder / _MODULE)
    return {"probabilities in PyTorch": _compare_classifier(folder, classifier)}


def _compare_classifier(folder: Path, classifier: ConceptClassifier) -> float:
    """The largest difference of probabilities between the exported PyTorch module and ours.

    Raises:
        RuntimeError: if it is too large, or NaN.
    """
    import torch

    module = load_module(folder / _MODULE)
    known_groups: list[str | None] = [name for name in GROUPS if classifier.known_group(name)]
    known_groups.append(None)
    groups = [known_groups[place % len(known_groups)] for place in range(len(PROBE_TERMS))]
    with torch.inference_mode():
        theirs = module.TorchConceptClassifier(folder).probabilities(PROBE_TERMS, groups).numpy()
    index, ours = classifier.nearest(PROBE_TERMS, groups, k=min(100, len(classifier.concepts)))
    known = index >= 0
    picked = np.take_along_axis(theirs, np.maximum(index, 0), axis=1)
    ours = np.where(known, ours, picked)
    what = "the exported classifier gives probabilities that"
    return largest_difference(ours, picked, what, folder)


def read_classifier(folder: Path) -> ConceptClassifier:
    """The classifier of an export.

    Raises:
        BadInput: if its files cannot be read.
    """
    settings = typed(read_json(folder / CLASSIFIER), _Settings, str(folder / CLASSIFIER))
    try:
        tensors = load_file(folder / _TABLE)
        table = tensors.pop("classes")
    except (OSError, KeyError, SafetensorError) as error:
        raise BadInput(
            f"{folder / _TABLE} cannot be read: {error}; export the run again"
        ) from error
    return ConceptClassifier(
        TermEncoder.from_pretrained(folder),
        tensors,
        table,
        read_classes(folder),
        scale=settings.scale,
    )
