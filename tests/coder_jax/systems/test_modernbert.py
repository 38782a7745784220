"""A ModernBERT is trained, stopped, resumed, exported and imported again, as a BERT is."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import tiny_bert
import tiny_modernbert
import tiny_mpnet
from short_run import Stops, assert_same_parameters, config, one_device, source_for
from tiny_modernbert import TEXTS, write_model
from tiny_ontology import write_ontology

from coder_jax.__main__ import main
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.bert import split_encoder
from coder_jax.models.hf_files import EncoderSettings
from coder_jax.models.hf_weights import load_bert, to_hf
from coder_jax.models.modernbert import ModernBertConfig
from coder_jax.systems.encoder_system import EncoderOfRun, interpolated
from coder_jax.systems.recall_rank.training import RankSystem
from coder_jax.systems.trained_models import load_run
from coder_jax.training.checkpoints import read_params
from coder_jax.training.train import train
from data_pipeline.build_dataset import __main__ as build
from data_pipeline.dataset.tokenizer import load_tokenizer, save_tokenizer, tokenizer_hash
from data_pipeline.process import BadInput

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny-modernbert"
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def source(model):
    return source_for(model)


def dropping(model, out, **run):
    """The configuration of a short run with dropout."""
    plain = config(model, out, **run)
    encoder = dataclasses.replace(plain.system.model, dropout=0.1)
    return dataclasses.replace(plain, system=dataclasses.replace(plain.system, model=encoder))


@pytest.fixture(scope="module")
def straight(model, source, tmp_path_factory):
    """The folder of a run of six steps without a stop."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    with one_device():
        train(dropping(model, out), source)
    return out


@pytest.fixture(scope="module")
def exported(straight, tmp_path_factory):
    """The folder of its export."""
    out = tmp_path_factory.mktemp("export") / "export"
    system, run = load_run(straight)
    differences = system.export(run, out)
    assert differences.keys() == {"transformers", "sentence-transformers"}
    assert max(differences.values()) < 1e-5
    return out


def test_stop_and_go_on_is_bitwise_the_straight_run(model, source, straight, tmp_path):
    out = tmp_path / "stopped"
    with one_device():
        with pytest.raises(ConnectionError):
            train(dropping(model, out), Stops(source, after=4))
        train(dropping(model, out), source)
    for step in (3, 6):
        assert_same_parameters(read_params(out, step), read_params(straight, step))


def test_every_weight_moves_and_the_import_of_the_export_is_what_was_trained(
    model, straight, exported
):
    _, run = load_run(straight)
    again, hf_config, report = load_bert(exported)
    assert report.only_in_file == report.only_in_model == report.heads_ignored == ()
    flat = jax.tree.leaves(run.params["encoder"])
    for one, other in zip(jax.tree.leaves(split_encoder(again)[1]), flat, strict=True):
        np.testing.assert_array_equal(one, other)
    before = to_hf(load_bert(model)[0])
    for name, tensor in to_hf(again).items():
        assert 1e-5 < np.abs(tensor - before[name]).max() < 0.1, name
    started = json.loads((model / "config.json").read_text())
    of_heads = {name for name in started if name.startswith(("classifier_", "sparse_", "decoder_"))}
    gone = {"deterministic_flash_attn", "initializer_cutoff_factor", "tie_word_embeddings"}
    kept = started.keys() - of_heads - gone - {"transformers_version"}
    assert kept <= hf_config.keys(), "what the encoder computes with"
    assert {name: hf_config[name] for name in kept} == {name: started[name] for name in kept}


@pytest.mark.parametrize("kind", ["mpnet", "distilbert"])
def test_an_mpnet_and_a_distilbert_are_trained_and_exported(kind, tmp_path):
    tiny_mpnet.write_model(tmp_path / "model", kind)
    with one_device():
        train(dropping(tmp_path / "model", tmp_path / "run"), source_for(tmp_path / "model"))
    system, run = load_run(tmp_path / "run")
    differences = system.export(run, tmp_path / "export")
    assert differences.keys() == {"transformers", "sentence-transformers"}
    assert max(differences.values()) < 1e-5
    before, after = (to_hf(load_bert(tmp_path / name)[0]) for name in ("model", "export"))
    moved = {name for name, tensor in after.items() if np.abs(tensor - before[name]).max() > 1e-6}
    assert after.keys() - moved <= {"pooler.dense.weight", "pooler.dense.bias"}


def test_the_libraries_open_the_export_with_the_same_vectors(model, exported):
    assert type(transformers.AutoModel.from_pretrained(exported)).__name__ == "ModernBertModel"
    encoder = TermEncoder.from_pretrained(exported)
    assert isinstance(encoder.bert.config, ModernBertConfig)
    strings = [*TEXTS, " blanks \t  and   more ", "  "]
    peer = sentence_transformers.SentenceTransformer(str(exported), device="cpu")
    np.testing.assert_allclose(encoder.encode(strings), peer.encode(strings), rtol=0, atol=1e-5)
    hashes = {tokenizer_hash(load_tokenizer(folder)) for folder in (model, exported)}
    assert len(hashes) == 1, "so it may be trained on, with the same dataset"


def test_a_folder_of_sentence_transformers_says_how_it_pools(exported, tmp_path):
    peer = sentence_transformers.SentenceTransformer(str(exported), device="cpu")
    peer[1].pooling_mode = "mean"
    peer.save(str(tmp_path / "mean"))
    (tmp_path / "mean" / "coder_jax.json").unlink(missing_ok=True)
    encoder = TermEncoder.from_pretrained(tmp_path / "mean")
    assert encoder.settings == EncoderSettings(pooling="mean", max_length=12)
    texts = [text.strip() for text in TEXTS]
    np.testing.assert_allclose(encoder.encode(texts), peer.encode(texts), rtol=0, atol=1e-5)


def test_half_way_between_start_and_end(model, straight):
    system, run = load_run(straight)
    mixed = interpolated(system, run, 0.5).params["encoder"]["final_norm"]["scale"]
    ends = [run.params["encoder"]["final_norm"]["scale"], load_bert(model)[0].final_norm.scale]
    np.testing.assert_allclose(mixed, sum(np.asarray(end) for end in ends) / 2, rtol=1e-6)


def test_a_ranker_of_pairs_needs_token_types(model):
    config = json.loads((model / "config.json").read_text())
    about = EncoderOfRun(config=config, pooler=False, license=None)
    with pytest.raises(BadInput, match="has 1 token type; a ranker reads pairs.*: use a BERT"):
        RankSystem.content.start_of(about, None)


def test_one_with_word_pieces_gets_more_of_them(tmp_path, capsys):
    """Of its published tokenizer's kind (BPE) there is nothing to add: see the road below."""
    (tmp_path / "bert").mkdir()
    tiny_bert.write_tokenizer(tmp_path / "bert")
    save_tokenizer(tmp_path / "bert", tmp_path / "model")
    ids = dict.fromkeys(tiny_modernbert.special_ids(), 0)
    size = len(tiny_bert.VOCABULARY)
    tiny_modernbert.random_model(vocab_size=size, **ids).save_pretrained(tmp_path / "model")
    (tmp_path / "terms.txt").write_text("Lungenembolie rechts\nLungenembolie\nheart attack\n")
    where = ["--model", tmp_path / "model", "--out", tmp_path / "out"]
    words = ["extend-vocabulary", *where, "--terms", tmp_path / "terms.txt"]
    assert main([str(word) for word in [*words, "--min-frequency", "1"]]) == 0
    assert "difference of their vectors: transformers 0.0e+00" in "".join(capsys.readouterr())
    old, new = (to_hf(load_bert(tmp_path / name)[0]) for name in ("model", "out"))
    name = "embeddings.tok_embeddings.weight"
    assert len(new[name]) > len(old[name])
    np.testing.assert_array_equal(new[name][: len(old[name])], old[name])


def test_the_road_by_command_line(model, tmp_path, capsys):
    """Build, train, export, evaluate, normalize; its vocabulary cannot be extended."""

    def run(*words, status=0):
        assert main([str(word) for word in words]) == status
        return capsys.readouterr()

    ontology = write_ontology(tmp_path / "tiny.obo", classes=200)
    command = ["--source", ontology, "--tokenizer", model, "--hold-out", "5"]
    command += ["--cleaning", "paper", "--out", tmp_path / "data"]
    assert build.main([str(word) for word in command]) == 0
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert manifest["counts"]["unknown_terms"] == 0
    small = "--groups 1 --triplets 4 --repeats 2 --row-length 64 --steps 2 --warmup-steps 1"
    data = ["--data", tmp_path / "data", "--out", tmp_path / "run", "--init", model]
    run("train", "--recipe", "small_synonyms", *data, *small.split(), "--eval-steps", "2")
    run("export", "--checkpoint", tmp_path / "run", "--out", tmp_path / "export")
    heldout = tmp_path / "data" / "heldout"
    where = ["--benchmark", f"heldout={heldout}", "--json", tmp_path / "scores.json"]
    assert "heldout" in run("evaluate", "--model", tmp_path / "export", *where).out
    dictionary = heldout / "dictionary.tsv"
    term = dictionary.read_text().splitlines()[1].split("\t")[0]
    (tmp_path / "terms.txt").write_text(term + "\n")
    flags = [tmp_path / "terms.txt", "--dictionary", dictionary]
    assert "exact" in run("normalize", "--model", tmp_path / "export", *flags).out
    extend = ["--terms", tmp_path / "terms.txt", "--out", tmp_path / "extended"]
    told = run("extend-vocabulary", "--model", model, *extend, status=2).err
    assert "BPE, as of RoBERTa and ModernBERT; expected WordPiece" in told and "as it is" in told
