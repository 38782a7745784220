"""`python -m coder_jax evaluate` on every kind of benchmark, with every kind of vectors."""

import re
import shutil

import numpy as np
import pytest
from evaluating import records_in, run, write_toy

from coder_jax.commands import evaluate
from coder_jax.export.relations import ExportedRelations, write_relations
from data_pipeline.process.errors import BadInput


@pytest.fixture
def all_kinds(tmp_path):
    """A small file of every kind of benchmark, and what names and searches their concepts."""
    files = write_toy(tmp_path)
    (files / "terms.tsv").write_text(
        "pain\tC0000001\ncough\tC0000002\nfever\tC0000003\nhand\tC0000004\nfoot\tC0000005\n"
    )
    (files / "concepts.tsv").write_text(
        "CUI\tsemantic types\tterm\nC0000001\tFinding\tpain\nC0000002\tFinding\tcough\n"
        "C0000004\tCell\thand\nC0000005\tCell\tfoot\n"
    )
    (files / "relations").mkdir()
    for half in ("train", "test"):
        (files / "relations" / f"relations_{half}.tsv").write_text(
            "head\ttail\tlabel\nC0000001\tC0000004\tseen_in\nC0000002\tC0000003\twith\n"
        )
    unit = '<unit><text>Hand</text><e offset="0" len="4" cui="C0000004">Hand</e></unit>'
    (files / "Medline_GSC_de_man.xml").write_text(f"<Corpus><document>{unit}</document></Corpus>")
    (files / "en_1k_test_query.txt").write_text("C0000003||high temperature\n")
    (files / "mayo.csv").write_text(
        "Mean,CUI1,CUI2,TERM1,TERM2\n9,C0000004,C0000005,hand,foot\n1,C0000001,C0000005,pain,foot\n"
        "2,C0000002,C0000009,cough,rose\n"
    )
    (files / "look.tsv").write_text("term\nache\n")
    (files / "text.txt").write_text("1|t|Foot ache.\n1\t0\t4\tFoot\tBody\tC0000005\n")
    (files / "covered").mkdir()
    (files / "covered" / "concepts.tsv").write_text(
        "term\tCUI\nfoot\tC1\nfeet\tC1\nrose\tC2\nroses\tC2\n"
    )
    (files / "links.tsv").write_text(
        "head\ttail\tlabel\nC0000004\tC0000001\tseen_in\nC0000002\tC0000003\twith\n"
    )
    return files


def test_every_kind_of_benchmark_in_one_command(all_kinds, minilm_path, capsys):
    files = all_kinds
    out = files / "out.json"
    assert 0 == run(
        *("--model", minilm_path, "--json", out, "--dictionary", files / "terms.tsv"),
        *("--neighbours", "2", "--types", "Finding", "Cell", "--epochs", "3", "--nearest", "2"),
        *("--benchmark", f"mcsm={files / 'concepts.tsv'}", f"ddbrc={files / 'relations'}"),
        *(f"mantra={files / 'Medline_GSC_de_man.xml'}", f"xl={files / 'en_1k_test_query.txt'}"),
        *(f"mayo={files / 'mayo.csv'}", f"look={files / 'look.tsv'}"),
        *(f"links={files / 'links.tsv'}", f"text={files / 'text.txt'}"),
        *(f"covered={files / 'covered'}",),
        *(f"toy={files / 'heldout'}",),
    )
    records = {record.benchmark: record for record in records_in(out)}
    assert {name: record.kind for name, record in records.items()} == {
        **{"mcsm": "concept similarity", "ddbrc": "relation classification"},
        **{"mantra": "MANTRA GSC", "xl": "normalization", "toy": "normalization"},
        **{"mayo": "similarity", "look": "nearest terms", "links": "link prediction"},
        **{"text": "mentions in text", "covered": "coverage"},
    }
    assert records["mantra"].scores["f1"] == records["xl"].scores["acc@1"] == 1
    assert records["mcsm"].folds["Cell"]["scores"]["mcsm"] == 1, "foot is next to hand"
    assert records["ddbrc"].dictionary["source"] == str(files / "terms.tsv")
    links = records["links"]
    assert links.counts["without_relation"] == links.counts["triplets"] == 2
    assert links.scores["mrr"] == links.scores["mrr_cosine"] > 0.25
    assert records["text"].scores["map"] == records["covered"].scores["coverage@1"] == 1
    assert records["toy"].dictionary["terms"] == 8, "a folder has its own dictionary"
    assert records["look"].folds["0"]["nearest"][0]["term"] == "pain"
    printed = capsys.readouterr().out
    assert "CODER_ENG (published, CODER, table 4)" in printed
    left = [path.name for path in files.iterdir() if path.name.startswith(".")]
    assert not left, "vectors are removed"


def test_links_through_the_relations_of_the_encoder(all_kinds, minilm_path):
    files = all_kinds
    model = files / "with_relations"
    shutil.copytree(minilm_path, model)
    turned = np.random.default_rng(0).normal(size=(2, 384, 384)).astype(np.float32)
    write_relations(model, ExportedRelations(turned, ["RO|seen_in", "RO|with"]))
    out = files / "out.json"
    words = ("--model", model, "--json", out, "--dictionary", files / "terms.tsv")
    assert run(*words, "--benchmark", f"links={files / 'links.tsv'}") == 0
    (record,) = records_in(out)
    assert record.counts["without_relation"] == 0
    assert record.scores["mrr"] != record.scores["mrr_cosine"]


def test_word_and_concept_vectors(all_kinds, capsys):
    files = all_kinds
    words = {"pain": "1 0 0", "cough": "1 1 0", "hand": "0 0 1", "foot": "0 1 3", "ache": "2 0 0"}
    words["kidney"] = "1 2 0"
    text = f"{len(words)} 3\n" + "".join(f"{word} {v}\n" for word, v in words.items())
    (files / "w.txt").write_text(text)
    common = ["--neighbours", "1", "--types", "Finding", "Cell", "--epochs", "2"]
    benchmarks = [f"mcsm={files / 'concepts.tsv'}", f"rel={files / 'relations'}"]
    benchmarks += [f"mayo={files / 'mayo.csv'}"]
    run(
        *("--model", files / "w.txt", "--vectors-of", "words", "--json", files / "w.json"),
        *(*common, "--dictionary", files / "terms.tsv", "--benchmark", *benchmarks),
        *(f"look={files / 'look.tsv'}", f"toy={files / 'heldout'}"),
    )
    mcsm, relations, mayo, look, toy = records_in(files / "w.json")
    assert mcsm.scores["mcsm"] == 1 and mcsm.encoder["pooling"] == "mean of words"
    assert relations.counts["missing"] == 1, "fever"
    assert mayo.counts["missing"] == 1 and "spearman_known" in mayo.scores
    assert look.folds["0"]["nearest"][0]["term"] == "pain"
    assert toy.counts["missing"] == 9, "of 12 strings; Pain is found in small letters"
    assert mcsm.encoder["vectors"] == 6 and "small letters" in mcsm.encoder["look_up"]
    partly = [record.counts["partly_known"] for record in (mcsm, relations, mayo, look, toy)]
    assert partly == [0, 0, 0, 0, 1], "kidney stone"

    concepts = {"C0000001": "1 0", "C0000002": "2 1", "C0000004": "0 1", "C0000005": "0 3"}
    (files / "c.txt").write_text("".join(f"{cui} {v}\n" for cui, v in concepts.items()))
    arguments = ["--model", files / "c.txt", "--vectors-of", "concepts", "--json", files / "c.json"]
    run(*arguments, *common, "--benchmark", *benchmarks)
    mcsm, relations, mayo = records_in(files / "c.json")
    assert mcsm.scores["mcsm"] == 1 and mcsm.counts["missing"] == 0
    assert relations.counts["missing"] == 1 and relations.dictionary is None
    assert mayo.counts == {"pairs": 3, "missing": 1, "retired": 0}
    # The third pair has a CUI without a vector, which was merged into one that has.
    (files / "merged.tsv").write_text("C0000009\tC0000001\nC0000005\tC0000001\n")
    run(*arguments, *common, "--benchmark", *benchmarks, "--retired-cuis", files / "merged.tsv")
    _, _, merged = records_in(files / "c.json")
    assert merged.counts == {"pairs": 3, "missing": 0, "retired": 1}
    assert merged.scoring["retired_cuis"]["source"] == str(files / "merged.tsv")


@pytest.mark.slow
def test_fine_tuned_features(all_kinds, minilm_path):
    benchmark = ["--benchmark", f"rel={all_kinds / 'relations'}"]
    arguments = ["--model", minilm_path, "--json", all_kinds / "out.json", *benchmark]
    run(*arguments, "--dictionary", all_kinds / "terms.tsv", "--features=fine-tuned", "--epochs=20")
    (record,) = records_in(all_kinds / "out.json")
    assert record.scoring["features"] == "fine-tuned" and record.scoring["epochs"] == 20
    assert record.scoring["batch_pairs"] == 96, "of fine-tuning"
    assert record.scoring["trained"] == "W, b and the encoder"
    assert record.scores["accuracy"] == 1, "test pairs are training pairs here"


@pytest.mark.parametrize("kind, keys", [("words", ["pain", "cough"]), ("concepts", ["C0000001"])])
def test_fine_tuned_words_and_concepts(all_kinds, capsys, kind, keys):
    (all_kinds / "v.txt").write_text("".join(f"{key} 1 {len(key)}\n" for key in keys))
    arguments = ["--model", all_kinds / "v.txt", "--vectors-of", kind, "--features=fine-tuned"]
    arguments += ["--dictionary", all_kinds / "terms.tsv", "--json", all_kinds / "out.json"]
    run(*arguments, "--benchmark", f"rel={all_kinds / 'relations'}", "--epochs=20")
    (record,) = records_in(all_kinds / "out.json")
    scoring = {name: record.scoring[name] for name in ("features", "trained", "epochs")}
    expected = f"W, b and the vectors of {kind}"
    assert scoring == {"features": "fine-tuned", "trained": expected, "epochs": 20}
    settings = [record.scoring[name] for name in ("batch_pairs", "learning_rate", "warmup")]
    assert settings == [512, 1e-3, None], "of CODER's released code"
    assert record.counts["missing"] == 4 - len(keys)
    header, _, row = (re.split(" {2,}", one) for one in capsys.readouterr().out.splitlines()[:3])
    # A column that is empty, that of frozen vectors, is blank from end to end.
    fine_tuned = row[header.index("fine-tuned") - 1]
    assert fine_tuned.split(" ±")[0] == f"{100 * record.scores['accuracy']:.2f}"
    assert len(row) == len(header) - 1


@pytest.mark.parametrize(
    "vectors, benchmark, message",
    [
        ([], "relations", "found relations between CUIs and no names for them; give --dictionary"),
        (["concepts"], "heldout", "found terms to look up, and concept vectors"),
        (["concepts"], "look.tsv", "found terms to look up, and concept vectors"),
        (["concepts"], "pairs.tsv", "found no CUIs, and concept vectors to compare"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_is_encoded(
    all_kinds, vectors, benchmark, message, monkeypatch
):
    monkeypatch.setattr(evaluate, "compared", None)
    model = ["--model", all_kinds / "mayo.csv", "--vectors-of", *vectors] if vectors else []
    arguments = model or ["--model", "some/model"]
    if benchmark == "look.tsv":
        arguments += ["--dictionary", all_kinds / "terms.tsv"]
    names = [f"mcsm={all_kinds / 'concepts.tsv'}", f"x={all_kinds / benchmark}"]
    with pytest.raises(BadInput, match=message):
        run(*arguments, "--json", all_kinds / "o.json", "--types", "Cell", "--benchmark", *names)
