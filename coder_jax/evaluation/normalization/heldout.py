"""Held-out synonyms as a quick look at a run: acc@1, acc@5 and mrr of an encoder."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.evaluation.benchmark import Given
from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
from coder_jax.evaluation.normalization.benchmark import NormalizationBenchmark
from coder_jax.evaluation.normalization.mentions import Mentions
from coder_jax.models.bert import Bert
from coder_jax.models.encoder_settings import EncoderSettings
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.files.rows import split_concepts
from data_pipeline.process.errors import BadInput


class HeldOut:
    """Normalization of the dataset's held-out terms, with the parameters of the moment.

    Args:
        folder: of the dataset or of batches; `heldout/` has the mentions and the dictionary.
        manifest: of the dataset.
        pooling: how terms become vectors.
        most_terms: search at most so many terms: a quick look at a run, not its final score.

    Raises:
        BadInput: if no terms were held out when the dataset was built.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], pooling: str, most_terms: int):
        mentions = folder / "heldout" / "mentions.tsv"
        if not mentions.exists():
            raise BadInput(
                f"eval_steps is set, but {folder} has no held-out terms; build it with "
                "--hold-out, or use --eval-steps 0"
            )
        benchmark = Mentions.read(Given("heldout", mentions))
        self.benchmark = with_dictionary_of(benchmark, most_terms)
        self.tokenizer = load_tokenizer(folder / "tokenizer")
        self.settings = EncoderSettings(
            pooling=pooling,
            cleaning=manifest["cleaning"],
            max_length=manifest["tokenizer"]["max_length"],
        )

    def scores(self, bert: Bert) -> dict[str, float]:
        """acc@1, acc@5 and mrr of an encoder, and the number of terms that were searched."""
        return self.scores_of(TermEncoder(bert, self.tokenizer, self.settings))

    def scores_of(self, encoder: TermEncoder) -> dict[str, float]:
        """The same of any encoder."""
        scores = evaluate_normalization(encoder.encode, self.benchmark).scores
        rounded = {name: round(scores[name], 4) for name in ("acc@1", "acc@5", "mrr")}
        return rounded | {"terms": len(self.benchmark.folds[0].dictionary.terms)}


def with_dictionary_of(
    benchmark: NormalizationBenchmark, most_terms: int
) -> NormalizationBenchmark:
    """The benchmark with the terms of its gold concepts, then others up to `most_terms` in all."""
    (fold,) = benchmark.folds
    terms, concepts = fold.dictionary.terms, fold.dictionary.concepts
    gold = {concept for joined in fold.gold for concept in split_concepts(joined)}
    is_gold = [not gold.isdisjoint(split_concepts(joined)) for joined in concepts]
    order = sorted(range(len(terms)), key=lambda i: not is_gold[i])
    order = order[: max(most_terms, sum(is_gold))]
    dictionary = dataclasses.replace(
        fold.dictionary, terms=[terms[i] for i in order], concepts=[concepts[i] for i in order]
    )
    return dataclasses.replace(benchmark, folds=[dataclasses.replace(fold, dictionary=dictionary)])
