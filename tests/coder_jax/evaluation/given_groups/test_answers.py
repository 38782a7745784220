"""Answers to mentions with a given group: tables of --predictions, --compare, the record."""

import csv
import dataclasses

import pytest
from chosen_answers import ANSWERS, DICTIONARY, OF_CONCEPT, Chosen
from evaluating import ENCODER, records_in, run
from quaero_corpus import write_quaero

from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from coder_jax.evaluation.record import read_records, write_records
from coder_jax.evaluation.results.comparison import compare_files
from coder_jax.report.results import answers_shown
from data_pipeline.process.errors import BadInput

BETTER = ANSWERS | {
    ("hépatiques", "ANAT"): ["C0023884"],
    ("métastases hépatiques", "DISO"): ["C0272460", "C0494165"],
    ("douleurs du dos", "DISO"): ["C0004604"],
}


@pytest.fixture
def corpus(tmp_path):
    return write_quaero(tmp_path)


def scored(corpus, answers, dictionary=None, **options):
    benchmark = read_benchmark("quaero", corpus, dictionary=dictionary)
    return benchmark.score_normalizer(Chosen(answers), ENCODER, options_with(options))


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_a_table_of_each_set(corpus, tmp_path):
    record = scored(corpus, ANSWERS, DICTIONARY, predictions=tmp_path)
    files = record.answers["predictions"]
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


def test_the_record_tells_how_sure_answers_are(corpus, tmp_path):
    record = scored(corpus, ANSWERS)
    assert record.answers["ranks"]["EMEA 2015"] == "- 1 2 - - 1 1"
    table = record.answers["cutoffs"]["all"]
    assert (table["mentions"], table["answered"], table["right"]) == (13, [6], [3])
    drawn = record.answers["similarities"]
    assert (sum(drawn["right"]), sum(drawn["wrong"])) == (3, 3)
    silent = scored(corpus, {}).answers
    assert silent["cutoffs"]["all"]["answered"] == []
    for one in (record, scored(corpus, {})):
        write_records(tmp_path / "out.json", [one])
        assert read_records(tmp_path / "out.json")[0].answers == one.answers
        assert answers_shown([one])


def compared(tmp_path, *records):
    files = [tmp_path / f"{number}.json" for number in range(len(records))]
    for file, record in zip(files, records, strict=True):
        write_records(file, [record])
    return {row.cells[1]: row.cells for row in compare_files(*map(str, files))[1]}


def test_compared_mention_by_mention(corpus, tmp_path):
    a, b = scored(corpus, ANSWERS), scored(corpus, BETTER)
    cells = compared(tmp_path, a, b)
    assert list(cells) == ["recall", "acc@1", "acc@5"]
    for name, row in cells.items():
        found = [float(cell) / 100 for cell in row[3:5]]
        assert found == pytest.approx([a.scores[name], b.scores[name]], abs=1e-4), name
    assert cells["recall"][2] == "13" and cells["recall"][-2:] == ["2", "1"]
    assert cells["acc@5"][-2:] == ["1", "0"]
    # BRATEval's recall depends on which mentions are answered.
    others = [scored(corpus, answers, count_as="brateval") for answers in (ANSWERS, BETTER)]
    assert list(compared(tmp_path, *others)) == ["acc@1", "acc@5"]


def test_other_mentions_are_not_compared(corpus, tmp_path):
    a = scored(corpus, ANSWERS)
    with pytest.raises(BadInput, match="and mentions or gold concepts differ; expected the same"):
        compared(tmp_path, a, dataclasses.replace(a, content_hash="other"))


def test_the_road_of_an_encoder(corpus, minilm_path, tmp_path, capsys):
    rows = [f"{c}\t{term}\t{group}\n" for c, (term, group) in OF_CONCEPT.items()]
    table, out = tmp_path / "terms.tsv", tmp_path / "out.json"
    table.write_text("concept\tterm\tsemantic_type\n" + "".join(rows))
    words = ["--model", minilm_path, "--benchmark", f"quaero={corpus}", "--dictionary", table]
    assert run(*words, "--json", out, "--predictions", tmp_path / "told") == 0
    (record,) = records_in(out)
    assert record.answers["predictions"]["EMEA 2015"] == "told/quaero.EMEA 2015.mean.tsv"
    sinus = rows_of(tmp_path / "told" / "quaero.MEDLINE 2015.mean.tsv")[3]
    assert (sinus["mention"], sinus["term_1"], sinus["right"]) == ("sinus", "sinus", "yes")
    capsys.readouterr()
    assert run("--compare", out, out) == 0
    assert "quaero, mean" in capsys.readouterr().out
