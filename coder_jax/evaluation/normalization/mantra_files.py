"""The files of MANTRA GSC: mentions with all their CUIs.

Kors et al. 2015: text units of Medline titles, EMEA drug labels and patents in English, German,
French, Spanish and Dutch, with mentions mapped to CUIs; a mention may have several. As distributed:

- XML (GSC-v1.1): files such as Medline_GSC_fr_man.xml with <unit><text>...</text>
  <e offset="0" len="5" cui="C0000000" ...>mention</e></unit>;
- brat: folders such as French/Medline_EN_FR_ec22-cui-best_man with .txt and .ann files.
  (The authors' Mantra-GSC-XML.zip holds brat files, too.)

A path may be a .zip, a folder, or one XML file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from xml.etree import ElementTree

from coder_jax.evaluation.normalization.benchmark import NormalizationFold
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import CONCEPT_SEPARATOR, decoded
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora import brat
from data_pipeline.sources.corpora.brat import check_spans
from data_pipeline.terminology.semantic_groups import GROUPS

LANGUAGES = {"english": "en", "german": "de", "french": "fr", "spanish": "es", "dutch": "nl"}
CORPORA = {"medline": "Medline", "emea": "EMEA", "patent": "Patent", "patents": "Patent"}
XML_NAME = re.compile(r"(Medline|EMEA|Patents?)_GSC_(en|de|fr|es|nl)_man\.xml", re.IGNORECASE)
CUI = re.compile(r"C\d{7}")
EXAMPLE = "T1<TAB>C0000000 start end<TAB>mention"

QUOTED = re.compile(r'"([^"]*)"')

# (unit, span) -> (text, {CUI: its semantic groups as written, such as "DISO", or ""})
Mentions = dict[tuple[str, str], tuple[str, dict[str, str]]]


def is_mantra(path: Path) -> bool:
    """Whether a path is a MANTRA GSC .zip or .xml file, or a folder with such files or brat's."""
    if path.is_dir():
        return any(path.rglob("*_GSC_*_man.xml")) or any(path.rglob("*.ann"))
    return path.suffix.lower() in (".xml", ".zip")


def read_mantra(path: Path, dictionary: Dictionary | None) -> list[NormalizationFold]:
    """A fold for each language and corpus, such as "Medline fr".

    Raises:
      BadInput: no dictionary, a corpus without annotations or one that is there twice, or a file
        that is broken or has an unknown name.
    """
    if dictionary is None:
        raise BadInput(
            f"{path}: found MANTRA GSC and no dictionary to search; give --dictionary with a "
            "dataset folder or a release (and --dictionary-sources SNOMEDCT_US MSH MDR, the "
            "papers') or a TSV file of term<TAB>CUI"
        )
    return [
        NormalizationFold(
            fold,
            [text for text, _ in mentions.values()],
            [CONCEPT_SEPARATOR.join(cuis) for _, cuis in mentions.values()],
            dictionary,
            [fold.split()[-1]] * len(mentions),
        )
        for fold, mentions in corpora_in(path).items()
    ]


def corpora_in(path: Path) -> dict[str, Mentions]:
    """The mentions of each language and corpus, sorted by these.

    BadInput: as `read_mantra`, but for the dictionary.
    """
    corpora: dict[str, Mentions] = {}
    first: dict[tuple[str, ...], PurePosixPath] = {}
    for file, content in files_in(path):
        fold = fold_of_xml(file, path) if is_xml(file) else fold_of_brat(file, path)
        check_once(fold, file, content, first, path)
        mentions = corpora.setdefault(fold, {})
        if is_xml(file):
            add_xml(mentions, content, f"{path}/{file}")
        else:
            add_brat(mentions, file, content, path)
    empty = ", ".join(sorted(fold for fold, mentions in corpora.items() if not mentions))
    if empty or not corpora:
        raise BadInput(
            f"{path}: found no annotations of {empty or 'any corpus'}; expected MANTRA GSC: XML "
            "files such as Medline_GSC_fr_man.xml, or folders such as French/Medline_... with .txt "
            "and .ann files: fetch it again"
        )
    return dict(sorted(corpora.items()))


def files_in(path: Path) -> Iterator[tuple[PurePosixPath, Mapping[str, str]]]:
    """(name, {suffix: text}) of each XML file, and of each .ann file with its .txt, in order."""
    if path.is_file() and is_xml(path):
        yield PurePosixPath(path.name), {".xml": decoded(path.read_bytes(), str(path))}
        return
    yield from texts_of(brat.contents(path, is_kept), path)


def is_kept(name: PurePosixPath) -> bool:
    """Whether the corpus may have such a file."""
    return name.suffix in (".ann", ".txt") or is_xml(name)


def is_xml(path: PurePath) -> bool:
    return path.suffix.lower() == ".xml"


def texts_of(
    contents: Mapping[PurePosixPath, bytes], path: Path
) -> Iterator[tuple[PurePosixPath, Mapping[str, str]]]:
    for name in sorted(contents):
        if is_xml(name) and ("_gsc_" in name.name.lower() or b"<unit" in contents[name]):
            # Of the corpus, so a name that is not known is refused; other XML files are no matter.
            yield name, {".xml": decoded(contents[name], f"{path}/{name}")}
        elif name.suffix == ".ann":
            ann, text = brat.document(contents, name, path)
            yield name, {".ann": ann, ".txt": text}


def fold_of_xml(file: PurePosixPath, path: Path) -> str:
    """'Medline fr' from Medline_GSC_fr_man.xml."""
    match = XML_NAME.fullmatch(file.name)
    if match is None:
        raise BadInput(
            f"{path}: found {file}; expected a name such as Medline_GSC_fr_man.xml: rename it, or "
            "take it out"
        )
    return f"{CORPORA[match[1].lower()]} {match[2].lower()}"


def fold_of_brat(file: PurePosixPath, path: Path) -> str:
    """'Medline fr' from French/Medline_EN_FR_ec22-cui-best_man/..., where `path` may say it too."""
    parts = [part.lower() for part in (*path.absolute().parts, *file.parts)]
    languages = [LANGUAGES[part] for part in parts if part in LANGUAGES]
    corpora = [CORPORA[part.split("_")[0]] for part in parts if part.split("_")[0] in CORPORA]
    if not languages or not corpora:
        raise BadInput(
            f"{path}/{file}: found no language and corpus in the names of its folders; expected "
            "such as French/EMEA_ec22-cui-best_man"
        )
    return f"{corpora[-1]} {languages[-1]}"


def check_once(
    fold: str,
    file: PurePosixPath,
    content: Mapping[str, str],
    first: dict[tuple[str, ...], PurePosixPath],
    path: Path,
) -> None:
    """BadInput for a corpus in two XML files, as XML and as brat files, or in a folder's copy.

    Args:
      fold: the corpus of the file.
      file, content: one of its files, as of `files_in`.
      first: the first file of each corpus, and of each name and content of a file in a corpus.
      path: what is read, for messages.
    """
    of_corpus = first.setdefault((fold,), file)
    of_content = first.setdefault((fold, file.name, *content.values()), file)
    other = of_corpus if is_xml(of_corpus) or is_xml(file) else of_content
    if other != file:
        raise BadInput(
            f"{path}: found {fold} both in {other} and in {file}; expected each mention once: take "
            "one of the two out"
        )


def add_xml(mentions: Mentions, content: Mapping[str, str], place: str) -> None:
    """Adds the annotations of an XML file; BadInput for one that its unit's text does not hold.

    No GSC-v1.1 was at hand to see how it gives the place of a mention with gaps, of which the brat
    files have 105 among 5,530. So one is taken that begins at its offset and whose words follow in
    their order, whatever its len.
    """
    try:
        root = ElementTree.fromstring(content[".xml"])
    except ElementTree.ParseError as error:
        line = error.position[0]
        raise BadInput(f"{place}:{line}: found broken XML ({error}); fetch it again") from error
    for number, unit in enumerate(root.iter("unit"), start=1):
        where = f"{place}, unit {number}"
        text = unit.findtext("text") or ""
        for mark in unit.iter("e"):
            found = "".join(mark.itertext()).strip()
            cui, offset, length = (mark.get(key, "") for key in ("cui", "offset", "len"))
            if not (CUI.fullmatch(cui) and offset.isdecimal() and length.isdecimal() and found):
                shown = ElementTree.tostring(mark, encoding="unicode").strip()[:120]
                raise BadInput(
                    f'{where}: found {shown}; expected <e offset="..." len="..." cui="C0000000">'
                    "mention</e>"
                )
            start, end = int(offset), int(offset) + int(length)
            words = [re.escape(word) for word in found.split()]
            in_order = len(words) > 1 and re.match(".*?".join(words), text[start:], re.DOTALL)
            if end > len(text) or not in_order:
                check_spans(f"{where}, offset {offset}", text, [(start, end)], found)
            add(mentions, where, f"{offset} {length}", found, cui, mark.get("grp", ""))


def add_brat(
    mentions: Mentions, file: PurePosixPath, content: Mapping[str, str], path: Path
) -> None:
    """Adds the annotations of an .ann file."""
    for one in brat.read_mentions(
        content[".ann"], content[".txt"], f"{path}/{file}", check_type=check_cui, example=EXAMPLE
    ):
        span = ";".join(f"{start} {end}" for start, end in one.spans)
        add(mentions, str(file), span, one.text, one.type, groups_of_note(one.note or ""))


def check_cui(found: str, place: str) -> None:
    """BadInput for a type of a mention that is no CUI."""
    if not CUI.fullmatch(found):
        raise BadInput(f"{place}: found a mention of the type {found!r}; expected {EXAMPLE}")


def groups_of_note(note: str) -> str:
    """The semantic groups that a note names, such as "DISO"; "" of none.

    It is '"C0007115", "Malignant neoplasm of thyroid", "Neoplastic Process" ,"DISO"'.
    Types and groups may have changed places; a concept of several groups has a "|" between them.
    """
    fields = QUOTED.findall(note)[2:]
    return next((one for one in fields if set(one.split("|")) <= set(GROUPS)), "")


def add(mentions: Mentions, unit: str, span: str, text: str, cui: str, groups: str) -> None:
    mentions.setdefault((unit, span), (text, {}))[1].setdefault(cui, groups)
