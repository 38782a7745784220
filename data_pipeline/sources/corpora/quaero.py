"""The QUAERO French Medical Corpus: mentions in French, their semantic group and UMLS CUIs.

Névéol et al. 2014, in the form of CLEF eHealth 2015 and 2016: `corpus/SET/PART/NAME.ann` with the
text beside it, SET one of train, dev (the test set of 2015) and test (that of 2016), PART one of
EMEA (drug leaflets, tokenized) and MEDLINE (titles). It is read as it was annotated, as every
correction moves a score: CUIs that were mistyped stay, and so do mentions without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from data_pipeline.process.errors import BadInput
from data_pipeline.process.suggestions import did_you_mean
from data_pipeline.sources.corpora.brat import TAR_ENDINGS, Span, documents, names_in, read_mentions

GROUPS = ("ANAT", "CHEM", "DEVI", "DISO", "GEOG", "LIVB", "OBJC", "PHEN", "PHYS", "PROC")
SETS, PARTS = ("train", "dev", "test"), ("EMEA", "MEDLINE")
EXAMPLE = "T1<TAB>DISO 15 36<TAB>mention"
EXPECTED = (
    "the folder QUAERO_FrenchMed or its corpus (or a .tar.gz or .zip of it), with files such as "
    "train/EMEA/318.ann, in one or more of the folders train, dev, test"
)


@dataclass(frozen=True)
class QuaeroMention:
    """One mention, as it was annotated.

    Attributes:
      document: "train/EMEA/318".
      group: of GROUPS.
      spans: (start, end) of each of its pieces, in characters of the document, in the order
        written, which may not be that of the text. Mentions lie in others, and two may have the
        same place.
      text: the words of its pieces, a blank between two.
      note: what the annotators wrote of it, blanks included; None where they wrote none.
      cuis: the note, divided at each blank but those at its end. What is no CUI is kept as it is:
        a mistyped one, two with a comma between them, nothing before a blank, an empty note.
    """

    document: str
    group: str
    spans: tuple[Span, ...]
    text: str
    note: str | None

    @property
    def cuis(self) -> tuple[str, ...]:
        return () if self.note is None else tuple(self.note.rstrip(" \t").split(" "))


def is_quaero(path: Path) -> bool:
    """Whether a path is the corpus: its folder, or an archive."""
    if path.is_dir():
        roots = (path, path / "corpus")
        sets = [root / one / part for root in roots for one in SETS for part in PARTS]
        return any(folder.is_dir() and any(folder.glob("*.ann")) for folder in sets)
    ends = (*TAR_ENDINGS, ".zip")
    return path.name.lower().endswith(ends) and any(map(set_of, names_in(path)))


def set_of(name: PurePosixPath) -> tuple[str, str] | None:
    """("train", "EMEA") of a file of the corpus; None of another."""
    *_, named, part, _ = ("", "", *name.parts) if name.suffix == ".ann" else ("", "", "")
    return (named, part) if named in SETS and part in PARTS else None


def read_quaero(path: Path) -> dict[tuple[str, str], list[QuaeroMention]]:
    """The mentions of the sets that are there: {("train", "EMEA"): [...], ...}, in a fixed order.

    Args:
      path: the folder QUAERO_FrenchMed or its corpus, or a .tar.gz or .zip of it.

    Raises:
      BadInput: no such files, a set that is there twice, or a broken one: file, line, what was
        found and what to do.
    """
    found: dict[tuple[str, str], list[QuaeroMention]] = {}
    folder_of: dict[tuple[str, str], PurePosixPath] = {}
    for name, ann, text in documents(path):
        chosen = set_of(name)
        if chosen is None:
            raise BadInput(f"{path}: found {name}; expected {EXPECTED}")
        if folder_of.setdefault(chosen, name.parent) != name.parent:
            raise BadInput(
                f"{path}: found {'/'.join(chosen)} both in {folder_of[chosen]} and in "
                f"{name.parent}; expected one corpus: give the folder of one"
            )
        read = read_mentions(ann, text, f"{path}/{name}", check_type=check_group, example=EXAMPLE)
        document = "/".join((*chosen, name.stem))
        found.setdefault(chosen, []).extend(
            QuaeroMention(document, one.type, one.spans, one.text, one.note) for one in read
        )
    if not any(found.values()):
        raise BadInput(f"{path}: found no mentions of the QUAERO corpus; expected {EXPECTED}")
    order = [(one, part) for one in SETS for part in PARTS]
    return {chosen: found[chosen] for chosen in order if chosen in found}


def check_group(found: str, place: str) -> None:
    """BadInput for a type of a mention that is none of GROUPS."""
    if found not in GROUPS:
        raise BadInput(
            f"{place}: found the semantic group {found!r}{did_you_mean(found, GROUPS)}; expected "
            f"one of {', '.join(GROUPS)}: mend the line, or fetch the corpus again"
        )
