"""Normalize mentions: for each, the concept whose nearest term in a dictionary is nearest.

Reads one mention per line from a file or stdin and prints tab-separated rows: mention, concept,
nearest term, cosine similarity; with -k above 1 also the rank, and k rows per mention. The
dictionary is a TSV file of term<TAB>CUI (a header is fine) or a dataset folder. The model is a
folder or a hub id: an export of ours, or any BERT or XLM-R of Hugging Face.

The dictionary is encoded at each call, unless --dictionary-vectors has its vectors: encode a large
one once, with the same model and settings. It may be larger than memory.

Examples:
  python -m coder_jax normalize --model runs/demo/export --dictionary terms.tsv mentions.txt
  echo "heart attack" | python -m coder_jax normalize --model runs/demo/export \\
      --dictionary terms.tsv -k 5
  python -m coder_jax encode --model coder_eng --dictionary datasets/umls_eng --out umls.npy
  python -m coder_jax normalize --model coder_eng --dictionary datasets/umls_eng \\
      --dictionary-vectors umls.npy mentions.txt
"""

from __future__ import annotations

import argparse
import contextlib
import io
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from coder_jax.commands.encoder_arguments import (
    TERMS_PER_CHUNK,
    add_dictionary_choices,
    add_model_arguments,
    dictionary_choices,
    load_encoder,
)
from coder_jax.encoding.term_lines import decode_line, read_some
from data_pipeline.files.bounds import LONGEST_LINE, bounded_lines, too_long
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import EncodedDictionary, TermEncoder
    from data_pipeline.dataset.dictionary import Dictionary

WHEN_ASKED_TO_STOP = "stopping after the rows that are printed"
WHEN_STOPPED = "stopped; the same command starts over"
MOST_K = 1000
MENTIONS_AT_A_TIME = 4096  # the dictionary is gone through once for so many


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
    add_dictionary_choices(parser, several_words=False)
    parser.add_argument(
        "--dictionary-vectors",
        type=Path,
        metavar="NPY",
        help="the vectors of the dictionary, from `python -m coder_jax encode --dictionary`",
    )
    parser.add_argument(
        "--retired-cuis",
        metavar="FILE",
        help="MRCUI.RRF, a dataset's retired_cuis.tsv, or a TSV file of old<TAB>new: CUIs of the "
        "dictionary are replaced by what they were merged into",
    )
    parser.add_argument(
        "-k", type=int, default=1, help="concepts to print for each mention (default: 1)"
    )
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from coder_jax.devices.place import alone
    from data_pipeline.dataset.dictionary import read_dictionary
    from data_pipeline.terminology.retired_cuis import read_retired_cuis

    alone("normalize")
    if not 1 <= args.k <= MOST_K:
        raise BadInput(f"-k is {args.k}; expected 1 to {MOST_K:,} concepts per mention")
    # Before the model: it fails sooner.
    dictionary = read_dictionary(args.dictionary, **dictionary_choices(args))
    if args.retired_cuis:
        dictionary = dictionary.with_successors(read_retired_cuis(args.retired_cuis))
    with open_mentions(args.mentions) as (stream, name):
        encoder = load_encoder(args, args.pooling)
        encoded = encode_dictionary(encoder, dictionary, args)
        with contextlib.suppress(BrokenPipeError):  # the reader, such as `head`, has what it wanted
            print_row("mention", "concept", "term", "similarity", *["rank"] * (args.k > 1))
            for mentions in read_mentions(stream, name):
                stopping.poll()
                ranked = encoder.normalize(mentions, encoded, args.k)
                for mention, matches in zip(mentions, ranked, strict=True):
                    for rank, match in enumerate(matches, start=1):
                        ranks = [str(rank)] if args.k > 1 else []
                        similarity = f"{match.similarity:.4f}"
                        print_row(mention, match.concept, match.term, similarity, *ranks)
                sys.stdout.flush()
    return 0


def encode_dictionary(
    encoder: TermEncoder, dictionary: Dictionary, args: argparse.Namespace
) -> EncodedDictionary:
    """The dictionary with its vectors: those of --dictionary-vectors, or made now."""
    from coder_jax.encoding.encoder import EncodedDictionary
    from coder_jax.encoding.encoder_protocol import hash_weights
    from coder_jax.encoding.term_lines import TermList
    from coder_jax.encoding.vector_file import read_vectors
    from coder_jax.models.hf_files import find_folder

    terms, concepts = dictionary.terms, dictionary.concepts
    if args.dictionary_vectors is None:
        return encoder.encode_dictionary((terms, concepts), progress=True)
    listed, weights_hash = TermList(terms, TERMS_PER_CHUNK), hash_weights(find_folder(args.model))
    vectors = read_vectors(args.dictionary_vectors, encoder, weights_hash, listed)
    return EncodedDictionary(terms, concepts, vectors)


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
    """Mentions some at a time; where the input pauses, those that have come are answered."""
    mentions: list[str] = []
    number = 0
    for line in read_lines(stream, name):
        if line is not None:
            number += 1
            mention = decode_line(line, name, number)
            if "\t" in mention:
                raise BadInput(
                    f"{name}:{number}: found a tab; expected one mention per line and nothing else "
                    "(cut -f1 keeps the first column)"
                )
            mentions.append(mention)
        if mentions and (line is None or len(mentions) == MENTIONS_AT_A_TIME):
            yield mentions
            mentions = []
    if mentions:
        yield mentions


def read_lines(stream: BinaryIO, name: str) -> Iterator[bytes | None]:
    """The lines of a stream, and None whenever the next one must be waited for.

    Raises:
        BadInput: a line is longer than any mention; `name` names the stream.
    """
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a stream in memory
        yield from bounded_lines(stream, name)
        return
    rest, number = b"", 1
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
        content = read_some(descriptor)
        if not content:
            break
        *lines, rest = (rest + content).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > LONGEST_LINE:
            raise too_long(name, number)
    if rest:
        yield rest


def print_row(*fields: str) -> None:
    print(*fields, sep="\t")
