"""A UMLS release of six concepts, small enough to count by hand."""

from __future__ import annotations

from pathlib import Path

# CUI LAT TS STT ISPREF SAB TTY STR SUPPRESS
ATOMS = [
    "C0000001|ENG|P|PF|Y|MSH|MH|Heart attack|N",
    "C0000001|ENG|S|PF|Y|SNOMEDCT_US|SY|Myocardial infarction NOS|N",
    "C0000001|ENG|P|VC|Y|SNOMEDCT_US|SY|HEART ATTACK|N",  # the first one again, once cleaned
    "C0000001|FRE|P|PF|Y|MSHFRE|MH|Infarctus|N",
    "C0000002|ENG|S|PF|Y|MSH|SY|Cardiac disease|N",
    "C0000002|ENG|P|PF|Y|MSH|MH|Heart disease (disorder)|N",
    "C0000002|FRE|P|PF|Y|MSHFRE|MH|Cardiac disease|N",  # the English string, in French
    "C0000003|ENG|P|PF|Y|MSH|MH|Limb pain|N",
    'C0000003|ENG|S|PF|Y|MSH|SY|"Pain" in limb|N',
    "C0000003|ENG|S|PF|Y|MSH|SY|Sore limb|O",
    "C0000004|ENG|P|PF|Y|MSH|PT|Old name|E",
    "C0000005|ENG|P|PF|Y|SNOMEDCT_US|PT|(NOS)|N",
    "C0000006|FRE|P|PF|Y|MSHFRE|MH|Douleur aiguë|N",
]
# CUI1 REL CUI2 RELA SAB SUPPRESS
RELATIONS = [
    "C0000002|CHD|C0000001|isa|MSH|N",
    "C0000001|PAR|C0000002|inverse_isa|MSH|N",
    "C0000001|PAR|C0000002|inverse_isa|SNOMEDCT_US|N",  # the same triplet from another source
    "C0000001|RO|C0000003||MSH|N",
    "C0000001||C0000003||MSH|N",
    "C0000001|RQ|C0000001||MSH|N",
    "C0000001|RO|C0000004|finding_of|MSH|N",  # C0000004 has suppressed terms only
    "C0000001|RO|C7777777|finding_of|MSH|N",
    "C0000009|RO|C0000003|finding_of|MSH|N",  # retired, now C0000002
    "C0000003|RO|C0000001|seen_in|MSH|O",
    "C0000007|RO|C0000001|finding_of|MSH|N",
]
TYPES = [
    "C0000001|T047|Disease or Syndrome",
    "C0000002|T047|Disease or Syndrome",
    "C0000003|T184|Sign or Symptom",
    "C0000003|T033|Finding",
    "C0000004|T047|Disease or Syndrome",
]
# CUI1 VER REL RELA MAPREASON CUI2 MAPIN
RETIRED = [
    "C0000009|2019AA|SY|||C0000002|Y|",
    "C0000008|2018AB|DEL|||||",
    "C0000007|2018AB|RB|||C0000003|Y|",  # its successor is broader, not the same concept
]


_RESTRICTED = {"SNOMEDCT_US": 9, "MSHFRE": 3}


def _atom(number: int, row: str) -> str:
    cui, lat, ts, stt, ispref, sab, tty, text, suppress = row.split("|")
    unused = f"L{number}|{stt}|S{number}|{ispref}|A{number}|||"
    level = _RESTRICTED.get(sab, 0)
    return f"{cui}|{lat}|{ts}|{unused}|{sab}|{tty}|{number}|{text}|{level}|{suppress}||"


def _relation(number: int, row: str) -> str:
    cui1, rel, cui2, rela, sab, suppress = row.split("|")
    return f"{cui1}||AUI|{rel}|{cui2}||AUI|{rela}|R{number}||{sab}|{sab}|||{suppress}||"


def tiny_files() -> dict[str, str]:
    """Name and text of each file of the release."""
    tables = {
        "MRCONSO": [_atom(number, row) for number, row in enumerate(ATOMS)],
        "MRREL": [_relation(number, row) for number, row in enumerate(RELATIONS)],
        "MRSTY": [f"{c}|{tui}|A1|{sty}|||" for c, tui, sty in (row.split("|") for row in TYPES)],
        "MRCUI": RETIRED,
    }
    tables["MRFILES"] = [f"{name}.RRF|x|x|1|{len(rows)}|9|" for name, rows in tables.items()]
    return {f"{name}.RRF": "\n".join(rows) + "\n" for name, rows in tables.items()}


def write_release(folder: Path, **changes: str | None) -> Path:
    """Writes the release; `MRREL="..."` replaces the text of a file, `MRREL=None` leaves it out."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = tiny_files() | {f"{name}.RRF": text for name, text in changes.items()}
    for name, text in texts.items():
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
    return folder
