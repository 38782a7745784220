"""CODER (Yuan et al. 2022): its objective, its recipes, and the start of its relation matrices."""

import dataclasses
from typing import ClassVar, Literal

import jax

from coder_jax.systems.encoder_system import ModelConfig
from coder_jax.systems.group_system import (
    Group,
    MultiSimilarity,
    RelationSystem,
    cosine,
    distance,
    multi_similarity_loss,
    term_loss,
)
from coder_jax.training.system import Config, OptimizerConfig, Part, RunConfig
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# CODER: MS-loss on term-term and on term-relation-term pairs (Yuan et al. 2022, section 3.3).


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoderSystem(RelationSystem):
    """CODER: the total loss is L_MS + mu * L_MS^rel."""

    name: ClassVar[str] = "coder"
    title: ClassVar[str] = "CODER"
    paper: ClassVar[str] = "Yuan et al. 2022"

    mu: float = 1.0
    """Weight of the term-relation-term loss; 0 trains on synonyms alone."""
    score: Literal["bilinear", "translation"] = "bilinear"
    """Similarity of term, relation, term: cos(M_r^T e_i, e_j), or, in the paper's ablation,
    -|e_i + r - e_j|, which needs other constants than a cosine."""
    term: MultiSimilarity = dataclasses.field(default_factory=MultiSimilarity)
    relation: MultiSimilarity = dataclasses.field(default_factory=MultiSimilarity)
    relation_update: Literal["lazy", "dense"] = "lazy"
    """Which relation matrices a step rewrites: those that it uses, which then make up for the steps
    that they missed, or all; the same but for rounding."""

    def validate(self, optimizer: OptimizerConfig) -> None:
        super().validate(optimizer)
        if self.relation_update == "lazy" and optimizer.b1**2 >= optimizer.b2:
            raise BadInput(
                f"b1 is {optimizer.b1} and b2 is {optimizer.b2}: the lazy update of relation "
                "matrices needs b1 < sqrt(b2); use --relation-update dense"
            )
        if self.batch.corrupted_tails:
            raise BadInput(
                "--corrupted-tails is for CODER v1 alone; give --no-corrupted-tails, or --recipe "
                "coder_v1_eng"
            )

    def head_parts(self) -> dict[str, Part]:
        return {"relations": self.relation_part(lazy=self.relation_update == "lazy")}

    def group_loss(self, group: Group) -> tuple[jax.Array, dict[str, jax.Array]]:
        return group_loss(group, self)


def group_loss(group: Group, loss: CoderSystem) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss of one group of k pairs, N = 2k.

    Returns:
        (total, metrics): `loss_term`, `loss_relation`, and the mined pairs per anchor of each.
    """
    total, metrics = term_loss(group, loss.term)
    if loss.mu and group.queries is not None:
        pairs = group.queries.shape[0]
        tails_kD, tail_concepts = group.vectors[pairs:], group.concepts[pairs:]
        # The paper's stand-in for 'the triplet (h_i, r_i, t_j) is in the graph': t_j is t_i.
        reached_kk = tail_concepts[:, None] == tail_concepts[None, :]
        if loss.score == "bilinear":
            similarity_kk = cosine(group.queries, tails_kD)
        else:
            similarity_kk = -distance(group.queries, tails_kD)
        relation_loss, mined = multi_similarity_loss(
            similarity_kk,
            reached_kk,
            group.negatives[pairs:, pairs:],
            group.related,
            **dataclasses.asdict(loss.relation),
        )
        total = total + loss.mu * relation_loss
        metrics |= {
            "loss_relation": relation_loss,
            "mined_relation_positives": mined["positives"],
            "mined_relation_negatives": mined["negatives"],
        }
    return total, metrics


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
# | rate 2e-5, warm-up 10,000 steps, linear decay; 100,000 steps; at most 32 tokens | paper, 4.2 |
# | vector of a term: the last hidden state of [CLS] | paper, 3.2 |
# | AdamW's decay 0.01, its eps 1e-8, gradients clipped to norm 1 | released code alone |
# | matrices: from the identity with noise 0.01, at the encoder's rate, no decay | neither; ours |


def coder_eng() -> Config[CoderSystem]:
    """CODER_ENG of the paper: PubMedBERT, 100,000 steps of 8 groups of 128 triplets.

        python -m data_pipeline.build --source umls-2020AA-full.zip --languages ENG \\
            --tokenizer microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract --hold-out 2000 \\
            --out datasets/umls_eng
        bash launch/train.sh --recipe coder_eng --data datasets/umls_eng --out runs/coder_eng

    The paper's scores (acc@1, mean of the tokens): Cadec 59.77, PsyTar 53.92. Not trained to its
    end here yet; the goal is an hour on one H200. "100K steps" is read as 100,000 updates, since
    10,000 of them are warm-up; as the released code counts, micro-batches, it would be 12,500.
    """
    return Config(recipe="coder_eng", system=CoderSystem())


def coder_all() -> Config[CoderSystem]:
    """CODER_ALL of the paper: multilingual BERT, 125,000 steps, terms of all languages.

    As `coder_eng`, on a dataset that was built without --languages. Most rows join English terms
    then, as in the paper; with --names languages the terms of a concept take turns by language. The
    paper's scores: Cadec 56.02, PsyTar 43.86. Its "1M steps" are read as the released code counts,
    micro-batches of which every eighth is followed by an update: 125,000 updates. One week on one
    RTX 2080 Ti, which the first paper states for as many, fits that reading alone: it is 423 terms
    a second, some 7 TFLOP/s; 1,000,000 updates would be 55 TFLOP/s, four times the card's float32
    peak.
    """
    return Config(
        recipe="coder_all",
        system=CoderSystem(model=ModelConfig(init="bert-base-multilingual-cased")),
        optimizer=OptimizerConfig(steps=125_000),
    )


def transe_like(system: CoderSystem, distance: float) -> CoderSystem:
    """CODER with the similarity -|e_i + r - e_j| and the constants of appendix A.5.

    The appendix sets lambda to 28, what the norm is about at first, so that exponents stay near 0;
    the similarity is the norm's negative, hence -28.

    Args:
        system: whose other values stay.
        distance: between terms of the initial encoder; the constants are in its units, so that the
            loss is the same for an encoder whose vectors are all shorter.
    """
    unit = distance / 28
    relation = MultiSimilarity(alpha=0.2 / unit, beta=5.0 / unit, base=-distance, margin=0.1 * unit)
    return dataclasses.replace(system, mu=0.1 / unit, score="translation", relation=relation)


def small() -> Config[CoderSystem]:
    """An ontology with few names per concept, on a small machine: minutes, not days.

        bash launch/train.sh                                            # the demo: HPO, all of it
        bash launch/train.sh --recipe small --data DIR --out runs/small

    Six minutes on two CPU cores; acc@1 of held-out synonyms of HPO from 45.3 to 64.9, of names that
    an open terminology of 303,000 concepts had lost from 64.8 to 74.0 (benchmarks/README.md,
    Ablations). All values that differ from the paper's were chosen here, on held-out terms.

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
        optimizer=OptimizerConfig(steps=240, learning_rate=1.5e-4, warmup_steps=24),
        run=RunConfig(eval_steps=80, save_steps=80),
    )


def small_synonyms() -> Config[CoderSystem]:
    """`small` without relations: two names of each of 128 concepts, no concept twice.

    acc@1 of names that an open terminology had lost from 64.8 to 72.7, in six minutes on two CPU
    cores. At the end of a few hundred steps the paper's margin leaves out two of three pairs, as
    the few other concepts of a group are no nearer; a dictionary has more, so the margin is wider.
    This and the rate are among the best tried (benchmarks/README.md, Ablations).
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

        python -m coder_jax extend-vocabulary --model sentence-transformers/all-MiniLM-L6-v2 \\
            --terms META/MRCONSO.RRF --languages FRE,GER,JPN --pieces 12000 --out minilm_all
        python -m data_pipeline.build --source META --languages ENG FRE GER JPN \\
            --hold-out 300 --hold-out-languages ENG FRE GER JPN --tokenizer minilm_all --out all
        bash launch/train.sh --recipe small_all --data all --init minilm_all --out runs/all

    Of names in ten languages, among English terms alone, 71 of 100 are found after an hour on one
    core (de 44 to pt 88, ja 72, zh 69), where MiniLM finds 19; patients' words and relatedness
    lose (benchmarks/README.md, Ablations).

    An encoder whose vocabulary reads the languages already, such as XLM-R, needs no new pieces, but
    is many times as large. New pieces begin with little to say, hence the rate: after 250 steps it
    was better than a third of it, on held-out names of each language.
    """
    base = small_synonyms()
    batch = dataclasses.replace(base.system.batch, names="languages", triplets=64, repeats=2)
    return dataclasses.replace(
        base,
        recipe="small_all",
        system=dataclasses.replace(base.system, batch=batch),
        optimizer=OptimizerConfig(steps=2000, learning_rate=1e-3, warmup_steps=200),
        run=RunConfig(eval_steps=500, save_steps=500),
    )


def small_transe() -> Config[CoderSystem]:
    """`small` with CODER's TransE-like similarity.

    acc@1 of names that an open terminology had lost from 64.8 to 72.0.
    """
    # 7: between the [CLS] vectors of heads and other heads' tails, with MiniLM.
    base = small()
    return dataclasses.replace(base, recipe="small_transe", system=transe_like(base.system, 7.0))
