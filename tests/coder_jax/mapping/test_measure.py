"""What is to be expected of answers, measured on mentions whose concept is known."""

import json

import numpy as np
import pytest

from coder_jax.encoding.encoder import EncodedDictionary
from coder_jax.mapping import measure
from coder_jax.mapping.candidates import Candidates
from coder_jax.mapping.cutoffs import ALL, Cutoffs, cutoff_for
from coder_jax.mapping.measure import best_weight, measured_cutoffs, outcomes
from coder_jax.mapping.normalizer import Normalizer
from coder_jax.mapping.rule import Confidence, Rule, margin_of
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.obo import read_obo

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
        rule=Rule(measured=Confidence(*rule[1:]), least_confidence=least),
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
    assert cutoffs.of().mentions == sum(not one for one in exact)
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


def test_too_few_mentions(names, normalizer):
    mentions, gold, _ = names
    with pytest.raises(BadInput, match=r"found \d+ mentions that are no strings.*expected 100"):
        measured_cutoffs(normalizer, mentions[:50], gold[:50])
    said = []
    few = ["ENG"] * 90 + ["GER"] * (len(mentions) - 90)
    found = measured_cutoffs(normalizer, mentions, gold, few, tell=said.append)
    assert list(found.tables) == [ALL, "GER"] and "no table" in said[1]


def test_the_weight_with_most_right_answers():
    right_at = {weight: 3 for weight in measure.WEIGHTS} | {2.0: 7, 6.0: 7}

    class Given:
        def first_by_weight(self, strings, weights):
            assert len(strings) == 20, "names, and the same misspelt"
            return [
                ["C"] * right_at[weight] + [None] * (20 - right_at[weight]) for weight in weights
            ]

    assert best_weight(Given(), ["name"] * 10, [{"C"}] * 10) == 2.0


def test_outcomes(normalizer):
    terms, concepts = normalizer.dictionary.terms, normalizer.dictionary.concepts
    other = next(concept for concept in concepts if concept != concepts[0])
    similarities, margins, right = outcomes(
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
