"""Normalization scores by a loop over every order of tied concepts; a benchmark of given folds."""

import itertools

import numpy as np

from coder_jax.evaluation.normalization import Mentions, NormalizationFold, evaluate_normalization
from data_pipeline.dataset.dictionary import Dictionary


def naive_scores(mentions, gold, dictionary, concepts, ks, tolerance=1e-6):
    """Every order of the tied concepts is written out and scored."""
    names = list(dict.fromkeys(c for joined in concepts for c in joined.split("|")))
    kinds = {"": np.mean, "_optimistic": np.max, "_pessimistic": np.min}
    total = {
        f"{metric}{kind}": [] for metric in (*(f"acc@{k}" for k in ks), "mrr") for kind in kinds
    }
    unreachable = tied_mentions = 0
    for vector, joined in zip(mentions.astype(np.float64), gold, strict=True):
        cosine = dictionary.astype(np.float64) @ vector
        cosine /= np.linalg.norm(dictionary, axis=1) * np.linalg.norm(vector)
        nearest = {
            name: max(cosine[row] for row, c in enumerate(concepts) if name in c.split("|"))
            for name in names
        }
        golds = set(joined.split("|")) & set(names)
        if not golds:
            unreachable += 1
            for values in total.values():
                values.append(0.0)
            continue
        best = max(nearest[name] for name in golds)
        others = [name for name in names if name not in golds]
        ahead = sum(nearest[name] > best + tolerance for name in others)
        tie = [name for name in names if abs(nearest[name] - best) <= tolerance]
        tied_mentions += any(name not in golds for name in tie)
        ranks = np.array(
            [
                ahead + 1 + next(i for i, name in enumerate(order) if name in golds)
                for order in itertools.permutations(tie)
            ]
        )
        for kind, reduce in kinds.items():
            for k in ks:
                total[f"acc@{k}{kind}"].append(reduce(ranks <= k))
            total[f"mrr{kind}"].append(reduce(1 / ranks))
    return {name: np.mean(values) for name, values in total.items()}, unreachable, tied_mentions


def benchmark_of(*folds):
    return Mentions("toy", "toy", list(folds), "hash")


def score(mentions, gold, dictionary, concepts, ks=(1, 3, 5), **settings):
    """What the evaluation says of vectors that are there, of mentions and of terms."""
    terms = [f"term {row}" for row in range(len(dictionary))]
    names = [f"mention {row}" for row in range(len(mentions))]
    vector_of = dict(zip([*terms, *names], [*dictionary, *mentions], strict=True))
    fold = NormalizationFold("", names, gold, Dictionary(terms, concepts, "toy"))
    return evaluate_normalization(
        lambda strings: np.stack([vector_of[string] for string in strings]),
        benchmark_of(fold),
        ks=ks,
        **settings,
    )
