"""A system as no paper has it, that uses all of the protocol at once: what training must not know.

An autoencoder of bags of tokens: the mean of a term's token vectors, plus a row of its own, made
normal over the batch, must tell the tokens of the term and of its nearest neighbour. The row is of
a table of which a step touches few rows, and the others stay; a prior is held fixed; the batch's
statistics run along; and neighbours are found anew every few steps.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.devices.hosts import is_first
from coder_jax.devices.mesh import BLOCKS, constrain, local_copy, make_mesh, step_cut
from coder_jax.training.run_folder import Run, StartOfRun
from coder_jax.training.system import Config, OptimizerConfig, Part, RunConfig, System, Trained
from data_pipeline.batches.spec import RowPlan, StepCut
from data_pipeline.process import BadInput

TERMS, TOKENS, VOCABULARY, WIDTH = 40, 5, 20, 8
MOMENTUM = 0.9


def write_terms(folder: Path) -> Path:
    """A dataset: int32 [TERMS, TOKENS], the tokens of each term."""
    folder.mkdir(parents=True)
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (TERMS, TOKENS))
    np.save(folder / "terms.npy", tokens.astype(np.int32))
    (folder / "words").mkdir()
    (folder / "words" / "list.txt").write_text("twenty words\n")
    return folder


class _StartOfToy(StartOfRun, frozen=True, kw_only=True):
    width: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ToyRun(Run):
    start: _StartOfToy


@dataclasses.dataclass(frozen=True)
class ToyBatches:
    """Terms drawn at random, with the tokens of the neighbour that the index gives each."""

    folder: Path
    size: int
    cut: StepCut
    neighbours: Any = None
    kept = ("words",)
    packed = ()
    floats = ()
    plan = RowPlan((1,))

    @property
    def manifest(self) -> dict[str, Any]:
        return {}

    @property
    def identity(self) -> dict[str, Any]:
        return {"dataset": {"terms": TERMS}}

    def shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        shape = self._groups().shape
        return {"ids": shape, "tokens": (*shape, TOKENS), "wanted": (*shape, 2 * TOKENS)}

    def _groups(self) -> np.ndarray:
        shape = (self.cut.passes, self.cut.blocks, -1)
        return np.arange(self.size).reshape(shape)[:, self.cut.first : self.cut.last]

    def rows_in_use(self, batch: Mapping[str, np.ndarray]) -> int:
        return 1

    def fill(self, batch: Mapping[str, np.ndarray]) -> float:
        return 1.0

    def batches(self, first_step: int, last_step: int):
        terms = np.load(self.folder / "terms.npy")
        for step in range(first_step, last_step):
            # The last ten terms are never drawn.
            drawn = np.random.default_rng([1, step]).integers(0, TERMS - 10, self.size)
            ids = drawn[self._groups()].astype(np.int32)
            wanted = np.concatenate([terms[ids], terms[self.neighbours[ids]]], axis=-1)
            yield {"ids": ids, "tokens": terms[ids], "wanted": wanted}

    def with_index(self, index: Path) -> "ToyBatches":
        return dataclasses.replace(self, neighbours=np.load(index / "neighbours.npy"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToySystem(System):
    """The autoencoder."""

    name = "toy"
    content = _ToyRun
    content = _ToyRun
    best = "terms/found"
    scored = ("encoder", "rows")

    size: int = 8
    refresh_steps: int = 2
    normal: bool = True

    @property
    def whole(self) -> bool:  # statistics of a batch need the whole of it
        return self.normal

    @property
    def groups(self) -> int:
        return self.size

    @property
    def terms(self) -> int:
        return self.size

    def validate(self, optimizer: OptimizerConfig) -> None:
        if self.size < 1:
            raise BadInput(f"size is {self.size}; it must be at least 1")

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> ToyBatches:
        return ToyBatches(data, self.size, cut)

    def parts(self) -> dict[str, Part]:
        return {
            "encoder": Part(decay=True, spread="largest"),
            "decoder": Part(rate=3.0),
            "prior": Part(rate=None),
            "rows": Part(rate=10.0, spread=0, touched="ids", untouched="stay"),
        }

    def load_initial(self, source, recorded_start=None) -> tuple[_StartOfToy, dict[str, Any]]:
        embed = np.random.default_rng(2).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
        prior = np.linspace(-1, 1, VOCABULARY, dtype=np.float32)
        return _StartOfToy(width=WIDTH), {"encoder": {"embed": embed}, "prior": prior}

    def shapes(self, recorded_start: _StartOfToy):
        def float32(*shape: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, jnp.float32)

        width = recorded_start.width
        params = {
            "encoder": {"embed": float32(VOCABULARY, width)},
            "decoder": {"kernel": float32(width, VOCABULARY)},
            "prior": float32(VOCABULARY),
            "rows": float32(TERMS, width),
        }
        return params, {"mean": float32(width)} if self.normal else {}

    def init_params(self, params, extra):
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape), extra)
        keys = dict(zip(params, jax.random.split(jax.random.key(3), len(params)), strict=True))
        return {
            name: jax.tree.map(
                lambda shape, key=keys[name]: 0.3 * jax.random.normal(key, shape.shape), part
            )
            for name, part in params.items()
        }, zeros

    def loss(self, recorded_start: _StartOfToy, mesh):
        def pass_loss(params, extra, batch, step_key):
            code_BGD = codes(params["encoder"], params["rows"], batch["tokens"], batch["ids"])
            if self.normal:
                mean_D = code_BGD.mean((0, 1))
                extra = {"mean": MOMENTUM * extra["mean"] + (1 - MOMENTUM) * mean_D}
                code_BGD -= mean_D[None, None]
            code_BGD = constrain(mesh, code_BGD, BLOCKS)
            logits = code_BGD @ params["decoder"]["kernel"]
            log_p_BGV = jax.nn.log_softmax(logits + params["prior"][None, None])
            surprise_BGT = -jnp.take_along_axis(log_p_BGV, batch["wanted"], axis=-1)
            return surprise_BGT.mean(), (extra, {"code": jnp.abs(code_BGD).mean()})

        return pass_loss

    def refresh(self, view, source, folder: Path) -> None:
        """The nearest other term of each, by all devices."""
        code_ND = np.asarray(local_copy(view.mesh, all_codes(view.params)))
        near = np.argmax(code_ND @ code_ND.T - 1e9 * np.eye(TERMS), axis=1)
        if is_first():
            np.save(folder / "neighbours.npy", near)

    def scorer(self, source, run: RunConfig):
        def score(view):
            code_ND = np.asarray(all_codes(view.params))
            # How far the codes are apart, up to a bend: better, then worse.
            return {"terms": {"found": -abs(float(code_ND.std()) - 0.562) * 100}}

        return score

    def trained(self, run) -> Trained:
        return Trained(encoder=run.params["encoder"]["embed"], card={"name": "toy"})

    def export(self, run, out: Path, **options: Any) -> dict[str, float]:
        out.mkdir()
        np.save(out / "embed.npy", run.params["encoder"]["embed"])
        return {"numpy": 0.0}


def codes(encoder, rows, tokens, ids) -> jax.Array:
    """The code of each term, before it is made normal."""
    return encoder["embed"][tokens].mean(-2) + rows[ids]


def all_codes(params) -> jax.Array:
    """float32 [TERMS, WIDTH]."""
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (TERMS, TOKENS))
    return codes(params["encoder"], params["rows"], tokens, np.arange(TERMS))


def toy_config(out: Path, *, steps: int = 6, start: str = "", system=None, **run: Any) -> Config:
    """A run of the toy."""
    return Config(
        recipe="toy",
        system=system or ToySystem(),
        optimizer=OptimizerConfig(
            steps=steps, learning_rate=1e-2, warmup_steps=0, schedule="constant", eps=1e-3
        ),
        start=start,
        run=RunConfig(
            **{"out": str(out), "save_steps": 100, "log_steps": 1, "eval_steps": 100} | run
        ),
    )


def toy_source(config: Config, data: Path, devices: int) -> ToyBatches:
    """The batches of a run, cut for so many devices."""
    mesh = make_mesh(config.system.groups // config.run.passes, jax.devices()[:devices])
    cut = step_cut(mesh, config.run.passes)
    return config.system.open(data, cut, rows=0, steps=config.optimizer.steps)
