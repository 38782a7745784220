"""Score an encoder on benchmarks: a table on stdout, all scores and the protocol as JSON.

The encoder is a folder or a hub id: an export of ours, or any BERT of Hugging Face; or, with
--vectors-of, a file of word vectors (a term is the mean of its words) or of concept vectors, keyed
by CUI. What has no vector is counted. A benchmark is

  mentions  a TSV file of mention<TAB>CUI (several gold CUIs joined with "|"), or the heldout/
            folder of a dataset. Looked up in --dictionary, or else in the dictionary.tsv beside it.
  folds     a folder as Cadec and PsyTar are distributed: folders with test.txt and standard.txt.
            standard.txt, the standard name of each concept, is the dictionary; the score is the
            mean over folds. Training halves are not read: normalization here is zero-shot.
  XL-BEL    its folder of files such as de_1k_test_query.txt, or one of them; searched in
            --dictionary. The score is the mean over languages.
  pairs     a TSV file of term1<TAB>term2<TAB>score, or the CSV files of UMNSRS and MayoSRS. Scored
            by Spearman's rank correlation of cosines and human scores.
  MANTRA    MANTRA GSC as a .zip, a folder or an XML file; searched in --dictionary. Scored by
            precision, recall and F1 of one CUI per mention.
  concepts  a dataset folder, or a TSV file with the header CUI, semantic types, term. Scored by
            MCSM: how many of a concept's nearest concepts are of its semantic type.
  relations a folder of DDBRC (x_train.txt, y_train.txt, x_test.txt, y_test.txt), or with
            relations_train.tsv and relations_test.tsv of head, tail, label. --dictionary names the
            concepts. Scored by the accuracy of a linear classifier of [head, tail].
  terms     a TSV file with the header term, or language and term, or paper:cross-lingual or
            paper:knowledge, the CODER paper's case studies: lists the nearest terms of
            --dictionary.

What a file is shows in its content. A benchmark that is called cadec, psytar, mantra, mcsm or ddbrc
gets the papers' own rows beside it, marked as published.

acc@k is the share of mentions whose gold concept is among the k concepts with the nearest terms.
Concepts that are equally near are counted as the mean over their orders. Mentions whose gold
concept has no term in the dictionary, also after merged CUIs have been replaced (--retired-cuis),
are unreachable: they count as wrong, and a second row has the scores of the others.

While terms are encoded, their vectors grow in files beside OUT; an evaluation that was stopped goes
on with them when the same command is given again. It runs on one host: of several, start it on one
alone, with JAX_NUM_PROCESSES=1.

Examples:
  python -m coder_jax evaluate --model runs/demo/export --json results.json \\
      --benchmark heldout=data/hpo/heldout cadec=benchmarks/cadec sim=benchmarks/umnsrs-sim.txt
  python -m coder_jax evaluate --model cambridgeltl/SapBERT-from-PubMedBERT-fulltext \\
      --pooling cls mean --benchmark fr=mentions_fr.tsv --dictionary data/umls \\
      --dictionary-languages ENG --json sapbert.json
  python -m coder_jax evaluate --model coder_all --json mantra.json --dictionary \\
      META/MRCONSO.RRF --dictionary-sources SNOMEDCT_US MSH MDR --benchmark mantra=Mantra-GSC.zip
  python -m coder_jax evaluate --model PubMed-w2v.bin --vectors-of words --json words.json \\
      --dictionary data/umls --benchmark mcsm=data/umls ddbrc=diseasedb/data cadec=benchmarks/cadec
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coder_jax.commands.encode import TERMS_PER_CHUNK, add_model_arguments, load_encoder
from data_pipeline.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.benchmarks import Benchmark
    from coder_jax.evaluation.protocol import EncoderRecord
    from coder_jax.evaluation.vectors import Vectors

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
        help="terms to search, and names of concepts: a TSV file of term<TAB>CUI, a dataset folder "
        "or the MRCONSO.RRF of a release; for one benchmark (NAME=PATH) or for all that bring none",
    )
    parser.add_argument(
        "--dictionary-languages",
        nargs="+",
        metavar="LANGUAGE",
        help="of a dataset or release, search the terms in these languages only (such as ENG)",
    )
    parser.add_argument(
        "--dictionary-sources",
        nargs="+",
        metavar="SAB",
        help="of a release, search the terms of these vocabularies only (such as SNOMEDCT_US)",
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
        "--vectors-of",
        choices=("words", "concepts"),
        help="what --model, a file of vectors in word2vec's formats or cui2vec's, has vectors of",
    )
    parser.add_argument(
        "--k", nargs="+", type=int, default=[1, 3, 5], help="the k of acc@k (default: 1 3 5)"
    )
    parser.add_argument(
        "--types",
        nargs="+",
        default=[],
        metavar="TYPE",
        help="concepts: semantic types to evaluate, such as Finding (default: the six "
        "of the CODER papers)",
    )
    parser.add_argument(
        "--neighbours",
        type=int,
        default=40,
        help="concepts: how many are looked at around each (default: 40, the papers')",
    )
    parser.add_argument(
        "--only-these-types",
        action="store_true",
        help="concepts: neighbours come from the evaluated types only, as in CODER's released code",
    )
    parser.add_argument(
        "--sample",
        type=int,
        metavar="CONCEPTS",
        help="concepts: score so many of each type, drawn at random (default: all)",
    )
    parser.add_argument(
        "--features",
        choices=("frozen", "fine-tuned"),
        default="frozen",
        help="relations: classify fixed vectors, or train the encoder along (default: frozen)",
    )
    parser.add_argument(
        "--epochs", type=int, default=50, help="relations: of training (default: 50, the papers')"
    )
    parser.add_argument(
        "--nearest", type=int, default=5, help="terms: how many are listed for each (default: 5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument(
        "--json", type=Path, required=True, metavar="OUT", help="file for scores and protocol"
    )


def run(args: argparse.Namespace) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.evaluation.protocol import write_records
    from coder_jax.evaluation.score import ScoreSettings, score
    from coder_jax.evaluation.table import print_records
    from coder_jax.host_place import alone

    alone("evaluate")
    check(args)
    names = ("neighbours", "only_these_types", "sample", "features", "epochs", "nearest", "seed")
    settings = ScoreSettings(ks=args.k, **{name: getattr(args, name) for name in names})
    benchmarks = read_benchmarks(args)
    records = []
    scratch: list[Path] = []
    for vectors, protocol in compared(args, benchmarks, scratch):
        records += [score(benchmark, vectors, protocol, settings) for benchmark in benchmarks]
    write_records(args.json, records)
    for path in scratch:
        path.unlink()
    print_records(records, args.k)
    print(f"\nscores and protocol: {args.json}")
    return 0


def check(args: argparse.Namespace) -> None:
    """BadInput for values that no evaluation can use."""
    for option, least in (
        ("--k", min(args.k)),
        ("--neighbours", args.neighbours),
        ("--nearest", args.nearest),
        ("--epochs", args.epochs),
        ("--sample", 1 if args.sample is None else args.sample),
    ):
        if least < 1:
            raise BadInput(f"{option}: found {least}; expected 1 or more")
    if not args.json.parent.is_dir():
        raise BadInput(f"--json: there is no folder {args.json.parent}; make it first")
    is_file = Path(args.model).is_file()
    if is_file and not args.vectors_of:
        raise BadInput(
            f"--model: found the file {args.model}; expected a model folder or hub id, or, for a "
            "file of vectors, --vectors-of words or --vectors-of concepts beside it"
        )
    if args.vectors_of and not is_file:
        raise BadInput(
            f"--model: found {args.model}, which is no file; expected a file of vectors for "
            f"--vectors-of {args.vectors_of}"
        )


def compared(
    args: argparse.Namespace, benchmarks: Sequence[Benchmark], scratch: list[Path]
) -> Iterator[tuple[Vectors, EncoderRecord]]:
    """The vectors of each pooling, or of the vector file; files to remove go into `scratch`."""
    from coder_jax.evaluation.protocol import encoder_protocol, hash_weights
    from coder_jax.evaluation.score import keys_of
    from coder_jax.evaluation.vector_files import KINDS, read_vector_file, vector_file_protocol
    from coder_jax.evaluation.vectors import EncodedTerms
    from coder_jax.hf_files import find_folder
    from coder_jax.term_lines import TermList
    from coder_jax.vector_file import about_file, about_vectors, write_vectors

    if args.vectors_of:
        kind = KINDS[args.vectors_of]
        keys = {key for benchmark in benchmarks for key in keys_of(benchmark, kind.keyed_by)}
        table = kind(read_vector_file(args.model, kind.keys_of(keys)))
        yield table, vector_file_protocol(table)
        return
    strings = list(dict.fromkeys(s for benchmark in benchmarks for s in benchmark.strings()))
    folder = find_folder(args.model)
    weights_hash = hash_weights(folder)
    for pooling in dict.fromkeys(args.pooling or [None]):
        encoder = load_encoder(args, pooling)
        protocol = encoder_protocol(encoder, args.model, weights_hash)
        vectors = np.zeros((0, encoder.bert.config.hidden_size), np.float32)
        if strings:
            terms = TermList(strings, TERMS_PER_CHUNK)
            about = about_vectors(encoder, args.model, weights_hash, terms, "float32")
            path = args.json.with_name(f".{args.json.name}.{protocol.pooling}.npy")
            scratch += [path, about_file(path)]
            write_vectors(encoder, terms, path, about)
            vectors = np.load(path, mmap_mode="r")
        yield EncodedTerms(encoder, strings, vectors), protocol


def read_benchmarks(args: argparse.Namespace) -> list[Benchmark]:
    """The benchmarks of the command line, each with the dictionary that is meant for it."""
    from coder_jax.evaluation.benchmarks import has_dictionary, read_benchmark
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
        path: read_dictionary(path, args.dictionary_languages, args.dictionary_sources)
        for path in dict.fromkeys(dictionaries.values())
    }
    lists = {source: choose_list(args.retired_cuis, source) for source in (None, *read)}
    retired = {path: read_retired_cuis(path) for path in set(lists.values()) if path}
    benchmarks = []
    for name, path in paths.items():
        for_all = None if has_dictionary(Path(path)) else dictionaries.get("")
        source = dictionaries.get(name, for_all)
        merges = lists[source]
        benchmarks.append(
            read_benchmark(
                name,
                path,
                dictionary=read[source] if source else None,
                retired_cuis=retired[merges] if merges else None,
                types=args.types,
            )
        )
    return benchmarks
