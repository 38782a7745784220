"""Term pairs in, their cosines and Spearman's rank correlation with human scores out.

For benchmarks such as UMNSRS and MayoSRS; and pairs of synonyms and of random terms to look at.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from coder_jax.evaluation.benchmarks import SimilarityBenchmark
from coder_jax.evaluation.dictionary import CONCEPT_SEPARATOR, Dictionary
from data_pipeline.errors import BadInput


@dataclass(frozen=True)
class SimilarityResult:
    """Spearman's rho between cosines and human scores, tied values at their mean rank.

    `scores` is {"spearman": rho}; rho is None where all cosines are equal: there are no ranks.
    """

    pairs: int
    scores: dict[str, float | None]


def score_similarity(cosines: np.ndarray, human_scores: np.ndarray) -> SimilarityResult:
    """Spearman's rank correlation of float [n] and float [n]; BadInput for a cosine not finite."""
    cosines, human_scores = np.asarray(cosines), np.asarray(human_scores)
    if cosines.shape != human_scores.shape or cosines.ndim != 1 or len(cosines) < 2:
        raise ValueError(
            f"found cosines of shape {cosines.shape} and human scores of shape "
            f"{human_scores.shape}; expected two lists of the same length, 2 or more"
        )
    if not np.isfinite(cosines).all():
        raise BadInput(
            f"found {int((~np.isfinite(cosines)).sum())} similarities of {len(cosines)} that are "
            "NaN or infinite; expected finite numbers: check the weights"
        )
    if (cosines == cosines[0]).all():
        return SimilarityResult(len(cosines), {"spearman": None})
    rho = scipy.stats.spearmanr(cosines, human_scores).statistic
    return SimilarityResult(len(cosines), {"spearman": float(rho)})


def evaluate_similarity(
    encode: Callable[[list[str]], np.ndarray], benchmark: SimilarityBenchmark
) -> SimilarityResult:
    """Scores an encoder on term pairs; each distinct string is encoded once.

    Args:
      encode: strings -> float32 [n, D], for instance `TermEncoder.encode`.
      benchmark: from `benchmarks.read_benchmark`.
    """
    cosines = pair_cosines(encode, benchmark.first, benchmark.second)
    return score_similarity(cosines, np.array(benchmark.scores))


def pair_cosines(
    encode: Callable[[list[str]], np.ndarray], first: Sequence[str], second: Sequence[str]
) -> np.ndarray:
    """Cosine of first[i] and second[i], float64 [n]; each distinct string is encoded once."""
    strings = list(dict.fromkeys([*first, *second]))
    row_of = {string: row for row, string in enumerate(strings)}
    vectors = np.asarray(encode(strings), dtype=np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(lengths > 0, lengths, 1)
    first_rows, second_rows = ([row_of[term] for term in side] for side in (first, second))
    return np.sum(vectors[first_rows] * vectors[second_rows], axis=1)


def sample_pairs(
    dictionary: Dictionary, count: int, seed: int = 0
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Draws synonym pairs and random pairs of a dictionary, to look at their cosines.

    Args:
      dictionary: terms and concepts.
      count: pairs of each kind; fewer synonym pairs where fewer concepts have two terms.
      seed: of the draw.

    Returns:
      (pairs of two terms of one concept, at most one for each concept; as many pairs of terms
      that have no concept in common, or fewer where these are rare).

    Raises:
      BadInput: no concept has two terms, or there are not two concepts.
    """
    terms_of: dict[str, set[str]] = {}
    concepts_of: dict[str, set[str]] = {}
    for term, joined in zip(dictionary.terms, dictionary.concepts, strict=True):
        for concept in joined.split(CONCEPT_SEPARATOR):
            terms_of.setdefault(concept, set()).add(term)
            concepts_of.setdefault(term, set()).add(concept)
    with_synonyms = sorted(concept for concept, terms in terms_of.items() if len(terms) > 1)
    if not with_synonyms or len(terms_of) < 2:
        raise BadInput(
            f"{dictionary.source}: found {len(with_synonyms)} concepts with two terms among "
            f"{len(terms_of)} concepts; expected at least 1 among 2 to draw pairs"
        )
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(len(with_synonyms))[:count]
    synonyms = [
        tuple(generator.permutation(sorted(terms_of[with_synonyms[index]]))[:2].tolist())
        for index in chosen
    ]
    terms = sorted(concepts_of)
    random_pairs: list[tuple[str, str]] = []
    for _ in range(100 * len(synonyms)):
        if len(random_pairs) == len(synonyms):
            break
        first, second = (terms[index] for index in generator.integers(len(terms), size=2))
        if concepts_of[first].isdisjoint(concepts_of[second]):
            random_pairs.append((first, second))
    return synonyms, random_pairs
