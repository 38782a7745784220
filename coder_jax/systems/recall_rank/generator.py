"""The candidate generator: mentions and names in one space, and how many concepts a mention has.

Liang, Xue and Ruan, A recall and rank model for Chinese procedure normalization, arXiv 2101.09101,
2021, section 3.1 (multi-task candidate generator, MTCG).
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.sharding import Mesh

from coder_jax.devices.agree import is_first, say
from coder_jax.devices.mesh import local_copy
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.bert import Bert, merge_encoder, split_encoder
from coder_jax.models.encoder_settings import EncoderSettings
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.encoders.packed_encoder import PACKED, read_terms
from coder_jax.systems.encoders.trained import encoder_of
from coder_jax.systems.recall_rank.dev_scores import dev_scores
from coder_jax.systems.recall_rank.losses import number_loss, triplet_margin_loss
from coder_jax.systems.recall_rank.mention_system import MentionSystem, dev_mentions
from coder_jax.systems.recall_rank.prediction.candidates import CandidateGenerator, nearest_others
from coder_jax.systems.recall_rank.prediction.nearest import mean_distances
from coder_jax.systems.recall_rank.prediction.recall_and_rank import ranked
from coder_jax.training.config import OptimizerConfig, RunConfig
from coder_jax.training.system import (
    Batch,
    Loss,
    Params,
    SavedRun,
    Scorer,
    Tick,
    Trained,
    Tree,
    View,
)
from data_pipeline.batches.checks import check_least
from data_pipeline.batches.draws.negatives import fixed_negatives
from data_pipeline.batches.mentions.recall import (
    MOST_NUMBERS,
    NAMES,
    NEGATIVES,
    RecallBatches,
    RecallSpec,
)
from data_pipeline.batches.spec import BatchSource, StepCut
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

NAME_VECTORS = "vectors of all names"  # in `View.computed`: float32 [N, D], of whatever length


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecallSystem(MentionSystem):
    """One encoder for mentions and names, trained by triplets and by the number of concepts."""

    name: ClassVar[str] = "recall"
    title: ClassVar[str] = "Candidate generator of recall and rank"
    paper: ClassVar[str] = "Liang, Xue and Ruan 2021"
    scored: ClassVar[tuple[str, ...]] = ("encoder", "number")
    head: ClassVar[str] = "number"
    outputs: ClassVar[int] = MOST_NUMBERS

    batch: Annotated[RecallSpec, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=RecallSpec
    )
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = ModelConfig(
        init="bert-base-chinese", pooling="mean"
    )

    margin: float = 1.0
    """m, between the distances of a mention's own name and of others (equation 7)."""
    number_weight: float = 1.0
    """Weight of the loss of the number of concepts beside that of the triplets (equation 6: 1)."""
    refresh_steps: int = 0
    """Steps after which the online negatives are found anew; 0: an epoch (section 3.1.2)."""

    def told(self) -> dict[str, Any]:
        return {"margin": self.margin, "number weight": self.number_weight}

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_least(self, 0, "margin", "number_weight", "refresh_steps")
        if self.model.pooling == "pooler":
            raise BadInput(
                "--pooling pooler: found no way to train a generator's vectors by it; expected "
                "cls, mean (the paper's) or pieces"
            )

    def fitted(self, source: BatchSource) -> Self:
        assert isinstance(source, RecallBatches)
        online = self.batch.negatives == "online"
        every = (self.refresh_steps or source.steps_per_epoch) if online else 0
        return dataclasses.replace(self, refresh_steps=every)

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        source = RecallBatches(data, self.batch, cut, **self.planned(rows, steps))
        say(f"an epoch of {data} has {source.steps_per_epoch:,} steps")
        return source

    # ---- The loss ----

    def loss(self, about: Mapping[str, Any], mesh: Mesh, *, dropout: bool = True) -> Loss:
        """L = L_t + L_c (equation 6): averages over the triplets and the mentions of the pass."""
        graph, _ = split_encoder(self.structure(about))
        seed = self.batch.seed if dropout else None

        def pass_loss(params: Params, extra: Tree, batch: Batch, tick: Tick) -> Any:
            bert = merge_encoder(graph, params["encoder"])

            def read(rows: list[jax.Array], ids: jax.Array | None, terms: int) -> Any:
                tokens, positions, segments = rows
                return bert.vectors_and_first(
                    tokens, positions, segments, terms, self.model.pooling, ids
                )

            vector_BGND, first_BGND = read_terms(read, batch, tick, mesh, seed)
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
            triplets, metrics = triplet_margin_loss(mention_MD, name_MD, others_MKD, self.margin)
            logits = number_logits(bert, params["number"], first_MD)
            numbers, of_numbers = number_loss(logits, batch["numbers"].reshape(-1))
            total = triplets + self.number_weight * numbers
            losses = {"loss_triplet": triplets, "loss_number": numbers}
            return total, (extra, {**losses, **metrics, **of_numbers})

        return pass_loss

    # ---- Negatives of the encoder of the moment ----

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """The kn names of other concepts that are nearest to each mention (algorithm 1).

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
            encoder = self.generator(params, view.about, source).encoder
            mentions = list(data.splits["train"].mentions.strings)
            vectors = encoder.encode(mentions, unit=False, progress=True)
            names = view.computed.get(NAME_VECTORS)
            if names is None:
                names = encoder.encode(list(data.names.strings), unit=False, progress=True)
            rows = nearest_others(vectors, names, source.gold_names, kn)[source.mention_of]
            if own_names is not None:
                pairs = source.own.mentions, source.own.names
                own_names = source.own.best(-mean_distances([vectors], [names], *pairs))
        for name, array in ((NEGATIVES, rows), (NAMES, own_names)):
            if array is not None:
                with written_whole(folder / name) as path, path.open("wb") as file:
                    np.save(file, array)

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """Accuracy, recall at k and accuracy of the number, of the mentions to choose by."""
        assert isinstance(source, RecallBatches)
        data = source.dataset
        dev = dev_mentions(data)
        gold = dev.gold_sets()

        def score(view: View) -> dict[str, dict[str, float]]:
            generator = self.generator(view.params, view.about, source)
            names = generator.encode(list(data.names.strings), progress=True)
            if view.step and self.refresh_steps and view.step % self.refresh_steps == 0:
                (view.computed[NAME_VECTORS],) = names
            lists = generator.lists(list(dev.mentions.strings), names, data.name_concepts)
            return {"dev": dev_scores(ranked(lists, data.name_concepts, None), gold)}

        return score

    def generator(
        self, params: Params, about: Mapping[str, Any], source: BatchSource
    ) -> CandidateGenerator:
        """The generator with some parameters, on one device."""
        graph, _ = split_encoder(self.structure(about))
        encoder = TermEncoder(
            merge_encoder(graph, params["encoder"]),
            load_tokenizer(source.folder / "tokenizer"),
            EncoderSettings(
                pooling=self.model.pooling,
                cleaning=source.manifest["cleaning"],
                max_length=source.manifest["tokenizer"]["max_length"],
            ),
        )
        return CandidateGenerator(encoder, params["number"])

    # ---- What proves what leaves the run: probabilities of one, two, ... concepts, too ----

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        tokens, positions, segments = (rows[name] for name in PACKED)
        _, first = bert.vectors_and_first(tokens, positions, segments, terms, self.model.pooling)
        numbers = jax.nn.softmax(number_logits(bert, params["number"], first))
        return {**super().proof_outputs(bert, params, extra, rows, terms), "numbers": numbers}

    def answers(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        generator = CandidateGenerator(encoder_of(run), run.params["number"])
        return {**super().answers(run, terms), "numbers": generator.numbers(terms)}

    # ---- When it is trained ----

    def trained(self, run: SavedRun) -> Trained:
        found = super().trained(run)
        return dataclasses.replace(found, tables={"number": run.params["number"]})

    def export(self, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
        from coder_jax.systems.recall_rank.prediction.export import export_generator

        return export_generator(self, run, out, **options)


def number_logits(bert: Bert, head: Mapping[str, jax.Array], first_MD: jax.Array) -> jax.Array:
    """float32 [M, C]: scores of one, two, ... concepts, from [CLS] through BERT's pooler.

    An encoder without a pooler gives [CLS] as it is.
    """
    pooled_MD = first_MD if bert.pooler is None else jnp.tanh(bert.pooler(first_MD))
    kernel, bias = head["kernel"], head["bias"]
    return jnp.dot(pooled_MD, kernel, precision=jax.lax.Precision.HIGHEST) + bias[None]
