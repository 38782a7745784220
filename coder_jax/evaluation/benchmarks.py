"""Files of a benchmark in; mentions, gold concepts and dictionaries, or term pairs, out.

Three formats, told apart by what the files hold:
- mentions: a TSV of mention<TAB>CUI (several gold CUIs joined with "|"), with or without a header,
  or a folder with mentions.tsv and dictionary.tsv such as the heldout/ of a dataset;
- folds, as Cadec and PsyTar are distributed: a folder of folders with test.txt and standard.txt,
  both id<TAB>term. standard.txt holds the one standard name of each target concept and is the
  dictionary; train.txt is never read: the task is zero-shot (CODER paper, section 4.4.1);
- pairs, as UMNSRS is distributed: term1<TAB>term2<TAB>score, or the CSV file of its authors with
  the columns Term1, Term2, Mean.
"""

import csv
import io
import math
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from coder_jax.evaluation.dictionary import Dictionary, read_dictionary
from coder_jax.evaluation.retired_cuis import RetiredCuis
from coder_jax.evaluation.rows import (
    CONCEPT_SEPARATOR,
    content_hash,
    read_text,
    tab_separated,
    two_columns,
)
from data_pipeline.errors import BadInput

FORMATS = """expected one of
  mentions: a TSV file of mention<TAB>CUI, or a folder with mentions.tsv and dictionary.tsv
  folds:    a folder of folders, each with test.txt and standard.txt of id<TAB>term
  pairs:    a TSV file of term1<TAB>term2<TAB>score, or a CSV file with Term1, Term2, Mean"""


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

    `content_hash` is of the gold CUIs as the files have them.
    """

    name: str
    path: str
    folds: list[NormalizationFold]
    content_hash: str
    retired: int = 0
    retired_cuis: RetiredCuis | None = None

    def strings(self) -> list[str]:
        """The distinct strings of all mentions and dictionaries."""
        sides = ((*fold.mentions, *fold.dictionary.terms) for fold in self.folds)
        return list(dict.fromkeys(chain.from_iterable(sides)))


@dataclass(frozen=True)
class SimilarityBenchmark:
    """Pairs of terms with the mean score that people gave to each pair."""

    name: str
    path: str
    first: list[str]
    second: list[str]
    scores: list[float]
    content_hash: str

    def strings(self) -> list[str]:
        """The distinct terms of all pairs."""
        return list(dict.fromkeys((*self.first, *self.second)))


def read_benchmark(
    name: str,
    path: str | Path,
    *,
    dictionary: Dictionary | None = None,
    retired_cuis: RetiredCuis | None = None,
) -> NormalizationBenchmark | SimilarityBenchmark:
    """Reads a benchmark in any of the formats above.

    Args:
      name: under which results are reported.
      path: a file or a folder.
      dictionary: searched in place of the benchmark's own.
      retired_cuis: gold CUIs and those of the dictionary are replaced by what they were merged
        into.

    Raises:
      BadInput: no known format, a broken row, no dictionary, or no mention whose gold concept is
        in the dictionary.
    """
    path = Path(path)
    if path.is_dir():
        if (path / "mentions.tsv").is_file():
            folds = [_mentions_fold(path / "mentions.tsv", dictionary)]
        else:
            folds = _standard_term_folds(path, dictionary)
    else:
        columns = _columns(path)
        if columns == 3:
            return _read_pairs(name, path)
        folds = [_mentions_fold(path, dictionary)]
    rows_hash = content_hash(
        (fold.name, mention, gold)
        for fold in folds
        for mention, gold in zip(fold.mentions, fold.gold, strict=True)
    )
    benchmark = NormalizationBenchmark(name, str(path), folds, rows_hash)
    if retired_cuis is not None:
        benchmark = _with_successors(benchmark, retired_cuis)
    _check_reachable(benchmark)
    return benchmark


def _columns(path: Path) -> int:
    """2 for mentions, 3 for pairs."""
    number, fields = tab_separated(path)[0]
    if len(fields) == 1 and "," in fields[0]:
        return 3  # the CSV of UMNSRS; its columns are checked when it is read
    if len(fields) not in (2, 3):
        raise BadInput(f"{path}:{number}: found {len(fields)} tab-separated columns; {FORMATS}")
    return len(fields)


def _mentions_fold(path: Path, dictionary: Dictionary | None) -> NormalizationFold:
    rows = two_columns(path, "mention<TAB>CUI")
    beside = path.parent / "dictionary.tsv"
    if dictionary is None:
        if not beside.is_file():
            raise BadInput(
                f"{path}: found mentions and no dictionary to search; expected {beside}, or "
                "--dictionary with a TSV file of term<TAB>CUI or a dataset folder"
            )
        dictionary = read_dictionary(beside)
    return NormalizationFold("", [row[0] for row in rows], [row[1] for row in rows], dictionary)


def _standard_term_folds(path: Path, dictionary: Dictionary | None) -> list[NormalizationFold]:
    folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())]
    folders = [folder for folder in folders if (folder / "test.txt").is_file()]
    if not folders:
        held = ", ".join(sorted(child.name for child in path.iterdir())[:8]) or "nothing"
        raise BadInput(f"{path}: found a folder with {held}; {FORMATS}")
    folds = []
    for folder in folders:
        mentions = two_columns(folder / "test.txt", "id<TAB>term")
        own = dictionary
        if own is None:
            standard = two_columns(folder / "standard.txt", "id<TAB>term")
            own = Dictionary(
                [term for _, term in standard],
                [concept for concept, _ in standard],
                str(folder / "standard.txt"),
            )
        folds.append(
            NormalizationFold(
                folder.name,
                [mention for _, mention in mentions],
                [concept for concept, _ in mentions],
                own,
            )
        )
    return folds


def _with_successors(
    benchmark: NormalizationBenchmark, retired_cuis: RetiredCuis
) -> NormalizationBenchmark:
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


def _check_reachable(benchmark: NormalizationBenchmark) -> None:
    for fold in benchmark.folds:
        known = fold.dictionary.concept_set
        if not any(known.intersection(gold.split(CONCEPT_SEPARATOR)) for gold in fold.gold):
            raise BadInput(
                f"{benchmark.path}: found none of the gold concepts of {len(fold.gold)} mentions "
                f"(such as {fold.gold[0]!r} of {fold.mentions[0]!r}) in the dictionary "
                f"{fold.dictionary.source} (such as {fold.dictionary.concepts[0]!r}); expected "
                "concepts of one vocabulary, in the second column of both"
            )


@dataclass(frozen=True)
class _Pair:
    place: str  # file:line, for messages
    first: str
    second: str
    score: str


def _read_pairs(name: str, path: Path) -> SimilarityBenchmark:
    rows = tab_separated(path)
    pairs = _pairs_of_csv(path) if len(rows[0][1]) == 1 else _pairs_of_tsv(path, rows)
    scores = []
    for pair in pairs:
        value = _number(pair.score)
        if value is None or not pair.first or not pair.second:
            raise BadInput(
                f"{pair.place}: found {pair.first!r}, {pair.second!r}, {pair.score!r}; expected "
                "two terms and a number"
            )
        scores.append(value)
    if len(set(scores)) < 2:
        raise BadInput(
            f"{path}: found {len(scores)} pairs with {len(set(scores))} distinct scores; expected "
            "2 or more, or no rank correlation is defined"
        )
    first, second = [pair.first for pair in pairs], [pair.second for pair in pairs]
    rows_hash = content_hash((a, b, str(s)) for a, b, s in zip(first, second, scores, strict=True))
    return SimilarityBenchmark(name, str(path), first, second, scores, rows_hash)


def _pairs_of_tsv(path: Path, rows: list[tuple[int, list[str]]]) -> list[_Pair]:
    if len(rows) > 1 and _number(rows[0][1][2]) is None:
        rows = rows[1:]  # a header
    for number, fields in rows:
        if len(fields) != 3:
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns; expected 3: "
                "term1<TAB>term2<TAB>score"
            )
    return [_Pair(f"{path}:{number}", *fields) for number, fields in rows]


def _pairs_of_csv(path: Path) -> list[_Pair]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    column = {(header or "").strip().lower(): header for header in reader.fieldnames or ()}
    wanted = ("Term1", "Term2", "Mean")
    missing = [header for header in wanted if header.lower() not in column]
    if missing:
        raise BadInput(
            f"{path}:1: found the columns {', '.join(reader.fieldnames or ())}, without "
            f"{', '.join(missing)}; {FORMATS}"
        )
    pairs = []
    for row in reader:
        fields = [(row[column[header.lower()]] or "").strip() for header in wanted]
        pairs.append(_Pair(f"{path}:{reader.line_num}", *fields))
    return pairs


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
