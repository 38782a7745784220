"""Generators and rankers of a folder: a run, an export, or, as a generator, any encoder."""

from __future__ import annotations

from pathlib import Path

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.runs.files import is_run, small_files
from coder_jax.runs.folder import read_identity
from coder_jax.systems.finished_run import load_run
from coder_jax.systems.recall_rank.generator import RecallSystem
from coder_jax.systems.recall_rank.prediction.candidates import CandidateGenerator
from coder_jax.systems.recall_rank.prediction.export import (
    is_generator,
    is_ranker,
    read_generator,
    read_ranker,
)
from coder_jax.systems.recall_rank.prediction.term_ranker import TermRanker
from coder_jax.systems.recall_rank.ranker import RankSystem
from data_pipeline.process.errors import BadInput


def system_name(path: str | Path) -> str | None:
    """The name of the system of a run; None for what is no run."""
    if not is_run(path):
        return None
    name: str = read_identity(small_files(path))["config"]["system"]["name"]
    return name


def load_generator(path: str | Path) -> CandidateGenerator:
    """The generator of a run of `recall`, of its export, or of any encoder.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    if (found := system_name(path)) is not None:
        system, run = load_run(Path(path))
        trained = system.trained(run)
        if found == RankSystem.name:
            raise BadInput(f"{path} is a ranker; expected a generator or an encoder")
        if isinstance(system, RecallSystem):
            return CandidateGenerator(trained.encoder, trained.tables["number"])
        return CandidateGenerator(trained.encoder)
    if is_ranker(path):
        raise BadInput(f"{path} is a ranker; expected a generator or an encoder")
    encoder = TermEncoder.from_pretrained(path)
    return (
        read_generator(Path(path), encoder) if is_generator(path) else CandidateGenerator(encoder)
    )


def load_ranker(path: str | Path) -> TermRanker:
    """The ranker of a run of `rank`, or of its export.

    Raises:
        BadInput: if there is none in `path`, or its files cannot be read.
    """
    if (found := system_name(path)) == RankSystem.name:
        system, run = load_run(Path(path))
        ranker: TermRanker = system.trained(run).tables["ranker"]
        return ranker
    if found is not None or not is_ranker(path):
        what = f"a run of the system {found!r}" if found else "no ranker"
        raise BadInput(f"{path}: found {what}; expected a run of the recipe rank, or its export")
    return read_ranker(Path(path))
