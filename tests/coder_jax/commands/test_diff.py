"""The command `diff`: what a new release of a vocabulary changes in what people decided on."""

import csv
import io

import pytest
from tiny_rrf import write_release

from coder_jax.commands import diff
from data_pipeline.flags import parsed
from data_pipeline.process import BadInput

BETTER = "it has the local term as a name"
HEAD = "mention,code,concept,decision,note,reviewer,date\n"
OLD = """\
format-version: 1.2

[Term]
id: X:1
name: Heart attack

[Term]
id: X:2
name: Chest pain

[Term]
id: X:3
name: Cough

[Term]
id: X:4
name: Wheeze

[Term]
id: X:5
name: Stroke

[Term]
id: X:6
name: Ache
"""
NEW = """\
format-version: 1.2

[Term]
id: X:1
name: Myocardial infarction
synonym: "Heart attack" EXACT []

[Term]
id: X:2
name: Chest pain
is_obsolete: true
replaced_by: X:7

[Term]
id: X:3
name: Cough
is_obsolete: true

[Term]
id: X:5
name: Stroke

[Term]
id: X:6
name: Ache

[Term]
id: X:7
name: Thoracic pain
alt_id: X:4
synonym: "pain in the chest" EXACT []

[Term]
id: X:8
name: Mini stroke
synonym: "TIA" EXACT []
"""


@pytest.fixture
def run_diff(tmp_path, monkeypatch, capfd):
    """Runs the command on two releases and returns its rows and what it says."""
    monkeypatch.chdir(tmp_path)

    def run(old, new, decisions, *arguments):
        (tmp_path / "d.csv").write_text(decisions)
        words = [str(old), str(new), "--decided", "d.csv", *arguments]
        assert diff.run(parsed(diff.OPTIONS, words)[0]) == 0
        said = capfd.readouterr()
        return list(csv.DictReader(io.StringIO(said.out), delimiter="\t")), said.err

    return run


def seen(rows, *columns):
    return [tuple(row[name] for name in columns) for row in rows]


def test_what_an_ontology_says_of_its_terms(run_diff, write):
    decided = (
        "MI,1,X:1,accepted,,Anna,2026-03-01\npain in the chest,2,X:2,accepted,,,\n"
        "cough,3,X:3,accepted,,,\nwheezing,4,X:4,accepted,,,\nTIA,5,X:5,accepted,,,\n"
        "tia,6,,rejected,,,\nstroke and ache,7,X:5|X:6,accepted,,,\nother,8,Y:1,accepted,,,\n"
        "stroke,9,X:5,accepted,,,\nnothing,10,,rejected,,,\n"
    )
    rows, said = run_diff(write("old.obo", OLD), write("new.obo", NEW), HEAD + decided)
    assert seen(rows, "code", "change", "concept", "name", "new_concept", "new_name", "reason") == [
        ("1", "renamed", "X:1", "Heart attack", "X:1", "Myocardial infarction", ""),
        ("2", "replaced", "X:2", "Chest pain", "X:7", "Thoracic pain", "replaced_by"),
        ("3", "gone", "X:3", "Cough", "", "", "obsolete"),
        ("4", "replaced", "X:4", "Wheeze", "X:7", "Thoracic pain", "alt_id"),
        ("5", "better match", "X:5", "Stroke", "X:8", "Mini stroke", BETTER),
        ("8", "in neither", "Y:1", "", "", "", ""),
    ]
    assert "10 decisions: 1 gone, 2 replaced, 1 renamed, 1 better match, 1 in neither; 4 as" in said


def test_a_coded_list_has_decisions(run_diff, write):
    columns = "Term,Nr,x_concept,x_rank,x_status,x_reason,x_decided_by,x_decided_on,x_decision_note"
    decided = f"{columns}\nheart,7,X:3,1,decided,,Anna,2026-03-01,\n"
    flags = ("--column", "Term", "--code-column", "Nr", "--prefix", "x_")
    rows, _ = run_diff(write("old.obo", OLD), write("new.obo", NEW), decided, *flags)
    assert seen(rows, "mention", "code", "change") == [("heart", "7", "gone")]


def test_an_acronym_in_other_letters_is_no_better_match(run_diff, write):
    decided = "TIA,,,rejected,,,\ntia,,,rejected,,,\n"
    rows, _ = run_diff(write("old.obo", OLD), write("new.obo", NEW), HEAD + decided)
    assert seen(rows, "mention", "change", "concept", "new_concept") == [
        ("TIA", "better match", "", "X:8")
    ]


def test_a_table_lacks_what_is_gone(run_diff, write):
    old = write("old.tsv", "term\tconcept\nheart attack\tC1\nfever\tC2\ncough\tC3\n")
    new = write("new.tsv", "term\tconcept\nheart attack\tC1\nfever\tC9\ncough\tC3\n")
    decided = "MI,,C1,accepted,,,\nfever,,C2,accepted,,,\n"
    rows, said = run_diff(old, new, HEAD + decided, "--out", "changes.csv")
    assert rows == [] and "1 gone, 1 better match; 1 as before; written to changes.csv" in said
    with open("changes.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert seen(rows, "mention", "change", "concept", "new_concept") == [
        ("fever", "gone", "C2", ""),
        ("fever", "better match", "C2", "C9"),
    ]
    rows, said = run_diff(old, old, HEAD + decided)
    assert rows == [] and "2 decisions: nothing changed; 2 as before" in said


@pytest.mark.parametrize(
    ("decisions", "arguments", "message"),
    [
        (HEAD, (), "d.csv: found no decision; expected accepted or rejected ones"),
        ("mention,concept\n", (), "d.csv: found mention, concept; expected the columns"),
        (f"{HEAD}a,,X:1,accepted,,,\n", ("--out", "new.tsv"), "new.tsv, which is read as OLD"),
        (f"{HEAD}a,,X:1,accepted,,,\n", ("--out", "x.doc"), "--out: found x.doc; expected a name"),
    ],
)
def test_what_cannot_be_compared(run_diff, write, decisions, arguments, message):
    table = write("new.tsv", "term\tconcept\nfever\tC2\n")
    with pytest.raises(BadInput, match=message):
        run_diff(table, table, decisions, *arguments)
    assert table.read_text().startswith("term")


@pytest.mark.parametrize("part", ["", "MRCONSO.RRF"])
def test_mrcui_says_what_a_concept_became(run_diff, write, tmp_path, part):
    retired = {"C0000009": "SY", "C0000008": "DEL", "C0000007": "RB", "C0000003": ""}
    lines = "".join(f"name {one}\t{one}\n" for one in retired)
    decided = "".join(f"m{number},,{one},accepted,,,\n" for number, one in enumerate(retired))
    rows, _ = run_diff(
        write("old.tsv", f"term\tconcept\n{lines}"),
        write_release(tmp_path / "umls") / part,
        HEAD + decided,
    )
    assert seen(rows, "concept", "change", "new_concept", "new_name", "reason") == [
        ("C0000009", "replaced", "C0000002", "Heart disease (disorder)", "SY"),
        ("C0000008", "gone", "", "", "DEL"),
        ("C0000007", "replaced", "C0000003", "Limb pain", "RB"),
        ("C0000003", "renamed", "C0000003", "Limb pain", ""),
    ]


CONCEPT = "concept_id\tconcept_name\tdomain_id\tvocabulary_id\tconcept_class_id\t"
CONCEPT += "standard_concept\tconcept_code\tvalid_start_date\tvalid_end_date\tinvalid_reason\n"
LINK = "concept_id_1\tconcept_id_2\trelationship_id\tvalid_start_date\tvalid_end_date\t"
LINK += "invalid_reason\n1\t2\tMaps to\t19700101\t20991231\t\n"


def athena(write, name, *concepts):
    """A download of Athena with (concept, its name, standard, invalid)."""
    rows = [
        f"{one}\t{text}\tDrug\tRxNorm\tIngredient\t{standard}\tc{one}\t19700101\t20991231\t{off}\n"
        for one, text, standard, off in concepts
    ]
    write(f"{name}/CONCEPT_RELATIONSHIP.csv", LINK)
    write(
        f"{name}/VOCABULARY.csv",
        "vocabulary_id\tvocabulary_name\tvocabulary_reference\t"
        "vocabulary_version\tvocabulary_concept_id\nNone\tOMOP\tOMOP\tv5\t0\n",
    )
    return write(f"{name}/CONCEPT.csv", CONCEPT + "".join(rows)).parent


def test_what_is_no_longer_standard(run_diff, write):
    old = athena(write, "old", ("1", "ASA", "S", ""), ("2", "aspirin", "S", ""), ("3", "x", "", ""))
    new = athena(write, "new", ("1", "ASA", "", ""), ("2", "aspirin", "S", ""), ("3", "x", "", ""))
    decided = "acetyl,,1,accepted,,,\nasp,,2,accepted,,,\nxx,,3,accepted,,,\n"
    for arguments in ((), ("--dictionary-standard",)):
        rows, _ = run_diff(old, new, HEAD + decided, *arguments)
        assert seen(rows, "concept", "change", "new_concept", "new_name") == [
            ("1", "not standard", "2", "aspirin"),
            *[("3", "in neither", "", "")] * bool(arguments),
        ]
    gone = athena(write, "gone", ("1", "ASA", "", "D"), ("2", "aspirin", "S", ""))
    rows, _ = run_diff(old, gone, HEAD + decided)
    assert seen(rows, "concept", "change", "new_concept", "reason") == [
        ("1", "replaced", "2", "invalid, maps to"),
        ("3", "gone", "", ""),
    ]
