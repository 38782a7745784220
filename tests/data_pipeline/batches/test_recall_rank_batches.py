"""Batches of recall and rank: each pair once an epoch, a function of the step, whatever the cut."""

import dataclasses
import shutil

import numpy as np
import pytest
from tiny_mentions import tiny_mentions

from data_pipeline.batches.draws.shuffles import permutation, random_below
from data_pipeline.batches.mentions.pairs import Pairs, pairs_of, probe_tokens, share
from data_pipeline.batches.mentions.rank import RankBatches, RankSpec
from data_pipeline.batches.mentions.recall import NEGATIVES, RecallBatches, RecallSpec
from data_pipeline.batches.spec import StepCut
from data_pipeline.dataset.mentions.candidates import CandidateLists
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.process.errors import BadInput

RECALL = RecallSpec(pairs=4, groups=2, negatives="random", negatives_per_pair=3, row_length=64)
RANK = RankSpec(pairs=6, groups=2, pair_length=24, row_length=48)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Mentions with candidates: of each the concepts from its row number on."""
    made = tiny_mentions(tmp_path_factory.mktemp("mentions"))
    for split, mentions in made.splits.items():
        rows = np.arange(len(mentions.mentions))[:, None]
        found = ((rows + np.arange(4)) % len(made.names)).astype(np.int32)
        lists = CandidateLists(
            names=found,
            distances=np.sort(np.random.default_rng(0).random(found.shape, np.float32)),
            numbers=np.ones((len(rows), 1), np.float32),
        )
        lists.write(made.folder, split)
    return made


def terms_of(batch):
    """The tokens of each string of a batch of one pass and block, in order."""
    segments, tokens = batch["segments"].reshape(-1), batch["tokens"].reshape(-1)
    return [tokens[segments == number].tolist() for number in range(1, segments.max() + 1)]


def test_other_candidates_are_another_run(data, tmp_path):
    """Lists in-sample and out of fold are of the same mentions."""
    told = RankBatches(data.folder, RANK).identity
    assert RankBatches(data.folder, RANK).identity == told
    assert told["candidates"].keys() == {"train", "dev"}
    shutil.copytree(data.folder, tmp_path / "other")
    distances = tmp_path / "other/candidates/dev/distances.npy"
    np.save(distances, np.load(distances) * np.float32(2))
    other = RankBatches(tmp_path / "other", RANK).identity
    assert other["candidates"]["dev"] != told["candidates"]["dev"]
    assert {**other, "candidates": 0} == {**told, "candidates": 0}
    assert other["candidates"]["train"] == told["candidates"]["train"]


def test_numbers_are_random_and_stay_the_same():
    order = permutation(1000, 1, 2)
    assert sorted(order) == list(range(1000)) and (order != permutation(1000, 1, 3)).mean() > 0.99
    assert permutation(5, 1, 2).tolist() == [1, 4, 3, 0, 2]
    drawn = random_below(np.full(9000, 3), np.arange(9000), 7)
    assert np.bincount(drawn).tolist() == pytest.approx([3000] * 3, rel=0.06)


def test_a_batch_of_recall_is_mentions_their_names_and_names_of_others(data):
    source = RecallBatches(data.folder, RECALL)
    train, names = data.splits["train"], data.names
    mention_of, concept_of = train.pairs()
    seen = []
    for step in range(source.steps_per_epoch):
        batch = source.batch(step)
        strings = terms_of(batch)
        concepts = batch["concepts"].reshape(2, -1)
        for group, numbers in enumerate(batch["numbers"].reshape(2, -1)):
            of_group = strings[group * 10 : (group + 1) * 10]
            mentions, golds, others = of_group[:2], of_group[2:4], of_group[4:]
            for place, (mention, gold) in enumerate(zip(mentions, golds, strict=True)):
                concept = concepts[group, place]
                assert concepts[group, 2 + place] == concept
                row = next(
                    row
                    for row, (m, c) in enumerate(zip(mention_of, concept_of, strict=True))
                    if c == concept and train.mentions.of(m).tolist() == mention
                )
                seen.append(row)
                assert names.of(concept).tolist() == gold  # each concept has one name here
                m = mention_of[row]
                assert numbers[place] == min(train.numbers()[m], 3) - 1
                told = concepts[group, 4 + 3 * place : 7 + 3 * place]
                assert not set(told.tolist()) & train.gold_sets()[m]
                for name, number in zip(others[3 * place : 3 * place + 3], told, strict=True):
                    assert names.of(number).tolist() == name
    assert len(set(seen)) == len(seen) == 4 * source.steps_per_epoch


def test_a_batch_of_rank_is_each_mention_with_each_of_its_candidates(data):
    source = RankBatches(data.folder, RANK)
    gold = data.splits["train"].gold_sets()
    seen = []
    for step in range(source.steps_per_epoch):
        batch = source.batch(step)
        labels, concepts = batch["labels"].ravel(), batch["concepts"].ravel()
        drawn = source.drawn(step, np.arange(2)).ravel()
        seen += drawn.tolist()
        for place, pair in enumerate(drawn):
            mention = source.rows[pair, 0]
            assert labels[place] == (concepts[place] in gold[mention])
            segment = batch["segments"][0, 0] == place + 1
            within = slice(*source.pairs.start[pair : pair + 2])
            for name in ("tokens", "kinds", "types"):
                expected = getattr(source.pairs, name)[within]
                np.testing.assert_array_equal(batch[name][0, 0][segment], expected)
    assert 0 < source.labels.mean() < 1
    assert len(set(seen)) == len(seen) == RANK.pairs * source.steps_per_epoch


def test_nothing_is_learnt_of_candidates_that_may_be_right(data):
    """Of gold that the dictionary lacks, and of a concept whose name has the tokens of the gold."""
    source = RankBatches(data.folder, RANK)
    strings = list(data.splits["train"].mentions.strings)
    names = list(data.names.strings)
    lacking = [strings.index(one) for one in ("lung attack", "pain, infarction")]
    assert not set(source.rows[:, 0].tolist()) & set(lacking)
    attack = strings.index("attack of the heart")
    rows = [[attack, names.index(one)] for one in ("heart attack", "limb pain")]
    assert source.labels_of(np.array([*rows, [lacking[0], 0]])).tolist() == [1, 0, -1]
    # A name of another concept with the same tokens: no encoder could tell them apart.
    table = source.dataset.names
    first, other = (table.start[name] for _, name in rows)
    tokens = np.array(table.tokens)
    tokens[other : other + 4] = tokens[first : first + 4]
    alike = dataclasses.replace(table, tokens=tokens)
    source.dataset = dataclasses.replace(source.dataset, names=alike)
    assert source.labels_of(np.array(rows)).tolist() == [1, -1]


@pytest.mark.parametrize(("make", "spec"), [(RecallBatches, RECALL), (RankBatches, RANK)])
def test_the_cut_and_the_first_step_change_no_batch(data, make, spec):
    whole = list(make(data.folder, spec).batches(0, 3))
    assert list(make(data.folder, spec).batches(2, 3))[0].keys() == whole[2].keys()
    for cut in (StepCut(passes=2), StepCut(blocks=2)):
        parts = next(make(data.folder, spec, cut).batches(2, 3))
        for name in spec.arrays:
            np.testing.assert_array_equal(parts[name].ravel(), whole[2][name].ravel())
        count = parts["concepts"].size // 2
        blocks = parts["segments"].reshape(2, *parts["segments"].shape[2:])
        tokens = parts["tokens"].reshape(blocks.shape)
        joined = [
            tokens[half][blocks[half] == number].tolist()
            for half in (0, 1)
            for number in range(1, count + 1)
        ]
        assert joined == terms_of(whole[2])


def test_an_index_of_other_mentions_is_refused(data, tmp_path):
    source = RecallBatches(data.folder, dataclasses.replace(RECALL, negatives="online"))
    np.save(tmp_path / NEGATIVES, np.zeros((3, 3), np.int32))
    with pytest.raises(BadInput, match=r"holds int32 \(3, 3\); expected int32 \(8, 3\)"):
        source.with_index(tmp_path)
    with pytest.raises(BadInput, match="but these batches .* use none"):
        RecallBatches(data.folder, RECALL).with_index(tmp_path)


@pytest.mark.parametrize(
    ("make", "spec", "words"),
    [
        (RecallBatches, dataclasses.replace(RECALL, pairs=64), "has 8 training mentions"),
        (RecallBatches, dataclasses.replace(RECALL, pairs=3), "3 pairs do not divide evenly"),
        (RankBatches, dataclasses.replace(RANK, pairs=64), "has 20 pairs of a training mention"),
        (RankBatches, dataclasses.replace(RANK, row_length=20), "row_length is 20, but pairs"),
    ],
)
def test_numbers_that_cannot_be(data, make, spec, words):
    with pytest.raises(BadInput, match=words):
        make(data.folder, spec)


def test_a_pair_is_cls_probes_mention_sep_name_sep(data):
    tokenizer = load_tokenizer(data.folder / "tokenizer")
    probes = probe_tokens(tokenizer, 2)
    train, names = data.splits["train"].mentions, data.names
    tables = [(table.tokens, table.start, table.kinds) for table in (train, names)]
    mention, name = 0, data.names.strings[:].index("heart attack")
    pair: Pairs = pairs_of(*tables, np.array([[mention, name]]), probes, 24)
    said = tokenizer.decode(pair.tokens.tolist(), skip_special_tokens=False)
    assert said == ("[CLS] [unused1] [unused2] attack of the heart [SEP] heart attack [SEP]")
    # site words have bit 1, type words bit 2; text has bit 0; a probe its own alone
    assert pair.kinds.tolist() == [1, 2, 4, 5, 1, 1, 3, 1, 3, 5, 1]
    assert pair.types.tolist() == [0] * 8 + [1] * 3
    with pytest.raises(BadInput, match=r"has no \[unused3\], which stand"):
        probe_tokens(tokenizer, 3)


@pytest.mark.parametrize(
    "a, b, kept", [(3, 4, (3, 4)), (9, 2, (6, 2)), (2, 9, (2, 6)), (9, 9, (4, 4)), (4, 9, (4, 4))]
)
def test_of_a_long_pair_the_longer_string_is_cut(a, b, kept):
    assert share(a, b, 8) == kept
