"""config.json of ModernBERT: both generations of it, and what is refused."""

import pytest
from tiny_modernbert import SIZES

from coder_jax.models.architectures import read_config
from coder_jax.models.modernbert.config import GLOBAL, LOCAL, ModernBertConfig
from data_pipeline.process.errors import BadInput

transformers = pytest.importorskip("transformers")

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
    assert [i for i, kind in enumerate(config.layer_types) if kind == GLOBAL] == [*range(0, 22, 3)]
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
        {"layer_types": [LOCAL, GLOBAL, LOCAL, LOCAL]},
        {"layer_types": [GLOBAL] * 4},
        {"layer_types": [GLOBAL, LOCAL, LOCAL, LOCAL]},
    ],
)
def test_both_generations_say_the_same_to_us_and_to_transformers(changes):
    config = read_config(OLD | changes)
    written = config.to_hf()
    assert read_config(written) == config
    older = {k: v for k, v in written.items() if k not in ("layer_types", "rope_parameters")}
    newer = {k: v for k, v in written.items() if "rope_theta" not in k and "every" not in k}
    assert read_config(newer) == config
    regular = changes.get("layer_types", [GLOBAL])[0] == GLOBAL
    assert (read_config(older) == config) == regular, "else transformers 4 cannot say it"
    for one in (OLD | changes, written, newer):
        opened = transformers.ModernBertConfig(**one)
        assert opened.layer_types == list(config.layer_types)
        assert opened.rope_parameters[GLOBAL]["rope_theta"] == config.global_theta
        assert opened.rope_parameters[LOCAL]["rope_theta"] == config.local_theta
        assert opened.local_attention == config.local_attention


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
            {"layer_types": [GLOBAL, LOCAL, "chunked_attention", LOCAL]},
            "layer_types has the kinds chunked_attention; expected full_attention or sliding_att",
        ),
        ({"layer_types": [GLOBAL, LOCAL]}, "layer_types has 2 of 4 layers; expected"),
        (
            {"rope_parameters": {GLOBAL: {"rope_type": "yarn", "factor": 4.0}}},
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
