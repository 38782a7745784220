"""Cut-offs: the table of precision and coverage, the choice, and cutoffs.json."""

import dataclasses
import json

import numpy as np
import pytest

from coder_jax.encoding.encoder import EncodedDictionary
from coder_jax.mapping import confidence
from coder_jax.mapping.candidates import Candidates
from coder_jax.mapping.confidence import (
    _LEAST_ANSWERED,
    _MOST_ROWS,
    ALL,
    Cutoffs,
    CutoffTable,
    _best_weight,
    _outcomes,
    _precision_and_coverage,
    _with_errors,
    cutoff_for,
    measure_cutoffs,
    measured_cutoffs,
)
from coder_jax.mapping.normalizer import Confidence, Normalizer, Rule, margin_of
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput
from data_pipeline.sources.obo import read_obo


def test_by_hand():
    table = _precision_and_coverage(
        np.array([0.9, 0.7, 0.9, 0.5, -np.inf]), np.array([True, False, True, True, True])
    )
    assert table == CutoffTable(5, [0.5, 0.7, 0.9], [4, 3, 2], [3, 2, 2])
    assert table.rows == [(0.5, 0.75, 0.8, 4), (0.7, 2 / 3, 0.6, 3), (0.9, 1, 0.4, 2)]


def test_equal_but_for_rounding_stay_together():
    similarities = np.array([0.9999999, 1.0000001, 0.8, 0.79999995, 0.123456], np.float32)
    table = _precision_and_coverage(similarities, np.array([True, True, False, True, False]))
    assert table == CutoffTable(5, [0.1234, 0.8, 1.0], [5, 4, 2], [3, 3, 2])
    assert [int((similarities >= cutoff - 1e-6).sum()) for cutoff in table.cutoffs] == [5, 4, 2]
    assert _precision_and_coverage(similarities[3:4], np.array([True])).cutoffs == [0.8]


def test_no_mention_has_an_answer():
    table = _precision_and_coverage(np.array([-np.inf, -np.inf]), np.array([False, False]))
    assert table.rows == [] and cutoff_for(table, 0.5, least_answered=1) is None


@pytest.mark.parametrize("similarities", [[0.5, np.nan], [0.5, np.inf], [0.5], []])
def test_what_cannot_be_measured(similarities):
    with pytest.raises(ValueError, match="expected"):
        _precision_and_coverage(np.array(similarities), np.ones(len(similarities[:1]) * 2, bool))


def test_of_many_mentions_agrees_with_counting():
    rng = np.random.default_rng(0)
    similarities = rng.beta(8, 2, 5_000).astype(np.float32)
    right = rng.random(5_000) < similarities
    table = _precision_and_coverage(similarities, right)
    assert _MOST_ROWS / 2 < len(table.rows) <= _MOST_ROWS
    assert table.answered[0] == 5_000 and table.cutoffs[-1] == pytest.approx(
        similarities.max(), abs=1e-4
    )
    for cutoff, precision, coverage, answered in table.rows:
        given = [right[i] for i in range(5_000) if similarities[i] >= cutoff - 1e-6]
        assert (len(given), sum(given) / len(given)) == (answered, pytest.approx(precision))
        assert coverage == len(given) / 5_000
    steps = -np.diff(table.answered)
    assert steps.max() < 3 * 5_000 / _MOST_ROWS, "rows split the answered mentions evenly"


TABLE = CutoffTable(
    1_000, [0.2, 0.4, 0.6, 0.8, 0.9], [1_000, 400, 200, 100, 10], [700, 370, 170, 95, 5]
)


def test_the_precision_stays_from_the_cutoff_on():
    # At 0.4 it is .925, but at 0.6 only .85; at 0.9 too few answers say anything.
    assert cutoff_for(TABLE, 0.9) == 0.8
    assert cutoff_for(TABLE, 0.85) == 0.4
    assert cutoff_for(TABLE, 0.7) == 0.2
    assert cutoff_for(TABLE, 0.96) is None
    assert cutoff_for(TABLE, 0.85, least_answered=10) is None
    assert cutoff_for(TABLE, 0.85, least_answered=101) == 0.4
    assert _LEAST_ANSWERED == 30


def test_percent_is_refused():
    with pytest.raises(ValueError, match="found the precision 90; expected a share"):
        cutoff_for(TABLE, 90)


def test_a_promise_is_kept_by_others():
    """The cut-off of one half of the mentions has the precision on the other half."""
    rng = np.random.default_rng(1)
    similarities = rng.uniform(0.4, 1, 200_000)
    right = rng.random(200_000) < similarities**2
    cutoff = cutoff_for(_precision_and_coverage(similarities[::2], right[::2]), 0.8)
    given = similarities[1::2] >= cutoff
    precision = right[1::2][given].mean()
    # Of a difference of two shares; rows lie .001 of precision apart.
    standard_error = np.sqrt(2 * 0.8 * 0.2 / given.sum())
    assert abs(precision - 0.8) < 2 * standard_error + 0.001


@pytest.fixture
def measured():
    similarities = np.array([0.9, 0.8, 0.7, 0.6])
    right, languages = np.array([True, True, False, True]), np.array(["FRE", "GER", "GER", ""])
    found = measure_cutoffs(similarities, right, languages)
    return dataclasses.replace(found, measured_on={"benchmark": "mine"})


def test_by_language_and_again_from_its_file(measured, tmp_path):
    assert list(measured.tables) == [ALL, "FRE", "GER"]
    assert measured.of("GER") == CutoffTable(2, [0.7, 0.8], [2, 1], [1, 1])
    assert measured.of("SPA") == measured.of() == measured.tables[ALL]
    measured.write(tmp_path / "cutoffs.json")
    assert Cutoffs.read(tmp_path / "cutoffs.json") == measured


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("tables",), [], "tables is an empty list; expected object"),
        (("tables", "GER", "cutoffs"), ["high", 0.8], "expected float"),
        (("tables", "GER", "cutoffs"), [0.7, 8], "expected float <= 1.001"),
        (("tables", "GER", "cutoffs"), [0.8, 0.7], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "cutoffs"), [0.7], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "answered"), [1, 1], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "answered"), [3, 1], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "answered"), [1, 0], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "right"), [1, 2], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "right"), [2, 0], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "right"), [2, 1], None),
        (("tables", "GER", "right"), [0, 1], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "mentions"), 0, "expected int >= 1"),
        (("tables", ALL), None, "expected object"),
        (("measured_on",), {"dictionary": "hpo"}, 'dictionary is "hpo"; expected object'),
        (("measured_on",), {"dictionary": {"source": "hpo", "terms": 0}}, "expected int >= 1"),
        (("format",), "coder_jax run 3", "python -m coder_jax train"),
    ],
)
def test_broken_files(measured, tmp_path, place, value, message):
    path = tmp_path / "cutoffs.json"
    measured.write(path)
    content = json.loads(path.read_text())
    *outer, last = place
    target = content
    for key in outer:
        target = target[key]
    target[last] = value
    path.write_text(json.dumps(content))
    if message is None:
        assert Cutoffs.read(path).of("GER").right == value
        return
    with pytest.raises(BadInput, match=message):
        Cutoffs.read(path)


def test_a_file_without_the_table_of_all(measured, tmp_path):
    path = tmp_path / "cutoffs.json"
    Cutoffs({"GER": measured.of("GER")}).write(path)
    with pytest.raises(BadInput, match="found no table 'all'; make it again"):
        Cutoffs.read(path)


# -------------------------------------------------------------------------------------------------
# What is to be expected of answers, measured on mentions whose concept is known.

HPO = {"source": "hpo", "terms": 30_000}


@pytest.fixture(scope="module")
def names(hpo_path):
    """Names of the Human Phenotype Ontology: some held out, and the dictionary of the others."""
    atoms = read_obo(hpo_path).atoms.select("cui", "term").unique().sort("cui", "term").collect()
    several = atoms.filter(atoms["cui"].is_duplicated())[:4000]
    held = several.filter(several["cui"].is_first_distinct())
    rest = several.join(held, on=["cui", "term"], how="anti", maintain_order="left")
    return held["term"].to_list(), held["cui"].to_list(), rest


@pytest.fixture(scope="module")
def normalizer(names):
    terms, concepts = names[2]["term"].to_list(), names[2]["cui"].to_list()
    encoded = EncodedDictionary(terms, concepts, np.zeros((len(terms), 2), np.float32))
    candidates = Candidates(None, encoded, "characters")  # no vectors are asked for
    return Normalizer(Dictionary(terms, concepts, "hpo"), candidates)


@pytest.fixture(scope="module")
def cutoffs(names, normalizer):
    mentions, gold, _ = names
    halves = ["ENG" if row % 2 else "GER" for row in range(len(mentions))]
    return measured_cutoffs(normalizer, mentions, gold, halves, {"dictionary": HPO})


@pytest.mark.slow
def test_what_was_promised_holds_for_other_names(names, normalizer):
    """Cut-offs of one half of the names, measured on the other half."""
    mentions, gold, _ = names
    chosen = measured_cutoffs(normalizer, mentions[::2], gold[::2])
    table, rule = chosen.of(), chosen.rules[ALL]
    least = cutoff_for(table, 0.8)
    promised = next(row for row in table.rows if row.cutoff == least)
    normalizer = Normalizer(
        normalizer.dictionary,
        normalizer.candidates,
        rule=Rule(measured=rule.confidence, least_confidence=least),
    )
    answers = normalizer.answers(mentions[1::2])
    near = [(a, c) for a, c in zip(answers, gold[1::2], strict=True) if a.status != "exact"]
    given = [(a.concept == c) for a, c in near if a.concept is not None]
    precision, coverage = np.mean(given), len(given) / len(near)
    error = np.sqrt(0.8 * 0.2 / len(given))
    assert abs(precision - promised.precision) < 3 * error
    assert abs(coverage - promised.coverage) < 3 * np.sqrt(0.25 / len(near))
    assert 0.1 < coverage < 0.9, "the cut-off does something"


def test_a_table_and_a_rule_for_each_language(cutoffs, names, normalizer):
    assert list(cutoffs.tables) == [ALL, "ENG", "GER"] == list(cutoffs.rules)
    exact = normalizer.exact(names[0])
    spelt = normalizer.misspelt(names[0])
    looked_up = sum(bool(one or other) for one, other in zip(exact, spelt, strict=True))
    assert cutoffs.of().mentions == len(names[0]) - looked_up
    assert cutoffs.of("ENG").mentions + cutoffs.of("GER").mentions == cutoffs.of().mentions
    assert cutoffs.of("FRE") == cutoffs.of()
    assert cutoffs.measured_on == {"candidates": "characters", "dictionary": HPO}
    assert cutoffs.rules["ENG"].of_margin > 0


def test_written_and_read(cutoffs, tmp_path):
    cutoffs.write(tmp_path / "cutoffs.json")
    assert Cutoffs.read(tmp_path / "cutoffs.json") == cutoffs
    broken = json.loads((tmp_path / "cutoffs.json").read_text())
    broken["rules"]["ENG"]["of_margin"] = "large"
    (tmp_path / "cutoffs.json").write_text(json.dumps(broken))
    with pytest.raises(BadInput, match="a value in rules is str; expected float"):
        Cutoffs.read(tmp_path / "cutoffs.json")
    del broken["rules"]["ENG"]
    (tmp_path / "cutoffs.json").write_text(json.dumps(broken))
    with pytest.raises(BadInput, match="tables and rules of different languages"):
        Cutoffs.read(tmp_path / "cutoffs.json")


@pytest.mark.slow
def test_too_few_mentions(names, normalizer):
    mentions, gold, _ = names
    with pytest.raises(BadInput, match=r"found \d+ mentions that are no strings.*expected 100"):
        measured_cutoffs(normalizer, mentions[:50], gold[:50])
    said = []
    few = ["ENG"] * 90 + ["GER"] * (len(mentions) - 90)
    found = measured_cutoffs(normalizer, mentions, gold, few, tell=said.append)
    assert list(found.tables) == [ALL, "GER"] and "no table" in said[1]


def test_the_weight_with_most_right_answers():
    right_at = {weight: 3 for weight in confidence._WEIGHTS} | {2.0: 7, 6.0: 7}

    class Given:
        def first_by_weight(self, strings, weights):
            return [
                ["C"] * right_at[weight] + [None] * (20 - right_at[weight]) for weight in weights
            ]

    assert _best_weight(Given(), ["name"] * 20, [{"C"}] * 20) == 2.0


def test_letters_are_weighed_with_misspelt_terms_of_the_dictionary(normalizer):
    terms = normalizer.dictionary.terms
    strings, gold = _with_errors(normalizer, ["zz yy", "qq xx"], [{"A"}, {"B"}])
    assert strings[:2] == ["zz yy", "qq xx"] and gold[:2] == [{"A"}, {"B"}]
    assert 4 <= len(strings) == len(gold) <= 6
    assert not set(strings) & set(terms), "what is looked up as it is needs no letters"
    assert not any(normalizer.misspelt(strings))


def test_outcomes(normalizer):
    terms, concepts = normalizer.dictionary.terms, normalizer.dictionary.concepts
    other = next(concept for concept in concepts if concept != concepts[0])
    similarities, margins, right = _outcomes(
        normalizer.candidates, [terms[0], terms[0], "zzzz"], [{concepts[0]}, {other}, {"C"}]
    )
    np.testing.assert_allclose(similarities, [1, 1, -np.inf], atol=1e-6)
    assert margins[0] == margins[1] > 0 == margins[2]
    assert right.tolist() == [True, False, False]


def test_confidence_is_a_likelihood():
    rng = np.random.default_rng(0)
    similarity, margin = rng.random(20_000), rng.random(20_000) * 0.3
    likely = 1 / (1 + np.exp(-(-4 + 5 * similarity + 10 * margin)))
    found = Confidence.fitted(similarity, margin, rng.random(20_000) < likely)
    np.testing.assert_allclose(found, [-4, 5, 10], atol=0.5)
    assert found.of(0.9, 0.2) == pytest.approx(1 / (1 + np.exp(-2.5)), abs=0.02)
    same = Confidence.fitted(similarity[:98], margin[:98], np.ones(98, bool))
    assert same.of(0.1, 0) == same.of(0.9, 0.3) == pytest.approx(0.99)


def test_rules():
    measured = Confidence(-2, 4, 0)
    assert Rule().why_not(-1, 0) == "" and Rule().confidence(0.5, 0) is None
    assert Rule(0.6).why_not(0.5, 0) == "similarity 0.500 is below 0.600"
    rule = Rule(measured=measured, least_confidence=0.6)
    assert rule.why_not(0.5, 0) == "confidence 0.500 is below 0.600"
    assert rule.why_not(0.7, 0) == ""
    assert margin_of([]) == 0
