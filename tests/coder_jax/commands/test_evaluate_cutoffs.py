"""`evaluate --cutoffs`: measured in mentions, kept with the model, used by `normalize`."""

import csv
import json

import pytest
from tiny_bert import write_model

from coder_jax.__main__ import main
from coder_jax.mapping.cutoffs import ALL, Cutoffs
from data_pipeline.files.identity import CUTOFFS
from data_pipeline.sources.obo import read_obo


@pytest.fixture(scope="module")
def folder(tmp_path_factory, hpo_path):
    """A tiny encoder, a dictionary of real names, and others of the same concepts as mentions."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("cutoffs")
    write_model(folder / "model")
    atoms = read_obo(hpo_path).atoms.select("term", "cui").unique().sort("cui", "term").collect()
    some = atoms.filter(atoms["cui"].is_duplicated())[:900]
    held = some.filter(some["cui"].is_first_distinct())
    rest = some.join(held, on=["cui", "term"], how="anti", maintain_order="left")
    rest.write_csv(folder / "terms.tsv", separator="\t", include_header=False)
    lines = [
        f"{term}\t{cui}\t{'GER' if row % 2 else 'ENG'}"
        for row, (term, cui) in enumerate(held.select("term", "cui").rows())
    ]
    (folder / "own.tsv").write_text("\n".join(["mention\tCUI\tlanguage", *lines]) + "\n")
    (folder / "list.csv").write_text("term\n" + "".join(f'"{t}"\n' for t in held["term"][:40]))
    return folder


@pytest.fixture
def evaluate(folder, monkeypatch):
    """Runs the command with some more words."""
    monkeypatch.chdir(folder)
    words = ["evaluate", "--model", "model", "--json", "out.json", "--dictionary", "terms.tsv"]
    words += ["--benchmark", "own=own.tsv"]
    return lambda *more: main([*words, *more])


def test_what_it_measures_normalize_uses(folder, evaluate, capsys):
    assert evaluate("--cutoffs", "model/cutoffs.json") == 0
    said = capsys.readouterr()
    assert "acc@1" in said.out, "the scores are told, too"
    assert "GER: " in said.err and "letters count" in said.err
    assert "cut-offs: model/cutoffs.json" in said.err
    found = Cutoffs.read(folder / "model" / CUTOFFS.file)
    assert list(found.tables) == [ALL, "ENG", "GER"]
    assert found.measured_on["candidates"] == "both" and found.measured_on["model"] == "model"
    assert found.measured_on["dictionary"]["source"] == "terms.tsv"

    words = ["normalize", "--model", "model", "--dictionary", "terms.tsv", "--column", "term"]
    words += ["--out", "coded.csv", "--precision", "0.6", "--language", "ENG", "list.csv"]
    assert main(words) == 0
    assert "of ENG that are no strings of the dictionary" in capsys.readouterr().err
    with (folder / "coded.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    statuses = {row["status"] for row in rows}
    assert {"near", "no answer"} <= statuses
    for row in rows:
        if row["status"] in ("near", "no answer"):
            assert bool(row["concept"]) == ("confidence" not in row["reason"])
    json.loads((folder / "model" / CUTOFFS.file).read_text())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--benchmark", "b=other/", "--dictionary", "b=terms2.tsv"), "found terms.tsv and terms2"),
        (("--cutoffs", "absent/cutoffs.json"), "--cutoffs"),
        (("--cutoffs", "few.json", "--candidates", "letters"), "--candidates"),
    ],
)
def test_what_cannot_be_measured(folder, evaluate, capsys, more, message):
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other" / "mentions.tsv").write_text((folder / "own.tsv").read_text())
    (folder / "terms2.tsv").write_text((folder / "terms.tsv").read_text())
    words = more if "--cutoffs" in more else (*more, "--cutoffs", "c.json")
    try:
        status = evaluate(*words)
    except SystemExit as exit:
        status = exit.code
    assert status == 2 and message in capsys.readouterr().err
    assert not (folder / "c.json").exists()
