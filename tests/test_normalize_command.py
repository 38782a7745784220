"""The command `normalize`: TSV out, mentions from file or stdin, messages, pipes."""

import argparse
import io
import subprocess
import sys
import types

import pytest
from tiny_bert import write_model

from coder_jax import TermEncoder
from coder_jax.commands import normalize
from data_pipeline.errors import BadInput

DICTIONARY = "term\tCUI\nheart attack\tC1\nmyocardial infarction\tC1\nrenal failure\tC2\npain\tC3\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder


@pytest.fixture
def dictionary(tmp_path):
    (tmp_path / "terms.tsv").write_text(DICTIONARY)
    return tmp_path / "terms.tsv"


def run(model, dictionary, *arguments: object) -> int:
    parser = argparse.ArgumentParser()
    normalize.add_arguments(parser)
    common = ["--model", model, "--dictionary", dictionary]
    return normalize.run(parser.parse_args([str(a) for a in (*common, *arguments)]))


def test_the_nearest_concept_of_each_line(model, dictionary, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(normalize, "MENTIONS_AT_A_TIME", 2)
    (tmp_path / "mentions.txt").write_text("pain\nRenal failure\n\nheart attack", encoding="utf-8")
    assert run(model, dictionary, tmp_path / "mentions.txt") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["mention", "concept", "term", "similarity"]
    assert [line[0] for line in lines[1:]] == ["pain", "Renal failure", "", "heart attack"]
    assert lines[1] == ["pain", "C3", "pain", "1.0000"]
    assert lines[2] == ["Renal failure", "C2", "renal failure", "1.0000"]
    assert lines[4] == ["heart attack", "C1", "heart attack", "1.0000"]


def test_k_concepts_with_ranks_from_stdin(model, dictionary, capsys, monkeypatch):
    stdin = types.SimpleNamespace(buffer=io.BytesIO(b"acute pain\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    run(model, dictionary, "-", "-k", "5", "--pooling", "mean")
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["mention", "concept", "term", "similarity", "rank"]
    matches = TermEncoder.from_pretrained(model, "mean").normalize(["acute pain"], dictionary, 5)
    assert len(matches[0]) == 3  # the dictionary has no more concepts
    assert lines[1:] == [
        ["acute pain", match.concept, match.term, f"{match.similarity:.4f}", str(rank)]
        for rank, match in enumerate(matches[0], start=1)
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pain\tC1\nlimb\n", r"terms.tsv:2: found 1 columns; expected 2: term<TAB>CUI"),
        ("pain\tC1\nlimb\tC2\tx\n", r"terms.tsv:2: found 3 columns"),
        ("pain\tC1\n\tC2\n", r"terms.tsv:2: found an empty column"),
        ("", r"terms.tsv: found no lines"),
        ("term\tCUI\n", r"terms.tsv: found a header and no rows"),
    ],
)
def test_malformed_dictionaries_name_file_and_line(model, tmp_path, content, message):
    (tmp_path / "terms.tsv").write_text(content)
    with pytest.raises(BadInput, match=message):
        run(model, tmp_path / "terms.tsv")


def test_mentions_that_cannot_be_used(model, dictionary, tmp_path):
    mentions = tmp_path / "mentions.txt"
    mentions.write_text("pain\nlimb\tC1\n")
    with pytest.raises(BadInput, match="mentions.txt:2: found a tab; expected one mention per"):
        run(model, dictionary, mentions)
    mentions.write_bytes(b"caf\xe9\n")
    with pytest.raises(BadInput, match="mentions.txt:1: found byte 0xe9, which is not UTF-8"):
        run(model, dictionary, mentions)
    with pytest.raises(BadInput, match="absent cannot be read"):
        run(model, dictionary, tmp_path / "absent")
    with pytest.raises(BadInput, match="-k is 0; expected at least 1"):
        run(model, dictionary, mentions, "-k", "0")


def test_a_reader_that_stops_is_no_error(model, dictionary, repo):
    """As `normalize ... | head -1` does: the pipe is closed while rows are still to come."""
    command = [sys.executable, "-m", "coder_jax", "normalize", "--model", model]
    process = subprocess.Popen(
        [*command, "--dictionary", dictionary, "-k", "3"],
        cwd=repo,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    _, errors = process.communicate("pain\n" * 5000)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and "BrokenPipe" not in errors
