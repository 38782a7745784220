"""Whole concepts held out of a dataset by the command."""

from dataclasses import replace

import pytest
from tiny_build import manifest_of, small_build, write_tokenizer
from tiny_ontology import write_ontology

from data_pipeline.build.__main__ import main
from data_pipeline.build.build_dataset import build_dataset
from data_pipeline.build.report import closing_report
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process.errors import BadInput


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def ontology(tmp_path_factory):
    return write_ontology(tmp_path_factory.mktemp("obo") / "tiny.obo")


def test_whole_concepts_are_held_out_before_synonyms_are(model, ontology, tmp_path):
    options = small_build(ontology, model, tmp_path / "out")
    options = replace(options, hold_out_concepts=30)
    out = build_dataset(options)
    manifest = manifest_of(out)
    assert manifest["held_out_concepts"] == {"concepts": 30, "terms": 60}
    assert manifest["held_out"]["mentions"] == 100
    assert manifest["counts"]["concepts"] == 2470
    rows = [line.split("\t") for line in (out / "heldout/concepts.tsv").read_text().splitlines()]
    held_terms, held = ({row[side] for row in rows[1:]} for side in (0, 1))
    dataset = open_dataset(out, strings=True)
    assert not held & set(dataset.cuis) and not held_terms & set(dataset.terms)
    for name in ("mentions.tsv", "dictionary.tsv"):
        lines = (out / "heldout" / name).read_text().splitlines()[1:]
        assert not held & {line.split("\t")[1] for line in lines}
    assert f"held-out concepts {30}" in " ".join(closing_report(manifest, out).split())
    with pytest.raises(BadInput, match="found 1,.* concepts that can be held out"):
        build_dataset(replace(options, hold_out_concepts=2500, overwrite=True))


def test_held_out_concepts_of_a_list_of_phrases(model, tmp_path, ontology, capsys, write):
    phrases = write("names.tsv", "name\tcount\nacute attack 4\t9\nPain of limb 4\t8\n")
    out = tmp_path / "out"
    arguments = ["--source", str(ontology), "--out", str(out), "--tokenizer", str(model)]
    asked = ["--hold-out-concepts", "1", "--hold-out-phrases", str(phrases)]
    assert main([*arguments, *asked]) == 0
    assert (out / "heldout" / "concepts.tsv").read_text().splitlines() == [
        "term\tCUI",
        "pain of limb 4\tT:00004",
        "acute attack 4\tT:00004",
    ]
    assert "held-out concepts 1 their terms 2" in " ".join(capsys.readouterr().out.split())
    phrases.write_text("acute attack 4\npain of limb 4\npain of limb 5\nacute attack 5\n")
    assert main([*arguments, *asked]) == 2  # another list, another dataset
    assert "already holds a dataset" in capsys.readouterr().err
