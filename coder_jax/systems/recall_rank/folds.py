"""Generators that were each trained without one fold: which one has not seen a mention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coder_jax.runs.files import small_files
from coder_jax.runs.folder import read_identity, system_name
from coder_jax.systems.encoders.trained import of_another_run
from coder_jax.systems.recall_rank.contents import MentionRun
from coder_jax.systems.recall_rank.generator import RecallSystem
from data_pipeline.batches.mentions.folds import folds_of, read_fold
from data_pipeline.dataset.mentions.store import MentionDataset
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell


def unseen_by(runs: Sequence[str], data: MentionDataset) -> np.ndarray:
    """int64 [M]: for each training mention the number of the run that was trained without it.

    Args:
        runs: folders of runs of the recipe recall, one without each fold, in any order.
        data: the mentions that they were trained on.

    Raises:
        BadInput: if one is no such run, has seen all mentions or others, or if together they do not
            leave out each fold once.
    """
    identities = [_identity(run) for run in runs]
    batches = [one["config"]["system"]["batch"] for one in identities]
    for run, identity, batch in zip(runs, identities, batches, strict=True):
        _check_data(run, identity, data)
        if not batch["fold"]:
            raise BadInput(
                f"--folds: {run} was trained on all mentions, those of its lists, too; expected "
                f"runs without a fold each, such as those of --fold 1/{max(2, len(runs))} and "
                "following"
            )
        if of_another_run(identity["start"]):
            tell(f"{run} began with another run: see that this one was trained without its fold")
    folds, seeds = [read_fold(batch["fold"]) for batch in batches], [b["seed"] for b in batches]
    told = ", ".join(
        f"{run} without {fold} of seed {seed}"
        for run, fold, seed in zip(runs, folds, seeds, strict=True)
    )
    of = folds[0].of
    if sorted(folds) != [(number, of) for number in range(1, of + 1)]:
        raise BadInput(
            f"--folds: found {told}; expected a run without each of {of} folds, 1/{of} to "
            f"{of}/{of}, once"
        )
    if len(set(seeds)) > 1:
        raise BadInput(
            f"--folds: found {told}; expected runs of one --seed, which divides the mentions into "
            "folds"
        )
    run_without = np.empty(of + 1, np.int64)
    run_without[[fold.number for fold in folds]] = np.arange(of)
    return run_without[folds_of(data.splits["train"].mentions.strings, of, seeds[0])]


def _identity(run: str) -> Mapping[str, Any]:
    found = system_name(run)
    if found != RecallSystem.name:
        what = "no run" if found is None else f"a run of the system {found!r}"
        raise BadInput(
            f"--folds: {run} is {what}; expected runs of the recipe recall, which say what they "
            "were trained without"
        )
    return read_identity(small_files(run), MentionRun)


def _check_data(run: str, identity: Mapping[str, Any], data: MentionDataset) -> None:
    theirs, ours = identity["dataset"]["content_hash"], data.manifest["content_hash"]
    if theirs != ours:
        raise BadInput(
            f"--folds: {run} was trained on mentions of hash {theirs[:12]}, but {data.folder} has "
            f"those of hash {ours[:12]}; expected the folder that it was trained on"
        )
