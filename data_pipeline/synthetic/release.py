"""The files of an invented release, written chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from data_pipeline.files.whole_files import written_whole
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import progress_bar
from data_pipeline.sources.rrf import COLUMNS
from data_pipeline.synthetic.relations import mrrel
from data_pipeline.synthetic.terms import mrconso, mrcui, mrsty, terms_of_concepts

# UMLS 2020AA, the release of the paper.
CONCEPTS, TERMS, RELATIONS = 4_270_000, 15_480_000, 87_890_000

# What each kind of bad row is, and the file that gets it.
BAD_ROWS = {
    "columns": ("MRCONSO", "a column is missing; a build refuses the file"),
    "utf8": ("MRCONSO", "the term has a Latin-1 byte; a build refuses the file"),
    "quotes": ("MRCONSO", 'the term begins with a lone "; a build keeps it'),
    "dangling": ("MRREL", "CUI2 is in no other file; a build counts and drops the row"),
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many concepts, terms and relation rows a release has, and which rows are bad."""

    concepts: int = CONCEPTS
    terms: int = TERMS
    relations: int = RELATIONS
    bad_rows: dict[str, int] = field(default_factory=dict)

    def validate(self) -> None:
        """Raises BadInput for sizes that no release can have."""
        if self.concepts < 10:
            raise BadInput(f"{self.concepts} concepts: expected 10 or more; use a larger --scale")
        if self.terms < self.concepts:
            raise BadInput(
                f"{self.terms:,} terms for {self.concepts:,} concepts: expected one or more each"
            )
        if self.relations < 2 or self.relations % 2:
            raise BadInput(
                f"{self.relations:,} relation rows: expected an even number, as each relation is "
                "there in both directions"
            )
        for kind, count in self.bad_rows.items():
            rows = self.terms if BAD_ROWS[kind][0] == "MRCONSO" else self.relations
            if not 0 <= count <= rows:
                raise BadInput(f"{count:,} bad rows ({kind}): expected 0 to {rows:,}")


def write_release(folder: Path, size: Size, seed: int = 0) -> None:
    """Writes the files of a release into `folder`; MRFILES, which lists the others, comes last.

    Raises BadInput if the folder already holds a whole release.
    """
    size.validate()
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "MRFILES.RRF").exists():
        raise BadInput(f"{folder} already holds a release; give another --out, or remove it")
    term_start = terms_of_concepts(size.concepts, size.terms, seed)
    tables = {
        "MRCONSO": (mrconso(term_start, seed), size.terms),
        "MRREL": (mrrel(size.concepts, size.relations, seed), size.relations),
        "MRSTY": (mrsty(size.concepts, seed), None),
        "MRCUI": (mrcui(size.concepts, seed), None),
    }
    files = []
    for name, (chunks, rows) in tables.items():
        bad = _bad_lines(name, size, seed)
        written, length = _write(folder / f"{name}.RRF", _with_bar(name, chunks, rows), bad)
        columns = COLUMNS[name].split()
        files.append((f"{name}.RRF", name, ",".join(columns), len(columns), written, length))
    names = COLUMNS["MRFILES"].split()
    _write(folder / "MRFILES.RRF", iter([pl.DataFrame(files, names, orient="row")]), {})


def _with_bar(
    name: str, chunks: Iterator[pl.DataFrame], rows: int | None
) -> Iterator[pl.DataFrame]:
    """The chunks, with a progress bar that counts their rows."""
    with progress_bar(total=rows, desc=f"write {name}.RRF", unit="row", unit_scale=True) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(chunk.height)
            stopping.poll()


def _bad_lines(name: str, size: Size, seed: int) -> dict[int, str]:
    """Row number -> kind of each bad row of a file."""
    wanted = [kind for kind, (file, _) in BAD_ROWS.items() if file == name]
    kinds = [kind for kind in wanted for _ in range(size.bad_rows.get(kind, 0))]
    if not kinds:
        return {}
    rows = size.terms if name == "MRCONSO" else size.relations
    chosen = np.random.default_rng([seed, 7]).choice(rows, len(kinds), replace=False)
    return dict(zip(chosen.tolist(), kinds, strict=True))


def _write(path: Path, chunks: Iterator[pl.DataFrame], bad: dict[int, str]) -> tuple[int, int]:
    """Writes a file under another name and renames it; the number of its rows and its bytes."""
    rows = 0
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        for chunk in chunks:
            ended = chunk.with_columns(END=pl.lit(""))  # its separator closes the line
            text = ended.write_csv(
                include_header=False, separator="|", quote_style="never"
            ).encode()
            here = {row - rows: kind for row, kind in bad.items() if 0 <= row - rows < chunk.height}
            file.write(_damaged(text, here) if here else text)
            rows += chunk.height
    return rows, path.stat().st_size


def _damaged(text: bytes, bad: dict[int, str]) -> bytes:
    lines = text.split(b"\n")
    for row, kind in bad.items():
        columns = lines[row].split(b"|")
        if kind == "columns":
            del columns[-2]
        elif kind == "utf8":
            columns[14] += b"\xe9"
        elif kind == "quotes":
            columns[14] = b'"' + columns[14]
        else:
            columns[4] = b"C9999999"
        lines[row] = b"|".join(columns)
    return b"\n".join(lines)
