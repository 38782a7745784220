"""Opens trained models for prediction: encoders, classifiers, generators and rankers."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.vector_files import (
    EncoderProtocol,
    encoder_protocol,
    hash_arrays,
    hash_of_encoder,
)
from coder_jax.evaluation.benchmark import Benchmark, Options
from coder_jax.evaluation.given_groups import GroupedMentions
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.several_concepts import MultipleNames, ThreeAnswers
from coder_jax.mapping.confidence import no_strings_of
from coder_jax.mapping.normalizer import Rule
from coder_jax.models.hf_files import find_folder
from coder_jax.systems.mlnorm.classifier import ConceptClassifier
from coder_jax.systems.mlnorm.training import (
    CLASSIFIER,
    MLNormClassesSystem,
    MLNormSystem,
    read_classifier,
)
from coder_jax.systems.recall_rank.candidates import (
    CandidateGenerator,
    Generator,
    GeneratorEnsemble,
    TfIdfGenerator,
)
from coder_jax.systems.recall_rank.ranking import (
    RANKER,
    Choice,
    RecallAndRank,
    StagedNormalizer,
    TermRanker,
    ranked,
)
from coder_jax.systems.recall_rank.training import (
    GENERATOR,
    RankSystem,
    RecallSystem,
    read_generator,
)
from coder_jax.systems.recipes import system_of
from coder_jax.training.checkpoints import (
    best_step,
    read_extra,
    read_notes,
    read_params,
    read_saved_identity,
    saved_steps,
)
from coder_jax.training.run_folder import (
    RunJson,
    as_it_was,
    read_run_identity,
    small_files,
    system_name,
    typed_run,
)
from coder_jax.training.system import SavedRun, System, check_proof
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.identity import RUN, differences
from data_pipeline.files.tables import split_concepts
from data_pipeline.process import BadInput, tell
from data_pipeline.terminology.tf_idf import TF_IDF

# -------------------------------------------------------------------------------------------------
# Reads a trained run: its parameters, and what is recorded of it.


def _check_unchanged(out: Path, step: int, identity: RunJson) -> None:
    """Raise BadInput if run.json changed since a checkpoint was saved, except for more steps."""
    saved = read_saved_identity(out, step)
    lines = differences(as_it_was(identity, saved), saved)
    if lines:
        raise BadInput(
            f"run.json in {out} was changed since checkpoint {step} was saved: {'; '.join(lines)}; "
            f"expected it as it was written: put it back (the checkpoint has a copy, identity/)"
        )


def load_run(out: Path, step: int | None = None) -> tuple[System, SavedRun]:
    """A run after `step` steps.

    Args:
        out: its folder, here or in a bucket.
        step: of one of its checkpoints; None: the best one, for a system that has a score to choose
            it by, else the newest.

    Raises:
        BadInput: if there is no run in `out`, or no such checkpoint; or if what is read of it gives
            other outputs than training gave.
    """
    files = small_files(out)
    identity = read_run_identity(files)
    system = system_of(identity)
    start = typed_run(identity, system.content, str(files / RUN.file)).start
    steps = saved_steps(out)
    if not steps or (step is not None and step not in steps):
        raise BadInput(
            f"{out} has no checkpoint{'' if step is None else f' of step {step}'}; it has "
            f"{', '.join(map(str, steps)) or 'none'}"
        )
    if step is None:
        step = best_step(out) if system.best else steps[-1]
    _check_unchanged(out, step, identity)
    has_extra = jax.tree.leaves(system.shapes(start)[1])
    run = SavedRun(
        step=step,
        params=read_params(out, step),
        identity=identity,
        folder=files,
        extra=read_extra(out, step) if has_extra else {},
        notes=read_notes(out, step),
    )
    if not check_proof(
        lambda terms: system.saved_outputs(run, terms), run, f"step {step} of {out}"
    ):
        tell(
            f"step {step} of {out} was saved by a version that kept no proof: what is read of it "
            "is not compared with what training gave"
        )
    return system, run


# -------------------------------------------------------------------------------------------------
# What a path is, by its files: the one answer that all commands go by.

ModelKind = Literal["encoder", "classes", "generator", "ranker"]
_KIND_OF_SYSTEM: dict[str, ModelKind] = {
    MLNormSystem.name: "classes",
    MLNormClassesSystem.name: "classes",
    RecallSystem.name: "generator",
    RankSystem.name: "ranker",
}
_FILE_OF_KIND: dict[ModelKind, str] = {  # beside the encoder's in an export
    "classes": CLASSIFIER,
    "generator": GENERATOR,
    "ranker": RANKER,
}


@dataclass(frozen=True)
class Model:
    """A model that is there: a run of ours, an export of one, or any encoder of Hugging Face.

    Attributes:
        path: how it was named.
        kind: what it learnt beside its encoder, if anything.
        system: of a run, the name of its system; None for an export, an encoder or TF-IDF.
        folder: of an export or an encoder, on this machine; None for a run or TF-IDF.
    """

    path: str
    kind: ModelKind
    system: str | None = None
    folder: Path | None = None

    def load_run(self) -> tuple[System, SavedRun]:
        """The run after its best or newest step, as `load_run` gives it."""
        return load_run(Path(self.path))


def open_model(path: str | Path) -> Model:
    """What a folder, an address in a bucket or a hub id is; a model of the hub is fetched.

    `TF_IDF` is a generator without a folder.

    Raises:
        BadInput: if it is neither a run nor the folder of a model.
    """
    if path == TF_IDF:
        return Model(TF_IDF, "generator")
    if system := system_name(path):
        return Model(str(path), _KIND_OF_SYSTEM.get(system, "encoder"), system)
    folder = find_folder(path)
    kinds = [kind for kind, file in _FILE_OF_KIND.items() if (folder / file).is_file()]
    return Model(str(path), kinds[0] if kinds else "encoder", folder=folder)


# -------------------------------------------------------------------------------------------------
# Opens a concept classifier, from a run or an export.


def load_classifier(path: str | Path) -> ConceptClassifier:
    """The classifier of a run, or of an export.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    model = open_model(path)
    if model.kind != "classes":
        raise BadInput(f"{path} has no classes; expected a run of the recipe mlnorm, or its export")
    if model.folder:
        return read_classifier(model.folder)
    system, run = model.load_run()
    found: ConceptClassifier = system.trained(run).tables["classes"]
    return found


def records_of_classes(
    model: str, benchmarks: Sequence[Benchmark], options: Options
) -> list[EvaluationRecord]:
    """The records of a model with classes.

    Args:
        model: its folder.
        benchmarks: read without a dictionary.
        options: of the kinds of benchmarks.

    Raises:
        BadInput: for a benchmark that classes cannot answer.
    """
    grouped = [one for one in benchmarks if isinstance(one, GroupedMentions)]
    for one in benchmarks:
        if one not in grouped:
            raise BadInput(
                f"--benchmark {one.name}: {model} has classes, which answer mentions with a "
                "semantic group (QUAERO, or MANTRA with --given-groups); to search terms with its "
                "encoder give its export as --model, and --dictionary"
            )
    classifier = load_classifier(model)
    tell(f"answers are the most probable of {len(classifier.concepts):,} classes")
    # Of an export its weight files; of a run its classes.
    weights = classifier.encoder.weights_hash or hash_arrays([classifier.table])
    protocol = encoder_protocol(classifier.encoder, model, weights)
    return [
        one.score_normalizer(classifier, protocol, options, similarity="probability of the concept")
        for one in grouped
    ]


# -------------------------------------------------------------------------------------------------
# Opens generators and rankers, from a run or an export; any encoder can be a generator.


def _load_generator(path: str | Path, encoder: TermEncoder | None = None) -> CandidateGenerator:
    """A generator, from a run of `recall`, its export, or any encoder.

    Args:
        path: its folder, or the hub id of an export or an encoder.
        encoder: of an export or an encoder, if it is loaded already.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    model = open_model(path)
    if model.kind == "ranker":
        raise BadInput(f"{path} is a ranker; expected a generator or an encoder")
    if model.folder is None:
        system, run = model.load_run()
        trained = system.trained(run)
        trained.encoder.name = f"{path}, step {run.step}"
        return CandidateGenerator(trained.encoder, trained.tables.get("number"))
    encoder = encoder or TermEncoder.from_pretrained(path)
    if model.kind == "generator":
        return read_generator(model.folder, encoder)
    return CandidateGenerator(encoder)


def load_generators(
    paths: Sequence[str | Path], encoders: Sequence[TermEncoder | None] | None = None
) -> Generator:
    """One generator, or several as one, each opened by `_load_generator`.

    Args:
        paths: of each; or `TF_IDF` alone.
        encoders: of each, as far as they are loaded already.

    Raises:
        BadInput: as `_load_generator` and `GeneratorEnsemble`, or if one is given twice, or TF-IDF
            beside others.
    """
    names = [str(path) for path in paths]
    if names == [TF_IDF]:
        return TfIdfGenerator()
    if TF_IDF in names:
        raise BadInput(
            f"--model: found {' and '.join(names)}, whose distances have no common measure; "
            f"expected {TF_IDF} alone, or models without it"
        )
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"--model: found {name} twice; expected each model once")
    given = encoders or [None] * len(paths)
    return GeneratorEnsemble(
        [_load_generator(path, encoder) for path, encoder in zip(paths, given, strict=True)]
    )


def load_ranker(path: str | Path) -> TermRanker:
    """The ranker of a run of `rank`, or of its export.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    model = open_model(path)
    if model.kind != "ranker":
        what = f"a run of the system {model.system!r}" if model.system else "no ranker"
        raise BadInput(f"{path}: found {what}; expected a run of the recipe rank, or its export")
    if model.folder:
        return TermRanker.from_pretrained(path)
    system, run = model.load_run()
    ranker: TermRanker = system.trained(run).tables["ranker"]
    return ranker


# -------------------------------------------------------------------------------------------------
# Opens a generator with optional rankers, for mapping and scoring.


def has_stages(models: Sequence[str], rankers: Sequence[str]) -> bool:
    """Whether mentions are answered in stages: several models, a generator, or rankers."""
    generators = (open_model(one).kind == "generator" for one in models)
    return bool(rankers) or len(models) > 1 or any(generators)


def answered_by_stages(
    models: Sequence[str], rankers: Sequence[str], benchmarks: Sequence[Benchmark]
) -> list[MultipleNames]:
    """The benchmarks that generators or rankers answer; none for a plain encoder.

    Raises:
        BadInput: if rankers are given and there is none.
    """
    found = [one for one in benchmarks if isinstance(one, MultipleNames)]
    if rankers and not found:
        raise BadInput(
            "--ranker: found no benchmark that it answers; expected NAME=FOLDER with a folder of "
            "`python -m data_pipeline.build_mentions`"
        )
    # Checked last, as a model of the hub must be fetched for it.
    return found if found and has_stages(models, rankers) else []


def staged_normalizer(
    generator: Generator,
    rankers: Sequence[str],
    dictionary: Dictionary,
    by: Choice,
    *,
    threshold: float = 0.0,
    rules: Mapping[str, Rule] | None = None,
    abbreviations: Mapping[str, str] | None = None,
    cache: bool = False,
) -> StagedNormalizer:
    """The normalizer by recall and rank for a dictionary.

    Args:
        generator: of `load_generators`.
        rankers: folders.
        dictionary: whose terms are names; one of several concepts is a name of each. Where no
            concept has a second name, as in a list of codes, distinct names are the candidates,
            as they were where gold is names: else two codes of a name would take two places.
        by: how scores become answers.
        threshold, rules, abbreviations: of `StagedNormalizer`.
        cache: keep the vectors of the names on this machine, and use those that are kept.
    """
    named: dict[str, dict[str, None]] = {}
    for _, term, concept in dictionary.pairs():
        named.setdefault(concept, {})[term] = None
    if max(map(len, named.values()), default=0) == 1:
        names = list(dictionary.concepts_of_terms())
        concepts = [split_concepts(joined) for joined in dictionary.concepts_of_terms().values()]
        of_name = np.arange(len(names), dtype=np.int32)
    else:
        names = [term for terms in named.values() for term in terms]
        concepts = [[concept] for concept in named]
        of_name = np.repeat(np.arange(len(named), dtype=np.int32), list(map(len, named.values())))
    loaded = [load_ranker(one) for one in rankers]
    stages = RecallAndRank(generator, loaded, names, of_name, by, cache=cache)
    stages.encode_names(progress=True)
    return StagedNormalizer(
        stages,
        concepts,
        dictionary,
        threshold=threshold,
        rules=rules,
        abbreviations=abbreviations,
    )


_PROTOCOL_OF_TF_IDF = EncoderProtocol(
    model=TF_IDF,
    weights_hash=None,
    tokenizer_hash="",
    pooling="TF-IDF of characters",
    max_length=0,
    attend_padding=False,
    lowercases=True,
    cleaning="none",
    dtype="float64",
)


def _protocol_of_all(models: Sequence[str], generator: Generator) -> EncoderProtocol:
    """The protocol of several generators, for records: the first one's settings, a hash of all."""
    if not isinstance(generator, GeneratorEnsemble):
        return _PROTOCOL_OF_TF_IDF
    encoders = [one.encoder for one in generator.members]
    each = [
        encoder_protocol(encoder, model, hash_of_encoder(encoder))
        for model, encoder in zip(models, encoders, strict=True)
    ]
    if len(each) == 1:
        return each[0]
    hashes = "\n".join(str(one.weights_hash) for one in each)
    return dataclasses.replace(
        each[0],
        model=" + ".join(models),
        weights_hash=hashlib.sha256(hashes.encode()).hexdigest(),
    )


def records_of_stages(
    models: Sequence[str],
    generator: Generator,
    rankers: Sequence[str],
    benchmarks: Sequence[MultipleNames],
    choices: Sequence[Choice],
    *,
    cases: list[np.ndarray] | None = None,
    cache: bool = False,
) -> list[EvaluationRecord]:
    """The records of recall and rank.

    Args:
        models: what the generator consists of.
        generator, rankers, cache: as for `staged_normalizer`.
        benchmarks: of mentions with sets of concepts.
        choices: how scores become answers; a record for each. Without rankers there is one way,
            by distances.
        cases: gets those of each benchmark in the first way (`ThreeAnswers`), to measure cut-offs
            on: without the mentions that `normalize` answers without the rankers.
    """
    if not rankers:
        choices = [dataclasses.replace(choices[0], fusion="recall")]
    records = []
    protocol = _protocol_of_all(models, generator)
    stages: RecallAndRank | None = None
    for one in benchmarks:
        data, names, mentions = one.data, one.dictionary.terms, one.mentions
        concepts, gold = data.name_concepts, one.split.gold_sets()
        if stages is None or not stages.are_over(names, concepts):  # else encoded already
            loaded = [load_ranker(one) for one in rankers]
            stages = RecallAndRank(generator, loaded, names, concepts, cache=cache)
        with_rankers = (
            f", ranked by {' and '.join(Path(r).name for r in rankers)}" if rankers else ""
        )
        tell(f"{one.name}: {len(mentions):,} mentions, {len(names):,} names{with_rankers}")
        lists, probabilities = stages.scored(mentions, progress=True)
        speed = _mentions_per_s(stages, mentions)
        for by in choices:
            found = ranked(lists, concepts, probabilities, by)
            answers = f"as many as predicted, by {by}{with_rankers}"
            three = None
            if found.rank is not None:
                answered = partial(ThreeAnswers.of, found.concepts, found.rank, data.broader)
                three = answered(gold) if found.rank.shape[2] > 1 else None
                if cases is not None and by == choices[0]:
                    by_string = StagedNormalizer(stages, (), one.dictionary)
                    asked = set(no_strings_of(by_string, mentions))
                    left = [of if row in asked else () for row, of in enumerate(gold)]
                    cases.append(answered(left).cases)
            records.append(
                one.score_answers(
                    found.concepts, found.counts, protocol, answers, by.fused, speed, three
                )
            )
    return records


def _mentions_per_s(stages: RecallAndRank, mentions: Sequence[str]) -> float:
    """How many distinct mentions are encoded and searched in a second, for candidates alone.

    Nothing is compiled meanwhile if the candidates of the same mentions were found before.
    """
    names, distinct = stages.encode_names(), list(dict.fromkeys(mentions))
    began = time.perf_counter()
    stages.generator.nearest(distinct, names, stages.name_concepts)
    return len(distinct) / (time.perf_counter() - began)
