"""Folds, as Cadec and PsyTar are distributed with CODER: test.txt and standard.txt of id<TAB>term.

standard.txt holds the one standard name of each target concept and is the dictionary; train.txt is
never read: the task is zero-shot (CODER paper, section 4.4.1).
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from coder_jax.evaluation.benchmark import Found, Given
from coder_jax.evaluation.normalization.benchmark import NormalizationBenchmark, NormalizationFold
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import two_columns
from data_pipeline.process.errors import BadInput

FOLD_FILES = ("test.txt", "standard.txt")
NO_DIGITS = str.maketrans("", "", string.digits)


@dataclass(frozen=True)
class Folds(NormalizationBenchmark):
    """Cadec, PsyTar, and what has their files: the score is the mean over the folds."""

    formats: ClassVar[str] = (
        "folds:    a folder of folders, each with test.txt and standard.txt of id<TAB>term (Cadec, "
        "PsyTar)"
    )
    about: ClassVar[str] = """\
folds     a folder as Cadec and PsyTar are distributed: folders with test.txt and standard.txt.
          standard.txt, the standard name of each concept, is the dictionary; the score is the
          mean over folds, all of which must be whole. Training halves are not read:
          normalization here is zero-shot."""

    @classmethod
    def claims(cls, found: Found) -> bool:
        return False  # other folders may have a test.txt in them too

    @classmethod
    def would_take(cls, found: Found) -> bool:
        return found.is_folder and bool(folders_of_folds(found.path))

    @classmethod
    def brings_dictionary(cls, path: Path) -> bool:
        own = (path / "standard.txt", *path.glob("*/standard.txt"))
        return any(file.is_file() for file in own)

    @classmethod
    def read(cls, given: Given) -> Self:
        folders = check_whole(given.path, has_dictionary=given.dictionary is not None)
        folds, quoted = read_standard_term_folds(folders, given.dictionary)
        return cls.of_folds(given, folds, quoted=quoted)


def folders_of_folds(path: Path) -> list[Path]:
    """The folds of a folder: itself, or those in it, that have a test.txt; none of another."""
    children = sorted(child for child in path.iterdir() if child.is_dir())
    return [one for one in (path, *children) if (one / "test.txt").is_file()]


def check_whole(path: Path, *, has_dictionary: bool) -> list[Path]:
    """The folds of a folder, all of them whole: with a test.txt, and a dictionary if none is given.

    BadInput where a fold beside others is not whole, as a mean over the rest is another score. A
    fold has a file of folds, or is called as another one but for the digits.
    """
    folders = folders_of_folds(path)
    children = sorted(child for child in path.iterdir() if child.is_dir())
    called = {folder.name.translate(NO_DIGITS) for folder in folders if folder != path}
    needed = FOLD_FILES[:1] if has_dictionary else FOLD_FILES
    for one in (*folders, *children):
        is_fold = any((one / file).is_file() for file in (*FOLD_FILES, "train.txt"))
        missing = [file for file in needed if not (one / file).is_file()]
        if missing and (is_fold or one.name.translate(NO_DIGITS) in called):
            raise BadInput(
                f"{one}: found a fold without {' and '.join(missing)}; expected "
                f"{' and '.join(needed)} in each fold: fetch it again, or take it out of {path}"
            )
    return folders


def read_standard_term_folds(
    folders: Sequence[Path], dictionary: Dictionary | None
) -> tuple[list[NormalizationFold], int]:
    """Folders with test.txt and standard.txt: Cadec and PsyTar.

    Both files were written by a spreadsheet: a term with a comma or a quote in it stands in quotes,
    inner ones doubled. They are taken off, and counted; CODER's released code leaves them on.
    """
    folds, quoted = [], 0
    for folder in folders:
        mentions = two_columns(folder / "test.txt", "id<TAB>term")
        quoted += sum(unquoted(term) != term for _, term in mentions)
        own = dictionary
        if own is None:
            standard = two_columns(folder / "standard.txt", "id<TAB>term")
            own = Dictionary(
                [unquoted(term) for _, term in standard],
                [concept for concept, _ in standard],
                str(folder / "standard.txt"),
            )
        folds.append(
            NormalizationFold(
                folder.name,
                [unquoted(mention) for _, mention in mentions],
                [concept for concept, _ in mentions],
                own,
            )
        )
    return folds, quoted


def unquoted(field: str) -> str:
    """A field without the quotes that a CSV writer put around it; any other field as it is."""
    inner = field[1:-1]
    is_quoted = len(field) > 1 and field[0] == field[-1] == '"'
    return inner.replace('""', '"') if is_quoted and '"' not in inner.replace('""', "") else field
