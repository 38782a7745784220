"""An export of BNE: the same vectors in PyTorch and sentence-transformers; an encoder as any."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from name_run import config_of, source_of
from safetensors.numpy import load_file, save_file

from coder_jax.__main__ import main
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.readers.name_reader import NameReader
from coder_jax.encoding.remembered import RememberingEncoder
from coder_jax.export.verify import PROBE_TERMS, load_module
from coder_jax.systems.bne.export import compare, describe, write_files
from coder_jax.systems.encoders.blend import averaged
from coder_jax.systems.finished_run import load_run
from coder_jax.training.proof import PROOF, check_proof
from coder_jax.training.train import train
from data_pipeline.batches.names.alphabet import Alphabet
from data_pipeline.process.errors import BadInput

TERMS = ["heart attack", "Attack of the heart, NOS", "zzqx", "zzqy", "", *PROBE_TERMS]


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """(folder, the run's encoder) of an export by the command."""
    out = tmp_path_factory.mktemp("export") / "bne"
    assert main(["export", "--checkpoint", str(trained[0]), "--out", str(out)]) == 0
    system, run = load_run(trained[0])
    return out, system.trained(run).encoder


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported[0], tmp_path / "copy")


def test_a_trained_run_encodes_any_string_as_alone(exported):
    encoder = exported[1]
    together = encoder.encode(TERMS)
    alone = [encoder.encode(term) for term in (TERMS[1], TERMS[2], TERMS[-1])]
    np.testing.assert_allclose(together[[1, 2, -1]], alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert np.abs(together[2] - together[3]).max() > 1e-4  # unseen words keep their characters
    chunks = list(encoder.encode_chunks([TERMS[:3], TERMS[3:4] * 2]))
    np.testing.assert_allclose(np.concatenate(chunks), together[[0, 1, 2, 3, 3]], atol=1e-6)
    few = np.concatenate([encoder.encode(TERMS, rows=4), encoder.encode(TERMS[::-1])[::-1]])
    np.testing.assert_allclose(few, np.concatenate([together, together]), atol=1e-6)


def test_a_run_is_told_by_all_that_it_knows(exported):
    """Of an encoder in memory: its parameters, its characters, and its words with their vectors."""
    reader = exported[1].reader
    known = reader.config, reader.params, reader.alphabet, reader.vectors
    changed = jax.tree.map(np.array, dict(reader.params))
    jax.tree.leaves(changed)[0].flat[0] += 1
    words = reader.vectors
    others = [
        NameReader(known[0], changed, *known[2:]),
        NameReader(*known[:2], Alphabet(known[2].characters[::-1]), words),
        NameReader(*known[:3], dataclasses.replace(words, strings=[*words.strings][::-1])),
        NameReader(*known[:3], dataclasses.replace(words, vectors=words.vectors[::-1])),
    ]
    assert NameReader(*known).hash_of_parameters() == reader.hash_of_parameters()
    assert len({one.hash_of_parameters() for one in (reader, *others)}) == 5


@pytest.mark.parity
def test_pytorch_gives_the_same(exported):
    """By the module alone: name by name, and together."""
    folder, encoder = exported
    module = load_module(folder / "name_encoder.py").NameEncoder(folder)
    ours = encoder.encode(TERMS)
    np.testing.assert_allclose(module.encode(TERMS), ours, atol=1e-5)
    alone = [module.encode([term])[0].numpy() for term in TERMS[:6]]
    np.testing.assert_allclose(alone, ours[:6], atol=1e-5)


@pytest.mark.parity
def test_sentence_transformers_opens_it_and_what_it_saves(exported, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder, encoder = exported
    ours = encoder.encode(TERMS)
    model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(model.encode(TERMS), ours, atol=1e-5)
    model.save(str(tmp_path / "again"))
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(again.encode(TERMS), ours, atol=1e-5)


@pytest.mark.parity
def test_the_released_way_is_the_same_in_pytorch(names, tmp_path, on_one_device):
    config = config_of(
        names,
        tmp_path / "run",
        model={"cell": "coupled", "projection": "tanh"},
        learned_scale=True,
        run={"eval_steps": 0},
    )
    train(config, source_of(config, names))
    system, run = load_run(tmp_path / "run")
    assert {"scale", "encoder"} == run.params.keys()
    differences = system.export(run, tmp_path / "export")
    assert max(differences.values()) <= 1e-5 and "sentence-transformers" in differences


@pytest.mark.parity
@pytest.mark.parametrize("rules", ["paper", "lookup", "mlnorm"])
def test_it_cleans_by_itself_in_every_library(exported, tmp_path, rules):
    encoder = exported[1]
    cleaning = TermEncoder(encoder.reader, None, encoder.settings.changed(cleaning=rules))
    write_files(tmp_path, cleaning, {})
    assert max(compare(tmp_path, cleaning).values()) <= 1e-5
    assert "does so by itself" in (tmp_path / "README.md").read_text()


def test_term_encoder_opens_it(exported):
    folder, ours = exported
    encoder = TermEncoder.from_pretrained(folder)
    np.testing.assert_array_equal(encoder.encode(TERMS), ours.encode(TERMS))
    assert encoder.languages == ("ENG",) and encoder.settings.pooling == "bilstm-max"
    assert repr(encoder).startswith(f"TermEncoder({str(folder)!r}, width=12, pooling='bilstm-max'")
    remembering = RememberingEncoder(encoder)
    np.testing.assert_array_equal(remembering.encode(TERMS[:3]), encoder.encode(TERMS[:3]))
    found = encoder.normalize(["heart attack, acute"], {"heart attack": "C1", "limb pain": "C2"})
    assert found[0][0].concept == "C1"


def test_the_commands_take_it(exported, names, tmp_path, capsys):
    folder = str(exported[0])
    terms = tmp_path / "terms.txt"
    terms.write_text("heart attack\nlimb pain\n")
    out = tmp_path / "vectors.npy"
    assert main(["encode", "--model", folder, "--out", str(out), str(terms)]) == 0
    expected = exported[1].encode(["heart attack", "limb pain"])
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
    record = tmp_path / "scores.json"
    heldout = names / "heldout" / "mentions.tsv"
    words = ["--model", folder, "--benchmark", f"held={heldout}", "--json", str(record)]
    assert main(["evaluate", *words]) == 0
    (scores,) = json.loads(record.read_text())["records"]
    assert scores["encoder"]["pooling"] == "bilstm-max" and "acc@1" in scores["scores"]
    capsys.readouterr()
    words = ["--model", folder, "--dictionary", str(names), str(terms)]
    assert main(["normalize", *words]) == 0
    assert "heart attack" in capsys.readouterr().out


def test_a_bert_s_settings_are_refused(exported, capsys):
    folder = exported[0]
    with pytest.raises(
        BadInput, match="found pooling 'mean'; an encoder of names .* has 'bilstm-max' alone"
    ):
        TermEncoder.from_pretrained(folder, "mean")
    with pytest.raises(BadInput, match="found attend_padding; an encoder of names"):
        TermEncoder.from_pretrained(folder, attend_padding=True)
    with pytest.raises(BadInput, match="what was asked for needs a BERT"):
        _ = TermEncoder.from_pretrained(folder).bert
    with pytest.raises(BadInput, match="max_length is 2"):
        TermEncoder.from_pretrained(folder, max_length=2)


def test_longer_names_are_cut_where_that_is_asked_for(exported):
    encoder = TermEncoder.from_pretrained(exported[0], max_length=4)
    one, other = encoder.encode(["heart attack acute", "heart attack"])
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_is_damaged_is_said(copy):
    def refused(message):
        with pytest.raises(BadInput, match=message):
            TermEncoder.from_pretrained(copy)

    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"word_rules": "0" * 64}))
    refused("its words were made by rules of hash 000000000000; expected those of this version")
    (copy / "config.json").write_text(json.dumps(config | {"hidden": 7}))
    refused(r"name.backward.bias: found an array \[24\]; expected \[28\]")
    (copy / "config.json").write_text(json.dumps(config | {"cell": "round"}))
    refused("config.json")
    (copy / "config.json").write_text(json.dumps(config))
    vectors = load_file(copy / "word_vectors.safetensors")["vectors"]
    save_file({"vectors": vectors[:, :9].copy()}, copy / "word_vectors.safetensors")
    refused(r"found vectors \[\d+, 9\]; expected \[\d+, 12\]")
    (copy / "words.txt").unlink()
    refused("words.txt is missing; export the run again")


def test_an_export_that_differs_is_not_kept(trained, tmp_path, monkeypatch):
    system, run = load_run(trained[0])
    monkeypatch.setattr("coder_jax.systems.bne.export.PROBE_TERMS", ["pain"])
    write = "coder_jax.systems.bne.export.write_name_encoder"

    def wrong(folder, encoder):
        from coder_jax.models.names.files import write_name_encoder

        encoder.params["projection"]["bias"] = encoder.params["projection"]["bias"] + 0.1
        write_name_encoder(folder, encoder)
        encoder.params["projection"]["bias"] = encoder.params["projection"]["bias"] - 0.1

    monkeypatch.setattr(write, wrong)
    with pytest.raises(
        RuntimeError, match="the export opened by PyTorch gives vectors that differ"
    ):
        system.export(run, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    with pytest.raises(BadInput, match="--pytorch-bin is for BERTs"):
        system.export(run, tmp_path / "export", pytorch_bin=True)


def test_the_card_says_what_it_is_and_how_to_use_it(exported):
    card = (exported[0] / "README.md").read_text()
    for part in (
        "after BNE (Phan, Sun and Tay 2019)",
        "trust_remote_code=True",
        "NameEncoder.load(MODEL)",
        "synonym 1, concept 1, context 1",
        "skip-grams (names_concepts)",
    ):
        assert part in card
    assert "tokens." not in card and "AutoModel" not in card


def test_the_card_of_a_mean_of_checkpoints_has_no_scores_of_another_encoder(trained):
    system, run = load_run(trained[0])
    assert describe(system, run)["results"][0].keys() >= {"benchmark", "acc@1"}
    card = describe(system, averaged(trained[0], run, 2))
    assert card["recipe"]["weights"] == "the mean of steps 4, 8" and card["results"] == []


def test_a_run_proves_its_names(trained):
    """What an encoder of names answers is compared with what training gave."""
    system, run = load_run(trained[0])
    terms = run.notes[PROOF]["terms"]
    assert len(terms) > 1 and check_proof(lambda terms: system.answers(run, terms), run, "the run")
    lstm = run.params["encoder"]["name"]
    turned = dict(zip(lstm, [*lstm.values()][::-1], strict=True))
    changed = {**run.params["encoder"], "name": turned}
    other = dataclasses.replace(run, params={**run.params, "encoder": changed})
    with pytest.raises(BadInput, match="the run gives other vectors than training gave"):
        check_proof(lambda terms: system.answers(other, terms), other, "the run")
