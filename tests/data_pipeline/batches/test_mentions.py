"""Batches of recall and rank: each pair once an epoch, a function of the step, whatever the cut."""

import dataclasses
import shutil
from itertools import groupby

import numpy as np
import pytest
from tiny_mentions import (
    DICTIONARY,
    DICTIONARY_OF_CODES,
    MENTIONS,
    WORDS,
    mentions_of_codes,
    mentions_with_hierarchy,
    tiny_mentions,
)

from data_pipeline.batches.mentions import (
    NAMES,
    NEGATIVES,
    Pairs,
    RankBatches,
    RankSpec,
    RecallBatches,
    RecallSpec,
    _mentions_of,
    _OwnNames,
    _share,
    fixed_negatives,
    folds_of,
    pairs_of,
    probe_tokens,
    read_fold,
)
from data_pipeline.batches.order import permutation, random_below
from data_pipeline.batches.spec import StepCut
from data_pipeline.dataset.mentions import CandidateLists, MentionDataset
from data_pipeline.dataset.tokenizer import load_tokenizer
from data_pipeline.process import BadInput
from data_pipeline.terminology.tf_idf import CharacterTfIdf

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


@pytest.fixture(scope="module")
def wider(tmp_path_factory):
    """Mentions with a hierarchy, and all concepts as candidates."""
    made = mentions_with_hierarchy(tmp_path_factory.mktemp("wider"))
    first = made.name_start()[:-1].astype(np.int32)
    for split, mentions in made.splits.items():
        found = np.repeat(first[None], len(mentions.mentions), axis=0)
        zeros = np.zeros(found.shape, np.float32)
        CandidateLists(names=found, distances=zeros, numbers=zeros[:, :1] + 1).write(
            made.folder, split
        )
    return made


def test_what_is_broader_is_learnt_from_the_hierarchy(wider):
    spec = dataclasses.replace(RANK, pairs=2)
    source = RankBatches(wider.folder, dataclasses.replace(spec, broader=True))
    data = wider
    gold, drawn = data.splits["train"].gold_sets(), []
    labelled = zip(map(tuple, source.rows.tolist()), source.labels.tolist(), strict=True)
    for ((mention, name), label), _ in groupby(labelled):  # repeated, as each is learnt as often
        concept = int(data.name_concepts[name])
        above = set().union(*(data.broader([one]) for one in gold[mention])) - gold[mention]
        assert label == (1 if concept in gold[mention] else 2 if concept in above else 0)
        drawn.append((mention, data.concepts[concept], label))
    # Behind the candidates come those a step above each own concept, then one below each of these.
    listed, added = drawn[:20], [one[:2] for one in drawn[20:]]
    assert listed[6] == (1, "H1", 0) and listed[7] == (1, "K1", 1)
    above = [(0, "A1"), (0, "K2"), (1, "K2"), (2, "K2"), (3, "K2")]
    assert added[:5] == above
    below = {"A1": {"H1"}, "K2": {"K1", "H1", "L1", "A1"}}
    for (mention, parent), (other, child) in zip(above, added[5:], strict=True):
        assert mention == other and child in below[parent]
    plain = RankBatches(wider.folder, spec)
    assert len(plain.rows) == len(listed) and set(plain.labels.tolist()) == {0, 1}


def test_the_three_answers_are_learnt_equally_often(wider, monkeypatch):
    labels = np.repeat([1, 2, 0, -1], [3, 9, 16, 2])
    monkeypatch.setattr(RankBatches, "labels_of", lambda source, rows: labels[: len(rows)])
    spec = dataclasses.replace(RANK, pairs=2, broader=True)
    source = RankBatches(wider.folder, spec)
    assert np.bincount(source.labels).tolist() == [16, 15, 18] and source.size == 49
    assert (source.rows[:5] == source.rows[0]).all() and (source.rows[5] != source.rows[4]).any()
    plain = RankBatches(wider.folder, dataclasses.replace(spec, broader=False))
    assert np.bincount(plain.labels).tolist() == [8, 3, 9], "as the paper has it"


def test_what_is_broader_must_be_known_to_be_learnt(data):
    with pytest.raises(BadInput, match="--broader: found no broader concepts in .*; build"):
        RankBatches(data.folder, dataclasses.replace(RANK, broader=True))


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
        (RecallBatches, dataclasses.replace(RECALL, pairs=3), "--pairs is 3 and --groups is"),
        (RankBatches, dataclasses.replace(RANK, pairs=64), "has 20 pairs of a training mention"),
        (
            RankBatches,
            dataclasses.replace(RANK, row_length=20),
            "--row-length is 20 and --pair-length is",
        ),
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
    assert _share(a, b, 8) == kept


STRATEGIES = ("random", "tf-idf", "tree", "keywords")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> MentionDataset:
    return tiny_mentions(tmp_path_factory.mktemp("mentions"))


@pytest.fixture(scope="module")
def coded(tmp_path_factory) -> MentionDataset:
    """Gold is codes; concepts have synonyms, some shared by two concepts or alike but for case."""
    folder = tmp_path_factory.mktemp("coded")
    dictionary = folder / "medic.txt"
    dictionary.write_text(
        "D.1||heart attack|myocardial infarction|Attack, Heart\n"
        "D.2|116||renal failure|Heart Attack\n"
        "E.3||limb pain|pain in limb\n"
        "D.4||heart disease\n"
        "E.5||renal disease|limb pain\n"
    )
    train = folder / "coded.tsv"
    train.write_text("attack\tD.1\nheart and limb\tD.1|E.3\nrenal\t116\nrenal attack\tD.2|D9\n")
    words = folder / "words.tsv"
    words.write_text(f"{WORDS}HEART\tsite\n")  # with it "heart attack" stays the same to BERT
    (folder / "rest").mkdir()
    options = {"dictionary": dictionary, "train": (train,), "keywords": words}
    return tiny_mentions(folder / "rest", dev=(), test=(), **options)


def strings(dataset, negatives):
    every = [*dataset.names.strings, *negatives.extra.strings]
    return [[every[row] for row in rows] for rows in negatives.rows]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("which", ["dataset", "coded"])
def test_no_gold_is_ever_a_negative(which, strategy, number, request):
    data = request.getfixturevalue(which)
    split = data.splits["train"]
    size = len(data.names)
    for seed in range(20):
        found = fixed_negatives(data, strategy, number, seed)
        mentions, _ = split.pairs()
        assert found.rows.shape == (len(mentions), number)
        assert found.rows.min() >= 0
        assert found.rows.max() < size + len(found.extra)
        for mention, rows in zip(mentions, found.rows, strict=True):
            gold = split.gold[split.gold_start[mention] : split.gold_start[mention + 1]]
            for concept in gold[gold >= 0]:
                own = np.flatnonzero(data.name_concepts == concept)
                for row in rows:
                    assert row not in own
                    table, place = (data.names, row) if row < size else (found.extra, row - size)
                    assert table.strings[int(place)].lower() not in {
                        data.names.strings[int(one)].lower() for one in own
                    }
                    for one in own:
                        assert not np.array_equal(table.of(place), data.names.of(one))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_gives_the_same_negatives_and_another_others(dataset, strategy):
    first, again, other = (fixed_negatives(dataset, strategy, 3, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.rows, again.rows)
    assert list(first.extra.strings) == list(again.extra.strings)
    assert (strings(dataset, first) == strings(dataset, other)) == (strategy == "tf-idf")


def test_random_negatives_are_distinct_and_reach_all_names(dataset):
    rows = np.concatenate([fixed_negatives(dataset, "random", 4, seed).rows for seed in range(30)])
    assert all(len(set(row)) == 4 for row in rows.tolist())
    assert set(rows.ravel().tolist()) == set(range(len(dataset.names)))


def test_tf_idf_negatives_are_the_most_similar_names(dataset):
    found = fixed_negatives(dataset, "tf-idf", 2, 0)
    # "acute renal and heart failure" means "acute renal failure" and "chronic heart failure".
    assert strings(dataset, found)[1] == strings(dataset, found)[2]
    assert strings(dataset, found)[1][0] in ("renal failure", "chronic renal failure")
    assert not found.filled
    assert not len(found.extra)


def test_without_a_tree_tree_negatives_are_refused(tmp_path):
    """They would all be random ones."""
    with pytest.raises(BadInput, match="'tree': found none .* before a dot, as 01.1 does"):
        fixed_negatives(mentions_of_codes(tmp_path), "tree", 3, 0)


def test_tree_negatives_share_the_chapter_and_the_rest_is_said(dataset, capsys):
    found = fixed_negatives(dataset, "tree", 3, 0)
    assert f"{found.filled} of {found.rows.size} negatives are any names" in capsys.readouterr().err
    codes = {name: code for code, name in (line.split("\t") for line in DICTIONARY.split("\n"))}
    _, concepts = dataset.splits["train"].pairs()
    outside = 0
    for concept, names in zip(concepts, strings(dataset, found), strict=True):
        chapter = dataset.codes_of(int(concept))[0][:2]
        outside += sum(codes[name][:2] != chapter for name in names)
    assert outside == found.filled > 0  # "limb pain" has one other name in its chapter
    assert found.filled == sum(max(0, 3 - beside) for beside in _names_beside(dataset, concepts))


def _names_beside(dataset, concepts):
    """How many names of a pair's chapter are no gold of its mention."""
    mentions, _ = dataset.splits["train"].pairs()
    gold = dataset.splits["train"].gold_sets()
    for mention, concept in zip(mentions, concepts, strict=True):
        same = np.flatnonzero(dataset.branches == dataset.branches[concept])
        yield sum(int(one) not in gold[int(mention)] for one in same)


def test_keyword_negatives_are_the_gold_name_with_one_word_replaced(dataset):
    found = fixed_negatives(dataset, "keywords", 3, 0)
    _, concepts = dataset.splits["train"].pairs()
    words = {word for some in dataset.words.values() for word in some}
    names = list(dataset.names.strings)
    changed = 0
    for concept, negatives in zip(concepts, strings(dataset, found), strict=True):
        gold = names[concept].split()
        for negative in negatives:
            ours = [
                word
                for word in words
                for old in words
                if negative == " ".join(gold).replace(old, word, 1) and word != old
            ]
            changed += bool(ours)
    assert changed == found.rows.size - found.filled
    assert changed > found.rows.size // 2
    assert len(found.extra)
    assert not set(found.extra.strings) & set(names)
    marked = found.extra.kinds[found.extra.start[0] : found.extra.start[1]]
    assert marked.any()


@pytest.mark.parametrize(
    ("gold", "negatives"),
    [("heart disease", {1, 2}), ("heart disease##limb pain##renal disease", None)],
)
def test_a_dictionary_with_few_names_gives_some_twice_and_without_any_it_is_said(
    tmp_path, gold, negatives
):
    dictionary, train = tmp_path / "few.txt", tmp_path / "few.tsv"
    dictionary.write_text("1\theart disease\n2\tlimb pain\n3\trenal disease")
    train.write_text(f"heart\t{gold}\n")
    (tmp_path / "rest").mkdir()
    few = tiny_mentions(tmp_path / "rest", dictionary=dictionary, train=(train,), dev=(), test=())
    if negatives is None:
        with pytest.raises(BadInput, match="give a larger dictionary"):
            fixed_negatives(few, "random", 4, 0)
    else:
        assert set(fixed_negatives(few, "random", 4, 0).rows[0].tolist()) == negatives


def test_what_cannot_be_drawn_is_said(dataset, tmp_path):
    with pytest.raises(BadInput, match="expected one of random, tf-idf, tree, keywords"):
        fixed_negatives(dataset, "online", 4, 0)
    without = tiny_mentions(tmp_path, keywords=None)
    with pytest.raises(BadInput, match="derive_keywords"):
        fixed_negatives(without, "keywords", 4, 0)


# -------------------------------------------------------------------------------------------------
# The name that stands for a concept of several names: the nearest, or any.

SPEC = RecallSpec(pairs=2, groups=1, negatives="random", negatives_per_pair=2, row_length=64)


@pytest.fixture(scope="module")
def data_of_own_names(tmp_path_factory):
    return mentions_of_codes(tmp_path_factory.mktemp("mentions"))


def own_rows(source, step):
    """The names that stand for the concepts of a step."""
    strings, pairs = source.strings(step, np.arange(1), np.zeros((len(source.mention_of), 2), int))
    return strings[0, 2:4] - len(source.number_of), pairs[0]


def test_names_of_pairs_and_the_best_of_each():
    own = _OwnNames.of(np.array([5, 6, 6]), np.array([2, 0, 1]), np.array([0, 2, 3, 6]))
    assert own.mentions.tolist() == [5, 5, 5, 6, 6, 6]
    assert own.names.tolist() == [3, 4, 5, 0, 1, 2]
    assert own.best(np.array([0.0, 2.0, 2.0, 1.0, 3.0, -1.0])).tolist() == [4, 1, 2]


def test_the_most_alike_name_stands_for_a_concept(data_of_own_names):
    source = RecallBatches(data_of_own_names.folder, SPEC)
    strings, names = (
        list(table.strings)
        for table in (data_of_own_names.splits["train"].mentions, data_of_own_names.names)
    )
    (scores,) = CharacterTfIdf(names).similarity(strings)
    first = data_of_own_names.name_start()
    for step in range(source.steps_per_epoch):
        for name, pair in zip(*own_rows(source, step), strict=True):
            concept, mention = source.concept_of[pair], source.mention_of[pair]
            of_concept = range(first[concept], first[concept + 1])
            assert name == max(of_concept, key=lambda row: (scores[mention, row], -row))
    chosen = {strings[m]: names[n] for m, n in zip(source.mention_of, source.names, strict=True)}
    assert chosen["coronary attack"] == "coronary occlusion"
    assert chosen["failing kidney"] == "kidney failure"


def test_any_name_comes_where_any_is_asked_for(data_of_own_names):
    source = RecallBatches(data_of_own_names.folder, dataclasses.replace(SPEC, own_names="any"))
    assert source.names is None
    seen = {
        name for step in range(20 * source.steps_per_epoch) for name in own_rows(source, step)[0]
    }
    of_train = set(source.concept_of.tolist())
    assert seen == {n for n, c in enumerate(data_of_own_names.name_concepts) if c in of_train}
    assert len(seen) < len(DICTIONARY_OF_CODES.splitlines())


def test_an_index_has_the_names_of_its_epoch(data_of_own_names, tmp_path):
    spec = dataclasses.replace(SPEC, negatives="online")
    source = RecallBatches(data_of_own_names.folder, spec)
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
        RecallBatches(data_of_own_names.folder, spec).with_index(tmp_path)
    (tmp_path / NAMES).unlink()
    with pytest.raises(BadInput, match=r"names.npy"):
        RecallBatches(data_of_own_names.folder, spec).with_index(tmp_path)
    any_names = dataclasses.replace(spec, own_names="any")
    assert RecallBatches(data_of_own_names.folder, any_names).with_index(tmp_path).names is None


# -------------------------------------------------------------------------------------------------
# Folds of mentions: by the string alone, and none of a fold in what a run learns from.

SPEC_FOLDS = RecallSpec(pairs=2, groups=2, negatives="random", negatives_per_pair=3, row_length=64)


@pytest.fixture(scope="module")
def data_of_folds(tmp_path_factory):
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
            dataclasses.replace(SPEC_FOLDS, fold=text).validate()


def test_some_mentions_of_a_split_are_these(data_of_folds):
    train = data_of_folds.splits["train"]
    rows = np.array([6, 1, 4])
    some = _mentions_of(train, rows)
    assert list(some.mentions.strings) == [train.mentions.strings[row] for row in rows]
    assert some.gold_sets() == [train.gold_sets()[row] for row in rows]
    for place, row in enumerate(rows):
        assert some.mentions.of(place).tolist() == train.mentions.of(row).tolist()
        of_row = slice(*train.mentions.start[row : row + 2])
        of_place = slice(*some.mentions.start[place : place + 2])
        assert (some.mentions.kinds[of_place] == train.mentions.kinds[of_row]).all()


@pytest.mark.parametrize("negatives", ["random", "tf-idf", "online"])
def test_a_run_without_a_fold_never_sees_its_mentions(data_of_folds, negatives):
    strings = [line.split("\t")[0] for line in MENTIONS["train"].splitlines()[1:]]
    folds = folds_of(strings, 2, SPEC_FOLDS.seed)
    seen = {}
    for number in (1, 2):
        spec = dataclasses.replace(SPEC_FOLDS, negatives=negatives, fold=f"{number}/2")
        source = RecallBatches(data_of_folds.folder, spec)
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
    train = data_of_folds.splits["train"].mentions
    for row, fold in enumerate(folds):
        mention = tuple(train.of(row).tolist())
        assert mention not in seen[fold]
    assert seen[1] and seen[2]


@pytest.mark.parametrize("has_dev", [True, False])
def test_the_mentions_that_are_left_out_choose_where_no_others_do(tmp_path, has_dev):
    """Of a generator and of a ranker, whose lists are divided in the same way."""
    whole = tiny_mentions(tmp_path, **({} if has_dev else {"dev": ()}))
    strings = list(whole.splits["train"].mentions.strings)
    folds = folds_of(strings, 2, 0)
    for split, mentions in whole.splits.items():
        rows = np.arange(len(mentions.mentions), dtype=np.int32)[:, None]  # which mention it is
        CandidateLists(
            names=np.repeat(rows, 2, axis=1),
            distances=np.zeros((len(rows), 2), np.float32),
            numbers=np.ones((len(rows), 1), np.float32),
        ).write(whole.folder, split)
    for number in (1, 2):
        recall = dataclasses.replace(SPEC_FOLDS, fold=f"{number}/2")
        rank = dataclasses.replace(RANK, pairs=2, fold=f"{number}/2")
        ranking = RankBatches(whole.folder, rank)
        parts = {"train": np.flatnonzero(folds != number), "dev": np.flatnonzero(folds == number)}
        for source in (RecallBatches(whole.folder, recall), ranking):
            found = source.dataset.splits
            assert found["test"] is not None and len(found["dev"].mentions) > 0
            for split, rows in parts.items():
                if split == "train" or not has_dev:
                    assert list(found[split].mentions.strings) == [strings[row] for row in rows]
                    gold = whole.splits["train"].gold_sets()
                    assert found[split].gold_sets() == [gold[row] for row in rows]
        if has_dev:
            dev = whole.splits["dev"].mentions.strings
            assert list(ranking.dataset.splits["dev"].mentions.strings) == list(dev)
            parts["dev"] = np.arange(len(dev))
        for split, rows in parts.items():
            assert ranking.lists[split].names.tolist() == [[row, row] for row in rows]
        assert {*ranking.rows[:, 0]} <= {*range(len(parts["train"]))}
        assert ranking.identity["candidates"].keys() == {"train", "dev"}
    with pytest.raises(BadInput, match="fold is '3/2'; expected NUMBER/FOLDS"):
        RankBatches(whole.folder, dataclasses.replace(RANK, fold="3/2"))


def test_a_fold_of_no_mention_is_named(data_of_folds):
    sizes = np.bincount(
        folds_of(list(data_of_folds.splits["train"].mentions.strings), 40, 0), minlength=41
    )
    empty = 1 + int(np.flatnonzero(sizes[1:] == 0)[0])
    with pytest.raises(BadInput, match=f"fold {empty}/40 has 0 of the 7 training mentions"):
        RecallBatches(data_of_folds.folder, dataclasses.replace(SPEC_FOLDS, fold=f"{empty}/40"))
