"""What the systems share that train a BERT on terms: the data, the start, the export.

A subclass says what a batch is, adds the parts that are trained beside the encoder, and the loss.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import tyro

from coder_jax.devices.accelerator import arithmetic, most_shapes
from coder_jax.devices.agree import say
from coder_jax.models.architectures import abstract_bert, read_config
from coder_jax.models.bert import Bert, merge_encoder, split_encoder
from coder_jax.runs.files import is_run
from coder_jax.systems.encoders.contents import EncoderRun, RunWithEncoder
from coder_jax.systems.encoders.packed_encoder import PACKED, unit
from coder_jax.training.config import OptimizerConfig, RunConfig
from coder_jax.training.proof import Proof
from coder_jax.training.system import (
    Params,
    Part,
    SavedRun,
    Scorer,
    System,
    Trained,
    Tree,
    View,
)
from data_pipeline.batches.checks import check_rate
from data_pipeline.batches.spec import BatchSource, StepCut
from data_pipeline.files.json_files import typed
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The encoder that is trained."""

    init: str = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
    """Folder or hub id of the encoder to start from: a BERT, RoBERTa (XLM-R, CamemBERT) or
    ModernBERT; or the folder of a run, with whose encoder this one begins (--from takes all that it
    has learnt)."""
    pooling: Literal["cls", "mean", "pieces", "pooler"] = "cls"
    """How the hidden states of a term become its vector."""
    dropout: float | None = None
    """Rate for hidden states and attention; the initial encoder's own rates if None."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the encoder; auto is bfloat16 on an accelerator, else float32."""

    def validate(self) -> None:
        """Raise BadInput where a value cannot be used."""
        if self.dropout is not None:
            check_rate(self, "dropout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderSystem(System):
    """A system that trains a BERT on the terms of a dataset.

    Subclasses have `batch`, what a step is made of.
    """

    content: ClassVar[Any] = EncoderRun
    title: ClassVar[str]
    """What the model card calls it."""
    paper: ClassVar[str]
    """Who described it, and when; also for the card."""
    pools: ClassVar[bool] = True
    """Whether its vectors are made by `model.pooling`."""

    batch: Any
    """A `StepSpec`."""
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=ModelConfig
    )

    # ---- What a paper says ----

    def told(self) -> dict[str, Any]:
        """Hyperparameters that the model card tells."""
        return {}

    def told_of_data(self, dataset: Mapping[str, Any]) -> dict[str, Any]:
        """What the model card tells of the data, from run.json."""
        counts = dataset["counts"]
        return {
            "terminology": f"{dataset['name']} {dataset['release']}",
            "concepts": f"{counts['concepts']:,}",
            "terms": f"{counts['terms']:,}",
            "triplets": f"{counts['triplets']:,}",
            "relations": len(dataset["relations"]),
            "cleaning": dataset["cleaning"],
        }

    def needs(self, manifest: Mapping[str, Any], folder: Path) -> None:
        """Raise BadInput if a dataset lacks what the loss needs."""

    @property
    def needs_dataset(self) -> str:
        """Why batches in files do not do, in words; "" if they do."""
        return ""

    def head_parts(self) -> dict[str, Part]:
        """The parts beside the encoder."""
        return {}

    def head_shapes(self, about: Mapping[str, Any], width: int) -> Params:
        """Their shapes, for an encoder of `width`."""
        return {}

    def new_heads(self, shapes: Params) -> Params:
        """For traced code: some of these parts before the first step."""
        return {}

    # ---- The protocol ----

    @property
    def groups(self) -> int:
        return self.batch.groups

    @property
    def terms(self) -> int:
        return self.batch.terms

    @property
    def arithmetic(self) -> str:
        return self.model.dtype

    def validate(self, optimizer: OptimizerConfig) -> None:
        self.model.validate()
        self.batch.validate()

    def decided(self) -> Self:
        dtype: Any = arithmetic(self.model.dtype)
        return dataclasses.replace(self, model=dataclasses.replace(self.model, dtype=dtype))

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        from data_pipeline.batches.files import INDEX, BatchFiles

        planned = self.planned(rows, steps)
        self.check_kind(data)
        if (data / INDEX).exists():
            files = BatchFiles(data, self.batch, cut, **planned)
            if steps > files.last_step:
                raise BadInput(
                    f"{data} has the batches of {files.last_step} steps, but the run has "
                    f"{steps}; write more of them, or set --steps {files.last_step}"
                )
            return files
        # Only here does training meet TensorFlow.
        from data_pipeline.batches.stream import BatchMaker
        from data_pipeline.dataset.store import open_dataset

        return BatchMaker(open_dataset(data), self.batch, cut, **planned)

    def check_kind(self, data: Path) -> None:
        """BadInput for batches in files, where they do not do."""
        from data_pipeline.batches.files import INDEX

        if self.needs_dataset and (data / INDEX).exists():
            raise BadInput(
                f"--data: found batches in files, {data}; expected a built dataset, "
                f"{self.needs_dataset}"
            )

    def planned(self, rows: int, steps: int) -> dict[str, int]:
        """How many packed rows the batches of a run may have."""
        return {"rows": rows, "run_steps": steps, "shapes": most_shapes()}

    def parts(self) -> dict[str, Part]:
        # The pooler stays as it was where no gradient reaches it (pooling cls or mean).
        encoder = Part(decay=True, undecayed=("pooler",), spread="largest")
        return {"encoder": encoder, **self.head_parts()}

    def start(
        self, source: BatchSource, noted: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], Params]:
        # Here and below, what takes a second to import is imported where it is used: `--help` and
        # the start of other commands stay quick.
        from coder_jax.encoding.encoder_protocol import hash_arrays
        from coder_jax.models.hf_files import find_folder
        from coder_jax.models.hf_weights import load_bert
        from coder_jax.systems.encoders.initial_encoder import (
            check_length,
            check_tokenizer,
            read_license,
        )

        if is_run(self.model.init):
            return self.start_with_encoder_of(self.model.init, source, noted)
        self.needs(source.manifest, source.folder)
        folder = find_folder(self.model.init)
        check_tokenizer(source.manifest, folder, self.model.init)
        bert, hf_config, report = load_bert(folder, pooling=self.model.pooling)
        check_length(source.manifest, bert.config, self.model.init)
        parameters = split_encoder(bert)[1]
        encoder = {
            "config": hf_config,
            "pooler": bert.pooler is not None,
            "license": read_license(folder),
            "weights_hash": hash_arrays(jax.tree.leaves(parameters)),
        }
        say(str(report))
        return self.about(encoder, source.manifest), {"encoder": parameters}

    def start_with_encoder_of(
        self, run: str, source: BatchSource, noted: Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], Params]:
        """As `start`, with the encoder of a run that is there."""
        from coder_jax.systems.encoders.initial_encoder import read_run

        taken = noted and noted["encoder"].get("run")
        other = read_run(run, best=self.best is not None, noted=taken)
        about, carried = self.carried_encoder(other.saved, source)
        pooling = other.identity["config"]["system"]["model"]["pooling"]
        if self.pools and pooling != self.model.pooling:
            say(f"{run} has pooling {pooling}, this run has {self.model.pooling} (--pooling)")
        say(f"starting with the encoder of step {other.step} of {run}")
        return {**about, "encoder": about["encoder"] | {"run": other.told}}, carried

    def carry(self, run: SavedRun, source: BatchSource) -> tuple[dict[str, Any], Params]:
        about, carried = self.carried_encoder(run, source)
        return about, carried | self.carried_heads(run, source.manifest, about)

    def carried_encoder(self, run: SavedRun, source: BatchSource) -> tuple[dict[str, Any], Params]:
        """As `carry`, of the encoder alone."""
        from coder_jax.systems.encoders.initial_encoder import check_length
        from coder_jax.systems.encoders.proof import check_encoder

        identity = typed(run.identity, RunWithEncoder, "run.json of the run to start from")
        self.needs(source.manifest, source.folder)
        ours, theirs = source.manifest["tokenizer"], identity["tokenizer"]
        if ours["hash"] != theirs["hash"]:
            raise BadInput(
                f"the run to start from has a tokenizer of hash {theirs['hash'][:12]}, but the "
                f"dataset was tokenized with {ours['name']}, hash {ours['hash'][:12]}; build the "
                "dataset with that run's tokenizer"
            )
        encoder = identity["start"]["encoder"].copy()
        encoder.pop("weights_hash", None)  # of the encoder that the other run began with
        check_length(source.manifest, read_config(encoder["config"]), "the run to start from")
        if self.model.pooling == "pooler" and not encoder["pooler"]:
            raise BadInput("pooling is 'pooler', but the encoder to start from has no pooler")
        check_encoder(run, "the run to start from")
        return self.about(encoder, source.manifest), {"encoder": run.params["encoder"]}

    def carried_heads(
        self, run: SavedRun, manifest: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Params:
        """Parts beside the encoder that this run takes from another run's parameters.

        Args:
            run: the other run, of any system that trains an encoder.
            manifest: of this run's dataset.
            about: of this run.
        """
        return {}

    def about(self, encoder: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
        """What `shapes` and `loss` must know of the start, as JSON."""
        return {"encoder": dict(encoder)}

    def structure(self, about: Mapping[str, Any]) -> Bert:
        """The encoder as shapes, with the run's dropout and arithmetic."""
        encoder, rate = about["encoder"], self.model.dropout
        config = read_config(encoder["config"])
        if rate is not None:
            config = config.with_dropout(rate)
        return abstract_bert(config, jnp.dtype(self.model.dtype), pooler=encoder["pooler"])

    def shapes(self, about: Mapping[str, Any]) -> tuple[Params, Tree]:
        structure = self.structure(about)
        heads = self.head_shapes(about, structure.config.hidden_size)
        return {"encoder": split_encoder(structure)[1], **heads}, {}

    def begin(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        return self.new_heads(params), {}

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1, acc@5 and mrr of the dataset's held-out terms."""
        from coder_jax.evaluation.normalization.heldout import HeldOut

        heldout = HeldOut(source.folder, source.manifest, self.model.pooling, run.eval_terms)

        def score(view: View) -> dict[str, dict[str, float]]:
            graph, _ = split_encoder(self.structure(view.about))
            return {"heldout": heldout.scores(merge_encoder(graph, view.params["encoder"]))}

        return score

    # ---- What proves what leaves the run ----

    def rows_beside(self, source: BatchSource, terms: list[str]) -> Mapping[str, Any]:
        """Packed rows that `proof_outputs` needs beside those of the terms."""
        return {}

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        """For traced code: what proves a run, of terms in packed rows; [terms, ...] each."""
        tokens, positions, segments = (rows[name] for name in PACKED)
        return {
            "vectors": unit(
                bert.term_vectors(tokens, positions, segments, terms, self.model.pooling)
            )
        }

    def proof(self, source: BatchSource, about: Mapping[str, Any]) -> Proof | None:
        from coder_jax.systems.encoders.proof import encoder_proof

        return encoder_proof(self, source, about)

    def answers(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        from coder_jax.systems.encoders.trained import encoder_of

        return {"vectors": encoder_of(run).encode(terms)}

    # ---- When it is trained ----

    def trained(self, run: SavedRun) -> Trained:
        from coder_jax.systems.encoders.trained import trained_encoder

        return trained_encoder(self, run)

    def export(self, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
        from coder_jax.systems.encoders.trained import export_trained

        return export_trained(self, run, out, **options)
