"""A teacher: another encoder's vectors of the dataset's terms, from a file, as a part of the loss.

The student is to rank the other terms of a group as the teacher does. Labels say which terms belong
together; the teacher says how near all others are.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from coder_jax.devices.hosts import log
from coder_jax.encoding.vector_files import (
    TERMS_PER_CHUNK,
    AboutVectors,
    RowsOfFile,
    TermLines,
    about_file,
    terms_hash,
)
from data_pipeline import process
from data_pipeline.batches.batch_maker import TeacherVectors
from data_pipeline.dataset.store import TripletDataset, open_dataset
from data_pipeline.files.identity import VECTORS, read_identity
from data_pipeline.files.whole import map_array
from data_pipeline.process import BadInput

_TEMPERATURE = 0.05  # of the student's cosines, as in SimCSE, on which RankCSE builds


def teacher_loss(
    student_NN: jax.Array, teacher_NN: jax.Array, other_NN: jax.Array, *, temperature: float
) -> jax.Array:
    r"""How much the student's ranking of other terms differs from the teacher's.

    With the cosines S of the student and T of the teacher, for term i and the terms j of other
    concepts:

    .. math:: L = \frac1N \sum_i KL(softmax_j(T_{ij} / \tau_T) \,\|\, softmax_j(S_{ij} / \tau))

    This is the ranking distillation of RankCSE in its form by ListNet (the cross-entropy of these
    shares), less the entropy of the teacher's shares, which has no gradient: so 0 is the least.
    Shares do not change if all cosines of a row grow by the same amount, so that the vectors of
    teacher and student may differ in width and in how similar terms are at all. RankCSE takes all
    other sentences of a batch; here labels say which terms belong together, and those take no part.

    Args:
        student_NN: float32 [N, N], cosines of the terms of a group.
        teacher_NN: float32 [N, N], by the teacher.
        other_NN: bool [N, N], pairs of terms of different concepts. A term without any counts as 0.
        temperature: of the teacher.

    References:
        Liu et al., RankCSE: Unsupervised Sentence Representations Learning via Learning to Rank,
        2023, ranking distillation; Cao et al., Learning to Rank: From Pairwise Approach to Listwise
        Approach, 2007 (ListNet).
    """

    def log_shares(exponent_NN: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(jnp.where(other_NN, exponent_NN, -1e9), axis=1)

    wanted_NN, found_NN = (
        log_shares(teacher_NN / temperature),
        log_shares(student_NN / _TEMPERATURE),
    )
    return (jnp.exp(wanted_NN) * (wanted_NN - found_NN)).sum(axis=1).mean()


# -------------------------------------------------------------------------------------------------
# The file of a teacher: FILE.npy, float [n, D].
#
# Its rows are of the lines of FILE.txt, if that is there; else of the strings of the dataset, as
# `encode --dictionary DATASET` writes them, which FILE.npy.json proves.

_MAKE = "python -m coder_jax encode --model TEACHER --dictionary {data} --out {path}"


def open_teacher(path: Path, data: Path) -> TeacherVectors:
    """The vectors of a file for the terms of a dataset.

    A term is looked up as it is trained on, then as its source writes it.

    Args:
        path: the .npy file.
        data: the folder of the dataset.

    Raises:
        BadInput: if it cannot be read, it is not known of which terms it is, or terms have no
            vector.
        Stopped: if a signal asked for it.
    """
    make = f"make it with `{_MAKE.format(data=data, path=path)}`"
    vectors = RowsOfFile(path, make)
    dataset = open_dataset(data, source=True)
    row_of: dict[str, int] = {}
    is_usable, content = _looked_through(vectors)
    for row, string in enumerate(_strings_of(path, vectors, dataset, make)):
        if is_usable[row]:
            row_of.setdefault(string, row)
    rows = _rows_of_terms(row_of, dataset)
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        assert dataset.terms is not None
        examples = ", ".join(repr(dataset.terms[term]) for term in missing[:3])
        raise BadInput(
            f"--teacher {path}: found no vector for {len(missing):,} of the {len(rows):,} terms of "
            f"{data} (such as {examples}), or one without a length (zeros, NaN); expected one "
            f"for each: {make}"
        )
    content.update(rows.astype("<i8").tobytes())
    log(f"teacher: {path}, {len(vectors):,} vectors of {vectors.shape[1]:,} numbers")
    # Mapped: all rows are read again and again, for which `RowsOfFile` takes nine times as long.
    mapped = map_array(path, make)
    return TeacherVectors(vectors=mapped, row_of_term=rows, hash=content.hexdigest())


def _looked_through(vectors: RowsOfFile) -> tuple[np.ndarray, "hashlib._Hash"]:
    """bool [n]: the rows that have a direction; and the hash of all."""
    is_usable, content = np.zeros(len(vectors), bool), hashlib.sha256()
    for first in range(0, len(vectors), TERMS_PER_CHUNK):
        process.poll()
        part = np.ascontiguousarray(vectors[first : first + TERMS_PER_CHUNK])
        content.update(part.data)
        with np.errstate(over="ignore", invalid="ignore"):  # too large for a step, or no number
            lengths = np.linalg.norm(part.astype(np.float32), axis=1)
        is_usable[first : first + len(part)] = np.isfinite(lengths) & (lengths > 0)
    return is_usable, content


def _strings_of(
    path: Path, vectors: RowsOfFile, dataset: TripletDataset, make: str
) -> Sequence[str]:
    """The string of each row of the file."""
    beside, about = path.with_suffix(".txt"), about_file(path)
    known = read_identity(about, VECTORS, AboutVectors).terms if about.is_file() else None
    if beside.is_file():
        with beside.open("rb") as file:
            lines = TermLines(file, str(beside), TERMS_PER_CHUNK)
            strings = [line for chunk in range(lines.chunks) for line in lines.chunk(chunk)]
        hash_of_strings, what = lines.hash, f"{beside}, which has {lines.count:,}"
    elif known is not None:
        assert dataset.source is not None
        strings, hash_of_strings = dataset.source.strings, terms_hash(dataset.source.strings)
        what = f"{dataset.folder}, which has {len(strings):,}"
    else:
        raise BadInput(
            f"--teacher {path}: found neither {beside.name} nor {about.name} beside it, which say "
            f"of which terms the vectors are; {make}, or write its terms, one on each line, to "
            f"{beside}"
        )
    if len(strings) != len(vectors) or (known and known.hash != hash_of_strings):
        raise BadInput(
            f"--teacher {path}: found {len(vectors):,} vectors of other terms than those of "
            f"{what}; expected the same terms in the same order: {make}, or write its terms, one "
            f"on each line, to {beside}"
        )
    return strings


def _rows_of_terms(row_of: dict[str, int], dataset: TripletDataset) -> np.ndarray:
    """int64 [N]: the row of each term of the dataset; -1 for those without."""
    source, terms = dataset.source, dataset.terms
    assert source is not None and terms is not None
    rows = np.fromiter((row_of.get(term, -1) for term in terms), np.int64, len(terms))
    for term in np.flatnonzero(rows < 0).tolist():
        strings = source.strings[source.string_start[term] : source.string_start[term + 1]]
        rows[term] = next((row_of[one] for one in strings if one in row_of), -1)
    return rows
