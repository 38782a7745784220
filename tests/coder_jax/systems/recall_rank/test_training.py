"""The generator: negatives of the encoder of the moment, the same on any devices, bitwise again."""

import dataclasses
import json
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from mention_run import STEPS, config_of, source_of
from msgspec.structs import replace
from short_run import Stops, assert_same_parameters, lines_of
from tiny_bert import TINY, UNUSED, write_model
from tiny_mentions import mentions_of_codes
from transformers import AutoTokenizer

from coder_jax.__main__ import main
from coder_jax.devices.mesh import put_batch
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.folder import load_module
from coder_jax.models.bert import AttentionMask, Probes, _Layer
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.encoder_system import EncoderOfRun
from coder_jax.systems.recall_rank.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.ranking import (
    RecallAndRank,
    TermRanker,
    _distinct_pairs,
    place_ranker,
    probabilities,
)
from coder_jax.systems.trained_models import (
    _load_generator,
    has_stages,
    load_generators,
    load_ranker,
    load_run,
)
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.system import check_proof
from coder_jax.training.train import train
from data_pipeline.batches.mentions import NAMES, NEGATIVES, Pairs, RankBatches, RecallBatches
from data_pipeline.dataset.mentions import open_mentions
from data_pipeline.process import BadInput


def test_an_epoch_s_negatives_are_the_nearest_names_of_others(mentions, generator, tmp_path):
    """Found by hand with the checkpoint before the last epoch."""
    out, _ = generator
    config = config_of("recall", mentions, out)
    source = source_of(config, mentions)
    assert config.system.resolved_for(source).refresh_steps == source.steps_per_epoch == 2
    last = STEPS - 2
    found = np.load(out / "index" / str(last) / NEGATIVES)
    data = source.dataset
    gold = data.splits["train"].gold_sets()
    for pair, row in enumerate(found):
        assert not set(data.name_concepts[row].tolist()) & gold[source.mention_of[pair]]
    # the same encoder again
    system, run = load_run(out, last)
    encoder = system.trained(run).encoder
    vectors = encoder.encode(list(data.names.strings), unit=False).astype(float)
    queries = encoder.encode(list(data.splits["train"].mentions.strings), unit=False).astype(float)
    for pair, row in enumerate(found):
        mention = source.mention_of[pair]
        order = np.argsort(np.linalg.norm(queries[mention] - vectors, axis=1))
        others = [name for name in order if data.name_concepts[name] not in gold[mention]]
        assert row.tolist() == others[:2]
    assert sorted(int(path.name) for path in (out / "index").iterdir()) == [last - 2, last]


@pytest.mark.slow
def test_the_own_names_of_an_epoch_are_the_nearest_ones(tmp_path, on_one_device):
    """Found by hand with the checkpoint before the last epoch."""
    write_model(tmp_path / "bert", more=UNUSED)
    data = mentions_of_codes(tmp_path)
    out = tmp_path / "run"
    config = config_of("recall", data.folder, out)
    source = source_of(config, data.folder)
    last = source.names = source.own.best(np.arange(len(source.own.names), dtype=float))
    train(config, source)
    assert source.steps_per_epoch == 1
    assert np.load(out / "index" / str(STEPS - 2) / NAMES).dtype == np.int32
    system, run = load_run(out, STEPS - 1)
    encoder = system.trained(run).encoder
    vectors = encoder.encode(list(data.names.strings), unit=False).astype(float)
    queries = encoder.encode(list(data.splits["train"].mentions.strings), unit=False).astype(float)
    first, expected = data.name_start(), []
    for mention, concept in zip(source.mention_of, source.concept_of, strict=True):
        own = vectors[first[concept] : first[concept + 1]]
        expected.append(first[concept] + np.linalg.norm(own - queries[mention], axis=1).argmin())
    assert np.load(out / "index" / str(STEPS - 1) / NAMES).tolist() == expected != last.tolist()


@pytest.mark.slow
def test_a_refresh_takes_the_vectors_that_an_evaluation_of_its_step_has_made(
    mentions, generator, tmp_path, on_one_device, encoded
):
    """Names are encoded once for both; what is found is what a refresh alone finds."""
    config = config_of("recall", mentions, tmp_path / "run", run={"eval_steps": 6})
    source = source_of(config, mentions)
    train(config, source)
    # evaluations after 0, 6 and 8 steps; refreshes after 2, 4 and 6
    assert encoded.count(len(source.dataset.names.strings)) == 5
    for step in (STEPS - 4, STEPS - 2):  # the other run is evaluated after 4 steps
        one, other = (
            np.load(out / "index" / str(step) / NEGATIVES)
            for out in (tmp_path / "run", generator[0])
        )
        np.testing.assert_array_equal(one, other)


def test_it_learns_and_the_best_by_accuracy_is_kept(generator):
    out, result = generator
    losses = [line["loss"] for line in lines_of(out / "metrics.jsonl") if "loss" in line]
    assert losses[-1] < losses[0]
    scores = {"accuracy", "uni", "multi", "number", "recall@1", "recall@2", "recall@5", "recall@10"}
    assert result.scores["dev"].keys() == scores


@pytest.mark.slow
def test_the_number_can_be_learnt_alone_and_chooses_the_checkpoint(
    mentions, tmp_path, on_one_device
):
    """Table 8, "BERT alone"."""
    for weight in (0.0, 0.5):
        out = tmp_path / str(weight)
        batch = {"negatives": "random"}
        config = config_of("recall", mentions, out, batch=batch, triplet_weight=weight)
        train(config, source_of(config, mentions))
        logged = lines_of(out / "metrics.jsonl")
        for line in logged:
            if "loss" in line:
                total = weight * line["loss_triplet"] + line["loss_number"]
                assert line["loss"] == pytest.approx(total, rel=1e-5) and line["loss_triplet"] > 0
        chosen_by = "accuracy" if weight else "number"
        scores = {line["step"]: line["eval"]["dev"][chosen_by] for line in logged if "eval" in line}
        del scores[0]
        best = max(scores, key=lambda step: (scores[step], -step))
        assert load_run(out)[1].notes.best == (best, scores[best])


def test_a_generator_without_a_loss_is_refused(mentions):
    config = config_of("recall", mentions, "x", triplet_weight=0.0, number_weight=0.0)
    with pytest.raises(BadInput, match="--number-weight are 0: found no loss to train by"):
        config.system.validate(config.optimizer)


# Within an epoch; before the first step of one, after an evaluation of the same step or without.
@pytest.mark.slow
@pytest.mark.parametrize("at", [4, 5, 6])
def test_stopped_and_gone_on_with_it_is_bitwise_the_straight_run(
    mentions, generator, tmp_path, on_one_device, at
):
    given = config_of("recall", mentions, tmp_path / "run")
    with pytest.raises(ConnectionError):
        train(given, Stops(source_of(given, mentions), at))
    train(given, source_of(given, mentions))
    ours, theirs = load_run(tmp_path / "run", STEPS)[1], load_run(generator[0], STEPS)[1]
    assert_same_parameters(ours.params, theirs.params)
    for step in (STEPS - 4, STEPS - 2):
        one, other = (
            (out / "index" / str(step) / NEGATIVES).read_bytes()
            for out in (tmp_path / "run", generator[0])
        )
        assert one == other


def steps_on(stage, folder, devices=1, steps=3, how=None, **optimizer):
    """(losses, parameters, those before) of some steps with fixed negatives on some devices."""
    batch = {"negatives": "random"} if stage == "recall" else None
    config = config_of(stage, folder, "x", batch=batch, run=how or {})
    # Adam divides by the size of a gradient: of one near 0 it would show the rounding.
    changed = dataclasses.replace(config.optimizer, eps=1e-3, **optimizer)
    config = dataclasses.replace(config, optimizer=changed)
    system = config.system
    start, initial = system.load_initial(source_of(config, folder))
    packed = {"recall": RecallBatches, "rank": RankBatches}[stage].packed
    step = make_step(config, start, packed, devices=jax.devices()[:devices])
    state = new_state(step.like, system, initial, step.parts, step.optimizer)
    source = system.open(folder, step.cut, rows=0, steps=STEPS)
    step.compile(source, source.plan.ample)
    losses = []
    for batch in source.batches(0, steps):
        placed = put_batch(step.mesh, step.cut, batch, source.packed)
        state, metrics = step(state, placed, source.plan.ample)
        losses.append(float(metrics["loss"]))
    return losses, jax.device_get(state.params), initial


@pytest.mark.slow
def test_the_pooler_that_is_trained_decays(mentions):
    """The first step of AdamW: with a decay, less by rate x decay x what was there."""
    decay, rate = 0.5, 1e-3  # of `config_of`
    (_, none, start), (_, some, _) = (
        steps_on("recall", mentions, steps=1, weight_decay=one) for one in (0.0, decay)
    )
    none, some, start = (params["encoder"]["pooler"] for params in (none, some, start))
    assert np.abs(none["kernel"] - start["kernel"]).min() > 0, "the number of concepts moves it"
    expected = none["kernel"] - rate * decay * start["kernel"]
    np.testing.assert_allclose(some["kernel"], expected, rtol=0, atol=1e-7)
    assert np.abs(some["kernel"] - none["kernel"]).max() > 1e-5
    # Two programs: they may round otherwise. With a decay it would be 1e-5 and more.
    np.testing.assert_allclose(some["bias"], none["bias"], rtol=0, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "devices", "how"),
    [
        ("recall", 4, {}),
        ("recall", 2, {"passes": 2, "cache_chunks": 2}),
        ("recall", 1, {"cache_chunks": 3, "remat": "layers"}),
        ("rank", 2, {"passes": 2, "cache_chunks": 2}),
        ("rank", 1, {"cache_chunks": 3, "remat": "dots"}),
    ],
)
def test_devices_passes_chunks_and_remat_change_nothing(mentions, request, stage, devices, how):
    folder = mentions if stage == "recall" else request.getfixturevalue("lists")
    losses, params, _ = steps_on(stage, folder)
    again, others, _ = steps_on(stage, folder, devices, how=how)
    assert again == pytest.approx(losses, rel=1e-6)
    for ours, theirs in zip(jax.tree.leaves(others), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_its_export_finds_the_same_candidates(mentions, generator, tmp_path):
    system, run = load_run(generator[0])
    differences = system.export(run, tmp_path / "export")
    assert differences and max(differences.values()) <= 1e-5
    ours, theirs = _load_generator(generator[0]), _load_generator(tmp_path / "export")
    data = source_of(config_of("recall", mentions, "x"), mentions).dataset
    names, mentions = list(data.names.strings), ["attack of the heart", "x"]
    one, other = (
        by.lists(mentions, by.encode_names(names), data.name_concepts, 4) for by in (ours, theirs)
    )
    np.testing.assert_array_equal(one.names, other.names)
    np.testing.assert_allclose(one.distances, other.distances, rtol=1e-5)
    np.testing.assert_allclose(one.numbers, other.numbers, atol=1e-6)
    assert one.numbers.shape == (2, 3)
    np.testing.assert_allclose(one.numbers.sum(1), 1, atol=1e-6)


def test_any_encoder_is_a_generator_of_one_concept_by_its_cosine(mentions):
    encoder = TermEncoder.from_pretrained(mentions.parent / "bert", "mean")
    generator = CandidateGenerator(encoder)
    names = generator.encode_names(["limb pain", "heart attack"])
    found = generator.lists(["heart"], names, np.arange(2))
    assert found.numbers.tolist() == [[1.0]]
    cosine = encoder.encode(["heart"])[0] @ encoder.encode(["limb pain", "heart attack"]).T
    np.testing.assert_allclose(
        found.distances[0], np.sort(np.sqrt(2 - 2 * cosine.astype(float))), rtol=1e-4
    )


def test_without_mentions_to_choose_by_it_is_refused(mentions, generator):
    config = config_of("recall", mentions, "x")
    source = source_of(config, mentions)
    splits = {name: part for name, part in source.dataset.splits.items() if name != "dev"}
    source.dataset = dataclasses.replace(source.dataset, splits=splits)
    with pytest.raises(
        BadInput, match="has no mentions to choose the best checkpoint by; build it with --dev"
    ):
        config.system.scorer(source, config.run)


def test_a_run_proves_its_numbers(generator):
    """What the head of the number of concepts answers is compared with what training gave."""
    system, run = load_run(generator[0])
    terms = run.notes.proof.terms
    assert len(terms) > 1 and check_proof(
        lambda terms: system.saved_outputs(run, terms), run, "the run"
    )
    changed = {**run.params["number"], "kernel": 1.1 * run.params["number"]["kernel"]}
    other = dataclasses.replace(run, params={**run.params, "number": changed})
    with pytest.raises(BadInput, match="the run gives other numbers than training gave"):
        check_proof(lambda terms: system.saved_outputs(other, terms), other, "the run")


# -------------------------------------------------------------------------------------------------
# The ranker: its masks loop by loop, pairs packed as alone, and the same in PyTorch.

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
    answers = place_ranker(bert, HEAD, probes=2, mask=mask)
    together = probabilities(answers, pairs)
    alone = [probabilities(answers, one(pairs, number))[0] for number in (0, 7, 39)]
    np.testing.assert_allclose(together[[0, 7, 39]], alone, atol=1e-5)
    assert np.ptp(together) > 0.05
    other_mask = {"after": "before"}.get(mask, "after")
    other = probabilities(place_ranker(bert, HEAD, probes=2, mask=other_mask), pairs)
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
    first, place = _distinct_pairs(pairs)
    assert first.tolist() == [0, 1, 3, 6] and place.tolist() == [0, 1, 0, 2, 1, 0, 3]
    bert = random_bert(TINY, seed=3, dtype=jnp.float32)
    answers = place_ranker(bert, HEAD, probes=2, mask="after")
    found, alone = probabilities(answers, pairs), probabilities(answers, single)
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
    layer = _Layer(TINY, dtype=jnp.float32, rngs=nnx.Rngs(0))
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


@pytest.mark.slow
def test_stopped_and_gone_on_with_it_is_bitwise_the_straight_run_of_ranker(
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
    ranker = load_module(export / "term_ranker.py").TorchTermRanker(export)
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
    stages = _load_generator(generator[0]), [load_ranker(ranker[0])]
    both = RecallAndRank(*stages, names, data.name_concepts)
    mentions = ["attack of the heart", "renal and heart disease"]
    found = both.answer(mentions, 5)
    assert [len(answer) for answer in found.answers()] == found.counts.tolist()
    for row, mention in enumerate(mentions):
        probability = both.rankers[0].score(mention, [names[n] for n in found.names[row]])
        np.testing.assert_allclose(found.rank[row, :, 0], probability, atol=1e-6)
    np.testing.assert_allclose(found.scores, (found.recall + found.rank[..., 0]) / 2)
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
    assert _load_generator("org/recall").number is not None
    assert load_ranker("org/rank").score("heart attack", ["heart attack"]).shape == (1,)
    for file in ("generator.safetensors", "ranker.safetensors", "keywords.tsv"):
        assert all(file in patterns for patterns in asked)


def test_what_is_no_ranker_or_generator_is_named(generator, ranker, mentions):
    with pytest.raises(BadInput, match="found a run of the system 'recall'; expected a run of the"):
        load_ranker(generator[0])
    with pytest.raises(BadInput, match="found no ranker; expected a run of the recipe rank"):
        load_ranker(mentions.parent / "bert")
    with pytest.raises(BadInput, match="is a ranker; expected a generator or an encoder"):
        _load_generator(ranker[0])


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
    about, initial = system.load_initial(source_of(config, lists), None)
    _, run = load_run(generator[0])
    assert about.encoder.run.step == run.step
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
        config = TINY.to_hf() | {"type_vocab_size": 1}
        system.content.start_of(EncoderOfRun(config=config, pooler=False, license=None), None)


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
    terms = run.notes.proof.terms
    assert len(terms) > 1 and check_proof(
        lambda terms: system.saved_outputs(run, terms), run, "the run"
    )
    # Before there were three answers, a proof had one probability for each term.
    flat = {"probabilities": np.ravel(run.notes.proof.outputs["probabilities"]).tolist()}
    proof = dataclasses.replace(run.notes.proof, outputs=run.notes.proof.outputs | flat)
    before = dataclasses.replace(run, notes=replace(run.notes, proof=proof))
    assert check_proof(lambda terms: system.saved_outputs(before, terms), before, "the run")
    changed = {**run.params["score"], "kernel": 1.1 * run.params["score"]["kernel"]}
    for old in (run, before):
        other = dataclasses.replace(old, params={**run.params, "score": changed})
        with pytest.raises(BadInput, match="the run gives other probabilities than training gave"):
            check_proof(partial(system.saved_outputs, other), other, "the run")


# -------------------------------------------------------------------------------------------------
# The report of both stages: candidates of a generator and ranks, from a run or from lists.


def lists_in(page, what):
    """(number, name) of the candidates of each mention that the page shows."""
    cells = re.findall(rf'<td data-by="{what}">(.*?)</td>', page.read_text(), re.DOTALL)
    item = re.compile(
        r'<li><span class="number">([\d.]+)</span> (?:<span class="unit">[\d.]+</span> )?([^<]+)'
    )
    return [[(n, name.strip()) for n, name in item.findall(cell)] for cell in cells]


@pytest.mark.slow
def test_a_ranker_shows_its_lists_and_a_generator_finds_them(
    mentions, lists, generator, ranker, tmp_path
):
    of_lists, of_run = tmp_path / "lists.html", tmp_path / "run.html"
    words = ["report", "--model", str(ranker[0]), "--mentions", str(lists)]
    assert main([*words, "--out", str(of_lists)]) == 0
    words = ["report", "--model", str(generator[0]), "--ranker", str(ranker[0])]
    assert main([*words, "--mentions", str(mentions), "--out", str(of_run)]) == 0
    data = open_mentions(mentions)
    names = list(data.names.strings)
    stages = RecallAndRank(
        load_generators([generator[0]]), [load_ranker(ranker[0])], names, data.name_concepts
    )
    found = stages.answer(["heart + renal disease", "renal"])  # of several concepts first
    expected = [
        [(f"{score:.2f}", names[name]) for score, name in zip(scores, row, strict=True)]
        for scores, row in zip(found.scores, found.names, strict=True)
    ]
    assert lists_in(of_run, "by score, and probability") == expected
    vectors = stages.generator.encode_names(names)
    near = stages.generator.lists(["heart + renal disease"], vectors, data.name_concepts, 5)
    for page, count in ((of_run, 10), (of_lists, 5)):
        first, _ = lists_in(page, "candidates by distance")
        assert len(first) == count
        assert [name for _, name in first[:5]] == [names[name] for name in near.names[0]]
        np.testing.assert_allclose([float(d) for d, _ in first[:5]], near.distances[0], atol=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "{generator}", "--ranker", "{ranker}"], "found no folder of mentions"),
        (
            ["--model", "{ranker}", "--ranker", "{ranker}", "--mentions", "{lists}"],
            "rank, a ranker itself",
        ),
        (["--model", "{ranker}", "--mentions", "{mentions}"], "has no candidates of its mentions"),
    ],
)
def test_what_cannot_be_shown_is_named(
    mentions, lists, generator, ranker, tmp_path, capsys, words, message
):
    paths = {"mentions": mentions, "lists": lists, "generator": generator[0], "ranker": ranker[0]}
    given = [word.format(**paths) for word in words]
    assert main(["report", *given, "--out", str(tmp_path / "r.html")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
