"""What run.json of a system of groups holds, key by key: types for `json_files.typed`."""

from typing import Any, NotRequired, TypedDict

from data_pipeline.files.contents import (
    CarriedFrom,
    ConfigOfRun,
    Count,
    DataOfRun,
    Run,
    StartOfRun,
    SystemOfRun,
    TokenizerOfRun,
)


class EncoderOfRun(TypedDict):
    """What run.json says of the encoder that a run began with."""

    config: dict[str, Any]
    pooler: bool
    license: str | None
    run: NotRequired[CarriedFrom]


class ModelOfRun(TypedDict):
    """What others read of a run's `ModelConfig`."""

    pooling: str


class SystemOfGroups(SystemOfRun):
    """What others read of a run's `GroupSystem`."""

    model: ModelOfRun


class ConfigOfGroups(ConfigOfRun):
    """The configuration in run.json."""

    system: SystemOfGroups  # type: ignore[misc]


class StartOfGroups(StartOfRun):
    """What run.json says of a run's start."""

    encoder: EncoderOfRun
    relations: Count
    types: Count


class GroupRun(Run):
    """run.json of a system of groups."""

    config: ConfigOfGroups  # type: ignore[misc]
    dataset: DataOfRun  # type: ignore[misc]
    tokenizer: TokenizerOfRun  # type: ignore[misc]
    start: StartOfGroups  # type: ignore[misc]
