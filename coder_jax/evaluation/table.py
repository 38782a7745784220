"""Records of evaluations in; a table of normalization and one of similarity out, as text."""

from collections.abc import Sequence

from coder_jax.evaluation.protocol import EvaluationRecord


def print_records(records: Sequence[EvaluationRecord], ks: Sequence[int]) -> None:
    """Prints a table for normalization and one for similarity: benchmarks x poolings.

    Where gold concepts are unreachable, a second row has the scores of the other mentions.
    """
    normalization = [record for record in records if record.kind == "normalization"]
    if normalization:
        header = ["normalization", "pooling", "mentions", "terms", "concepts"]
        header += [f"acc@{k}" for k in ks] + ["MRR", "unreachable", "tied", f"acc@{ks[0]} by ties"]
        print_table(header, [row for record in normalization for row in _rows(record, ks)])
    similarity = [record for record in records if record.kind == "similarity"]
    if normalization and similarity:
        print()
    if similarity:
        rows = []
        for record in similarity:
            rho = record.scores["spearman"]
            shown = "undefined (all cosines are equal)" if rho is None else f"{rho:.4f}"
            rows.append(
                [record.benchmark, record.encoder.pooling, f"{record.counts['pairs']:,}", shown]
            )
        print_table(["similarity", "pooling", "pairs", "Spearman"], rows)


def _rows(record: EvaluationRecord, ks: Sequence[int]) -> list[list[str]]:
    """The row of a record over all mentions and, where it differs, over the reachable ones."""
    counts, dictionary = record.counts, record.dictionary or {}
    unreachable = record.unreachable or {}
    parts = [(record.benchmark, counts["mentions"], counts["unreachable"], record.scores)]
    reachable = unreachable["scores_of_reachable"]
    if counts["unreachable"] and reachable:
        rest = counts["mentions"] - counts["unreachable"]
        parts.append((f"{record.benchmark}, reachable", rest, 0, reachable))
    rows = []
    for name, mentions, missing, scores in parts:
        ends = (scores[f"acc@{ks[0]}_{end}"] for end in ("pessimistic", "optimistic"))
        share = f" ({percent(unreachable['share'])} %)" if missing else ""
        rows.append(
            [name, record.encoder.pooling]
            + [f"{n:,}" for n in (mentions, dictionary["terms"], dictionary["concepts"])]
            + [percent(scores[score]) for score in (*(f"acc@{k}" for k in ks), "mrr")]
            + [f"{missing:,}{share}", f"{counts['tied']:,}"]
            + ["-".join(percent(end) for end in ends)]
        )
    return rows


def percent(share: float | None) -> str:
    return "undefined" if share is None else f"{100 * share:.2f}"


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Prints columns as wide as their longest cell: the first two left, numbers right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for cells in (header, ["-" * width for width in widths], *rows):
        line = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        print("  ".join(line).rstrip())
