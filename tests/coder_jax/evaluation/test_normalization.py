"""What every format of normalization shares: its record and its table."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import polars as pl
import pytest
from evaluating import ENCODER, write_toy
from naive_ranks import benchmark_of, naive_scores, score
from toy_record import RETIRED, record_of

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation import counts
from coder_jax.evaluation import normalization as module
from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.counts import count_ranks, rows_by_concept
from coder_jax.evaluation.normalization import (
    HeldOut,
    Mentions,
    NormalizationFold,
    XlBel,
    _answers_of,
    _described_answers,
    _prediction_table,
    _write_predictions,
    distribution,
    evaluate_normalization,
    with_terms_at_most,
    wrong_answers,
)
from coder_jax.evaluation.vectors import TERMS
from coder_jax.mapping.confidence import CutoffTable
from data_pipeline import process
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary, read_dictionary
from data_pipeline.process import BadInput


def test_record_names_the_whole_protocol():
    record = record_of()
    assert record.counts == {
        **{"mentions": 4, "unreachable": 1, "tied": 0, "retired": 1},
        **{"quoted": 0, "missing": 0, "folds": 2},
    }
    assert record.dictionary["source"] == "toy.tsv"
    assert (record.dictionary["terms"], record.dictionary["concepts"]) == (2, 2)
    assert record.folds["two"]["counts"]["unreachable"] == 1
    assert record.unreachable.mentions == 1 and record.unreachable.share == 0.25
    two = record.folds["two"]
    assert two["unreachable"]["share"] == 0.5
    reachable = two["unreachable"]["scores_of_reachable"]
    assert reachable == pytest.approx({name: 2 * score for name, score in two["scores"].items()})
    assert record.dictionary["retired"] == 1
    assert record.scoring["retired_cuis"] == {
        "source": "MRCUI.RRF",
        "content_hash": RETIRED.content_hash,
    }
    assert record.folds["two"]["dictionary"] == record.dictionary
    assert record.scoring["tie_tolerance"] == 1e-6
    assert record.scoring["folds"] == "unweighted mean over folds"
    assert record.scoring["acc@k"] == "k concepts"
    of_xl_bel = record_of(made_of=XlBel)
    assert of_xl_bel.scoring["acc@k"].startswith("k concepts; SapBERT's evaluation")
    header, (row, *_) = Mentions.table([record], options_with(k=(1,)))
    assert row.cells[header.index("folds")] == "2"
    assert "tied" not in header and len(row.cells) == len(header)  # columns of ties need a tie
    tied = dataclasses.replace(record, counts=record.counts | {"tied": 1})
    header, (row, *_) = Mentions.table([tied, record], options_with(k=(1,)))
    assert row.cells[header.index("tied") :] == ["1", row.cells[-2], "2"]
    assert {"python", "jax", "numpy"} <= record.versions.keys()
    assert record.date.endswith("+00:00")
    with pytest.raises(BadInput, match="found results without those of the reachable mentions"):
        Mentions.table([dataclasses.replace(record, unreachable=None)], options_with(k=(1,)))


def test_dictionary_hash_ignores_order_and_sees_a_changed_term():
    first = record_of().dictionary["content_hash"]
    assert record_of(("fever", "pain"), ("C2", "C1")).dictionary["content_hash"] == first
    assert record_of(("pain", "fever", "pain"), ("C1", "C2", "C1")).dictionary["terms"] == 2
    assert record_of(("pain", "Fever")).dictionary["content_hash"] != first
    assert record_of(("pain", "fever"), ("C2", "C1")).dictionary["content_hash"] != first


# -------------------------------------------------------------------------------------------------
# Normalization scores against hand-computed cases and a naive loop over all orders of ties.

KS = (1, 3, 5)


def at_angles(*degrees):
    """Unit vectors in the plane: the cosine of two is the cosine of the angle between them."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_nearest_term_decides_and_unreachable_mentions_count_as_wrong():
    # The mention at 0 degrees: B's second term is nearest, then A, then C.
    dictionary = at_angles(10, 80, 5, 60)
    result = score(at_angles(0, 0, 0, 0), ["B", "A", "C", "X"], dictionary, ["A", "B", "B", "C"])
    assert (result.mentions, result.unreachable, result.tied) == (4, 1, 0)
    assert result.scores["acc@1"] == 1 / 4
    assert result.scores["acc@3"] == 3 / 4
    assert result.scores["acc@5"] == 3 / 4, "k beyond the number of concepts"
    assert result.scores["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 4)
    reachable = result.reachable_scores
    assert (reachable["acc@1"], reachable["acc@3"]) == (pytest.approx(1 / 3), 1)
    assert reachable["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_ties_by_hand():
    # One concept is nearer, gold A is tied with B and C: ranks 2, 3, 4, each with chance 1/3.
    dictionary = at_angles(30, 30, 30, 10, 90)
    result = score(at_angles(0), ["A"], dictionary, list("ABCDE"), ks=(1, 2, 3, 4))
    scores = result.scores
    assert result.tied == 1
    assert [scores[f"acc@{k}"] for k in (1, 2, 3, 4)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [scores[f"acc@{k}_optimistic"] for k in (1, 2, 3, 4)] == [0, 1, 1, 1]
    assert [scores[f"acc@{k}_pessimistic"] for k in (1, 2, 3, 4)] == [0, 0, 0, 1]
    assert scores["mrr"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert scores["mrr_optimistic"] == 1 / 2
    assert scores["mrr_pessimistic"] == 1 / 4


def test_several_golds_by_hand():
    # Gold A and B tie with C: a gold comes first with chance 2/3, and is never behind place 2.
    dictionary = at_angles(30, 30, 30)
    scores = score(at_angles(0), ["A|B|X"], dictionary, list("ABC"), ks=(1, 2)).scores
    assert scores["acc@1"] == pytest.approx(2 / 3)
    assert scores["acc@2"] == 1
    assert scores["mrr"] == pytest.approx(2 / 3 + 1 / 3 / 2)
    # A better gold hides a worse one, and golds are no competitors: A at rank 1, B behind C.
    result = score(at_angles(0), ["B|A"], at_angles(5, 40, 20), list("ABC"))
    assert result.scores["mrr"] == 1
    assert result.tied == 0


@pytest.mark.parametrize("seed", range(5))
def test_equals_naive_loop(seed):
    generator = np.random.default_rng(seed)
    # Few distinct directions, so that many concepts tie.
    directions = generator.normal(size=(7, 3)).astype(np.float32)
    dictionary = directions[generator.integers(7, size=16)] * generator.uniform(0.5, 2, (16, 1))
    concepts = ["|".join(generator.choice(list("ABCDEF"), 1 + i % 2, False)) for i in range(16)]
    mentions = np.concatenate([directions, generator.normal(size=(6, 3))]).astype(np.float32)
    gold = ["|".join(generator.choice(list("ABCDEFXYZ"), 1 + i % 3, False)) for i in range(13)]
    expected, unreachable, tied = naive_scores(mentions, gold, dictionary, concepts, KS)
    result = score(mentions, gold, dictionary.astype(np.float32), concepts, KS)
    assert result.scores == pytest.approx(expected, abs=1e-12)
    assert (result.unreachable, result.tied) == (unreachable, tied)
    assert result.tied > 0
    here = [row for row, joined in enumerate(gold) if set(joined.split("|")) & set("ABCDEF")]
    expected, missing, _ = naive_scores(
        mentions[here], [gold[row] for row in here], dictionary, concepts, KS
    )
    assert missing == 0 < unreachable
    assert result.reachable_scores == pytest.approx(expected, abs=1e-12)


def test_no_gold_concept_is_reachable():
    result = score(at_angles(0, 5), ["X", "Y"], at_angles(0, 9), ["A", "B"])
    assert result.scores["acc@1"] == 0 and result.unreachable == 2
    assert result.reachable_scores == {}


def test_it_stops_when_asked(monkeypatch):
    monkeypatch.setattr(process, "_asked", [15])
    with pytest.raises(process.Stopped):
        score(at_angles(0), ["A"], at_angles(0, 9), ["A", "B"])


def test_blocks_and_order_of_the_dictionary_change_nothing(monkeypatch):
    generator = np.random.default_rng(0)
    mentions, dictionary = generator.normal(size=(11, 4)), generator.normal(size=(20, 4))
    gold, concepts = list("ABCDEABCDEX"), list("ABCDEFGHIJ" * 2)
    whole = score(mentions, gold, dictionary, concepts)
    order = generator.permutation(20)
    shuffled = [concepts[row] for row in order]
    assert score(mentions, gold, dictionary[order], shuffled) == whole
    monkeypatch.setattr(counts, "_BLOCK_MENTIONS", 3)
    assert score(mentions, gold, dictionary, concepts) == whole


def test_pairs_are_in_order_of_the_concept():
    # Accelerators take the order for granted (indices_are_sorted).
    found = rows_by_concept(lambda rows: np.zeros((len(rows), 2)), ["B|A", "A", "B", "C"])
    assert found.concept_ids == {"B": 0, "A": 1, "C": 2}
    assert found.pair_concepts_P.tolist() == [0, 0, 1, 1, 2]
    assert found.pair_rows_P.tolist() == [0, 2, 0, 1, 3]


def test_tie_tolerance():
    dictionary = np.array([[1, 0], [1, 1e-4], [1, 0.1]])  # cosines 1, 1 - 5e-9, 0.995
    arguments = (np.array([[1.0, 0]]), ["B"], dictionary, list("ABC"))
    assert score(*arguments).scores["acc@1"] == 0.5
    assert score(*arguments, tie_tolerance=0.01).scores["acc@1"] == pytest.approx(1 / 3)


def test_large_ties_have_exact_expectations():
    # A collapsed encoder: all vectors equal. The gold concept is at each of 2,000 places alike.
    count = 2000
    result = score(
        np.ones((2, 2)), ["C0", "C7"], np.ones((count, 2)), [f"C{i}" for i in range(count)]
    )
    assert result.scores["acc@5"] == pytest.approx(5 / count)
    assert result.scores["mrr"] == pytest.approx(np.mean(1 / np.arange(1, count + 1)))
    assert result.scores["acc@1_optimistic"] == 1
    assert result.tied == 2


def test_runs_under_strict_jax():
    with jax.transfer_guard("disallow"), jax.debug_nans(True):
        result = score(at_angles(0, 10), ["A", "X"], at_angles(0, 20), ["A", "B"])
    assert result.scores["acc@1"] == 0.5


def test_equal_strings_tie_exactly_and_are_encoded_once():
    vector_of = {"cold": at_angles(0)[0], "chill": at_angles(50)[0], "a cold": at_angles(3)[0]}
    calls = []

    def encode(strings):
        calls.append(strings)
        return np.stack([vector_of[string] for string in strings])

    dictionary = Dictionary(["cold", "chill", "cold"], ["disease", "feeling", "feeling"], "toy")
    fold = NormalizationFold("", ["a cold", "cold"], ["disease", "feeling"], dictionary)
    result = evaluate_normalization(encode, benchmark_of(fold), tie_tolerance=0)
    assert calls == [["a cold", "cold", "chill"]]
    assert result.tied == 2
    assert result.scores["acc@1"] == 0.5
    assert result.scores["acc@1_optimistic"] == 1
    assert result.folds == {}


def test_folds_are_averaged_without_weights():
    vector_of = dict(zip("abxy", at_angles(0, 90, 10, 80), strict=True))
    dictionary = Dictionary(["a", "b"], ["A", "B"], "toy")
    folds = (
        NormalizationFold("one", ["x"], ["A"], dictionary),
        NormalizationFold("two", ["x", "y", "y"], ["A", "A", "Q"], dictionary),
    )
    result = evaluate_normalization(
        lambda strings: np.stack([vector_of[string] for string in strings]), benchmark_of(*folds)
    )
    assert result.folds["one"].scores["acc@1"] == 1
    assert result.folds["two"].scores["acc@1"] == pytest.approx(1 / 3)
    assert result.scores["acc@1"] == pytest.approx((1 + 1 / 3) / 2)
    assert (result.mentions, result.unreachable) == (4, 1)
    assert result.reachable_scores["acc@1"] == pytest.approx((1 + 1 / 2) / 2)


def test_folds_that_share_a_dictionary_go_through_it_once(monkeypatch):
    gone_through = []

    def listen(vectors_of, concepts):
        gone_through.append(concepts)
        return rows_by_concept(vectors_of, concepts)

    monkeypatch.setattr("coder_jax.evaluation.counts.rows_by_concept", listen)
    one, other = Dictionary(["a", "b"], ["A", "B"], "one"), Dictionary(["a"], ["C"], "other")
    folds = [
        NormalizationFold(str(number), ["x"], ["A"], dictionary)
        for number, dictionary in enumerate([one, one, other, one])
    ]
    vectors = at_angles(0, 10, 80)
    result = evaluate_normalization(
        lambda strings: vectors[["abx".index(string) for string in strings]], benchmark_of(*folds)
    )
    assert gone_through == [["A", "B"], ["C"]]
    assert list(result.folds) == ["0", "1", "2", "3"]
    assert [part.unreachable for part in result.folds.values()] == [0, 0, 1, 0]


def test_bad_vectors_are_refused():
    good = at_angles(0, 10)
    with pytest.raises(
        BadInput, match=r"1 dictionary vectors of 2 with NaN .*row 1.*check the wei"
    ):
        score(good, ["A", "B"], good * [[1], [np.nan]], ["A", "B"])
    with pytest.raises(ValueError, match=r"mention vectors of shape \(2, 2\) for 1 concepts"):
        count_ranks(good, ["A"], rows_by_concept(good.__getitem__, ["A", "B"]), 0)
    with pytest.raises(ValueError, match="width 2 and dictionary vectors of width 3"):
        count_ranks(good, ["A", "B"], rows_by_concept(np.ones((1, 3)).__getitem__, ["A"]), 0)
    with pytest.raises(ValueError, match=r"found ks=\(0, 1\)"):
        score(good, ["A", "B"], good, ["A", "B"], ks=(0, 1))
    fold = NormalizationFold("", ["x"], ["A"], Dictionary(["a"], ["A"], "toy"))
    with pytest.raises(ValueError, match="encode gave 1 vectors for 2 strings"):
        evaluate_normalization(lambda strings: good[:1], benchmark_of(fold))


# -------------------------------------------------------------------------------------------------
# What mentions were answered: five concepts each, as tables; ranks, cut-offs, distribution.

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
    files = _write_predictions(
        tmp_path, benchmark, result, _answers_of(encode, benchmark, 5), "cls"
    )
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
    (found,) = _answers_of(Angles().encode, benchmark, 5)
    (row,) = _prediction_table(found, result.ranks[""]).iter_rows(named=True)
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
    (found,) = _answers_of(encode, Mentions("n", "p", [fold], "0" * 64), 5)
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
    options = options_with(predictions=tmp_path)
    record = benchmark.score(vectors, ENCODER, options)
    kept = record.answers
    assert kept.ranks == {"": "1 1+1 - 2"}
    assert kept.languages == "of the mentions"
    assert kept.predictions == {"": str(tmp_path / "my list.cls.tsv")}
    assert list(kept.cutoffs) == ["all", "ENG", "FRE"]
    assert kept.cutoffs["ENG"] == CutoffTable(2, [0.9975, 0.9998], [2, 1], [2, 1])
    assert sum(kept.similarities.right) == 2 == sum(kept.similarities.wrong)
    assert set(record.intervals) == {"acc@1", "acc@3", "acc@5", "mrr"}
    sure = record.unreachable.intervals_of_reachable
    assert sure["mrr"][0] > record.intervals["mrr"][0], "the unreachable one is left out"
    plain = benchmark.score(Angles(), ENCODER, options_with())
    assert plain.answers == dataclasses.replace(kept, predictions={})
    assert (plain.scores, plain.answers.predictions) == (record.scores, {})


def test_languages_of_the_nearest_terms():
    benchmark, encode = toy(), Angles().encode
    kept = _described_answers(
        benchmark, evaluate_normalization(encode, benchmark), _answers_of(encode, benchmark, 1)
    )
    assert kept.languages == "of the nearest terms"
    assert {name: table.mentions for name, table in kept.cutoffs.items()} == {
        **{"all": 4, "ENG": 3, "FRE": 1}
    }


def test_of_too_many_mentions_no_ranks_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_RANKS", 3)
    benchmark, encode = toy(), Angles().encode
    result, found = evaluate_normalization(encode, benchmark), _answers_of(encode, benchmark, 1)
    assert _described_answers(benchmark, result, found).ranks is None


def test_each_name_has_a_file_of_its_own(tmp_path):
    folds = [
        NormalizationFold(name, ["hurts"], ["C1"], DICTIONARY)
        for name in ("a.b", "a", "a/b", "ä b")
    ]
    benchmark, encode = Mentions("x", "p", folds, "0" * 64), Angles().encode
    result, found = evaluate_normalization(encode, benchmark), _answers_of(encode, benchmark, 5)
    files = _write_predictions(tmp_path, benchmark, result, found, "mean")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["x.a%2Eb.mean.tsv", "x.a.mean.tsv", "x.a%2Fb.mean.tsv", "x.%C3%A4 b.mean.tsv"]
    )
    assert list(files) == ["a.b", "a", "a/b", "ä b"]
    with pytest.raises(BadInput, match="--predictions: .* cannot be written"):
        _write_predictions(tmp_path / "absent", benchmark, result, found, "mean")


def test_distribution_has_every_answer_once():
    similarities = np.array([-0.25, 0.51, 0.51, 0.999, 1.0000001], np.float32)
    found = distribution(similarities, np.array([False, True, False, True, True]))
    assert found.low == -0.25 and found.high == pytest.approx(1, abs=1e-6)
    assert sum(found.right) == 3 and sum(found.wrong) == 2
    assert found.wrong[0] == 1 and found.right[-1] == 2
    assert found.right[24] == found.wrong[24] == 1, "0.51 is three fifths of the way"


def test_wrong_answers_surest_first(tmp_path):
    benchmark, encode = toy(), Angles().encode
    result, found = evaluate_normalization(encode, benchmark), _answers_of(encode, benchmark, 5)
    (file,) = _write_predictions(tmp_path, benchmark, result, found, "cls").values()
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
    result, found = evaluate_normalization(encode, benchmark), _answers_of(encode, benchmark, 5)
    (file,) = _write_predictions(tmp_path, benchmark, result, found, "cls").values()
    table = pl.read_csv(file, separator="\t", quote_char=None)
    assert table["similarity_1"].to_list() == pytest.approx(
        found[0].similarities.tolist(), abs=1e-6
    )
    assert table["rank"].to_list() == [1, 1, None, 2]


# -------------------------------------------------------------------------------------------------
# Folds of Cadec and PsyTar: what is read, quotes, folds that are not whole.


def test_folds(write, tmp_path):
    for fold, mention in (("fold_2", "sore"), ("fold_1", "hot")):
        write(f"set/{fold}/test.txt", f"1\t{mention}\r\n")
        write(f"set/{fold}/standard.txt", "1\tpain\r\n2\tfever\r\n")
        write(f"set/{fold}/train.txt", b"\xff broken, and never read")
    write("set/README.md", "not a fold")
    benchmark = read_benchmark("toy", tmp_path / "set")
    assert [fold.name for fold in benchmark.folds] == ["fold_1", "fold_2"]
    assert [fold.mentions for fold in benchmark.folds] == [["hot"], ["sore"]]
    assert benchmark.folds[0].dictionary.terms == ["pain", "fever"]
    one = read_benchmark("toy", tmp_path / "set" / "fold_1")
    assert [fold.mentions for fold in one.folds] == [["hot"]]


@pytest.mark.parametrize("file", ["standard.txt", "train.txt", None, "notes.txt"])
def test_a_fold_that_is_not_whole_is_refused_beside_others(write, tmp_path, file):
    for fold in ("fold_1", "fold_2"):
        write(f"{fold}/test.txt", "1\thot\n")
        write(f"{fold}/standard.txt", "1\theat\n")
    write("scripts/run.sh", "no fold")
    (tmp_path / "fold_3").mkdir()
    if file:
        write(f"fold_3/{file}", "1\thot\n")
    lost = "test.txt" if file == "standard.txt" else "test.txt and standard.txt"
    with pytest.raises(BadInput, match=f"fold_3: found a fold without {lost}; .*: fetch it again"):
        read_benchmark("toy", tmp_path)
    (tmp_path / "fold_3").rename(tmp_path / "more")
    if file in ("standard.txt", "train.txt"):
        with pytest.raises(BadInput, match="more: found a fold without"):
            read_benchmark("toy", tmp_path)
    else:
        assert len(read_benchmark("toy", tmp_path).folds) == 2


def test_quotes_of_a_spreadsheet_are_taken_off_folds(write, tmp_path):
    """As in PsyTar's files; a field that no CSV writer would have made stays as it is."""
    rows = ['"became ""flat"""', '"weak, tired"', '"x" and "y"', 'say "x"', '"', "flat"]
    write("fold_1/test.txt", "".join(f"7\t{row}\n" for row in rows))
    write("fold_1/standard.txt", '7\tFlat affect\n8\t"fear, mental"\n')
    benchmark = read_benchmark("psytar", tmp_path)
    (fold,) = benchmark.folds
    expected = ['became "flat"', "weak, tired", '"x" and "y"', 'say "x"', '"', "flat"]
    assert fold.mentions == expected and benchmark.quoted == 2
    assert fold.dictionary.terms == ["Flat affect", "fear, mental"]


def test_cadec(shared_data):
    benchmark = read_benchmark("cadec", shared_data / "openmeta/eval/cadec")
    assert [fold.name for fold in benchmark.folds] == [f"CADEC_{i}" for i in range(5)]
    assert [len(fold.mentions) for fold in benchmark.folds] == [504, 459, 424, 397, 375]
    assert benchmark.folds[0].mentions[0] == "feel a bit weird"
    assert benchmark.folds[0].gold[0] == "367391008"
    assert len({fold.dictionary.description["content_hash"] for fold in benchmark.folds}) == 1
    for fold in benchmark.folds:
        # One standard name for each target concept, in another order in each fold.
        assert len(fold.dictionary.terms) == len(fold.dictionary.concept_set) == 181
        assert fold.dictionary.concept_set.issuperset(fold.gold)


# -------------------------------------------------------------------------------------------------
# The look at held-out terms while a run trains: its scores.

MANIFEST = SimpleNamespace(cleaning="none", tokenizer=SimpleNamespace(max_length=16))


@pytest.mark.slow
def test_scores_are_those_of_evaluate(tmp_path, minilm_path):
    write_toy(tmp_path)
    (tmp_path / "tokenizer").symlink_to(minilm_path)
    encoder = TermEncoder.from_pretrained(minilm_path, pooling="mean", max_length=16)
    scores = HeldOut(tmp_path, MANIFEST, "mean", 99).scores(encoder.bert)
    expected = evaluate_normalization(
        encoder.encode, read_benchmark("toy", tmp_path / "heldout")
    ).scores
    assert scores == {
        **{name: round(expected[name], 4) for name in ("acc@1", "acc@5", "mrr")},
        "terms": 8,
    }
    assert scores["acc@1"] == 0.75
    assert HeldOut(tmp_path, MANIFEST, "mean", 1).scores(encoder.bert)["terms"] == 6


def test_a_dataset_without_held_out_terms(tmp_path):
    with pytest.raises(BadInput, match="has no held-out terms; build it with --hold-out, or give"):
        HeldOut(tmp_path, MANIFEST, "mean", 99)


def test_a_look_at_a_run_keeps_the_terms_of_joined_gold_concepts():
    of_terms = {"languages": list("EFGH"), "vocabularies": [(one,) for one in "WXYZ"]}
    dictionary = Dictionary(list("abcd"), ["C9", "C1|C5", "C8", "C2"], "toy", **of_terms)
    fold = NormalizationFold("", ["x"], ["C5|C8"], dictionary)
    benchmark = Mentions("heldout", "toy", [fold], "hash")
    found = with_terms_at_most(benchmark, 1).folds[0].dictionary
    assert found.terms == ["b", "c"]
    assert (found.languages, found.vocabularies) == (["F", "G"], [("X",), ("Y",)])


# -------------------------------------------------------------------------------------------------
# Mentions in TSV files: what is read, and the dictionary beside them.

DICTIONARY_MENTIONS = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


@pytest.mark.parametrize("header", ["", "mention\tCUI\n", "\ufeffMention\tcui\r\n"])
def test_mentions(write, header):
    # U+0085 and U+2028 are no line ends, and quotes are ordinary characters.
    path = write("m.tsv", header + 'so"re\u0085ness\tC1\r\nhot\u2028head\tC1|C2\n\n"x"\tC9\n')
    benchmark = read_benchmark("toy", path, dictionary=DICTIONARY_MENTIONS)
    (fold,) = benchmark.folds
    assert fold.mentions == ['so"re\u0085ness', "hot\u2028head", '"x"']
    assert fold.gold == ["C1", "C1|C2", "C9"]
    assert fold.dictionary is DICTIONARY_MENTIONS


def test_a_mention_called_term_is_no_header(write):
    path = write("m.tsv", "term\tC1\nlabour\tC2\n")
    assert (
        read_benchmark("toy", path, dictionary=DICTIONARY_MENTIONS).folds[0].mentions[0] == "term"
    )


def test_dictionary_beside_the_mentions(write):
    path = write("heldout/mentions.tsv", "mention\tCUI\nsore\tC1\n")
    with pytest.raises(
        BadInput, match=r"no dictionary to search; expected .*heldout/dictionary.tsv"
    ):
        read_benchmark("toy", path)
    write("heldout/dictionary.tsv", "term\tCUI\npain\tC1\nfever\tC2\n")
    for given in (path, path.parent):
        fold = read_benchmark("toy", given).folds[0]
        assert fold.dictionary.terms == ["pain", "fever"]
        assert fold.dictionary.concepts == ["C1", "C2"]


# -------------------------------------------------------------------------------------------------
# XL-BEL: a fold for each language, and files that are broken.

DICTIONARY_XL_BEL = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


@pytest.mark.parametrize("end", ["", "_with_context"])
def test_xl_bel(write, tmp_path, end):
    context = "||Eine <tgt>Armeria</tgt> || ist" if end else ""
    write(f"x/de_1k_test_query{end}.txt", f"C1||Armeria{context}\nC2|C9||Trichter-{context}\n")
    write(f"x/ja_1k_test_query{end}.txt", f"C2||リウマチ関節炎{context}\n")
    write(f"x/all_1k_test_query{end}.txt", f"C2||リウマチ関節炎{context}\n")
    terms = read_dictionary(write("umls.txt", "C1||Armeria\nC2||funnel | tub\nC2|C3||arthritis\n"))
    assert terms.terms == ["Armeria", "funnel | tub", "arthritis"]
    assert terms.concepts == ["C1", "C2", "C2|C3"]
    german, japanese = read_benchmark("xl", tmp_path / "x", dictionary=terms).folds
    assert (german.name, german.mentions) == ("de", ["Armeria", "Trichter-"])
    assert german.gold == ["C1", "C2|C9"]
    assert (japanese.name, japanese.mentions) == ("ja", ["リウマチ関節炎"])
    only = tmp_path / "x" / f"de_1k_test_query{end}.txt"
    assert read_benchmark("xl", only, dictionary=terms).folds[0].gold == german.gold
    with pytest.raises(BadInput, match="found XL-BEL and no dictionary to search; give --dict"):
        read_benchmark("xl", only)
    only.write_text("C1||Armeria\nC2\n")
    with pytest.raises(BadInput, match=r"query.*txt:2: found 'C2'; expected CUI\|\|mention or"):
        read_benchmark("xl", only, dictionary=terms)


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "found no lines; expected CUI"),
        ("404: Not Found", "found '404: Not Found'; expected CUI"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1f\n", "found 'version .* expect"),
    ],
)
def test_a_language_of_xl_bel_that_is_broken_is_refused(write, tmp_path, content, message):
    write("x/de_1k_test_query.txt", "C1||Armeria\n")
    write("x/._de_1k_test_query.txt", b"\x00\xff")
    assert len(read_benchmark("xl", tmp_path / "x", dictionary=DICTIONARY_XL_BEL).folds) == 1
    write("x/tr_1k_test_query.txt", content)
    with pytest.raises(BadInput, match=f"tr_1k_test_query.txt.*: {message}.*: .*fetch"):
        read_benchmark("xl", tmp_path / "x", dictionary=DICTIONARY_XL_BEL)
    # Where none has its columns, such names alone do not make a folder one of XL-BEL.
    write("x/de_1k_test_query.txt", content)
    with pytest.raises(BadInput, match="found a folder with .*; expected one of"):
        read_benchmark("xl", tmp_path / "x", dictionary=DICTIONARY_XL_BEL)
