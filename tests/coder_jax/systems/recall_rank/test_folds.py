"""Candidates out of fold: each training mention is answered by the run that has not seen it."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from mention_run import STEPS, config_of, source_of
from short_run import lines_of, one_device
from tiny_bert import UNUSED, write_model
from tiny_mentions import tiny_mentions

from coder_jax.__main__ import main
from coder_jax.systems.recall_rank.candidates import GeneratorEnsemble
from coder_jax.systems.recall_rank.folds import unseen_by
from coder_jax.systems.recall_rank.ranking import RecallAndRank, _recall_scores
from coder_jax.systems.recall_rank.training import dev_scores
from coder_jax.systems.trained_models import (
    _load_generator,
    load_generators,
    load_ranker,
    load_run,
)
from coder_jax.training.train import train
from data_pipeline.batches.mentions import folds_of
from data_pipeline.dataset.mentions import open_mentions, read_lists
from data_pipeline.process import BadInput

pytestmark = pytest.mark.slow  # two runs go before all of them


def run_without(fold, mentions, out, **batch):
    spec = {"fold": fold, "pairs": 2, "groups": 2, "negatives_per_pair": 2, **batch}
    run = {"eval_steps": STEPS, "save_steps": STEPS}
    config = config_of("recall", mentions, out, batch=spec, run=run)
    with one_device():
        train(config, source_of(config, mentions))
    return str(out)


@pytest.fixture(scope="module")
def halves(mentions, tmp_path_factory):
    """A run without each of two folds; the second first."""
    folder = tmp_path_factory.mktemp("folds")
    return [
        run_without("2/2", mentions, folder / "2"),  # with online negatives
        run_without("1/2", mentions, folder / "1", negatives="random"),
    ]


def test_cross_validation_chooses_by_the_fold_that_is_left_out(mentions, tmp_path, on_one_device):
    """Both stages, of mentions without any to choose by: generator, lists, ranker, both together.

    Their best scores are those of the mentions that neither has seen, found anew.
    """
    write_model(tmp_path / "bert", more=UNUSED)
    data = tiny_mentions(tmp_path, dev=()).folder
    whole = open_mentions(data)
    recall, lists, rank = tmp_path / "recall", tmp_path / "lists", tmp_path / "rank"
    run_without("1/2", data, recall, negatives="random")
    words = ["--model", str(recall), "--data", str(data), "--out", str(lists), "-k", "4"]
    assert main(["candidates", *words]) == 0
    config = config_of("rank", lists, rank, batch={"pairs": 4, "groups": 2, "fold": "1/2"})
    train(config, source_of(config, lists))
    left_out = folds_of(whole.splits["train"].mentions.strings, 2, 0) == 1
    asked = [whole.splits["train"].mentions.strings[row] for row in np.flatnonzero(left_out)]
    gold = [whole.splits["train"].gold_sets()[row] for row in np.flatnonzero(left_out)]
    for run, rankers, k in ((recall, [], 10), (rank, [load_ranker(rank)], 4)):
        step, best = load_run(run)[1].notes.best
        evaluated = {
            line["step"]: line["eval"]["dev"]
            for line in lines_of(run / "metrics.jsonl")
            if "eval" in line
        }
        scores = evaluated[step]
        scores.pop("rank alone", None)
        stages = RecallAndRank(
            load_generators([recall]), rankers, list(whole.names.strings), whole.name_concepts
        )
        assert scores == dev_scores(stages.answer(asked, k), gold) and scores["accuracy"] == best
        assert scores["recall@2"] > 0


def lists_of(folder, split):
    data = open_mentions(folder)
    return read_lists(folder, split, len(data.splits[split].mentions), len(data.names))


def test_lists_are_of_the_run_that_has_not_seen_the_mention(mentions, halves, tmp_path, capsys):
    words = ["--model", *halves, "--folds", "--data", str(mentions), "--out", str(tmp_path / "o")]
    assert main(["candidates", *words, "-k", "4"]) == 0
    printed = capsys.readouterr().out
    assert "train: 7 mentions, each by the generator that has not seen it, accuracy" in printed
    assert "dev: 2 mentions, accuracy" in printed
    data = open_mentions(mentions)
    names, strings = list(data.names.strings), list(data.splits["train"].mentions.strings)
    folds, found = folds_of(strings, 2, 0), lists_of(tmp_path / "o", "train")
    assert {1, 2} == set(folds.tolist())
    for run, fold in zip(halves, (2, 1), strict=True):
        generator = _load_generator(run)
        expected = generator.lists(strings, generator.encode_names(names), data.name_concepts, 4)
        rows = folds == fold
        np.testing.assert_array_equal(found.names[rows], expected.names[rows])
        # That of equal strings is 0 but for rounding, which differs between batches.
        np.testing.assert_allclose(
            found.distances[rows], expected.distances[rows], rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(found.numbers[rows], expected.numbers[rows], atol=1e-6)
        others = np.abs(found.distances[~rows] - expected.distances[~rows])
        assert others.max() > 1e-3  # the other run is another one
    both = load_generators(halves)
    expected = both.lists(
        list(data.splits["dev"].mentions.strings), both.encode_names(names), data.name_concepts, 4
    )
    together = lists_of(tmp_path / "o", "dev")
    np.testing.assert_array_equal(together.names, expected.names)
    np.testing.assert_allclose(together.distances, expected.distances, rtol=1e-5)


def test_an_ensemble_has_the_mean_of_distances_and_of_numbers(mentions, halves):
    data = open_mentions(mentions)
    names, asked = list(data.names.strings), ["attack of the heart", "x"]
    alone = [_load_generator(run) for run in halves]
    every = len(data.concepts)
    lists = [one.lists(asked, one.encode_names(names), data.name_concepts, every) for one in alone]
    both = GeneratorEnsemble(alone)
    found = both.lists(asked, both.encode_names(names), data.name_concepts, every)
    for row in range(len(asked)):
        # each concept has one name here
        of = [dict(zip(one.names[row], one.distances[row], strict=True)) for one in lists]
        mean = {name: (of[0][name] + of[1][name]) / 2 for name in of[0]}
        assert found.names[row].tolist() == sorted(mean, key=lambda name: mean[name])
        np.testing.assert_allclose(found.distances[row], sorted(mean.values()), rtol=1e-6)
    np.testing.assert_allclose(found.numbers, (lists[0].numbers + lists[1].numbers) / 2, atol=1e-6)
    assert np.abs(lists[0].numbers - lists[1].numbers).max() > 1e-4


def test_runs_that_do_not_leave_out_each_fold_once_are_named(
    mentions, halves, generator, ranker, tmp_path
):
    data = open_mentions(mentions)
    told = json.loads((Path(halves[1]) / "run.json").read_text())
    told["config"]["system"]["batch"]["seed"] = 2
    (tmp_path / "run.json").write_text(json.dumps(told))
    other_seed = str(tmp_path)
    for runs, words in (
        ([halves[0]], "without 2/2 of seed 0; expected a run without each of 2 folds, 1/2 to 2/2"),
        ([halves[0]] * 2, "expected a run without each of 2 folds, 1/2 to 2/2, once"),
        ([halves[0], str(generator[0])], "recall was trained on all mentions, those of its lists"),
        ([halves[0], str(ranker[0])], "rank is a run of the system 'rank'; expected runs of the"),
        ([halves[0], str(mentions.parent / "bert")], "bert is no run; expected runs of the recipe"),
        ([halves[0], other_seed], "without 1/2 of seed 2; expected runs of one --seed"),
    ):
        with pytest.raises(BadInput, match=words):
            unseen_by(runs, data)


def test_runs_of_other_mentions_are_named(halves, mentions):
    data = open_mentions(mentions)
    manifest = dataclasses.replace(data.manifest, content_hash="0" * 64)
    data = dataclasses.replace(data, manifest=manifest)
    with pytest.raises(BadInput, match=r"2 was trained on mentions of hash .* those of hash 0{12}"):
        unseen_by(halves, data)


def test_an_ensemble_of_other_things_is_refused(mentions, halves):
    bert = str(mentions.parent / "bert")
    with pytest.raises(BadInput, match="found generators and other encoders together"):
        load_generators([halves[0], bert])
    with pytest.raises(BadInput, match="bert twice; expected each model once"):
        load_generators([bert, bert])


@pytest.mark.slow
def test_several_generators_and_rankers_are_scored_as_one(
    mentions, halves, ranker, tmp_path, capsys
):
    words = ["--ranker", str(ranker[0]), "--split", "dev", "--benchmark", f"own={mentions}"]
    out = tmp_path / "out.json"
    assert main(["evaluate", "--model", *halves, *words, "--json", str(out)]) == 0
    (record,) = json.loads(out.read_text())["records"]
    assert record["encoder"]["model"] == " + ".join(halves)
    hashes = set()
    for models in ([halves[0]], [halves[1]], halves):
        assert main(["evaluate", "--model", *models, *words, "--json", str(out)]) == 0
        hashes.add(json.loads(out.read_text())["records"][0]["encoder"]["weights_hash"])
    assert len(hashes) == 3
    data = open_mentions(mentions)
    stages = RecallAndRank(
        load_generators(halves),
        [load_ranker(ranker[0])],
        list(data.names.strings),
        data.name_concepts,
    )
    dev = data.splits["dev"]
    answers = stages.answer(list(dev.mentions.strings)).answers()
    right = [set(one) == gold for one, gold in zip(answers, dev.gold_sets(), strict=True)]
    assert record["scores"]["total"] == np.mean(right)


def test_normalize_takes_several_generators(halves, tmp_path, capsys):
    dictionary, listed = tmp_path / "d.tsv", tmp_path / "list.txt"
    dictionary.write_text("term\tconcept\nheart attack\tC1\nlimb pain\tC2\nrenal failure\tC3\n")
    listed.write_text("attack of the heart\n")
    words = ["--model", halves[0], str(listed), "--dictionary", str(dictionary), "-k", "3"]
    assert main(["normalize", "--model", halves[1], *words]) == 0
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    both = load_generators(halves)
    terms = ["heart attack", "limb pain", "renal failure"]
    lists = both.lists(["attack of the heart"], both.encode_names(terms), np.arange(3), 3)
    assert [row[1] for row in rows] == [f"C{1 + name}" for name in lists.names[0]]
    scores = [float(row[header.index("similarity")]) for row in rows]
    np.testing.assert_allclose(scores, _recall_scores(lists.distances)[0], atol=1e-4)


@pytest.mark.parametrize(
    ("verb", "words", "message"),
    [
        ("evaluate", ["--benchmark", "t=terms.tsv", "--dictionary", "d.tsv"], "t is no folder of"),
        ("evaluate", ["--benchmark", "t=terms.tsv", "--vectors-of", "words"], "--vectors-of takes"),
        ("normalize", ["list.txt"], "answers are classes"),
    ],
)
def test_where_one_model_answers_several_are_refused(
    mentions, tmp_path, monkeypatch, capsys, verb, words, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("terms.tsv", "d.tsv", "list.txt"):
        (tmp_path / name).write_text("heart attack\tC1\nlimb pain\tC2\n")
    bert = str(mentions.parent / "bert")
    given = ["--model", bert, "--model", "other"]
    if verb == "evaluate":
        given = ["--json", "o.json", "--model", bert, "other"]
    assert main([verb, *given, *words]) == 2
    said = capsys.readouterr().err
    assert "bert and other, which answer together as generators" in said and message in said
