"""Recipes of MLNorm (Wajsbürt, Sarfati and Tannier 2021), and one for small machines.

Each is a page of a lab book: the command, how long it takes where, what to expect, and for each
value where it stands. What a recipe does not set is the default of `MLNormSystem` and `TermSpec`:

| value | where it stands |
|---|---|
| mean of the word pieces, linear to 350, ReLU, batch norm, 20 x cosine | paper, 4.2 and 5 |
| the softmax over the concepts of the mention's semantic group | paper, equation 5; the released \
code takes all concepts in step 1: --no-within-group |
| 128 terms a step, each once an epoch; dropout 0.2; terms of at most 100 tokens | paper, 5 |
| encoder 2e-5 after a warm-up of a tenth, head and classes 8e-3 without; all fall to 0 | paper, 5 |
| classes from Xavier's uniform, head as PyTorch begins a linear layer | released code alone |
| Adam without weight decay, gradients not clipped | released code alone |
"""

import dataclasses

from coder_jax.systems.encoders.encoder_system import ModelConfig
from coder_jax.systems.mlnorm.objective import MLNormSystem
from coder_jax.systems.mlnorm.second_step import MLNormClassesSystem
from coder_jax.training.config import Config, OptimizerConfig, RunConfig
from data_pipeline.batches.draws.term_spec import TermSpec

# Terms of UMLS 2014AB (paper, table 1), before the group filter, which leaves somewhat fewer; and
# those of a step.
FRENCH, MIRROR, AT_ONCE = 179_992, 544_383, 128


def mlnorm() -> Config[MLNormSystem]:
    """Step 1 of the paper: French terms and their English mirror, encoder and classes together.

        python -m data_pipeline.build --source umls-2014AB.zip --languages FRE ENG --mirror FRE \\
            --semantic-groups ANAT CHEM DEVI DISO GEOG LIVB OBJC PHEN PHYS PROC --cleaning mlnorm \\
            --max-length 100 --tokenizer bert-base-multilingual-uncased --out data/fr_mirror
        bash launch/train.sh --recipe mlnorm --data data/fr_mirror --out runs/s1

    Five hours on one P40 in the paper. Its score with French and English terms alone: F1 .678 on
    Quaero's EMEA of 2015. The steps are 15 epochs of its terms: with other data set --steps and
    --warmup-steps. Not trained to its end here.
    """
    steps = round(15 * (FRENCH + MIRROR) / AT_ONCE / 100) * 100
    return Config(
        recipe="mlnorm",
        system=MLNormSystem(batch=TermSpec(terms=AT_ONCE)),
        optimizer=OptimizerConfig(
            steps=steps, warmup_steps=steps // 10, weight_decay=0.0, clip_norm=0.0
        ),
    )


def mlnorm_classes() -> Config[MLNormClassesSystem]:
    """Step 2 of the paper: rows for all concepts, those of English names alone too.

        python -m data_pipeline.build --source umls-2014AB.zip --languages FRE ENG --mirror FRE \\
            --sources ENG=CHV,SNOMEDCT_US,MTH,NCI,MSH --semantic-groups ... --cleaning mlnorm \\
            --max-length 100 --tokenizer bert-base-multilingual-uncased --out data/fr_all
        bash launch/train.sh --recipe mlnorm_classes --data data/fr_all --from runs/s1 --out runs/s2

    Two hours on one P40 in the paper. Its scores after both steps: F1 .765 on Quaero's EMEA of
    2015, .737 on MEDLINE's. 5 epochs of 3.0 million terms, 128 a step; rows learn at 8e-3, which
    falls in a line to 0 from the first step. The encoder stays, so no step encodes. With other
    data set --steps. Not trained to its end here.
    """
    optimizer = OptimizerConfig(
        steps=118_000, learning_rate=8e-3, warmup_steps=0, weight_decay=0.0, clip_norm=0.0
    )
    return Config(recipe="mlnorm_classes", system=MLNormClassesSystem(), optimizer=optimizer)


def mlnorm_small() -> Config[MLNormSystem]:
    """Step 1 with a small encoder on a small machine, for terms of one or two languages.

        python -m data_pipeline.build --source openmeta --languages FRE ENG --mirror FRE \\
            --semantic-groups ... --cleaning mlnorm --max-length 32 --hold-out 1000 \\
            --hold-out-languages FRE --out data/fr \\
            --tokenizer sentence-transformers/all-MiniLM-L6-v2
        bash launch/train.sh --recipe mlnorm_small --data data/fr --out runs/s1
        bash launch/train.sh --recipe mlnorm_classes --data data/fr_all --from runs/s1 \\
            --steps 2000 --out runs/s2

    (data/fr_all as data/fr, with --sources ENG=NCI,MSH and --exclude-terms
    data/fr/heldout/mentions.tsv in place of --hold-out.) Three epochs of 56,694 French and English
    terms of an open terminology, 13,255 concepts: 22 minutes on two CPU cores that were busy.
    Right of 1,000 French names that were held out, in percent, means of three seeds:

    | terms to learn from | steps | most probable class | among five | nearest of 10,000 terms |
    |---|---:|---:|---:|---:|
    | none | 0 | | | 62.4 |
    | French and English | 1,300 | 66.7 ± 0.3 | 85.1 ± 0.5 | 80.1 |
    | French, --languages FRE | 840 | 48.8 ± 0.3 | 72.1 ± 0.3 | 72.5 |
    | English, --languages ENG | 1,210 | 29.8 ± 0.8 | 46.4 ± 0.8 | 63.4 |

    Step 2 on 54,970 concepts: 13 minutes; of 300 French names of a public test 72 % of the 57 whose
    concept has a French name (67 before), and 57 % of the 23 whose concept has none (none before).

    On all 296,772 concepts (without --sources; an hour, most of it for the vectors) one epoch at
    8e-3 is too fast. Right of 298 of these names, of the 57 and of the other 241, in percent:

    | | all | 57 | 241 |
    |---|---:|---:|---:|
    | nearest term, by the same vectors | 62.1 | 75.4 | 58.9 |
    | learnt rows, and means for the others: where step 2 begins | 64.8 | 26.3 | 73.9 |
    | 1,500 steps at 5e-4 | 66.1 | 33.3 | 73.9 |
    | 3,000 steps at 1e-3, --within-language | 66.1 | 38.6 | 72.6 |
    | 3,000 steps at 2e-3 | 60.4 | 52.6 | 62.2 |
    | 4,000 steps at 3e-3, --within-language | 54.4 | 61.4 | 52.7 |
    | means for all (--means all) | 61.1 | 59.6 | 61.4 |
    | 3,000 steps at 1e-3 from these | 58.7 | 68.4 | 56.4 |
    | 3,000 steps at 1e-3 from these, --within-language | 60.7 | 66.7 | 59.3 |

    French names of concepts that have one draw all French mentions to themselves as they are
    learnt; less so where a French term is told from concepts with a French name alone.
    """
    base = mlnorm()
    system = dataclasses.replace(
        base.system,
        model=ModelConfig(
            init="sentence-transformers/all-MiniLM-L6-v2", pooling="pieces", dropout=0.1
        ),
        batch=TermSpec(row_length=32),
        head_learning_rate_factor=80.0,
    )
    return Config(
        recipe="mlnorm_small",
        system=system,
        optimizer=dataclasses.replace(
            base.optimizer, steps=1_300, warmup_steps=130, learning_rate=1e-4
        ),
        run=RunConfig(eval_steps=325, save_steps=325),
    )
