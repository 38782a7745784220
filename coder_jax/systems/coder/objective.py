"""CODER: MS-loss on term-term and on term-relation-term pairs (Yuan et al. 2022, section 3.3)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax

from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.groups.group import Group, MultiSimilarity, cosine, distance, term_loss
from coder_jax.systems.groups.multi_similarity import multi_similarity_loss
from coder_jax.systems.groups.relation_system import RelationSystem
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import Params, Part, SavedRun
from data_pipeline.batches.checks import check_least
from data_pipeline.batches.spec import BatchSource
from data_pipeline.process.errors import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoderSystem(RelationSystem):
    """CODER: the total loss is L_MS + mu * L_MS^rel."""

    name: ClassVar[str] = "coder"
    title: ClassVar[str] = "CODER"
    paper: ClassVar[str] = "Yuan et al. 2022"

    mu: float = 1.0
    """Weight of the term-relation-term loss; 0 trains on synonyms alone."""
    score: Literal["bilinear", "translation"] = "bilinear"
    """Similarity of term, relation, term: cos(M_r^T e_i, e_j), or, in the paper's ablation,
    -|e_i + r - e_j|, which needs other constants than a cosine."""
    term: MultiSimilarity = dataclasses.field(default_factory=MultiSimilarity)
    relation: MultiSimilarity = dataclasses.field(default_factory=MultiSimilarity)
    relation_update: Literal["lazy", "dense"] = "lazy"
    """Which relation matrices a step rewrites: those that it uses, which then make up for the steps
    that they missed, or all; the same but for rounding."""
    relation_start: Literal["identity", "ridge"] = "identity"
    """Where relation matrices begin: at the identity, with noise (the paper); or at the ridge
    regression of tails on heads in the initial encoder's vectors, label by label."""
    ridge_penalty: float = 0.3
    """What pulls a matrix of `--relation-start ridge` to the identity; a triplet weighs 1."""
    ridge_triplets: int = 2_000
    """Most triplets of a label that the regression takes; their terms are encoded."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        if self.relation_update == "lazy" and optimizer.b1**2 >= optimizer.b2:
            raise BadInput(
                f"b1 is {optimizer.b1} and b2 is {optimizer.b2}: the lazy update of relation "
                "matrices needs b1 < sqrt(b2); use --relation-update dense"
            )
        check_least(self, 1, "ridge_triplets")
        if self.ridge_penalty <= 0:
            raise BadInput(f"ridge_penalty is {self.ridge_penalty}; it must be more than 0")
        if self.starts_by_ridge and self.score != "bilinear":
            raise BadInput(
                f"relation_start is 'ridge', but the score is {self.score!r}, which has no "
                "matrices; use --relation-start identity"
            )
        if self.batch.corrupted_tails:
            raise BadInput(
                "corrupted_tails is on, but only CODER v1 uses them; use --no-corrupted-tails, or "
                "a recipe of CODER v1"
            )

    @property
    def starts_by_ridge(self) -> bool:
        """Whether a regression says where relation matrices begin."""
        return bool(self.mu) and self.relation_start == "ridge"

    def told(self) -> dict[str, Any]:
        begun = {"relations begin at": "ridge regression"} if self.starts_by_ridge else {}
        return super().told() | begun

    @property
    def needs_dataset(self) -> str:
        if not self.starts_by_ridge:
            return super().needs_dataset
        return "as relation matrices begin with its triplets; or use --relation-start identity"

    def carried_heads(
        self, run: SavedRun, manifest: Mapping[str, Any], about: Mapping[str, Any]
    ) -> Params:
        carried = super().carried_heads(run, manifest, about)
        if "relations" in carried and self.starts_by_ridge:
            raise BadInput(
                "relation_start is 'ridge', but the relation matrices of the run to start from go "
                "on, as the dataset has the same labels; use --relation-start identity, or take "
                "its encoder alone: --init RUN in place of --from RUN"
            )
        return carried

    def prepare(
        self, source: BatchSource, about: Mapping[str, Any], initial: Params, folder: Path
    ) -> Params:
        begun = super().prepare(source, about, initial, folder)
        if not self.starts_by_ridge:
            return begun
        from coder_jax.encoding.readers.embed import place
        from coder_jax.systems.coder.relation_start import ridge_matrices

        graph, _ = split_encoder(self.structure(about))
        begun["relations"] = ridge_matrices(
            folder,
            source.dataset,  # type: ignore[attr-defined]  # of a `BatchMaker`
            place(merge_encoder(graph, initial["encoder"])),
            initial["encoder"],
            pooling=self.model.pooling,
            penalty=self.ridge_penalty,
            most=self.ridge_triplets,
            seed=self.batch.seed,
        )
        return begun

    def head_parts(self) -> dict[str, Part]:
        return {"relations": self.relation_part(lazy=self.relation_update == "lazy")}

    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        return group_loss(group, self)


def group_loss(group: Group, loss: CoderSystem) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss of one group of k pairs, N = 2k.

    Returns:
        (total, metrics): `loss_term`, `loss_relation`, and the mined pairs per anchor of each.
    """
    total, metrics = term_loss(group, loss.term)
    if loss.mu and group.queries is not None:
        pairs = group.queries.shape[0]
        tails_kD, tail_concepts = group.vectors[pairs:], group.concepts[pairs:]
        # The paper's stand-in for 'the triplet (h_i, r_i, t_j) is in the graph': t_j is t_i.
        reached_kk = tail_concepts[:, None] == tail_concepts[None, :]
        if loss.score == "bilinear":
            similarity_kk = cosine(group.queries, tails_kD)
        else:
            similarity_kk = -distance(group.queries, tails_kD)
        relation_loss, mined = multi_similarity_loss(
            similarity_kk,
            reached_kk,
            group.negatives[pairs:, pairs:],
            group.related,
            **dataclasses.asdict(loss.relation),
        )
        total = total + loss.mu * relation_loss
        metrics |= {
            "loss_relation": relation_loss,
            "mined_relation_positives": mined["positives"],
            "mined_relation_negatives": mined["negatives"],
        }
    return total, metrics
