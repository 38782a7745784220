"""Hugging Face weights: vectors and gradients as transformers computes them, reports, messages."""

import json
import shutil
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from tiny_bert import TERMS, TINY, VOCABULARY, random_model, write_model
from transformers_twin import check_gradients, check_vectors

from coder_jax.models.hf_weights import (
    abstract_bert,
    check_vocabulary,
    load_bert,
    to_hf,
)
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenize
from data_pipeline.process import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy to damage."""
    return shutil.copytree(tiny_folder, tmp_path / "tiny")


def test_a_structure_that_is_changed_is_no_one_elses(tiny_folder):
    """What is kept of a structure is made once, and each asks for one of its own."""
    config = load_bert(tiny_folder)[0].config
    one, other = abstract_bert(config), abstract_bert(config)
    one.layers[0].qkv.kernel = nnx.Param(jnp.zeros((2, 2)))
    del one.layers[1].output.bias
    for bert in (other, abstract_bert(config)):
        assert bert.layers[0].qkv.kernel.shape == (config.hidden_size, 3 * config.hidden_size)
        assert bert.layers[1].output.bias is not None


@pytest.mark.parity
@pytest.mark.parametrize(
    "activation", ["gelu", "gelu_new", "relu", "gelu_python", "gelu_fast", "gelu_pytorch_tanh"]
)
def test_tiny_bert_equals_transformers(activation, tmp_path):
    model = write_model(tmp_path / "tiny", hidden_act=activation)
    bert, hf_config, report = load_bert(tmp_path / "tiny")
    tokens, start = tokenize(load_tokenizer(tmp_path / "tiny"), TERMS, 64)
    check_vectors(bert, model, tokens, start)
    assert report.only_in_file == report.only_in_model == ()
    assert hf_config["hidden_act"] == activation


@pytest.mark.parity
def test_minilm_equals_transformers(minilm_path):
    bert, _, report = load_bert(minilm_path)
    model = transformers.AutoModel.from_pretrained(minilm_path).eval()
    terms = [*TERMS, "Sjögren’s syndrome", "心筋梗塞", "β-amyloid (1–42)", "5-HT2A receptor"]
    check_vectors(bert, model, *tokenize(load_tokenizer(minilm_path), terms, 32))
    assert report.only_in_file == report.only_in_model == ()
    assert report.heads_ignored == ("embeddings.position_ids",)


@pytest.mark.parity
def test_gradients_of_minilm_equal_those_of_pytorch(minilm_path):
    bert, _, _ = load_bert(minilm_path)
    model = transformers.AutoModel.from_pretrained(minilm_path, dtype=torch.float64).eval()
    tokens, start = tokenize(load_tokenizer(minilm_path), TERMS[:9], 32)
    assert check_gradients(bert, model, tokens, start) == 3 + 2 + 6 * 16


@pytest.mark.parity
def test_attended_padding_equals_transformers_without_a_mask(tiny_folder):
    """The published CODER checkpoints: inputs padded to 32 with id 0, no mask, pooler output."""
    from coder_jax.encoding.encoder import TermEncoder

    encoder = TermEncoder.from_pretrained(tiny_folder, "pooler", attend_padding=True)
    model = transformers.AutoModel.from_pretrained(tiny_folder).eval()
    tokens, start = tokenize(load_tokenizer(tiny_folder), TERMS, 32)
    ids = np.zeros((len(TERMS), 32), np.int64)
    for i in range(len(TERMS)):
        ids[i, : start[i + 1] - start[i]] = tokens[start[i] : start[i + 1]]
    with torch.inference_mode():
        output = model(torch.from_numpy(ids))  # without an attention mask
    for pooling, theirs in (
        ("pooler", output.pooler_output),
        ("mean", output.last_hidden_state.mean(1)),
    ):
        encoder.settings = encoder.settings.changed(pooling=pooling)
        theirs = torch.nn.functional.normalize(theirs, dim=-1)
        np.testing.assert_allclose(encoder.encode(TERMS), theirs, rtol=0, atol=1e-5)


def test_weights_come_back_bit_by_bit_under_the_same_names(tiny_folder):
    bert, _, _ = load_bert(tiny_folder)
    expected = load_file(tiny_folder / "model.safetensors")
    exported = to_hf(bert)
    assert exported.keys() == expected.keys()
    for name, tensor in exported.items():
        np.testing.assert_array_equal(tensor, expected[name])
        assert tensor.dtype == np.float32


def same_weights(folder, reference) -> bool:
    one, other = (to_hf(load_bert(path)[0]) for path in (folder, reference))
    return all((one[name] == other[name]).all() for name in other)


def rename(folder, change, **extra) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({change(n): t for n, t in tensors.items()} | extra, folder / "model.safetensors")


def test_prefixes_heads_and_names_of_old_checkpoints(folder, tiny_folder):
    def old(name):
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return "bert." + name.replace("LayerNorm.bias", "LayerNorm.beta")

    rename(
        folder,
        old,
        **{
            "cls.predictions.bias": np.zeros(3, np.float32),
            "bert.embeddings.position_ids": np.arange(64)[None],
            "bert.embeddings.extra.weight": np.zeros(3, np.float32),
            "classifier_2.weight": np.zeros(3, np.float32),
        },
    )
    report = load_bert(folder)[2]
    assert report.heads_ignored == ("cls.predictions.bias", "embeddings.position_ids")
    assert report.only_in_file == ("classifier_2.weight", "embeddings.extra.weight")
    assert report.only_in_model == ()
    assert "only in the file: classifier_2.weight, embeddings.extra.weight" in str(report)
    assert same_weights(folder, tiny_folder)


def test_sharded_safetensors(folder, tiny_folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[:20], "b.safetensors": names[20:]}
    for shard, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, folder / shard)
    weight_map = {name: shard for shard, inside in shards.items() for name in inside}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert same_weights(folder, tiny_folder)
    (folder / "b.safetensors").unlink()
    with pytest.raises(BadInput, match="1 of 2 weight files are missing .b.safetensors."):
        load_bert(folder)
    other = tiny_folder / "model.safetensors"  # a whole file, which lies in another folder
    for path in (f"../{tiny_folder.name}/{other.name}", str(other), "x" * 9_999 + "/y"):
        index.write_text(json.dumps({"weight_map": dict.fromkeys(names, path)}))
        with pytest.raises(
            BadInput, match="found the weight file '.*the name of a file in the sam"
        ):
            load_bert(folder)


def test_pytorch_bin_and_half_precision(folder, tiny_folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    state = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
    torch.save(state, folder / "pytorch_model.bin")
    assert same_weights(folder, tiny_folder)
    half = {name: tensor.bfloat16() for name, tensor in state.items()}
    torch.save(half, folder / "pytorch_model.bin")
    from_bin = to_hf(load_bert(folder)[0])
    from safetensors.torch import save_file as save_torch_file

    save_torch_file(half, folder / "model.safetensors")
    from_safetensors = to_hf(load_bert(folder)[0])
    for name, tensor in half.items():
        np.testing.assert_array_equal(from_bin[name], tensor.float().numpy())
        np.testing.assert_array_equal(from_safetensors[name], tensor.float().numpy())


def test_a_missing_pooler_is_reported_and_only_pooler_pooling_needs_it(folder):
    tensors = load_file(folder / "model.safetensors")
    kept = {n: t for n, t in tensors.items() if not n.startswith("pooler")}
    save_file(kept, folder / "model.safetensors")
    bert, _, report = load_bert(folder)
    assert bert.pooler is None
    assert report.only_in_model == ("pooler.dense.bias", "pooler.dense.weight")
    with pytest.raises(BadInput, match="needs the weights pooler.dense"):
        load_bert(folder, pooling="pooler")


def drop_a_weight(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors")


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def cut_the_file(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def pickle_the_model(folder):
    (folder / "model.safetensors").unlink()
    torch.save(random_model(), folder / "pytorch_model.bin")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def leave_a_pointer(folder, name="model.safetensors"):
    (folder / "model.safetensors").unlink()
    (folder / name).write_text(POINTER)


def save_it_in_a_checkpoint(folder):
    (folder / "model.safetensors").unlink()
    state = {"state_dict": random_model().state_dict(), "epoch": 3}
    torch.save(state, folder / "pytorch_model.bin")


def lay_it_out_as_once(folder):
    (folder / "0_Transformer").mkdir()
    (folder / "config.json").rename(folder / "0_Transformer" / "config.json")


def save_a_list(folder):
    (folder / "model.safetensors").unlink()
    torch.save([torch.zeros(1)], folder / "pytorch_model.bin")


def edit_weight(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(tensors) if name.endswith("layer.1.output.dense.bias"))
    save_file(tensors | {name: edit(tensors[name])}, folder / "model.safetensors")


def eight_bits(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(tensors) if name.endswith("layer.1.output.dense.bias"))
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors")


def one_nan(weight):
    return np.where(np.arange(len(weight)) == 3, np.float32(np.nan), weight)


def two_encoders(folder):
    tensors = load_file(folder / "model.safetensors")
    twice = {f"{side}.{n}": t for n, t in tensors.items() for side in ("question", "context")}
    save_file(twice, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_a_weight, r"1 of \d+ weights are missing .encoder.layer.1.output.dense.weight"),
        (partial(edit_config, num_hidden_layers=3), "16 of .* weights are missing .*layer.2"),
        (
            partial(edit_config, vocab_size=77),
            rf"word_embeddings.weight has shape \[{len(VOCABULARY)}, 32\]; expected \[77, 32\]",
        ),
        (
            partial(edit_config, intermediate_size=64),
            r"intermediate.dense.weight has shape \[48, 32\]; expected \[64, 32\]",
        ),
        (
            partial(edit_config, model_type="bart"),
            "model_type is 'bart'; expected one of bert, roberta",
        ),
        (cut_the_file, "is not a whole safetensors file"),
        (pickle_the_model, "not a plain dict of tensors; whole .* save state_dict"),
        (leave_a_pointer, "model.safetensors is a pointer of Git LFS, .*'git lfs pull'"),
        (
            partial(leave_a_pointer, name="pytorch_model.bin"),
            "pytorch_model.bin is a pointer of Git LFS",
        ),
        (save_it_in_a_checkpoint, r"a dict of dicts .state_dict.; .*torch.load.file.\['state_dict"),
        (lay_it_out_as_once, "with the encoder in its folder 0_Transformer; give .*--pooling"),
        (save_a_list, "holds a list; expected a dict of tensors"),
        (partial(edit_weight, edit=one_nan), "layer.1.output.dense.bias has NaN or infinite val"),
        (
            partial(edit_weight, edit=lambda weight: weight.astype(np.int8)),
            "layer.1.output.dense.bias has values of int8; expected finite floats",
        ),
        (
            eight_bits,
            "layer.1.output.dense.bias has values of F8_E4M3; expected finite floats: .* full wei",
        ),
        (two_encoders, r"2 word tables .*context\., question\..*expected one encoder"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
        (
            lambda folder: (folder / "config.json").write_text("[]"),
            "holds an empty list; expected a JSON object",
        ),
        (lambda folder: (folder / "config.json").unlink(), "has no config.json .found: model"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights; expected model"),
        (
            lambda folder: (folder / "run.json").touch(),
            "is a training run; .* python -m coder_jax export --checkpoint",
        ),
    ],
)
def test_unusable_model_folders_say_what_is_wrong(folder, damage, message):
    damage(folder)
    with pytest.raises(BadInput, match=f"(?s){message}"):
        load_bert(folder)


def test_names_that_lead_nowhere(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="is not a folder; expected a model folder or a hub id"):
        load_bert(tmp_path / "absent")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BadInput, match="(?s)no-such-org/no-such-model is no folder.*offline"):
        load_bert("no-such-org/no-such-model")
    with pytest.raises(BadInput, match="no such model is no folder .*HFValidationError"):
        load_bert("no such model")


def test_a_tokenizer_larger_than_the_word_table_is_refused():
    check_vocabulary(TINY.vocab_size, TINY, "model")
    with pytest.raises(
        BadInput, match=r"tokenizer has ids up to 30521, the word table \[\d+, 32\]"
    ):
        check_vocabulary(30522, TINY, "model")
