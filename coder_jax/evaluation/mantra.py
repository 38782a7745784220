"""The MANTRA corpus as a benchmark of normalization, with and without given groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from xml.etree import ElementTree

import numpy as np

from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.given_groups import (
    MEASURES,
    GroupedMentions,
    NotedMentions,
    chosen_groups,
    measures,
)
from coder_jax.evaluation.normalization import (
    NormalizationBenchmark,
    NormalizationFold,
    normalization_record,
    with_answers,
)
from coder_jax.evaluation.published import MANTRA, PublishedRow
from coder_jax.evaluation.ranks import rank_values
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results import (
    Row,
    Table,
    missing_column,
    named,
    published_rows,
    resampled,
    short_percent,
    summed,
)
from coder_jax.evaluation.vectors import Vectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import CONCEPT_SEPARATOR, decoded
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput
from data_pipeline.sources import corpora as brat
from data_pipeline.sources.corpora import check_spans
from data_pipeline.terminology.semantic_groups import GROUPS

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization import NormalizationResult


# -------------------------------------------------------------------------------------------------
# The files of MANTRA GSC: mentions with all their CUIs.
#
# Kors et al. 2015: text units of Medline titles, EMEA drug labels and patents in English, German,
# French, Spanish and Dutch, with mentions mapped to CUIs; a mention may have several. As
# distributed:
#
# - XML (GSC-v1.1): files such as Medline_GSC_fr_man.xml with <unit><text>...</text>
#   <e offset="0" len="5" cui="C0000000" ...>mention</e></unit>;
# - brat: folders such as French/Medline_EN_FR_ec22-cui-best_man with .txt and .ann files.
#   (The authors' Mantra-GSC-XML.zip holds brat files, too.)
#
# A path may be a .zip, a folder, or one XML file.

_LANGUAGES = {"english": "en", "german": "de", "french": "fr", "spanish": "es", "dutch": "nl"}
_CORPORA = {"medline": "Medline", "emea": "EMEA", "patent": "Patent", "patents": "Patent"}
_XML_NAME = re.compile(r"(Medline|EMEA|Patents?)_GSC_(en|de|fr|es|nl)_man\.xml", re.IGNORECASE)
_CUI = re.compile(r"C\d{7}")
_EXAMPLE = "T1<TAB>C0000000 start end<TAB>mention"

_QUOTED = re.compile(r'"([^"]*)"')

# (unit, span) -> (text, {CUI: its semantic groups as written, such as "DISO", or ""})
_Mentions = dict[tuple[str, str], tuple[str, dict[str, str]]]


def _is_mantra(path: Path) -> bool:
    """Whether a path is a MANTRA GSC .zip or .xml file, or a folder with such files or brat's."""
    if path.is_dir():
        return any(path.rglob("*_GSC_*_man.xml")) or any(path.rglob("*.ann"))
    return path.suffix.lower() in (".xml", ".zip")


def _read_mantra(path: Path, dictionary: Dictionary | None) -> list[NormalizationFold]:
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
        for fold, mentions in _corpora_in(path).items()
    ]


def _corpora_in(path: Path) -> dict[str, _Mentions]:
    """The mentions of each language and corpus, sorted by these.

    BadInput: as `_read_mantra`, but for the dictionary.
    """
    corpora: dict[str, _Mentions] = {}
    first: dict[tuple[str, ...], PurePosixPath] = {}
    for file, content in _files_in(path):
        fold = _fold_of_xml(file, path) if _is_xml(file) else _fold_of_brat(file, path)
        _check_once(fold, file, content, first, path)
        mentions = corpora.setdefault(fold, {})
        if _is_xml(file):
            _add_xml(mentions, content, f"{path}/{file}")
        else:
            _add_brat(mentions, file, content, path)
    empty = ", ".join(sorted(fold for fold, mentions in corpora.items() if not mentions))
    if empty or not corpora:
        raise BadInput(
            f"{path}: found no annotations of {empty or 'any corpus'}; expected MANTRA GSC: XML "
            "files such as Medline_GSC_fr_man.xml, or folders such as French/Medline_... with .txt "
            "and .ann files: fetch it again"
        )
    return dict(sorted(corpora.items()))


def _files_in(path: Path) -> Iterator[tuple[PurePosixPath, Mapping[str, str]]]:
    """(name, {suffix: text}) of each XML file, and of each .ann file with its .txt, in order."""
    if path.is_file() and _is_xml(path):
        yield PurePosixPath(path.name), {".xml": decoded(path.read_bytes(), str(path))}
        return
    yield from _texts_of(brat.contents(path, _is_kept), path)


def _is_kept(name: PurePosixPath) -> bool:
    """Whether a file of that name may belong to the corpus."""
    return name.suffix in (".ann", ".txt") or _is_xml(name)


def _is_xml(path: PurePath) -> bool:
    return path.suffix.lower() == ".xml"


def _texts_of(
    contents: Mapping[PurePosixPath, bytes], path: Path
) -> Iterator[tuple[PurePosixPath, Mapping[str, str]]]:
    for name in sorted(contents):
        if _is_xml(name) and ("_gsc_" in name.name.lower() or b"<unit" in contents[name]):
            # Part of the corpus, so an unknown name is refused; other XML files are ignored.
            yield name, {".xml": decoded(contents[name], f"{path}/{name}")}
        elif name.suffix == ".ann":
            ann, text = brat.document(contents, name, path)
            yield name, {".ann": ann, ".txt": text}


def _fold_of_xml(file: PurePosixPath, path: Path) -> str:
    """'Medline fr' from Medline_GSC_fr_man.xml."""
    match = _XML_NAME.fullmatch(file.name)
    if match is None:
        raise BadInput(
            f"{path}: found {file}; expected a name such as Medline_GSC_fr_man.xml: rename it, or "
            "take it out"
        )
    return f"{_CORPORA[match[1].lower()]} {match[2].lower()}"


def _fold_of_brat(file: PurePosixPath, path: Path) -> str:
    """'Medline fr' from French/Medline_EN_FR_ec22-cui-best_man/..., where `path` may say it too."""
    parts = [part.lower() for part in (*path.absolute().parts, *file.parts)]
    languages = [_LANGUAGES[part] for part in parts if part in _LANGUAGES]
    corpora = [_CORPORA[part.split("_")[0]] for part in parts if part.split("_")[0] in _CORPORA]
    if not languages or not corpora:
        raise BadInput(
            f"{path}/{file}: found no language and corpus in the names of its folders; expected "
            "such as French/EMEA_ec22-cui-best_man"
        )
    return f"{corpora[-1]} {languages[-1]}"


def _check_once(
    fold: str,
    file: PurePosixPath,
    content: Mapping[str, str],
    first: dict[tuple[str, ...], PurePosixPath],
    path: Path,
) -> None:
    """Raise BadInput for a corpus that is there twice: two XML files, XML and brat, or a copy.

    Args:
      fold: the corpus of the file.
      file, content: one of its files, as of `_files_in`.
      first: the first file of each corpus, and of each name and content of a file in a corpus.
      path: what is read, for messages.
    """
    of_corpus = first.setdefault((fold,), file)
    of_content = first.setdefault((fold, file.name, *content.values()), file)
    other = of_corpus if _is_xml(of_corpus) or _is_xml(file) else of_content
    if other != file:
        raise BadInput(
            f"{path}: found {fold} both in {other} and in {file}; expected each mention once: take "
            "one of the two out"
        )


def _add_xml(mentions: _Mentions, content: Mapping[str, str], place: str) -> None:
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
            if not (_CUI.fullmatch(cui) and offset.isdecimal() and length.isdecimal() and found):
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
            _add(mentions, where, f"{offset} {length}", found, cui, mark.get("grp", ""))


def _add_brat(
    mentions: _Mentions, file: PurePosixPath, content: Mapping[str, str], path: Path
) -> None:
    """Adds the annotations of an .ann file."""
    for one in brat.read_mentions(
        content[".ann"], content[".txt"], f"{path}/{file}", check_type=_check_cui, example=_EXAMPLE
    ):
        span = ";".join(f"{start} {end}" for start, end in one.spans)
        _add(mentions, str(file), span, one.text, one.type, _groups_of_note(one.note or ""))


def _check_cui(found: str, place: str) -> None:
    """BadInput for a type of a mention that is no CUI."""
    if not _CUI.fullmatch(found):
        raise BadInput(f"{place}: found a mention of the type {found!r}; expected {_EXAMPLE}")


def _groups_of_note(note: str) -> str:
    """The semantic groups that a note names, such as "DISO"; "" of none.

    It is '"C0007115", "Malignant neoplasm of thyroid", "Neoplastic Process" ,"DISO"'.
    Types and groups may have changed places; a concept of several groups has a "|" between them.
    """
    fields = _QUOTED.findall(note)[2:]
    return next((one for one in fields if set(one.split("|")) <= set(GROUPS)), "")


def _add(mentions: _Mentions, unit: str, span: str, text: str, cui: str, groups: str) -> None:
    mentions.setdefault((unit, span), (text, {}))[1].setdefault(cui, groups)


# -------------------------------------------------------------------------------------------------
# Scores of MANTRA GSC: precision, recall and F1 of one CUI for each mention.
#
# The score is that of the CODER papers (4.4.2; v1 4.2): one CUI, that of the nearest term, is
# returned for each mention, so with `hits` mentions whose CUI is among their gold ones, precision =
# hits / mentions, recall = hits / pairs of mention and CUI. CODER's released code takes each pair
# for a mention, so that its precision, recall and F1 are all hits / pairs, the recall here; tables
# have a row of it for whoever compares with the papers' rows.


@dataclass(frozen=True, kw_only=True)
class _MantraOptions(Options):
    """Options of MANTRA GSC."""

    given_groups: Annotated[
        bool,
        Flag(
            "give the semantic group of each mention of MANTRA GSC, and search in it alone: scored "
            "and shown as QUAERO is",
            heading="mentions with semantic groups",
        ),
    ] = False


@dataclass(frozen=True)
class Mantra(NormalizationBenchmark):
    """MANTRA GSC: a fold for each language and corpus."""

    kind: ClassVar[str] = "MANTRA GSC"
    formats: ClassVar[str] = (
        "MANTRA:   a .zip or folder of MANTRA GSC, as XML or brat files, or one of its XML files"
    )
    about: ClassVar[str] = """\
MANTRA    MANTRA GSC as a .zip, a folder or an XML file; searched in --dictionary. Scored by
          precision, recall and F1 of one CUI per mention. What CODER's released code calls F1,
          hits per pair of mention and CUI, is the recall; a second row has it."""
    options: ClassVar[type[Options]] = _MantraOptions
    published: ClassVar[tuple[PublishedRow, ...]] = MANTRA

    @classmethod
    def claims(cls, found: Found) -> bool:
        return not found.is_folder and _is_mantra(found.path)

    @classmethod
    def would_take(cls, found: Found) -> bool:
        return found.is_folder and _is_mantra(found.path)

    @classmethod
    def read(cls, given: Given) -> Benchmark:
        if given.options.of(_MantraOptions).given_groups:
            return _GroupedMantra.read(given)
        return cls.of_folds(given, _read_mantra(given.path, given.dictionary))

    def averaged(self) -> list[str]:
        """The non-English sub-corpora, as in the papers, or all."""
        names = super().averaged()
        return [name for name in names if not name.endswith(" en")] or names

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        missing = int((~vectors.known(self.keys(vectors.keyed_by))).sum())
        result = self.result(vectors, [1])
        record = _mantra_record(self, result, encoder, missing, options.seed)
        return with_answers(record, self, result, vectors, options)

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """F1 of each sub-corpus, in percent; mean precision, recall and F1.

        A second row has in their place what CODER's released code calls F1: hits per pair of
        mention and CUI, the recall.
        """
        corpora = list(dict.fromkeys(name for record in records for name in record.folds))
        missing = missing_column(records)
        header = [cls.kind, "pooling", "mentions", "CUIs", "unreachable", *missing]
        before = len(header)
        header += [*corpora, "precision", "recall", "F1"]
        rows = []
        for record in records:
            names = ("mentions", "annotations", "unreachable", *missing)
            counts = [record.counts.get(name, 0) for name in names]
            label = [record.benchmark, record.encoder.pooling]
            of_corpora = [record.folds.get(name, {}).get("scores", {}) for name in corpora]
            sure = [record.folds.get(name, {}).get("intervals", {}) for name in corpora]
            cells = [*label, *(f"{count:,}" for count in counts)]
            cells += [
                short_percent(scores.get("f1"), interval.get("f1"))
                for scores, interval in zip(of_corpora, sure, strict=True)
            ]
            cells += [
                short_percent(record.scores[name], record.intervals.get(name)) for name in MEASURES
            ]
            rows.append(Row(cells, record.encoder.model))
            label[0] += ", hits per pair (released code)"
            cells = [
                *label,
                *[""] * len(counts),
                *(
                    short_percent(scores.get("recall"), interval.get("recall"))
                    for scores, interval in zip(of_corpora, sure, strict=True)
                ),
            ]
            recall = short_percent(record.scores["recall"], record.intervals.get("recall"))
            cells += ["", "", recall]
            rows.append(Row(cells, record.encoder.model))
        papers = published_rows(
            records, cls.published, corpora, len(header), before=before, digits=1
        )
        return header, rows + papers


def _measures_drawn(distinct_U3: np.ndarray, drawn_BU: np.ndarray) -> np.ndarray:
    """The `Statistic` of MEASURES [B, 3], of mentions with their hit and gold pairs (`summed`)."""
    return measures((drawn_BU @ distinct_U3)[:, [0, 2, 1]])


def _mantra_record(
    benchmark: Mantra,
    result: NormalizationResult,
    encoder: EncoderRecord,
    missing: int = 0,
    seed: int = 0,
) -> EvaluationRecord:
    """The record of `evaluate_normalization`, with acc@1, turned into precision, recall and F1.

    The scores of the whole are means over the sub-corpora that are not English, as the papers have
    none of those (over all, if all are).
    """
    record = normalization_record(benchmark, result, encoder, missing=missing)
    rng = np.random.default_rng(seed)
    folds: dict[str, dict[str, Any]] = {}
    drawn = {}
    for fold in benchmark.folds:
        ranks = result.ranks[fold.name]
        hits = rank_values(ranks, [1])["acc@1"]
        pairs = np.array([len(set(gold.split(CONCEPT_SEPARATOR))) for gold in fold.gold])
        outcomes = summed(np.stack([hits, pairs], axis=1), fold.same)
        drawn[fold.name] = resampled(outcomes, _measures_drawn, rng)
        # Of a mention with tied terms the chance of a hit counts.
        sums = (hits.mean() * len(hits), len(hits), pairs.sum())
        folds[fold.name] = {
            "scores": dict(zip(MEASURES, measures(np.array(sums)).tolist(), strict=True)),
            "intervals": named(MEASURES, drawn[fold.name]),
            "counts": {
                "mentions": len(hits),
                "annotations": int(pairs.sum()),
                "unreachable": int((~ranks.reachable).sum()),
            },
        }
    meant = benchmark.averaged()
    return replace(
        record,
        kind=benchmark.kind,
        scores={
            score: sum(folds[name]["scores"][score] for name in meant) / len(meant)
            for score in MEASURES
        },
        intervals=named(MEASURES, np.mean([drawn[name] for name in meant], axis=0)),
        unreachable=None,
        counts={
            **record.counts,
            "annotations": sum(fold["counts"]["annotations"] for fold in folds.values()),
            "folds": len(meant),
        },
        folds=folds,
        scoring={
            **record.scoring,
            "folds": f"mean over {', '.join(meant)}",
            "answers": "one CUI",
            "recall": "hits per pair of mention and CUI; the released code of CODER calls it F1",
        },
    )


# -------------------------------------------------------------------------------------------------
# MANTRA GSC with the semantic group of each mention given: `evaluate --given-groups`.


@dataclass(frozen=True)
class _GroupedMantra(GroupedMentions):
    """A set for each language and corpus; a mention with two groups is evaluated in each."""

    formats: ClassVar[str] = ""
    about: ClassVar[str] = ""

    @classmethod
    def claims(cls, found: Found) -> bool:
        """Always False: `Mantra` claims the files and uses this class."""
        return False

    @classmethod
    def read(cls, given: Given) -> Self:
        successor = given.retired_cuis.successor if given.retired_cuis else {}
        chosen = chosen_groups(given)
        sets = [
            _mention_set(name, mentions, chosen, successor, str(given.path))
            for name, mentions in _corpora_in(given.path).items()
        ]
        sets = [one for one in sets if one.texts]
        if not sets:
            raise BadInput(
                f"{given.path}: found no mentions of the semantic groups {', '.join(chosen)}; give "
                "others with --semantic-groups, or none for all"
            )
        return cls.of_sets(given, sets)


def _mention_set(
    name: str,
    mentions: _Mentions,
    chosen: tuple[str, ...],
    successor: Mapping[str, str],
    path: str,
) -> NotedMentions:
    """The mentions of a corpus, once for each group of their CUIs.

    Of a CUI of several groups the first is taken. BadInput for a CUI without any.
    """
    noted: dict[tuple[str, str, str], list[str]] = {}
    for (unit, span), (text, cuis) in mentions.items():
        for cui, groups in cuis.items():
            if not groups:
                raise BadInput(
                    f"{path}: found no semantic group of {cui}, the mention {text!r} in {unit}; "
                    "expected one, in a note of a brat file or as grp of XML: fetch MANTRA GSC "
                    "again, or leave --given-groups out"
                )
            group = groups.split("|")[0]
            if not chosen or group in chosen:
                noted.setdefault((f"{unit}:{span}", text, group), []).append(cui)
    return NotedMentions(
        name,
        [unit for unit, _, _ in noted],
        [text for _, text, _ in noted],
        [group for _, _, group in noted],
        [tuple(cuis) for cuis in noted.values()],
        [tuple(successor.get(cui, cui) for cui in cuis) for cuis in noted.values()],
        0,
        None,
    )
