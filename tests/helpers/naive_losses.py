"""The multi-similarity loss as the paper writes it, pair by pair: what ours must equal."""

import math

import numpy as np


def naive(similarity, positive, negative, anchors=None, *, alpha, beta, base, margin):
    """The formulas of CODER, section 3.3, pair by pair."""
    rows = range(len(similarity)) if anchors is None else np.flatnonzero(anchors)
    total, kept_positives, kept_negatives = 0.0, 0, 0
    for i in rows:
        positives = [similarity[i][j] for j in np.flatnonzero(positive[i])]
        negatives = [similarity[i][j] for j in np.flatnonzero(negative[i])]
        kept = [s for s in positives if negatives and s < max(negatives) + margin]
        hard = [s for s in negatives if positives and s > min(positives) - margin]
        total += math.log1p(sum(math.exp(-alpha * (s - base)) for s in kept)) / alpha
        total += math.log1p(sum(math.exp(beta * (s - base)) for s in hard)) / beta
        kept_positives += len(kept)
        kept_negatives += len(hard)
    count = max(len(rows), 1)
    return total / count, kept_positives / count, kept_negatives / count
