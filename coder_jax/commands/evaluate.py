"""Score an encoder on benchmarks: a table on stdout, all scores and the protocol as JSON.

The encoder is a folder or a hub id: an export of ours, or any BERT of Hugging Face. A benchmark is

  mentions  a TSV file of mention<TAB>CUI (several gold CUIs joined with "|"), or the heldout/
            folder of a dataset. Looked up in --dictionary, or else in the dictionary.tsv beside it.
  folds     a folder as Cadec and PsyTar are distributed: folders with test.txt and standard.txt.
            standard.txt, the standard name of each concept, is the dictionary; the score is the
            mean over folds. Training halves are not read: normalization here is zero-shot.
  pairs     a TSV file of term1<TAB>term2<TAB>score, or the CSV files of UMNSRS. Scored by
            Spearman's rank correlation of cosines and human scores.

What a file is shows in its content. acc@k is the share of mentions whose gold concept is among the
k concepts with the nearest terms. Concepts that are equally near are counted as the mean over their
orders. Mentions whose gold concept has no term in the dictionary, also after merged CUIs have been
replaced (--retired-cuis), are unreachable: they count as wrong, and a second row has the scores of
the others.

While terms are encoded, their vectors grow in files beside OUT; an evaluation that was stopped goes
on with them when the same command is given again. It runs on one host: of several, start it on one
alone, with JAX_NUM_PROCESSES=1.

Examples:
  python -m coder_jax evaluate --model runs/demo/export --json results.json \\
      --benchmark heldout=data/hpo/heldout cadec=benchmarks/cadec sim=benchmarks/umnsrs-sim.txt
  python -m coder_jax evaluate --model cambridgeltl/SapBERT-from-PubMedBERT-fulltext \\
      --pooling cls mean --benchmark fr=mentions_fr.tsv --dictionary data/umls \\
      --dictionary-languages ENG --json sapbert.json
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coder_jax.commands.encode import TERMS_PER_CHUNK, add_model_arguments, load_encoder
from data_pipeline.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.benchmarks import NormalizationBenchmark, SimilarityBenchmark
    from coder_jax.evaluation.protocol import EncoderProtocol, EvaluationRecord

WHEN_ASKED_TO_STOP = "stopping; finished vectors are kept"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--benchmark",
        required=True,
        action="extend",
        nargs="+",
        metavar="NAME=PATH",
        help="what to score it on; NAME is yours to choose",
    )
    parser.add_argument(
        "--dictionary",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]PATH",
        help="terms to search: a TSV file of term<TAB>CUI or a dataset folder; for one benchmark "
        "(NAME=PATH) or for all mentions files",
    )
    parser.add_argument(
        "--dictionary-languages",
        nargs="+",
        metavar="LANGUAGE",
        help="of a dataset folder, search the terms in these languages only (such as ENG)",
    )
    parser.add_argument(
        "--retired-cuis",
        metavar="FILE",
        help="MRCUI.RRF, a dataset's retired_cuis.tsv, or a TSV file of old<TAB>new: CUIs of gold "
        "and dictionary count as what they were merged into (default: the list of the dictionary, "
        "where it is a dataset folder; none: no list)",
    )
    add_model_arguments(parser, several_poolings=True)
    parser.add_argument(
        "--k", nargs="+", type=int, default=[1, 3, 5], help="the k of acc@k (default: 1 3 5)"
    )
    parser.add_argument(
        "--json", type=Path, required=True, metavar="OUT", help="file for scores and protocol"
    )


def run(args: argparse.Namespace) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.evaluation.protocol import encoder_protocol, hash_weights, write_records
    from coder_jax.evaluation.table import print_records
    from coder_jax.hf_files import find_folder
    from coder_jax.host_place import find_place
    from coder_jax.term_lines import TermList
    from coder_jax.vector_file import about_file, about_vectors, write_vectors

    place = find_place(os.environ)
    if place is not None:
        raise BadInput(
            f"found {place.count} processes, of which this is number {place.index}; evaluate runs "
            "on one host: start it once, with JAX_NUM_PROCESSES=1"
        )
    if min(args.k) < 1:
        raise BadInput(f"--k: found {min(args.k)}; expected 1 or more")
    if not args.json.parent.is_dir():
        raise BadInput(f"--json: there is no folder {args.json.parent}; make it first")
    benchmarks = read_benchmarks(args)
    strings = list(dict.fromkeys(s for benchmark in benchmarks for s in benchmark.strings()))
    folder = find_folder(args.model)
    weights_hash = hash_weights(folder)
    records, scratch = [], []
    for pooling in dict.fromkeys(args.pooling or [None]):
        encoder = load_encoder(args, pooling)
        protocol = encoder_protocol(encoder, args.model, weights_hash)
        terms = TermList(strings, TERMS_PER_CHUNK)
        about = about_vectors(encoder, args.model, weights_hash, terms, "float32")
        scratch.append(args.json.with_name(f".{args.json.name}.{protocol.pooling}.npy"))
        write_vectors(encoder, terms, scratch[-1], about)
        encode = lookup(strings, np.load(scratch[-1], mmap_mode="r"))
        records += [score(benchmark, encode, protocol, args.k) for benchmark in benchmarks]
    write_records(args.json, records)
    for path in scratch:
        path.unlink()
        about_file(path).unlink()
    print_records(records, args.k)
    print(f"\nscores and protocol: {args.json}")
    return 0


def read_benchmarks(
    args: argparse.Namespace,
) -> list[NormalizationBenchmark | SimilarityBenchmark]:
    """The benchmarks of the command line, each with the dictionary that is meant for it."""
    from coder_jax.evaluation.benchmarks import read_benchmark
    from coder_jax.evaluation.dictionary import read_dictionary
    from coder_jax.evaluation.retired_cuis import choose_list, read_retired_cuis

    paths: dict[str, str] = {}
    for argument in args.benchmark:
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
    dictionaries: dict[str, str] = {}  # "": for all mentions files
    for argument in args.dictionary:
        name, equals, path = argument.partition("=")
        name, path = (name, path) if equals and name in paths else ("", argument)
        if name in dictionaries:
            raise BadInput(
                f"--dictionary: found {dictionaries[name]!r} and {path!r} for "
                f"{name or 'all benchmarks'}; expected one"
            )
        dictionaries[name] = path
    read = {
        path: read_dictionary(path, args.dictionary_languages)
        for path in dict.fromkeys(dictionaries.values())
    }
    lists = {source: choose_list(args.retired_cuis, source) for source in (None, *read)}
    retired = {path: read_retired_cuis(path) for path in set(lists.values()) if path}
    benchmarks = []
    for name, path in paths.items():
        # Folders bring their own dictionary, unless one is given for them by name.
        for_all = None if Path(path).is_dir() else dictionaries.get("")
        source = dictionaries.get(name, for_all)
        merges = lists[source]
        benchmarks.append(
            read_benchmark(
                name,
                path,
                dictionary=read[source] if source else None,
                retired_cuis=retired[merges] if merges else None,
            )
        )
    return benchmarks


def lookup(strings: Sequence[str], vectors: np.ndarray) -> Callable[[list[str]], np.ndarray]:
    """An `encode` that looks vectors up: benchmarks may share a large dictionary."""
    row_of = {string: row for row, string in enumerate(strings)}
    return lambda wanted: vectors[[row_of[string] for string in wanted]]


def score(
    benchmark: NormalizationBenchmark | SimilarityBenchmark,
    encode: Callable[[list[str]], np.ndarray],
    protocol: EncoderProtocol,
    ks: Sequence[int],
) -> EvaluationRecord:
    """The record of one benchmark, of either kind."""
    from coder_jax.evaluation.benchmarks import SimilarityBenchmark
    from coder_jax.evaluation.normalization import evaluate_normalization
    from coder_jax.evaluation.protocol import normalization_record, similarity_record
    from coder_jax.evaluation.similarity import evaluate_similarity

    if isinstance(benchmark, SimilarityBenchmark):
        return similarity_record(benchmark, evaluate_similarity(encode, benchmark), protocol)
    result = evaluate_normalization(encode, benchmark, ks=ks)
    return normalization_record(benchmark, result, protocol)
