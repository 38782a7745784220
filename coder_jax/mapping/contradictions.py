"""What two names may not differ in: strengths, sides, numerals, Greek letters, opposites.

An encoder puts "fracture of the left hand" beside "fracture of the right hand", and 25 mcg beside
0.25 mg. Here both names are read for such values, which are then compared:

- strengths, times and lengths: numbers with units, after conversion (25 mcg = 0.025 mg), also with
  a decimal comma, thousand separators, ranges, combinations (5/325) and denominators (mg/ml);
- sides in English, German, French, Spanish, and as (R), L, rt;
- numerals of types, grades and stages, Roman or Arabic, ordinals, and numbers alone;
- numbers that belong to letters: B12, T2, CD4, MCV4, COVID-19; bands of chromosomes (7q);
  immunoglobulins; Greek letters and what looks like them;
- opposites, such as acute and chronic, hypo- and hyper-, with and without.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

_REMEMBERED = 1 << 15  # names whose values are kept: the near terms of mentions are often the same


class Contradiction(NamedTuple):
    """How a term disagrees with a mention; each kind is a word or two, such as "side"."""

    differs: tuple[str, ...] = ()  # kinds of which both have values that do not go together
    lost: tuple[str, ...] = ()  # kinds of which the mention has values and the term has none


# -------------------------------------------------------------------------------------------------
# Numbers with units.


class _Quantity(NamedTuple):
    """A number with a unit, in base units of its dimension."""

    readings: tuple[tuple[float, float], ...]  # from and to; several where the writing is ambiguous
    written: tuple[float, ...]  # the numbers as they stand
    amount: tuple[tuple[float, float], ...] = ()  # as `readings`, before "per"
    is_open: bool = False  # of one ml, g or m2: how much there is of it is not said

    def agrees(self, other: _Quantity) -> bool:
        """Whether one lies within the other, in some reading."""
        return any(
            _within(one, two) or _within(two, one)
            for one in self.readings
            for two in other.readings
        )


def _within(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return (one[0] >= other[0] or math.isclose(one[0], other[0])) and (
        one[1] <= other[1] or math.isclose(one[1], other[1])
    )


_UNITS_OF = {  # dimension -> size in its base unit -> how it is written
    "mass": {
        1e-12: "pg picogram picograms picogramm",
        1e-9: "ng nanogram nanograms nanogramm",
        1e-6: "mcg μg ug mikrog microgram micrograms microgramme microgrammes mikrogramm "
        "microgramo microgramos",
        1e-3: "mg mgs milligram milligrams milligramme milligrammes milligramm miligramo "
        "miligramos",
        1.0: "g gm gms gram grams gramme grammes gramm gramo gramos",
        1e3: "kg kilogram kilograms kilogramm",
    },
    "volume": {
        1e-6: "μl ul microliter microliters microlitre microlitres",
        1e-3: "ml cc milliliter milliliters millilitre millilitres",
        1e-1: "dl deciliter deciliters decilitre",
        1.0: "l liter liters litre litres",
    },
    "activity": {
        1e-3: "miu milliunit milliunits",
        1.0: "iu ie ui u unt unit units einheit einheiten unidades unités i.u. i.e. e.",
        1e6: "meg",
    },
    "share": {1.0: "% percent prozent"},
    "amount": {
        1e-12: "pmol",
        1e-9: "nmol nanomole nanomoles",
        1e-6: "μmol umol mcmol micromole micromoles",
        1e-3: "mmol millimole millimoles",
        1.0: "mol mole moles",
    },
    "equivalents": {1e-3: "meq mval", 1.0: "eq val"},
    "time": {
        60.0: "min mins minute minutes minuten",
        3600.0: "h hr hrs hour hours std stunde stunden heure heures hora horas",
        86400.0: "day days tag tage tagen jour jours día días",
        604800.0: "wk wks week weeks woche wochen semaine semaines",
        2629800.0: "month months monat monate monaten mois",
        31557600.0: "yr yrs year years yo jahr jahre jahren ans año años",
    },
    "length": {1e-6: "μm um", 1e-3: "mm millimeter millimeters", 1e-2: "cm centimeter centimeters"},
}
_DIMENSION = {
    unit: (dimension, size)
    for dimension, sizes in _UNITS_OF.items()
    for size, units in sizes.items()
    for unit in units.split()
}
# Behind "per" alone; what is counted (a tablet, a puff) has the size of one.
_PER = {"d": ("time", 86400.0), "hour": ("time", 3600.0), "m2": ("area", 1.0)} | dict.fromkeys(
    "tablet tab tablette tabl capsule cap caps kapsel dose doses dosis actuation actuat act puff "
    "spray hub inhalation ampoule amp ampulle vial patch".split(),
    ("", 1.0),
)
_KIND_OF_DIMENSION = {"time": "time", "length": "length"}  # all others: strength


def _either(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_NUMBER = r"\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?!\d)|\d+(?:[.,]\d+)*|[.]\d+"
_UNIT = rf"(?:{_either(_DIMENSION)})(?![^\W_])"
_BELOW = rf"(?:{_either({**_DIMENSION, **_PER})})(?![^\W_])"
_FRACTION = (
    rf"(?:\s*(?:/|\bper\b|\bpro\b|\bje\b|\bpar\b|\bpor\b|\bin\b)\s*(?:({_NUMBER})\s*)?({_BELOW}))"
)
_QUANTITY = re.compile(
    rf"(?<![^\W_])(?<![^\W\d_]-)(?<!\d[.,])({_NUMBER})"  # no part of COVID-19, B12 or 1.5
    rf"((?:\s?(?:-|–|/|\bto\b|\bbis\b)\s?(?:{_NUMBER}))*)"
    rf"\s?-?(?:(mio|million|millions|mill)\.?\s*)?({_UNIT})"
    rf"{_FRACTION}?{_FRACTION}?",
    re.IGNORECASE,
)
_NUMBERS = re.compile(_NUMBER)
_UNIT_TWICE = re.compile(  # 10mg-20mg
    rf"(?<=\d)\s?({_UNIT})(?=\s?(?:-|–|\bto\b|\bbis\b)\s?(?:{_NUMBER})\s?\1(?![^\W_]))",
    re.IGNORECASE,
)
_BARE_RATIO = re.compile(r"(?<![\w/.,-])\d+(?:[.,]\d+)?(?:/\d+(?:[.,]\d+)?){1,3}(?![\w/])")
_UNIT_RATIO = re.compile(rf"(?<![^\W_])({_UNIT}){_FRACTION}", re.IGNORECASE)
_UNIT_ALONE = re.compile(rf"\W*({_UNIT})\W*", re.IGNORECASE)
_BARE = "as written"  # the dimension of a ratio without a unit


def _readings(number: str) -> list[float]:
    """What a number may mean: "0,025" and "1,000" one thing, "1.125" a decimal or a thousand."""
    compact = re.sub(r"[ \u00a0\u202f'’]", "", number)
    marks = [sign for sign in compact if sign in ".,"]
    groups = re.split(r"[.,]", compact)
    decimal = float(".".join(("".join(groups[:-1]), groups[-1]))) if marks else float(compact)
    if not marks:
        return [decimal]
    in_threes = all(len(group) == 3 for group in groups[1:]) and groups[0].strip("0") != ""
    thousand = float("".join(groups))
    if len(marks) > 1:  # the last of two kinds is the decimal one
        return [thousand if in_threes and len(set(marks)) == 1 else decimal]
    if not in_threes or len(groups[0]) > 3:
        return [decimal]
    return [thousand] if groups[1] == "000" else [decimal, thousand]


def _quantities(text: str, said: dict[str, list[_Quantity]]) -> str:
    """Collects the quantities of a text by dimension; returns it without them."""

    def take(found: re.Match[str]) -> str:
        first, others, million, unit, *below = found.groups()
        if unit == "L" or (unit == "l" and found[0].rstrip().endswith(" l")):
            gap = text[found.start(4) - 1].isspace()
            if gap and below[1] is None:  # "finger 5 L" is no volume
                return found[0]
        dimension, size = _DIMENSION[unit.lower()]
        size *= 1e6 if million else 1.0
        amount, is_open = size, False
        numbers = [first, *_NUMBERS.findall(others)]
        for number, under in ((below[0], below[1]), (below[2], below[3])):
            if under is None:
                continue
            kind, of = _DIMENSION.get(under.lower()) or _PER[under.lower()]
            if kind == dimension and number:  # 5 mg/325 mg: a combination
                said.setdefault(kind, []).append(_quantity([number], of))
                continue
            if kind:
                dimension += f"/{kind}"
                is_open = is_open or (kind != "time" and not number)
                size /= of * ((_readings(number)[0] if number else 1.0) or 1.0)  # "5 mg/0 ml"
        is_range = others and "/" not in others and len(numbers) == 2
        for some in [numbers] if is_range else [[one] for one in numbers]:
            one = _quantity(some, size)
            amounts = _quantity(some, amount).readings
            said.setdefault(dimension, []).append(one._replace(amount=amounts, is_open=is_open))
        return " "

    text = _UNIT_TWICE.sub("", text)
    text = _QUANTITY.sub(take, text)
    for ratio in _BARE_RATIO.findall(text):
        said.setdefault(_BARE, []).extend(_quantity([one], 1.0) for one in ratio.split("/"))
    text = _BARE_RATIO.sub(" ", text)
    for found in _UNIT_RATIO.finditer(text):
        dimension, size = _DIMENSION[found[1].lower()]
        kind, of = _DIMENSION.get(found[3].lower()) or _PER[found[3].lower()]
        of *= (_readings(found[2])[0] if found[2] else 1.0) or 1.0  # "mg/0 ml"
        exact = (size / of, size / of)
        said.setdefault(f"unit {dimension}/{kind}", []).append(_Quantity((exact,), ()))
    if alone := _UNIT_ALONE.fullmatch(text):
        dimension, size = _DIMENSION[alone[1].lower()]
        said.setdefault(f"unit {dimension}", []).append(_Quantity(((size, size),), ()))
    return _UNIT_RATIO.sub(" ", text)


def _quantity(numbers: list[str], size: float) -> _Quantity:
    """One number, or the two ends of a range, times the size of its unit."""
    low, high = _readings(numbers[0]), _readings(numbers[-1])
    pairs = [(a, b) for a in low for b in high if a <= b] if len(numbers) > 1 else None
    pairs = pairs or [(a, a) for a in low]
    return _Quantity(tuple((a * size, b * size) for a, b in pairs), (*low, *high))


# -------------------------------------------------------------------------------------------------
# Numerals.

_ROMAN = {
    numeral: str(number)
    for number, numeral in enumerate(
        "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX".split(), start=1
    )
}
_WORDS_OF_NUMBERS = {
    word: str(number)
    for number, words in enumerate(
        (
            "one first 1st eins erste erster ersten erstes",
            "two second 2nd zwei zweite zweiter zweiten zweites",
            "three third 3rd drei dritte dritter dritten drittes",
            "four fourth 4th vier vierte vierter vierten viertes",
            "five fifth 5th fünf fünfte fünfter fünften",
            "six sixth 6th",
            "seven seventh 7th",
            "eight eighth 8th",
            "nine ninth 9th",
            "ten tenth 10th",
        ),
        start=1,
    )
    for word in words.split()
}
_ORDINALS = {word for word in _WORDS_OF_NUMBERS if re.search(r"\dth|1st|2nd|3rd", word)} | set(
    "first second third fourth fifth sixth seventh eighth ninth tenth".split()
)
_SCALES = {  # words before a numeral or a letter -> the kind that a reader is told
    word: kind
    for kind, words in {
        "type": "type typ typus tipo types",
        "grade": "grade grad grado degree",
        "stage": "stage stadium stade estadio",
        "class": "class klasse classe clase nyha asa",
        "phase": "phase",
        "group": "group gruppe groupe grupo",
        "factor": "factor faktor facteur",
        "level": "level",
        "complex": "complex",
        "nerve": "nerve",
        "letter": "vitamin vitamine vitamina hepatitis hépatite influenza grippe haemophilia "
        "hemophilia hämophilie protein",
    }.items()
    for word in words.split()
}
_NUMERAL = (
    rf"(?:\d{{1,3}}[a-z]?|(?:{_either(_ROMAN)})[a-f]?|[a-k]\d{{0,2}}|{_either(_WORDS_OF_NUMBERS)})"
    r"(?![^\W_])"
)
_ON_A_SCALE = re.compile(
    rf"(?<![^\W_])({_either(_SCALES)})(?:[\s:-]+|(?=\d))(?:no\.?\s*)?({_NUMERAL})"
    rf"(?:\s?(?:-|/|or|to|bis|und|and)\s?({_NUMERAL}))?",
    re.IGNORECASE,
)
_BY_LETTER = "@"  # behind a kind of scale whose values are letters
_BY_CODE = "#"  # behind letters that have a number
_SPACED_CODE = re.compile(r"(?<![^\W_])([A-Z]|IL|CA|CD)[ -](?=\d{1,3}(?![\d.,]))")
_LOCUS = re.compile(
    r"(?<![^\W_])(\d{1,2}|[XY])(?:\)\()?([pq])(\d+(?:\.\d+)?)?(?:-?[pq]\d+(?:\.\d+)?)?(?![^\W_])"
)
_ANTIBODY = re.compile(
    r"(?<![^\W_])(?:ig|immunoglobulins?\s|immunglobuline?\s)([agmed])(\d?)(?![^\W_])", re.IGNORECASE
)
_CODED = re.compile(r"(?<![^\W_])[^\W\d_]{1,10}-?\d\w*", re.IGNORECASE)
_CODE = re.compile(r"([^\W\d_]{1,10})-?(\d+)([a-z](?![^\W_]))?", re.IGNORECASE)
_DIABETES = re.compile(r"t([12])dm?|(?:dmt?|dm-)([12])", re.IGNORECASE)  # T2DM, DM2
_APART = re.compile(r"(?<![^\W_])([A-Z]{2,5}) (\d{1,3})(?![\w.,])")  # PCV 20
_PLAIN_NUMBER = re.compile(r"(?<![\w.,/])(\d{1,3}(?:\.\d+)?)([a-z])?(?![^\W_])", re.IGNORECASE)
_PLAIN_ROMAN = re.compile(r"(?<![\w.,/'’-])([IVX]+|ii|iii|vii|viii)([a-fA-F]?)(?![\w'’-])")
# What a single I or V, or IV, must follow to be a number: in "antibiotics IV" it is a way.
_NAMED = re.compile(r"(?:sis|tis|ia|oma|ome|ease|der|thy|phy|gen|bipolar|en)$", re.IGNORECASE)


def _steps(number: str, rest: str = "") -> list[str]:
    """A number and what is within it: type 2a is of type 2."""
    return [number, number + rest.lower()] if rest else [number]


def _of_numeral(numeral: str) -> list[str]:
    word = numeral.lower()
    if word in _WORDS_OF_NUMBERS:
        return [_WORDS_OF_NUMBERS[word]]
    if word[0].isdigit():
        digits = re.match(r"\d+", word)
        assert digits
        return _steps(str(int(digits[0])), word[len(digits[0]) :])
    for roman, rest in ((word, ""), (word[:-1], word[-1])):
        if roman.upper() in _ROMAN:
            return _steps(_ROMAN[roman.upper()], rest)
    return _steps(word[0], word[1:])


def _numerals(text: str, said: dict[str, set[str]]) -> None:
    """Collects numbers, and the kinds of scale that they are on."""

    def add(kind: str, values: Iterable[str]) -> None:
        said.setdefault(kind, set()).update(values)

    def take_scale(found: re.Match[str]) -> str:
        for numeral in filter(None, found.groups()[1:]):
            values = _of_numeral(numeral)
            kind = _SCALES[found[1].lower()]
            if kind == "letter" and values[0].isdigit():
                kind = "number"
            add(kind if values[0].isdigit() else f"{kind}{_BY_LETTER}", values)
        # "vitamin B12" is a code, too
        return " " if found[2][0].isdigit() or found[2].isalpha() else f" {found[2]} "

    def take_locus(found: re.Match[str]) -> str:
        arm = found[1] + found[2]
        band, _, rest = (found[3] or "").partition(".")
        bands = [arm + band] if band else []
        add("chromosome", [arm, *bands, *([f"{arm}{band}.{rest}"] if rest else [])])
        return " "

    def take_antibody(found: re.Match[str]) -> str:
        add("immunoglobulin", _steps(found[1].lower(), found[2]))
        return " "

    def take_code(found: re.Match[str]) -> str:
        if diabetes := _DIABETES.fullmatch(found[0]):
            add("type", diabetes[1] or diabetes[2])
            return " "
        for letters, digits, rest in _CODE.findall(found[0]):
            add(letters.lower() + _BY_CODE, _steps(str(int(digits)), rest))
        return " "

    def take_roman(found: re.Match[str]) -> str:
        numeral = found[1].upper()
        before = text_before(found)
        if numeral in ("I", "V", "IV", "X"):
            is_number = numeral != "X" and _NAMED.search(before) is not None
        else:
            is_number = numeral in _ROMAN
        if is_number:
            add("number", _steps(_ROMAN[numeral], found[2]))
        return " "

    def text_before(found: re.Match[str]) -> str:
        return found.string[: found.start()].rstrip(" ,(")

    text = _LOCUS.sub(take_locus, text)
    text = _ANTIBODY.sub(take_antibody, text)
    text = _ON_A_SCALE.sub(take_scale, _SPACED_CODE.sub(r"\1", text))
    text = _CODED.sub(take_code, text)
    for letters, digits in _APART.findall(text):
        add(letters.lower() + _BY_CODE, _steps(str(int(digits))))
    text = _PLAIN_ROMAN.sub(take_roman, text)
    for digits, rest in _PLAIN_NUMBER.findall(text):
        add("number", _steps(digits.lstrip("0") or "0", rest))


# -------------------------------------------------------------------------------------------------
# Sides, Greek letters and opposites: words that have a value. A star at the end stands for any
# ending.

_WORDS = {
    "side": {
        "left one": "left lt links linke linken linker linkes linkem linksseitig* luq llq "
        "lul lll lbbb lvh lvf lv gauche "
        "izquierd* izq sinistro sinistra esquerd*",
        "right one": "right rt rechts rechte* rechtsseitig* droit droite droits droites derech* "
        "destro destra dexter dextra direit* ruq rlq rul rml rll "
        "rbbb rvh rv",
        "one": "unilateral* einseitig*",
        "both": "bilateral* bilat beidseit* beidseits beide* bds both bilatéra*",
    },
    "Greek letter": {
        name: name
        for name in "alpha beta gamma delta epsilon zeta theta kappa lambda sigma tau omega".split()
    },
    "acute/chronic": {
        "acute": "acute akut* aigu aiguë aigue agud*",
        "chronic": "chronic chronisch* chronique* crónic* cronic*",
        "subacute": "subacute subakut*",
    },
    "male/female": {
        "male": "male males männlich* masculin*",
        "female": "female females weiblich* féminin* femenin*",
    },
    "upper/lower": {
        "upper": "upper obere* luq ruq lul rul",
        "lower": "lower untere* llq rlq lll rll",
    },
    "superior/inferior": {"superior": "superior*", "inferior": "inferior*"},
    "anterior/posterior": {"anterior": "anterior*", "posterior": "posterior*"},
    "proximal/distal": {"proximal": "proximal*", "distal": "distal*"},
    "medial/lateral": {
        "medial": "medial medialer mediale",
        "lateral": "lateral laterale lateraler",
    },
    "internal/external": {"internal": "internal", "external": "external"},
    "hypo/hyper": {"hypo": "hypo*", "hyper": "hyper*"},
    "increased/decreased": {
        "up": "increased elevated raised high erhöht* élevé*",
        "down": "decreased reduced low diminished erniedrigt* vermindert* diminué*",
    },
    "tachy/brady": {"tachy": "tachy*", "brady": "brady*"},
    "macro/micro": {"macro": "macro*", "micro": "micro*"},
    "with/without": {"with": "with mit avec con", "without": "without ohne sans sin"},
    "primary/secondary": {
        "primary": "primary primär* primaire* primari*",
        "secondary": "secondary sekundär* secondaire* secundari*",
        "tertiary": "tertiary tertiär*",
    },
    "congenital/acquired": {
        "congenital": "congenital* angeboren* congénita*",
        "acquired": "acquired erworben* acquis* adquirid*",
    },
    "open/closed": {
        "open": "open offen offene* ouvert* abiert*",
        "closed": "closed geschlossen* fermé* cerrad*",
    },
    "benign/malignant": {"benign": "benign* gutartig*", "malignant": "malignant bösartig* malign*"},
    "positive/negative": {"positive": "positive positiv*", "negative": "negative negativ*"},
    "partial/complete": {"partial": "partial partiell*", "complete": "complete komplett*"},
    "dominant/recessive": {"dominant": "dominant*", "recessive": "recessive rezessiv*"},
    "systolic/diastolic": {"systolic": "systol*", "diastolic": "diastol*"},
    "initial/subsequent": {"initial": "initial", "subsequent": "subsequent"},
}
_WHOLE: dict[str, list[tuple[str, frozenset[str]]]] = {}
_BEGUN: dict[str, list[tuple[str, str, frozenset[str]]]] = {}  # by the first letters
_FEWEST = 4  # letters that tell which beginnings come into question
for _kind, _values in _WORDS.items():
    for _value, _written in _values.items():
        for _word in _written.split():
            _held = (_kind, frozenset(_value.split()))
            if _word.endswith("*"):
                _BEGUN.setdefault(_word[:_FEWEST], []).append((_word[:-1], *_held))
            else:
                _WHOLE.setdefault(_word, []).append(_held)
_GREEK = {
    sign: unicodedata.name(sign).rsplit(" ", 1)[-1].lower() for sign in "αβγδεζηθικλνξοπρστυφχψω"
} | {"ϐ": "beta"}
_GREEK_SIGN = re.compile(f"[{''.join(_GREEK)}]")
_AS_BETA = re.compile(r"(?<![^\W_])[ßẞ](?=[\d\s-]|$)|(?<=-)[ßẞ](?![^\W_])")
_AS_LETTER = re.compile(r"(?<![\w-])([ab])-(?=[a-z]{5})")  # b-thalassaemia; B-cell is none
_ONE_SIDE = re.compile(
    r"(?<![\w/'’.&-])([LlRr])(?:\.(?!\s*[a-z])(?!\w)|(?=-sided?\b)|(?![\w/'’.&-]))(?!\s\d)"
    r"(?!\s+(?:spine|thyroxine?|carnitine|dopa|arginine|wave|factor|CHOP|and|&))"
    r"|\(([LlRr])\)(?!-(?!sided?\b))"
    r"|(?<![\w-])(li|re)(?:\.(?!\w)|(?=\s*$|\s*\)))"
)
# RT and LT in capitals may be reverse transcriptase or radiotherapy: a word must follow.
_SHORT_SIDE = re.compile(
    r"(?<![\w-])([LlRr])(?:t\b\.?(?!-)|T\b\.?(?=\s+(?!PCR\b|heparin\b)[^\W\d_]{3}))"
)
_BOTH_SIDES = re.compile(
    r"(?<![\w/])(?:[bB]/[lL]|L ?(?:/|&|\+|and|und|et|y) ?R|R ?(?:/|&|\+|and|und|et|y) ?L)"
    r"(?![\w/]|\s+(?:shunt|ratio))"
)
# Latin for the right eye, the left, and both. Elsewhere OD may be an overdose or once daily (of
# tretinoin), and OS a survival.
_OF_EYES = re.compile(
    r"catarac|katarakt|glau[ck]om|visus|visual|vision|retin(?!o[il]|yl)|ma[ck]ul(?!o-?[pe])|corne|kornea"
    r"|[ck]onjun[ck]t|uveitis|kerat(?!o[sl])|ocul|okul|ophthal|\blens|pupil|vitre|opti[ck]|bleph"
    r"|lider?\b|myop|amblyop|strab|iritis|\beye|\bauge|\bœil|\boeil|\bojo|occhio|olho|\boog",
    re.IGNORECASE,
)
_EYE = re.compile(r"(?<![\w.])(OD|OS|OU|O\.D\.|O\.S\.|O\.U\.)(?![\w.])")
_EYE_SIDES = {"D": "right", "S": "left", "U": "both"}
_FROM_TO = re.compile(r"\b(left|right)[\s-]+to[\s-]+(?:left|right)\b", re.IGNORECASE)
_LEFT_AND_RIGHT = re.compile(
    r"\b(?:left|right|links|rechts)\s*(?:and|und|[&/+])\s*(?:left|right|links|rechts)\b"
)
_NOT = re.compile(r"\b(non|nicht)[\s-]+(?=[^\W\d_])", re.IGNORECASE)
# SEM and SIN in capitals are short for other things.
_ABSENT = re.compile(
    r"\b(?:(?i:without|ohne|sans|senza|zonder)|[Ss]in|[Ss]em)\s+"
    r"((?:(?!\b(?i:with|mit|avec|con|com|met|but|due|by)\b)[^,;.()])+)"
)
_SHORT_WITHOUT = re.compile(r"(?<![\w/])w/o(?![\w/])", re.IGNORECASE)
_DUE_TO = re.compile(r"\bsecondary\s+to\b", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+")
_FEWEST_OF_WORD = 4
# Prefixes that deny, with the fewest letters of the word behind them: "asleep" denies no sleep.
_PREFIXES = dict.fromkeys(("non", "nicht"), _FEWEST_OF_WORD) | dict.fromkeys(
    ("un", "in", "im", "ir", "il", "an", "a", "de"), 6
)
_NO_OPPOSITES = ("radiation", "specified")  # irradiation; "not otherwise specified" is unspecified


def _side_of(found: re.Match[str]) -> str:
    """The side that a match of _ONE_SIDE stands for; "" for "5 L", which may be a volume."""
    sign = next(filter(None, found.groups())).lower()
    before = found.string[: found.start()].rstrip()
    if found[1] and before[-1:].isdigit() and found.string[found.start() - 1].isspace():
        return ""
    return "left" if sign[0] == "l" else "right"


def _eyes_in_words(name: str) -> str:
    """A name with OD, OS and OU as words, if it is of an eye."""
    if not _EYE.search(name) or not _OF_EYES.search(name):
        return name
    return _EYE.sub(lambda found: _EYE_SIDES[found[1].replace(".", "")[1]], name)


def sides_in_words(name: str) -> str:
    """A name with L, (R), lt, L/R and the like as words, which encoders know."""
    name = _eyes_in_words(name)
    if _MAY_BE_SHORT.isdisjoint(_LETTERS.findall(name.lower())):
        return name
    name = _BOTH_SIDES.sub("bilateral", name)
    name = _ONE_SIDE.sub(lambda found: _side_of(found) or found[0], name)
    return _SHORT_SIDE.sub(lambda found: "left" if found[1] in "lL" else "right", name)


def _sides(text: str, said: dict[str, set[str]]) -> str:
    """Collects sides written as letters, and ways such as left to right; returns the rest."""

    def take(found: re.Match[str]) -> str:
        side = _side_of(found)
        if not side:
            return found[0]
        said.setdefault("side", set()).update((side, "one"))
        return " "

    def take_way(found: re.Match[str]) -> str:
        said.setdefault("side", set()).add(f"from {found[1].lower()}")
        return " "

    if _BOTH_SIDES.search(text):
        said.setdefault("side", set()).add("both")
    return _ONE_SIDE.sub(take, _FROM_TO.sub(take_way, _BOTH_SIDES.sub(" ", text)))


def _words(text: str, said: dict[str, set[str]]) -> frozenset[str]:
    """Collects what words say; returns those that may have an opposite by a prefix."""
    lower = _NOT.sub("non", text.lower())
    words = _LETTERS.findall(lower)
    for word in words:
        held = _WHOLE.get(word, ())
        for kind, values in held:
            said.setdefault(kind, set()).update(values)
        for begin, kind, values in () if held else _BEGUN.get(word[:_FEWEST], ()):
            if word.startswith(begin):
                said.setdefault(kind, set()).update(values)
    ordinals = _ORDINALS.intersection(lower.split())
    if ordinals:
        said.setdefault("number", set()).update(_WORDS_OF_NUMBERS[word] for word in ordinals)
    if _LEFT_AND_RIGHT.search(lower):
        said["side"] = {"both"}
    return frozenset(
        word for word in words if len(word) >= _FEWEST_OF_WORD and word not in _NO_OPPOSITES
    )


# -------------------------------------------------------------------------------------------------
# All values of a name, and their comparison.


class _Values(NamedTuple):
    """What a name says that another may not contradict."""

    quantities: Mapping[str, list[_Quantity]]
    others: Mapping[str, set[str]]
    words: frozenset[str]  # that may have an opposite
    without: frozenset[str]  # behind "without", and nowhere else
    denied: frozenset[str]  # words without a prefix that denies them: "stable" of "unstable"
    digits: frozenset[str]


_DOTS = str.maketrans("İı", "Ii")  # patterns take them for i, but their lower case is another
_DIGITS = re.compile(r"\d+")
_LONGEST_UNIT = 12
_MAY_BE_SHORT = {"l", "r", "li", "re", "lt", "rt"}
_MAY_BE_SIDES = _MAY_BE_SHORT | {"b", "left", "right"}
# Names without digits that have none of these words are not searched for numerals.
_MAY_BE_NUMERALS = {
    *_SCALES,
    *(roman.lower() + rest for roman in _ROMAN for rest in ("", *"abcdef")),
    *(f"ig{letter}" for letter in "agmed"),
    *"immunoglobulin immunoglobulins immunglobulin immunglobuline".split(),
    *"xp xq yp yq".split(),
}
_MOST_NUMBERS = 4  # the systematic name of a chemical has more, and one substance several of them


@functools.lru_cache(_REMEMBERED)
def _values_of(name: str) -> _Values:
    text = unicodedata.normalize("NFKC", name).translate(_DOTS)
    text = _eyes_in_words(_SHORT_WITHOUT.sub("without", text))
    quantities: dict[str, list[_Quantity]] = {}
    said: dict[str, set[str]] = {}
    digits = _DIGITS.findall(text)
    if digits or "/" in text or " per " in text or len(text) < _LONGEST_UNIT:
        text = _quantities(text, quantities)
    if not text.isascii():
        text = _AS_BETA.sub("beta", text)
        text = _GREEK_SIGN.sub(lambda found: f" {_GREEK[found[0]]}", text.replace("Β", "β"))
    text = _AS_LETTER.sub(lambda found: {"a": "alpha-", "b": "beta-"}[found[1]], text)
    words = set(_LETTERS.findall(text.lower()))
    if not words.isdisjoint(_MAY_BE_SIDES):
        text = _sides(text, said)
    may_have_opposite = _words(_DUE_TO.sub(" ", text), said)
    if digits or not words.isdisjoint(_MAY_BE_NUMERALS):
        _numerals(text, said)
    if len(digits) > _MOST_NUMBERS:
        said = {kind: values for kind, values in said.items() if not _is_number(kind)}
    denied = (
        word.removeprefix(prefix)
        for word in may_have_opposite
        for prefix, fewest in _PREFIXES.items()
        if word.startswith(prefix) and len(word) - len(prefix) >= fewest
    )
    absent: set[str] = set()
    if found := _ABSENT.findall(text):
        absent.update(_LETTERS.findall(" ".join(found).lower()))
        absent.difference_update(_LETTERS.findall(_ABSENT.sub(" ", text).lower()))
    sets = map(frozenset, (absent, denied, digits))
    return _Values(quantities, said, may_have_opposite, *sets)


def contradiction(mention: str, term: str) -> Contradiction:
    """How a term disagrees with a mention.

    A kind differs where each of the two has a value that the other lacks. A value of a mention that
    the term has no value for is lost; what the term says beyond the mention is no contradiction.
    """
    said, held = _values_of(mention), _values_of(term)
    differs: dict[str, None] = {}
    lost: dict[str, None] = {}
    _compare_quantities(said, held, differs, lost)
    for kind, values in said.others.items():
        others = held.others.get(kind) or _numbers_in_place_of(kind, said, held)
        if others and values - others and others - values:
            differs[_told(kind)] = None
        elif not others and _is_lost(kind, values, held):
            lost[kind] = None
    if _denies(said, held) or _denies(held, said):
        differs["negation"] = None
    return Contradiction(tuple(differs), tuple(one for one in lost if one not in differs))


def _is_number(kind: str) -> bool:
    return kind == "number" or kind.endswith(_BY_CODE)


def _told(kind: str) -> str:
    return "number" if kind.endswith(_BY_CODE) else kind.removesuffix(_BY_LETTER)


_NUMBER_KINDS = {"number", *_SCALES.values()}


def _numbers_in_place_of(kind: str, said: _Values, held: _Values) -> set[str]:
    """The numerals that a term has in other words: "3" for "type 3", and the other way around."""
    if kind not in _NUMBER_KINDS:
        return set()
    kinds = _NUMBER_KINDS if kind == "number" else {"number"}
    return {
        value for one in kinds - said.others.keys() for value in held.others.get(one, frozenset())
    }


def _is_lost(kind: str, values: set[str], held: _Values) -> bool:
    if kind.endswith((_BY_CODE, _BY_LETTER)) or kind == "with/without":
        return False
    return not (kind in _NUMBER_KINDS and values & held.digits)


def _compare_quantities(
    said: _Values, held: _Values, differs: dict[str, None], lost: dict[str, None]
) -> None:
    for dimension, values in said.quantities.items():
        others = held.quantities.get(dimension, [])
        kind = _KIND_OF_DIMENSION.get(dimension, "strength")
        if dimension.startswith("unit "):
            kind = "unit"
            others = others or [
                one
                for other, some in held.quantities.items()
                if other.startswith("unit ")
                for one in some
            ]
        if not others and _BARE in (dimension, *held.quantities):
            _compare_written(dimension, said, held, differs)
        elif not others:
            values, others = _comparable(dimension, said, held)
            if others and _exceeds(values, others) and _exceeds(others, values):
                is_open = any(one.is_open for one in (*values, *others))
                (lost if is_open else differs)[kind] = None
            elif not others and dimension != _BARE:
                # The size of a bottle is no strength, and what was compared is not lost.
                dimensions = said.quantities.keys() if dimension != "volume" else held.quantities
                if not _has_kind(kind, held, dimensions):
                    lost[kind] = None
        elif _exceeds(values, others) and _exceeds(others, values):
            differs["number" if dimension == _BARE else kind] = None


def _has_kind(kind: str, held: _Values, dimensions: Collection[str]) -> bool:
    """Whether a name has values of a kind in one of these dimensions."""
    return any(
        _KIND_OF_DIMENSION.get(one, "strength") == kind and not one.startswith("unit ")
        for one in held.quantities
        if one in dimensions
    )


_ONE_PERCENT = {"mass/volume": 10.0, "mass/mass": 0.01}  # in base units: 10 g/l


def _comparable(
    dimension: str, said: _Values, held: _Values
) -> tuple[list[_Quantity], list[_Quantity]]:
    """Quantities of a mention, and those of a term in other dimensions that they compare with.

    A percentage is a mass in a volume or in a mass. An amount is compared with the amount in a
    concentration.
    """
    values, share = said.quantities[dimension], "share"
    for per, size in _ONE_PERCENT.items():
        if dimension == share and per in held.quantities:
            return [_times(one, size) for one in values], _closed(held.quantities[per])
        if dimension == per and share in held.quantities:
            return _closed(values), [_times(one, size) for one in held.quantities[share]]
    what = dimension.split("/")[0]
    others = [
        amount
        for other in held.quantities.keys() - said.quantities.keys()
        if other.split("/")[0] == what
        for amount in _amounts(other, held)
    ]
    return _amounts(dimension, said), others


def _closed(some: list[_Quantity]) -> list[_Quantity]:
    """Concentrations that are compared as such."""
    return [one._replace(is_open=False) for one in some]


def _amounts(dimension: str, of: _Values) -> list[_Quantity]:
    """The amounts of a name; of a concentration also that in a bottle, where its size is said."""
    bottles = of.quantities.get("volume", ()) if dimension.endswith("/volume") else ()
    return [
        one._replace(
            readings=(one.amount or one.readings)
            + tuple(
                (low * least, high * most)
                for bottle in bottles
                for low, high in one.readings
                for least, most in bottle.readings
            )
        )
        for one in of.quantities[dimension]
    ]


def _times(one: _Quantity, factor: float) -> _Quantity:
    return one._replace(readings=tuple((a * factor, b * factor) for a, b in one.readings))


def _compare_written(
    dimension: str, said: _Values, held: _Values, differs: dict[str, None]
) -> None:
    """Compares 5/325 without a unit with the numbers of quantities."""
    bare, other = (said, held) if dimension == _BARE else (held, said)
    numbers = {one.written[0] for one in bare.quantities[_BARE]}
    written = {
        number
        for kind, some in other.quantities.items()
        if kind not in _KIND_OF_DIMENSION and not kind.startswith("unit ")
        for one in some
        for number in one.written
    }
    if written and numbers - written and written - numbers:
        differs["strength"] = None


def _exceeds(some: list[_Quantity], others: list[_Quantity]) -> bool:
    """Whether one of them agrees with none of the others."""
    return any(not any(one.agrees(other) for other in others) for one in some)


def _denies(one: _Values, other: _Values) -> bool:
    """Whether the first denies the second.

    It has a word with a prefix that denies it, which the second has without this prefix; or the
    second is what the first is without: "cough without fever" is no fever.
    """
    is_absent = bool(other.words) and other.words <= one.without - other.without
    return is_absent or bool(((one.denied & other.words) - one.words) - other.denied)
