"""Two typical loaders, in pandas and in plain Python: the peers of `benchmarks.ingest`.

Both do the whole work of `data_pipeline.build` with its default options, less its checks, hashes
and restarts: they read MRCONSO, MRREL, MRSTY and MRCUI, leave suppressed rows out, clean the terms,
number the concepts, put each concept's terms in order, replace retired identifiers, and number the
triplets. What comes out is equal to the build's arrays, element by element: the benchmark checks
it.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.sources.rrf import COLUMNS
from data_pipeline.terminology.filters import SUPPRESSED

_ATOMS = ["CUI", "LAT", "TS", "STT", "ISPREF", "STR", "SUPPRESS"]
_RELATIONS = ["CUI1", "REL", "CUI2", "RELA", "SUPPRESS"]
_TYPES = ["CUI", "TUI", "STY"]
_RETIRED = ["CUI1", "REL", "CUI2"]

_NOS = re.compile(r"\s(?:nos\s+)+")
_BRACKETED = re.compile(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")


def clean_term(term: str) -> str:
    """The rules "paper" of `cleaning` for one string, with shortcuts first."""
    term = term.lower()
    if "nos" in term:
        term = _NOS.sub(" ", f"  {term}  ")
    if "(" in term:
        term = _BRACKETED.sub("", term)
    return " ".join(term.replace("-", " ").split())


def _language_order(languages: Iterable[str]) -> dict[str, int]:
    """English first, then A to Z."""
    ordered = sorted(set(languages), key=lambda name: (name != "ENG", name))
    return {name: number for number, name in enumerate(ordered)}


def _offsets(counts: np.ndarray) -> np.ndarray:
    """CSR offsets int64 [n + 1] of n counts."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _split_keys(keys: np.ndarray, labels: list[str], concepts: int) -> dict[str, np.ndarray]:
    """Sorted keys (head * labels + relation) * concepts + tail as three columns.

    Relations are numbered anew, by the labels that occur.
    """
    rest, tails = np.divmod(keys, concepts)
    heads, relations = np.divmod(rest, len(labels))
    _, relations = np.unique(relations, return_inverse=True)
    columns = {"heads": heads, "relations": relations, "tails": tails}
    return {name: column.astype(np.int32) for name, column in columns.items()}


def _merged_into(rows: Iterable[tuple[str, str, str]], number: dict[str, int]) -> dict[str, int]:
    """Retired identifier -> concept, if MRCUI names one known successor that is the same
    concept.
    """
    found = {
        (retired, successor)
        for retired, rel, successor in rows
        if rel == "SY" and successor in number and retired not in number
    }
    times = Counter(retired for retired, _ in found)
    return {retired: number[successor] for retired, successor in found if times[retired] == 1}


# ---------------------------------------------------------------- plain Python


def rows(release: Path, name: str, wanted: list[str]) -> Iterator[tuple[str, ...]]:
    """The wanted columns of each line of an RRF file."""
    columns = COLUMNS[name].split()
    places = [columns.index(column) for column in wanted]
    with open(release / f"{name}.RRF", encoding="utf-8", newline="\n") as file:
        for line in file:
            values = line.split("|")
            yield tuple([values[place] for place in places])


def read_with_python(release: Path) -> dict[str, Any]:
    """Line by line, into dictionaries and sets."""
    by_cui: dict[str, list[tuple[str, int, str]]] = {}
    for cui, language, ts, stt, preferred, text, suppress in rows(release, "MRCONSO", _ATOMS):
        if suppress in SUPPRESSED:
            continue
        term = clean_term(text)
        if term:
            rank = 4 * (ts != "P") + 2 * (stt != "PF") + (preferred != "Y")
            by_cui.setdefault(cui, []).append((language, rank, term))
    order = _language_order(language for atoms in by_cui.values() for language, _, _ in atoms)
    cuis = sorted(by_cui)
    number = {cui: concept for concept, cui in enumerate(cuis)}
    terms: list[str] = []
    languages = bytearray()
    term_counts = np.zeros(len(cuis), np.int64)
    for concept, cui in enumerate(cuis):
        kept: dict[str, str] = {}
        atoms = by_cui.pop(cui)
        for language, _, term in sorted(atoms, key=lambda atom: (order[atom[0]], atom[1])):
            kept.setdefault(term, language)
        terms += kept
        languages += bytes(order[language] for language in kept.values())
        term_counts[concept] = len(kept)
    if (release / "MRCUI.RRF").exists():
        retired = ((a, rel, b) for a, rel, b in rows(release, "MRCUI", _RETIRED))
        lookup = number | _merged_into(retired, number)
    else:
        lookup = number
    return {
        "cuis": cuis,
        "terms": terms,
        "term_start": _offsets(term_counts),
        "term_language": np.frombuffer(languages, np.uint8),
        **_triplets_with_python(release, lookup, len(cuis)),
        **_types_with_python(release, lookup, len(cuis)),
    }


def _triplets_with_python(
    release: Path, lookup: dict[str, int], concepts: int
) -> dict[str, np.ndarray]:
    found: dict[str, set[int]] = {}  # label -> head * concepts + tail
    for head, rel, tail, rela, suppress in rows(release, "MRREL", _RELATIONS):
        if suppress in SUPPRESSED or not (rel or rela):
            continue
        first, second = lookup.get(head), lookup.get(tail)
        if first is not None and second is not None and first != second:
            found.setdefault(f"{rel}|{rela}", set()).add(first * concepts + second)
    labels = sorted(found)
    keys = []
    for relation, label in enumerate(labels):
        pairs = found.pop(label)
        heads, tails = np.divmod(np.fromiter(pairs, np.int64, len(pairs)), concepts)
        keys.append((heads * len(labels) + relation) * concepts + tails)
    return _split_keys(np.sort(np.concatenate(keys)), labels, concepts)


def _types_with_python(
    release: Path, lookup: dict[str, int], concepts: int
) -> dict[str, np.ndarray]:
    found = set()
    for cui, tui, sty in rows(release, "MRSTY", _TYPES):
        if cui in lookup:
            found.add((lookup[cui], f"{tui} {sty}"))
    names = sorted({name for _, name in found})
    number = {name: place for place, name in enumerate(names)}
    table = sorted(found)
    counts = np.bincount([concept for concept, _ in table], minlength=concepts)
    types = np.array([number[name] for _, name in table], np.int32)
    return {"type_start": _offsets(counts), "types": types}


# ---------------------------------------------------------------- pandas


def _read_csv(release: Path, name: str, wanted: list[str], parser: str):
    """One RRF file as a DataFrame of strings, quoting off, nothing taken for a missing value."""
    names = [*COLUMNS[name].split(), "END"]
    path = release / f"{name}.RRF"
    if parser == "c":
        import pandas

        return pandas.read_csv(
            path,
            sep="|",
            header=None,
            names=names,
            usecols=wanted,
            dtype=str,
            quoting=csv.QUOTE_NONE,
            na_filter=False,
            encoding="utf-8",
        )
    # pandas with engine="pyarrow" refuses quoting=QUOTE_NONE, so pyarrow's reader is called
    # directly.
    from pyarrow import csv as arrow

    return arrow.read_csv(
        path,
        read_options=arrow.ReadOptions(column_names=names),
        parse_options=arrow.ParseOptions(delimiter="|", quote_char=False),
        convert_options=arrow.ConvertOptions(
            include_columns=wanted, column_types={column: "string" for column in wanted}
        ),
    ).to_pandas()


def read_with_pandas(release: Path, parser: str) -> dict[str, Any]:
    """Column by column; `parser` is "c", pandas's own, or "pyarrow"."""
    import pandas

    atoms = _read_csv(release, "MRCONSO", _ATOMS, parser)
    atoms = atoms[~atoms["SUPPRESS"].isin(SUPPRESSED)]
    order = _language_order(atoms["LAT"].unique())
    rank = (
        4 * (atoms["TS"] != "P").astype("int8")
        + 2 * (atoms["STT"] != "PF").astype("int8")
        + (atoms["ISPREF"] != "Y").astype("int8")
    )
    # A loop, not .str: three times as fast, and right for every alphabet.
    term = [clean_term(text) for text in atoms["STR"]]
    atoms = pandas.DataFrame(
        {"cui": atoms["CUI"], "language": atoms["LAT"].map(order), "rank": rank, "term": term}
    )
    atoms = atoms[atoms["term"] != ""]
    cuis = pandas.Index(atoms["cui"].unique()).sort_values()
    atoms["concept"] = cuis.get_indexer(atoms["cui"])
    atoms = atoms.drop(columns="cui").sort_values(["concept", "language", "rank"], kind="stable")
    atoms = atoms.drop_duplicates(["concept", "term"])
    return {
        "cuis": cuis.tolist(),
        "terms": atoms["term"].tolist(),
        "term_start": _offsets(np.bincount(atoms["concept"], minlength=len(cuis))),
        "term_language": atoms["language"].to_numpy(np.uint8),
        **_numbered_with_pandas(release, parser, cuis),
    }


def _numbered_with_pandas(release: Path, parser: str, cuis) -> dict[str, np.ndarray]:
    import pandas

    lookup, concept_of = cuis, np.arange(len(cuis))
    if (release / "MRCUI.RRF").exists():
        table = _read_csv(release, "MRCUI", _RETIRED, parser)
        number = {cui: concept for concept, cui in enumerate(cuis)}
        merged = _merged_into(table[_RETIRED].itertuples(index=False), number)
        lookup = cuis.append(pandas.Index(list(merged), dtype=cuis.dtype))
        concept_of = np.concatenate([concept_of, np.array(list(merged.values()), np.int64)])
    types = _read_csv(release, "MRSTY", _TYPES, parser)
    place = lookup.get_indexer(types["CUI"])
    types = pandas.DataFrame(
        {"concept": concept_of[place], "type": types["TUI"] + " " + types["STY"]}
    )[place >= 0]
    types = types.drop_duplicates().sort_values(["concept", "type"])
    _, type_number = np.unique(types["type"].to_numpy(object), return_inverse=True)
    relations = _read_csv(release, "MRREL", _RELATIONS, parser)
    relations = relations[~relations["SUPPRESS"].isin(SUPPRESSED)]
    heads, tails = (lookup.get_indexer(relations[column]) for column in ("CUI1", "CUI2"))
    codes, labels = pandas.factorize(relations["REL"] + "|" + relations["RELA"], sort=True)
    del relations
    kept = (heads >= 0) & (tails >= 0) & (labels.to_numpy(object) != "|")[codes]
    heads, tails, codes = concept_of[heads[kept]], concept_of[tails[kept]], codes[kept]
    kept = heads != tails
    keys = (heads[kept] * len(labels) + codes[kept]) * len(cuis) + tails[kept]
    return {
        "type_start": _offsets(np.bincount(types["concept"], minlength=len(cuis))),
        "types": type_number.astype(np.int32),
        **_split_keys(np.unique(keys), list(labels), len(cuis)),
    }
