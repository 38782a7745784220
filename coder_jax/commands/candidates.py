"""Find candidates: for each mention of a folder the concepts with the nearest names.

A ranker learns from them which candidate is right (`--recipe rank`). The generator is a run of the
recipe recall, its export, or any encoder, trained or not. The folder that is written holds the
mentions, too, so that a ranker needs no other; candidates.tsv in it is for people.

Examples:
  python -m coder_jax candidates --model runs/recall --data data/chip --out data/chip_lists
  bash launch/train.sh --recipe rank --data data/chip_lists --out runs/rank
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        required=True,
        metavar="FOLDER_OR_HUB_ID",
        help="a run of the recipe recall, its export, or any encoder",
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
        help="of each mention (default: %(default)s, as in the paper)",
    )


def run(args: argparse.Namespace) -> int:
    from coder_jax.systems.recall_rank.prediction.candidate_folder import write_candidates
    from coder_jax.systems.recall_rank.prediction.models import load_generator
    from data_pipeline.dataset.mentions.store import open_mentions
    from data_pipeline.process.errors import BadInput

    if not 2 <= args.k <= 1000:
        raise BadInput(f"-k is {args.k}; expected 2 to 1000 candidates of each mention")
    data = open_mentions(args.data)
    for line in write_candidates(load_generator(args.model), args.model, data, args.out, args.k):
        print(line)
    return 0
