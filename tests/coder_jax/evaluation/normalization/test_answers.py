"""What mentions were answered: five concepts each, as tables; ranks, cut-offs, distribution."""

import numpy as np
import polars as pl
import pytest
from evaluating import ENCODER

from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.normalization import answers as module
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.answers import (
    answers_of,
    described,
    distribution,
    prediction_table,
    write_predictions,
    wrong_answers,
)
from coder_jax.evaluation.normalization.benchmark import NormalizationFold
from coder_jax.evaluation.normalization.mentions import Mentions
from coder_jax.evaluation.vectors.vectors import TERMS
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary
from data_pipeline.process.errors import BadInput

DICTIONARY = Dictionary(
    ["pain", "ache", "fever", "pyrexia", "cough", "Asthma", "left, right"],
    ["C1", "C1", "C2", "C2|C7", "C3", "C4", "C5"],
    "toy.tsv",
    languages=["ENG", "ENG", "ENG", "FRE", "ENG", "ENG", "ENG"],
    about_concepts={"C2": AboutConcept("Fever (finding)")},
)


def angle(degrees):
    return [np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]


PLACES = dict(zip(DICTIONARY.terms, range(0, 70, 10), strict=True))
PLACES |= {"hurts": 4, "hot\tand cold": 29, "unknown": 61, "asthme": 42}


class Angles:
    """Terms as directions in a plane; as many as are asked for at a time."""

    keyed_by = TERMS

    def __init__(self):
        self.asked = []

    def encode(self, terms):
        self.asked.append(len(terms))
        return np.array([angle(PLACES[term]) for term in terms], np.float32)

    def known(self, terms):
        return np.ones(len(terms), bool)


def toy(languages=None):
    fold = NormalizationFold(
        "",
        ["hurts", "hot\tand cold", "unknown", "asthme"],
        ["C1", "C2", "C9", "C4|C5"],
        DICTIONARY,
        languages,
    )
    return Mentions("my list", "toy.tsv", [fold], "0" * 64)


def test_the_table(tmp_path):
    benchmark, encode = toy(), Angles().encode
    result = evaluate_normalization(encode, benchmark)
    files = write_predictions(tmp_path, benchmark, result, answers_of(encode, benchmark, 5), "cls")
    assert files == {"": str(tmp_path / "my list.cls.tsv")}
    lines = (tmp_path / "my list.cls.tsv").read_text().split("\n")
    names = "mention gold gold_name rank tied right similarity language".split()
    names += [f"{what}_{n}" for n in range(1, 6) for what in ("concept", "term", "similarity")]
    assert lines[0].split("\t") == names and lines[-1] == ""
    hurts, hot, unknown, asthme = (
        dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:-1]
    )
    # The best term of a concept stands for it: pain at 4 degrees, not ache at 6.
    cosine = np.cos(np.radians(4))
    assert (hurts["rank"], hurts["right"], hurts["gold_name"]) == ("1", "yes", "pain")
    assert (
        float(hurts["similarity"])
        == float(hurts["similarity_1"])
        == pytest.approx(cosine, abs=1e-6)
    )
    assert [hurts[f"concept_{n}"] for n in range(1, 6)] == ["C1", "C2", "C7", "C3", "C4"]
    assert [hurts[f"term_{n}"] for n in range(2, 5)] == ["fever", "pyrexia", "cough"]
    # C2 and C7 share a term and are tied; a tab of a mention would end its column.
    assert (hot["mention"], hot["rank"], hot["tied"]) == ("hot and cold", "1", "1")
    assert (hot["gold_name"], hot["language"]) == ("Fever (finding)", "FRE")
    assert (unknown["rank"], unknown["tied"], unknown["gold_name"]) == ("", "", "")
    assert (unknown["right"], unknown["term_1"]) == ("no", "left, right")
    assert (asthme["rank"], asthme["right"], asthme["gold_name"]) == (
        "2",
        "no",
        "Asthma|left, right",
    )


def test_fewer_concepts_than_answers():
    fold = NormalizationFold("", ["hurts"], ["C1"], Dictionary(["pain"], ["C1"], "d"))
    benchmark = Mentions("n", "p", [fold], "0" * 64)
    result = evaluate_normalization(Angles().encode, benchmark)
    (found,) = answers_of(Angles().encode, benchmark, 5)
    (row,) = prediction_table(found, result.ranks).iter_rows(named=True)
    assert row["concept_1"] == "C1" and row["concept_2"] is row["similarity_5"] is None
    assert "language" not in row


def test_the_answer_is_the_nearest_of_all_term_by_term():
    rng = np.random.default_rng(0)
    terms = [f"t{n}" for n in range(40_000)]
    concepts = [f"C{n}" for n in rng.integers(0, 9_000, len(terms))]
    mentions = [f"m{n}" for n in range(7)]
    vector = dict(zip(terms + mentions, rng.normal(size=(40_007, 4)), strict=True))
    asked = []

    def encode(some):
        asked.append(len(some))
        return np.array([vector[one] for one in some], np.float32)

    fold = NormalizationFold("f", mentions, ["C1"] * 7, Dictionary(terms, concepts, "d"))
    (found,) = answers_of(encode, Mentions("n", "p", [fold], "0" * 64), 5)
    assert max(asked) <= 1 << 14, "a dictionary that is larger than memory is asked for in blocks"
    matrix = np.array([vector[term] for term in terms])
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    for mention, answer, right in zip(mentions, found.answers, found.right, strict=True):
        cosines = matrix @ vector[mention] / np.linalg.norm(vector[mention])
        best = {}
        for row in np.argsort(-cosines):
            best.setdefault(concepts[row], (terms[row], cosines[row]))
        expected = list(best.items())[:5]
        assert [(one.concept, one.term) for one in answer] == [(c, t) for c, (t, _) in expected]
        assert [one.similarity for one in answer] == pytest.approx([s for _, (_, s) in expected])
        assert right == (expected[0][0] == "C1")


def test_what_a_record_keeps(tmp_path):
    vectors, benchmark = Angles(), toy(["ENG", "ENG", "", "FRE"])
    options = options_with({"predictions": tmp_path})
    record = benchmark.score(vectors, ENCODER, options)
    kept = record.answers
    assert kept["ranks"] == {"": "1 1+1 - 2"}
    assert kept["languages"] == "of the mentions"
    assert kept["predictions"] == {"": str(tmp_path / "my list.cls.tsv")}
    assert list(kept["cutoffs"]) == ["all", "ENG", "FRE"]
    assert kept["cutoffs"]["ENG"] == {
        **{"mentions": 2, "cutoffs": [0.9975, 0.9998], "answered": [2, 1], "right": [2, 1]}
    }
    assert sum(kept["similarities"]["right"]) == 2 == sum(kept["similarities"]["wrong"])
    assert set(record.intervals) == {"acc@1", "acc@3", "acc@5", "mrr"}
    sure = record.unreachable["intervals_of_reachable"]
    assert sure["mrr"][0] > record.intervals["mrr"][0], "the unreachable one is left out"
    plain = benchmark.score(Angles(), ENCODER, options_with({}))
    assert plain.answers | {"predictions": {}} == kept | {"predictions": {}}
    assert (plain.scores, plain.answers["predictions"]) == (record.scores, {})


def test_languages_of_the_nearest_terms():
    benchmark, encode = toy(), Angles().encode
    kept = described(
        benchmark, evaluate_normalization(encode, benchmark), answers_of(encode, benchmark, 1)
    )
    assert kept["languages"] == "of the nearest terms"
    assert {name: table["mentions"] for name, table in kept["cutoffs"].items()} == {
        **{"all": 4, "ENG": 3, "FRE": 1}
    }


def test_of_too_many_mentions_no_ranks_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_RANKS", 3)
    benchmark, encode = toy(), Angles().encode
    result, found = evaluate_normalization(encode, benchmark), answers_of(encode, benchmark, 1)
    assert described(benchmark, result, found)["ranks"] is None


def test_each_name_has_a_file_of_its_own(tmp_path):
    folds = [
        NormalizationFold(name, ["hurts"], ["C1"], DICTIONARY)
        for name in ("a.b", "a", "a/b", "ä b")
    ]
    benchmark, encode = Mentions("x", "p", folds, "0" * 64), Angles().encode
    result, found = evaluate_normalization(encode, benchmark), answers_of(encode, benchmark, 5)
    files = write_predictions(tmp_path, benchmark, result, found, "mean")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["x.a%2Eb.mean.tsv", "x.a.mean.tsv", "x.a%2Fb.mean.tsv", "x.%C3%A4 b.mean.tsv"]
    )
    assert list(files) == ["a.b", "a", "a/b", "ä b"]
    with pytest.raises(BadInput, match="--predictions: .* cannot be written"):
        write_predictions(tmp_path / "absent", benchmark, result, found, "mean")


def test_distribution_has_every_answer_once():
    similarities = np.array([-0.25, 0.51, 0.51, 0.999, 1.0000001], np.float32)
    found = distribution(similarities, np.array([False, True, False, True, True]))
    assert found["low"] == -0.25 and found["high"] == pytest.approx(1, abs=1e-6)
    assert sum(found["right"]) == 3 and sum(found["wrong"]) == 2
    assert found["wrong"][0] == 1 and found["right"][-1] == 2
    assert found["right"][24] == found["wrong"][24] == 1, "0.51 is three fifths of the way"


def test_wrong_answers_surest_first(tmp_path):
    benchmark, encode = toy(), Angles().encode
    result, found = evaluate_normalization(encode, benchmark), answers_of(encode, benchmark, 5)
    (file,) = write_predictions(tmp_path, benchmark, result, found, "cls").values()
    rows = list(wrong_answers(file))
    assert [(row["mention"], row["gold_name"], row["term_1"]) for row in rows] == [
        ("unknown", "", "left, right"),
        ("asthme", "Asthma|left, right", "cough"),
    ]
    assert rows[0]["similarity"] == pytest.approx(np.cos(np.radians(1)), abs=1e-6)
    (tmp_path / "other.tsv").write_text("mention\tgold\na\tb\n")
    for broken in ("other.tsv", "absent.tsv"):
        with pytest.raises(BadInput, match=f"{broken}: found no table of predictions"):
            list(wrong_answers(tmp_path / broken))


def test_mentions_file_with_languages(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("Mention\tlanguage\tCUI\nhurts\tENG\tC1\nasthme\t\tC4\n")
    benchmark = read_benchmark("mine", path, dictionary=DICTIONARY)
    assert isinstance(benchmark, Mentions)
    assert benchmark.folds[0].languages == ["ENG", ""] and benchmark.folds[0].gold == ["C1", "C4"]
    path.write_text("Mention\tnote\tCUI\nhurts\tENG\tC1\n")
    assert read_benchmark("mine", path, dictionary=DICTIONARY).folds[0].languages is None
    path.write_text("mention\tCUI\nhurts\tC1\n")
    assert read_benchmark("mine", path, dictionary=DICTIONARY).folds[0].languages is None


def test_tables_are_read_as_they_are_written(tmp_path):
    benchmark, encode = toy(), Angles().encode
    result, found = evaluate_normalization(encode, benchmark), answers_of(encode, benchmark, 5)
    (file,) = write_predictions(tmp_path, benchmark, result, found, "cls").values()
    table = pl.read_csv(file, separator="\t", quote_char=None)
    assert table["similarity_1"].to_list() == pytest.approx(
        found[0].similarities.tolist(), abs=1e-6
    )
    assert table["rank"].to_list() == [1, 1, None, 2]
