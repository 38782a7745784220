"""HTML files that need neither network nor other files: how one is filled, and how it is written.

Strings of users and terminologies reach a page in three ways only: escaped by Jinja; in pictures,
escaped by a writer of XML (`svg.py`); or as data, where no term can end a script or begin an
element: JSON in which <, > and & are written as \\u003c and so on (Jinja's `tojson`), or base64. A
content security policy lets nothing run but the page's own script, by its hash, and lets nothing be
fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

COLOURS = "coder_jax.report.page"  # where the colours of all pages are, light and dark


def fill(package: str, template: str, style: str, scripts: Sequence[str], **values: Any) -> str:
    """A page as HTML.

    Args:
      package: where the files are.
      template: it has the places style, script, script_hash, and those of `values`.
      style: comes after the colours.
      scripts: become one script, in this order.
      values: what the template shows.
    """
    environment = Environment(
        loader=PackageLoader(package, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    script = "".join(_text(package, name) for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=_text(COLOURS, "colours.css") + _text(package, style),
        script=script,
        script_hash=f"sha256-{digest}",
        **values,
    )


def _text(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def write_html(page: str, out: Path, option: str = "--out") -> int:
    """Writes a page to `out`, whole or not at all; its bytes. BadInput where that cannot be."""
    content = page.encode()
    try:
        with written_whole(out) as unfinished:
            unfinished.write_bytes(content)
    except OSError as error:
        raise BadInput(
            f"{out}: cannot be written ({error.strerror}); give another {option}"
        ) from error
    return len(content)
