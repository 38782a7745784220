"""Model card: front matter that the hub reads, and nothing that was not given."""

import numpy as np
import pytest
from huggingface_hub import ModelCard

from coder_jax.export.model_card import model_card, read_card
from coder_jax.export.relations import ExportedRelations, write_relations
from coder_jax.models.hf_files import EncoderSettings

CARD = {
    "name": "CODER on HPO",
    "license": "apache-2.0",
    "base_model": "sentence-transformers/all-MiniLM-L6-v2",
    "language": ["en", "fr"],
    "tags": ["phenotypes"],
    "data": {"source": "HPO 2025-01-16", "relations": ["CHD|isa", "RO|"]},
    "recipe": {"steps": 300, "mu": 1.0},
    "results": [
        {"benchmark": "heldout", "pooling": "cls", "acc@1": 61.3},
        {"benchmark": "heldout", "pooling": "mean", "acc@1": 60.0, "acc@5": 80.1},
    ],
    "dataset_hash": "0123abc",
}

RELATIONS = ExportedRelations(np.zeros((2, 4, 4), np.float32), ["CHD|isa", "RO|"])
TRANSLATIONS = ExportedRelations(np.zeros((2, 4), np.float32), ["CHD|isa", "RO|"])


def test_the_front_matter_is_what_the_hub_reads():
    data = ModelCard(model_card(CARD, EncoderSettings(pooling="mean"))).data
    assert data.license == "apache-2.0" and data.language == ["en", "fr"]
    assert data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert data.library_name == "sentence-transformers"
    assert "phenotypes" in data.tags and not {"umls", "coder"} & {*data.tags}


def test_the_body_tells_what_is_known():
    settings = EncoderSettings(pooling="mean", cleaning="paper", max_length=20)
    text = model_card(CARD, settings, RELATIONS)
    for part in (
        "# CODER on HPO",
        "trained from `sentence-transformers/all-MiniLM-L6-v2`",
        "cut to 20 tokens",
        "rule set `paper`",
        "matrices of 2 relations",
        "| relations | CHD\\|isa, RO\\| |",
        "| steps | 300 |",
        "| dataset hash | `0123abc` |",
        "| benchmark | pooling | acc@1 | acc@5 |",
        "| heldout | cls | 61.3 |  |",
        'batch["attention_mask"]',
        'load_file(f"{folder}/relations.safetensors")',
    ):
        assert part in text


def test_languages_of_training():
    """As the UMLS writes them; the hub gets those that it knows, and people their names."""
    card = {"languages": ["ENG", "FRE", "xx"]}
    text = model_card(card, EncoderSettings())
    assert ModelCard(text).data.language == ["en", "fr"]
    assert "It was trained on terms in English, French, xx." in text
    assert ModelCard(model_card(card | {"language": ["de"]}, EncoderSettings())).data.language == [
        "de"
    ]
    for nothing in ({}, {"languages": ["xx"]}):
        assert ModelCard(model_card(nothing, EncoderSettings())).data.language is None
    assert "trained on terms" not in model_card({}, EncoderSettings())


def test_translations_are_added():
    text = model_card(CARD, EncoderSettings(), TRANSLATIONS)
    assert "translations of 2 relations" in text and "query = vector + table[r]" in text
    assert "query = table[r].T @ vector" in model_card(CARD, EncoderSettings(), RELATIONS)


def test_what_is_not_given_is_not_said():
    text = model_card({}, EncoderSettings())
    for absent in ("license", "base_model", "language", "trained from", "Measured", "relation"):
        assert absent not in text
    assert "## Use" in text and "hidden[:, 0]" in text


@pytest.mark.parametrize("name", ["/home/someone/model", "./model", "a/b/c"])
def test_a_folder_of_the_machine_is_no_link(name):
    text = model_card({"base_model": name}, EncoderSettings())
    assert "base_model" not in text and name not in text
    assert f"trained from `{name.rsplit('/', 1)[-1]}`" in text


def test_the_base_of_a_folder_is_a_link():
    card = {"base_model": "./extended", "made_from": "org/base"}
    text = model_card(card, EncoderSettings())
    assert ModelCard(text).data.base_model == "org/base"
    assert "trained from `extended`, which was made from `org/base`, with coder_jax" in text
    text = model_card(card | {"base_model": "org/other"}, EncoderSettings())
    assert ModelCard(text).data.base_model == "org/other" and "org/base" not in text


def test_a_license_that_the_hub_does_not_know_keeps_its_name_and_link():
    own = {"license": "other", "license_name": "umls", "license_link": "https://uts.nlm.nih.gov"}
    data = ModelCard(model_card(own, EncoderSettings())).data.to_dict()
    assert {name: data[name] for name in own} == own


DAMAGED = {
    "no dataset": b"---\nlicense: mit\nmodel-index: [{name: x, results: [{task: {}}]}]\n---\n",
    "no YAML": b"---\nlicense: [mit\n---\n",
    "a list": b"---\n- mit\n---\n",
    "not UTF-8": b"---\nlicense: mit # \xff\n---\n",
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_card_of_another_model_stops_nothing(what, tmp_path, capsys):
    (tmp_path / "README.md").write_bytes(DAMAGED[what])
    found = read_card(tmp_path)
    said = capsys.readouterr().out
    if what == "no dataset":  # the rest of it can be read
        assert found["license"] == "mit"
    else:
        assert found == {} and "README.md: its metadata cannot be read" in said


def test_the_code_of_each_pooling_compiles():
    for pooling, relations in (("cls", RELATIONS), ("mean", TRANSLATIONS), ("pooler", RELATIONS)):
        text = model_card(CARD, EncoderSettings(pooling=pooling), relations)
        blocks = text.split("```python\n")[1:]
        assert len(blocks) == 4
        for block in blocks:
            compile(block.split("```")[0], "card", "exec")


@pytest.mark.parametrize("is_local", [True, False])
def test_the_code_for_relations_reads_the_folder_or_fetches_it(is_local, tmp_path, monkeypatch):
    write_relations(tmp_path, RELATIONS)
    monkeypatch.setattr("huggingface_hub.snapshot_download", {"org/model": str(tmp_path)}.get)
    text = model_card(CARD, EncoderSettings(), RELATIONS)
    code = text.rpartition("```python\n")[2].split("```")[0]
    known = {"MODEL": str(tmp_path) if is_local else "org/model", "LABEL": "RO|"}
    exec(code, known | {"vector": np.zeros(4)}, found := {})
    assert found["r"] == 1 and found["query"].shape == (4,)
