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


@pytest.mark.parametrize(
    ("written", "license"),
    [
        ("terms:license https://hpo.jax.org/app/license", "https://hpo.jax.org/app/license"),
        ('http://purl.org/dc/elements/1.1/license "CC BY 4.0" xsd:string', "CC BY 4.0"),
        ('dc:creator "licensed by no one" xsd:string', None),
    ],
)
def test_the_license_in_the_header(written, license, tmp_path):
    path = tmp_path / "hands.obo"
    text = HANDS.replace("ontology: hands", f"property_value: {written}\nontology: hands")
    path.write_text(f"{text}\n[Term]\nid: HANDS:1\nname: of the ontology that is called so\n")
    found = read_obo(path).licenses
    assert found is None if license is None else found.collect().rows() == [("HANDS", license)]
    path.write_text(f"{text}\n[Term]\nid: B:1\nname: imported from another ontology\n")
    found = read_obo(path).licenses
    assert found is None if license is None else found.collect().rows() == [("A", license)]


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


@pytest.mark.parametrize(
    "line, name",
    [
        ("! a line of a script", None),
        ('comment: "a {b"', "line 9, 'comment: \"a {b\"'"),
        ('xref: MY REGISTRY:70-00-1 "number"', "line 9, 'xref: MY REGISTRY:70-00-1"),
        ("xref: http://example.org/a\\\\:b", "line 9, 'xref: http"),
        ('synonym: "paw" EXAKT []', 'line 9, \'synonym: "paw" EXAKT'),
    ],
)
def test_a_line_of_no_use_stops_nothing(hands, capsys, line, name):
    lines = HANDS.splitlines()
    hands.write_text("\n".join([*lines[:8], line, *lines[8:]]))
    terms = read_obo(hands).atoms.collect()["term"].to_list()
    assert terms == ["hand", "manus", "finger"]
    told = capsys.readouterr().err
    assert (f"hands.obo: left out 1 lines that are not valid OBO: {name}" in told) == bool(name)


def test_a_date_that_is_none_stops_nothing(hands):
    hands.write_text(HANDS.replace("\n", "\ndate: 05:20:2021 12:00\n", 1))
    assert read_obo(hands).release == "2024-01-01"


@pytest.mark.parametrize(
    "line, term",
    [
        ('synonym: "2,2\',2"-acid" EXACT IUPAC_NAME [IUPAC:]', "2,2',2\"-acid"),
        ('synonym: "tiny hand" EXACT [ABC:Smith and Doe 2003]', "tiny hand"),
        ("name: N-{a->b}-residue", "N-{a->b}-residue"),
    ],
)
def test_names_that_are_not_valid_are_read_as_they_stand(hands, capsys, line, term):
    lines = HANDS.splitlines()
    is_name = line.startswith("name:")
    place = lines.index("name: hand")
    lines[place : place + is_name] = [line]
    hands.write_text("\n".join(lines))
    assert term in read_obo(hands).atoms.collect()["term"].to_list()
    assert "left out" not in capsys.readouterr().err


def test_strict_refuses_what_is_not_valid(hands):
    assert read_obo(hands, strict=True).release == "2024-01-01"
    lines = HANDS.splitlines()
    bad = ["! a comment", 'comment: "a {b"', "xref: a b c", 'synonym: "2,2"-acid" EXACT []', "what"]
    hands.write_text("\n".join([*lines[:8], *bad, *lines[8:]]))
    with pytest.raises(BadInput) as error:
        read_obo(hands, strict=True)
    said = (
        "hands.obo: found 4 lines that are not valid OBO: line 10, 'comment: \"a {b\"'; "
        "line 11, 'xref: a b c'; line 12, 'synonym: \"2,2\"-acid\" EXACT []', and 1 more; "
        "expected none (--strict): mend them, or leave --strict out to read the others"
    )
    assert str(error.value).endswith(said)
    assert read_obo(hands).atoms.collect()["term"].to_list()[:2] == ["hand", '2,2"-acid']


def test_synonyms_that_the_ontology_discarded_are_no_names(hands):
    typed = '"manus" EXACT {} []'
    for kind, terms in (
        ("layperson", ["hand", "manus", "finger"]),
        ("obsolete_synonym", ["hand", "finger"]),
    ):
        hands.write_text(HANDS.replace('"manus" EXACT [X:1]', typed.format(kind)))
        source = read_obo(hands)
        assert source.atoms.collect()["term"].to_list() == terms
    assert "1 synonyms left out, which the ontology has discarded" in source.warnings


def test_synonyms_are_discarded_by_the_description_of_their_type(hands):
    text = HANDS.replace('"manus" EXACT [X:1]', '"manus" EXACT s7 []')
    hands.write_text(text.replace("\n", '\nsynonymtypedef: s7 "discarded synonym"\n', 1))
    assert read_obo(hands).atoms.collect()["term"].to_list() == ["hand", "finger"]


@pytest.mark.parametrize(
    ("old", "new", "terms", "line"),
    [
        ("id: A:2", "id: A 2 {", ["hand", "manus"], "line 16, 'id: A 2 {' with all"),
        ("id: A:2\n", "", ["hand", "manus"], "line 16, 'name: finger' with all"),
        ("id: A:2", "id: A:2\nid: A:7", ["hand", "manus", "finger"], "line 17, 'id: A:7'"),
        ("[Term]\nid: A:2", "[Annotation]\nsubject: A:2", ["hand", "manus"], "'[Annotation]'"),
    ],
)
def test_a_frame_that_cannot_be_read_is_left_out_and_named(hands, capsys, old, new, terms, line):
    hands.write_text(HANDS.replace(old, new, 1))
    assert read_obo(hands).atoms.collect()["term"].to_list() == terms
    told = capsys.readouterr().err
    assert "left out 1 lines that are not valid OBO: " in told and line in told
    with pytest.raises(BadInput, match="found 1 lines that are not valid OBO"):
        read_obo(hands, strict=True)


@pytest.mark.parametrize("true", ["True", "TRUE ! gone", "1"])
def test_what_is_obsolete_is_obsolete_however_it_is_written(hands, true):
    hands.write_text(HANDS.replace("is_obsolete: true", f"is_obsolete: {true}"))
    assert read_obo(hands).retired["retired"].to_list() == ["A:3", "A:9"]


def test_synonyms_of_obo_1_0_and_names_with_a_comment(hands):
    hands.write_text(
        HANDS.replace('synonym: "manus" EXACT [X:1]', 'exact_synonym: "manus" [X:1]').replace(
            "name: finger", "name: finger ! of a hand"
        )
    )
    assert read_obo(hands).atoms.collect()["term"].to_list() == ["hand", "manus", "finger"]


def test_bytes_that_are_not_utf8(hands):
    hands.write_bytes(HANDS.encode().replace(b"finger", b"f\xffnger"))
    with pytest.raises(BadInput, match="hands.obo:17: found byte 0xff, which is not UTF-8"):
        read_obo(hands)
    assert "f\xffnger" in read_obo(hands, encoding="latin-1").atoms.collect()["term"].to_list()


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
    exact = sum(
        line.startswith("synonym: ") and '" EXACT' in line and "obsolete_synonym" not in line
        for line in lines
    )
    atoms = source.atoms.collect()
    assert atoms["cui"].n_unique() == len(live)
    assert atoms.height == len(live) + exact
    assert source.relations.collect().height == 2 * sum(li.startswith("is_a: ") for li in lines)
