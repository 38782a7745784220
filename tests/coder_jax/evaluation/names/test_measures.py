"""How near names are by their words, and by the distance of these."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from gensim.models import KeyedVectors

from coder_jax.evaluation.names.measures import SameWords, WordJaccard
from coder_jax.evaluation.names.word_movers import FARTHEST, WordMovers
from coder_jax.evaluation.vectors.word2vec_files import VectorTable
from coder_jax.evaluation.vectors.words_and_concepts import WordVectors
from data_pipeline.sources.text.words import words_of

NAMES = ["Heart attack", "attack of the heart", "heart infarct", "kidney stone", "the"]


def test_shared_words_by_all_words():
    jaccard = WordJaccard(NAMES)
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
        expected = FARTHEST if np.isinf(expected) else expected
        assert found[row, place] == pytest.approx(-expected, abs=1e-5), (query, name)
    assert ours.similarities(["xx", "heart"], np.array([0, 60])).tolist()[0] == [-FARTHEST] * 2


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
    code = "from coder_jax.evaluation.names.word_movers import load_pot; load_pot()"
    nothing_compiled = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    command = [sys.executable, "-W", "always", "-c", code]
    told = subprocess.run(command, cwd=repo, env=nothing_compiled, capture_output=True, text=True)
    assert told.returncode == 0
    assert f"{os.sep}ot{os.sep}" not in told.stderr
