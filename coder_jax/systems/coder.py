"""CODER: a multi-similarity loss on pairs of terms and on pairs that a relation joins.

Yuan, Zhao, Sun, Li, Wang and Yu, CODER: Knowledge-infused cross-lingual medical term embedding for
term normalization, Journal of Biomedical Informatics 2022, section 3.3. The loss of a group, the
table of relations and the mean over the groups of a step are in `group_losses.py`, as CODER++ has
them too.
"""

import dataclasses
from typing import ClassVar

from coder_jax.systems.encoder_system import EncoderSystem, ModelConfig, RunWithEncoder
from coder_jax.systems.group_losses import CoderLosses, GroupRun, MultiSimilarity
from coder_jax.training.system import Config, OptimizerConfig, RunConfig
from data_pipeline.batches.spec import BatchSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoderSystem(CoderLosses, EncoderSystem):
    """CODER: the total loss is L_MS + mu * L_MS^rel."""

    name: ClassVar[str] = "coder"
    title: ClassVar[str] = "CODER"
    paper: ClassVar[str] = "Yuan et al. 2022"
    content: ClassVar[type[RunWithEncoder]] = GroupRun

    batch: BatchSpec = dataclasses.field(default_factory=BatchSpec)
    mu: float = 1.0
    """Weight of the term-relation-term loss; 0 trains on synonyms alone."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        self.check_losses()


# -------------------------------------------------------------------------------------------------
# Recipes of CODER (Yuan et al. 2022): its encoders, and small machines.
#
# Each is a page of a lab book: the command, how long it takes where, what to expect, and for each
# value where it stands. What a recipe does not set is the default of `CoderSystem`, `BatchSpec`,
# `ModelConfig` and `OptimizerConfig`, which are those of CODER_ENG:
#
# | value | where it stands |
# |---|---|
# | 8 groups of 16 triplets x 8 names, k = 128; mu 1 | paper, 4.2 |
# | alpha 2, beta 50, lambda 0.5, epsilon 0.1, for both losses | paper, 4.2 |
# | rate 2e-5 after 10,000 steps, linear decay; 100K and 1M steps; at most 32 tokens | paper, 4.2 |
# | a step there is a micro-batch; every eighth is followed by an update | released code alone |
# | vector of a term: the last hidden state of [CLS] | paper, 3.2 |
# | AdamW's decay 0.01, its eps 1e-8, gradients clipped to norm 1 | released code alone |
# | matrices: from the identity with noise 0.01, at the encoder's rate, no decay | neither; ours |


def coder_eng() -> Config[CoderSystem]:
    """CODER_ENG of the paper: PubMedBERT, 12,500 steps of 8 groups of 128 pairs (16 x 8).

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG \\
            --tokenizer microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract --hold-out 2000 \\
            --keep-suppressed --out datasets/umls_eng
        bash launch/train.sh --recipe coder_eng --data datasets/umls_eng --out runs/coder_eng

    The paper's scores (acc@1, mean of the tokens): Cadec 59.77, PsyTar 53.92. Not trained to its
    end here yet; at the measured 33 ms a step (one H100) it takes 7 minutes. The steps of the
    papers are read as the released code counts them, in micro-batches, every eighth of which is
    followed by an update: 100,000 / 8 = 12,500 updates, 10,000 / 8 = 1,250 of them warm-up. If they
    are updates: --steps 100000 --warmup-steps 10000.
    """
    return Config(recipe="coder_eng", system=CoderSystem(), optimizer=_optimizer(100_000))


def _optimizer(papers_steps: int) -> OptimizerConfig:
    """That of the paper; it counts micro-batches, of which a step here has eight."""
    return OptimizerConfig(steps=papers_steps // 8, warmup_steps=10_000 // 8)


def coder_all() -> Config[CoderSystem]:
    """CODER_ALL of the paper: multilingual BERT, 125,000 steps, terms of eleven languages.

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG CZE FRE GER \\
            ITA JPN POR RUS SPA DUT CHI --tokenizer bert-base-multilingual-cased \\
            --hold-out 2000 --keep-suppressed --out datasets/umls_all
        bash launch/train.sh --recipe coder_all --data datasets/umls_all --out runs/coder_all

    As `coder_eng`, in the eleven languages that the paper names. Most rows join English terms, as
    in the paper; with --names languages the terms of a concept take turns by language. The
    paper's scores: Cadec 56.02, PsyTar 43.86. Its "1M steps" are 1,000,000 / 8 = 125,000 updates,
    read as for `coder_eng`. One week on one RTX 2080 Ti, which the first paper states for as many,
    fits that reading alone: it is 423 terms a second, some 7 TFLOP/s; 1,000,000 updates would be 55
    TFLOP/s, four times the card's float32 peak. If they are updates: --steps 1000000
    --warmup-steps 10000.
    """
    return Config(
        recipe="coder_all",
        system=CoderSystem(model=ModelConfig(init="bert-base-multilingual-cased")),
        optimizer=_optimizer(1_000_000),
    )


def small() -> Config[CoderSystem]:
    """An ontology with few names per concept, on a small machine: minutes, not days.

        bash launch/train.sh                                            # the demo: HPO, all of it
        bash launch/train.sh --recipe small --data DIR --out runs/small

    Six minutes on two CPU cores. acc@1 (the share of names whose nearest term is right) rises from
    45.3 to 65.0 on held-out synonyms of HPO; on 740 names of the open terminology openmeta, after
    250 steps, from 64.8 to 73.8, the mean of three seeds (docs/results/systems.md). All values that
    differ from the paper's were chosen here, on held-out terms.

    With two names per concept, eight repeats of a triplet are copies of the same strings, and most
    rows join concepts with one name, which teach nothing about synonyms. So concepts that have a
    synonym are drawn, all equally often, with two names each that share few word pieces; and the
    relation matrices, which start at the identity, learn faster than the encoder, or they would
    hardly move in a few hundred steps.
    """
    return Config(
        recipe="small",
        system=CoderSystem(
            model=ModelConfig(init="sentence-transformers/all-MiniLM-L6-v2"),
            batch=BatchSpec(
                draw="concepts",
                names="unlike",
                groups=1,
                triplets=64,
                repeats=2,
                row_length=32,  # a CPU computes attention between the terms of a row in vain
            ),
            relation_learning_rate_factor=6.7,
        ),
        # The better of two rates on held-out terms.
        optimizer=OptimizerConfig(steps=240, learning_rate=1.5e-4, warmup_steps=0.1),
        run=RunConfig(eval_steps=80, save_steps=80),
    )


def small_synonyms() -> Config[CoderSystem]:
    """`small` without relations: two names of each of 128 concepts, no concept twice.

    Six minutes on two CPU cores. On 740 held-out names of the open terminology openmeta acc@1 rises
    from 64.8 to 73.6 after 250 steps, the mean of three seeds, and to 81.6 after 4,000
    (docs/results/systems.md). The margin is 0.3, in the paper 0.1: after a few hundred steps that
    would leave out two of three pairs, as a group has only 127 other concepts. Margin and rate
    were chosen on held-out names (docs/results/ablations.md).
    """
    base = small()
    system = dataclasses.replace(
        base.system,
        batch=dataclasses.replace(base.system.batch, draw="synonyms", triplets=128, repeats=1),
        mu=0.0,
        term=MultiSimilarity(margin=0.3),
    )
    optimizer = dataclasses.replace(base.optimizer, learning_rate=3e-4)
    return dataclasses.replace(base, recipe="small_synonyms", system=system, optimizer=optimizer)


def small_all() -> Config[CoderSystem]:
    """`small_synonyms` for many languages: four names of each of 64 concepts, each in another one.

        python -m coder_jax extend-vocabulary --only-used --model intfloat/multilingual-e5-small \\
            --terms META/MRCONSO.RRF --out e5_medical
        python -m data_pipeline.build --source META --languages ENG FRE GER JPN \\
            --hold-out 300 --hold-out-languages ENG FRE GER JPN --tokenizer e5_medical --out all
        bash launch/train.sh --recipe small_all --data all --init e5_medical --out runs/all

    Two and a half hours of one core. From multilingual-e5-small, acc@1 of names of ten languages
    among English ones rises from 57.9 to 83.7. The rate is the better of two on held-out names,
    after 120 steps; higher ones were not tried (docs/results/languages.md).

    With new word pieces (`extend-vocabulary --pieces`), which begin with little to say, the rate
    1e-3 was better than 3e-4 after 250 steps, on held-out names of each language.
    """
    base = small_synonyms()
    return dataclasses.replace(
        base,
        recipe="small_all",
        system=dataclasses.replace(
            base.system,
            model=ModelConfig(init="intfloat/multilingual-e5-small", pooling="mean"),
            batch=dataclasses.replace(base.system.batch, names="languages", triplets=64, repeats=2),
        ),
        optimizer=OptimizerConfig(steps=2000, learning_rate=1e-4, warmup_steps=0.1),
        run=RunConfig(eval_steps=500, save_steps=500),
    )


def small_transe() -> Config[CoderSystem]:
    """`small` with CODER's TransE-like similarity.

    That is -|e_i + r - e_j|, with the constants of the paper's appendix A.5. The paper sets lambda
    to 28, about the norm when training begins, so that the exponents of the loss stay near 0. The
    similarity is the negative norm, so lambda is negative here. With MiniLM the norm is about 7
    (between the [CLS] vectors of heads and other heads' tails), so the constants are converted for
    vectors a fourth as long: the loss is the same.

    On 740 held-out names of the open terminology openmeta acc@1 rises from 64.8 to 72.0 after 250
    steps, with one seed (docs/results/ablations.md).
    """
    base, unit = small(), 7 / 28
    relation = MultiSimilarity(alpha=0.2 / unit, beta=5.0 / unit, base=-7.0, margin=0.1 * unit)
    system = dataclasses.replace(base.system, mu=0.1 / unit, score="translation", relation=relation)
    return dataclasses.replace(base, recipe="small_transe", system=system)
