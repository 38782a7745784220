"""ONNX files of an export: ONNX Runtime gives the export's own vectors, or nothing is left."""

import dataclasses

import numpy as np
import pytest
import tiny_bert
import tiny_modernbert
import tiny_roberta
from tiny_bert import TERMS

from coder_jax import TermEncoder
from coder_jax.encoding import vector_files
from coder_jax.encoding.readers import ONNX_FILES, OnnxReader
from coder_jax.export import onnx_files
from coder_jax.export.folder import PROBE_TERMS, export_encoder
from coder_jax.export.onnx_files import add_onnx
from coder_jax.models.hf_files import read_settings
from coder_jax.models.hf_weights import load_bert
from data_pipeline.process import BadInput

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

MAKERS = {"bert": tiny_bert, "xlm-roberta": tiny_roberta, "modernbert": tiny_modernbert}


def exported(folder, kind="bert", pooling="cls"):
    """An export of a tiny encoder, without ONNX files."""
    model = folder / "model"
    MAKERS[kind].write_model(model)
    bert, config, _ = load_bert(model, pooling=pooling)
    out = folder / "export"
    export_encoder(bert, model, config, out, pooling=pooling, cleaning="none", max_length=24)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An export with both files."""
    out = exported(tmp_path_factory.mktemp("onnx"))
    (out / "heldout").mkdir()
    (out / "heldout" / "mentions.tsv").write_text("mention\tCUI\nacute attack\tC1\nlimb\tC2\n")
    (out / "heldout" / "dictionary.tsv").write_text(
        "term\tCUI\nacute attack\tC1\nlimb pain\tC9\nlimb\tC2\n"
    )
    checks = add_onnx(out, int8=True, heldout=out / "heldout")
    return out, checks


@pytest.mark.parity
@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        ("bert", "pooler"),
        pytest.param("xlm-roberta", "mean", marks=pytest.mark.slow),
        pytest.param("bert", "pieces", marks=pytest.mark.slow),
        pytest.param("modernbert", "mean", marks=pytest.mark.slow),
    ],
)
def test_onnx_runtime_gives_the_vectors_of_the_export(tmp_path, kind, pooling):
    out = exported(tmp_path, kind, pooling)
    checks = add_onnx(out)
    assert checks.difference < 1e-5 and checks.cosine is checks.found is None
    assert not (out / ONNX_FILES["onnx-int8"]).exists()
    ours, theirs = (TermEncoder.from_pretrained(out, backend=b) for b in ("jax", "onnx"))
    terms = [*PROBE_TERMS, *TERMS]
    for unit in (True, False):
        found = theirs.encode(terms, unit=unit)
        np.testing.assert_allclose(found, ours.encode(terms, unit=unit), atol=1e-5, rtol=1e-4)
    code_of_the_card_gives_the_vectors(out, ours)


def code_of_the_card_gives_the_vectors(out, encoder):
    """The terms have other numbers of tokens, so that one is padded."""
    terms = ["heart", "myocardial infarction"]
    code = (out / "README.md").read_text().rpartition("```python\n")[2].split("```")[0]
    assert "coder_jax" not in code and "import torch" not in code
    exec(code.replace("heart attack", "heart"), {"MODEL": str(out)}, known := {})
    assert len({sum(one.attention_mask) for one in known["batch"]}) == 2
    np.testing.assert_allclose(known["vectors"], encoder.encode(terms), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parity
def test_minilm(minilm_path, tmp_path):
    bert, config, _ = load_bert(minilm_path, pooling="mean")
    out = tmp_path / "export"
    settings = {"pooling": "mean", "cleaning": "none", "max_length": 64}
    export_encoder(bert, minilm_path, config, out, **settings)
    checks = add_onnx(out, int8=True)
    assert checks.difference < 1e-5
    assert checks.cosine[0] > 0.97 and checks.cosine[1] > 0.9


@pytest.mark.slow
def test_what_stands_in_a_batch_changes_no_vector(folder):
    encoder = TermEncoder.from_pretrained(folder[0], backend="onnx")
    terms = [*TERMS, *PROBE_TERMS, *TERMS]
    alone = np.stack([encoder.encode(term) for term in terms])
    np.testing.assert_allclose(encoder.encode(terms), alone, atol=1e-6)
    assert encoder.encode([]).shape == (0, encoder.width)


@pytest.mark.slow
def test_int8_is_near_and_the_card_says_how_near(folder):
    out, checks = folder
    ours, small = (TermEncoder.from_pretrained(out, backend=b) for b in ("jax", "onnx-int8"))
    cosines = (ours.encode(PROBE_TERMS) * small.encode(PROBE_TERMS)).sum(1)
    assert checks.cosine == pytest.approx((cosines.mean(), cosines.min()))
    assert 0.9 < cosines.min() < 1 - 1e-5, "it was quantized"
    assert checks.found == (100.0, 100.0)
    card = (out / "README.md").read_text()
    assert card.count("\n## ONNX\n") == 1
    code_of_the_card_gives_the_vectors(out, ours)
    assert f"{cosines.mean():.4f} on average" in card and "right for 100.0 %" in card
    assert "acc@1 of held-out names 100.0 (float32: 100.0)" in str(checks)


def test_the_fastest_backend_is_named(folder, tmp_path, capsys, monkeypatch):
    encoder = TermEncoder.from_pretrained(folder[0])
    rates = encoder.rates_of_backends(TERMS)
    assert list(rates) == ["jax", *ONNX_FILES] and min(rates.values()) > 0

    monkeypatch.setattr(TermEncoder, "rates_of_backends", lambda self, terms: {"jax": len(terms)})
    listed = vector_files.TermList(TERMS, 4)
    about = vector_files.about_vectors(encoder, "x", "0" * 64, listed, "float32")
    vector_files.write_vectors(encoder, listed, tmp_path / "few.npy", about)
    assert "terms per second" not in capsys.readouterr().err, "comparing would take longest"
    monkeypatch.setattr(vector_files, "_COMPARED_FROM", len(TERMS))
    vector_files.write_vectors(encoder, listed, tmp_path / "many.npy", about)
    assert "terms per second on this machine: jax 4. Choose" in capsys.readouterr().err


def test_backends_are_told_apart(folder):
    """So that kept vectors of a dictionary are those of the backend that is asked for."""
    encoders = [TermEncoder.from_pretrained(folder[0], backend=b) for b in ("jax", *ONNX_FILES)]
    assert len({one.weights_hash for one in encoders}) == 3
    assert len({one.reader.structure for one in encoders}) == 3
    assert [one.reader.dtype for one in encoders] == ["float32", "float32", "int8"]


def test_what_a_file_cannot_do_is_said(folder, tmp_path):
    out = folder[0]
    with pytest.raises(BadInput, match="attend_padding, which the backend jax alone has"):
        TermEncoder.from_pretrained(out, backend="onnx", attend_padding=True)
    with pytest.raises(BadInput, match="exported with another pooling and has no pooler"):
        TermEncoder.from_pretrained(out, backend="onnx", pooling="pooler")
    with pytest.raises(BadInput, match="max_length is 999; expected at most"):
        TermEncoder.from_pretrained(out, backend="onnx", max_length=999)
    with pytest.raises(BadInput, match="needs the encoder in JAX: take the backend jax"):
        _ = TermEncoder.from_pretrained(out, backend="onnx").bert
    tiny_bert.write_model(tmp_path / "model")
    with pytest.raises(BadInput, match=r"no model_int8.onnx; write it with .*--onnx --int8"):
        OnnxReader(tmp_path / "model", "onnx-int8")
    (tmp_path / "model" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(BadInput, match=r"model.onnx cannot be read: .*export it again"):
        OnnxReader(tmp_path / "model", "onnx")


@pytest.mark.slow
def test_files_that_differ_are_not_left(tmp_path, monkeypatch):
    out = exported(tmp_path)
    before = sorted(path.name for path in out.iterdir())
    card = (out / "README.md").read_text()
    real = onnx_files.write_graph

    def other_pooling(folder, path, settings):
        tiny_bert.write_model(tmp_path / "other", seed=1)
        real(tmp_path / "other", path, dataclasses.replace(read_settings(folder)))

    monkeypatch.setattr(onnx_files, "write_graph", other_pooling)
    with pytest.raises(RuntimeError, match="the vectors of model.onnx differ"):
        add_onnx(out)
    assert sorted(path.name for path in out.iterdir()) == before
    assert (out / "README.md").read_text() == card
