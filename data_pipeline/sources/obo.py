"""Reads an OBO ontology (.obo or .obo.gz) into a `Source` of lazy string columns.

fastobo parses the file (OBO format 1.4, strict). Concept identifiers are the ontology's own
("HP:0000005"); cross-references to other vocabularies are kept beside them. The language is ENG.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import fastobo
import polars as pl

from data_pipeline.files.tables import decoded, read_bytes
from data_pipeline.process import BadInput, tell
from data_pipeline.sources.source import ATOMS, RELATIONS, RETIRED, Source

SYNONYM_SCOPES = ("EXACT", "NARROW", "BROAD", "RELATED")
_LANGUAGE = "ENG"
# Types of synonyms, by name or description.
_DISCARDED = re.compile("obsolete|deprecated|withdrawn|discarded|exclude|misnomer", re.IGNORECASE)


def read_obo(
    path: Path,
    synonym_scopes: Iterable[str] = ("EXACT",),
    release: str | None = None,
    *,
    strict: bool = False,
    encoding: str | None = None,
) -> Source:
    """The ontology at `path` as a `Source`; obsolete classes are left out.

    Term types are "name" and the synonym's scope; synonyms whose scope is not in `synonym_scopes`
    are left out, and so are those that the ontology has discarded (of a type such as
    obsolete_synonym). The source vocabulary is the prefix of the identifier ("HP"). The semantic
    type is the class's namespace, or the file's default namespace.

    Relations have the direction of MRREL, in both directions each: "child is_a parent" gives
    (parent, CHD|isa, child) and (child, PAR|inverse_isa, parent); "s part_of o" gives
    (o, RO|part_of, s) and (s, RO|<inverse>, o), where the inverse is the Typedef's inverse_of, or
    "inverse_part_of" if none is declared.

    Bytes that are not UTF-8 are read as `encoding`, where it is given.

    Lines of comments (!) are skipped; others that are not valid are left out and counted, unless
    `strict` refuses them.

    Raises BadInput for a missing file, or a file without classes.
    """
    if not path.is_file():
        raise BadInput(f"{path} does not exist; expected an OBO file (.obo or .obo.gz)")
    scopes = tuple(scope.upper() for scope in synonym_scopes)
    if unknown := sorted(set(scopes) - set(SYNONYM_SCOPES)):
        raise BadInput(
            f"synonym scope {unknown[0]!r}; expected some of {', '.join(SYNONYM_SCOPES)}"
        )
    header, frames = _parse(path, strict, encoding)
    tables = _Tables(header, scopes)
    for frame in frames:
        tables.add(frame)
    if not tables.atoms:
        raise BadInput(f"{path} holds no [Term] with a name; expected an OBO ontology")
    return tables.source(path, release)


def definitions(path: Path) -> Iterator[tuple[str, str, str]]:
    """(identifier, name, definition) of each class in use that has both.

    Raises BadInput as `read_obo`.
    """
    for frame in _parse(path)[1]:
        if not isinstance(frame, fastobo.term.TermFrame):
            continue
        values = {clause.raw_tag(): clause for clause in frame}
        if "is_obsolete" in values and values["is_obsolete"].obsolete:
            continue
        if "name" in values and "def" in values:
            yield str(frame.id), values["name"].name, values["def"].definition


_COMMENT = re.compile(rb"^[ \t]*!.*$", re.MULTILINE)  # the guide of OBO 1.4 has parsers skip it
_SYNONYM = re.compile(r'synonym:\s*"(.*)"\s+(EXACT|NARROW|BROAD|RELATED)\b\s*(\w*)')
_OLD_SYNONYM = re.compile(r'(exact|narrow|broad|related)_synonym:\s*"(.*)"')
_OBSOLETE = re.compile(r"is_obsolete:\s*(?:true|yes|1)\b", re.IGNORECASE)
_TO_ESCAPE = re.compile(r'(?<!\\)([{}"])')
_SHOWN = 3  # bad lines that are named


def _parse(
    path: Path, strict: bool = False, encoding: str | None = None
) -> tuple[fastobo.header.HeaderFrame, list]:
    """The header and all frames; lines that are not valid OBO are left out and counted, or
    refused.
    """
    data = _COMMENT.sub(b"", _read_utf8(path, encoding)) + b"\n"  # the last line may have no end
    try:
        reader = fastobo.iter(io.BytesIO(data))
        return reader.header(), list(reader)
    except SyntaxError:
        return _parse_by_frames(path, data.decode(), strict)


def _parse_by_frames(
    path: Path, text: str, strict: bool
) -> tuple[fastobo.header.HeaderFrame, list]:
    """As `_parse`, frame by frame.

    A name or synonym that is not valid is read as it stands where that can be told; each other line
    that is not is left out.
    """
    bad: list[str] = []
    mended: list[str] = []
    header, frames, number = fastobo.header.HeaderFrame(), [], 1
    for stanza in re.split(r"^(?=\[)", text, flags=re.MULTILINE):
        found = _mended(stanza.split("\n"), number, bad, bad if strict else mended)
        header = header if stanza.startswith("[") else found.header
        frames += list(found)
        number += stanza.count("\n")
    if bad:
        more = f", and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        said = f"{len(bad):,} lines that are not valid OBO: {'; '.join(bad[:_SHOWN])}{more}"
        if strict:
            raise BadInput(
                f"{path}: found {said}; expected none (--strict): mend them, or leave --strict out "
                "to read the others"
            )
        tell(f"warning: {path}: left out {said} (--strict refuses them)")
    return header, frames


def _mended(lines: list[str], first: int, bad: list[str], mended: list[str]) -> fastobo.doc.OboDoc:
    """One frame, or the header, without the lines that are not valid; these are added to `bad`, and
    those that are read as they stand to `mended`. Nothing is left of a frame whose kind or
    identifier is not valid.
    """
    given = list(lines)
    while True:
        try:
            return fastobo.loads("\n".join(lines))
        except SyntaxError as error:
            place = (error.lineno or 1) - 1
            line = given[place] if place < len(given) else ""
            is_named = any(one.startswith("id:") for one in given[:place])
            is_frame = given[0].startswith("[")
            if not line.strip() or not lines[place] or (is_frame and not is_named):
                place = place if line.strip() else 0
                named = f"line {first + place}, {given[place].strip()[:80]!r} with all that follows"
                bad.append(f"{named} up to the next [...]")
                return fastobo.doc.OboDoc()
            as_it_stands, named = _escaped(line), f"line {first + place}, {line.strip()[:80]!r}"
            if lines[place] == line != as_it_stands:
                lines[place] = as_it_stands
                mended.append(named)
            else:
                if lines[place] != line:  # it was not to be mended
                    mended.pop()
                lines[place] = ""
                bad.append(named)


def _escaped(line: str) -> str:
    """A name or a synonym with its special signs escaped, and without what follows a synonym.

    Synonyms of OBO 1.0 (exact_synonym) and True for true are as OBO 1.4 has them.
    """
    if _OBSOLETE.match(line):
        return "is_obsolete: true"
    if found := _OLD_SYNONYM.match(line):
        line = f'synonym: "{found[2]}" {found[1].upper()} []'
    if line.startswith("name:"):
        return "name: " + _TO_ESCAPE.sub(r"\\\1", line[len("name:") :].strip())
    if found := _SYNONYM.match(line):
        text = _TO_ESCAPE.sub(r"\\\1", found[1])
        return f'synonym: "{text}" {found[2]} {found[3]} []'
    return line


def _read_utf8(path: Path, otherwise: str | None) -> bytes:
    return decoded(read_bytes(path), str(path), otherwise=otherwise).encode()


class _Tables:
    """Rows collected from the frames of one ontology (thousands of classes, not millions)."""

    def __init__(self, header: fastobo.header.HeaderFrame, scopes: tuple[str, ...]):
        self.scopes = scopes
        self.header = {clause.raw_tag(): clause.raw_value() for clause in header}
        said = [
            str(getattr(clause.property_value, "value", ""))
            for clause in header
            if clause.raw_tag() == "property_value"
            and re.search(r"\blicense$", str(clause.property_value.relation))
        ]
        self.license = ", ".join(dict.fromkeys(said))
        self.types_of_synonyms = {
            str(clause.typedef): clause.description
            for clause in header
            if clause.raw_tag() == "synonymtypedef"
        }
        self.atoms: list[tuple] = []
        self.is_a: list[tuple[str, str]] = []
        self.relationships: list[tuple[str, str, str]] = []
        self.types: list[tuple[str, str]] = []
        self.retired: list[tuple[str, str, str, bool]] = []
        self.xrefs: list[tuple[str, str]] = []
        self.typedef_names: dict[str, str] = {}
        self.inverses: dict[str, str] = {}
        self.skipped_scopes: dict[str, int] = {}
        self.discarded = 0  # synonyms

    def add(self, frame) -> None:
        if isinstance(frame, fastobo.typedef.TypedefFrame):
            self._add_typedef(frame)
        elif isinstance(frame, fastobo.term.TermFrame):
            values: dict[str, list] = {}
            for clause in frame:
                values.setdefault(clause.raw_tag(), []).append(clause)
            if any(clause.obsolete for clause in values.get("is_obsolete", [])):
                self._add_obsolete(str(frame.id), values)
            else:
                self._add_term(str(frame.id), values)

    def _add_typedef(self, frame) -> None:
        identifier = str(frame.id)
        for clause in frame:
            if clause.raw_tag() == "name":
                self.typedef_names[identifier] = clause.name
            elif clause.raw_tag() == "inverse_of":
                self.inverses[identifier] = str(clause.typedef)
                self.inverses.setdefault(str(clause.typedef), identifier)

    def _add_obsolete(self, identifier: str, values: dict[str, list]) -> None:
        successors = [str(clause.term) for clause in values.get("replaced_by", [])]
        for successor in successors or [""]:
            relation = "replaced_by" if successor else "obsolete"
            self.retired.append((identifier, relation, successor, bool(successor)))

    def _add_term(self, identifier: str, values: dict[str, list]) -> None:
        for clause in values.get("name", []):
            self._add_atom(identifier, "name", 0, clause.name)
        for clause in values.get("synonym", []):
            scope = clause.synonym.scope
            kind = str(clause.synonym.type or "")
            if _DISCARDED.search(f"{kind} {self.types_of_synonyms.get(kind, '')}"):
                self.discarded += 1
            elif scope in self.scopes:
                rank = 1 + SYNONYM_SCOPES.index(scope)
                self._add_atom(identifier, scope, rank, clause.synonym.desc)
            else:
                self.skipped_scopes[scope] = self.skipped_scopes.get(scope, 0) + 1
        for clause in values.get("is_a", []):
            self.is_a.append((identifier, str(clause.term)))
        for clause in values.get("relationship", []):
            self.relationships.append((identifier, str(clause.typedef), str(clause.term)))
        for clause in values.get("alt_id", []):
            self.retired.append((str(clause.alt_id), "alt_id", identifier, True))
        for clause in values.get("xref", []):
            self.xrefs.append((identifier, str(clause.xref.id)))
        namespaces = [str(clause.namespace) for clause in values.get("namespace", [])]
        for namespace in namespaces or [self.header.get("default-namespace", "")]:
            if namespace:
                self.types.append((identifier, namespace))

    def _add_atom(self, identifier: str, term_type: str, rank: int, term: str) -> None:
        vocabulary = identifier.split(":")[0]
        row = (identifier, _LANGUAGE, vocabulary, term_type, "N", rank, term.strip(), identifier)
        self.atoms.append(row)

    def _relation_rows(self) -> Iterator[tuple[str, str, str, str, str, str]]:
        for child, parent in self.is_a:
            vocabulary = child.split(":")[0]
            yield parent, "CHD", "isa", child, vocabulary, "N"
            yield child, "PAR", "inverse_isa", parent, vocabulary, "N"
        for subject, typedef, target in self.relationships:
            vocabulary = subject.split(":")[0]
            label = self._label(typedef)
            inverse = self.inverses.get(typedef)
            inverse_label = self._label(inverse) if inverse else f"inverse_{label}"
            yield target, "RO", label, subject, vocabulary, "N"
            yield subject, "RO", inverse_label, target, vocabulary, "N"

    def _label(self, typedef: str) -> str:
        """A relation's identifier if that is a word ("part_of"), else its name ("RO:0002202" ->
        ...).
        """
        if ":" in typedef and typedef in self.typedef_names:
            return self.typedef_names[typedef].replace(" ", "_")
        return typedef

    def _license_of(self, atoms: pl.DataFrame) -> pl.LazyFrame | None:
        """That of the ontology's own vocabulary, which is the one of most names if none is called
        as the ontology is; the others are imported.
        """
        if not self.license:
            return None
        names = atoms["source"].unique().sort()
        called = self.header.get("ontology", "").removesuffix(".obo").upper()
        own = names.filter(names.str.to_uppercase() == called)
        own = own if len(own) else atoms["source"].mode().sort()
        return pl.LazyFrame({"source": own[:1], "license": [self.license]})

    def source(self, path: Path, release: str | None) -> Source:
        atoms = pl.DataFrame(
            self.atoms,
            schema={name: pl.UInt8 if name == "rank" else pl.String for name in ATOMS},
            orient="row",
        )
        relations = pl.DataFrame(
            list(self._relation_rows()), schema={n: pl.String for n in RELATIONS}, orient="row"
        )
        retired = pl.DataFrame(
            self.retired,
            schema={n: pl.Boolean if n == "merged" else pl.String for n in RETIRED},
            orient="row",
        )
        two = pl.String
        types = pl.DataFrame(self.types, schema={"cui": two, "type": two}, orient="row")
        xrefs = pl.DataFrame(self.xrefs, schema={"cui": two, "xref": two}, orient="row")
        notes = tuple(
            f"{count:,} {scope} synonyms left out (add them with --synonym-scopes)"
            for scope, count in sorted(self.skipped_scopes.items())
        )
        if self.discarded:
            notes += (f"{self.discarded:,} synonyms left out, which the ontology has discarded",)
        return Source(
            name=self.header.get("ontology", path.name).removesuffix(".obo"),
            release=release or self.header.get("data-version", "unknown"),
            files=[{"file": path.name, "bytes": path.stat().st_size}],
            atoms=atoms.lazy(),
            relations=relations.lazy() if relations.height else None,
            types=types.lazy() if types.height else None,
            retired=retired.unique().sort(RETIRED),
            xrefs=xrefs.unique().sort("cui", "xref"),
            warnings=notes,
            licenses=self._license_of(atoms),
        )
