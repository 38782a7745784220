"""Files that are whole or not there, however the process that writes them ends."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Another name to write a file under; it becomes `path` once the disk has all of it.

    After an error nothing of it stays. After a kill its other name may; the next writer takes it.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that `path` is either absent or whole. ValueError for NaN and infinity."""
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    with written_whole(path) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")
