r"""Lazy updates of table rows: a step touches only the rows it uses, with the result of a full
update.

A step uses a few of the R rows of a table (matrices, vectors of concepts), but dense Adam rewrites
all of them, and their two moments, in every step. Here a step gathers the rows that it
uses, works on these, and scatters them back. What becomes of the others, `Part.untouched` says.

"stay": they and their moments stay as they are, as in PyTorch's SparseAdam.

"catch up": dense Adam moves rows without a gradient along their moments, and these decay. When a
row is used again, it first makes up for the steps that it missed, which have a closed form. After n
steps without a gradient, from step t on, moments are :math:`b_1^n m` and :math:`b_2^n v`, and the
row has moved by

.. math:: -\sum_{j=1}^{n} \eta_{t+j} \frac{b_1^j m / (1 - b_1^{t+j})}
                                         {\sqrt{b_2^j v / (1 - b_2^{t+j})} + \epsilon}
          = -\sum_j w_j \frac{m}{\sqrt v + e_j}
          \approx -\sum_{i=1}^{2} W_i \frac{m}{\sqrt v + E_i},

where :math:`e_j` is :math:`\epsilon` times a number that changes little from step to step, and two
nodes :math:`E_i` stand for all of them, with the same weighted moments up to the third (Gauss
quadrature): exact but for rounding where :math:`\epsilon` is small beside the gradient, and
within 1 % of the missed movement where it rules. The :math:`w_j` fall like
:math:`(b_1/\sqrt{b_2})^j`, so the sum is cut off where nothing is left.

Adam: Kingma and Ba 2015. V gathered rows, R rows of the table.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from coder_jax.devices.mesh import EVERYWHERE, batch_place, constrain, spread_axes
from coder_jax.training.state import TrainState, is_of_part, rate_of_part
from coder_jax.training.system import OptimizerConfig, Part
from data_pipeline.process import BadInput

_NOTHING_LEFT = 1e-10  # share of the sum of the w_j that is cut off


def lazy_parts(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The parts of which a step updates only some rows."""
    return {name: part for name, part in parts.items() if part.touched}


@dataclasses.dataclass(frozen=True)
class MissedSteps:
    """The steps that rows missed since their last update, in closed form.

    Attributes:
        config: of Adam.
        name, part: whose rows missed them.

    Raises:
        BadInput: unless b1 < sqrt(b2), or the sum above has no end.
    """

    config: OptimizerConfig
    name: str
    part: Part

    def __post_init__(self) -> None:
        b1, b2 = self.config.b1, self.config.b2
        if b1**2 >= b2:
            raise BadInput(
                f"b1 is {b1} and b2 is {b2}: rows of {self.name} that make up for missed steps "
                "need b1 < sqrt(b2); choose another b1 or b2, or the dense update"
            )

    @property
    def terms(self) -> int:
        """The number of terms of the sum that matter; at b1 = 0 they are 0, and one is kept."""
        ratio = self.config.b1 / math.sqrt(self.config.b2)
        return math.ceil(math.log(_NOTHING_LEFT) / math.log(ratio)) if ratio else 1

    def nodes(self, since_V: jax.Array, now: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """The two nodes (W, E), float32 [V] each.

        Args:
            since_V: int32, t, the steps that a row is up to date with.
            now: int32 scalar, the steps that were taken, at least t.
        """
        config = self.config
        j = jnp.arange(1, self.terms + 1)[None, :]
        step_VJ = since_V[:, None] + j
        logs = [math.log(b) if b else -math.inf for b in (config.b1, config.b2)]
        first, second = (-jnp.expm1(step_VJ * log) for log in logs)
        w_VJ = rate_of_part(config, self.part)(step_VJ - 1) * jnp.sqrt(second) / first
        w_VJ = w_VJ * (config.b1 / math.sqrt(config.b2)) ** j
        w_VJ = jnp.where(step_VJ <= now, w_VJ, 0.0)
        sum_V = w_VJ.sum(axis=1)
        share_VJ = w_VJ / jnp.where(sum_V > 0, sum_V, 1.0)[:, None]
        # In units of eps, so that its powers fit into float32.
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

    def catch_up(self, state: TrainState, since_V: jax.Array, now: jax.Array) -> TrainState:
        """The state with the part's rows and moments brought up to step `now`.

        Args:
            state: whose arrays of the part are [V, ...].
            since_V, now: as in `nodes`.
        """
        config = self.config
        leaves = jax.tree_util.tree_leaves_with_path(state)
        ours = [(path, leaf) for path, leaf in leaves if is_of_part(self.name, path, leaf)]
        moments = {(_moment(path), _inside(self.name, path)): leaf for path, leaf in ours}
        nodes = self.nodes(since_V, now)

        def caught_up(path: tuple[Any, ...], leaf: Any) -> Any:
            if not is_of_part(self.name, path, leaf):
                return leaf
            rows = (-1,) + (1,) * (leaf.ndim - 1)
            decay = {"mu": config.b1, "nu": config.b2}.get(_moment(path))
            if decay is not None:
                kept = decay ** (now - since_V).astype(jnp.float32).reshape(rows)
                return (leaf * kept).astype(leaf.dtype)
            mean, square = (moments[name, _inside(self.name, path)] for name in ("mu", "nu"))
            # A row that never had a gradient has zero moments and stays: 0 / tiny.
            moved = sum(
                w_V.reshape(rows)
                * mean
                / (jnp.sqrt(square) + jnp.maximum(e_V, 1e-30).reshape(rows))
                for w_V, e_V in nodes
            )
            return leaf - moved

        return jax.tree_util.tree_map_with_path(caught_up, state)


def _moment(path: tuple[Any, ...]) -> str:
    """mu or nu; empty if it is not a moment of Adam."""
    names = (getattr(key, "name", "") for key in path)
    return next((name for name in names if name in ("mu", "nu")), "")


def _inside(part: str, path: tuple[Any, ...]) -> str:
    """The array of the part that a path leads to."""
    names = [place for place, key in enumerate(path) if getattr(key, "key", None) == part]
    # In the optimizer's state the label comes first.
    return jax.tree_util.keystr(path[names[0 if path[0].name == "params" else 1] :])


@dataclasses.dataclass(frozen=True)
class LazyRows:
    """How a step updates only the rows that it uses.

    Attributes:
        parts: of `lazy_parts`.
        config: of Adam.
        mesh: the devices.
        packed: names of the batch's arrays of packed rows (`BatchSource.packed`).
    """

    parts: dict[str, Part]
    config: OptimizerConfig
    mesh: Mesh
    packed: tuple[str, ...]

    def missed(self, name: str) -> MissedSteps:
        """The missed steps of a part with mode "catch up"."""
        return MissedSteps(self.config, name, self.parts[name])

    def gather_rows(
        self, state: TrainState, batch: Mapping[str, jax.Array]
    ) -> tuple[TrainState, dict[str, jax.Array], dict[str, jax.Array]]:
        """The part of the state that a step needs: V = min(R, numbers) up-to-date rows of each
        part.

        Returns:
            (state, batch, gathered): the state with V rows in place of R; the batch, in which rows
            are numbered among these; and by part int32 [V], the row of each, R where there is none.
        """
        gathered, whole, batch = {}, batch, dict(batch)
        for name, part in self.parts.items():
            assert part.touched is not None
            table = jax.tree.leaves(state.params[name])
            number = table[0].shape[0]
            numbers = constrain(self.mesh, whole[part.touched], EVERYWHERE)
            used = jnp.where(numbers < 0, number, numbers)
            size = min(number, numbers.size)
            # One more, for items without a row, which have the largest number and so come last.
            rows_V = jnp.unique(used.reshape(-1), size=size + 1, fill_value=number)[:size]
            since = state.row_steps.get(name)
            others = {key: steps for key, steps in state.row_steps.items() if key != name}
            state = self._take(name, dataclasses.replace(state, row_steps={}), rows_V)
            if since is not None:
                since_V = since.at[rows_V].get(mode="clip")
                state = self.missed(name).catch_up(state, since_V, state.step)
            state = dataclasses.replace(state, row_steps=others)
            local = jnp.where(numbers < 0, numbers, jnp.searchsorted(rows_V, used))
            place = batch_place(part.touched, self.packed)
            batch[part.touched] = constrain(self.mesh, local.astype(numbers.dtype), place)
            gathered[name] = rows_V
        return state, batch, gathered

    def _take(self, name: str, state: TrainState, rows_V: jax.Array) -> TrainState:
        """The state with only some rows of a part, sharded like the part."""
        spread = self.parts[name].spread

        def take(path: tuple[Any, ...], leaf: Any) -> Any:
            if not is_of_part(name, path, leaf):
                return leaf
            rows = leaf.at[rows_V].get(mode="clip", indices_are_sorted=True)
            place = EVERYWHERE
            if isinstance(spread, int) and 0 < spread < leaf.ndim:
                axes = spread_axes(self.mesh, leaf.shape[spread])
                place = PartitionSpec(*[None] * spread, axes)
            return constrain(self.mesh, rows, place)

        return jax.tree_util.tree_map_with_path(take, state)

    def scatter_rows(
        self, whole: TrainState, after: TrainState, gathered: Mapping[str, jax.Array]
    ) -> TrainState:
        """The state after the step: all of `after`, with its rows put back among those of
        `whole`.
        """
        state, steps = dataclasses.replace(after, row_steps={}), dict(whole.row_steps)
        old_state = dataclasses.replace(whole, row_steps={})
        for name, rows_V in gathered.items():

            def put(
                path: tuple[Any, ...], old: Any, new: Any, name: str = name, rows: Any = rows_V
            ) -> Any:
                if not is_of_part(name, path, old):
                    return new
                return old.at[rows].set(new, mode="drop", indices_are_sorted=True)

            state = jax.tree_util.tree_map_with_path(put, old_state, state)
            if name in steps:
                steps[name] = steps[name].at[rows_V].set(after.step, mode="drop")
        return dataclasses.replace(state, row_steps=steps)

    def settled(self, state: TrainState) -> TrainState:
        """The full state with all missed steps applied, which a finished run saves.

        A checkpoint of before holds each row as it was when it was last used; to catch up there
        would make a run that goes on from it differ, in rounding, from one that was never stopped.

        Args:
            state: given up (donation); as it is if nothing catches up.
        """
        if not state.row_steps:
            return state

        def caught_up(state: TrainState) -> TrainState:
            since = {name: jnp.asarray(steps) for name, steps in state.row_steps.items()}
            for name, since_R in since.items():
                state = self.missed(name).catch_up(state, since_R, state.step)
            steps = {name: jnp.full_like(since_R, state.step) for name, since_R in since.items()}
            return dataclasses.replace(state, row_steps=steps)

        places = jax.tree.map(lambda leaf: leaf.sharding, state)
        return jax.jit(caught_up, donate_argnums=0, out_shardings=places)(state)

    def settled_until(self, state: TrainState, steps: int) -> TrainState:
        """The state of a run that had so many steps until now, for one of `config.steps`.

        Rows make up for the steps that they missed at the rates of these steps, so they do it now
        if the rates change; else the state is as it was saved.

        Args:
            state: of a checkpoint; given up (donation).
            steps: of the whole run, when it was saved.
        """
        if steps == self.config.steps or self.config.schedule == "constant":
            return state
        then = dataclasses.replace(self.config, steps=steps)
        return dataclasses.replace(self, config=then).settled(state)
