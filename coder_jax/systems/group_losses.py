"""What systems share that learn from groups of terms: losses, the relation table, the mean loss.

The loss of a step is the mean over its groups (`mean_over_groups`, at the end). A `Group` is
vectors and labels; a loss lives inside it. From top to bottom: the multi-similarity loss (Wang et
al. 2019; CODER, section 3.3), a group and the losses of CODER on it, the table of relations and how
it is trained (`RelationTable`, a head), the mean.
"""

import abc
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from coder_jax.devices.mesh import BLOCKS, EVERYWHERE, constrain, spread_axes
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.encoder_system import (
    EncoderOfRun,
    EncoderRun,
    Head,
    StartOfEncoder,
    term_vectors,
    unit_length,
)
from coder_jax.systems.teacher import teacher_loss
from coder_jax.training.system import (
    Batch,
    Loss,
    OptimizerConfig,
    Params,
    Part,
    SavedRun,
    StepKey,
    Tree,
)
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.store import Manifest
from data_pipeline.files.identity import Count
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The content of run.json for systems of groups, beyond that of any encoder.


class StartOfGroups(StartOfEncoder, frozen=True, kw_only=True):
    """The start of a run, in run.json."""

    relations: Count
    types: Count


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupRun(EncoderRun):
    """run.json of a system of groups."""

    start: StartOfGroups

    @classmethod
    def start_of(cls, encoder: EncoderOfRun, manifest: Manifest) -> StartOfGroups:
        relations, types = len(manifest.relations), len(manifest.semantic_types)
        return StartOfGroups(encoder=encoder, relations=relations, types=types)


# -------------------------------------------------------------------------------------------------
# Losses: pure functions of similarity matrices and masks, independent of model and configuration.
#
# All of this is float32 (or float64) with no matrix products inside; the similarities that come in
# should be float32 of the highest matmul precision, because they are multiplied by beta = 50 here.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MultiSimilarity:
    """Hyperparameters of one multi-similarity loss; the papers' values."""

    alpha: float = 2.0
    """Sharpness for positives."""
    beta: float = 50.0
    """Sharpness for negatives."""
    base: float = 0.5
    """Lambda, the similarity around which pairs are weighed."""
    margin: float = 0.1
    """Epsilon of the mining."""


def _log_one_plus_sum_exp(exponent_AB: jax.Array, include_AB: jax.Array) -> jax.Array:
    """log(1 + sum over included j of exp(x_ij)); no overflow, gradients finite for finite input.

    Args:
        exponent_AB: float [A, B].
        include_AB: bool [A, B]; a row without any gives exactly 0.

    Returns:
        float [A].
    """
    masked_AB = jnp.where(include_AB, exponent_AB, -jnp.inf)
    # The 1 is exp(0), so the largest exponent is never below 0 and a row without any stays finite.
    largest_A = jax.lax.stop_gradient(jnp.maximum(masked_AB.max(axis=1, initial=0.0), 0.0))
    sum_A = jnp.where(include_AB, jnp.exp(masked_AB - largest_A[:, None]), 0.0).sum(axis=1)
    return largest_A + jnp.log(jnp.exp(-largest_A) + sum_A)


def _multi_similarity_loss(
    similarity_AB: jax.Array,
    positive_AB: jax.Array,
    negative_AB: jax.Array,
    constants: MultiSimilarity,
    anchor_A: jax.Array | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    r"""Multi-similarity loss with its hard-pair mining, over any similarity matrix.

    For anchor i a negative j is kept if :math:`S_{ij} > \min_{pos} S_{ik} - \epsilon`, a positive j
    if :math:`S_{ij} < \max_{neg} S_{ik} + \epsilon`. With the kept pairs

    .. math:: L_i = \frac1\alpha \log(1 + \sum_{pos} e^{-\alpha (S_{ij} - \lambda)})
                  + \frac1\beta \log(1 + \sum_{neg} e^{\beta (S_{ij} - \lambda)}).

    An anchor without positives keeps no negatives and the other way round; it counts as 0 in the
    mean.

    Requirements: similarities that are comparable within a row; cosine for the default
    hyperparameters.

    Args:
        similarity_AB: float [A, B], anchors against candidates.
        positive_AB: bool [A, B], the pairs with label 1, less the pair of a term with itself.
        negative_AB: bool [A, B], the pairs with label 0. A pair in neither mask takes no part.
        constants: alpha, beta, lambda and epsilon.
        anchor_A: bool [A], anchors that count; all of them if None.

    Returns:
        (loss, pairs): the mean over the anchors that count (0 if there are none), and `positives`
        and `negatives`, the numbers of mined pairs per anchor that counts.

    References:
        Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning,
        2019; Yuan et al., CODER, 2022, section 3.3.
    """
    if anchor_A is not None:
        positive_AB = positive_AB & anchor_A[:, None]
        negative_AB = negative_AB & anchor_A[:, None]
    # Rows without positives (negatives) give +inf (-inf) and so mine nothing, as they must.
    hardest_positive_A1 = jnp.where(positive_AB, similarity_AB, jnp.inf).min(axis=1, keepdims=True)
    hardest_negative_A1 = jnp.where(negative_AB, similarity_AB, -jnp.inf).max(axis=1, keepdims=True)
    mined_negative_AB = negative_AB & (similarity_AB > hardest_positive_A1 - constants.margin)
    mined_positive_AB = positive_AB & (similarity_AB < hardest_negative_A1 + constants.margin)
    return weighed_pairs(similarity_AB, mined_positive_AB, mined_negative_AB, constants, anchor_A)


def weighed_pairs(
    similarity_AB: jax.Array,
    positive_AB: jax.Array,
    negative_AB: jax.Array,
    constants: MultiSimilarity,
    anchor_A: jax.Array | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The mean of L_i of `_multi_similarity_loss` over pairs mined by any rule.

    Args and what comes back are as there, of the mined pairs.
    """
    alpha, beta, base = constants.alpha, constants.beta, constants.base
    loss_A = (
        _log_one_plus_sum_exp(-alpha * (similarity_AB - base), positive_AB) / alpha
        + _log_one_plus_sum_exp(beta * (similarity_AB - base), negative_AB) / beta
    )
    anchors = similarity_AB.shape[0] if anchor_A is None else anchor_A.sum()
    per_anchor = 1.0 / jnp.maximum(anchors, 1).astype(similarity_AB.dtype)
    return loss_A.sum() * per_anchor, {
        "positives": positive_AB.sum() * per_anchor,
        "negatives": negative_AB.sum() * per_anchor,
    }


# -------------------------------------------------------------------------------------------------
# A group as the objectives see it: vectors and labels.
#
# A loss lives inside its group: nothing here sees another group, so groups can run side by side,
# one after the other, or on other devices, with the same result. (Queries and logits are made for
# all groups at once, because the relation matrices are spread over all devices.)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """U triplets, each m times: k = U * m pairs, N = 2k terms; or 3k with corrupted tails."""

    vectors: jax.Array
    """float32 [N, D], of the k heads, then of the k tails, then of the k corrupted tails."""
    concepts: jax.Array
    """int32 [N], the concept of each term."""
    relations: jax.Array
    """int32 [U], the relations of the distinct triplets; pair u * m + j is triplet u. A negative id
    means that the pairs of this triplet are two synonyms, with no relation to learn."""
    queries: jax.Array | None = None
    """float32 [k, D], where the relation leads from each head; None if relations are not learnt."""
    types: jax.Array | None = None
    """int32 [N], the semantic type of each term's concept; negative where it has none."""
    type_logits: jax.Array | None = None
    """float32 [N, S], the score of each semantic type for each term."""
    teacher: jax.Array | None = None
    """float32 [N, D'], the vectors of the terms by another encoder; None if there is none."""

    def first(self, width: int) -> "Group":
        """The group with the first numbers of its vectors, and of its queries."""
        queries = None if self.queries is None else self.queries[..., :width]
        return dataclasses.replace(self, vectors=self.vectors[..., :width], queries=queries)

    @property
    def related(self) -> jax.Array:
        """bool [k]: the pairs that a relation joins; only with queries."""
        assert self.queries is not None
        repeats = self.queries.shape[0] // self.relations.shape[0]
        return jnp.repeat(self.relations >= 0, repeats)

    @property
    def positives(self) -> jax.Array:
        """bool [N, N]: pairs of terms of one concept."""
        same_NN = self.concepts[:, None] == self.concepts[None, :]
        return same_NN & ~jnp.eye(same_NN.shape[0], dtype=bool)

    @property
    def negatives(self) -> jax.Array:
        """bool [N, N]: pairs of terms of different concepts."""
        return self.concepts[:, None] != self.concepts[None, :]


def _products(a_AD: jax.Array, b_BD: jax.Array) -> jax.Array:
    """float32 [A, B], the inner product of every pair."""
    return jnp.einsum("ad,bd->ab", a_AD, b_BD, precision=jax.lax.Precision.HIGHEST)


def cosine(a_AD: jax.Array, b_BD: jax.Array) -> jax.Array:
    """float32 [A, B], the cosine of every pair."""
    return _products(unit_length(a_AD), unit_length(b_BD))


def norm(vectors: jax.Array) -> jax.Array:
    """The length of vectors on the last axis, with gradient zero at zero."""
    return jnp.sqrt(jnp.maximum(jnp.sum(vectors * vectors, axis=-1), 1e-12))


def _distance(a_AD: jax.Array, b_BD: jax.Array) -> jax.Array:
    """float32 [A, B], the Euclidean distance of every pair.

    From inner products: the differences themselves would be an array [A, B, D].
    """
    square_AB = (a_AD**2).sum(-1)[:, None] + (b_BD**2).sum(-1)[None, :] - 2 * _products(a_AD, b_BD)
    return jnp.sqrt(jnp.maximum(square_AB, 1e-12))


def term_loss(group: Group, loss: MultiSimilarity) -> tuple[jax.Array, dict[str, jax.Array]]:
    """L_MS of all terms of a group: those of one concept belong together.

    Returns:
        (loss, metrics): `loss_term`, and the mined pairs per anchor.
    """
    total, mined = _multi_similarity_loss(
        cosine(group.vectors, group.vectors), group.positives, group.negatives, loss
    )
    return total, {
        "loss_term": total,
        "mined_positives": mined["positives"],
        "mined_negatives": mined["negatives"],
    }


def mean_where(values: jax.Array, counted: jax.Array) -> jax.Array:
    """The mean of the values that count; 0 if there are none."""
    return jnp.where(counted, values, 0.0).sum() / jnp.maximum(counted.sum(), 1)


# -------------------------------------------------------------------------------------------------
# The relation table: one bilinear matrix per relation, [R, D, D], or one translation, [R, D]; or
# matrices I + U V^T, of which U and V are kept, [R, 2, D, K] (Hu et al., LoRA, 2022, section 4.1).
#
# It maps (head vector, relation) to a query vector, which is compared with tails as a term vector
# would be. With the identity as matrix the query is the head itself, so that S is the special case
# of S^rel with M = I (CODER, section 3.3), or with the translation 0 (TransE; Bordes et al. 2013).


def _table_shape(score: str, relations: int, width: int, rank: int = 0) -> tuple[int, ...]:
    """The shape of the table for a `score`, bilinear or translation, and a rank or 0."""
    if score == "translation":
        return (relations, width)
    return (relations, 2, width, rank) if rank else (relations, width, width)


def _init_relations(shape: tuple[int, ...], *, noise: float, seed: int) -> jax.Array:
    """float32, with `_table_shape`: relations that leave heads unchanged, plus normal noise.

    That is the identity for matrices, 0 for translations, plus noise of standard deviation `noise`;
    for I + U V^T a random U and V = 0. Under `jax.jit` with a sharded output each device makes its
    own part, of the same values.
    """
    normal = jax.random.normal(jax.random.key(seed), shape)
    if len(shape) == 4:
        return normal * jnp.array([shape[2] ** -0.5, 0.0])[None, :, None, None]
    return (jnp.eye(shape[-1])[None] if len(shape) == 3 else 0.0) + noise * normal


_MOST_MATRICES = 512  # of a group at a time: 0.3 GB of MiniLM's width, 1.2 of BERT-base's


def _relation_matrices(table_RDD: jax.Array, relation_U: jax.Array) -> jax.Array:
    """float32 [..., U, D, D]: the matrices of distinct triplets; arbitrary for a negative id.

    U of them, not one for each of the k = U * m repeats of the triplets.
    """
    return table_RDD[jnp.maximum(relation_U, 0)]


def _relation_queries(
    matrix_UDD: jax.Array, relation_U: jax.Array, head_UmD: jax.Array
) -> jax.Array:
    r"""The query :math:`M_r^\top e` of each head.

    Args:
        matrix_UDD: float32 [..., U, D, D], of `_relation_matrices`.
        relation_U: int32 [..., U]; a negative id stands for no relation and gives the head itself.
        head_UmD: float32 [..., U, m, D], the m terms of each triplet's head.

    Returns:
        float32 [..., U, m, D].
    """
    query_UmD = jnp.einsum(
        "...umd,...ude->...ume", head_UmD, matrix_UDD, precision=jax.lax.Precision.HIGHEST
    )
    return jnp.where((relation_U >= 0)[..., None, None], query_UmD, head_UmD)


def _translated(table_RD: jax.Array, relation_U: jax.Array, head_UmD: jax.Array) -> jax.Array:
    """The query e + r of each head; shapes as for `_relation_queries`."""
    translation_UD = jnp.where((relation_U >= 0)[..., None], table_RD[relation_U], 0.0)
    return head_UmD + translation_UD[..., None, :]


def _low_rank_queries(
    table_R2DK: jax.Array, relation_U: jax.Array, head_UmD: jax.Array
) -> jax.Array:
    r"""The query :math:`e + V U^\top e` of each head; shapes as for `_relation_queries`."""
    factors = jnp.where((relation_U >= 0)[..., None, None, None], table_R2DK[relation_U], 0.0)
    product = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    narrow = product("...umd,...udk->...umk", head_UmD, factors[..., 0, :, :])
    return head_UmD + product("...umk,...udk->...umd", narrow, factors[..., 1, :, :])


def _all_queries(
    mesh: Mesh, table: jax.Array, relation_BGU: jax.Array, head_BGkD: jax.Array
) -> jax.Array:
    """The queries of all groups, [B, G, k, D]; each device contributes its part of the matrices.

    Args:
        mesh: the devices.
        table: float32 [R, D, D], matrices; [R, 2, D, K], of low rank; or [R, D], translations.
        relation_BGU: int32, of the distinct triplets.
        head_BGkD: float32, the vectors of the heads.
    """
    put = partial(constrain, mesh)
    width = head_BGkD.shape[-1]
    head_BGUmD = head_BGkD.reshape(*relation_BGU.shape, -1, width)
    if table.ndim != 3:
        query = _translated if table.ndim == 2 else _low_rank_queries
        query_BGUmD = query(table, relation_BGU, head_BGUmD)
        return put(query_BGUmD, BLOCKS).reshape(head_BGkD.shape)
    # A device that holds some rows of every matrix needs those features of every head. Heads are
    # small, so they travel and the matrices stay.
    axes = spread_axes(mesh, width)

    def queries(relation_BGU: jax.Array, head_BGUmD: jax.Array) -> jax.Array:
        matrix_BGUDD = _relation_matrices(table, relation_BGU)
        if axes is not None:
            # The constraint also applies to the gradient, which is computed where the matrices are.
            matrix_BGUDD = put(matrix_BGUDD, PartitionSpec(None, None, None, axes))
        return _relation_queries(matrix_BGUDD, relation_BGU, head_BGUmD)

    if axes is not None:
        relation_BGU = put(relation_BGU, EVERYWHERE)
        if mesh.shape["within"] > 1:  # XLA knows no direct way between these places
            head_BGUmD = put(head_BGUmD, EVERYWHERE)
        head_BGUmD = put(head_BGUmD, PartitionSpec(None, None, None, None, axes))
    if relation_BGU.shape[2] <= _MOST_MATRICES:
        query_BGUmD = queries(relation_BGU, head_BGUmD)
    else:  # in parts, of which the gradient gathers the matrices again
        triplets = jnp.moveaxis(relation_BGU, 2, 0), jnp.moveaxis(head_BGUmD, 2, 0)
        one = jax.checkpoint(lambda pair: queries(*(part[:, :, None] for part in pair))[:, :, 0])
        query_UBGmD = jax.lax.map(one, triplets, batch_size=_MOST_MATRICES)
        query_BGUmD = jnp.moveaxis(query_UBGmD, 0, 2)
    if axes is not None and mesh.shape["within"] > 1:
        query_BGUmD = put(query_BGUmD, EVERYWHERE)
    return put(query_BGUmD, BLOCKS).reshape(head_BGkD.shape)


# -------------------------------------------------------------------------------------------------
# The relation table as a trained head of a system.


class GroupHead(Head):
    """The protocol of a head that transforms the vectors of groups for their loss."""

    @abc.abstractmethod
    def fill(self, group: Group, params: Tree, mesh: Mesh) -> Group:
        """Groups [B, G, ...] with what this head computes from their vectors."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelationTable(GroupHead):
    """One matrix, or one translation, for each label of the dataset."""

    name = "relations"

    score: str
    """How a head, a relation and a tail are compared: "bilinear" or "translation"."""
    mu: float
    """Weight of what is learnt of relations; 0: there is no table."""
    noise: float
    rate: float
    seed: int
    pairs: int
    """k of a group."""
    lazy: bool = False
    """Whether a step works on the matrices that it uses alone."""
    rank: int = 0
    """K of matrices I + U V^T; 0: full matrices."""

    def part(self) -> Part:
        """No weight decay: towards zero, matrices would forget the identity they start from."""
        bilinear = self.score == "bilinear"
        return Part(
            rate=self.rate,
            spread=1 if bilinear and not self.rank else None,
            touched="relations" if bilinear and self.lazy else None,
        )

    def shapes(self, recorded_start: Any, width: int) -> Tree | None:
        if not (self.mu and recorded_start.relations):
            return None
        shape = _table_shape(self.score, recorded_start.relations, width, self.rank)
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def init_params(self, shapes: Tree) -> Tree:
        return _init_relations(shapes.shape, noise=self.noise, seed=self.seed)

    def from_run(self, run: SavedRun, shapes: Tree, manifest: Manifest) -> Tree | None:
        theirs = run.described(EncoderRun).dataset
        # A table with other labels or another shape is not the same table.
        same_labels = theirs.relations == manifest.relations
        table = run.params["relations"]
        return table if same_labels and shapes.shape == table.shape else None

    def validate(self, batch: BatchSpec, optimizer: OptimizerConfig) -> None:
        if self.mu and batch.draw in ("synonyms", "pairs"):
            raise BadInput(
                f"--mu is {self.mu} and --draw is {batch.draw}, which takes no relations; "
                "give --mu 0 or another --draw"
            )
        if self.lazy and optimizer.b1**2 >= optimizer.b2:
            raise BadInput(
                f"b1 is {optimizer.b1} and b2 is {optimizer.b2}: the lazy update of relation "
                "matrices needs b1 < sqrt(b2); use --relation-update dense"
            )

    def check_data(self, manifest: Manifest, folder: Path) -> None:
        if self.mu and not manifest.relations:
            raise BadInput(
                f"--mu is {self.mu}, but {folder} has no relations; give --mu 0 to train on "
                "synonyms alone"
            )

    def fill(self, group: Group, params: Tree, mesh: Mesh) -> Group:
        head_BGkD = group.vectors[:, :, : self.pairs]
        queries = _all_queries(mesh, params, group.relations, head_BGkD)
        return dataclasses.replace(group, queries=queries)


# -------------------------------------------------------------------------------------------------
# The loss of a step: the mean over its groups.


def mean_over_groups(system: Any, recorded_start: Any, mesh: Mesh) -> Loss:
    """The loss of a system whose batches are groups of terms (`Group`), for `System.loss`.

    With a teacher (`--teacher`) the loss of a group has one more part, `teacher_loss`, by the
    weight and the temperature of `system.batch`.

    With widths (`matryoshka`) it is the sum of the losses of the vectors' first numbers, so many
    each (Kusupati et al., Matryoshka Representation Learning, 2022, equation 1, with weights of 1):
    cosines are then of these numbers alone, and of a query those as far as they reach.

    Args:
        system: an `EncoderSystem`, whose heads may be of `GroupHead`. It has a method `group_loss`,
            of a `Group`: its loss and metrics; and may have `matryoshka`, the widths, which are
            none where the loss is of whole vectors.
        recorded_start, mesh: of `System.loss`.

    Raises:
        BadInput: if a width is larger than a vector.
    """
    structure, widths = system.structure(recorded_start), getattr(system, "matryoshka", ())
    graph, _ = split_encoder(structure)
    width = structure.config.hidden_size
    if max(widths, default=1) > width:
        raise BadInput(
            f"--matryoshka has {max(widths)}, but the vectors of this encoder have {width} "
            "numbers; give widths up to that"
        )

    def of_group(group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        loss, metrics = system.group_loss(group)
        if group.teacher is None:
            return loss, metrics
        part = teacher_loss(
            cosine(group.vectors, group.vectors),
            cosine(group.teacher, group.teacher),
            group.negatives,
            temperature=system.batch.teacher_temperature,
        )
        return loss + system.batch.teacher_weight * part, metrics | {"loss_teacher": part}

    def summed(group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        if not widths:
            return of_group(group)
        found = {each: of_group(group.first(each)) for each in widths}
        losses = {each: loss for each, (loss, _) in found.items()}
        _, metrics = found[max(widths)]
        of_widths = {f"loss_first_{each}": loss for each, loss in losses.items()}
        return jnp.stack(list(losses.values())).sum(), metrics | of_widths

    losses_of_groups = jax.vmap(jax.vmap(summed))

    def pass_loss(params: Params, extra: Tree, batch: Batch, step_key: StepKey) -> Any:
        bert = merge_encoder(graph, params["encoder"], step_key.remat)
        group = Group(
            vectors=term_vectors(
                bert, batch, step_key, mesh, system.model.pooling, system.batch.seed
            ),
            concepts=batch["concepts"],
            relations=batch["relations"],
            types=batch.get("types"),
            teacher=batch.get("teacher"),
        )
        for head in system.heads:
            if isinstance(head, GroupHead) and head.name in params:
                group = head.fill(group, params[head.name], mesh)
        loss_BG, metrics_BG = losses_of_groups(group)
        return loss_BG.mean(), (extra, jax.tree.map(jnp.mean, metrics_BG))

    return pass_loss


def check_widths(widths: Sequence[int]) -> None:
    """Raise BadInput for --matryoshka with a width that is none, or that comes twice."""
    if widths and (min(widths) < 1 or len(set(widths)) < len(widths)):
        raise BadInput(
            f"--matryoshka is {' '.join(map(str, widths))}; expected different numbers of 1 or "
            "more, such as 384 256 128 64"
        )


def told_widths(widths: Sequence[int]) -> dict[str, Any]:
    """What the model card says of --matryoshka."""
    return {"matryoshka": ", ".join(map(str, widths))} if widths else {}


# -------------------------------------------------------------------------------------------------
# What the systems CODER and CODER++ have in common.


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoderLosses:
    """The loss of a group of k pairs, N = 2k: L_MS + mu * L_MS^rel, and what it is made of.

    References:
        Yuan et al., CODER, 2022, section 3.3.
    """

    batch: BatchSpec
    relation_noise: float = 0.01
    """Standard deviation around the identity in a new relation matrix, or around 0 in a new
    translation."""
    relation_learning_rate_factor: float = 1.0
    """Relations, and the head of semantic types, learn at this multiple of the encoder's rate."""
    mu: float
    score: Literal["bilinear", "translation"] = "bilinear"
    """Similarity of term, relation, term: cos(M_r^T e_i, e_j), or, in the paper's ablation,
    -|e_i + r - e_j|, which needs other constants than a cosine."""
    relation_rank: int = 0
    """For less memory learn relation matrices of low rank, I + U V^T, whose U and V have so many
    columns, such as 16; 0: full matrices, as in the paper."""
    term: Annotated[MultiSimilarity, Flag(name="term.")] = dataclasses.field(
        default_factory=MultiSimilarity
    )
    relation: Annotated[MultiSimilarity, Flag(name="relation.")] = dataclasses.field(
        default_factory=MultiSimilarity
    )
    matryoshka: tuple[int, ...] = ()
    """Sum the loss over the first so many numbers of the vectors, such as 384 256 128 64: then the
    first numbers alone are vectors, too (--width of encode, evaluate, normalize, serve)."""
    relation_update: Literal["lazy", "dense"] = "lazy"
    """Which relation matrices a step rewrites: those that it uses, which then make up for the steps
    that they missed, or all; the same but for rounding."""

    @property
    def heads(self) -> tuple[Head, ...]:
        relations = RelationTable(
            score=self.score,
            mu=self.mu,
            noise=self.relation_noise,
            rate=self.relation_learning_rate_factor,
            seed=self.batch.seed,
            pairs=self.batch.pairs,
            lazy=self.relation_update == "lazy",
            rank=self.relation_rank,
        )
        return (relations,)

    def check_losses(self) -> None:
        """Raise BadInput for values that do not fit each other."""
        check_widths(self.matryoshka)
        if self.relation_rank and self.score == "translation":
            raise BadInput(
                f"--relation-rank is {self.relation_rank} and --score is translation, which has no "
                "matrices; leave one of them out"
            )

    def hyperparameters(self) -> dict[str, Any]:
        rank = {"rank of relation matrices": self.relation_rank} if self.relation_rank else {}
        return {"mu": self.mu} | rank | told_widths(self.matryoshka)

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        return mean_over_groups(self, recorded_start, mesh)

    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of one group, without queries L_MS alone, and its metrics: `loss_term`,
        `loss_relation`, and the mined pairs per anchor of each.
        """
        total, metrics = term_loss(group, self.term)
        if not self.mu or group.queries is None:
            return total, metrics
        pairs = group.queries.shape[0]
        tails = slice(pairs, 2 * pairs)
        tails_kD, tail_concepts = group.vectors[tails], group.concepts[tails]
        # The paper uses t_j = t_i for 'the triplet (h_i, r_i, t_j) is in the graph'.
        reached_kk = tail_concepts[:, None] == tail_concepts[None, :]
        if self.score == "bilinear":
            similarity_kk = cosine(group.queries, tails_kD)
        else:
            similarity_kk = -_distance(group.queries, tails_kD)
        relation_loss, mined = _multi_similarity_loss(
            similarity_kk, reached_kk, ~reached_kk, self.relation, group.related
        )
        metrics |= {
            "loss_relation": relation_loss,
            "mined_relation_positives": mined["positives"],
            "mined_relation_negatives": mined["negatives"],
        }
        return total + self.mu * relation_loss, metrics
