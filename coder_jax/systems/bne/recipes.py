"""Recipes of BNE (Phan, Sun and Tay 2019), and the released code's way.

Each is a page of a lab book: the command, how long it takes where, what to expect, and for each
value where it stands. What a recipe does not set is the default of `BneSystem`, `NameModel` and
`NameSpec`:

| value | where it stands |
|---|---|
| characters 50, both BiLSTMs 200, names 200 (as wide as the vectors of words) | paper, 4 |
| last pooling of characters, max over words, W h + b | paper, 3.2 |
| l(x) = log(1 + exp(-x)) on raw dot products; the three losses added up | paper, 3.2, equation 6 |
| concepts and names as their own tokens, or as means of words: as the vectors have them | paper, \
3.2, "Choices" |
| one positive and one negative pair per name and loss, 64 pairs a step | paper, 4; that 64 are \
pairs: our reading |
| the negative is the hardest other name of the step | our reading of "sampled from a mini-batch, \
similar to" Wieting 2015, who take that; any other: --negatives random |
| each concept once an epoch, with two of its names | our reading; the paper does not say |
| words around a name `<s>`, `</s>`, stop words and marks left out, 32 characters of a word, \
dropout on the words' representations | released code alone |
| Adam 1e-3, gradients clipped at 5.0, dropout 0.5 | paper, 4; that it is the global norm, and the \
constant rate: released code |
| steps | the paper stops by a dev score, the code never |
"""

import dataclasses
from typing import Any

from coder_jax.systems.bne.objective import BneSystem, NameModel
from coder_jax.training.config import Config, OptimizerConfig, RunConfig

ADAM = OptimizerConfig(
    steps=5_000,
    learning_rate=1e-3,
    warmup_steps=0,
    schedule="constant",
    weight_decay=0.0,
    clip_norm=5.0,
)


def bne() -> Config[BneSystem]:
    """BNE: names from words and characters, by synonyms, concepts and contexts.

        python -m data_pipeline.skip_gram --text texts.jsonl.gz --variant words --out vectors/sgw
        python -m data_pipeline.build --source umls --semantic-groups DISO --languages ENG \\
            --tokenizer bert-base-uncased --hold-out-concepts 1000 --out data/diseases
        bash launch/train.sh --recipe bne --data data/diseases --init vectors/sgw --out runs/bne

    With vectors of `--variant words` it is BNE + SG_W of the paper, with `names_concepts` BNE +
    SG_S.C; the names of a dataset are read as strings, whatever its tokenizer. In the paper, on 16
    thousand concepts and vectors of 29 million abstracts: NCBI disease .854 / .857 accuracy without
    training on it, UMNSRS similarity .606 / .637 (tables 3 and 4). Some ten epochs of 31 thousand
    concepts; minutes to an hour on two cores.
    """
    return recipe("bne")


def bne_small() -> Config[BneSystem]:
    """`bne` for some million words of text: 1,500 steps of 128 pairs.

        python -m launch.names --recipes bne_small --epochs 20 --data data/diseases \\
            --text abstracts.jsonl.gz --benchmark ncbi=NCBItestset_corpus.txt \\
            --dictionary CTD_diseases.tsv --out runs/names

    Six epochs of 31 thousand concepts, 12 to 17 minutes on one CPU core. With vectors of 6.5
    million words, means of three seeds: 75.1 % of NCBI disease's and 75.8 % of BC5CDR's test
    mentions of diseases among 76,237 names, where means of the same vectors find 61.2 and 59.0 %,
    words in common 72.1 and 72.5 %. 3,000 steps: 76.5 and 74.7 %. benchmarks/README.md has all.
    """
    config = recipe("bne_small")
    batch = dataclasses.replace(config.system.batch, pairs=128)
    optimizer = dataclasses.replace(config.optimizer, steps=1_500)
    system = dataclasses.replace(config.system, batch=batch)
    return dataclasses.replace(config, system=system, optimizer=optimizer)


def bne_released() -> Config[BneSystem]:
    """BNE as the released code and checkpoints have it, where they differ from the paper.

    Coupled gates with a learned start, tanh of the projection, a learned scale of the synonyms' dot
    products: with 81 characters and 200 numbers a vector exactly 1,350,002 trained parameters. The
    code of its training was never released. The command is that of `bne`.
    """
    model = NameModel(cell="coupled", projection="tanh")
    return recipe("bne_released", model=model, learned_scale=True)


def recipe(name: str, **changes: Any) -> Config[BneSystem]:
    """A recipe with changes of the system."""
    run = RunConfig(log_steps=50, save_steps=1_000)
    return Config(recipe=name, system=BneSystem(**changes), optimizer=ADAM, run=run)
