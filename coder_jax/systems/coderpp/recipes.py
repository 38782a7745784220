"""Recipes of CODER++ (Zeng, Yuan and Yu 2022): CODER, trained on with its nearest wrong answers.

Every so many steps all terms are encoded, and of each the nearest are found; a step learns from
terms, what is nearest to them, and other names of their concepts. The paper's abstract says that
much (hard positives and negatives that follow the encoder); the numbers stand in its code alone:

| value | where it stands |
|---|---|
| a block: a term, the 30 terms nearest to it, 30 names of its concept | released code |
| blocks of any terms, those of concepts with one name too | released code |
| 4 blocks a group; 8 GPUs, accumulation 8: 64 groups an update | released command |
| MS-loss with mining as CODER's, no relations | released code |
| start: CODER_ENG; rate 4e-5, warm-up 10,000 updates, linear decay | released command |
| 2,500,000 micro-batches, so 312,500 updates; neighbours every 250,000, so 31,250 | the same |
| AdamW's decay 0.01, its eps 1e-8, gradients clipped to norm 1; at most 32 tokens | released code |
| vector of a term: the last hidden state of [CLS] | CODER's paper |
| concepts that share a name with the anchor's are no neighbours of it | neither; ours |

The released code counts the term itself among its 30, here they are others; its own defaults are
400,000 micro-batches, neighbours every 100,000, and a rate of 2e-5. It trains on the pooler's
vectors, and finds neighbours by means over all 32 positions, padding too; here both are by one
pooling. Where a concept has fewer than 31 other names these come again; the released code repeats
the term itself. Each time that it has found neighbours it begins its optimizer anew. Its schedule
counts micro-batches, but moves on once in an update, so an eighth as fast, and makes up for it at
each such start: the rate falls in steps. Here it falls with the updates.
"""

import dataclasses

from coder_jax.systems.coder.recipes import small_synonyms
from coder_jax.systems.coderpp.objective import CoderPlusPlusSystem
from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.training.config import Config, OptimizerConfig
from data_pipeline.batches.draws.neighbour_spec import NeighbourSpec


def coderpp() -> Config[CoderPlusPlusSystem]:
    """CODER++ of the released command: CODER_ENG trained on, 312,500 steps of 64 groups.

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG \\
            --tokenizer GanjinZero/UMLSBert_ENG --hold-out 2000 --out datasets/umls_eng
        bash launch/train.sh --recipe coderpp --data datasets/umls_eng --out runs/coderpp \\
            --search bfloat16

    15,872 terms a step. Not trained here: a day on one H200 at the rate that CODER's steps are to
    reach there, and what finding neighbours ten times takes (launch/README.md). --init a run of
    `coder_eng` begins with an encoder of one's own. Small machines: `coderpp_small`.
    """
    batch = NeighbourSpec(
        groups=64, triplets=62, repeats=2, names="distinct", mined_share=1.0, neighbours=30
    )
    system = CoderPlusPlusSystem(model=ModelConfig(init="GanjinZero/UMLSBert_ENG"), batch=batch)
    optimizer = OptimizerConfig(steps=312_500, learning_rate=4e-5, warmup_steps=10_000)
    return Config(recipe="coderpp", system=system, optimizer=optimizer)


def coderpp_small() -> Config[CoderPlusPlusSystem]:
    """`small_synonyms` with an eighth of each group near concepts, found before the first step.

        bash launch/train.sh --recipe coderpp_small --data DIR --out runs/coderpp_small

    Two blocks of a concept and the seven nearest to it, and 112 concepts at random, two names
    each that share few word pieces. Of concepts, not of terms, and with names of each, so that
    every term of a group has a positive: with few terms a step, neighbours that are there for one
    anchor alone would be wasted. The share is the better of two: with half of each group mined,
    six points fewer held-out synonyms of an open terminology are found, probably as some near
    concepts there are the same thing under another number (benchmarks/README.md, Ablations).

    To find neighbours all terms are encoded, 784 a second on two CPU cores: of a terminology with
    half a million names eleven minutes each time, and one or two more for the neighbours of 53,000
    of its 303,000 concepts. A longer run finds them anew every 240 steps, unless --refresh-steps
    says that it should be more seldom.
    """
    base = small_synonyms()
    batch = NeighbourSpec(
        **dataclasses.asdict(base.system.batch),
        mined_share=0.125,
        neighbours=7,
        neighbours_of="concepts",
        positives="each",
    )
    system = CoderPlusPlusSystem(
        model=base.system.model, batch=batch, term=base.system.term, refresh_steps=240
    )
    return Config(recipe="coderpp_small", system=system, optimizer=base.optimizer, run=base.run)
