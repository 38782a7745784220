"""Files of a normalization benchmark in; mentions, gold concepts and dictionaries out.

- mentions: a TSV of mention<TAB>CUI (several gold CUIs joined with "|"), see `sources.mentions`,
  or a folder with mentions.tsv and dictionary.tsv such as the heldout/ of a dataset;
- folds, as Cadec and PsyTar are distributed with CODER: a folder of folders with test.txt and
  standard.txt, both id<TAB>term. standard.txt holds the one standard name of each target concept
  and is the dictionary; train.txt is never read: the task is zero-shot (CODER paper, section
  4.4.1);
- XL-BEL, as distributed with SapBERT: a folder of files such as de_1k_test_query.txt, a fold for
  each language, or one of them; rows CUI||mention, or CUI||mention||context.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from coder_jax.evaluation.vectors.vectors import terms_only
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.files.rows import (
    CONCEPT_SEPARATOR,
    content_hash,
    double_piped,
    is_double_piped,
    two_columns,
)
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.mentions import mention_rows
from data_pipeline.terminology.retired_cuis import RetiredCuis

XL_BEL = "XL-BEL"
XL_BEL_ENDS = ("_1k_test_query.txt", "_1k_test_query_with_context.txt")
FOLD_FILES = ("test.txt", "standard.txt")
NO_DIGITS = str.maketrans("", "", string.digits)
XL_BEL_ALL = "all"  # in place of a language: the union of the others


@dataclass(frozen=True)
class NormalizationFold:
    """Mentions, their gold concepts (several joined with "|"), and what is searched for them."""

    name: str
    mentions: list[str]
    gold: list[str]
    dictionary: Dictionary


@dataclass(frozen=True)
class NormalizationBenchmark:
    """Mentions to normalize; `retired` of them have a gold CUI that stands in for a retired one.

    `content_hash` is of the gold CUIs as the files have them. `format` is that of the files, and
    `quoted` the number of mentions that were read without the quotes of a CSV field.
    """

    name: str
    path: str
    folds: list[NormalizationFold]
    content_hash: str
    retired: int = 0
    retired_cuis: RetiredCuis | None = None
    format: str = "mentions"
    quoted: int = 0

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of all mentions and dictionaries; BadInput for concept vectors."""
        terms_only(keyed_by, self.path)
        dictionaries = {id(fold.dictionary): fold.dictionary for fold in self.folds}.values()
        sides = [fold.mentions for fold in self.folds] + [one.terms for one in dictionaries]
        return list(dict.fromkeys(chain.from_iterable(sides)))


def read_mentions(name: str, path: Path, dictionary: Dictionary | None) -> NormalizationBenchmark:
    """A TSV file of mention<TAB>CUI, and the dictionary given or beside it.

    Raises:
      BadInput: a broken row, or no dictionary.
    """
    rows = mention_rows(path)
    beside = path.parent / "dictionary.tsv"
    if dictionary is None:
        if not beside.is_file():
            raise BadInput(
                f"{path}: found mentions and no dictionary to search; expected {beside}, or "
                "--dictionary with a TSV file of term<TAB>CUI or a dataset folder"
            )
        dictionary = read_dictionary(beside)
    fold = NormalizationFold("", [row[0] for row in rows], [row[1] for row in rows], dictionary)
    return normalization_benchmark(name, path, [fold], "mentions")


def fold_folders(path: Path, *, has_dictionary: bool) -> list[Path]:
    """The folds of a folder: itself, or those in it, that have a test.txt; none of another folder.

    BadInput where a fold beside others is not whole, as a mean over the rest is another score. A
    fold has a file of folds, or is called as another one but for the digits.
    """
    children = sorted(child for child in path.iterdir() if child.is_dir())
    folders = [one for one in (path, *children) if (one / "test.txt").is_file()]
    if not folders:
        return []
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
    name: str, path: Path, folders: Sequence[Path], dictionary: Dictionary | None
) -> NormalizationBenchmark:
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
    return normalization_benchmark(name, path, folds, "folds", quoted)


def read_xl_bel(name: str, path: Path, dictionary: Dictionary | None) -> NormalizationBenchmark:
    """XL-BEL: a fold per language for a folder, one fold for a file. BadInput: no dictionary."""
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
        folds.append(NormalizationFold(language, mentions, gold, dictionary))
    return normalization_benchmark(name, path, folds, XL_BEL)


def xl_bel_files(path: Path) -> dict[str, Path]:
    """Language -> file of a folder of XL-BEL, sorted; empty for any other folder.

    One file with columns is enough: a broken one beside it is to be refused, as a mean over the
    other languages is another score.
    """
    # Not those that macOS adds to files, such as ._de_1k_test_query.txt.
    found = [(file, end) for end in XL_BEL_ENDS for file in sorted(path.glob(f"[!.]*{end}"))]
    is_xl_bel = any(is_double_piped(file) for file, _ in found)
    return {file.name.removesuffix(end): file for file, end in found} if is_xl_bel else {}


def unquoted(field: str) -> str:
    """A field without the quotes that a CSV writer put around it; any other field as it is."""
    inner = field[1:-1]
    is_quoted = len(field) > 1 and field[0] == field[-1] == '"'
    return inner.replace('""', '"') if is_quoted and '"' not in inner.replace('""', "") else field


def normalization_benchmark(
    name: str, path: Path, folds: list[NormalizationFold], format: str, quoted: int = 0
) -> NormalizationBenchmark:
    """A benchmark of folds, with the hash of their rows."""
    rows_hash = content_hash(
        (fold.name, mention, gold)
        for fold in folds
        for mention, gold in zip(fold.mentions, fold.gold, strict=True)
    )
    return NormalizationBenchmark(name, str(path), folds, rows_hash, format=format, quoted=quoted)


def with_successors(
    benchmark: NormalizationBenchmark, retired_cuis: RetiredCuis
) -> NormalizationBenchmark:
    """The benchmark with gold and dictionary in the CUIs of today."""
    # Both sides, whatever their age: then equal concepts have equal names.
    mapped: dict[int, Dictionary] = {}
    retired, folds = 0, []
    for fold in benchmark.folds:
        if id(fold.dictionary) not in mapped:
            mapped[id(fold.dictionary)] = fold.dictionary.with_successors(retired_cuis)
        gold = [retired_cuis.now(joined) for joined in fold.gold]
        retired += sum(map(retired_cuis.has, fold.gold))
        folds.append(replace(fold, gold=gold, dictionary=mapped[id(fold.dictionary)]))
    return replace(benchmark, folds=folds, retired=retired, retired_cuis=retired_cuis)


def check_reachable(benchmark: NormalizationBenchmark) -> None:
    """BadInput for a fold none of whose gold concepts is in its dictionary."""
    for fold in benchmark.folds:
        known = fold.dictionary.concept_set
        if not any(known.intersection(gold.split(CONCEPT_SEPARATOR)) for gold in fold.gold):
            raise BadInput(
                f"{benchmark.path}: found none of the gold concepts of {len(fold.gold)} mentions "
                f"(such as {fold.gold[0]!r} of {fold.mentions[0]!r}) in the dictionary "
                f"{fold.dictionary.source} (such as {fold.dictionary.concepts[0]!r}); expected "
                "concepts of one vocabulary, in the second column of both"
            )
