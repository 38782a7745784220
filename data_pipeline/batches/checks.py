"""What settings have to fulfil, of all kinds of batches and of the systems that take them."""

from typing import Any

from data_pipeline.process.errors import BadInput


def check_least(settings: Any, least: float, *names: str) -> None:
    """BadInput if one of these settings is less."""
    for name in names:
        if getattr(settings, name) < least:
            raise BadInput(f"{name} is {getattr(settings, name)}; it must be at least {least}")


def check_rate(settings: Any, *names: str) -> None:
    """BadInput if one of these settings is no rate of what is left out."""
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            raise BadInput(
                f"{name} is {getattr(settings, name)}; it must be at least 0 and less than 1"
            )


def check_divides(spec: Any, what: str) -> None:
    """BadInput if so many of a step do not divide evenly into its groups."""
    if getattr(spec, what) % spec.groups:
        raise BadInput(
            f"{getattr(spec, what)} {what} do not divide evenly into {spec.groups} parts; use a "
            f"number of groups that divides the {what}"
        )
