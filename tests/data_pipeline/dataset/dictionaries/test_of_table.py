"""Dictionaries in tables: columns by their names in any order, choices, and what is refused."""

import gzip

import polars as pl
import pytest

from data_pipeline.dataset.dictionary import AboutConcept, read_dictionary
from data_pipeline.files.rows import content_hash
from data_pipeline.files.tables.table import write_table
from data_pipeline.process.errors import BadInput

ROWS = [("heart attack", "C1"), ("MI", "C1"), ("headache", "C2")]
TABLE = """\
Concept;Source;Code;Label;Lang;Type;preferred
C2;MSH;D006261;headache;en;T184 Sign or Symptom;1
C1;MSH;D009203;MI;eng;T047 Disease or Syndrome;0
C1;SCT;22298006;Heart attack;en-GB;T047 Disease or Syndrome;y
C1;MSH;D009203;Heart attack;EN;;Y
C2;ICD;G44.8;Kopfschmerz;de;T184 Sign or Symptom|T033 Finding;true
"""


def rows_of(dictionary):
    return list(zip(dictionary.terms, dictionary.concepts, strict=True))


@pytest.mark.parametrize(
    "name, text",
    [
        ("d.tsv", "heart attack\tC1\nMI\tC1\nheadache\tC2\n"),
        ("d.tsv", "Term\tCUI\nheart attack\tC1\nMI\tC1\nheadache\tC2\n"),
        ("d.tsv", "CUI\tterm\nC1\theart attack\nC1\tMI\nC2\theadache\n"),
        ("d.txt", "\ufeffterm\tconcept id\r\nheart attack\tC1\r\nMI\tC1\r\nheadache\tC2\r\n"),
        ("d.csv", "Concept-ID,Name\nC1, heart attack\nC1,MI \n\nC2,headache\n"),
        ("d.csv", 'Label;Code\n"heart attack";C1\nMI;C1\nheadache;C2\n'),
        ("d.tsv", "row\tdescription\tidentifier\n1\theart attack\tC1\n2\tMI\tC1\n3\theadache\tC2"),
        ("d.tsv", "name\tdescription\tcui\nheart attack\tx\tC1\nMI\t\tC1\nheadache\t\tC2"),
        ("d.txt", "C1||heart attack\nC1||MI\nC2||headache\n"),
    ],
)
def test_columns_are_found_by_their_names_in_any_order(write, name, text):
    dictionary = read_dictionary(write(name, text))
    assert rows_of(dictionary) == ROWS
    assert dictionary.languages is None is dictionary.vocabularies
    assert dictionary.about("C1") == AboutConcept("heart attack"), "no codes and no types"
    assert dictionary.description["source"] == str(write(name, text))
    assert dictionary.description["content_hash"] == content_hash(ROWS)


def test_workbooks_and_packed_tables(tmp_path):
    frame = pl.DataFrame(ROWS, schema=["Name", "ID"], orient="row")
    write_table(tmp_path / "d.xlsx", frame)
    assert rows_of(read_dictionary(tmp_path / "d.xlsx")) == ROWS
    write_table(tmp_path / "d.csv", frame)
    packed = tmp_path / "d.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "d.csv").read_bytes()))
    assert rows_of(read_dictionary(packed)) == ROWS


def test_what_more_a_table_says_of_terms_and_concepts(write):
    dictionary = read_dictionary(write("d.csv", TABLE))
    assert rows_of(dictionary) == [
        ("headache", "C2"),
        ("Kopfschmerz", "C2"),
        ("Heart attack", "C1"),
        ("MI", "C1"),
    ], "the preferred names of a concept first"
    assert dictionary.languages == ["ENG", "GER", "ENG", "ENG"]
    assert dictionary.vocabularies == [("MSH",), ("ICD",), ("MSH", "SCT"), ("MSH",)]
    assert dictionary.about("C1") == AboutConcept(
        "Heart attack", (("MSH", "D009203"), ("SCT", "22298006")), ("T047 Disease or Syndrome",)
    )
    assert dictionary.about("C2") == AboutConcept(
        "headache",
        (("MSH", "D006261"), ("ICD", "G44.8")),
        ("T184 Sign or Symptom", "T033 Finding"),
    )


def test_a_code_of_a_vocabulary_is_the_concept_where_nothing_else_is(write):
    dictionary = read_dictionary(write("d.csv", "code,system,name\nI21,ICD10,MI\n"))
    assert dictionary.about("I21") == AboutConcept("MI", (("ICD10", "I21"),))


def test_what_is_not_said_is_empty(write):
    text = "concept\tterm\tlanguage\tsab\tcode\tsty\n1\ta\t\t\t\t\n2|3\tb\tfr\tX\tX2\tT1 Type\n"
    dictionary = read_dictionary(write("d.tsv", text))
    assert rows_of(dictionary) == [("a", "1"), ("b", "2"), ("b", "3")]
    assert dictionary.languages == ["UND", "FRE", "FRE"]
    assert dictionary.vocabularies == [(), ("X",), ("X",)]
    assert dictionary.about("1") == AboutConcept("a")
    assert dictionary.about("3") == AboutConcept("b", (("X", "X2"),), ("T1 Type",))


@pytest.mark.parametrize(
    "choice, terms",
    [
        ({"languages": ["GER"]}, ["Kopfschmerz"]),
        ({"languages": ["ENG"], "sources": ["SCT"]}, ["Heart attack"]),
        ({"sources": ["ICD", "SCT"]}, ["Heart attack", "Kopfschmerz"]),
        ({"concepts_of": ["ICD"]}, ["headache", "Kopfschmerz"]),
        ({"types": ["T047"]}, ["Heart attack", "MI"]),
        ({"types": ["finding"], "languages": ["ENG"]}, ["headache"]),
    ],
)
def test_choices(write, choice, terms):
    path = write("d.csv", TABLE)
    dictionary = read_dictionary(path, **choice)
    assert dictionary.terms == terms
    chosen = " ".join(one for asked in choice.values() for one in asked)
    assert dictionary.source.split(" ", 1)[0] == str(path)
    assert sorted(dictionary.source.split()[1:]) == sorted(chosen.split())
    assert dictionary.chosen["languages"] == choice.get("languages", [])


def test_codes_are_those_of_the_vocabularies_chosen(write):
    dictionary = read_dictionary(write("d.csv", TABLE), sources=["SCT", "MSH"])
    assert dictionary.about("C1").codes == (("MSH", "D009203"), ("SCT", "22298006"))
    dictionary = read_dictionary(write("d.csv", TABLE), sources=["SCT"])
    assert dictionary.about("C1").codes == (("SCT", "22298006"),)
    german = read_dictionary(write("d.csv", TABLE), ["GER"])
    assert german.about("C2").preferred == "Kopfschmerz"


def test_choices_that_a_table_does_not_have(write):
    path = write("d.csv", TABLE)
    with pytest.raises(BadInput, match="--dictionary-languages FRE: no term of .* ENG, GER"):
        read_dictionary(path, ["FRE"])
    with pytest.raises(BadInput, match="--semantic-types T1: no concept of .*; it has T033 Find"):
        read_dictionary(path, types=["T1"])
    with pytest.raises(BadInput, match="found no term of the choice"):
        read_dictionary(path, ["GER"], ["SCT"])
    path = write("d.tsv", "CUI\tterm\nC1\ta\n")
    message = "found --dictionary-sources MSH; expected a table with a column vocabulary, .*: add"
    with pytest.raises(BadInput, match=message):
        read_dictionary(path, sources=["MSH"])
    with pytest.raises(BadInput, match="found --semantic-types T1; expected a table with a column"):
        read_dictionary(path, types=["T1"])


@pytest.mark.parametrize(
    "name, text, message",
    [
        (
            "d.csv",
            "headache;C2\npain;C1\n",
            "d.csv:1: found 2 columns; .*first row is headache, C2",
        ),
        ("d.csv", "\nKode;Begriff;x\n1;a;b\n", "d.csv:2: found 3 columns; .*is Kode, Begriff, x"),
        ("d.csv", " \n", "d.csv: found no lines; expected tab-separated rows"),
        (
            "d.tsv",
            "id\tcode\tterm\n1\tC1\ta\n",
            "columns id and code, each .* could be the concept",
        ),
        ("d.csv", "cui,name,synonym\nC1,a,b\n", "columns name and synonym, each .* be the term"),
        (
            "d.csv",
            "cui,name\nC1,a\n,b\n",
            "d.csv:3: found '' in the column cui; expected a concept",
        ),
        (
            "d.csv",
            "cui,name\nC1,a\n|,b\n",
            r"d.csv:3: found '\|' in the column cui; expected a con",
        ),
        (
            "d.csv",
            "cui,name\nC1, \nC2,b\n",
            "d.csv:2: found '' in the column name; expected a term",
        ),
        ("d.csv", "cui,name,ispref\nC1,a,maybe\n", "d.csv:2: found 'maybe' in the column ispref"),
        ("d.csv", "cui,name\nC1,a,b\n", "d.csv:2: found 3 columns"),
        ("d.csv", "cui,name\n", "d.csv: found a header and no rows"),
        ("d.csv", "cui,name\nC1,Fièvre\n".encode("latin-1"), "not UTF-8; save it as UTF-8, or as"),
    ],
)
def test_tables_that_are_no_dictionary(write, name, text, message):
    with pytest.raises(BadInput, match=message):
        read_dictionary(write(name, text))


@pytest.mark.parametrize(
    "codes",
    [
        *(["C0018681", "C0027051"], ["G44.8", "I21"], ["22298006", "25064002"]),
        *(["HP:0002315", "HP:0001658"], ["SNOMEDCT_US:22298006", "SNOMEDCT_US:1"]),
    ],
)
def test_columns_that_look_swapped_are_read_so_and_it_is_said(write, codes, capsys):
    rows = [
        f"{code}\t{term}\n" for code, term in zip(codes, ["headache", "MI (acute)"], strict=True)
    ]
    many = "".join(rows) * 10 + "x\theadache\n"
    swapped = read_dictionary(write("d.tsv", many))
    assert (swapped.terms[0], swapped.concepts[0]) == ("headache", codes[0])
    said = (
        f"d.tsv: read as concept<TAB>term, as its first column looks like codes ('{codes[0]}', 'hea"
    )
    assert said in capsys.readouterr().err
    named = read_dictionary(write("d.tsv", f"concept\tterm\n{many}"))
    assert named.concepts[0] == codes[0] and named.terms[0] == "headache"
    as_they_are = read_dictionary(write("d.tsv", f"term\tconcept\n{many}".replace("x\t", "C9\t")))
    assert as_they_are.terms[0] == codes[0], "whoever names the columns is believed"


@pytest.mark.parametrize(
    "rows",
    [
        "p53\t7157\nIL2\t3558\n",
        "CD4\tC0003323\nT4\tC0040165\n",
        "headache\tC-LEFT\nasthma\tC-RIGHT\n",
        "vitamin-b12\tcobalamin\ninterleukin-6\tcytokine\n",
        "t1\ta\nt2\tb\n",
        "p53\ttumor protein\nheadache\tpain\n",
    ],
)
def test_names_that_look_like_codes_are_terms_all_the_same(write, rows):
    path = write("d.tsv", rows)
    assert rows_of(read_dictionary(path)) == [tuple(row.split("\t")) for row in rows.splitlines()]


def test_rows_of_today_are_read_as_they_were(write):
    """Quotes and commas are ordinary characters; further header names are only those of before."""
    rows = [('"Foo" syndrome', "C1|C2"), ("a, b; c", "C3"), ("term", "CUI"), ("a", "C1")]
    text = "".join(f"{term}\t{concept}\n" for term, concept in [("string", "code"), *rows])
    assert rows_of(read_dictionary(write("d.csv", text))) == rows
    assert rows_of(read_dictionary(write("d.csv", text.split("\n", 1)[1]))) == rows
