"""The table that SentencePiece's normalizer reads, with `tokenizers` as the reader."""

import random

from tokenizers import normalizers

from data_pipeline.terminology.cleaning.character_map import character_map


def test_each_key_gives_its_string_and_others_stay():
    rng = random.Random(0)
    letters = rng.sample([chr(point) for point in range(0x80, 0xD800)], 2_000)
    letters += rng.sample([chr(point) for point in range(0x10000, 0x20000)], 500)
    strings = {letter: rng.choice(["", "a", "ss", "oe", "ἀ", letter * 2]) for letter in letters}
    others = set(rng.sample([chr(point) for point in range(0x20, 0x20000)], 4_000)) - set(strings)
    others -= {chr(point) for point in range(0xD800, 0xE000)}
    normalizer = normalizers.Precompiled(character_map({a: b for a, b in strings.items() if b}))
    for letter, string in strings.items():
        assert normalizer.normalize_str(letter) == (string or letter)
    for letter in others:
        assert normalizer.normalize_str(letter) == letter


def test_one_key():
    normalizer = normalizers.Precompiled(character_map({"œ": "oe"}))
    assert normalizer.normalize_str("cœur") == "coeur"
