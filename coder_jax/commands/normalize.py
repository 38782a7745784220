"""Normalize mentions: for each, the concept whose nearest term in a dictionary is nearest.

Reads one mention per line from a file or stdin and prints tab-separated rows: mention, concept,
nearest term, cosine similarity; with -k above 1 also the rank, and k rows per mention. The
dictionary is a TSV file of term<TAB>CUI (a header is fine) or a dataset folder. The model is a
folder or a hub id: an export of ours, or any BERT of Hugging Face.

Examples:
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv mentions.txt
  echo "heart attack" | python -m coder_jax normalize --model runs/demo/export \\
      --dictionary terms.tsv -k 5
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from coder_jax.commands.encode import add_model_arguments, decode_line, load_encoder
from data_pipeline.errors import BadInput

MENTIONS_AT_A_TIME = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "mentions", nargs="?", default="-", help="text file, one per line; - is stdin (default)"
    )
    parser.add_argument(
        "--dictionary",
        required=True,
        metavar="PATH",
        help="terms to search: a TSV file of term<TAB>CUI, or a dataset folder",
    )
    parser.add_argument(
        "-k", type=int, default=1, help="concepts to print for each mention (default: 1)"
    )
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from coder_jax.evaluation.dictionary import read_dictionary

    if args.k < 1:
        raise BadInput(f"-k is {args.k}; expected at least 1 concept per mention")
    dictionary = read_dictionary(args.dictionary)  # before the model: it fails sooner
    with open_mentions(args.mentions) as (stream, name):
        encoder = load_encoder(args)
        encoded = encoder.encode_dictionary((dictionary.terms, dictionary.concepts), progress=True)
        try:
            print_row("mention", "concept", "term", "similarity", *["rank"] * (args.k > 1))
            for mentions in read_mentions(stream, name):
                ranked = encoder.normalize(mentions, encoded, args.k)
                for mention, matches in zip(mentions, ranked, strict=True):
                    for rank, match in enumerate(matches, start=1):
                        ranks = [str(rank)] if args.k > 1 else []
                        similarity = f"{match.similarity:.4f}"
                        print_row(mention, match.concept, match.term, similarity, *ranks)
                sys.stdout.flush()
        except BrokenPipeError:
            # The reader, such as `head`, has what it wanted. Python would complain at exit again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


@contextlib.contextmanager
def open_mentions(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """(binary stream, its name for messages) of a file, or of stdin where `path` is '-'."""
    if path == "-":
        yield sys.stdin.buffer, "stdin"
        return
    try:
        stream = Path(path).open("rb")
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give a text file") from error
    with stream:
        yield stream, path


def read_mentions(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """Mentions as they come, some at a time; a terminal is answered line by line."""
    most = 1 if stream.isatty() else MENTIONS_AT_A_TIME
    mentions: list[str] = []
    for number, line in enumerate(stream, start=1):
        mention = decode_line(line, name, number)
        if "\t" in mention:
            raise BadInput(
                f"{name}:{number}: found a tab; expected one mention per line and nothing else "
                "(cut -f1 keeps the first column)"
            )
        mentions.append(mention)
        if len(mentions) == most:
            yield mentions
            mentions = []
    if mentions:
        yield mentions


def print_row(*fields: str) -> None:
    print(*fields, sep="\t")
