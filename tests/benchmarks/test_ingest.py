"""The benchmark of ingest: peers that do the same work, and a table that says what was measured."""

import json

import numpy as np
import polars as pl
import pytest
import tiny_bert
from tiny_rrf import write_release

from benchmarks import ingest
from benchmarks.ingest_loaders import PARTS, check_same, installed, load_by_peer, load_ours
from benchmarks.ingest_peers import clean_term
from benchmarks.machine import machine
from benchmarks.synthetic_release import _Size
from benchmarks.synthetic_release import _write_release as write_invented
from data_pipeline.build_dataset import build
from data_pipeline.dataset.tokenizer import WordPieces
from data_pipeline.process import BadInput
from data_pipeline.terminology.cleaning import clean


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    tiny_bert.write_tokenizer(folder)
    return str(folder)


def loaded(release, model, folder):
    """The folders of our build and of each peer that can run here."""
    folder.mkdir()
    names = [name for name in installed() if name != "ours"]
    assert "python" in names
    ours = folder / "ours"
    parts = load_ours(release, ours, model)
    assert list(parts) == list(PARTS) and min(parts.values()) > 0
    for name in names:
        parts = load_by_peer(name, release, folder / name, model)
        assert list(parts) == list(PARTS) and min(parts.values()) > 0
    return ours, [folder / name for name in names]


@pytest.mark.parametrize("kind", ["by hand", "invented"])
def test_every_loader_gives_the_same_arrays(tmp_path, model, monkeypatch, kind):
    # The clocks that load_ours puts on our code are taken off again after the test.
    for name in ("_read", "load_tokenizer"):
        monkeypatch.setattr(build, name, getattr(build, name))
    monkeypatch.setattr(WordPieces, "__call__", WordPieces.__call__)
    release = tmp_path / "META"
    if kind == "by hand":
        write_release(release)
    else:
        write_invented(release, _Size(concepts=700, terms=2_500, relations=6_000))
    ours, peers = loaded(release, model, tmp_path / "out")
    counts = check_same(ours, peers)
    if kind == "by hand":
        assert counts["concepts"] == 4 and counts["terms"] == 8
    else:
        assert counts["concepts"] > 600 and counts["triplets"] > 4_000
    place = peers[-1] / "tails.npy"
    tails = np.load(place)
    tails[-1] += 1
    np.save(place, tails)
    with pytest.raises(BadInput, match="tails of python is not that of our build"):
        check_same(ours, peers)


def test_the_peers_clean_as_we_do():
    terms = [
        "Pain NOS",
        "nos nos pain",
        "a (b (c) d) e",
        "x-ray - of - knee",
        "nosocomial",
        "(",
        "İ",
    ]
    for term in [*terms, "\u00a0Ödem\u3000(left)", "pain, NOS", "NOS", "a\tb nos\u2003nos c"]:
        assert clean_term(term) == clean(pl.Series([term]), "paper")[0]


@pytest.mark.slow
def test_a_small_run(tmp_path, model, repo, monkeypatch, capsys):
    monkeypatch.chdir(repo)  # its processes import the packages from where they start
    report = tmp_path / "ingest.json"
    arguments = ["--work", str(tmp_path / "work"), "--tokenizer", model, "--json", str(report)]
    for source in (
        ["--scale", "0.0005"],
        ["--source", str(write_release(tmp_path / "META"))],
        ["--scale", "0.0005", "--add"],
    ):
        assert ingest.main([*arguments, *source, "--rounds", "1"]) == 0
    found = json.loads(report.read_text())["rows"]
    assert [one["source"] for one in found] == [tmp_path.name, "invented, scale 0.0005"]
    for loader in found[1]["loaders"].values():
        parts = sum(loader[part] for part in PARTS)
        assert len(loader["runs"]) == 2
        assert 0 < parts < loader["seconds"] and loader["peak_gb"] > 0.1
    assert "| plain Python | " in capsys.readouterr().out


def test_the_table_sets_all_beside_ours():
    parts = {"parse": 3.0, "tokenize": 2.0, "write": 1.0, "start": 4.0, "peak_gb": 1.5}
    text = ingest.table(
        {
            "source": "openmeta",
            "machine": machine(),
            "release_bytes": 2_000_000_000,
            "read_bandwidth": 1e9,
            "copy_bandwidth": 8e9,
            "counts": {"concepts": 1, "terms": 2, "tokens": 3, "triplets": 4},
            "loaders": {
                "ours": ingest._medians([{"seconds": 10.0, **parts}]),
                "python": ingest._medians([{"seconds": 25.0, **parts}]),
            },
        }
    )
    assert "| plain Python | 25.0 | 2.50 | 3.0 | 2.0 | 1.0 | 4.0 | 1.50 |" in text
    assert "2.00 s from this disk (1.0 GB/s), 0.50 s copied" in text and "takes 5 times" in text


def test_without_a_folder_to_work_in(capsys):
    assert ingest.main([]) == 2
    assert "--work is missing" in capsys.readouterr().err
