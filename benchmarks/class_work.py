"""The work of `benchmarks.class_steps`: synthetic classes, terms and candidates in NumPy.

Only shapes decide what a step costs, so nothing here means anything; but all systems get the same.
"""

import dataclasses
from typing import Literal

import numpy as np

from coder_jax.models.bert_config import BertConfig
from coder_jax.training.system import OptimizerConfig
from data_pipeline.terminology.semantic_groups import ANY

GROUPS = 10  # semantic groups, as in the paper's corpus: class c is of group c modulo 10
RATE, ENCODER_RATE = 8e-3, 2e-5  # of head and classes, and of the encoder, in the paper
REPEAT = 2_048  # rows of the table that differ; `padded_rows` is a multiple of it
# A very small BERT, so that nearly all of a step is the softmax.
_SMALL = BertConfig(
    vocab_size=30_522,
    hidden_size=128,
    num_layers=2,
    num_heads=2,
    intermediate_size=512,
    max_positions=512,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClassTerms:
    """The N terms of a step."""

    tokens: np.ndarray
    """int32 [N, tokens of a term], for step 1."""
    vectors: np.ndarray
    """float32 [N, D], of unit length, for step 2."""
    classes: np.ndarray
    """int32 [N, 1 + k], the class of each term, then its candidates, of the same semantic group."""
    semantic_groups: np.ndarray
    """int32 [N]."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClassWork:
    """A task for every system; plain values, which are sent to processes."""

    step: Literal[1, 2]
    """Of the two of MLNorm."""
    classes: int
    """C, concepts."""
    terms: int = 128
    """N, in a step."""
    candidates: int = 100
    """k, of a term."""
    width: int = 350
    """D, of a class."""
    tokens: int = 8
    """Of a term, [CLS] and [SEP] included."""
    encoder: BertConfig = _SMALL
    """Sizes of the encoder of step 1."""
    steps: int = 4
    """Different batches, used again and again."""

    @property
    def optimizer(self) -> OptimizerConfig:
        """The recipes' optimizer without warm-up; its rate is the encoder's, if there is one."""
        rate = ENCODER_RATE if self.step == 1 else RATE
        return OptimizerConfig(learning_rate=rate, warmup_steps=0, weight_decay=0.0, clip_norm=0.0)

    def stored(self, step: int) -> ClassTerms:
        """The terms of a step; repeated calls give the same.

        Candidates are drawn at random, so that terms share few of them: it is the largest table
        that a step of so many terms can need.
        """
        rng = np.random.default_rng([step, self.classes])
        tokens = rng.integers(1_000, self.encoder.vocab_size, (self.terms, self.tokens))
        vectors = rng.standard_normal((self.terms, self.width), np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        own = rng.integers(0, self.classes, self.terms)
        of_group = -(-(self.classes - own % GROUPS) // GROUPS)  # concepts of the term's group
        drawn = rng.integers(0, of_group[:, None], (self.terms, self.candidates))
        candidates = own[:, None] % GROUPS + GROUPS * drawn
        return ClassTerms(
            tokens=tokens.astype(np.int32),
            vectors=vectors,
            classes=np.concatenate([own[:, None], candidates], axis=1).astype(np.int32),
            semantic_groups=(own % GROUPS).astype(np.int32),
        )

    def rows(self) -> np.ndarray:
        """float32 [REPEAT, D]: the first rows of the table, which the rest repeat."""
        return np.random.default_rng(0).standard_normal((REPEAT, self.width), np.float32)

    def head(self) -> dict[str, np.ndarray]:
        """The head before the first step."""
        into = self.encoder.hidden_size
        kernel = np.random.default_rng(1).standard_normal((into, self.width), np.float32)
        return {
            "kernel": kernel * np.float32(into**-0.5),
            "bias": np.zeros(self.width, np.float32),
            "scale": np.ones(self.width, np.float32),
            "shift": np.zeros(self.width, np.float32),
        }

    def peer_bytes(self) -> int:
        """About what PyTorch needs: table and moments; in step 1 a gradient and the scores, too.

        Of scores there are six arrays: cosines, the mask, what is masked, its softmax, and two
        gradients.
        """
        row = 4 * self.width
        if self.step == 2:
            return self.classes * 3 * row
        return self.classes * (4 * row + 6 * 4 * self.terms)


def class_group_bits(classes: np.ndarray) -> np.ndarray:
    """uint16: the semantic groups of classes, as a bit set."""
    return (1 << classes % GROUPS | 1 << ANY).astype(np.uint16)
