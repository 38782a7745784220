"""A list of retired CUIs in, the CUI that stands for each today out.

As the UMLS documents MRCUI, each of its rows names a CUI1 that was in an earlier release and is no
more. Only REL = SY says that CUI1 was merged into CUI2: the same concept under another identifier.
RB, RN and RO lead to a concept that is broader, narrower or related in another way, and DEL to
none: nothing stands for a CUI so retired, and it stays as it is. MAPIN, whether CUI2 is among the
sources that a user chose, says nothing about meaning and is not used.

CUI2 is alive in the same release, so chains (A -> B, B -> C) come only from lists of several
releases; they are followed to their end. A CUI with several SY successors was split: none of them
stands for all of it, and it stays as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from data_pipeline.files.rows import (
    CONCEPT_SEPARATOR,
    content_hash,
    read_text,
    tab_separated,
)
from data_pipeline.process.errors import BadInput

IN_DATASET = "retired_cuis.tsv"
BUILT = ["retired", "relation", "cui", "merged"]  # the header of a dataset's retired_cuis.tsv
Known = Callable[[Sequence[str]], np.ndarray]  # which keys have a vector, bool [n]
MRCUI = "CUI1|VER|REL|RELA|MAPREASON|CUI2|MAPIN|"


@dataclass(frozen=True)
class RetiredCuis:
    """Retired CUI -> the living one that it was merged into, and the file that says so."""

    successor: Mapping[str, str]
    source: str

    def now(self, joined: str) -> str:
        """The concepts of a field as they are called today, each once."""
        held = joined.split(CONCEPT_SEPARATOR)
        return CONCEPT_SEPARATOR.join(dict.fromkeys(self.successor.get(c, c) for c in held))

    def looked_up(self, concepts: Sequence[str], known: Known) -> list[str]:
        """What concept vectors are asked for: the concepts, or what those without one became.

        A vector under the CUI itself comes first, as a file may be older than the list.
        """
        pairs = zip(concepts, known(concepts), strict=True)
        return [concept if has_vector else self.now(concept) for concept, has_vector in pairs]

    def has(self, joined: str) -> bool:
        """Whether one of the concepts of a field was retired."""
        return any(concept in self.successor for concept in joined.split(CONCEPT_SEPARATOR))

    @cached_property
    def content_hash(self) -> str:
        return content_hash(self.successor.items())

    @property
    def description(self) -> dict[str, str]:
        """What a record says of it."""
        return {"source": self.source, "content_hash": self.content_hash}


def read_retired_cuis(path: str | Path) -> RetiredCuis:
    """Reads MRCUI.RRF, the retired_cuis.tsv of a dataset folder, or a TSV file of old<TAB>new.

    Raises:
      BadInput: a broken row, or a chain that leads back to itself.
    """
    path = Path(path)
    merges = _merges_of_rrf(path) if path.suffix.upper() == ".RRF" else _merges_of_tsv(path)
    successors: dict[str, set[str]] = {}
    for number, old, new in merges:
        if not old or not new:
            raise BadInput(f"{path}:{number}: found an empty column; expected two CUIs")
        successors.setdefault(old, set()).add(new)
    successor = {old: next(iter(new)) for old, new in successors.items() if len(new) == 1}
    last = {old: _last_successor(old, successor, path) for old in successor}
    return RetiredCuis(last, str(path))


def choose_list(given: str | None, dictionary: str | None) -> Path | None:
    """The list for a dictionary: the given one ("none" is none), or what its dataset has."""
    if given:
        return None if given == "none" else Path(given)
    own = Path(dictionary or "") / IN_DATASET
    return own if dictionary and own.is_file() else None


def _merges_of_rrf(path: Path) -> list[tuple[int, str, str]]:
    merges = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        fields = line.rstrip("\r").split("|")
        if fields == [""]:
            continue
        if len(fields) != 8 or fields[7]:
            raise BadInput(f"{path}:{number}: found {line[:80]!r}; expected the columns {MRCUI}")
        if fields[2] == "SY":
            merges.append((number, fields[0], fields[5]))
    return merges


def _merges_of_tsv(path: Path) -> list[tuple[int, str, str]]:
    rows = tab_separated(path)
    header = [field.lower() for field in rows[0][1]]
    expected = BUILT if header == BUILT else ["old CUI", "new CUI"]
    merges = []
    for number, fields in rows[1:] if header in (BUILT, ["old", "new"]) else rows:
        if len(fields) != len(expected):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns ({' '.join(fields)!r}); expected "
                f"{len(expected)}: {'<TAB>'.join(expected)}"
            )
        if expected is not BUILT:
            merges.append((number, fields[0], fields[1]))
        elif fields[3] == "true":
            merges.append((number, fields[0], fields[2]))
    return merges


def _last_successor(old: str, successor: Mapping[str, str], path: Path) -> str:
    seen = [old]
    while seen[-1] in successor:
        seen.append(successor[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise BadInput(
                f"{path}: found a chain that leads back to itself ({' -> '.join(seen)}); expected "
                "each retired CUI to lead to a living one: remove the row that is wrong"
            )
    return seen[-1]
