"""Terms of an evaluation in, their vectors out: a dictionary's as this machine keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.encoder_protocol import about_vectors
from coder_jax.encoding.rows import JoinedRows, Rows, RowsOfFile
from coder_jax.encoding.term_lines import TERMS_PER_CHUNK, TermList, terms_hash
from coder_jax.encoding.vector_cache import cached_vectors
from coder_jax.encoding.vector_file import about_file, write_vectors


def vectors_of_terms(
    encoder: TermEncoder,
    terms: Sequence[str],
    searched: Iterable[Sequence[str]],
    beside: Path,
    scratch: list[Path],
) -> tuple[list[str], Rows]:
    """The vectors of all terms, and the terms in the order that the vectors have.

    Args:
      encoder: from a folder or the hub.
      terms: distinct strings, at least one.
      searched: lists of some of them, of dictionaries: their vectors may be kept on this machine,
        and are read again in the next evaluation.
      beside: the vectors of the others grow in a file beside it, named after it and the pooling.
      scratch: gets the files that are to be removed at the end.
    """
    parts: list[tuple[Sequence[str], Rows]] = []
    held: set[str] = set()
    for listed in {terms_hash(one): one for one in map(distinct, searched)}.values():
        kept = cached_vectors(encoder, listed, progress=True)
        if kept is not None:
            parts.append((listed, kept))
            held.update(listed)
    others = [term for term in terms if term not in held] if held else terms
    if others:
        chunks = TermList(others, TERMS_PER_CHUNK)
        weights_hash = str(encoder.weights_hash)
        about = about_vectors(encoder, str(encoder.name), weights_hash, chunks, "float32")
        which = ".others" if held else ""
        path = beside.with_name(f".{beside.name}.{encoder.settings.pooling}{which}.npy")
        scratch += [path, about_file(path)]
        write_vectors(encoder, chunks, path, about)
        parts.append((others, RowsOfFile(path)))
    if len(parts) == 1:
        return list(parts[0][0]), parts[0][1]
    return [term for part, _ in parts for term in part], JoinedRows([rows for _, rows in parts])


def distinct(terms: Iterable[str]) -> list[str]:
    """Each term once, in the order of their first."""
    return list(dict.fromkeys(terms))
