"""An invented release has the size and the shape that were asked for."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer

from benchmarks import synthetic_release as synthetic_relations
from benchmarks import synthetic_release as synthetic_terms
from benchmarks.synthetic_release import _Size, _write_release, main, write_athena
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.process import TRY_AGAIN, BadInput
from data_pipeline.sources.rrf import COLUMNS, _check_lines, _scan, read_rrf

SIZE = _Size(concepts=2_000, terms=7_200, relations=20_000)


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic") / "META"
    _write_release(folder, SIZE)
    return folder


def table(folder: Path, name: str) -> pl.DataFrame:
    return _scan(folder / f"{name}.RRF", name).collect()


def test_files_are_whole_and_counted(release, tmp_path):
    files = sorted(f"{name}.RRF" for name in COLUMNS if name.startswith("MR"))
    assert sorted(path.name for path in release.iterdir()) == files
    listed = table(release, "MRFILES")
    for name, columns, rows, size in listed.select("FIL", "CLS", "RWS", "BTS").iter_rows():
        path = release / name
        assert _check_lines(path, name.removesuffix(".RRF")) == int(rows)
        assert path.stat().st_size == int(size)
        assert len(COLUMNS[name.removesuffix(".RRF")].split()) == int(columns)
    counts = dict(listed.select("FIL", "RWS").iter_rows())
    assert counts["MRCONSO.RRF"] == "7200" and counts["MRREL.RRF"] == "20000"
    read_rrf(release, tmp_path / "scratch")  # a whole release in the eyes of the reader


def test_terms_have_the_shape_of_the_umls(release, minilm_path):
    atoms = table(release, "MRCONSO")
    per_concept = atoms["CUI"].value_counts()["count"].to_numpy()
    assert len(per_concept) == SIZE.concepts and per_concept.sum() == SIZE.terms
    assert 0.3 < np.mean(per_concept == 1) < 0.5 and per_concept.max() > 25
    assert atoms["CUI"].is_sorted() and atoms["AUI"].is_unique().all()
    languages = atoms["LAT"].value_counts(normalize=True, sort=True)
    assert languages["LAT"][0] == "ENG" and 0.65 < languages["proportion"][0] < 0.85
    assert languages["LAT"][1] == "SPA" and len(languages) > 15
    assert 0.8 < (atoms["SUPPRESS"] == "N").mean() < 0.86
    assert atoms["STR"].str.contains(r"[^\x00-\x7f]").sum() > 100
    assert atoms.filter(pl.col("LAT") == "JPN")["STR"].str.contains(r"\p{Han}|\p{Katakana}").all()
    first = atoms.group_by("CUI", maintain_order=True).first()
    assert first.select("TS", "STT", "ISPREF").unique().rows() == [("P", "PF", "Y")]
    tokenizer = Tokenizer.from_file(str(minilm_path / "tokenizer.json"))
    tokenizer.no_padding()
    pieces = [len(e.ids) - 2 for e in tokenizer.encode_batch_fast(atoms["STR"].to_list())]
    assert 8.5 < np.mean(pieces) < 10.5  # about 9 word pieces, [CLS] and [SEP] apart
    assert 0.01 < np.mean(np.array(pieces) > 30) < 0.06


def test_words_follow_zipf(release):
    atoms = table(release, "MRCONSO").filter(pl.col("LAT") == "ENG")
    counts = Counter(" ".join(atoms["STR"].to_list()).lower().split())
    frequencies = np.array([count for _, count in counts.most_common()])
    assert 0.02 < frequencies[0] / frequencies.sum() < 0.1
    assert 0.1 < len(frequencies) / frequencies.sum() < 0.35


def test_relations_go_both_ways(release):
    rows = table(release, "MRREL")
    assert rows["CUI1"].is_sorted()
    labels = synthetic_relations._Labels()
    inverse = {}
    for i in range(0, len(labels.rel), 2):
        there, back = ((labels.rel[j], labels.rela[j]) for j in (i, i + 1))
        inverse[there], inverse[back] = back, there
    triplets = Counter(rows.select("CUI1", "REL", "RELA", "CUI2").iter_rows())
    assert triplets == Counter({(t, *inverse[r, a], h): n for (h, r, a, t), n in triplets.items()})
    assert set(labels.rel) >= set(rows["REL"]) and len(set(labels.rel)) == 14
    assert 880 < len(set(labels.rela)) < 960
    share = rows["REL"].value_counts(normalize=True, sort=True)
    assert share["REL"][0] == "RO" and share["REL"][1] == "SIB"
    known = set(table(release, "MRCONSO")["CUI"])
    assert set(rows["CUI1"]) | set(rows["CUI2"]) <= known
    assert 0.01 < (rows["CUI1"] == rows["CUI2"]).mean() < 0.04
    assert 0.02 < 1 - len(triplets) / len(rows) < 0.1  # some come from two vocabularies
    degree = rows["CUI1"].value_counts()["count"]
    assert degree.max() > 20 * degree.mean()


def test_types_and_retired_concepts(release):
    known = set(table(release, "MRCONSO")["CUI"])
    types, retired = table(release, "MRSTY"), table(release, "MRCUI")
    assert set(types["CUI"]) == known and 1.1 < len(types) / len(known) < 1.3
    assert types.select("CUI", "TUI").is_unique().all() and types["TUI"].n_unique() > 100
    assert not set(retired["CUI1"]) & known and retired["CUI1"].is_unique().all()
    assert set(retired.filter(pl.col("REL") != "DEL")["CUI2"]) <= known
    assert set(retired.filter(pl.col("REL") == "DEL")["CUI2"]) == {""}
    assert {"SY", "DEL"} <= set(retired["REL"])


def test_the_seed_decides_every_byte(release, tmp_path):
    def bytes_of(folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    _write_release(tmp_path / "again", SIZE)
    _write_release(tmp_path / "other", SIZE, seed=1)
    assert bytes_of(tmp_path / "again") == bytes_of(release)
    assert bytes_of(tmp_path / "other")["MRCONSO.RRF"] != bytes_of(release)["MRCONSO.RRF"]


def test_spans_of_heads_change_nothing(release, tmp_path, monkeypatch):
    """Where the rows do not fit into memory, they are drawn once for each span of heads."""
    monkeypatch.setattr(synthetic_relations, "_ROWS_IN_MEMORY", 6_000)
    _write_release(tmp_path / "META", SIZE)
    columns = ("CUI1", "REL", "CUI2", "RELA", "RUI")
    assert (
        table(tmp_path / "META", "MRREL")
        .select(columns)
        .equals(table(release, "MRREL").select(columns))
    )


def test_several_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic_terms, "_CHUNK", 1_000)
    monkeypatch.setattr(synthetic_relations, "_CHUNK", 3_000)
    _write_release(tmp_path / "META", SIZE)
    assert table(tmp_path / "META", "MRCONSO")["AUI"].n_unique() == SIZE.terms
    assert table(tmp_path / "META", "MRREL")["RUI"].n_unique() == SIZE.relations
    assert read_rrf(tmp_path / "META", tmp_path / "scratch").types is not None


@pytest.mark.parametrize(("concepts", "terms"), [(10, 10), (1_000, 1_001), (500, 40_000)])
def test_any_number_of_terms(concepts, terms):
    start = synthetic_terms._terms_of_concepts(concepts, terms, 0)
    assert len(start) == concepts + 1 and start[-1] == terms and np.diff(start).min() >= 1


def test_the_command(tmp_path, capsys):
    out = tmp_path / "META"
    assert main(["--out", str(out), "--scale", "0.0001"]) == 0
    assert len(table(out, "MRCONSO")) == 1_548 and len(table(out, "MRREL")) == 8_788
    assert "write MRREL.RRF" in capsys.readouterr().err
    assert main(["--out", str(out), "--scale", "0.0001"]) == 2
    assert f"{out} already holds a release" in capsys.readouterr().err


def test_a_release_without_concepts(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "META"), "--scale", "0"]) == 2
    assert "0 concepts: expected 10 or more" in capsys.readouterr().err


def test_sizes_that_no_release_has():
    with pytest.raises(BadInput, match="9 terms for 10 concepts: expected one or more each"):
        _Size(concepts=10, terms=9).validate()
    with pytest.raises(BadInput, match="7 relation rows: expected an even number"):
        _Size(concepts=10, terms=10, relations=7).validate()


@pytest.mark.slow
def test_sigterm_leaves_no_file_that_looks_whole(tmp_path, repo):
    out = tmp_path / "META"
    command = [sys.executable, "-m", "benchmarks.synthetic_release", "--out", str(out)]
    process = subprocess.Popen(command, cwd=repo, stderr=subprocess.PIPE, text=True)
    unfinished = out / "MRCONSO.RRF.unfinished"
    while not unfinished.exists() or not unfinished.stat().st_size:
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == TRY_AGAIN and "stopped" in said
    assert not list(out.iterdir())


def test_a_download_from_athena(tmp_path, capsys):
    sizes = ["--athena", "--out", str(tmp_path / "athena"), "--scale", "0.0002"]
    assert main(sizes) == 0
    lines = {path.stem: path.read_text().splitlines() for path in (tmp_path / "athena").iterdir()}
    assert len(lines["CONCEPT"]) == 1801 and len(lines["CONCEPT_SYNONYM"]) == 401
    of = [line.split("\t") for line in lines["CONCEPT"]]
    assert {len(row) for row in of} == {10} and any('"' in row[1] for row in of[1:])
    standard = {row[0] for row in of if row[5] == "S"}
    assert len(standard) == 720
    links = [line.split("\t") for line in lines["CONCEPT_RELATIONSHIP"][1:]]
    assert {new for _, new, relation, *_ in links if relation == "Maps to"} <= standard
    whole, of_standard = (
        read_dictionary(tmp_path / "athena", standard=standard, keep_suppressed=True)
        for standard in (False, True)
    )
    assert len({*whole.concepts}) == 1800 and {*of_standard.concepts} == standard
    assert 2000 < len(whole.terms) <= 2200 > len(of_standard.terms) > 720
    with pytest.raises(BadInput, match="20 concepts with 19 names"):
        write_athena(tmp_path / "no", 20, 19)
