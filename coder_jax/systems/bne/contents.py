"""What run.json of BNE holds, key by key: types for `json_files.typed`."""

from typing import Literal, TypedDict

from data_pipeline.files.contents import DataOfRun, Hash, Run, StartOfRun, Width


class VectorsOfRun(TypedDict):
    """What run.json says of the vectors of words."""

    variant: Literal["words", "names", "names_concepts"]
    width: Width
    word_rules: Hash
    content_hash: Hash


class StartOfNames(StartOfRun):
    """What run.json says of a run's start."""

    alphabet: str
    width: Width


class NameRun(Run):
    """run.json of a run of BNE."""

    dataset: DataOfRun  # type: ignore[misc]
    vectors: VectorsOfRun  # type: ignore[misc]
    start: StartOfNames  # type: ignore[misc]
