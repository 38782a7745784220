"""Recipes of SapBERT (Liu et al. 2021), a peer of CODER that learns from synonyms alone.

| value | where it stands |
|---|---|
| MS-loss, alpha 1, beta 60, lambda 0.5 | released code |
| all triplets that break a margin of 0.2 | paper, section 2 |
| 256 pairs of names a step, at most 50 of a concept; one epoch | released code |
| AdamW at 2e-5 all along, decay 0.01, no clipping; terms of at most 25 tokens | released code |
| vector of a term: the last hidden state of [CLS] | paper, section 2 |

The decay spares biases and layer norms, as it does for all systems here; in the released code it
does not.
"""

import dataclasses

from coder_jax.systems.coder.recipes import small_synonyms
from coder_jax.systems.sapbert.objective import SapBertSystem, batch
from coder_jax.training.config import Config, OptimizerConfig


def sapbert() -> Config[SapBertSystem]:
    """SapBERT of the paper: PubMedBERT, one epoch of the English synonyms of UMLS 2020AA.

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG \\
            --tokenizer microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract --max-length 25 \\
            --cleaning none --out datasets/umls_eng
        bash launch/train.sh --recipe sapbert --data datasets/umls_eng --out runs/sapbert

    Its scores in CODER's table: Cadec 54.05, PsyTar 52.45. The released code took 11,792,953 pairs
    of lower-cased names, 46,066 steps; with other data set --steps to its pairs / 256. Not
    trained here.
    """
    optimizer = OptimizerConfig(
        steps=46_066, warmup_steps=0, learning_rate=2e-5, schedule="constant", clip_norm=0.0
    )
    return Config(recipe="sapbert", system=SapBertSystem(), optimizer=optimizer)


def small_sapbert() -> Config[SapBertSystem]:
    """SapBERT's loss, miner and pairs with the encoder, the steps and the size of `small`.

        bash launch/train.sh --recipe small_sapbert --data DIR --out runs/sapbert

    128 pairs a step; rate and warm-up of `small_synonyms`, which differs in the miner, the
    constants, how often a concept comes, and which names: pairs are of any two, there they are of
    two that share few word pieces.
    """
    base = small_synonyms()
    system = SapBertSystem(
        model=base.system.model,
        batch=dataclasses.replace(batch(), triplets=128, row_length=base.system.batch.row_length),
    )
    return Config(recipe="small_sapbert", system=system, optimizer=base.optimizer, run=base.run)
