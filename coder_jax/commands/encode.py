"""Encode terms: one per line in, a NumPy file of unit vectors out.

Row i of the vectors belongs to line i of the terms; an empty line is an empty term. OUT ends in
.npy for the vectors alone, float32 [n, D], or in .npz for `vectors` and `terms` together. The
model is a folder or a hub id: an export of ours, or any BERT of Hugging Face.

Examples:
  python -m coder_jax encode --model runs/demo/export --out vectors.npy terms.txt
  cut -f1 dictionary.tsv | python -m coder_jax encode --model runs/demo/export --out terms.npz
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from coder_jax.bert_config import POOLINGS
from data_pipeline.errors import BadInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "terms", nargs="?", default="-", help="text file, one term per line; - is stdin (default)"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="file to write: .npy or .npz"
    )
    add_model_arguments(parser)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose an encoder."""
    parser.add_argument(
        "--model", required=True, metavar="FOLDER_OR_HUB_ID", help="the encoder to use"
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="how a term becomes a vector (default: the model's own, or cls)",
    )
    parser.add_argument(
        "--cleaning",
        metavar="RULES",
        help="rules that terms go through first: none or paper (default: the model's)",
    )
    parser.add_argument(
        "--max-length", type=int, metavar="TOKENS", help="cut longer terms (default: the model's)"
    )
    parser.add_argument(
        "--attend-padding",
        action="store_true",
        default=None,
        help="as the published CODER checkpoints were trained; use with --pooling pooler",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="arithmetic of the encoder (default: float32)",
    )


def load_encoder(args: argparse.Namespace):
    """The encoder of the arguments of `add_model_arguments`; what was loaded goes to stderr."""
    # Imported here, as it imports jax: `--help` stays quick.
    from coder_jax.encoder import TermEncoder

    encoder = TermEncoder.from_pretrained(
        args.model,
        args.pooling,
        cleaning=args.cleaning,
        max_length=args.max_length,
        attend_padding=args.attend_padding,
        dtype=args.dtype,
    )
    print(encoder.report, encoder.settings, sep="\n", file=sys.stderr)
    return encoder


def run(args: argparse.Namespace) -> int:
    if args.out.suffix not in (".npy", ".npz"):
        raise BadInput(f"--out is {args.out}; expected a name that ends in .npy or .npz")
    if not args.out.absolute().parent.is_dir():
        raise BadInput(f"--out: there is no folder {args.out.parent}; make it first")
    terms = read_terms(args.terms)
    vectors = load_encoder(args).encode(terms, progress=True)
    write_vectors(args.out, terms, vectors)
    print(f"{args.out}: {len(vectors):,} vectors of width {vectors.shape[1]}", file=sys.stderr)
    return 0


def read_terms(path: str) -> list[str]:
    """The lines of a UTF-8 file, or of stdin where `path` is '-'."""
    if path == "-":
        content = sys.stdin.buffer.read()
    else:
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise BadInput(f"{path} cannot be read ({error.strerror}); give a text file") from error
    lines = content.split(b"\n")
    if lines[-1] == b"":  # what follows the last newline is no line
        lines.pop()
    name = "stdin" if path == "-" else path
    return [decode_line(line, name, number) for number, line in enumerate(lines, start=1)]


def decode_line(line: bytes, name: str, number: int) -> str:
    """The text of a line of UTF-8; a byte order mark and a carriage return are dropped."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name}:{number}: found byte 0x{line[error.start]:02x}, which is not UTF-8; convert "
            "the file to UTF-8 first"
        ) from error
    return text.rstrip("\r\n")


def write_vectors(out: Path, terms: list[str], vectors) -> None:
    """Writes .npy or .npz under another name first, so that no broken file stays behind."""
    import numpy as np

    partial = out.with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            if out.suffix == ".npy":
                np.save(file, vectors)
            else:
                np.savez(file, vectors=vectors, terms=np.array(terms, dtype=np.str_))
        os.replace(partial, out)
    except OSError as error:
        raise BadInput(f"{out} could not be written: {error}; nothing was left there") from error
    finally:
        partial.unlink(missing_ok=True)
