"""ModernBERT: vectors and gradients as of transformers, packed rows, windows, dropout."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_modernbert import SIZES, TEXTS, WINDOW, write_model
from transformers_twin import (
    check_dropout,
    check_gradients,
    check_neighbours,
    check_vectors,
    encode,
    pooled,
)

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.bert import Probes, merge_encoder, split_encoder
from coder_jax.models.hf_weights import (
    abstract_bert,
    first_layers,
    load_bert,
    random_bert,
    read_config,
    to_hf,
)
from coder_jax.models.modernbert import _GLOBAL, _LOCAL, ModernBert, ModernBertConfig
from data_pipeline.batches.packing import pack_rows
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenize
from data_pipeline.process import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny-modernbert"
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def bert(folder) -> ModernBert:
    return load_bert(folder)[0]


@pytest.fixture(scope="module")
def terms(folder) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of terms from two to some fifty tokens long: longer than the window, and shorter."""
    tokens, start = tokenize(load_tokenizer(folder), TEXTS, 64)
    assert np.diff(start).min() == 2 and np.diff(start).max() > 5 * WINDOW
    return tokens, start


@pytest.mark.parity
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            **{"num_hidden_layers": 3, "local_attention": 7, "hidden_activation": "gelu_new"},
        },
    ],
)
def test_packed_vectors_equal_transformers(terms, changes, tmp_path):
    model = write_model(tmp_path / "tiny", **changes)
    bert, hf_config, report = load_bert(tmp_path / "tiny")
    check_vectors(bert, model, *terms)
    assert report.only_in_file == report.only_in_model == report.heads_ignored == ()
    assert hf_config["layer_types"] == list(bert.config.layer_types)


@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_encode_equals_transformers_with_padding_and_a_mask(folder, pooling):
    texts = [text.strip() for text in TEXTS]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=40, return_tensors="pt")
    assert (batch["attention_mask"] == 0).any()
    with torch.inference_mode():
        hidden = transformers.AutoModel.from_pretrained(folder)(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    vectors = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    encoder = TermEncoder.from_pretrained(folder, pooling, max_length=40)
    ours = encoder.encode(texts, unit=False)
    np.testing.assert_allclose(ours, vectors, rtol=0, atol=1e-5)


@pytest.mark.parity
def test_gradients_of_every_weight_equal_those_of_pytorch(folder, bert, terms):
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float64).eval()
    check_gradients(bert, model, *terms)


def test_a_term_does_not_feel_its_neighbours_in_the_row(bert, terms):
    check_neighbours(bert, *terms)


def test_the_window_leaves_out_what_is_too_far_and_nothing_else(bert):
    """Local layers alone: two of them reach twice as far as one."""
    reach = WINDOW // 2
    config = dataclasses.replace(bert.config, num_layers=2, layer_types=("sliding_attention",) * 2)
    local = random_bert(config, seed=0)
    tokens = np.arange(20, 40, dtype=np.int32)[None]
    row = tokens, np.arange(20, dtype=np.int32)[None], np.ones_like(tokens)
    changed = np.where(row[1] == 15, 5, tokens)
    before, after = (np.asarray(jax.jit(local)(ids, *row[1:])) for ids in (tokens, changed))
    felt = np.abs(before - after).max(axis=(0, 2)) > 0
    assert felt.tolist() == [abs(place - 15) <= 2 * reach for place in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["hidden_dropout", "attention_dropout", "mlp_dropout", None])
def test_dropout_follows_the_term_wherever_it_is_packed(bert, terms, rate):
    """Of each rate alone, and of all."""
    config = bert.config.with_dropout(0.2)
    if rate is not None:
        config = dataclasses.replace(bert.config, **{rate: 0.2})
    graph, _ = split_encoder(abstract_bert(config))
    dropping = merge_encoder(graph, split_encoder(bert)[1])
    check_dropout(bert, dropping, *terms)


def test_cls_is_the_final_state_of_the_first_token_with_dropout_too(bert, terms):
    """The last layer is computed for these tokens alone; an absent term has a zero vector."""
    graph, _ = split_encoder(abstract_bert(bert.config.with_dropout(0.2)))
    dropping = merge_encoder(graph, split_encoder(bert)[1])
    tokens, start = (part[:n] for part, n in zip(terms, (terms[1][4], 5), strict=True))
    packed = pack_rows(tokens, start, 8)
    ids = jnp.arange(packed["tokens"].size, dtype=jnp.uint32).reshape(packed["tokens"].shape)
    whole = np.asarray(jax.jit(dropping)(*packed.values(), ids)).reshape(ids.size, -1)
    vectors = np.asarray(pooled(dropping, *packed.values(), 5, "cls", ids))
    for term in range(4):
        first = np.flatnonzero(
            (packed["segments"].ravel() == term + 1) & (packed["positions"].ravel() == 0)
        )
        np.testing.assert_allclose(vectors[term], whole[first[0]], atol=1e-5)
    assert not vectors[4].any()


@pytest.mark.slow
def test_bfloat16_computes_in_bfloat16_and_gives_about_the_same_vectors(bert, terms):
    tokens, start = terms
    packed = pack_rows(tokens, start, 64)
    half = bert.with_dtype(jnp.bfloat16)
    assert isinstance(half, ModernBert)
    assert jax.eval_shape(half, *packed.values()).dtype == jnp.bfloat16
    assert half.embeddings.word.embedding[...].dtype == jnp.float32
    vectors = encode(half, *packed.values(), len(start) - 1)
    exact = encode(bert, *packed.values(), len(start) - 1)
    assert vectors.dtype == jnp.float32
    assert 1e-4 < np.abs(vectors - exact).max() < 0.2


def test_weights_come_back_bit_by_bit_under_the_same_names(folder, bert):
    expected, exported = load_file(folder / "model.safetensors"), to_hf(bert)
    assert exported.keys() == expected.keys()
    for name, tensor in exported.items():
        np.testing.assert_array_equal(tensor, expected[name])
        assert tensor.dtype == np.float32


def test_a_masked_language_model_s_file(folder, bert, tmp_path):
    """As BioClinical ModernBERT is published: the encoder under a prefix, with a head."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.ModernBertForMaskedLM(config)
    model.model.load_state_dict(transformers.AutoModel.from_pretrained(folder).state_dict())
    model.save_pretrained(tmp_path)
    loaded, _, report = load_bert(tmp_path)
    heads = ("decoder.bias", "head.dense.weight", "head.norm.weight")
    assert report.heads_ignored == heads and report.only_in_file == report.only_in_model == ()
    for name, tensor in to_hf(loaded).items():
        np.testing.assert_array_equal(tensor, to_hf(bert)[name])


def test_what_it_does_not_have_is_refused(folder, bert):
    with pytest.raises(BadInput, match="'pooler' needs the weights pooler.dense.*'cls' or 'mean'"):
        TermEncoder.from_pretrained(folder, "pooler")
    with pytest.raises(BadInput, match="--attend-padding. is for .* CODER .* found modernbert"):
        TermEncoder.from_pretrained(folder, attend_padding=True)
    with pytest.raises(ValueError, match="a ModernBERT has none"):
        abstract_bert(bert.config, pooler=True)
    row = jnp.ones((1, 4), jnp.int32)
    with pytest.raises(ValueError, match="probes need a BERT"):
        bert.pair_vectors(row, row, row, Probes(kinds=row, types=row, number=1), 1)


# -------------------------------------------------------------------------------------------------
# config.json of ModernBERT: both generations of it, and what is refused.

transformers_of_config = pytest.importorskip("transformers")

OLD = {"model_type": "modernbert", "pad_token_id": 3, "position_embedding_type": "absolute"} | SIZES
# The file of the published ModernBERT-base, by transformers 4.48, but for its tokens.
PUBLISHED = {
    **{"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert"},
    **{"attention_bias": False, "mlp_bias": False, "norm_bias": False, "decoder_bias": True},
    **{"attention_dropout": 0.0, "embedding_dropout": 0.0, "mlp_dropout": 0.0},
    **{"hidden_activation": "gelu", "norm_eps": 1e-05, "layer_norm_eps": 1e-05},
    **{"hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22},
    **{"num_attention_heads": 12, "max_position_embeddings": 8192, "vocab_size": 50368},
    **{"global_attn_every_n_layers": 3, "local_attention": 128, "pad_token_id": 50283},
    **{"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "initializer_range": 0.02},
    **{"reference_compile": False, "classifier_pooling": "mean", "sparse_prediction": False},
    **{"torch_dtype": "float32", "transformers_version": "4.48.0"},
}


def test_the_published_file():
    config = read_config(PUBLISHED)
    assert isinstance(config, ModernBertConfig)
    assert [i for i, kind in enumerate(config.layer_types) if kind == _GLOBAL] == [*range(0, 22, 3)]
    assert (config.global_theta, config.local_theta) == (160000.0, 10000.0)
    assert (config.longest_term, config.local_attention) == (8192, 128)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    short = {name: PUBLISHED[name] for name in ("model_type", "vocab_size", *names)}
    short["max_position_embeddings"] = 8192
    assert read_config(short) == config, "what a file leaves out has the original values"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_types": [_LOCAL, _GLOBAL, _LOCAL, _LOCAL]},
        {"layer_types": [_GLOBAL] * 4},
        {"layer_types": [_GLOBAL, _LOCAL, _LOCAL, _LOCAL]},
    ],
)
def test_both_generations_say_the_same_to_us_and_to_transformers(changes):
    config = read_config(OLD | changes)
    written = config.to_hf()
    assert read_config(written) == config
    older = {k: v for k, v in written.items() if k not in ("layer_types", "rope_parameters")}
    newer = {k: v for k, v in written.items() if "rope_theta" not in k and "every" not in k}
    assert read_config(newer) == config
    regular = changes.get("layer_types", [_GLOBAL])[0] == _GLOBAL
    assert (read_config(older) == config) == regular, "else transformers 4 cannot say it"
    for one in (OLD | changes, written, newer):
        opened = transformers_of_config.ModernBertConfig(**one)
        assert opened.layer_types == list(config.layer_types)
        assert opened.rope_parameters[_GLOBAL]["rope_theta"] == config.global_theta
        assert opened.rope_parameters[_LOCAL]["rope_theta"] == config.local_theta
        assert opened.local_attention == config.local_attention


@pytest.mark.parametrize("layers", [1, 2, 5, 22])
def test_its_first_layers_are_of_the_kinds_that_they_were(layers):
    whole = read_config(PUBLISHED)
    for config in (PUBLISHED, whole.to_hf()):  # one says every how many, the other lists them
        kept = first_layers(config, layers, "x")
        assert read_config(kept) == dataclasses.replace(
            whole, num_layers=layers, layer_types=whole.layer_types[:layers]
        )
        opened = transformers_of_config.ModernBertConfig(**kept)
        assert opened.layer_types == list(whole.layer_types[:layers])
    assert first_layers(PUBLISHED, 0, "x") == PUBLISHED
    with pytest.raises(BadInput, match="--layers 23: config.json has 22 layers; expected at most"):
        first_layers(PUBLISHED, 23, "config.json")


def test_local_layers_without_a_base_of_their_own_take_the_global_one():
    assert read_config(OLD | {"local_rope_theta": None}).local_theta == 500.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"norm_bias": True, "mlp_bias": True},
            "mlp_bias, norm_bias true; expected false",
        ),
        ({"attention_bias": True}, "attention_bias true; expected false"),
        ({"hidden_activation": "silu"}, "activation 'silu' is not known; expected one of gelu, "),
        (
            {"layer_types": [_GLOBAL, _LOCAL, "chunked_attention", _LOCAL]},
            "layer_types has the kinds chunked_attention; expected full_attention or sliding_att",
        ),
        ({"layer_types": [_GLOBAL, _LOCAL]}, "layer_types has 2 of 4 layers; expected"),
        (
            {"rope_parameters": {_GLOBAL: {"rope_type": "yarn", "factor": 4.0}}},
            "found rope_parameters .*'yarn'.*; expected rope_type 'default' .* not computed here",
        ),
        ({"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "found rope_scaling .*'linear'"),
        ({"num_attention_heads": 32}, "heads are 1 wide .*; expected an even number"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of 5 heads"),
        ({"mlp_dropout": 1.0}, "mlp_dropout is 1.0; expected float < 1.0"),
        ({"pad_token_id": 512}, "pad_token_id is 512, but the vocabulary has 512 entries"),
        ({"local_attention": 0}, "local_attention is 0; expected"),
        ({"model_type": "modernbert-decoder"}, "'modernbert-decoder'; expected one of bert, "),
    ],
)
def test_configs_that_are_not_computed_are_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        read_config(OLD | changes)


def test_a_size_that_is_missing_and_another_architecture():
    with pytest.raises(BadInput, match="hidden_size missing; expected a config.json with all of"):
        read_config({k: v for k, v in OLD.items() if k != "hidden_size"})
    with pytest.raises(BadInput, match="model_type is 'bert'; expected modernbert"):
        ModernBertConfig.from_hf(OLD | {"model_type": "bert"})


def test_one_rate_of_dropout_for_all():
    config = read_config(OLD).with_dropout(0.3)
    rates = config.hidden_dropout, config.attention_dropout, config.mlp_dropout
    assert rates == (0.3, 0.3, 0.3)
