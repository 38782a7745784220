"""What a report shows of a dictionary: choices of terms, neighbours, maps."""

import base64
import dataclasses
import json

import numpy as np
import pytest
from tiny_bert import write_tokenizer
from tiny_rrf import write_release

from coder_jax.report import dictionary as terms
from coder_jax.report.build import Subject, _draw_figures
from coder_jax.report.dictionary import (
    Entries,
    MapGroup,
    ShownTerms,
    _packed,
    _project,
    _same_group_nearest,
    choose_shown_terms,
    draw_maps,
    explorer_data,
    gather_entries,
)
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.process import BadInput


def unit_vectors(count, width=16, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# Terms and concepts


def many_concepts(count=60):
    return {f"C{i}": [f"term {i} {j}" for j in range(1 + i % 7)] for i in range(count)}


def test_whole_concepts_in_an_order_that_rows_do_not_change():
    held = many_concepts()
    chosen = terms._whole_concepts(held, 50, seed=0)
    count = sum(len(held[concept]) for concept in chosen)
    assert 50 - 7 < count <= 50
    backwards = terms._whole_concepts(dict(reversed(held.items())), 50, seed=0)
    assert set(chosen) == set(backwards) and chosen == sorted(chosen, key=list(held).index)
    assert set(chosen) != set(terms._whole_concepts(held, 50, seed=1))
    assert terms._whole_concepts(held, 10**6, seed=0) == list(held)
    assert len(terms._whole_concepts({"C": ["a", "b", "c"]}, 2, seed=0)) == 1


def test_groups_of_concepts_have_as_many_terms_as_there_are():
    groups = terms._concept_groups(many_concepts(300), seed=0)
    assert len(groups) == terms._CONCEPTS and all(len(group.terms) >= 6 for group in groups)
    pairs = {f"C{i}": [f"a{i}", f"b{i}"] for i in range(5)}
    few = terms._concept_groups(pairs | {"C9": ["alone"]}, seed=0)
    assert sorted(group.name for group in few) == [f"a{i}" for i in range(5)]
    assert terms._concept_groups({"C0": ["a", "b"], "C1": ["c", "d"]}, seed=0) == []


def test_groups_of_types_begin_with_the_papers():
    held = {f"C{i}": [f"name {i}", "other"] for i in range(100)}
    of = {f"C{i}": ["Cell"] if i < 50 else ["Finding"] for i in range(90)}
    of |= {"C90": ["Cell", "Finding"], "C91": ["Rare"]}
    groups = terms._type_groups(held, of, seed=0)
    assert [(group.name, len(group.terms)) for group in groups] == [("Finding", 40), ("Cell", 50)]
    assert "name 90" not in groups[0].terms + groups[1].terms
    assert all(term.startswith("name") for group in groups for term in group.terms)
    assert terms._type_groups(held, {c: ["Cell"] for c in held}, seed=0) == []


def test_what_is_shown_of_a_dataset(tmp_path):
    write_tokenizer(tmp_path)
    out = build_dataset(
        BuildOptions(
            source=write_release(tmp_path / "META"), out=tmp_path / "data", tokenizer=str(tmp_path)
        )
    )
    shown = choose_shown_terms(read_dictionary(out), most_terms=4, seed=0)
    assert shown.types["C0000003"] == ["Finding", "Sign or Symptom"]
    assert shown.types["C0000001"] == ["Disease or Syndrome"]
    assert "C0000006" not in shown.types, "a concept without a type"
    assert set(shown.dictionary.languages) == {"ENG", "FRE"}
    entries = gather_entries(shown.dictionary, shown.concepts, shown.types)
    assert len(entries.terms) <= 4 < shown.total
    note = shown.note(len(entries.terms))
    assert (
        f"{len(entries.terms)} of the {shown.total} distinct terms" in note
        and "--terms says" in note
    )
    assert shown.note(shown.total).startswith(f"All {shown.total} distinct terms of ")
    french = choose_shown_terms(read_dictionary(out, ["FRE"]), most_terms=9, seed=0)
    assert set(french.dictionary.languages) == {"FRE"}


def test_a_release_has_the_types_of_the_mrsty_beside_it(tmp_path):
    mrconso = write_release(tmp_path / "META") / "MRCONSO.RRF"

    def types(**choices):
        dictionary = read_dictionary(mrconso, **choices)
        return choose_shown_terms(dictionary, most_terms=9, seed=0).types

    assert types() == {
        "C0000001": ["Disease or Syndrome"],
        "C0000002": ["Disease or Syndrome"],
        "C0000003": ["Finding", "Sign or Symptom"],
    }
    assert types(keep_suppressed=True)["C0000004"] == ["Disease or Syndrome"], (
        "all its terms are suppressed"
    )
    mrconso.with_name("MRSTY.RRF").unlink()
    assert types() == {}


def test_a_release_tells_languages_and_sources(tmp_path):
    dictionary = read_dictionary(write_release(tmp_path) / "MRCONSO.RRF")
    place = dictionary.terms.index("Infarctus")
    assert (dictionary.languages[place], dictionary.vocabularies[place]) == ("FRE", ("MSHFRE",))
    assert len(dictionary.vocabularies) == len(dictionary.terms)


def test_a_dictionary_of_one_term(tmp_path):
    (tmp_path / "d.tsv").write_text("pain\tC1\npain\tC2\n")
    with pytest.raises(BadInput, match="found a single term; expected two or more"):
        choose_shown_terms(read_dictionary(tmp_path / "d.tsv"), most_terms=9, seed=0)


# Neighbours


def test_a_string_of_two_concepts_is_one_entry():
    rows = [("cold", "C1"), ("common cold", "C1"), ("cold", "C2"), ("x", "C3"), ("cold", "C1")]
    dictionary = Dictionary(*map(list, zip(*rows, strict=True)), "d", languages=["ENG"] * 5)
    sources = [("MSH",), ("NCI",), ("HPO", "MSH"), ("NCI",), ("MSH",)]
    entries = gather_entries(
        dataclasses.replace(dictionary, vocabularies=sources), ["C1", "C2"], {"C2": ["Finding"]}
    )
    assert entries.vocabularies == [("MSH", "HPO"), ("NCI",)]
    entries = gather_entries(dictionary, ["C1", "C2"], {"C2": ["Finding"]})
    assert entries.terms == ["cold", "common cold"]
    assert entries.concepts_of == [[0, 1], [0]]
    assert entries.types == [[], ["Finding"]]
    vectors = np.array([[1, 0], [0.6, 0.8]], np.float32)
    data = explorer_data(entries, vectors, 9)
    assert data["k"] == 1 and data["types"] == [[], []], "one type tells nothing"
    two = explorer_data(dataclasses.replace(entries, types=[["Sign"], ["Finding"]]), vectors, 9)
    assert (two["typeNames"], two["types"]) == (["Sign", "Finding"], [[0], [1]])
    assert (numbers(data["neighbours"]), numbers(data["cosines"])) == ([1, 0], [600, 600])
    assert data["languages"] is data["vocabularies"] is None, "one language is no choice"
    assert json.loads(json.dumps(data)) == data
    entries = dataclasses.replace(entries, languages=["ENG", "FRE"])
    languages = explorer_data(entries, vectors, 9)["languages"]
    assert languages == {"names": ["ENG", "FRE"], "of": [[0], [1]]}


def numbers(packed):
    """The numbers of an array of JavaScript's, by its name."""
    kind = np.dtype(packed["array"].removesuffix("Array").lower()).newbyteorder("<")
    return np.frombuffer(base64.b64decode(packed["base64"]), kind).tolist()


@pytest.mark.parametrize("kind, name", [(np.uint16, "Uint16Array"), (np.uint32, "Uint32Array")])
def test_numbers_in_base64(kind, name):
    values = np.array([0, 1, 255, 256, np.iinfo(kind).max])
    assert _packed(values, kind)["array"] == name and numbers(_packed(values, kind)) == list(values)
    assert _packed(np.array([1, 258]), np.uint16)["base64"] == "AQACAQ==", "the lowest byte first"
    signed = _packed(np.array([-1000.0, 999.0]), np.int16)
    assert signed["array"] == "Int16Array" and numbers(signed) == [-1000, 999]


@pytest.mark.parametrize("count, array", [(1 << 16, "Uint16Array"), ((1 << 16) + 1, "Uint32Array")])
def test_more_terms_than_two_bytes_can_count(monkeypatch, count, array):
    entries = Entries(["t"] * count, [[0]] * count, ["C"], [[]], None, None)
    index = np.arange(count)[::-1, None]
    found = np.ones((count, 1), np.float32), index
    monkeypatch.setattr("coder_jax.report.dictionary.nearest_others", lambda vectors, k: found)
    data = explorer_data(entries, np.ones((count, 2), np.float32), 1)
    assert data["neighbours"]["array"] == array
    assert numbers(data["neighbours"]) == index.ravel().tolist()


# Maps


def test_maps_are_the_same_each_time_and_know_clusters():
    middles = unit_vectors(4, 8, seed=1)
    noise = np.random.default_rng(0).normal(size=(60, 8))
    vectors = np.repeat(middles, 15, axis=0) + 0.05 * noise
    groups = [MapGroup(f"g{i}", [f"{i} {j}" for j in range(15)]) for i in range(4)]
    random = unit_vectors(60, 64)
    figure = draw_maps(groups, [("good", vectors), ("random", random)])
    again = draw_maps(groups, [("good", vectors), ("random", random)])
    for one, other in zip(figure.maps, again.maps, strict=True):
        np.testing.assert_array_equal(one.places, other.places)
        assert np.linalg.norm(one.places, axis=1).max() == pytest.approx(1)
    good, bad = figure.maps
    assert good.near == 1 and bad.near < 0.6
    place = {term: number for number, term in enumerate(figure.terms)}
    centre = [good.places[[place[t] for t in group.terms]].mean(axis=0) for group in groups]
    spread = max(
        np.linalg.norm(good.places[place[term]] - centre[number])
        for number, group in enumerate(groups)
        for term in group.terms
    )
    between = min(np.linalg.norm(a - b) for a in centre for b in centre if a is not b)
    assert between > spread, "clusters of vectors are clusters of the map"


def test_a_map_that_is_turned_is_turned_back(monkeypatch):
    places = np.random.default_rng(0).normal(size=(40, 2))
    turned = places @ np.array([[0.6, 0.8], [0.8, -0.6]])  # and mirrored
    drawn = iter([places, turned])
    monkeypatch.setattr("coder_jax.report.dictionary._project", lambda vectors: next(drawn))
    vectors = unit_vectors(40)
    groups = [MapGroup("a", [str(i) for i in range(40)])]
    first, second = draw_maps(groups, [("one", vectors), ("turned", vectors)]).maps
    np.testing.assert_allclose(second.places, first.places)


def test_vectors_that_are_all_equal_have_a_map():
    assert np.isfinite(_project(np.ones((9, 4), np.float32))).all()


def test_nearest_of_the_same_group_by_hand():
    vectors = np.array([[1, 0], [1, 0.1], [0, 1], [1, -0.2]], np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # 0 -> 1 (same), 1 -> 0 (same), 2 -> 1 (other), 3 -> 0 (other)
    assert _same_group_nearest(vectors, np.array([0, 0, 1, 1])) == 0.5


# Relations


def test_each_map_has_the_vectors_of_its_own_terms():
    """Terms that both maps have, in another order: each term's vector is its own."""
    names = [f"t{number}" for number in range(12)]
    own = dict(zip(names, unit_vectors(12), strict=True))

    class Encoder:
        def encode(self, terms):
            return np.array([own[term] for term in terms])

    by_concept = [MapGroup("a", names[:6]), MapGroup("b", names[6:])]
    by_type = [MapGroup("x", names[:0:-2]), MapGroup("y", names[8::-2])]
    shown = ShownTerms(Dictionary([], [], ""), {}, by_concept, by_type, [], 12)
    figures = _draw_figures(shown, Subject("one", Encoder()), [])
    for groups, figure in zip((by_concept, by_type), figures, strict=True):
        vectors = Encoder().encode([term for group in groups for term in group.terms])
        (want,) = draw_maps(groups, [("one", vectors)]).maps
        np.testing.assert_array_equal(figure.maps[0].places, want.places)


def test_joined_concepts_are_several():
    dictionary = Dictionary(["pain", "ache"], ["C1|C2", "C2"], "toy")
    held = terms._terms_by_concept(dictionary)
    assert held == {"C1": ["pain"], "C2": ["pain", "ache"]}
    assert gather_entries(dictionary, list(held), {}).concepts_of == [[0, 1], [1]]
