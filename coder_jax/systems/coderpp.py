"""CODER++: CODER on groups of nearest neighbours, which are found again during training.

Zeng, Yuan and Yu, Automatic Biomedical Term Clustering by Learning Fine-grained Term
Representations, BioNLP 2022.

A step: `NeighbourSpec` says which terms are in a group, `CoderLosses` (`group_losses.py`) has the
loss of a group, and `training/step.py` takes the step. Every `refresh_steps` steps, and before the
first one, `CoderPlusPlusSystem.refresh` encodes all terms and writes the nearest neighbours of
each, from which the groups after it are drawn.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np

from coder_jax.devices.hosts import barrier, is_first
from coder_jax.devices.mesh import local_copy
from coder_jax.encoding.embed import Placed, embed_tokens, place
from coder_jax.encoding.search import Products, nearest_others
from coder_jax.encoding.vector_files import RowsOfFile, unit
from coder_jax.systems.coder import small_synonyms
from coder_jax.systems.encoder_system import (
    EncoderSystem,
    ModelConfig,
    RunWithEncoder,
    is_made,
    provenance_of,
    remove_rows,
    write_rows,
)
from coder_jax.systems.group_losses import CoderLosses, GroupRun
from coder_jax.training.system import ONCE, Config, OptimizerConfig, View
from data_pipeline.batches.draws import NeighbourDraw, SharedNames
from data_pipeline.batches.spec import NEIGHBOURS, BatchSource, NeighbourSpec, check_least
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.process import BadInput


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoderPlusPlusSystem(CoderLosses, EncoderSystem):
    """The losses of CODER; of triplets that show neighbours the one on terms alone."""

    name: ClassVar[str] = "coderpp"
    title: ClassVar[str] = "CODER++"
    paper: ClassVar[str] = "Zeng, Yuan and Yu 2022"
    content: ClassVar[type[RunWithEncoder]] = GroupRun

    batch: NeighbourSpec = dataclasses.field(default_factory=NeighbourSpec)
    mu: float = 0.0
    """Weight of the term-relation-term loss of the triplets that are drawn; CODER++ has none."""
    refresh_steps: int = 31_250
    """Steps after which neighbours are found anew; 0: once, before the first step."""
    search: Products = "exact"
    """Arithmetic by which neighbours are found: float32 (exact); or bfloat16, for accelerators,
    whose candidates are ranked again in float32: for names of the HPO 99.99 % are the same."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        self.check_losses()
        if self.batch.mined_share:
            check_least(self, 0, "refresh_steps")
        if self.mu and self.batch.mined_triplets == self.batch.triplets:
            raise BadInput(
                f"--mu is {self.mu} and --mined-share is {self.batch.mined_share}: groups of "
                "neighbours alone have no relations; give --mu 0 or a smaller --mined-share"
            )

    def hyperparameters(self) -> dict[str, Any]:
        values = super().hyperparameters()
        if self.batch.mined_share:
            every = f"every {self.refresh_steps:,} steps"
            values["neighbours found"] = "once" if self.refresh_steps in (0, ONCE) else every
        return values

    def resolved_for(self, source: BatchSource) -> Self:
        every = (self.refresh_steps or ONCE) if self.batch.mined_share else 0
        return dataclasses.replace(self, refresh_steps=every)

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """Finds the nearest neighbours of all anchors with the current encoder."""
        draw: Any = source.draw  # type: ignore[attr-defined]  # of a `BatchMaker`
        encoder = local_copy(view.mesh, view.params["encoder"])
        _write_neighbours(
            folder,
            draw,
            place(self.encoder_with(encoder, view.recorded_start)),
            pooling=self.model.pooling,
            products=self.search,
            provenance=provenance_of(source.manifest, encoder),
        )


# -------------------------------------------------------------------------------------------------
# The index of a refresh: all terms are encoded, and each anchor's nearest terms are found.
#
# FOLDER/neighbours.npy   int32 [A, k], of the anchors of the draw (`NeighbourDraw`)
#
# While it is made FOLDER also has vectors.npy (float32 [terms, D]; and concepts.npy [concepts, D]),
# which later steps do not need. Each is made in chunks that are files, by all hosts: after a kill
# it goes on where it was, to the bit.

_TERMS_AT_ONCE = 16_384
# All keys are sent to the devices once for this many queries; on a CPU they are already there.
_QUERIES_CPU, _QUERIES_ACCELERATOR = 1 << 16, 1 << 19
SPARE = 8  # candidates more than are wanted, in place of those that are left out
_VECTORS, _CONCEPTS = "vectors.npy", "concepts.npy"
_DELETE = "delete it and give the same command again, which makes it anew"


def _write_neighbours(
    folder: Path,
    draw: NeighbourDraw,
    placed: Placed,
    *,
    pooling: str,
    products: Products,
    provenance: str,
) -> None:
    """Write the index of a draw; all hosts call it. An index with the same provenance is reused.

    Terms of an anchor's own concept may be among its neighbours: their label makes them positives.
    What belongs to a concept that shares a name with the anchor's is left out, as it could not be
    told from a positive.

    Args:
        folder: that all hosts share.
        draw: whose neighbours are wanted.
        placed: the encoder.
        pooling: how it makes vectors.
        products: of the search.
        provenance: a hash of the encoder and the data.

    Raises:
        Stopped: on all hosts, if one was asked to stop.
    """
    on_cpu = jax.default_backend() == "cpu"
    chunk = _QUERIES_CPU if on_cpu else _QUERIES_ACCELERATOR
    path, of_path = folder / NEIGHBOURS, f"neighbours by {products} of {provenance}"
    if not is_made(path, of_path, chunk):
        data = draw.dataset
        vectors = _write_vectors(
            folder / _VECTORS, data, placed, pooling=pooling, provenance=provenance
        )
        owner = np.arange(data.term_start.size - 1)  # the concept of each vector
        if draw.spec.neighbours_of == "concepts":
            vectors = _write_means(folder / _CONCEPTS, data, vectors, provenance=provenance)
        else:
            owner = np.repeat(owner, np.diff(data.term_start))
        share_a_name, wanted = SharedNames(data), draw.spec.neighbours

        def make(first: int, last: int) -> np.ndarray:
            anchors = draw.anchors[first:last]
            _, found = nearest_others(vectors, wanted + SPARE, anchors, products)
            left_out = share_a_name(owner[anchors][:, None], owner[found])
            order = np.argsort(left_out, axis=1, kind="stable")[:, :wanted]
            kept = np.take_along_axis(np.where(left_out, -1, found), order, axis=1)
            nearest = np.full((last - first, wanted), -1, np.int32)
            nearest[:, : kept.shape[1]] = kept
            return nearest

        rows = len(draw.anchors)
        write_rows(path, rows, make, chunk=chunk, provenance=of_path, what="neighbours")
    if is_first():
        remove_rows(folder / _VECTORS, folder / _CONCEPTS)
    barrier("vectors are gone")


def _write_vectors(
    path: Path, data: TripletDataset, placed: Placed, *, pooling: str, provenance: str
) -> RowsOfFile:
    """Write the vector of each term, of unit length, without dropout.

    Raises:
        BadInput: if the file is there and damaged.
    """

    def make(first: int, last: int) -> np.ndarray:
        start = data.token_start[first : last + 1]
        tokens = np.asarray(data.tokens[start[0] : start[-1]], np.int32)
        return embed_tokens(placed, tokens, start - start[0], pooling=pooling)

    write_rows(
        path,
        int(data.term_start[-1]),
        make,
        chunk=_TERMS_AT_ONCE,
        provenance=f"vectors of {provenance}",
        what="vectors of all terms",
    )
    return RowsOfFile(path, _DELETE)


def _write_means(
    path: Path, data: TripletDataset, vectors: RowsOfFile, *, provenance: str
) -> RowsOfFile:
    """Write the normalized mean vector of each concept's terms, as `_write_vectors` does."""

    def make(first: int, last: int) -> np.ndarray:
        start = data.term_start[first : last + 1]
        of_terms = np.asarray(vectors[start[0] : start[-1]])
        return unit(np.add.reduceat(of_terms, start[:-1] - start[0], axis=0))

    write_rows(
        path,
        data.term_start.size - 1,
        make,
        chunk=_TERMS_AT_ONCE,
        provenance=f"concepts of {provenance}",
        what="vectors of all concepts",
    )
    return RowsOfFile(path, _DELETE)


# -------------------------------------------------------------------------------------------------
# Recipes of CODER++ (Zeng, Yuan and Yu 2022): CODER, trained on with its nearest wrong answers.
#
# Every so many steps all terms are encoded, and of each the nearest are found; a step learns from
# terms, what is nearest to them, and other names of their concepts. The paper's abstract says that
# much (hard positives and negatives that follow the encoder); the numbers stand in its code alone:
#
# | value | where it stands |
# |---|---|
# | a block: a term, the 30 terms nearest to it, 30 names of its concept | released code |
# | blocks of any terms, those of concepts with one name too | released code |
# | 4 blocks a group; 8 GPUs, accumulation 8: 64 groups an update | released command |
# | MS-loss with mining as CODER's, no relations | released code |
# | start: CODER_ENG; rate 4e-5, warm-up 10,000 updates, linear decay | released command |
# | 2,500,000 micro-batches, so 312,500 updates; neighbours every 250,000, so 31,250 | the same |
# | AdamW's decay 0.01, its eps 1e-8, gradients clipped to norm 1; at most 32 tokens | released code
#     |
# | vector of a term: the last hidden state of [CLS] | CODER's paper |
# | concepts that share a name with the anchor's are no neighbours of it | neither; ours |
#
# The released code counts the term itself among its 30, here they are others; its own defaults are
# 400,000 micro-batches, neighbours every 100,000, and a rate of 2e-5. It trains on the pooler's
# vectors, and finds neighbours by means over all 32 positions, padding too; here both are by one
# pooling. Where a concept has fewer than 31 other names these come again; the released code repeats
# the term itself. Each time that it has found neighbours it begins its optimizer anew. Its schedule
# counts micro-batches, but moves on once in an update, so an eighth as fast, and makes up for it at
# each such start: the rate falls in steps. Here it falls with the updates.


def coderpp() -> Config[CoderPlusPlusSystem]:
    """CODER++ of the released command: CODER_ENG trained on, 312,500 steps of 64 groups.

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG \\
            --tokenizer GanjinZero/UMLSBert_ENG --hold-out 2000 --keep-suppressed \\
            --out datasets/coderpp
        bash launch/train.sh --recipe coderpp --data datasets/coderpp --out runs/coderpp \\
            --search bfloat16

    15,872 terms a step. Not trained here. Computed: a day on one H100, at the 61,200 terms a second
    that CODER's step was measured to do there, and the time to find neighbours ten times
    (docs/results/search.md). `--init` takes your own run of `coder_eng`. On small machines take
    `coderpp_small`.
    """
    batch = NeighbourSpec(
        groups=64, triplets=62, repeats=2, names="distinct", mined_share=1.0, neighbours=30
    )
    system = CoderPlusPlusSystem(model=ModelConfig(init="GanjinZero/UMLSBert_ENG"), batch=batch)
    optimizer = OptimizerConfig(steps=312_500, learning_rate=4e-5, warmup_steps=10_000)
    return Config(recipe="coderpp", system=system, optimizer=optimizer)


def coderpp_small() -> Config[CoderPlusPlusSystem]:
    """`small_synonyms` with an eighth of each group near concepts, found before the first step.

        bash launch/train.sh --recipe coderpp_small --data DIR --out runs/coderpp_small

    Two blocks of a concept and the seven nearest to it, and 112 concepts at random, two names
    each that share few word pieces. Of concepts, not of terms, and with names of each, so that
    every term of a group has a positive: with few terms a step, neighbours that are there for one
    anchor alone would be wasted. The share is the better of two: with half of each group mined,
    six points fewer held-out synonyms of an open terminology are found, probably as some near
    concepts there are the same thing under another number (docs/results/systems.md).

    To find neighbours all terms are encoded, 784 a second on two CPU cores: of a terminology with
    half a million names eleven minutes, and one or two more for the neighbours of 53,000 of its
    303,000 concepts. `--refresh-steps 250` finds them anew every 250 steps: in a run of 1,000 steps
    that changed no score beyond its error (docs/results/systems.md).
    """
    base = small_synonyms()
    batch = NeighbourSpec(
        **dataclasses.asdict(base.system.batch),
        mined_share=0.125,
        neighbours=7,
        neighbours_of="concepts",
        positives="each",
    )
    system = CoderPlusPlusSystem(
        model=base.system.model, batch=batch, term=base.system.term, refresh_steps=0
    )
    return Config(recipe="coderpp_small", system=system, optimizer=base.optimizer, run=base.run)
