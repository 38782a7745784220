"""`python -m coder_jax evaluate` on real weights: table, JSON, messages; equal to a peer."""

import argparse
import dataclasses
import json
import os
import shutil
import stat
import threading

import numpy as np
import polars as pl
import pytest
from evaluating import records_in, run, write_toy
from tiny_bert import write_model

from coder_jax.commands import evaluate
from coder_jax.encoding import term_lines, vector_cache, vector_file
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.readers import embed
from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.vectors import encoded
from coder_jax.evaluation.vectors.vectors import EncodedTerms
from data_pipeline.dataset import dictionary
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
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
        parser = argparse.ArgumentParser()
        evaluate.add_arguments(parser)
        words = ["--model", "m", "--json", "o", "--benchmark", f"a={files / 'mentions.tsv'}"]
        words += ["--dictionary", str(files / "data"), *map(str, more)]
        (benchmark,) = evaluate.read_benchmarks(parser.parse_args(words))
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
    reader.join(60)
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


def test_an_evaluation_that_was_stopped_goes_on(files, minilm_path, monkeypatch):
    arguments = (
        *("--model", minilm_path, "--json", files / "out.json", "--pooling", "cls", "mean"),
        *("--benchmark", f"toy={files / 'heldout'}"),
    )
    poolings, embed_tokens = [], embed.embed_tokens

    def stop_in_the_second(*args, **kwargs):
        poolings.append(kwargs["pooling"])
        if poolings == ["cls", "mean"]:
            raise stopping.Stopped
        return embed_tokens(*args, **kwargs)

    monkeypatch.setattr(embed, "embed_tokens", stop_in_the_second)
    with pytest.raises(stopping.Stopped):
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
    assert "cleaning none, at most 32 tokens; trained on terms in ENG\n" in err
    assert "warning: 1 of 2 terms of the dictionary are in FRE; the encoder was trained on" in err


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder


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
    monkeypatch.setattr(vector_cache, "LEAST_TERMS", 5)
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
    monkeypatch.setattr(vector_cache, "LEAST_TERMS", 5)
    for module in (term_lines, encoded):
        monkeypatch.setattr(module, "TERMS_PER_CHUNK", 3)
    arguments = (
        *("--model", tiny_folder, "--json", files / "out.json"),
        *("--benchmark", f"toy={files / 'heldout'}", f"pairs={files / 'pairs.tsv'}"),
    )
    chunks = counted_chunks(monkeypatch)
    save_chunk, saved = vector_file.save_chunk, []

    def stop(path, vectors, dtype):
        saved.append(path.parent.name)
        which = "vectors.npy" if moment == "the dictionary" else ".out.json.cls.others.npy"
        if saved.count(f"{which}.partial") == 2:
            raise stopping.Stopped
        save_chunk(path, vectors, dtype)

    with monkeypatch.context() as patch, pytest.raises(stopping.Stopped):
        patch.setattr(vector_file, "save_chunk", stop)
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
        (["--benchmark", "a={files}/heldout", "--cleaning", "odd"], "cleaning is 'odd'; expected"),
        (["--benchmark", "a=x", "--json", "{files}/no/out.json"], "there is no folder .*make it"),
        (["--benchmark", "a=x", "--json", "{files}"], "--json: .* is a folder; expected a file"),
        (["--benchmark", "a={files}/heldout", "--model", "{files}"], "has no config.json"),
        (
            ["--benchmark", "a=x", "--dictionary", "y", "--dictionary-concepts-of", "MSH"],
            "found --dictionary-concepts-of MSH; expected a dataset folder or the MRCONSO.RRF",
        ),
        (["--benchmark", "a=x", "--sample", "0"], "--sample: found 0; expected 1 or more"),
        (["--benchmark", "a=x", "--model", "{files}/pairs.tsv"], "found the file .*--vectors-of"),
        (["--benchmark", "a=x", "--vectors-of", "words"], "which is no file; expected a file of"),
    ],
)
def test_arguments_that_cannot_be_used(files, minilm_path, arguments, message):
    filled = [argument.format(files=files) for argument in arguments]
    with pytest.raises(BadInput, match=message):
        run("--model", minilm_path, "--json", files / "out.json", *filled)
    assert not list(files.glob("*.json*")) and not list(files.glob(".*"))


def test_it_runs_on_one_host(files, monkeypatch):
    for name, value in (("COORDINATOR_ADDRESS", "h:1"), ("NUM_PROCESSES", 2), ("PROCESS_ID", 1)):
        monkeypatch.setenv(f"JAX_{name}", str(value))
    with pytest.raises(BadInput, match="found 2 processes.*number 1.*JAX_NUM_PROCESSES=1"):
        run("--model", "x", "--json", files / "o.json", "--benchmark", f"a={files / 'pairs.tsv'}")


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
