"""Normalization (Cadec, PsyTar, XL-BEL): mentions looked up in a dictionary, and accuracy.

What computes on devices is imported where it is used, so that `--help` stays quick.
"""

from __future__ import annotations

import dataclasses
import hashlib
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import quote

import msgspec
import numpy as np
import polars as pl

from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.published import NORMALIZATION, PublishedRow
from coder_jax.evaluation.ranks import TIE_TOLERANCE, GoldCounts, rank_intervals, rank_scores
from coder_jax.evaluation.record import (
    Answers,
    Distribution,
    EncoderRecord,
    EvaluationRecord,
    Unreachable,
)
from coder_jax.evaluation.results import (
    ABOUT,
    TOGETHER,
    Row,
    Table,
    first_same,
    missing_column,
    percent,
    published_rows,
)
from coder_jax.evaluation.vectors import TERMS, ComparedStrings, Vectors, terms_only
from coder_jax.models.hf_files import EncoderSettings
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary, union
from data_pipeline.files.tables import (
    CONCEPT_SEPARATOR,
    content_hash,
    double_piped,
    is_double_piped,
    split_concepts,
    two_columns,
)
from data_pipeline.files.whole import written_whole
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import mention_languages, mention_rows, names_mentions
from data_pipeline.terminology.retired_cuis import RetiredCuis

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import Match, TermEncoder
    from coder_jax.models.bert import Bert


ACCURACY_AT = (1, 3, 5)  # the k of acc@k, unless --k says otherwise

# -------------------------------------------------------------------------------------------------
# The benchmark: mentions, gold concepts and the dictionary that is searched.
#
# What it is, whatever the format of its files: its scores, record and table. The formats are
# `Mentions`, `Folds`, `XlBel` and, with scores of its own, `mantra.Mantra`.


@dataclass(frozen=True)
class NormalizationFold:
    """Mentions, their gold concepts (several joined with "|"), and the dictionary that is searched.

    `languages` are those of the mentions, where their file tells.
    """

    name: str
    mentions: list[str]
    gold: list[str]
    dictionary: Dictionary
    languages: list[str] | None = None

    @cached_property
    def same(self) -> np.ndarray:
        """Which mentions are the same, gold concept included: `first_same`."""
        return first_same(self.mentions, self.gold)


@dataclass(frozen=True, kw_only=True)
class NormalizationOptions(Options):
    """Options of mentions and terms."""

    k: Annotated[
        tuple[int, ...],
        Flag(
            "the k of acc@k, and of coverage at k (default: 1 3 5; of coverage 1 5 10 20 50)",
            "K",
            least=1,
            heading="mentions and terms",
        ),
    ] = ()
    predictions: Annotated[
        Path | None,
        Flag(
            "write all answers to this folder; a TSV file of each benchmark, fold and pooling: "
            "mentions, gold, its rank, and the five nearest concepts",
            "DIR",
        ),
    ] = None


@dataclass(frozen=True)
class NormalizationBenchmark(Benchmark):
    """Mentions to normalize; `retired` of them have a gold CUI that stands in for a retired one.

    `content_hash` is of the gold CUIs as the files have them, and `quoted` the number of mentions
    that were read without the quotes of a CSV field.
    """

    name: str
    path: str
    folds: list[NormalizationFold]
    content_hash: str
    retired: int = 0
    retired_cuis: RetiredCuis | None = None
    quoted: int = 0

    kind: ClassVar[str] = "normalization"
    options: ClassVar[type[Options]] = NormalizationOptions
    published: ClassVar[tuple[PublishedRow, ...]] = NORMALIZATION
    # The unit that the k of acc@k counts.
    acc_at_k: ClassVar[str] = "k concepts"

    @classmethod
    def of_folds(
        cls,
        given: Given,
        folds: list[NormalizationFold],
        *,
        quoted: int = 0,
        path: Path | None = None,
    ) -> Self:
        """The benchmark of some folds as read, in current CUIs.

        BadInput for a fold none of whose gold concepts is in its dictionary.
        """
        rows_hash = content_hash(
            (fold.name, mention, gold)
            for fold in folds
            for mention, gold in zip(fold.mentions, fold.gold, strict=True)
        )
        benchmark = cls(given.name, str(path or given.path), folds, rows_hash, quoted=quoted)
        if given.retired_cuis is not None:
            benchmark = benchmark._with_successors(given.retired_cuis)
        for fold in benchmark.folds:
            known = fold.dictionary.concept_set
            if not any(known.intersection(split_concepts(gold)) for gold in fold.gold):
                raise BadInput(
                    f"{benchmark.path}: found none of the gold concepts of {len(fold.gold)} "
                    f"mentions (such as {fold.gold[0]!r} of {fold.mentions[0]!r}) in the "
                    f"dictionary {fold.dictionary.source} (such as "
                    f"{fold.dictionary.concepts[0]!r}); expected concepts of one vocabulary, in "
                    "the second column of both"
                )
        return benchmark

    def _with_successors(self, retired_cuis: RetiredCuis) -> Self:
        """The benchmark with gold and dictionary in current CUIs."""
        # On both sides, so that equal concepts have equal names whatever the age of the files.
        mapped = {id(one): one.with_successors(retired_cuis) for one in self.dictionaries()}
        folds = [
            replace(
                fold,
                gold=[retired_cuis.now(joined) for joined in fold.gold],
                dictionary=mapped[id(fold.dictionary)],
            )
            for fold in self.folds
        ]
        retired = sum(retired_cuis.has(joined) for fold in self.folds for joined in fold.gold)
        return replace(self, folds=folds, retired=retired, retired_cuis=retired_cuis)

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of all mentions and dictionaries; BadInput for concept vectors."""
        terms_only(keyed_by, self.path)
        sides = [fold.mentions for fold in self.folds] + [one.terms for one in self.dictionaries()]
        return list(dict.fromkeys(chain.from_iterable(sides)))

    def dictionaries(self) -> list[Dictionary]:
        return [dictionary for dictionary, _ in self.by_dictionary()]

    def by_dictionary(self) -> list[tuple[Dictionary, list[NormalizationFold]]]:
        """Each dictionary with the folds that share it, and go through it together."""
        sharing: dict[int, list[NormalizationFold]] = {}
        for fold in self.folds:
            sharing.setdefault(id(fold.dictionary), []).append(fold)
        return [(folds[0].dictionary, folds) for folds in sharing.values()]

    def averaged(self) -> list[str]:
        """The folds over which the score is averaged."""
        return [fold.name for fold in self.folds]

    def result(self, vectors: Vectors, ks: Sequence[int]) -> NormalizationResult:
        """The scores of acc@k and MRR, by vectors or by a comparison of strings."""
        if isinstance(vectors, ComparedStrings):
            return _counted(self, vectors.counts, ks)
        return evaluate_normalization(vectors.encode, self, ks=ks)

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        result = self.result(vectors, options.of(NormalizationOptions).k or ACCURACY_AT)
        record = normalization_record(self, result, encoder, missing=missing, seed=options.seed)
        return with_answers(record, self, result, vectors, options)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """acc@k and MRR of all mentions, with a further row of the reachable ones if they differ.

        The scores are means over the folds, or languages, that are counted in the last column.
        """
        ks = options.of(NormalizationOptions).k or ACCURACY_AT
        header = ["normalization", "pooling", "mentions", "terms", "concepts"]
        scores = [f"acc@{k}" for k in ks]
        missing = missing_column(records)
        tied = any(record.counts.get("tied") for record in records)
        header += [*scores, "MRR", "unreachable", *missing]
        header += [*(("tied", f"acc@{ks[0]} by ties") if tied else ()), "folds"]
        rows = [row for record in records for row in _rows(record, ks, missing, tied)]
        papers = published_rows(records, cls.published, scores, len(header), before=5, digits=2)
        return header, rows + papers


def with_answers(
    record: EvaluationRecord,
    benchmark: NormalizationBenchmark,
    result: NormalizationResult,
    vectors: Vectors,
    options: Options,
) -> EvaluationRecord:
    """The record with the answers to each mention; also writes tables of them if asked for."""
    if isinstance(vectors, ComparedStrings):
        return replace(record, answers=_places_alone(benchmark, result))
    folder = options.of(NormalizationOptions).predictions
    found = _answers_of(vectors.encode, benchmark, ANSWERS if folder else 1)
    described = _described_answers(benchmark, result, found)
    if folder:
        pooling = record.encoder.pooling
        files = _write_predictions(folder, benchmark, result, found, pooling)
        described = replace(described, predictions=files)
    return replace(record, answers=described)


def normalization_record(
    benchmark: NormalizationBenchmark,
    result: NormalizationResult,
    encoder: EncoderRecord,
    *,
    missing: int = 0,
    seed: int = 0,
) -> EvaluationRecord:
    """The record of `evaluate_normalization`.

    Args:
      missing: strings that have no vector.
      seed: of the mentions that are drawn for the intervals.
    """
    ks = [int(name[4:]) for name in result.scores if name[4:].isdigit()]
    of_fold = {fold.name: fold for fold in benchmark.folds}
    ranks, same = list(result.ranks.values()), [of_fold[name].same for name in result.ranks]
    retired = benchmark.retired_cuis
    return EvaluationRecord(
        benchmark=benchmark.name,
        kind="normalization",
        path=benchmark.path,
        content_hash=benchmark.content_hash,
        scores=dict(result.scores),
        counts={
            **_counts(result),
            "retired": benchmark.retired,
            "quoted": benchmark.quoted,
            "missing": missing,
            "folds": len(result.ranks),
        },
        unreachable=replace(
            _unreachable(result),
            intervals_of_reachable=rank_intervals(ranks, same, ks, seed, of_reachable=True),
        ),
        intervals=rank_intervals(ranks, same, ks, seed),
        dictionary=union([fold.dictionary for fold in benchmark.folds]).description,
        scoring={
            "similarity": "cosine",
            "concept": "nearest of its terms",
            "acc@k": benchmark.acc_at_k,
            "tie_tolerance": TIE_TOLERANCE,
            "ties": "acc@k and mrr are means over random orders of tied concepts",
            "several_gold": "the best of them counts",
            "unreachable": "gold concepts without a term in the dictionary count as wrong",
            "retired_cuis": retired and retired.description,
            "folds": "unweighted mean over folds" if result.folds else "none",
            "quotes": "those around a CSV field are taken off mentions of Cadec and PsyTar",
            "missing": "strings without a vector have the cosine 0 with all others",
            "intervals": f"{ABOUT}, mentions drawn anew within their fold; {TOGETHER}",
        },
        folds={
            name: {
                "scores": dict(part.scores),
                "intervals": rank_intervals([result.ranks[name]], [of_fold[name].same], ks, seed),
                "counts": _counts(part),
                "unreachable": msgspec.to_builtins(_unreachable(part)),
                "dictionary": of_fold[name].dictionary.description,
            }
            for name, part in result.folds.items()
        },
        encoder=encoder,
    )


def _rows(
    record: EvaluationRecord, ks: Sequence[int], missing: Sequence[str], tied: bool
) -> list[Row]:
    """The row of a record for all mentions and, if it differs, that of the reachable ones; what
    ties could change if any record has some (`tied`).
    """
    counts, dictionary = record.counts, record.dictionary or {}
    unreachable = record.unreachable
    if unreachable is None:
        raise BadInput(
            f"{record.benchmark}: found results without those of the reachable mentions; expected "
            "them, as all results of this kind have them: score it again"
        )
    whole = record.scores, record.intervals
    parts = [(record.benchmark, counts["mentions"], counts["unreachable"], *whole)]
    reachable = unreachable.scores_of_reachable
    if counts["unreachable"] and reachable:
        rest = counts["mentions"] - counts["unreachable"]
        of_rest = reachable, unreachable.intervals_of_reachable or {}
        parts.append((f"{record.benchmark}, reachable", rest, 0, *of_rest))
    rows = []
    for name, mentions, out_of_reach, scores, sure in parts:
        ends = (scores[f"acc@{ks[0]}_{end}"] for end in ("pessimistic", "optimistic"))
        share = f" ({percent(unreachable.share)} %)" if out_of_reach else ""
        cells = (
            [name, record.encoder.pooling]
            + [f"{n:,}" for n in (mentions, dictionary["terms"], dictionary["concepts"])]
            + [percent(scores[one], sure.get(one)) for one in (*(f"acc@{k}" for k in ks), "mrr")]
            + [f"{out_of_reach:,}{share}"]
            + [f"{counts.get(count, 0):,}" for count in missing]
        )
        if tied:
            cells += [f"{counts.get('tied', 0):,}", "-".join(percent(end) for end in ends)]
        cells.append(str(len(record.folds) or 1))
        rows.append(Row(cells, record.encoder.model))
    return rows


def _counts(result: NormalizationResult) -> dict[str, int]:
    return {
        "mentions": result.mentions,
        "unreachable": result.unreachable,
        "tied": result.tied,
    }


def _unreachable(result: NormalizationResult) -> Unreachable:
    return Unreachable(
        mentions=result.unreachable,
        share=result.unreachable / result.mentions,
        scores_of_reachable=dict(result.reachable_scores),
    )


# -------------------------------------------------------------------------------------------------
# Scores of zero-shot term normalization: acc@k and MRR.
#
# The task is the one of the CODER paper, section 3.1: the dictionary holds all terms of all
# concepts, and the predicted concept of a mention is the concept of the term that is nearest by
# cosine. Nothing is trained on the benchmark.

# Up to this many strings are encoded in one call (0.8 GB at width 768); those of larger
# dictionaries are encoded block by block during the comparison.
_ENCODED_AT_ONCE = 1 << 18

Encode = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class NormalizationResult:
    """Scores of one set of mentions, or the mean over the folds of a benchmark.

    Attributes:
      mentions: how many mentions were scored.
      unreachable: mentions none of whose gold concepts has a term in the dictionary. In `scores`
        they count as wrong.
      tied: mentions whose gold concept is as near as some other concept.
      scores: "acc@k" and "mrr" are the mean over random orders of tied concepts;
        "..._optimistic" puts the gold concept before all that it is tied with, "..._pessimistic"
        behind them. All in [0, 1].
      reachable_scores: the same over the other mentions only; empty if there are none.
      folds: the result of each fold, by its name; empty for a single set of mentions.
      ranks: of each fold, a single one too, the places of the gold concepts of its mentions.
    """

    mentions: int
    unreachable: int
    tied: int
    scores: dict[str, float]
    reachable_scores: dict[str, float]
    folds: Mapping[str, NormalizationResult] = field(default_factory=dict)
    ranks: Mapping[str, GoldCounts] = field(default_factory=dict, compare=False, repr=False)


def _check_ks(ks: Sequence[int]) -> None:
    if not ks or min(ks) < 1:
        raise ValueError(f"found ks={tuple(ks)}; expected at least one k, each 1 or more")


def _result(counts: GoldCounts, ks: Sequence[int]) -> NormalizationResult:
    reachable = counts.reachable
    of_reachable = counts.of(reachable)
    return NormalizationResult(
        mentions=len(reachable),
        unreachable=int((~reachable).sum()),
        tied=int((of_reachable.tied > 0).sum()),
        scores=rank_scores(counts, ks),
        reachable_scores=rank_scores(of_reachable, ks) if reachable.any() else {},
    )


def evaluate_normalization(
    encode: Encode,
    benchmark: NormalizationBenchmark,
    *,
    ks: Sequence[int] = (1, 3, 5),
    tie_tolerance: float = TIE_TOLERANCE,
) -> NormalizationResult:
    """Scores an encoder on a normalization benchmark; several folds give the mean over folds.

    The similarity of a mention and a concept is the largest cosine over the concept's terms. A
    mention with several gold concepts is scored by the best of them; the others never count as
    competitors. Concepts whose similarity is within `tie_tolerance` of the gold one's are tied.

    Up to _ENCODED_AT_ONCE distinct strings of all mentions and dictionaries are encoded once. Of
    more, the vectors of mentions are held and those of a dictionary asked for block by block, its
    gold concepts' terms twice: with `EncodedTerms` a file of vectors may be larger than memory.

    Args:
      encode: strings -> float32 [n, D], for instance `TermEncoder.encode`.
      benchmark: from `benchmarks.read_benchmark`; its folds hold the dictionaries.
      ks: the k of acc@k. A k larger than the number of concepts is allowed.
      tie_tolerance: in units of cosine.

    Raises:
      BadInput: the encoder gives a vector that is not finite.
    """
    _check_ks(ks)
    strings = sum(len(fold.mentions) for fold in benchmark.folds)
    strings += sum(len(one.terms) for one in benchmark.dictionaries())
    encode = _checked(encode)
    if strings <= _ENCODED_AT_ONCE:
        encode = _encoded_at_once(encode, benchmark.keys(TERMS))

    def count(mentions: list[str], gold: list[str], dictionary: Dictionary) -> GoldCounts:
        from coder_jax.evaluation.counts import count_ranks, rows_by_concept

        terms = dictionary.terms
        rows = rows_by_concept(
            lambda some: encode([terms[row] for row in some]), dictionary.concepts
        )
        return count_ranks(encode(mentions), gold, rows, tie_tolerance)

    return _counted(benchmark, count, ks)


def _counted(
    benchmark: NormalizationBenchmark,
    count: Callable[[list[str], list[str], Dictionary], GoldCounts],
    ks: Sequence[int],
) -> NormalizationResult:
    """The result of a benchmark by what counts the places of mentions' gold concepts."""
    found: dict[str, GoldCounts] = {}
    for dictionary, folds in benchmark.by_dictionary():
        mentions = [mention for fold in folds for mention in fold.mentions]
        gold = [concepts for fold in folds for concepts in fold.gold]
        counts = count(mentions, gold, dictionary)
        ends = np.cumsum([len(fold.mentions) for fold in folds])[:-1]
        parts = zip(*(np.split(part, ends) for part in counts), strict=True)
        for fold, part in zip(folds, parts, strict=True):
            found[fold.name] = GoldCounts(*part)
    ranks = {fold.name: found[fold.name] for fold in benchmark.folds}
    results = {name: _result(counts, ks) for name, counts in ranks.items()}
    whole = next(iter(results.values())) if len(results) == 1 else _mean_over_folds(results)
    return replace(whole, ranks=ranks)


def _checked(encode: Encode) -> Encode:
    """`encode`, with a check that it gives a vector for each string."""

    def checked(strings: list[str]) -> np.ndarray:
        vectors = encode(strings)
        if len(vectors) != len(strings):
            raise ValueError(f"encode gave {len(vectors)} vectors for {len(strings)} strings")
        return vectors

    return checked


def _encoded_at_once(encode: Encode, strings: list[str]) -> Encode:
    """`encode` with a cache of these strings, all of which are encoded now."""
    vectors = encode(strings)
    row_of = {string: row for row, string in enumerate(strings)}
    return lambda some: vectors[[row_of[string] for string in some]]


def _mean_over_folds(results: Mapping[str, NormalizationResult]) -> NormalizationResult:
    """The unweighted mean of the folds' scores, as the papers report it; counts are summed."""
    parts = list(results.values())

    def mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
        names = scores[0] if scores else ()
        return {name: float(np.mean([part[name] for part in scores])) for name in names}

    return NormalizationResult(
        mentions=sum(part.mentions for part in parts),
        unreachable=sum(part.unreachable for part in parts),
        tied=sum(part.tied for part in parts),
        scores=mean([part.scores for part in parts]),
        reachable_scores=mean([p.reachable_scores for p in parts if p.reachable_scores]),
        folds=dict(results),
    )


# -------------------------------------------------------------------------------------------------
# Format of Cadec and PsyTar as distributed with CODER: folds of test.txt and standard.txt, with
# rows id<TAB>term.
#
# standard.txt holds the one standard name of each target concept and is the dictionary; train.txt
# is never read: the task is zero-shot (CODER paper, section 4.4.1).

_FOLD_FILES = ("test.txt", "standard.txt")
_NO_DIGITS = str.maketrans("", "", string.digits)


@dataclass(frozen=True)
class Folds(NormalizationBenchmark):
    """Cadec, PsyTar, and others in their format; the score is the mean over the folds."""

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
        return found.is_folder and bool(_folders_of_folds(found.path))

    @classmethod
    def brings_dictionary(cls, path: Path) -> bool:
        own = (path / "standard.txt", *path.glob("*/standard.txt"))
        return any(file.is_file() for file in own)

    @classmethod
    def read(cls, given: Given) -> Self:
        folders = _check_whole(given.path, has_dictionary=given.dictionary is not None)
        folds, quoted = _read_standard_term_folds(folders, given.dictionary)
        return cls.of_folds(given, folds, quoted=quoted)


def _folders_of_folds(path: Path) -> list[Path]:
    """The folds of a folder (itself or its subfolders) that have a test.txt; none for another
    folder.
    """
    children = sorted(child for child in path.iterdir() if child.is_dir())
    return [one for one in (path, *children) if (one / "test.txt").is_file()]


def _check_whole(path: Path, *, has_dictionary: bool) -> list[Path]:
    """The folds of a folder, checked to be complete: a test.txt, and a dictionary if none is given.

    BadInput where a fold beside others is not whole, as a mean over the rest is another score. A
    fold has a file of folds, or is called as another one but for the digits.
    """
    folders = _folders_of_folds(path)
    children = sorted(child for child in path.iterdir() if child.is_dir())
    called = {folder.name.translate(_NO_DIGITS) for folder in folders if folder != path}
    needed = _FOLD_FILES[:1] if has_dictionary else _FOLD_FILES
    for one in (*folders, *children):
        is_fold = any((one / file).is_file() for file in (*_FOLD_FILES, "train.txt"))
        missing = [file for file in needed if not (one / file).is_file()]
        if missing and (is_fold or one.name.translate(_NO_DIGITS) in called):
            raise BadInput(
                f"{one}: found a fold without {' and '.join(missing)}; expected "
                f"{' and '.join(needed)} in each fold: fetch it again, or take it out of {path}"
            )
    return folders


def _read_standard_term_folds(
    folders: Sequence[Path], dictionary: Dictionary | None
) -> tuple[list[NormalizationFold], int]:
    """Folders with test.txt and standard.txt: Cadec and PsyTar.

    Both files were written by a spreadsheet: a term with a comma or a quote in it stands in quotes,
    inner ones doubled. They are taken off, and counted; CODER's released code leaves them on.
    """
    folds, quoted = [], 0
    for folder in folders:
        mentions = two_columns(folder / "test.txt", "id<TAB>term")
        quoted += sum(_unquoted(term) != term for _, term in mentions)
        own = dictionary
        if own is None:
            standard = two_columns(folder / "standard.txt", "id<TAB>term")
            own = Dictionary(
                [_unquoted(term) for _, term in standard],
                [concept for concept, _ in standard],
                str(folder / "standard.txt"),
            )
        folds.append(
            NormalizationFold(
                folder.name,
                [_unquoted(mention) for _, mention in mentions],
                [concept for concept, _ in mentions],
                own,
            )
        )
    return folds, quoted


def _unquoted(field: str) -> str:
    """A field without the quotes of a CSV writer, if it has any."""
    inner = field[1:-1]
    is_quoted = len(field) > 1 and field[0] == field[-1] == '"'
    return inner.replace('""', '"') if is_quoted and '"' not in inner.replace('""', "") else field


# -------------------------------------------------------------------------------------------------
# Format mention<TAB>CUI, with or without a header; several gold CUIs are joined with "|".
#
# With a header there may be other columns: language says that of each mention, for its cut-offs.
#
# Or a folder with mentions.tsv and dictionary.tsv, such as the heldout/ of a dataset.


@dataclass(frozen=True)
class Mentions(NormalizationBenchmark):
    """A benchmark with one fold, from a file or a folder."""

    formats: ClassVar[str] = (
        "mentions: a TSV file of mention<TAB>CUI, or a folder with mentions.tsv and dictionary.tsv"
    )
    about: ClassVar[str] = """\
mentions  a TSV file of mention<TAB>CUI (several gold CUIs joined with "|"), or the heldout/
          folder of a dataset. Looked up in --dictionary, or else in the dictionary.tsv beside it.
          With a header mention, CUI, language there are cut-offs for each language.\
"""

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.holds("mentions.tsv") or names_mentions(found.header)

    @classmethod
    def would_take(cls, found: Found) -> bool:
        return len(found.first_row) == 2

    @classmethod
    def brings_dictionary(cls, path: Path) -> bool:
        return path.is_dir()

    @classmethod
    def read(cls, given: Given) -> Self:
        path = given.path / "mentions.tsv" if given.path.is_dir() else given.path
        return cls.of_folds(given, [_read_mentions(path, given.dictionary)], path=path)


def _read_mentions(path: Path, dictionary: Dictionary | None) -> NormalizationFold:
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
    mentions, gold = [row[0] for row in rows], [row[1] for row in rows]
    return NormalizationFold("", mentions, gold, dictionary, mention_languages(path))


# -------------------------------------------------------------------------------------------------
# Format of XL-BEL as distributed with SapBERT: a folder of files such as de_1k_test_query.txt.
#
# There is a fold for each language, or one of a single file; rows are CUI||mention, or
# CUI||mention||context.

_XL_BEL_ENDS = ("_1k_test_query.txt", "_1k_test_query_with_context.txt")
_XL_BEL_ALL = "all"  # in place of a language: the union of the others


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
            return bool(_xl_bel_files(found.path))
        return found.is_text and is_double_piped(found.path)

    @classmethod
    def read(cls, given: Given) -> Self:
        return cls.of_folds(given, _read_xl_bel(given.path, given.dictionary))


def _read_xl_bel(path: Path, dictionary: Dictionary | None) -> list[NormalizationFold]:
    """A fold per language for a folder, one fold for a file. BadInput: no dictionary."""
    if dictionary is None:
        raise BadInput(
            f"{path}: found XL-BEL and no dictionary to search; give --dictionary with XL-BEL's "
            "file of CUI||name, a TSV file of term<TAB>CUI or a dataset folder"
        )
    files = _xl_bel_files(path) if path.is_dir() else {"": path}
    if len(files) > 1:
        files.pop(_XL_BEL_ALL, None)
    folds = []
    for language, file in files.items():
        rows = double_piped(file, "CUI||mention or CUI||mention||context")
        mentions, gold = [mention for _, mention in rows], [cui for cui, _ in rows]
        languages = [language] * len(mentions) if language else None
        folds.append(NormalizationFold(language, mentions, gold, dictionary, languages))
    return folds


def _xl_bel_files(path: Path) -> dict[str, Path]:
    """Language -> file of a folder of XL-BEL, sorted; empty for any other folder.

    One file with columns is enough: a broken one beside it is to be refused, as a mean over the
    other languages is another score.
    """
    # Excludes files that macOS adds, such as ._de_1k_test_query.txt.
    found = [(file, end) for end in _XL_BEL_ENDS for file in sorted(path.glob(f"[!.]*{end}"))]
    is_xl_bel = any(is_double_piped(file) for file, _ in found)
    return {file.name.removesuffix(end): file for file, end in found} if is_xl_bel else {}


# -------------------------------------------------------------------------------------------------
# The answers to mentions: as a record, and as a table.
#
# Scores tell how many mentions are right. The answers tell which, how sure the encoder was, and
# what else it considered: the terms nearest to each mention, the best one of each concept.

ANSWERS = 5  # of each mention in a table
_BINS = 40  # of the distribution of similarities
MOST_RANKS = 1 << 20  # mentions whose ranks a record keeps: 2 MB or so
_LINE_BREAKS = r"[\t\r\n]"

EncodeTerms = Callable[[Sequence[str]], np.ndarray]


class TermRows:
    """Terms as rows of unit vectors, computed when they are searched.

    Attributes:
      shape: (n, D).
    """

    def __init__(self, encode: EncodeTerms, terms: Sequence[str], width: int):
        self.encode, self.terms, self.shape = encode, terms, (len(terms), width)

    def __len__(self) -> int:
        return len(self.terms)

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        return unit(self.encode(self.terms[rows]), "dictionary vectors")


@dataclass(frozen=True)
class _FoldAnswers:
    """The answers to the mentions of a fold.

    Attributes:
      answers: of each mention, one or more concepts, best first.
      right: bool [n], whether the first one is a gold concept.
      similarities: float32 [n], of the first one.
      languages: of each mention, or of the term that was nearest to it; None if neither is known.
    """

    fold: NormalizationFold
    answers: list[list[Match]]
    right: np.ndarray
    similarities: np.ndarray
    languages: list[str] | None


def _answers_of(
    encode: EncodeTerms, benchmark: NormalizationBenchmark, most: int
) -> list[_FoldAnswers]:
    """The concepts nearest to each mention, exact, block by block over the dictionary.

    Args:
      encode: strings -> float32 [n, D].
      benchmark: of which mentions.
      most: answers for each mention.

    Raises:
      BadInput: a vector is not finite.
      Stopped: a signal asked for it.
    """
    from coder_jax.encoding.encoder import EncodedDictionary, nearest_concepts

    found = {}
    for dictionary, folds in benchmark.by_dictionary():
        mentions = unit(encode([one for fold in folds for one in fold.mentions]), "mention vectors")
        terms = TermRows(encode, dictionary.terms, mentions.shape[1])
        encoded = EncodedDictionary(dictionary.terms, dictionary.concepts, terms)
        most_here = min(most, len(dictionary.concept_set))
        answers = iter(nearest_concepts(mentions, encoded, most_here))
        for fold in folds:
            found[fold.name] = _answers_of_fold(fold, [next(answers) for _ in fold.mentions])
    return [found[fold.name] for fold in benchmark.folds]


def _answers_of_fold(fold: NormalizationFold, answers: list[list[Match]]) -> _FoldAnswers:
    """The scores of a fold's answers."""
    pairs = list(zip(answers, fold.gold, strict=True))
    right = [answer[0].concept in split_concepts(gold) for answer, gold in pairs]
    languages = fold.languages
    if languages is None and fold.dictionary.languages is not None:
        of_term = _languages_of({answer[0].term for answer in answers}, fold.dictionary)
        languages = [of_term[answer[0].term] for answer in answers]
    similarities = np.array([answer[0].similarity for answer in answers], np.float32)
    return _FoldAnswers(fold, answers, np.array(right), similarities, languages)


def _languages_of(terms: set[str], dictionary: Dictionary) -> dict[str, str]:
    """The languages of a dictionary's terms, if known."""
    rows = zip(dictionary.terms, dictionary.languages or (), strict=True)
    return {term: language for term, language in rows if term in terms}


def _described_answers(
    benchmark: NormalizationBenchmark, result: NormalizationResult, answers: Sequence[_FoldAnswers]
) -> Answers:
    """What a record says of the answers."""
    from coder_jax.mapping.confidence import measure_cutoffs

    right = np.concatenate([one.right for one in answers])
    similarities = np.concatenate([one.similarities for one in answers])
    languages = [one.languages or [""] * len(one.right) for one in answers]
    of_each = np.array([language for part in languages for language in part])
    told = any(fold.languages is not None for fold in benchmark.folds)
    return replace(
        _places_alone(benchmark, result),
        cutoffs=measure_cutoffs(similarities, right, of_each).tables,
        languages="of the mentions" if told else "of the nearest terms",
        similarities=distribution(similarities, right),
    )


def _places_alone(benchmark: NormalizationBenchmark, result: NormalizationResult) -> Answers:
    """The places of the gold concepts, in the order of the mentions."""
    of_fold = {fold.name: fold for fold in benchmark.folds}
    ranks = None
    if result.mentions <= MOST_RANKS:
        ranks = {
            name: result.ranks[name].as_text(of_fold[name].same) for name in benchmark.averaged()
        }
    return Answers(
        ranks=ranks,
        order=_order_hash(benchmark),
        cutoffs={},
        languages="",
        similarities=Distribution(low=0.0, high=1.0, right=[0], wrong=[0]),
        predictions={},
    )


def _order_hash(benchmark: NormalizationBenchmark) -> str:
    """SHA-256 of the mentions in their order."""
    digest = hashlib.sha256()
    for fold in benchmark.folds:
        for mention in fold.mentions:
            digest.update(f"{fold.name}\t{mention}\n".encode())
    return digest.hexdigest()


def distribution(similarities: np.ndarray, right: np.ndarray) -> Distribution:
    """Histogram of similarities of right and wrong answers, in bins of equal width."""
    low = np.floor(100 * similarities.min()) / 100
    edges = np.linspace(low, max(1.0, similarities.max()), _BINS + 1)
    counts = [np.histogram(similarities[some], edges)[0].tolist() for some in (right, ~right)]
    return Distribution(
        low=float(edges[0]), high=float(edges[-1]), right=counts[0], wrong=counts[1]
    )


def _write_predictions(
    folder: Path,
    benchmark: NormalizationBenchmark,
    result: NormalizationResult,
    answers: Sequence[_FoldAnswers],
    pooling: str,
) -> dict[str, str]:
    """Writes the table of each fold atomically; returns the files by fold.

    BadInput if one cannot be written.
    """
    files = {}
    for one in answers:
        table = _prediction_table(one, result.ranks[one.fold.name])
        parts = (benchmark.name, one.fold.name, pooling)
        files[one.fold.name] = write_prediction_table(folder, parts, table)
    return files


def write_prediction_table(folder: Path, parts: Sequence[str], table: pl.DataFrame) -> str:
    """Writes a table atomically; returns the file, named by the parts that are not "".

    BadInput if it cannot be written.
    """
    path = folder / f"{'.'.join(_as_file_name(part) for part in parts if part)}.tsv"
    try:
        with written_whole(path) as unfinished:
            table.write_csv(unfinished, separator="\t", quote_style="never")
    except OSError as error:
        raise BadInput(
            f"--predictions: {path} cannot be written ({error.strerror}); make room, or give "
            "another folder"
        ) from error
    return str(path)


def _as_file_name(part: str) -> str:
    """A name made safe for file names; distinct names stay distinct."""
    return quote(part, safe=" ").replace(".", "%2E")


def _prediction_table(answers: _FoldAnswers, counts: GoldCounts) -> pl.DataFrame:
    """A row for each mention: gold, its rank, the first answer's similarity, and all answers.

    `rank` is the place of the gold concept (the best of several; empty where none is in the
    dictionary), `tied` how many others are as near. A gold concept is named by its preferred term.
    """
    fold = answers.fold
    columns: dict[str, Any] = {
        "mention": fold.mentions,
        "gold": fold.gold,
        "gold_name": _gold_names(fold),
        "rank": np.where(counts.reachable, counts.ahead + 1, -1),
        "tied": np.where(counts.reachable, counts.tied, -1),
        "right": np.where(answers.right, "yes", "no"),
        "similarity": answers.similarities,
    }
    if answers.languages is not None:
        columns["language"] = answers.languages
    shown = [[(m.concept, m.term, m.similarity) for m in one[:ANSWERS]] for one in answers.answers]
    table = cleaned(pl.DataFrame(columns | answer_columns(shown)))
    places = pl.col("rank", "tied")
    return table.with_columns(pl.when(places >= 0).then(places))


def answer_columns(answers: Sequence[Sequence[tuple[str, str, float]]]) -> dict[str, pl.Series]:
    """The columns of ANSWERS answers: concept, term and similarity of each; empty if missing."""
    columns = {}
    for place in range(ANSWERS):
        at = [one[place] if place < len(one) else (None, None, None) for one in answers]
        for number, (name, kind) in enumerate(
            (("concept", pl.String), ("term", pl.String), ("similarity", pl.Float32))
        ):
            values = [one[number] for one in at]
            columns[f"{name}_{place + 1}"] = pl.Series(values, dtype=kind)
    return columns


def cleaned(table: pl.DataFrame) -> pl.DataFrame:
    """A table prepared for TSV: no line breaks, similarities with six digits."""
    return table.with_columns(
        pl.col(pl.String).str.replace_all(_LINE_BREAKS, " "),
        pl.col(pl.Float32).cast(pl.Float64).round(6),
    )


def _gold_names(fold: NormalizationFold) -> list[str]:
    """The preferred terms of each mention's gold concepts, joined; unknown ones are left out."""
    known = fold.dictionary.concept_set
    about = fold.dictionary.about
    return [
        CONCEPT_SEPARATOR.join(about(one).preferred for one in split_concepts(gold) if one in known)
        for gold in fold.gold
    ]


def wrong_answers(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a table of `_write_predictions` with a wrong first answer, most similar first.

    BadInput for another file.
    """
    needed = ("mention", "gold", "gold_name", "right", "similarity", "concept_1", "term_1")
    try:
        table = pl.read_csv(
            path,
            separator="\t",
            quote_char=None,
            infer_schema=False,
        )
        rows = (
            table.select(needed).fill_null("").with_columns(pl.col("similarity").cast(pl.Float64))
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadInput(
            f"{path}: found no table of predictions ({error}); expected one that `python -m "
            "coder_jax evaluate --predictions` wrote"
        ) from error
    wrong = rows.filter(pl.col("right") == "no")
    return wrong.sort("similarity", descending=True, maintain_order=True).iter_rows(named=True)


# -------------------------------------------------------------------------------------------------
# Held-out synonyms, scored during training: acc@1, acc@5 and MRR of an encoder.


class HeldOut:
    """Normalization of a dataset's held-out terms with the current parameters.

    Args:
        folder: of the dataset or of batches; `heldout/` has the mentions and the dictionary.
        manifest: of the dataset.
        pooling: how terms become vectors.
        most_terms: search at most so many terms: a quick look at a run, not its final score.

    Raises:
        BadInput: if no terms were held out when the dataset was built.
    """

    def __init__(self, folder: Path, manifest: Any, pooling: str, most_terms: int):
        from data_pipeline.dataset.tokenizer import load_tokenizer

        mentions = folder / "heldout" / "mentions.tsv"
        if not mentions.exists():
            raise BadInput(
                f"--eval-steps is set, but {folder} has no held-out terms; build it with "
                "--hold-out, or give --eval-steps 0"
            )
        benchmark = Mentions.read(Given("heldout", mentions))
        self.benchmark = with_terms_at_most(benchmark, most_terms)
        self.tokenizer = load_tokenizer(folder / "tokenizer")
        self.settings = EncoderSettings.of_data(manifest, pooling)

    def scores(self, bert: Bert) -> dict[str, float]:
        """acc@1, acc@5 and mrr of an encoder, and the number of terms that were searched."""
        from coder_jax.encoding.encoder import TermEncoder

        return self.scores_of(TermEncoder(bert, self.tokenizer, self.settings))

    def scores_of(self, encoder: TermEncoder) -> dict[str, float]:
        """The same scores for any encoder.

        All hosts of a run call it: each encodes its share, the first searches. The others give {}.
        """
        from coder_jax.devices.hosts import is_first
        from coder_jax.encoding.embed import embed_on_all_hosts

        encode: Encode = encoder.encode
        strings = self.benchmark.keys(TERMS)
        if len(strings) <= _ENCODED_AT_ONCE:  # of more the vectors are not held at once
            vectors = embed_on_all_hosts(encode, strings)
            encode = _encoded_at_once(lambda _: vectors, strings)
        if not is_first():
            return {}
        scores = evaluate_normalization(encode, self.benchmark).scores
        rounded = {name: round(scores[name], 4) for name in ("acc@1", "acc@5", "mrr")}
        return rounded | {"terms": len(self.benchmark.folds[0].dictionary.terms)}


_OF_TERMS = ("terms", "concepts", "languages", "vocabularies")  # columns of a dictionary


def with_terms_at_most(
    benchmark: NormalizationBenchmark, most_terms: int
) -> NormalizationBenchmark:
    """The benchmark with the terms of its gold concepts, filled up with others to `most_terms`.

    It has one dictionary.
    """
    (whole,) = benchmark.dictionaries()
    golds = (joined for fold in benchmark.folds for joined in fold.gold)
    gold = {concept for joined in golds for concept in split_concepts(joined)}
    is_gold = [not gold.isdisjoint(split_concepts(joined)) for joined in whole.concepts]
    order = sorted(range(len(is_gold)), key=lambda i: not is_gold[i])
    order = order[: max(most_terms, sum(is_gold))]
    columns = {name: getattr(whole, name) for name in _OF_TERMS}
    cut: dict[str, Any] = {
        name: column and [column[i] for i in order] for name, column in columns.items()
    }
    dictionary = dataclasses.replace(whole, **cut)
    folds = [dataclasses.replace(fold, dictionary=dictionary) for fold in benchmark.folds]
    return dataclasses.replace(benchmark, folds=folds)
