"""The JSON files that say what a thing is: a dataset, mentions, batches, skip-grams, a run,
an encoder, vectors, scores, cut-offs.

Each is an object whose "format" is "coder_jax NAME VERSION"; the rest is what must be the same for
two such things to be the same. This module is the one place where they are written, read and
compared, and where their formats are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipeline.files import contents
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput


@dataclass(frozen=True)
class Kind:
    """What a file describes, and who writes it.

    Attributes:
      name, version: of the format; the version grows when older files can no longer be read.
      file: its name in the folder that it describes, "" where it has none of its own.
      command: what writes it.
      content: what each such file has beside its format, a type for `json_files.typed`.
    """

    name: str
    version: int
    file: str
    command: str
    content: Any

    @property
    def format(self) -> str:
        return f"coder_jax {self.name} {self.version}"


DATASET = Kind(
    *("triplets", 3, "manifest.json", "python -m data_pipeline.build", contents.Manifest)
)
BATCHES = Kind(
    *("batches", 1, "batches.json", "python -m data_pipeline.batch_files", contents.Batches)
)
MENTIONS = Kind(
    *("mentions", 1, "manifest.json", "python -m data_pipeline.build_mentions", contents.Mentions)
)
SKIP_GRAMS = Kind(
    *("skip_grams", 1, "manifest.json", "python -m data_pipeline.skip_gram", contents.SkipGrams)
)
RUN = Kind(*("run", 3, "run.json", "python -m coder_jax train", contents.Run))
ENCODER = Kind(*("encoder", 1, "coder_jax.json", "python -m coder_jax export", contents.Encoder))
VECTORS = Kind(*("vectors", 1, "", "python -m coder_jax encode", contents.Vectors))
EVALUATION = Kind(
    *("evaluation", 2, "", "python -m coder_jax evaluate --json", contents.Evaluation)
)
CUTOFFS = Kind(
    *("cutoffs", 1, "cutoffs.json", "python -m coder_jax evaluate --cutoffs", contents.Cutoffs)
)
KINDS = {
    kind.name: kind
    for kind in (DATASET, BATCHES, MENTIONS, SKIP_GRAMS, RUN, ENCODER, VECTORS, EVALUATION, CUTOFFS)
}

FORMAT = re.compile(r"coder_jax (\w+) (\d+)")
HASH = re.compile(r"[0-9a-f]{64}")
# Settings that there are no more, as runs have them that did not use them.
GONE = (
    ("keep_similarities", 0.0),
    ("mask_shared_names", False),
    ("relation_start", "identity"),
    ("ridge_penalty", 0.3),
    ("ridge_triplets", 2_000),
)


def marked(kind: Kind, content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its format in front."""
    return {"format": kind.format} | dict(content) | {"format": kind.format}


def write_identity(path: Path, kind: Kind, content: Mapping[str, Any]) -> None:
    """Write what a thing is, whole or not at all. ValueError for NaN and infinity."""
    write_json(path, marked(kind, content))


def read_identity(path: Path, kind: Kind) -> dict[str, Any]:
    """What a file of this kind says, its "format" included.

    Raises:
        BadInput: if there is no such file, it is broken or not whole, or it is of another kind or
            of another version; with what to do.
    """
    again = f"make it again with `{kind.command}`"
    content = read_json(path, again)
    found = content.get("format")
    if found != kind.format:
        raise BadInput(
            f"{path} has the format {found!r}, expected {kind.format!r}: {_remedy(found, kind)}"
        )
    typed(content, kind.content, str(path), again)
    return content


def is_of_kind(path: Path, kind: Kind) -> bool:
    """Whether a file is of this kind, whatever its version and whether or not it is whole."""
    try:
        found = read_json(path).get("format")
    except BadInput:
        return False
    match = FORMAT.fullmatch(str(found))
    return match is not None and match[1] == kind.name


def _remedy(found: Any, kind: Kind) -> str:
    """What to do about a file whose format is another one."""
    match = FORMAT.fullmatch(found) if isinstance(found, str) else None
    other = KINDS.get(match[1]) if match else None
    if match and other is kind:
        if int(match[2]) > kind.version:
            return "a newer version of coder_jax wrote it; update coder_jax"
        return (
            f"an older version of coder_jax wrote it; make it again with `{kind.command}`, or use "
            "it with that version"
        )
    if other:
        return f"`{other.command}` writes such files; give one that `{kind.command}` wrote"
    return (
        f"`{kind.command}` did not write it, or an older version of coder_jax did; make it again "
        "with this one, or give another path"
    )


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A line for each value that differs between two nested dictionaries."""
    lines = []
    for name in sorted(there.keys() | here.keys()):
        a, b = there.get(name, "absent"), here.get(name, "absent")
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, f"{prefix}{name}.")
        elif a != b and (b != "absent" or (name, a) not in GONE):
            lines.append(f"{prefix}{name}: {shortened(a)} there, {shortened(b)} here")
    return lines


def shortened(value: Any) -> str:
    """A value as text of at most 80 characters; a hash by its first 12 digits."""
    if isinstance(value, str) and HASH.fullmatch(value):
        return value[:12]
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
