"""MRCONSO, MRSTY and MRCUI of an invented release: table chunks of the UMLS's shape.

The rows of a chunk depend on the seed and the chunk's number alone, so a release of any size is
made in the memory of one chunk and a few numbers per concept.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import polars as pl

from data_pipeline.synthetic.words import LANGUAGES, NAMES, Words

CHUNK = 1 << 18
MOST_TERMS, MOST_WORDS = 400, 16
SEMANTIC_TYPES = 127
SOURCES = (
    "SNOMEDCT_US RXNORM NCI MSH LNC MTH NCBI OMIM GO ICD10CM ICD10PCS MDR MEDCIN HCPCS CPT FMA"
    " ICD9CM HPO VANDF NDDF MMSL GS USP ATC DRUGBANK HGNC UMD CHV CST PDQ"
).split()
TERM_TYPES = "PT SY FN AB PN LN LO MH PM NM SCD CN OAP IS ET HT LLT ACR DN BN".split()
# Streams of random numbers, so that no two decisions share them.
CONCEPTS, TERMS, TYPES, RETIRED = 1, 2, 3, 4


def cui(number: np.ndarray) -> pl.Series:
    """Identifiers of concepts numbered from 0; every ninth number is left to the retired ones."""
    return _padded("C", 5 + number + number // 8, 7)


def retired_cui(number: np.ndarray) -> pl.Series:
    """Identifiers of retired concepts, numbered from 0."""
    return _padded("C", 13 + 9 * number, 7)


def _padded(letter: str, number: np.ndarray, digits: int) -> pl.Series:
    return letter + pl.Series(number).cast(pl.String).str.zfill(digits)


def numbered(letter: str, number: np.ndarray) -> pl.Series:
    """Identifiers of one letter and eight digits, as LUI, SUI, AUI, RUI have them."""
    return _padded(letter, number, 8)


def terms_of_concepts(concepts: int, terms: int, seed: int) -> np.ndarray:
    """int64 [C + 1]: the rows of each concept; nearly half have one, some have hundreds."""
    rng = np.random.default_rng([seed, CONCEPTS])
    noise = np.exp(1.25 * rng.standard_normal(concepts))
    low, high = 0.0, 2.0 * terms / concepts
    for _ in range(40):  # the scale that gives the wanted sum
        scale = (low + high) / 2
        count = 1 + np.minimum(scale * noise, MOST_TERMS - 1).astype(np.int64)
        low, high = (scale, high) if count.sum() < terms else (low, scale)
    while missing := terms - int(count.sum()):
        able = np.flatnonzero(count > 1) if missing < 0 else np.arange(concepts)
        count[rng.permutation(able)[: abs(missing)]] += np.sign(missing)
    return np.concatenate([[0], np.cumsum(count)])


@lru_cache(maxsize=1)
def _words(seed: int) -> Words:
    return Words(seed)


def mrconso(term_start: np.ndarray, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRCONSO, sorted by CUI."""
    words = _words(seed)
    rows = int(term_start[-1])
    for chunk, first in enumerate(range(0, rows, CHUNK)):
        row = np.arange(first, min(first + CHUNK, rows))
        rng = np.random.default_rng([seed, TERMS, chunk])
        concept = np.searchsorted(term_start, row, side="right") - 1
        yield _atoms(row, concept, row == term_start[concept], words, rng)


def _atoms(
    row: np.ndarray,
    concept: np.ndarray,
    is_first: np.ndarray,
    words: Words,
    rng: np.random.Generator,
) -> pl.DataFrame:
    size = len(row)
    shares = np.cumsum([language.share for language in LANGUAGES.values()])
    language = np.searchsorted(shares / shares[-1], rng.random(size))
    language[is_first & (rng.random(size) < 0.9)] = 0
    # Several vocabularies have the same string: it is that of the row before.
    same = np.flatnonzero(~is_first[1:] & (rng.random(size - 1) < 0.1)) + 1
    language[same] = language[same - 1]
    text = _strings(language, words, rng)
    from_row = np.arange(size)
    from_row[same] = same - 1
    source = zipf(len(SOURCES), size, rng)
    foreign = np.array(["" if name == "ENG" else name for name in NAMES])[language]
    preferred = np.where(is_first | (rng.random(size) < 0.4), "P", "S")
    return pl.DataFrame(
        {
            "CUI": cui(concept),
            "LAT": pl.Series(np.array(NAMES)[language]),
            "TS": pl.Series(preferred),
            "LUI": numbered("L", row[from_row]),
            "STT": pl.Series(
                np.where(is_first, "PF", np.array(["PF", "VC", "VO"])[zipf(3, size, rng)])
            ),
            "SUI": numbered("S", row[from_row]),
            "ISPREF": pl.Series(np.where(is_first | (rng.random(size) < 0.6), "Y", "N")),
            "AUI": numbered("A", row),
            "SAUI": "",
            "SCUI": numbered("", concept),
            "SDUI": "",
            "SAB": pl.Series(np.array(SOURCES)[source]) + pl.Series(foreign),
            "TTY": pl.Series(np.array(TERM_TYPES)[zipf(len(TERM_TYPES), size, rng)]),
            "CODE": numbered("", concept),
            "STR": text.gather(from_row),
            "SRL": pl.Series(np.where(source % 3 == 0, "9", "0")),
            "SUPPRESS": pl.Series(suppress(size, rng)),
            "CVF": "",
        }
    )


def _strings(language: np.ndarray, words: Words, rng: np.random.Generator) -> pl.Series:
    size = len(language)
    count = np.minimum(rng.geometric(1 / (1 + words.more_words[language])), MOST_WORDS)
    columns = []
    for place in range(int(count.max())):
        index = words.draw(language, rng)
        table = words.table
        if place == 0:
            first, capital = table.gather(index), words.capitalized.gather(index)
            mask = pl.Series(rng.random(size) < 0.7)
            columns.append(capital.zip_with(mask, first).alias("0"))
            continue
        there = pl.Series(count > place)
        chosen = pl.select(pl.when(there).then(pl.Series(index))).to_series()
        columns.append(table.gather(chosen).alias(str(place)))
    text = pl.concat_str(columns, separator=" ", ignore_nulls=True)
    joined = pl.select(text).to_series()
    upper = pl.Series(rng.random(size) < 0.06)
    return joined.str.to_uppercase().zip_with(upper, joined)


def zipf(count: int, size: int, rng: np.random.Generator, offset: float = 1.0) -> np.ndarray:
    """int64 [size] in 0..count-1, the frequency of r about 1 / (r + offset)."""
    rank = offset * ((count + offset) / offset) ** rng.random(size) - offset
    return np.minimum(rank.astype(np.int64), count - 1)


def suppress(size: int, rng: np.random.Generator) -> np.ndarray:
    """N, or O, Y, E for a row in six."""
    return np.array(["N", "O", "Y", "E"])[np.searchsorted([0.83, 0.94, 0.99], rng.random(size))]


def mrsty(concepts: int, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRSTY: one semantic type per concept, or two for one in five."""
    for chunk, first in enumerate(range(0, concepts, CHUNK)):
        rng = np.random.default_rng([seed, TYPES, chunk])
        concept = np.arange(first, min(first + CHUNK, concepts))
        type_ = zipf(SEMANTIC_TYPES - 1, len(concept), rng, offset=5)
        second = np.flatnonzero(rng.random(len(concept)) < 0.2)
        row = np.insert(concept, second + 1, concept[second])
        type_ = np.insert(type_, second + 1, type_[second] + 1)
        name = _padded("", type_ + 1, 3)
        yield pl.DataFrame(
            {
                "CUI": cui(row),
                "TUI": "T" + name,
                "STN": "A1." + pl.Series(type_ + 1).cast(pl.String),
                "STY": "Invented Type " + name,
                "ATUI": numbered("AT", row),
                "CVF": "",
            }
        )


def mrcui(concepts: int, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRCUI: retired concepts, most of them merged into one that is there."""
    retired = concepts // 8
    for chunk, first in enumerate(range(0, retired, CHUNK)):
        rng = np.random.default_rng([seed, RETIRED, chunk])
        number = np.arange(first, min(first + CHUNK, retired))
        size = len(number)
        relation = np.array(["SY", "RO", "RB", "RN", "DEL"])[zipf(5, size, rng)]
        is_deleted = pl.Series(relation == "DEL")
        nothing = pl.Series([""])
        yield pl.DataFrame(
            {
                "CUI1": retired_cui(number),
                "VER": pl.Series(np.char.add(rng.integers(1993, 2020, size).astype(str), "AA")),
                "REL": pl.Series(relation),
                "RELA": "",
                "MAPREASON": "",
                "CUI2": nothing.zip_with(is_deleted, cui(rng.integers(0, concepts, size))),
                "MAPIN": nothing.zip_with(is_deleted, pl.Series(["Y"])),
            }
        )
