"""Find candidates: for each mention of a folder the concepts with the nearest names.

A ranker learns from them which candidate is right (`--recipe rank`). The generator is a run of the
recipe recall, its export, or any encoder, trained or not. `--model tf-idf` takes none: it finds the
names with the most similar characters, as the paper's baseline does, and one concept for each
mention. The folder that is written holds the mentions, too, so that a ranker needs no other;
candidates.tsv in it is for people. The vectors of the dictionary's names are kept on this machine
for the next time.

A generator knows the mentions that it was trained on, and finds nearly all their concepts; a ranker
that learns from such lists never meets the mistakes that it has to mend later. --folds takes lists
out of fold instead: each training mention is answered by the run that was trained without it.

Examples:
  python -m coder_jax candidates --model runs/recall --data data/chip --out data/chip_lists
  bash launch/train.sh --recipe rank --data data/chip_lists --out runs/rank

  without a generator:
  python -m coder_jax candidates --model tf-idf --data data/chip --out data/chip_tf_idf

  out of fold; after an interruption the same lines go on where they stopped:
  for fold in 1 2 3 4 5; do
    bash launch/train.sh --recipe recall --data data/chip --fold $fold/5 --out runs/recall_$fold
  done
  python -m coder_jax candidates --model runs/recall_[1-5] --folds --data data/chip \\
      --out data/chip_lists
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from coder_jax.commands.arguments import MODEL, CacheOptions
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput

COMMON = ("--model", "--data", "--out", "-k", "--folds")


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(CacheOptions):
    """The options of `candidates`."""

    models: Annotated[
        tuple[str, ...],
        Flag(
            "a run of the recipe recall, its export, or any encoder; several are averaged. tf-idf: "
            "names with similar characters, without a model",
            MODEL,
            name="--model",
        ),
    ]
    data: Annotated[Path, Flag("a folder of `python -m data_pipeline.build_mentions`", "MENTIONS")]
    out: Annotated[Path, Flag("the folder to write: the mentions and their candidates", "DIR")]
    k: Annotated[int, Flag("candidates for each mention", "CANDIDATES", name="-k")] = 10
    folds: Annotated[
        bool,
        Flag(
            "answer each training mention with the run that was trained without it; --model then "
            "names runs with different --fold, and all other mentions get the candidates of all "
            "runs"
        ),
    ] = False


OPTIONS = CandidateOptions


def run(options: CandidateOptions) -> int:
    from coder_jax.systems.recall_rank.folds import unseen_by, write_candidates
    from coder_jax.systems.trained_models import load_generators
    from data_pipeline.dataset.mentions import open_mentions

    if not 2 <= options.k <= 1000:
        raise BadInput(f"-k is {options.k}; expected 2 to 1000 candidates of each mention")
    data = open_mentions(options.data)
    by = unseen_by(options.models, data) if options.folds else None
    generator = load_generators(options.models)
    lines = write_candidates(
        generator, options.models, data, options.out, options.k, by, cache=not options.no_cache
    )
    for line in lines:
        print(line)
    return 0
