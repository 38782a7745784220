"""Concepts that come into question: by vectors, by letters, by both."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from coder_jax.encoding.encoder import EncodedDictionary, TermEncoder, nearest_concepts
from coder_jax.mapping.candidates import SAME, TRIGRAMS, Candidates, _judged
from coder_jax.mapping.coded_list import KINDS, Candidate
from coder_jax.mapping.confidence import misspelt
from data_pipeline.process import BadInput
from data_pipeline.terminology.tf_idf import CharacterTfIdf

TERMS = [
    *("Myocardial infarction", "Heart attack", "Hypertension", "High blood pressure"),
    *("Nephropathy", "Kidney disease", "Hépatite", "Hepatitis", "Headache", "Cephalalgia"),
]
CONCEPTS = ["MI", "MI", "HT", "HT", "KD", "KD", "HE", "HE", "HA", "HA|CE"]
MENTIONS = ["heart atack", "nefropathy", "hepatite", "pressure of the blood"]


@pytest.fixture(scope="module")
def encoder(minilm_path):
    return TermEncoder.from_pretrained(minilm_path, cleaning="none")


@pytest.fixture(scope="module")
def encoded(encoder):
    return encoder.encode_dictionary((TERMS, CONCEPTS))


def by_hand(encoder, encoded, mention, kind):
    """Concept -> score, from all terms."""
    weigh = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 3), strip_accents="unicode", sublinear_tf=True
    )
    letters = (weigh.fit_transform(TERMS) @ weigh.transform([mention]).T).toarray().ravel()
    cosines = encoded.vectors @ encoder.encode([mention])[0]
    w = 3 * (1 - cosines.max())
    scores = {}
    for concept in {one for joined in CONCEPTS for one in joined.split("|")}:
        rows = [row for row, joined in enumerate(CONCEPTS) if concept in joined.split("|")]
        near, alike = cosines[rows].max(), letters[rows].max()
        both = (near + w * alike) / (1 + w)
        scores[concept] = {"vectors": near, "characters": alike, "both": both}[kind]
    return scores


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_by_hand(encoder, encoded, kind):
    ranked = Candidates(encoder, encoded, kind).ranked(MENTIONS, 6)
    for mention, found in zip(MENTIONS, ranked, strict=True):
        expected = by_hand(encoder, encoded, mention, kind)
        values = [one.similarity for one in found]
        assert values == sorted(values, reverse=True)
        for one in found:
            np.testing.assert_allclose(one.similarity, expected.pop(one.concept), atol=1e-5)
        assert all(score < 1e-6 for score in expected.values()), "no concept is missing"


def test_letters_find_what_vectors_miss(encoder, encoded):
    names = [*MENTIONS, "hedache", "cephalagia", "nephropatia"]
    right = ["MI", "KD", "HE", "HT", "HA", "HA", "KD"]
    first = {
        kind: [found[0].concept for found in Candidates(encoder, encoded, kind).ranked(names, 1)]
        for kind in KINDS
    }
    assert first["both"] == right
    assert first["vectors"] != right, "else it shows nothing"
    found = Candidates(encoder, encoded, "both").ranked(["hepatite"], 1)[0][0]
    assert found.term == "Hépatite", "the term that is most like the mention"


def test_vectors_alone_are_the_nearest_concepts(encoder, encoded):
    ranked = Candidates(encoder, encoded).ranked(MENTIONS, 3)
    nearest = nearest_concepts(encoder.encode(MENTIONS), encoded, 3)
    for found, expected in zip(ranked, nearest, strict=True):
        assert [one.concept for one in found[:3]] == [one.concept for one in expected]


def test_enough_concepts_and_all_ties_however_many_terms_a_concept_has():
    class Given:
        def encode(self, terms):
            return np.tile(np.float32([1, 0]), (len(terms), 1))

    terms = [f"t{number}" for number in range(200)]
    concepts = ["A"] * 150 + [f"C{number}" for number in range(50)]
    vectors = np.tile(np.float32([1, 0]), (200, 1))
    vectors[190:] = [0.6, 0.8]
    found = Candidates(Given(), EncodedDictionary(terms, concepts, vectors)).ranked(["x"], 2)[0]
    assert sum(found[0].similarity - one.similarity <= SAME for one in found) == 41
    assert [one.concept for one in found[:3]] == ["A", "C0", "C1"], "the order of the dictionary"


def test_what_shares_no_letters_has_no_candidate(encoder, encoded):
    assert Candidates(encoder, encoded, "characters").ranked(["咳", "zzz"], 2) == [[], []]
    with pytest.raises(BadInput, match="found 'letters'; expected vectors, characters, both"):
        Candidates(encoder, encoded, "letters")


def test_another_weight(encoder, encoded):
    both = Candidates(encoder, encoded, "both")
    more = both.with_weight(6)
    assert (both.weight, more.weight, more.characters) == (3, 6, both.characters)
    assert both.ranked(["nefropathy"], 1)[0][0].similarity != pytest.approx(
        more.ranked(["nefropathy"], 1)[0][0].similarity
    )
    none = both.with_weight(0).ranked(MENTIONS, 1)
    vectors = Candidates(encoder, encoded, "vectors").ranked(MENTIONS, 1)
    assert [found[0] for found in none] == [found[0] for found in vectors]


def test_the_first_of_each_weight_is_the_first_ranked(encoder, encoded):
    both, weights = Candidates(encoder, encoded, "both"), (0, 2, 9)
    for weight, first in zip(weights, both.first_by_weight(MENTIONS, weights), strict=True):
        ranked = both.with_weight(weight).ranked(MENTIONS, 1)
        assert first == [found[0].concept for found in ranked]
    letters = Candidates(None, encoded, "characters")
    assert letters.first_by_weight(["zzz", "hepatitis"], [1.0]) == [[None, "HE"]]


def test_the_most_alike_terms():
    rows = CharacterTfIdf(TERMS, **TRIGRAMS).most_alike(["HEPATITE", "", "blood pressure, high"], 2)
    assert [some[:1].tolist() for some in rows] == [[6], [], [3]]
    assert rows[0].tolist() == [6, 7]


def test_one_typing_error_each():
    names = ["hypertension", "ab", "a", "", "hepatitis"] * 40
    wrong = misspelt(names)
    assert wrong == misspelt(names) != misspelt(names, seed=1)
    for name, other in zip(names, wrong, strict=True):
        assert (other == name) == (len(name) < 2)
        assert abs(len(other) - len(name)) <= 1
        assert other[:1] == name[:1]
    lengths = {len(other) - len("hypertension") for other in wrong[::5]}
    assert lengths == {-1, 0, 1}
    swapped = [other for other in wrong[::5] if sorted(other) == sorted("hypertension")]
    assert swapped and all(other != "hypertension" for other in swapped)


def test_what_is_denied_of_one_name_is_denied_of_the_concept():
    fever = Candidate("F", "Fever", 0.7)
    judged = _judged("cough without fever", fever, ["Fever", "febbre"])
    assert judged.differs == ("negation",)
