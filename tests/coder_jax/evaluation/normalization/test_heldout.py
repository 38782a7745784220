"""The look at held-out terms while a run trains: its scores."""

import pytest
from evaluating import write_toy

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.benchmark import NormalizationFold
from coder_jax.evaluation.normalization.heldout import HeldOut, with_dictionary_of
from coder_jax.evaluation.normalization.mentions import Mentions
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput

MANIFEST = {"cleaning": "none", "tokenizer": {"max_length": 16}}


def test_scores_are_those_of_evaluate(tmp_path, minilm_path):
    write_toy(tmp_path)
    (tmp_path / "tokenizer").symlink_to(minilm_path)
    encoder = TermEncoder.from_pretrained(minilm_path, pooling="mean", max_length=16)
    scores = HeldOut(tmp_path, MANIFEST, "mean", 99).scores(encoder.bert)
    expected = evaluate_normalization(
        encoder.encode, read_benchmark("toy", tmp_path / "heldout")
    ).scores
    assert scores == {
        **{name: round(expected[name], 4) for name in ("acc@1", "acc@5", "mrr")},
        "terms": 8,
    }
    assert scores["acc@1"] == 0.75
    assert HeldOut(tmp_path, MANIFEST, "mean", 1).scores(encoder.bert)["terms"] == 6


def test_a_dataset_without_held_out_terms(tmp_path):
    with pytest.raises(BadInput, match="has no held-out terms; build it with --hold-out, or use"):
        HeldOut(tmp_path, MANIFEST, "mean", 99)


def test_a_look_at_a_run_keeps_the_terms_of_joined_gold_concepts():
    dictionary = Dictionary(list("abcd"), ["C9", "C1|C5", "C8", "C2"], "toy")
    fold = NormalizationFold("", ["x"], ["C5|C8"], dictionary)
    benchmark = Mentions("heldout", "toy", [fold], "hash")
    assert with_dictionary_of(benchmark, 1).folds[0].dictionary.terms == ["b", "c"]
