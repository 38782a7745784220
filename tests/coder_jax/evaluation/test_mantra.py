"""MANTRA GSC: precision, recall and F1, by hand and against CODER's released code."""

import dataclasses
import shutil
import zipfile

import numpy as np
import pytest
from evaluating import ENCODER, records_in, run
from mantra_corpus import DICTIONARY, XML, write_brat

from coder_jax.evaluation.benchmark import Options
from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.given_groups import measures
from coder_jax.evaluation.mantra import (
    Mantra,
    _groups_of_note,
    _mantra_record,
    _measures_drawn,
    _read_mantra,
)
from coder_jax.evaluation.normalization import evaluate_normalization
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput


@pytest.fixture
def brat(tmp_path):
    return write_brat(tmp_path)


def released_f1(predicted, gold):
    """As CODER's released code counts: each pair of mention and CUI is a mention with one CUI."""
    pairs = [(answer, cui) for answer, cuis in zip(predicted, gold, strict=True) for cui in cuis]
    correct = sum(answer == cui for answer, cui in pairs)
    precision = recall = correct / len(pairs)
    return 2 * precision * recall / (precision + recall)


def naive_scores(predicted, gold):
    """Sets of (mention, CUI), counted."""
    right = sum(cui in cuis for cui, cuis in zip(predicted, gold, strict=True))
    precision, recall = right / len(predicted), right / sum(map(len, gold))
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall),
    }


def test_one_cui_per_mention(brat, tmp_path):
    english = brat / "English" / "EMEA_ec22-cui-best_man"
    english.mkdir(parents=True)
    (english / "0001.txt").write_text("Wrist")
    (english / "0001.ann").write_text("T1\tC0000003 0 5\tWrist\n")
    benchmark = read_benchmark("mantra", brat, dictionary=DICTIONARY)
    place = {"Douleur": 0, "main": 3, "toux main": 2, "Wrist": 3}
    place |= {term: number for number, term in enumerate(DICTIONARY.terms)}

    def encode(strings):
        return np.eye(4, dtype=np.float32)[[place[string] for string in strings]]

    result = evaluate_normalization(encode, benchmark, ks=[1])
    record = _mantra_record(benchmark, result, None)
    gold = [{"C0000001"}, {"C0000004", "C0000009"}, {"C0000002"}]
    predicted = ["C0000001", "C0000004", "C0000003"]
    expected = naive_scores(predicted, gold)
    assert expected["recall"] == pytest.approx(released_f1(predicted, gold))
    assert record.folds["Medline fr"]["scores"] == pytest.approx(expected)
    assert record.scores == pytest.approx(expected), "English is not in the mean"
    assert record.counts["folds"] == 1
    header, (row, released, *_) = Mantra.table(
        [dataclasses.replace(record, encoder=ENCODER)], Options()
    )
    cells = dict(zip(header, released.cells, strict=True))
    assert released.cells[0] == "mantra, hits per pair (released code)"
    score = {name: cell.partition(" ±")[0] for name, cell in cells.items()}
    assert score["Medline fr"] == score["F1"] == "50.0" and row.cells[-1].startswith("57.1 ±")
    assert record.folds["EMEA en"]["scores"]["f1"] == 0
    assert record.folds["Medline fr"]["counts"] == {
        **{"mentions": 3, "annotations": 4, "unreachable": 0}
    }
    assert (record.kind, record.counts["annotations"]) == ("MANTRA GSC", 5)
    # One sub-corpus alone has no folds of its own.
    alone = read_benchmark("mantra", brat / "French", dictionary=DICTIONARY)
    only = _mantra_record(alone, evaluate_normalization(encode, alone, ks=[1]), None)
    assert only.scores == pytest.approx(expected) and list(only.folds) == ["Medline fr"]


def test_scores_by_hand():
    assert measures(np.array([4, 8, 10])) == pytest.approx([0.5, 0.4, 4 / 9])
    assert measures(np.array([0, 8, 10])).tolist() == [0, 0, 0]


def test_what_is_drawn_is_scored_alike():
    outcomes = np.array([[1.0, 1, 1], [0, 2, 1], [0.5, 3, 1]])  # hit, gold pairs, mentions
    drawn = np.array([[1, 1, 1], [3, 0, 1], [0, 2, 0]])
    for counts, found in zip(drawn, _measures_drawn(outcomes, drawn), strict=True):
        hits, pairs, mentions = counts @ outcomes
        assert found == pytest.approx(
            [hits / mentions, hits / pairs, 2 * hits / (mentions + pairs)]
        )


def test_the_mean_leaves_english_out(brat):
    benchmark = read_benchmark("mantra", brat, dictionary=DICTIONARY)
    assert benchmark.averaged() == ["Medline fr"]
    english = [dataclasses.replace(fold, name="Medline en") for fold in benchmark.folds]
    both = dataclasses.replace(benchmark, folds=[*english, *benchmark.folds])
    assert both.averaged() == ["Medline fr"]
    assert dataclasses.replace(benchmark, folds=english).averaged() == ["Medline en"]
    assert all(fold.languages == [fold.name[-2:]] * len(fold.mentions) for fold in benchmark.folds)


# -------------------------------------------------------------------------------------------------
# MANTRA GSC: both file formats, precision, recall and F1 of one CUI per mention.


@pytest.fixture
def brat_of_mantra_files(tmp_path):
    return write_brat(tmp_path)


def test_brat_in_a_folder_and_in_a_zip(brat_of_mantra_files, tmp_path):
    packed = tmp_path / "Mantra-GSC.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in brat_of_mantra_files.rglob("*.*"):
            archive.write(file, file.relative_to(tmp_path))
            archive.writestr(f"__MACOSX/{file.relative_to(tmp_path)}", b"\x00\xff")
    for beside in ("._0001_d1.u1.ann", "._0001_d1.u1.txt", "._Medline_GSC_fr_man.xml"):
        (brat_of_mantra_files / "French" / "Medline_EN_FR_ec22-cui-best_man" / beside).write_bytes(
            b"\x00\xff"
        )
    (brat_of_mantra_files / "French" / "notes.txt").mkdir()
    for path in (brat_of_mantra_files, brat_of_mantra_files / "French", packed):
        (fold,) = read_benchmark("mantra", path, dictionary=DICTIONARY).folds
        assert fold.name == "Medline fr"
        assert fold.mentions == ["Douleur", "main", "toux main"]
        assert fold.gold == ["C0000001", "C0000004|C0000009", "C0000002"]


def test_xml(tmp_path):
    path = tmp_path / "GSC" / "Medline_GSC_fr_man.xml"
    path.parent.mkdir()
    path.write_text(XML)
    gaps = '<e offset="11" len="{}" cui="C0000002">toux main</e></unit>'
    for place in ("15", "9"):  # to the end of the last word, or as long as the words
        longer = XML.replace("</unit>", gaps.format(place), 1).replace("Douleur", "Schmerz")
        (path.parent / "EMEA_GSC_de_man.xml").write_text(longer)
        german = read_benchmark("mantra", path.parent, dictionary=DICTIONARY).folds[0]
        assert german.mentions == ["Schmerz", "main", "toux main", "Toux"]
    (fold,) = read_benchmark("mantra", path, dictionary=DICTIONARY).folds
    assert (fold.name, fold.mentions) == ("Medline fr", ["Douleur", "main", "Toux"])
    assert fold.gold == ["C0000001", "C0000004|C0000009", "C0000002"]
    folds = read_benchmark("mantra", path.parent, dictionary=DICTIONARY).folds
    assert [f.name for f in folds] == ["EMEA de", "Medline fr"]


def test_every_xml_file_of_the_corpus_has_a_known_name(tmp_path):
    folder, packed = tmp_path / "GSC", tmp_path / "GSC.zip"
    folder.mkdir()
    (folder / "README.xml").write_bytes("<guide>of the épreuve</guide>".encode("latin-1"))
    for name in ("Medline_GSC_fr_man.xml", "Patents_GSC_fr_man.xml", "EMEA_GSC_fr_man.XML"):
        (folder / name).write_text(XML)
    folds = read_benchmark("mantra", folder, dictionary=DICTIONARY).folds
    assert [fold.name for fold in folds] == ["EMEA fr", "Medline fr", "Patent fr"]
    wrong = {"Medline_GSC_it_man.xml": "404: Not Found", "medline_gsc_de.xml": XML, "de.xml": XML}
    for name, content in wrong.items():
        (folder / name).write_text(content)
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(folder / "Medline_GSC_fr_man.xml", "GSC/Medline_GSC_fr_man.xml")
            archive.write(folder / name, f"GSC/{name}")
        for path in (folder, packed):
            with pytest.raises(BadInput, match=f"found (GSC/)?{name}; .*: rename it, or take it"):
                read_benchmark("mantra", path, dictionary=DICTIONARY)
        (folder / name).unlink()


def test_a_corpus_without_annotations_is_refused(brat_of_mantra_files):
    (brat_of_mantra_files / "EMEA_GSC_de_man.xml").write_text(
        "<Corpus><unit><text>Rien</text></unit></Corpus>"
    )
    dutch = brat_of_mantra_files / "Dutch" / "Medline_EN_NL_ec22-cui-best_man"
    dutch.mkdir(parents=True)
    for suffix in (".txt", ".ann"):
        (dutch / f"1{suffix}").write_text("")
    with pytest.raises(BadInput, match="found no annotations of EMEA de, Medline nl; expected"):
        read_benchmark("mantra", brat_of_mantra_files, dictionary=DICTIONARY)


def test_a_corpus_that_is_there_twice_is_refused(brat_of_mantra_files):
    def refused(one, other):
        with pytest.raises(BadInput, match=f"found Medline fr both in {one} and in {other}; exp"):
            read_benchmark("mantra", brat_of_mantra_files, dictionary=DICTIONARY)

    shutil.copytree(brat_of_mantra_files / "French", brat_of_mantra_files / "old" / "French")
    refused("French/.*0001_d1.u1.ann", "old/French/.*0001_d1.u1.ann")
    shutil.rmtree(brat_of_mantra_files / "old")
    (folder,) = (brat_of_mantra_files / "French").iterdir()
    copy = folder.with_name(f"{folder.name} (copy)")
    shutil.copytree(folder, copy)
    refused("French/.*0001_d1.u1.ann", r"French/.* \(copy\)/0001_d1.u1.ann")
    shutil.rmtree(copy)
    (brat_of_mantra_files / "Medline_GSC_fr_man.xml").write_text(XML)
    refused("French/.*0001_d1.u1.ann", "Medline_GSC_fr_man.xml")
    shutil.rmtree(brat_of_mantra_files / "French")
    (brat_of_mantra_files / "old").mkdir()
    (brat_of_mantra_files / "old" / "Medline_GSC_fr_man.xml").write_text(XML)
    refused("Medline_GSC_fr_man.xml", "old/Medline_GSC_fr_man.xml")


@pytest.mark.parametrize(
    "file, content, message",
    [
        (
            "0001_d1.u1.ann",
            "T1\tDISO 0 7\tx\n",
            r"0001_d1.u1.ann:1: found .*; expected T1<TAB>C000",
        ),
        (
            "0001_d1.u1.ann",
            "T1\tC0000001 1 8\tDouleur\n",
            r".ann:1: found the mention 'Douleur' where the text has 'ouleur ' .*; expected",
        ),
        ("0003.ann", "", r"0003.ann: found no 0003.txt beside it; fetch it again"),
    ],
)
def test_brat_that_is_broken(brat_of_mantra_files, file, content, message):
    (brat_of_mantra_files / "French" / "Medline_EN_FR_ec22-cui-best_man" / file).write_text(content)
    with pytest.raises(BadInput, match=message):
        read_benchmark("mantra", brat_of_mantra_files, dictionary=DICTIONARY)


def test_what_else_cannot_be_used(brat_of_mantra_files, tmp_path):
    with pytest.raises(BadInput, match="found MANTRA GSC and no dictionary to search; give --dict"):
        read_benchmark("mantra", brat_of_mantra_files)
    xml = tmp_path / "Medline_GSC_fr_man.xml"
    xml.write_text(XML.replace('cui="C0000002"', 'cui=""'))
    with pytest.raises(BadInput, match=r"fr_man.xml, unit 2: found <e .*; expected <e offset="):
        read_benchmark("mantra", xml, dictionary=DICTIONARY)
    for found, changed, place, text in (
        ('offset="0" len="7"', 'offset="1" len="7"', "unit 1, offset 1", "'ouleur '"),
        ('offset="0" len="4"', 'offset="0" len="3"', "unit 2, offset 0", "'Tou'"),
        ('offset="0" len="4"', 'offset="9" len="4"', "unit 2, offset 9", "''"),
        ('offset="0" len="4"', 'offset="0" len="5"', "unit 2, offset 0", "'Toux'"),
        (">Toux</e>", ">Toux et main</e>", "unit 2, offset 0", "'Toux'"),
    ):
        xml.write_text(XML.replace(found, changed))
        with pytest.raises(BadInput, match=f"fr_man.xml, {place}: found .* the text has {text} "):
            read_benchmark("mantra", xml, dictionary=DICTIONARY)
    xml.write_text(XML.replace('len="7"', 'len="-7"'))
    with pytest.raises(BadInput, match=r"fr_man.xml, unit 1: found <e .*; expected <e offset="):
        read_benchmark("mantra", xml, dictionary=DICTIONARY)
    xml.write_text(XML.replace("</Corpus>", ""))
    with pytest.raises(BadInput, match=r"fr_man.xml:8: found broken XML \(.*\); fetch it again"):
        read_benchmark("mantra", xml, dictionary=DICTIONARY)
    odd = tmp_path / "other.xml"
    odd.write_text(XML)
    with pytest.raises(BadInput, match="found other.xml; expected a name such as Medline_GSC_fr"):
        read_benchmark("mantra", odd, dictionary=DICTIONARY)
    (tmp_path / "broken.zip").write_bytes(b"PK")
    with pytest.raises(BadInput, match="broken.zip: cannot be read as a .zip file"):
        read_benchmark("mantra", tmp_path / "broken.zip", dictionary=DICTIONARY)
    with zipfile.ZipFile(tmp_path / "torn.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Medline_GSC_de_man.xml", "<Corpus/>" * 99)
    whole = (tmp_path / "torn.zip").read_bytes()
    (tmp_path / "torn.zip").write_bytes(whole[:52] + b"\xff" * 8 + whole[60:])
    with pytest.raises(BadInput, match="torn.zip: cannot be read as a .zip file .*decompress"):
        read_benchmark("mantra", tmp_path / "torn.zip", dictionary=DICTIONARY)
    lost = tmp_path / "lost"
    lost.mkdir()
    (lost / "1.txt").write_text("Toux")
    (lost / "1.ann").write_text("T1\tC0000002 0 4\tToux\n")
    with pytest.raises(BadInput, match="found no language and corpus in the names of its folders"):
        read_benchmark("mantra", lost, dictionary=DICTIONARY)


def test_the_real_corpus(shared_data):
    path = shared_data / "benchmarks/mantra_gsc/Mantra-GSC-brat.zip"
    dictionary = Dictionary(["pain"], ["C0030193"], "toy")
    folds = _read_mantra(path, dictionary)
    # Kors et al. 2015: 5,530 annotations; two of them are there twice.
    assert sum(len(set(gold.split("|"))) for fold in folds for gold in fold.gold) == 5528
    counts = {fold.name: len(fold.mentions) for fold in folds}
    assert len(counts) == 13 and sum(counts.values()) == 4817
    assert counts["Medline en"] > counts["Medline fr"] > 200


# -------------------------------------------------------------------------------------------------
# MANTRA GSC with the groups of its mentions, of brat files and of XML.

GROUPED = (
    "T1\tC0000001 0 7\tDouleur\n"
    '#1\tAnnotatorNotes T1\t"C0000001", "Pain", "Sign or Symptom" ,"DISO"\n'
    'T2\tC0000004 22 26\tmain\n#2\tAnnotatorNotes T2\t"C0000004", "Hand", "ANAT" ,"Body Part"\n'
    'T3\tC0000009 22 26\tmain\n#3\tAnnotatorNotes T3\t"C0000009", "DISO", "x" ,"PROC|PHYS"\n'
    'T4\tC0000005 22 26\tmain\n#4\tAnnotatorNotes T4\t"C0000005", "Palm", "x" ,"ANAT"\n'
)


@pytest.fixture
def brat_of_mantra(tmp_path):
    folder = write_brat(tmp_path)
    (ann,) = folder.rglob("0001_d1.u1.ann")
    ann.write_text(GROUPED)
    return folder


def test_a_mention_is_asked_for_in_each_of_its_groups(brat_of_mantra):
    (one,) = read_benchmark("mantra", brat_of_mantra, options=options_with(given_groups=True)).sets
    assert one.name == "Medline fr" and one.without_note == 0 and one.majority is None
    assert list(zip(one.texts, one.groups, one.gold, strict=True)) == [
        ("Douleur", "DISO", ("C0000001",)),
        ("main", "ANAT", ("C0000004", "C0000005")),
        ("main", "PROC", ("C0000009",)),
    ]
    (chosen,) = read_benchmark(
        "mantra", brat_of_mantra, options=options_with(given_groups=True, semantic_groups=["ANAT"])
    ).sets
    assert chosen.texts == ["main"]
    with pytest.raises(
        BadInput, match="found no mentions of the semantic groups LIVB; give others"
    ):
        read_benchmark(
            "mantra",
            brat_of_mantra,
            options=options_with(given_groups=True, semantic_groups=["LIVB"]),
        )


def test_groups_of_xml(tmp_path):
    path = tmp_path / "Medline_GSC_fr_man.xml"
    path.write_text(XML)
    (one,) = read_benchmark("mantra", path, options=options_with(given_groups=True)).sets
    assert (one.texts, one.groups) == (["Douleur", "main", "Toux"], ["DISO", "ANAT", "DISO"])
    path.write_text(XML.replace('grp="DISO">Toux', ">Toux"))
    with pytest.raises(
        BadInput, match="found no semantic group of C0000002, the mention 'Toux' in"
    ):
        read_benchmark("mantra", path, options=options_with(given_groups=True))


def test_notes():
    assert _groups_of_note('"C1", "AIDS", "Disease" ,"DISO"') == "DISO"
    assert _groups_of_note('"C1", "DISO", "OBJC|CHEM", "Food"') == "OBJC|CHEM"
    assert _groups_of_note("C1") == _groups_of_note("") == ""


def test_the_real_corpus_of_mantra(shared_data):
    path = shared_data / "benchmarks" / "mantra_gsc" / "Mantra-GSC-brat.zip"
    sets = {
        one.name: one
        for one in read_benchmark("mantra", path, options=options_with(given_groups=True)).sets
    }
    french = [sets[f"{one} fr"] for one in ("EMEA", "Medline", "Patent")]
    assert sum(len(cuis) for one in french for cuis in one.gold) == 1052


def test_nearest_terms_of_an_encoder(brat_of_mantra, minilm_path, tmp_path):
    table = tmp_path / "terms.tsv"
    table.write_text(
        "concept\tterm\tsemantic_type\nC0000001\tdouleur\tT184\nC0000002\tmain\tT184\n"
        "C0000004\tmains\tT023\nC0000006\tpied\tT023\n"
    )
    out = tmp_path / "out.json"
    words = [
        "--model",
        minilm_path,
        "--benchmark",
        f"mantra={brat_of_mantra}",
        "--dictionary",
        table,
    ]
    assert run(*words, "--given-groups", "--json", out) == 0
    (record,) = records_in(out)
    fold = record.folds["Medline fr"]
    assert fold["counts"]["gold"] == 4 and fold["counts"]["unreachable"] == 2
    assert fold["reachable"]["recall"] == 1, "main is a symptom too, but of another group"
