"""The command `encode`: lines in, .npy or .npz out, messages for input that cannot be used."""

import argparse
import io
import types

import numpy as np
import pytest
from tiny_bert import write_model

from coder_jax import TermEncoder
from coder_jax.commands import encode
from data_pipeline.errors import BadInput


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    encode.add_arguments(parser)
    return encode.run(parser.parse_args([str(argument) for argument in arguments]))


def test_row_i_is_line_i(model, tmp_path, capsys):
    (tmp_path / "terms.txt").write_bytes("\ufeffpain\r\n\nµ limb\npain".encode())
    out = tmp_path / "vectors.npy"
    assert run("--model", model, "--out", out, "--pooling", "mean", tmp_path / "terms.txt") == 0
    expected = TermEncoder.from_pretrained(model, "mean").encode(["pain", "", "µ limb", "pain"])
    np.testing.assert_array_equal(np.load(out), expected)
    assert {path.name for path in tmp_path.iterdir()} == {"terms.txt", "vectors.npy"}
    captured = capsys.readouterr()
    assert captured.out == "" and "4 vectors of width 32" in captured.err
    assert "3/3" in captured.err  # the progress bar counts distinct terms


def test_stdin_to_npz_with_terms(model, tmp_path, monkeypatch):
    stdin = types.SimpleNamespace(buffer=io.BytesIO(b"pain\nlimb\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    out = tmp_path / "vectors.npz"
    run("--model", model, "--out", out)
    saved = np.load(out)
    assert saved["terms"].tolist() == ["pain", "limb"] and saved["vectors"].shape == (2, 32)


def test_input_that_cannot_be_used(model, tmp_path):
    terms = tmp_path / "terms.txt"
    terms.write_bytes(b"pain\nl\xe4hmung\n")
    with pytest.raises(BadInput, match=r"terms.txt:2: found byte 0xe4, which is not UTF-8"):
        run("--model", model, "--out", tmp_path / "out.npy", terms)
    with pytest.raises(BadInput, match="out.txt; expected a name that ends in .npy or .npz"):
        run("--model", model, "--out", tmp_path / "out.txt", terms)
    with pytest.raises(BadInput, match="there is no folder .*absent; make it first"):
        run("--model", model, "--out", tmp_path / "absent" / "out.npy", terms)
    with pytest.raises(BadInput, match="absent.txt cannot be read .No such file"):
        run("--model", model, "--out", tmp_path / "out.npy", tmp_path / "absent.txt")


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(file, vectors):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(BadInput, match="No space left on device; nothing was left there"):
        encode.write_vectors(tmp_path / "out.npy", ["pain"], np.zeros((1, 2)))
    assert list(tmp_path.iterdir()) == []
