"""The ranker: whether a candidate is a concept of a mention, by attention led by keywords.

Liang, Xue and Ruan, A recall and rank model for Chinese procedure normalization, arXiv 2101.09101,
2021, section 3.2 (keyword-attentive ranker, KAR).
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from jax.sharding import Mesh

from coder_jax.devices.agree import say
from coder_jax.models.architectures import read_config
from coder_jax.models.bert import Bert, merge_encoder, split_encoder
from coder_jax.models.packed.probes import Probes
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.encoders.packed_encoder import drop_vectors, read_terms
from coder_jax.systems.recall_rank.dev_scores import dev_scores
from coder_jax.systems.recall_rank.mention_system import MentionSystem, dev_mentions
from coder_jax.systems.recall_rank.prediction.recall_and_rank import Choice, ranked
from coder_jax.systems.recall_rank.prediction.score_pairs import (
    Mask,
    packed,
    probabilities,
    rank_logits,
    score_of,
)
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
from data_pipeline.batches.checks import check_rate
from data_pipeline.batches.mentions.pairs import inputs_of, pairs_of
from data_pipeline.batches.mentions.rank import RankBatches, RankSpec
from data_pipeline.batches.spec import BatchSource, StepCut
from data_pipeline.dataset.mentions.candidates import candidate_rows
from data_pipeline.dataset.mentions.store import WORDS
from data_pipeline.dataset.mentions.write import token_table
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.process.errors import BadInput

HEAD_SITE = 1_000_003  # of dropout: no layer of an encoder and no jitter has this number


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankSystem(MentionSystem):
    """An encoder of pairs, trained to tell right candidates from others."""

    name: ClassVar[str] = "rank"
    title: ClassVar[str] = "Ranker of recall and rank"
    paper: ClassVar[str] = "Liang, Xue and Ruan 2021"
    scored: ClassVar[tuple[str, ...]] = ("encoder", "score")
    head: ClassVar[str] = "score"
    outputs: ClassVar[int] = 1
    pools: ClassVar[bool] = False

    batch: Annotated[RankSpec, tyro.conf.arg(name="")] = dataclasses.field(default_factory=RankSpec)
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = ModelConfig(init="bert-base-chinese")

    mask: Mask = "after"
    """Where the masks of keywords apply: after the softmax of attention (equation 9), or before it
    (the authors' code)."""
    head_dropout: float = 0.3
    """Of the vector of a pair (the authors' code)."""

    def told(self) -> dict[str, Any]:
        return {"keyword mask": f"{self.mask} the softmax", "head dropout": self.head_dropout}

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_rate(self, "head_dropout")
        if self.model.pooling != "cls":
            raise BadInput(
                f"--pooling {self.model.pooling}: a ranker's vector of a pair is the mean over "
                "[CLS] and the probes of keywords (equation 10), and none other is learnt; leave "
                "--pooling out, and give another --out if a run began with it"
            )

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        source = RankBatches(data, self.batch, cut, **self.planned(rows, steps))
        say(f"an epoch of {data} has {source.steps_per_epoch:,} steps")
        return source

    # ---- Parameters ----

    def about(self, encoder: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
        types = read_config(encoder["config"]).type_vocab_size
        if types < 2:
            raise BadInput(
                f"the encoder has {types} token type; a ranker reads pairs, whose parts are told "
                "apart by two: use a BERT"
            )
        kinds = list(manifest["keyword_kinds"])
        return {**super().about(encoder, manifest), "keyword_kinds": kinds}

    # ---- The loss ----

    def loss(self, about: Mapping[str, Any], mesh: Mesh, *, dropout: bool = True) -> Loss:
        """Mean binary cross-entropy over the pairs (equation 11)."""
        graph, _ = split_encoder(self.structure(about))
        seed = self.batch.seed if dropout else None
        number, after = len(about["keyword_kinds"]), self.mask == "after"

        def pass_loss(params: Params, extra: Tree, batch: Batch, tick: Tick) -> Any:
            bert = merge_encoder(graph, params["encoder"])

            def read(rows: list[jax.Array], ids: jax.Array | None, pairs: int) -> jax.Array:
                tokens, positions, segments, kinds, types = rows
                probes = Probes(kinds=kinds, types=types, number=number, after=after)
                return bert.pair_vectors(tokens, positions, segments, probes, pairs, ids)

            vector_BGND = read_terms(read, batch, tick, mesh, seed, beside=("kinds", "types"))
            vector_ND = vector_BGND.reshape(-1, vector_BGND.shape[-1])
            if seed is not None:
                vector_ND = drop_vectors(vector_ND, seed, tick, HEAD_SITE, self.head_dropout)
            logit_N = score_of(vector_ND, params["score"])
            label_N = batch["labels"].reshape(-1).astype(jnp.float32)
            loss_N = optax.sigmoid_binary_cross_entropy(logit_N, label_N)
            right_N = (logit_N > 0) == (label_N > 0)
            return loss_N.mean(), (extra, {"pair_accuracy": right_N.mean()})

        return pass_loss

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """Accuracy and others of the mentions to choose by, by both stages and by the ranker."""
        assert isinstance(source, RankBatches)
        data = source.dataset
        dev = dev_mentions(data)
        lists = source.lists["dev"]
        rows = candidate_rows(lists)
        pairs = source.pairs_of(dev.mentions, rows)
        gold = dev.gold_sets()

        def score(view: View) -> dict[str, dict[str, float]]:
            graph, _ = split_encoder(self.structure(view.about))
            found = probabilities(
                merge_encoder(graph, view.params["encoder"]),
                view.params["score"],
                pairs,
                probes=len(view.about["keyword_kinds"]),
                mask=self.mask,
            ).reshape(lists.names.shape)
            both = dev_scores(ranked(lists, data.name_concepts, found), gold)
            alone = dev_scores(
                ranked(lists, data.name_concepts, found, Choice(fusion="rank")), gold
            )
            return {"dev": {**both, "rank alone": alone["accuracy"]}}

        return score

    # ---- What proves what leaves the run: probabilities of terms with their neighbours, too ----

    def rows_beside(self, source: BatchSource, terms: list[str]) -> Mapping[str, Any]:
        assert isinstance(source, RankBatches)
        from coder_jax.systems.recall_rank.prediction.term_ranker import keywords_of

        kinds = list(source.manifest["keyword_kinds"])
        table, _ = token_table(
            load_tokenizer(source.folder / "tokenizer"),
            terms,
            cleaning=source.manifest["cleaning"],
            max_length=source.manifest["tokenizer"]["max_length"],
            keywords=keywords_of(source.folder / WORDS, kinds),
        )
        rows, strings = neighbours(len(terms)), inputs_of(table)
        pairs = pairs_of(strings, strings, rows, source.probes, self.batch.pair_length)
        chosen = np.arange(len(rows))
        return {
            "pairs": packed(pairs, chosen, self.batch.row_length),
            "probes": source.probes,
        }

    def proof_outputs(
        self, bert: Bert, params: Params, extra: Tree, rows: Mapping[str, Any], terms: int
    ) -> dict[str, jax.Array]:
        kinds = rows["probes"].size
        logits = rank_logits(bert, params["score"], rows["pairs"], terms, kinds, self.mask)
        found = super().proof_outputs(bert, params, extra, rows, terms)
        return {**found, "probabilities": jax.nn.sigmoid(logits)}

    def answers(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        from coder_jax.systems.recall_rank.prediction.export import trained_ranker

        scores = trained_ranker(self, run).score_pairs(terms, terms, neighbours(len(terms)))
        return {**super().answers(run, terms), "probabilities": scores}

    # ---- When it is trained ----

    def trained(self, run: SavedRun) -> Trained:
        from coder_jax.systems.recall_rank.prediction.export import trained_ranker

        found = super().trained(run)
        return dataclasses.replace(found, tables={"ranker": trained_ranker(self, run)})

    def export(self, run: SavedRun, out: Path, **options: Any) -> dict[str, float]:
        from coder_jax.systems.recall_rank.prediction.export import export_ranker

        return export_ranker(self, run, out, **options)


def neighbours(terms: int) -> np.ndarray:
    """int64 [terms, 2]: pairs of each of some terms and the next one."""
    return np.stack([np.arange(terms), np.roll(np.arange(terms), -1)], axis=1)
