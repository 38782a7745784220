"""Recipes of recall and rank (Liang, Xue and Ruan 2021).

Each is a page of a lab book: the command, how long it takes where, what to expect, and for each
value where it stands. What a recipe does not set is the default of its system and batches:

| value | where it stands |
|---|---|
| margin 1 on raw Euclidean distances; 4 names of others per mention; 10 candidates | paper, 3.1.1 \
and 4.2 |
| online negatives, found anew each epoch; before the first step any names | paper, 3.1.2 |
| number of concepts 1, 2, 3 and more, from [CLS] through BERT's pooler | classes: paper, 3.1.1; \
pooler: released code alone |
| keyword masks after the softmax, not normalized again | paper, equation 9; the released code has \
them before it: --mask before |
| mean over [CLS] and probes, one output, binary cross-entropy; dropout of .3 before it | paper, \
equations 10 and 11; dropout: released code alone |
| AdamW at 2e-5 | paper, 4.2 |
| 16 mentions or 64 pairs a step, constant rate, 20 epochs, the best by accuracy | released code \
alone |
"""

import dataclasses

from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.recall_rank.generator import RecallSystem
from coder_jax.systems.recall_rank.ranker import RankSystem
from coder_jax.training.config import Config, OptimizerConfig, RunConfig

SMALL = "sentence-transformers/all-MiniLM-L6-v2"
ADAM = OptimizerConfig(
    steps=1, learning_rate=2e-5, warmup_steps=0, schedule="constant", clip_norm=0.0, eps=1e-6
)


def recall() -> Config[RecallSystem]:
    """The candidate generator of recall and rank, on the data of the paper (CHIP-2019).

        python -m data_pipeline.build_mentions --train train.tsv --dictionary code.txt \\
            --hold-out 500 --tokenizer bert-base-chinese --out data/chip
        bash launch/train.sh --recipe recall --data data/chip --out runs/recall

    20 epochs of some 3,740 (mention, concept) pairs. Alone it has 90.1 % of the mentions right in
    the paper (table 3, where five models vote, it seems), and all concepts of 98.3 % among 10
    candidates (table 7). With other data set --steps, and --eval-steps to an epoch. Not trained
    here.
    """
    return Config(
        recipe="recall",
        system=RecallSystem(),
        optimizer=dataclasses.replace(ADAM, steps=4_660),
        run=RunConfig(eval_steps=233, save_steps=233),
    )


def rank() -> Config[RankSystem]:
    """The ranker of recall and rank, on the candidates of a generator for the paper's data.

        python -m coder_jax candidates --model runs/recall --data data/chip --out data/chip_lists
        bash launch/train.sh --recipe rank --data data/chip_lists --out runs/rank

    20 epochs of 35,000 pairs. Both together have 91.47 % of the mentions right in the paper (table
    3, where five models vote, it seems). With other data set --steps, and --eval-steps to an epoch.
    Not trained here.
    """
    return Config(
        recipe="rank",
        system=RankSystem(),
        optimizer=dataclasses.replace(ADAM, steps=10_920),
        run=RunConfig(eval_steps=546, save_steps=546),
    )


def recall_small() -> Config[RecallSystem]:
    """The candidate generator with a small encoder on a small machine.

        python -m data_pipeline.build_mentions --train NCBItrainset_corpus.txt --distinct \\
            --dev NCBIdevelopset_corpus.txt --dictionary medic.txt \\
            --tokenizer sentence-transformers/all-MiniLM-L6-v2 --out data/ncbi
        bash launch/train.sh --recipe recall_small --data data/ncbi --out runs/recall

    The rate is for so small an encoder. With other data set --steps to three epochs or more. 609
    steps on the training halves of NCBI disease and BC5CDR together took 18 minutes of one core,
    half of it to encode 76,237 names anew. Right of NCBI disease's 960 test mentions: 72.2 % (65.0
    before training; 67.4 with TF-IDF negatives, 65.8 with random ones), and all concepts among ten
    candidates of 86.3 % (79.4). On CHIP-2019, six epochs: 85.3 and 97.6 %.
    """
    base = recall()
    return Config(
        recipe="recall_small",
        system=dataclasses.replace(base.system, model=ModelConfig(init=SMALL, pooling="mean")),
        optimizer=dataclasses.replace(
            base.optimizer, steps=640, learning_rate=1e-4, schedule="linear"
        ),
        run=RunConfig(eval_steps=320, save_steps=320),
    )


def rank_small() -> Config[RankSystem]:
    """The ranker with a small encoder on a small machine.

        python -m coder_jax candidates --model runs/recall --data data/ncbi --out data/ncbi_lists
        bash launch/train.sh --recipe rank_small --data data/ncbi_lists --init runs/recall \\
            --out runs/rank

    10 candidates of 3,093 mentions (NCBI disease and BC5CDR) are an epoch of 967 steps, 9 minutes
    of one core; with other data set --steps to three epochs or more. `--init runs/recall`, the
    generator's encoder, is a better start than MiniLM's own weights. Of the development mentions
    77.6 % are right by the generator alone, 78.3 with the ranker after three epochs, and 80.6 after
    three more (--from runs/rank, with another --out and --seed).
    """
    base = rank()
    return Config(
        recipe="rank_small",
        system=dataclasses.replace(
            base.system,
            model=ModelConfig(init=SMALL),
            batch=dataclasses.replace(base.system.batch, pairs=32),
        ),
        optimizer=dataclasses.replace(
            base.optimizer, steps=2_900, learning_rate=1e-4, schedule="linear"
        ),
        run=RunConfig(eval_steps=1_450, save_steps=725),
    )
