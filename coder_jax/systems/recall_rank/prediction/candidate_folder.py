"""A folder of mentions with their candidates: what a ranker is trained on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from coder_jax.encoding.encoder_protocol import hash_of_encoder
from coder_jax.systems.recall_rank.dev_scores import dev_scores
from coder_jax.systems.recall_rank.prediction.candidates import GeneratorEnsemble
from coder_jax.systems.recall_rank.prediction.recall_and_rank import ranked
from data_pipeline.dataset.mentions.candidates import CANDIDATES, TABLE, CandidateLists
from data_pipeline.dataset.mentions.store import MentionDataset, MentionSplit
from data_pipeline.files.identity import MENTIONS, write_identity
from data_pipeline.files.whole_files import whole_folder
from data_pipeline.process.errors import BadInput

HEADER = ("split", "mention", "rank", "name", "concept", "distance", "right", "number")


def write_candidates(
    generators: GeneratorEnsemble,
    models: Sequence[str],
    data: MentionDataset,
    out: Path,
    k: int,
    unseen_by: np.ndarray | None = None,
    *,
    cache: bool = False,
) -> Iterator[str]:
    """Write a folder of mentions and candidates; lines for people come back.

    Args:
        generators: find them.
        models: what they are called, for the manifest.
        data: the mentions.
        out: the folder to write; an earlier one of the same kind is replaced.
        k: candidates of each mention.
        unseen_by: int [M], for each training mention the generator whose candidates it gets; None:
            those of all together, as the mentions of the other splits.
        cache: keep the vectors of the names on this machine, and use those that are kept.

    Raises:
        BadInput: if `out` is something else.
    """
    if out.resolve() == data.folder.resolve():
        raise BadInput(f"--out {out} is the folder of the mentions; give another one")
    if out.exists() and any(out.iterdir()) and not (out / CANDIDATES).is_dir():
        raise BadInput(f"{out} is not empty and has no candidates; give a new or empty folder")
    names = generators.encode_names(data.names.strings, progress=True, cache=cache)
    with whole_folder(out) as new:
        shutil.copytree(data.folder, new, dirs_exist_ok=True)
        shutil.rmtree(new / CANDIDATES, ignore_errors=True)  # of mentions that had some
        made_by = {
            "models": list(models),
            "weights": [hash_of_encoder(one.encoder) for one in generators.members],
            "k": k,
            "out of fold": unseen_by is not None,
        }
        manifest = {**data.manifest, "candidates": made_by}
        write_identity(new / MENTIONS.file, MENTIONS, manifest)
        with (new / TABLE).open("w", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(HEADER) + "\n")
            for split, mentions in data.splits.items():
                strings = list(mentions.mentions.strings)
                by = unseen_by if split == "train" else None
                lists = generators.lists_by(by, strings, names, data.name_concepts, k)
                lists.write(new, split)
                file.writelines(lines_of(split, strings, mentions, lists, data))
                scores = dev_scores(ranked(lists, data.name_concepts, None), mentions.gold_sets())
                seen = "" if by is None else ", each by the generator that has not seen it"
                yield f"{split}: {len(strings):,} mentions{seen}, " + ", ".join(
                    f"{score} {value:.4f}" for score, value in scores.items()
                )
    yield f"{k} candidates of each in {out}"


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
