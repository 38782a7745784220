"""Normalization: mentions, gold concepts and the dictionary that is searched for them.

What it is, whatever the format of its files: its scores, record and table. The formats are
`mentions.Mentions`, `folds.Folds`, `xl_bel.XlBel` and, with scores of its own, `mantra.Mantra`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from coder_jax.evaluation.benchmark import Benchmark, Flag, Given, Options
from coder_jax.evaluation.normalization.ranks import TIE_TOLERANCE, rank_intervals
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import ABOUT
from coder_jax.evaluation.results.cells import Row, Table, missing_column, percent, published_rows
from coder_jax.evaluation.results.published import NORMALIZATION, PublishedRow
from coder_jax.evaluation.vectors.vectors import Vectors, terms_only
from data_pipeline.dataset.dictionary import Dictionary, union
from data_pipeline.files.rows import content_hash, split_concepts
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization.accuracy import NormalizationResult


@dataclass(frozen=True)
class NormalizationFold:
    """Mentions, their gold concepts (several joined with "|"), and what is searched for them.

    `languages` are those of the mentions, where their file tells.
    """

    name: str
    mentions: list[str]
    gold: list[str]
    dictionary: Dictionary
    languages: list[str] | None = None


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
    flags: ClassVar[tuple[Flag, ...]] = (
        Flag(
            "--k",
            "the k of acc@k (default: 1 3 5)",
            default=[1, 3, 5],
            least=1,
            argparse={"nargs": "+", "type": int},
        ),
        Flag(
            "--predictions",
            "folder for a TSV file of each benchmark, fold and pooling: mentions, gold, its rank, "
            "and the five nearest concepts",
            argparse={"type": Path, "metavar": "DIR"},
        ),
    )
    flags_under: ClassVar[str] = "mentions and terms"
    published: ClassVar[tuple[PublishedRow, ...]] = NORMALIZATION
    # What the k of acc@k counts.
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
        """The benchmark of folds as the files have them, in the CUIs of today.

        BadInput for a fold none of whose gold concepts is in its dictionary.
        """
        rows_hash = content_hash(
            (fold.name, mention, gold)
            for fold in folds
            for mention, gold in zip(fold.mentions, fold.gold, strict=True)
        )
        benchmark = cls(given.name, str(path or given.path), folds, rows_hash, quoted=quoted)
        if given.retired_cuis is not None:
            benchmark = with_successors(benchmark, given.retired_cuis)
        check_reachable(benchmark)
        return benchmark

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of all mentions and dictionaries; BadInput for concept vectors."""
        terms_only(keyed_by, self.path)
        sides = [fold.mentions for fold in self.folds] + [one.terms for one in self.dictionaries()]
        return list(dict.fromkeys(chain.from_iterable(sides)))

    def dictionaries(self) -> list[Dictionary]:
        return list({id(fold.dictionary): fold.dictionary for fold in self.folds}.values())

    def averaged(self) -> list[str]:
        """The folds that the score is the mean over."""
        return [fold.name for fold in self.folds]

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation.normalization.accuracy import evaluate_normalization

        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        result = evaluate_normalization(vectors.encode, self, ks=options["k"])
        record = normalization_record(self, result, encoder, missing=missing, seed=options["seed"])
        return with_answers(record, self, result, vectors, options)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """acc@k and MRR; all mentions, and where it differs a row of the reachable ones.

        The scores are means over the folds, or languages, that are counted in the last column.
        """
        ks = options["k"]
        header = ["normalization", "pooling", "mentions", "terms", "concepts"]
        scores = [f"acc@{k}" for k in ks]
        missing = missing_column(records)
        header += [*scores, "MRR", "unreachable", *missing, "tied", f"acc@{ks[0]} by ties", "folds"]
        rows = [row for record in records for row in _rows(record, ks, missing)]
        papers = published_rows(records, cls.published, scores, len(header), before=5, digits=2)
        return header, rows + papers


AnyFormat = TypeVar("AnyFormat", bound=NormalizationBenchmark)


def with_successors(benchmark: AnyFormat, retired_cuis: RetiredCuis) -> AnyFormat:
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
        if not any(known.intersection(split_concepts(gold)) for gold in fold.gold):
            raise BadInput(
                f"{benchmark.path}: found none of the gold concepts of {len(fold.gold)} mentions "
                f"(such as {fold.gold[0]!r} of {fold.mentions[0]!r}) in the dictionary "
                f"{fold.dictionary.source} (such as {fold.dictionary.concepts[0]!r}); expected "
                "concepts of one vocabulary, in the second column of both"
            )


def with_answers(
    record: EvaluationRecord,
    benchmark: NormalizationBenchmark,
    result: NormalizationResult,
    vectors: Vectors,
    options: Options,
) -> EvaluationRecord:
    """The record with what each mention was answered; tables of it where they are asked for."""
    from coder_jax.evaluation.normalization import answers

    folder = options["predictions"]
    found = answers.answers_of(vectors.encode, benchmark, answers.ANSWERS if folder else 1)
    described = answers.described(benchmark, result, found)
    if folder:
        pooling = record.encoder.pooling
        files = answers.write_predictions(folder, benchmark, result, found, pooling)
        described["predictions"] = files
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
    parts = list(result.folds.values()) or [result]
    ks = [int(name[4:]) for name in result.scores if name[4:].isdigit()]
    ranks = [part.ranks for part in parts if part.ranks is not None]
    of_fold = {fold.name: fold for fold in benchmark.folds}
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
            "folds": len(result.folds) or 1,
        },
        unreachable={
            **_unreachable(result),
            "intervals_of_reachable": rank_intervals(ranks, ks, seed, of_reachable=True),
        },
        intervals=rank_intervals(ranks, ks, seed),
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
            "intervals": f"{ABOUT}, mentions drawn anew within their fold",
        },
        folds={
            name: {
                "scores": dict(part.scores),
                "intervals": rank_intervals([part.ranks], ks, seed) if part.ranks else {},
                "counts": _counts(part),
                "unreachable": _unreachable(part),
                "dictionary": of_fold[name].dictionary.description,
            }
            for name, part in result.folds.items()
        },
        encoder=encoder,
    )


def _rows(record: EvaluationRecord, ks: Sequence[int], missing: Sequence[str]) -> list[Row]:
    """The row of a record over all mentions and, where it differs, over the reachable ones."""
    counts, dictionary = record.counts, record.dictionary or {}
    unreachable = record.unreachable or {}
    whole = record.scores, record.intervals
    parts = [(record.benchmark, counts["mentions"], counts["unreachable"], *whole)]
    reachable = unreachable["scores_of_reachable"]
    if counts["unreachable"] and reachable:
        rest = counts["mentions"] - counts["unreachable"]
        of_rest = reachable, unreachable.get("intervals_of_reachable", {})
        parts.append((f"{record.benchmark}, reachable", rest, 0, *of_rest))
    rows = []
    for name, mentions, out_of_reach, scores, sure in parts:
        ends = (scores[f"acc@{ks[0]}_{end}"] for end in ("pessimistic", "optimistic"))
        share = f" ({percent(unreachable['share'])} %)" if out_of_reach else ""
        cells = (
            [name, record.encoder.pooling]
            + [f"{n:,}" for n in (mentions, dictionary["terms"], dictionary["concepts"])]
            + [percent(scores[one], sure.get(one)) for one in (*(f"acc@{k}" for k in ks), "mrr")]
            + [f"{out_of_reach:,}{share}"]
            + [f"{counts.get(count, 0):,}" for count in (*missing, "tied")]
            + ["-".join(percent(end) for end in ends), str(len(record.folds) or 1)]
        )
        rows.append(Row(cells, record.encoder.model))
    return rows


def _counts(result: NormalizationResult) -> dict[str, int]:
    return {
        "mentions": result.mentions,
        "unreachable": result.unreachable,
        "tied": result.tied,
    }


def _unreachable(result: NormalizationResult) -> dict[str, Any]:
    return {
        "mentions": result.unreachable,
        "share": result.unreachable / result.mentions,
        "scores_of_reachable": dict(result.reachable_scores),
    }
