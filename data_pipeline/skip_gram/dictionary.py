"""The names that are looked for in text, and the concepts of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data_pipeline.dataset.dictionaries.entries import read_entries
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.files.rows import CONCEPT_COLUMNS, content_hash, read_text
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.text.words import only_words, token_spans

# Words that head the matches of any dictionary of diseases without meaning one, and words of
# English that are somebody's abbreviation.
STOP_NAMES = frozenset(
    """
    condition conditions cancer cancers disease diseases tumor tumors tumour tumours diagnosis
    disorder disorders mutation mutations infection infections complex syndrome syndromes symptom
    symptoms sign signs finding findings patient patients lesion lesions illness problem problems
    mg mm cm nm km kg et al men go bind rich air arm cord ask ten ion fed gave bad add ups bid pale
    pig cup tar lord caps bo id deletion mutated marker simple sensitive sensitivity regression
    infectious helix recurrence differentiating genetic inherited recurrent primary secondary
    abnormality abnormalities injury injuries deficiency complication complications present
    a about after all also am an and any are as at be been but by can could did do does for from
    get had has have he her him his how i if in into is it its let may me more most my no nor not
    now of off on one or our out over own per said same see she so some such than that the their
    them then they this to too two under up us use was we were what when who why will with would
    you your acute aid aims apart arc arms art back cap care case cat cell cells chronic cold drop
    ear end face fact fall fan far fast fat fit gap gas great hand hot ice key lab large lead led
    low major map mass met mild minor non normal old pet plan rat rest rod sad set severe
    small spot star step stop tag task time trap type war wave
    """.split()
)


def surface(tokens: Iterable[str]) -> str:
    """Tokens as one string in which each stands between blanks of its own: what is matched."""
    return "".join(f" {token} " for token in tokens)


def surface_of(name: str) -> str:
    """The same of a name."""
    return surface(token for token, _, _ in token_spans(name))


@dataclass(frozen=True)
class NameDictionary:
    """Names as `surface` writes them, and concepts.

    Attributes:
      concepts_of: the concepts of each name, but for those that are excluded.
      concepts: all, without excluded ones.
      codes: other identifiers of a concept -> it, where they are of one only.
      abbreviations: names of one word that the dictionary never writes but in capitals, such as
        AIDS: text means them only where it does so, too.
      excluded, excluded_names: concepts, and the names that one of them has.
      record: what a manifest says of it.
    """

    concepts_of: Mapping[str, tuple[str, ...]]
    concepts: frozenset[str]
    codes: Mapping[str, str]
    abbreviations: frozenset[str]
    excluded: frozenset[str]
    excluded_names: frozenset[str]
    record: Mapping[str, object]

    def concept(self, identifier: str) -> str:
        """The concept that an identifier of a text names; "" where it is none of these."""
        return identifier if identifier in self.concepts else self.codes.get(identifier, "")


def read_names(
    path: Path,
    languages: Sequence[str] = (),
    types: Sequence[str] = (),
    exclude: Path | None = None,
) -> NameDictionary:
    """The names of a dictionary, whatever file it is.

    Args:
      path: as `read_entries` takes it.
      languages, types: of a dataset, a release or such a table: terms in these languages, concepts
        of these semantic types. Empty: all.
      exclude: a list of concepts, as `read_concepts` takes it. None of their names is looked for,
        even if others have it, too.

    Raises:
      BadInput: another thing, or a list of concepts none of which is in the dictionary.
    """
    held, codes, abbreviations = _read(path, languages, types)
    excluded = frozenset(read_concepts(exclude)) if exclude is not None else frozenset()
    known = {concept for concepts in held.values() for concept in concepts}
    if excluded and not excluded & known:
        raise BadInput(
            f"--exclude-concepts {exclude}: found {sorted(excluded)[0]!r} and {len(excluded) - 1:,}"
            f" more, none of which {path} has; expected its concepts, such as {min(known)!r}"
        )
    closed = frozenset(name for name, concepts in held.items() if excluded & concepts.keys())
    return NameDictionary(
        {name: tuple(concepts) for name, concepts in held.items() if name not in closed},
        frozenset(known - excluded),
        {
            code: next(iter(concepts))
            for code, concepts in codes.items()
            if len(concepts) == 1 and not excluded & concepts.keys()
        },
        abbreviations,
        excluded | {code for code, concepts in codes.items() if excluded & concepts.keys()},
        closed,
        {
            "source": str(path),
            "names": len(held),
            "concepts": len(known),
            "excluded_concepts": len(excluded & known),
            "excluded_names": len(closed),
            "content_hash": content_hash((name, *concepts) for name, concepts in held.items()),
        },
    )


Held = dict[str, dict[str, None]]  # a name or a code -> its concepts, in order


def _read(
    path: Path, languages: Sequence[str], types: Sequence[str]
) -> tuple[Held, Held, frozenset[str]]:
    """The concepts of each name, and of each other identifier; names in capitals alone."""
    held: Held = {}
    codes: Held = {}
    small: set[str] = set()
    for name, concept in _pairs(path, languages, types, codes):
        tokens = [token for token, _, _ in token_spans(name)]
        if only_words(tokens):
            held.setdefault(surface(tokens), {})[concept] = None
            if len(tokens) > 1 or not name.isupper():
                small.add(surface(tokens))
    if not held:
        raise BadInput(f"{path}: found no name that has a word; give another dictionary")
    # A dictionary in capitals throughout says nothing by them.
    return held, codes, frozenset(held.keys() - small) if small else frozenset()


def _pairs(
    path: Path, languages: Sequence[str], types: Sequence[str], codes: Held
) -> Iterator[tuple[str, str]]:
    """(name, concept), in the order of the dictionary; fills in codes."""
    if path.is_dir() or path.name.upper().startswith("MRCONSO.RRF") or languages or types:
        dictionary = read_dictionary(path, languages=languages, types=types, raw=True)
        for _, term, concept in dictionary.pairs():
            yield term, concept
        for concept in sorted(dictionary.concept_set):
            for _, code in dictionary.about(concept).codes:
                codes.setdefault(code, {})[concept] = None
        return
    for entry in read_entries(path):
        for code in entry.codes[1:]:
            codes.setdefault(code, {})[entry.codes[0]] = None
        for name in entry.names:
            yield name, entry.codes[0]


def read_concepts(path: Path) -> list[str]:
    """The identifiers in a list: one a line, or a column of a table with tabs and a header.

    Raises:
      BadInput: a table without such a column, or a file without lines.
    """
    rows = [line.split("\t") for line in read_text(path).split("\n") if line.strip()]
    if not rows:
        raise BadInput(f"{path}: found no lines; expected a concept in each")
    header = [field.strip().lower() for field in rows[0]]
    named = [place for place, field in enumerate(header) if field in CONCEPT_COLUMNS]
    if len(header) > 1 and not named:
        raise BadInput(
            f"{path}: found the columns {', '.join(header)}; expected one that is called CUI or "
            "concept, or a concept in each line"
        )
    place = named[0] if named else 0
    found = [row[place].strip() for row in rows[bool(named) :] if len(row) > place]
    return list(dict.fromkeys(one for one in found if one))


def read_stop_names(path: Path | None) -> frozenset[str]:
    """`STOP_NAMES` and those of a file, one a line; as `surface` writes them."""
    more = read_text(path).split("\n") if path is not None else []
    return frozenset(surface_of(name) for name in (*STOP_NAMES, *more) if name.strip())
