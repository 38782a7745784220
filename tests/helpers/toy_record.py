"""The record of a normalization in two folds, of which one has a concept that cannot be found."""

import numpy as np
from evaluating import ENCODER

from coder_jax.evaluation.normalization import (
    Mentions,
    NormalizationFold,
    evaluate_normalization,
    normalization_record,
)
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.terminology.retired_cuis import RetiredCuis

RETIRED = RetiredCuis({"C0": "C1"}, "MRCUI.RRF")


def record_of(terms=("pain", "fever"), concepts=("C1", "C2"), made_of=Mentions):
    dictionary = Dictionary(list(terms), list(concepts), "toy.tsv", retired=1)
    folds = [
        NormalizationFold(name, ["sore", "hot"], ["C1", gold], dictionary)
        for name, gold in (("one", "C2"), ("two", "C9"))
    ]
    benchmark = made_of("toy", "toy", folds, "hash", 1, RETIRED)

    def encode(strings):
        return np.random.default_rng(0).normal(size=(len(strings), 3)).astype(np.float32)

    return normalization_record(benchmark, evaluate_normalization(encode, benchmark), ENCODER)
