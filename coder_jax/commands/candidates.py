"""Find candidates: for each mention of a folder the concepts with the nearest names.

A ranker learns from them which candidate is right (`--recipe rank`). The generator is a run of the
recipe recall, its export, or any encoder, trained or not. The folder that is written holds the
mentions, too, so that a ranker needs no other; candidates.tsv in it is for people. The vectors of
the dictionary's names are kept on this machine for the next time.

A generator knows the mentions that it was trained on, and finds nearly all their concepts; a ranker
that learns from such lists never meets the mistakes that it has to mend later. --folds takes lists
out of fold instead: each training mention is answered by the run that was trained without it.

Examples:
  python -m coder_jax candidates --model runs/recall --data data/chip --out data/chip_lists
  bash launch/train.sh --recipe rank --data data/chip_lists --out runs/rank

  out of fold; after an interruption the same lines go on where they stopped:
  for fold in 1 2 3 4 5; do
    bash launch/train.sh --recipe recall --data data/chip --fold $fold/5 --out runs/recall_$fold
  done
  python -m coder_jax candidates --model runs/recall_[1-5] --folds --data data/chip \\
      --out data/chip_lists
"""

from __future__ import annotations

import argparse
from pathlib import Path

from coder_jax.commands.arguments import add_cache_argument
from data_pipeline.process import BadInput

COMMON = ("--model", "--data", "--out", "-k", "--folds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        required=True,
        action="extend",
        nargs="+",
        metavar="FOLDER_OR_HUB_ID",
        help="a run of the recipe recall, its export, or any encoder; several are averaged",
    )
    parser.add_argument(
        "--data",
        required=True,
        type=Path,
        metavar="MENTIONS",
        help="a folder of `python -m data_pipeline.build_mentions`",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="the folder to write: the mentions and their candidates",
    )
    parser.add_argument(
        "-k",
        type=int,
        default=10,
        metavar="CANDIDATES",
        help="candidates for each mention (default: %(default)s)",
    )
    parser.add_argument(
        "--folds",
        action="store_true",
        help="answer each training mention with the run that was trained without it; --model then "
        "names runs with different --fold, and all other mentions get the candidates of all runs",
    )
    add_cache_argument(parser)


def run(args: argparse.Namespace) -> int:
    from coder_jax.systems.recall_rank.folds import unseen_by, write_candidates
    from coder_jax.systems.trained_models import load_generators
    from data_pipeline.dataset.mentions import open_mentions

    if not 2 <= args.k <= 1000:
        raise BadInput(f"-k is {args.k}; expected 2 to 1000 candidates of each mention")
    data = open_mentions(args.data)
    by = unseen_by(args.model, data) if args.folds else None
    generators = load_generators(args.model)
    lines = write_candidates(generators, args.model, data, args.out, args.k, by, cache=args.cache)
    for line in lines:
        print(line)
    return 0
