"""Which concepts share a name: strings that an encoder cannot tell apart, of two concepts."""

import numpy as np

from data_pipeline.batches.draws.shuffles import mix
from data_pipeline.dataset.store import TripletDataset

TERMS_AT_ONCE = 1 << 20


class SharedNames:
    """The pairs of concepts that have a name in common, by its word pieces.

    Args:
        dataset: the opened dataset.
    """

    def __init__(self, dataset: TripletDataset):
        self.concepts = dataset.term_start.size - 1
        names = name_hashes(dataset.tokens, dataset.token_start)
        owner = np.repeat(np.arange(self.concepts), np.diff(dataset.term_start))
        order = np.lexsort((owner, names))
        names, owner = names[order], owner[order]
        pairs = [np.zeros(0, np.int64)]
        # Each name's owners are neighbours now: pairs of one a place after the other, two, ...
        places = np.arange(len(names))
        for distance in range(1, len(names)):
            places = places[places + distance < len(names)]
            places = places[names[places] == names[places + distance]]
            if not places.size:
                break
            one, other = owner[places], owner[places + distance]
            one, other = one[one != other], other[one != other]
            pairs += [one * self.concepts + other, other * self.concepts + one]
        self.pairs = np.unique(np.concatenate(pairs))

    def __call__(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """bool: whether two different concepts share a name; the arguments broadcast."""
        asked = np.asarray(one, np.int64) * self.concepts + other
        if not self.pairs.size:
            return np.zeros(asked.shape, bool)
        place = np.minimum(np.searchsorted(self.pairs, asked), self.pairs.size - 1)
        return self.pairs[place] == asked


def name_hashes(tokens: np.ndarray, start: np.ndarray) -> np.ndarray:
    """uint64 [N]: a hash of each term's tokens, none of which is empty."""
    hashes = np.empty(len(start) - 1, np.uint64)
    for first in range(0, len(hashes), TERMS_AT_ONCE):
        bounds = start[first : first + TERMS_AT_ONCE + 1]
        within = np.arange(bounds[0], bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
        token = np.asarray(tokens[bounds[0] : bounds[-1]], np.uint64)
        mixed = mix(token << np.uint64(32) | within.astype(np.uint64))
        hashes[first : first + TERMS_AT_ONCE] = np.add.reduceat(mixed, bounds[:-1] - bounds[0])
    return hashes
