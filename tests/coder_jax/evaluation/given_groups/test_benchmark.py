"""QUAERO as a benchmark: what is read, searched and counted, by hand on a small corpus."""

import dataclasses
import shutil

import pytest
from chosen_answers import ANSWERS, DICTIONARY, OF_CONCEPT, Chosen
from evaluating import ENCODER, records_in, run
from quaero_corpus import write_quaero

from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.given_groups.quaero import Quaero
from data_pipeline.dataset.dictionaries.rows import AboutConcept
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis


@pytest.fixture
def corpus(tmp_path):
    return write_quaero(tmp_path)


def scored(corpus, normalizer=None, read=None, **options):
    chosen = {name: value for name, value in options.items() if name == "semantic_groups"}
    benchmark = read_benchmark("quaero", corpus, **chosen, **(read or {}))
    normalizer = normalizer or Chosen(ANSWERS)
    return benchmark.score_normalizer(normalizer, ENCODER, options_with(options))


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
    searched = read_benchmark("q", corpus, dictionary=DICTIONARY, semantic_groups=["ANAT"])
    assert searched.dictionary.terms == ["liver", "sinus"]
    with pytest.raises(
        BadInput, match="found no mentions of the semantic groups LIVB with a CUI in"
    ):
        read_benchmark("q", corpus, semantic_groups=["LIVB"])


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
    header, rows = Quaero.table(records, {})
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
    header, rows = Quaero.table([scored(corpus, semantic_groups=["DISO"])], {})
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
