"""Reads the vocabularies of OMOP as they are downloaded from Athena into a `Source`.

The files are tab-separated UTF-8 with a header, and quotation marks are characters in them. What
the columns mean is in the OMOP Common Data Model 5.4, section Vocabulary Tables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from data_pipeline.files.tables import NOTHING, bounded_lines
from data_pipeline.process import BadInput
from data_pipeline.sources.release_files import scan_tabbed, unpack_matching
from data_pipeline.sources.source import ATOMS, RETIRED, Source, no_retired
from data_pipeline.sources.term_tables import UNDETERMINED

FILE = re.compile(r"(?:CONCEPT(?:_SYNONYM|_RELATIONSHIP)?|VOCABULARY)\.csv", re.IGNORECASE)
_COLUMNS = {
    "concept": [
        *("concept_id", "concept_name", "domain_id", "vocabulary_id", "concept_class_id"),
        *("standard_concept", "concept_code", "valid_start_date", "valid_end_date"),
        "invalid_reason",
    ],
    "concept_synonym": ["concept_id", "concept_synonym_name", "language_concept_id"],
    "concept_relationship": [
        *("concept_id_1", "concept_id_2", "relationship_id", "valid_start_date"),
        *("valid_end_date", "invalid_reason"),
    ],
    "vocabulary": [
        *("vocabulary_id", "vocabulary_name", "vocabulary_reference", "vocabulary_version"),
        "vocabulary_concept_id",
    ],
}
# The language of a synonym is a concept, which SNOMED calls "German language"; UMLS's codes.
# fmt: off
_LANGUAGES = {
    "English": "ENG", "Spanish": "SPA", "German": "GER", "French": "FRE", "Dutch": "DUT",
    "Italian": "ITA", "Portuguese": "POR", "Czech": "CZE", "Polish": "POL", "Danish": "DAN",
    "Swedish": "SWE", "Norwegian": "NOR", "Finnish": "FIN", "Estonian": "EST", "Greek": "GRE",
    "Hungarian": "HUN", "Turkish": "TUR", "Russian": "RUS", "Ukrainian": "UKR",
    "Chinese": "CHI", "Japanese": "JPN", "Korean": "KOR", "Hebrew": "HEB", "Arabic": "ARA",
}
# fmt: on
_ENGLISH = "4180186"  # where the download has no concepts of languages
_REPLACED, _MAPS_TO = "Concept replaced by", "Maps to"
NOT_STANDARD = "not standard"  # a relation of `read_not_standard`
_IS_VALID = pl.col("invalid_reason").str.to_lowercase().is_in(list(NOTHING))


def is_concepts(path: Path) -> bool:
    """Whether a file is the table CONCEPT, whatever its name."""
    try:
        with path.open("rb") as file:
            header = next(bounded_lines(file, str(path)), b"")
    except OSError:  # who reads it says so
        return False
    return _header(header.decode("utf-8-sig", errors="replace")) == _COLUMNS["concept"]


def read_omop(
    root: Path, scratch: Path, release: str | None = None, *, standard: bool = False
) -> Source:
    """The vocabularies in a folder or .zip of Athena, or in one CONCEPT.csv, as a `Source`.

    Concepts are called by their concept_id. A concept's name is its PT and English; its synonyms
    are SY. Semantic types are the domain and the class. Codes and sources are those of the
    vocabularies. Invalid concepts are obsolete (SUPPRESS=O), and retired into what replaces them.
    Relations are those of CONCEPT_RELATIONSHIP that are valid, between any two concepts.

    Args:
      root: the folder, .zip or CONCEPT.csv; the other files are looked for beside that.
      scratch: a folder that need not exist; a .zip is unpacked into it.
      release: its name; None: the version of the whole in VOCABULARY.csv.
      standard: standard concepts alone, each also under the names of the concepts that map to it.

    Raises:
      BadInput: missing files, or a broken row, with file and line.
    """
    found = {
        file["file"].lower().removesuffix(".csv"): (path, file)
        for path, file in unpack_matching(root, FILE, scratch)
    }
    if root.is_file() and root.suffix.lower() != ".zip":  # it may have another name
        found["concept"] = (root, {"file": root.name, "bytes": root.stat().st_size})
    tables = {name: scan_tabbed(path, _COLUMNS[name], _header) for name, (path, _) in found.items()}
    if "concept" not in tables:
        raise BadInput(f"{root} has no CONCEPT.csv; expected a download from Athena, whole")
    concepts = tables["concept"].with_columns(
        suppress=pl.when(_IS_VALID).then(pl.lit("N")).otherwise(pl.lit("O"))
    )
    warnings = _missing(tables)
    nameless = concepts.filter(pl.col("concept_name").str.strip_chars() == "")
    if left_out := nameless.select(pl.len()).collect().item():
        warnings.append(
            f"{left_out:,} concepts without a name were left out; CPT4 gets its names from the "
            "program cpt4.jar of the download"
        )
    concepts = concepts.filter(pl.col("concept_name").str.strip_chars() != "")
    links = tables.get("concept_relationship")
    if links is not None:
        links = links.filter(_IS_VALID).select(
            old="concept_id_1", relation="relationship_id", new="concept_id_2"
        )
    atoms = _atoms(concepts, tables.get("concept_synonym"))
    types = pl.concat(
        concepts.select(cui="concept_id", type=one) for one in ("domain_id", "concept_class_id")
    )
    if standard:
        if links is None:
            raise BadInput(
                f"{root} has no CONCEPT_RELATIONSHIP.csv, which says what maps to a standard "
                "concept; expected a download from Athena, whole"
            )
        is_standard = (pl.col("standard_concept") == "S") & (pl.col("suppress") == "N")
        kept = concepts.filter(is_standard).select(cui="concept_id")
        atoms = _of_standard(atoms, kept, links)
        types = types.join(kept, on="cui", how="semi")
    return Source(
        name="omop",
        release=release or _version(tables.get("vocabulary")),
        files=[file for _, file in found.values()],
        atoms=atoms.select(ATOMS),
        relations=None if links is None else _relations(links, concepts),
        types=types.filter(pl.col("type") != "").unique().sort("cui", "type"),
        retired=no_retired() if links is None else _retired(concepts, links),
        warnings=tuple(warnings),
    )


def read_not_standard(root: Path, scratch: Path, concepts: Sequence[str]) -> pl.DataFrame:
    """Which concepts are not standard, and what they map to, in the format of `Source.retired`.

    A concept that is not standard has a row for each that it maps to, or one without. The relation
    of a valid one is "not standard"; the others are no more, and map to something. `root` and
    `scratch` are those of `read_omop`, which has read the files without complaint.
    """
    if root.is_file() and root.suffix.lower() != ".zip":
        found = {"concept.csv": root}
    else:
        found = {}
    for path, file in unpack_matching(root, FILE, scratch):
        found.setdefault(file["file"].lower(), path)
    table = scan_tabbed(found["concept.csv"], _COLUMNS["concept"], _header)
    others = table.filter(
        pl.col("concept_id").is_in(concepts) & (pl.col("standard_concept") != "S")
    ).select(retired="concept_id", invalid=~_IS_VALID)
    links = pl.LazyFrame(schema={"retired": pl.String, "cui": pl.String})
    if "concept_relationship.csv" in found:
        columns = _COLUMNS["concept_relationship"]
        links = (
            scan_tabbed(found["concept_relationship.csv"], columns, _header)
            .filter(
                pl.col("concept_id_1").is_in(concepts),
                pl.col("relationship_id") == _MAPS_TO,
                _IS_VALID,
                pl.col("concept_id_1") != pl.col("concept_id_2"),
            )
            .select(retired="concept_id_1", cui="concept_id_2")
        )
    maps_to = pl.lit(_MAPS_TO.lower())
    return (
        others.join(links, on="retired", how="left")
        .filter(~pl.col("invalid") | pl.col("cui").is_not_null())
        .select(
            "retired",
            relation=pl.when("invalid").then(maps_to).otherwise(pl.lit(NOT_STANDARD)),
            cui=pl.col("cui").fill_null(""),
            merged=pl.lit(False),
        )
        .unique()
        .sort("retired", "relation", "cui")
        .collect()
    )


def _header(line: str) -> list[str]:
    return [name.strip().lower() for name in line.split("\t")]


def _missing(tables: dict[str, pl.LazyFrame]) -> list[str]:
    """What the download would have had, one line for each missing table."""
    what = {"concept_synonym": "no synonyms", "concept_relationship": "no relations"}
    return [
        f"{name.upper()}.csv is missing: {lost}"
        for name, lost in what.items()
        if name not in tables
    ]


def _atoms(concepts: pl.LazyFrame, synonyms: pl.LazyFrame | None) -> pl.LazyFrame:
    """Names and synonyms in the format of `Source.atoms`."""
    about = {"cui": "concept_id", "source": "vocabulary_id", "code": "concept_code"}
    names = concepts.select(
        **about,
        language=pl.lit("ENG"),
        term_type=pl.lit("PT"),
        suppress="suppress",
        rank=pl.lit(0, pl.UInt8),
        term="concept_name",
    )
    if synonyms is None:
        return names
    language = pl.col("concept_name").str.extract(r"^(\w+) language$")
    spoken = concepts.select(
        language_concept_id="concept_id",
        language=language.replace_strict(_LANGUAGES, default=None, return_dtype=pl.String),
    ).filter(pl.col("language").is_not_null())
    english = pl.when(pl.col("language_concept_id") == _ENGLISH).then(pl.lit("ENG"))
    others = (
        synonyms.filter(pl.col("concept_synonym_name").str.strip_chars() != "")
        .join(concepts, on="concept_id", maintain_order="left")
        .join(spoken, on="language_concept_id", how="left", maintain_order="left")
        .select(
            **about,
            language=pl.coalesce("language", english, pl.lit(UNDETERMINED)),
            term_type=pl.lit("SY"),
            suppress="suppress",
            rank=pl.lit(1, pl.UInt8),
            term="concept_synonym_name",
        )
    )
    return pl.concat([names, others])


def _of_standard(atoms: pl.LazyFrame, kept: pl.LazyFrame, links: pl.LazyFrame) -> pl.LazyFrame:
    """The names of standard concepts, and those of concepts that map to them."""
    mapped = links.filter(pl.col("relation") == _MAPS_TO, pl.col("old") != pl.col("new")).join(
        kept, left_on="new", right_on="cui", how="semi"
    )
    other = (
        atoms.join(mapped.select(cui="old", new="new"), on="cui", maintain_order="left")
        .join(kept, on="cui", how="anti", maintain_order="left")  # it is its own answer
        # The name of an invalid concept is a name of what it maps to. The code is not.
        .with_columns(
            code=pl.lit(""),
            cui="new",
            term_type=pl.lit("SY"),
            suppress=pl.lit("N"),
            rank=pl.col("rank") + 2,
        )
    )
    own = atoms.join(kept, on="cui", how="semi", maintain_order="left")
    return pl.concat([own, other.select(own.collect_schema().names())])


def _relations(links: pl.LazyFrame, concepts: pl.LazyFrame) -> pl.LazyFrame:
    """Each row "a Is a b" as what a is to b; the table has the other direction in a row of its
    own.
    """
    rela = pl.col("relation").str.to_lowercase().str.replace_all(r"[^\w]+", "_")
    rela = rela.replace({"is_a": "isa", "subsumes": "inverse_isa"})
    rel = pl.when(rela == "isa").then(pl.lit("CHD"))
    of_vocabulary = concepts.select(old="concept_id", source="vocabulary_id")
    return (
        links.filter(~pl.col("relation").is_in([_REPLACED, "Concept replaces"]))
        .join(of_vocabulary, on="old", maintain_order="left")
        .select(
            head="new",
            rel=rel.when(rela == "inverse_isa").then(pl.lit("PAR")).otherwise(pl.lit("RO")),
            rela=rela,
            tail="old",
            source="source",
            suppress=pl.lit("N"),
        )
    )


def _retired(concepts: pl.LazyFrame, links: pl.LazyFrame) -> pl.DataFrame:
    """Invalid concepts, and what replaces them."""
    replaced = links.filter(pl.col("relation") == _REPLACED).select(retired="old", cui="new")
    return (
        concepts.filter(pl.col("suppress") == "O")
        .select(retired="concept_id")
        .join(replaced, on="retired", how="left")
        .select(
            "retired",
            relation=pl.when(pl.col("cui").is_null())
            .then(pl.lit("invalid"))
            .otherwise(pl.lit("replaced_by")),
            cui=pl.col("cui").fill_null(""),
            merged=pl.col("cui").is_not_null(),
        )
        .select(RETIRED)
        .unique()
        .sort("retired", "relation", "cui")
        .collect()
    )


def _version(vocabulary: pl.LazyFrame | None) -> str:
    """The version of the whole download, which is that of the vocabulary "None"."""
    if vocabulary is None:
        return "unknown"
    found = vocabulary.filter(pl.col("vocabulary_id") == "None").collect()["vocabulary_version"]
    return found[0] if len(found) and found[0] else "unknown"
