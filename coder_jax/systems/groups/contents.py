"""What run.json holds of a run of a system of groups, key by key."""

from typing import Any, NotRequired, TypedDict

from data_pipeline.files.contents import (
    CarriedFrom,
    Count,
    DataOfRun,
    Run,
    StartOfRun,
    TokenizerOfRun,
)


class EncoderOfRun(TypedDict):
    """What run.json says of the encoder that a run began with."""

    config: dict[str, Any]
    pooler: bool
    license: str | None
    run: NotRequired[CarriedFrom]


class StartOfGroups(StartOfRun):
    """What run.json says of a run's start."""

    encoder: EncoderOfRun
    relations: Count
    types: Count


class GroupRun(Run):
    """run.json of a system of groups."""

    dataset: DataOfRun  # type: ignore[misc]
    tokenizer: TokenizerOfRun  # type: ignore[misc]
    start: StartOfGroups  # type: ignore[misc]
