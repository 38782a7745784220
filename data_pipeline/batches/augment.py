"""Names as people write them in the place of some of a batch's names (`--augment`)."""

import numpy as np
import polars as pl

from data_pipeline.batches.order import below, key
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.dataset.store import TripletDataset
from data_pipeline.dataset.tokenizer import load_tokenizer, tokenize
from data_pipeline.terminology.cleaning import clean
from data_pipeline.terminology.rewrites import Rewriter

_REWRITTEN = 2  # a part of the keys of rewritten names, which no other key has
_PARTS = 1 << 20  # into which a share is divided


class RewrittenNames:
    """Rewrites a share of the names of any groups; which, and how, depends on seed and place alone.

    A name is chosen by its place in the run: its group's number and its place in the group. It is
    rewritten (`terminology.rewrites`), cleaned as the dataset is, and tokenized anew, which takes
    some 0.1 ms a name.

    Args:
        dataset: opened with its strings.
        spec: with the share and the seed.
    """

    def __init__(self, dataset: TripletDataset, spec: BatchSpec):
        assert dataset.terms is not None, "opened with strings=True"
        manifest = dataset.manifest
        self.names, self.spec = dataset.terms, spec
        self.languages = [manifest.languages[code] for code in dataset.term_language.tolist()]
        concepts = np.repeat(np.arange(dataset.term_start.size - 1), np.diff(dataset.term_start))
        self.rewriter = Rewriter(self.names, concepts, self.languages)
        self.cleaning, self.longest = manifest.cleaning, manifest.tokenizer.max_length
        self.tokenizer = load_tokenizer(dataset.folder / "tokenizer")

    def __call__(
        self, bounds: np.ndarray, tokens: np.ndarray, terms: np.ndarray, groups: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of some groups' names, of which a share is rewritten.

        Args:
            bounds: int64 [G * N + 1], where names begin in `tokens`.
            tokens: of all names as they are.
            terms: int64 [G, N], the names.
            groups: int64 [G], the number of each group in the whole run.

        Returns:
            (bounds, tokens), as they came in.
        """
        place = groups[:, None] * terms.shape[1] + np.arange(terms.shape[1])
        random = key(self.spec.seed, "permutation", place.ravel(), _REWRITTEN)
        rows = np.flatnonzero(below(random, _PARTS) < self.spec.augment * _PARTS)
        chosen = terms.ravel()[rows].tolist()
        written, _ = self.rewriter(
            [self.names[term] for term in chosen],
            [self.languages[term] for term in chosen],
            key(self.spec.seed, "permutation", place.ravel()[rows], _REWRITTEN, _REWRITTEN),
        )
        cleaned = clean(pl.Series(written, dtype=pl.String), self.cleaning).to_list()
        # A name of which cleaning leaves nothing stays as it was.
        kept = [row for row, name in enumerate(cleaned) if name]
        rows = rows[kept]
        new, start = tokenize(self.tokenizer, [cleaned[row] for row in kept], self.longest)
        lengths = np.diff(bounds)
        old = np.repeat(~np.isin(np.arange(lengths.size), rows), lengths)
        lengths[rows] = np.diff(start)
        found = np.concatenate([[0], np.cumsum(lengths)])
        is_new = np.zeros(lengths.size, bool)
        is_new[rows] = True
        is_new = np.repeat(is_new, lengths)
        joined = np.empty(found[-1], tokens.dtype)
        joined[is_new], joined[~is_new] = new, tokens[old]
        return found, joined
