import numpy as np
import pytest
from tiny_mentions import DICTIONARY, WORDS, mentions_of_codes, tiny_mentions

from data_pipeline.batches.draws.negatives import fixed_negatives
from data_pipeline.dataset.mentions.store import MentionDataset
from data_pipeline.process.errors import BadInput

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
