"""A release of SNOMED CT in RF2 and one of LOINC, of the real layout and with invented content."""

from __future__ import annotations

import zipfile
from pathlib import Path

IS_A, SITE, CAUSE = "116680003", "363698007", "246075003"
FSN, SYNONYM, DEFINITION = "900000000000003001", "900000000000013009", "900000000000550004"
PREFERRED, ACCEPTABLE = "900000000000548007", "900000000000549004"
SAME_AS, REPLACED_BY = "900000000000527005", "900000000000526001"
POSSIBLY, MOVED_TO = "900000000000523009", "900000000000524003"
US_ENGLISH, SPANISH = "900000000000509007", "448879004"
CORE = "900000000000207008"

CONCEPTS = [  # id, active
    *((IS_A, 1), (SITE, 1), (CAUSE, 1), ("1001", 1), ("1002", 1), ("1003", 1), ("1004", 1)),
    *(("2001", 0), ("2002", 0), ("2003", 0), ("2004", 0)),
]
DESCRIPTIONS = [  # id, active, concept, language, type, term, acceptability
    ("1", 1, IS_A, "en", FSN, "Is a (attribute)", PREFERRED),
    ("2", 1, IS_A, "en", SYNONYM, "Is a", PREFERRED),
    ("3", 1, SITE, "en", FSN, "Finding site (attribute)", PREFERRED),
    ("4", 1, CAUSE, "en", FSN, "Causative agent (attribute)", PREFERRED),
    ("5", 1, CAUSE, "en", SYNONYM, "Caused by", PREFERRED),
    ("10", 1, "1001", "en", SYNONYM, "Attack of the limb", ACCEPTABLE),
    ("11", 1, "1001", "en", FSN, "Acute limb pain (left) (disorder)", PREFERRED),
    ("12", 1, "1001", "en", SYNONYM, '"Acute" limb pain', PREFERRED),
    ("13", 0, "1001", "en", SYNONYM, "Old limb pain", ACCEPTABLE),
    ("14", 1, "1001", "en", DEFINITION, "Pain that is acute", ACCEPTABLE),
    ("15", 1, "1001", "es", SYNONYM, "Dolor agudo", PREFERRED),
    ("16", 1, "1001", "es", FSN, "Dolor agudo (trastorno)", PREFERRED),
    ("20", 1, "1002", "en", FSN, "Limb pain (finding)", PREFERRED),
    ("30", 1, "1003", "en", FSN, "Limb (body structure)", PREFERRED),
    ("40", 1, "1004", "es", FSN, "Ataque (trastorno)", PREFERRED),
    ("50", 1, "2001", "en", FSN, "Pain of limb (finding)", PREFERRED),
]
RELATIONSHIPS = [  # active, source, destination, type
    (1, "1001", "1002", IS_A),
    (1, "1001", "1003", SITE),
    (1, "1004", "1001", CAUSE),
    (0, "1002", "1003", SITE),
]
ASSOCIATIONS = [  # active, reference set, component, target
    (1, SAME_AS, "2001", "1002"),
    (1, POSSIBLY, "2002", "1001"),
    (1, POSSIBLY, "2002", "1002"),
    (1, REPLACED_BY, "2003", "2001"),  # which is no more
    (0, SAME_AS, "2004", "1001"),
    (1, MOVED_TO, "2004", "1001"),
]


def _text(header: str, rows: list[tuple]) -> str:
    return "".join("\t".join(map(str, row)) + "\r\n" for row in [tuple(header.split()), *rows])


def rf2_files(date: str = "20250101", edition: str = "INT") -> dict[str, str]:
    """Path in the release -> text, as SNOMED International's production files are laid out."""
    own = (date, 1, CORE)
    files = {
        f"Terminology/sct2_Concept_Snapshot_{edition}": _text(
            "id effectiveTime active moduleId definitionStatusId",
            [(one, date, active, CORE, "900000000000074008") for one, active in CONCEPTS],
        ),
        f"Terminology/sct2_Relationship_Snapshot_{edition}": _text(
            "id effectiveTime active moduleId sourceId destinationId relationshipGroup typeId "
            "characteristicTypeId modifierId",
            [
                (
                    *(900 + row, date, active, CORE, source, target, 0, kind),
                    *("900000000000011006", "900000000000451002"),
                )
                for row, (active, source, target, kind) in enumerate(RELATIONSHIPS)
            ],
        ),
        f"Terminology/sct2_RelationshipConcreteValues_Snapshot_{edition}": "not read\r\n",
        f"Terminology/sct2_TextDefinition_Snapshot-en_{edition}": "not read\r\n",
        f"Terminology/sct2_StatedRelationship_Snapshot_{edition}": "not read\r\n",
        f"Refset/Content/der2_cRefset_AssociationSnapshot_{edition}": _text(
            "id effectiveTime active moduleId refsetId referencedComponentId targetComponentId",
            [
                (f"a-{row}", date, active, CORE, refset, component, target)
                for row, (active, refset, component, target) in enumerate(ASSOCIATIONS)
            ],
        ),
    }
    for language, refset in (("en", US_ENGLISH), ("es", SPANISH)):
        rows = [row for row in DESCRIPTIONS if row[3] == language]
        files[f"Terminology/sct2_Description_Snapshot-{language}_{edition}"] = _text(
            "id effectiveTime active moduleId conceptId languageCode typeId term "
            "caseSignificanceId",
            [
                (
                    *(one, date, active, CORE, concept, code, kind, term),
                    "900000000000448009",
                )
                for one, active, concept, code, kind, term, _ in rows
            ],
        )
        files[f"Refset/Language/der2_cRefset_LanguageSnapshot-{language}_{edition}"] = _text(
            "id effectiveTime active moduleId refsetId referencedComponentId acceptabilityId",
            [
                *((f"l-{row[0]}", *own, refset, row[0], row[6]) for row in rows),
                ("l-0", date, 0, CORE, refset, "10", PREFERRED),
            ],
        )
    return {f"Snapshot/{name}_{date}.txt": text for name, text in files.items()}


LOINC_COLUMNS = (
    "LOINC_NUM COMPONENT PROPERTY TIME_ASPCT SYSTEM SCALE_TYP METHOD_TYP CLASS VersionLastChanged "
    "CHNG_TYPE DefinitionDescription STATUS CONSUMER_NAME CLASSTYPE FORMULA EXMPL_ANSWERS "
    "SURVEY_QUEST_TEXT SURVEY_QUEST_SRC UNITSREQUIRED RELATEDNAMES2 SHORTNAME ORDER_OBS "
    "HL7_FIELD_SUBFIELD_ID EXTERNAL_COPYRIGHT_NOTICE EXAMPLE_UNITS LONG_COMMON_NAME "
    "EXAMPLE_UCUM_UNITS STATUS_REASON STATUS_TEXT CHANGE_REASON_PUBLIC COMMON_TEST_RANK "
    "COMMON_ORDER_RANK HL7_ATTACHMENT_STRUCTURE EXTERNAL_COPYRIGHT_LINK PanelType AskAtOrderEntry "
    "AssociatedObservations VersionFirstReleased ValidHL7AttachmentRequest DisplayName"
).split()
LOINC_ROWS = [
    {
        **{"LOINC_NUM": "10001-1", "COMPONENT": "Limbogen", "PROPERTY": "MCnc"},
        **{"TIME_ASPCT": "Pt", "SYSTEM": "Ser/Plas", "SCALE_TYP": "Qn", "CLASS": "CHEM"},
        **{"STATUS": "ACTIVE", "SHORTNAME": "Limbogen SerPl-mCnc", "DisplayName": "Limbogen"},
        **{"LONG_COMMON_NAME": 'Limbogen [Mass/volume] in "Serum", or Plasma'},
        **{"RELATEDNAMES2": "LBG; Chemistry; ;Limbo", "DefinitionDescription": "Line\nbreak"},
    },
    {
        **{"LOINC_NUM": "10002-9", "COMPONENT": "Limb pain", "PROPERTY": "Find"},
        **{"TIME_ASPCT": "Pt", "SYSTEM": "^Patient", "SCALE_TYP": "Ord", "METHOD_TYP": "Observed"},
        **{"CLASS": "CLIN", "STATUS": "DEPRECATED", "SHORTNAME": "Limb pain Obs"},
        **{"LONG_COMMON_NAME": "Limb pain by Observation"},
    },
]
MAP_TO = '"LOINC","MAP_TO","COMMENT"\r\n"10002-9","10001-1",""\r\n'


def loinc_files(**changes: str) -> dict[str, str]:
    """Path in the release -> text; `changes` are values of the first row."""
    rows = [{**LOINC_ROWS[0], **changes}, LOINC_ROWS[1]]
    lines = [LOINC_COLUMNS, *([row.get(name, "") for name in LOINC_COLUMNS] for row in rows)]
    text = "".join(
        ",".join('"' + field.replace('"', '""') + '"' for field in line) + "\r\n" for line in lines
    )
    return {
        "LoincTable/Loinc.csv": text,
        "LoincTable/MapTo.csv": MAP_TO,
        # Parts of the table, in folders of their own.
        "LoincTableCore/LoincTableCore.csv": text,
        "LoincTableCore/MapTo.csv": MAP_TO,
        "AccessoryFiles/PanelsAndForms/Loinc.csv": text,
    }


def write_files(root: Path, files: dict[str, str]) -> Path:
    """Writes files into a folder, or into an archive if its name ends in .zip; returns it."""
    if root.suffix == ".zip":
        with zipfile.ZipFile(root, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"{root.stem}/{name}", text)
        return root
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    return root
