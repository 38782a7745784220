"""Losses, distances and fusion against what the paper's equations say, pair by pair."""

import dataclasses
import json
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from mention_run import config_of, source_of
from sklearn.feature_extraction.text import TfidfVectorizer
from tiny_bert import TINY, UNUSED, write_model, write_tokenizer
from tiny_mentions import mentions_of_codes, tiny_mentions

from coder_jax.__main__ import main
from coder_jax.encoding import encoder as encoded_dictionary
from coder_jax.encoding import vector_files
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.search import KeptRows, search
from coder_jax.evaluation.record import read_records
from coder_jax.evaluation.several_concepts import _EDITS, _SIGNS, _TF_IDF, _TRAINING
from coder_jax.mapping.coded_list import Status
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.recall_rank import candidates as nearest_module
from coder_jax.systems.recall_rank import ranking
from coder_jax.systems.recall_rank.candidates import (
    CandidateGenerator,
    GeneratorEnsemble,
    NameVectors,
    TfIdfGenerator,
    _nearest_by_mean,
    _nearest_concepts,
    nearest_wrong_names,
)
from coder_jax.systems.recall_rank.ranking import (
    Choice,
    RecallAndRank,
    TermRanker,
    _answer_counts,
    _recall_scores,
    best_first,
    fused_scores,
    ranked,
)
from coder_jax.systems.recall_rank.training import _number_loss, _triplet_margin_loss
from coder_jax.systems.trained_models import (
    _mentions_per_s,
    load_generators,
    load_ranker,
    staged_normalizer,
)
from coder_jax.training.train import train
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.dataset.mentions import CandidateLists, open_mentions, read_lists
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.process import BadInput
from data_pipeline.terminology.keywords import KeywordVocabulary

RNG = np.random.default_rng(0)


def test_the_triplet_loss_is_that_of_each_triplet():
    mention, name = RNG.normal(size=(2, 5, 7))
    others = RNG.normal(size=(5, 3, 7))
    expected = [
        max(0.0, np.linalg.norm(m - p) + 0.4 - np.linalg.norm(m - n))
        for m, p, of_mention in zip(mention, name, others, strict=True)
        for n in of_mention
    ]
    assert 0 < np.count_nonzero(expected) < 15
    as_jax = (jnp.asarray(array, jnp.float32) for array in (mention, name, others))
    loss, metrics = _triplet_margin_loss(*as_jax, 0.4)
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-6)
    assert float(metrics["within_margin"]) == pytest.approx(np.count_nonzero(expected) / 15)


def test_a_mention_that_is_its_name_has_a_finite_gradient():
    same = jnp.ones((1, 4))
    others = jnp.full((1, 2, 4), 1.1)
    gradient = jax.grad(lambda m: _triplet_margin_loss(m, same, others, 1.0)[0])(same)
    assert jnp.isfinite(gradient).all() and (gradient != 0).any()


def test_the_number_loss_is_a_cross_entropy():
    logits, numbers = RNG.normal(size=(6, 3)), np.array([0, 2, 1, 1, 0, 2])
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    loss, metrics = _number_loss(jnp.asarray(logits, jnp.float32), jnp.asarray(numbers))
    expected = -np.log(shares[np.arange(6), numbers]).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert float(metrics["number_accuracy"]) == pytest.approx((logits.argmax(1) == numbers).mean())


# ---- Nearest names and concepts ----


@pytest.mark.parametrize(("offset", "at_once"), [(0.0, 1 << 24), (300.0, 1 << 24), (300.0, 100)])
def test_nearest_is_brute_force_wherever_the_vectors_lie(offset, at_once, monkeypatch):
    monkeypatch.setattr(nearest_module, "_NUMBERS_AT_ONCE", at_once)
    keys = (RNG.normal(size=(400, 9)) + offset).astype(np.float32)
    queries = (RNG.normal(size=(30, 9)) + offset).astype(np.float32)
    keys[7] = keys[5]  # equal ones: the lower index first
    queries[0] = keys[5]
    distance, index = NameVectors(keys).nearest(queries, 6)
    exact = np.linalg.norm(queries[:, None].astype(float) - keys[None], axis=2)
    order = np.argsort(exact, axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(index, order)
    np.testing.assert_allclose(distance, np.take_along_axis(exact, order, axis=1), rtol=1e-6)
    assert index[0, :2].tolist() == [5, 7] and distance[0, 0] == 0


def test_of_keys_that_are_as_far_the_lower_index_comes_first():
    """Whatever rounding says: each key and the next lie on opposite sides of the query."""
    half = RNG.normal(size=(50, 9)).astype(np.float32) * np.float32(100)
    keys = np.stack([half, -half], axis=1).reshape(100, 9)
    keys = np.concatenate([keys, np.full((7, 9), 1e3, np.float32)])  # their mean is not the query
    _, index = NameVectors(keys).nearest(np.zeros((1, 9), np.float32), 100)
    assert (index[0, 1::2] == index[0, ::2] + 1).all() and not (index[0, ::2] % 2).any()


def test_a_concept_is_as_near_as_its_nearest_name():
    names, concepts = RNG.normal(size=(60, 4)).astype(np.float32), np.repeat(np.arange(6), 10)
    queries = RNG.normal(size=(8, 4)).astype(np.float32)

    def near(rows, number):
        return NameVectors(names).nearest(queries[rows], number)

    distance, found = _nearest_concepts(near, 8, concepts, 5)
    exact = np.linalg.norm(queries[:, None].astype(float) - names[None], axis=2)
    by_concept = exact.reshape(8, 6, 10)
    order = np.argsort(by_concept.min(2), axis=1)[:, :5]
    np.testing.assert_array_equal(concepts[found], order)
    np.testing.assert_allclose(distance, np.sort(by_concept.min(2), axis=1)[:, :5], rtol=1e-6)
    np.testing.assert_array_equal(
        found, np.take_along_axis(by_concept.argmin(2) + 10 * np.arange(6), order, axis=1)
    )
    assert _nearest_concepts(near, 8, concepts, 50)[1].shape == (8, 6)


@pytest.mark.parametrize("noise", [0.01, 3.0])  # encoders that agree, or hardly do
def test_by_the_mean_of_distances_is_brute_force(noise, monkeypatch):
    """Also of encoders of another width and scale; of keys at one place the lower index first."""
    keys = [RNG.normal(size=(500, 6)).astype(np.float32)]
    keys.append(np.pad(keys[0], ((0, 0), (0, 2))) * 4 + noise * RNG.normal(size=(500, 8)))
    rows = RNG.choice(500, 40)
    queries = [one[rows] + noise * RNG.normal(size=(40, one.shape[1])) for one in keys]
    for one in (*keys, *queries):
        one[7] = one[5]
    asked, nearest = [], NameVectors.nearest

    def counted(one, queries, k):
        asked.append((len(queries), k))
        return nearest(one, queries, k)

    monkeypatch.setattr(NameVectors, "nearest", counted)
    names = [NameVectors(key) for key in keys]
    distance, index = _nearest_by_mean(queries, names, 5)
    exact = np.mean(
        [
            np.linalg.norm(query[:, None].astype(float) - key[None], axis=2)
            for query, key in zip(queries, keys, strict=True)
        ],
        axis=0,
    )
    order = np.argsort(exact, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(index, order)
    np.testing.assert_allclose(distance, np.take_along_axis(exact, order, axis=1), rtol=1e-6)
    assert asked[0] == (40, 20)  # few keys of each, and more where these leave it open
    assert (len(asked) > 2) == (noise > 1)
    assert _nearest_by_mean(queries, names, 500)[1].shape == (40, 500)


def test_a_mention_s_own_names_are_never_its_others():
    names, mentions = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (40, 12))
    own = [RNG.choice(40, number % 4, replace=False) for number in range(12)]
    found = nearest_wrong_names(mentions, names, own, 5)
    exact = np.linalg.norm(mentions[:, None].astype(float) - names[None], axis=2)
    for mention, row in enumerate(found):
        others = [one for one in np.argsort(exact[mention]) if one not in own[mention]]
        assert row.tolist() == others[:5]
    with pytest.raises(BadInput, match="has 40 names, of which a mention may mean 3; expected 38"):
        nearest_wrong_names(mentions, names, own, 38)


def test_keys_are_made_once_for_all_that_are_looked_up(tmp_path, monkeypatch):
    """So that an accelerator keeps them."""
    write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    one = CandidateGenerator(TermEncoder(random_bert(TINY, seed=0), load_tokenizer(tmp_path)))
    both, strings = GeneratorEnsemble([one, one]), [f"pain {number}" for number in range(30)]
    searched = []

    def seen(queries, keys, k):
        searched.append(keys)
        return search(queries, keys, k)

    monkeypatch.setattr(nearest_module, "search", seen)
    names = both.encode_names(strings)
    for mentions in (["limb", "heart"], ["pain"]):
        both.lists(mentions, names, np.zeros(30, np.int32) + np.arange(30) // 20, 2)
        one.lists(mentions, names[:1], np.arange(30), 2)
    assert len(searched) >= 6 and len(set(map(id, searched))) == 2
    assert all(isinstance(keys, KeptRows) for keys in searched)


# ---- The ranker ----


def test_a_ranker_s_weights_are_on_the_device_and_any_number_of_pairs_is_compiled_once(
    tmp_path, monkeypatch, caplog
):
    """Nor is the structure of its encoder looked at for each block of pairs."""
    write_tokenizer(tmp_path, UNUSED)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    head = {"kernel": RNG.normal(size=(TINY.hidden_size, 2)), "bias": np.zeros(2)}
    keywords = KeywordVocabulary({"place": ("heart", "limb")})
    tokenizer, bert = load_tokenizer(tmp_path), random_bert(TINY, seed=0)
    ranker = TermRanker(bert, tokenizer, head, keywords)
    names = ["heart attack", "limb pain", "pain", "acute pain", "x"]
    monkeypatch.setattr(ranking, "_PAIRS_AT_ONCE", 4)
    expected = ranker.score("heart", names)
    monkeypatch.setattr(nnx.GraphDef, "__hash__", None)
    guard = jax.transfer_guard_host_to_device("disallow")
    with guard, jax.log_compiles(), caplog.at_level(logging.WARNING, "jax"):
        for number in (1, 2, 3, 4, 5):
            found = ranker.score("heart", names[:number])
            np.testing.assert_allclose(found, expected[:number], rtol=1e-5)
    assert "ompiling" not in caplog.text


# ---- Fusion ----

DISTANCES = np.array([[1.0, 2.0, 5.0, 8.0], [0.0, 0.0, 0.0, 0.0]])


def test_recall_scores_are_equation_12_or_the_code_s():
    np.testing.assert_allclose(
        _recall_scores(DISTANCES), [[15 / 16, 14 / 16, 11 / 16, 8 / 16], [1, 1, 1, 1]]
    )
    np.testing.assert_allclose(
        _recall_scores(DISTANCES, "max"), [[7 / 8, 6 / 8, 3 / 8, 0], [1, 1, 1, 1]]
    )


def test_scores_are_the_mean_of_both_or_one_of_them():
    rank = np.array([[0.1, 0.9, 0.5, 0.0], [0.2, 0.1, 0.2, 0.3]])
    fused = fused_scores(DISTANCES, rank)
    np.testing.assert_allclose(fused[0], [(15 / 16 + 0.1) / 2, (14 / 16 + 0.9) / 2, *fused[0, 2:]])
    assert best_first(fused).tolist() == [[1, 2, 0, 3], [3, 0, 2, 1]]  # equal: the nearer first
    np.testing.assert_array_equal(fused_scores(DISTANCES, rank, fusion="rank"), rank)
    many = best_first(np.tile([0.5, 0.7], (1, 30)))[0]
    assert many.tolist() == [*range(1, 60, 2), *range(0, 60, 2)]
    for alone in (fused_scores(DISTANCES, None), fused_scores(DISTANCES, rank, fusion="recall")):
        np.testing.assert_array_equal(alone, _recall_scores(DISTANCES))


@pytest.mark.parametrize(
    "numbers, scores, count",
    [
        ([0.8, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9, 0.9], 1),
        ([0.1, 0.8, 0.1], [0.9, 0.1, 0.1, 0.1, 0.1], 2),
        ([0.1, 0.1, 0.8], [0.9, 0.9, 0.1, 0.1, 0.1], 3),  # three at least, whatever they score
        ([0.1, 0.1, 0.8], [0.9, 0.9, 0.9, 0.81, 0.8], 4),  # above .8, not at it
        ([0.1, 0.1, 0.8], [0.9, 0.9], 2),  # no more than there are
        ([1.0], [0.9, 0.9, 0.9], 1),  # a generator that tells no number
    ],
)
def test_the_answer_is_cut_by_the_number(numbers, scores, count):
    assert _answer_counts(np.array([scores]), np.array([numbers])).tolist() == [count]


def test_by_distances_alone_three_or_more_concepts_are_three():
    """All ten score about .9 then, above the threshold, which is one of both stages."""
    lists = CandidateLists(
        names=np.arange(10, dtype=np.int32)[None],
        distances=np.linspace(5, 11, 10, dtype=np.float32)[None],
        numbers=np.array([[0.1, 0.2, 0.7]], np.float32),
    )
    concepts, sure = np.arange(10), np.full((1, 10, 1), 0.99, np.float32)
    assert ranked(lists, concepts, None).counts.tolist() == [3]
    assert ranked(lists, concepts, sure, Choice(fusion="recall")).counts.tolist() == [3]
    assert ranked(lists, concepts, sure).counts.tolist() == [10]
    assert ranked(lists, concepts, sure, Choice(threshold=1.0)).counts.tolist() == [3]


# -------------------------------------------------------------------------------------------------
# Stages for `evaluate` and `normalize`: sets of concepts scored, and as many rows as are meant.

TERMS = ["heart attack", "limb pain", "renal failure", "kidney failure"]
CONCEPTS = ["C1", "C2|C4", "C3", "C3"]


def results_of(words, out, capsys):
    assert main(["evaluate", *map(str, words), "--json", str(out)]) == 0
    (record,) = json.loads(out.read_text())["records"]
    return record, capsys.readouterr().out


def test_evaluate_scores_sets_by_both_stages(mentions, generator, ranker, tmp_path, capsys):
    words = ["--model", generator[0], "--ranker", ranker[0], "--benchmark", f"chip={mentions}"]
    record, printed = results_of([*words, "--split", "dev"], tmp_path / "out.json", capsys)
    scores = record["scores"]
    data = open_mentions(mentions)
    dev = data.splits["dev"]
    by = staged_normalizer(
        load_generators([generator[0]]),
        [str(ranker[0])],
        Dictionary(list(data.names.strings), [str(c) for c in data.name_concepts], "x"),
        Choice(),
    )
    found = by.stages.answer(list(dev.mentions.strings))
    numbers = [int(one) for (one,) in by.concepts]
    right = [
        {numbers[c] for c in row[:count]} == gold
        for row, count, gold in zip(found.concepts, found.counts, dev.gold_sets(), strict=True)
    ]
    assert scores["total"] == np.mean(right)
    assert record["counts"] == {"mentions": 2, "uni": 1, "multi": 1, "unreachable": 0}
    assert {"uni", "multi", "total", "recall@10"} <= record["intervals"].keys()
    low, high = record["intervals"]["recall@1"]
    half_wide = f"{100 * scores['recall@1']:.2f} ±{50 * (high - low):.1f}"
    assert low <= scores["recall@1"] <= high and half_wide in printed
    assert {_TF_IDF, _EDITS, _TRAINING, _SIGNS} == record["folds"].keys()
    numbers = record["folds"][_SIGNS]["scores"]  # "renal", "heart + renal disease"
    assert numbers == {"number uni": 1.0, "number multi": 1.0, "number total": 1.0}
    edits = record["folds"][_EDITS]["scores"]
    assert (edits["number total"], edits["uni"], edits["multi"]) == (0.5, 1.0, 0.0)
    for baseline in (_TF_IDF, _EDITS, _TRAINING, _SIGNS):
        assert f"chip dev: {baseline} " in printed
    assert "recall and rank" in record["scoring"]["answers"]
    header, _, line, *_ = (re.split(" {2,}", one) for one in printed.splitlines())
    assert float(line[header.index("mentions/s")]) == round(record["mentions_per_s"], 1) > 0
    assert "published, recall and rank, table 3" in printed and "91.47" in printed


def test_each_fusion_is_a_row_and_names_are_encoded_once(
    mentions, generator, ranker, tmp_path, capsys, encoded
):
    """The ablation of the paper's table 3, on two benchmarks of one dictionary."""
    words = ["evaluate", "--model", generator[0], "--ranker", ranker[0], "--split", "dev"]
    words += ["--benchmark", f"a={mentions}", f"b={mentions}", "--json", tmp_path / "out.json"]
    words += ["--fusion", "mean", "recall", "rank"]
    assert main([*map(str, words)]) == 0
    assert encoded.count(len(open_mentions(mentions).names.strings)) == 1
    records = json.loads((tmp_path / "out.json").read_text())["records"]
    ordered = ["recall and rank", "recall alone", "rank alone"]
    assert [one["scoring"]["ordered by"] for one in records] == ordered * 2
    assert [one["scores"] for one in records[:3]] == [one["scores"] for one in records[3:]]
    printed = capsys.readouterr().out
    assert all(f"{name} dev: {one} " in printed for name in "ab" for one in ordered)


def test_the_speed_is_of_encoding_and_search_and_of_distinct_mentions(monkeypatch):
    """Four seconds for two mentions; the names have taken a hundred."""
    now = [0.0]

    class Slow(TfIdfGenerator):
        def encode_names(self, *given, **options):
            now[0] += 100
            return super().encode_names(*given, **options)

        def nearest(self, mentions, *given, **options):
            now[0] += 4
            return super().nearest(mentions, *given, **options)

        def numbers(self, mentions):
            now[0] += 50
            return super().numbers(mentions)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    stages = RecallAndRank(Slow(), [], ["heart attack", "limb pain"], np.arange(2))
    assert _mentions_per_s(stages, ["attack", "pain", "attack"]) == 0.5


def test_evaluate_of_any_encoder_answers_with_the_nearest_name(mentions, tmp_path, capsys):
    model = mentions.parent / "bert"
    words = ["--model", model, "--pooling", "mean", "--benchmark", f"own={mentions}"]
    record, printed = results_of(words, tmp_path / "out.json", capsys)
    data = open_mentions(mentions)
    test, names = data.splits["test"], list(data.names.strings)
    encoder = TermEncoder.from_pretrained(model, "mean")
    nearest = (encoder.encode(list(test.mentions.strings)) @ encoder.encode(names).T).argmax(1)
    concepts = data.name_concepts[nearest]
    right = [{int(c)} == gold for c, gold in zip(concepts, test.gold_sets(), strict=True)]
    assert record["scores"]["total"] == record["scores"]["recall@1"] == np.mean(right)
    assert record["scores"]["multi"] is None and "published" not in printed
    assert record["mentions_per_s"] is None, "its vectors were made before, for all benchmarks"
    assert printed.splitlines()[2].split()[-2:] == ["-", str(model)]


def test_tf_idf_finds_ten_concepts_where_one_has_more_names_than_that(tmp_path, capsys):
    names = [f"A\theart attack {number}" for number in range(60)]
    names += [f"B{number}\tlimb pain {number}" for number in range(10)]
    dictionary, dev = tmp_path / "many.tsv", tmp_path / "many_dev.tsv"
    dictionary.write_text("\n".join(names))
    dev.write_text("heart attack\tA\nattack of the limb\tB9\n")
    files = {"dictionary": dictionary, "train": (dev,), "dev": (dev,), "test": ()}
    folder = tiny_mentions(tmp_path, **files).folder
    write_model(tmp_path / "bert")
    words = ["--model", tmp_path / "bert", "--benchmark", f"many={folder}", "--split", "dev"]
    record, _ = results_of(words, tmp_path / "out.json", capsys)
    assert record["folds"][_TF_IDF]["scores"]["recall@10"] == 1.0


# -------------------------------------------------------------------------------------------------
# TF-IDF in the place of a generator: `--model tf-idf`.


def test_candidates_by_tf_idf_are_those_of_scikit_learn(tmp_path):
    """A concept is as near as its nearest name; ties go to the earlier name; one is meant."""
    write_model(tmp_path / "bert", more=UNUSED)
    data = mentions_of_codes(tmp_path)
    out = tmp_path / "lists"
    words = ["--model", "tf-idf", "--data", str(data.folder), "--out", str(out), "-k", "4"]
    assert main(["candidates", *words]) == 0
    names, asked = list(data.names.strings), list(data.splits["train"].mentions.strings)
    weigh = TfidfVectorizer(analyzer="char")
    of_names = weigh.fit_transform(names)
    cosines = (weigh.transform(asked) @ of_names.T).toarray()
    found = read_lists(out, "train", len(asked), len(names))
    assert found.numbers.tolist() == [[1.0]] * len(asked)
    for row in range(len(asked)):
        best: dict[int, int] = {}
        for name in np.argsort(-cosines[row], kind="stable").tolist():
            best.setdefault(int(data.name_concepts[name]), name)
        assert found.names[row].tolist() == list(best.values())[:4]
        expected = np.sqrt(2 - 2 * cosines[row, found.names[row]])
        np.testing.assert_allclose(found.distances[row], expected, rtol=1e-6, atol=1e-7)
    made_by = open_mentions(out).manifest.candidates
    assert made_by == {"models": ["tf-idf"], "weights": [], "k": 4, "out of fold": False}


def test_a_ranker_is_trained_on_candidates_by_tf_idf_and_scored_with_them(
    mentions, tmp_path, on_one_device, capsys
):
    """Table 3, without MTCG; without a ranker it is the baseline of table 2."""
    lists, run = tmp_path / "lists", tmp_path / "run"
    words = ["candidates", "--model", "tf-idf", "--data", mentions, "--out", lists, "-k", 5]
    assert main([*map(str, words)]) == 0
    config = config_of("rank", lists, run)
    model = dataclasses.replace(config.system.model, init=str(mentions.parent / "bert"))
    config = dataclasses.replace(config, system=dataclasses.replace(config.system, model=model))
    train(config, source_of(config, lists))
    words = ["--model", "tf-idf", "--benchmark", f"own={mentions}", "--split", "dev"]
    alone, _ = results_of(words, tmp_path / "alone.json", capsys)
    assert alone["scores"] == alone["folds"][_TF_IDF]["scores"]
    assert alone["encoder"]["model"] == "tf-idf" and alone["encoder"]["weights_hash"] is None
    assert read_records(tmp_path / "alone.json")[0].scores == alone["scores"]
    both = ["evaluate", *words, "--ranker", run, "--fusion", "rank", "mean"]
    assert main([*map(str, both), "--json", str(tmp_path / "both.json")]) == 0
    by_rank, by_both = json.loads((tmp_path / "both.json").read_text())["records"]
    assert by_rank["scoring"]["ordered by"] == "rank alone"
    for record in (by_rank, by_both):
        assert record["scores"]["recall@10"] == alone["scores"]["recall@10"]
        assert record["scores"]["number multi"] == record["scores"]["multi"] == 0.0
    data, terms = open_mentions(mentions), ["heart + renal disease"]
    stages = RecallAndRank(
        load_generators(["tf-idf"]),
        [load_ranker(run)],
        list(data.names.strings),
        data.name_concepts,
        Choice(fusion="rank"),
    )
    found = stages.answer(terms)
    shares = load_ranker(run).score(terms[0], [stages.names[name] for name in found.names[0]])
    np.testing.assert_allclose(found.scores[0], -np.sort(-shares), atol=1e-6)
    assert found.counts.tolist() == [1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["candidates", "--model", "tf-idf", "other", "--data", "{mentions}", "--out", "o"],
            "--model: found tf-idf and other, whose distances have no common measure; expected",
        ),
        (
            ["candidates", "--model", "tf-idf", "--folds", "--data", "{mentions}", "--out", "o"],
            "--folds: tf-idf is no run; expected runs of the recipe recall",
        ),
        (
            ["evaluate", "--pooling", "cls", "--benchmark", "a={mentions}"],
            "--pooling: tf-idf has no encoder; leave it out",
        ),
        (
            ["evaluate", "--benchmark", "a=m.tsv", "--dictionary", "d.tsv"],
            "--model: found tf-idf, but a is no folder of mentions; expected an encoder",
        ),
    ],
)
def test_what_tf_idf_cannot_do_is_refused(mentions, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    for name in ("m.tsv", "d.tsv"):
        (tmp_path / name).write_text("heart attack\tC1\nlimb pain\tC2\n")
    if words[0] == "evaluate":
        words = [*words, "--model", "tf-idf", "--json", "o.json"]
    assert main([word.format(mentions=mentions) for word in words]) == 2
    assert message in capsys.readouterr().err


def test_a_ranker_without_a_benchmark_of_mentions_is_refused(mentions, ranker, tmp_path, capsys):
    mine = tmp_path / "m.tsv"
    mine.write_text("heart attack\tC1\n")
    dictionary = tmp_path / "d.tsv"
    dictionary.write_text("heart attack\tC1\nlimb pain\tC2\n")
    words = ["--model", mentions.parent / "bert", "--ranker", ranker[0], "--json", tmp_path / "o"]
    words += ["--benchmark", f"a={mine}", "--dictionary", dictionary]
    assert main(["evaluate", *map(str, words)]) == 2
    assert "--ranker: found no benchmark that it answers" in capsys.readouterr().err


def test_normalize_writes_a_row_for_each_concept_that_is_meant(generator, ranker):
    dictionary = Dictionary(TERMS, CONCEPTS, "mine")
    by = staged_normalizer(load_generators([generator[0]]), [str(ranker[0])], dictionary, Choice())
    assert by.concepts == [["C1"], ["C2"], ["C4"], ["C3"]]
    given = ["attack of the heart", "limb PAIN", "n/a"]
    near, exact, nothing = by.answers(given)
    assert (near.status, exact.status, nothing.status) == (
        Status.NEAR,
        Status.TIED,
        Status.NO_ANSWER,
    )
    found = by.stages.answer(given[:1], 10)
    assert near.count == found.counts[0] == len(near.candidates)
    assert [one.concept for one in near.candidates] == [
        by.concepts[c][0] for c in found.concepts[0, : near.count]
    ]
    assert {one.concept for one in exact.candidates} <= {"C2", "C4"}
    assert len(by.answers(given[:1], 4)[0].candidates) == 4
    strict = staged_normalizer(
        load_generators([generator[0]]), [str(ranker[0])], dictionary, Choice(), threshold=1.0
    )
    assert strict.answers(given[:1])[0].reason.endswith("is less than 1")


def test_two_codes_of_one_name_are_one_candidate(generator, ranker, tmp_path, capsys):
    """Where each code has one name, names are the candidates, as in training on gold names."""
    codes = tmp_path / "code.txt"
    codes.write_text("01.1\theart attack\n02.1\trenal failure\n02.1x1\trenal failure\n03.1\tpain")
    by = staged_normalizer(
        load_generators([generator[0]]), [str(ranker[0])], read_dictionary(codes), Choice()
    )
    assert "read as concept<TAB>term" in capsys.readouterr().err
    assert by.stages.names == ["heart attack", "renal failure", "pain"]
    assert by.concepts == [["01.1"], ["02.1", "02.1x1"], ["03.1"]]
    (answer,) = by.answers(["failing kidneys"], 10)
    assert len({one.term for one in answer.candidates}) == len(answer.candidates) == 3
    tied = answer.candidates[0].concept == "02.1"
    assert (answer.status, answer.ties) == ((Status.TIED, 1) if tied else (Status.NEAR, 0))


@pytest.mark.parametrize(
    "flags, said",
    [
        (["-k", "11"], "-k 11: found more than the 10 candidates that recall and rank choose from"),
        (
            ["--review", "r.html"],
            "--review is for answers by the nearest term, and here recall and",
        ),
    ],
)
def test_what_recall_and_rank_cannot_do_is_refused(generator, tmp_path, capsys, flags, said):
    dictionary, listed = tmp_path / "d.tsv", tmp_path / "list.tsv"
    dictionary.write_text("term\tconcept\nheart attack\tC1\nlimb pain\tC2\n")
    listed.write_text("mine\nattack of the heart\n")
    words = ["--model", generator[0], "--dictionary", dictionary, "--column", "mine", listed]
    assert main(["normalize", *map(str, words), *flags, "--out", str(tmp_path / "o.csv")]) == 2
    assert said in capsys.readouterr().err


def test_normalize_takes_a_ranker(generator, ranker, tmp_path, capsys):
    dictionary = tmp_path / "d.tsv"
    lines = [f"{term}\t{concept}" for term, concept in zip(TERMS, CONCEPTS, strict=True)]
    dictionary.write_text("term\tconcept\n" + "\n".join(lines) + "\n")
    listed = tmp_path / "list.txt"
    listed.write_text("attack of the heart\nlimb pain\n")
    words = ["--model", generator[0], "--ranker", ranker[0], "--dictionary", dictionary, listed]
    assert main(["normalize", *map(str, words)]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    stages = staged_normalizer(
        load_generators([generator[0]]),
        [str(ranker[0])],
        Dictionary(TERMS, CONCEPTS, "mine"),
        Choice(),
    )
    (first,) = stages.answers(["attack of the heart"])
    assert [row[0] for row in rows] == ["attack of the heart"] * first.count + ["limb pain"]
    assert main(["normalize", "-k", "3", *map(str, words)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 3 + 3


@pytest.mark.parametrize("split", ["test", "train"])
def test_a_split_that_is_there_is_scored(mentions, split, tmp_path, capsys):
    words = ["--model", mentions.parent / "bert", "--benchmark", f"own={mentions}"]
    record, _ = results_of([*words, "--split", split], tmp_path / "out.json", capsys)
    assert record["scoring"]["split"] == split
    assert (_TRAINING in record["folds"]) == (split != "train")  # they would find themselves


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--precision", "0.9"], "--precision is for terms of a dictionary, but answers come from"),
        (["--dictionary-vectors", "v.npy"], "--dictionary-vectors is for terms of a dictionary"),
        (["--pooling", "cls"], "--pooling: .* is a run, which encodes as it was trained; export"),
    ],
)
def test_options_that_a_generator_would_pass_over_are_refused(
    generator, tmp_path, capsys, flags, words
):
    (tmp_path / "d.tsv").write_text("term\tconcept\nheart attack\tC1\n")
    (tmp_path / "m.txt").write_text("heart\n")
    given = ["--model", generator[0], "--dictionary", tmp_path / "d.tsv", tmp_path / "m.txt"]
    assert main(["normalize", *flags, *map(str, given)]) == 2
    assert re.search(words, capsys.readouterr().err)


def test_a_ranker_takes_the_candidates_of_any_encoder_with_its_pooling(mentions, ranker, tmp_path):
    words = ["--model", mentions.parent / "bert", "--ranker", ranker[0], "--split", "dev"]
    words += ["--benchmark", f"own={mentions}", "--pooling", "cls", "mean"]
    assert main(["evaluate", *map(str, words), "--json", str(tmp_path / "o.json")]) == 0
    records = json.loads((tmp_path / "o.json").read_text())["records"]
    assert [one["encoder"]["pooling"] for one in records] == ["cls", "mean"]


@pytest.mark.slow
def test_names_are_encoded_once_for_all_that_ask(
    mentions, generator, ranker, tmp_path, monkeypatch, capsys
):
    """By a run or its export, with vectors as they come out of the pooling."""
    monkeypatch.setenv("CODER_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vector_files, "LEAST_TERMS", 2)
    for module in (encoded_dictionary, vector_files):
        monkeypatch.setattr(module, "TERMS_PER_CHUNK", 3)  # as of many names
    names = list(open_mentions(mentions).names.strings)
    export = tmp_path / "export"
    assert main(["export", "--checkpoint", str(generator[0]), "--out", str(export)]) == 0
    data = ["--data", str(mentions), "-k", "3"]
    for model in (generator[0], export):
        one = load_generators([model])
        alone, kept = (one.encode_names(names, cache=cache)[0].vectors for cache in (False, True))
        np.testing.assert_array_equal(kept, alone)
        np.testing.assert_allclose(kept, one.encode(names)[0], rtol=1e-5, atol=1e-5)
        assert np.abs(np.linalg.norm(kept, axis=1) - 1).min() > 0.1
        given = ["--model", str(model)]
        commands = [
            ["candidates", *given, *data, "--out"],
            ["evaluate", *given, "--benchmark", f"chip={mentions}", "--split", "dev", "--json"],
            ["report", *given, "--mentions", str(mentions), "--ranker", str(ranker[0]), "--out"],
        ]
        capsys.readouterr()
        for words in commands:
            out = [str(tmp_path / f"{words[0]}.{'html' if words[0] == 'report' else 'x'}")]
            assert main([*words, *out]) == 0
            assert "read from the cache" in capsys.readouterr().err, words
            assert main([*words, *out, "--no-cache"]) == 0
            assert "cache" not in capsys.readouterr().err
    path = tmp_path / "terms.tsv"
    lines = [f"{term}\t{concept}\n" for term, concept in zip(TERMS, CONCEPTS, strict=True)]
    path.write_text("term\tconcept\n" + "".join(lines))
    (tmp_path / "list.txt").write_text("heart attacks\n")
    words = ["normalize", *given, "--dictionary", str(path), str(tmp_path / "list.txt")]
    for said in ("kept in the cache", "read from the cache"):
        assert main([*words, "--out", str(tmp_path / "coded.csv")]) == 0
        assert said in capsys.readouterr().err
