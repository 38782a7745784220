"""Mentions and the set of gold names or identifiers of each, whatever file they come in.

Read are CHIP-2019 (Yidu-N7K) as it is distributed, tab-separated or .xlsx; CHIP-CDN (.json);
PubTator (NCBI disease, BC5CDR); and plain tables of mention and gold. All gold of a mention is
meant, not one or the other of it: `##` joins several, and in a plain table `|` does where a whole
is no gold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_pipeline.files.json_files import read_json_value, typed
from data_pipeline.files.rows import CONCEPT_SEPARATOR, read_text
from data_pipeline.files.tables.delimited import Rows
from data_pipeline.files.tables.table import is_empty, is_workbook, read_rows
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.pubtator import is_pubtator, read_pubtator

NAME_SEPARATOR = "##"
MENTION_COLUMNS = {"mention", "term", "text", "string", "原始词"}
GOLD_COLUMNS = {"name", "names", "gold", "标准词", "cui", "cuis", "concept", "concepts", "code"}
GOLD_COLUMNS |= {"codes", "concept_id", "id", "ids", "normalized_result"}
CSV_FIELD = re.compile(r'"((?:[^"]|"")*)"')  # CHIP-CDN has some whose quotes were left


class GoldMention(NamedTuple):
    """A mention, its gold as the file writes it, and the place of that, such as "train.tsv:12"."""

    mention: str
    gold: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class GoldMentions:
    """The mentions of a file, in its order.

    Attributes:
      rows: what was read; a mention has one gold at least, each once.
      counts: what was seen on the way, by what it is.
      odd: a line for each thing that was left out or mended, with its place.
    """

    rows: list[GoldMention]
    counts: Counter[str]
    odd: list[str]


def read_gold(path: Path, types: Sequence[str] = ()) -> GoldMentions:
    """The mentions of a file, found out by its content.

    Args:
      path: .json as CHIP-CDN has it; PubTator; or a table of two columns, mention and gold, as
        text or .xlsx, with a header or without.
      types: of PubTator, the types of mentions to take, such as ["Disease"]; none: all.

    Raises:
      BadInput: if it cannot be read, or has no mention with gold.
    """
    if path.suffix.lower() == ".json":
        found = _Reading(_json_rows(path))
    elif not is_workbook(path) and is_pubtator(path):
        found = _Reading(read_pubtator(path, types))
    else:
        found = _Reading(_table_rows(path))
    if not found.rows:
        raise BadInput(
            f"{path}: found no mention with gold; expected rows of mention<TAB>gold, JSON of CHIP-"
            f"CDN, or PubTator{f' with mentions of the type {types[0]}' if types else ''}"
        )
    return GoldMentions(found.rows, found.counts, found.odd)


class _Reading:
    """Sorts rows of (place, mention, gold strings, or what is wrong with the row)."""

    def __init__(self, rows: Iterator[tuple[str, str, Sequence[str], str]]):
        self.rows: list[GoldMention] = []
        self.counts: Counter[str] = Counter()
        self.odd: list[str] = []
        for place, mention, gold, wrong in rows:
            self._take(place, mention, gold, wrong)

    def _take(self, place: str, mention: str, gold: Sequence[str], wrong: str) -> None:
        kept = [one for one in map(str.strip, gold) if one]
        distinct = tuple(dict.fromkeys(kept))
        if not wrong and not mention.strip():
            wrong = "no mention"
        if not wrong and not kept:
            wrong = "no gold"
        if wrong:
            self._note(f"rows left out: {wrong}", f"{place}: left out: {wrong}")
            return
        if len(distinct) < len(kept):
            self._note("repeated gold, counted once", f"{place}: repeated gold: {kept}")
        self.rows.append(GoldMention(mention.strip(), distinct, place))

    def _note(self, count: str, line: str) -> None:
        self.counts[count] += 1
        self.odd.append(line)


def _json_rows(path: Path) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Rows of CHIP-CDN: a list of {text, normalized_result}; in its test set the gold is empty."""
    rows = typed(read_json_value(path), list[dict[str, str]], str(path))
    for number, row in enumerate(rows, start=1):
        mention, joined = unquoted(row.get("text", "")), unquoted(row.get("normalized_result", ""))
        gold = [unquoted(one) for one in joined.split(NAME_SEPARATOR)]
        yield f"{path.name}: entry {number}", mention, gold, ""


def unquoted(field: str) -> str:
    """A string without the quotes of a CSV field around it."""
    match = CSV_FIELD.fullmatch(field.strip())
    return match[1].replace('""', '"') if match else field


def _table_rows(path: Path) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Rows of a table of two columns, a header left out."""
    filled = [(number, fields) for number, fields in rows_of(path) if not is_empty(fields)]
    if filled and is_header(filled[0][1]):
        del filled[0]
    for number, fields in filled:
        place = f"{path.name}:{number}"
        if len(fields) != 2:
            yield place, "", (), f"{len(fields)} columns in place of 2"
        else:
            yield place, fields[0], fields[1].split(NAME_SEPARATOR), ""


def rows_of(path: Path) -> Rows:
    """The rows of a table as they stand.

    In text that tabs divide, quotes are ordinary characters. Where its first line has none, it is
    read as `read_rows` does, with the separator and the quotes of a CSV file.
    """
    if is_workbook(path):
        return read_rows(path)[1]
    lines = [line.rstrip("\r").split("\t") for line in read_text(path).split("\n")]
    rows = list(enumerate(lines, start=1))
    first = next((fields for fields in lines if not is_empty(fields)), [])
    return rows if len(first) != 1 else read_rows(path)[1]


def is_header(fields: Sequence[str]) -> bool:
    """Whether the fields of a first row name the columns of mentions and gold."""
    lower = [field.strip().lower() for field in fields]
    return len(lower) == 2 and lower[0] in MENTION_COLUMNS and lower[1] in GOLD_COLUMNS


def split_unknown(gold: str, known: Container[str]) -> list[str]:
    """A gold string, or where it is none of the known ones the parts that "|" joins."""
    if gold in known or CONCEPT_SEPARATOR not in gold:
        return [gold]
    return [part for part in map(str.strip, gold.split(CONCEPT_SEPARATOR)) if part]
