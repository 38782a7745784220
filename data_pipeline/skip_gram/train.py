"""Skip-grams with negative sampling, by gensim (Mikolov et al. 2013; Rehurek and Sojka 2010)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import Progress, progress_bar
from data_pipeline.skip_gram.options import Settings

LEAST_RATE = 1e-4  # of learning, at the end: gensim's


def train(
    corpus: Path, counts: Mapping[str, int], settings: Settings
) -> tuple[list[str], np.ndarray]:
    """Vectors of the tokens that were seen often enough.

    Args:
      corpus: a sequence in each line, tokens with a blank between them.
      counts: how often the text has each token. A text may come in several sequences, so that the
        corpus has tokens more often; what is rare is decided by these counts.
      settings: with one worker, the same arguments give the same vectors to the bit on the same
        machine.

    Returns:
      the tokens, the most frequent first, and their input vectors, float32 [tokens, size].

    Raises:
      BadInput: if no token was seen often enough.
    """
    from gensim.models import Word2Vec
    from gensim.models.callbacks import CallbackAny2Vec
    from gensim.utils import RULE_DISCARD, RULE_KEEP

    if not any(count >= settings.min_count for count in counts.values()):
        raise BadInput(
            f"--min-count {settings.min_count}: the text has no word so often, the most frequent "
            f"{max(counts.values(), default=0)} times; give more text, or a smaller --min-count"
        )

    class Epochs(CallbackAny2Vec):
        """Asks after each epoch whether to stop."""

        def on_epoch_end(self, _: object) -> None:
            stopping.poll()

    def keep_rare_out(token: str, *_: int) -> int:
        return RULE_KEEP if counts.get(token, 0) >= settings.min_count else RULE_DISCARD

    with progress_bar(total=100 * settings.epochs, desc="skip-grams", unit="%") as bar, _told(bar):
        model = Word2Vec(
            corpus_file=str(corpus),
            sg=1,
            hs=0,
            vector_size=settings.size,
            window=settings.window,
            negative=settings.negatives,
            min_count=1,
            trim_rule=keep_rare_out,
            epochs=settings.epochs,
            alpha=settings.rate,
            min_alpha=LEAST_RATE,
            sample=settings.sample,
            seed=settings.seed,
            workers=settings.workers,
            callbacks=(Epochs(),),
        )
        bar.update(100 * settings.epochs - bar.n)
    tokens = sorted(model.wv.key_to_index, key=lambda token: (-counts[token], token))
    rows = [model.wv.key_to_index[token] for token in tokens]
    return tokens, np.asarray(model.wv.vectors, np.float32)[rows]


@contextmanager
def _told(bar: Progress) -> Iterator[None]:
    """Within, what gensim tells its log of its progress moves a bar, and nothing else is said."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            form = str(record.msg)
            if form.startswith("EPOCH %i - PROGRESS") and isinstance(record.args, tuple):
                epoch, percent = (float(str(value)) for value in record.args[:2])
                bar.update(max(0, int(100 * epoch + percent) - bar.n))

    logger, listener = logging.getLogger("gensim"), Listener(logging.INFO)
    before = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(before[0])
        logger.propagate = before[1]
