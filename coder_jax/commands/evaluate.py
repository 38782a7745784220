"""Score an encoder on benchmarks: a table on stdout, all scores and the protocol as JSON.

The encoder is a folder or a hub id: an export of ours, or any BERT, XLM-R or ModernBERT of
Hugging Face; or, with --vectors-of, a file of word vectors (a term is the mean of its words) or of
concept vectors, keyed by CUI; or a folder of skip-grams, whose names stand for themselves
(--vectors-of names). What has no vector is counted. A benchmark is

BENCHMARKS

What a file is shows in its content. A benchmark that is called cadec, psytar, mantra, mcsm, ddbrc,
quaero, ncbi, bc5cdr, chip, umnsrs-sim, umnsrs-rel or mayosrs gets the papers' own rows beside it,
marked as published.

acc@k is the share of mentions whose gold concept is among the k concepts with the nearest terms.
Concepts that are equally near are counted as the mean over their orders. Mentions whose gold
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

--compare A B scores nothing: it compares two files of --json on the same mentions, such as two
encoders, or two dictionaries. For each score it prints both, their difference with its 95 %
interval (mentions drawn anew, in pairs), p by a paired test (of acc@k McNemar's exact one, of MRR
by 10,000 random changes of sign), and on how many mentions B is better (won) and worse (lost).
Where the semantic group of mentions is given, these are recall (as MLNorm counts it) and acc@k.

The vectors of a dictionary are kept on this machine, and read in the next evaluation, unless
--no-cache is given; with it terms that several dictionaries share are encoded once. Those of other
terms grow in files beside OUT while they are encoded. An evaluation that was stopped goes on with
both when the same command is given again. It runs on one host: of several, start it on one alone,
with JAX_NUM_PROCESSES=1.

Examples:
  python -m coder_jax evaluate --model runs/s2 --benchmark quaero=QUAERO_FrenchMed --json s2.json
  python -m coder_jax evaluate --model runs/demo/export --json results.json \\
      --benchmark heldout=data/hpo/heldout cadec=benchmarks/cadec sim=benchmarks/umnsrs-sim.txt
  python -m coder_jax evaluate --model cambridgeltl/SapBERT-from-PubMedBERT-fulltext \\
      --pooling cls mean --benchmark fr=mentions_fr.tsv --dictionary data/umls \\
      --dictionary-languages ENG --json sapbert.json
  python -m coder_jax evaluate --model coder_all --json mantra.json --dictionary data/umls \\
      --dictionary-sources SNOMEDCT_US MSH MDR --benchmark mantra=Mantra-GSC.zip
  python -m coder_jax evaluate --model coder_all --json quaero.json --dictionary data/umls \\
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
  python -m coder_jax evaluate --compare sapbert.json mine.json
  python -m coder_jax evaluate --model runs/recall --ranker runs/rank --json chip.json \\
      --benchmark chip=data/chip
  python -m coder_jax evaluate --model runs/recall_[1-5] --ranker runs/rank_[1-5] \\
      --json chip.json --benchmark chip=data/chip
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coder_jax.commands.arguments.encoder import (
    dictionary_choices,
    load_encoder,
    warn_of_languages,
)
from coder_jax.commands.arguments.evaluate import add_arguments, check, check_alone, paths_of
from coder_jax.commands.arguments.recall_rank import (
    check_one_model,
    generators_of,
    ranker_choices,
)
from coder_jax.commands.evaluate_cutoffs import folds_to_measure, write_cutoffs
from coder_jax.evaluation import benchmarks as known
from data_pipeline.files.streams import is_stdout, is_stream

if TYPE_CHECKING:
    from coder_jax.encoding.rows import Rows
    from coder_jax.evaluation.benchmark import Benchmark
    from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
    from coder_jax.evaluation.vectors.vectors import Vectors

# What each kind says of itself.
__doc__ = str(__doc__).replace(
    "BENCHMARKS", textwrap.indent("\n".join(one.about for one in known.BENCHMARKS), "  ")
)

__all__ = ["WHEN_ASKED_TO_STOP", "add_arguments", "run"]

WHEN_ASKED_TO_STOP = "stopping; finished vectors are kept"


def run(args: argparse.Namespace) -> int:
    if args.compare:
        from coder_jax.evaluation.results.comparison import compare_files
        from coder_jax.evaluation.results.tables import print_table

        check_alone(args)
        print_table(*compare_files(*args.compare, seed=args.seed))
        a, b = args.compare
        print(f"\nA: {a}\nB: {b}")
        return 0
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.devices.place import alone
    from coder_jax.evaluation.record import write_records
    from coder_jax.evaluation.results.tables import print_records
    from coder_jax.systems.class_model import has_classes, records_of_classes
    from coder_jax.systems.recall_rank.prediction.stages import (
        answered_by_stages,
        records_of_stages,
    )

    alone("evaluate")
    check(args)
    options = options_of(args)
    benchmarks = read_benchmarks(args)
    staged = answered_by_stages(args.models, args.ranker, benchmarks)
    benchmarks = [one for one in benchmarks if one not in staged]
    if benchmarks:
        check_one_model(args.models, f"{benchmarks[0].name} is no folder of mentions")
    by_classes = not (args.dictionary or args.vectors_of) and has_classes(args.model)
    keyed_by = keys_of_vectors(args.vectors_of)
    for benchmark in (
        [] if by_classes else benchmarks
    ):  # one that cannot be used is refused before hours of encoding
        benchmark.keys(keyed_by)
    measured = folds_to_measure(benchmarks) if args.cutoffs else []
    records: list[EvaluationRecord] = []
    scratch: list[Path] = []
    with place_of_vectors(args.json) as beside:
        for pooling in dict.fromkeys(args.pooling or [None]) if staged else ():
            generators = generators_of(args, pooling)
            stages = (args.models, generators, args.ranker)
            records += records_of_stages(*stages, staged, ranker_choices(args), cache=args.cache)
        if by_classes:
            records += records_of_classes(args.model, benchmarks, options)
        elif benchmarks:
            for vectors, protocol in compared(args, benchmarks, beside, scratch):
                records += [known.score(one, vectors, protocol, **options) for one in benchmarks]
        write_records(args.json, [from_folder_of(args.json, record) for record in records])
        for path in scratch:
            path.unlink()
    if args.cutoffs:
        write_cutoffs(args, measured)
    with redirect_stdout(sys.stderr) if is_stdout(args.json) else nullcontext():
        print_records(records, **options)
        print(f"\nscores and protocol: {args.json}")
    return 0


def keys_of_vectors(vectors_of: str | None) -> str:
    """What benchmarks look up: concepts in vectors of these, terms in all others."""
    from coder_jax.evaluation.vectors.vectors import CONCEPTS, TERMS

    return CONCEPTS if vectors_of == "concepts" else TERMS


def from_folder_of(out: Path, record: EvaluationRecord) -> EvaluationRecord:
    """The record with its tables of predictions named from the folder of OUT: both may move."""
    if is_stream(out) or not (record.answers and record.answers["predictions"]):
        return record
    folder = out.resolve().parent
    named = {
        fold: os.path.relpath(Path(file).resolve(), folder)
        for fold, file in record.answers["predictions"].items()
    }
    return replace(record, answers=record.answers | {"predictions": named})


@contextmanager
def place_of_vectors(out: Path) -> Iterator[Path]:
    """The file beside which vectors grow: OUT, or one that goes if nothing can be beside OUT."""
    if is_stream(out):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / out.name
    else:
        yield out.resolve()


def compared(
    args: argparse.Namespace, benchmarks: Sequence[Benchmark], beside: Path, scratch: list[Path]
) -> Iterator[tuple[Vectors, EncoderRecord]]:
    """The vectors of each pooling, or of the vector file.

    They grow in files beside `beside`; those to remove go into `scratch`.
    """
    from coder_jax.encoding.encoder_protocol import encoder_protocol
    from coder_jax.evaluation.vectors.encoded import vectors_of_terms
    from coder_jax.evaluation.vectors.tables import open_table
    from coder_jax.evaluation.vectors.vectors import TERMS, EncodedTerms
    from coder_jax.evaluation.vectors.words_and_concepts import vector_file_protocol
    from coder_jax.export.relations import read_relations
    from coder_jax.models.hf_files import find_folder

    if args.vectors_of:
        keyed_by = keys_of_vectors(args.vectors_of)
        keys = {key for benchmark in benchmarks for key in benchmark.keys(keyed_by)}
        table = open_table(args.model, args.vectors_of, keys)
        yield table, vector_file_protocol(table)
        return
    # Features are not of unit length, and are encoded where they are scored.
    encoded = [benchmark for benchmark in benchmarks if not benchmark.takes_features]
    strings = list(dict.fromkeys(chain.from_iterable(one.keys(TERMS) for one in encoded)))
    dictionaries = [one.dictionaries() for one in encoded]
    searched = [[term for one in many for term in one.terms] for many in dictionaries]
    folder = find_folder(args.model)
    related = any(benchmark.takes_relations for benchmark in benchmarks)
    relations = read_relations(folder) if related else None
    for pooling in dict.fromkeys(args.pooling or [None]):
        encoder = load_encoder(args, pooling)
        for one in {id(one): one for one in chain.from_iterable(dictionaries)}.values():
            warn_of_languages(encoder, one)
        protocol = encoder_protocol(encoder, args.model, encoder.weights_hash)
        terms = strings
        vectors: Rows = np.zeros((0, encoder.width), np.float32)
        if strings:
            kept = searched if args.cache else []
            terms, vectors = vectors_of_terms(encoder, strings, kept, beside, scratch)
        yield EncodedTerms(encoder, terms, vectors, relations), protocol


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the command line asks of the kinds of benchmarks."""
    return {name: getattr(args, name) for name in known.options_with({})}


def read_benchmarks(args: argparse.Namespace) -> list[Benchmark]:
    """The benchmarks of the command line, each with the dictionary that is meant for it."""
    from data_pipeline.dataset.dictionary import read_dictionary
    from data_pipeline.terminology.retired_cuis import choose_list, read_retired_cuis

    paths, dictionaries = paths_of(args.benchmark, args.dictionary)
    read = {
        path: read_dictionary(
            path, concepts_of=args.dictionary_concepts_of, **dictionary_choices(args)
        )
        for path in dict.fromkeys(dictionaries.values())
    }
    lists = {source: choose_list(args.retired_cuis, source) for source in (None, *read)}
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
                **options_of(args),
            )
        )
    return benchmarks
