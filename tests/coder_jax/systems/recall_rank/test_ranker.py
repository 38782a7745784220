"""The ranker: its masks loop by loop, pairs packed as alone, and the same in PyTorch."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from mention_run import STEPS, config_of, source_of
from short_run import Stops, assert_same_parameters, lines_of
from tiny_bert import TINY
from transformers import AutoTokenizer

from coder_jax.__main__ import main
from coder_jax.export.verify import load_module
from coder_jax.models.bert_layers import AttentionMask, Layer
from coder_jax.models.hf_weights import random_bert
from coder_jax.models.packed.probes import Probes
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.recall_rank.prediction.models import load_generator, load_ranker
from coder_jax.systems.recall_rank.prediction.recall_and_rank import RecallAndRank
from coder_jax.systems.recall_rank.prediction.score_pairs import distinct_pairs, probabilities
from coder_jax.systems.recall_rank.prediction.stages import has_stages
from coder_jax.systems.recall_rank.prediction.term_ranker import TermRanker
from coder_jax.training.proof import PROOF, check_proof
from coder_jax.training.train import train
from data_pipeline.batches.mentions.pairs import Pairs
from data_pipeline.batches.mentions.rank import RankBatches
from data_pipeline.process.errors import BadInput

RNG = np.random.default_rng(1)
HEAD = {
    "kernel": RNG.normal(0, 0.3, (TINY.hidden_size, 1)).astype(np.float32),
    "bias": np.full(1, 0.1, np.float32),
}


def random_pairs(count):
    """Pairs of random tokens and kinds, of two probes."""
    lengths = RNG.integers(8, 30, count)
    start = np.concatenate([[0], np.cumsum(lengths)])
    kinds = RNG.choice([1, 1, 1, 3, 5, 7], start[-1])
    types = RNG.integers(0, 2, start[-1])
    for first in start[:-1]:
        kinds[first : first + 3] = 1, 2, 4
    tokens = RNG.integers(0, TINY.vocab_size, start[-1])
    return Pairs(*(array.astype(np.int32) for array in (tokens, kinds, types)), start)


def one(pairs, number):
    within = slice(*pairs.start[number : number + 2])
    return Pairs(*(array[within] for array in pairs[:3]), np.array([0, within.stop - within.start]))


@pytest.mark.parametrize("mask", ["after", "before"])
def test_a_pair_scores_packed_as_alone(mask):
    bert, pairs = random_bert(TINY, seed=3, dtype=jnp.float32), random_pairs(40)
    together = probabilities(bert, HEAD, pairs, probes=2, mask=mask)
    alone = [
        probabilities(bert, HEAD, one(pairs, number), probes=2, mask=mask)[0]
        for number in (0, 7, 39)
    ]
    np.testing.assert_allclose(together[[0, 7, 39]], alone, atol=1e-5)
    assert np.ptp(together) > 0.05
    other = probabilities(bert, HEAD, pairs, probes=2, mask={"after": "before"}.get(mask, "after"))
    assert np.abs(other - together).max() > 1e-3


def test_equal_pairs_are_scored_once():
    """They differ if any token, kind or type does."""
    single = random_pairs(5)
    length = int(single.start[1])
    rows = [0, 1, 0, 2, 1, 0]
    parts = [one(single, number) for number in rows]
    parts += [one(single, 0)._replace(types=1 - single.types[:length])]
    start = np.concatenate([[0], np.cumsum([part.start[1] for part in parts])])
    pairs = Pairs(*(np.concatenate([part[field] for part in parts]) for field in range(3)), start)
    first, place = distinct_pairs(pairs)
    assert first.tolist() == [0, 1, 3, 6] and place.tolist() == [0, 1, 0, 2, 1, 0, 3]
    bert = random_bert(TINY, seed=3, dtype=jnp.float32)
    found = probabilities(bert, HEAD, pairs, probes=2, mask="after")
    alone = probabilities(bert, HEAD, single, probes=2, mask="after")
    np.testing.assert_allclose(found[:-1], alone[rows], atol=1e-5)
    assert found[0] == found[2] == found[5] != found[6]


def test_what_a_token_sees_is_a_loop_over_kinds_and_segments():
    """Text sees text; a probe itself and the words of its kind; [CLS] the text and no probe."""
    kinds = np.array([[1, 2, 4, 1, 3, 5, 7, 1]])
    sees = np.asarray(
        Probes(kinds=jnp.asarray(kinds), types=jnp.zeros((1, 8), int), number=2).sees()
    )
    for i in range(8):
        for j in range(8):
            assert sees[0, i, j] == any(kinds[0, i] >> k & kinds[0, j] >> k & 1 for k in range(3))
    assert np.flatnonzero(sees[0, 0]).tolist() == [0, 3, 4, 5, 6, 7]
    assert np.flatnonzero(sees[0, 1]).tolist() == [1, 4, 6]
    assert np.flatnonzero(sees[0, 2]).tolist() == [2, 5, 6]


def test_equation_9_normalized_again_is_the_mask_before_the_softmax():
    layer = Layer(TINY, dtype=jnp.float32, rngs=nnx.Rngs(0))
    x = jnp.asarray(RNG.normal(size=(1, 8, TINY.hidden_size)), jnp.float32)
    sees = jnp.asarray(RNG.random((1, 1, 8, 8)) < 0.5) | jnp.eye(8, dtype=bool)[None, None]
    zero, places = jnp.zeros((1, 1, 8, 8)), jnp.arange(8)[None]

    def attended(mask):
        return np.asarray(layer.attend(x, mask, places, None, 0))

    before = attended(AttentionMask(jnp.where(sees, 0.0, -1e30)))
    after = attended(AttentionMask(zero, sees.astype(jnp.float32)))
    # The share of its attention that each token keeps, head by head.
    width, heads = TINY.hidden_size, TINY.num_heads
    query, key, _ = np.moveaxis(
        np.asarray(layer.qkv(x), float).reshape(8, 3, heads, width // heads), 1, 0
    )
    logits = np.einsum("qhk,vhk->hqv", query, key) / (width // heads) ** 0.5
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    kept = (shares * np.asarray(sees)[0]).sum(-1)  # [H, L]
    again = after.reshape(8, heads, -1) / kept.T[:, :, None]
    np.testing.assert_allclose(again.reshape(1, 8, -1), before, atol=1e-5)
    assert np.abs(after - before).max() > 1e-2


def test_it_learns_and_is_scored_by_both_and_alone(ranker):
    out, result = ranker
    losses = [line["loss"] for line in lines_of(out / "metrics.jsonl") if "loss" in line]
    assert losses[-1] < losses[0]
    assert {"accuracy", "rank alone", "recall@5"} <= result.scores["dev"].keys()


def test_stopped_and_gone_on_with_it_is_bitwise_the_straight_run(
    lists, ranker, tmp_path, on_one_device
):
    given = config_of("rank", lists, tmp_path / "run")
    with pytest.raises(ConnectionError):
        train(given, Stops(source_of(given, lists), 6))
    train(given, source_of(given, lists))
    ours, theirs = load_run(tmp_path / "run", STEPS)[1], load_run(ranker[0], STEPS)[1]
    assert_same_parameters(ours.params, theirs.params)


def in_torch(export):
    """What scores candidates by the module that lies in an export."""
    ranker = load_module(export / "term_ranker.py").TermRanker(export)
    return lambda mention, candidates: ranker.score(mention, candidates).numpy()


@pytest.mark.parametrize("mask", ["after", "before"])
def test_its_export_scores_as_the_run_does_and_as_pytorch_does(ranker, tmp_path, mask):
    system, run = load_run(ranker[0])
    system = dataclasses.replace(system, mask=mask)
    differences = system.export(run, tmp_path / "export")
    assert differences["probabilities in PyTorch"] <= 1e-5
    ours, theirs = system.trained(run).tables["ranker"], load_ranker(tmp_path / "export")
    given = "chronic heart attack, of the limb", ["heart attack", "limb pain", ""]
    expected = ours.score(*given)
    np.testing.assert_allclose(theirs.score(*given), expected, atol=1e-6)
    np.testing.assert_allclose(in_torch(tmp_path / "export")(*given), expected, atol=1e-5)
    assert ours.keywords.words == theirs.keywords.words and ours.keywords.kinds == ["site", "type"]


def test_its_export_cleans_by_the_rules_of_its_mentions(ranker, tmp_path):
    """Keywords, too: "heart failure" is one, "Heart-Failure" is none before it is cleaned."""
    system, run = load_run(ranker[0])
    dataset = {**run.identity["dataset"], "cleaning": "paper"}
    run = dataclasses.replace(run, identity={**run.identity, "dataset": dataset})
    out = tmp_path / "export"
    system.export(run, out)
    assert json.loads((out / "ranker.json").read_text())["cleaning"] == "paper"
    raw = "Acute Heart-Failure NOS (old)", ["Heart (old) disease", "limb-pain", "renal failure"]
    cleaned = "acute heart failure", ["heart disease", "limb pain", "renal failure"]
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer(raw[0])["input_ids"] == tokenizer(cleaned[0])["input_ids"]
    opened = load_ranker(out)
    assert isinstance(opened, TermRanker) and opened.cleaning == "paper"
    expected = load_ranker(ranker[0]).score(*cleaned)  # of rules that leave these as they are
    for score in (opened.score, in_torch(out)):
        np.testing.assert_allclose(score(*raw), expected, atol=1e-5)
    assert np.abs(load_ranker(ranker[0]).score(*raw) - expected).max() > 1e-3


def test_both_stages_answer_with_as_many_concepts_as_there_are(lists, generator, ranker):
    data = RankBatches(lists, config_of("rank", lists, "x").system.batch).dataset
    names = list(data.names.strings)
    stages = load_generator(generator[0]), [load_ranker(ranker[0])]
    both = RecallAndRank(*stages, names, data.name_concepts)
    mentions = ["attack of the heart", "renal and heart disease"]
    found = both.answer(mentions, 5)
    assert [len(answer) for answer in found.answers()] == found.counts.tolist()
    for row, mention in enumerate(mentions):
        probability = both.rankers[0].score(mention, [names[n] for n in found.names[row]])
        np.testing.assert_allclose(found.rank[row], probability, atol=1e-6)
    np.testing.assert_allclose(found.scores, (found.recall + found.rank) / 2)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    twice = RecallAndRank(stages[0], stages[1] * 2, names, data.name_concepts).answer(mentions, 5)
    np.testing.assert_allclose(twice.rank, found.rank, atol=1e-7)  # the mean over rankers


def test_a_ranker_by_its_name_in_python(ranker, lists, tmp_path):
    import coder_jax

    system, run = load_run(ranker[0])
    system.export(run, tmp_path / "export")
    given = "attack of the heart", ["heart attack", "limb pain"]
    here = load_ranker(ranker[0]).score(*given)
    assert here.shape == (2,)
    with pytest.raises(BadInput, match="is a training run; expected a model: make one of it with"):
        coder_jax.TermRanker.from_pretrained(ranker[0])
    there = coder_jax.TermRanker.from_pretrained(tmp_path / "export").score(*given)
    np.testing.assert_allclose(there, here, atol=1e-5)


def test_an_export_of_the_hub_is_known_as_what_it_is(ranker, generator, tmp_path, monkeypatch):
    """By its files, which are fetched with the weights."""
    asked = []

    def fetched(hub_id, allow_patterns):
        asked.append(allow_patterns)
        return str(tmp_path / hub_id.partition("/")[2])

    for name, stage in (("recall", generator), ("rank", ranker)):
        system, run = load_run(stage[0])
        system.export(run, tmp_path / name)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fetched)
    assert has_stages(["org/recall"], [])
    assert load_generator("org/recall").number is not None
    assert load_ranker("org/rank").score("heart attack", ["heart attack"]).shape == (1,)
    for file in ("generator.safetensors", "ranker.safetensors", "keywords.tsv"):
        assert all(file in patterns for patterns in asked)


def test_what_is_no_ranker_or_generator_is_named(generator, ranker, mentions):
    with pytest.raises(BadInput, match="found a run of the system 'recall'; expected a run of the"):
        load_ranker(generator[0])
    with pytest.raises(BadInput, match="found no ranker; expected a run of the recipe rank"):
        load_ranker(mentions.parent / "bert")
    with pytest.raises(BadInput, match="is a ranker; expected a generator or an encoder"):
        load_generator(ranker[0])


def test_candidates_are_not_written_over_mentions_or_other_folders(mentions, generator, tmp_path):
    words = ["candidates", "--model", str(generator[0]), "--data", str(mentions), "--out"]
    assert main([*words, str(mentions)]) == 2
    (tmp_path / "mine.txt").write_text("mine")
    assert main([*words, str(tmp_path)]) == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert main([*words, str(tmp_path / "new"), "-k", "1"]) == 2
    assert not (tmp_path / "new").exists()


def test_a_ranker_of_mentions_without_candidates_is_refused(mentions):
    with pytest.raises(BadInput, match="has no candidates of its mentions of train; expected what"):
        source_of(config_of("rank", mentions, "x"), mentions)


def test_it_can_begin_with_the_encoder_of_a_generator_s_run(lists, generator, capsys):
    config = config_of("rank", lists, "x")
    model = dataclasses.replace(config.system.model, init=str(generator[0]))
    system = dataclasses.replace(config.system, model=model)
    about, initial = system.start(source_of(config, lists), None)
    _, run = load_run(generator[0])
    assert about["encoder"]["run"]["step"] == run.step
    said = "".join(capsys.readouterr())
    assert "starting with the encoder of step" in said and "--pooling" not in said
    assert initial.keys() == {"encoder"}
    for ours, theirs in zip(
        jax.tree.leaves(initial["encoder"]), jax.tree.leaves(run.params["encoder"]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_an_encoder_without_token_types_is_refused(lists):
    system = config_of("rank", lists, "x").system
    with pytest.raises(BadInput, match="has 1 token type; a ranker reads pairs"):
        system.about({"config": TINY.to_hf() | {"type_vocab_size": 1}}, {"keyword_kinds": []})


@pytest.mark.parametrize(
    ("name", "pooling", "said"),
    [
        ("rank", "mean", "mean over \\[CLS\\] and the probes"),
        ("recall", "pooler", "no way to train"),
    ],
)
def test_a_pooling_that_would_not_be_learnt_is_refused(mentions, name, pooling, said):
    config = config_of(name, mentions, "x")
    model = dataclasses.replace(config.system.model, pooling=pooling)
    config.system.validate(config.optimizer)
    with pytest.raises(BadInput, match=f"--pooling {pooling}.*{said}"):
        dataclasses.replace(config.system, model=model).validate(config.optimizer)


def test_a_run_proves_its_ranks(ranker):
    """What the ranker answers is compared with what training gave."""
    system, run = load_run(ranker[0])
    terms = run.notes[PROOF]["terms"]
    assert len(terms) > 1 and check_proof(lambda terms: system.answers(run, terms), run, "the run")
    changed = {**run.params["score"], "kernel": 1.1 * run.params["score"]["kernel"]}
    other = dataclasses.replace(run, params={**run.params, "score": changed})
    with pytest.raises(BadInput, match="the run gives other probabilities than training gave"):
        check_proof(lambda terms: system.answers(other, terms), other, "the run")
