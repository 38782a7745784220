"""The tables of a measurement on an accelerator, as one Markdown file."""

import importlib
from collections.abc import Sequence

from benchmarks.accelerator.parts import KINDS
from benchmarks.command import Row
from benchmarks.machine import one_line

_TITLES = {
    "device": "The device",
    "models": "Encoders",
    "parity": "Steps and vectors beside the CPU's",
    "train_step": "Train step beside PyTorch",
    "group": "Large groups, with and without --cache-chunks",
    "encode": "Terms to vectors beside sentence-transformers",
    "search": "Search",
    "memory": "Memory and compilation",
    "flags": "Flags of XLA",
}
_ONE_ROW = ("train_step",)
_TOGETHER = (
    "group",
    "memory",
    "flags",
)  # all parts of a kind in one table; the others have one each


def _tables_of(kind: str, parts: Sequence[Row]) -> list[str]:
    """The tables of the measured parts of a kind."""
    table = importlib.import_module(f"benchmarks.{KINDS[kind]}").table
    if kind in _TOGETHER:
        return [table([row for part in parts for row in part["rows"]])]
    return [table(part["rows"][0] if kind in _ONE_ROW else part["rows"]) for part in parts]


def summary(parts: Sequence[Row]) -> str:
    """The outcome of each part, as a Markdown table."""
    lines = ["| part | s | limit, s | result |", "|---|---:|---:|---|"]
    for part in parts:
        result = f"left out: {part['missing']}" if part["missing"] else "measured"
        if part["note"]:
            result += f"; without {part['note']}"
        limit = "-" if part["limit_s"] is None else f"{part['limit_s']:.0f}"
        cells = [f"`{part['part']}`", f"{part['seconds']:.0f}", limit, result.replace("|", "/")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _machines(parts: Sequence[Row]) -> list[str]:
    """A line for each machine and commit on which parts were measured."""
    lines: dict[tuple[str, ...], str] = {}
    for part in parts:
        found = part["machine"]
        same = (found["processor"], str(found["cores"]), str(found["versions"]), found["commit"])
        lines.setdefault(same, one_line(found))
    return list(lines.values())


def _without_flags(parts: Sequence[Row], flags: Sequence[Row]) -> list[Row]:
    """The parts that measured the same steps as the parts with XLA flags, but without a flag."""

    def works(part: Row) -> set[tuple[str, str]]:
        return {(row["encoder"], row["dtype"]) for row in part["rows"]}

    wanted = set().union(*map(works, flags))
    measured = [part for part in parts if part["kind"] == "memory" and not part["missing"]]
    return [part for part in measured if works(part) & wanted]


def page(parts: Sequence[Row], prepared: Row) -> str:
    """The whole file.

    Args:
        parts: of accelerator.json, at least one.
        prepared: of prepared.json.
    """
    made = prepared["machine"]
    origin = (
        f"Batches and terms of {prepared['data']}, prepared at commit {made['commit']}, "
        f"{made['date'][:10]}."
    )
    blocks = ["# Measured on an accelerator", *_machines(parts), origin, summary(parts)]
    for kind, title in _TITLES.items():
        found = [part for part in parts if part["kind"] == kind and not part["missing"]]
        if found:
            if kind == "flags":
                found = _without_flags(parts, found) + found
            blocks += [f"## {title}", *_tables_of(kind, found)]
    return "\n\n".join(blocks) + "\n"
