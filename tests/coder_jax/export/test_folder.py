"""Export: the folder opens everywhere with the same vectors, and fails whole or not at all."""

import base64
import dataclasses
import json
import logging
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import tiny_bert
import tiny_modernbert
import tiny_mpnet
import tiny_roberta
import tokenizers
from hub_server import hub_server
from safetensors.numpy import load_file
from tiny_bert import TERMS, TINY, write_model

from coder_jax import TermEncoder
from coder_jax.export import folder as export
from coder_jax.export import folder as verify_export
from coder_jax.export.folder import export_encoder, push_to_hub, try_export
from coder_jax.export.model_card import model_card
from coder_jax.export.relations import ExportedRelations
from coder_jax.models.hf_files import EncoderSettings
from coder_jax.models.hf_weights import load_bert, random_bert, to_hf
from data_pipeline.process import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SETTINGS = {"pooling": "cls", "cleaning": "none", "max_length": 24}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model folder to begin with."""
    folder = tmp_path_factory.mktemp("source") / "model"
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(source):
    return load_bert(source)


@pytest.fixture
def quick(monkeypatch):
    """Leaves sentence-transformers out of the check, where a test is about something else."""
    monkeypatch.setattr(
        verify_export, "sentence_transformers_vectors", verify_export_of_transformers_only
    )


def verify_export_of_transformers_only(folder, terms):
    from coder_jax.models.hf_files import read_settings

    return verify_export.transformers_vectors(folder, terms, read_settings(folder))


@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["cls", "mean", "pooler"])
def test_an_export_opens_everywhere_with_the_same_vectors(pooling, source, loaded, tmp_path):
    from sentence_transformers import SentenceTransformer

    bert, hf_config, _ = loaded
    out = tmp_path / "export"
    worst = export_encoder(bert, source, hf_config, out, **SETTINGS | {"pooling": pooling})
    assert worst.keys() == {"transformers", "sentence-transformers"}
    assert max(worst.values()) < 1e-5
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    # With our own probes, through the public doors, and cut at the exported length.
    encoder = TermEncoder.from_pretrained(out)
    assert encoder.settings == EncoderSettings(pooling, "none", 24, False)
    ours = TermEncoder(bert, encoder.tokenizer, encoder.settings).encode(TERMS)
    np.testing.assert_array_equal(encoder.encode(TERMS), ours)
    peer = SentenceTransformer(str(out), device="cpu")
    assert peer.max_seq_length == 24
    np.testing.assert_allclose(peer.encode(TERMS), ours, rtol=0, atol=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ids = tokenizer(TERMS, truncation=True)["input_ids"]
    assert max(map(len, ids)) == 24 and ids[-1][-1] == tokenizer.sep_token_id


def collecting(told):
    """A handler that appends what is logged to a list."""
    handler = logging.Handler()
    handler.emit = told.append
    return handler


def test_an_encoder_without_a_pooler_brings_no_table_of_missing_weights(
    source, loaded, tmp_path, monkeypatch
):
    """transformers' BERT has a pooler, and says that its weights are new."""
    _, hf_config, _ = loaded
    no_pooler = random_bert(TINY, 0)
    no_pooler.pooler = None
    told = []
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [collecting(told)])
    before = transformers.utils.logging.get_verbosity()
    worst = export_encoder(no_pooler, source, hf_config, tmp_path / "export", **SETTINGS)
    assert worst.keys() == {"transformers", "sentence-transformers"}
    assert transformers.utils.logging.get_verbosity() == before
    assert not any("MISSING" in record.getMessage() for record in told)


@pytest.mark.parity
def test_export_of_minilm(minilm_path, tmp_path):
    bert, hf_config, _ = load_bert(minilm_path)
    settings = {"pooling": "mean", "cleaning": "paper", "max_length": 32}
    worst = export_encoder(bert, minilm_path, hf_config, tmp_path / "export", **settings)
    assert max(worst.values()) < 1e-5


def test_what_the_folder_holds(source, loaded, tmp_path, quick):
    bert, hf_config, _ = loaded
    matrices = np.random.default_rng(0).normal(size=(3, 32, 32)).astype(np.float32)
    labels = ["CHD|isa", "RO|", "PAR|"]
    export_encoder(
        bert,
        source,
        hf_config | {"_name_or_path": "/somewhere", "torch_dtype": "float16"},
        tmp_path / "export",
        **SETTINGS,
        relations=ExportedRelations(matrices, labels),
        card={
            **{"name": "Tiny", "recipe": {"steps": 3}, "dataset_hash": "abc"},
            "languages": ["ENG", "FRE"],
        },
        pytorch_bin=True,
    )
    out = tmp_path / "export"
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["BertModel"] and config["dtype"] == "float32"
    assert not {"_name_or_path", "torch_dtype"} & config.keys()
    weights = load_file(out / "model.safetensors")
    state = torch.load(out / "pytorch_model.bin", weights_only=True)
    assert weights.keys() == state.keys() == to_hf(bert).keys()
    assert all(np.array_equal(weights[name], state[name].numpy()) for name in weights)
    np.testing.assert_array_equal(
        load_file(out / "relations.safetensors")["relation_matrices"], matrices
    )
    relations = json.loads((out / "relations.json").read_text())
    assert relations["labels"] == labels and "M_r^T e" in relations["how_to_use"]
    settings = json.loads((out / "coder_jax.json").read_text())
    assert settings["recipe"] == {"steps": 3} and settings["dataset_hash"] == "abc"
    assert TermEncoder.from_pretrained(out).languages == ("ENG", "FRE")
    assert "# Tiny\n" in (out / "README.md").read_text()
    assert len({path.stat().st_mode for path in out.iterdir() if path.is_file()}) == 1


def test_weights_are_those_of_training_and_not_of_the_start(source, loaded, tmp_path, quick):
    bert, hf_config, _ = random_bert(TINY, 5), loaded[1], None
    export_encoder(bert, source, hf_config, tmp_path / "export", **SETTINGS)
    exported = load_file(tmp_path / "export" / "model.safetensors")
    assert all(np.array_equal(exported[n], tensor) for n, tensor in to_hf(bert).items())


def test_a_difference_fails_the_export_and_leaves_nothing(source, loaded, tmp_path, monkeypatch):
    bert, hf_config, _ = loaded

    def slightly_wrong(bert):
        tensors = to_hf(bert)
        tensors["encoder.layer.1.output.dense.bias"][0] += 0.01
        return tensors

    monkeypatch.setattr(export, "to_hf", slightly_wrong)
    with pytest.raises(RuntimeError, match="opened by transformers gives vectors that differ"):
        export_encoder(bert, source, hf_config, tmp_path / "export", **SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_sentence_transformers_is_checked_too(source, loaded, tmp_path, monkeypatch):
    bert, hf_config, _ = loaded
    right = export.write_sentence_transformers_files

    def wrong_pooling(folder, tensors, **settings):
        right(folder, tensors, **settings | {"pooling": "mean"})

    monkeypatch.setattr(export, "write_sentence_transformers_files", wrong_pooling)
    with pytest.raises(RuntimeError, match="opened by sentence-transformers gives vectors"):
        export_encoder(bert, source, hf_config, tmp_path / "export", **SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_export_is_replaced_and_nothing_else(source, loaded, tmp_path, quick, capsys):
    bert, hf_config, _ = loaded
    out = tmp_path / "export"
    out.mkdir()
    export_encoder(bert, source, hf_config, out, **SETTINGS)  # an empty folder is fine
    (out / "stale").touch()
    assert "cutoffs.json" not in capsys.readouterr().err
    (out / "cutoffs.json").touch()
    export_encoder(bert, source, hf_config, out, **SETTINGS)
    assert "cutoffs.json is of the earlier export there, which a new one" in capsys.readouterr().err
    assert not (out / "stale").exists() and [p.name for p in tmp_path.iterdir()] == ["export"]
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter").touch()
    with pytest.raises(BadInput, match="thesis exists and is no earlier export; give a new"):
        export_encoder(bert, source, hf_config, other, **SETTINGS)
    assert (other / "chapter").exists()


def test_a_failed_export_leaves_the_earlier_one(source, loaded, tmp_path, quick, monkeypatch):
    bert, hf_config, _ = loaded
    export_encoder(bert, source, hf_config, tmp_path / "export", **SETTINGS)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_write_tokenizer", full)
    with pytest.raises(BadInput, match="No space left on device; nothing was left"):
        export_encoder(bert, source, hf_config, tmp_path / "export", **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    TermEncoder.from_pretrained(tmp_path / "export")


# Exports to a folder that has an export, in processes that are killed at the two renames of it.
KILLED_EXPORTS = """
import os, signal, sys
from pathlib import Path

from coder_jax.export import folder
from coder_jax.export import folder as verify
from coder_jax.models.hf_files import read_settings
from coder_jax.models.hf_weights import load_bert

verify.sentence_transformers_vectors = lambda new, terms: verify.transformers_vectors(
    new, terms, read_settings(new)
)
model, settings, real = sys.argv[1], eval(sys.argv[2]), os.replace

def export_and_die(out, at):
    def replace(old, new):
        renames = str(old) == str(out), str(new) == str(out) and not out.exists()
        if any(renames) and at == f"before rename {1 + renames.index(True)}":
            os.kill(os.getpid(), signal.SIGKILL)
        real(old, new)
        if at == "after rename 2" and renames[1]:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace
    bert, hf_config, _ = load_bert(model)
    folder.export_encoder(bert, model, hf_config, out, **settings)

for at in sys.argv[4:]:
    child = os.fork()  # the imports take longer than the export
    if not child:
        export_and_die(Path(sys.argv[3]) / at / "export", at)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
"""


@pytest.mark.slow
def test_no_export_is_lost_by_a_kill_at_a_rename(source, loaded, tmp_path, quick, repo):
    bert, hf_config, _ = loaded
    moments = ["before rename 1", "before rename 2", "after rename 2"]
    mean = SETTINGS | {"pooling": "mean"}
    export_encoder(bert, source, hf_config, tmp_path / "export", **SETTINGS)
    for at in moments:
        shutil.copytree(tmp_path / "export", tmp_path / at / "export")
    done = subprocess.run(
        [sys.executable, "-c", KILLED_EXPORTS, source, repr(mean), tmp_path, *moments],
        cwd=repo, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    exported = [(tmp_path / at / "export").exists() for at in moments]
    assert exported == [True, False, True], "it is renamed in two steps"
    assert all(len(list((tmp_path / at).iterdir())) > 1 for at in moments), "of the killed ones"
    pooling = [
        TermEncoder.from_pretrained(tmp_path / at / "export").settings.pooling for at in moments
    ]
    assert pooling == ["cls", "mean", "mean"]
    for at in moments:
        export_encoder(bert, source, hf_config, tmp_path / at / "export", **SETTINGS)
        assert [path.name for path in (tmp_path / at).iterdir()] == ["export"]
        assert TermEncoder.from_pretrained(tmp_path / at / "export").settings.pooling == "cls"


def test_parts_that_do_not_fit(source, loaded, tmp_path, minilm_path):
    bert, hf_config, _ = loaded
    out = tmp_path / "export"
    with pytest.raises(BadInput, match="pooling is 'max'; expected one of"):
        export_encoder(bert, source, hf_config, out, **SETTINGS | {"pooling": "max"})
    with pytest.raises(BadInput, match="tokenizer has ids up to 30521, the word table"):
        export_encoder(bert, minilm_path, hf_config, out, **SETTINGS)
    with pytest.raises(ValueError, match="unknown card keys .'licence'."):
        export_encoder(bert, source, hf_config, out, **SETTINGS, card={"licence": "mit"})
    no_pooler = random_bert(TINY, 0)
    no_pooler.pooler = None
    with pytest.raises(BadInput, match="the encoder has no pooler; export 'cls' or 'mean'"):
        export_encoder(no_pooler, source, hf_config, out, **SETTINGS | {"pooling": "pooler"})
    assert list(tmp_path.iterdir()) == []


def test_without_pytorch_nothing_is_exported(source, loaded, tmp_path, monkeypatch):
    bert, hf_config, _ = loaded
    find_spec = verify_export.importlib.util.find_spec
    monkeypatch.setattr(
        verify_export.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "torch" else find_spec(name, *rest),
    )
    with pytest.raises(BadInput, match="needs PyTorch; install it with 'pip install torch"):
        export_encoder(bert, source, hf_config, tmp_path / "export", **SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_padding_and_truncation_of_an_earlier_owner_are_dropped(loaded, source, tmp_path, quick):
    bert, hf_config, _ = loaded
    folder = shutil.copytree(source, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.enable_truncation(5)
    tokenizer.backend_tokenizer.enable_padding(length=7)
    tokenizer.save_pretrained(folder)
    export_encoder(bert, folder, hf_config, tmp_path / "export", **SETTINGS)
    exported = tokenizers.Tokenizer.from_file(str(tmp_path / "export" / "tokenizer.json"))
    assert [len(encoding.ids) for encoding in exported.encode_batch(TERMS[:3])] == [4, 5, 5]
    assert len(exported.encode(TERMS[-1]).ids) > 24


# -------------------------------------------------------------------------------------------------
# What the folder of an encoder carries along does not come into its export.

REMOTE = {"AutoModel": "modeling_x.XModel", "AutoConfig": "configuration_x.XConfig"}
FLASH = ("_attn_implementation", "attn_implementation")
QUANTIZED = {"quant_method": "bitsandbytes", "load_in_8bit": True}
# Of config.json (c), tokenizer_config.json (t), and of parts of tokenizer.json (j).
LEFTOVERS = {
    "padding on the left": {"t": {"padding_side": "left"}},
    "cut on the left": {"t": {"truncation_side": "left"}},
    "quantized before": {"c": {"quantization_config": QUANTIZED}},
    "flash attention": {"c": dict.fromkeys(FLASH, "flash_attention_2")},
    "code of its own": {
        "c": {"auto_map": REMOTE},
        "t": {"auto_map": {"AutoTokenizer": ["x.X", None]}},
    },
    "tuples": {"c": {"return_dict": False, "torchscript": True, "output_hidden_states": True}},
    "no padding token": {"c": {"pad_token_id": None}, "t": {"pad_token": None}},
    "ids of others": {"c": {"bos_token_id": 99_999, "eos_token_id": [1, 2]}},
    "a head of its own": {
        "c": {"problem_type": "regression", "id2label": {"0": "A"}, "label2id": {"A": 0}}
    },
    "chunks": {"c": {"chunk_size_feed_forward": 16, "pruned_heads": {"0": [1]}}},
    "as a decoder": {"c": {"add_cross_attention": True, "use_cache": False}},
    "half precision": {"c": {"torch_dtype": "float16", "dtype": "float16"}},
    "types of tokens": {"t": {"model_input_names": ["input_ids", "token_type_ids"]}},
    "an old length": {"t": {"max_len": 7, "model_max_length": None}},
    "more special tokens": {"t": {"add_bos_token": True, "add_eos_token": True}},
    "no names of tokens": {"t": {"cls_token": None, "sep_token": None}},
    "a fixed length": {
        "j": {
            "padding": {
                **{"strategy": {"Fixed": 40}, "direction": "Left", "pad_to_multiple_of": None},
                **{"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
            },
            "truncation": {
                **{"direction": "Left", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
            },
        }
    },
}
MAKERS = {
    "bert": tiny_bert.write_model,
    "roberta": partial(tiny_roberta.write_model, model_type="roberta"),
    "xlm-roberta": tiny_roberta.write_model,
    "modernbert": tiny_modernbert.write_model,
    "mpnet": tiny_mpnet.write_model,
    "distilbert": partial(tiny_mpnet.write_model, kind="distilbert"),
}
# What a config.json says beside the sizes: these alone.
SAID = {"architectures", "model_type", "dtype"}
SAID_OF_TOKENS = {f"{name}_token_id" for name in ("bos", "eos", "sep", "pad", "cls")}


def leave(folder, leftovers):
    """Writes leftovers into the files of an encoder."""
    if not (folder / "tokenizer.json").exists():
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    files = {"c": "config.json", "t": "tokenizer_config.json", "j": "tokenizer.json"}
    for file, changes in leftovers.items():
        path = folder / files[file]
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def no_code_of_others(monkeypatch):
    """Opens as people do who trust every folder."""
    trust = partial(transformers.AutoModel.from_pretrained, trust_remote_code=True)
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", trust)


@pytest.mark.usefixtures("no_code_of_others")
@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_an_export_opens_whatever_the_start_carried_along(leftover, source, tmp_path):
    folder = shutil.copytree(source, tmp_path / "model")
    leave(folder, LEFTOVERS[leftover])
    bert, hf_config, _ = load_bert(folder)
    worst = export_encoder(bert, folder, hf_config, tmp_path / "export", **SETTINGS)
    assert worst.keys() == {"transformers", "sentence-transformers"}


@pytest.mark.usefixtures("no_code_of_others")
@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_of_it_is_in_an_export(kind, tmp_path):
    folder = tmp_path / "model"
    MAKERS[kind](folder)
    for leftovers in LEFTOVERS.values():
        leave(folder, leftovers)
    bert, hf_config, _ = load_bert(folder)
    settings = SETTINGS | {"cleaning": "paper"}
    assert export_encoder(bert, folder, hf_config, tmp_path / "export", **settings)
    config = json.loads((tmp_path / "export" / "config.json").read_text())
    assert config.keys() - SAID - SAID_OF_TOKENS <= bert.config.to_hf().keys()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    sides = tokenizer.padding_side, tokenizer.truncation_side, tokenizer.model_max_length
    assert sides == ("right", "right", SETTINGS["max_length"])
    assert config["pad_token_id"] == tokenizer.pad_token_id is not None
    first, last = tokenizer("")["input_ids"]
    assert (config["cls_token_id"], config["sep_token_id"]) == (first, last)
    assert ("token_type_ids" in tokenizer("pain")) == (kind == "bert")
    told = json.loads((tmp_path / "export" / "tokenizer_config.json").read_text())
    names = {f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
    before = json.loads((tmp_path / "export" / "tokenizer.json").read_text())["pre_tokenizer"]
    assert told.get("add_prefix_space") == before.get("add_prefix_space")
    assert ("add_prefix_space" in told) == (kind == "modernbert")
    assert told.keys() - names - {"add_prefix_space"} == {
        "backend",
        "model_input_names",
        "model_max_length",
        "tokenizer_class",
    }


@pytest.mark.slow
def test_a_trial_of_the_size_that_is_used(source):
    sizes = {"hidden_size": 768, "num_heads": 12, "num_layers": 12, "intermediate_size": 3072}
    bert = random_bert(dataclasses.replace(TINY, initializer_range=0.02, **sizes), 0)
    try_export(bert, source, {}, EncoderSettings(max_length=32))


@pytest.mark.parametrize(("apart", "warned"), [(0.0, False), (1e-4, True)])
def test_a_trial_warns_of_what_the_export_would_refuse(
    source, loaded, monkeypatch, capsys, apart, warned
):
    """Devices that round more than PyTorch may train, but the export is as strict as ever."""
    real = export.transformers_vectors
    monkeypatch.setattr(
        export, "transformers_vectors", lambda *rest: real(*rest) + np.float32(apart)
    )
    try_export(loaded[0], source, {}, EncoderSettings(max_length=32))
    assert ("warning: vectors of the initial encoder differ" in capsys.readouterr().out) == warned


# -------------------------------------------------------------------------------------------------
# Uploads of exports: what is sent, and what to do when it fails.


@pytest.fixture
def hub(monkeypatch):
    with hub_server(monkeypatch) as hub:
        yield hub


@pytest.fixture
def exported(tmp_path):
    """Files such as an export has."""
    for name in ("config.json", "model.safetensors", "README.md", "coder_jax.json"):
        (tmp_path / name).write_text("{}")
    return tmp_path


FILES = ["README.md", "coder_jax.json", "config.json", "model.safetensors"]


@pytest.mark.parametrize("default", ["public", "private"])
def test_a_new_repository_is_what_its_organisation_decides(hub, exported, default):
    hub.default = default
    assert push_to_hub(exported, "org/model").endswith("/org/model")
    assert hub.asked == [("create", "org/model", None), ("sent", "org/model", default, FILES, [])]


def test_a_name_without_an_organisation_is_one_s_own(hub, exported):
    assert push_to_hub(exported, "model", private=True).endswith("/me/model")
    created, sent = hub.asked
    assert created == ("create", "me/model", "private") and sent[:3] == (
        "sent",
        "me/model",
        "private",
    )


def test_the_code_of_an_uploaded_card_names_the_repository(hub, exported):
    text = model_card({"data": {"MODEL": 1}}, EncoderSettings())
    (exported / "README.md").write_text(text)
    push_to_hub(exported, "model")
    assert (exported / "README.md").read_text() == text, "for another repository"
    card = base64.b64decode(hub.repos["me/model"]["files"]["README.md"]).decode()
    assert card.count("MODEL") == 1 and "| MODEL | 1 |" in card
    first, *_, ours = card.partition("\n## Use\n")[2].split("```python\n")[1:]
    assert 'SentenceTransformer("me/model").encode' in first
    assert 'TermEncoder.from_pretrained("me/model")' in ours


def test_a_public_repository_is_private_before_anything_is_sent(hub, exported):
    hub.repos["org/model"] = {"private": False, "files": {"README.md": None}}
    push_to_hub(exported, "org/model", private=True)
    _, changed, sent = hub.asked
    assert changed == ("private", "org/model") and sent[:3] == ("sent", "org/model", "private")
    push_to_hub(exported, "org/model")  # as it is: nobody asked to make it public
    assert hub.repos["org/model"]["private"]


def test_an_earlier_export_goes_and_other_files_stay(hub, exported):
    earlier = [
        "coder_jax.json",
        "pytorch_model.bin",
        "classes.safetensors",
        "1_Pooling/config.json",
    ]
    files = dict.fromkeys([*earlier, ".gitattributes", "curves.png", "LICENSE.txt"])
    hub.repos["org/model"] = {"private": False, "files": files}
    push_to_hub(exported, "org/model")
    assert hub.asked[-1][3:] == (FILES, sorted(earlier[1:]))
    assert set(hub.repos["org/model"]["files"]) == {
        *FILES,
        ".gitattributes",
        "curves.png",
        "LICENSE.txt",
    }


def test_another_model_is_not_mixed_with_an_export(hub, exported):
    files = dict.fromkeys(["config.json", "pytorch_model.bin"])
    hub.repos["org/other"] = {"private": False, "files": files}
    with pytest.raises(BadInput, match="holds another model .pytorch_model.bin.; expected"):
        push_to_hub(exported, "org/other")
    assert [one[0] for one in hub.asked] == ["create"]


def test_push_to_hub_says_what_to_do_when_it_fails(tmp_path, monkeypatch):
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    def no_connection(*_, **__):
        raise HfHubHTTPError.__bases__[0]("name or service not known")

    for _ in range(2):  # tests run offline; then as if there were a network that leads nowhere
        with pytest.raises(BadInput, match="(?s)was not uploaded to me/model .*hf auth login"):
            push_to_hub(tmp_path, "me/model")
        monkeypatch.setattr(HfApi, "create_repo", no_connection)
