"""Held-out terms as a quick look at a run: how often their concept is the most probable one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.bert import merge_encoder, split_encoder
from coder_jax.models.encoder_settings import EncoderSettings
from coder_jax.systems.mlnorm.prediction.classifier import ConceptClassifier
from coder_jax.training.system import View
from data_pipeline.batches.spec import BatchSource
from data_pipeline.dataset.classes import classes_of
from data_pipeline.dataset.tokenize_terms import load_tokenizer
from data_pipeline.files.rows import split_concepts
from data_pipeline.sources.mentions import mention_rows
from data_pipeline.terminology.semantic_groups import ANY

if TYPE_CHECKING:
    from coder_jax.systems.mlnorm.class_system import ClassSystem


class HeldOutClasses:
    """acc@1, acc@5 and mrr of the dataset's held-out terms by the classes, the group given.

    The group of a term is one of its concept's; of a term without any the softmax is over all.

    Args:
        system: of the run.
        source: whose folder has `heldout/`.
    """

    def __init__(self, system: ClassSystem, source: BatchSource):
        self.system = system
        lines = mention_rows(source.folder / "heldout" / "mentions.tsv")
        self.classes = classes_of(source.folder)
        number = {concept: row for row, concept in enumerate(self.classes.concepts)}
        rows = [[number[c] for c in split_concepts(line[1]) if c in number] for line in lines]
        known = [(line[0], gold) for line, gold in zip(lines, rows, strict=True) if gold]
        self.mentions = [mention for mention, _ in known]
        self.gold = [gold for _, gold in known]
        bits = [int(self.classes.groups[gold[0]]) & ~(1 << ANY) for gold in self.gold]
        self.numbers = np.array([(b & -b).bit_length() - 1 if b else ANY for b in bits])
        if not getattr(system, "within_group", True):
            self.numbers = np.full(len(bits), ANY)
        self.tokenizer = load_tokenizer(source.folder / "tokenizer")
        self.settings = EncoderSettings(
            pooling=system.model.pooling,
            cleaning=source.manifest["cleaning"],
            max_length=source.manifest["tokenizer"]["max_length"],
        )

    def scores(self, view: View) -> dict[str, float]:
        """The scores of a run at one of its steps, and the number of classes."""
        classifier = ConceptClassifier(
            self.encoder(view.params["encoder"], view.about),
            {**view.params["head"], **(view.extra or view.params["statistics"])},
            np.asarray(view.params["classes"]),
            self.classes,
            scale=self.system.scale,
        )
        found, _ = classifier.nearest_of(classifier.encode(self.mentions), self.numbers, 100)
        ranks = [
            next((place + 1 for place, row in enumerate(rows) if row in gold), np.inf)
            for rows, gold in zip(found.tolist(), self.gold, strict=True)
        ]
        rank = np.array(ranks, float)
        scores = {
            "acc@1": (rank <= 1).mean(),
            "acc@5": (rank <= 5).mean(),
            "mrr": (1 / rank).mean(),
        }
        rounded = {name: round(float(value), 4) for name, value in scores.items()}
        return {**rounded, "classes": len(self.classes.concepts)}

    def encoder(self, params: Any, about: Mapping[str, Any]) -> TermEncoder:
        """What encodes with the parameters of the moment."""
        graph, _ = split_encoder(self.system.structure(about))
        return TermEncoder(merge_encoder(graph, params), self.tokenizer, self.settings)
