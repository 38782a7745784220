"""The closing report of a build of mentions: a manifest in, a readable table out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def closing_report(manifest: Mapping[str, Any], out: Path) -> str:
    """What was read, what was odd in it, and how the strings became tokens."""
    rows = [(name, f"{count:,}") for name, count in manifest["counts"].items() if count]
    width = max(len(name) for name, _ in rows)
    title = f"{manifest['name']} {manifest['release']}".strip() + f": {out}"
    lines = [f"{name:<{width}}  {count:>9}" for name, count in rows]
    notes = [f"note: {warning}" for warning in manifest["warnings"]]
    return "\n".join([title, "-" * len(title), *lines, *notes])
