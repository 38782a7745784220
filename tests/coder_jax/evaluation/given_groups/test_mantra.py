"""MANTRA GSC with the groups of its mentions, of brat files and of XML."""

import pytest
from evaluating import records_in, run
from mantra_corpus import XML, write_brat

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.normalization.mantra_files import groups_of_note
from data_pipeline.process.errors import BadInput

GROUPED = (
    "T1\tC0000001 0 7\tDouleur\n"
    '#1\tAnnotatorNotes T1\t"C0000001", "Pain", "Sign or Symptom" ,"DISO"\n'
    'T2\tC0000004 22 26\tmain\n#2\tAnnotatorNotes T2\t"C0000004", "Hand", "ANAT" ,"Body Part"\n'
    'T3\tC0000009 22 26\tmain\n#3\tAnnotatorNotes T3\t"C0000009", "DISO", "x" ,"PROC|PHYS"\n'
    'T4\tC0000005 22 26\tmain\n#4\tAnnotatorNotes T4\t"C0000005", "Palm", "x" ,"ANAT"\n'
)


@pytest.fixture
def brat(tmp_path):
    folder = write_brat(tmp_path)
    (ann,) = folder.rglob("0001_d1.u1.ann")
    ann.write_text(GROUPED)
    return folder


def test_a_mention_is_asked_for_in_each_of_its_groups(brat):
    (one,) = read_benchmark("mantra", brat, given_groups=True).sets
    assert one.name == "Medline fr" and one.without_note == 0 and one.majority is None
    assert list(zip(one.texts, one.groups, one.gold, strict=True)) == [
        ("Douleur", "DISO", ("C0000001",)),
        ("main", "ANAT", ("C0000004", "C0000005")),
        ("main", "PROC", ("C0000009",)),
    ]
    (chosen,) = read_benchmark("mantra", brat, given_groups=True, semantic_groups=["ANAT"]).sets
    assert chosen.texts == ["main"]
    with pytest.raises(
        BadInput, match="found no mentions of the semantic groups LIVB; give others"
    ):
        read_benchmark("mantra", brat, given_groups=True, semantic_groups=["LIVB"])


def test_groups_of_xml(tmp_path):
    path = tmp_path / "Medline_GSC_fr_man.xml"
    path.write_text(XML)
    (one,) = read_benchmark("mantra", path, given_groups=True).sets
    assert (one.texts, one.groups) == (["Douleur", "main", "Toux"], ["DISO", "ANAT", "DISO"])
    path.write_text(XML.replace('grp="DISO">Toux', ">Toux"))
    with pytest.raises(
        BadInput, match="found no semantic group of C0000002, the mention 'Toux' in"
    ):
        read_benchmark("mantra", path, given_groups=True)


def test_notes():
    assert groups_of_note('"C1", "AIDS", "Disease" ,"DISO"') == "DISO"
    assert groups_of_note('"C1", "DISO", "OBJC|CHEM", "Food"') == "OBJC|CHEM"
    assert groups_of_note("C1") == groups_of_note("") == ""


def test_the_real_corpus(shared_data):
    path = shared_data / "benchmarks" / "mantra_gsc" / "Mantra-GSC-brat.zip"
    sets = {one.name: one for one in read_benchmark("mantra", path, given_groups=True).sets}
    french = [sets[f"{one} fr"] for one in ("EMEA", "Medline", "Patent")]
    assert sum(len(cuis) for one in french for cuis in one.gold) == 1052


def test_nearest_terms_of_an_encoder(brat, minilm_path, tmp_path):
    table = tmp_path / "terms.tsv"
    table.write_text(
        "concept\tterm\tsemantic_type\nC0000001\tdouleur\tT184\nC0000002\tmain\tT184\n"
        "C0000004\tmains\tT023\nC0000006\tpied\tT023\n"
    )
    out = tmp_path / "out.json"
    words = ["--model", minilm_path, "--benchmark", f"mantra={brat}", "--dictionary", table]
    assert run(*words, "--given-groups", "--json", out) == 0
    (record,) = records_in(out)
    fold = record.folds["Medline fr"]
    assert fold["counts"]["gold"] == 4 and fold["counts"]["unreachable"] == 2
    assert fold["reachable"]["recall"] == 1, "main is a symptom too, but of another group"
