"""Pairs of names: what is drawn, how it is packed, what it is drawn to; what cannot be used."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from tiny_names import tiny_names

from data_pipeline.batches.bne import _UNKNOWN, MARKS, PACKED, Alphabet, NameBatches, NameSpec
from data_pipeline.batches.spec import StepCut
from data_pipeline.dataset.store import open_dataset
from data_pipeline.process import BadInput
from data_pipeline.sources.text import words_of

SPEC = NameSpec(pairs=8, groups=4, row_length=16)


def source_of(names, cut=None, vectors="vectors", **changes):
    spec = dataclasses.replace(SPEC, **changes)
    return NameBatches(names, names.parent / vectors, spec, cut)


def letters(source, numbers):
    return "".join(
        (*MARKS, *source.alphabet.characters)[number - 1] for number in numbers if number
    )


def read_block(source, block):
    """(words of each name by its segment, row of each distinct word's vector) of packed arrays."""
    spelled = block["spelled"].reshape(-1)
    characters = block["characters"].reshape(-1)
    word = {number: letters(source, characters[spelled == number]) for number in set(spelled) - {0}}
    assert len(set(word.values())) == len(word), "a word is spelled twice"
    kinds, vectors = block["word_kinds"].reshape(-1), block["word_vectors"].reshape(-1, 12)
    held = {}
    for number, spelling in word.items():
        held[spelling] = kinds[number - 1], vectors[number - 1]
    assert (kinds > 0).sum() == len(word)
    read = {}
    for segment in sorted(set(block["segments"].reshape(-1)) - {0}):
        here = block["segments"] == segment
        assert block["positions"][here].tolist() == list(range(here.sum()))
        read[segment] = [word[number] for number in block["words"][here]]
    return read, held


@pytest.mark.parametrize(
    "cut", [StepCut(), StepCut(blocks=2), StepCut(passes=2, blocks=2, first=1)]
)
def test_a_batch_is_the_words_of_its_names_spelled_once_each(names, cut):
    source = source_of(names, cut)
    batch = source.batch(3)
    assert {name: array.shape for name, array in batch.items()} == source.shapes(source.plan.ample)
    drawn = source.names(3, source.groups.ravel()).reshape(*batch["words"].shape[:2], -1)
    for at in np.ndindex(batch["words"].shape[:2]):
        read, held = read_block(source, {name: batch[name][at] for name in PACKED})
        for segment, name in enumerate(drawn[at], 1):
            tokens = source.sets.tokens[slice(*source.sets.token_start[name : name + 2])]
            words = [source.sets.words[token - 2] for token in tokens[1:-1]]
            assert read[segment] == [
                "<w><s></w>",
                *(f"<w>{one}</w>" for one in words),
                "<w></s></w>",
            ]
        grams = source.grams.words
        for spelling, (kind, vector) in held.items():
            inner = spelling.removeprefix("<w>").removesuffix("</w>")
            row = grams.rows([inner])[0]
            expected = {"<s>": 4, "</s>": 5}.get(inner, 1 if row >= 0 else 7)
            assert kind == expected
            np.testing.assert_array_equal(vector, grams.vectors[row] if row >= 0 else 0)
    assert 0 < source.rows_in_use(batch) <= source.plan.ample


def test_hosts_and_blocks_share_a_step(names):
    whole = source_of(names).batch(5)["wordings"].reshape(-1)
    parts = [
        source_of(names, StepCut(blocks=4, first=first, last=first + 2)).batch(5)["wordings"]
        for first in (0, 2)
    ]
    assert np.concatenate([part.reshape(-1) for part in parts]).tolist() == whole.tolist()


def sets_by_hand(names):
    data = open_dataset(names, strings=True)
    bounds = data.term_start
    found = {}
    for concept, cui in enumerate(data.cuis):
        some = {tuple(words_of(data.terms[n])) for n in range(*bounds[concept : concept + 2])}
        if len(some) > 1:
            found[cui] = some
    return found


def words_in(source, name):
    tokens = source.sets.tokens[slice(*source.sets.token_start[name : name + 2])]
    return tuple(source.sets.words[token - 2] for token in tokens[1:-1])


def test_names_are_those_of_concepts_with_two_of_different_words(names):
    source = source_of(names)
    sets, expected = source.sets, sets_by_hand(names)
    found = {
        cui: {words_in(source, name) for name in range(*sets.start[number : number + 2])}
        for number, cui in enumerate(sets.concepts)
    }
    assert found == expected
    assert sum(map(len, expected.values())) == len(sets.wordings)
    assert source.alphabet.characters == "".join(sorted(set("".join(sets.words))))
    wordings = {words_in(source, name): number for name, number in enumerate(sets.wordings)}
    assert len(set(wordings.values())) == len(wordings) == max(sets.wordings) + 1


@pytest.mark.parametrize("draw", ["concepts", "names", "pairs"])
def test_each_item_comes_once_an_epoch_with_another_name_of_its_concept(names, draw):
    source = source_of(names, draw=draw, pairs=4)
    sets = source.sets
    sizes = np.diff(sets.start)
    every = {"concepts": len(sizes), "names": sizes.sum(), "pairs": (sizes * (sizes - 1)).sum()}
    assert source.size == every[draw]
    drawn = [source.names(step, np.arange(4)) for step in range(source.steps_per_epoch)]
    pairs = [pair for of_step in drawn for pair in of_step.tolist()]
    assert all(len(pair) == 2 and pair[0] != pair[1] for pair in pairs)
    of = sets.set_of_names
    assert all(of[one] == of[other] for one, other in pairs)
    items = {"concepts": [of[one] for one, _ in pairs], "names": [one for one, _ in pairs]}
    items["pairs"] = [tuple(pair) for pair in pairs]
    assert len(set(items[draw])) == len(pairs) > every[draw] - 4
    again = source_of(names, draw=draw, pairs=4).names(2, np.array([3, 1]))
    np.testing.assert_array_equal(again, drawn[2][[3, 1]])
    other = source_of(names, draw=draw, pairs=4, seed=1).names(2, np.arange(4))
    assert other.tolist() != drawn[2].tolist()


def test_all_names_of_a_concept_are_drawn_alike(names):
    """Over many epochs each ordered pair of a concept of three names comes as often."""
    source = source_of(names, pairs=2, groups=2)
    count = dict.fromkeys(range(len(source.sets.concepts)), 0)
    seen = {}
    for step in range(150 * source.steps_per_epoch):
        for pair in source.names(step, np.arange(2)).tolist():
            seen[tuple(pair)] = seen.get(tuple(pair), 0) + 1
            count[source.sets.set_of_names[pair[0]]] += 1
    number = int(np.argmax(np.diff(source.sets.start) == 3))
    first = source.sets.start[number]
    found = [seen.get((first + a, first + b), 0) for a in range(3) for b in range(3) if a != b]
    expected = count[number] / 6
    assert sum((one - expected) ** 2 / expected for one in found) < 20.5  # chi squared, p < .001


@pytest.mark.parametrize("how", ["words", "tokens"])
def test_targets_are_means_or_tokens(names, how):
    source = source_of(names, targets=how)
    grams, sets = source.grams, source.sets

    def mean_of(name):
        rows = [row for row in grams.words.rows(words_in(source, name)) if row >= 0]
        return np.mean([grams.words.vectors[row] for row in rows], axis=0) if rows else None

    def q(name):
        row = grams.names.rows([" ".join(words_in(source, name))])[0]
        return grams.names.vectors[row] if how == "tokens" and row >= 0 else mean_of(name)

    def g(number):
        row = grams.concepts.rows([sets.concepts[number]])[0]
        if how == "tokens" and row >= 0:
            return grams.concepts.vectors[row]
        means = [mean_of(name) for name in range(*sets.start[number : number + 2])]
        means = [one for one in means if one is not None]
        return np.mean(means, axis=0) if means else None

    for found, known, by_hand in (
        (*source.targets.of_names(np.arange(len(sets.wordings))), q),
        (*source.targets.of_sets(np.arange(len(sets.concepts))), g),
    ):
        for number, vector in enumerate(found):
            expected = by_hand(number)
            assert known[number] == (expected is not None)
            np.testing.assert_allclose(vector, 0 if expected is None else expected, atol=1e-6)
    counts = source.targets.counts
    assert (counts["names with a token"] > 0) == (how == "tokens")
    assert sum(list(counts.values())[:3]) == len(sets.wordings)
    without = [name for name in range(len(sets.wordings)) if q(name) is None]
    assert counts["names without a target"] == len(without)
    assert (how == "tokens") or [words_in(source, name) for name in without] == [("acute",)]


def test_targets_go_with_the_vectors(names):
    assert source_of(names).targets_are == "tokens"
    assert source_of(names, vectors="words").targets_are == "words"
    with pytest.raises(BadInput, match="targets is tokens, but .* has no vectors of concepts"):
        source_of(names, vectors="words", targets="tokens")


def test_long_names_and_words_are_cut(names):
    source = source_of(names, row_length=6)
    assert max(np.diff(source.sets.token_start)) == 6
    start, characters = Alphabet("ab").spell(["a" * 40, "bc"])
    assert start.tolist() == [0, 34, 38]
    assert characters.tolist()[-4:] == [1, 9, _UNKNOWN, 2]


def spoil(names, tmp_path, **changes):
    folder = tmp_path / "vectors"
    shutil.copytree(names.parent / "vectors", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    return folder


def test_what_cannot_be_used_is_said(names, tmp_path):
    with pytest.raises(
        BadInput, match="its words were made by rules of hash 000000000000; expected"
    ):
        NameBatches(names, spoil(names, tmp_path, word_rules="0" * 64), SPEC)
    with pytest.raises(BadInput, match=r"holds float32 \(.*, 12\); expected float32 \(.*, 13\)"):
        NameBatches(names, spoil(names, tmp_path / "wide", width=13), SPEC)
    with pytest.raises(BadInput, match="python -m data_pipeline.skip_gram"):
        NameBatches(names, names, SPEC)
    with pytest.raises(
        BadInput, match="--languages FRE: .* has no term in it; expected some of ENG"
    ):
        source_of(names, languages=("FRE",))
    with pytest.raises(BadInput, match="has 21 concepts to draw, but a step takes 24; use fewer"):
        source_of(names, pairs=24)
    with pytest.raises(
        BadInput, match="--pairs is 9 and --groups is 4: .*a multiple of 4 as --pairs"
    ):
        source_of(names, pairs=9)


@pytest.mark.parametrize("rules", ["paper", "mlnorm"])  # paper is the default of a build
def test_names_that_lost_words_are_refused(names, tmp_path, rules):
    cleaned = tiny_names(tmp_path, cleaning=rules)
    with pytest.raises(BadInput, match=f"rules '{rules}' .* again with --cleaning none"):
        NameBatches(cleaned, names.parent / "vectors", SPEC)


def test_words_of_names_are_those_of_the_terminology(names):
    words = source_of(names).sets.words
    assert {"mi-2", "lung"} <= set(words)


def test_concepts_without_synonyms_are_said(names, monkeypatch):
    source = "data_pipeline.batches.bne.words_of"
    monkeypatch.setattr(source, lambda name: ["one"])
    with pytest.raises(BadInput, match="found 25 concepts, none with two names of different words"):
        source_of(names)
