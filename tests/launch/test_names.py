"""`python -m launch.names`: from text to a table of encoders; what is done is not done again."""

import json
from pathlib import Path

import pytest
from tiny_names import tiny_names

from coder_jax.commands.train import parse
from coder_jax.evaluation.name_pairs import WMD
from data_pipeline.files.whole import write_json
from launch import names

SCORES = {"acc@1": 0.5, "mrr": 0.6, "map": 0.25}


@pytest.fixture
def words(tmp_path, write):
    """A command with a dataset, a text and a benchmark."""
    data = tiny_names(tmp_path, hold_out=None, hold_out_concepts=6)
    text = write("text.txt", "the heart attack of a patient\n" * 9)
    mentions = write("mentions.tsv", "pain\tC1\n")
    write("dictionary.tsv", "ache\tC1\n")
    words = ["--data", data, "--text", text, "--out", tmp_path / "out"]
    return [str(word) for word in (*words, "--benchmark", f"mine={mentions}")]


@pytest.fixture
def asked(monkeypatch):
    """The commands that are called; each but `train` makes what it is asked for."""
    calls = []

    def called(*words):
        words = list(map(str, words))
        calls.append(words)
        if "--json" in words:
            record = {"benchmark": "mine", "scores": SCORES}
            if "--wmd" in words:
                record["folds"] = {
                    kind: {"baselines": {WMD: {"acc@1": score, "map": 1.0}, "other": {}}}
                    for kind, score in (("Disease", 0.3), ("Chemical", 0.5))
                }
            write_json(Path(words[words.index("--json") + 1]), {"records": [record]})
        elif "train" not in words:
            Path(words[words.index("--out") + 1]).mkdir(parents=True)

    monkeypatch.setattr(names, "call", called)
    return calls


def after(flag, words):
    return words[words.index(flag) + 1]


def test_the_road_from_text_to_the_table(words, asked, tmp_path, capsys):
    other = "bne --concept-weight 0"
    more = ["--recipes", "bne", other, "--seeds", "0", "1", "--steps", "7"]
    more += ["--compare", "MiniLM=org/mini", "--exact-match", "train.txt", "--pairs", "32"]
    more += ["--epochs", "3"]
    assert names.main([*words, *more]) == 0
    out = tmp_path / "out"
    kinds = [words[1] if words[0] == "coder_jax" else words[0] for words in asked]
    trained = ["train", "export", "evaluate"]
    assert kinds == ["data_pipeline.skip_gram", "evaluate", "evaluate", *4 * trained]
    assert after("--epochs", asked[0]) == "3"
    assert after("--vectors-of", asked[1]) == "words"
    assert all(after("--exact-match", words) == "train.txt" for words in asked if "--json" in words)
    runs = [words for words in asked if "train" in words]
    told = [[after(flag, words) for flag in ("--recipe", "--seed", "--steps")] for words in runs]
    assert told == [[recipe, seed, "7"] for recipe in ("bne", "bne") for seed in ("0", "1")]
    assert ["--concept-weight" in words for words in runs] == [False, False, True, True]
    assert all(after("--init", words) == str(out / "vectors") for words in runs)
    assert all(after("--pairs", words) == "32" for words in runs)
    table = (out / "table.md").read_text().splitlines()
    assert table[0] == "| encoder | mine acc@1 | mine map |"
    assert [line.split(" | ")[0] for line in table[2:]] == [
        "| mean of word vectors",
        "| MiniLM",
        "| bne",
        f"| {other}",
    ]
    assert table[4] == "| bne | 50.0 ± 0.0 | 25.0 ± 0.0 |"
    assert "table.md" in capsys.readouterr().out
    asked.clear()
    assert names.main([*words, *more]) == 0
    assert not asked, "nothing is done again"


def test_names_of_held_out_concepts_are_not_matched_in_the_text(words, asked, tmp_path):
    assert names.main([*words, "--variant", "names_concepts"]) == 0
    held_out = str(tmp_path / "names" / "heldout" / "concepts.tsv")
    assert Path(held_out).exists()
    assert after("--exclude-concepts", asked[0]) == held_out
    assert after("--dictionary", asked[0]) == str(tmp_path / "names")


def test_word_movers_distance_of_the_same_vectors_has_a_row(words, asked, tmp_path, write):
    text = "1|t|Pain.\n1|a|x\n1\t0\t4\tPain\tDisease\tD1\n"
    words[words.index("--benchmark") + 1] = f"mine={write('ncbi.txt', text)}"
    assert names.main(words) == 0
    asked.clear()
    assert names.main([*words, "--wmd"]) == 0
    (moved,) = asked  # all else is there
    assert after("--vectors-of", moved) == "words" and "--wmd" in moved
    table = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert table[2:4] == [
        "| mean of word vectors | 50.0 | 25.0 |",
        "| word vectors by WMD | 40.0 | 100.0 |",
    ]


def test_the_text_of_the_vectors_keeps_its_stop_words_on_request(words, asked, tmp_path, capsys):
    assert names.main([*words, "--keep-stop-words"]) == 0
    assert "--keep-stop-words" in asked[0]
    assert names.main(words) == 2
    assert "keep_stop_words: True there, False here" in capsys.readouterr().err


def test_development_sets_choose_the_checkpoint_of_every_training(words, asked, write, capsys):
    medic = str(write("medic.txt", "D000001||pain\n"))
    sets = ["--development", "a=x.txt", "b=y.txt"]
    more = ["--dictionary", medic, "--recipes", "bne", "bne --eval-steps 7"]
    assert names.main([*words, *more, *sets]) == 0
    runs = [words for words in asked if "train" in words]
    for run, steps in zip(runs, (500, 7), strict=True):
        config = parse(run[2:])
        assert config.system.development == ("a=x.txt", "b=y.txt")
        assert config.system.development_dictionary == medic
        assert config.run.eval_steps == steps
    assert names.main([*words, *more]) == 2
    assert "systems.bne.system.development: ['a=x.txt', 'b=y.txt'] there" in capsys.readouterr().err


def test_a_folder_from_before_the_option_goes_on(words, asked, tmp_path):
    assert names.main(words) == 0
    assert "--keep-stop-words" not in asked[0]
    settings = json.loads((tmp_path / "out/names.json").read_text())
    del settings["keep_stop_words"]
    write_json(tmp_path / "out/names.json", settings)
    asked.clear()
    assert names.main(words) == 0 and not asked


@pytest.mark.parametrize(
    "more, message",
    [
        (["--development", "x"], "--development: found x; expected NAME=PATH, such as ncbi="),
        (["--wmd"], "--wmd: found the benchmarks mine; expected one of mentions in text"),
        (["--recipes", "small"], "--recipes small: expected recipes of BNE, such as bne"),
        (["--compare", "mini"], "--compare mini: expected NAME=MODEL, such as MiniLM=mini"),
        (["--text", "none.txt"], "--text none.txt: there is no such file"),
    ],
)
def test_what_cannot_be_done_is_said_first(words, asked, capsys, more, message):
    assert names.main([*words, *more]) == 2
    assert message in capsys.readouterr().err
    assert not asked


def test_a_dataset_of_cleaned_names_is_refused_before_vectors_are_learnt(
    words, asked, capsys, tmp_path
):
    (tmp_path / "cleaned").mkdir()
    words[words.index("--data") + 1] = str(tiny_names(tmp_path / "cleaned", cleaning="paper"))
    assert names.main(words) == 2
    assert "Build it again with --cleaning none" in capsys.readouterr().err
    assert not asked


def test_results_of_other_settings_are_not_taken(words, asked, write, capsys):
    assert names.main([*words, "--steps", "7"]) == 0
    assert names.main([*words, "--steps", "8"]) == 2
    assert "systems.bne.optimizer.steps: 7 there, 8 here" in capsys.readouterr().err
    compare = ["--steps", "7", "--compare"]
    assert names.main([*words, *compare, "Mini=org/mini"]) == 0
    assert names.main([*words, *compare, "Mini=org/other"]) == 2
    assert "systems.Mini.model: 'org/mini' there, 'org/other' here" in capsys.readouterr().err
    write("text.txt", "another text")
    assert names.main([*words, "--steps", "7"]) == 2
    assert "text" in capsys.readouterr().err


def test_what_was_cut_off_before_it_was_noted_is_made_again(words, asked, tmp_path):
    assert names.main(words) == 0
    settings = json.loads((tmp_path / "out/names.json").read_text())
    write_json(tmp_path / "out/names.json", settings | {"systems": {}})
    asked.clear()
    assert names.main([*words, "--steps", "7"]) == 0
    assert [words[1] for words in asked] == ["train", "export", "evaluate"]


@pytest.mark.slow
def test_two_steps(tmp_path, words, write):
    text = "the severe heart attack of a patient with kidney disease and pain\n\n"
    write("text.txt", text * 40)
    words[words.index("--benchmark") + 1] = f"coverage={tmp_path / 'names'}"
    assert names.main([*words, "--steps", "2", "--pairs", "8"]) == 0
    rows = json.loads((tmp_path / "out" / "table.json").read_text())["rows"]
    assert [row["encoder"] for row in rows] == ["mean of word vectors", "bne"]
    assert all(0 < row["coverage coverage@10"] <= 1 for row in rows)
