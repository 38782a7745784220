"""A generator, and rankers if there are any, for whoever maps or scores mentions."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from coder_jax.encoding.encoder_protocol import EncoderProtocol, encoder_protocol, hash_of_encoder
from coder_jax.evaluation.benchmark import Benchmark
from coder_jax.evaluation.multiple_names.benchmark import MultipleNames
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.runs.folder import system_name
from coder_jax.systems.recall_rank.generator import RecallSystem
from coder_jax.systems.recall_rank.prediction.candidates import (
    CandidateGenerator,
    GeneratorEnsemble,
)
from coder_jax.systems.recall_rank.prediction.export import is_generator
from coder_jax.systems.recall_rank.prediction.models import load_ranker
from coder_jax.systems.recall_rank.prediction.recall_and_rank import (
    Choice,
    RecallAndRank,
    ranked,
)
from coder_jax.systems.recall_rank.prediction.staged_normalizer import StagedNormalizer
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import split_concepts
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell


def has_stages(models: Sequence[str], rankers: Sequence[str]) -> bool:
    """Whether mentions are answered by stages: by several models, or a generator, or rankers."""
    generators = (
        (found := system_name(one)) == RecallSystem.name or (found is None and is_generator(one))
        for one in models
    )
    return bool(rankers) or len(models) > 1 or any(generators)


def answered_by_stages(
    models: Sequence[str], rankers: Sequence[str], benchmarks: Sequence[Benchmark]
) -> list[MultipleNames]:
    """The benchmarks that generators or rankers answer; none where an encoder is all there is.

    Raises:
        BadInput: if rankers are given and there is none.
    """
    found = [one for one in benchmarks if isinstance(one, MultipleNames)]
    if rankers and not found:
        raise BadInput(
            "--ranker: found no benchmark that it answers; expected NAME=FOLDER with a folder of "
            "`python -m data_pipeline.build_mentions`"
        )
    # Only then: a model of the hub is fetched to see what it is.
    return found if found and has_stages(models, rankers) else []


def load_stages(
    generators: GeneratorEnsemble,
    rankers: Sequence[str],
    names: Sequence[str],
    name_concepts: np.ndarray,
    by: Choice | None = None,
    *,
    cache: bool = False,
) -> RecallAndRank:
    """Recall and rank over a dictionary.

    Args:
        generators: of `load_generators`.
        rankers: folders.
        names, name_concepts: of the dictionary, [N].
        by: how scores become answers.
        cache: keep the vectors of the names on this machine, and use those that are kept.
    """
    loaded = [load_ranker(one) for one in rankers]
    return RecallAndRank(generators, loaded, names, name_concepts, by, cache=cache)


def staged_normalizer(
    generators: GeneratorEnsemble,
    rankers: Sequence[str],
    dictionary: Dictionary,
    by: Choice,
    *,
    threshold: float = 0.0,
    abbreviations: Mapping[str, str] | None = None,
    cache: bool = False,
) -> StagedNormalizer:
    """What maps mentions to the concepts of a dictionary.

    Args:
        generators, rankers, by, cache: as for `load_stages`.
        dictionary: whose terms are names; one of several concepts is a name of each. Where no
            concept has a second name, as in a list of codes, distinct names are the candidates,
            as they were where gold is names: else two codes of a name would take two places.
        threshold, abbreviations: of `StagedNormalizer`.
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
    stages = load_stages(generators, rankers, names, of_name, by, cache=cache)
    stages.encode_names(progress=True)
    return StagedNormalizer(
        stages, concepts, dictionary, threshold=threshold, abbreviations=abbreviations
    )


def protocol_of_all(models: Sequence[str], generators: GeneratorEnsemble) -> EncoderProtocol:
    """The protocol of generators, for records: how the first one encodes, and a hash of all."""
    each = [protocol_of(*one) for one in zip(models, generators.members, strict=True)]
    if len(each) == 1:
        return each[0]
    hashes = "\n".join(str(one.weights_hash) for one in each)
    return dataclasses.replace(
        each[0],
        model=" + ".join(models),
        weights_hash=hashlib.sha256(hashes.encode()).hexdigest(),
    )


def protocol_of(model: str, generator: CandidateGenerator) -> EncoderProtocol:
    """The protocol of a generator's encoder, for records."""
    return encoder_protocol(generator.encoder, model, hash_of_encoder(generator.encoder))


def records_of_stages(
    models: Sequence[str],
    generators: GeneratorEnsemble,
    rankers: Sequence[str],
    benchmarks: Sequence[MultipleNames],
    choices: Sequence[Choice],
    *,
    cache: bool = False,
) -> list[EvaluationRecord]:
    """The records of recall and rank.

    Args:
        models: what the generators are called.
        generators, rankers: as for `load_stages`.
        benchmarks: of mentions with sets of concepts.
        choices: how scores become answers; a record for each. Without rankers there is one way,
            by distances.
        cache: as for `load_stages`.
    """
    if not rankers:
        choices = [dataclasses.replace(choices[0], fusion="recall")]
    records = []
    protocol = protocol_of_all(models, generators)
    stages: RecallAndRank | None = None
    for one in benchmarks:
        names, concepts = one.dictionary.terms, one.data.name_concepts
        if stages is None or not stages.are_over(names, concepts):  # else encoded already
            stages = load_stages(generators, rankers, names, concepts, cache=cache)
        with_rankers = (
            f", ranked by {' and '.join(Path(r).name for r in rankers)}" if rankers else ""
        )
        tell(f"{one.name}: {len(one.mentions):,} mentions, {len(names):,} names{with_rankers}")
        lists, probabilities = stages.scored(one.mentions, progress=True)
        for by in choices:
            found = ranked(lists, concepts, probabilities, by)
            answers = f"as many as predicted, by {by}{with_rankers}"
            records.append(
                one.score_answers(found.concepts, found.counts, protocol, answers, by.fused)
            )
    return records
