"""A ranker that tells a broader concept from the same one, and from another."""

import dataclasses
import json

import numpy as np
import pytest
from mention_run import STEPS, config_of, source_of
from short_run import one_device
from tiny_bert import UNUSED, write_model
from tiny_mentions import mentions_with_hierarchy, tiny_mentions

from coder_jax.__main__ import main
from coder_jax.evaluation.several_concepts import ThreeAnswers
from coder_jax.export.folder import load_module
from coder_jax.mapping.coded_list import Status
from coder_jax.mapping.confidence import ALL, BROADER, Cutoffs, measure_cutoffs
from coder_jax.mapping.normalizer import Confidence, Rule
from coder_jax.systems.recall_rank.candidates import TfIdfGenerator
from coder_jax.systems.recall_rank.ranking import (
    Choice,
    RecallAndRank,
    StagedNormalizer,
    probabilities,
    ranked,
)
from coder_jax.systems.trained_models import load_ranker, load_run
from coder_jax.training.train import train
from data_pipeline.batches.mentions import RankBatches
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.dataset.mentions import candidate_rows, open_mentions
from data_pipeline.process import BadInput

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """Mentions with a hierarchy, and candidates by TF-IDF."""
    folder = tmp_path_factory.mktemp("wider")
    write_model(folder / "bert", more=UNUSED)
    data = mentions_with_hierarchy(folder)
    words = ["--model", "tf-idf", "--data", str(data.folder), "--out", str(folder / "lists")]
    assert main(["candidates", *words, "-k", "4"]) == 0
    return folder / "lists"


@pytest.fixture(scope="module")
def ranker(lists, tmp_path_factory):
    """A run of the ranker that tells what is broader."""
    out = tmp_path_factory.mktemp("runs") / "rank"
    config = config_of("rank", lists, out, batch={"broader": True, "pair_length": 48})
    with one_device():
        result = train(config, source_of(config, lists))
    assert result.scores["dev"].keys() >= {"accuracy", "rank alone"}
    return out


def test_what_is_answered_is_what_was_trained(lists, ranker):
    """The probabilities of the stages are those of the pairs as they stand in batches."""
    system, run = load_run(ranker, STEPS)
    source = RankBatches(lists, system.batch)
    data, one = source.dataset, load_ranker(ranker)
    assert one.outputs == 2
    names, dev = list(data.names.strings), data.splits["dev"]
    stages = RecallAndRank(TfIdfGenerator(), [one], names, data.name_concepts)
    found, shares = stages.scored(list(dev.mentions.strings), 4)
    pairs = source.pairs_of(dev.mentions, candidate_rows(found))
    expected = probabilities(one.answers, pairs)
    np.testing.assert_allclose(shares.reshape(-1, 2), expected, atol=1e-6)
    assert (expected.sum(axis=1) < 1).all() and np.ptp(expected, axis=0).min() > 1e-4


def test_its_export_says_the_same_in_pytorch(ranker, tmp_path):
    system, run = load_run(ranker)
    folder = tmp_path / "export"
    assert system.export(run, folder)["probabilities in PyTorch"] <= 1e-5
    names = ["renal disease", "heart attack"]
    expected = load_ranker(ranker).score("limb pain", names)
    np.testing.assert_allclose(load_ranker(folder).score("limb pain", names), expected, atol=1e-6)
    theirs = load_module(folder / "term_ranker.py").TorchTermRanker(folder)
    np.testing.assert_allclose(theirs.score("limb pain", names).numpy(), expected, atol=1e-5)
    assert theirs.score_pairs([("limb pain", name) for name in names]).shape == (2, 2)


def test_three_answers_by_hand():
    concepts = np.array([[1, 2, 3], [4, 2, 3], [5, 6, 7]])
    exact = np.array([[0.6, 0.2, 0.1], [0.4, 0.3, 0.1], [0.9, 0.1, 0.0]])
    broader = np.array([[0.1, 0.7, 0.2], [0.5, 0.4, 0.1], [0.0, 0.3, 0.0]])
    gold = [{1}, {9}, {5, 6}]  # of several concepts: no case; 2 is broader than 1, 3 than 9
    shares = np.stack([exact, broader], axis=2)
    found = ThreeAnswers.of(concepts, shares, lambda of: {2} if 1 in of else {3}, gold)
    # The first mention as it is, and without its concept; the second, whose concept is not there.
    assert found.truth.tolist() == [0, 1, 1]
    np.testing.assert_allclose(found.cases[:, 0], [[0.6, 0.4, 1], [0.2, 0.1, 0], [0.4, 0.1, 0]])
    np.testing.assert_allclose(found.cases[:, 1], [[0.7, 0.5, 0], [0.7, 0.5, 1], [0.5, 0.1, 0]])
    assert found.said.tolist() == [0, 1, 1]
    assert found.counts["exact answered exact"] == 1
    assert found.counts["broader answered broader"] == 2 and sum(found.counts.values()) == 3
    scores = found.scores
    assert scores["three answers"] == pytest.approx(2 / 3)  # the third names another concept
    assert scores["three answers: broader"] == 0.5 and scores["three answers: neither"] is None
    none = ThreeAnswers.of(concepts, shares, lambda of: {2}, [(), (1, 2), (-1,)])
    assert set(none.scores.values()) == {None} and set(none.counts.values()) == {0}


def test_evaluate_scores_three_answers_and_measures_what_they_are_worth(
    lists, ranker, tmp_path, capsys
):
    out, cutoffs = tmp_path / "out.json", tmp_path / "cutoffs.json"
    words = ["--model", "tf-idf", "--ranker", ranker, "--benchmark", f"tiny={lists}"]
    words += ["--cutoffs", cutoffs, "--json", out]
    assert main(["evaluate", *map(str, words)]) == 0
    (record,) = json.loads(out.read_text())["records"]
    data = open_mentions(lists)
    test = data.splits["test"]
    of = list(data.names.strings), data.name_concepts
    stages = RecallAndRank(TfIdfGenerator(), [load_ranker(ranker)], *of)
    lists_of, shares = stages.scored(list(test.mentions.strings))
    found = ranked(lists_of, data.name_concepts, shares)
    gold = test.gold_sets()
    three = ThreeAnswers.of(found.concepts, found.rank, data.broader, gold)
    assert {name: record["counts"][name] for name in three.counts} == three.counts
    assert len(three.truth) == 3 * 2 * 40  # that of several concepts is none
    assert {name: record["scores"][name] for name in three.scores} == three.scores
    measured = Cutoffs.read(cutoffs)
    assert measured.tables.keys() == measured.rules.keys() == {ALL, BROADER}
    assert measured.tables[ALL].mentions == len(three.truth)
    assert measured.tables[ALL].right[0] == three.cases[:, 0, 2].sum()
    assert measured.tables[BROADER].right[0] == three.cases[:, 1, 2].sum()
    # `normalize` takes them.
    listed = tmp_path / "list.txt"
    listed.write_text("coronary attack\nrenal pain\n")
    words = ["--model", "tf-idf", "--ranker", ranker, "--cutoffs", cutoffs, listed]
    words += ["--dictionary", lists.parent / "dataset", "--out", tmp_path / "coded.tsv"]
    assert main(["normalize", *map(str, words)]) == 0
    head, *rows = [line.split("\t") for line in (tmp_path / "coded.tsv").read_text().splitlines()]
    confidence, status = head.index("confidence"), head.index("status")
    assert {row[status] for row in rows} <= {"near", "tied", "broader", "no answer"}
    assert all(0 <= float(row[confidence]) <= 1 for row in rows)
    # Nor is a precision kept that no answer reached, nor are an encoder's answers a ranker's.
    bert = ["--model", lists.parent / "bert"]
    assert main(["normalize", *map(str, [*words[4:], *bert])]) == 2
    assert "found what was measured of a ranker" in capsys.readouterr().err
    assert main(["normalize", *map(str, [*words, "--fusion", "rank"])]) == 2
    said = "was measured with candidates ordered by recall and rank, and here they are by rank"
    assert said in capsys.readouterr().err
    tables = {
        name: dataclasses.replace(table, right=[0] * len(table.right))
        for name, table in measured.tables.items()
    }
    dataclasses.replace(measured, tables=tables).write(cutoffs)
    assert main(["normalize", *map(str, [*words, "--precision", "0.99"])]) == 2
    assert "has no cut-off of all languages that reached it" in capsys.readouterr().err
    assert main(["normalize", *map(str, [*words, "--by", "classes"])]) == 2
    assert "--cutoffs is for terms of a dictionary, but answers are" in capsys.readouterr().err


class Says:
    """A ranker that says what it is told of each name."""

    outputs = 2

    def __init__(self, shares):
        self.shares = shares

    def score_pairs(self, mentions, names, rows, *, progress):
        return np.array([self.shares[names[name]] for _, name in rows], np.float32)


SURE = Confidence(0.0, 1.0, 0.0)  # a probability p is right with 1 / (1 + e^-p)
N, B = (Status.NEAR, "C1"), (Status.BROADER, "C2")


@pytest.mark.parametrize(
    ("exact", "broader", "rules", "status", "concept", "confidence"),
    [
        (0.6, 0.3, None, Status.NEAR, "C1", None),
        (0.4, 0.6, None, Status.BROADER, "C2", None),
        (0.4, 0.4, None, Status.NO_ANSWER, None, None),
        (0.6, 0.3, {ALL: Rule(0.7), BROADER: Rule(0.2)}, Status.BROADER, "C2", None),
        (0.6, 0.3, {ALL: Rule(0.7)}, Status.NO_ANSWER, None, None),
        (0.6, 0.3, {ALL: Rule(-1, SURE, 0.9), BROADER: Rule(-1, SURE, 0.5)}, *B, 0.574),
        (0.6, 0.3, {ALL: Rule(-1, SURE, 0.6), BROADER: Rule(-1, SURE, 0.5)}, *N, 0.646),
    ],
)
def test_a_broader_concept_is_the_answer_where_none_is_the_same(
    exact, broader, rules, status, concept, confidence
):
    ranker = Says({"pain of limb": (exact, 0.1), "pain": (0.1, broader)})
    names = ["pain of limb", "pain"]
    by_rank = Choice(fusion="rank")
    stages = RecallAndRank(TfIdfGenerator(), [ranker], names, np.arange(2), by_rank)
    dictionary = Dictionary(names, ["C1", "C2"], "mine")
    by = StagedNormalizer(stages, [["C1"], ["C2", "C3"]], dictionary, rules=rules)
    (answer,) = by.answers(["a limb pains"], 2)
    assert (answer.status, answer.concept) == (status, concept)
    assert answer.confidence == (confidence and pytest.approx(confidence, abs=1e-3))
    assert len(answer.candidates) == 2
    assert answer.ties == 0
    assert [one.similarity for one in answer.candidates] == sorted(
        map(np.float32, (exact, 0.1)), reverse=status != Status.BROADER
    )
    if status != Status.NEAR and not confidence:
        said = "broader; " if status == Status.BROADER else ""
        said += f"the same concept: probability {exact:.3f} is below"
        assert answer.reason.startswith(said)


def test_cutoffs_leave_out_what_is_answered_without_the_ranker(lists, ranker, tmp_path, capsys):
    """Strings of the dictionary, misspelt ones, and what names nothing."""
    train = tmp_path / "rows.tsv"
    rows = ["renal disease\tK2", "acute infarctin of the heart\tH1", "n/a\tH1"] * 10
    rows += ["coronary attack\tH1", "kidney that fails\tK1"] * 30
    train.write_text("\n".join(rows))
    dataset = lists.parent / "dataset"
    (tmp_path / "names").mkdir()
    files = {"dictionary": dataset, "train": (train,), "dev": (), "test": (train,)}
    folder = tiny_mentions(tmp_path, **files).folder
    out, cutoffs = tmp_path / "o.json", tmp_path / "c.json"
    words = ["--model", lists.parent / "bert", "--ranker", ranker, "--pooling", "cls", "mean"]
    words += ["--cutoffs", cutoffs, "--json", out, "--benchmark", f"tiny={folder}"]
    assert main(["evaluate", *map(str, words)]) == 0
    record, _ = json.loads(out.read_text())["records"]
    assert capsys.readouterr().err.count("cut-offs: ") == 1, "of the first pooling"
    cases = sum(count for name, count in record["counts"].items() if "answered" in name)
    assert cases == 2 * 90
    measured = Cutoffs.read(cutoffs)
    assert [table.mentions for table in measured.tables.values()] == [2 * 60] * 2
    assert measured.candidates == "ranker"
    # Several dictionaries, and tables beside folders, are refused before anything is loaded.
    other = tiny_mentions(tmp_path / "names")
    table = tmp_path / "table.tsv"
    table.write_text("gout\tC1\n")
    for more, said in (
        ([f"b={other.folder}"], "expected mentions that are looked up in one dictionary"),
        ([f"b={table}", "--dictionary", table], "and other mentions; expected folders of mentions"),
    ):
        assert main(["evaluate", *map(str, [*words, *more])]) == 2
        assert said in capsys.readouterr().err


def test_what_cannot_be_measured_or_used_is_refused(lists, ranker, tmp_path, capsys):
    words = ["evaluate", "--model", "tf-idf", "--benchmark", f"tiny={lists}"]
    words += ["--json", str(tmp_path / "o.json"), "--cutoffs", str(tmp_path / "c.json")]
    assert main(words) == 2
    assert "found a folder of mentions (" in capsys.readouterr().err
    assert main([*words, "--ranker", str(ranker), "--split", "dev"]) == 2
    assert (tmp_path / "o.json").exists(), "the scores are there all the same"
    assert "found 6 cases of mentions that are no strings" in capsys.readouterr().err
    (tmp_path / "m.txt").write_text("heart\n")
    dictionary = ["--dictionary", str(lists.parent / "dataset"), str(tmp_path / "m.txt")]
    given = ["normalize", "--model", "tf-idf", "--ranker", str(ranker), *dictionary]
    assert main([*given, "--precision", "0.9"]) == 2
    assert "--cutoffs: found none; expected what" in capsys.readouterr().err
    encoder = tmp_path / "encoder.json"
    measure_cutoffs(np.ones(2), np.ones(2, bool)).write(encoder)
    assert main([*given, "--cutoffs", str(encoder)]) == 2
    assert "encoder.json, measured of an encoder; expected" in capsys.readouterr().err
    one = load_ranker(ranker)
    other = Says({"a": (0.1, 0.1)})
    other.outputs = 1
    stages = RecallAndRank(TfIdfGenerator(), [one, other], ["a", "b"], np.arange(2))
    with pytest.raises(BadInput, match="found rankers that tell broader concepts, and others"):
        stages.scored(["c"], 2)
