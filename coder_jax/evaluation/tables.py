"""Records of evaluations in, a table for each kind of benchmark out; and tables as text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coder_jax.evaluation.normalization.mantra_files import FORMAT as MANTRA
from coder_jax.evaluation.published import MCSM_TYPES, rows_for
from coder_jax.evaluation.record import EvaluationRecord


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      cells: the first is the benchmark or the term.
      encoder: the model of the record, or what the paper calls its encoder.
      published: paper and table that the row is from; "" for a row of a record.
    """

    cells: list[str]
    encoder: str
    published: str = ""


Table = tuple[list[str], list[Row]]  # header and rows


def print_records(records: Sequence[EvaluationRecord], ks: Sequence[int]) -> None:
    """Prints the tables of `tables_of`."""
    for number, table in enumerate(tables_of(records, ks)):
        if number:
            print()
        print_table(*table)


def tables_of(records: Sequence[EvaluationRecord], ks: Sequence[int]) -> list[Table]:
    """A table for each kind of benchmark that there is: benchmarks x poolings.

    Where gold concepts are unreachable, a second row has the scores of the other mentions. Below
    the rows of a benchmark whose name says that it is one of the papers' (cadec, psytar, mantra,
    mcsm, ddbrc) are the papers' own, marked as published.
    """
    tables: dict[str, Callable[[Sequence[EvaluationRecord]], Table]] = {
        "normalization": lambda chosen: normalization_table(chosen, ks),
        "similarity": similarity_table,
        MANTRA: mantra_table,
        "concept similarity": concept_similarity_table,
        "relation classification": relation_table,
        "link prediction": link_table,
        "nearest terms": case_study_table,
    }
    by_kind = {kind: [record for record in records if record.kind == kind] for kind in tables}
    return [table(by_kind[kind]) for kind, table in tables.items() if by_kind[kind]]


def normalization_table(records: Sequence[EvaluationRecord], ks: Sequence[int]) -> Table:
    """acc@k and MRR; all mentions, and where it differs a row of the reachable ones.

    The scores are means over the folds, or languages, that are counted in the last column.
    """
    header = ["normalization", "pooling", "mentions", "terms", "concepts"]
    scores = [f"acc@{k}" for k in ks]
    missing = missing_column(records)
    header += [*scores, "MRR", "unreachable", *missing, "tied", f"acc@{ks[0]} by ties", "folds"]
    rows = [row for record in records for row in _rows(record, ks, missing)]
    return header, rows + published_rows(records, scores, len(header), before=5, digits=2)


def missing_column(records: Sequence[EvaluationRecord]) -> list[str]:
    """["missing"] if something has no vector in one of the records; encoders have one for all."""
    return ["missing"] if any(record.counts.get("missing") for record in records) else []


def published_rows(
    records: Sequence[EvaluationRecord],
    scores: Sequence[str],
    width: int,
    *,
    before: int,
    digits: int,
) -> list[Row]:
    """Rows of the papers for the benchmarks of the records, marked so.

    Args:
      scores: what the paper calls the columns that have a value.
      width: columns of the table; the scores stand behind the first `before` of them.
      digits: behind the decimal point.
    """
    rows = []
    for name in dict.fromkeys(record.benchmark for record in records):
        for row in rows_for(name):
            values = [row.scores.get(score) for score in scores]
            if all(value is None for value in values):
                continue
            shown = ["" if value is None else f"{value:.{digits}f}" for value in values]
            cells = [name, row.pooling, *[""] * (before - 2), *shown]
            cells += [""] * (width - len(cells))
            rows.append(Row(cells, row.encoder, f"{row.paper}, table {row.table}"))
    return rows


def mantra_table(records: Sequence[EvaluationRecord]) -> Table:
    """F1 of each sub-corpus, in percent; mean precision, recall and F1.

    A second row has in their place what CODER's released code calls F1: hits per pair of mention
    and CUI, the recall.
    """
    corpora = list(dict.fromkeys(name for record in records for name in record.folds))
    missing = missing_column(records)
    header = [MANTRA, "pooling", "mentions", "CUIs", "unreachable", *missing]
    before = len(header)
    header += [*corpora, "precision", "recall", "F1"]
    rows = []
    for record in records:
        names = ("mentions", "annotations", "unreachable", *missing)
        counts = [record.counts.get(name, 0) for name in names]
        label = [record.benchmark, record.encoder.pooling]
        of_corpora = [record.folds.get(name, {}).get("scores", {}) for name in corpora]
        means = [record.scores[name] for name in ("precision", "recall", "f1")]
        cells = [*label, *(f"{count:,}" for count in counts)]
        cells += [short_percent(scores.get("f1")) for scores in of_corpora]
        rows.append(Row([*cells, *map(short_percent, means)], record.encoder.model))
        label[0] += ", hits per pair (released code)"
        cells = [*label, *[""] * len(counts), *(short_percent(s.get("recall")) for s in of_corpora)]
        cells += ["", "", short_percent(record.scores["recall"])]
        rows.append(Row(cells, record.encoder.model))
    return header, rows + published_rows(records, corpora, len(header), before=before, digits=1)


def relation_table(records: Sequence[EvaluationRecord]) -> Table:
    """Accuracy on the test pairs, in percent, beside always answering the most frequent label."""
    header = ["relation classification", "pooling", "train", "test", "unseen", "labels"]
    header += ["missing", "unnamed", "frozen", "fine-tuned", "macro F1", "most frequent"]
    rows = []
    for record in records:
        # Records of before "unseen" was counted have none: such files were refused.
        counts = [f"{record.counts.get(name, 0):,}" for name in header[2:8]]
        accuracy = percent(record.scores["accuracy"])
        by_features = [accuracy if record.scoring["features"] == f else "" for f in header[8:10]]
        rest = [percent(record.scores[name]) for name in ("macro_f1", "most_frequent")]
        cells = [record.benchmark, record.encoder.pooling, *counts, *by_features, *rest]
        rows.append(Row(cells, record.encoder.model))
    return header, rows + published_rows(records, header[8:10], len(header), before=8, digits=2)


def link_table(records: Sequence[EvaluationRecord]) -> Table:
    """Filtered MRR and Hits@k, in percent, through the relations and by the plain cosine."""
    missing = missing_column(records)
    header = ["link prediction", "pooling", "triplets", "relations", "concepts", *missing]
    header += ["no relation"]
    names = ("triplets", "relations", "concepts", *missing, "without_relation")
    shown = {"MRR": "mrr", "Hits@1": "hits@1", "Hits@10": "hits@10"}
    header += [*shown, *(f"cosine {name}" for name in shown)]
    rows = []
    for record in records:
        counts = [f"{record.counts.get(name, 0):,}" for name in names]
        scores = [record.scores[n + s] for s in ("", "_cosine") for n in shown.values()]
        label = [record.benchmark, record.encoder.pooling]
        cells = [*label, *counts, *(percent(score) for score in scores)]
        rows.append(Row(cells, record.encoder.model))
    return header, rows


def case_study_table(records: Sequence[EvaluationRecord]) -> Table:
    """The nearest terms of each, one a row, and what the paper has in their place."""
    header = ["nearest terms of", "nearest", "cosine", "concept", "pooling", "published"]
    rows = []
    for record in records:
        for case in record.folds.values():
            label = f"{case['term']} ({case['language']})" if case["language"] else case["term"]
            found, published = case["nearest"], case["published"]
            shown = [[one["term"], f"{one['cosine']:.3f}", one["concept"]] for one in found]
            for place, cells in enumerate(shown or [["(no vector)", "", ""]]):
                paper = published[place] if place < len(published) else ""
                cells = [label if not place else "", *cells, record.encoder.pooling, paper]
                rows.append(Row(cells, record.encoder.model))
    return header, rows


def similarity_table(records: Sequence[EvaluationRecord]) -> Table:
    """Spearman's rho of each way to count (all pairs, groups of raters, pairs with vectors)."""
    rows = []
    for record in records:
        for name, rho in record.scores.items():
            part = name.removeprefix("spearman").removeprefix("_")
            shown = "undefined (all values are equal)" if rho is None else f"{rho:.4f}"
            pairs = record.counts["pairs"] - record.counts["missing"] * (part == "known")
            label = f"{record.benchmark}, {part}" if part else record.benchmark
            missing = f"{record.counts['missing']:,}"
            cells = [label, record.encoder.pooling, f"{pairs:,}", missing, shown]
            rows.append(Row(cells, record.encoder.model))
    return ["similarity", "pooling", "pairs", "missing", "Spearman"], rows


def concept_similarity_table(records: Sequence[EvaluationRecord]) -> Table:
    """MCSM of each semantic type, and what random neighbours would have."""
    types = list(dict.fromkeys(name for record in records for name in record.folds))
    header = ["MCSM", "pooling", "concepts", "missing", *(MCSM_TYPES.get(t, t) for t in types)]
    rows = []
    for record in records:
        counts = [f"{record.counts[name]:,}" for name in ("concepts", "missing")]
        scores = [record.folds.get(t, {}).get("scores", {}) for t in types]
        mcsm = [one_decimal(score.get("mcsm")) for score in scores]
        chance = [one_decimal(score.get("chance")) for score in scores]
        cells = [record.benchmark, record.encoder.pooling, *counts, *mcsm]
        rows.append(Row(cells, record.encoder.model))
        rows.append(Row([f"{record.benchmark}, by chance", "", "", "", *chance], ""))
    return header, rows + published_rows(records, types, len(header), before=4, digits=1)


def _rows(record: EvaluationRecord, ks: Sequence[int], missing: Sequence[str]) -> list[Row]:
    """The row of a record over all mentions and, where it differs, over the reachable ones."""
    counts, dictionary = record.counts, record.dictionary or {}
    unreachable = record.unreachable or {}
    parts = [(record.benchmark, counts["mentions"], counts["unreachable"], record.scores)]
    reachable = unreachable["scores_of_reachable"]
    if counts["unreachable"] and reachable:
        rest = counts["mentions"] - counts["unreachable"]
        parts.append((f"{record.benchmark}, reachable", rest, 0, reachable))
    rows = []
    for name, mentions, out_of_reach, scores in parts:
        ends = (scores[f"acc@{ks[0]}_{end}"] for end in ("pessimistic", "optimistic"))
        share = f" ({percent(unreachable['share'])} %)" if out_of_reach else ""
        cells = (
            [name, record.encoder.pooling]
            + [f"{n:,}" for n in (mentions, dictionary["terms"], dictionary["concepts"])]
            + [percent(scores[score]) for score in (*(f"acc@{k}" for k in ks), "mrr")]
            + [f"{out_of_reach:,}{share}"]
            + [f"{counts.get(count, 0):,}" for count in (*missing, "tied")]
            + ["-".join(percent(end) for end in ends), str(len(record.folds) or 1)]
        )
        rows.append(Row(cells, record.encoder.model))
    return rows


def percent(share: float | None) -> str:
    return "undefined" if share is None else f"{100 * share:.2f}"


def short_percent(share: float | None) -> str:
    return one_decimal(None if share is None else 100 * share)


def one_decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def print_table(header: list[str], rows: list[Row]) -> None:
    """Prints columns as wide as their longest cell: the first two left, numbers right."""
    lines = [printed_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in (header, *lines)) for column in range(len(header))]
    for cells in (header, ["-" * width for width in widths], *lines):
        line = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        print("  ".join(line).rstrip())


def printed_cells(row: Row) -> list[str]:
    """The cells of a row; a published one says so in its first."""
    if not row.published:
        return row.cells
    label = f"{row.cells[0]}: {row.encoder} (published, {row.published})"
    return [label, *row.cells[1:]]
