"""Batches: equal to a slow twin, a pure function of the step, nothing lost, shapes static."""

import dataclasses

import numpy as np
import pytest
from batch_twin import twin_batch, twin_draw
from tiny_dataset import tiny_dataset

from data_pipeline.batch_files import BatchFiles, write_batches
from data_pipeline.batch_spec import BatchSpec
from data_pipeline.batches import BatchMaker
from data_pipeline.build_dataset import build_dataset
from data_pipeline.build_options import BuildOptions
from data_pipeline.errors import BadInput
from data_pipeline.store import open_dataset

SPECS = {
    "paper": BatchSpec(groups=2, triplets=8, repeats=4),
    "concepts": BatchSpec(
        draw="concepts", distinct_terms=True, groups=2, triplets=8, repeats=2, seed=5
    ),
    "concepts, terms with replacement": BatchSpec(draw="concepts", groups=2, triplets=8, repeats=3),
    "synonyms": BatchSpec(
        draw="synonyms", distinct_terms=True, groups=2, triplets=16, repeats=1, row_length=64
    ),
}


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset(concepts=60, triplets=150)


def assert_equal(got, want):
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("passes", [1, 2])
def test_equals_the_twin(dataset, name, passes):
    spec = SPECS[name]
    maker = BatchMaker(dataset, spec, passes=passes)
    # The first steps, and steps over several epochs later.
    for first in (0, 41):
        for step, batch in zip(
            range(first, first + 4), maker.batches(first, first + 4), strict=True
        ):
            assert_equal(batch, twin_batch(dataset, spec, step, maker.plan))


def test_starts_at_any_step(dataset):
    maker = BatchMaker(dataset, SPECS["paper"])
    straight = list(maker.batches(0, 9))
    for batch, again in zip(straight[5:], maker.batches(5, 9), strict=True):
        assert_equal(again, batch)


def test_shares_are_the_groups_of_the_whole(dataset):
    spec = SPECS["concepts"]
    whole = twin_draw(dataset, spec, 3)
    for index in range(2):
        maker = BatchMaker(dataset, spec, share=(index, 2))
        batch = next(maker.batches(3))
        np.testing.assert_array_equal(batch["concepts"][0, 0], whole["concepts"][index])
        assert_equal(batch, twin_batch(dataset, spec, 3, maker.plan, share=(index, 2)))


def test_an_epoch_shows_every_triplet_once_and_no_group_twice(dataset):
    spec = BatchSpec(groups=1, triplets=10, repeats=2)
    maker = BatchMaker(dataset, spec)
    rows = {
        (h, r, t): i
        for i, (h, r, t) in enumerate(
            zip(
                dataset.heads.tolist(),
                dataset.relations.tolist(),
                dataset.tails.tolist(),
                strict=True,
            )
        )
    }
    for epoch in range(2):
        seen = []
        for batch in maker.batches(epoch * 15, (epoch + 1) * 15):
            concepts = batch["concepts"][0, 0].reshape(2, 10, 2)[:, :, 0]
            group = list(zip(concepts[0], batch["relations"][0, 0], concepts[1], strict=True))
            assert len(set(group)) == 10
            seen += [rows[tuple(int(x) for x in triplet)] for triplet in group]
        assert sorted(seen) == list(range(150))


def test_distinct_terms_are_distinct(dataset):
    spec = SPECS["synonyms"]
    for step in range(20):
        for group in twin_draw(dataset, spec, step)["terms"]:
            assert all(group[i] != group[16 + i] for i in range(16))


def test_rows_are_planned(dataset):
    maker = BatchMaker(dataset, SPECS["paper"], row_multiple=4)
    assert maker.plan.usual % 4 == maker.plan.ample % 4 == 0
    assert maker.plan.usual <= maker.plan.ample
    rows = [batch["tokens"].shape[1] for batch in maker.batches(0, 100)]
    assert rows.count(maker.plan.usual) > 60 and set(rows) <= {maker.plan.usual, maker.plan.ample}


def test_rows_are_full_on_a_real_ontology(tmp_path, hpo_path, minilm_path):
    """The paper's step of 2,048 terms: at least 93 % of the tokens are no padding."""
    options = BuildOptions(source=hpo_path, out=tmp_path / "hpo", tokenizer=minilm_path)
    maker = BatchMaker(open_dataset(build_dataset(options)), BatchSpec())
    fill = [np.mean(batch["segments"] > 0) for batch in maker.batches(0, 50)]
    assert np.mean(fill) >= 0.93


def test_too_few_rows_are_an_error_and_never_drop_a_term(dataset):
    maker = BatchMaker(dataset, SPECS["paper"], rows=2)
    with pytest.raises(BadInput, match="(?s)planned 2 rows.*Set --rows to a larger number"):
        next(maker.batches(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 3, "passes": 2}, "3 groups per host do not divide evenly into 2 passes"),
        ({"groups": 3, "share": (0, 2)}, "3 groups cannot be divided evenly over 2 hosts"),
        ({"row_length": 8}, "up to 12 tokens, but rows have 8"),
        ({"triplets": 500}, "has 150 triplets, but a group takes 500 distinct"),
        (
            {"triplets": 70, "draw": "concepts"},
            "concepts that have a synonym, but a group takes 70",
        ),
        ({"repeats": 1}, "repeats is 1: with the draw 'relations'"),
        ({"groups": 0}, "groups is 0; it must be at least 1"),
    ],
)
def test_messages(dataset, change, message):
    layout = {name: change.pop(name) for name in ("passes", "share") if name in change}
    with pytest.raises(BadInput, match=message):
        BatchMaker(dataset, dataclasses.replace(SPECS["paper"], **change), **layout)


def test_files_give_the_same_batches(tmp_path, dataset):
    spec = SPECS["concepts"]
    folder = tmp_path / "dataset"
    (folder / "tokenizer").mkdir(parents=True)
    maker = BatchMaker(dataclasses.replace(dataset, folder=folder), spec)
    write_batches(maker, tmp_path / "batches", 0, 5)
    files = BatchFiles(tmp_path / "batches", spec)
    for batch, again in zip(maker.batches(2, 5), files.batches(2, 5), strict=True):
        assert_equal(again, batch)
    assert files.manifest == dataset.manifest
    with pytest.raises(BadInput, match="steps 0 to 5, but the run needs 0 to 6"):
        next(files.batches(0, 6))
    with pytest.raises(BadInput, match="seed is 5, the run wants 6"):
        BatchFiles(tmp_path / "batches", dataclasses.replace(spec, seed=6))
    with pytest.raises(BadInput, match="is not empty"):
        write_batches(maker, tmp_path / "batches", 0, 5)
