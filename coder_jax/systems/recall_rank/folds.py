"""Candidates of a folder's mentions, each from generators that were not trained on the mention."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from coder_jax.encoding.vector_files import hash_of_encoder
from coder_jax.systems.recall_rank.candidates import Generator, GeneratorEnsemble
from coder_jax.systems.recall_rank.ranking import ranked
from coder_jax.systems.recall_rank.training import MentionRun, RecallSystem, dev_scores
from coder_jax.systems.recipes import system_of
from coder_jax.training.run_folder import (
    RunJson,
    read_run_identity,
    small_files,
    system_name,
    typed_run,
)
from data_pipeline.batches.mentions import folds_of, read_fold
from data_pipeline.dataset.mentions import (
    CANDIDATES,
    CANDIDATES_TABLE,
    CandidateLists,
    MentionDataset,
    MentionSplit,
)
from data_pipeline.files.identity import MENTIONS, write_identity
from data_pipeline.files.whole import whole_folder
from data_pipeline.process import BadInput, tell

# -------------------------------------------------------------------------------------------------
# Generators that were each trained without one fold, and which of them has not seen a mention.


def unseen_by(runs: Sequence[str], data: MentionDataset) -> np.ndarray:
    """int64 [M]: for each training mention the number of the run trained without it.

    Args:
        runs: folders of runs of the recipe recall, one without each fold, in any order.
        data: the mentions that they were trained on.

    Raises:
        BadInput: if one is no such run, has seen all mentions or others, or if together they do not
            leave out each fold once.
    """
    batches = []
    for run in runs:
        identity = _identity(run)
        saved = typed_run(identity, MentionRun, run)
        _check_data(run, saved, data)
        system = system_of(identity)
        assert isinstance(system, RecallSystem)
        batch = system.batch
        batches.append(batch)
        if not batch.fold:
            raise BadInput(
                f"--folds: {run} was trained on all mentions, those of its lists, too; expected "
                f"runs without a fold each, such as those of --fold 1/{max(2, len(runs))} and "
                "following"
            )
        if saved.start.is_another_run:
            tell(f"{run} began with another run: see that this one was trained without its fold")
    folds, seeds = [read_fold(batch.fold) for batch in batches], [batch.seed for batch in batches]
    found = ", ".join(
        f"{run} without {fold} of seed {seed}"
        for run, fold, seed in zip(runs, folds, seeds, strict=True)
    )
    of = folds[0].of
    if sorted(folds) != [(number, of) for number in range(1, of + 1)]:
        raise BadInput(
            f"--folds: found {found}; expected a run without each of {of} folds, 1/{of} to "
            f"{of}/{of}, once"
        )
    if len(set(seeds)) > 1:
        raise BadInput(
            f"--folds: found {found}; expected runs of one --seed, which divides the mentions into "
            "folds"
        )
    run_without = np.empty(of + 1, np.int64)
    run_without[[fold.number for fold in folds]] = np.arange(of)
    return run_without[folds_of(data.splits["train"].mentions.strings, of, seeds[0])]


def _identity(run: str) -> RunJson:
    found = system_name(run)
    if found != RecallSystem.name:
        what = "no run" if found is None else f"a run of the system {found!r}"
        raise BadInput(
            f"--folds: {run} is {what}; expected runs of the recipe recall, which say what they "
            "were trained without"
        )
    return read_run_identity(small_files(run))


def _check_data(run: str, saved: MentionRun, data: MentionDataset) -> None:
    theirs, ours = saved.dataset.content_hash, data.manifest.content_hash
    if theirs != ours:
        raise BadInput(
            f"--folds: {run} was trained on mentions of hash {theirs[:12]}, but {data.folder} has "
            f"those of hash {ours[:12]}; expected the folder that it was trained on"
        )


# -------------------------------------------------------------------------------------------------
# A folder of mentions with their candidates, on which a ranker is trained.

_HEADER = ("split", "mention", "rank", "name", "concept", "distance", "right", "number")


def write_candidates(
    generator: Generator,
    models: Sequence[str],
    data: MentionDataset,
    out: Path,
    k: int,
    unseen_by: np.ndarray | None = None,
    *,
    cache: bool = False,
) -> Iterator[str]:
    """Write a folder of mentions with candidates; returns lines for people.

    Args:
        generator: finds them.
        models: what it consists of, for the manifest.
        data: the mentions.
        out: the folder to write; an earlier one of the same kind is replaced.
        k: candidates of each mention.
        unseen_by: int [M], for each training mention which of an ensemble gives its candidates;
            None: all together, as for the mentions of the other splits.
        cache: keep the vectors of the names on this machine, and use those that are kept.

    Raises:
        BadInput: if `out` is something else.
    """
    if out.resolve() == data.folder.resolve():
        raise BadInput(f"--out {out} is the folder of the mentions; give another one")
    if out.exists() and any(out.iterdir()) and not (out / CANDIDATES).is_dir():
        raise BadInput(f"{out} is not empty and has no candidates; give a new or empty folder")
    names = generator.encode_names(data.names.strings, progress=True, cache=cache)
    members = generator.members if isinstance(generator, GeneratorEnsemble) else []
    with whole_folder(out) as new:
        shutil.copytree(data.folder, new, dirs_exist_ok=True)
        shutil.rmtree(new / CANDIDATES, ignore_errors=True)  # of mentions that had some
        made_by = {
            "models": list(models),
            "weights": [hash_of_encoder(one.encoder) for one in members],
            "k": k,
            "out of fold": unseen_by is not None,
        }
        manifest = dataclasses.replace(data.manifest, candidates=made_by)
        write_identity(new / MENTIONS.file, MENTIONS, manifest)
        with (new / CANDIDATES_TABLE).open("w", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(_HEADER) + "\n")
            for split, mentions in data.splits.items():
                strings = list(mentions.mentions.strings)
                by = unseen_by if split == "train" else None
                given = strings, names, data.name_concepts, k
                if by is not None and isinstance(generator, GeneratorEnsemble):
                    lists = generator.lists_by(by, *given)
                else:
                    lists = generator.lists(*given, progress=True)
                lists.write(new, split)
                file.writelines(_lines_of(split, strings, mentions, lists, data))
                scores = dev_scores(ranked(lists, data.name_concepts, None), mentions.gold_sets())
                seen = "" if by is None else ", each by the generator that has not seen it"
                yield f"{split}: {len(strings):,} mentions{seen}, " + ", ".join(
                    f"{score} {value:.4f}" for score, value in scores.items()
                )
    yield f"{k} candidates of each in {out}"


def _lines_of(
    split: str,
    strings: list[str],
    mentions: MentionSplit,
    lists: CandidateLists,
    data: MentionDataset,
) -> Iterator[str]:
    """The candidates of a split as lines of a table."""
    gold, numbers = mentions.gold_sets(), 1 + lists.numbers.argmax(axis=1)
    for row, string in enumerate(strings):
        for place in range(lists.names.shape[1]):
            name = int(lists.names[row, place])
            concept = int(data.name_concepts[name])
            fields = (
                *(split, string, place + 1, data.names.strings[name]),
                *(data.concepts[concept], np.format_float_positional(lists.distances[row, place])),
                *(int(concept in gold[row]), numbers[row]),
            )
            yield "\t".join(str(field).replace("\t", " ") for field in fields) + "\n"
