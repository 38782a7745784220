"""What a run refuses before anything is written, and what a look at it searches."""

import pytest
from short_run import Stops, config

from coder_jax.evaluation.normalization.benchmark import NormalizationFold
from coder_jax.evaluation.normalization.heldout import with_dictionary_of
from coder_jax.evaluation.normalization.mentions import Mentions
from coder_jax.training.train import train
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput

pytestmark = pytest.mark.usefixtures("on_one_device")


def test_a_folder_that_is_no_run_is_refused(model, source, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="is not empty and is not the folder of a run"):
        train(config(model, tmp_path), source)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_tokenizer_of_another_encoder_is_refused(model, source, tmp_path):
    other = Stops(source, after=99)
    other.manifest = source.manifest | {
        "tokenizer": source.manifest["tokenizer"] | {"hash": "f" * 64}
    }
    with pytest.raises(BadInput, match="tokenized with tiny, hash ffffffffffff; build the dataset"):
        train(config(model, tmp_path / "run"), other)
    assert not (tmp_path / "run").exists()


def test_a_dataset_that_does_not_fit_the_weights_is_refused(model, source, tmp_path):
    for change, message in (
        ({"vocab_size": 10**6}, "1,?000,?000"),
        ({"max_length": 65}, "up to 65 tokens, but .* has 64 positions"),
    ):
        other = Stops(source, after=99)
        other.manifest = source.manifest | {"tokenizer": source.manifest["tokenizer"] | change}
        with pytest.raises(BadInput, match=message):
            train(config(model, tmp_path / "run"), other)
    assert not (tmp_path / "run").exists()


def test_what_a_run_wants_and_the_dataset_lacks_is_said_at_once(model, source, tmp_path):
    bare = Stops(source, after=99)
    bare.folder = tmp_path
    with pytest.raises(BadInput, match="has no held-out terms; build it with --hold-out"):
        train(config(model, tmp_path / "run", eval_steps=3), bare)
    bare.manifest = source.manifest | {"relations": []}
    with pytest.raises(BadInput, match="has no relations; use --mu 0"):
        train(config(model, tmp_path / "run"), bare)
    assert not (tmp_path / "run").exists()


def test_a_look_at_a_run_searches_the_gold_concepts_first():
    terms, concepts = list("abcdefg"), ["C9", "C1", "C8", "C2", "C1", "C7", "C6"]
    fold = NormalizationFold("all", ["x"], ["C1"], Dictionary(terms, concepts, "toy"))
    benchmark = Mentions("heldout", "toy", [fold], "hash")
    for most, want in ((4, "beac"), (1, "be"), (99, "beacdfg")):
        found = with_dictionary_of(benchmark, most).folds[0].dictionary
        assert sorted(found.terms[:2]) == ["b", "e"] and sorted(found.terms) == sorted(want)
