"""The draw of terms: equal to a slow twin, each row once an epoch, whatever the cut."""

import dataclasses

import numpy as np
import pytest
from batch_twin import twin_key, twin_permute
from tiny_dataset import tiny_dataset

from data_pipeline.batches.draws.term_spec import TermSpec
from data_pipeline.batches.draws.terms import TermDraw, term_rows
from data_pipeline.batches.files import BatchFiles, write_batches
from data_pipeline.batches.spec import StepCut
from data_pipeline.batches.stream import BatchMaker
from data_pipeline.dataset.classes import Classes, classes_of, write_classes
from data_pipeline.dataset.quiet_tensorflow import tf
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, groups_of

ANAT, DISO, PROC = (GROUPS.index(name) for name in ("ANAT", "DISO", "PROC"))
TYPES = ["T017 Anatomical Structure", "T047 Disease or Syndrome", "T061 Procedure", "T184 Sign"]
OF_TYPE = [ANAT, DISO, PROC, DISO]
SPEC = TermSpec(terms=12, groups=4, row_length=32, seed=3)


def make(*, semantic_groups=None, **changes):
    dataset = tiny_dataset(concepts=30, triplets=10, **changes)
    manifest = dataset.manifest | {
        "semantic_types": TYPES,
        "filters": {"semantic_groups": semantic_groups},
    }
    return dataclasses.replace(dataset, manifest=manifest)


def twin_rows(dataset, kept=range(ANY)):
    rows = []
    for concept in range(len(dataset.term_start) - 1):
        start, stop = dataset.type_start[concept : concept + 2]
        groups = sorted({OF_TYPE[t] for t in dataset.types[start:stop]} & set(kept)) or [ANY]
        for term in range(*dataset.term_start[concept : concept + 2]):
            rows += [(term, group, concept) for group in groups]
    return rows


def test_rows_are_each_term_with_each_group_of_its_concept():
    dataset = make()
    terms, groups = term_rows(dataset)
    expected = twin_rows(dataset)
    assert list(zip(terms, groups, strict=True)) == [row[:2] for row in expected]
    assert {ANAT, DISO, PROC, ANY} == set(groups.tolist())
    assert len(expected) > dataset.term_start[-1]  # some are of two groups


def test_rows_are_of_the_groups_that_the_dataset_was_built_with():
    terms, groups = term_rows(make(semantic_groups=["DISO"]))
    expected = twin_rows(make(), [DISO])
    assert list(zip(terms, groups, strict=True)) == [row[:2] for row in expected]


def two_languages():
    """Every third term is French."""
    dataset = make()
    manifest = {**dataset.manifest, "languages": ["ENG", "FRE"]}
    french = np.arange(dataset.term_start[-1]) % 3 == 0
    return dataclasses.replace(dataset, manifest=manifest, term_language=french.astype(np.uint8))


def test_rows_of_a_language_are_those_of_its_terms():
    dataset = two_languages()
    expected = [row[:2] for row in twin_rows(dataset) if row[0] % 3 == 0]
    terms, groups = term_rows(dataset, ["FRE"])
    assert list(zip(terms, groups, strict=True)) == expected
    both = term_rows(dataset, ["FRE", "ENG"])
    np.testing.assert_array_equal(both, term_rows(dataset))
    draw = TermDraw(dataset, dataclasses.replace(SPEC, languages=("FRE",)))
    assert draw.size == len(expected)
    assert not (draw(tf.constant(7), np.arange(4))["terms"].numpy() % 3).any()
    assert set(draw.concepts.numpy()) == set(range(30))  # classes are those of all terms


def test_a_language_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match=r"GER: tiny has no term in it; expected some of ENG FRE"):
        term_rows(two_languages(), ["FRE", "GER"])


def test_a_step_is_what_a_slow_twin_draws():
    dataset = make()
    rows, draw = twin_rows(dataset), TermDraw(dataset, SPEC)
    per_epoch = len(rows) // SPEC.terms
    for step in (0, 1, per_epoch - 1, per_epoch, 5 * per_epoch + 2):
        epoch, within = divmod(step, per_epoch)
        key = twin_key(SPEC.seed, "permutation", epoch)
        places = [twin_permute(within * SPEC.terms + i, len(rows), key) for i in range(SPEC.terms)]
        drawn = draw(tf.constant(step), np.arange(SPEC.groups))
        for name, column in (("terms", 0), ("semantic_groups", 1), ("concepts", 2)):
            expected = np.reshape([rows[place][column] for place in places], (SPEC.groups, -1))
            np.testing.assert_array_equal(drawn[name], expected)


def test_an_epoch_shows_no_row_twice_and_the_next_has_another_order():
    dataset = make()
    draw = TermDraw(dataset, SPEC)
    per_epoch = draw.size // SPEC.terms

    def epoch(number):
        steps = range(number * per_epoch, (number + 1) * per_epoch)
        return np.concatenate([draw.rows(tf.constant(s), np.arange(4)).numpy() for s in steps])

    first, second = epoch(0).ravel(), epoch(1).ravel()
    assert len(set(first.tolist())) == first.size > draw.size - SPEC.terms
    assert (first != second).mean() > 0.8


def test_batches_hold_the_tokens_of_their_terms_however_they_are_cut(tmp_path):
    dataset = make()
    whole = next(BatchMaker(dataset, SPEC).batches(7, 8))
    assert whole["concepts"].shape == whole["semantic_groups"].shape == (1, 1, 4, 3)
    terms = TermDraw(dataset, SPEC)(tf.constant(7), np.arange(4))["terms"].numpy().ravel()
    for place, term in enumerate(terms):
        tokens = whole["tokens"][whole["segments"] == place + 1]
        start, stop = dataset.token_start[term : term + 2]
        assert tokens.tolist() == dataset.tokens[start:stop].tolist()
    halves = [
        next(BatchMaker(dataset, SPEC, StepCut(blocks=2, first=i, last=i + 1)).batches(7, 8))
        for i in (0, 1)
    ]
    for name in ("concepts", "semantic_groups"):
        joined = np.concatenate([half[name] for half in halves], axis=1)
        np.testing.assert_array_equal(joined.ravel(), whole[name].ravel())


def test_written_to_files_they_are_the_same(tmp_path):
    dataset, spec = two_languages(), dataclasses.replace(SPEC, languages=("FRE", "ENG"))
    (tmp_path / "tiny" / "tokenizer").mkdir(parents=True)
    dataset = dataclasses.replace(dataset, folder=tmp_path / "tiny")
    classes = Classes([f"C{number}" for number in range(30)], groups_of(dataset))
    write_classes(tmp_path / "tiny", classes)
    maker = BatchMaker(dataset, spec)
    write_batches(maker, tmp_path / "batches", 0, 2)
    kept = classes_of(tmp_path / "batches")
    assert kept.concepts == classes.concepts
    np.testing.assert_array_equal(kept.groups, classes.groups)
    stored = BatchFiles(tmp_path / "batches", spec)
    for ours, theirs in zip(maker.batches(0, 2), stored.batches(0, 2), strict=True):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_array_equal(array, theirs[name])


@pytest.mark.parametrize(
    "spec, words",
    [
        (TermSpec(terms=10, groups=4), "10 terms do not divide evenly into 4 parts"),
        (TermSpec(terms=0), "terms is 0; it must be at least 1"),
        (TermSpec(terms=4096), "but a step takes 4096"),
    ],
)
def test_numbers_that_cannot_be(spec, words):
    with pytest.raises(BadInput, match=words):
        TermDraw(make(), spec)
