r"""Relation matrices that a step touches only if it needs them, with the result of dense Adam.

A step uses a few of the R matrices, but dense Adam rewrites all of them, and their two moments, in
every step: those without a gradient still move along their moments, and these decay. Here a step
borrows the matrices that it needs, makes up for the steps that they missed, takes its own step with
them, and puts them back. The missed steps have a closed form. After n steps without a gradient,
from step t on, moments are :math:`b_1^n m` and :math:`b_2^n v`, and the matrix has moved by

.. math:: -\sum_{j=1}^{n} \eta_{t+j} \frac{b_1^j m / (1 - b_1^{t+j})}
                                         {\sqrt{b_2^j v / (1 - b_2^{t+j})} + \epsilon}
          = -\sum_j w_j \frac{m}{\sqrt v + e_j}
          \approx -\sum_{i=1}^{2} W_i \frac{m}{\sqrt v + E_i},

where :math:`e_j` is :math:`\epsilon` times a number that changes little from step to step, and two
nodes :math:`E_i` stand for all of them, with the same weighted moments up to the third (Gauss
quadrature): exact but for rounding where :math:`\epsilon` is small beside the gradient, and
within 1 % of the missed movement where it rules. The :math:`w_j` fall like
:math:`(b_1/\sqrt{b_2})^j`, so the sum is cut off where nothing is left.

Adam: Kingma and Ba 2015. V borrowed matrices, R matrices, D width.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from coder_jax.devices.mesh import BATCH, EVERYWHERE, features_of_matrices, lie
from coder_jax.systems.groups.relations import is_matrices
from coder_jax.training.config import OptimizerConfig
from coder_jax.training.optimizer import relation_learning_rate
from coder_jax.training.state import TrainState

NOTHING_LEFT = 1e-10  # share of the sum of the w_j that is cut off


@dataclasses.dataclass(frozen=True)
class MissedSteps:
    """The steps that matrices missed, in closed form.

    Attributes:
        config: of Adam; b1 < sqrt(b2), or the sum above has no end.
    """

    config: OptimizerConfig

    @property
    def terms(self) -> int:
        """Terms of the sum that count."""
        config = self.config
        return math.ceil(math.log(NOTHING_LEFT) / math.log(config.b1 / math.sqrt(config.b2)))

    def nodes(self, since_V: jax.Array, now: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """The two (W, E), float32 [V] each.

        Args:
            since_V: int32, t, the steps that a matrix is up to date with.
            now: int32 scalar, the steps that were taken, at least t.
        """
        config = self.config
        j = jnp.arange(1, self.terms + 1)[None, :]
        step_VJ = since_V[:, None] + j
        first, second = (-jnp.expm1(step_VJ * math.log(b)) for b in (config.b1, config.b2))
        w_VJ = relation_learning_rate(config)(step_VJ - 1) * jnp.sqrt(second) / first
        w_VJ = w_VJ * (config.b1 / math.sqrt(config.b2)) ** j
        w_VJ = jnp.where(step_VJ <= now, w_VJ, 0.0)
        sum_V = w_VJ.sum(axis=1)
        share_VJ = w_VJ / jnp.where(sum_V > 0, sum_V, 1.0)[:, None]
        # In units of eps, so that no power of it is too small for float32.
        e_VJ = jnp.sqrt(second) / math.sqrt(config.b2) ** j
        mean_V = (share_VJ * e_VJ).sum(axis=1)
        off_VJ = e_VJ - mean_V[:, None]
        spread_V = jnp.sqrt((share_VJ * off_VJ**2).sum(axis=1))
        skew_V = (share_VJ * off_VJ**3).sum(axis=1) / jnp.maximum(spread_V, 1e-6) ** 3 / 2
        root_V = jnp.sqrt(1 + skew_V**2)
        return [
            (
                sum_V * (1 - side * skew_V / root_V) / 2,
                config.eps * (mean_V + spread_V * (skew_V + side * root_V)),
            )
            for side in (-1, 1)
        ]

    def make_up(self, state: TrainState, since_V: jax.Array, now: jax.Array) -> TrainState:
        """The state with its matrices and their moments as after `now` steps.

        Args:
            state: whose matrices and moments are [V, D, D].
            since_V, now: as in `nodes`.
        """
        config = self.config
        missed_V11 = (now - since_V).astype(jnp.float32)[:, None, None]
        leaves = jax.tree_util.tree_leaves_with_path(state.opt_state)
        moments = {_moment(path): leaf for path, leaf in leaves if is_matrices(path, leaf)}
        # A matrix that never had a gradient has no moments and stays: 0 / tiny.
        moved_VDD = sum(
            w_V[:, None, None]
            * moments["mu"]
            / (jnp.sqrt(moments["nu"]) + jnp.maximum(e_V, 1e-30)[:, None, None])
            for w_V, e_V in self.nodes(since_V, now)
        )

        def made_up(path: tuple[Any, ...], leaf: Any) -> Any:
            if not is_matrices(path, leaf):
                return leaf
            decay = {"mu": config.b1, "nu": config.b2}.get(_moment(path))
            return leaf - moved_VDD if decay is None else leaf * decay**missed_V11

        return jax.tree_util.tree_map_with_path(made_up, state)


def _moment(path: tuple[Any, ...]) -> str:
    """mu or nu; empty for what is no moment of Adam."""
    names = (getattr(part, "name", "") for part in path)
    return next((name for name in names if name in ("mu", "nu")), "")


def settle(state: TrainState, config: OptimizerConfig) -> TrainState:
    """The whole state with no missed step left: what a finished run keeps.

    A checkpoint of before holds each matrix as it was when it was last used; to settle it there
    would make a run that goes on from it differ, in rounding, from one that was never stopped.

    Args:
        state: given up (donation); as it is if it is not lazy.
        config: of the run.
    """
    if state.relation_steps is None:
        return state

    def settled(state: TrainState) -> TrainState:
        since_R = jnp.asarray(state.relation_steps)
        state = MissedSteps(config).make_up(state, since_R, state.step)
        return dataclasses.replace(state, relation_steps=jnp.full_like(since_R, state.step))

    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    return jax.jit(settled, donate_argnums=0, out_shardings=places)(state)


def borrow(
    state: TrainState, batch: Mapping[str, jax.Array], missed: MissedSteps, mesh: Mesh
) -> tuple[TrainState, dict[str, jax.Array], jax.Array]:
    """What a step needs of the state: its V = min(R, ids) matrices, up to date.

    Args:
        state: whole.
        batch: of the step.
        missed: of the run's optimizer.
        mesh: the devices.

    Returns:
        (state, batch, borrowed): the state with V matrices in place of R; the batch with its
        relations counted among these; and int32 [V], the relation of each, R where there is none.
    """
    assert state.relation_steps is not None
    number = state.relation_steps.shape[0]
    relations = lie(mesh, batch["relations"], EVERYWHERE)
    used = jnp.where(relations < 0, number, relations)  # negative ones stand for no relation
    size = min(number, relations.size)
    # One more, for those without, which are the largest and so the last.
    borrowed = jnp.unique(used.reshape(-1), size=size + 1, fill_value=number)[:size]

    def take(path: tuple[Any, ...], leaf: Any) -> Any:
        if not is_matrices(path, leaf):
            return leaf
        matrix_VDD = leaf.at[borrowed].get(mode="clip", indices_are_sorted=True)
        axes = features_of_matrices(mesh, leaf.shape[-1])
        return lie(mesh, matrix_VDD, PartitionSpec(None, axes))

    rows = jax.tree_util.tree_map_with_path(take, state)
    since = state.relation_steps.at[borrowed].get(mode="clip")
    rows = missed.make_up(dataclasses.replace(rows, relation_steps=None), since, state.step)
    local = jnp.where(relations < 0, relations, jnp.searchsorted(borrowed, used))
    local = lie(mesh, local.astype(relations.dtype), BATCH["relations"])
    return rows, {**batch, "relations": local}, borrowed


def put_back(whole: TrainState, rows: TrainState, borrowed: jax.Array) -> TrainState:
    """The state after the step: all of `rows`, its matrices among the others of `whole`."""
    assert whole.relation_steps is not None

    def put(path: tuple[Any, ...], old: Any, new: Any) -> Any:
        if not is_matrices(path, old):
            return new
        return old.at[borrowed].set(new, mode="drop", indices_are_sorted=True)

    steps = whole.relation_steps.at[borrowed].set(rows.step, mode="drop")
    state = jax.tree_util.tree_map_with_path(
        put, dataclasses.replace(whole, relation_steps=None), rows
    )
    return dataclasses.replace(state, relation_steps=steps)
