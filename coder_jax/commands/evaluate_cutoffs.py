"""`evaluate --cutoffs FILE`: measures when `normalize` may trust the nearest concept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from coder_jax.commands.arguments.encoder import load_encoder
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.evaluation.benchmark import Benchmark
    from coder_jax.evaluation.normalization.benchmark import NormalizationFold


def folds_to_measure(benchmarks: Sequence[Benchmark]) -> list[NormalizationFold]:
    """The mentions of all benchmarks of normalization, in the one dictionary that they share.

    Raises:
      BadInput: no such benchmark, or several dictionaries.
    """
    from coder_jax.evaluation.normalization.benchmark import NormalizationBenchmark

    folds = [
        fold for one in benchmarks if isinstance(one, NormalizationBenchmark) for fold in one.folds
    ]
    dictionaries = {id(fold.dictionary): fold.dictionary.source for fold in folds}
    if len(dictionaries) != 1:
        found = " and ".join(dictionaries.values()) or "no benchmark of mentions"
        raise BadInput(
            f"--cutoffs: found {found}; expected mentions that are looked up in one dictionary, "
            "the one that normalize will search"
        )
    return folds


def write_cutoffs(args: argparse.Namespace, folds: Sequence[NormalizationFold]) -> None:
    """Measures with the encoder of the command line what `normalize` answers to mentions.

    Args:
      args: of `evaluate`: the encoder, --cutoffs and --candidates.
      folds: of `folds_to_measure`.
    """
    from data_pipeline.terminology.cleaning.rules import lookup_rules

    # As `normalize` has them, whatever the terms were cleaned by for the scores.
    as_looked_up = argparse.Namespace(**vars(args))
    as_looked_up.cleaning = lookup_rules(folds[0].dictionary.terms)
    encoder = load_encoder(as_looked_up, args.pooling[0] if args.pooling else None)
    measure(encoder, args.model, folds, args.cutoffs, kind=args.candidates, cache=args.cache)


def measure(
    encoder: TermEncoder,
    model: str,
    folds: Sequence[NormalizationFold],
    out: Path,
    *,
    kind: str = "both",
    cache: bool = True,
) -> None:
    """Measures what `normalize` answers to mentions with an encoder, and writes it.

    Args:
      encoder: of mentions and dictionary.
      model: its name, for the file.
      folds: with one dictionary.
      out: the file, cutoffs.json.
      kind: of candidates.
      cache: whether the vectors of the dictionary are kept.
    """
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.measure import measured_cutoffs
    from coder_jax.mapping.normalizer import Normalizer

    dictionary = folds[0].dictionary
    encoded = encoder.encode_dictionary(dictionary, progress=True, cache=cache)
    normalizer = Normalizer(dictionary, Candidates(encoder, encoded, kind))
    mentions = list(chain.from_iterable(fold.mentions for fold in folds))
    gold = list(chain.from_iterable(fold.gold for fold in folds))
    languages = [
        language for fold in folds for language in fold.languages or [""] * len(fold.mentions)
    ]
    about = {"model": str(model), "dictionary": dictionary.description}
    tell(f"cut-offs for normalize, on {len(mentions):,} mentions in {dictionary.source}")
    measured_cutoffs(normalizer, mentions, gold, languages, about, tell).write(out)
    tell(f"cut-offs: {out}")
