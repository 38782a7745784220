"""Files that were changed by accident: JSON with single values spoiled, bytes lost or turned.

`readings` reads a file again and again, spoiled in another way each time, and says what is wrong
with the answers: anything but BadInput or the answer of the whole file. Memory and time are held.
"""

import json
import random
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_pipeline.process import BadInput

SECONDS = 30  # for one reading
MOST_MEMORY = 2 << 30  # bytes more than the whole files need
GONE = object()
# What stands in the place of a value of JSON.
VALUES = [
    *(None, True, "", "text", "../../etc/passwd", "\u0000", "x" * 10_000),
    *(-1, 0, 1, 1.5, 200, 10**5, 10**7, 10**9, 2**63, 10**30, -(10**30)),
    *([], {}, [None], ["text"], [[1]], {"text": 1}),
    GONE,
]


def places(value: Any, place: tuple = ()) -> Iterator[tuple]:
    """The place of each value in nested JSON, the whole first."""
    yield place
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = list(enumerate(value))[:3] + list(enumerate(value))[3:][-1:]
    for key, part in inside:
        yield from places(part, (*place, key))


def spoiled_json(
    rng: random.Random, content: bytes, shown: tuple[str, ...]
) -> tuple[bytes, str, bool]:
    """A JSON text with another value at one place; what was done; whether types are as before."""
    whole = json.loads(content)
    place = rng.choice(list(places(whole)))
    value = rng.choice(VALUES)
    if not place:
        value = None if value is GONE else value
        return json.dumps(value).encode(), f"the whole is {value!r:.40}", False
    *outer, last = place
    target = whole
    for key in outer:
        target = target[key]
    before = target[last]
    if value is GONE:
        del target[last]
    else:
        target[last] = value
    numbers = all(type(one) in (int, float) for one in (value, before))
    alike = (
        numbers or before is None or type(value) is type(before) or bool({"*", *place} & {*shown})
    )
    done = "deleted" if value is GONE else f"{value!r:.40}"
    return json.dumps(whole).encode(), f"{'.'.join(map(str, place))}: {done}", alike


def spoiled_part(
    rng: random.Random, path: Path, content: bytes, shown: tuple[str, ...]
) -> tuple[bytes, str, bool]:
    """`spoiled_json` of a file, or of one of its lines where each is a JSON text."""
    if path.suffix != ".jsonl":
        return spoiled_json(rng, content, shown)
    lines = content.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    line, done, alike = spoiled_json(rng, lines[number], shown)
    lines[number] = line + b"\n"
    return b"".join(lines), f"line {number + 1}: {done}", alike


def spoiled_bytes(rng: random.Random, content: bytes) -> tuple[bytes, str, bool]:
    """Bytes of which some were lost, added or turned; what was done."""
    at = rng.randrange(len(content) + 1)
    some = rng.choice((1, 1, 8, 512, 1 << 16))
    how = rng.choice(("cut", "lost", "zeros", "turned", "added", "twice", "empty"))
    if how == "cut":
        content = content[:at]
    elif how == "lost":
        content = content[:at] + content[at + some :]
    elif how == "zeros":
        content = content[:at] + bytes(min(some, len(content) - at)) + content[at + some :]
    elif how == "turned" and at < len(content):
        content = content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    elif how == "added":
        content = content[:at] + rng.randbytes(some) + content[at:]
    elif how == "twice":
        content = content + content[at:]
    elif how == "empty":
        content = b""
    return content, f"{how} at {at} ({some})", True


def readings(
    path: Path,
    read: Callable[[], Any],
    *,
    seed: int,
    count: int,
    as_bytes: bool = False,
    shown: tuple[str, ...] = (),
) -> dict[str, int]:
    """Reads a file in `count` spoiled forms; how many were refused, read the same, read otherwise.

    AssertionError for each form that gives a traceback, takes too long or too much memory, or is
    read otherwise though a value is of another type.

    Args:
        path: the file, which is written back.
        read: reads it, and gives what can be compared.
        seed: of what is spoiled.
        as_bytes: spoil bytes, not values of JSON; then other answers are right, too.
        shown: keys whose values are only shown to people: whatever they are, they may be; "*" for
            all.
    """
    content, expected = path.read_bytes(), read()
    assert read() == expected, "its reading gives another answer each time"
    found = {"refused": 0, "the same": 0, "another": 0}
    problems = []
    try:
        for number in range(count):
            rng = random.Random(f"{seed} {path.name} {number}")
            if as_bytes or number % 5 == 4:
                spoiled, done, alike = spoiled_bytes(rng, content)
            else:
                spoiled, done, alike = spoiled_part(rng, path, content, shown)
            path.write_bytes(spoiled)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                with time_limit():
                    answer = read()
            except BadInput as error:
                assert str(error).strip(), done
                found["refused"] += 1
                continue
            except Exception:
                problems.append(f"{path.name}, {number}: {done}\n{traceback.format_exc(limit=-2)}")
                continue
            finally:
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
                if grown * 1024 > MOST_MEMORY:
                    problems.append(f"{path.name}, {number}: {done}: took {grown / 1e6:.1f} GB")
            same = answer == expected
            found["the same" if same else "another"] += 1
            if not same and not alike:
                problems.append(f"{path.name}, {number}: {done}: read as if it were whole")
    finally:
        path.write_bytes(content)
    assert not problems, f"{len(problems)} of {count}:\n" + "\n".join(problems[:12])
    return found


@contextmanager
def time_limit() -> Iterator[None]:
    """TimeoutError if what is inside takes longer than SECONDS."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
