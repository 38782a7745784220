"""The rule for retired CUIs, used in builds and evaluations: which current CUI stands for each.

As the UMLS documents MRCUI, each of its rows names a CUI1 that was in an earlier release and is no
more. Only REL = SY says that CUI1 was merged into CUI2: the same concept under another identifier.
RB, RN and RO lead to a concept that is broader, narrower or related in another way, and DEL to
none: nothing stands for a CUI so retired, and it stays as it is. MAPIN, whether CUI2 is among the
sources that a user chose, says nothing about meaning and is not used.

OBO ontologies say the same with `replaced_by` of an obsolete class and with `alt_id`.

CUI2 is alive in the same release, so chains (A -> B, B -> C) come only from lists of several
releases, or from ontologies; they are followed to their end. One that leads back to itself is
refused. A CUI with several SY successors was split: none of them stands for all of it, and it stays
as it is.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from data_pipeline.files.buckets import local_file
from data_pipeline.files.tables import CONCEPT_SEPARATOR, content_hash, tab_separated
from data_pipeline.process import BadInput
from data_pipeline.sources.read_source import is_release, read_successions
from data_pipeline.sources.rrf import read_retired
from data_pipeline.sources.source import no_retired

_IN_DATASET = "retired_cuis.tsv"
_BUILT = ["retired", "relation", "cui", "merged"]  # the header of a dataset's retired_cuis.tsv
Known = Callable[[Sequence[str]], np.ndarray]  # which keys have a vector, bool [n]


@dataclass(frozen=True)
class RetiredCuis:
    """Retired CUI -> the living one that it was merged into, and the file that says so."""

    successor: Mapping[str, str]
    source: str

    def now(self, joined: str) -> str:
        """The concepts of a field under their current CUIs, without duplicates."""
        held = joined.split(CONCEPT_SEPARATOR)
        return CONCEPT_SEPARATOR.join(dict.fromkeys(self.successor.get(c, c) for c in held))

    def looked_up(self, concepts: Sequence[str], known: Known) -> list[str]:
        """The CUIs whose vectors are looked up: the concepts, or the successors of those without a
        vector.

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
        """The list, as it is recorded with results."""
        return {"source": self.source, "content_hash": self.content_hash}


def read_retired_cuis(path: str | Path) -> RetiredCuis:
    """Reads MRCUI.RRF, the retired_cuis.tsv of a dataset folder, or a TSV file of old<TAB>new.

    Raises:
      BadInput: a broken row, or a chain that leads back to itself.
    """
    path = Path(path)
    table = read_retired(path) if path.suffix.upper() == ".RRF" else _read_tsv(path)
    return RetiredCuis(successors(table, str(path)), str(path))


def successions_of(dictionary: str | Path, concepts: Sequence[str]) -> pl.DataFrame:
    """What a dictionary says of concepts that are no more, or not standard.

    Args:
      dictionary: as `read_dictionary` takes it. A table says nothing.
      concepts: that are asked about.

    Returns:
      a table in the format of `Source.retired`.
    """
    path = local_file(dictionary)
    if is_release(path):
        with tempfile.TemporaryDirectory() as scratch:
            return read_successions(path, Path(scratch), concepts)
    file = path / _IN_DATASET
    table = _read_tsv(file) if file.is_file() else no_retired()
    return table.filter(pl.col("retired").is_in(concepts))


def successors(retired: pl.DataFrame, where: str) -> dict[str, str]:
    """Retired CUI -> the current CUI that stands for it.

    Args:
      retired: the table of a `Source`; its columns retired, cui and merged are used.
      where: what has the table, for messages.

    Raises:
      BadInput: a merger without two CUIs, or a chain that leads back to itself.
    """
    merges = retired.filter("merged").select("retired", "cui").unique(maintain_order=True)
    for old, new in merges.filter((pl.col("retired") == "") | (pl.col("cui") == "")).iter_rows():
        raise BadInput(
            f"{where}: found {old!r} merged into {new!r}; expected two CUIs: mend or remove the row"
        )
    # A CUI with several successors was split.
    merges = merges.unique("retired", keep="none", maintain_order=True)
    successor = dict(zip(merges["retired"].to_list(), merges["cui"].to_list(), strict=True))
    return {old: _last_successor(old, successor, where) for old in successor}


def choose_list(given: str | None, dictionary: str | None) -> Path | None:
    """The list for a dictionary: the given one (None for "none"), or that of the dictionary's
    dataset.
    """
    if given:
        return None if given == "none" else Path(given)
    own = Path(dictionary or "") / _IN_DATASET
    return own if dictionary and own.is_file() else None


def _read_tsv(path: Path) -> pl.DataFrame:
    """A TSV file in the format of `Source.retired`."""
    rows = tab_separated(path)
    header = [field.lower() for field in rows[0][1]]
    expected = _BUILT if header == _BUILT else ["old CUI", "new CUI"]
    merges = []
    for number, fields in rows[1:] if header in (_BUILT, ["old", "new"]) else rows:
        if len(fields) != len(expected):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns ({' '.join(fields)!r}); expected "
                f"{len(expected)}: {'<TAB>'.join(expected)}"
            )
        relation, merged = "SY", True
        if expected is _BUILT:
            old, relation, new = fields[:3]
            merged = fields[3] == "true"
        else:
            old, new = fields
        if merged and not (old and new):
            raise BadInput(f"{path}:{number}: found an empty column; expected two CUIs")
        merges.append((old, relation, new, merged))
    return pl.DataFrame(merges, schema=no_retired().schema, orient="row")


def _last_successor(old: str, successor: Mapping[str, str], where: str) -> str:
    seen = [old]
    while seen[-1] in successor:
        seen.append(successor[seen[-1]])
        if seen[-1] in seen[:-1]:
            raise BadInput(
                f"{where}: found a chain that leads back to itself ({' -> '.join(seen)}); expected "
                "each retired CUI to lead to a living one: remove the row that is wrong"
            )
    return seen[-1]
