"""Files that were changed by accident: values of JSON, bytes, lines, columns, members of archives.

`readings` reads a file again and again, spoiled in another way each time, and says what is wrong
with the answers: anything but BadInput or the answer of the whole file. Memory and time are held.
"""

import io
import json
import random
import resource
import signal
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polars.exceptions import PanicException

from data_pipeline.process import message_of

SECONDS = 60  # for one reading, on a busy machine
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
        (value is GONE and isinstance(target, list))  # a shorter list is whole, too
        or numbers
        or before is None
        or type(value) is type(before)
        or bool({"*", *place} & {*shown})
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


# What stands in the place of a field, or inside of one: marks of formats, characters that are none
# to people, lone quotes, numbers beyond any range.
FIELDS = [
    *("", " ", "\0", "\t", "\x0b", "\x0c", "\r", "\x1b[31m", "\x7f", "\x85", "\u2028", "\ufeff"),
    *('"', "'", "|", "||", ";", ",", "\\", "\\n", "[", "{", "!", ":", "<", "&", "=1+1", "_x0000_"),
    *(
        "-1",
        "0",
        "1e999",
        "nan",
        "99999999999999999999",
        "-99999999999999999999",
        "\u0663",
        "\u00b2",
    ),
    *("x" * 200_000, "\U0001f600", "e\u0301", "C0000001", "None"),
]
SEPARATORS = (b"\t", b"|", b",", b";", b" ", b":")
ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf-7")


def spoiled_text(rng: random.Random, content: bytes) -> tuple[bytes, str, bool]:
    """A text with another line, column, character, line end or encoding; what was done."""
    lines = content.splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    other = rng.randrange(len(lines))
    marks = [mark for mark in SEPARATORS if mark in lines[at]]
    mark = rng.choice(marks) if marks else b"\t"
    fields = lines[at].rstrip(b"\r\n").split(mark)
    end = lines[at][len(lines[at].rstrip(b"\r\n")) :]
    column, second = rng.randrange(len(fields)), rng.randrange(len(fields))
    some = rng.choice(FIELDS).encode()
    how = rng.choice(
        ("line twice", "lines swapped", "line gone", "line cut", "line moved to the end")
        + ("columns swapped", "column gone", "column twice", "field", "in a field", "end of field")
        + (
            "everywhere swapped",
            "line ends",
            "encoding",
            "no last line end",
            "joined",
            "blank line",
        )
    )
    done = f"{how}, line {at + 1}, column {column + 1} of {mark!r}: {some!r:.40}"
    if how == "line twice":
        lines.insert(other, lines[at])
    elif how == "lines swapped":
        lines[at], lines[other] = lines[other], lines[at]
    elif how == "line gone":
        del lines[at]
    elif how == "line cut":
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    elif how == "line moved to the end":
        lines.append(lines.pop(at))
    elif how == "everywhere swapped":
        parts = [line.rstrip(b"\r\n").split(mark) for line in lines]
        for part in parts:
            if max(column, second) < len(part):
                part[column], part[second] = part[second], part[column]
        lines = [mark.join(part) + b"\n" for part in parts]
    elif how == "line ends":
        ends = rng.choice((b"\r", b"\r\n", b"\n\n", b"\n\r", b"\x0b", b"\0\n", b"\t\n"))
        lines = [line.rstrip(b"\r\n") + ends for line in lines]
    elif how == "encoding":
        name = rng.choice(ENCODINGS)
        done = f"{how} {name}"
        lines = [content.decode(errors="replace").encode(name, errors="replace")]
    elif how == "no last line end":
        lines[-1] = lines[-1].rstrip(b"\r\n")
    elif how == "joined":
        lines[at] = lines[at].rstrip(b"\r\n")
    elif how == "blank line":
        lines.insert(at, rng.choice((b"\n", b" \n", b"\t\n", b"\r\n", b"\0\n")))
    else:
        if how == "columns swapped":
            fields[column], fields[second] = fields[second], fields[column]
        elif how == "column gone":
            del fields[column]
        elif how == "column twice":
            fields.insert(column, fields[column])
        elif how == "field":
            fields[column] = some
        elif how == "in a field":
            place = rng.randrange(len(fields[column]) + 1)
            fields[column] = fields[column][:place] + some + fields[column][place:]
        elif how == "end of field":
            fields[column] += some
        lines[at] = mark.join(fields) + end
    return b"".join(lines), done, True


def spoiled_zip(rng: random.Random, content: bytes) -> tuple[bytes, str, bool]:
    """An archive with another member, order or method, one that is there twice, or other bytes."""
    how = rng.choice(
        ("member",) * 4 + ("twice", "gone", "name", "method", "flags", "bytes", "size")
    )
    if how == "bytes":
        return spoiled_bytes(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    name, inside = members[at]
    done = f"{how} {name}"
    if how == "member":
        inside, change, _ = rng.choice((spoiled_bytes, spoiled_text))(rng, inside)
        members[at], done = (name, inside), f"{name}: {change}"
    elif how == "twice":
        members.insert(
            rng.randrange(len(members) + 1), (name, inside[: rng.randrange(len(inside) + 1)])
        )
    elif how == "gone":
        del members[at]
    elif how == "name":
        odd = (
            "../" + name,
            "/" + name,
            name.upper(),
            "a/" + name,
            name + ".gz",
            name + "/",
            "\u00e9",
        )
        members[at] = (rng.choice(odd), inside)
    packed = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of a name that is there twice
        for one in members:
            archive.writestr(*one)
    written = bytearray(packed.getvalue())
    # Of every local header and of every entry of the directory: flags, method, unpacked size.
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = written.find(mark)
        while start >= 0:
            if how == "flags":
                written[start + place] |= 1  # encrypted
            elif how == "method":
                written[start + place + 2] = 9  # Deflate64
            elif how == "size":
                first = start + place + 16
                written[first : first + 4] = (2**31).to_bytes(4, "little")
            start = written.find(mark, start + 1)
    return bytes(written), done, True


Spoil = Callable[[random.Random, bytes], tuple[bytes, str, bool]]


def readings(
    path: Path,
    read: Callable[[], Any],
    *,
    seed: int,
    count: int,
    as_bytes: bool = False,
    shown: tuple[str, ...] = (),
    spoil: Spoil | None = None,
    first: int = 0,
    checked: bool = False,
) -> dict[str, int]:
    """Reads a file in `count` spoiled forms; how many were refused, read the same, read otherwise.

    AssertionError for each form that gives a traceback, takes too long or too much memory, or is
    read otherwise though a value is of another type.

    Args:
        path: the file, which is written back.
        read: reads it, and gives what can be compared.
        seed: of what is spoiled; with the number of a form it makes the same form again.
        as_bytes: spoil bytes, not values of JSON; then other answers are right, too.
        shown: keys whose values are only shown to people: whatever they are, they may be; "*" for
            all.
        spoil: how, in place of these; every fifth form has its bytes spoiled.
        checked: it has a checksum, so that every other answer is wrong.
        first: number of the first form: `first=N, count=1` makes form N alone again.
    """
    content, expected = path.read_bytes(), read()
    assert read() == expected, "its reading gives another answer each time"
    found = {"refused": 0, "the same": 0, "another": 0}
    problems = []
    try:
        for number in range(first, first + count):
            rng = random.Random(f"{seed} {path.name} {number}")
            if spoil is not None and number % 5 != 4:
                spoiled, done, alike = spoil(rng, content)
            elif as_bytes or number % 5 == 4:
                spoiled, done, alike = spoiled_bytes(rng, content)
            else:
                spoiled, done, alike = spoiled_part(rng, path, content, shown)
            path.write_bytes(spoiled)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                with time_limit():
                    answer = read()
            except (Exception, PanicException) as error:
                if message_of(error):  # what commands say in place of a traceback
                    found["refused"] += 1
                    continue
                problems.append(f"{path.name}, {number}: {done}\n{traceback.format_exc(limit=-2)}")
                continue
            finally:
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
                if grown * 1024 > MOST_MEMORY:
                    problems.append(f"{path.name}, {number}: {done}: took {grown / 1e6:.1f} GB")
            same = answer == expected
            found["the same" if same else "another"] += 1
            if not same and (checked or not alike):
                problems.append(f"{path.name}, {number}: {done}: read as if it were whole")
    finally:
        path.write_bytes(content)
    assert not problems, f"{len(problems)} of {count}, seed {seed}:\n" + "\n".join(problems[:12])
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
