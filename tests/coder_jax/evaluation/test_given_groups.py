"""QUAERO as a benchmark: what is read, searched and counted, by hand on a small corpus."""

import csv
import dataclasses
import shutil

import numpy as np
import pytest
from chosen_answers import ANSWERS, DICTIONARY, OF_CONCEPT, Chosen
from evaluating import ENCODER, records_in, run
from quaero_corpus import write_quaero

from coder_jax.evaluation.benchmark import Options
from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.comparison import compare_files
from coder_jax.evaluation.given_groups import (
    GroupNormalizer,
    Quaero,
    _accuracy_at,
    _count_brateval,
    _count_brateval_any,
    _count_items,
    _keys_of,
    _majority_cuis,
    _mean_reciprocal_rank,
    _measures_drawn,
    _mention_sets,
    _NearestTerms,
    measures,
)
from coder_jax.evaluation.record import read_records, write_records
from coder_jax.report.results import answers_shown
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import read_quaero
from data_pipeline.terminology.retired_cuis import RetiredCuis
from data_pipeline.terminology.semantic_groups import ANY, GROUPS


@pytest.fixture
def corpus(tmp_path):
    return write_quaero(tmp_path)


def scored(corpus, normalizer=None, read=None, **options):
    chosen = options_with(**options)
    benchmark = read_benchmark("quaero", corpus, options=chosen, **(read or {}))
    return benchmark.score_normalizer(normalizer or Chosen(ANSWERS), ENCODER, chosen)


def test_a_set_by_hand(corpus):
    normalizer = Chosen(ANSWERS)
    record = scored(corpus, normalizer, threshold=[0.9])
    assert list(record.folds) == ["EMEA 2015", "MEDLINE 2015"]
    leaflet, title = record.folds.values()
    # 7 mentions, 8 items: right is the metastasis and one of two CUIs of somnolence; the gold of
    # the other somnolence is not of its group, PHYS, but answered.
    assert leaflet["counts"] == {
        **{"mentions": 7, "gold": 8, "unreachable": 4, "mistyped": 0, "without_note": 0, "tied": 0},
    }
    items, answered, right = 8, 6, 3
    f1 = 2 * right / (items + answered)
    expected = {"precision": right / answered, "recall": right / items, "f1": f1}
    found = leaflet["scores"]
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["mrr"] == pytest.approx((1 + 1 / 2 + 1 + 0 + 1) / 8)
    assert found["acc@1"] == pytest.approx(3 / 7) and found["acc@5"] == pytest.approx(4 / 7)
    # Within reach: metastasis, liver, back and one item of somnolence; all of them are answered.
    reachable = leaflet["reachable"]
    assert reachable["recall"] == reachable["precision"] == reachable["acc@1"] == 2 / 4
    nothing = leaflet["thresholds"]["0.9"]["scores"]
    assert (nothing["precision"], nothing["recall"], nothing["f1"]) == (0, 0, 0)
    assert nothing["acc@1"] == found["acc@1"], "without a threshold"
    # 6 mentions have a note, of which one is empty and one begins with a blank: 7 items.
    assert title["counts"]["gold"] == 7 and title["counts"]["without_note"] == 1
    assert title["counts"]["mistyped"] == 4
    assert title["scores"]["recall"] == 0
    assert record.scores["recall"] == pytest.approx(right / items / 2)
    assert record.counts["mentions"] == 13 and record.counts["folds"] == 2
    assert len(normalizer.asked) == len(set(normalizer.asked)) == 13
    low, high = record.intervals["f1"]
    assert low <= record.scores["f1"] <= high and low < high


def test_majority_of_training_mentions(corpus):
    majority = scored(corpus).folds["EMEA 2015"]["majority"]
    # Train says the same as dev; of two CUIs of somnolence the first.
    assert majority == pytest.approx({"precision": 7 / 8, "recall": 7 / 8, "f1": 7 / 8})
    reachable = scored(corpus).folds["EMEA 2015"]["majority_of_reachable"]
    assert reachable == pytest.approx({"precision": 1, "recall": 1, "f1": 1}), "4 of 4"
    shutil.rmtree(corpus / "corpus" / "train")
    assert scored(corpus).folds["EMEA 2015"]["majority"] == {}


def test_other_countings(corpus):
    brateval = scored(corpus, count_as="brateval").folds["EMEA 2015"]["scores"]
    # Of somnolence one true positive and one false negative; chronic pain and Douxium are skipped.
    assert (brateval["precision"], brateval["recall"]) == pytest.approx((3 / 5, 3 / 8))
    common = scored(corpus, count_as="brateval-any").folds["EMEA 2015"]["scores"]
    assert (common["precision"], common["recall"]) == pytest.approx((3 / 5, 3 / 7))


def test_groups_that_are_chosen(corpus):
    record = scored(corpus, semantic_groups=["ANAT"])
    assert record.folds["EMEA 2015"]["counts"]["gold"] == 1
    assert record.scoring["semantic_groups"] == ["ANAT"]
    searched = read_benchmark(
        "q", corpus, dictionary=DICTIONARY, options=options_with(semantic_groups=["ANAT"])
    )
    assert searched.dictionary.terms == ["liver", "sinus"]
    with pytest.raises(
        BadInput, match="found no mentions of the semantic groups LIVB with a CUI in"
    ):
        read_benchmark("q", corpus, options=options_with(semantic_groups=["LIVB"]))


def test_retired_cuis(corpus):
    retired = RetiredCuis({"C0494165": "C0004604", "C0023884": "C0030471"}, "MRCUI.RRF")
    record = scored(corpus, read={"retired_cuis": retired})
    assert record.counts["retired"] == 2
    assert record.scoring["retired_cuis"]["source"] == "MRCUI.RRF"
    leaflet = record.folds["EMEA 2015"]["scores"]
    assert leaflet["recall"] == 4 / 8, "the liver is the sinus today, on both sides"
    assert leaflet["mrr"] == pytest.approx(4 / 8)
    # What a concept of DISO and one of ANAT became is in both groups.
    one = RetiredCuis({"C0004604": "C0030471"}, "MRCUI.RRF")
    counts = scored(corpus, read={"retired_cuis": one}).folds["EMEA 2015"]["counts"]
    assert counts["unreachable"] == 4


def test_what_is_searched(corpus):
    benchmark = read_benchmark("quaero", corpus, dictionary=DICTIONARY)
    assert "gene" not in benchmark.dictionary.terms, "no mention is of this group"
    assert len(benchmark.dictionary.terms) == 7
    assert [*benchmark.dictionaries()] == [DICTIONARY], "other sets may share its vectors"
    genes = DICTIONARY.with_names([(f"gene {n}", DICTIONARY.concepts[-1]) for n in range(9)])
    (searched,) = read_benchmark("quaero", corpus, dictionary=genes).dictionaries()
    assert searched.terms == benchmark.dictionary.terms, "a few of many"
    keys = benchmark.keys("terms")
    assert {"douleurs du dos", "liver metastasis"} <= set(keys) and len(keys) == len(set(keys))
    with pytest.raises(
        BadInput,
        match="found mentions with semantic groups and no dictionary to search; give --dictiona",
    ):
        read_benchmark("quaero", corpus).keys("terms")
    with pytest.raises(BadInput, match="terms to look up, and concept vectors"):
        benchmark.keys("concepts")
    other = dataclasses.replace(
        DICTIONARY,
        concepts=[f"X{n}" for n in range(8)],
        about_concepts={f"X{n}": AboutConcept("x", (), ("DISO",)) for n in range(8)},
    )
    with pytest.raises(BadInput, match="found none of its gold CUIs .such as 'C0000001' of 'Douxi"):
        read_benchmark("quaero", corpus, dictionary=other)
    shutil.rmtree(corpus / "corpus" / "dev")
    with pytest.raises(BadInput, match="found no mentions with a CUI in dev .* only in train; exp"):
        read_benchmark("quaero", corpus, dictionary=DICTIONARY)


def test_hash_is_of_mentions_groups_and_notes(corpus):
    first = read_benchmark("q", corpus).content_hash
    title = corpus / "corpus" / "dev" / "MEDLINE" / "1050806.ann"
    kept = title.read_text()
    for old, new in (("C001665", "C001666"), ("T4\tANAT", "T4\tPROC")):
        title.write_text(kept.replace(old, new, 1))
        assert read_benchmark("q", corpus).content_hash != first


def test_table(corpus):
    records = [scored(corpus, threshold=[0.9]), scored(corpus, Chosen({}))]
    header, rows = Quaero.table(records, Options())
    cells = [dict(zip(header, row.cells, strict=True)) for row in rows]
    labels = [one["semantic group given"] for one in cells]
    leaflet = labels[: labels.index("quaero MEDLINE 2015")]
    restricted = "quaero EMEA 2015, restricted to reachable gold"
    assert leaflet[:6] == ["quaero EMEA 2015", restricted] * 3
    assert leaflet[6] == "quaero EMEA 2015, majority CUI of training mentions"
    assert leaflet[7] == f"{leaflet[6]}, restricted to reachable gold"
    assert [one["threshold"] for one in cells[:6]] == ["none", "none", "0.9", "0.9", "none", "none"]
    assert cells[0]["F1"].startswith("42.9 ±") and cells[1]["F1"] == "50.0"
    assert (cells[0]["gold"], cells[0]["unreachable"], cells[1]["gold"]) == ("8", "4", "4")
    assert (cells[6]["recall"], cells[7]["recall"], cells[7]["gold"]) == ("87.5", "100.0", "4")
    papers = {row.encoder: row for row in rows if row.published and "EMEA" in row.cells[0]}
    distant = papers["MLNorm S2, distant"]
    assert distant.published == "MLNorm, table 3" and "76.5" in distant.cells
    assert "MLNorm S1, French only" in papers and "2019AB" in str(list(papers))
    # Papers searched the whole UMLS: not beside what is restricted to some groups.
    header, rows = Quaero.table([scored(corpus, semantic_groups=["DISO"])], Options())
    assert not any(row.published for row in rows)
    assert rows[0].cells[0] == "quaero EMEA 2015, DISO"


def test_nearest_terms_of_an_encoder(corpus, minilm_path, tmp_path, capsys):
    rows = [f"{c}\t{term}\t{group}\n" for c, (term, group) in OF_CONCEPT.items()]
    table = tmp_path / "terms.tsv"
    table.write_text("concept\tterm\tsemantic_type\n" + "".join(rows))
    out = tmp_path / "out.json"
    words = ["--model", minilm_path, "--benchmark", f"quaero={corpus}", "--dictionary", table]
    assert run(*words, "--threshold", "0.99", "--json", out) == 0
    (record,) = records_in(out)
    assert record.kind == "semantic group given" and record.dictionary["terms"] == 7
    # The only terms of ANAT are liver and sinus, and sinus is sinus.
    assert record.folds["MEDLINE 2015"]["reachable"]["recall"] >= 1 / 2
    assert record.folds["MEDLINE 2015"]["thresholds"]["0.99"]["reachable"]["recall"] == 1 / 2
    printed = capsys.readouterr().out
    assert "quaero MEDLINE 2015: MLNorm S2, distant (published, MLNorm, table 3)" in printed


# -------------------------------------------------------------------------------------------------
# Answers to mentions with a given group: tables of --predictions, --compare, the record.

BETTER = ANSWERS | {
    ("hépatiques", "ANAT"): ["C0023884"],
    ("métastases hépatiques", "DISO"): ["C0272460", "C0494165"],
    ("douleurs du dos", "DISO"): ["C0004604"],
}


@pytest.fixture
def corpus_of_answers(tmp_path):
    return write_quaero(tmp_path)


def scored_of_answers(corpus, answers, dictionary=None, **options):
    benchmark = read_benchmark("quaero", corpus, dictionary=dictionary)
    return benchmark.score_normalizer(Chosen(answers), ENCODER, options_with(**options))


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_a_table_of_each_set(corpus_of_answers, tmp_path):
    record = scored_of_answers(corpus_of_answers, ANSWERS, DICTIONARY, predictions=tmp_path)
    files = record.answers.predictions
    assert files == {
        f"{part} 2015": str(tmp_path / f"quaero.{part} 2015.cls.tsv")
        for part in ("EMEA", "MEDLINE")
    }
    rows = rows_of(files["EMEA 2015"])
    assert [(row["mention"], row["semantic_group"], row["rank"], row["right"]) for row in rows] == [
        ("Douxium", "CHEM", "", "no"),
        ("métastases hépatiques", "DISO", "1", "yes"),
        ("hépatiques", "ANAT", "2", "no"),
        ("douleurs chroniques", "DISO", "", "no"),
        ("douleurs du dos", "DISO", "", "no"),
        ("somnolence", "DISO", "1", "yes"),
        ("somnolence", "PHYS", "1", "yes"),
    ]
    liver = rows[2]
    assert (liver["gold"], liver["gold_name"]) == ("C0023884", "liver")
    assert (liver["concept_1"], liver["term_1"], liver["similarity_1"]) == (
        *("C0030471", "sinus", "0.75"),
    )
    assert (liver["concept_2"], liver["similarity_2"]) == ("C0023884", "0.5")
    assert liver["similarity"] == "0.75" and rows[0]["similarity"] == rows[0]["concept_1"] == ""
    assert rows[5]["gold"] == "C0013144|C2830004" and rows[5]["document"] == rows[0]["document"]


def test_the_record_tells_how_sure_answers_are(corpus_of_answers, tmp_path):
    record = scored_of_answers(corpus_of_answers, ANSWERS)
    assert record.answers.ranks["EMEA 2015"] == "- 1 2 - - 1 1"
    table = record.answers.cutoffs["all"]
    assert (table.mentions, table.answered, table.right) == (13, [6], [3])
    drawn = record.answers.similarities
    assert (sum(drawn.right), sum(drawn.wrong)) == (3, 3)
    silent = scored_of_answers(corpus_of_answers, {}).answers
    assert silent.cutoffs["all"].answered == []
    for one in (record, scored_of_answers(corpus_of_answers, {})):
        write_records(tmp_path / "out.json", [one])
        assert read_records(tmp_path / "out.json")[0].answers == one.answers
        assert answers_shown([one])


def compared(tmp_path, *records):
    files = [tmp_path / f"{number}.json" for number in range(len(records))]
    for file, record in zip(files, records, strict=True):
        write_records(file, [record])
    return {row.cells[1]: row.cells for row in compare_files(*map(str, files))[1]}


def test_compared_mention_by_mention(corpus_of_answers, tmp_path):
    a, b = (
        scored_of_answers(corpus_of_answers, ANSWERS),
        scored_of_answers(corpus_of_answers, BETTER),
    )
    cells = compared(tmp_path, a, b)
    assert list(cells) == ["recall", "acc@1", "acc@5"]
    for name, row in cells.items():
        found = [float(cell) / 100 for cell in row[3:5]]
        assert found == pytest.approx([a.scores[name], b.scores[name]], abs=1e-4), name
    assert cells["recall"][2] == "13" and cells["recall"][-2:] == ["2", "1"]
    assert cells["acc@5"][-2:] == ["1", "0"]
    # BRATEval's recall depends on which mentions are answered.
    others = [
        scored_of_answers(corpus_of_answers, answers, count_as="brateval")
        for answers in (ANSWERS, BETTER)
    ]
    assert list(compared(tmp_path, *others)) == ["acc@1", "acc@5"]


def test_other_mentions_are_not_compared(corpus_of_answers, tmp_path):
    a = scored_of_answers(corpus_of_answers, ANSWERS)
    with pytest.raises(
        BadInput, match="and what is asked or its answers differ; expected the same"
    ):
        compared(tmp_path, a, dataclasses.replace(a, content_hash="other"))


def test_the_road_of_an_encoder(corpus_of_answers, minilm_path, tmp_path, capsys):
    rows = [f"{c}\t{term}\t{group}\n" for c, (term, group) in OF_CONCEPT.items()]
    table, out = tmp_path / "terms.tsv", tmp_path / "out.json"
    table.write_text("concept\tterm\tsemantic_type\n" + "".join(rows))
    words = [
        "--model",
        minilm_path,
        "--benchmark",
        f"quaero={corpus_of_answers}",
        "--dictionary",
        table,
    ]
    assert run(*words, "--json", out, "--predictions", tmp_path / "told") == 0
    (record,) = records_in(out)
    assert record.answers["predictions"]["EMEA 2015"] == "told/quaero.EMEA 2015.mean.tsv"
    sinus = rows_of(tmp_path / "told" / "quaero.MEDLINE 2015.mean.tsv")[3]
    assert (sinus["mention"], sinus["term_1"], sinus["right"]) == ("sinus", "sinus", "yes")
    capsys.readouterr()
    assert run("--compare", out, out) == 0
    assert "quaero, mean" in capsys.readouterr().out


# -------------------------------------------------------------------------------------------------
# Precision, recall and F1, by hand, as MLNorm's code counts and as the official tool did.


def test_each_gold_cui_is_an_item_with_the_one_answer():
    gold = [("C1",), ("C1", "C2"), ("C1", "C2"), ("C153057",), ("C3",), ("", "C4"), ("C5",)]
    answers = ["C1", "C2", "C9", "C1530575", None, "C4", "C9"]
    counted = _count_items(gold, answers)
    assert counted.tolist() == [
        *([1, 1, 1], [1, 2, 2], [0, 2, 2], [0, 1, 1], [0, 0, 1], [1, 2, 2], [0, 1, 1]),
    ]
    # 3 right, 6 wrong and 7 missed: of two CUIs one is right, one wrong and one missed.
    found = measures(counted.sum(axis=0))
    assert found == pytest.approx([3 / 9, 3 / 10, 2 * 3 / (9 + 10)])
    assert _count_items([], []).shape == (0, 3)


# What BRATEval-2015-04-24.jar printed of one mention (CompareNotesEHealth, reference folder first):
# TP, FP, FN with exact_match true, then false.
OFFICIAL = [
    (("C1",), "C1", (1, 0, 0), (1, 0, 0)),
    (("C1",), "C2", (0, 1, 1), (0, 1, 1)),
    (("C1",), None, (0, 0, 1), (0, 0, 1)),
    (("C1", "C2"), "C1", (1, 0, 1), (1, 0, 0)),
    (("C1", "C2", "C3"), "C1", (1, 0, 2), (1, 0, 0)),
    (("C1", "C2", "C3"), "C9", (0, 1, 3), (0, 1, 1)),
    (("C1", "C2"), None, (0, 0, 1), (0, 0, 1)),
    (("C1,C2",), "C1", (0, 1, 1), (0, 1, 1)),
]


@pytest.mark.parametrize("gold, answer, exact, common", OFFICIAL)
def test_brateval(gold, answer, exact, common):
    for count, (right, wrong, missed) in ((_count_brateval, exact), (_count_brateval_any, common)):
        assert count([gold], [answer]).tolist() == [[right, right + wrong, right + missed]]


def test_measures_of_nothing():
    assert measures(np.array([0, 0, 5])).tolist() == [0, 0, 0]
    assert measures(np.array([0, 5, 0])).tolist() == [0, 0, 0]
    assert measures(np.array([0, 0, 0])).tolist() == [1, 1, 1]


def test_what_is_drawn_is_scored_alike():
    counted = np.array([[1, 1, 1], [0, 2, 2], [0, 0, 1]])
    drawn = np.array([[1, 1, 1], [3, 0, 0], [0, 0, 2]])
    found = _measures_drawn(counted, drawn)
    for times, row in zip(drawn, found, strict=True):
        assert row == pytest.approx(measures(np.repeat(counted, times, axis=0).sum(axis=0)))


def test_ranks():
    gold = [("C1",), ("C1", "C2"), ("C7",)]
    ranked = [["C9", "C8", "C1"], ["C2", "C1"], []]
    assert _mean_reciprocal_rank(gold, ranked) == pytest.approx((1 / 3 + 1 / 2 + 1 + 0) / 4)
    assert _accuracy_at(1, gold, ranked) == pytest.approx(1 / 3)
    assert _accuracy_at(3, gold, ranked) == pytest.approx(2 / 3)
    assert _mean_reciprocal_rank([], []) == _accuracy_at(1, [], []) == 0


# -------------------------------------------------------------------------------------------------
# The majority CUI of training mentions: by hand, and the figures of the real corpus.


def test_most_frequent_of_group_and_string():
    groups = ["DISO", "DISO", "DISO", "ANAT", "DISO"]
    texts = ["Œdème", "oedeme", "oedème", "œdème", "mal"]
    gold = [("C1",), ("C2",), ("C2", "C3"), ("C4",), ("C9", "C8")]
    known = _majority_cuis(groups, texts, gold)
    asked = ["DISO", "ANAT", "PROC", "DISO", "DISO"]
    keys = _keys_of(asked, ["OEDEME", "œdème", "œdème", "MAL", "mal de tête"])
    assert [known.get(key) for key in keys] == ["C2", "C4", None, "C9", None]
    assert _majority_cuis([], [], []) == {}


# Precision, recall and F1 in percent; others who measured it got the same to .1 or .2.
FLOOR = {
    "EMEA 2015": (92.4, 44.3, 59.9),
    "MEDLINE 2015": (84.5, 33.4, 47.9),
    "EMEA 2016": (91.0, 51.2, 65.5),
    "MEDLINE 2016": (85.6, 42.3, 56.6),
}


def test_floor_of_the_real_corpus(shared_data):
    packed = shared_data / "benchmarks" / "quaero" / "QUAERO_FrenchMed.tar.gz"
    for one in _mention_sets(read_quaero(packed), "quaero", (), {}):
        found = measures(_count_items(one.gold, one.majority).sum(axis=0))
        assert 100 * found == pytest.approx(FLOOR[one.name], abs=0.06), one.name


# -------------------------------------------------------------------------------------------------
# The nearest term of a semantic group: against a loop over all terms.

DISO, ANAT, PROC = (1 << GROUPS.index(name) for name in ("DISO", "ANAT", "PROC"))


@pytest.fixture
def toy():
    """60 terms of 20 concepts in random places; concept 0 is in two groups, some in none."""
    rng = np.random.default_rng(5)
    terms = [f"t{number}" for number in range(60)]
    concepts = [f"C{rng.integers(20)}" for _ in terms]
    concepts[7] = "C0|C3"
    mentions = [f"m{number}" for number in range(9)]
    table = dict(zip([*terms, *mentions], rng.normal(size=(69, 6)), strict=True))
    table |= {name: vector / np.linalg.norm(vector) for name, vector in table.items()}

    def encode(strings):
        return np.array([table[one] for one in strings], np.float32)

    groups = {f"C{n}": 1 << ANY | (DISO, ANAT, 0)[n % 3] for n in range(20)}
    groups["C0"] |= ANAT
    return encode, Dictionary(terms, concepts, "toy"), groups, mentions


def by_hand(encode, dictionary, groups, mention, group, k):
    bit = 1 << (ANY if group is None else GROUPS.index(group))
    best = {}
    for _, term, concept in dictionary.pairs():
        if groups[concept] & bit:
            cosine = float(encode([term])[0] @ encode([mention])[0])
            best[concept] = max(cosine, best.get(concept, -2))
    return sorted(best.items(), key=lambda pair: -pair[1])[:k]


@pytest.mark.parametrize("k", [1, 3, 12])
def test_as_a_loop_over_all_terms(toy, k):
    encode, dictionary, groups, mentions = toy
    normalizer: GroupNormalizer = _NearestTerms(encode, dictionary, groups)
    asked = ["DISO", "ANAT", None, "PROC", "diso", "ANAT", "DISO", None, "ANAT"]
    numbers, scores = normalizer.nearest(mentions, asked, k)
    assert numbers.shape == scores.shape == (9, k)
    for row, (mention, group) in enumerate(zip(mentions, asked, strict=True)):
        expected = by_hand(encode, dictionary, groups, mention, group and group.upper(), k)
        found = [normalizer.concepts[number] for number in numbers[row] if number >= 0]
        assert found == [concept for concept, _ in expected]
        assert scores[row, : len(found)] == pytest.approx([s for _, s in expected], abs=1e-6)
        assert (numbers[row, len(found) :] == -1).all() and (scores[row, len(found) :] < -1).all()
    for concept, bits in zip(normalizer.concepts, normalizer.groups, strict=True):
        assert bits == groups[concept]


def test_an_unknown_group_is_refused(toy):
    encode, dictionary, groups, mentions = toy
    with pytest.raises(BadInput, match="found the semantic group 'DISA'; .*did you mean DISO"):
        _NearestTerms(encode, dictionary, groups).nearest(mentions[:1], ["DISA"], 1)
