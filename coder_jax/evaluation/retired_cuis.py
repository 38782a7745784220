"""A list of retired CUIs in, the CUI that stands for each today out."""

from collections.abc import Mapping
from pathlib import Path

from coder_jax.evaluation.rows import tab_separated
from data_pipeline.errors import BadInput

BUILT = ["retired", "relation", "cui", "merged"]  # the header of a dataset's retired_cuis.tsv


def read_retired_cuis(path: str | Path) -> dict[str, str]:
    """Retired CUI -> its successor.

    Reads the retired_cuis.tsv of a dataset folder, of which the rows marked as merged count, or a
    TSV of old<TAB>new. Chains are followed to their end. A CUI with several successors was split
    and has none that stands for it: it is left out.

    Raises:
      BadInput: a broken row, or a chain that leads back to itself.
    """
    path = Path(path)
    rows = tab_separated(path)
    header = [field.lower() for field in rows[0][1]]
    expected = BUILT if header == BUILT else ["old CUI", "new CUI"]
    if header in (BUILT, ["old", "new"]):
        rows = rows[1:]
    successors: dict[str, set[str]] = {}
    for number, fields in rows:
        if len(fields) != len(expected):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns ({' '.join(fields)!r}); expected "
                f"{len(expected)}: {'<TAB>'.join(expected)}"
            )
        old, new = (fields[0], fields[2]) if expected is BUILT else fields
        if expected is BUILT and fields[3] != "true":
            continue
        if not old or not new:
            raise BadInput(f"{path}:{number}: found an empty column; expected two CUIs")
        successors.setdefault(old, set()).add(new)
    successor = {old: next(iter(new)) for old, new in successors.items() if len(new) == 1}
    return {old: _last_successor(old, successor, path) for old in successor}


def _last_successor(old: str, successor: Mapping[str, str], path: Path) -> str:
    seen = [old]
    while seen[-1] in successor:
        seen.append(successor[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise BadInput(
                f"{path}: found a chain that leads back to itself ({' -> '.join(seen)}); expected "
                "each retired CUI to lead to a living one"
            )
    return seen[-1]
