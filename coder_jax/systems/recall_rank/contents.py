"""What run.json of a generator or a ranker holds, key by key: types for `json_files.typed`."""

from typing import TypedDict

from coder_jax.systems.encoders.contents import RunWithEncoder
from data_pipeline.files.contents import Count, Hash


class MentionsOfRun(TypedDict):
    """What run.json says of the mentions and their dictionary."""

    name: str
    release: str
    cleaning: str
    counts: dict[str, Count]
    content_hash: Hash


class MentionRun(RunWithEncoder):
    """run.json of a system that learns from mentions."""

    dataset: MentionsOfRun
