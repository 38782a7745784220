"""Exact nearest vectors: our search beside faiss's IndexFlatIP, or torch on a GPU; same results.

Queries and keys are random unit vectors, or those of `coder_jax encode`. On a CPU the rival is
faiss-cpu with a thread per core, its index filled beforehand. On a GPU it is faiss-gpu where that
is installed, and torch (float32 products in blocks and torch.topk), once with the keys on the GPU
and once in the machine's memory; ours runs both ways, too. Rounds alternate; the table has medians,
for one query at a time and for many, all with memory in huge pages.
`keys, GB/s` is how fast the keys are read if each call reads them once.

    pip install -r requirements-benchmarks.txt -c constraints.txt       # faiss-cpu
    python -m benchmarks.search --json benchmarks/results/search.json
    python -m benchmarks.search --keys terms.npy --queries mentions.npy --k 1 10
"""

import argparse
import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import parser_of, run_measured
from benchmarks.limits import add_limit_seconds
from benchmarks.rounds import alternate, medians
from benchmarks.search_peers import SearchResult, load_peers
from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.files.whole import aligned
from data_pipeline.process import BadInput

_SETTINGS = ("source", "queries", "keys", "width", "k", "device")
_TOLERANCE = 1e-5  # of similarities, and of what may have changed places
_OURS, _OURS_KEPT = "coder_jax", "coder_jax, keys on the GPU"


def _unit_vectors(rows: int, width: int, seed: int) -> np.ndarray:
    """Random directions, float32 [rows, width], aligned as `TermEncoder.encode` gives vectors."""
    vectors = aligned((rows, width), np.float32)
    np.random.default_rng(seed).standard_normal(dtype=np.float32, out=vectors)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _read_vectors(path: Path, rows: int) -> np.ndarray:
    """At most `rows` vectors of a .npy file, float32, spread over it, not mapped."""
    mapped = np.load(path, mmap_mode="r")
    if mapped.ndim != 2 or not len(mapped):
        raise BadInput(f"{path}: found an array of shape {mapped.shape}; expected [n, D], n > 0")
    step = max(1, len(mapped) // rows)
    chosen = mapped[::step][:rows]
    vectors = aligned(chosen.shape, np.float32)
    vectors[:] = chosen
    return vectors


def _differences(
    ours: SearchResult, theirs: SearchResult, queries: np.ndarray, keys: np.ndarray
) -> dict[str, float]:
    """How far two answers are from each other.

    Returns:
        `similarity`, the largest difference of similarities at the same place; `moved`, the share
        of places with another index; `worse`, how much less similar ours is there than theirs at
        most, in float64.
    """
    moved = np.argwhere(ours.key != theirs.key)
    worse = 0.0
    for query, place in moved:
        q = queries[query].astype(np.float64)
        here, there = (keys[found.key[query, place]] for found in (ours, theirs))
        loss = q @ there.astype(np.float64) - q @ here.astype(np.float64)
        worse = float(np.maximum(worse, loss))  # stays no number if one is
    return {
        "similarity": float(np.abs(ours.similarity - theirs.similarity).max()),
        "moved": len(moved) / ours.key.size,
        "worse": worse,
    }


def _check_same(found: dict[str, float], name: str) -> None:
    """BadInput if two answers differ by more than rounding."""
    if not (found["similarity"] <= _TOLERANCE and found["worse"] <= _TOLERANCE):
        raise BadInput(
            f"{_OURS} and {name} differ: similarities by up to {found['similarity']:.1e}, and "
            f"where the index is another one ours is {found['worse']:.1e} less similar; expected "
            f"at most {_TOLERANCE:.0e}"
        )


def _compare(
    all_queries: np.ndarray, keys: np.ndarray, counts: list[int], ks: list[int], rounds: int
) -> list[dict]:
    """One row for each k, with this many queries at once."""
    import jax

    from coder_jax.encoding.search import KeptRows, search

    peers = load_peers(keys)
    searches = {_OURS: lambda queries, k: SearchResult(*search(queries, keys, k))}
    if jax.default_backend() != "cpu":
        kept = KeptRows(keys)
        searches[_OURS_KEPT] = lambda queries, k: SearchResult(*search(queries, kept, k))
    searches |= peers
    rows = []
    settings = itertools.product(sorted({min(count, len(all_queries)) for count in counts}), ks)
    for count, k in settings:
        queries = all_queries[:count]
        latest: dict[str, SearchResult] = {}

        def call(name: str, queries: np.ndarray, k: int, latest: dict[str, SearchResult]) -> None:
            latest[name] = searches[name](queries, k)

        systems = {name: partial(call, name, queries, k, latest) for name in searches}
        for system in systems.values():  # compiled and warm
            system()
        seconds = alternate(systems, rounds)
        compared = {}
        for name in peers:
            compared[name] = _differences(latest[_OURS], latest[name], queries, keys)
            _check_same(compared[name], name)
        taken = ", ".join(f"{name} {one:.4f} s" for name, one in medians(seconds).items())
        print(f"{count:,} queries, width {keys.shape[1]}, k = {k}: {taken}", flush=True)
        row = {"queries": len(queries), "keys": len(keys), "width": keys.shape[1], "k": k}
        row |= {"device": jax.devices()[0].device_kind, "seconds": medians(seconds)}
        row |= {"rounds": seconds, "differences": compared}
        rows.append(row | {"flops": 2.0 * len(queries) * len(keys) * keys.shape[1]})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """All systems as a Markdown table, with the limits below."""
    lines = [
        "| system | queries | keys | width | k | s | queries/s | GFLOP/s | of the peak "
        "| keys, GB/s | times ours |",
        "|---|" + 10 * "---:|",
    ]
    for row in rows:
        for name, taken in row["seconds"].items():
            rate = row["flops"] / taken
            lines.append(
                f"| {name} | {row['queries']:,} | {row['keys']:,} | {row['width']} | {row['k']} "
                f"| {taken:.4f} | {row['queries'] / taken:,.0f} | {rate / 1e9:,.0f} "
                f"| {rate / row['peak_flops']:.0%} "
                f"| {4e-9 * row['keys'] * row['width'] / taken:.1f} "
                f"| {taken / row['seconds'][_OURS]:.2f} |"
            )
    found = [one for row in rows for one in row["differences"].values()]
    lines.append(
        f"\n{rows[0]['source']}. Similarities differ by at most "
        f"{max(one['similarity'] for one in found):.0e}, indices at "
        f"{max(one['moved'] for one in found):.1e} of the places, where both are within "
        f"{_TOLERANCE:.0e} of each other. {rows[0]['device']}: matrix products at most "
        f"{rows[0]['peak_flops'] / 1e9:,.0f} GFLOP/s, copies "
        f"{rows[0]['copy_bytes_per_s'] / 1e9:,.1f} GB/s."
    )
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("search", __doc__)
    parser.add_argument("--queries", type=Path, help=".npy file (default: random unit vectors)")
    parser.add_argument("--keys", type=Path, help=".npy file (default: random unit vectors)")
    parser.add_argument(
        "--num-queries",
        type=int,
        nargs="+",
        default=[1, 32, 2_000],
        help="asked at once (default: 1 32 2000)",
    )
    parser.add_argument("--num-keys", type=int, default=500_000, help="default: 500000")
    parser.add_argument("--width", type=int, nargs="+", default=[384, 768], help="of random ones")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 10, 40], help="default: 1 10 40")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    add_limit_seconds(parser)
    return parser.parse_args(argv)


def _read_pairs(args: argparse.Namespace) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """What is searched: a name, queries and keys."""
    if bool(args.queries) != bool(args.keys):
        raise BadInput("found one of --queries and --keys; expected both or none")
    if args.keys:
        queries = _read_vectors(args.queries, max(args.num_queries))
        keys = _read_vectors(args.keys, args.num_keys)
        return [(f"{args.queries.name} in {args.keys.name}", queries, keys)]
    return [
        (
            "random unit vectors",
            _unit_vectors(max(args.num_queries), width, 1),
            _unit_vectors(args.num_keys, width, 0),
        )
        for width in args.width
    ]


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows, as the JSON holds them; to be called in a process of its own."""
    set_up_xla()  # as `python -m coder_jax normalize` does
    from benchmarks.limits import measured

    limits = measured("float32", args.limit_seconds)
    return [
        {"source": source} | row | limits
        for source, queries, keys in _read_pairs(args)
        for row in _compare(queries, keys, args.num_queries, args.k, args.rounds)
    ]


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
