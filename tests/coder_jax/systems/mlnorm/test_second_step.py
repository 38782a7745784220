"""Step 2 of MLNorm: rows of candidates alone move; means, candidates, refusals, kill and go on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from class_run import MODEL, SECOND, config_of_first, config_of_second, source_of
from short_run import Stops, assert_same_parameters

from coder_jax.systems.mlnorm import training as second_step
from coder_jax.systems.mlnorm.softmax import candidate_scores, class_softmax_loss, with_means
from coder_jax.systems.trained_models import load_classifier, load_run
from coder_jax.training.train import train
from data_pipeline.batches.candidates import CANDIDATES, ROW_GROUPS, ROWS, VECTORS
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process import BadInput

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("on_one_device")]


@pytest.fixture(scope="module", autouse=True)
def several_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(second_step, "_TERMS_AT_ONCE", 200)
        yield


@pytest.fixture(scope="module")
def second(built, first, on_one_device, several_chunks, tmp_path_factory):
    """The folder of a whole run of the second step, on the same data."""
    out = tmp_path_factory.mktemp("second") / "run"
    given = config_of_second(first[0], out)
    train(given, source_of(built[0], given.system))
    return out


def test_rows_that_no_term_has_as_candidate_stay_to_the_bit(built, first, second):
    """And those that the first step learnt come over by concept, with their lengths."""
    ours, theirs = load_run(second)[1], load_run(first[0])[1]
    candidates = np.load(second / "index" / "0" / CANDIDATES)
    dataset = open_dataset(built[0])
    touched = np.zeros(len(ours.params["classes"]), bool)
    source = source_of(built[0], SECOND).with_index(second / "index" / "0")
    for batch in source.batches(0, 12):
        touched[batch["classes"][batch["classes"] >= 0]] = True
    assert 0 < touched.sum() < dataset.term_start.size - 1
    count = dataset.term_start.size - 1
    before, after = (run.params["classes"][:count] for run in (theirs, ours))
    touched = touched[:count]
    np.testing.assert_array_equal(before[~touched], after[~touched])
    assert (before[touched] != after[touched]).any(1).mean() > 0.9
    assert_same_parameters(ours.params["encoder"], theirs.params["encoder"])
    assert_same_parameters(ours.params["statistics"], theirs.extra)
    assert candidates.shape[1] == SECOND.candidates


def test_candidates_are_the_nearest_of_the_group_by_the_rows_at_the_start(first, second):
    run = load_run(first[0])[1]
    vectors, rows = np.load(second / VECTORS), np.load(second / ROWS)
    found = np.load(second / "index" / "0" / CANDIDATES)
    table, bits = run.params["classes"], run.params["class_groups"]
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    terms, groups = np.divmod(rows, ROW_GROUPS)
    for row in range(0, len(rows), 97):
        cosine = unit @ vectors[terms[row]]
        cosine[bits >> groups[row] & 1 == 0] = -np.inf
        best = np.sort(cosine)[::-1][: SECOND.candidates]
        have = found[row][found[row] >= 0]
        np.testing.assert_allclose(cosine[have], best[np.isfinite(best)], atol=1e-6)


def test_the_vectors_are_those_of_prediction(built, first, second):
    """In evaluation mode: no dropout, and the running statistics."""
    dataset = open_dataset(built[0], strings=True)
    expected = load_classifier(first[0]).encode(dataset.terms[:50])
    np.testing.assert_allclose(np.load(second / VECTORS)[:50], expected, atol=1e-5)


@pytest.mark.parametrize("where", ["vectors", "candidates", "steps"])
def test_stopped_anywhere_it_goes_on_to_the_bit(built, first, second, where, tmp_path, monkeypatch):
    given = config_of_second(first[0], tmp_path / "run")
    source = source_of(built[0], given.system)
    if where == "steps":
        with pytest.raises(ConnectionError):
            train(given, Stops(source, 8))
    else:
        target = "embed_tokens" if where == "vectors" else "search"
        whole, calls = getattr(second_step, target), []

        def breaks(*args, **kwargs):
            calls.append(1)
            if len(calls) == 3:
                raise ConnectionError("the machine is gone")
            return whole(*args, **kwargs)

        with monkeypatch.context() as patch, pytest.raises(ConnectionError):
            patch.setattr(second_step, target, breaks)
            train(given, source)
        counted = []
        monkeypatch.setattr(
            second_step, target, lambda *a, **k: (counted.append(a[1]), whole(*a, **k))[1]
        )
    train(given, source_of(built[0], given.system))
    if where == "vectors":
        rows = len(np.load(tmp_path / "run" / VECTORS))
        assert len(counted) == -(-rows // 200) - 2, "what was finished is not made again"
    if where == "candidates":
        assert len(set(map(id, counted))) < len(counted), "a group's rows are kept for all terms"
    ours, theirs = load_run(tmp_path / "run")[1], load_run(second)[1]
    assert_same_parameters(ours.params["classes"], theirs.params["classes"])
    np.testing.assert_array_equal(
        np.load(tmp_path / "run" / "index" / "0" / CANDIDATES),
        np.load(second / "index" / "0" / CANDIDATES),
    )


def test_concepts_have_the_languages_of_their_terms(built, first, second):
    system = dataclasses.replace(SECOND, within_language=True)
    source = source_of(built[0], system).with_index(second / "index" / "0")
    data = open_dataset(built[0])
    concept = np.repeat(np.arange(data.term_start.size - 1), np.diff(data.term_start))
    spoken = [set(data.term_language[concept == c].tolist()) for c in range(concept[-1] + 1)]
    assert {0} in spoken and {0, 8, 10} in spoken
    for batch in source.batches(0, 3):
        classes, own = batch["classes"], batch["languages"]
        for place in np.ndindex(classes.shape):
            expected = spoken[classes[place]] if classes[place] >= 0 else set()
            bits = int(batch["class_languages"][place])
            assert {n for n in range(31) if bits >> n & 1} == expected
        for place in np.ndindex(own.shape):
            assert own[place] in spoken[classes[place][0]]
        assert {name: array.shape for name, array in batch.items()} == source.shapes(1)


def test_mentions_count_in_batches_and_means(built, first, second, tmp_path):
    """As in the released code, which appends a row for each to the terms of both steps."""
    system = dataclasses.replace(SECOND, means="all", model=MODEL)
    source = source_of(built[0], system).with_index(second / "index" / "0")
    data = open_dataset(built[0], strings=True)
    term = data.terms.index("sore throat")
    assert data.term_counts()[term] == 5 and source.draw.size > len(source.rows)
    vectors, per_epoch = np.load(second / VECTORS), source.draw.size // system.batch.terms
    shown = [
        int((batch["vectors"] == vectors[term]).all(-1).sum())
        for batch in source.batches(0, 40 * per_epoch)
    ]
    rows = int((source.draw.row_terms == term).sum())
    assert sum(shown) / 40 == pytest.approx(5 * rows, rel=0.05)
    run = load_run(first[0])[1]
    begun, initial = system.init_from_run(run, source)
    found = system.precompute(source, begun, initial, tmp_path)["classes"]
    concept = np.searchsorted(data.term_start, term, side="right") - 1
    own = slice(*data.term_start[concept : concept + 2])
    total = (vectors[own] * data.term_counts()[own, None]).sum(0)
    expected = begun.row_length * total / np.linalg.norm(total)
    np.testing.assert_allclose(found[concept], expected, rtol=1e-4, atol=1e-6)


def test_its_export_and_its_folder_answer_alike(second, tmp_path):
    system, run = load_run(second)
    differences = system.export(run, tmp_path / "export")
    assert max(differences.values()) <= 1e-5
    mentions = ["pain in limb", "Œdème 12a"]
    for found, expected in zip(
        load_classifier(tmp_path / "export").nearest(mentions, ["DISO", None], 3),
        load_classifier(second).nearest(mentions, ["DISO", None], 3),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_new_rows_are_as_long_as_those_that_were_learnt(first, second):
    """Adam would turn short ones away from where they start."""
    learnt = np.linalg.norm(load_run(first[0])[1].params["classes"], axis=1)
    noted = load_run(second)[1].identity["start"]["row_length"]
    assert noted == pytest.approx(learnt[learnt > 0].mean(), rel=1e-5) and noted > 0


def test_new_rows_are_the_direction_of_the_sum_of_their_terms():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(9, 4)).astype(np.float32)
    start = np.array([0, 2, 3, 9])
    learnt = np.zeros((3, 4), np.float32)
    learnt[1] = 5
    counts = np.array([1, 3, 1, 1, 1, 1, 2, 1, 1])
    found = with_means(learnt, vectors, start, counts, length=2.5)
    for concept, (first, last) in enumerate([(0, 2), (2, 3), (3, 9)]):
        total = sum(counts[n] * vectors[n] for n in range(first, last))
        expected = learnt[1] if concept == 1 else 2.5 * total / np.linalg.norm(total)
        np.testing.assert_allclose(found[concept], expected, rtol=1e-5)
    with pytest.raises(BadInput, match="1 concepts have no term, such as number 1"):
        with_means(learnt, vectors, np.array([0, 2, 2, 9]), counts, length=1.0)


@pytest.mark.parametrize("spoken", [None, np.array([3, 2, 3, 2, 1, 0])], ids=["all", "language"])
def test_the_loss_is_that_of_the_union_within_the_group(spoken):
    """Against float64 by hand: duplicates are one class, other groups and gaps none.

    Nor, if asked, those without a term in the term's language.
    """
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(3, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = rng.normal(size=(6, 5)) * 0.1
    place = np.array([[0, 1, 2], [2, 2, 3], [4, -1, 0]])
    bits = np.array([3, 1, 2, 3, 1, 0])  # row 5 is used by nobody
    of_place = np.where(place < 0, 0, bits[place])
    groups, languages = np.array([0, 1, 0]), np.array([1, 1, 0])
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    score = 20 * vectors @ unit.T
    total = 0.0
    for term in range(3):
        allowed = [v for v in range(5) if bits[v] >> groups[term] & 1]
        if spoken is not None:
            allowed = [v for v in allowed if spoken[v] >> languages[term] & 1]
        log_sum = np.log(np.exp(score[term, allowed]).sum())
        total += log_sum - score[term, place[term, 0]]

    def loss(rows):
        among = [(jnp.int32(of_place), jnp.int32(groups))]
        if spoken is not None:
            sets = np.where(place < 0, 0, spoken[place])
            among.append((jnp.int32(sets), jnp.int32(languages)))
        arrays = jnp.float32(vectors), rows, jnp.int32(place)
        scores = candidate_scores(*arrays, *among, scale=20.0)
        return class_softmax_loss(scores)[0]

    value, slope = jax.value_and_grad(loss)(jnp.float32(rows))
    assert float(value) == pytest.approx(total / 3, rel=1e-6)
    assert not np.asarray(slope)[5].any() and np.isfinite(slope).all()


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"width": 11}, "the run has width 10, this run has 11; give --width 10"),
        ({"candidates": 0}, "--candidates is 0; expected 1 or more"),
    ],
)
def test_numbers_that_do_not_fit(built, first, changes, words, tmp_path):
    given = config_of_second(first[0], tmp_path / "run", changes=changes)
    with pytest.raises(BadInput, match=words):
        train(given, source_of(built[0], given.system))


def test_what_it_cannot_start_from(built, first, second, tmp_path):
    alone = dataclasses.replace(config_of_second(first[0], tmp_path / "run"), start="")
    with pytest.raises(BadInput, match="give its folder as --from"):
        train(alone, source_of(built[0], alone.system))
    again = config_of_second(second, tmp_path / "run")
    with pytest.raises(BadInput, match="found a run of the system 'mlnorm_classes'; expected"):
        train(again, source_of(built[0], again.system))
    source = source_of(built[0], SECOND)
    source.manifest = dataclasses.replace(source.manifest, release="another")
    given = config_of_second(first[0], tmp_path / "run")
    with pytest.raises(BadInput, match="whose release is .*, that of .* is another"):
        train(given, source)
    assert not (tmp_path / "run" / "run.json").exists()


def test_the_first_step_again_is_no_second(built, first, tmp_path):
    given = config_of_first(built, first[0])
    changed = dataclasses.replace(given, system=SECOND)
    with pytest.raises(BadInput):
        train(changed, source_of(built[0], SECOND))
