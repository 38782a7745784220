"""The command `normalize`: TSV out, mentions from file or stdin, messages, pipes, stops."""

import argparse
import csv
import io
import signal
import subprocess
import sys
import threading
import types

import pytest
from tiny_bert import write_model

from coder_jax import TermEncoder
from coder_jax.__main__ import main
from coder_jax.commands import encode, mention_lines, normalize
from coder_jax.encoding.encoded_dictionary import EncodedDictionary
from coder_jax.mapping.coded import COLUMNS
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import TRY_AGAIN, Stopped

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


def test_stopped_it_says_that_a_new_start_begins_anew(monkeypatch, capsys):
    def stop(_: argparse.Namespace) -> int:
        raise Stopped

    monkeypatch.setattr(normalize, "run", stop)
    assert main(["normalize", "--model", "bert", "--dictionary", "terms.tsv"]) == TRY_AGAIN
    assert capsys.readouterr().err.startswith("stopped; the same command starts over")


def run(model, dictionary, *arguments: object) -> int:
    parser = argparse.ArgumentParser()
    normalize.add_arguments(parser)
    common = ["--model", model, "--dictionary", dictionary]
    return normalize.run(parser.parse_args([str(a) for a in (*common, *arguments)]))


def table_of(text: str) -> list[dict[str, str]]:
    """The rows of a tab-separated table."""
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def test_the_concept_of_each_line(model, dictionary, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mention_lines, "MENTIONS_AT_A_TIME", 2)
    (tmp_path / "mentions.txt").write_text("pain\nRenal failure\n\nheart attacks", encoding="utf-8")
    assert run(model, dictionary, tmp_path / "mentions.txt") == 0
    rows = table_of(capsys.readouterr().out)
    assert list(rows[0]) == ["mention", *COLUMNS]
    assert [row["mention"] for row in rows] == ["pain", "Renal failure", "", "heart attacks"]
    assert [row["concept"] for row in rows] == ["C3", "C2", "", "C1"]
    assert [row["status"] for row in rows] == ["exact", "exact", "no answer", "near"]
    assert [row["matched_term"] for row in rows] == ["pain", "renal failure", "", "heart attack"]
    assert (rows[1]["similarity"], rows[2]["reason"]) == ("1.0000", "empty")
    assert rows[3]["preferred_name"] == "heart attack"


def test_k_concepts_with_ranks_from_stdin(model, dictionary, capsys, monkeypatch):
    stdin = types.SimpleNamespace(buffer=io.BytesIO(b"acute pain\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    run(model, dictionary, "-", "-k", "5", "--pooling", "mean", "--candidates", "vectors")
    rows = table_of(capsys.readouterr().out)
    matches = TermEncoder.from_pretrained(model, "mean").normalize(["acute pain"], dictionary, 5)
    assert len(matches[0]) == 3  # the dictionary has no more concepts
    assert [
        (row["mention"], row["concept"], row["matched_term"], row["similarity"], row["rank"])
        for row in rows
    ] == [
        ("acute pain", match.concept, match.term, f"{match.similarity:.4f}", str(rank))
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
    with pytest.raises(BadInput, match="-k is 0; expected 1 to 1,000 concepts"):
        run(model, dictionary, mentions, "-k", "0")


def start(model, dictionary, repo, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "coder_jax", "normalize", "--model", model]
    return subprocess.Popen(
        [*map(str, (*command, "--dictionary", dictionary, *arguments))],
        cwd=repo,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_vectors_that_were_encoded_before(model, dictionary, tmp_path, capsys, monkeypatch):
    mentions, vectors = tmp_path / "mentions.txt", tmp_path / "vectors.npy"
    mentions.write_text("acute pain\nheart\n")
    run(model, dictionary, mentions, "-k", "3")
    expected = capsys.readouterr().out
    arguments = argparse.ArgumentParser()
    encode.add_arguments(arguments)
    command = ["--model", model, "--dictionary", dictionary, "--out", vectors]
    encode.run(arguments.parse_args([str(word) for word in command]))

    def as_it_is(encoder, dictionary, *, progress):
        assert isinstance(dictionary, EncodedDictionary), "it is encoded again"
        return dictionary

    monkeypatch.setattr(TermEncoder, "encode_dictionary", as_it_is)
    capsys.readouterr()
    run(model, dictionary, mentions, "-k", "3", "--dictionary-vectors", vectors)
    assert capsys.readouterr().out == expected
    with pytest.raises(
        BadInput, match="encoder.pooling: 'cls' there, 'mean' here.*--dictionary DICT"
    ):
        run(model, dictionary, mentions, "--dictionary-vectors", vectors, "--pooling", "mean")
    dictionary.write_text(DICTIONARY.replace("pain", "pains"))
    with pytest.raises(BadInput, match=r"vectors.npy: was made of something else \(terms.hash"):
        run(model, dictionary, mentions, "--dictionary-vectors", vectors)


def test_retired_concepts_go_by_their_new_name(model, dictionary, tmp_path, capsys):
    (tmp_path / "mentions.txt").write_text("pain\n")
    (tmp_path / "MRCUI.RRF").write_text("C3|2019AA|SY|||C9|Y|\n")
    run(model, dictionary, tmp_path / "mentions.txt", "--retired-cuis", tmp_path / "MRCUI.RRF")
    assert capsys.readouterr().out.splitlines()[1].split("\t")[1] == "C9"


def test_lines_and_pauses(tmp_path):
    (tmp_path / "mentions.txt").write_bytes("\ufeffa\r\n\n\u2028b\nlast".encode())
    for stream in ((tmp_path / "mentions.txt").open("rb"), None):
        stream = stream or io.BytesIO((tmp_path / "mentions.txt").read_bytes())
        with stream:
            read = list(mention_lines.read_mentions(stream, "mentions.txt"))
        assert read == [["a", "", "\u2028b", "last"]]


@pytest.mark.slow
def test_a_pause_is_answered_and_sigterm_ends_it(model, dictionary, repo):
    process = start(model, dictionary, repo)
    too_long = threading.Timer(120, process.kill)
    too_long.start()
    process.stdin.write("pain\nheart attack\n")
    process.stdin.flush()  # and stays open
    rows = [process.stdout.readline().split("\t")[:2] for _ in range(3)]
    assert rows == [["mention", "concept"], ["pain", "C3"], ["heart attack", "C1"]]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    too_long.cancel()
    _, errors = process.communicate()
    assert "SIGTERM: stopping after the rows that are printed" in errors


def test_a_reader_that_stops_is_no_error(model, dictionary, repo):
    """As `normalize ... | head -1` does: the pipe is closed while rows are still to come."""
    process = start(model, dictionary, repo, "-k", "3")
    process.stdout.close()
    _, errors = process.communicate("pain\n" * 5000)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and "BrokenPipe" not in errors
