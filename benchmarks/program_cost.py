"""The cost of a compiled program on each device: work, memory and communication, read from its HLO.

The program may be compiled for devices that this machine does not have; nothing is run.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

_KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# `%name (arguments) -> type {` begins a computation, which contains lines `name = type
# operation(operands), ...`. A type is one array, or a tuple of arrays in parentheses, with layouts
# in braces.
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.+?) ([a-z][a-z\-]*)\(")
_COLLECTIVE = re.compile(rf"^({'|'.join(_KINDS)})(-start)?$")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|condition|body|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CHANNEL = re.compile(r"\bchannel_id=(\d+)")


@dataclasses.dataclass(frozen=True)
class Collective:
    """One exchange between devices."""

    kind: str  # one of KINDS
    size: int  # bytes of the whole array on one device, before it is scattered or once gathered
    group: int  # devices that exchange with each other
    times: int  # in one run of the program
    origin: str  # the JAX operation that it comes from

    @property
    def sent(self) -> int:
        """Bytes that one device sends in one run of the program, with the best known algorithms.

        These pass an array around a ring: each device keeps its own part of it. An all-reduce is a
        reduce-scatter and an all-gather.
        """
        if "permute" in self.kind or "broadcast" in self.kind:
            once = self.size
        else:
            once = self.size * (self.group - 1) // self.group
        return self.times * once * (2 if self.kind == "all-reduce" else 1)


@dataclasses.dataclass(frozen=True)
class StepCost:
    """The cost of one run of a program on each of its devices.

    XLA counts operations and bytes of a loop's body once, however often it runs; so read a train
    step's from a program of one pass. Collectives in loops are counted as often as they run.
    """

    devices: int
    flops: float | None  # floating-point operations, if the compiler counts them
    bytes_accessed: float | None  # read and written in the device's memory, likewise
    arguments: int  # bytes of the state and the batch
    temporaries: int  # bytes beside them while it runs
    peak: int  # bytes in all: arguments, temporaries, results in memory of their own, and code
    collectives: tuple[Collective, ...]

    @property
    def sent(self) -> int:
        """Bytes that one device sends to others."""
        return sum(collective.sent for collective in self.collectives)

    def sent_by_kind(self) -> dict[str, int]:
        """Bytes sent for each kind of collective that occurs, largest first."""
        sums: collections.Counter[str] = collections.Counter()
        for collective in self.collectives:
            sums[collective.kind] += collective.sent
        return dict(sums.most_common())


def read_cost(compiled: Any) -> StepCost:
    """The cost of a program, `jax.jit(f).lower(...).compile()`.

    Raises:
        ValueError: if a loop with a collective in it runs an unknown number of times.
    """
    text, work, memory = compiled.as_text(), compiled.cost_analysis(), compiled.memory_analysis()
    work = work or {}  # XLA for GPUs counts nothing where there is no GPU
    own_results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return StepCost(
        devices=_count_devices(text),
        flops=work.get("flops"),
        bytes_accessed=work.get("bytes accessed"),
        arguments=memory.argument_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        peak=memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + own_results
        + memory.generated_code_size_in_bytes,
        collectives=tuple(_find_collectives(text)),
    )


def _count_devices(text: str) -> int:
    """The devices that a program in HLO text runs on."""
    header = text.partition("\n")[0]
    counts = re.findall(r"\b(?:replica_count|num_partitions)=(\d+)", header)
    return math.prod(int(count) for count in counts)


def _find_collectives(text: str) -> Iterator[Collective]:
    """The collectives of a program in HLO text, in its order.

    A TPU program spreads one collective over several fused operations, which bear its channel's
    number; it comes once. Sums that are scattered are computations of their own there, named after
    it, and may share a number. Both branches of a condition count.

    Raises:
        ValueError: if a loop with a collective in it runs an unknown number of times.
    """
    devices, computations = _count_devices(text), _split_computations(text)
    times = _count_runs(computations)
    seen = set()
    for name, lines in computations.items():
        for line in lines:
            found = _OPERATION.match(line)
            operation = found and _COLLECTIVE.match(found[2])
            if not found or not operation or not times[name]:
                continue
            scattered = name.startswith("all-reduce-scatter")
            channel = _CHANNEL.search(line)
            once = channel[1] if channel and not scattered else name + line
            if once in seen:
                continue
            seen.add(once)
            if math.isinf(times[name]):
                raise ValueError(f"{operation[1]} in a loop without a known number of runs: {line}")
            kind, group = operation[1], _group_size(line, devices)
            size = _array_bytes(found[1])
            if operation[2] and kind in ("all-gather", "collective-permute"):
                size = _array_bytes(_second_of_tuple(found[1]))  # (operands, results, ...)
            if kind == "reduce-scatter":
                size *= group
            elif scattered:
                kind = "reduce-scatter"
            origin = re.search(r'op_name="([^"]*)"', line)
            yield Collective(kind, size, group, int(times[name]), origin[1] if origin else "")


def _split_computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation; the entry computation is called ENTRY."""
    computations: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        begins = _COMPUTATION.match(line)
        if begins:
            lines = computations["ENTRY" if begins[1] else begins[2]] = []
        else:
            lines.append(line)
    return computations


def _count_runs(computations: dict[str, list[str]]) -> collections.Counter[str]:
    """How often each computation runs; infinity if a loop's trip count is not known."""
    runs: collections.Counter[str] = collections.Counter()

    def enter(name: str, times: float) -> None:
        runs[name] += times  # type: ignore[assignment]  # int, or infinity
        for line in computations[name]:
            called = _CALLED.findall(line)
            for branches in _BRANCHES.findall(line):
                called += re.findall(r"[\w.\-]+", branches)
            found = _OPERATION.match(line) if called else None
            if not found:
                continue
            trips = _TRIPS.search(line) if found[2] == "while" else None
            each = 1 if found[2] != "while" else int(trips[1]) if trips else math.inf
            for other in called:
                enter(other, times * each)

    enter("ENTRY", 1)
    return runs


def _array_bytes(type_text: str) -> int:
    """The bytes of an array type, or of all arrays of a tuple type, without padding."""
    total = 0
    for dtype, dimensions in _ARRAY.findall(type_text):
        digits = re.search(r"\d+", dtype)  # bits: bf16, s32, f8e4m3fn
        bits = int(digits[0]) if digits else 8 * (dtype == "pred")
        sizes = [int(size.lstrip("<=")) for size in dimensions.split(",") if size]
        total += -(-bits * math.prod(sizes) // 8)
    return total


def _second_of_tuple(type_text: str) -> str:
    """The second type in a tuple, which may be a tuple itself."""
    depth, parts = 0, [""]
    for character in type_text[1:-1]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts[1]


def _group_size(line: str, devices: int) -> int:
    """The number of devices in a collective, from its first replica group (all are equal in size).

    Groups are written as {{0,1},{2,3}}, as [groups,devices]<=[...], or as axes of a mesh:
    mesh['a'=2,'b'=4] {'b'}, where 'b':(2)2 is a part of the axis that has two devices.
    """
    if axes := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", line):
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", axes[1]))
        chosen = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", axes[2])
        return math.prod(int(part or sizes[axis]) for axis, part in chosen)
    if numbered := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
        return int(numbered[1])
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return len(listed[1].split(","))
    return devices
