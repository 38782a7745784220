"""The arguments of `python -m coder_jax evaluate`, in groups, and what they must be."""

from __future__ import annotations

import argparse
from pathlib import Path

from coder_jax.commands.encoder_arguments import add_dictionary_choices, add_model_arguments
from data_pipeline.process.errors import BadInput


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
        "--json", type=Path, required=True, metavar="OUT", help="file for scores and protocol"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    add_encoder(parser.add_argument_group("encoder"))
    add_dictionary(parser.add_argument_group("dictionary"))
    add_measures(parser.add_argument_group("mentions and terms"))
    add_concepts(parser.add_argument_group("concepts"))
    add_relations(parser.add_argument_group("relations"))


def add_encoder(group: argparse._ArgumentGroup) -> None:
    add_model_arguments(group, several_poolings=True)
    group.add_argument(
        "--vectors-of",
        choices=("words", "concepts"),
        help="what --model, a file of vectors in word2vec's formats or cui2vec's, has vectors of",
    )


def add_dictionary(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dictionary",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]PATH",
        help="terms to search, and names of concepts: a TSV file of term<TAB>CUI, a dataset folder "
        "or the MRCONSO.RRF of a release; for one benchmark (NAME=PATH) or for all that bring none",
    )
    add_dictionary_choices(group)
    group.add_argument(
        "--dictionary-concepts-of",
        nargs="+",
        metavar="SAB",
        help="of a dataset or release, take all terms of the concepts that these vocabularies have "
        "(such as ICD9CM, for the papers' case studies)",
    )
    group.add_argument(
        "--retired-cuis",
        metavar="FILE",
        help="MRCUI.RRF, a dataset's retired_cuis.tsv, or a TSV file of old<TAB>new: CUIs of gold "
        "and dictionary count as what they were merged into; where pairs and concepts have one "
        "without a concept vector, that of what it was merged into is taken (default: the list of "
        "the dictionary, where it is a dataset folder; none: no list)",
    )


def add_measures(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--k", nargs="+", type=int, default=[1, 3, 5], help="the k of acc@k (default: 1 3 5)"
    )
    group.add_argument(
        "--nearest", type=int, default=5, help="terms: how many are listed for each (default: 5)"
    )


def add_concepts(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--types",
        nargs="+",
        default=[],
        metavar="TYPE",
        help="semantic types to evaluate, such as Finding (default: the six of the CODER papers)",
    )
    group.add_argument(
        "--neighbours",
        type=int,
        default=40,
        help="how many are looked at around each (default: 40, the papers')",
    )
    group.add_argument(
        "--only-these-types",
        action="store_true",
        help="neighbours come from the evaluated types only, as in CODER's released code",
    )
    group.add_argument(
        "--sample",
        type=int,
        metavar="CONCEPTS",
        help="score so many of each type, drawn at random (default: all)",
    )


def add_relations(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--features",
        choices=("frozen", "fine-tuned"),
        default="frozen",
        help="classify fixed vectors, or train them along: the encoder, or the vectors of words or "
        "concepts (default: frozen)",
    )
    group.add_argument(
        "--epochs", type=int, default=50, help="of training (default: 50, the papers')"
    )


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
    if args.seed < 0:
        raise BadInput(f"--seed: found {args.seed}; expected 0 or more")
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
