"""The name that stands for a concept of several names: the nearest, or any."""

import dataclasses

import numpy as np
import pytest
from tiny_mentions import DICTIONARY_OF_CODES, mentions_of_codes

from data_pipeline.batches.mentions.own_names import OwnNames
from data_pipeline.batches.mentions.recall import NAMES, NEGATIVES, RecallBatches, RecallSpec
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.tf_idf import CharacterTfIdf

SPEC = RecallSpec(pairs=2, groups=1, negatives="random", negatives_per_pair=2, row_length=64)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return mentions_of_codes(tmp_path_factory.mktemp("mentions"))


def own_rows(source, step):
    """The names that stand for the concepts of a step."""
    strings, pairs = source.strings(step, np.arange(1), np.zeros((len(source.mention_of), 2), int))
    return strings[0, 2:4] - len(source.number_of), pairs[0]


def test_names_of_pairs_and_the_best_of_each():
    own = OwnNames.of(np.array([5, 6, 6]), np.array([2, 0, 1]), np.array([0, 2, 3, 6]))
    assert own.mentions.tolist() == [5, 5, 5, 6, 6, 6]
    assert own.names.tolist() == [3, 4, 5, 0, 1, 2]
    assert own.best(np.array([0.0, 2.0, 2.0, 1.0, 3.0, -1.0])).tolist() == [4, 1, 2]


def test_the_most_alike_name_stands_for_a_concept(data):
    source = RecallBatches(data.folder, SPEC)
    strings, names = (list(table.strings) for table in (data.splits["train"].mentions, data.names))
    (scores,) = CharacterTfIdf(names).similarity(strings)
    first = data.name_start()
    for step in range(source.steps_per_epoch):
        for name, pair in zip(*own_rows(source, step), strict=True):
            concept, mention = source.concept_of[pair], source.mention_of[pair]
            of_concept = range(first[concept], first[concept + 1])
            assert name == max(of_concept, key=lambda row: (scores[mention, row], -row))
    chosen = {strings[m]: names[n] for m, n in zip(source.mention_of, source.names, strict=True)}
    assert chosen["coronary attack"] == "coronary occlusion"
    assert chosen["failing kidney"] == "kidney failure"


def test_any_name_comes_where_any_is_asked_for(data):
    source = RecallBatches(data.folder, dataclasses.replace(SPEC, own_names="any"))
    assert source.names is None
    seen = {
        name for step in range(20 * source.steps_per_epoch) for name in own_rows(source, step)[0]
    }
    of_train = set(source.concept_of.tolist())
    assert seen == {n for n, c in enumerate(data.name_concepts) if c in of_train}
    assert len(seen) < len(DICTIONARY_OF_CODES.splitlines())


def test_an_index_has_the_names_of_its_epoch(data, tmp_path):
    spec = dataclasses.replace(SPEC, negatives="online")
    source = RecallBatches(data.folder, spec)
    pairs = len(source.mention_of)
    first = source.first_name[source.concept_of].astype(np.int32)
    np.save(tmp_path / NEGATIVES, np.zeros((pairs, 2), np.int32))
    np.save(tmp_path / NAMES, first)
    assert (source.names != first).any()
    source = source.with_index(tmp_path)
    for step in range(source.steps_per_epoch):
        names, drawn = own_rows(source, step)
        assert names.tolist() == first[drawn].tolist()
    np.save(tmp_path / NAMES, first[1:])
    with pytest.raises(BadInput, match=r"names.npy holds int32 .*; expected int32"):
        RecallBatches(data.folder, spec).with_index(tmp_path)
    (tmp_path / NAMES).unlink()
    with pytest.raises(BadInput, match=r"names.npy"):
        RecallBatches(data.folder, spec).with_index(tmp_path)
    any_names = dataclasses.replace(spec, own_names="any")
    assert RecallBatches(data.folder, any_names).with_index(tmp_path).names is None
