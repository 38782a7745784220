"""What tests of recall and rank share: mentions, a tiny encoder, and a run of each stage."""

import pytest
from mention_run import config_of, source_of
from short_run import one_device
from tiny_bert import UNUSED, write_model
from tiny_mentions import tiny_mentions

from coder_jax.__main__ import main
from coder_jax.encoding.encoder import TermEncoder
from coder_jax.training.train import train


@pytest.fixture(scope="session")
def mentions(tmp_path_factory):
    """The folder of tiny mentions; a tiny encoder lies beside it as `bert`."""
    folder = tmp_path_factory.mktemp("mentions")
    write_model(folder / "bert", more=UNUSED)
    return tiny_mentions(folder).folder


@pytest.fixture(scope="session")
def generator(mentions, tmp_path_factory):
    """(folder, result) of a run of the generator with online negatives."""
    out = tmp_path_factory.mktemp("runs") / "recall"
    config = config_of("recall", mentions, out)
    with one_device():
        return out, train(config, source_of(config, mentions))


@pytest.fixture(scope="session")
def lists(mentions, generator):
    """The folder of mentions with candidates of that generator."""
    out = mentions.parent / "lists"
    words = ["--model", str(generator[0]), "--data", str(mentions), "--out", str(out), "-k", "5"]
    assert main(["candidates", *words]) == 0
    return out


@pytest.fixture(scope="session")
def ranker(lists, tmp_path_factory):
    """(folder, result) of a run of the ranker."""
    out = tmp_path_factory.mktemp("runs") / "rank"
    config = config_of("rank", lists, out)
    with one_device():
        return out, train(config, source_of(config, lists))


@pytest.fixture
def encoded(monkeypatch) -> list[int]:
    """How many terms each call of `TermEncoder.encode` has encoded."""
    counts: list[int] = []
    encode = TermEncoder.encode

    def counted(self, terms, **options):
        counts.append(len(terms))
        return encode(self, terms, **options)

    monkeypatch.setattr(TermEncoder, "encode", counted)
    # What proves a run when it is opened encodes, too: it is not counted.
    monkeypatch.setattr("coder_jax.systems.trained_models.check_proof", lambda *_: True)
    return counts
