"""BNE: names from words and characters, drawn to their synonyms, concepts and contexts.

Phan, Sun, Tay, "Robust representation learning of biomedical names", ACL 2019.
"""

import dataclasses
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import tyro
from jax.sharding import Mesh

from coder_jax.devices.accelerator import most_shapes
from coder_jax.devices.agree import is_first, say
from coder_jax.devices.mesh import constrain
from coder_jax.models.names.lstm import Cell
from coder_jax.models.names.name_encoder import (
    NameEncoderConfig,
    name_encoder_shapes,
    name_vectors,
    new_name_encoder,
)
from coder_jax.systems.bne.contents import NameRun
from coder_jax.systems.bne.losses import LOSSES, Negatives, bne_loss
from coder_jax.systems.encoders.packed_encoder import VECTORS, single, token_ids, unit
from coder_jax.training.config import OptimizerConfig, RunConfig
from coder_jax.training.proof import Proof, check_proof
from coder_jax.training.system import (
    Batch,
    Loss,
    Params,
    Part,
    SavedRun,
    Scorer,
    System,
    Tick,
    Trained,
    Tree,
    View,
)
from data_pipeline.batches.checks import check_least, check_rate
from data_pipeline.batches.names.alphabet import Alphabet
from data_pipeline.batches.names.packing import PACKED, Row, needs_of, pack_names
from data_pipeline.batches.names.source import NameBatches, NameSpec
from data_pipeline.batches.names.word_table import WordTable, numbered
from data_pipeline.batches.spec import BatchSource, StepCut
from data_pipeline.files.whole_files import whole_folder
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.text.words import words_of
from data_pipeline.terminology.cleaning.rules import clean


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameModel:
    """The encoder that is trained."""

    init: str = ""
    """Folder of the fixed vectors of words, of `python -m data_pipeline.skip_gram`."""
    characters: int = 50
    """Width of a character's vector (section 4)."""
    hidden: int = 200
    """Width of both BiLSTMs in each direction (section 4)."""
    cell: Cell = "plain"
    """Of the LSTMs: plain (the paper says BiLSTM and no more), or coupled input and forget gates
    with a learned start (the released code)."""
    projection: Literal["linear", "tanh"] = "linear"
    """What follows the max over words: W h + b (the paper), or tanh of it (the released code)."""
    dropout: float = 0.5
    """On the representations of words (section 4 has the rate, the released code the place)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BneSystem(System):
    """An encoder of names by characters and fixed vectors of words, with three losses."""

    name: ClassVar[str] = "bne"
    title: ClassVar[str] = "BNE"
    paper: ClassVar[str] = "Phan, Sun and Tay 2019"
    content: ClassVar[Any] = NameRun
    whole: ClassVar[bool] = True  # negatives are of the whole mini-batch

    batch: Annotated[NameSpec, tyro.conf.arg(name="")] = dataclasses.field(default_factory=NameSpec)
    model: Annotated[NameModel, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=NameModel
    )

    synonym_weight: float = 1.0
    """Of the loss of synonyms (equation 6: 1); 0: without it."""
    concept_weight: float = 1.0
    """Of the loss of concepts (equation 6: 1); 0: without it."""
    context_weight: float = 1.0
    """Of the loss of contexts (equation 6: 1); 0: without it."""
    negatives: Negatives = "hardest"
    """Which other of the mini-batch a name is held away from in each loss: any, or that of the
    largest dot product ("similar to Wieting et al. 2015", section 3.2)."""
    learned_scale: bool = False
    """A learned factor and addend of the dot products of synonyms (the released code)."""

    @property
    def weights(self) -> dict[str, float]:
        """Of each of LOSSES."""
        return {name: getattr(self, f"{name}_weight") for name in LOSSES}

    # ---- What a step is ----

    @property
    def groups(self) -> int:
        return self.batch.groups

    @property
    def terms(self) -> int:
        return self.batch.terms

    def validate(self, optimizer: OptimizerConfig) -> None:
        self.batch.validate()
        check_least(self.model, 1, "characters", "hidden")
        check_rate(self.model, "dropout")
        if min(self.weights.values()) < 0 or not any(self.weights.values()):
            raise BadInput(
                f"the weights of the losses are {self.weights}; none may be below 0, and one must "
                "be above"
            )

    def fitted(self, source: BatchSource) -> Self:
        assert isinstance(source, NameBatches)
        batch = dataclasses.replace(self.batch, targets=source.targets_are)
        return dataclasses.replace(self, batch=batch)

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        if not self.model.init:
            raise BadInput(
                "found no --init; expected the folder of vectors of words that "
                "`python -m data_pipeline.skip_gram` makes from text"
            )
        planned = {"rows": rows, "run_steps": steps, "shapes": most_shapes()}
        source = NameBatches(data, self.model.init, self.batch, cut, **planned)
        counts = ", ".join(f"{count:,} {what}" for what, count in source.targets.counts.items())
        say(f"{counts}; an epoch has {source.steps_per_epoch:,} steps")
        return source

    # ---- Parameters ----

    def parts(self) -> dict[str, Part]:
        return {"encoder": Part(), "scale": Part()}

    def start(
        self, source: BatchSource, noted: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], Params]:
        assert isinstance(source, NameBatches)
        width = source.grams.manifest["width"]
        return {"alphabet": source.alphabet.characters, "width": width}, {}

    def carry(self, run: SavedRun, source: BatchSource) -> tuple[dict[str, Any], Params]:
        """The other run's parameters with its alphabet, for vectors of the same width."""
        check_proof(lambda terms: self.answers(run, terms), run, "--from: the run")
        about, params = super().carry(run, source)
        width = self.start(source)[0]["width"]
        if about["width"] != width:
            raise BadInput(
                f"--init {self.model.init}: found vectors of width {width}, but the run to start "
                f"from has {about['width']}; expected vectors of that width: make some with "
                f"`python -m data_pipeline.skip_gram --size {about['width']}`"
            )
        return about, params

    def config(self, about: Mapping[str, Any]) -> NameEncoderConfig:
        """The shape of the encoder."""
        return NameEncoderConfig(
            alphabet=Alphabet(about["alphabet"]).size,
            width=about["width"],
            character_width=self.model.characters,
            hidden=self.model.hidden,
            cell=self.model.cell,
            projection=self.model.projection,
        )

    def shapes(self, about: Mapping[str, Any]) -> tuple[Params, Tree]:
        params: Params = {"encoder": name_encoder_shapes(self.config(about))}
        if self.learned_scale:
            params["scale"] = jax.ShapeDtypeStruct((2,), jnp.float32)
        return params, {}

    def begin(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        begun: Params = {}
        if "encoder" in params:
            shapes = params["encoder"]
            config = NameEncoderConfig(
                alphabet=shapes["characters"].shape[0],
                width=shapes["marks"].shape[1],
                character_width=self.model.characters,
                hidden=self.model.hidden,
                cell=self.model.cell,
            )
            begun["encoder"] = new_name_encoder(config, jax.random.key(self.batch.seed))
        if "scale" in params:
            begun["scale"] = jnp.array([1.0, 0.0])
        return begun, {}

    def prepare(
        self, source: BatchSource, about: Mapping[str, Any], initial: Params, folder: Path
    ) -> Params:
        """Nothing; the run keeps a copy of the vectors, which its encoder needs."""
        from coder_jax.systems.bne.export import VECTORS

        assert isinstance(source, NameBatches)
        if is_first():
            with whole_folder(folder / VECTORS) as new:
                shutil.copytree(source.grams.folder, new, dirs_exist_ok=True)
        return {}

    # ---- The loss ----

    def loss(self, about: Mapping[str, Any], mesh: Mesh, *, dropout: bool = True) -> Loss:
        """L_syn + L_def + L_ctx (equation 6), each the mean over the names of the step."""
        config = self.config(about)
        rate = self.model.dropout if dropout else 0.0

        def pass_loss(params: Params, extra: Tree, batch: Batch, tick: Tick) -> Any:
            vectors = self.vectors(config, params["encoder"], batch, tick, mesh, rate)
            total, metrics = bne_loss(
                vectors,
                batch,
                weights=self.weights,
                negatives=self.negatives,
                key=jax.random.fold_in(jax.random.key(self.batch.seed), tick.step),
                scale=params.get("scale"),
            )
            return total, (extra, metrics)

        return pass_loss

    def vectors(
        self,
        config: NameEncoderConfig,
        params: Tree,
        batch: Batch,
        tick: Tick,
        mesh: Mesh,
        rate: float,
    ) -> jax.Array:
        """float32 [B, G, N, D]: f of the names of a pass."""
        blocks, groups, names = batch["concepts"].shape
        ids = token_ids(batch, tick, self.batch.seed) if rate else None

        def encode(block: Tree, ids_RL: jax.Array | None) -> jax.Array:
            number = groups * names
            return name_vectors(config, params, block, number, dropout_ids_RL=ids_RL, dropout=rate)

        encode_blocks = jax.vmap(encode) if blocks > 1 else single(encode)
        made = encode_blocks({name: batch[name] for name in PACKED}, ids)
        return constrain(mesh, made.reshape(blocks, groups, names, -1), VECTORS)

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1, acc@5 and mrr of the dataset's held-out terms."""
        from coder_jax.encoding.encoder import TermEncoder
        from coder_jax.encoding.readers.name_reader import NameReader
        from coder_jax.evaluation.normalization.heldout import HeldOut
        from coder_jax.models.encoder_settings import OF_NAMES

        assert isinstance(source, NameBatches)
        words = source.grams.words
        heldout = HeldOut(source.folder, source.manifest, OF_NAMES, run.eval_terms)

        def score(view: View) -> dict[str, dict[str, float]]:
            alphabet, config = Alphabet(view.about["alphabet"]), self.config(view.about)
            reader = NameReader(config, view.params["encoder"], alphabet, words)
            return {"heldout": heldout.scores_of(TermEncoder(reader, None, heldout.settings))}

        return score

    # ---- What proves what leaves the run ----

    def proof(self, source: BatchSource, about: Mapping[str, Any]) -> Proof:
        assert isinstance(source, NameBatches)
        terms = source.some_terms()
        cleaned = clean(pl.Series(terms, dtype=pl.String), source.manifest["cleaning"]).to_list()
        words, tokens, start = numbered([words_of(name) for name in cleaned])
        table = WordTable.of(words, Alphabet(about["alphabet"]), source.grams.words)
        needs = needs_of(table, tokens, start, length := int(np.diff(start).max()))
        row = Row(length, *map(int, needs[1:]))
        block = pack_names(table, tokens, start, row, int(needs[0]))
        config = self.config(about)

        def outputs(params: Params, extra: Tree) -> dict[str, jax.Array]:
            return {"vectors": unit_vectors(params["encoder"], block, config, len(terms))}

        return Proof(terms, outputs)

    def answers(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        from coder_jax.systems.bne.export import trained_names

        return {"vectors": trained_names(self, run).encode(terms)}

    # ---- When it is trained ----

    def told(self) -> dict[str, Any]:
        """Hyperparameters that the model card tells."""
        return {
            "weights of the losses": ", ".join(f"{name} {w:g}" for name, w in self.weights.items()),
            "targets": self.batch.targets,
            "negatives": self.negatives,
            "cell": self.model.cell,
        }

    def trained(self, run: SavedRun) -> Trained:
        from coder_jax.systems.bne.export import describe, trained_names

        return Trained(encoder=trained_names(self, run), card=describe(self, run))

    def export(self, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
        from coder_jax.systems.bne.export import export_names

        return export_names(self, run, out, **options)


@partial(jax.jit, static_argnames=("config", "names"))
def unit_vectors(params: Tree, block: Tree, config: NameEncoderConfig, names: int) -> jax.Array:
    """float32 [N, D]: f of the names of a block, at length 1."""
    return unit(name_vectors(config, params, block, names))
