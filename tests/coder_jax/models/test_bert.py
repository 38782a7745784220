"""BERT on packed rows: packed equals unpadded, neighbours do not leak, pooling, dtypes, errors."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from tiny_bert import TERMS, TINY, single_row
from tiny_roberta import TEXTS, write_model
from tiny_run import SPEC, write_tiny_dataset
from transformers_twin import check_vectors

from coder_jax.devices.mesh import make_mesh
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.relation_classifiers import _pad_tokens, _term_vectors
from coder_jax.export.folder import export_encoder
from coder_jax.models import bert as bert_layers
from coder_jax.models.bert import Bert, _first_tokens, _mean_by_term, merge_encoder, split_encoder
from coder_jax.models.bert_config import POOLINGS, BertConfig
from coder_jax.models.dropout import hash_dropout, mix_bits
from coder_jax.models.hf_files import EncoderSettings
from coder_jax.models.hf_weights import abstract_bert, load_bert, random_bert, read_config, to_hf
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.encoder_system import ModelConfig
from coder_jax.systems.trained_models import load_run
from coder_jax.training import step as step_module
from coder_jax.training.system import Config, OptimizerConfig, RunConfig
from coder_jax.training.train import train
from data_pipeline.batches.batch_maker import BatchMaker
from data_pipeline.batches.packing import pack_rows
from data_pipeline.dataset.store import open_dataset
from data_pipeline.dataset.tokenizer import WordPieces, load_tokenizer, tokenize
from data_pipeline.files.identity import read_json
from data_pipeline.process import BadInput


@pytest.fixture(scope="module")
def bert_of_bert() -> Bert:
    return random_bert(TINY, seed=0)


def random_terms(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    start = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(seed).integers(5, TINY.vocab_size, start[-1], np.int32)
    return tokens, start


LENGTHS = [2, 9, 30, 9, 30, 64, 9, 2, 30]


@partial(jax.jit, static_argnums=4)
def encode(bert, tokens, positions, segments, num_terms):
    """All poolings at once: [pooling, N, D]."""
    packed = tokens, positions, segments, num_terms
    return jnp.stack([bert.term_vectors(*packed, pooling) for pooling in POOLINGS])


def test_packed_vectors_equal_those_of_single_unpadded_terms(bert_of_bert):
    tokens, start = random_terms(LENGTHS)
    packed = pack_rows(tokens, start, 64, rows=5)  # the last row is padding only
    assert (packed["segments"][-1] == 0).all()
    vectors = encode(bert_of_bert, *packed.values(), len(LENGTHS))
    for i in range(len(LENGTHS)):
        row = single_row(tokens[start[i] : start[i + 1]].tolist())
        alone = encode(bert_of_bert, *row, 1)[:, 0]
        np.testing.assert_allclose(vectors[:, i], alone, rtol=0, atol=1e-5)
    assert vectors.dtype == jnp.float32 and np.isfinite(vectors).all()


def test_a_term_does_not_feel_its_neighbours_in_the_row(bert_of_bert):
    tokens, start = random_terms(LENGTHS)
    packed = pack_rows(tokens, start, 64)
    changed = dict(packed, tokens=np.where(packed["segments"] == 4, 5, packed["tokens"]))
    before = encode(bert_of_bert, *packed.values(), len(LENGTHS))
    after = encode(bert_of_bert, *changed.values(), len(LENGTHS))
    same = (np.asarray(before) == np.asarray(after)).all(axis=(0, 2))
    assert same.tolist() == [i != 3 for i in range(len(LENGTHS))]


def test_gradients_stay_finite_with_rows_of_padding(bert_of_bert):
    tokens, start = random_terms([3, 5])
    packed = pack_rows(tokens, start, 16, rows=3)

    graph, params = nnx.split(bert_of_bert, nnx.Param)

    @jax.jit
    def gradients(params):
        def loss(params):
            vectors = nnx.merge(graph, params).term_vectors(*packed.values(), 2, "cls")
            return (vectors * jnp.arange(32.0)[None]).sum()

        return jax.grad(loss)(params)

    gradient = np.asarray(gradients(params)["embeddings"]["word"]["embedding"][...])
    used = np.zeros(TINY.vocab_size, bool)
    used[tokens] = True
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient).sum(axis=1) > 0).tolist() == used.tolist()  # padding learns nothing


def test_the_mean_and_the_first_token_of_each_term_absent_ones_too():
    hidden = jnp.arange(2 * 4 * 3, dtype=jnp.bfloat16).reshape(2, 4, 3)
    segments = np.array([[2, 2, 1, 1], [4, 4, 4, 0]], np.int32)
    mean = _mean_by_term(hidden, segments, 4)
    assert mean.dtype == jnp.float32
    np.testing.assert_array_equal(mean, [[7.5, 8.5, 9.5], [1.5, 2.5, 3.5], [0, 0, 0], [15, 16, 17]])
    np.testing.assert_array_equal(_first_tokens(segments, 4), [2, 0, 8, 4])


@pytest.mark.slow
def test_cls_is_the_last_layers_state_of_the_first_token_with_dropout_too(bert_of_bert):
    """The last layer is computed for these tokens alone; an absent term has a zero vector."""
    graph, params = split_encoder(
        bert_of_bert
    )  # with biases, or zeros would give zeros by themselves
    bert_of_bert = merge_encoder(graph, jax.tree.map(lambda array: array + 0.1, params))
    tokens, start = random_terms([3, 5, 2, 7])
    packed = pack_rows(tokens, start, 8)
    ids = jnp.arange(packed["tokens"].size, dtype=jnp.uint32).reshape(packed["tokens"].shape)
    whole = np.asarray(bert_of_bert(*packed.values(), ids)).reshape(ids.size, -1)
    vectors = np.asarray(bert_of_bert.term_vectors(*packed.values(), 5, "cls", ids))
    for term in range(4):
        first = np.flatnonzero(
            (packed["segments"].ravel() == term + 1) & (packed["positions"].ravel() == 0)
        )
        np.testing.assert_allclose(vectors[term], whole[first[0]], atol=1e-5)
    assert not vectors[4].any()


def test_bfloat16_computes_in_bfloat16_and_gives_about_the_same_vectors(bert_of_bert):
    tokens, start = random_terms(LENGTHS)
    packed = pack_rows(tokens, start, 64)
    half = bert_of_bert.with_dtype(jnp.bfloat16)
    assert jax.eval_shape(half, *packed.values()).dtype == jnp.bfloat16
    assert half.embeddings.word.embedding[...].dtype == jnp.float32
    vectors = encode(half, *packed.values(), len(LENGTHS))
    exact = encode(bert_of_bert, *packed.values(), len(LENGTHS))
    assert vectors.dtype == jnp.float32
    assert 1e-4 < np.abs(vectors - exact).max() < 0.1


def test_pooler_pooling_without_a_pooler_is_an_error():
    bert = abstract_bert(TINY, pooler=False)
    with pytest.raises(ValueError, match="pooler"):
        jax.eval_shape(lambda bert: bert.term_vectors(*single_row([2, 3]), 1, "pooler"), bert)
    with pytest.raises(ValueError, match="'max'"):
        jax.eval_shape(lambda bert: bert.term_vectors(*single_row([2, 3]), 1, "max"), bert)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "bart"},
            "model_type is 'bart'; expected one of bert, .*, modernbert",
        ),
        ({"hidden_act": "swish"}, "activation 'swish' is not known; expected one of gelu"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of 5 heads"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True; expected an encoder"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0; expected float < 1.0"),
    ],
)
def test_configs_that_this_encoder_does_not_compute_are_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        read_config(TINY.to_hf() | changes)


def test_config_from_hugging_face_and_back():
    assert BertConfig.from_hf(TINY.to_hf()) == TINY
    short = {k: v for k, v in TINY.to_hf().items() if k != "hidden_size"}
    with pytest.raises(BadInput, match="hidden_size missing"):
        BertConfig.from_hf(short)


def test_the_gradients_for_bfloat16_are_those_that_jax_derives():
    rng = np.random.default_rng(0)
    config = TINY
    norm = bert_layers.layer_norm(config, nnx.Rngs(0))
    x = jnp.asarray(3 * rng.standard_normal((50, config.hidden_size), np.float32) + 1)
    weights = jnp.asarray(rng.standard_normal(x.shape, np.float32))
    scale, bias = (jnp.asarray(rng.standard_normal(x.shape[1], np.float32)) for _ in range(2))

    def derived(x, scale, bias):
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred**2).mean(axis=1, keepdims=True)
        unit = centred / jnp.sqrt(variance + norm.epsilon)
        return ((unit * scale[None] + bias[None]) * weights).sum()

    def by_hand(x, scale, bias):
        return (bert_layers._norm_bfloat16(norm.epsilon, x, scale, bias) * weights).sum()

    for ours, expected in zip(
        jax.grad(by_hand, (0, 1, 2))(x, scale, bias),
        jax.grad(derived, (0, 1, 2))(x, scale, bias),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, atol=2e-5)
    gelu = jax.grad(lambda x: (bert_layers._gelu_bfloat16(x) * weights).sum())(x)
    expected = jax.grad(lambda x: (bert_layers.ACTIVATIONS["gelu"](x) * weights).sum())(x)
    np.testing.assert_allclose(gelu, expected, atol=1e-6)


# -------------------------------------------------------------------------------------------------
# Hash dropout: follows the term and not its place, right rate, sites and features independent.


@partial(jax.jit, static_argnums=(4, 5))
def encode_of_dropout(bert, tokens, positions, segments, num_terms, pooling, ids=None):
    return bert.term_vectors(tokens, positions, segments, num_terms, pooling, ids)


ONE_LAYER = dataclasses.replace(TINY, num_layers=1)
LENGTHS_DROPOUT = np.array([3, 9, 5, 20, 4])


def token_ids(packed: dict[str, np.ndarray], number_of_term: np.ndarray) -> np.ndarray:
    """One id per token of (term, position), whatever the place in the pack."""
    numbers = np.concatenate([[999], number_of_term])[packed["segments"]]
    return (numbers * 100 + packed["positions"]).astype(np.uint32)


def test_the_mask_follows_the_term_wherever_it_is_packed():
    bert = random_bert(ONE_LAYER, seed=1)
    start = np.concatenate([[0], np.cumsum(LENGTHS_DROPOUT)])
    tokens = np.random.default_rng(0).integers(5, TINY.vocab_size, start[-1]).astype(np.int32)
    order = np.array([3, 0, 4, 2, 1])
    shuffled = np.concatenate([tokens[start[i] : start[i + 1]] for i in order])
    shuffled_start = np.concatenate([[0], np.cumsum(LENGTHS_DROPOUT[order])])
    first = pack_rows(tokens, start, 32)
    second = pack_rows(shuffled, shuffled_start, 48)  # the terms lie elsewhere
    vectors = encode_of_dropout(bert, *first.values(), 5, "mean", token_ids(first, np.arange(5)))
    moved = encode_of_dropout(bert, *second.values(), 5, "mean", token_ids(second, order))
    np.testing.assert_allclose(vectors[order], moved, rtol=0, atol=1e-5)
    plain = encode_of_dropout(bert, *first.values(), 5, "mean")
    assert (np.abs(vectors - plain).max(axis=1) > 1e-2).all()
    other = encode_of_dropout(bert, *first.values(), 5, "mean", token_ids(first, 7 + np.arange(5)))
    assert (np.abs(vectors - other).max(axis=1) > 1e-2).all()


def test_without_a_rate_the_ids_change_nothing():
    bert = random_bert(
        dataclasses.replace(ONE_LAYER, hidden_dropout=0.0, attention_dropout=0.0), seed=1
    )
    packed = pack_rows(np.arange(10, dtype=np.int32), np.array([0, 10]), 16)
    ids = token_ids(packed, np.arange(1))
    plain = encode_of_dropout(bert, *packed.values(), 1, "mean")
    np.testing.assert_array_equal(encode_of_dropout(bert, *packed.values(), 1, "mean", ids), plain)


def kept(ids: np.ndarray, site: int, features: int, rate: float) -> np.ndarray:
    ones = jnp.ones((len(ids), features))
    feature = jnp.arange(features, dtype=jnp.uint32)[None]
    return np.asarray(hash_dropout(ones, jnp.asarray(ids)[:, None], site, feature, rate))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.003])
def test_rate_and_scale(rate):
    out = kept(np.arange(4096, dtype=np.uint32), 3, 768, rate)
    sigma = (rate * (1 - rate) / out.size) ** 0.5
    assert abs((out == 0).mean() - rate) < 4 * sigma
    np.testing.assert_allclose(out[out != 0], 1 / (1 - rate), rtol=1e-6)
    # Each token and each feature on its own: 4.9 sigma for some thousands of looks.
    for axis in (0, 1):
        looks = (out == 0).mean(axis=axis)
        sigma = (rate * (1 - rate) / out.shape[axis]) ** 0.5
        assert np.abs(looks - rate).max() < max(4.9 * sigma, 8 / out.shape[axis])


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_in_bfloat16_the_scale_is_no_rounded_one(rate):
    values = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (4096, 64)), jnp.bfloat16)
    ids, features = jnp.arange(4096, dtype=jnp.uint32)[:, None], jnp.arange(64, dtype=jnp.uint32)
    out = hash_dropout(values, ids, 3, features[None], rate)
    assert out.dtype == jnp.bfloat16
    out, values = np.asarray(out, float), np.asarray(values, float)
    kept = out > 0
    assert out[kept].sum() / values[kept].sum() == pytest.approx(1 / (1 - rate), rel=1e-4)


def test_sites_tokens_and_features_are_independent():
    rate, shape = 0.3, (2048, 256)
    ids = np.asarray(mix_bits(jnp.arange(shape[0], dtype=jnp.uint32)))
    masks = [kept(ids, site, shape[1], rate) == 0 for site in (0, 1, 2, 3)]
    masks.append(kept(ids + np.uint32(1), 0, shape[1], rate) == 0)
    masks += [np.roll(masks[0], 1, axis=axis) for axis in (0, 1)]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
            assert abs(correlation) < 5 / (shape[0] * shape[1]) ** 0.5


# -------------------------------------------------------------------------------------------------
# Encoders of RoBERTa's layout (XLM-R): vectors, tokens, export and training as with BERT.

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny-xlm-r"
    write_model(folder)
    return folder


@pytest.mark.parity
@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "camembert"])
def test_vectors_equal_transformers(model_type, tmp_path):
    model = write_model(tmp_path / "tiny", model_type)
    bert, hf_config, report = load_bert(tmp_path / "tiny")
    tokens, start = tokenize(load_tokenizer(tmp_path / "tiny"), TEXTS, 64)
    assert np.diff(start).max() == 64, "as long as there are positions"
    check_vectors(bert, model, tokens, start)
    assert report.only_in_file == report.only_in_model == ()
    assert hf_config["model_type"] == bert.config.model_type == model_type


@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_encode_equals_transformers_with_padding_and_a_mask(folder, pooling):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=20, return_tensors="pt")
    assert tokenizer.pad_token_id == 1 and (batch["input_ids"] == 1).any()
    with torch.inference_mode():
        hidden = transformers.AutoModel.from_pretrained(folder)(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    vectors = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    encoder = TermEncoder.from_pretrained(folder, pooling, max_length=20)
    ours = encoder.encode(TEXTS, unit=False)
    np.testing.assert_allclose(ours, vectors, rtol=0, atol=1e-5)


def test_fine_tuning_begins_with_the_same_vectors(folder):
    encoder = TermEncoder.from_pretrained(folder, "mean")
    padded = _pad_tokens(encoder, TEXTS)
    assert (padded.tokens == 1).any(), "the padding token"
    vectors = jax.jit(_term_vectors, static_argnums=3)(encoder.bert, *padded, "mean")
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS, unit=False), rtol=0, atol=1e-5)


def test_a_masked_language_model_s_file(folder, tmp_path):
    """The encoder under a prefix, with a head, and without a pooler."""
    tensors = load_file(folder / "model.safetensors")
    kept = {f"roberta.{n}": t for n, t in tensors.items() if not n.startswith("pooler")}
    other = tmp_path / "mlm"
    other.mkdir()
    (other / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(kept | {"lm_head.bias": np.zeros(3, np.float32)}, other / "model.safetensors")
    bert, _, report = load_bert(other)
    assert report.heads_ignored == ("lm_head.bias",) and not report.only_in_file
    assert report.only_in_model == ("pooler.dense.bias", "pooler.dense.weight")
    for name, tensor in to_hf(bert).items():
        np.testing.assert_array_equal(tensor, tensors[name])


def test_words_are_not_tokenized_one_by_one(folder):
    tokenizer = load_tokenizer(folder)
    pieces = WordPieces(tokenizer)
    assert not pieces.splits_at_blanks
    ids, start = pieces(TEXTS)
    encoded = [tokenizer.encode(text).ids for text in TEXTS]
    assert [ids[a:b].tolist() for a, b in zip(start, start[1:], strict=False)] == encoded
    assert {(one[0], one[-1]) for one in encoded} == {(0, 2)}, "<s> and </s>"


@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["cls", "mean", "pieces", "pooler"])
def test_export_and_back(folder, tmp_path, pooling):
    bert, hf_config, _ = load_bert(folder)
    settings = {"pooling": pooling, "cleaning": "none", "max_length": 24}
    worst = export_encoder(bert, folder, hf_config, tmp_path / "export", **settings)
    assert max(worst.values()) < 1e-5
    exported = transformers.AutoModel.from_pretrained(tmp_path / "export")
    original = transformers.AutoModel.from_pretrained(folder)
    assert type(exported) is type(original) is transformers.XLMRobertaModel
    left_out = {"add_cross_attention", "classifier_dropout", "is_decoder", "tie_word_embeddings"}
    left_out |= {"use_cache", "transformers_version"}
    assert left_out < hf_config.keys()
    assert read_json(tmp_path / "export" / "config.json") == {
        **{name: value for name, value in hf_config.items() if name not in left_out},
        **{"cls_token_id": 0, "sep_token_id": 2},
    }
    for name, tensor in original.state_dict().items():
        torch.testing.assert_close(exported.state_dict()[name], tensor, rtol=0, atol=0)
    encoder = TermEncoder.from_pretrained(tmp_path / "export")
    before = TermEncoder(bert, load_tokenizer(folder), EncoderSettings(**settings))
    np.testing.assert_array_equal(encoder.encode(TERMS), before.encode(TERMS))


@pytest.mark.slow
def test_training_moves_the_encoder_and_exports_it(folder, tmp_path, monkeypatch):
    one = jax.devices()[:1]  # eight would only make the compiler slow here
    monkeypatch.setattr(step_module, "make_mesh", lambda groups, _=None: make_mesh(groups, one))
    write_tiny_dataset(tmp_path / "data", folder)
    source = BatchMaker(open_dataset(tmp_path / "data"), SPEC)
    config = Config(
        recipe="test",
        system=CoderSystem(model=ModelConfig(init=str(folder)), batch=SPEC),
        optimizer=OptimizerConfig(steps=2, learning_rate=1e-3, warmup_steps=1),
        run=RunConfig(out=str(tmp_path / "run"), save_steps=2, log_steps=1),
    )
    train(config, source)
    system, saved = load_run(tmp_path / "run")
    system.export(saved, tmp_path / "export")
    trained = TermEncoder.from_pretrained(tmp_path / "export")
    assert trained.bert.config == load_bert(folder)[0].config
    moved = np.abs(trained.encode(TERMS) - TermEncoder.from_pretrained(folder).encode(TERMS))
    assert 1e-4 < moved.max() < 1
    name = "embeddings.position_embeddings.weight"
    before, after = to_hf(load_bert(folder)[0])[name], to_hf(trained.bert)[name]
    change = np.abs(after - before).max(axis=1)
    assert change[:2].max() < 1e-4 < change[2:6].min(), "rows 0 and 1 have no token, only decay"


def test_what_differs_from_bert_in_a_config(folder):
    config = BertConfig.from_hf(read_json(folder / "config.json"))
    assert (config.first_position, config.longest_term, config.max_positions) == (2, 64, 66)
    short = {k: v for k, v in config.to_hf().items() if k != "pad_token_id"}
    assert BertConfig.from_hf(short) == config, "1, where a file leaves it out"
    with pytest.raises(BadInput, match="max-length. is 65, but the encoder has 64 positions"):
        TermEncoder.from_pretrained(folder, max_length=65).encode(["pain"])
    with pytest.raises(BadInput, match="--attend-padding. is for .* CODER .* found xlm-roberta"):
        TermEncoder.from_pretrained(folder, attend_padding=True)


@pytest.mark.slow
def test_a_tokenizer_that_is_a_sentencepiece_file_alone(folder, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"not read without the package")

    def refuse(name):
        raise ValueError("`tiktoken` is required to read a `tiktoken` file.")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(BadInput, match="is a sentencepiece file, .* 'pip install sentencepiece"):
        load_tokenizer(tmp_path)
