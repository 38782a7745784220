"""Options that several verbs share: of an encoder, of a dictionary, of generators and rankers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import numpy as np

from coder_jax.encoding.vector_files import DEFAULT_GB, LEAST_TERMS, LIMIT, kept_folder
from coder_jax.mapping.coded_list import KINDS
from coder_jax.models.bert_config import POOLINGS
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, tell
from data_pipeline.sources.term_tables import UNDETERMINED
from data_pipeline.terminology.cleaning import ALL_IN_WORDS, CLEANING
from data_pipeline.terminology.filters import Strict
from data_pipeline.terminology.tf_idf import TF_IDF

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.encoding.vector_files import Rows
    from coder_jax.evaluation.benchmark import Benchmark
    from coder_jax.evaluation.vectors import EncodedTerms
    from coder_jax.systems.recall_rank.candidates import Generator
    from coder_jax.systems.recall_rank.ranking import Choice
    from data_pipeline.dataset.dictionary import Dictionary


# -------------------------------------------------------------------------------------------------
# Options of an encoder, and what of a dictionary to take.

_MOST_NAMED = 8  # languages in a line


MODEL = "FOLDER_OR_HUB_ID"
Pooling = Annotated[
    str | None,
    Flag("how a term becomes a vector (default: the model's own, or cls)", choices=POOLINGS),
]

CandidateKind = Annotated[
    str | None,
    Flag(
        "how similar concepts are found: by the encoder's vectors, by letters (three-letter "
        "pieces, which find typing errors and similar names in other languages), or by both "
        "(default: both; `normalize` takes vectors for a dictionary of more than 2,000,000 terms)",
        choices=KINDS,
    ),
]


@dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """How an encoder is used, but for its pooling."""

    cleaning: Annotated[
        str | None,
        Flag(
            f"how terms are cleaned first (default: the model's). {ALL_IN_WORDS}",
            "RULES",
            choices=tuple(CLEANING),
            heading="encoder",
        ),
    ] = None
    max_length: Annotated[
        int | None, Flag("cut terms to so many tokens (default: the model's)", "TOKENS", least=3)
    ] = None
    attend_padding: Annotated[
        bool,
        Flag(
            "pad terms, and attend to the padding: for the published CODER checkpoints, with "
            "--pooling pooler"
        ),
    ] = False
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Flag(
            "arithmetic of the encoder; auto, as in training, is bfloat16 on an accelerator and "
            "float32 on CPUs. Published scores compare with float32"
        ),
    ] = "float32"
    backend: Annotated[
        Literal["jax", "onnx", "onnx-int8", "sentence-transformers"],
        Flag(
            "what runs the encoder; onnx and onnx-int8 read what `export --onnx --int8` wrote, on "
            "the CPU; sentence-transformers opens encoders of other architectures (pip install "
            "'.[sentence-transformers]')"
        ),
    ] = "jax"
    prompt: Annotated[
        str | None,
        Flag("put this before each cleaned term, as E5 wants 'query: ' (default: the model's)"),
    ] = None
    width: Annotated[
        int | None,
        Flag(
            "keep the first so many numbers of each vector, of a model trained with --matryoshka: "
            "files and searches are smaller (default: all)",
            "NUMBERS",
            least=1,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """Whether the vectors of dictionaries are kept on this machine and read again."""

    no_cache: Annotated[
        bool,
        Flag(
            "encode the dictionary again, and keep no vectors; otherwise, if it has "
            f"{LEAST_TERMS:,} terms or more, they are kept in {kept_folder()} (or below "
            "CODER_JAX_CACHE) for the next time. "
            f"The oldest are deleted when all need more than {LIMIT} gigabytes ({DEFAULT_GB:g} if "
            "it is not set)",
            heading="dictionary",
        ),
    ] = False


def load_encoder(model: str, pooling: str | None, options: EncodingOptions) -> TermEncoder:
    """The encoder that --model names; what was loaded goes to stderr."""
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.devices.mesh import arithmetic
    from coder_jax.encoding.encoder import TermEncoder
    from data_pipeline.dataset.tokenizer import warn_of_case

    encoder = TermEncoder.from_pretrained(
        model,
        pooling,
        cleaning=options.cleaning,
        max_length=options.max_length,
        attend_padding=options.attend_padding or None,
        prompt=options.prompt,
        width=options.width,
        dtype=arithmetic(options.dtype),
        backend=options.backend,
    )
    if encoder.report is not None:
        tell(encoder.report)
        warn_of_case(encoder.tokenizer, model)
    trained = f"; trained on terms in {_listed(encoder.languages)}" if encoder.languages else ""
    tell(f"model: {encoder.settings}{trained}")
    return encoder


def encoded_for(
    benchmarks: Sequence[Benchmark],
    encoder: TermEncoder,
    beside: Path,
    scratch: list[Path],
    *,
    cache: bool = True,
) -> EncodedTerms:
    """The vectors of all that benchmarks look up.

    Args:
      encoder: from a folder or the hub.
      beside: the vectors that are not kept grow in files beside it.
      scratch: gets the files that are to be removed at the end.
      cache: whether the vectors of dictionaries are kept on this machine.
    """
    # Imported here, as only two verbs need them.
    from coder_jax.evaluation.vectors import TERMS, EncodedTerms, vectors_of_terms
    from coder_jax.export.relations import read_relations

    # Features are not of unit length, and are encoded where they are scored.
    encoded = [benchmark for benchmark in benchmarks if not benchmark.takes_features]
    strings = list(dict.fromkeys(chain.from_iterable(one.keys(TERMS) for one in encoded)))
    dictionaries = [one.dictionaries() for one in encoded]
    # Further names are of one benchmark alone: without them others share the vectors.
    searched = [
        [term for one in many for term in one.terms[: len(one.terms) - one.further]]
        for many in dictionaries
    ]
    for one in {id(one): one for one in chain.from_iterable(dictionaries)}.values():
        warn_of_languages(encoder, one)
    related = any(benchmark.takes_relations for benchmark in benchmarks)
    relations = read_relations(encoder.folder) if related and encoder.folder else None
    terms: Sequence[str] = strings
    vectors: Rows = np.zeros((0, encoder.width), np.float32)
    if strings:
        kept = searched if cache else []
        terms, vectors = vectors_of_terms(encoder, strings, kept, beside, scratch)
    return EncodedTerms(encoder, terms, vectors, relations)


def warn_of_languages(encoder: TermEncoder, dictionary: Dictionary) -> None:
    """Says which terms of a dictionary are in languages that the encoder was not trained on.

    Nothing is said where either is unknown.
    """
    if not (encoder.languages and dictionary.languages):
        return
    others = Counter(dictionary.languages)
    for language in (*encoder.languages, UNDETERMINED):
        del others[language]
    if others:
        print(
            f"warning: {others.total():,} of {len(dictionary.terms):,} terms of the dictionary are "
            f"in {_listed([name for name, _ in others.most_common()])}; the encoder was trained on "
            f"terms in {_listed(encoder.languages)}: expect it to find less among the others",
            file=sys.stderr,
        )


def _listed(languages: Sequence[str]) -> str:
    """Languages in words, of many the first."""
    more = f" and {len(languages) - _MOST_NAMED} more" if len(languages) > _MOST_NAMED else ""
    return ", ".join(languages[:_MOST_NAMED]) + more


@dataclass(frozen=True, kw_only=True)
class DictionaryOptions:
    """What of a dictionary is taken, as `read_dictionary` does it."""

    dictionary_languages: Annotated[
        tuple[str, ...],
        Flag(
            "use only terms in these languages; for a dictionary with languages: a dataset, a "
            "release or a table; several with commas, as in ENG,FRE",
            "LANGUAGE",
            commas=True,
            heading="dictionary",
            one_word=True,
        ),
    ] = ()
    dictionary_sources: Annotated[
        tuple[str, ...],
        Flag(
            "use only terms of these vocabularies; several with commas, as in SNOMEDCT_US,MSH",
            "SAB",
            commas=True,
            one_word=True,
        ),
    ] = ()
    # Names of types hold commas: `read_dictionary` knows them.
    semantic_types: Annotated[
        tuple[str, ...],
        Flag(
            "use only concepts of these semantic types; numbers or names, in any case ('Disease or "
            "Syndrome'); several with commas, as in T047,T191",
            "TYPE",
            one_word=True,
        ),
    ] = ()
    dictionary_keep_suppressed: Annotated[
        bool,
        Flag(
            "also use terms that a release has as obsolete or suppressed (SUPPRESS is O, E or Y); "
            "for a release or an ontology: a dataset has them if it is built with --keep-suppressed"
        ),
    ] = False
    dictionary_standard: Annotated[
        bool,
        Flag(
            "of OMOP's vocabularies, use standard concepts alone; each also has the names of the "
            "concepts that map to it ('Maps to')"
        ),
    ] = False
    strict: Strict = False

    term_column: Annotated[
        str | None,
        Flag("column of a table that has the terms (default: found by names such as term)", "NAME"),
    ] = None
    concept_column: Annotated[
        str | None,
        Flag(
            "column of a table that has the concepts (default: found by names such as concept)",
            "NAME",
        ),
    ] = None

    def choices(self) -> DictionaryChoices:
        """The arguments of `read_dictionary`."""
        return DictionaryChoices(
            languages=list(self.dictionary_languages) or None,
            sources=list(self.dictionary_sources) or None,
            types=list(self.semantic_types) or None,
            keep_suppressed=self.dictionary_keep_suppressed,
            standard=self.dictionary_standard,
            strict=self.strict,
            columns={
                role: name
                for role, name in (("term", self.term_column), ("concept", self.concept_column))
                if name is not None
            },
        )

    def check_choices(self, dictionary: str | None) -> None:
        """BadInput for a choice where there is no --dictionary to choose from."""
        for choice in fields(DictionaryOptions):
            given = getattr(self, choice.name)
            if given and not dictionary:
                flag = f"--{choice.name.replace('_', '-')}"
                found = repr(given[0]) if isinstance(given, tuple) else "it alone"
                raise BadInput(f"{flag}: found {found}; expected --dictionary with it")


class DictionaryChoices(TypedDict):
    """What of a dictionary is taken, by the names of `read_dictionary`; None: all."""

    languages: list[str] | None
    sources: list[str] | None
    types: list[str] | None
    keep_suppressed: bool
    standard: bool
    strict: bool
    columns: dict[str, str]


# -------------------------------------------------------------------------------------------------
# Options of recall and rank: generators, rankers, and how both become answers.

Fusion = Literal["mean", "recall", "rank"]


@dataclass(frozen=True, kw_only=True)
class RankerOptions:
    """The options of recall and rank."""

    ranker: Annotated[
        tuple[str, ...],
        Flag(
            "rank the candidates of --model by a run of the recipe rank, or its export; several "
            "are averaged",
            "FOLDER",
            heading="recall and rank",
        ),
    ] = ()
    recall_score: Annotated[
        Literal["sum", "max"],
        Flag(
            "the generator's score of a distance d; 1 - d / the sum of the distances of all "
            "candidates (the paper), or 1 - d / the largest (its code)"
        ),
    ] = "sum"

    def ranking(self, fusion: Fusion) -> Choice:
        """How recall and rank become answers."""
        from coder_jax.systems.recall_rank.ranking import Choice

        return Choice(fusion=fusion, form=self.recall_score)


def generators_of(
    models: Sequence[str], pooling: str | None, options: EncodingOptions
) -> Generator:
    """The generators, or encoders as such, that --model names.

    Raises:
        BadInput: as `load_generators`; settings of an encoder for a run, which stay as it was
            trained, or for TF-IDF, which has none.
    """
    from coder_jax.systems.trained_models import load_generators

    return load_generators(models, [_encoder_of(one, pooling, options) for one in models])


def _encoder_of(model: str, pooling: str | None, options: EncodingOptions) -> TermEncoder | None:
    """As `load_encoder`, for one of the models; None for a run, which has its own, or TF-IDF."""
    from coder_jax.training.run_folder import system_name

    if model != TF_IDF and not system_name(model):
        return load_encoder(model, pooling, options)
    settings = {
        "pooling": pooling,
        "cleaning": options.cleaning,
        "max-length": options.max_length,
        "prompt": options.prompt,
        "width": options.width,
    }
    given = [name for name, value in settings.items() if value is not None]
    if given and model == TF_IDF:
        raise BadInput(f"--{given[0]}: {TF_IDF} has no encoder; leave it out, or give an encoder")
    if given:
        raise BadInput(
            f"--{given[0]}: {model} is a run, which encodes as it was trained; export it to "
            "encode in another way"
        )
    return None


def check_one_model(models: Sequence[str], why: str) -> None:
    """BadInput for several models, or TF-IDF, where one encoder is to answer, as `why` says."""
    if len(models) > 1:
        raise BadInput(
            f"--model: found {' and '.join(models)}, which answer together as generators of "
            f"candidates, but {why}; expected one model"
        )
    if TF_IDF in models:
        raise BadInput(f"--model: found {TF_IDF}, but {why}; expected an encoder")
