"""Rows of new pieces begin at the mean of those of their old ones; all other weights stay."""

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_bert import TINY, VOCABULARY

from coder_jax.models.hf_weights import ANCHOR, random_bert, to_hf
from coder_jax.models.word_table import extended_table, old_pieces, rows_for, with_word_table
from data_pipeline.dataset.vocabulary.word_piece import WordPieceVocabulary

SIZE = len(VOCABULARY)
TINY_VOCABULARY = WordPieceVocabulary(
    {piece: number for number, piece in enumerate(VOCABULARY)}, "[UNK]", "##", 100, SIZE
)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        ("hearts", ["heart", "##s"]),
        ("##heart", ["##h", "##e", "##a", "##r", "##t"]),
        ("painz", ["pain", "##z"]),
        ("##.", ["."]),  # in its other form only
        ("a-b", ["a", "-", "##b"]),
        ("üpain", ["##p", "##a", "##i", "##n"]),
        ("心", []),
        ("##ü", []),
    ],
)
def test_a_piece_is_spelt_by_the_old_ones(piece, expected):
    found = old_pieces(piece, TINY_VOCABULARY)
    assert [VOCABULARY[number] for number in found] == expected


def test_rows_are_means_of_old_rows_or_drawn():
    table = np.random.default_rng(0).normal(size=(SIZE, 4)).astype(np.float32)
    extended, unknown = extended_table(table, TINY_VOCABULARY, ["hearts", "心", "##."])
    assert extended.shape == (SIZE + 3, 4) and extended.dtype == np.float32 and unknown == 1
    np.testing.assert_array_equal(extended[:SIZE], table)
    heart, s = (table[VOCABULARY.index(piece)] for piece in ("heart", "##s"))
    np.testing.assert_allclose(extended[SIZE], (heart + s) / 2, rtol=1e-6)
    assert np.abs(extended[:SIZE] - extended[SIZE + 1]).max(axis=1).min() > 0.1
    np.testing.assert_array_equal(extended[SIZE + 2], table[VOCABULARY.index(".")])


def test_rows_of_unknown_characters_are_spread_as_others_and_all_differ():
    random = np.random.default_rng(0)
    table = (random.normal(size=(SIZE, 8)) * np.arange(1, 9) + np.arange(8)).astype(np.float32)
    new = [chr(code) for code in range(0x4E00, 0x4E00 + 4000)]
    extended, drawn = extended_table(table, TINY_VOCABULARY, new)
    assert drawn == 4000
    rows = extended[SIZE:]
    assert len(np.unique(rows, axis=0)) == 4000
    np.testing.assert_allclose(rows.std(axis=0), table.std(axis=0), rtol=0.05)
    distance = np.abs(rows.mean(axis=0) - table.mean(axis=0))
    assert (distance < 4 * table.std(axis=0) / np.sqrt(4000)).all()
    again, _ = extended_table(table, TINY_VOCABULARY, new)
    np.testing.assert_array_equal(again, extended)
    once_more = WordPieceVocabulary(
        TINY_VOCABULARY.pieces | {"心": SIZE}, "[UNK]", "##", 100, SIZE + 1
    )
    other, _ = extended_table(extended[: SIZE + 1], once_more, ["肝"])
    assert not np.array_equal(other[SIZE + 1], extended[SIZE])


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [
        (SIZE, SIZE + 5, SIZE + 5),  # not padded, and so it stays
        (104, 105, 112),  # a multiple of 8
        (104, 103, 104),  # the padding has room
        (128, 200, 256),
        (1024, 1025, 1152),  # of 128 at most
    ],
)
def test_a_padded_table_stays_padded(rows, size, expected):
    assert rows_for(TINY_VOCABULARY, rows, size) == expected


def test_padding_makes_room_and_repeats_the_unknown_token():
    table = np.random.default_rng(0).normal(size=(104, 4)).astype(np.float32)
    new = [f"heart{letter}" for letter in "abcdefghi"]  # one more than there is room for
    extended, _ = extended_table(table, TINY_VOCABULARY, new)
    assert SIZE + len(new) > len(table) and len(extended) == 112
    np.testing.assert_array_equal(extended[:SIZE], table[:SIZE])
    heart, a = (table[VOCABULARY.index(piece)] for piece in ("heart", "##a"))
    np.testing.assert_allclose(extended[SIZE], (heart + a) / 2, rtol=1e-6)
    unknown = np.broadcast_to(table[VOCABULARY.index("[UNK]")], (112 - SIZE - 9, 4))
    np.testing.assert_array_equal(extended[SIZE + 9 :], unknown)


@pytest.mark.parametrize("pooler", [True, False])
def test_all_other_weights_stay(pooler):
    bert = random_bert(TINY, 0, dtype=jnp.bfloat16)
    if not pooler:
        bert.pooler = None
    before = to_hf(bert)
    table = np.concatenate([before[ANCHOR], before[ANCHOR][:3]])
    extended = with_word_table(bert, table)
    assert extended.config.vocab_size == SIZE + 3 and extended.dtype == jnp.bfloat16
    after = to_hf(extended)
    assert after.keys() == before.keys()
    for name, value in after.items():
        np.testing.assert_array_equal(value, table if name == ANCHOR else before[name])
