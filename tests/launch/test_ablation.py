"""`python -m launch.ablation`: one table of all systems; what is done is not done again."""

import dataclasses
import json
import re

import pytest

from coder_jax.commands.train import parse
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.coder_v1 import CoderV1System
from coder_jax.systems.recipes import RECIPES
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput
from launch import ablation
from launch.experiment import _check_settings, markdown, mean_rows, without

MU = RECIPES["small"]().system.mu
VERSIONS = {"jax": "1"}


def record(benchmark, pooling, **scores):
    encoder = {"pooling": pooling}
    return {"benchmark": benchmark, "encoder": encoder, "scores": scores, "versions": VERSIONS}


@pytest.fixture
def words(write, tmp_path):
    """A command with a dataset, an encoder, benchmarks of two kinds and a dictionary."""
    out = tmp_path / "out"
    out.mkdir()
    data = write("data/manifest.json", '{"content_hash": "1f"}').parent
    init = write("init/model.safetensors", "weights").parent
    en, folds = write("en.tsv", "pain\tC1\n"), write("folds/0/test.txt", "pain").parent.parent
    write("dictionary.tsv", "ache\tC1\n")
    words = ["--data", data, "--init", init, "--out", out, "--dictionary"]
    words += [write("terms.tsv", "ache\tC1\n"), "--benchmark", f"en={en}", f"folds={folds}"]
    return [str(word) for word in words]


@pytest.fixture
def asked(monkeypatch) -> list[list[str]]:
    """The commands that are called; none does anything, but evaluations have a result."""
    commands: list[list[str]] = []

    def called(*words, log=None):
        commands.append(list(map(str, words)))
        if words[1] == "evaluate":
            records = [record("en", pooling, **{"acc@1": 0.5}) for pooling in ("cls", "mean")]
            write_json(words[words.index("--json") + 1], {"records": records})

    monkeypatch.setattr(ablation, "call", called)
    return commands


def test_the_table():
    records = [
        record("en", "cls", **{"mrr": 0.9, "acc@1": 0.705}),
        record("en", "mean", **{"mrr": 0.9, "acc@1": 0.5}),
        record("links", "cls", **{"hits@1": 0.1, "mrr": 0.25}),
        record("sim", "cls", spearman=None),
        record("look", "cls"),
        record("mcsm", "cls", mcsm=9.5),
    ]
    row = ablation._row_of("CODER", 250, "cls", records)
    assert row == {
        "system": "CODER",
        "steps": 250,
        "pooling": "cls",
        "en acc@1": 0.705,
        "links mrr": 0.25,
        "sim spearman": None,
        "mcsm mcsm": 9.5,
    }
    assert markdown(mean_rows([without(row, "steps")], ("system", "pooling"))) == (
        "| system | pooling | en acc@1 | links mrr | sim spearman | mcsm mcsm |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| CODER | cls | 70.5 | 25.0 | undefined | 9.50 |\n"
    )


def test_each_seed_is_a_training_with_a_folder_of_its_own(words, tmp_path, asked):
    assert ablation.main([*words, "--systems", "coder", "--seeds", "0", "2"]) == 0
    trained = [words for words in asked if words[1] == "train"]
    assert [words[words.index("--seed") + 1] for words in trained] == ["0", "2"]
    runs = [words[words.index("--out") + 1] for words in trained]
    assert runs == [str(tmp_path / "out" / name / "run") for name in ("coder", "coder_seed_2")]
    table = json.loads((tmp_path / "out/table.json").read_text())
    assert [row["system"] for row in table["rows"]] == ["initial encoder"] * 2 + ["coder"] * 4


def test_each_length_is_a_training_of_its_own_and_curves_are_drawn(words, tmp_path, asked):
    """Longer ones with the first seed alone; the shorter ones of before are not done again."""

    def trained():
        return [
            tuple(words[words.index(flag) + 1] for flag in ("--steps", "--warmup-steps", "--seed"))
            for words in asked
            if words[1] == "train"
        ]

    words += ["--systems", "coder", "--seeds", "0", "2", "--steps", "250"]
    assert ablation.main(words) == 0
    assert not (tmp_path / "out/curves.png").exists()
    assert "steps" not in (tmp_path / "out/table.md").read_text()
    assert ablation.main([*words, "1000"]) == 0
    assert trained() == [("250", "25", "0"), ("250", "25", "2"), ("1000", "100", "0")]
    assert (tmp_path / "out/coder_1000_steps/results.json").exists()
    assert "| coder | 1,000 | cls | 50.0 |" in (tmp_path / "out/table.md").read_text()
    assert (tmp_path / "out/curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out/curves.json").exists()


def test_what_was_cut_off_before_it_was_noted_is_scored_again(words, tmp_path, asked):
    """A kill between the scores and the note of their settings, which then may be others."""
    assert ablation.main([*words, "--systems", "coder"]) == 0
    settings = json.loads((tmp_path / "out/ablation.json").read_text())
    write_json(tmp_path / "out/ablation.json", settings | {"systems": {}})
    (tmp_path / "out/coder/export").mkdir()
    asked.clear()
    assert ablation.main([*words, "--systems", "coder", "--mu", "0.5"]) == 0
    assert [words[1] for words in asked] == ["train", "export", "evaluate"]
    assert not (tmp_path / "out/coder/export").exists(), "which the export makes anew"


def test_killed_after_the_first_scores_it_goes_on(words, monkeypatch, asked):
    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(ablation, "_row_of", killed)
        ablation.main([*words, "--systems", "coder"])
    assert [words[1] for words in asked] == ["evaluate"]
    assert ablation.main([*words, "--systems", "coder"]) == 0
    assert [words[1] for words in asked] == ["evaluate", "train", "export", "evaluate"]


def killed(*_):
    raise ConnectionError("the machine is gone")


def test_of_each_training_the_last_checkpoint_stays(words, asked):
    words += ["--systems", "coder", "--steps", "250", "1000"]
    assert ablation.main([*words, "--save-steps", "500"]) == 0
    kept = [parse(words[2:]).run.save_steps for words in asked if words[1] == "train"]
    assert kept == [500, 500]
    asked.clear()
    assert ablation.main([*words, "--systems", "synonyms"]) == 0
    kept = [parse(words[2:]).run.save_steps for words in asked if words[1] == "train"]
    assert kept == [250, 1000]


def test_neighbours_are_found_so_often_in_trainings_of_any_length(words, asked):
    words += ["--systems", "coderpp", "synonyms", "--steps", "250", "1001"]
    assert ablation.main([*words, "--refreshes", "2"]) == 0
    every = [
        words[words.index("--refresh-steps") + 1] if "--refresh-steps" in words else None
        for words in asked
        if words[1] == "train"
    ]
    assert every == ["125", None, "501", None]
    assert ablation.main([*words, "--refreshes", "0"]) == 2


@pytest.mark.parametrize("name", ablation._ALL)
def test_every_system_is_a_valid_run(name):
    parse(ablation._ALL[name]).validate()


@pytest.mark.slow
def test_a_command_that_fails_ends_all(words, tmp_path, capfd):
    assert ablation.main([*words, f"none={tmp_path / 'none.tsv'}"]) == 2
    assert "`coder_jax evaluate` ended with status 2: see above" in capfd.readouterr().err


def test_without_a_dataset(words, tmp_path, capsys):
    assert ablation.main([*words, "--data", str(tmp_path)]) == 2
    assert f"{tmp_path}: found no manifest.json there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, changed",
    [
        ("data", "data/manifest.json"),
        ("init", "init/model.safetensors"),
        ("benchmark.en", "en.tsv"),
        ("benchmark.en", "dictionary.tsv"),
        ("benchmark.folds", "folds/0/test.txt"),
        ("benchmark.folds", "folds/1/test.txt"),
        ("dictionary.", "terms.tsv"),
    ],
)
def test_results_of_other_files_are_not_taken(words, write, monkeypatch, capsys, name, changed):
    records = [record("en", pooling, **{"acc@1": 0.5}) for pooling in ("cls", "mean")]
    monkeypatch.setattr(ablation, "_results_of", lambda *_: records)
    assert ablation.main(words) == ablation.main(words) == 0
    write(changed, '{"content_hash": "other"}')
    assert ablation.main(words) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if " there, " in line)
    told = re.fullmatch(rf"  {re.escape(name)}: (\S+) there, (\S+) here", line)
    assert told and told[1] != told[2]


def test_a_hub_id_and_a_case_study_of_the_paper_have_no_files(words):
    args, flags = ablation._parse([*words, "look=paper:knowledge", "--init", "org/name"])
    settings = ablation._settings_of(args, flags)
    assert settings["init"] == "org/name"
    assert settings["benchmark"]["look"] == "paper:knowledge"


def test_files_that_moved_are_the_same(words, tmp_path):
    before = ablation._settings_of(*ablation._parse(words))
    for name in ("data", "init", "folds", "en.tsv", "dictionary.tsv", "terms.tsv"):
        (tmp_path / "elsewhere" / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    moved = [word.replace(str(tmp_path), str(tmp_path / "elsewhere")) for word in words]
    assert ablation._settings_of(*ablation._parse(moved)) == before


@pytest.mark.parametrize("format_", [None, 2])
def test_settings_of_other_versions(words, write, capsys, format_):
    """Of before there were hashes; of before a configuration had a `system`."""
    settings = ablation._settings_of(*ablation._parse(words)) | {"format": format_}
    write("out/ablation.json", json.dumps(settings))
    assert ablation.main(words) == 2
    error = capsys.readouterr().err
    assert f"has the format {format_}, expected 3: another version wrote it" in error


def test_results_of_other_settings_are_not_taken(words, tmp_path, monkeypatch):
    out = tmp_path / "out"

    def check(*more):
        args, flags = ablation._parse([*words, *more])
        settings = ablation._settings_of(args, flags)
        _check_settings(out, ablation._SETTINGS, settings)
        return settings

    first = check("--systems", "coder", "uniform")
    assert first["systems"].keys() == {"coder", "uniform"}
    write_json(out / "ablation.json", first)
    for more in (["--systems", "coder"], ["--systems", "coder_v1"], ["--passes", "2"]):
        check(*more)
    check("--systems", "synonyms", "--steps", "9")  # which has no results yet
    for more, found in (
        (["--steps", "90"], "systems.coder.optimizer.steps: 250 there, 90 here"),
        (["--mu", "0.5"], f"systems.uniform.system.mu: {MU} there, 0.5 here"),
        (["fr=f.tsv"], "benchmark.fr: 'absent' there, 'f.tsv' here"),
        (["--dictionary", "en=t.tsv"], "dictionary.en: 'absent' there, 't.tsv' here"),
    ):
        with pytest.raises(BadInput, match=re.escape(found)):
            check(*more, *(["--systems", "coder", "uniform"] if "--mu" in more else []))

    def changed(small=RECIPES["small"]):
        """The recipe after an edit."""
        return dataclasses.replace(small(), system=CoderSystem(mu=0.7))

    monkeypatch.setitem(RECIPES, "small", changed)
    with pytest.raises(BadInput, match=f"systems.coder.system.mu: {MU} there, 0.7 here"):
        check()
    (out / "ablation.json").unlink()
    check("--steps", "9")
    (out / "coder").mkdir()
    (out / "coder/results.json").touch()
    with pytest.raises(BadInput, match="holds results but no ablation.json"):
        check()


def test_settings_are_kept_of_what_is_done(words, tmp_path, monkeypatch):
    records = [record("en", pooling, **{"acc@1": 0.5}) for pooling in ("cls", "mean")]
    asked = []

    def results_of(name, *_):
        asked.append(name)
        return records

    monkeypatch.setattr(ablation, "_results_of", results_of)
    assert ablation.main([*words, "--systems", "coder", "coder_v1"]) == 0
    assert ablation.main([*words, "--systems", "uniform", "--mu", "0.5"]) == 0
    assert asked == ["initial encoder", "coder", "coder_v1", "initial encoder", "uniform"]
    versions = json.loads((tmp_path / "out/table.json").read_text())["versions"]
    assert versions == {"initial encoder": VERSIONS, "uniform": VERSIONS}
    systems = json.loads((tmp_path / "out/ablation.json").read_text())["systems"]
    mus = {name: config["system"]["mu"] for name, config in systems.items()}
    assert mus == {"coder": MU, "coder_v1": CoderV1System().mu, "uniform": 0.5}
    assert ablation.main([*words, "--systems", "uniform"]) == 2


@pytest.mark.slow
def test_two_steps_of_each_system(tmp_path, hpo_path, minilm_path, capfd):
    options = BuildOptions(
        source=hpo_path, out=tmp_path / "hpo", tokenizer=minilm_path, hold_out=200
    )
    heldout = build_dataset(options) / "heldout"
    mentions = (heldout / "mentions.tsv").read_text(encoding="utf-8").splitlines()
    asked = {line.split("\t")[1] for line in mentions}
    terms = (heldout / "dictionary.tsv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in terms if line.split("\t")[1] in asked]
    (tmp_path / "terms.tsv").write_text("\n".join(kept), encoding="utf-8")
    words = ["--data", tmp_path / "hpo", "--init", minilm_path, "--out", tmp_path / "out"]
    words += ["--benchmark", f"heldout={heldout / 'mentions.tsv'}", "--steps", "2"]
    words += ["--dictionary", tmp_path / "terms.tsv", "--triplets", "64"]
    assert ablation.main([str(word) for word in words]) == 0
    rows = json.loads((tmp_path / "out" / "table.json").read_text())["rows"]
    assert len(rows) == 2 * (1 + len(ablation._SYSTEMS))
    assert len({row["heldout acc@1"] for row in rows if row["pooling"] == "cls"}) > 1
    capfd.readouterr()
    assert ablation.main([str(word) for word in words]) == 0
    assert "$ " not in capfd.readouterr().out, "nothing is done again"
