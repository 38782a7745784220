"""What run.json of a system with an encoder holds, key by key: types for `json_files.typed`."""

from typing import Any, NotRequired, TypedDict

from data_pipeline.files.contents import (
    CarriedFrom,
    ConfigOfRun,
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
    weights_hash: NotRequired[str]  # of its parameters; absent if it is that of another run
    run: NotRequired[CarriedFrom]


class ModelOfRun(TypedDict):
    """What others read of a run's `ModelConfig`."""

    pooling: str


class SystemOfEncoder(SystemOfRun):
    """What others read of a run's `EncoderSystem`."""

    model: ModelOfRun


class ConfigOfEncoder(ConfigOfRun):
    """The configuration in run.json."""

    system: SystemOfEncoder  # type: ignore[misc]


class StartOfEncoder(StartOfRun):
    """What run.json says of a run's start."""

    encoder: EncoderOfRun


class RunWithEncoder(Run):
    """run.json of a system that trains an encoder, on data of any kind."""

    config: ConfigOfEncoder  # type: ignore[misc]
    tokenizer: TokenizerOfRun  # type: ignore[misc]
    start: StartOfEncoder  # type: ignore[misc]


class EncoderRun(RunWithEncoder):
    """run.json of a system that trains an encoder on a dataset."""

    dataset: DataOfRun
