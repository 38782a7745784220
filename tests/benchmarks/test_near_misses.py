"""The benchmark of terms that differ in one thing, on a small release with a tiny encoder."""

import json

import pytest
from tiny_bert import write_model

from benchmarks import near_misses
from benchmarks.near_misses import _pairs, _strengths

SIDES = ["Fracture of left hand", "Fracture of right hand", "Fracture of left foot", "left out"]


def test_a_pair_needs_both_terms_and_two_concepts():
    found = list(_pairs([*SIDES, "Fracture of right foot"], ["L", "R", "SAME", "X", "SAME"], 0))
    assert {one.concept for one in found} == {"L", "R"}
    assert {one.kind for one in found} == {"side"}
    for one in found:  # one letter of "fracture" is wrong, and the side is written otherwise
        assert "fracture" not in one.mention and one.mention.endswith(" hand")
        assert any(f" {side} " in one.mention for side in ("L", "lt", "(R)"))


def test_strengths_are_asked_in_other_units():
    rows, mentions = _strengths(["Alphadrug", "Betadrug"])
    assert rows[0] == ("Alphadrug 0.025 MG Oral Tablet", "Alphadrug 0.025") and len(rows) == 12
    assert mentions[0][1:] == ("alphadrug 25 mcg tab", "Alphadrug 0.025")
    assert mentions[1][1:] == ("betadrug 0,05 mg tab", "Betadrug 0.05")


@pytest.mark.slow
def test_a_small_run(tmp_path, capsys):
    pytest.importorskip("torch")
    write_model(tmp_path / "model")
    terms = [(term, f"C{row:07}", "HPO") for row, term in enumerate(SIDES)]
    terms.append(("Aspirines", "C1000000", "DRUGBANK"))
    with (tmp_path / "MRCONSO.RRF").open("w") as file:
        for row, (term, cui, source) in enumerate(terms):
            fields = [cui, "ENG", "P", f"L{row}", "PF", f"S{row}", "Y", f"A{row}", "", "", ""]
            file.write("|".join([*fields, source, "PT", f"X{row}", term, "0", "N", "", "\n"]))
    (tmp_path / "names.tsv").write_text("mention\tCUI\nbroken left hand\tC0000000\n")
    out = tmp_path / "out.json"
    words = ["--model", tmp_path / "model", "--release", tmp_path / "MRCONSO.RRF", "--json", out]
    words += ["--sources", "HPO", "--names", tmp_path / "names.tsv"]
    assert near_misses.main([str(word) for word in words]) == 0
    found = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""])) == found
    assert found["terms"] == len(SIDES) + 6 and found["machine"]["cores"] > 0
    before, after = (found[what]["pairs"] for what in ("similarity alone", "compared"))
    assert before["side"]["mentions"] == after["side"]["mentions"] > 0
    assert before["strength"]["unmarked"] == before["strength"]["wrong"]
    assert after["strength"]["unmarked"] == 0
    assert after["side"]["right"] >= before["side"]["right"]
