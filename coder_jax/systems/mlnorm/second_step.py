"""MLNorm's second step: rows for all concepts, by a softmax over candidates; the encoder stays.

Wajsbürt, Sarfati and Tannier 2021, section 4.3.2. The vectors of all terms are made once. Concepts
that the first step has not learnt start at the mean of their terms (equation 6). For each term the
k concepts of its group with the nearest rows are found once (equation 7); a step tells the concept
of each of its terms from all candidates of its terms, and moves only these rows.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.sharding import Mesh

from coder_jax.devices.agree import barrier, is_first, say
from coder_jax.devices.mesh import EVERYWHERE, constrain, local_copy
from coder_jax.encoding.readers.embed import embed_tokens, place
from coder_jax.encoding.search import search
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.systems.encoders.chunks import hash_of, write_rows
from coder_jax.systems.encoders.contents import EncoderRun
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.mlnorm.candidates import candidate_scores, with_means
from coder_jax.systems.mlnorm.class_softmax import class_softmax_loss, padded_rows, unit_rows
from coder_jax.systems.mlnorm.class_system import ClassSystem
from coder_jax.systems.mlnorm.head import apply_head
from coder_jax.systems.mlnorm.objective import MLNormSystem
from coder_jax.training.config import OptimizerConfig, RunConfig
from coder_jax.training.proof import check_proof
from coder_jax.training.system import Batch, Loss, Params, Part, SavedRun, Scorer, Tick, Tree, View
from data_pipeline.batches.candidates import (
    AGAIN,
    CANDIDATES,
    ROW_GROUPS,
    ROWS,
    VECTORS,
    CandidateBatches,
)
from data_pipeline.batches.checks import check_least
from data_pipeline.batches.spec import BatchSource, StepCut
from data_pipeline.dataset.classes import classes_of, read_classes, write_classes
from data_pipeline.files.array_files import map_array
from data_pipeline.files.json_files import typed
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

TERMS_AT_ONCE = 16_384
ONCE = 1 << 40  # steps: more than any run has
# Arrays of a batch: sets that classes have, and the one of these that a class of a term must have.
AMONG = (("class_groups", "semantic_groups"), ("class_languages", "languages"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLNormClassesSystem(ClassSystem):
    """Rows of classes are trained, on vectors of an encoder and a head that another run trained."""

    name: ClassVar[str] = "mlnorm_classes"
    carries_extra: ClassVar[bool] = True

    model: tyro.conf.Suppress[ModelConfig] = ModelConfig(pooling="pieces")

    candidates: int = 100
    """k, the nearest concepts of its group from which the concept of a term is told."""
    means: Literal["new", "all"] = "new"
    """Which rows start at the mean of their concept's terms: those that the first step has not
    learnt (the paper), or all (the released code)."""
    within_language: bool = False
    """Whether a term is told only from concepts that have a term in its language. Else a term of a
    language in which few concepts have a name teaches all others that they are not meant in it."""
    refresh_steps: int = ONCE
    """Steps after which candidates are found anew; once, before the first step, in the paper."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        check_least(self, 1, "candidates", "refresh_steps")

    def told(self) -> dict[str, Any]:
        return {
            "softmax": f"{self.scale:g} x cosine, over {self.candidates} candidates of each term",
            "trained": "classes alone",
        }

    @property
    def needs_dataset(self) -> str:
        return "all of whose terms this recipe makes vectors of"

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        if rows:
            raise BadInput("--rows: the terms of this recipe come as vectors, not in packed rows")
        self.check_kind(data)
        sizes = {"width": self.width, "candidates": self.candidates}
        return CandidateBatches(data, self.batch, cut, **sizes, languages=self.within_language)

    # ---- Parameters ----

    def parts(self) -> dict[str, Part]:
        return {
            "encoder": Part(rate=None),
            "head": Part(rate=None),
            "statistics": Part(rate=None),
            "classes": Part(spread=0, touched="classes", untouched="stay"),
            "class_groups": Part(rate=None, spread=0),
        }

    def shapes(self, about: Mapping[str, Any]) -> tuple[Params, Tree]:
        params, statistics = super().shapes(about)
        return {**params, "statistics": statistics}, {}

    def start(
        self, source: BatchSource, noted: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], Params]:
        raise BadInput(
            "this recipe trains classes on the vectors of a run of the recipe mlnorm; give its "
            "folder as --from"
        )

    def carry(self, run: SavedRun, source: BatchSource) -> tuple[dict[str, Any], Params]:
        identity: Any = run.identity
        system = identity["config"]["system"]
        if system["name"] != MLNormSystem.name:
            raise BadInput(
                f"--from: found a run of the system {system['name']!r}; expected one of "
                f"{MLNormSystem.name!r}, the first of the two steps"
            )
        identity = typed(identity, EncoderRun, "run.json of the run to start from")
        for name in ("width", "scale"):
            if system[name] != getattr(self, name):
                raise BadInput(
                    f"--from: the run has {name} {system[name]}, this run has "
                    f"{getattr(self, name)}; give --{name} {system[name]}"
                )
        ours, theirs = source.manifest, identity["dataset"]
        for what, mine, other in (
            ("tokenizer", ours["tokenizer"]["hash"][:12], identity["tokenizer"]["hash"][:12]),
            ("cleaning", ours["cleaning"], theirs["cleaning"]),
            ("name of the terminology", ours["name"], theirs["name"]),
            ("release", ours["release"], theirs["release"]),
        ):
            if mine != other:
                raise BadInput(
                    f"--from: the run was trained on a dataset whose {what} is {other}, that of "
                    f"{source.folder} is {mine}; expected the same: build one with the other's"
                )
        check_proof(lambda terms: self.answers(run, terms), run, "--from: the run")
        learnt = np.linalg.norm(np.asarray(run.params["classes"]), axis=1)
        about = self.about(identity["start"]["encoder"], source.manifest)
        about["row_length"] = float(learnt[learnt > 0].mean())
        carried = {name: run.params[name] for name in ("encoder", "head")}
        return about, {**carried, "statistics": run.extra, "classes": self.learnt(run, source)}

    def learnt(self, run: SavedRun, source: BatchSource) -> np.ndarray:
        """float32 [C, D]: the rows of the other run by this run's concepts; 0 where it has none."""
        there = read_classes(run.folder).concepts
        here = classes_of(source.folder).concepts
        number = {concept: row for row, concept in enumerate(there)}
        rows = np.array([number.get(concept, -1) for concept in here])
        classes = np.zeros((padded_rows(len(here)), self.width), np.float32)
        if self.means == "new":
            known = np.flatnonzero(rows >= 0)
            classes[known] = np.asarray(run.params["classes"])[rows[known]]
            say(f"{len(known):,} of {len(here):,} classes start as the other run has learnt them")
        return classes

    def prepare(
        self, source: BatchSource, about: Mapping[str, Any], initial: Params, folder: Path
    ) -> Params:
        assert isinstance(source, CandidateBatches)
        listed = classes_of(source.folder)
        encoder, head = initial["encoder"], {**initial["head"], **initial["statistics"]}
        self.write_vectors(source, about, encoder, head, folder / VECTORS)
        if is_first():
            write_classes(folder, listed)
            with written_whole(folder / ROWS) as path, path.open("wb") as file:
                np.save(file, source.rows)
        barrier("what candidates are found for")
        classes = np.array(initial["classes"])
        classes[: len(listed.concepts)] = with_means(
            classes[: len(listed.concepts)],
            map_array(folder / VECTORS, AGAIN),
            source.dataset.term_start,
            length=about["row_length"],
        )
        groups = np.zeros(len(classes), np.uint16)
        groups[: len(listed.concepts)] = listed.groups
        return {"class_groups": groups, "classes": classes}

    def write_vectors(
        self,
        source: CandidateBatches,
        about: Mapping[str, Any],
        encoder: Any,
        head: dict[str, np.ndarray],
        path: Path,
    ) -> None:
        """Write the vector of each term, without dropout and by the running statistics."""
        graph, _ = split_encoder(self.structure(about))
        placed = place(merge_encoder(graph, encoder))
        data = source.dataset
        to_class = jax.jit(apply_head)

        def make(first: int, last: int) -> np.ndarray:
            start = data.token_start[first : last + 1]
            tokens = np.asarray(data.tokens[start[0] : start[-1]], np.int32)
            pooled = embed_tokens(
                placed, tokens, start - start[0], pooling=self.model.pooling, unit=False
            )
            return np.asarray(to_class(head, head, jnp.asarray(pooled)))

        write_rows(
            path,
            int(data.term_start[-1]),
            make,
            chunk=TERMS_AT_ONCE,
            about=hash_of(source.manifest, encoder, head),
            what="vectors of all terms",
        )

    # ---- Candidates ----

    def refresh(self, view: View, source: BatchSource, folder: Path) -> None:
        """The k concepts of its group that are nearest to each term; float32, exact."""
        table, groups = (
            np.asarray(local_copy(view.mesh, view.params[name]))
            for name in ("classes", "class_groups")
        )
        run = folder.parent.parent
        vectors, rows = map_array(run / VECTORS, AGAIN), map_array(run / ROWS, AGAIN)
        unit = np.asarray(unit_rows(jnp.asarray(table)))
        of_group: dict[int, np.ndarray] = {}

        def make(first: int, last: int) -> np.ndarray:
            terms, numbers = np.divmod(rows[first:last], ROW_GROUPS)
            found = np.full((last - first, self.candidates), -1, np.int32)
            for number in np.unique(numbers).tolist():
                if number not in of_group:
                    of_group[number] = np.flatnonzero(groups >> number & 1)
                concepts = of_group[number]
                here = min(self.candidates, concepts.size)
                mine = np.flatnonzero(numbers == number)
                _, nearest = search(vectors[terms[mine]], unit[concepts], here)
                found[mine, :here] = concepts[nearest]
            return found

        write_rows(
            folder / CANDIDATES,
            len(rows),
            make,
            chunk=TERMS_AT_ONCE,
            about=hashlib.sha256(np.ascontiguousarray(table).data).hexdigest(),
            what="candidates of all terms",
        )

    # ---- The loss ----

    def loss(self, about: Mapping[str, Any], mesh: Mesh, *, dropout: bool = True) -> Loss:
        """Cross-entropy over the union of the concepts and candidates of the step's terms.

        Of each term those that are of its semantic group (and have a term in its language, if
        asked); the candidates of one term are negatives of all others.
        """

        def pass_loss(params: Params, extra: Tree, batch: Batch, tick: Tick) -> Any:
            whole = {
                name: constrain(mesh, array.reshape(-1, *array.shape[3:]), EVERYWHERE)
                for name, array in batch.items()
            }
            scores = candidate_scores(
                whole["vectors"],
                params["classes"],
                whole["classes"],
                *((whole[sets], whole[own]) for sets, own in AMONG if own in whole),
                scale=self.scale,
            )
            loss, metrics = class_softmax_loss(scores)
            return loss, (extra, metrics)

        return pass_loss

    # ---- Scores ----

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1 and others of the held-out terms, by the classes."""
        from coder_jax.systems.mlnorm.prediction.heldout import HeldOutClasses

        heldout = HeldOutClasses(self, source)
        return lambda view: {"classes": heldout.scores(view)}
