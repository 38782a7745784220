"""CODER: MS-loss on term-term and on term-relation-term pairs (Yuan et al. 2022, section 3.3)."""

import dataclasses
from typing import ClassVar, Literal

import jax

from coder_jax.systems.groups.group import Group, MultiSimilarity, cosine, distance, term_loss
from coder_jax.systems.groups.multi_similarity import multi_similarity_loss
from coder_jax.systems.groups.relation_system import RelationSystem
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.system import Part
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

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        if self.relation_update == "lazy" and optimizer.b1**2 >= optimizer.b2:
            raise BadInput(
                f"b1 is {optimizer.b1} and b2 is {optimizer.b2}: the lazy update of relation "
                "matrices needs b1 < sqrt(b2); use --relation-update dense"
            )
        if self.batch.corrupted_tails:
            raise BadInput(
                "corrupted_tails is on, but only CODER v1 uses them; use --no-corrupted-tails, or "
                "a recipe of CODER v1"
            )

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
