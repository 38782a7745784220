"""Ranks counted block by block: the same as over the whole dictionary, wherever its vectors lie."""

import numpy as np
import pytest
from naive_ranks import benchmark_of, naive_scores, score

from coder_jax.encoding.vector_files import RowsOfFile
from coder_jax.evaluation import counts, normalization
from coder_jax.evaluation.counts import count_ranks, rows_by_concept
from coder_jax.evaluation.normalization import NormalizationFold, evaluate_normalization
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput

ROWS, MENTIONS, KS = 60, 21, (1, 3, 5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Concepts begin in one block and end in another, or two blocks later."""
    monkeypatch.setattr(counts, "_BLOCK_PAIRS", 4)
    monkeypatch.setattr(counts, "_BLOCK_MENTIONS", 8)


def invented(seed):
    """Few directions, so that concepts tie; concepts of 1 to 20 terms, some joined."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(6, 3)).astype(np.float32)
    concepts = rng.choice(list("AABBBBCDEFGHIJKL"), ROWS)
    concepts = [
        f"{c}|{rng.choice(list('AKLMN'))}" if i % 7 == 0 else c for i, c in enumerate(concepts)
    ]
    noise = rng.normal(size=(ROWS, 3)) * (np.arange(ROWS) % 3 > 0)[:, None]
    vectors = directions[rng.integers(6, size=ROWS)] + 0.1 * noise.astype(np.float32)
    mentions = np.concatenate([directions, rng.normal(size=(MENTIONS - 6, 3))]).astype(np.float32)
    gold = ["|".join(rng.choice(list("ABCDKMXY"), 1 + i % 3, False)) for i in range(MENTIONS)]
    return mentions, gold, vectors, concepts


@pytest.mark.parametrize("seed", range(4))
def test_equals_a_loop_over_all_concepts(small_blocks, seed):
    mentions, gold, vectors, concepts = invented(seed)
    largest = max(concepts.count(concept) for concept in "AB")
    assert largest >= 2 * counts._BLOCK_PAIRS, "a concept fills a whole block"
    expected, unreachable, tied = naive_scores(mentions, gold, vectors, concepts, KS)
    result = score(mentions, gold, vectors, concepts, KS)
    assert result.scores == pytest.approx(expected, abs=1e-12)
    assert (result.unreachable, result.tied) == (unreachable, tied) and tied > 0


@pytest.mark.parametrize("pairs", [1, 2, 16, 64])
def test_blocks_change_no_count(monkeypatch, pairs):
    mentions, gold, vectors, concepts = invented(9)
    whole = count_ranks(mentions, gold, rows_by_concept(vectors.__getitem__, concepts), 1e-6)
    monkeypatch.setattr(counts, "_BLOCK_PAIRS", pairs)
    parts = count_ranks(mentions, gold, rows_by_concept(vectors.__getitem__, concepts), 1e-6)
    for one, other in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_vectors_in_a_file_are_read_a_block_at_a_time(small_blocks, tmp_path, dtype):
    mentions, gold, vectors, concepts = invented(1)
    np.save(tmp_path / "vectors.npy", vectors.astype(dtype))
    most = []

    class Watched(RowsOfFile):
        def __getitem__(self, rows):
            most.append(len(rows))
            return super().__getitem__(rows)

    rows = rows_by_concept(Watched(tmp_path / "vectors.npy").__getitem__, concepts)
    of_file = count_ranks(mentions, gold, rows, 1e-6)
    in_memory = rows_by_concept(vectors.astype(dtype).astype(np.float32).__getitem__, concepts)
    for one, other in zip(of_file, count_ranks(mentions, gold, in_memory, 1e-6), strict=True):
        np.testing.assert_array_equal(one, other)
    assert max(most) == 4 and sum(most) > ROWS


def test_a_large_benchmark_is_encoded_block_by_block(small_blocks, monkeypatch):
    """Mentions at once; of two folds with one dictionary its blocks once, and gold terms first."""
    mentions, gold, vectors, concepts = invented(2)
    terms, names = [f"t{i}" for i in range(ROWS)], [f"m{i}" for i in range(MENTIONS)]
    vector_of = dict(zip(terms + names, [*vectors, *mentions], strict=True))
    dictionary = Dictionary(terms, concepts, "toy")
    folds = [
        NormalizationFold("one", names[:5], gold[:5], dictionary),
        NormalizationFold("two", names[5:], gold[5:], dictionary),
    ]
    asked = []

    def encode(strings):
        asked.append(strings)
        return np.stack([vector_of[string] for string in strings])

    at_once = evaluate_normalization(encode, benchmark_of(*folds))
    assert [len(strings) for strings in asked] == [ROWS + MENTIONS]
    monkeypatch.setattr(normalization, "_ENCODED_AT_ONCE", ROWS + MENTIONS - 1)
    asked.clear()
    assert evaluate_normalization(encode, benchmark_of(*folds)) == at_once
    assert asked[0] == names and max(map(len, asked[1:])) == 4
    looked_up = [term for strings in asked[1:] for term in strings]
    is_gold = {concept for joined in gold for concept in joined.split("|")}
    pairs = [(t, c) for t, joined in zip(terms, concepts, strict=True) for c in joined.split("|")]
    of_gold = sum(concept in is_gold for _, concept in pairs)
    assert len(looked_up) == of_gold + len(pairs) and set(looked_up) == set(terms)


def test_a_broken_vector_is_named_by_its_row(small_blocks):
    mentions, gold, vectors, concepts = invented(3)
    vectors[17, 1] = np.nan
    with pytest.raises(BadInput, match=r"1 dictionary vectors of 4 with NaN .*\(first: row 17\)"):
        count_ranks(mentions, gold, rows_by_concept(vectors.__getitem__, concepts), 1e-6)
