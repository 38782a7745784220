"""`python -m launch.ablation`: one table of all systems; what is done is not done again."""

import dataclasses
import json

import pytest

from coder_jax.recipes import RECIPES
from coder_jax.systems.coder import CoderLoss
from coder_jax.systems.coder_v1 import CoderV1Loss
from data_pipeline.build_dataset import build_dataset
from data_pipeline.build_options import BuildOptions
from data_pipeline.errors import BadInput
from data_pipeline.whole_files import write_json
from launch import ablation

MU = RECIPES["small"]().loss.mu


def record(benchmark, pooling, **scores):
    return {"benchmark": benchmark, "encoder": {"pooling": pooling}, "scores": scores}


def test_the_table():
    records = [
        record("en", "cls", **{"mrr": 0.9, "acc@1": 0.705}),
        record("en", "mean", **{"mrr": 0.9, "acc@1": 0.5}),
        record("links", "cls", **{"hits@1": 0.1, "mrr": 0.25}),
        record("sim", "cls", spearman=None),
        record("look", "cls"),
        record("mcsm", "cls", mcsm=9.5),
    ]
    row = ablation.row_of("CODER", "cls", records)
    assert row == {
        "system": "CODER",
        "pooling": "cls",
        "en acc@1": 0.705,
        "links mrr": 0.25,
        "sim spearman": None,
        "mcsm mcsm": 9.5,
    }
    assert ablation.markdown([row]) == (
        "| system | pooling | en acc@1 | links mrr | sim spearman | mcsm mcsm |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| CODER | cls | 70.5 | 25.0 | undefined | 9.50 |\n"
    )


@pytest.mark.parametrize("name", ablation.SYSTEMS)
def test_every_system_is_a_valid_run(name):
    from coder_jax.commands.train import parse

    parse(ablation.SYSTEMS[name]).validate()


def test_a_command_that_fails_ends_all(tmp_path, capfd):
    words = ["--data", tmp_path / "none", "--init", "x", "--out", tmp_path / "out"]
    words += ["--benchmark", f"en={tmp_path / 'none.tsv'}"]
    assert ablation.main([str(word) for word in words]) == 2
    assert "`coder_jax evaluate` ended with status 2: see above" in capfd.readouterr().err


def test_results_of_other_settings_are_not_taken(tmp_path, monkeypatch):
    words = ["--data", "d", "--init", "i", "--out", str(tmp_path), "--benchmark", "en=e.tsv"]

    def check(*more):
        args, flags = ablation.parse([*words, *more])
        settings = ablation.settings_of(args, flags)
        ablation.check_settings(args, settings)
        return settings

    first = check("--systems", "coder", "uniform")
    assert first["systems"].keys() == {"coder", "uniform"}
    write_json(tmp_path / "ablation.json", first)
    for more in (["--systems", "coder"], ["--systems", "coder_v1"], ["--passes", "2"]):
        check(*more)
    check("--systems", "synonyms", "--steps", "9")  # which has no results yet
    for more, found in (
        (["--steps", "90"], "systems.coder.optimizer.steps: 250 there, 90 here"),
        (["--mu", "0.5"], f"systems.uniform.loss.mu: {MU} there, 0.5 here"),
        (["fr=f.tsv"], "benchmark.fr: 'absent' there, 'f.tsv' here"),
        (["--dictionary", "t.tsv"], "dictionary.: 'absent' there, 't.tsv' here"),
    ):
        with pytest.raises(BadInput, match=found):
            check(*more, *(["--systems", "coder", "uniform"] if "--mu" in more else []))

    def changed(small=RECIPES["small"]):
        """The recipe after an edit."""
        return dataclasses.replace(small(), loss=CoderLoss(mu=0.7))

    monkeypatch.setitem(RECIPES, "small", changed)
    with pytest.raises(BadInput, match=f"systems.coder.loss.mu: {MU} there, 0.7 here"):
        check()
    (tmp_path / "ablation.json").unlink()
    check("--steps", "9")
    (tmp_path / "coder").mkdir()
    (tmp_path / "coder/results.json").touch()
    with pytest.raises(BadInput, match="holds results but no ablation.json"):
        check()


def test_settings_are_kept_of_what_is_done(tmp_path, monkeypatch):
    records = [record("en", pooling, **{"acc@1": 0.5}) for pooling in ("cls", "mean")]
    asked = []

    def results_of(name, *_):
        asked.append(name)
        return records

    monkeypatch.setattr(ablation, "results_of", results_of)
    words = ["--data", "d", "--init", "i", "--out", str(tmp_path), "--benchmark", "en=e.tsv"]
    assert ablation.main([*words, "--systems", "coder", "coder_v1"]) == 0
    assert ablation.main([*words, "--systems", "uniform", "--mu", "0.5"]) == 0
    assert asked == ["initial encoder", "coder", "coder_v1", "initial encoder", "uniform"]
    systems = json.loads((tmp_path / "ablation.json").read_text())["systems"]
    mus = {name: config["loss"]["mu"] for name, config in systems.items()}
    assert mus == {"coder": MU, "coder_v1": CoderV1Loss().mu, "uniform": 0.5}
    assert ablation.main([*words, "--systems", "uniform"]) == 2


@pytest.mark.slow
def test_two_steps_of_each_system(tmp_path, hpo_path, minilm_path, capfd):
    options = BuildOptions(
        source=hpo_path, out=tmp_path / "hpo", tokenizer=minilm_path, hold_out=200
    )
    heldout = build_dataset(options) / "heldout"
    terms = (heldout / "dictionary.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "terms.tsv").write_text("".join(terms[:500]), encoding="utf-8")
    words = ["--data", tmp_path / "hpo", "--init", minilm_path, "--out", tmp_path / "out"]
    words += ["--benchmark", f"heldout={heldout / 'mentions.tsv'}", "--steps", "2"]
    words += ["--dictionary", tmp_path / "terms.tsv", "--triplets", "8", "--repeats", "2"]
    assert ablation.main([str(word) for word in words]) == 0
    rows = json.loads((tmp_path / "out" / "table.json").read_text())["rows"]
    assert len(rows) == 2 * (1 + len(ablation.SYSTEMS))
    assert len({row["heldout acc@1"] for row in rows if row["pooling"] == "cls"}) > 1
    capfd.readouterr()
    assert ablation.main([str(word) for word in words]) == 0
    assert "$ " not in capfd.readouterr().out, "nothing is done again"
