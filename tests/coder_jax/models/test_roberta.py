"""Encoders of RoBERTa's layout (XLM-R): vectors, tokens, export and training as with BERT."""

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_bert import TERMS
from tiny_roberta import TEXTS, write_model
from tiny_run import SPEC, write_tiny_batches
from transformers_twin import check_vectors

from coder_jax.devices.mesh import make_mesh
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.relations.fine_tuning import pad_tokens, term_vectors
from coder_jax.export.folder import export_encoder
from coder_jax.models.bert_config import BertConfig
from coder_jax.models.encoder_settings import EncoderSettings
from coder_jax.models.hf_weights import load_bert, to_hf
from coder_jax.systems.coder.objective import CoderSystem
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.finished_run import load_run
from coder_jax.training import step as step_module
from coder_jax.training.config import Config, OptimizerConfig, RunConfig
from coder_jax.training.train import train
from data_pipeline.batches.files import BatchFiles
from data_pipeline.dataset.tokenize_terms import load_tokenizer, tokenize
from data_pipeline.dataset.word_pieces import WordPieces
from data_pipeline.files.json_files import read_json
from data_pipeline.process.errors import BadInput

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
    padded = pad_tokens(encoder, TEXTS)
    assert (padded.tokens == 1).any(), "the padding token"
    vectors = jax.jit(term_vectors, static_argnums=3)(encoder.bert, *padded, "mean")
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
    assert read_json(tmp_path / "export" / "config.json") == {
        name: value for name, value in hf_config.items() if name != "transformers_version"
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
    write_tiny_batches(tmp_path / "batches", folder, steps=2)
    source = BatchFiles(tmp_path / "batches", SPEC)
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
    with pytest.raises(BadInput, match="max_length is 65, but the encoder has 64 positions"):
        TermEncoder.from_pretrained(folder, max_length=65).encode(["pain"])
    with pytest.raises(BadInput, match="attend_padding is for .* CODER .* found xlm-roberta"):
        TermEncoder.from_pretrained(folder, attend_padding=True)


def test_a_tokenizer_that_is_a_sentencepiece_file_alone(folder, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"not read without the package")

    def refuse(name):
        raise ValueError("`tiktoken` is required to read a `tiktoken` file.")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(BadInput, match="is a sentencepiece file, .* 'pip install sentencepiece"):
        load_tokenizer(tmp_path)
