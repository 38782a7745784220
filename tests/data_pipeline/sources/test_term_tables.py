"""Your own table of terms, and relations beside it, as a source."""

import subprocess

import polars as pl
import pytest

from data_pipeline.files.tables import read_rows, write_table
from data_pipeline.process import BadInput
from data_pipeline.sources.source import ATOMS, RELATIONS
from data_pipeline.sources.term_tables import read_term_source, term_table, terms_paths

TERMS = """\
name,concept,language,vocabulary,code,semantic_type,preferred
Limb ache,C1,en,ICD,M79.6,Symptom,
Limb pain,C1,en,ICD,M79.6,Symptom|Finding,Y
Douleur,C1,fr-CA,,,,1
"Attack, acute",C2,,LOCAL,A-1,,n
"""
RELATIONS_TABLE = "Tail;Relation;Head\nC2;is a;C1\nC3;Finding site;C1\n"


def test_a_table_is_a_source(write):
    path = write("own.csv", TERMS)
    source = read_term_source(path, "5")
    assert (source.name, source.release, source.relations) == ("own", "5", None)
    assert source.files == [{"file": "own.csv", "bytes": len(TERMS)}]
    atoms = source.atoms.collect()
    assert tuple(atoms.columns) == ATOMS and atoms["rank"].dtype == pl.UInt8
    assert atoms.rows() == [
        ("C1", "ENG", "ICD", "SY", "N", 1, "Limb ache", "M79.6"),
        ("C1", "ENG", "ICD", "PT", "N", 0, "Limb pain", "M79.6"),
        ("C1", "FRE", "own", "PT", "N", 0, "Douleur", ""),
        ("C2", "UND", "LOCAL", "SY", "N", 1, "Attack, acute", "A-1"),
    ]
    assert source.types.collect().rows() == [("C1", "Finding"), ("C1", "Symptom")]
    assert not source.retired.height and not source.xrefs.height


def test_a_table_for_medcat_is_a_source(write):
    text = "cui,name,ontologies,name_status,type_ids\nC1,MI,A|B,N,T047\nC1,Attack,A,P,T047|T046\n"
    source = read_term_source(write("cdb.csv", text))
    assert source.atoms.collect().rows() == [
        ("C1", "UND", "A", "SY", "N", 1, "MI", ""),
        ("C1", "UND", "B", "SY", "N", 1, "MI", ""),
        ("C1", "UND", "A", "PT", "N", 0, "Attack", ""),
    ]
    assert source.types.collect().rows() == [("C1", "T046"), ("C1", "T047")]


def test_translations_of_an_ontology(write, capsys):
    """As the Human Phenotype Ontology publishes them, in its columns and with its quirks."""
    babelon = write(
        "hp-it.babelon.tsv",
        "source\tsource_language\tsource_value\tsubject_id\tpredicate_id\ttranslation_language\t"
        "translation_value\ttranslation_status\ttranslation_type\n"
        "http://x/hp.owl\ten\tMuscle\tHP:1\trdfs:label\tit\t"
        '"Regioni ""central core"""\tCANDIDATE\tA\n'
        "http://x/hp.owl\ten\tPain\tHP:2\trdfs:label\tit\tDolore\tOFFICIAL\tB\n"
        "http://x/hp.owl\ten\tIt hurts\tHP:2\tIAO:0000115\tit\tFa male\tOFFICIAL\t\n"
        "http://x/hp.owl\ten\tAche\tHP:2\toboInOwl:hasExactSynonym\tit\tMale\tOFFICIAL\t\n"
        "http://x/hp.owl\ten\tAll\tHP:3\trdfs:label\tit\tNA\tNOT_TRANSLATED\t\n"
        "http://x/hp.owl\ten\tSore\tHP:4\t\tit\t\tCANDIDATE\t\n",
    )
    source = read_term_source(babelon)
    assert source.atoms.collect().rows() == [
        ("HP:1", "ITA", "hp-it.babelon", "PT", "N", 0, 'Regioni "central core"', ""),
        ("HP:2", "ITA", "hp-it.babelon", "PT", "N", 0, "Dolore", ""),
        ("HP:2", "ITA", "hp-it.babelon", "SY", "N", 1, "Male", ""),
    ]
    assert source.types is None, "the type of a translation is none of the concept"
    assert source.warnings == ("hp-it.babelon.tsv: 3 rows left out, not active or no names",)
    said = capsys.readouterr().err
    assert "1 rows left out, which are not active (translationstatus: not_translated)" in said
    assert "1 rows left out, which have no translation yet" in said
    assert "1 rows left out, which are no names (predicate_id)" in said
    columns = {"term": "source_value", "concept": "subject_id"}
    told = term_table(babelon, *read_rows(babelon), columns).frame
    assert told["term"].to_list() == ["Muscle", "Pain", "It hurts", "Ache", "Sore"]


def test_synonyms_in_another_language(write):
    template = write(
        "hp-fr.synonyms.tsv",
        "subject_id\ttranslation_value\tcomment\tStatus\tLine number\n"
        "ID\tAL oboInOwl:hasExactSynonym@fr\t\t\t\n"
        "HP:1\turgence mictionnelle|urgence urinaire\tof HP:1 (Urgency); pain\tOFFICIAL\t17\n"
        "HP:2\tAche\tof HP:2 (Pain)\tNOT_TRANSLATED\t9\n",
    )
    assert read_term_source(template).atoms.collect().rows() == [
        ("HP:1", "FRE", "hp-fr.synonyms", "SY", "N", 1, "urgence mictionnelle", ""),
        ("HP:1", "FRE", "hp-fr.synonyms", "SY", "N", 1, "urgence urinaire", ""),
    ]
    turkish = write(
        "hp-tr.tsv",
        "subject_id\ttranslation_value\tcomment\nID\tAL oboInOwl:hasExactSynonym@tr\t\n"
        "HP:1\tsancı\tOFFICIAL\nHP:2\tAche\tNOT_TRANSLATED\n",
    )
    atoms = read_term_source(turkish).atoms.select("language", "term").collect()
    assert atoms.rows() == [("TUR", "sancı")]


def test_concept_and_name_are_enough(write):
    source = read_term_source(write("a.b.tsv", "name\tconcept\nx\tC1|C2\ny\tC1\nz\tC3\n"))
    assert source.name == "a.b" and source.release == "unknown" and source.types is None
    assert source.atoms.collect().rows() == [
        ("C1", "UND", "a.b", "PT", "N", 0, "x", ""),
        ("C2", "UND", "a.b", "PT", "N", 0, "x", ""),
        ("C1", "UND", "a.b", "SY", "N", 1, "y", ""),
        ("C3", "UND", "a.b", "PT", "N", 0, "z", ""),
    ], "the first name of a concept is the preferred one"


@pytest.mark.parametrize("ending", ["csv", "tsv", "xlsx"])
def test_relations_beside_it_read_as_a_sentence_and_go_both_ways(write, tmp_path, ending):
    path = write("own.csv", TERMS)
    frame = pl.read_csv(RELATIONS_TABLE.encode(), separator=";")
    write_table(tmp_path / f"own.relations.{ending}", frame)
    source = read_term_source(path)
    relations = source.relations.collect()
    assert tuple(relations.columns) == RELATIONS
    assert relations.rows() == [
        ("C2", "CHD", "isa", "C1", "own", "N"),
        ("C3", "RO", "finding_site", "C1", "own", "N"),
        ("C1", "PAR", "inverse_isa", "C2", "own", "N"),
        ("C1", "RO", "inverse_finding_site", "C3", "own", "N"),
    ]
    assert [file["file"] for file in source.files] == ["own.csv", f"own.relations.{ending}"]
    assert terms_paths(path) == [path, tmp_path / f"own.relations.{ending}"]


@pytest.mark.parametrize("name", ["training_file.txt", "pairs.tsv"])
def test_a_training_file_of_sapbert_is_told_how_to_become_a_table(write, tmp_path, name):
    pairs = (
        "C1 || heart attack, acute || MI\nC1 || MI || myocardial infarction\nC2 || ache || pain\n"
    )
    with pytest.raises(BadInput, match="pairs, concept .. name") as refused:
        read_term_source(write(name, pairs))
    command = str(refused.value).split("becomes such a table by: ")[1]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    atoms = read_term_source(tmp_path / "terms.tsv").atoms.collect()
    assert sorted(zip(atoms["cui"], atoms["term"], strict=True)) == [
        *(("C1", "MI"), ("C1", "heart attack, acute"), ("C1", "myocardial infarction")),
        *(("C2", "ache"), ("C2", "pain")),
    ]


def test_what_is_wrong_is_said_with_file_and_line(write):
    path = write("own.csv", TERMS)
    relations = write("own.relations.tsv", "head\trelation\tend\nC1\tisa\tC2\n")
    message = "own.relations.tsv: column tail: no column has that name; .* head, relation, end"
    with pytest.raises(BadInput, match=message):
        read_term_source(path)
    relations.write_text("head\trelation\ttail\nC1\tisa\tC2\n\nC1\t \tC2\n")
    with pytest.raises(BadInput, match="own.relations.tsv:4: found nothing in the column relation"):
        read_term_source(path)
    relations.write_bytes("head\trelation\ttail\nC1\tgehört\tC2\n".encode("cp1252"))
    with pytest.raises(BadInput, match="own.relations.tsv:2: .*not UTF-8; save it as UTF-8, or as"):
        read_term_source(path)
    write("own.relations.csv", RELATIONS_TABLE)
    with pytest.raises(BadInput, match="own.relations.tsv and own.relations.csv; expected one"):
        read_term_source(path)
    with pytest.raises(BadInput, match="b.tsv:3: found '' in the column cui; expected a concept"):
        read_term_source(write("b.tsv", "cui\tstr\nC1\ta\n\tb\n"))
    with pytest.raises(BadInput, match="b.tsv: found the columns head, tail; expected a header"):
        read_term_source(write("b.tsv", "head\ttail\nC1\ta\n"))
