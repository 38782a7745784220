"""What all systems that train a BERT share: data, initial encoder, vectors of a pass, export.

From top to bottom: the vectors of a pass; the types of run.json; `Head`, a part beside the encoder,
and `EncoderSystem`, the class above each paper's; checks of an encoder to start from; what is read
of a trained run, and its export; encoders mixed from checkpoints; files of rows that are made in
chunks; the proof that what is read of a run is what was trained.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
)

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import polars as pl
from jax.sharding import Mesh, PartitionSpec
from msgspec import UNSET, UnsetType
from tqdm import tqdm

from coder_jax.devices.hosts import barrier, first_decides, host_count, host_index, is_first, log
from coder_jax.devices.mesh import arithmetic, constrain, most_shapes
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.vector_files import hash_arrays
from coder_jax.evaluation.normalization import HeldOut
from coder_jax.export.folder import export_encoder, try_export
from coder_jax.export.model_card import LICENSE, read_card
from coder_jax.export.relations import ExportedRelations
from coder_jax.models.bert import Bert, Structure, merge_encoder, split_encoder
from coder_jax.models.bert_config import BertConfig, encoder_flops
from coder_jax.models.dropout import hash_dropout, mix_bits
from coder_jax.models.hf_files import EncoderSettings, find_folder, read_settings
from coder_jax.models.hf_weights import (
    abstract_bert,
    check_vocabulary,
    first_layers,
    load_bert,
    read_config,
)
from coder_jax.systems.teacher import open_teacher
from coder_jax.training.metrics import read_metrics
from coder_jax.training.run_folder import (
    AnyDataOfRun,
    CarriedFrom,
    ConfigOfRun,
    DataOfRun,
    Run,
    StartOfRun,
    SystemOfRun,
    TokenizerOfRun,
    read_run_identity,
    small_files,
    system_name,
)
from coder_jax.training.start import carried_from, read_other_run
from coder_jax.training.system import (
    Batch,
    Notes,
    OptimizerConfig,
    Params,
    Part,
    Proof,
    RunConfig,
    SavedRun,
    Scorer,
    StepKey,
    System,
    Trained,
    Tree,
    View,
    check_proof,
)
from data_pipeline import process
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.packing import pack_rows
from data_pipeline.batches.spec import BatchSource, StepCut, check_least, check_rate
from data_pipeline.dataset.store import open_dataset
from data_pipeline.dataset.tokenizer import (
    load_tokenizer,
    tokenize,
    tokenizer_hash,
    warn_of_case,
)
from data_pipeline.files.identity import ENCODER
from data_pipeline.files.whole import write_array, written_whole
from data_pipeline.flags import Flag, hub_id_of
from data_pipeline.process import BadInput, progress_bar
from data_pipeline.sources.term_tables import UNDETERMINED
from data_pipeline.terminology.cleaning import clean

# -------------------------------------------------------------------------------------------------
# The vectors of the terms in a pass, with dropout that does not depend on how a step is cut.

PACKED = ("tokens", "positions", "segments")
VECTORS = PartitionSpec("groups", None, "within")  # [B, G, N, D]
_LEAST_TOKENS = 2  # of a term: [CLS] and [SEP]


def term_vectors(
    bert: Bert, batch: Batch, step_key: StepKey, mesh: Mesh, pooling: str, seed: int
) -> jax.Array:
    """float32 [B, G, N, D]: the vector of each term of a pass.

    Args:
        bert: the encoder.
        batch: packed rows [B, R, L], and `concepts` [B, G, N].
        step_key: where in the run.
        mesh: the devices.
        pooling: one of `POOLINGS`.
        seed: of the dropout.
    """

    def encode(rows: list[jax.Array], ids_RL: jax.Array, terms: int) -> jax.Array:
        tokens_RL, positions_RL, segments_RL = rows
        return bert.term_vectors(tokens_RL, positions_RL, segments_RL, terms, pooling, ids_RL)

    return read_term_blocks(encode, batch, step_key, mesh, seed)


def read_term_blocks(
    read: Callable[[list[jax.Array], jax.Array, int], Any],
    batch: Batch,
    step_key: StepKey,
    mesh: Mesh,
    seed: int,
    beside: tuple[str, ...] = (),
) -> Any:
    """Applies `read` to the packed rows of each block; each result is [B, G, N, ...].

    Args:
        read: of ([tokens, positions, segments, and what is beside] [R, L] each, dropout ids [R, L],
            the number of terms), one array or several, [terms, ...] each.
        batch, step_key, mesh, seed: as for `term_vectors`.
        beside: names of further packed arrays.
    """
    blocks, groups, terms = batch["concepts"].shape
    rows = [batch[name] for name in (*PACKED, *beside)]
    ids = token_ids(batch, step_key, seed)

    def encode(rows: list[jax.Array], ids_RL: jax.Array) -> Any:
        return read(rows, ids_RL, groups * terms)

    # A batch dimension of one would cost a CPU transposes in every dense layer's gradient.
    of_blocks: Callable[..., Any] = jax.vmap if blocks > 1 else single
    if step_key.chunks == 1:
        found = of_blocks(encode)(rows, ids)
    else:
        found = _read_chunks(read, of_blocks, rows, ids, groups * terms, step_key.chunks, mesh)

    def by_group(array: jax.Array) -> jax.Array:
        return constrain(mesh, array.reshape(blocks, groups, terms, -1), VECTORS)

    return jax.tree.map(by_group, found)


def _read_chunks(
    read: Callable[[list[jax.Array], jax.Array, int], Any],
    of_blocks: Callable[..., Any],
    rows: list[jax.Array],
    ids: jax.Array,
    terms: int,
    chunks: int,
    mesh: Mesh,
) -> Any:
    """Applies `read` to one chunk of each block's rows after the other, each [B, N, ...].

    The gradient reads each chunk again: of what the encoder computes between rows and vectors one
    chunk's is in memory at a time, and the loss still sees all vectors together. Dropout is the
    same both times, as it comes with the token.

    Args:
        read: of `read_term_blocks`.
        of_blocks: `jax.vmap`, or `single`.
        rows: [B, R, L] each.
        ids: of the dropout.
        terms: N, of a block.
        chunks: C, into which the rows of each device divide evenly.
        mesh: the devices.

    References:
        Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, 2021.
    """
    blocks, count, length = rows[0].shape
    most = min(terms, count // chunks * (length // _LEAST_TOKENS))  # n, of a chunk

    def split(array_BRL: jax.Array) -> jax.Array:
        # Each device that shares a block has its part of every chunk.
        array = array_BRL.reshape(blocks, mesh.shape["within"], chunks, -1, length)
        array_CBRL = jnp.moveaxis(array, 2, 0).reshape(chunks, blocks, -1, length)
        return constrain(mesh, array_CBRL, PartitionSpec(None, "groups", "within"))

    def read_chunk(rows: list[jax.Array], ids_RL: jax.Array) -> tuple[Any, jax.Array]:
        """The results [n, ...] of the terms that begin in a chunk, and their numbers in the
        block.
        """
        tokens_RL, positions_RL, segments_RL, *beside = rows
        before_RL = jnp.pad(segments_RL, ((0, 0), (1, 0)))[:, :-1]
        begins_RL = (segments_RL != before_RL) & (segments_RL > 0)
        number_RL = jnp.cumsum(begins_RL.reshape(-1), dtype=jnp.int32).reshape(begins_RL.shape)
        place_RL = jnp.where(begins_RL, number_RL - 1, most)
        term_n = jnp.full(most, terms).at[place_RL].set(segments_RL - 1, mode="drop")
        number_RL = jnp.where(segments_RL > 0, number_RL, 0)
        return read([tokens_RL, positions_RL, number_RL, *beside], ids_RL, most), term_n

    def joined(found_Cn: jax.Array, term_Cn: jax.Array) -> jax.Array:
        found = jnp.zeros((terms, *found_Cn.shape[2:]), found_Cn.dtype)
        return found.at[term_Cn].set(found_Cn, mode="drop")

    again = jax.checkpoint(lambda chunk: of_blocks(read_chunk)(*chunk), prevent_cse=False)
    found, term_BCn = jax.tree.map(
        lambda array: jnp.moveaxis(array, 0, 1),
        jax.lax.map(again, jax.tree.map(split, (rows, ids))),
    )
    return jax.tree.map(lambda found_BCn: of_blocks(joined)(found_BCn, term_BCn), found)


def token_ids(batch: Batch, step_key: StepKey, seed: int) -> jax.Array:
    """`_dropout_ids` of a pass.

    Args:
        batch: as for `term_vectors`.
        step_key: where in the run.
        seed: of the run.
    """
    blocks, groups, terms = batch["concepts"].shape
    first_term_B = (step_key.number * blocks + jnp.arange(blocks)) * groups * terms
    return _dropout_ids(seed, step_key.step, first_term_B, batch["segments"], batch["positions"])


def _seed_bits(seed: int | jax.Array) -> jax.Array:
    """uint32 scalar: a seed; of a number its last 32 bits."""
    return jnp.asarray(seed % 2**32 if isinstance(seed, int) else seed, jnp.uint32)


def _dropout_ids(
    seed: int | jax.Array,
    step: jax.Array,
    first_term_B: jax.Array,
    segments_BRL: jax.Array,
    positions_BRL: jax.Array,
) -> jax.Array:
    """uint32 [B, R, L]: a number for each token, a function of seed, step, term and position.

    The term counts within the step, not within its block, the first of which is `first_term_B`:
    dropout does not depend on how the step is cut or packed.
    """
    term_BRL = (first_term_B[:, None, None] + segments_BRL).astype(jnp.uint32)
    of_step = mix_bits(mix_bits(_seed_bits(seed)) ^ step.astype(jnp.uint32))
    return mix_bits(mix_bits(of_step ^ term_BRL) ^ positions_BRL.astype(jnp.uint32))


def drop_vectors(
    vector_ND: jax.Array, seed: int, step_key: StepKey, site: int, rate: float
) -> jax.Array:
    """Dropout of vectors that depends only on seed, step and the term's place in the step.

    Args:
        vector_ND: float32, one for each term of a pass.
        seed: of the dropout.
        step_key: where in the run.
        site: a number that no other dropout of the model has; those of a BERT are small.
        rate: the part of the numbers that become 0.
    """
    terms = vector_ND.shape[0]
    of_step = mix_bits(mix_bits(_seed_bits(seed)) ^ step_key.step.astype(jnp.uint32))
    place_N = (step_key.number * terms + jnp.arange(terms)).astype(jnp.uint32)
    features_D = jnp.arange(vector_ND.shape[1], dtype=jnp.uint32)
    ids_N1 = mix_bits(of_step ^ place_N)[:, None]
    return hash_dropout(vector_ND, ids_N1, site, features_D[None], rate)


def single(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap` for arrays whose first dimension is one."""

    def mapped(*arguments: Any) -> Any:
        made = function(*jax.tree.map(lambda array: array[0], arguments))
        return jax.tree.map(lambda array: array[None], made)

    return mapped


def unit_length(vectors: jax.Array) -> jax.Array:
    """Vectors of length one on the last axis; a zero vector stays zero, with finite gradients."""
    square = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(square, 1e-24))


# -------------------------------------------------------------------------------------------------
# The content of run.json for systems with an encoder, as types for `identity.typed`.


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderOfRun:
    """The encoder that a run started from, in run.json."""

    config: dict[str, Any]
    pooler: bool
    license: str | None
    license_name: str | UnsetType = UNSET
    license_link: str | UnsetType = UNSET
    base_model: str | UnsetType = UNSET  # its hub id, or ./ and the name of a folder
    made_from: str | UnsetType = UNSET  # the base model that its own card names
    weights_hash: str | UnsetType = UNSET  # of its parameters; absent if it is that of another run
    run: CarriedFrom | UnsetType = UNSET


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOfRun:
    """The settings of a run's `ModelConfig` that other commands read."""

    pooling: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SystemOfEncoder(SystemOfRun):
    """The settings of a run's `EncoderSystem` that other commands read."""

    model: ModelOfRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigOfEncoder(ConfigOfRun):
    """The configuration in run.json."""

    system: SystemOfEncoder


class StartOfEncoder(StartOfRun, frozen=True, kw_only=True):
    """The start of a run, in run.json."""

    encoder: EncoderOfRun

    @property
    def is_another_run(self) -> bool:
        """Whether a run started from another run's parameters."""
        return self.origin is not UNSET or self.encoder.run is not UNSET


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunWithEncoder(Run):
    """run.json of a system that trains an encoder, on data of any kind."""

    config: ConfigOfEncoder
    dataset: AnyDataOfRun
    tokenizer: TokenizerOfRun
    start: StartOfEncoder

    @classmethod
    def start_of(cls, encoder: EncoderOfRun, manifest: Any) -> StartOfEncoder:
        """What `shapes` and `loss` must know of the start, and run.json keeps."""
        return StartOfEncoder(encoder=encoder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderRun(RunWithEncoder):
    """run.json of a system that trains an encoder on a dataset."""

    dataset: DataOfRun


# -------------------------------------------------------------------------------------------------
# The base class of systems that train a BERT on terms: encoder, heads, data, start and export.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The encoder that is trained."""

    init: Annotated[str, Flag(metavar="MODEL")] = (
        "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
    )
    """Encoder to start from, a folder or a hub id; a BERT, RoBERTa (XLM-R, CamemBERT),
    ModernBERT, MPNet, DistilBERT, or the folder of a run, whose encoder is taken (--from takes all
    that it learnt)."""
    layers: int = 0
    """Keep only the first so many layers of that encoder, for speed; 0: all are kept."""
    pooling: Literal["cls", "mean", "pieces", "pooler"] = "cls"
    """How a term becomes a vector: by the hidden state of [CLS]; the mean of all tokens; the mean
    of its word pieces, without [CLS] and [SEP]; or BERT's pooler."""
    dropout: float | None = None
    """Dropout rate of hidden states and attention; without it: the initial encoder's own rates."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the encoder; auto is bfloat16 on an accelerator, else float32."""

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        check_least(self, 0, "layers")
        if self.dropout is not None:
            check_rate(self, "dropout")


class Head(abc.ABC):
    """A part of the parameters that is trained beside the encoder; a system has a tuple of them."""

    name: str
    """Of the part."""

    @abc.abstractmethod
    def part(self) -> Part:
        """The training of this part."""

    @abc.abstractmethod
    def shapes(self, recorded_start: Any, width: int) -> Tree | None:
        """The shapes of its arrays, for an encoder of `width`; None if this run does not have the
        part.
        """

    @abc.abstractmethod
    def init_params(self, shapes: Tree) -> Tree:
        """In traced code: its initial arrays."""

    def from_run(self, run: SavedRun, shapes: Tree, manifest: Any) -> Tree | None:
        """Its arrays when a run starts from another run's parameters; None: initialize.

        Args:
            run: the other run, of any system that trains an encoder.
            shapes: of `shapes`, for this run.
            manifest: of this run's dataset.
        """
        return None

    def validate(self, batch: Any, optimizer: OptimizerConfig) -> None:  # noqa: B027
        """Raise BadInput for values that do not fit each other."""

    def check_data(self, manifest: Any, folder: Path) -> None:  # noqa: B027
        """Raise BadInput if a dataset lacks what this part learns from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderSystem(System):
    """A system that trains a BERT on the terms of a dataset.

    A paper's system is a subclass: it says what a batch is made of (`batch`), which heads are
    trained beside the encoder, and what the loss is.
    """

    content: ClassVar[type[RunWithEncoder]] = EncoderRun
    title: ClassVar[str]
    """What the model card calls it."""
    paper: ClassVar[str]
    """Who described it, and when; also for the card."""
    encodes_rows: ClassVar[bool] = True
    scored: ClassVar[tuple[str, ...]] = ("encoder",)
    pools: ClassVar[bool] = True
    """Whether its vectors are made by `model.pooling`."""

    batch: Any
    """A `StepSpec`."""
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)

    # ---- What a paper defines ----

    def hyperparameters(self) -> dict[str, Any]:
        """Hyperparameters that the model card tells."""
        return {}

    def data_summary(self, dataset: Any) -> dict[str, Any]:
        """The facts about the data for the model card, from run.json."""
        by_language = dataset.counts.terms_by_language
        languages = [f"{code} {terms:,}" for code, terms in by_language.items() if terms]
        return {
            "terminology": f"{dataset.name} {dataset.release}",
            "concepts": f"{dataset.counts.concepts:,}",
            "terms": f"{dataset.counts.terms:,}",
            **({"terms of each language": ", ".join(languages)} if languages[1:] else {}),
            "triplets": f"{dataset.counts.triplets:,}",
            "relations": len(dataset.relations),
            "cleaning": dataset.cleaning,
            **license_row(dataset),
        }

    @property
    def heads(self) -> tuple[Head, ...]:
        """The parts trained beside the encoder."""
        return ()

    def check_data(self, manifest: Any, folder: Path) -> None:
        """Raise BadInput if a dataset lacks what the loss needs."""
        for head in self.heads:
            head.check_data(manifest, folder)

    # ---- The protocol ----

    @property
    def groups(self) -> int:
        return self.batch.groups

    @property
    def terms(self) -> int:
        return self.batch.terms

    def flops(self, recorded_start: Any, lengths: np.ndarray) -> float:
        # The backward pass has two products for each of the forward pass. The loss's are left out.
        return 3.0 * encoder_flops(read_config(recorded_start.encoder.config), lengths)

    @property
    def arithmetic(self) -> str:
        return self.model.dtype

    def validate(self, optimizer: OptimizerConfig) -> None:
        self.model.validate()
        self.batch.validate()
        for head in self.heads:
            head.validate(self.batch, optimizer)

    def resolved(self) -> Self:
        dtype: Any = arithmetic(self.model.dtype)
        return dataclasses.replace(self, model=dataclasses.replace(self.model, dtype=dtype))

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        strings = getattr(self.batch, "augment", 0.0) > 0
        file = getattr(self.batch, "teacher", "")
        teacher = open_teacher(Path(file), data) if file else None
        dataset = open_dataset(data, strings=strings)
        plan: dict[str, Any] = self.planned(rows, steps)
        return BatchMaker(dataset, self.batch, cut, **plan, teacher=teacher)

    def planned(self, rows: int, steps: int) -> dict[str, int]:
        """The numbers of packed rows that the batches of a run may have."""
        return {"rows": rows, "run_steps": steps, "shapes": most_shapes()}

    @property
    def trains_pooler(self) -> bool:
        """Whether the loss reads BERT's pooler; else it has no gradient, and stays as loaded."""
        return self.model.pooling == "pooler"

    def parts(self) -> dict[str, Part]:
        fixed = () if self.trains_pooler else ("pooler",)
        encoder = Part(decay=True, undecayed=fixed, spread="largest")
        return {"encoder": encoder, **{head.name: head.part() for head in self.heads}}

    def load_initial(
        self, source: BatchSource, recorded_start: Any = None
    ) -> tuple[StartOfEncoder, Params]:
        init = self.model.init
        if system_name(init):
            return self._load_encoder_of(init, source, recorded_start)
        self.check_data(source.manifest, source.folder)
        folder = find_folder(init)
        _check_tokenizer(source.manifest, folder, init)
        bert, hf_config, report = load_bert(
            folder, pooling=self.model.pooling, layers=self.model.layers
        )
        _check_length(source.manifest, bert.config, init)
        parameters = split_encoder(bert)[1]
        encoder = EncoderOfRun(
            config=hf_config,
            pooler=bert.pooler is not None,
            **_of_its_card(folder),
            base_model=hub_id_of(init) or f"./{Path(init).resolve().name}",
            weights_hash=hash_arrays(jax.tree.leaves(parameters)),
        )
        log(str(report))
        if self.pools:
            _tell_of_pooling(folder, self.model.pooling)
        return self.content.start_of(encoder, source.manifest), {"encoder": parameters}

    def _load_encoder_of(
        self, run: str, source: BatchSource, recorded_start: Any
    ) -> tuple[StartOfEncoder, Params]:
        """`load_initial` with the encoder of an existing run."""
        taken = recorded_start.encoder.run if recorded_start else UNSET
        other = _read_run(run, best=self.best is not None, began=taken)
        start, params = self._encoder_from_run(other, source)
        pooling = other.described(RunWithEncoder).config.system.model.pooling
        if self.pools and pooling != self.model.pooling:
            log(f"{run} has pooling {pooling}, this run has {self.model.pooling} (--pooling)")
        log(f"starting with the encoder of step {other.step} of {run}")
        encoder = dataclasses.replace(start.encoder, run=carried_from(other))
        return msgspec.structs.replace(start, encoder=encoder), params

    def init_from_run(self, run: SavedRun, source: BatchSource) -> tuple[StartOfEncoder, Params]:
        start, params = self._encoder_from_run(run, source)
        shapes, _ = self.shapes(start)
        for head in self.heads:
            if head.name in shapes and head.name in run.params:
                taken = head.from_run(run, shapes[head.name], source.manifest)
                params |= {} if taken is None else {head.name: taken}
        return start, params

    def _encoder_from_run(
        self, run: SavedRun, source: BatchSource
    ) -> tuple[StartOfEncoder, Params]:
        """`init_from_run` for the encoder alone."""
        saved = run.described(RunWithEncoder)
        self.check_data(source.manifest, source.folder)
        ours, theirs = source.manifest.tokenizer, saved.tokenizer
        if ours.hash != theirs.hash:
            raise BadInput(
                f"the run to start from has a tokenizer of hash {theirs.hash[:12]}, but the "
                f"dataset was tokenized with {ours.name}, hash {ours.hash[:12]}; build the "
                "dataset with that run's tokenizer"
            )
        config = first_layers(
            saved.start.encoder.config, self.model.layers, "the run to start from"
        )
        # The hash of weights is of the encoder that the other run began with.
        encoder = dataclasses.replace(saved.start.encoder, config=config, weights_hash=UNSET)
        _check_length(source.manifest, read_config(config), "the run to start from")
        if self.model.pooling == "pooler" and not encoder.pooler:
            raise BadInput("pooling is 'pooler', but the encoder to start from has no pooler")
        check_proof(
            lambda terms: {"vectors": encoder_of(run).encode(terms)}, run, "the run to start from"
        )
        trained = run.params["encoder"]
        kept = {
            number: trained["layers"][number] for number in range(read_config(config).num_layers)
        }
        return self.content.start_of(encoder, source.manifest), {
            "encoder": {**trained, "layers": kept}
        }

    def structure(self, recorded_start: Any) -> Bert:
        """The encoder as shapes, with the run's dropout and arithmetic."""
        encoder, rate = recorded_start.encoder, self.model.dropout
        config = read_config(encoder.config)
        if rate is not None:
            config = config.with_dropout(rate)
        return abstract_bert(config, jnp.dtype(self.model.dtype), pooler=encoder.pooler)

    def encoder_with(self, parameters: Tree, recorded_start: Any) -> Bert:
        """The encoder of a run, with the given parameters."""
        graph, _ = split_encoder(self.structure(recorded_start))
        return merge_encoder(graph, parameters)

    def shapes(self, recorded_start: Any) -> tuple[Params, Tree]:
        structure = self.structure(recorded_start)
        params: Params = {"encoder": split_encoder(structure)[1]}
        for head in self.heads:
            shapes = head.shapes(recorded_start, structure.config.hidden_size)
            params |= {} if shapes is None else {head.name: shapes}
        return params, {}

    def init_params(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        new = [head for head in self.heads if head.name in params]
        return {head.name: head.init_params(params[head.name]) for head in new}, {}

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1, acc@5 and mrr of the dataset's held-out terms."""
        heldout = HeldOut(source.folder, source.manifest, self.model.pooling, run.eval_terms)

        def score(view: View) -> dict[str, dict[str, float]]:
            encoder = self.encoder_with(view.params["encoder"], view.recorded_start)
            return {"heldout": heldout.scores(encoder)}

        return score

    # ---- What proves what leaves the run ----

    def rows_beside(self, source: BatchSource, terms: list[str]) -> Mapping[str, Any]:
        """Packed rows that `proof_outputs` needs besides those of the terms."""
        return {}

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        """In traced code: the outputs of a run's proof, [terms, ...] each, for terms in packed
        rows.
        """
        tokens, positions, segments = (rows[name] for name in PACKED)
        return {
            "vectors": unit_length(
                bert.term_vectors(tokens, positions, segments, terms, self.model.pooling)
            )
        }

    def proof(self, source: BatchSource, recorded_start: Any) -> Proof | None:
        return _encoder_proof(self, source, recorded_start)

    def try_export(self, run: SavedRun) -> None:
        config = run.described(RunWithEncoder).start.encoder.config
        try_export(trained_bert(run), run.folder / "tokenizer", config, _trained_settings(run))

    def saved_outputs(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        return {"vectors": encoder_of(run).encode(terms)}

    # ---- When it is trained ----

    def tables(self, run: SavedRun) -> dict[str, Any]:
        """What a run learnt beside its encoder, by name, ready for prediction."""
        relations = _trained_relations(run)
        return {} if relations is None else {"relations": relations}

    def write_beside(self, run: SavedRun, folder: Path) -> dict[str, float]:
        """Write the further files of an export, and return how far PyTorch differs from us."""
        return {}

    def trained(self, run: SavedRun) -> Trained:
        return Trained(encoder=encoder_of(run), card=_describe(self, run), tables=self.tables(run))

    def export(
        self,
        run: SavedRun,
        out: Path,
        *,
        card: Mapping[str, Any] | None = None,
        pytorch_bin: bool = False,
    ) -> dict[str, float]:
        settings = _trained_settings(run)
        return export_encoder(
            trained_bert(run),
            run.folder / "tokenizer",
            run.described(RunWithEncoder).start.encoder.config,
            out,
            pooling=settings.pooling,
            cleaning=settings.cleaning,
            max_length=settings.max_length,
            relations=_trained_relations(run),
            card={**_describe(self, run), **(card or {})},
            pytorch_bin=pytorch_bin,
            beside=partial(self.write_beside, run),
            proof=run.notes.proof or None,
        )


# -------------------------------------------------------------------------------------------------
# Checks of an initial encoder against the data, and licenses.


def _check_tokenizer(manifest: Any, folder: Path, init: str) -> None:
    """Raise BadInput if the dataset's tokenizer is not the encoder's."""
    tokenizer = load_tokenizer(folder)
    found, expected = tokenizer_hash(tokenizer), manifest.tokenizer.hash
    if found != expected:
        raise BadInput(
            f"the tokenizer of {init} has hash {found[:12]}, but the dataset was tokenized with "
            f"{manifest.tokenizer.name}, hash {expected[:12]}; build the dataset with "
            f"--tokenizer {init}, or start from the other encoder"
        )
    if is_first():
        warn_of_case(tokenizer, init)


def _check_length(manifest: Any, config: BertConfig, init: str) -> None:
    """Raise BadInput if the dataset has pieces or positions that the encoder lacks."""
    check_vocabulary(manifest.tokenizer.vocab_size, config, init)
    longest = manifest.tokenizer.max_length
    if longest > config.longest_term:
        raise BadInput(
            f"the dataset's terms have up to {longest} tokens, but {init} has "
            f"{config.longest_term} positions; build it with a smaller --max-length"
        )


def _tell_of_pooling(folder: Path, pooling: str) -> None:
    """Log a line where the folder of an initial encoder makes vectors otherwise than the run."""
    if not any((folder / name).is_file() for name in ("modules.json", ENCODER.file)):
        return
    try:
        stated = f"pooling {read_settings(folder).pooling}"
    except BadInput as error:  # modules or prompts that have no counterpart here
        stated = f"something else than a pooling ({error})"
    if stated != f"pooling {pooling}":
        log(f"{folder} has {stated}, this run has pooling {pooling} (--pooling)")


def _of_its_card(folder: Path) -> dict[str, Any]:
    """The license and the base that the card of a model's folder states, as in `EncoderOfRun`."""
    card = read_card(folder)
    stated = {name: card[name] for name in LICENSE if isinstance(card.get(name), str)}
    bases = card.get("base_model") or []
    bases = [bases] if isinstance(bases, str) else bases
    made_from = {"made_from": bases[0]} if len(bases) == 1 else {}  # of more it is a mixture
    return {"license": None} | stated | made_from


def _read_run(out: str, *, best: bool, began: CarriedFrom | UnsetType) -> SavedRun:
    """An encoder to start from that is a run; the rest is as in `read_other_run`.

    Raises:
        BadInput: also if what it trained is no BERT.
    """
    identity = read_run_identity(small_files(out))
    system = identity["config"]["system"]
    if "encoder" not in identity["start"] or "model" not in system:
        raise BadInput(
            f"--init {out} is a run of the system {system['name']!r}, which trains no BERT; "
            "expected a model folder, a hub id or a run that trained one"
        )
    return read_other_run("--init", out, best=best, began=began)


# -------------------------------------------------------------------------------------------------
# The export of a trained encoder: the folder, its relations, the model card.


def encoder_of(run: SavedRun) -> TermEncoder:
    """The encoder of a run with its tokenizer."""
    tokenizer = load_tokenizer(run.folder / "tokenizer")
    return TermEncoder(trained_bert(run), tokenizer, _trained_settings(run))


def trained_bert(run: SavedRun) -> Bert:
    """The encoder of a run, in float32."""
    encoder = run.described(RunWithEncoder).start.encoder
    config = read_config(encoder.config)
    graph, _ = split_encoder(abstract_bert(config, jnp.float32, pooler=encoder.pooler))
    return merge_encoder(graph, run.params["encoder"])


def _trained_settings(run: SavedRun) -> EncoderSettings:
    """How training made vectors of terms."""
    saved = run.described(RunWithEncoder)
    return EncoderSettings(
        pooling=saved.config.system.model.pooling,
        cleaning=saved.dataset.cleaning,
        max_length=saved.tokenizer.max_length,
    )


def _trained_relations(run: SavedRun) -> ExportedRelations | None:
    """The relation table of a run with its labels; None if it has none."""
    table = run.params.get("relations")
    if table is None:
        return None
    if table.ndim == 4:  # of matrices I + U V^T
        u_RDK, v_RDK = np.moveaxis(table, 1, 0)
        table = np.eye(table.shape[2], dtype=np.float32) + u_RDK @ v_RDK.transpose(0, 2, 1)
    return ExportedRelations(table, run.described(EncoderRun).dataset.relations)


def _describe(system: EncoderSystem, run: SavedRun) -> dict[str, Any]:
    """The facts for the model card, from run.json and metrics.jsonl."""
    saved: Any = run.described(system.content)
    encoder, summary = saved.start.encoder, run_summary(system, run)
    if system.model.layers:
        summary["recipe"]["layers"] = f"{system.model.layers}, the first ones of the start"
    return {
        **summary,
        **{name: getattr(encoder, name) or None for name in LICENSE},
        # With --from, or --init of a run, the start was another run, which has a base of its own.
        **({"base_model": None} if saved.start.is_another_run else _bases(system, encoder)),
        "data": system.data_summary(saved.dataset),
    }


def _bases(system: EncoderSystem, encoder: EncoderOfRun) -> dict[str, Any]:
    """What the encoder began as, and what that was made from."""
    return {
        "base_model": encoder.base_model or system.model.init,
        "made_from": encoder.made_from or None,
    }


_SCORED = {"heldout": "held-out terms", "development": "development sets"}


def license_row(dataset: DataOfRun) -> dict[str, str]:
    """The row of a model card with the licenses of the data; none where none is known."""
    licensed: dict[str, list[str]] = {}
    for vocabulary, license in dataset.provenance.licenses.items():
        licensed.setdefault(license, []).append(vocabulary)
    words = [f"{', '.join(names)}: {license}" for license, names in licensed.items()]
    return {"licenses, as its files say": "; ".join(words)} if words else {}


def run_summary(system: Any, run: SavedRun) -> dict[str, Any]:
    """The facts for the card of any system with a dataset, whether it has a BERT or not.

    Args:
        system: has title, paper, batch and hyperparameters, as an `EncoderSystem` has them.
        run: one of it.
    """
    saved: Any = run.described(system.content)
    config, batch = saved.config, system.batch
    # Mentions have none.
    by_language: dict[str, int] = getattr(saved.dataset.counts, "terms_by_language", {})
    metrics = run.folder / "metrics.jsonl"  # not there if it was stopped before its first line
    lines = read_metrics(metrics) if metrics.exists() else []
    rows = [
        {"benchmark": f"{what}, step {run.step}", **line["eval"][name]}
        for line in lines
        for name, what in _SCORED.items()
        if name in line.get("eval", {}) and line["step"] == run.step and not run.weights
    ]
    in_steps = [
        one["step_seconds"] for one in lines if one["step"] <= run.step and "step_seconds" in one
    ]
    best = run.notes.best
    chosen = {}
    if best is not None and best[0] == run.step and not run.weights:
        chosen["checkpoint"] = f"the best so far by {system.best}: {best[1]:g}"
    return {
        "name": f"{system.title} ({config.recipe})",
        "tags": [config.system.name, *["umls"] * (saved.dataset.name == "umls")],
        "method": f"{system.title} ({system.paper})",
        "languages": [
            name for name, terms in by_language.items() if terms and name != UNDETERMINED
        ],
        "recipe": {
            "name": config.recipe,
            "steps": f"{run.step:,} of {config.optimizer.steps:,}",
            **({"weights": run.weights} if run.weights else {}),
            **chosen,
            "terms per step": batch.terms,
            **batch.hyperparameters(),
            **system.hyperparameters(),
            "learning rate": config.optimizer.learning_rate,
            "seed": batch.seed,
            **({"time in steps": tqdm.format_interval(in_steps[-1])} if in_steps else {}),
        },
        "results": rows,
        "dataset_hash": saved.dataset.content_hash,
    }


# -------------------------------------------------------------------------------------------------
# Interpolation of a run's encoder with its earlier checkpoints or its initial encoder.
#
# What training brings to names it takes from the rest that an encoder knew. Between the weights of
# the start and of the end lie encoders that have most of the one and keep more of the other
# (Wortsman et al., Robust fine-tuning of zero-shot models, 2022); the mean of the last checkpoints
# is often better than the last one (Izmailov et al., Averaging weights leads to wider optima,
# 2018).

# Parts that are useful with another encoder, too.
_HEADS = {"encoder", "relations", "types"}


def has_start_to_keep(system: System) -> bool:
    """Whether a run of this system has an encoder that can be mixed with that of its start."""
    if not isinstance(system, EncoderSystem) or system_name(system.model.init):
        return False
    return system.parts().keys() <= _HEADS


def averaged(out: Path, run: SavedRun, checkpoints: int) -> SavedRun:
    """The run with the mean of the encoders of its last checkpoints; the rest is unchanged.

    Args:
        out: its folder.
        run: of one of its steps, up to which checkpoints count.
        checkpoints: how many, the run's own among them.

    Raises:
        BadInput: if it has too few, or what it trained is no encoder alone.
    """
    # Imported here, as it imports Orbax: `train --help` stays quick.
    from coder_jax.training.checkpoints import read_params, saved_steps

    _check(run, "--average")
    steps = [step for step in saved_steps(out) if step <= run.step][-checkpoints:]
    if not 2 <= checkpoints == len(steps):
        raise BadInput(
            f"--average {checkpoints}: {out} has the checkpoints "
            f"{', '.join(map(str, saved_steps(out)))}; expected a number of at least 2 and at most "
            f"those up to step {run.step}; --save-steps of `train` says how many there are"
        )
    total = jax.tree.map(lambda array: np.asarray(array, np.float64), run.params["encoder"])
    for step in steps[:-1]:
        total = jax.tree.map(np.add, total, read_params(out, step)["encoder"])
    mean = jax.tree.map(lambda array: (array / len(steps)).astype(np.float32), total)
    return _with_encoder(run, mean, f"the mean of steps {', '.join(f'{s:,}' for s in steps)}")


def interpolated(system: System, run: SavedRun, weight: float) -> SavedRun:
    """The run with an encoder between its initial encoder and its own.

    Args:
        system, run: what was trained.
        weight: of what was trained, 0 to 1; the start has the rest.

    Raises:
        BadInput: as `from_start_to_end`.
    """
    if not 0 <= weight <= 1:
        raise BadInput(f"--interpolate {weight:g}: expected the trained encoder's weight, 0 to 1")
    return from_start_to_end(system, run)(weight)


def from_start_to_end(system: System, run: SavedRun) -> Callable[[float], SavedRun]:
    """What gives the run with an encoder between its initial one (0) and its own (1).

    Args:
        system, run: what was trained.

    Raises:
        BadInput: if the encoder that it began with is not there, is another one, or was a run's;
            if what was trained is no encoder alone.
    """
    _check(run, "--interpolate")
    assert isinstance(system, EncoderSystem)
    start = run.described(RunWithEncoder).start
    if start.is_another_run:
        raise BadInput(
            "--interpolate: the run began with what another run had learnt, which may have changed "
            "since; expected one that began with an encoder (--init)"
        )
    model, began = system.model, start.encoder
    init = model.init
    bert, config, _ = load_bert(find_folder(init), pooling=model.pooling, layers=model.layers)
    found = read_config(config), bert.pooler is not None
    if found != (read_config(began.config), began.pooler):
        raise BadInput(
            f"--interpolate: {init} is another encoder than when the run began: its config.json "
            "says something else; put the old one back"
        )
    parameters = split_encoder(bert)[1]
    found_hash, expected_hash = hash_arrays(jax.tree.leaves(parameters)), began.weights_hash
    if expected_hash and found_hash != expected_hash:
        raise BadInput(
            f"--interpolate: {init} has other weights than when the run began: SHA-256 "
            f"{found_hash[:12]}, expected {expected_hash[:12]}; put the old ones back"
        )
    check_proof(
        lambda terms: {
            "vectors": encoder_of(_with_encoder(run, parameters, "the start")).encode(terms)
        },
        run,
        f"--interpolate: {init}",
        of_start=True,
    )

    def at(weight: float) -> SavedRun:
        mixed = _between(parameters, run.params["encoder"], weight)
        rest = 1 - weight
        return _with_encoder(run, mixed, f"{weight:g} x trained + {rest:.4g} x initial encoder")

    return at


def _between(old: Any, new: Any, weight: float) -> Any:
    """Interpolates the arrays of two nested dictionaries with the same keys."""

    def mixed(start: Any, end: Any) -> np.ndarray:
        return (weight * end + (1 - weight) * np.asarray(start)).astype(np.float32)

    return jax.tree.map(mixed, old, new)


def _check(run: SavedRun, flag: str) -> None:
    """Raise BadInput if a run trained parts that depend on the encoder's vectors."""
    others = sorted(set(run.params) - _HEADS)
    if others or "encoder" not in run.params:
        raise BadInput(
            f"{flag}: the run trained {', '.join(others)} for its own encoder, and they would not "
            "fit another one; expected a run that trained an encoder, such as of CODER or SapBERT"
        )


def _with_encoder(run: SavedRun, encoder: Any, weights: str) -> SavedRun:
    """The run with other encoder weights."""
    values = f"{run.weights}; of that {weights}" if run.weights else weights
    return dataclasses.replace(
        run, params={**run.params, "encoder": encoder}, weights=values, notes=Notes()
    )


# -------------------------------------------------------------------------------------------------
# Long work over many rows, written in chunks so that a killed run can be resumed.
#
# .FILE.chunks/0000000.npy  a finished chunk; host i of n makes the chunks i, i + n, ...
# FILE.about                what FILE and its chunks are made of, and how many rows each chunk has
#
# At the end all are joined into one array file, FILE, and the chunks go. What was made of something
# else is made anew.


def write_rows(
    path: Path,
    rows: int,
    make: Callable[[int, int], np.ndarray],
    *,
    chunk: int,
    provenance: str,
    what: str,
) -> None:
    """Write an array file with this many rows; all hosts call it.

    Nothing is done if it is there, made of the same.

    Args:
        path: of the file, in a folder that all hosts share.
        rows: how many it has.
        make: (first, last) -> the rows from first to last - 1.
        chunk: rows that are made at once.
        provenance: a hash of what the rows are made of.
        what: the work in words, for the progress bar.

    Raises:
        Stopped: on all hosts, if one was asked to stop; finished chunks are kept.
        BadInput: if this host does not see the folder.
    """
    if is_made(path, provenance, chunk):
        return
    folder = _chunks_of(path)
    if is_first() and not (folder.is_dir() and _is_of(path, provenance, chunk)):
        remove_rows(path)
        folder.mkdir(parents=True)
        _note_of(path).write_text(_note(provenance, chunk), encoding="utf-8")
    barrier("a folder for chunks")
    if not folder.is_dir():
        raise BadInput(
            f"this host does not see {folder}, where hosts share the work on {what}; give several "
            "hosts an --out on a disk that all of them see, not in a bucket"
        )
    bounds = [(first, min(first + chunk, rows)) for first in range(0, rows, chunk)]
    files = [folder / f"{number:07d}.npy" for number in range(len(bounds))]
    mine = range(host_index(), len(bounds), host_count())
    with suppress(process.Stopped):  # or the others would wait for this host
        for number in progress_bar(mine, total=len(mine), desc=what, unit="chunk"):
            if not files[number].exists():
                made = make(*bounds[number])
                with written_whole(files[number]) as unfinished, unfinished.open("wb") as out:
                    np.save(out, made)
            process.poll()
    barrier("all chunks")
    if not first_decides(all(file.exists() for file in files)):
        raise process.Stopped
    if is_first():
        with written_whole(path) as joined:
            like = np.load(files[0], mmap_mode="r")
            write_array(joined, (rows, *like.shape[1:]), like.dtype, map(np.load, files))
        shutil.rmtree(folder)
    barrier("chunks are joined")


def is_made(path: Path, provenance: str, chunk: int) -> bool:
    """Whether `write_rows` has nothing left to do, as the first host sees it; all hosts call it.

    Then chunks go that a kill left while they were removed.

    Args:
        path, provenance, chunk: as for `write_rows`.
    """
    # The others do not look: NFS would remember for them that it is not there.
    made = first_decides(is_first() and path.exists() and _is_of(path, provenance, chunk))
    if made and is_first():
        shutil.rmtree(_chunks_of(path), ignore_errors=True)
    return made


def _is_of(path: Path, provenance: str, chunk: int) -> bool:
    """Whether the existing part of a file has the same provenance."""
    saved = _note_of(path)
    return saved.exists() and saved.read_text(encoding="utf-8") == _note(provenance, chunk)


def _note(provenance: str, chunk: int) -> str:
    """The text of FILE.about; devices of another kind use another number of rows per chunk."""
    return f"{provenance}, {chunk} rows at once"


def _note_of(path: Path) -> Path:
    """The path of FILE.about."""
    return path.with_name(f"{path.name}.about")


def _chunks_of(path: Path) -> Path:
    """The folder of a file's chunks; hidden, so that it is not published to a bucket."""
    return path.with_name(f".{path.name}.chunks")


def remove_rows(*paths: Path) -> None:
    """Remove files of `write_rows`, complete or not, if they exist."""
    for path in paths:
        shutil.rmtree(_chunks_of(path), ignore_errors=True)
        path.unlink(missing_ok=True)
        _note_of(path).unlink(missing_ok=True)


def provenance_of(manifest: Any, *parameters: Any) -> str:
    """The `provenance` of `write_rows`: a hash of a dataset and of trees of arrays."""
    digest = hashlib.sha256(str(manifest.content_hash).encode())
    for array in jax.tree.leaves(parameters):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


# -------------------------------------------------------------------------------------------------
# The training vectors of some terms in float32, which every reader of a run must reproduce.

_Rows = Mapping[str, Any]


def _encoder_proof(system: EncoderSystem, source: BatchSource, recorded_start: Any) -> Proof:
    """The outputs of `EncoderSystem.proof_outputs` for some terms of the data."""
    terms = source.some_terms()
    rows = {**_packed_terms(source, terms), **system.rows_beside(source, terms)}
    # Unused parts are left out of the program, so that it is compiled once.
    model = dataclasses.replace(system.model, init="", dtype="float32")
    plain = dataclasses.replace(system, model=model)
    structure, _ = split_encoder(plain.structure(recorded_start))

    def outputs(params: Params, extra: Tree) -> dict[str, jax.Array]:
        return _compiled_outputs(
            params, extra, rows, system=plain, structure=structure, terms=len(terms)
        )

    return Proof(terms, outputs)


def _packed_terms(source: BatchSource, terms: list[str]) -> dict[str, np.ndarray]:
    """Terms in the form of a batch: cleaned, tokenized, packed."""
    cleaned = clean(pl.Series(terms, dtype=pl.String), source.manifest.cleaning).to_list()
    longest = source.manifest.tokenizer.max_length
    tokens, start = tokenize(load_tokenizer(source.folder / "tokenizer"), cleaned, longest)
    return pack_rows(tokens, start, longest)


@partial(jax.jit, static_argnames=("system", "structure", "terms"))
def _compiled_outputs(
    params: Params,
    extra: Tree,
    rows: _Rows,
    *,
    system: EncoderSystem,
    structure: Structure,
    terms: int,
) -> dict[str, jax.Array]:
    bert = merge_encoder(structure, params["encoder"])
    return system.proof_outputs(bert, params, extra, rows, terms)
