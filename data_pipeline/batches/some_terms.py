"""Some terms of the data, by which a run proves what leaves it."""

from pathlib import Path

import numpy as np

from data_pipeline.dataset.tokenize_terms import load_tokenizer

TERMS = 16


def spread(count: int) -> np.ndarray:
    """int64: numbers of so many things at most TERMS, the first, the last and between them."""
    return np.unique(np.linspace(0, count - 1, min(TERMS, count)).astype(np.int64))


def decoded(folder: Path, tokens: np.ndarray, start: np.ndarray) -> list[str]:
    """Some terms as what their tokens say.

    Args:
        folder: of the data; `tokenizer` lies in it.
        tokens, start: term i is tokens[start[i] : start[i + 1]].
    """
    tokenizer = load_tokenizer(folder / "tokenizer")
    chosen = [tokens[start[i] : start[i + 1]].tolist() for i in spread(len(start) - 1)]
    return list(map(tokenizer.decode, chosen))
