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
orders; mentions whose gold concept is not in the dictionary count as wrong.

Examples:
  python -m coder_jax evaluate --model runs/demo/export --json results.json \\
      --benchmark heldout=data/hpo/heldout cadec=benchmarks/cadec sim=benchmarks/umnsrs-sim.txt
  python -m coder_jax evaluate --model cambridgeltl/SapBERT-from-PubMedBERT-fulltext \\
      --pooling cls mean --benchmark fr=mentions_fr.tsv --dictionary data/umls \\
      --dictionary-languages ENG --json sapbert.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coder_jax.bert_config import POOLINGS
from data_pipeline.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.benchmarks import NormalizationBenchmark, SimilarityBenchmark
    from coder_jax.evaluation.protocol import EncoderProtocol, EvaluationRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, metavar="FOLDER_OR_HUB_ID", help="the encoder to score"
    )
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
        metavar="TSV",
        help="a dataset's retired_cuis.tsv, or old<TAB>new: gold CUIs that were retired count as "
        "the CUI that replaced them",
    )
    parser.add_argument(
        "--pooling",
        nargs="+",
        choices=POOLINGS,
        help="score with each of these (default: the model's own, or cls)",
    )
    parser.add_argument(
        "--cleaning",
        metavar="RULES",
        help="rules that terms and mentions go through first: none or paper (default: the model's)",
    )
    parser.add_argument(
        "--max-length", type=int, metavar="TOKENS", help="cut longer terms (default: the model's)"
    )
    parser.add_argument(
        "--attend-padding",
        action="store_true",
        default=None,
        help="as the published CODER checkpoints were evaluated; use with --pooling pooler",
    )
    parser.add_argument(
        "--k", nargs="+", type=int, default=[1, 3, 5], help="the k of acc@k (default: 1 3 5)"
    )
    parser.add_argument(
        "--json", type=Path, required=True, metavar="OUT", help="file for scores and protocol"
    )


def run(args: argparse.Namespace) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.encoder import TermEncoder
    from coder_jax.evaluation.protocol import encoder_protocol, hash_weights, write_records
    from coder_jax.hf_files import find_folder

    if min(args.k) < 1:
        raise BadInput(f"--k: found {min(args.k)}; expected 1 or more")
    if not args.json.parent.is_dir():
        raise BadInput(f"--json: there is no folder {args.json.parent}; make it first")
    benchmarks = read_benchmarks(args)
    strings = list(dict.fromkeys(s for benchmark in benchmarks for s in benchmark.strings()))
    folder = find_folder(args.model)
    weights_hash = hash_weights(folder)
    records = []
    for pooling in dict.fromkeys(args.pooling or [None]):
        encoder = TermEncoder.from_pretrained(
            folder,
            pooling=pooling,
            cleaning=args.cleaning,
            max_length=args.max_length,
            attend_padding=args.attend_padding,
        )
        protocol = encoder_protocol(encoder, args.model, weights_hash)
        encode = lookup(strings, encoder.encode(strings, progress=True))
        records += [score(benchmark, encode, protocol, args.k) for benchmark in benchmarks]
    write_records(args.json, records)
    print_records(records, args.k)
    print(f"\nscores and protocol: {args.json}")
    return 0


def read_benchmarks(
    args: argparse.Namespace,
) -> list[NormalizationBenchmark | SimilarityBenchmark]:
    """The benchmarks of the command line, each with the dictionary that is meant for it."""
    from coder_jax.evaluation.benchmarks import read_benchmark
    from coder_jax.evaluation.dictionary import read_dictionary
    from coder_jax.evaluation.retired_cuis import read_retired_cuis

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
    retired = read_retired_cuis(args.retired_cuis) if args.retired_cuis else None
    benchmarks = []
    for name, path in paths.items():
        # Folders bring their own dictionary, unless one is given for them by name.
        for_all = None if Path(path).is_dir() else dictionaries.get("")
        source = dictionaries.get(name, for_all)
        dictionary = read[source] if source else None
        benchmarks.append(read_benchmark(name, path, dictionary=dictionary, retired_cuis=retired))
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


def print_records(records: Sequence[EvaluationRecord], ks: Sequence[int]) -> None:
    """Prints a table for normalization and one for similarity: benchmarks x poolings."""
    normalization = [record for record in records if record.kind == "normalization"]
    if normalization:
        header = ["normalization", "pooling", "mentions", "terms", "concepts"]
        header += [f"acc@{k}" for k in ks] + ["MRR", "unreachable", "tied", f"acc@{ks[0]} by ties"]
        rows = []
        for record in normalization:
            scores, counts, dictionary = record.scores, record.counts, record.dictionary or {}
            numbers = (counts["mentions"], dictionary["terms"], dictionary["concepts"])
            ends = (scores[f"acc@{ks[0]}_{end}"] for end in ("pessimistic", "optimistic"))
            rows.append(
                [record.benchmark, record.encoder.pooling]
                + [f"{number:,}" for number in numbers]
                + [percent(scores[name]) for name in (*(f"acc@{k}" for k in ks), "mrr")]
                + [f"{counts['unreachable']:,}", f"{counts['tied']:,}"]
                + ["-".join(percent(end) for end in ends)]
            )
        print_table(header, rows)
    similarity = [record for record in records if record.kind == "similarity"]
    if normalization and similarity:
        print()
    if similarity:
        rows = []
        for record in similarity:
            rho = record.scores["spearman"]
            shown = "undefined (all cosines are equal)" if rho is None else f"{rho:.4f}"
            rows.append(
                [record.benchmark, record.encoder.pooling, f"{record.counts['pairs']:,}", shown]
            )
        print_table(["similarity", "pooling", "pairs", "Spearman"], rows)


def percent(share: float | None) -> str:
    return "undefined" if share is None else f"{100 * share:.2f}"


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Prints columns as wide as their longest cell: the first two left, numbers right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for cells in (header, ["-" * width for width in widths], *rows):
        line = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        print("  ".join(line).rstrip())
