"""Coverage at k: against every order of what is tied, by hand, and what cannot be read."""

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from evaluating import ENCODER
from gensim.models import KeyedVectors

from coder_jax.evaluation.annotated_text import Pair, SearchedNames, _with_exact_matches
from coder_jax.evaluation.benchmarks import options_with, read_benchmark, score, tables_of
from coder_jax.evaluation.name_pairs import (
    _FARTHEST,
    Cosine,
    NamesByConcept,
    NameStrings,
    SameWords,
    WordJaccard,
    WordMovers,
    _coverage_of_names,
    average_precision,
)
from coder_jax.evaluation.normalization import Mentions
from coder_jax.evaluation.vectors import EncodedTerms, VectorTable, WordVectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput
from data_pipeline.sources.text import words_of

NAMES = ["heart attack", "attack of the heart", "heart infarct", "kidney stone", "renal stone"]
CONCEPTS = ["C1", "C1", "C1", "C2", "C2"]


def vectors_of(names, rows):
    return EncodedTerms(None, names, np.asarray(rows, np.float32))


def naive(similarity, concepts, k):
    """The mean over all orders of the other names that fall with their similarity."""
    shares = []
    for row, values in enumerate(similarity):
        others = [one for one in range(len(values)) if one != row]
        synonyms = {one for one in others if concepts[one] == concepts[row]}
        found = [
            len(synonyms.intersection(order[:k])) / len(synonyms)
            for order in itertools.permutations(others)
            if all(values[a] >= values[b] for a, b in itertools.pairwise(order))
        ]
        shares.append(np.mean(found))
    return shares


def test_coverage_is_the_mean_over_orders_of_equally_near_names():
    """Vectors of few values: many are equally near."""
    rng = np.random.default_rng(0)
    names = [f"name {number}" for number in range(7)]
    concepts = np.array([0, 0, 0, 1, 1, 2, 2])
    for _ in range(5):
        rows = rng.choice([-1.0, 1.0], (7, 3))
        similarity = np.round(rows @ rows.T / 3, 6)
        measure = Cosine(vectors_of(names, rows), names)
        found = _coverage_of_names(measure, names, concepts, [1, 2, 3, 99])
        for column, k in enumerate((1, 2, 3, 99)):
            expected = naive(similarity, concepts, k)
            np.testing.assert_allclose(found[:, column], expected, atol=1e-9)
    assert np.all(found[:, 3] == 1)


def write(folder, text):
    path = folder / "heldout" / "concepts.tsv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return folder


def rows_of(names, concepts):
    rows = zip(names, concepts, strict=True)
    return "term\tCUI\n" + "".join(f"{one}\t{cui}\n" for one, cui in rows)


def test_the_record_and_its_table_by_hand(tmp_path):
    """Of five names on a line the nearest is a synonym for three, both others for two of three."""
    benchmark = read_benchmark("mine", write(tmp_path, rows_of(NAMES, CONCEPTS)))
    angles = np.deg2rad([0, 10, 25, 32, 60])
    vectors = vectors_of(NAMES, np.stack([np.cos(angles), np.sin(angles)], axis=1))
    record = score(benchmark, vectors, ENCODER, options_with(k=(2, 1)))
    # k = 1: 1/2, 1/2, 0 (the kidney stone is nearer), 0, 1. k = 2: 1, 1, 1/2 (one of the two), 0, 1
    assert record.scores == pytest.approx({"coverage@1": 2 / 5, "coverage@2": 3.5 / 5})
    # Words: "of the" are none, so the two first are one; each shares a word with the third.
    words = record.folds["word Jaccard"]["scores"]
    assert words == pytest.approx({"coverage@1": (0.5 + 0.5 + 0.5 + 1 + 1) / 5, "coverage@2": 1})
    low, high = record.intervals["coverage@2"]
    # Concepts are drawn whole: two of the first, two of the second, or one of each.
    assert (low, high) == pytest.approx((0.5, 2.5 / 3))
    ((header, rows),) = tables_of([record])
    assert header == ["coverage", "pooling", "names", "concepts", "coverage@1", "coverage@2"]
    assert rows[0].cells[:4] == ["mine", "cls", "5", "2"]
    assert rows[0].cells[5].startswith("70.00 ±")
    assert rows[1].cells == ["mine: word Jaccard", "", "", "", "70.00", "100.00"]


def test_names_without_a_vector_are_counted(tmp_path):
    benchmark = read_benchmark("mine", write(tmp_path, rows_of(NAMES, CONCEPTS)))
    table = VectorTable({"heart": 0}, np.ones((1, 2), np.float32), 1, "hash", "w.txt")
    record = score(benchmark, WordVectors(table), ENCODER)
    assert record.counts == {"names": 5, "concepts": 2, "missing": 2, "partly_known": 3}
    # Those three are equally near; the stones have the cosine 0 with all four others.
    assert record.scores["coverage@1"] == pytest.approx((3 * 0.5 + 2 * 0.25) / 5)


@pytest.mark.parametrize(
    "text, message",
    [
        ("term\tCUI\na\tC1\nb\tC1\na\tC2\n", "found 'a' twice; expected each name once"),
        ("term\tCUI\na\tC1\nb\tC1\nc\tC2\n", "found one name of C2; expected two or more"),
        ("term\tCUI\n", "found a header and no rows"),
    ],
)
def test_what_cannot_be_scored(tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        read_benchmark("mine", write(tmp_path, text))


# -------------------------------------------------------------------------------------------------
# How near names are by their words, and by the distance of these.

NAMES_MEASURES = ["Heart attack", "attack of the heart", "heart infarct", "kidney stone", "the"]


def test_shared_words_by_all_words():
    jaccard = WordJaccard(NAMES_MEASURES)
    rows = np.array([0, 1, 2, 3])
    found = jaccard.similarities(["heart-attack (acute)", "stone stone", "nothing"], rows)
    np.testing.assert_allclose(found, [[2 / 3, 2 / 3, 1 / 4, 0], [0, 0, 0, 1 / 2], [0, 0, 0, 0]])
    np.testing.assert_allclose(jaccard.similarities(["The"], np.array([4, 2])), [[1, 0]])
    assert jaccard.nearest("acute heart attack").tolist() == [0, 1]
    same = SameWords(jaccard)
    assert same.nearest("heart attack").tolist() == [0, 1]
    assert same.nearest("acute heart attack").tolist() == []
    np.testing.assert_array_equal(same.similarities(["Heart attack"], rows), [[1, 1, 0, 0]])


WORDS = "heart attack infarct kidney stone acute renal failure of chronic disease".split()


@pytest.fixture
def words():
    vectors = np.random.default_rng(1).normal(size=(len(WORDS), 5)).astype(np.float32)
    return WordVectors(
        VectorTable(dict(zip(WORDS, range(len(WORDS)), strict=True)), vectors, 1, "", "")
    )


@pytest.fixture
def names():
    rng = np.random.default_rng(2)
    return [" ".join(rng.choice([*WORDS, "unseen"], rng.integers(1, 5))) for _ in range(60)] + [
        "xx"
    ]


@pytest.mark.parity
def test_word_movers_distance_as_gensim_has_it(words, names):
    theirs = KeyedVectors(5)
    theirs.add_vectors(WORDS, words.table.vectors)
    ours = WordMovers(words, names)
    queries = ["acute heart heart attack", "unseen kidney failure", "stone"]
    found = ours.similarities(queries, np.arange(60))
    for (row, query), (place, name) in itertools.product(enumerate(queries), enumerate(names[:60])):
        expected = theirs.wmdistance(query.split(), name.split())
        expected = _FARTHEST if np.isinf(expected) else expected
        assert found[row, place] == pytest.approx(-expected, abs=1e-5), (query, name)
    assert ours.similarities(["xx", "heart"], np.array([0, 60])).tolist()[0] == [-_FARTHEST] * 2


def test_pruning_finds_what_comparing_all_finds(words, names):
    ours = WordMovers(words, [*names, names[0]])
    everything = np.arange(len(names) + 1)
    for query in (*names[:20], "acute renal disease", "chronic attack attack"):
        (similarity,) = ours.similarities([query], everything)
        expected = np.flatnonzero(similarity >= similarity.max() - 1e-6)
        if ours.words.rows(query):
            bounds = ours._lower_bounds(ours.bag(query))
            assert np.all(bounds <= -similarity[ours.known] + 1e-7), query
            assert sorted(ours.nearest(query)) == expected.tolist(), query
    assert len(ours.nearest("xx")) == len(everything), "all are as near"
    assert words_of(names[0])


def test_bounds_leave_most_names_out(words, names, monkeypatch):
    ours = WordMovers(words, names)
    compared = []
    distance = ours.distance
    monkeypatch.setattr(ours, "distance", lambda a, b: compared.append(b) or distance(a, b))
    ours.nearest("acute renal disease")
    assert 0 < len(compared) < len(names) / 2


@pytest.mark.slow
def test_the_first_import_of_pot_warns_of_nothing(repo, tmp_path):
    code = "from coder_jax.evaluation.name_pairs import _load_pot; _load_pot()"
    nothing_compiled = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    command = [sys.executable, "-W", "always", "-c", code]
    told = subprocess.run(command, cwd=repo, env=nothing_compiled, capture_output=True, text=True)
    assert told.returncode == 0
    assert f"{os.sep}ot{os.sep}" not in told.stderr


# -------------------------------------------------------------------------------------------------
# Candidates by BM25, against its formula; average precision, against every order of ties.


def precision_of_order(relevant, expected):
    hits, summed = 0, 0.0
    for place, one in enumerate(relevant, start=1):
        hits += one
        summed += one * hits / place
    return summed / expected


def naive_of_retrieval(similarity, relevant, expected):
    """The mean over all orders that fall with the similarity."""
    orders = [
        order
        for order in itertools.permutations(range(len(relevant)))
        if all(similarity[a] >= similarity[b] for a, b in itertools.pairwise(order))
    ]
    found = [precision_of_order([relevant[one] for one in order], expected) for order in orders]
    return np.mean(found)


def test_average_precision_is_the_mean_over_orders_of_ties():
    rng = np.random.default_rng(0)
    for _ in range(40):
        similarity = rng.choice([0.0, 0.5, 1.0], 6)
        relevant = rng.random(6) < 0.5
        found = average_precision(similarity, relevant, 4)
        assert found == pytest.approx(naive_of_retrieval(similarity, relevant, 4), abs=1e-12)
    assert average_precision(np.array([0.9, 0.8, 0.7]), np.array([True, False, True]), 2) == (
        pytest.approx((1 + 2 / 3) / 2)
    )


NAMES_RETRIEVAL = [
    *("heart attack", "acute infarct of the heart", "kidney stone", "renal calculus"),
    *("heart pain", "stone heart", "cold"),
]
CONCEPTS_RETRIEVAL = ["C2", "C2", "C1", "C1", "C3", "C4", "C2|C5"]
DICTIONARY = Dictionary(NAMES_RETRIEVAL, CONCEPTS_RETRIEVAL, "toy")


def bm25(query, names):
    """Robertson's formula with Lucene's weight of words, k1 1.2 and b 0.75."""
    bags = [words_of(name) for name in names]
    mean = sum(map(len, bags)) / len(bags)
    scores = []
    for bag in bags:
        score = 0.0
        for word in words_of(query):
            has = sum(word in one for one in bags)
            weight = math.log(1 + (len(bags) - has + 0.5) / (has + 0.5))
            often = bag.count(word)
            score += weight * often / (often + 1.2 * (1 - 0.75 + 0.75 * len(bag) / mean))
        scores.append(score)
    return scores


def test_candidates_are_the_concepts_of_the_best_names():
    found = NamesByConcept(DICTIONARY)
    assert [found.names[row] for row in found.rows_of([found.number["C2"]])] == [
        *("heart attack", "acute infarct of the heart", "cold")
    ]
    assert found.names.count("cold") == 2 and len(set(found.strings.tolist())) == 7
    for query in ("stone heart", "kidney heart heart", "acute cold", "renal"):
        scores = bm25(query, found.names)
        theirs = found._bm25.get_scores(words_of(query))
        np.testing.assert_allclose(theirs, scores, rtol=1e-5)
        best = {}
        for number, one in zip(found.concepts.tolist(), scores, strict=True):
            best[number] = max(one, best.get(number, 0))
        expected = sorted((one for one in best if best[one] > 0), key=lambda one: -best[one])
        assert found.candidates(query).tolist() == expected, query
    assert found.candidates("nothing known").tolist() == []


def test_at_most_twenty_concepts():
    many = Dictionary([f"pain {n}" for n in range(30)], [f"C{n}" for n in range(30)], "toy")
    assert NamesByConcept(many).candidates("pain").tolist() == list(range(20))


class ByLength:
    """A measure by hand: the shorter, the nearer; nearest is the first name alone."""

    def __init__(self, names):
        self.names = names

    def similarities(self, queries, rows):
        return -np.array([[len(self.names[row]) for row in rows] for _ in queries], float)

    def nearest(self, query):
        return np.array([0, 5])


def test_precision_of_mentions_and_who_is_reached():
    searched = SearchedNames(DICTIONARY, ["heart", "renal", "unknown"])
    measure = ByLength(searched.names.names)
    pairs = [
        Pair("heart", "C2"),
        Pair("heart", "C3|C9"),
        Pair("renal", "C2"),
        Pair("heart", "C2|C1"),
        Pair("unknown", "C1"),
    ]
    assert searched.reached(pairs).tolist() == [True, True, False, True, False]
    # Candidates of "heart", by length: cold, heart pain, stone heart, heart attack, acute infarct.
    # C1 has two more names, which are no candidates.
    heart = (1 + 2 / 4 + 3 / 5) / 3
    expected = [heart, 1 / 2, 0, heart * 3 / 5, 0]
    np.testing.assert_allclose(searched.precisions(measure, pairs), expected)
    # The two nearest names are of C2 and C3: each is taken half of the time.
    names = searched.names
    assert {names.concepts[0], names.concepts[5]} == {names.number["C2"], names.number["C3"]}
    np.testing.assert_allclose(searched.right(measure, pairs), [0.5, 0.5, 0.5, 0.5, 0])


def test_exact_matches_take_the_place_of_answers():
    right = np.array([1.0, 0.0, 0.5, 0.25])
    found = _with_exact_matches(right, ["C1", "C1|C2", "C3", "C4"], ["C9", "C2|C7", "", "C4"])
    assert found.tolist() == [0, 1, 0.5, 1]


# Concept, names: two concepts have the same name.
OF_STRINGS = Dictionary(
    ["Ache", "pain", "pains", "Rash", "rash", "fever"], ["A", "A", "B", "C", "D", "E|F"], "names"
)


@pytest.mark.parametrize(
    ("kind", "mention", "gold", "place"),
    [
        # (ahead, tied, gold tied, reachable)
        ("exact match", "PAIN", "A", (0, 0, 1, True)),
        ("exact match", "RASH", "C", (0, 1, 1, True)),
        ("exact match", "RASH", "C|D", (0, 0, 2, True)),
        ("exact match", "pain", "B", (5, 0, 1, True)),  # of six, behind all others: no answer
        ("exact match", "a pain", "E|F", (4, 0, 1, True)),
        ("exact match", "pain", "Z", (0, 0, 1, False)),
        ("edit distance", "painss", "A", (1, 0, 1, True)),  # 2 edits of 6 letters, of pains 1
        ("edit distance", "fevr", "F", (0, 1, 1, True)),
        ("tf-idf", "fevers", "E|F", (0, 0, 2, True)),
        ("tf-idf", "xyz", "A", (5, 0, 1, True)),
        ("bm25", "fever and rash", "D", (0, 3, 1, True)),  # a name of two concepts counts twice
    ],
)
def test_places_by_strings_alone(kind, mention, gold, place):
    counts = NameStrings(kind).counts(["ache", mention, mention], ["A", gold, gold], OF_STRINGS)
    assert [tuple(part[i].item() for part in counts) for i in (1, 2)] == [place] * 2


def test_strings_are_scored_in_the_place_of_vectors(tmp_path):
    (tmp_path / "mentions.tsv").write_text("pain\tA\nrash\tC\nfebrile\tE\nnone\tZ\n")
    found = read_benchmark("x", tmp_path / "mentions.tsv", dictionary=OF_STRINGS)
    assert isinstance(found, Mentions)
    strings = NameStrings("exact match")
    record = score(found, strings, strings.protocol)
    assert record.scores["acc@1"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert record.counts["unreachable"] == 1 and record.encoder.model == "exact match"
    assert record.answers.ranks == {"": "1 1+1 6 -"}
    (tmp_path / "pairs.tsv").write_text("pain\tpains\t9\npain\tfever\t1\nrash\tRash\t10\n")
    pairs = read_benchmark("p", tmp_path / "pairs.tsv")
    strings = NameStrings("edit distance")
    record = score(pairs, strings, strings.protocol)
    assert record.pairs.cosines == pytest.approx([0.8, 0, 1]) and record.scores["spearman"] == 1
    with pytest.raises(BadInput, match="of which BM25 has no similarity"):
        score(pairs, NameStrings("bm25"), strings.protocol)


def test_strings_that_are_not_known_or_have_no_vectors(tmp_path):
    with pytest.raises(BadInput, match="found 'bm52'; did you mean bm25"):
        NameStrings("bm52")
    with pytest.raises(BadInput, match="found no vectors, as strings are compared"):
        NameStrings("bm25").encode(["pain"])
