"""The recipes: configurations of the papers, of their ablations, and for a small machine.

Each changes only what differs from the defaults in config.py, which are those of CODER_ENG.
"""

import dataclasses

from coder_jax.systems.coder.objective import CoderLoss
from coder_jax.systems.coder_v1.objective import CoderV1Loss
from coder_jax.systems.groups.group import MultiSimilarity
from coder_jax.training.config import Config, ModelConfig, OptimizerConfig, RunConfig
from data_pipeline.batches.spec import BatchSpec


def coder_eng() -> Config:
    """CODER_ENG of the paper: PubMedBERT, 100,000 steps of 8 groups of 128 triplets."""
    return Config()


def coder_all() -> Config:
    """CODER_ALL of the paper: multilingual BERT, 1,000,000 steps, terms of all languages."""
    return Config(
        recipe="coder_all",
        model=ModelConfig(init="bert-base-multilingual-cased"),
        optimizer=OptimizerConfig(steps=1_000_000),
        run=RunConfig(save_steps=100_000),
    )


def coder_eng_no_relations() -> Config:
    """CODER_ENG's ablation without the relation similarity (table 5)."""
    return dataclasses.replace(coder_eng(), recipe="coder_eng_no_relations", loss=CoderLoss(mu=0.0))


def coder_eng_transe() -> Config:
    """CODER_ENG's ablation with a TransE-like similarity (table 5, appendix A.5)."""
    return dataclasses.replace(coder_eng(), recipe="coder_eng_transe", loss=transe_like(28.0))


def transe_like(distance: float) -> CoderLoss:
    """CODER with the similarity -|e_i + r - e_j| and the constants of appendix A.5.

    The appendix sets lambda to 28, what the norm is about at first, so that exponents stay near 0;
    the similarity is the norm's negative, hence -28.

    Args:
        distance: between terms of the initial encoder; the constants are in its units, so that the
            loss is the same for an encoder whose vectors are all shorter.
    """
    unit = distance / 28
    relation = MultiSimilarity(alpha=0.2 / unit, beta=5.0 / unit, base=-distance, margin=0.1 * unit)
    return CoderLoss(mu=0.1 / unit, score="translation", relation=relation)


def coder_v1_eng() -> Config:
    """CODER v1, English: BioBERT, 1,000,000 steps, TransE with corrupted tails (MS+REL)."""
    # The paper has 256 terms in a batch: 10 triplets of 8 terms for head, tail and corrupted tail.
    return Config(
        recipe="coder_v1_eng",
        model=ModelConfig(init="dmis-lab/biobert-v1.1"),
        batch=BatchSpec(triplets=10, corrupted_tails=True),
        loss=CoderV1Loss(),
        optimizer=OptimizerConfig(steps=1_000_000),
        run=RunConfig(save_steps=100_000),
    )


def coder_v1_all() -> Config:
    """CODER v1 of all languages: multilingual BERT."""
    return dataclasses.replace(
        coder_v1_eng(),
        recipe="coder_v1_all",
        model=ModelConfig(init="bert-base-multilingual-cased"),
    )


def _v1_ablation(name: str, loss: CoderV1Loss) -> Config:
    """CODER v1 with another loss on the same terms, those of the corrupted tails too."""
    v1 = coder_v1_eng()
    batch = dataclasses.replace(v1.batch, semantic_types=loss.type_weight > 0)
    return dataclasses.replace(v1, recipe=name, batch=batch, loss=loss)


def coder_v1_eng_types() -> Config:
    """CODER v1's ablation MS+REL+STY (table 6): semantic types are learnt, too."""
    return _v1_ablation("coder_v1_eng_types", CoderV1Loss(type_weight=0.1))


def coder_v1_eng_types_no_relations() -> Config:
    """CODER v1's ablation MS+STY (table 6)."""
    return _v1_ablation("coder_v1_eng_types_no_relations", CoderV1Loss(mu=0.0, type_weight=0.1))


def coder_v1_eng_no_relations() -> Config:
    """CODER v1's ablation MS (table 6)."""
    return _v1_ablation("coder_v1_eng_no_relations", CoderV1Loss(mu=0.0))


def small() -> Config:
    """An ontology with few names per concept, on a small machine: minutes, not days.

    With two names per concept, eight repeats of a triplet are copies of the same strings, and most
    rows join concepts with one name, which teach nothing about synonyms. So concepts that have a
    synonym are drawn, all equally often, with two names each that share few word pieces; and the
    relation matrices, which start at the identity, learn faster than the encoder, or they would
    hardly move in a few hundred steps.
    """
    return Config(
        recipe="small",
        model=ModelConfig(init="sentence-transformers/all-MiniLM-L6-v2"),
        batch=BatchSpec(
            draw="concepts",
            names="unlike",
            groups=1,
            triplets=64,
            repeats=2,
            row_length=32,  # a CPU computes attention between the terms of a row in vain
        ),
        optimizer=OptimizerConfig(
            # The better of two on held-out terms: benchmarks/README.md, Ablations.
            steps=240,
            learning_rate=1.5e-4,
            warmup_steps=24,
            relation_learning_rate_factor=6.7,
        ),
        run=RunConfig(eval_steps=80, save_steps=80),
    )


def small_synonyms() -> Config:
    """`small` without relations: two names of each of 128 concepts, no concept twice.

    At the end of a few hundred steps the paper's margin leaves out two of three pairs, as the few
    other concepts of a group are no nearer; a dictionary has more, so the margin is wider.
    """
    base = small()
    return dataclasses.replace(
        base,
        recipe="small_synonyms",
        batch=dataclasses.replace(base.batch, draw="synonyms", triplets=128, repeats=1),
        loss=CoderLoss(mu=0.0, term=MultiSimilarity(margin=0.3)),
        # This and the margin are among the best tried: benchmarks/README.md, Ablations.
        optimizer=dataclasses.replace(base.optimizer, learning_rate=3e-4),
    )


def small_transe() -> Config:
    """`small` with CODER's TransE-like similarity."""
    # 7: between the [CLS] vectors of heads and other heads' tails, with MiniLM.
    return dataclasses.replace(small(), recipe="small_transe", loss=transe_like(7.0))


def small_v1() -> Config:
    """`small` with the loss of CODER v1, on about as many terms."""
    batch = dataclasses.replace(small().batch, triplets=42, corrupted_tails=True)
    return dataclasses.replace(small(), recipe="small_v1", batch=batch, loss=CoderV1Loss())


RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        coder_eng,
        coder_eng_no_relations,
        coder_eng_transe,
        coder_all,
        coder_v1_eng,
        coder_v1_eng_types,
        coder_v1_eng_types_no_relations,
        coder_v1_eng_no_relations,
        coder_v1_all,
        small,
        small_synonyms,
        small_transe,
        small_v1,
    )
}
