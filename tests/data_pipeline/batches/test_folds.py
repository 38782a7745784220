"""Folds of mentions: by the string alone, and none of a fold in what a run learns from."""

import dataclasses

import numpy as np
import pytest
from tiny_mentions import MENTIONS, tiny_mentions

from data_pipeline.batches.mentions.folds import folds_of, mentions_of, read_fold
from data_pipeline.batches.mentions.recall import RecallBatches, RecallSpec
from data_pipeline.process.errors import BadInput

SPEC = RecallSpec(pairs=2, groups=2, negatives="random", negatives_per_pair=3, row_length=64)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_mentions(tmp_path_factory.mktemp("mentions"))


def test_a_fold_depends_on_the_string_and_the_seed_alone():
    strings = [f"mention {number}" for number in range(3000)]
    folds = folds_of(strings, 5, 0)
    assert np.bincount(folds).tolist() == [0, *[pytest.approx(600, rel=0.1)] * 5]
    again = folds_of([*reversed(strings), *strings[:4]], 5, 0)
    np.testing.assert_array_equal(again[:3000][::-1], folds)
    np.testing.assert_array_equal(again[3000:], folds[:4])  # equal strings, one fold
    np.testing.assert_array_equal(folds_of(map(str.upper, strings), 5, 0), folds)
    other = folds_of(strings, 5, 1)
    assert (other == folds).mean() == pytest.approx(0.2, abs=0.03)
    # The same in years: the runs of some folds may be there already.
    assert folds_of(["heart attack", "limb pain", "手"], 5, 3).tolist() == [4, 3, 1]


@pytest.mark.parametrize("text", ["", "2", "0/5", "6/5", "1/1", "2/5 ", "-1/5", "a/b", "2/5/5"])
def test_what_names_no_fold_is_refused(text):
    with pytest.raises(BadInput, match="expected NUMBER/FOLDS with two folds or more, such as 2/5"):
        read_fold(text)
    if text:
        with pytest.raises(BadInput, match="expected NUMBER/FOLDS"):
            dataclasses.replace(SPEC, fold=text).validate()


def test_some_mentions_of_a_split_are_these(data):
    train = data.splits["train"]
    rows = np.array([6, 1, 4])
    some = mentions_of(train, rows)
    assert list(some.mentions.strings) == [train.mentions.strings[row] for row in rows]
    assert some.gold_sets() == [train.gold_sets()[row] for row in rows]
    for place, row in enumerate(rows):
        assert some.mentions.of(place).tolist() == train.mentions.of(row).tolist()
        of_row = slice(*train.mentions.start[row : row + 2])
        of_place = slice(*some.mentions.start[place : place + 2])
        assert (some.mentions.kinds[of_place] == train.mentions.kinds[of_row]).all()


@pytest.mark.parametrize("negatives", ["random", "tf-idf", "online"])
def test_a_run_without_a_fold_never_sees_its_mentions(data, negatives):
    strings = [line.split("\t")[0] for line in MENTIONS["train"].splitlines()[1:]]
    folds = folds_of(strings, 2, SPEC.seed)
    seen = {}
    for number in (1, 2):
        spec = dataclasses.replace(SPEC, negatives=negatives, fold=f"{number}/2")
        source = RecallBatches(data.folder, spec)
        if negatives == "online":
            rows = len(source.mention_of)
            source.negatives = np.tile(np.int32([0, 1, 2]), (rows, 1))
        drawn = set()
        for step in range(source.steps_per_epoch):
            batch = source.batch(step)
            tokens, segments = batch["tokens"].ravel(), batch["segments"].ravel()
            count = batch["numbers"].size  # a mention first in each of two groups
            for group in range(count):
                segment = 1 + group * (2 + spec.negatives_per_pair)
                drawn.add(tuple(tokens[segments == segment].tolist()))
        seen[number] = drawn
    train = data.splits["train"].mentions
    for row, fold in enumerate(folds):
        mention = tuple(train.of(row).tolist())
        assert mention not in seen[fold]
    assert seen[1] and seen[2]


def test_a_fold_of_no_mention_is_named(data):
    sizes = np.bincount(folds_of(list(data.splits["train"].mentions.strings), 40, 0), minlength=41)
    empty = 1 + int(np.flatnonzero(sizes[1:] == 0)[0])
    with pytest.raises(BadInput, match=f"fold {empty}/40 has 0 of the 7 training mentions"):
        RecallBatches(data.folder, dataclasses.replace(SPEC, fold=f"{empty}/40"))
