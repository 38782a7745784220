"""XL-BEL, as distributed with SapBERT: a folder of files such as de_1k_test_query.txt.

There is a fold for each language, or one of a single file; rows are CUI||mention, or
CUI||mention||context.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from coder_jax.evaluation.benchmark import Found, Given
from coder_jax.evaluation.normalization.benchmark import NormalizationBenchmark, NormalizationFold
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import double_piped, is_double_piped
from data_pipeline.process.errors import BadInput

XL_BEL_ENDS = ("_1k_test_query.txt", "_1k_test_query_with_context.txt")
XL_BEL_ALL = "all"  # in place of a language: the union of the others


@dataclass(frozen=True)
class XlBel(NormalizationBenchmark):
    """XL-BEL: the score is the mean over the languages."""

    formats: ClassVar[str] = (
        "XL-BEL:   a folder of files such as de_1k_test_query.txt, or a file of CUI||mention"
    )
    about: ClassVar[str] = """\
XL-BEL    its folder of files such as de_1k_test_query.txt, or one of them; searched in
          --dictionary. The score is the mean over languages. acc@5 is that of 5 concepts;
          SapBERT's evaluation takes 5 names, of which one concept may have several."""
    acc_at_k: ClassVar[str] = (
        "k concepts; SapBERT's evaluation of XL-BEL takes k names, of which one concept may have "
        "several, so its acc@5 is mostly lower"
    )

    @classmethod
    def claims(cls, found: Found) -> bool:
        if found.is_folder:
            return bool(xl_bel_files(found.path))
        return found.is_text and is_double_piped(found.path)

    @classmethod
    def read(cls, given: Given) -> Self:
        return cls.of_folds(given, read_xl_bel(given.path, given.dictionary))


def read_xl_bel(path: Path, dictionary: Dictionary | None) -> list[NormalizationFold]:
    """A fold per language for a folder, one fold for a file. BadInput: no dictionary."""
    if dictionary is None:
        raise BadInput(
            f"{path}: found XL-BEL and no dictionary to search; give --dictionary with XL-BEL's "
            "file of CUI||name, a TSV file of term<TAB>CUI or a dataset folder"
        )
    files = xl_bel_files(path) if path.is_dir() else {"": path}
    if len(files) > 1:
        files.pop(XL_BEL_ALL, None)
    folds = []
    for language, file in files.items():
        rows = double_piped(file, 2, "CUI||mention or CUI||mention||context")
        mentions, gold = [mention for _, mention in rows], [cui for cui, _ in rows]
        languages = [language] * len(mentions) if language else None
        folds.append(NormalizationFold(language, mentions, gold, dictionary, languages))
    return folds


def xl_bel_files(path: Path) -> dict[str, Path]:
    """Language -> file of a folder of XL-BEL, sorted; empty for any other folder.

    One file with columns is enough: a broken one beside it is to be refused, as a mean over the
    other languages is another score.
    """
    # Not those that macOS adds to files, such as ._de_1k_test_query.txt.
    found = [(file, end) for end in XL_BEL_ENDS for file in sorted(path.glob(f"[!.]*{end}"))]
    is_xl_bel = any(is_double_piped(file) for file, _ in found)
    return {file.name.removesuffix(end): file for file, end in found} if is_xl_bel else {}
