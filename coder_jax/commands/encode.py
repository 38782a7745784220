"""Encode terms, one per line, into a NumPy file of unit vectors.

Row i of the vectors belongs to line i of the terms, or with --dictionary to its i-th term; an empty
line is an empty term. The terms of a dictionary are cleaned as `normalize` does, not as the model
would. The model is a folder or a hub id: an export of ours, or any BERT, XLM-R or ModernBERT of
Hugging Face.

OUT is a .npy file, float32 [n, D] or float16; OUT.json beside it says what the vectors are made of.
There may be any number of terms: chunks of vectors are written to the folder OUT.partial as they
are ready. A run that was stopped or killed goes on from there when the same command is given again.
Several hosts that are started together each encode their share; they need one folder for OUT that
all of them see.

Examples:
  python -m coder_jax encode --model runs/demo/export --out vectors.npy terms.txt
  cut -f1 dictionary.tsv | python -m coder_jax encode --model runs/demo/export --out vectors.npy
  python -m coder_jax encode --model mine --out umls.npy --storage float16 \\
      --dictionary datasets/umls_eng
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

from coder_jax.commands.arguments import (
    MODEL,
    DictionaryOptions,
    EncodingOptions,
    Pooling,
    load_encoder,
)
from coder_jax.encoding.vector_files import TERMS_PER_CHUNK, read_some
from data_pipeline import process
from data_pipeline.files.buckets import check_output
from data_pipeline.files.whole import is_stream
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, tell
from data_pipeline.terminology.cleaning import lookup_rules

if TYPE_CHECKING:
    from coder_jax.encoding.vector_files import Terms

COMMON = (
    *("--model", "--out", "--dictionary", "--dictionary-languages", "--storage", "--pooling"),
    *("--max-length", "--dtype"),
)
ON_ALL_HOSTS = True
WHEN_ASKED_TO_STOP = "stopping; finished chunks are kept"


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(DictionaryOptions, EncodingOptions):
    """The options of `encode`."""

    terms: Annotated[
        str | None, Flag("text file with one term per line (default: stdin)", name="")
    ] = None
    model: Annotated[
        str, Flag("the encoder: a folder, such as an export, or a hub id", MODEL, heading="encoder")
    ]
    pooling: Pooling = None
    dictionary: Annotated[
        str | None,
        Flag(
            "in place of TERMS: all terms of a dictionary, given as for `normalize`; of a dataset "
            "the strings as its source writes them. For `normalize --dictionary-vectors` and "
            "`train --teacher`",
            "PATH",
            heading="dictionary",
        ),
    ] = None
    out: Annotated[Path, Flag("the .npy file to write", "FILE", heading="options")]
    storage: Annotated[
        Literal["float32", "float16"],
        Flag("precision of the file (float16: half the size, and cosines are good to 1e-3)"),
    ] = "float32"
    terms_per_chunk: Annotated[
        int,
        Flag(
            "terms that are encoded and written at a time; a kill may lose so many",
            "TERMS",
            least=1,
        ),
    ] = TERMS_PER_CHUNK


OPTIONS = EncodeOptions


def run(options: EncodeOptions) -> int:
    # Imported here, as they import jax: `--help` stays quick.
    from coder_jax.devices.hosts import is_first
    from coder_jax.encoding.vector_files import about_vectors, write_vectors

    if options.out.suffix != ".npy":
        raise BadInput(f"--out is {options.out}; expected a name that ends in .npy")
    check_output(options.out, "--out", "vectors.npy")
    if is_stream(options.out):  # the vectors are written piece by piece beside the file they become
        raise BadInput(f"--out: {options.out} is a device or a pipe; expected a .npy file")
    if options.dictionary and options.terms:
        raise BadInput(f"found {options.terms} and --dictionary; expected one of them")
    options.check_choices(options.dictionary)
    with _open_terms(options) as (terms, cleaning):
        encoder = load_encoder(options.model, options.pooling, replace(options, cleaning=cleaning))
        about = about_vectors(
            encoder, options.model, str(encoder.weights_hash), terms, options.storage
        )
        wrote = write_vectors(encoder, terms, options.out, about)
    if is_first():
        width = about.vectors.width
        before = "" if wrote else ", as they were"
        tell(f"{options.out}: {terms.count:,} vectors of width {width}{before}")
    return 0


@contextmanager
def _open_terms(options: EncodeOptions) -> Iterator[tuple[Terms, str | None]]:
    """The terms of the command line (lines of a file or of stdin, or a dictionary's), and the rules
    by which they are cleaned; None: the model's."""
    from coder_jax.devices.hosts import host_count
    from coder_jax.encoding.vector_files import TermLines, TermList
    from data_pipeline.dataset.dictionary import read_dictionary

    size = options.terms_per_chunk
    if options.dictionary:
        # As `normalize` reads and cleans it, which takes the vectors.
        dictionary = read_dictionary(options.dictionary, **options.choices(), raw=True)
        cleaning = options.cleaning or lookup_rules(dictionary.terms)
        yield TermList(dictionary.terms, size), cleaning
    elif options.terms in (None, "-"):
        if host_count() > 1:
            raise BadInput("found stdin as the terms of several hosts; give a file that all see")
        # A file without a name: nothing of it stays, however this process ends.
        with tempfile.TemporaryFile(dir=options.out.absolute().parent) as spooled:
            _copy_stdin(spooled)
            yield TermLines(spooled, "stdin", size), options.cleaning
    else:
        try:
            file = Path(options.terms).open("rb")
        except OSError as error:
            raise BadInput(
                f"{options.terms} cannot be read ({error.strerror}); give a text file"
            ) from error
        with file:
            yield TermLines(file, options.terms, size), options.cleaning


def _copy_stdin(file: BinaryIO) -> None:
    """Writes stdin to a file, to its end; Stopped if a signal asks for it before."""
    stream = sys.stdin.buffer
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a stream in memory
        file.write(stream.read())
        return
    while content := read_some(descriptor):
        process.poll()
        file.write(content)
