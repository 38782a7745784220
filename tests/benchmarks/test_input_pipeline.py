"""The benchmark of the input pipeline: what the peer makes, and a small run of both."""

import json

import pytest
import tiny_bert
import torch
from tiny_rrf import write_release

from benchmarks import input_pipeline
from benchmarks.released_loader import Collate, ReleasedDataset, released_batches
from data_pipeline.batches.spec import BatchSpec

SPEC = BatchSpec(groups=2, triplets=3, repeats=4)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    tiny_bert.write_tokenizer(folder)
    return str(folder)


@pytest.fixture
def peer(tmp_path):
    return ReleasedDataset(write_release(tmp_path / "META"), SPEC, items=100)


def test_the_peer_holds_the_release_as_the_released_code_does(peer):
    assert peer.terms["C0000001"][:2] == ["heart attack", "myocardial infarction"]
    assert "C0000005" not in peer.terms  # its only term is empty once cleaned
    # Suppressed rows too; not a concept's relation to itself, nor to one that has no terms.
    assert "C0000004" in peer.terms and "C0000003\tRO|seen_in\tC0000001" in peer.relations
    assert len(peer.relations) == len(set(peer.relations)) == 5


def test_the_peers_batch_has_the_shape_of_ours(peer, model):
    batch = next(released_batches(peer, Collate(model, SPEC), workers=0))
    pairs = SPEC.pairs
    assert batch["input_ids"].shape == (2, 2 * pairs, 32)
    assert batch["relations"].shape == (2, 3) and batch["concepts"].shape == (2, 2 * pairs)
    heads, tails = batch["concepts"][:, :pairs], batch["concepts"][:, pairs:]
    for side in (heads, tails):  # each triplet's concept stands in `repeats` neighbouring places
        assert torch.equal(side, side[:, :: SPEC.repeats].repeat_interleave(SPEC.repeats, 1))
    assert not (heads == tails).any()
    cuis = list(peer.terms)
    collate = Collate(model, SPEC)
    for ids, concept in zip(batch["input_ids"][0], batch["concepts"][0], strict=True):
        terms = collate.tokenizer(peer.terms[cuis[concept]], truncation=True, max_length=32)
        assert ids[ids > 0].tolist() in terms["input_ids"]


@pytest.mark.slow
def test_a_small_run(tmp_path, model, repo, monkeypatch, capsys):
    monkeypatch.chdir(repo)  # its processes import the packages from where they start
    report = tmp_path / "pipeline.json"
    arguments = ["--work", str(tmp_path / "work"), "--tokenizer", model, "--json", str(report)]
    arguments += ["--scale", "0.001", "--rounds", "2", "--seconds", "1"]
    assert input_pipeline.main(arguments) == 0
    (found,) = json.loads(report.read_text())["rows"]
    assert [run["workers"] for run in found["tried"]] == [2, 1, 0]
    for name, pipeline in found["pipelines"].items():
        assert pipeline["terms_per_s"] > 0 and len(pipeline["runs"]) == 2, name
        assert pipeline["memory_gb"] > pipeline["empty_gb"] > 0.05
    text = capsys.readouterr().out
    assert "At the size of the UMLS the peer would take" in text and "| ratio |" in text


def test_without_a_folder_to_work_in(capsys):
    assert input_pipeline.main([]) == 2
    assert "--work is missing" in capsys.readouterr().err
