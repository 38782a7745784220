"""Score an encoder on benchmarks, or compare the scores of two encoders.

It prints a table, and writes all scores, with how they were measured, as JSON.

The encoder is a folder or a hub id: an export of ours, or any BERT, XLM-R, ModernBERT or MPNet of
Hugging Face; or, with --vectors-of, a file of word vectors (a term is the mean of its words) or of
concept vectors, keyed by CUI; or a folder of skip-grams, whose names stand for themselves
(--vectors-of names). Terms without a vector are counted. A benchmark is

BENCHMARKS

The content of a file tells its format. A benchmark that is called cadec, psytar, mantra, mcsm,
ddbrc, quaero, ncbi, bc5cdr, chip, umnsrs-sim, umnsrs-rel or mayosrs gets the papers' own rows
beside it, marked as published.

acc@k is the share of mentions whose gold concept is among the k concepts with the nearest terms.
Ties count in part: a right concept that is as near as one other counts a half. Mentions whose gold
concept has no term in the dictionary, also after merged CUIs have been replaced (--retired-cuis),
are unreachable: they count as wrong, and a second row has the scores of the others.

Behind ± stands half the width of the 95 % interval of a score: the percentiles of 2,000 bootstrap
resamples, in which mentions (pairs, test pairs, triplets, concepts) are drawn anew, of several
folds within each. It tells how sure the score is on this list, not on another dictionary.

A model with classes (a run of the recipes mlnorm or mlnorm_classes, or its export) is scored by
its most probable concept on mentions whose semantic group is given: quaero, and mantra with
--given-groups. With --dictionary its encoder is scored by the nearest term, like any other; so do
both to see what the classes bring.

--predictions DIR has a table of each benchmark, fold and pooling: mention, gold concept, its rank,
and the five nearest concepts with their terms and similarities; `report` lists the errors of it.
Where the semantic group of mentions is given, a table of each set: it has the document and the
group too, and the rank is empty where no gold CUI is among the 100 best concepts of the group.
OUT has, for each language (a column of the mentions, or else that of the nearest term) and for all,
how many mentions are answered, and how many of these rightly, from which similarity on.

--cutoffs FILE measures in the same mentions when `normalize` may trust the nearest concept: how
likely an answer is right by its similarity and margin, for each language, and with --precision how
many answers are left. Give terms that the encoder was not trained on, such as a dataset's heldout/
or a list that people have coded. In the model's folder, as cutoffs.json, `normalize` finds it.
With --ranker and folders of mentions it measures how likely the ranker's answers are right. Each
mention of one concept counts with its candidates and, if its concept is among them, once more
without it. Give that file to `normalize --ranker ... --cutoffs FILE`.

--compare A B scores nothing: it compares two files of --json on the same mentions, such as two
encoders, or two dictionaries. For each score it prints both, their difference with its 95 %
interval (mentions drawn anew, in pairs), p by a paired test (10,000 random changes of the sign of a
mention's difference, or McNemar's exact test where all differences have one size; of the rho of
rated pairs 10,000 exchanges of the encoders' places), and on how many mentions or pairs B is better
(won) and worse (lost). Equal mentions of a fold with equal gold concepts have one answer, so that
they are drawn, and change their sign, together. What cannot be compared in this way is told.
Where the semantic group of mentions is given, these are recall (as MLNorm counts it) and acc@k.

The vectors of a dictionary are kept on this machine, and read in the next evaluation, unless
--no-cache is given; with it terms that several dictionaries share are encoded once. Those of other
terms grow in files beside OUT while they are encoded. An evaluation that was stopped goes on with
both when the same command is given again.

Examples:
  python -m coder_jax evaluate --model runs/demo/export --json results.json \\
      --benchmark heldout=runs/demo/dataset/heldout
  python -m coder_jax evaluate --compare sapbert.json mine.json
  python -m coder_jax evaluate --model cambridgeltl/SapBERT-from-PubMedBERT-fulltext \\
      --pooling cls mean --benchmark fr=mentions_fr.tsv --dictionary data/umls \\
      --dictionary-languages ENG --json sapbert.json
  python -m coder_jax evaluate --model runs/s2 --benchmark quaero=QUAERO_FrenchMed --json s2.json
  python -m coder_jax evaluate --model mine --json mantra.json --dictionary data/umls \\
      --dictionary-sources SNOMEDCT_US MSH MDR --benchmark mantra=Mantra-GSC.zip
  python -m coder_jax evaluate --model mine --json quaero.json --dictionary data/umls \\
      --benchmark quaero=QUAERO_FrenchMed
  python -m coder_jax evaluate --model PubMed-w2v.bin --vectors-of words --json words.json \\
      --dictionary data/umls --benchmark mcsm=data/umls ddbrc=diseasedb/data cadec=benchmarks/cadec
  python -m coder_jax evaluate --model bne --json bne.json --dictionary medic.txt \\
      --benchmark ncbi=NCBItestset_corpus.txt coverage=data/diseases \\
      --exact-match ncbi=NCBItrainset_corpus.txt
  python -m coder_jax evaluate --model vectors/sgw --vectors-of words --wmd --json words.json \\
      --dictionary medic.txt --benchmark ncbi=NCBItestset_corpus.txt
  python -m coder_jax evaluate --model runs/demo/export --dictionary terms.tsv --json mine.json \\
      --benchmark mine=my_mentions.tsv --predictions predictions
  python -m coder_jax evaluate --model runs/demo/export --dictionary terms.tsv --json mine.json \\
      --benchmark mine=my_mentions.tsv --cutoffs runs/demo/export/cutoffs.json
  python -m coder_jax evaluate --model runs/recall --ranker runs/rank --json chip.json \\
      --benchmark chip=data/chip
  python -m coder_jax evaluate --model runs/recall_[1-5] --ranker runs/rank_[1-5] \\
      --json chip.json --benchmark chip=data/chip
"""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from coder_jax.commands.arguments import (
    MODEL,
    CacheOptions,
    CandidateKind,
    DictionaryOptions,
    EncodingOptions,
    Fusion,
    RankerOptions,
    check_one_model,
    encoded_for,
    generators_of,
    load_encoder,
)
from coder_jax.encoding.vector_files import encoder_protocol
from coder_jax.evaluation import benchmarks as known
from coder_jax.evaluation.annotated_text import TextOptions
from coder_jax.evaluation.benchmark import Options
from coder_jax.evaluation.benchmarks import print_records
from coder_jax.evaluation.normalization import NormalizationBenchmark, NormalizationOptions
from coder_jax.evaluation.record import write_records
from coder_jax.evaluation.vectors import (
    CONCEPTS,
    TERMS,
    is_skip_grams,
    open_table,
    vector_file_protocol,
)
from coder_jax.models.bert_config import POOLINGS
from data_pipeline.files.buckets import check_output, in_bucket
from data_pipeline.files.whole import is_stdout, is_stream
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, did_you_mean, tell
from data_pipeline.terminology.cleaning import lookup_rules
from data_pipeline.terminology.retired_cuis import choose_list, read_retired_cuis

if TYPE_CHECKING:
    import numpy as np

    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.evaluation.benchmark import Benchmark
    from coder_jax.evaluation.normalization import NormalizationFold
    from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
    from coder_jax.evaluation.several_concepts import MultipleNames
    from coder_jax.evaluation.vectors import Vectors


# -------------------------------------------------------------------------------------------------
# The options of `python -m coder_jax evaluate`, and what they must be.

COMMON = (
    *("--model", "--benchmark", "--json", "--dictionary", "--compare", "--pooling"),
    *("--dictionary-languages", "--retired-cuis", "--predictions", "--cutoffs", "--ranker"),
    *("--vectors-of", "--no-cache"),
)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EncodingOptions, DictionaryOptions, CacheOptions, RankerOptions):
    """The options of `evaluate`."""

    benchmark: Annotated[
        tuple[str, ...],
        Flag(
            "test sets, each with a name of your choice (--help-all lists the formats)",
            "NAME=PATH",
        ),
    ] = ()
    json: Annotated[
        Path | None,
        Flag("file to write all scores to; for /dev/stdout the tables go to stderr", "OUT"),
    ] = None
    compare: Annotated[
        tuple[str, str] | None,
        Flag(
            "compare two files of --json, mention by mention; nothing is scored", metavar=("A", "B")
        ),
    ] = None
    kinds: Options = field(default_factory=known.options_with)
    cutoffs: Annotated[
        Path | None,
        Flag(
            "also measure the cut-offs for `normalize --precision`, and write them here; "
            "`normalize` finds cutoffs.json in the model's folder by itself",
            "FILE",
            heading="cut-offs for normalize",
        ),
    ] = None
    candidates: CandidateKind = None
    models: Annotated[
        tuple[str, ...],
        Flag(
            "the encoder: a folder, such as an export, a hub id, or a run of mlnorm or recall; "
            "only for recall several (--model A B), which are averaged",
            MODEL,
            name="--model",
            heading="encoder",
        ),
    ] = ()
    pooling: Annotated[
        tuple[str, ...],
        Flag(
            "how a term becomes a vector; each that is given is scored (default: the model's own, "
            "or cls)",
            choices=POOLINGS,
        ),
    ] = ()
    vectors_of: Annotated[
        Literal["words", "names", "concepts"] | None,
        Flag(
            "score vectors of words, names or concepts, not an encoder; --model is a file in "
            "word2vec's formats or cui2vec's, or a folder of `python -m data_pipeline.skip_gram` "
            "(names only there)"
        ),
    ] = None
    dictionary: Annotated[
        tuple[str, ...],
        Flag(
            "terms to search, given as for `normalize`: a table, a dataset folder, an ontology, a "
            "release; for one benchmark (NAME=PATH), or for all that have none of their own",
            "[NAME=]PATH",
            heading="dictionary",
        ),
    ] = ()
    dictionary_concepts_of: Annotated[
        tuple[str, ...],
        Flag(
            "use all terms of the concepts that are in these vocabularies (such as ICD9CM, for the "
            "papers' case studies)",
            "SAB",
        ),
    ] = ()
    retired_cuis: Annotated[
        str | None,
        Flag(
            "list of merged CUIs, to replace them in the right answers and in the dictionary; "
            "MRCUI.RRF, a dataset's retired_cuis.tsv, or a TSV file of old<TAB>new. With concept "
            "vectors a CUI without a vector gets that of what it was merged into (default: the "
            "dictionary's own list; none: replace nothing)",
            "FILE",
        ),
    ] = None
    fusion: Annotated[
        tuple[Fusion, ...],
        Flag(
            "order candidates by the mean of both scores, or by one of them; a row for each that "
            "is given",
            heading="recall and rank",
        ),
    ] = ("mean",)

    @property
    def model(self) -> str:
        """The encoder, or the first of several."""
        return self.models[0]

    @property
    def poolings(self) -> list[str | None]:
        """Each pooling to score; None: the model's own."""
        return list(dict.fromkeys(self.pooling)) or [None]


OPTIONS = EvaluateOptions


def _check(options: EvaluateOptions) -> Path:
    """The file of --json; BadInput for values that no evaluation can use, or that are missing."""
    needed = {"--model": options.models, "--benchmark": options.benchmark, "--json": options.json}
    missing = [name for name, value in needed.items() if not value]
    if missing or options.json is None:
        raise BadInput(
            f"found no {', no '.join(missing)}; expected --model, --benchmark and --json to score "
            "an encoder, or --compare A B to compare two files of --json"
        )
    check_output(options.json, "--json", "results.json")
    if options.cutoffs is not None:
        check_output(options.cutoffs, "--cutoffs", "cutoffs.json")
        if options.vectors_of:
            raise BadInput("found --cutoffs and --vectors-of; expected --cutoffs with an encoder")
    predictions = options.kinds.of(NormalizationOptions).predictions
    if predictions is not None:
        _check_folder(predictions)
    _check_vectors(options)
    return options.json


def _check_vectors(options: EvaluateOptions) -> None:
    """BadInput for vectors without --vectors-of, or for anything else with it."""
    if options.vectors_of:
        check_one_model(options.models, "--vectors-of takes a file of vectors, or a folder of them")
    is_file, is_folder = Path(options.model).is_file(), is_skip_grams(options.model)
    if (is_file or is_folder) and not options.vectors_of:
        raise BadInput(
            f"--model: found the {'file' if is_file else 'skip-grams'} {options.model}; expected a "
            "model folder or hub id, or, for vectors, --vectors-of words or --vectors-of concepts "
            "beside it"
        )
    if options.kinds.of(TextOptions).wmd and options.vectors_of != "words":
        found = f"--vectors-of {options.vectors_of}" if options.vectors_of else "an encoder"
        raise BadInput(f"--wmd: found {found}; expected vectors of words: give --vectors-of words")
    if options.vectors_of and not (is_folder or (is_file and options.vectors_of != "names")):
        missing = "" if is_file else ", which is no file"
        needed = "" if options.vectors_of == "names" else "a file of vectors or "
        raise BadInput(
            f"--model: found {options.model}{missing}; expected {needed}a folder of skip-grams for "
            f"--vectors-of {options.vectors_of}"
        )


def _check_folder(path: Path) -> None:
    """Makes the folder of --predictions where there is none; BadInput if it cannot be written."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"--predictions: found {path}, which is no folder and cannot be made ({error.strerror})"
            "; expected a folder, or a new name in one"
        ) from error
    check_output(path / "predictions.tsv", "--predictions", "predictions.tsv")


def _check_alone(options: EvaluateOptions) -> None:
    """BadInput for --compare beside what scores an encoder."""
    beside = {"--model": options.models, "--benchmark": options.benchmark, "--json": options.json}
    beside["--dictionary"] = options.dictionary
    given = [flag for flag, value in beside.items() if value]
    if given:
        raise BadInput(
            f"--compare: found {given[0]} with it; expected the two files of results alone: it "
            "scores nothing"
        )


def paths_of(
    benchmark: Sequence[str], dictionary: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The path of each benchmark, and of its dictionary; "" stands for all that have none.

    BadInput for words that are not what --benchmark and --dictionary take.
    """
    paths: dict[str, str] = {}
    for argument in benchmark:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise BadInput(
                f"--benchmark: found {argument!r}; expected NAME=PATH, such as cadec=data/cadec"
            )
        if name in paths:
            raise BadInput(
                f"--benchmark: found the name {name!r} twice; expected one PATH for each"
            )
        paths[name] = path
    dictionaries: dict[str, str] = {}
    for argument in dictionary:
        name, equals, path = argument.partition("=")
        if equals and name not in paths and not Path(argument).exists() and Path(path).exists():
            raise BadInput(
                f"--dictionary: found {argument!r}, but no benchmark {name!r}"
                f"{did_you_mean(name, paths)}; expected PATH, or NAME=PATH with one of "
                f"{', '.join(paths)}"
            )
        name, path = (name, path) if equals and name in paths else ("", argument)
        if name in dictionaries:
            raise BadInput(
                f"--dictionary: found {dictionaries[name]!r} and {path!r} for "
                f"{name or 'all benchmarks'}; expected one"
            )
        dictionaries[name] = path
    return paths, dictionaries


# -------------------------------------------------------------------------------------------------
# `evaluate --cutoffs FILE`: measures when `normalize` may trust the nearest concept.


def _folds_to_measure(
    benchmarks: Sequence[Benchmark], staged: Sequence[MultipleNames], ranker: Sequence[str]
) -> list[NormalizationFold]:
    """The mentions of all benchmarks of normalization, in the one dictionary that they share.

    Args:
      benchmarks: those that an encoder answers.
      staged: those that recall and rank answer; they are checked here, and measured elsewhere.
      ranker: of --ranker.

    Raises:
      BadInput: no such benchmark, several dictionaries, or both kinds of benchmarks.
    """
    folds = [
        fold for one in benchmarks if isinstance(one, NormalizationBenchmark) for fold in one.folds
    ]
    if staged and (folds or not ranker):
        raise BadInput(
            f"--cutoffs: found a folder of mentions ({staged[0].path}) and "
            f"{'other mentions' if folds else 'no --ranker'}; expected folders of mentions alone, "
            "whose answers a --ranker gives, or tables of mention and concept alone"
        )
    dictionaries = {id(fold.dictionary): fold.dictionary.source for fold in folds}
    dictionaries |= {
        one.dictionary.description["content_hash"]: one.dictionary.source for one in staged
    }
    if len(dictionaries) != 1:
        found = " and ".join(dictionaries.values()) or "no benchmark of mentions"
        raise BadInput(
            f"--cutoffs: found {found}; expected mentions that are looked up in one dictionary, "
            "the one that normalize will search"
        )
    return folds


def _write_cutoffs(options: EvaluateOptions, folds: Sequence[NormalizationFold], out: Path) -> None:
    """Measures with the encoder of the command line what `normalize` answers to mentions.

    Args:
      options: of `evaluate`: the encoder and --candidates.
      folds: of `_folds_to_measure`.
      out: the file, --cutoffs.
    """
    # As `normalize` has them, whatever the terms were cleaned by for the scores.
    as_looked_up = replace(options, cleaning=lookup_rules(folds[0].dictionary.terms))
    encoder = load_encoder(options.model, options.poolings[0], as_looked_up)
    kind = options.candidates or "both"
    measure(encoder, options.model, folds, out, kind=kind, cache=not options.no_cache)


def _write_cutoffs_of_ranker(
    options: EvaluateOptions, staged: Sequence[MultipleNames], cases: list[np.ndarray], out: Path
) -> None:
    """Measures how often the answers of the command line's rankers are right.

    Args:
      options: of `evaluate`; of several ways to order candidates the first was measured.
      staged: the folders of mentions, with one dictionary.
      cases: of each (`ThreeAnswers`).
      out: the file, --cutoffs.
    """
    from coder_jax.mapping.confidence import cutoffs_of_ranker

    about = {
        "model": " + ".join(options.models),
        "ranker": " + ".join(options.ranker),
        "dictionary": staged[0].dictionary.description,
        "ordered_by": options.ranking(options.fusion[0]).fused,
    }
    cutoffs_of_ranker(cases, about).write(out)
    tell(f"cut-offs: {out}")


def measure(
    encoder: TermEncoder,
    model: str,
    folds: Sequence[NormalizationFold],
    out: Path,
    *,
    kind: str = "both",
    cache: bool = True,
) -> None:
    """Measures what `normalize` answers to mentions with an encoder, and writes it.

    Args:
      encoder: of mentions and dictionary.
      model: its name, for the file.
      folds: with one dictionary.
      out: the file, cutoffs.json.
      kind: of candidates.
      cache: whether the vectors of the dictionary are kept.
    """
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.confidence import measured_cutoffs
    from coder_jax.mapping.normalizer import Normalizer

    dictionary = folds[0].dictionary
    encoded = encoder.encode_dictionary(dictionary, progress=True, cache=cache)
    normalizer = Normalizer(dictionary, Candidates(encoder, encoded, kind))
    mentions = list(chain.from_iterable(fold.mentions for fold in folds))
    gold = list(chain.from_iterable(fold.gold for fold in folds))
    languages = [
        language for fold in folds for language in fold.languages or [""] * len(fold.mentions)
    ]
    about = {"model": str(model), "dictionary": dictionary.description}
    tell(f"cut-offs for normalize, on {len(mentions):,} mentions in {dictionary.source}")
    measured_cutoffs(normalizer, mentions, gold, languages, about, tell).write(out)
    tell(f"cut-offs: {out}")


# What each kind says of itself.
__doc__ = str(__doc__).replace(
    "BENCHMARKS", textwrap.indent("\n".join(one.about for one in known.BENCHMARKS), "  ")
)


WHEN_ASKED_TO_STOP = "stopping; finished vectors are kept"


def run(options: EvaluateOptions) -> int:
    if options.compare:
        from coder_jax.evaluation.benchmarks import print_table
        from coder_jax.evaluation.comparison import compare_files

        _check_alone(options)
        print_table(*compare_files(*options.compare, seed=options.kinds.seed))
        a, b = options.compare
        print(f"\nA: {a}\nB: {b}")
        return 0
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.systems.trained_models import (
        answered_by_stages,
        open_model,
        records_of_classes,
        records_of_stages,
    )

    out = _check(options)
    benchmarks = _read_benchmarks(options)
    staged = answered_by_stages(options.models, options.ranker, benchmarks)
    benchmarks = [one for one in benchmarks if one not in staged]
    if benchmarks:
        check_one_model(options.models, f"{benchmarks[0].name} is no folder of mentions")
    # What cannot be used is refused before a model of the hub is fetched.
    is_here = in_bucket(options.model) or Path(options.model).exists()
    searched = options.dictionary or options.vectors_of or not is_here
    by_classes = not searched and open_model(options.model).kind == "classes"
    keyed_by = _keys_of_vectors(options.vectors_of)
    for benchmark in (
        [] if by_classes else benchmarks
    ):  # one that cannot be used is refused before hours of encoding
        benchmark.keys(keyed_by)
    choices = [options.ranking(fusion) for fusion in dict.fromkeys(options.fusion)]
    measured: list[NormalizationFold] = []
    if options.cutoffs:
        measured = _folds_to_measure(benchmarks, staged, options.ranker)
    records: list[EvaluationRecord] = []
    scratch: list[Path] = []
    cases: list[np.ndarray] = []
    with _place_of_vectors(out) as beside:
        for pooling in options.poolings if staged else ():
            generators = generators_of(options.models, pooling, options)
            stages = (options.models, generators, options.ranker)
            wanted = cases if options.cutoffs and pooling == options.poolings[0] else None
            cache = not options.no_cache
            records += records_of_stages(*stages, staged, choices, cases=wanted, cache=cache)
        if by_classes:
            records += records_of_classes(options.model, benchmarks, options.kinds)
        elif benchmarks:
            for vectors, protocol in _compared(options, benchmarks, beside, scratch):
                records += [
                    known.score(one, vectors, protocol, options.kinds) for one in benchmarks
                ]
        write_records(out, [_from_folder_of(out, record) for record in records])
        for path in scratch:
            path.unlink()
    if options.cutoffs and measured:
        _write_cutoffs(options, measured, options.cutoffs)
    elif options.cutoffs:
        _write_cutoffs_of_ranker(options, staged, cases, options.cutoffs)
    with redirect_stdout(sys.stderr) if is_stdout(out) else nullcontext():
        print_records(records, options.kinds)
        print(f"\nscores and protocol: {out}")
    return 0


def _keys_of_vectors(vectors_of: str | None) -> str:
    """What benchmarks look up: concepts in vectors of these, terms in all others."""
    return CONCEPTS if vectors_of == "concepts" else TERMS


def _from_folder_of(out: Path, record: EvaluationRecord) -> EvaluationRecord:
    """The record with its tables of predictions named from the folder of OUT: both may move."""
    if is_stream(out) or not (record.answers and record.answers.predictions):
        return record
    folder = out.resolve().parent
    named = {
        fold: os.path.relpath(Path(file).resolve(), folder)
        for fold, file in record.answers.predictions.items()
    }
    return replace(record, answers=replace(record.answers, predictions=named))


@contextmanager
def _place_of_vectors(out: Path) -> Iterator[Path]:
    """The file beside which vectors grow: OUT, or one that goes if nothing can be beside OUT."""
    if is_stream(out):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / out.name
    else:
        yield out.resolve()


def _compared(
    options: EvaluateOptions, benchmarks: Sequence[Benchmark], beside: Path, scratch: list[Path]
) -> Iterator[tuple[Vectors, EncoderRecord]]:
    """The vectors of each pooling, or of the vector file.

    They grow in files beside `beside`; those to remove go into `scratch`.
    """
    if options.vectors_of:
        keyed_by = _keys_of_vectors(options.vectors_of)
        keys = {key for benchmark in benchmarks for key in benchmark.keys(keyed_by)}
        table = open_table(options.model, options.vectors_of, keys)
        yield table, vector_file_protocol(table)
        return
    for pooling in options.poolings:
        encoder = load_encoder(options.model, pooling, options)
        protocol = encoder_protocol(encoder, options.model, encoder.weights_hash)
        cache = not options.no_cache
        yield encoded_for(benchmarks, encoder, beside, scratch, cache=cache), protocol


def _read_benchmarks(options: EvaluateOptions) -> list[Benchmark]:
    """The benchmarks of the command line, each with the dictionary that is meant for it."""
    from data_pipeline.dataset.dictionary import read_dictionary

    paths, dictionaries = paths_of(options.benchmark, options.dictionary)
    read = {
        path: read_dictionary(
            path, concepts_of=options.dictionary_concepts_of or None, **options.choices()
        )
        for path in dict.fromkeys(dictionaries.values())
    }
    lists = {source: choose_list(options.retired_cuis, source) for source in (None, *read)}
    retired = {path: read_retired_cuis(path) for path in set(lists.values()) if path}
    benchmarks = []
    for name, path in paths.items():
        own = known.kind_of(path).brings_dictionary(Path(path))
        for_all = None if own else dictionaries.get("")
        source = dictionaries.get(name, for_all)
        merges = lists[source]
        benchmarks.append(
            known.read_benchmark(
                name,
                path,
                dictionary=read[source] if source else None,
                retired_cuis=retired[merges] if merges else None,
                options=options.kinds,
            )
        )
    return benchmarks
