"""What the settings of all kinds of batches have to fulfil."""

from typing import Any

from data_pipeline.process.errors import BadInput


def check_least(settings: Any, least: float, *names: str) -> None:
    """BadInput if one of these settings is less."""
    for name in names:
        if getattr(settings, name) < least:
            raise BadInput(f"{name} is {getattr(settings, name)}; it must be at least {least}")


def check_divides(spec: Any, what: str) -> None:
    """BadInput if so many of a step do not divide evenly into its groups."""
    if getattr(spec, what) % spec.groups:
        raise BadInput(
            f"{getattr(spec, what)} {what} do not divide evenly into {spec.groups} parts; use a "
            f"number of groups that divides the {what}"
        )
