"""The generator: negatives of the encoder of the moment, the same on any devices, bitwise again."""

import dataclasses

import jax
import numpy as np
import pytest
from mention_run import STEPS, config_of, source_of
from short_run import Stops, assert_same_parameters, lines_of
from tiny_bert import TINY, UNUSED, write_model
from tiny_mentions import mentions_of_codes

from coder_jax.devices.mesh import put_batch
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_weights import random_bert
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.recall_rank.prediction.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.prediction.models import load_generator
from coder_jax.training.proof import PROOF, check_proof
from coder_jax.training.state import new_state
from coder_jax.training.step import make_step
from coder_jax.training.train import train
from data_pipeline.batches.mentions.recall import NAMES, NEGATIVES, RecallBatches
from data_pipeline.process.errors import BadInput


def test_an_epoch_s_negatives_are_the_nearest_names_of_others(mentions, generator, tmp_path):
    """Found by hand with the checkpoint before the last epoch."""
    out, _ = generator
    config = config_of("recall", mentions, out)
    source = source_of(config, mentions)
    assert config.system.fitted(source).refresh_steps == source.steps_per_epoch == 2
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


# Within an epoch; before the first step of one, after an evaluation of the same step or without.
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


def steps_on(mentions, devices, passes=1):
    """(losses, parameters) of three steps with fixed negatives on some devices."""
    config = config_of(
        "recall", mentions, "x", batch={"negatives": "random"}, run={"passes": passes}
    )
    # Adam divides by the size of a gradient: of one near 0 it would show the rounding.
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, eps=1e-3))
    system = config.system
    about = {"encoder": {"config": TINY.to_hf(), "pooler": True}}
    step = make_step(config, about, RecallBatches.packed, devices=jax.devices()[:devices])
    encoder = split_encoder(random_bert(TINY, seed=0, dtype="float32"))[1]
    state = new_state(step.like, system, {"encoder": encoder}, step.parts, step.optimizer)
    source = RecallBatches(mentions, system.batch, step.cut)
    step.compile(source, source.plan.ample)
    losses = []
    for batch in source.batches(0, 3):
        placed = put_batch(step.mesh, step.cut, batch, source.packed)
        state, metrics = step(state, placed, source.plan.ample)
        losses.append(float(metrics["loss"]))
    return losses, jax.device_get(state.params)


@pytest.mark.parametrize(
    ("devices", "passes"), [pytest.param(4, 1, marks=pytest.mark.slow), (2, 2)]
)
def test_devices_and_passes_change_nothing(mentions, devices, passes):
    losses, params = steps_on(mentions, 1)
    again, others = steps_on(mentions, devices, passes)
    assert again == pytest.approx(losses, rel=1e-6)
    for ours, theirs in zip(jax.tree.leaves(others), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_its_export_finds_the_same_candidates(mentions, generator, tmp_path):
    system, run = load_run(generator[0])
    differences = system.export(run, tmp_path / "export")
    assert differences and max(differences.values()) <= 1e-5
    ours, theirs = load_generator(generator[0]), load_generator(tmp_path / "export")
    data = source_of(config_of("recall", mentions, "x"), mentions).dataset
    names, mentions = list(data.names.strings), ["attack of the heart", "x"]
    one, other = (
        by.lists(mentions, by.encode(names), data.name_concepts, 4) for by in (ours, theirs)
    )
    np.testing.assert_array_equal(one.names, other.names)
    np.testing.assert_allclose(one.distances, other.distances, rtol=1e-5)
    np.testing.assert_allclose(one.numbers, other.numbers, atol=1e-6)
    assert one.numbers.shape == (2, 3)
    np.testing.assert_allclose(one.numbers.sum(1), 1, atol=1e-6)


def test_any_encoder_is_a_generator_of_one_concept_by_its_cosine(mentions):
    encoder = TermEncoder.from_pretrained(mentions.parent / "bert", "mean")
    generator = CandidateGenerator(encoder)
    names = generator.encode(["limb pain", "heart attack"])
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
    terms = run.notes[PROOF]["terms"]
    assert len(terms) > 1 and check_proof(lambda terms: system.answers(run, terms), run, "the run")
    changed = {**run.params["number"], "kernel": 1.1 * run.params["number"]["kernel"]}
    other = dataclasses.replace(run, params={**run.params, "number": changed})
    with pytest.raises(BadInput, match="the run gives other numbers than training gave"):
        check_proof(lambda terms: system.answers(other, terms), other, "the run")
