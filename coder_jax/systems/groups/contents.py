"""What run.json of a system of groups holds beside what that of any encoder does."""

from coder_jax.systems.encoders.contents import EncoderRun, StartOfEncoder
from data_pipeline.files.contents import Count


class StartOfGroups(StartOfEncoder):
    """What run.json says of a run's start."""

    relations: Count
    types: Count


class GroupRun(EncoderRun):
    """run.json of a system of groups."""

    start: StartOfGroups  # type: ignore[misc]
