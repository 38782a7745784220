"""MANTRA GSC: both file formats, precision, recall and F1 of one CUI per mention."""

import shutil
import zipfile

import pytest
from mantra_corpus import DICTIONARY, XML, write_brat

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.normalization.mantra import (
    gold_pairs,
)
from coder_jax.evaluation.normalization.mantra_files import read_mantra
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput


@pytest.fixture
def brat(tmp_path):
    return write_brat(tmp_path)


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
