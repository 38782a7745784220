"""A folder of mentions with their candidates: what a ranker is trained on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from coder_jax.encoding.encoder_protocol import hash_weights
from coder_jax.systems.recall_rank.dev_scores import dev_scores
from coder_jax.systems.recall_rank.prediction.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.prediction.recall_and_rank import ranked
from data_pipeline.dataset.mentions.candidates import CANDIDATES, TABLE, CandidateLists
from data_pipeline.dataset.mentions.store import MentionDataset, MentionSplit
from data_pipeline.files.identity import MENTIONS, write_identity
from data_pipeline.files.whole_files import whole_folder
from data_pipeline.process.errors import BadInput

HEADER = ("split", "mention", "rank", "name", "concept", "distance", "right", "number")


def write_candidates(
    generator: CandidateGenerator, name: str, data: MentionDataset, out: Path, k: int
) -> Iterator[str]:
    """Write a folder of mentions and candidates; lines for people come back.

    Args:
        generator: finds them.
        name: of the generator, for the manifest.
        data: the mentions.
        out: the folder to write; an earlier one of the same kind is replaced.
        k: candidates of each mention.

    Raises:
        BadInput: if `out` is something else, or the generator has another tokenizer.
    """
    if out.resolve() == data.folder.resolve():
        raise BadInput(f"--out {out} is the folder of the mentions; give another one")
    if out.exists() and any(out.iterdir()) and not (out / CANDIDATES).is_dir():
        raise BadInput(f"{out} is not empty and has no candidates; give a new or empty folder")
    names = generator.encode(data.names.strings, progress=True)
    with whole_folder(out) as new:
        shutil.copytree(data.folder, new, dirs_exist_ok=True)
        shutil.rmtree(new / CANDIDATES, ignore_errors=True)  # of mentions that had some
        made_by = {"model": name, "weights": weights_of(generator), "k": k}
        manifest = {**data.manifest, "candidates": made_by}
        write_identity(new / MENTIONS.file, MENTIONS, manifest)
        with (new / TABLE).open("w", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(HEADER) + "\n")
            for split, mentions in data.splits.items():
                strings = list(mentions.mentions.strings)
                lists = generator.lists(strings, names, data.name_concepts, k, progress=True)
                lists.write(new, split)
                file.writelines(lines_of(split, strings, mentions, lists, data))
                scores = dev_scores(ranked(lists, data.name_concepts, None), mentions.gold_sets())
                yield f"{split}: {len(strings):,} mentions, " + ", ".join(
                    f"{score} {value:.4f}" for score, value in scores.items()
                )
    yield f"{k} candidates of each in {out}"


def weights_of(generator: CandidateGenerator) -> str | None:
    """SHA-256 of the generator's weight files; None for a run."""
    folder = generator.encoder.folder
    return None if folder is None else hash_weights(folder)


def lines_of(
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
