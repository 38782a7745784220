"""Recipes of CODER v1 (Yuan et al. 2020): its encoders, and a small machine.

| value | where it stands |
|---|---|
| 256 terms in a group, at most 8 of a concept; 8 groups in a step; rate 2e-5 | paper, section 4.1 |
| mu 1, margin 1 | paper, section 3 |
| AdamW's decay 0.01, its eps 1e-8, clipping to norm 1, warm-up 10,000 | released code alone |
| 125,000 updates: "1M steps" of micro-batches, every eighth followed by an update | released code |
"""

import dataclasses

from coder_jax.systems.coder.recipes import small
from coder_jax.systems.coder_v1.objective import CoderV1System
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.training.config import Config, OptimizerConfig
from data_pipeline.batches.spec import BatchSpec

PAIRS = 85  # of a group: heads, tails and corrupted tails fill the paper's 256 terms but for one


def coder_v1_eng() -> Config[CoderV1System]:
    """CODER v1, English: BioBERT, 125,000 steps, TransE with corrupted tails (MS+REL).

        bash launch/train.sh --recipe coder_v1_eng --data datasets/umls_eng --out runs/coder_v1_eng

    One week on one RTX 2080 Ti in the paper. Its "1M steps" are read as the released code counts,
    micro-batches of 256 terms of which every eighth is followed by an update: 125,000 updates. That
    fits the week: 423 terms a second are 7 TFLOP/s at 32 tokens a term, while 1,000,000 updates
    would be four times the card's float32 peak. This is an inference, not a sentence of the paper.

    A group as in the paper and its code: of a triplet at most 8 pairs, as many as head and tail
    both have terms for, none of which is shown twice; further triplets until the group is full; and
    for each pair a corrupted tail of its own, a term of another random concept.
    """
    return Config(
        recipe="coder_v1_eng",
        system=CoderV1System(
            model=ModelConfig(init="dmis-lab/biobert-v1.1"),
            batch=BatchSpec(fill_pairs=PAIRS, names="distinct", corrupted_tails=True),
        ),
        optimizer=OptimizerConfig(steps=125_000),
    )


def coder_v1_all() -> Config[CoderV1System]:
    """CODER v1 of all languages: multilingual BERT."""
    base = coder_v1_eng()
    model = ModelConfig(init="bert-base-multilingual-cased")
    system = dataclasses.replace(base.system, model=model)
    return dataclasses.replace(base, recipe="coder_v1_all", system=system)


def small_v1() -> Config[CoderV1System]:
    """`small` with the loss and the groups of CODER v1, on as many terms.

    As in `small`, concepts that have a synonym are drawn, with names that share few word pieces.
    """
    base = small()
    batch = dataclasses.replace(
        base.system.batch, fill_pairs=PAIRS, repeats=8, corrupted_tails=True
    )
    system = CoderV1System(
        model=base.system.model,
        batch=batch,
        relation_learning_rate_factor=base.system.relation_learning_rate_factor,
    )
    return Config(recipe="small_v1", system=system, optimizer=base.optimizer, run=base.run)
