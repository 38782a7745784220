"""BNE: names, encoded from words and characters, are pulled to synonyms, concepts and contexts.

Phan, Sun and Tay, Robust representation learning of biomedical names, ACL 2019. From top to bottom:
the losses (section 3.2, equations 3 to 6), the types of run.json, the system, its recipes, and its
export for the Hub.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jax.sharding import Mesh
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from coder_jax.devices.hosts import is_first, log
from coder_jax.devices.mesh import constrain, most_shapes
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.readers import NameReader
from coder_jax.evaluation.benchmarks import kind_of, read_benchmark
from coder_jax.evaluation.normalization import (
    HeldOut,
    NormalizationBenchmark,
    evaluate_normalization,
)
from coder_jax.export.folder import (
    NORMALIZE,
    PROBE_TERMS,
    check_out,
    largest_difference,
    load_module,
    require_torch,
    sentence_transformers_vectors,
    whole_export,
    with_proof,
    write_modules,
)
from coder_jax.export.model_card import check_card, model_card
from coder_jax.models.hf_files import OF_NAMES, EncoderSettings, write_settings
from coder_jax.models.names import (
    Cell,
    NameEncoderConfig,
    NameFiles,
    name_encoder_shapes,
    name_vectors,
    new_name_encoder,
    write_name_encoder,
)
from coder_jax.systems.encoder_system import (
    VECTORS,
    license_row,
    run_summary,
    single,
    token_ids,
    unit_length,
)
from coder_jax.training.run_folder import DataOfRun, Run, StartOfRun
from coder_jax.training.system import (
    Batch,
    Config,
    Loss,
    OptimizerConfig,
    Params,
    Part,
    Proof,
    RunConfig,
    SavedRun,
    Scorer,
    StepKey,
    System,
    Trained,
    Tree,
    View,
    check_proof,
)
from data_pipeline.batches.bne import (
    PACKED,
    Alphabet,
    NameBatches,
    NameSpec,
    RowSize,
    WordTable,
    needs_of,
    numbered,
    pack_names,
)
from data_pipeline.batches.spec import BatchSource, StepCut, check_least, check_rate
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.dataset.store import Manifest
from data_pipeline.files.identity import LONGEST, Hash, Width
from data_pipeline.files.whole import whole_folder
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.skip_gram.store import open_vectors
from data_pipeline.sources.text import words_of
from data_pipeline.terminology.cleaning import clean, with_cleaning

# -------------------------------------------------------------------------------------------------
# The logistic losses of BNE, on raw dot products of positive and negative pairs.
#
# Phan, Sun, Tay 2019, section 3.2: :math:`\ell(x) = \log(1 + e^{-x})`, equations 3 to 5 as
# rewritten under "Distance Function and Optimization", with one negative of the mini-batch for each
# name. The paper prints sums; here each loss is a mean.

Negatives = Literal["random", "hardest"]
_LOSSES = ("synonym", "concept", "context")


def _choose_negatives(
    scores_NM: jax.Array, allowed_NM: jax.Array, negatives: Negatives, key: jax.Array
) -> jax.Array:
    """int32 [N]: for each name one of its allowed negatives; 0 if it has none.

    Args:
        scores_NM: float32, dot products.
        allowed_NM: bool.
        negatives: random, each with the same chance; or hardest, that of the largest dot product
            (as in Wieting et al. 2015), the first of equal ones.
        key: of the random choice.
    """
    order_NM = jax.lax.stop_gradient(scores_NM)
    if negatives == "random":
        order_NM = jax.random.uniform(key, scores_NM.shape)
    return jnp.argmax(jnp.where(allowed_NM, order_NM, -jnp.inf), axis=1)


def _logistic_pair_loss(
    positive_N: jax.Array, negative_N: jax.Array, has_negative_N: jax.Array, counts_N: jax.Array
) -> tuple[jax.Array, jax.Array]:
    r"""The mean over names of :math:`\ell(x^+) + \ell(-x^-)`.

    Args:
        positive_N, negative_N: float32, x of the right pair and of the other one.
        has_negative_N: bool; a name without one has the first term alone.
        counts_N: bool, the names that take part.

    Returns:
        (loss, share of the names with a negative whose right pair is the nearer one); 0 where none
        takes part.
    """
    both = counts_N & has_negative_N
    right_N = jax.nn.softplus(-positive_N)
    wrong_N = jax.nn.softplus(negative_N)
    loss_N = jnp.where(counts_N, right_N, 0.0) + jnp.where(both, wrong_N, 0.0)
    nearer = (both & (positive_N > negative_N)).sum() / jnp.maximum(both.sum(), 1)
    return loss_N.sum() / jnp.maximum(counts_N.sum(), 1), nearer


def _pair_loss(
    vectors_ND: jax.Array,
    positives_ND: jax.Array,
    others_MD: jax.Array,
    allowed_NM: jax.Array,
    counts_N: jax.Array,
    *,
    negatives: Negatives,
    key: jax.Array,
    scale: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """`_logistic_pair_loss` of names with their right vectors and with chosen negatives.

    Args:
        vectors_ND: float32, f(s).
        positives_ND: f(s'), g(c) or q(s), for each name.
        others_MD: from which its negative is chosen.
        allowed_NM: bool, which of them may be.
        counts_N: bool, the names that take part.
        negatives, key: of `_choose_negatives`.
        scale: float32 [2]: a factor of the dot products and a number added to them (the released
            code's of the synonym loss); None: as they are.
    """

    def score(one_ND: jax.Array, other_ND: jax.Array) -> jax.Array:
        dot_N = (one_ND * other_ND).sum(axis=-1)
        return dot_N if scale is None else scale[0] * dot_N + scale[1]

    highest = jax.lax.Precision.HIGHEST
    scores_NM = jnp.matmul(vectors_ND, others_MD.T, precision=highest)
    chosen_N = _choose_negatives(scores_NM, allowed_NM, negatives, key)
    return _logistic_pair_loss(
        score(vectors_ND, positives_ND),
        score(vectors_ND, others_MD[chosen_N]),
        allowed_NM.any(axis=1),
        counts_N,
    )


def _bne_loss(
    vector_BGND: jax.Array,
    batch: Mapping[str, jax.Array],
    *,
    weights: Mapping[str, float],
    negatives: Negatives,
    key: jax.Array,
    scale: jax.Array | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The weighted sum of the three losses over all names of a step (equation 6).

    The negative of a name is of another concept of the step, and is none of the same words.

    Args:
        vector_BGND: float32, f of the names of blocks and groups, those of a pair N / 2 apart.
        batch: of `NameBatches`: what each name's concept, wording and targets are.
        weights: of each of LOSSES; a loss of weight 0 is left out.
        negatives, scale: of `_pair_loss`; `scale` is of the loss of synonyms alone.
        key: of random negatives, which are others for each loss.

    Returns:
        (loss, metrics): each loss, and the share of names nearer to their own than to the other.
    """

    def flat(array: jax.Array) -> jax.Array:
        return array.reshape(-1, array.shape[-1])

    vectors = flat(vector_BGND)
    synonyms = flat(jnp.roll(vector_BGND, vector_BGND.shape[2] // 2, axis=2))
    concept, wording = (batch[name].reshape(-1) for name in ("concepts", "wordings"))
    other_NN = (concept[:, None] != concept[None]) & (wording[:, None] != wording[None])
    # For each loss: each name's right vector, the pool of negatives, and which names take part.
    parts = {"synonym": (synonyms, vectors, jnp.ones(len(vectors), bool))}
    for name, target in (("concept", "concept"), ("context", "name")):
        constants = flat(batch[f"{target}_targets"])
        parts[name] = constants, constants, batch[f"{target}_known"].reshape(-1) > 0
    total = jnp.float32(0.0)
    metrics: dict[str, jax.Array] = {}
    for number, name in enumerate(_LOSSES):
        if not weights[name]:
            continue
        positives, others, counts = parts[name]
        loss, nearer = _pair_loss(
            vectors,
            positives,
            others,
            other_NN & counts[None],
            counts,
            negatives=negatives,
            key=jax.random.fold_in(key, number),
            scale=scale if name == "synonym" else None,
        )
        total += weights[name] * loss
        metrics |= {f"loss_{name}": loss, f"nearer_{name}": nearer}
    return total, metrics


# -------------------------------------------------------------------------------------------------
# The content of a BNE run's run.json, as types for `identity.typed`.


@dataclasses.dataclass(frozen=True, kw_only=True)
class _VectorsOfRun:
    """The word vectors of a run, in run.json."""

    variant: Literal["words", "names", "names_concepts"]
    width: Width
    word_rules: Hash
    content_hash: Hash


class _StartOfNames(StartOfRun, frozen=True, kw_only=True):
    """The start of a run, in run.json."""

    alphabet: str
    width: Width


@dataclasses.dataclass(frozen=True, kw_only=True)
class _NameRun(Run):
    """run.json of a run of BNE."""

    dataset: DataOfRun
    vectors: _VectorsOfRun
    start: _StartOfNames


@dataclasses.dataclass(frozen=True, kw_only=True)
class NameModel:
    """The encoder that is trained."""

    init: Annotated[str, Flag(metavar="FOLDER")] = ""
    """Vectors of words, which stay as they are: a folder of `python -m data_pipeline.skip_gram`."""
    characters: int = 50
    """Width of a character's vector (section 4)."""
    hidden: int = 200
    """Width of both BiLSTMs (section 4) in each direction (the released checkpoints)."""
    cell: Cell = "plain"
    """Kind of LSTM: plain (the paper says BiLSTM and no more), or with coupled input and forget
    gates and a learned start (the released code)."""
    projection: Literal["linear", "tanh"] = "linear"
    """What follows the max over words: W h + b (the paper), or tanh of it (the released code)."""
    dropout: float = 0.5
    """Dropout rate of the representations of words (section 4 has the rate, the released code the
    place)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BneSystem(System):
    """An encoder of names by characters and fixed vectors of words, with three losses."""

    name: ClassVar[str] = "bne"
    title: ClassVar[str] = "BNE"
    paper: ClassVar[str] = "Phan, Sun and Tay 2019"
    content: ClassVar[type[Run]] = _NameRun
    whole: ClassVar[bool] = True  # negatives are of the whole mini-batch

    batch: NameSpec = dataclasses.field(default_factory=NameSpec)
    model: NameModel = dataclasses.field(default_factory=NameModel)

    synonym_weight: float = 1.0
    """Weight of the loss of synonyms (equation 6: 1); 0: without it."""
    concept_weight: float = 1.0
    """Weight of the loss of concepts (equation 6: 1); 0: without it."""
    context_weight: float = 1.0
    """Weight of the loss of contexts (equation 6: 1); 0: without it."""
    negatives: Negatives = "hardest"
    """Which other name of the batch each loss pushes a name away from: any, or that of the largest
    dot product ("similar to Wieting et al. 2015", section 3.2)."""
    learned_scale: bool = False
    """Learn a factor and an addend of the dot products of synonyms (the released code)."""
    development: Annotated[tuple[str, ...], Flag(metavar="NAME=PATH")] = ()
    """Sets of mentions, as `evaluate` takes them, by which the checkpoint is chosen: the one of the
    best acc@1, a mean over sets and types of mention (section 4), every --eval-steps. Without it:
    the last checkpoint."""
    development_dictionary: Annotated[str, Flag(metavar="PATH")] = ""
    """Terms to search for --development, such as MEDIC; all are encoded each time."""

    @property
    def best(self) -> str | None:
        return "development/acc@1" if self.development else None

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each of LOSSES."""
        return {name: getattr(self, f"{name}_weight") for name in _LOSSES}

    # ---- What a step is ----

    @property
    def groups(self) -> int:
        return self.batch.groups

    @property
    def terms(self) -> int:
        return self.batch.terms

    def validate(self, optimizer: OptimizerConfig) -> None:
        self.batch.validate()
        check_least(self.model, 1, "characters", "hidden")
        check_rate(self.model, "dropout")
        if min(self.weights.values()) < 0 or not any(self.weights.values()):
            raise BadInput(
                f"the weights of the losses are {self.weights}; none may be below 0, and one must "
                "be above"
            )
        names = [word.partition("=")[0] for word in self.development]
        for word in self.development:
            name, _, path = word.partition("=")
            if not (name and path) or names.count(name) > 1:
                raise BadInput(
                    f"--development: found {' '.join(self.development)}; expected NAME=PATH, such "
                    "as ncbi=NCBIdevelopset_corpus.txt, and each NAME once"
                )
        if self.development_dictionary and not names:
            raise BadInput("--development-dictionary: found no --development; expected it, too")

    def resolved_for(self, source: BatchSource) -> Self:
        assert isinstance(source, NameBatches)
        batch = dataclasses.replace(self.batch, targets=source.targets_are)
        return dataclasses.replace(self, batch=batch)

    def open(self, data: Path, cut: StepCut, *, rows: int, steps: int) -> BatchSource:
        if not self.model.init:
            raise BadInput(
                "found no --init; expected the folder of vectors of words that "
                "`python -m data_pipeline.skip_gram` makes from text"
            )
        source = NameBatches(
            data,
            self.model.init,
            self.batch,
            cut,
            rows=rows,
            run_steps=steps,
            shapes=most_shapes(),
        )
        counts = ", ".join(f"{count:,} {what}" for what, count in source.targets.counts.items())
        log(f"{counts}; an epoch has {source.steps_per_epoch:,} steps")
        return source

    # ---- Parameters ----

    def parts(self) -> dict[str, Part]:
        return {"encoder": Part(), "scale": Part()}

    def load_initial(
        self, source: BatchSource, recorded_start: Any = None
    ) -> tuple[_StartOfNames, Params]:
        assert isinstance(source, NameBatches)
        width = source.grams.manifest.width
        return _StartOfNames(alphabet=source.alphabet.characters, width=width), {}

    def init_from_run(self, run: SavedRun, source: BatchSource) -> tuple[_StartOfNames, Params]:
        """The other run's parameters and alphabet; its vectors must have the same width."""
        check_proof(lambda terms: self.saved_outputs(run, terms), run, "--from: the run")
        recorded_start, params = super().init_from_run(run, source)
        assert isinstance(recorded_start, _StartOfNames)
        width = self.load_initial(source)[0].width
        if recorded_start.width != width:
            raise BadInput(
                f"--init {self.model.init}: found vectors of width {width}, but the run to start "
                f"from has {recorded_start.width}; expected vectors of that width: make some "
                f"with `python -m data_pipeline.skip_gram --size {recorded_start.width}`"
            )
        return recorded_start, params

    def config(self, recorded_start: Any) -> NameEncoderConfig:
        """The shape of the encoder."""
        return NameEncoderConfig(
            alphabet=Alphabet(recorded_start.alphabet).size,
            width=recorded_start.width,
            character_width=self.model.characters,
            hidden=self.model.hidden,
            cell=self.model.cell,
            projection=self.model.projection,
        )

    def shapes(self, recorded_start: Any) -> tuple[Params, Tree]:
        params: Params = {"encoder": name_encoder_shapes(self.config(recorded_start))}
        if self.learned_scale:
            params["scale"] = jax.ShapeDtypeStruct((2,), jnp.float32)
        return params, {}

    def init_params(self, params: Params, extra: Tree) -> tuple[Params, Tree]:
        new: Params = {}
        if "encoder" in params:
            shapes = params["encoder"]
            config = NameEncoderConfig(
                alphabet=shapes["characters"].shape[0],
                width=shapes["marks"].shape[1],
                character_width=self.model.characters,
                hidden=self.model.hidden,
                cell=self.model.cell,
            )
            new["encoder"] = new_name_encoder(config, jax.random.key(self.batch.seed))
        if "scale" in params:
            new["scale"] = jnp.array([1.0, 0.0])
        return new, {}

    def precompute(
        self, source: BatchSource, recorded_start: Any, initial: Params, folder: Path
    ) -> Params:
        """Copies the word vectors into the run, as its encoder needs them."""
        assert isinstance(source, NameBatches)
        if is_first():
            with whole_folder(folder / _COPIED_VECTORS) as new:
                shutil.copytree(source.grams.folder, new, dirs_exist_ok=True)
        return {}

    # ---- The loss ----

    def loss(self, recorded_start: Any, mesh: Mesh) -> Loss:
        """L_syn + L_def + L_ctx (equation 6), each the mean over the names that have its target.

        The paper prints sums (equations 3 to 5).
        """
        config = self.config(recorded_start)

        def pass_loss(params: Params, extra: Tree, batch: Batch, step_key: StepKey) -> Any:
            vectors = self.vectors(config, params["encoder"], batch, step_key, mesh)
            total, metrics = _bne_loss(
                vectors,
                batch,
                weights=self.weights,
                negatives=self.negatives,
                key=jax.random.fold_in(jax.random.key(self.batch.seed), step_key.step),
                scale=params.get("scale"),
            )
            return total, (extra, metrics)

        return pass_loss

    def vectors(
        self,
        config: NameEncoderConfig,
        params: Tree,
        batch: Batch,
        step_key: StepKey,
        mesh: Mesh,
    ) -> jax.Array:
        """float32 [B, G, N, D]: f of the names of a pass."""
        blocks, groups, names = batch["concepts"].shape
        ids, rate = token_ids(batch, step_key, self.batch.seed), self.model.dropout

        def encode(block: Tree, ids_RL: jax.Array) -> jax.Array:
            number = groups * names
            return name_vectors(config, params, block, number, dropout_ids_RL=ids_RL, dropout=rate)

        encode_blocks = jax.vmap(encode) if blocks > 1 else single(encode)
        made = encode_blocks({name: batch[name] for name in PACKED}, ids)
        return constrain(mesh, made.reshape(blocks, groups, names, -1), VECTORS)

    def scorer(self, source: BatchSource, run: RunConfig) -> Scorer | None:
        """acc@1 of the development sets; without any, scores of the dataset's held-out terms."""
        assert isinstance(source, NameBatches)
        words, settings = source.grams.words, _settings_of(source.manifest)
        if self.development:
            name, scores_of = "development", _development_scores(self)
        else:
            heldout = HeldOut(source.folder, source.manifest, OF_NAMES, run.eval_terms)
            name, scores_of = "heldout", heldout.scores_of

        def score(view: View) -> dict[str, dict[str, float]]:
            alphabet, config = (
                Alphabet(view.recorded_start.alphabet),
                self.config(view.recorded_start),
            )
            reader = NameReader(config, view.params["encoder"], alphabet, words)
            if self.development and not is_first():
                return {}
            return {name: scores_of(TermEncoder(reader, None, settings))}

        return score

    # ---- What proves what leaves the run ----

    def proof(self, source: BatchSource, recorded_start: Any) -> Proof:
        assert isinstance(source, NameBatches)
        terms = source.some_terms()
        cleaned = clean(pl.Series(terms, dtype=pl.String), source.manifest.cleaning).to_list()
        words, tokens, start = numbered([words_of(name) for name in cleaned])
        table = WordTable.of(words, Alphabet(recorded_start.alphabet), source.grams.words)
        needs = needs_of(table, tokens, start, length := int(np.diff(start).max()))
        row = RowSize(length, *map(int, needs[1:]))
        block = pack_names(table, tokens, start, row, int(needs[0]))
        config = self.config(recorded_start)

        def outputs(params: Params, extra: Tree) -> dict[str, jax.Array]:
            return {"vectors": _unit_vectors(params["encoder"], block, config, len(terms))}

        return Proof(terms, outputs)

    def saved_outputs(self, run: SavedRun, terms: list[str]) -> dict[str, Any]:
        return {"vectors": _trained_names(self, run).encode(terms)}

    # ---- When it is trained ----

    def hyperparameters(self) -> dict[str, Any]:
        """Hyperparameters that the model card tells."""
        names = [word.partition("=")[0] for word in self.development]
        return {
            "weights of the losses": ", ".join(f"{name} {w:g}" for name, w in self.weights.items()),
            "targets": self.batch.targets,
            "negatives": self.negatives,
            "cell": self.model.cell,
            **({"development sets": ", ".join(names)} if names else {}),
        }

    def trained(self, run: SavedRun) -> Trained:
        return Trained(encoder=_trained_names(self, run), card=_describe_names(self, run))

    def export(
        self,
        run: SavedRun,
        out: Path,
        *,
        card: Mapping[str, Any] | None = None,
        pytorch_bin: bool = False,
    ) -> dict[str, float]:
        require_torch()
        if pytorch_bin:
            raise BadInput(
                "--pytorch-bin is for BERTs; an encoder of names (BNE) has model.safetensors: "
                "leave the flag out"
            )
        description = {**_describe_names(self, run), **(card or {})}
        check_card(description)
        check_out(out)
        encoder = _trained_names(self, run)
        with whole_export(out) as new:
            _write_files(new, encoder, description)
            return _compare_names(new, encoder, run.notes.proof or None)


def _development_scores(system: BneSystem) -> Callable[[TermEncoder], dict[str, float]]:
    """What scores an encoder on the sets of --development: acc@1 of each set and type, their mean.

    Raises:
        BadInput: a set that cannot be read, or has no mentions to normalize.
    """
    path, read = system.development_dictionary, []
    dictionary = read_dictionary(path) if path else None
    for word in system.development:
        name, _, place = word.partition("=")
        own = kind_of(place).brings_dictionary(Path(place))
        one = read_benchmark(name, place, dictionary=None if own else dictionary)
        if not isinstance(one, NormalizationBenchmark):
            raise BadInput(
                f"--development {word}: found a benchmark of another kind; expected mentions with "
                "their concepts, such as NCBI disease"
            )
        read.append(one)
    folds = [
        dataclasses.replace(fold, name=f"{one.name} {fold.name}".strip())
        for one in read
        for fold in one.folds
    ]
    # As one benchmark, a dictionary that all share is encoded once.
    sets = dataclasses.replace(read[0], folds=folds)

    def scores_of(encoder: TermEncoder) -> dict[str, float]:
        found = evaluate_normalization(encoder.encode, sets, ks=(1,))
        named = {"": found, **found.folds}
        scores = {f"{name} acc@1".strip(): one.scores["acc@1"] for name, one in named.items()}
        return {name: round(score, 4) for name, score in scores.items()}

    return scores_of


@partial(jax.jit, static_argnames=("config", "names"))
def _unit_vectors(params: Tree, block: Tree, config: NameEncoderConfig, names: int) -> jax.Array:
    """float32 [N, D]: f of the names of a block, at length 1."""
    return unit_length(name_vectors(config, params, block, names))


# -------------------------------------------------------------------------------------------------
# Recipes of BNE (Phan, Sun and Tay 2019), and the released code's way.
#
# Each is a page of a lab book: the command, how long it takes where, what to expect, and for each
# value where it stands. What a recipe does not set is the default of `BneSystem`, `NameModel` and
# `NameSpec`:
#
# | value | where it stands |
# |---|---|
# | characters 50, both BiLSTMs 200, names 200 (as wide as the vectors of words) | paper, 4 |
# | last pooling of characters, max over words, W h + b | paper, 3.2 |
# | l(x) = log(1 + exp(-x)) on raw dot products; the three losses added up | paper, 3.2, equation 6
#     |
# | concepts and names as their own tokens, or as means of words: as the vectors have them | paper,
#     3.2, "Choices" |
# | one positive and one negative pair per name and loss, 64 pairs a step | paper, 4; that 64 are
#     pairs: our reading |
# | the negative is the hardest other name of the step | our reading of "sampled from a mini-batch,
#     similar to" Wieting 2015, who take that; any other: --negatives random |
# | each concept once an epoch, with two of its names | our reading; the paper does not say |
# | words around a name `<s>`, `</s>`, stop words and marks left out, 32 characters of a word,
#     dropout on the words' representations | released code alone |
# | Adam 1e-3, gradients clipped at 5.0, dropout 0.5 | paper, 4; that it is the global norm, and the
#     constant rate: released code |
# | steps | the paper stops by a dev score (--development), the code never |

_ADAM = OptimizerConfig(
    steps=5_000,
    learning_rate=1e-3,
    warmup_steps=0,
    schedule="constant",
    weight_decay=0.0,
    clip_norm=5.0,
)


def bne() -> Config[BneSystem]:
    """BNE: names from words and characters, by synonyms, concepts and contexts.

        python -m data_pipeline.skip_gram --text texts.jsonl.gz --variant words --out vectors/sgw
        python -m data_pipeline.build --source umls --semantic-groups DISO --languages ENG \\
            --tokenizer bert-base-uncased --cleaning none --hold-out-concepts 1000 \\
            --out data/diseases
        bash launch/train.sh --recipe bne --data data/diseases --init vectors/sgw --out runs/bne

    With vectors of `--variant words` it is BNE + SG_W of the paper, with `names_concepts` BNE +
    SG_S.C; the names of a dataset are read as strings, whatever its tokenizer. --cleaning none
    keeps text in brackets and hyphens, as the paper's names have them (4.1). In the paper, on 16
    thousand concepts and vectors of 29 million abstracts: NCBI disease .854 / .857 accuracy without
    training on it, UMNSRS similarity .606 / .637 (tables 3 and 4). Some ten epochs of 31 thousand
    concepts; minutes to an hour on two cores.
    """
    return _recipe("bne")


def bne_small() -> Config[BneSystem]:
    """`bne` for some million words of text: 1,500 steps of 128 pairs.

        python -m launch.names --recipes bne_small --epochs 20 --data data/diseases \\
            --text abstracts.jsonl.gz --benchmark ncbi=NCBItestset_corpus.txt \\
            --dictionary CTD_diseases.tsv --out runs/names

    Six epochs of 31 thousand concepts, 12 to 17 minutes on one CPU core. With vectors of 6.5
    million words, means of three seeds: 75.2 % of NCBI disease's and 76.8 % of BC5CDR's test
    mentions of diseases among 76,237 names, where means of the same vectors find 61.2 and 59.0 %,
    words in common 72.1 and 72.5 %. docs/results/bne.md has all.
    """
    config = _recipe("bne_small")
    batch = dataclasses.replace(config.system.batch, pairs=128)
    optimizer = dataclasses.replace(config.optimizer, steps=1_500)
    system = dataclasses.replace(config.system, batch=batch)
    return dataclasses.replace(config, system=system, optimizer=optimizer)


def bne_released() -> Config[BneSystem]:
    """BNE as the released code and checkpoints have it, where they differ from the paper.

    Coupled gates with a learned start, tanh of the projection, a learned scale of the synonyms' dot
    products: with 81 characters and 200 numbers a vector exactly 1,350,002 trained parameters. The
    code of its training was never released. The command is that of `bne`.
    """
    model = NameModel(cell="coupled", projection="tanh")
    return _recipe("bne_released", model=model, learned_scale=True)


def _recipe(name: str, **changes: Any) -> Config[BneSystem]:
    """A recipe with changes of the system."""
    run = RunConfig(log_steps=50, save_steps=1_000)
    return Config(recipe=name, system=BneSystem(**changes), optimizer=_ADAM, run=run)


# -------------------------------------------------------------------------------------------------
# The export of an encoder of names.
#
# Beside the files of `models.names`
#   cleaning.json     a tokenizer whose normalizers clean a string
#   name_encoder.py   the encoder in PyTorch, without coder_jax; a sentence-transformers module
#   modules.json      that module, and vectors of length 1
#   coder_jax.json    cleaning, recipe, dataset
#   README.md         the model card

_COPIED_VECTORS = "vectors"  # in the folder of a run: its copy of the vectors that it began with
_MODULE, _CLEANING = "name_encoder.py", "cleaning.json"


def _trained_names(system: BneSystem, run: SavedRun) -> TermEncoder:
    """The encoder of a run."""
    saved = run.described(_NameRun)
    reader = NameReader(
        system.config(saved.start),
        run.params["encoder"],
        Alphabet(saved.start.alphabet),
        open_vectors(run.folder / _COPIED_VECTORS).words,
    )
    return TermEncoder(reader, None, _settings_of(saved.dataset))


def _settings_of(dataset: DataOfRun | Manifest) -> EncoderSettings:
    """How terms become vectors: cleaned like the dataset's, of any length."""
    return EncoderSettings(pooling=OF_NAMES, cleaning=dataset.cleaning, max_length=LONGEST)


def _write_files(folder: Path, encoder: TermEncoder, description: Mapping[str, Any]) -> None:
    """Writes all files of an export."""
    reader = encoder.reader
    assert isinstance(reader, NameReader)
    write_name_encoder(
        folder, NameFiles(reader.config, reader.params, reader.alphabet, reader.vectors)
    )
    cleaning = Tokenizer(WordLevel({}, unk_token=""))  # never asked for a token
    cleaning = with_cleaning(cleaning, encoder.settings.cleaning)
    cleaning.save(str(folder / _CLEANING))
    shutil.copyfile(Path(__file__).with_name("bne_torch_module.py"), folder / _MODULE)
    write_modules(folder, [("", "name_encoder.NameEncoder"), ("1_Normalize", NORMALIZE)])
    known = {
        name: description[name]
        for name in ("recipe", "dataset_hash", "languages")
        if name in description
    }
    versions = {name: version(name) for name in ("jax", "flax")}
    write_settings(folder, encoder.settings, **known, versions=versions)
    (folder / "README.md").write_text(model_card(description, encoder.settings), encoding="utf-8")


def _compare_names(folder: Path, encoder: TermEncoder, proof: Any = None) -> dict[str, float]:
    """The largest difference of the export's vectors, by library that opens it.

    They are compared with the encoder's of PROBE_TERMS, and with those that training gave.

    Raises:
        RuntimeError: if one is too large, or NaN.
    """
    ours, terms = with_proof(PROBE_TERMS, encoder.encode(PROBE_TERMS), proof)
    module = load_module(folder / _MODULE).NameEncoder(folder)
    theirs: dict[str, np.ndarray] = {"PyTorch": module.encode(terms).numpy()}
    if importlib.util.find_spec("sentence_transformers") is not None:
        found = sentence_transformers_vectors(folder, terms, trust_remote_code=True)
        theirs["sentence-transformers"] = found
    return {
        name: largest_difference(
            ours, vectors, f"the export opened by {name} gives vectors that", folder
        )
        for name, vectors in theirs.items()
    }


def _describe_names(system: BneSystem, run: SavedRun) -> dict[str, Any]:
    """The facts for the model card, from run.json and metrics.jsonl."""
    saved = run.described(_NameRun)
    dataset, vectors = saved.dataset, saved.vectors
    return {
        **run_summary(system, run),
        "data": {
            "terminology": f"{dataset.name} {dataset.release}",
            "concepts": f"{dataset.counts.concepts:,}",
            "terms": f"{dataset.counts.terms:,}",
            "cleaning": dataset.cleaning,
            **license_row(dataset),
            "vectors of words": f"skip-grams ({vectors.variant}), hash {vectors.content_hash[:12]}",
        },
    }
