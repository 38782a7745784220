"""The benchmark of `normalize`, on a small part of a real ontology with a tiny encoder."""

import json

import pytest
from tiny_bert import write_model

from benchmarks import mapping
from data_pipeline.sources.obo import read_obo


@pytest.mark.slow
def test_a_small_run(hpo_path, tmp_path, capsys):
    pytest.importorskip("torch")
    write_model(tmp_path / "model")
    atoms = read_obo(hpo_path).atoms.select("term", "cui").unique().sort("cui", "term").collect()
    some = atoms.filter(atoms["cui"].is_duplicated())[:900]
    held = some.filter(some["cui"].is_first_distinct())
    rest = some.join(held, on=["cui", "term"], how="anti", maintain_order="left")
    rest.write_csv(tmp_path / "terms.tsv", separator="\t", include_header=False)

    def write(name, rows, language):
        lines = [f"{term}\t{cui}\t{language}" for term, cui in rows.rows()]
        (tmp_path / name).write_text("\n".join(["mention\tCUI\tlanguage", *lines]) + "\n")

    write("own.tsv", held[::2], "ENG")
    write("test.tsv", held[1::2], "ENG")
    out = tmp_path / "out.json"
    words = ["--model", tmp_path / "model", "--dictionary", tmp_path / "terms.tsv", "--json", out]
    words += ["--own", tmp_path / "own.tsv", "--test", f"ENG={tmp_path / 'test.tsv'}"]
    assert mapping.main([str(word) for word in words]) == 0
    found = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""])) == found
    assert found["terms"] == rest.height and found["machine"]["cores"] > 0
    english = found["tests"]["ENG"]
    for kind in ("clean", "misspelt"):  # letters find what a random encoder does not
        assert english[f"{kind}_vectors"] < english[f"{kind}_both"]
    assert english["names"] == len((tmp_path / "test.tsv").read_text().splitlines()) - 1
    row = english["0.7"]
    assert row["promised"][0] >= 0.7
    assert abs(row["standard_errors_away"][0]) < 3
