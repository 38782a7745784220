"""`python -m coder_jax evaluate` on real weights: table, JSON, messages; equal to a peer."""

import csv
import dataclasses
import json
import os
import re
import shutil
import stat
import threading

import numpy as np
import polars as pl
import pytest
from evaluating import records_in, run, write_toy
from tiny_bert import write_model

from coder_jax.__main__ import main
from coder_jax.commands import evaluate
from coder_jax.encoding import embed, vector_files
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation import vectors as encoded
from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.normalization import evaluate_normalization
from coder_jax.evaluation.vectors import EncodedTerms
from coder_jax.export.relations import ExportedRelations, write_relations
from coder_jax.mapping.confidence import ALL, Cutoffs
from data_pipeline import process
from data_pipeline.dataset import dictionary
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.files.identity import CUTOFFS
from data_pipeline.flags import parsed
from data_pipeline.process import BadInput
from data_pipeline.sources.obo import read_obo


@pytest.fixture
def files(tmp_path):
    return write_toy(tmp_path)


def test_table_and_json(files, minilm_path, capsys):
    out = files / "out.json"
    assert 0 == run(
        *("--model", minilm_path, "--json", out, "--pooling", "cls", "mean"),
        *("--benchmark", f"toy={files / 'heldout'}", f"pairs={files / 'pairs.tsv'}"),
    )
    toy_cls, pairs_cls, toy_mean, _ = records = records_in(out)
    assert [record.encoder["pooling"] for record in records] == ["cls", "cls", "mean", "mean"]
    assert toy_cls.counts == {
        **{"mentions": 4, "unreachable": 1, "tied": 0, "retired": 0},
        **{"quoted": 0, "missing": 0, "folds": 1},
    }
    assert (toy_mean.dictionary["terms"], toy_mean.dictionary["concepts"]) == (8, 5)
    assert toy_mean.scores["acc@1"] == 0.75
    assert pairs_cls.counts == {"pairs": 3, "missing": 0, "retired": 0}
    assert toy_cls.encoder["lowercases"] and len(toy_cls.encoder["weights_hash"]) == 64
    assert "NaN" not in out.read_text()
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.startswith("toy") and "mean" in line)
    assert line.split()[2:6] == ["4", "8", "5", "75.00"] and " 1 (25.00 %) " in line
    assert line.endswith(f"  {minilm_path}"), "the table names the encoder"
    reachable = next(line for line in printed.splitlines() if "toy, reachable  mean" in line)
    assert reachable.split()[3:7] == ["3", "8", "5", "100.00"]
    assert toy_mean.unreachable["share"] == 0.25
    assert toy_mean.unreachable["scores_of_reachable"]["acc@1"] == 1
    assert sorted(path.name for path in files.iterdir()) == ["heldout", "out.json", "pairs.tsv"]
    assert f"scores and protocol: {out}" in printed


def test_predictions_and_a_comparison(files, minilm_path, capsys):
    toy = ("--model", minilm_path, "--benchmark", f"toy={files / 'heldout'}")
    for pooling in ("cls", "mean"):
        out = files / f"{pooling}.json"
        run(*toy, "--pooling", pooling, "--json", out, "--predictions", files / "tables")
    (record,) = records_in(files / "mean.json")
    assert record.answers["predictions"] == {"": "tables/toy.mean.tsv"}
    assert sorted(path.name for path in (files / "tables").iterdir()) == [
        *("toy.cls.tsv", "toy.mean.tsv")
    ]
    attack = pl.read_csv(files / "tables" / "toy.mean.tsv", separator="\t").row(0, named=True)
    assert (attack["mention"], attack["gold"], attack["rank"], attack["right"]) == (
        *("heart attack", "C1", 1, "yes"),
    )
    assert attack["gold_name"] == attack["term_1"] == "myocardial infarction"
    assert len({attack[f"concept_{n}"] for n in range(1, 6)}) == 5
    low, high = record.intervals["acc@1"]
    printed = next(line for line in capsys.readouterr().out.splitlines() if "toy  " in line)
    assert f" ±{50 * (high - low):.1f}  " in printed
    assert sum(record.answers["cutoffs"]["all"]["right"][:1]) == 3, "three of four are right"
    assert 0 == run("--compare", files / "cls.json", files / "mean.json")
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if "acc@1" in line)
    assert line.startswith("toy, cls and mean") and "75.00" in line
    assert f"A: {files / 'cls.json'}\nB: {files / 'mean.json'}" in printed


@pytest.mark.slow
def test_pairs_that_people_rated_are_compared_too(files, minilm_path, capsys):
    for pooling in ("cls", "mean"):
        pairs = ("--benchmark", f"umnsrs={files / 'pairs.tsv'}")
        out = ("--json", files / f"{pooling}.json")
        run("--model", minilm_path, "--pooling", pooling, *pairs, *out)
    assert 0 == run("--compare", files / "cls.json", files / "mean.json")
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.startswith("umnsrs, cls and mean"))
    assert line.split()[4:6] == ["spearman", "3"]


def test_other_arguments_that_are_refused(files, monkeypatch):
    mentions = ("--benchmark", f"toy={files / 'heldout'}")
    with pytest.raises(BadInput, match="found no --model, no --json; expected --model, --benchm"):
        run(*mentions)
    with pytest.raises(BadInput, match="--compare: found --benchmark with it; expected the two"):
        run("--compare", "a", "b", *mentions)
    with pytest.raises(BadInput, match="a.json is missing"):
        run("--compare", files / "a.json", files / "b.json")
    arguments = ("--model", "m", *mentions, "--json", files / "o.json", "--predictions")
    with pytest.raises(BadInput, match="--predictions: found .*pairs.tsv, which is no folder and"):
        run(*arguments, files / "pairs.tsv")
    with pytest.raises(BadInput, match="--predictions: found .*absent/deep, which is no folder"):
        run(*arguments, files / "absent" / "deep")


@pytest.mark.slow
def test_case_variants_tie_with_an_uncased_tokenizer(files, minilm_path):
    mentions = files / "cased.tsv"
    mentions.write_text("PAIN\tC4\npain\tC5\n")
    encoder = TermEncoder.from_pretrained(minilm_path, pooling="mean")
    cased = read_dictionary(files / "heldout" / "dictionary.tsv")
    result = evaluate_normalization(
        encoder.encode, read_benchmark("cased", mentions, dictionary=cased)
    )
    assert result.tied == 2
    assert result.scores["acc@1"] == pytest.approx(0.5)


def test_dictionary_for_one_and_for_all(files, minilm_path):
    mentions, other = files / "mentions.tsv", files / "other.tsv"
    mentions.write_text("heart attack\tC1\n")
    other.write_text("infarction\tC1\nasthma\tC7\n")
    (files / "all.tsv").write_text("infarction\tC1\nasthma\tC7\ncough\tC8\n")
    (files / "old.tsv").write_text("C0\tC1\n")
    (files / "retired.tsv").write_text("heart attack\tC0\n")
    run(
        *("--model", minilm_path, "--json", files / "out.json"),
        *("--benchmark", f"a={mentions}", f"b={files / 'retired.tsv'}", f"c={files / 'heldout'}"),
        *("--dictionary", f"b={other}", files / "all.tsv"),
        *("--retired-cuis", files / "old.tsv", "--k", "1", "2"),
    )
    records = records_in(files / "out.json")
    assert [record.dictionary["terms"] for record in records] == [3, 2, 8], "a folder has its own"
    assert [record.counts["retired"] for record in records] == [0, 1, 0]
    assert records[1].scores["acc@2"] == 1


def test_a_dataset_brings_its_retired_cuis_along(files, monkeypatch):
    """Its terms have the new CUIs, the gold the old ones."""
    (files / "data").mkdir()
    (files / "data" / "retired_cuis.tsv").write_text("C0\tC1\n")
    (files / "other.tsv").write_text("C0\tC2\n")
    (files / "mentions.tsv").write_text("heart attack\tC0\n")
    terms = Dictionary(["infarction", "cough"], ["C1", "C2"], str(files / "data"))
    monkeypatch.setattr(dictionary, "read_dictionary", lambda path, **chosen: terms)

    def gold(*more):
        words = ["--model", "m", "--json", "o", "--benchmark", f"a={files / 'mentions.tsv'}"]
        words += ["--dictionary", str(files / "data"), *map(str, more)]
        (benchmark,) = evaluate._read_benchmarks(parsed(evaluate.OPTIONS, words)[0])
        return benchmark.folds[0].gold

    assert gold() == ["C1"]
    assert gold("--retired-cuis", files / "other.tsv") == ["C2"]
    with pytest.raises(BadInput, match="none of the gold concepts"):
        gold("--retired-cuis", "none")


def test_scores_into_a_pipe_leave_nothing_beside_it(files, minilm_path, monkeypatch):
    pipe, heard, grew = files / "pipe", [], []
    write_vectors = encoded.write_vectors

    def noted(encoder, terms, out, about):
        grew.append(out)
        return write_vectors(encoder, terms, out, about)

    monkeypatch.setattr(encoded, "write_vectors", noted)
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    reader.start()
    assert 0 == run(
        *("--model", minilm_path, "--json", pipe, "--benchmark", f"p={files / 'pairs.tsv'}")
    )
    reader.join(300)
    assert json.loads(heard[0])["records"][0]["benchmark"] == "p"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    names = sorted(path.name for path in files.iterdir())
    assert names == ["heldout", "pairs.tsv", "pipe"]
    assert grew and grew[0].parent != files and not grew[0].parent.exists()


def test_scores_on_stdout_are_alone_there(files, minilm_path, capfd):
    arguments = ("--json", "/dev/stdout", "--benchmark", f"p={files / 'pairs.tsv'}")
    assert 0 == run("--model", minilm_path, *arguments)
    captured = capfd.readouterr()
    assert json.loads(captured.out)["records"][0]["benchmark"] == "p"
    assert "spearman" in captured.err.lower() and "scores and protocol: /dev/stdout" in captured.err


@pytest.mark.slow
def test_an_evaluation_that_was_stopped_goes_on(files, minilm_path, monkeypatch):
    arguments = (
        *("--model", minilm_path, "--json", files / "out.json", "--pooling", "cls", "mean"),
        *("--benchmark", f"toy={files / 'heldout'}"),
    )
    poolings, embed_tokens = [], embed.embed_tokens

    def stop_in_the_second(*args, **kwargs):
        poolings.append(kwargs["pooling"])
        if poolings == ["cls", "mean"]:
            raise process.Stopped
        return embed_tokens(*args, **kwargs)

    monkeypatch.setattr(embed, "embed_tokens", stop_in_the_second)
    with pytest.raises(process.Stopped):
        run(*arguments)
    assert not (files / "out.json").exists()
    run(*arguments)
    assert poolings == ["cls", "mean", "mean"], "those of cls were kept"
    assert [record.encoder["pooling"] for record in records_in(files / "out.json")] == [
        "cls",
        "mean",
    ]
    assert sorted(path.name for path in files.iterdir()) == ["heldout", "out.json", "pairs.tsv"]


def test_a_dictionary_in_other_languages_is_warned_of(files, tiny_folder, monkeypatch, capsys):
    settings = {"pooling": "cls", "cleaning": "none", "max_length": 32, "attend_padding": False}
    settings["format"] = "coder_jax encoder 1"
    model = shutil.copytree(tiny_folder, files / "model")
    (model / "coder_jax.json").write_text(json.dumps(settings | {"languages": ["ENG"]}))
    release = files / "MRCONSO.RRF"
    release.write_text(
        "".join(
            f"C{number}|{language}|P|L1|PF|S{number}|Y|A{number}||||MSH|PT|D1|{name}|0|N||\n"
            for number, (language, name) in enumerate([("ENG", "pain"), ("FRE", "douleur")])
        )
    )
    (files / "mine.tsv").write_text("ache\tC0\n")
    arguments = ("--model", model, "--json", files / "out.json", "--dictionary", release)
    assert 0 == run(*arguments, "--benchmark", f"mine={files / 'mine.tsv'}")
    err = capsys.readouterr().err
    assert "cleaning none, terms cut at 32 tokens; trained on terms in ENG\n" in err
    assert "warning: 1 of 2 terms of the dictionary are in FRE; the encoder was trained on" in err


def counted_chunks(monkeypatch):
    """Of each call of `encode_chunks` a list, of how many terms were encoded in each chunk."""
    calls, encode_chunks = [], TermEncoder.encode_chunks

    def noted(self, chunks, **options):
        calls.append([])
        for vectors in encode_chunks(self, chunks, **options):
            calls[-1].append(len(vectors))
            yield vectors

    monkeypatch.setattr(TermEncoder, "encode_chunks", noted)
    return calls


def test_a_dictionary_is_encoded_once(files, tiny_folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CODER_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vector_files, "LEAST_TERMS", 5)
    chunks = counted_chunks(monkeypatch)
    out = files / "out.json"

    def scores(*more):
        chunks.clear()
        benchmarks = f"toy={files / 'heldout'}", f"pairs={files / 'pairs.tsv'}"
        assert 0 == run(*("--model", tiny_folder, "--json", out, "--benchmark", *benchmarks, *more))
        records = json.loads(out.read_text())["records"]
        return [(record["scores"], record["counts"]) for record in records]

    apart = scores("--no-cache")
    assert chunks == [[16]] and not (tmp_path / "cache").exists()
    first = scores()
    assert chunks == [[8], [8]], "the dictionary; mentions, and terms of pairs"
    assert "vectors of 8 terms: kept in" in capsys.readouterr().err
    again = scores()
    assert chunks == [[8]], "mentions, and terms of pairs"
    assert "vectors of 8 terms: read from the cache" in capsys.readouterr().err
    assert first == again
    for (one, counts), (other, other_counts) in zip(first, apart, strict=True):
        assert counts == other_counts and one == pytest.approx(other, abs=1e-6)
    assert sorted(path.name for path in files.iterdir()) == [
        *("cache", "heldout", "out.json", "pairs.tsv")
    ]


@pytest.mark.parametrize("moment", ["the dictionary", "the others"])
def test_with_kept_vectors_an_evaluation_that_was_stopped_goes_on(
    files, tiny_folder, monkeypatch, tmp_path, moment
):
    monkeypatch.setenv("CODER_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(vector_files, "LEAST_TERMS", 5)
    for module in (vector_files, encoded):
        monkeypatch.setattr(module, "TERMS_PER_CHUNK", 3)
    arguments = (
        *("--model", tiny_folder, "--json", files / "out.json"),
        *("--benchmark", f"toy={files / 'heldout'}", f"pairs={files / 'pairs.tsv'}"),
    )
    chunks = counted_chunks(monkeypatch)
    save_chunk, saved = vector_files._save_chunk, []

    def stop(path, vectors, dtype):
        saved.append(path.parent.name)
        which = "vectors.npy" if moment == "the dictionary" else ".out.json.cls.others.npy"
        if saved.count(f"{which}.partial") == 2:
            raise process.Stopped
        save_chunk(path, vectors, dtype)

    with monkeypatch.context() as patch, pytest.raises(process.Stopped):
        patch.setattr(vector_files, "_save_chunk", stop)
        run(*arguments)
    assert len(chunks) == (1 if moment == "the dictionary" else 2)
    chunks.clear()
    assert 0 == run(*arguments)
    assert [sum(call) for call in chunks] == ([5, 8] if moment == "the dictionary" else [5]), (
        "of eight terms the first three are there"
    )
    assert len(records_in(files / "out.json")) == 2
    assert sorted(path.name for path in files.iterdir()) == [
        *("cache", "heldout", "out.json", "pairs.tsv")
    ]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--benchmark", "heldout"], "--benchmark: found 'heldout'; expected NAME=PATH"),
        (
            ["--benchmark", "a=x", "a=y"],
            "--benchmark: found the name 'a' twice; expected one PATH for each",
        ),
        (["--benchmark", "a=x", "--k", "0"], "--k: found 0; expected 1 or more"),
        (["--benchmark", "a=x", "--dictionary", "y", "z"], "found 'y' and 'z' for all benchmarks"),
        (["--benchmark", "a={files}/absent"], "absent: cannot be read"),
        (
            ["--benchmark", "a={files}/heldout", "--cleaning", "odd"],
            "--cleaning: invalid choice: 'odd'",
        ),
        (["--benchmark", "a=x", "--json", "{files}/no/out.json"], "there is no folder .*make it"),
        (["--benchmark", "a=x", "--json", "{files}"], "--json: .* is a folder; expected a file"),
        (["--benchmark", "a={files}/heldout", "--model", "{files}"], "has no config.json"),
        (
            ["--benchmark", "a=x", "--dictionary", "y", "--dictionary-concepts-of", "MSH"],
            "found --dictionary-concepts-of MSH; expected a dataset folder, a release or",
        ),
        (["--benchmark", "a=x", "--sample", "0"], "--sample: found 0; expected 1 or more"),
        (["--benchmark", "a=x", "--model", "{files}/pairs.tsv"], "found the file .*--vectors-of"),
        (["--benchmark", "a=x", "--vectors-of", "words"], "which is no file; expected a file of"),
    ],
)
def test_arguments_that_cannot_be_used(files, minilm_path, arguments, message):
    filled = [argument.format(files=files) for argument in arguments]
    model = [] if "--model" in filled else ["--model", minilm_path]
    with pytest.raises(BadInput, match=message):
        run(*model, "--json", files / "out.json", *filled)
    assert not list(files.glob("*.json*")) and not list(files.glob(".*"))


def test_a_folder_that_is_another_dataset_is_refused_as_dictionary(files):
    (files / "manifest.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(BadInput, match="has the format 'other', expected"):
        run("--model", "x", "--json", files / "o.json", "--benchmark", "a=b", "--dictionary", files)


@pytest.mark.parity
@pytest.mark.parametrize("first", [40, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pooling", [pytest.param("cls", marks=pytest.mark.slow), "mean"])
def test_cadec_equals_the_scores_of_sentence_transformers(minilm_path, shared_data, pooling, first):
    """The first mentions of each fold, or all. For [CLS] the peer has another pooling module."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    peer = sentence_transformers.SentenceTransformer(str(minilm_path), device="cpu")
    if pooling == "cls":
        peer[1] = sentence_transformers.models.Pooling(384, "cls")
    whole = read_benchmark("cadec", shared_data / "openmeta/eval/cadec")
    folds = [
        dataclasses.replace(fold, mentions=fold.mentions[:first], gold=fold.gold[:first])
        for fold in whole.folds
    ]
    benchmark = dataclasses.replace(whole, folds=folds)
    ours = TermEncoder.from_pretrained(minilm_path, pooling=pooling)
    strings = benchmark.keys("terms")
    encoded = ours.encode(strings), peer.encode(strings, normalize_embeddings=True)
    np.testing.assert_allclose(*encoded, atol=1e-5)
    one, other = (
        evaluate_normalization(EncodedTerms(ours, strings, vectors).encode, benchmark).scores
        for vectors in encoded
    )
    assert one == pytest.approx(other, abs=1e-6)


def share_within(k, mentions_MD, gold, terms_TD, concepts):
    """The share of mentions whose gold concept is one of the k that the nearest terms have."""
    mentions_MD, terms_TD = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (mentions_MD, terms_TD)
    )
    nearest = np.argsort(-mentions_MD @ terms_TD.T, axis=1)
    found = [list(dict.fromkeys(concepts[term] for term in row))[:k] for row in nearest]
    return np.mean([concept in row for concept, row in zip(gold, found, strict=True)])


@pytest.mark.slow
@pytest.mark.parity
def test_names_of_an_ontology_by_the_vectors_of_sentence_transformers(
    minilm_path, hpo_path, write, tmp_path
):
    """The third name of each of some concepts is looked up among the first two of all of them."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    atoms = read_obo(hpo_path).atoms.unique("term", keep="first", maintain_order=True)
    named = atoms.group_by("cui", maintain_order=True).agg("term").collect()
    chosen = named.filter(pl.col("term").list.len() > 2)[::64].rows()
    mentions, gold = [names[2] for _, names in chosen], [cui for cui, _ in chosen]
    terms, concepts = [n for _, names in chosen for n in names[:2]], np.repeat(gold, 2).tolist()
    for file, *columns in (("mentions", mentions, gold), ("dictionary", terms, concepts)):
        rows = zip(*columns, strict=True)
        write(f"{file}.tsv", "".join(f"{name}\t{cui}\n" for name, cui in rows))
    run(
        *("--model", minilm_path, "--json", tmp_path / "out.json", "--pooling", "mean", "cls"),
        *("--benchmark", f"hpo={tmp_path / 'mentions.tsv'}", "--k", 1, 5),
    )
    mean, cls = records_in(tmp_path / "out.json")
    peer = sentence_transformers.SentenceTransformer(str(minilm_path), device="cpu")
    for record in (mean, cls):
        if record is cls:
            peer[1] = sentence_transformers.models.Pooling(384, "cls")
        vectors = peer.encode(mentions), peer.encode(terms)
        for k in (1, 5):
            expected = share_within(k, vectors[0], gold, vectors[1], concepts)
            assert 0.5 < expected < 1
            assert record.scores[f"acc@{k}"] == pytest.approx(expected)
    assert mean.scores["acc@1"] != cls.scores["acc@1"]


# -------------------------------------------------------------------------------------------------
# `evaluate --cutoffs`: measured in mentions, kept with the model, used by `normalize`.


@pytest.fixture(scope="module")
def folder(tmp_path_factory, hpo_path):
    """A tiny encoder, a dictionary of real names, and others of the same concepts as mentions."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("cutoffs")
    write_model(folder / "model")
    atoms = read_obo(hpo_path).atoms.select("term", "cui").unique().sort("cui", "term").collect()
    some = atoms.filter(atoms["cui"].is_duplicated())[:900]
    held = some.filter(some["cui"].is_first_distinct())
    rest = some.join(held, on=["cui", "term"], how="anti", maintain_order="left")
    rest.write_csv(folder / "terms.tsv", separator="\t", include_header=False)
    lines = [
        f"{term}\t{cui}\t{'GER' if row % 2 else 'ENG'}"
        for row, (term, cui) in enumerate(held.select("term", "cui").rows())
    ]
    (folder / "own.tsv").write_text("\n".join(["mention\tCUI\tlanguage", *lines]) + "\n")
    (folder / "list.csv").write_text("term\n" + "".join(f'"{t}"\n' for t in held["term"][:40]))
    return folder


@pytest.fixture
def evaluate_of_evaluate_cutoffs(folder, monkeypatch):
    """Runs the command with some more words."""
    monkeypatch.chdir(folder)
    words = ["evaluate", "--model", "model", "--json", "out.json", "--dictionary", "terms.tsv"]
    words += ["--benchmark", "own=own.tsv"]
    return lambda *more: main([*words, *more])


@pytest.mark.slow
def test_what_it_measures_normalize_uses(folder, evaluate_of_evaluate_cutoffs, capsys):
    assert evaluate_of_evaluate_cutoffs("--cutoffs", "model/cutoffs.json") == 0
    said = capsys.readouterr()
    assert "acc@1" in said.out, "the scores are told, too"
    assert "GER: " in said.err and " right with letters at weight " in said.err
    assert "cut-offs: model/cutoffs.json" in said.err
    found = Cutoffs.read(folder / "model" / CUTOFFS.file)
    assert list(found.tables) == [ALL, "ENG", "GER"]
    assert found.measured_on["candidates"] == "both" and found.measured_on["model"] == "model"
    assert found.measured_on["dictionary"]["source"] == "terms.tsv"

    words = ["normalize", "--model", "model", "--dictionary", "terms.tsv", "--column", "term"]
    words += ["--out", "coded.csv", "--precision", "0.6", "--language", "ENG", "list.csv"]
    assert main(words) == 0
    assert "of ENG that are no strings of the dictionary" in capsys.readouterr().err
    with (folder / "coded.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    statuses = {row["status"] for row in rows}
    assert {"near", "no answer"} <= statuses
    for row in rows:
        if row["status"] in ("near", "no answer"):
            assert bool(row["concept"]) == ("confidence" not in row["reason"])
    json.loads((folder / "model" / CUTOFFS.file).read_text())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--benchmark", "b=other/", "--dictionary", "b=terms2.tsv"), "found terms.tsv and terms2"),
        (("--cutoffs", "absent/cutoffs.json"), "--cutoffs"),
        (("--cutoffs", "few.json", "--candidates", "letters"), "--candidates"),
    ],
)
def test_what_cannot_be_measured(folder, evaluate_of_evaluate_cutoffs, capsys, more, message):
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other" / "mentions.tsv").write_text((folder / "own.tsv").read_text())
    (folder / "terms2.tsv").write_text((folder / "terms.tsv").read_text())
    words = more if "--cutoffs" in more else (*more, "--cutoffs", "c.json")
    try:
        status = evaluate_of_evaluate_cutoffs(*words)
    except SystemExit as exit:
        status = exit.code
    assert status == 2 and message in capsys.readouterr().err
    assert not (folder / "c.json").exists()


# -------------------------------------------------------------------------------------------------
# `python -m coder_jax evaluate` on every kind of benchmark, with every kind of vectors.


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
        *("--neighbours", "2", "--types", "Finding", "Cell", "--epochs", "3"),
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
    monkeypatch.setattr(evaluate, "_compared", None)
    model = ["--model", all_kinds / "mayo.csv", "--vectors-of", *vectors] if vectors else []
    arguments = model or ["--model", "some/model"]
    if benchmark == "look.tsv":
        arguments += ["--dictionary", all_kinds / "terms.tsv"]
    names = [f"mcsm={all_kinds / 'concepts.tsv'}", f"x={all_kinds / benchmark}"]
    with pytest.raises(BadInput, match=message):
        run(*arguments, "--json", all_kinds / "o.json", "--types", "Cell", "--benchmark", *names)
