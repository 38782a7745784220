"""MPNet and DistilBERT: vectors and gradients as of transformers, packed rows, dropout, files."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_mpnet import write_model
from tiny_roberta import TEXTS
from transformers_twin import (
    check_dropout,
    check_gradients,
    check_neighbours,
    check_vectors,
    encode,
)

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.export.folder import export_encoder
from coder_jax.models.bert import Probes, merge_encoder, split_encoder
from coder_jax.models.hf_weights import (
    abstract_bert,
    first_layers,
    load_bert,
    read_config,
    to_hf,
)
from coder_jax.models.mpnet import DistilBertConfig, MpNet, _distance_classes
from data_pipeline.batches.packing import pack_rows
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenize
from data_pipeline.process import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=["mpnet", "distilbert"])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / request.param
    write_model(folder, request.param)
    return folder


@pytest.fixture(scope="module")
def bert(folder):
    return load_bert(folder)[0]


@pytest.fixture(scope="module")
def terms(folder) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of terms; the longest reach far into the classes that distances share."""
    tokens, start = tokenize(load_tokenizer(folder), TEXTS, 100)
    assert np.diff(start).min() == 2 and np.diff(start).max() > 40
    return tokens, start


def reference(folder, **more):
    return transformers.AutoModel.from_pretrained(folder, **more).eval()


@pytest.mark.parity
def test_packed_vectors_equal_transformers(folder, bert, terms):
    check_vectors(bert, reference(folder), *terms)
    report = load_bert(folder)[2]
    assert report.only_in_file == report.only_in_model == report.heads_ignored == ()
    depth = 12 if folder.name == "mpnet" else 6
    assert len(bert.layers) == depth and isinstance(bert, MpNet) == (depth == 12)


@pytest.mark.parity
def test_encode_equals_transformers_with_padding_and_a_mask(folder):
    texts = [text.strip() for text in TEXTS]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=40, return_tensors="pt")
    batch.pop("token_type_ids", None)
    assert (batch["attention_mask"] == 0).any()
    with torch.inference_mode():
        hidden = reference(folder)(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    encoder = TermEncoder.from_pretrained(folder, "mean", max_length=40)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(encoder.encode(texts, unit=False), mean, rtol=0, atol=1e-5)


def test_another_name_of_gelu_is_read(folder):
    config = json.loads((folder / "config.json").read_text())
    key = "activation" if config["model_type"] == "distilbert" else "hidden_act"
    read = read_config(config | {key: "gelu_fast"})
    assert read.activation == "gelu_new"


@pytest.mark.slow
@pytest.mark.parity
def test_gradients_of_every_weight_equal_those_of_pytorch(folder, bert, terms):
    check_gradients(bert, reference(folder, dtype=torch.float64), *terms)


@pytest.mark.slow
@pytest.mark.parity
def test_distances_are_in_the_classes_of_transformers():
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    theirs = MPNetEncoder.relative_position_bucket(torch.arange(-600, 601))
    np.testing.assert_array_equal(_distance_classes(600), theirs.numpy())
    assert _distance_classes(600).max() == 31 and _distance_classes(3).tolist()[3] == 0


def test_a_term_does_not_feel_its_neighbours_in_the_row(bert, terms):
    check_neighbours(bert, *terms)


@pytest.mark.parity
def test_packed_equals_alone(bert, terms):
    tokens, start = terms
    packed = encode(bert, *pack_rows(tokens, start, 128).values(), len(start) - 1)
    numbers = (0, 1, 4, len(start) - 2)
    longest = max(int(start[number + 1] - start[number]) for number in numbers)
    for number in numbers:
        own = tokens[start[number] : start[number + 1]]
        alone = pack_rows(own, np.array([0, len(own)]), longest)
        vectors = encode(bert, *alone.values(), 1)
        np.testing.assert_allclose(packed[:, number], vectors[:, 0], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_dropout_follows_the_term_wherever_it_is_packed(bert, terms):
    graph, _ = split_encoder(abstract_bert(bert.config.with_dropout(0.2)))
    dropping = merge_encoder(graph, split_encoder(bert)[1])
    check_dropout(bert, dropping, *terms)


def test_weights_come_back_bit_by_bit_under_the_same_names(folder, bert):
    expected, exported = load_file(folder / "model.safetensors"), to_hf(bert)
    assert exported.keys() == expected.keys()
    for name, tensor in exported.items():
        np.testing.assert_array_equal(tensor, expected[name])
    written = bert.config.to_hf()
    assert read_config(written) == bert.config
    opened = transformers.AutoConfig.for_model(**written)
    original = transformers.AutoConfig.from_pretrained(folder).to_dict()
    names = ("vocab_size", "initializer_range", "max_position_embeddings")
    assert all(opened.to_dict()[name] == original[name] for name in names)
    half = bert.with_dtype(jnp.bfloat16)
    assert type(half) is type(bert)


@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_an_export_is_opened_by_all_libraries(folder, bert, pooling, tmp_path):
    pytest.importorskip("sentence_transformers")
    config = json.loads((folder / "config.json").read_text())
    settings = {"pooling": pooling, "cleaning": "paper", "max_length": 30}
    worst = export_encoder(bert, folder, config, tmp_path / "export", **settings)
    assert worst.keys() == {"transformers", "sentence-transformers"}
    assert max(worst.values()) <= 1e-5
    ours = TermEncoder.from_pretrained(tmp_path / "export")
    assert ours.settings.pooling == pooling and type(ours.bert) is type(bert)


def test_a_masked_language_model_s_file(folder, bert, tmp_path):
    """The encoder under a prefix, with a head."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_config(config)
    base = getattr(model, folder.name)
    base.load_state_dict(reference(folder).state_dict(), strict=False)
    model.save_pretrained(tmp_path)
    loaded, _, report = load_bert(tmp_path)
    assert report.heads_ignored and report.only_in_file == ()
    plain = to_hf(bert)
    for name, tensor in to_hf(loaded).items():
        np.testing.assert_array_equal(tensor, plain[name])


def test_its_first_layers(folder, bert):
    config = json.loads((folder / "config.json").read_text())
    assert read_config(first_layers(config, 2, "x")).num_layers == 2
    with pytest.raises(BadInput, match=r"--layers 13: x has (12|6) layers; expected at most"):
        first_layers(config, 13, "x")
    two, kept, _ = load_bert(folder, layers=2)
    assert len(two.layers) == 2 and transformers.AutoConfig.for_model(**kept).num_hidden_layers == 2


def test_what_it_does_not_have_is_refused(folder, bert):
    row = jnp.ones((1, 4), jnp.int32)
    with pytest.raises(ValueError, match="probes need a BERT"):
        bert.pair_vectors(row, row, row, Probes(kinds=row, types=row, number=1), 1)
    with pytest.raises(BadInput, match="--attend-padding. is for .* CODER .* found (mp|distil)"):
        TermEncoder.from_pretrained(folder, attend_padding=True)
    config = json.loads((folder / "config.json").read_text())
    if isinstance(bert.config, DistilBertConfig):
        with pytest.raises(BadInput, match="'pooler' needs the weights pooler.dense"):
            TermEncoder.from_pretrained(folder, "pooler")
        with pytest.raises(BadInput, match="hidden_dim missing; expected a config.json with all"):
            read_config({k: v for k, v in config.items() if k != "hidden_dim"})
        with pytest.raises(BadInput, match="n_layers is 0; expected"):
            read_config(config | {"n_layers": 0})
    else:
        with pytest.raises(BadInput, match="relative_attention_num_buckets is 64; expected 32"):
            read_config(config | {"relative_attention_num_buckets": 64})
