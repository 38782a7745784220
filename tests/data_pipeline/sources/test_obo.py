"""OBO ontologies: names, synonyms, relations in UMLS direction; broken files by message."""

import gzip

import pytest

from data_pipeline.process import BadInput
from data_pipeline.sources.obo import read_obo

HANDS = """\
format-version: 1.2
data-version: 2024-01-01
default-namespace: anatomy
ontology: hands

[Term]
id: A:1
name: hand
synonym: "manus" EXACT [X:1]
synonym: "the \\"paw\\"" BROAD []
xref: UMLS:C0018563
alt_id: A:9
namespace: limbs

[Term]
id: A:2
name: finger
synonym: "digit" RELATED []
is_a: A:1 {source="x"} ! hand
relationship: part_of A:1 ! hand
relationship: RO:0002202 A:1

[Term]
id: A:3
name: obsolete thumb
synonym: "pollex" EXACT []
is_a: A:1
is_obsolete: true
replaced_by: A:2

[Typedef]
id: has_part
inverse_of: part_of

[Typedef]
id: part_of
name: part of

[Typedef]
id: RO:0002202
name: develops from
"""


@pytest.fixture
def hands(tmp_path):
    path = tmp_path / "hands.obo"
    path.write_text(HANDS)
    return path


def test_names_and_exact_synonyms(hands):
    source = read_obo(hands)
    assert (source.name, source.release) == ("hands", "2024-01-01")
    assert source.atoms.collect().rows() == [
        ("A:1", "ENG", "A", "name", "N", 0, "hand", "A:1"),
        ("A:1", "ENG", "A", "EXACT", "N", 1, "manus", "A:1"),
        ("A:2", "ENG", "A", "name", "N", 0, "finger", "A:2"),
    ]
    assert [w.split(" synonyms")[0] for w in source.warnings] == ["1 BROAD", "1 RELATED"]


def test_other_scopes_on_request(hands):
    rows = read_obo(hands, ["broad", "RELATED"]).atoms.collect().rows()
    assert [row[3] for row in rows] == ["name", "BROAD", "name", "RELATED"]
    assert rows[1][6] == 'the "paw"'


def test_relations_have_the_direction_of_mrrel(hands):
    rows = read_obo(hands).relations.collect().rows()
    assert {row[:4] for row in rows} == {
        ("A:1", "CHD", "isa", "A:2"),
        ("A:2", "PAR", "inverse_isa", "A:1"),
        ("A:1", "RO", "part_of", "A:2"),
        ("A:2", "RO", "has_part", "A:1"),  # its inverse is declared, in the other typedef
        ("A:1", "RO", "develops_from", "A:2"),
        ("A:2", "RO", "inverse_develops_from", "A:1"),
    }


def test_namespaces_xrefs_and_retired(hands):
    source = read_obo(hands)
    assert source.types.collect().rows() == [("A:1", "limbs"), ("A:2", "anatomy")]
    assert source.xrefs.rows() == [("A:1", "UMLS:C0018563")]
    assert source.retired.rows() == [
        ("A:3", "replaced_by", "A:2", True),
        ("A:9", "alt_id", "A:1", True),
    ]


def test_gzipped(hands, tmp_path):
    packed = tmp_path / "hands.obo.gz"
    packed.write_bytes(gzip.compress(HANDS.encode()))
    assert read_obo(packed).atoms.collect().equals(read_obo(hands).atoms.collect())
    packed.write_bytes(gzip.compress(HANDS.encode())[:-40])
    with pytest.raises(BadInput, match="hands.obo.gz is damaged or cut off"):
        read_obo(packed)


def test_missing_file(tmp_path):
    with pytest.raises(BadInput, match="none.obo does not exist; expected an OBO file"):
        read_obo(tmp_path / "none.obo")


def test_bad_syntax_names_the_line(hands):
    hands.write_text(HANDS.replace("EXACT", "EXAKT", 1))
    with pytest.raises(BadInput, match='hands.obo, line 9: not valid OBO: .*\'synonym: "manus"'):
        read_obo(hands)


def test_bytes_that_are_not_utf8(hands):
    hands.write_bytes(HANDS.encode().replace(b"finger", b"f\xffnger"))
    with pytest.raises(BadInput, match="hands.obo, line 17: byte 0xff is not UTF-8"):
        read_obo(hands)


def test_no_terms(hands):
    hands.write_text("format-version: 1.2\n")
    with pytest.raises(BadInput, match=r"holds no \[Term\] with a name"):
        read_obo(hands)


def test_unknown_scope(hands):
    with pytest.raises(BadInput, match="synonym scope 'NEAR'; expected some of EXACT, NARROW"):
        read_obo(hands, ["near"])


def test_hpo(hpo_path):
    """The real ontology, counted in its text."""
    source = read_obo(hpo_path)
    text = hpo_path.read_text(encoding="utf-8")
    live = [frame for frame in text.split("[Term]\n")[1:] if "is_obsolete: true" not in frame]
    lines = [line for frame in live for line in frame.split("[Typedef]")[0].splitlines()]
    exact = sum(line.startswith("synonym: ") and '" EXACT' in line for line in lines)
    atoms = source.atoms.collect()
    assert atoms["cui"].n_unique() == len(live)
    assert atoms.height == len(live) + exact
    assert source.relations.collect().height == 2 * sum(li.startswith("is_a: ") for li in lines)
