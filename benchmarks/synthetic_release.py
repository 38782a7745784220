"""Writes an invented UMLS release, or download from Athena, of any size, for benchmarks and tests.

The files (MRCONSO, MRREL, MRSTY, MRCUI, MRFILES) have the UMLS's own shape: terms per concept,
lengths and languages of terms, relation labels, semantic types, retired concepts. Every term is put
together from word roots, so no licensed text is in it. The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from data_pipeline import process
from data_pipeline.files.whole import written_whole
from data_pipeline.process import BadInput, progress_bar, run_command
from data_pipeline.sources.rrf import COLUMNS

# -------------------------------------------------------------------------------------------------
# Words of synthetic medical terms: one vocabulary per language, drawn by Zipf's law.
#
# Every word is put together from roots and affixes listed here; nothing is taken from a
# terminology.

_ROOTS = (
    "aden andr angi arthr ather audi aur bio blephar brachi bronch card cephal cervic cheil chol"
    " chondr col colp corne cost crani cyst cyt dactyl derm duoden encephal enter epitheli erythr"
    " fibr gastr gingiv gloss gluc glyc gynec hem hemangi hepat hidr hist hyster ile immun irid"
    " jejun kerat lact lapar laryng leuk lip lith lymph mast melan mening metr my myc myel narc"
    " nas nephr neur ocul odont onc onych oophor ophthalm orchi oste ot ovari pancreat path ped"
    " pelv pharyng phleb phot pleur pneum proct prostat pseud psych pulmon pyel pyr rect ren retin"
    " rhin sacr salping sarc scler sial somat spermat splen spondyl steat stern stomat synov ten"
    " thorac thromb thyr toc trache trich ur uter vagin valv vascul ventricul vertebr vesic"
).split()
_PREFIXES = (
    "a an ante anti bi brady carcin contra de di dys ecto endo epi eu extra hemi hetero hyper"
    " hypo infra inter intra iso macro mega meso meta micro mono multi necr neo oligo pan para peri"
    " poly post pre re retro semi sub super supra syn tachy trans tri uni"
).split()
_SUFFIXES = (
    "algia ase asis atic ation cele centesis cyte desis ectasia ectomy ectopia edema emia emic"
    " esthesia gen gram graphy ia ial iasis ic in ine itis lysis malacia megaly meter oid ol"
    " ologic ology oma opathy ope opexy oplasty oscopy ose osis ostomy otomy ous penia philia"
    " phobia plegia rrhage rrhea rrhexis spasm stasis trophy uria us"
).split()
# The first words of a vocabulary are its most frequent ones.
_PLAIN = (
    "of disorder (disorder) and in disease with acute chronic structure MG the finding NOS left"
    " right procedure Oral tablet syndrome for type or by other due to cell entire of, primary"
    " secondary on injury gene protein human, level system Solution Injectable [Mass/volume] ML"
    " blood serum or plasma specimen MG/ML product benign malignant neoplasm bone skin"
    " joint muscle nerve artery vein tissue upper lower limb region body organ severe mild without"
    " unspecified, initial encounter sequela fracture open closed displaced nonunion routine"
    " healing pain fever infection virus bacteria antibody antigen test measurement count abnormal"
    " normal congenital hereditary familial adult juvenile infantile 1 2 3 4 10 20 25 50 100 0.5"
    " 250 500 1000 II III IV A B C D alpha beta gamma delta family member history exposure"
    " poisoning adverse reaction drug therapy treatment examination biopsy excision repair"
    " insertion removal device implant catheter graft prosthesis complication pregnancy birth"
    " child woman man patient care plan status assessment score scale index ratio rate time"
    " volume mass length width number presence ^patient [Presence] hour dose capsule extended"
    " release cream ointment spray powder water acid sodium chloride hydrochloride sulfate"
    " phosphate calcium potassium iron oxide extract whole leaf root seed pollen species strain"
    " plant fungus insect complex receptor factor kinase inhibitor binding domain subunit chain"
    " growth regulation process activity pathway transport signaling response membrane nuclear"
).split()
_CJK = (
    "心臓脳肝腎肺胃腸骨皮膚血管神経筋関節眼耳鼻口咽喉頭頸胸腹背腰手足指先天性後急慢良悪腫瘍炎症候群病疾患"
    "障害不全損傷感染出血梗塞狭窄閉鎖拡張肥大萎縮変形異常欠損検査測定術切除移植置換療法薬剤錠液注射用量高低"
)
_KANA = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロン"
_HANGUL = (
    "심장뇌간신폐위골피부혈관경근절안이비구인후두흉복배수족선천성급만양악종염증군병질환해상감염"
)
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_CYRILLIC = "а б ц д е ф г х и й к л м н о п к р с т у в в кс и з"
_GREEK = "α β κ δ ε φ γ χ ι ι κ λ μ ν ο π κ ρ σ τ ου β β ξ υ ζ"
_HEBREW = "א ב ק ד א פ ג ה י י ק ל מ נ ו פ ק ר ס ט ו ו ו קס י ז"


@dataclass(frozen=True)
class _Language:
    """The share of a language among terms, and the parts of its words."""

    share: float
    plain: str = ""
    suffixes: str = ""
    letters: str = ""  # of another alphabet, for a to z
    signs: str = ""  # of a script without blanks
    more_words: float = 1.9


# The shares are about those of the UMLS: seven terms in ten are English.
_LANGUAGES = {
    "ENG": _Language(0.706, more_words=3.0),
    "SPA": _Language(
        0.098, "de la del en trastorno enfermedad con por síndrome", "itis ía ectomía"
    ),
    "FRE": _Language(0.030, "de la du à maladie avec aiguë trouble précisé", "ite ose émie ique"),
    "POR": _Language(0.026, "de da do não doença com lesão aguda síndrome", "ite ção emia úria ã"),
    "JPN": _Language(0.021, signs=_CJK + _KANA, more_words=0.1),
    "RUS": _Language(0.019, "и в с болезнь острый синдром", "ит оз ия ий", _CYRILLIC, "", 1.0),
    "DUT": _Language(0.018, "van de het met ziekte gespecificeerd", "itis iële heid ontsteking"),
    "ITA": _Language(0.016, "di della con malattia acuta non più", "ite osi emia ità atico"),
    "GER": _Language(0.015, "der des mit und akute Störung", "itis krankheit entzündung ös"),
    "CZE": _Language(0.013, "a v s nemoc akutní jiné", "itida óza émie ický ění"),
    "KOR": _Language(0.010, signs=_HANGUL, more_words=0.5),
    "HUN": _Language(0.007, "és a betegség heveny", "itis ózis gyulladás ű"),
    "CHI": _Language(0.005, signs=_CJK, more_words=0.0),
    "NOR": _Language(0.004, "av og med sykdom", "itt ose sjukdøm år"),
    "POL": _Language(0.003, "i w z choroba ostra", "oza enie ość ż"),
    "SWE": _Language(0.003, "av och med sjukdom", "it os ång ö"),
    "TUR": _Language(0.002, "ve ile hastalığı akut", "it oz lığı şı"),
    "SCR": _Language(0.001, "i u s bolest", "itis oza ć ž"),
    "FIN": _Language(0.001, "ja tauti äkillinen", "iitti oosi ä"),
    "GRE": _Language(0.001, "και του νόσος οξεία", "ίτιδα ωση ία", _GREEK, "", 1.0),
    "HEB": _Language(0.001, "של עם מחלה", "ת יה", _HEBREW, "", 1.0),
}
_NAMES = list(_LANGUAGES)
# Zipf-Mandelbrot's law: the frequency of rank r is about (r + OFFSET) ** -EXPONENT.
_OFFSET, _EXPONENT = 5.0, 1.2


class _Words:
    """All vocabularies in one table of strings, in the order of `_NAMES`, most frequent words
    first.

    Attributes:
      table: the words; those of language i are table[start[i] : start[i] + size[i]].
      capitalized: the same words, the first letter a capital.
      more_words: for each language, the mean number of words in a term, less one.
    """

    def __init__(self, seed: int):
        rng = np.random.default_rng([seed, 0])
        lists = [_vocabulary(language, rng) for language in _LANGUAGES.values()]
        self.size = np.array([len(words) for words in lists])
        self.start = np.cumsum(self.size) - self.size
        self.table = pl.Series([word for words in lists for word in words], dtype=pl.String)
        self.capitalized = self.table.str.head(1).str.to_uppercase() + self.table.str.slice(1)
        self.more_words = np.array([language.more_words for language in _LANGUAGES.values()])

    def draw(self, language: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """int64 [...]: an index into `table` for each language number, by Zipf's law."""
        size = self.size[language]
        power = 1 - _EXPONENT
        low, high = _OFFSET**power, (size + _OFFSET) ** power
        rank = (low - rng.random(language.shape) * (low - high)) ** (1 / power) - _OFFSET
        return self.start[language] + np.minimum(rank.astype(np.int64), size - 1)


def _vocabulary(language: _Language, rng: np.random.Generator) -> list[str]:
    if language.signs:
        signs = np.array(list(language.signs))
        drawn, lengths = (
            signs[rng.integers(0, len(signs), (50_000, 10))],
            rng.integers(3, 11, 50_000),
        )
        return ["".join(row[:length]) for row, length in zip(drawn, lengths, strict=True)]
    suffixes = language.suffixes.split() or _SUFFIXES
    simple = [root + suffix for root in _ROOTS for suffix in suffixes]
    prefixed = [prefix + word for prefix in _PREFIXES for word in simple]
    words = [pool[i] for pool in (simple, prefixed) for i in rng.permutation(len(pool))]
    if language.letters:
        script = str.maketrans(dict(zip(_LATIN, language.letters.split(), strict=True)))
        words = [word.translate(script) for word in words]
    return (language.plain.split() or _PLAIN) + words


# -------------------------------------------------------------------------------------------------
# MRCONSO, MRSTY and MRCUI of a synthetic release, in chunks.
#
# The rows of a chunk depend on the seed and the chunk's number alone, so a release of any size is
# made in the memory of one chunk and a few numbers per concept.

_CHUNK = 1 << 18
_MOST_TERMS, _MOST_WORDS = 400, 16
_SEMANTIC_TYPES = 127
_SOURCES = (
    "SNOMEDCT_US RXNORM NCI MSH LNC MTH NCBI OMIM GO ICD10CM ICD10PCS MDR MEDCIN HCPCS CPT FMA"
    " ICD9CM HPO VANDF NDDF MMSL GS USP ATC DRUGBANK HGNC UMD CHV CST PDQ"
).split()
_TERM_TYPES = "PT SY FN AB PN LN LO MH PM NM SCD CN OAP IS ET HT LLT ACR DN BN".split()
# A stream of random numbers for each decision, so that no two share them.
_CONCEPT_STREAM, _TERM_STREAM, _TYPE_STREAM, _RETIRED_STREAM = 1, 2, 3, 4


def _cui(number: np.ndarray) -> pl.Series:
    """Identifiers of concepts numbered from 0; every ninth number is left to the retired ones."""
    return _padded("C", 5 + number + number // 8, 7)


def _retired_cui(number: np.ndarray) -> pl.Series:
    """Identifiers of retired concepts, numbered from 0."""
    return _padded("C", 13 + 9 * number, 7)


def _padded(letter: str, number: np.ndarray, digits: int) -> pl.Series:
    return letter + pl.Series(number).cast(pl.String).str.zfill(digits)


def _numbered(letter: str, number: np.ndarray) -> pl.Series:
    """Identifiers of one letter and eight digits, as LUI, SUI, AUI, RUI have them."""
    return _padded(letter, number, 8)


def _terms_of_concepts(concepts: int, terms: int, seed: int) -> np.ndarray:
    """int64 [C + 1]: the rows of each concept; nearly half have one, some have hundreds."""
    rng = np.random.default_rng([seed, _CONCEPT_STREAM])
    noise = np.exp(1.25 * rng.standard_normal(concepts))
    low, high = 0.0, 2.0 * terms / concepts
    for _ in range(40):  # the scale that gives the wanted sum
        scale = (low + high) / 2
        count = 1 + np.minimum(scale * noise, _MOST_TERMS - 1).astype(np.int64)
        low, high = (scale, high) if count.sum() < terms else (low, scale)
    while missing := terms - int(count.sum()):
        able = np.flatnonzero(count > 1) if missing < 0 else np.arange(concepts)
        count[rng.permutation(able)[: abs(missing)]] += np.sign(missing)
    return np.concatenate([[0], np.cumsum(count)])


@lru_cache(maxsize=1)
def _words(seed: int) -> _Words:
    return _Words(seed)


def _mrconso(term_start: np.ndarray, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRCONSO, sorted by CUI."""
    words = _words(seed)
    rows = int(term_start[-1])
    for chunk, first in enumerate(range(0, rows, _CHUNK)):
        row = np.arange(first, min(first + _CHUNK, rows))
        rng = np.random.default_rng([seed, _TERM_STREAM, chunk])
        concept = np.searchsorted(term_start, row, side="right") - 1
        yield _atoms(row, concept, row == term_start[concept], words, rng)


def _atoms(
    row: np.ndarray,
    concept: np.ndarray,
    is_first: np.ndarray,
    words: _Words,
    rng: np.random.Generator,
) -> pl.DataFrame:
    size = len(row)
    shares = np.cumsum([language.share for language in _LANGUAGES.values()])
    language = np.searchsorted(shares / shares[-1], rng.random(size))
    language[is_first & (rng.random(size) < 0.9)] = 0
    # A string that several vocabularies have is repeated from the row before.
    same = np.flatnonzero(~is_first[1:] & (rng.random(size - 1) < 0.1)) + 1
    language[same] = language[same - 1]
    text = _strings(language, words, rng)
    from_row = np.arange(size)
    from_row[same] = same - 1
    source = _zipf(len(_SOURCES), size, rng)
    foreign = np.array(["" if name == "ENG" else name for name in _NAMES])[language]
    preferred = np.where(is_first | (rng.random(size) < 0.4), "P", "S")
    return pl.DataFrame(
        {
            "CUI": _cui(concept),
            "LAT": pl.Series(np.array(_NAMES)[language]),
            "TS": pl.Series(preferred),
            "LUI": _numbered("L", row[from_row]),
            "STT": pl.Series(
                np.where(is_first, "PF", np.array(["PF", "VC", "VO"])[_zipf(3, size, rng)])
            ),
            "SUI": _numbered("S", row[from_row]),
            "ISPREF": pl.Series(np.where(is_first | (rng.random(size) < 0.6), "Y", "N")),
            "AUI": _numbered("A", row),
            "SAUI": "",
            "SCUI": _numbered("", concept),
            "SDUI": "",
            "SAB": pl.Series(np.array(_SOURCES)[source]) + pl.Series(foreign),
            "TTY": pl.Series(np.array(_TERM_TYPES)[_zipf(len(_TERM_TYPES), size, rng)]),
            "CODE": _numbered("", concept),
            "STR": text.gather(from_row),
            "SRL": pl.Series(np.where(source % 3 == 0, "9", "0")),
            "SUPPRESS": pl.Series(_suppress(size, rng)),
            "CVF": "",
        }
    )


def _strings(language: np.ndarray, words: _Words, rng: np.random.Generator) -> pl.Series:
    size = len(language)
    count = np.minimum(rng.geometric(1 / (1 + words.more_words[language])), _MOST_WORDS)
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


def _zipf(count: int, size: int, rng: np.random.Generator, offset: float = 1.0) -> np.ndarray:
    """int64 [size] in 0..count-1, the frequency of r about 1 / (r + offset)."""
    rank = offset * ((count + offset) / offset) ** rng.random(size) - offset
    return np.minimum(rank.astype(np.int64), count - 1)


def _suppress(size: int, rng: np.random.Generator) -> np.ndarray:
    """N, or O, Y, E for a row in six."""
    return np.array(["N", "O", "Y", "E"])[np.searchsorted([0.83, 0.94, 0.99], rng.random(size))]


def _mrsty(concepts: int, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRSTY: one semantic type per concept, or two for one in five."""
    for chunk, first in enumerate(range(0, concepts, _CHUNK)):
        rng = np.random.default_rng([seed, _TYPE_STREAM, chunk])
        concept = np.arange(first, min(first + _CHUNK, concepts))
        type_ = _zipf(_SEMANTIC_TYPES - 1, len(concept), rng, offset=5)
        second = np.flatnonzero(rng.random(len(concept)) < 0.2)
        row = np.insert(concept, second + 1, concept[second])
        type_ = np.insert(type_, second + 1, type_[second] + 1)
        name = _padded("", type_ + 1, 3)
        yield pl.DataFrame(
            {
                "CUI": _cui(row),
                "TUI": "T" + name,
                "STN": "A1." + pl.Series(type_ + 1).cast(pl.String),
                "STY": "Invented Type " + name,
                "ATUI": _numbered("AT", row),
                "CVF": "",
            }
        )


def _mrcui(concepts: int, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRCUI: retired concepts, most of them merged into an existing one."""
    retired = concepts // 8
    for chunk, first in enumerate(range(0, retired, _CHUNK)):
        rng = np.random.default_rng([seed, _RETIRED_STREAM, chunk])
        number = np.arange(first, min(first + _CHUNK, retired))
        size = len(number)
        relation = np.array(["SY", "RO", "RB", "RN", "DEL"])[_zipf(5, size, rng)]
        is_deleted = pl.Series(relation == "DEL")
        nothing = pl.Series([""])
        yield pl.DataFrame(
            {
                "CUI1": _retired_cui(number),
                "VER": pl.Series(np.char.add(rng.integers(1993, 2020, size).astype(str), "AA")),
                "REL": pl.Series(relation),
                "RELA": "",
                "MAPREASON": "",
                "CUI2": nothing.zip_with(is_deleted, _cui(rng.integers(0, concepts, size))),
                "MAPIN": nothing.zip_with(is_deleted, pl.Series(["Y"])),
            }
        )


# -------------------------------------------------------------------------------------------------
# MRREL of a synthetic release: every relation in both directions, sorted by CUI1.
#
# A row is one int64, (head * labels + label) * concepts + tail, until its text is made. Rows are
# drawn in chunks that depend on the seed alone; where there are more than fit into memory, they are
# drawn once for each span of heads and only that span is kept.

_RELATION_STREAM = 5  # a stream of random numbers, as in synthetic_terms
_ROWS_IN_MEMORY = 100_000_000
_MODIFIERS = (
    "associated primary direct possible active former regional clinical procedure finding"
    " dose method target parent component"
).split()
_NOUNS = (
    "site part form agent cause result class member ingredient mechanism effect course context"
    " device specimen time property scale status substance structure process location pathway"
    " product reagent measure stage gene tissue exposure"
).split()
# REL in one direction and the other, share of the rows, share of these without a RELA, and how many
# RELA there are: about those of the UMLS, whose MRREL has 14 REL and 900 RELA.
_KINDS = (
    ("SIB", "SIB", 0.24, 0.9, 4),
    ("RO", "RO", 0.41, 0.05, 455),
    ("PAR", "CHD", 0.15, 0.35, 20),
    ("RB", "RN", 0.07, 0.3, 80),
    ("RQ", "RQ", 0.05, 0.4, 20),
    ("SY", "SY", 0.05, 0.2, 20),
    ("QB", "AQ", 0.02, 1.0, 0),
    ("RL", "RL", 0.004, 0.5, 2),
    ("RU", "RU", 0.003, 1.0, 0),
    ("XR", "XR", 0.002, 1.0, 0),
    ("DEL", "DEL", 0.001, 1.0, 0),
)


class _Labels:
    """The relation labels of an invented release and their frequencies.

    Attributes:
      rel, rela: strings, one per label; label 2 * i + 1 is the other direction of 2 * i.
      share: cumulated frequencies of the pairs of labels.
    """

    def __init__(self) -> None:
        pairs = [(f"has_{m}_{n}", f"{m}_{n}_of") for m in _MODIFIERS for n in _NOUNS]
        rel, rela, share = [], [], []
        for there, back, part, without, count in _KINDS:
            weights = 1 / (np.arange(count) + 3.0)
            weights *= part * (1 - without) / max(weights.sum(), 1e-9)
            own = [("inverse_isa", "isa")] if there == "PAR" else []
            own += pairs[: count - len(own)]
            rel += [there, back] * (count + 1)
            rela += ["", ""] + [name for pair in own for name in pair]
            share += [part * without, *weights]
        self.rel, self.rela = pl.Series(rel), pl.Series(rela)
        self.share = np.cumsum(share) / np.sum(share)


def _mrrel(concepts: int, rows: int, seed: int) -> Iterator[pl.DataFrame]:
    """Chunks of MRREL, `rows` rows in all (an even number)."""
    labels = _Labels()
    spans = -(-rows // _ROWS_IN_MEMORY)
    bounds = [concepts * i // spans for i in range(spans + 1)]
    done = 0
    for first, last in zip(bounds, bounds[1:], strict=False):
        keys = _sorted_keys(concepts, rows, seed, labels, first, last)
        for start in range(0, len(keys), _CHUNK):
            part = keys[start : start + _CHUNK]
            yield _text(part, done, concepts, labels, np.random.default_rng([seed, 6, done]))
            done += len(part)


def _sorted_keys(
    concepts: int, rows: int, seed: int, labels: _Labels, first: int, last: int
) -> np.ndarray:
    """The keys of all rows whose head is in first .. last - 1, sorted."""
    kept = []
    factor = len(labels.rel) * concepts
    for chunk, start in enumerate(range(0, rows // 2, _CHUNK)):
        rng = np.random.default_rng([seed, _RELATION_STREAM, chunk])
        size = min(_CHUNK, rows // 2 - start)
        head, tail = _concepts(concepts, size, rng), _concepts(concepts, size, rng)
        label = 2 * np.searchsorted(labels.share, rng.random(size))
        same = rng.random(size)
        tail = np.where(same < 0.02, head, tail)  # a relation of a concept to itself
        again = np.flatnonzero(same > 0.97)  # another vocabulary has the same relation
        for column in (head, tail, label):
            column[again] = column[again - 1]
        for one, other, name in ((head, tail, label), (tail, head, label + 1)):
            is_kept = (one >= first) & (one < last)
            key = (one * len(labels.rel) + name) * concepts + other
            kept.append(key[is_kept])
    keys = np.concatenate(kept)
    assert factor * concepts < 2**63
    keys.sort()
    return keys


def _concepts(concepts: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """int64 [size]: concepts; a quarter of the draws fall on a few, as hierarchies' heads."""
    popular = (concepts * rng.random(size) ** 8).astype(np.int64)
    # Frequent concepts are spread over the release by a step coprime to the number of concepts.
    step = concepts // 2 - 1 | 1
    while np.gcd(step, concepts) > 1:
        step += 2
    uniform = rng.integers(0, concepts, size)
    return np.where(rng.random(size) < 0.25, popular * step % concepts, uniform)


def _text(
    key: np.ndarray, first_row: int, concepts: int, labels: _Labels, rng: np.random.Generator
) -> pl.DataFrame:
    tail = key % concepts
    label = key // concepts % len(labels.rel)
    head = key // concepts // len(labels.rel)
    size = len(key)
    row = np.arange(first_row, first_row + size)
    source = pl.Series(np.array(_SOURCES)[_zipf(len(_SOURCES), size, rng)])
    return pl.DataFrame(
        {
            "CUI1": _cui(head),
            "AUI1": _numbered("A", 3 * head + row % 3),
            "STYPE1": "AUI",
            "REL": labels.rel.gather(label),
            "CUI2": _cui(tail),
            "AUI2": _numbered("A", 3 * tail + row % 3),
            "STYPE2": "AUI",
            "RELA": labels.rela.gather(label),
            "RUI": _numbered("R", row),
            "SRUI": "",
            "SAB": source,
            "SL": source,
            "RG": "",
            "DIR": pl.Series(np.array(["", "Y", "N"])[_zipf(3, size, rng)]),
            "SUPPRESS": pl.Series(_suppress(size, rng)),
            "CVF": "",
        }
    )


# -------------------------------------------------------------------------------------------------
# The files of a synthetic release, written chunk by chunk.

# UMLS 2020AA, the release of the paper.
_CONCEPTS, _TERMS, _RELATIONS = 4_270_000, 15_480_000, 87_890_000


@dataclass(frozen=True, kw_only=True)
class _Size:
    """The numbers of concepts, terms and relation rows of a release."""

    concepts: int = _CONCEPTS
    terms: int = _TERMS
    relations: int = _RELATIONS

    def validate(self) -> None:
        """Raises BadInput for sizes that no release can have."""
        if self.concepts < 10:
            raise BadInput(f"{self.concepts} concepts: expected 10 or more; use a larger --scale")
        if self.terms < self.concepts:
            raise BadInput(
                f"{self.terms:,} terms for {self.concepts:,} concepts: expected one or more each"
            )
        if self.relations < 2 or self.relations % 2:
            raise BadInput(
                f"{self.relations:,} relation rows: expected an even number, as each relation is "
                "there in both directions"
            )


def _write_release(folder: Path, size: _Size, seed: int = 0) -> None:
    """Writes the files of a release into `folder`; MRFILES, which lists the others, comes last.

    Raises BadInput if the folder already holds a whole release.
    """
    size.validate()
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "MRFILES.RRF").exists():
        raise BadInput(f"{folder} already holds a release; give another --out, or remove it")
    term_start = _terms_of_concepts(size.concepts, size.terms, seed)
    tables = {
        "MRCONSO": (_mrconso(term_start, seed), size.terms),
        "MRREL": (_mrrel(size.concepts, size.relations, seed), size.relations),
        "MRSTY": (_mrsty(size.concepts, seed), None),
        "MRCUI": (_mrcui(size.concepts, seed), None),
    }
    files = []
    for name, (chunks, rows) in tables.items():
        written, length = _write(folder / f"{name}.RRF", _with_bar(f"{name}.RRF", chunks, rows))
        columns = COLUMNS[name].split()
        files.append((f"{name}.RRF", name, ",".join(columns), len(columns), written, length))
    names = COLUMNS["MRFILES"].split()
    _write(folder / "MRFILES.RRF", iter([pl.DataFrame(files, names, orient="row")]))


def _with_bar(
    name: str, chunks: Iterator[pl.DataFrame], rows: int | None
) -> Iterator[pl.DataFrame]:
    """The chunks, with a progress bar that counts their rows."""
    with progress_bar(total=rows, desc=f"write {name}", unit="row", unit_scale=True) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(chunk.height)
            process.poll()


def _write(path: Path, chunks: Iterator[pl.DataFrame]) -> tuple[int, int]:
    """Writes a file atomically; returns the number of its rows and its size."""
    rows = 0
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        for chunk in chunks:
            ended = chunk.with_columns(END=pl.lit(""))  # its separator closes the line
            ended.write_csv(file, include_header=False, separator="|", quote_style="never")
            rows += chunk.height
    return rows, path.stat().st_size


# -------------------------------------------------------------------------------------------------
# An invented download from Athena (OMOP), in chunks: its tables are tab-separated, and quotation
# marks are characters in them.

# About all vocabularies of Athena together.
ATHENA_CONCEPTS, ATHENA_NAMES = 9_000_000, 11_000_000
_ATHENA_STREAM = 8
_STANDARD = 0.4  # of the concepts; half of the others map to one of these
_DOMAINS = "Drug Condition Procedure Observation Measurement Device Spec_Anatomic_Site".split()
_CLASSES = "Clinical_Drug Clinical_Finding Procedure Lab_Test Branded_Drug Substance".split()
_OMOP_SOURCES = "RxNorm_Extension SNOMED NDC RxNorm LOINC ICD10CM dm+d ICD10PCS OSM CIEL".split()
_SPOKEN = {"ENG": 4180186, "SPA": 4182511, "GER": 4182504, "FRE": 4180190}
_DATES = {"valid_start_date": "19700101", "valid_end_date": "20991231"}


def write_athena(folder: Path, concepts: int, names: int, seed: int = 0) -> None:
    """Writes CONCEPT, CONCEPT_SYNONYM, CONCEPT_RELATIONSHIP and VOCABULARY into `folder`.

    Args:
      folder: made if it is not there.
      concepts: how many; 4 of 10 are standard, and half of the others map to one of these.
      names: of concepts and synonyms together.
      seed: another seed, another download.

    Raises:
      BadInput: fewer than 10 concepts, or fewer names than concepts.
    """
    if not 10 <= concepts <= names:
        raise BadInput(
            f"{concepts:,} concepts with {names:,} names: expected 10 concepts or more, and a name "
            "or more for each"
        )
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "CONCEPT": (_concept(concepts, seed), concepts),
        "CONCEPT_SYNONYM": (_concept_synonym(concepts, names - concepts, seed), names - concepts),
        "CONCEPT_RELATIONSHIP": (_concept_relationship(concepts, seed), None),
    }
    for name, (chunks, rows) in tables.items():
        _write_tabbed(folder / f"{name}.csv", _with_bar(f"{name}.csv", chunks, rows))
    vocabulary = {
        "vocabulary_id": ["None"],
        "vocabulary_name": ["OMOP Standardized Vocabularies"],
        "vocabulary_reference": [""],
        "vocabulary_version": ["v5.0 invented"],
        "vocabulary_concept_id": ["44819096"],
    }
    _write_tabbed(folder / "VOCABULARY.csv", iter([pl.DataFrame(vocabulary)]))


def _is_standard(concept: np.ndarray) -> np.ndarray:
    return concept % 10 < 10 * _STANDARD


def _concept_id(concept: np.ndarray) -> pl.Series:
    return pl.Series(1_000_000 + concept)


def _concept(concepts: int, seed: int) -> Iterator[pl.DataFrame]:
    words = _words(seed)
    for chunk, first in enumerate(range(0, concepts, _CHUNK)):
        rng = np.random.default_rng([seed, _ATHENA_STREAM, 0, chunk])
        concept = np.arange(first, min(first + _CHUNK, concepts))
        size = len(concept)
        number = pl.Series(concept).cast(pl.String)
        quoted = pl.Series(rng.random(size) < 0.001)
        name = _strings(np.zeros(size, np.int64), words, rng) + " " + number  # each its own
        is_standard = pl.Series(_is_standard(concept))
        invalid = pl.Series(rng.random(size) < 0.1)
        columns: dict[str, Any] = {
            "concept_id": _concept_id(concept),
            "concept_name": (name + ' "A"').zip_with(quoted, name),
        }
        for column, options in (
            ("domain_id", _DOMAINS),
            ("vocabulary_id", _OMOP_SOURCES),
            ("concept_class_id", _CLASSES),
        ):
            drawn = np.array(options)[_zipf(len(options), size, rng)]
            columns[column] = pl.Series(drawn).str.replace_all("_", " ", literal=True)
        nothing = pl.Series([""])
        columns["standard_concept"] = pl.Series(["S"]).zip_with(is_standard, nothing)
        columns["concept_code"] = number
        columns |= {column: pl.lit(date) for column, date in _DATES.items()}
        columns["invalid_reason"] = pl.Series(["D"]).zip_with(invalid & ~is_standard, nothing)
        yield pl.select(**columns)


def _concept_synonym(concepts: int, rows: int, seed: int) -> Iterator[pl.DataFrame]:
    words = _words(seed)
    spoken = np.array([_NAMES.index(language) for language in _SPOKEN])
    for chunk, first in enumerate(range(0, rows, _CHUNK)):
        rng = np.random.default_rng([seed, _ATHENA_STREAM, 1, chunk])
        size = min(_CHUNK, rows - first)
        language = _zipf(len(spoken), size, rng)
        numbers = pl.Series(np.arange(first, first + size)).cast(pl.String)
        yield pl.DataFrame(
            {
                "concept_id": _concept_id(rng.integers(0, concepts, size)),
                "concept_synonym_name": _strings(spoken[language], words, rng) + " " + numbers,
                "language_concept_id": pl.Series(np.array([*_SPOKEN.values()])[language]),
            }
        )


def _concept_relationship(concepts: int, seed: int) -> Iterator[pl.DataFrame]:
    for chunk, first in enumerate(range(0, concepts, _CHUNK)):
        rng = np.random.default_rng([seed, _ATHENA_STREAM, 2, chunk])
        concept = np.arange(first, min(first + _CHUNK, concepts))
        standard = rng.integers(0, concepts // 10, len(concept)) * 10  # all of these are standard
        maps = _is_standard(concept) | (rng.random(len(concept)) < 0.5)
        target = np.where(_is_standard(concept), concept, standard)[maps]
        parent = rng.integers(0, concepts, len(concept))
        yield pl.concat(
            pl.DataFrame(
                {"concept_id_1": _concept_id(one), "concept_id_2": _concept_id(other)}
            ).with_columns(
                relationship_id=pl.lit(relation),
                **{column: pl.lit(date) for column, date in _DATES.items()},
                invalid_reason=pl.lit(""),
            )
            for one, other, relation in (
                (concept[maps], target, "Maps to"),
                (target, concept[maps], "Mapped from"),
                (concept, parent, "Is a"),
                (parent, concept, "Subsumes"),
            )
        )


def _write_tabbed(path: Path, chunks: Iterator[pl.DataFrame]) -> None:
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        for number, chunk in enumerate(chunks):
            chunk.write_csv(file, include_header=number == 0, separator="\t", quote_style="never")


_EXAMPLES = """\
examples:
  a release of the size of UMLS 2020AA (9 GB), and one of a hundredth:
    python -m benchmarks.synthetic_release --out META
    python -m benchmarks.synthetic_release --out META --scale 0.01

  a download from Athena of 9 million concepts, and one of a hundredth:
    python -m benchmarks.synthetic_release --athena --out ATHENA
    python -m benchmarks.synthetic_release --athena --out ATHENA --scale 0.01
"""


def _scaled(scale: float) -> _Size:
    """The size of UMLS 2020AA times `scale`."""
    return _Size(
        concepts=round(_CONCEPTS * scale),
        terms=round(_TERMS * scale),
        relations=2 * round(_RELATIONS * scale / 2),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; its exit status is that of `run_command`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synthetic_release",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="X",
        help=f"size: 1 is {_CONCEPTS:,} concepts, {_TERMS:,} terms and {_RELATIONS:,} relation "
        "rows, as UMLS 2020AA has (default: 1)",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, another release")
    parser.add_argument(
        "--athena",
        action="store_true",
        help=f"write a download from Athena; --scale 1 is {ATHENA_CONCEPTS:,} concepts with "
        f"{ATHENA_NAMES:,} names",
    )
    args = parser.parse_args(argv)

    def work() -> int:
        if args.athena:
            concepts, names = ATHENA_CONCEPTS * args.scale, ATHENA_NAMES * args.scale
            write_athena(args.out, round(concepts), round(names), args.seed)
            return 0
        _write_release(args.out, _scaled(args.scale), args.seed)
        return 0

    return run_command(
        work,
        when_asked="stopping; the same command starts over",
        when_stopped="stopped; the same command starts over",
    )


if __name__ == "__main__":
    sys.exit(main())
