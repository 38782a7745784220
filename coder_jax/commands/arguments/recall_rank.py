"""Arguments of recall and rank: generators, rankers, and how both become answers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coder_jax.commands.arguments.encoder import load_encoder
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.systems.recall_rank.prediction.candidates import GeneratorEnsemble
    from coder_jax.systems.recall_rank.prediction.recall_and_rank import Choice


def add_ranker_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """The arguments of recall and rank.

    Args:
        parser: gets them.
        several: whether several fusions may be asked for.
    """
    ranker = parser.add_argument_group("recall and rank")
    ranker.add_argument(
        "--ranker",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="rank the candidates of --model by a run of the recipe rank, or its export; of "
        "several the mean counts",
    )
    ranker.add_argument(
        "--fusion",
        nargs="+" if several else 1,
        choices=("mean", "recall", "rank"),
        default=["mean"],
        help="what orders candidates: the mean of both scores, or one of them (default: mean)"
        + ("; a row for each that is given" if several else ""),
    )
    ranker.add_argument(
        "--recall-score",
        choices=("sum", "max"),
        default="sum",
        help="the generator's score of a distance d: 1 - d / the sum of those of all candidates "
        "(the paper, default), or of the largest (its code)",
    )
    ranker.add_argument(
        "--fourth-above",
        type=float,
        default=0.8,
        metavar="SCORE",
        help="with a ranker, where three concepts or more are predicted, those after the third "
        "count, too, if they score above this (default: %(default)s, as in the paper)",
    )


def ranker_choices(args: argparse.Namespace) -> list[Choice]:
    """How recall and rank become answers, as the command line says: for each fusion."""
    from coder_jax.systems.recall_rank.prediction.recall_and_rank import Choice

    return [
        Choice(fusion=fusion, form=args.recall_score, threshold=args.fourth_above)
        for fusion in dict.fromkeys(args.fusion)
    ]


def generators_of(args: argparse.Namespace, pooling: str | None) -> GeneratorEnsemble:
    """The generators, or encoders as such, that --model names.

    Raises:
        BadInput: as `load_generators`; settings for a run, which stay as it was trained.
    """
    from coder_jax.systems.recall_rank.prediction.models import load_generators

    return load_generators(args.models, [encoder_of(args, one, pooling) for one in args.models])


def encoder_of(args: argparse.Namespace, model: str, pooling: str | None) -> TermEncoder | None:
    """As `load_encoder`, for one of the models; None for a run, which has its own."""
    from coder_jax.runs.files import is_run

    if not is_run(model):
        return load_encoder(argparse.Namespace(**{**vars(args), "model": model}), pooling)
    settings = {"pooling": pooling, "cleaning": args.cleaning, "max-length": args.max_length}
    given = [name for name, value in settings.items() if value is not None]
    if given:
        raise BadInput(
            f"--{given[0]}: {model} is a run, which encodes as it was trained; export it to "
            "encode in another way"
        )
    return None


def check_one_model(models: Sequence[str], why: str) -> None:
    """BadInput for several models where one is to answer, as `why` says."""
    if len(models) > 1:
        raise BadInput(
            f"--model: found {' and '.join(models)}, which answer together as generators of "
            f"candidates, but {why}; expected one model"
        )
