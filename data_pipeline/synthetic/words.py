"""Words for invented medical terms: a vocabulary per language, drawn with Zipf's frequencies.

Every word is put together from roots and affixes listed here; nothing is taken from a terminology.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

ROOTS = (
    "aden andr angi arthr ather audi aur bio blephar brachi bronch card cephal cervic cheil chol"
    " chondr col colp corne cost crani cyst cyt dactyl derm duoden encephal enter epitheli erythr"
    " fibr gastr gingiv gloss gluc glyc gynec hem hemangi hepat hidr hist hyster ile immun irid"
    " jejun kerat lact lapar laryng leuk lip lith lymph mast melan mening metr my myc myel narc"
    " nas nephr neur ocul odont onc onych oophor ophthalm orchi oste ot ovari pancreat path ped"
    " pelv pharyng phleb phot pleur pneum proct prostat pseud psych pulmon pyel pyr rect ren retin"
    " rhin sacr salping sarc scler sial somat spermat splen spondyl steat stern stomat synov ten"
    " thorac thromb thyr toc trache trich ur uter vagin valv vascul ventricul vertebr vesic"
).split()
PREFIXES = (
    "a an ante anti bi brady carcin contra de di dys ecto endo epi eu extra hemi hetero hyper"
    " hypo infra inter intra iso macro mega meso meta micro mono multi necr neo oligo pan para peri"
    " poly post pre re retro semi sub super supra syn tachy trans tri uni"
).split()
SUFFIXES = (
    "algia ase asis atic ation cele centesis cyte desis ectasia ectomy ectopia edema emia emic"
    " esthesia gen gram graphy ia ial iasis ic in ine itis lysis malacia megaly meter oid ol"
    " ologic ology oma opathy ope opexy oplasty oscopy ose osis ostomy otomy ous penia philia"
    " phobia plegia rrhage rrhea rrhexis spasm stasis trophy uria us"
).split()
# The first words of a vocabulary are its most frequent ones.
PLAIN = (
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
CJK = (
    "心臓脳肝腎肺胃腸骨皮膚血管神経筋関節眼耳鼻口咽喉頭頸胸腹背腰手足指先天性後急慢良悪腫瘍炎症候群病疾患"
    "障害不全損傷感染出血梗塞狭窄閉鎖拡張肥大萎縮変形異常欠損検査測定術切除移植置換療法薬剤錠液注射用量高低"
)
KANA = "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロン"
HANGUL = (
    "심장뇌간신폐위골피부혈관경근절안이비구인후두흉복배수족선천성급만양악종염증군병질환해상감염"
)
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_CYRILLIC = "а б ц д е ф г х и й к л м н о п к р с т у в в кс и з"
_GREEK = "α β κ δ ε φ γ χ ι ι κ λ μ ν ο π κ ρ σ τ ου β β ξ υ ζ"
_HEBREW = "א ב ק ד א פ ג ה י י ק ל מ נ ו פ ק ר ס ט ו ו ו קס י ז"


@dataclass(frozen=True)
class Language:
    """How often a language is met among terms, and what its words are made of."""

    share: float
    plain: str = ""
    suffixes: str = ""
    letters: str = ""  # of another alphabet, for a to z
    signs: str = ""  # of a script without blanks
    more_words: float = 1.9


# The shares are about those of the UMLS: seven terms in ten are English.
LANGUAGES = {
    "ENG": Language(0.706, more_words=3.0),
    "SPA": Language(0.098, "de la del en trastorno enfermedad con por síndrome", "itis ía ectomía"),
    "FRE": Language(0.030, "de la du à maladie avec aiguë trouble précisé", "ite ose émie ique"),
    "POR": Language(0.026, "de da do não doença com lesão aguda síndrome", "ite ção emia úria ã"),
    "JPN": Language(0.021, signs=CJK + KANA, more_words=0.1),
    "RUS": Language(0.019, "и в с болезнь острый синдром", "ит оз ия ий", _CYRILLIC, "", 1.0),
    "DUT": Language(0.018, "van de het met ziekte gespecificeerd", "itis iële heid ontsteking"),
    "ITA": Language(0.016, "di della con malattia acuta non più", "ite osi emia ità atico"),
    "GER": Language(0.015, "der des mit und akute Störung", "itis krankheit entzündung ös"),
    "CZE": Language(0.013, "a v s nemoc akutní jiné", "itida óza émie ický ění"),
    "KOR": Language(0.010, signs=HANGUL, more_words=0.5),
    "HUN": Language(0.007, "és a betegség heveny", "itis ózis gyulladás ű"),
    "CHI": Language(0.005, signs=CJK, more_words=0.0),
    "NOR": Language(0.004, "av og med sykdom", "itt ose sjukdøm år"),
    "POL": Language(0.003, "i w z choroba ostra", "oza enie ość ż"),
    "SWE": Language(0.003, "av och med sjukdom", "it os ång ö"),
    "TUR": Language(0.002, "ve ile hastalığı akut", "it oz lığı şı"),
    "SCR": Language(0.001, "i u s bolest", "itis oza ć ž"),
    "FIN": Language(0.001, "ja tauti äkillinen", "iitti oosi ä"),
    "GRE": Language(0.001, "και του νόσος οξεία", "ίτιδα ωση ία", _GREEK, "", 1.0),
    "HEB": Language(0.001, "של עם מחלה", "ת יה", _HEBREW, "", 1.0),
}
NAMES = list(LANGUAGES)
# Zipf-Mandelbrot's law: the frequency of rank r is about (r + OFFSET) ** -EXPONENT.
OFFSET, EXPONENT = 5.0, 1.2


class Words:
    """All vocabularies in one table of strings, in the order of `NAMES`, most frequent words first.

    Attributes:
      table: the words; those of language i are table[start[i] : start[i] + size[i]].
      capitalized: the same words, the first letter a capital.
      more_words: for each language, the mean number of words in a term, less one.
    """

    def __init__(self, seed: int):
        rng = np.random.default_rng([seed, 0])
        lists = [_vocabulary(language, rng) for language in LANGUAGES.values()]
        self.size = np.array([len(words) for words in lists])
        self.start = np.cumsum(self.size) - self.size
        self.table = pl.Series([word for words in lists for word in words], dtype=pl.String)
        self.capitalized = self.table.str.head(1).str.to_uppercase() + self.table.str.slice(1)
        self.more_words = np.array([language.more_words for language in LANGUAGES.values()])

    def draw(self, language: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """int64 [...]: an index into `table` for each language number, by Zipf's law."""
        size = self.size[language]
        power = 1 - EXPONENT
        low, high = OFFSET**power, (size + OFFSET) ** power
        rank = (low - rng.random(language.shape) * (low - high)) ** (1 / power) - OFFSET
        return self.start[language] + np.minimum(rank.astype(np.int64), size - 1)


def _vocabulary(language: Language, rng: np.random.Generator) -> list[str]:
    if language.signs:
        signs = np.array(list(language.signs))
        drawn, lengths = (
            signs[rng.integers(0, len(signs), (50_000, 10))],
            rng.integers(3, 11, 50_000),
        )
        return ["".join(row[:length]) for row, length in zip(drawn, lengths, strict=True)]
    suffixes = language.suffixes.split() or SUFFIXES
    simple = [root + suffix for root in ROOTS for suffix in suffixes]
    prefixed = [prefix + word for prefix in PREFIXES for word in simple]
    words = [pool[i] for pool in (simple, prefixed) for i in rng.permutation(len(pool))]
    if language.letters:
        script = str.maketrans(dict(zip(_LATIN, language.letters.split(), strict=True)))
        words = [word.translate(script) for word in words]
    return (language.plain.split() or PLAIN) + words
