"""MEDIC, the diseases of CTD, as it comes with NCBI disease: a line for each of them.

`id|other ids||name|synonym|...`, such as `C567755|613097||Tooth Agenesis, Selective, 6|STHAG6`. The
identifiers are of MeSH or OMIM. The first one names the concept, the others mean the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from data_pipeline.dataset.dictionaries.rows import AboutConcept, Rows
from data_pipeline.files.rows import CONCEPT_SEPARATOR, double_piped, read_text
from data_pipeline.sources.corpora.pubtator import PREFIX

# MeSH descriptors and supplementary concepts, and OMIM; a CUI of UMLS has seven digits.
IDENTIFIER = r"(?:MESH:|OMIM:)?(?:[CD]\d{6}|[CD]\d{9}|\d{6})"
FIRST_FIELD = re.compile(rf"{IDENTIFIER}(?:\|{IDENTIFIER})*", re.IGNORECASE)
MESH, OMIM = "MSH", "OMIM"  # as UMLS calls the vocabularies


def is_medic(path: Path) -> bool:
    """Whether the first line of a file of "||" has identifiers as MEDIC has them."""
    first = next((line for line in read_text(path).split("\n") if line.strip()), "")
    return FIRST_FIELD.fullmatch(first.partition("||")[0].strip()) is not None


def rows_of_medic(path: Path) -> Rows:
    """The names, a row for each concept that has it.

    Raises:
      BadInput: a broken line.
    """
    names: dict[str, dict[str, None]] = {}
    codes: dict[str, dict[tuple[str, str], None]] = {}
    for joined, written in double_piped(path, 2, "id|other ids||name|synonym|..."):
        concept, *others = (PREFIX.sub("", one.strip()) for one in joined.split(CONCEPT_SEPARATOR))
        for one in (concept, *others):
            codes.setdefault(concept, {})[OMIM if one.isdigit() else MESH, one] = None
        held = names.setdefault(concept, {})
        held.update(dict.fromkeys(filter(None, map(str.strip, written.split(CONCEPT_SEPARATOR)))))
    pairs = [(name, concept) for concept, held in names.items() for name in held]
    return Rows(
        terms=[name for name, _ in pairs],
        concepts=[concept for _, concept in pairs],
        languages=None,
        vocabularies=None,
        about_concepts={
            concept: AboutConcept(next(iter(held)), tuple(codes[concept]))
            for concept, held in names.items()
        },
        made_of={},
    )
