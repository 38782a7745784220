"""MANTRA GSC: both file formats, precision, recall and F1 of one CUI per mention."""

import dataclasses
import shutil
import zipfile

import numpy as np
import pytest
from evaluating import ENCODER

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.mantra import Mantra, gold_pairs, mantra_record, mantra_scores
from coder_jax.evaluation.normalization.mantra_files import read_mantra
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput

DICTIONARY = Dictionary(
    ["pain", "cough", "fever", "wrist"],
    ["C0000001", "C0000002", "C0000003", "C0000004"],
    "toy.tsv",
)
TEXT = "Douleur et toux de la main gauche."
ANN = (
    "T1\tC0000001 0 7\tDouleur\n"
    '#1\tAnnotatorNotes T1\t"C0000001", "Pain", "Sign or Symptom" ,"DISO"\n'
    "T2\tC0000004 22 26\tmain\nT3\tC0000009 22 26\tmain\n"
    "T4\tC0000002 11 15;22 26\ttoux main\n"
)
XML = f"""<?xml version="1.0" encoding="UTF-8"?>
<Corpus id="Medline" lang="fr"><document id="d1"><unit id="d1.u1"><text>{TEXT}</text>
<e offset="0" len="7" cui="C0000001" type="Sign or Symptom" grp="DISO">Douleur</e>
<e offset="22" len="4" cui="C0000004" grp="ANAT">main</e>
<e offset="22" len="4" cui="C0000009" grp="ANAT">main</e></unit>
<unit id="d1.u2"><text>Toux</text><e offset="0" len="4" cui="C0000002" grp="DISO">Toux</e></unit>
<unit id="d1.u3"><text>Rien</text></unit></document></Corpus>
"""


@pytest.fixture
def brat(tmp_path):
    folder = tmp_path / "Mantra-GSC" / "French" / "Medline_EN_FR_ec22-cui-best_man"
    folder.mkdir(parents=True)
    (folder / "0001_d1.u1.txt").write_text(TEXT)
    (folder / "0001_d1.u1.ann").write_text(ANN)
    (folder / "0002_d2.u1.txt").write_text("Rien")
    (folder / "0002_d2.u1.ann").write_text("")
    return tmp_path / "Mantra-GSC"


def test_brat_in_a_folder_and_in_a_zip(brat, tmp_path):
    packed = tmp_path / "Mantra-GSC.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in brat.rglob("*.*"):
            archive.write(file, file.relative_to(tmp_path))
            archive.writestr(f"__MACOSX/{file.relative_to(tmp_path)}", b"\x00\xff")
    for beside in ("._0001_d1.u1.ann", "._0001_d1.u1.txt", "._Medline_GSC_fr_man.xml"):
        (brat / "French" / "Medline_EN_FR_ec22-cui-best_man" / beside).write_bytes(b"\x00\xff")
    (brat / "French" / "notes.txt").mkdir()
    for path in (brat, brat / "French", packed):
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


def test_a_corpus_without_annotations_is_refused(brat):
    (brat / "EMEA_GSC_de_man.xml").write_text("<Corpus><unit><text>Rien</text></unit></Corpus>")
    dutch = brat / "Dutch" / "Medline_EN_NL_ec22-cui-best_man"
    dutch.mkdir(parents=True)
    for suffix in (".txt", ".ann"):
        (dutch / f"1{suffix}").write_text("")
    with pytest.raises(BadInput, match="found no annotations of EMEA de, Medline nl; expected"):
        read_benchmark("mantra", brat, dictionary=DICTIONARY)


def test_a_corpus_that_is_there_twice_is_refused(brat):
    def refused(one, other):
        with pytest.raises(BadInput, match=f"found Medline fr both in {one} and in {other}; exp"):
            read_benchmark("mantra", brat, dictionary=DICTIONARY)

    shutil.copytree(brat / "French", brat / "old" / "French")
    refused("French/.*0001_d1.u1.ann", "old/French/.*0001_d1.u1.ann")
    shutil.rmtree(brat / "old")
    (folder,) = (brat / "French").iterdir()
    copy = folder.with_name(f"{folder.name} (copy)")
    shutil.copytree(folder, copy)
    refused("French/.*0001_d1.u1.ann", r"French/.* \(copy\)/0001_d1.u1.ann")
    shutil.rmtree(copy)
    (brat / "Medline_GSC_fr_man.xml").write_text(XML)
    refused("French/.*0001_d1.u1.ann", "Medline_GSC_fr_man.xml")
    shutil.rmtree(brat / "French")
    (brat / "old").mkdir()
    (brat / "old" / "Medline_GSC_fr_man.xml").write_text(XML)
    refused("Medline_GSC_fr_man.xml", "old/Medline_GSC_fr_man.xml")


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
    record = mantra_record(benchmark, result, None)
    gold = [{"C0000001"}, {"C0000004", "C0000009"}, {"C0000002"}]
    predicted = ["C0000001", "C0000004", "C0000003"]
    expected = naive_scores(predicted, gold)
    assert expected["recall"] == pytest.approx(released_f1(predicted, gold))
    assert record.folds["Medline fr"]["scores"] == pytest.approx(expected)
    assert record.scores == pytest.approx(expected), "English is not in the mean"
    assert record.counts["folds"] == 1
    header, (row, released, *_) = Mantra.table([dataclasses.replace(record, encoder=ENCODER)], {})
    cells = dict(zip(header, released.cells, strict=True))
    assert released.cells[0] == "mantra, hits per pair (released code)"
    assert cells["Medline fr"] == cells["F1"] == "50.0" and row.cells[-1] == "57.1"
    assert record.folds["EMEA en"]["scores"]["f1"] == 0
    assert record.folds["Medline fr"]["counts"] == {
        **{"mentions": 3, "annotations": 4, "unreachable": 0}
    }
    assert (record.kind, record.counts["annotations"]) == ("MANTRA GSC", 5)
    # One sub-corpus alone has no folds of its own.
    alone = read_benchmark("mantra", brat / "French", dictionary=DICTIONARY)
    only = mantra_record(alone, evaluate_normalization(encode, alone, ks=[1]), None)
    assert only.scores == pytest.approx(expected) and list(only.folds) == ["Medline fr"]


def test_scores_by_hand():
    assert mantra_scores(0.5, 8, 10) == pytest.approx(
        {"precision": 0.5, "recall": 0.4, "f1": 4 / 9}
    )
    assert mantra_scores(0.0, 8, 10)["f1"] == 0


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
def test_brat_that_is_broken(brat, file, content, message):
    (brat / "French" / "Medline_EN_FR_ec22-cui-best_man" / file).write_text(content)
    with pytest.raises(BadInput, match=message):
        read_benchmark("mantra", brat, dictionary=DICTIONARY)


def test_what_else_cannot_be_used(brat, tmp_path):
    with pytest.raises(BadInput, match="found MANTRA GSC and no dictionary to search; give --dict"):
        read_benchmark("mantra", brat)
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
    folds = read_mantra(path, dictionary)
    # Kors et al. 2015: 5,530 annotations; two of them are there twice.
    assert sum(map(gold_pairs, folds)) == 5528
    counts = {fold.name: len(fold.mentions) for fold in folds}
    assert len(counts) == 13 and sum(counts.values()) == 4817
    assert counts["Medline en"] > counts["Medline fr"] > 200
