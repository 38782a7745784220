"""Names to vectors by BNE beside MiniLM: how much quicker the small encoder is.

`TermEncoder.encode` of an encoder of names, of a BERT, and sentence-transformers' of the same BERT
(set up as for `benchmarks.encode`), all of the same strings. Every call reads its words anew, so
that nothing is kept from one round to the next. Rounds alternate; the table has the medians.

    python -m benchmarks.encode_names --names runs/names/bne/export \\
        --json benchmarks/results/encode_names.json
"""

import argparse
import sys
from pathlib import Path

from benchmarks.command import Row, parser_of, run_measured
from benchmarks.default_model import model_or_default, name_of
from benchmarks.encode import read_benchmark_terms, sample
from benchmarks.encode_peer import Variant, fastest, load_peer
from benchmarks.rounds import alternate, medians
from coder_jax.devices.xla_settings import set_up_xla
from data_pipeline.process import BadInput

_OURS, _BERT, _PEER = "BNE", "BERT", "BERT by sentence-transformers"
_SETTINGS = ("model", "source", "num_terms", "max_length", "device")


def measure(args: argparse.Namespace) -> list[Row]:
    """The figures of all three, as the JSON holds them; to be called in a process of its own."""
    set_up_xla()
    import jax

    from coder_jax.encoding.encoder import NameReader, TermEncoder
    from coder_jax.models.hf_files import find_folder
    from data_pipeline.sources.text import words_of

    names = TermEncoder.from_pretrained(args.names)
    if not isinstance(names.reader, NameReader):
        raise BadInput(f"--names {args.names}: found a BERT; expected an export of BNE")
    folder = find_folder(model_or_default(args.model))
    bert = TermEncoder.from_pretrained(folder, cleaning="none", max_length=args.max_length)
    all_terms, source = read_benchmark_terms(args.data)
    terms = sample(all_terms, args.terms)
    words = [word for term in terms for word in words_of(term)]
    with load_peer(folder, bert) as peer:
        tried = [Variant(size, "float32", False) for size in args.batch_sizes]
        rates, chosen = fastest(peer, tried, sample(terms, max(1, len(terms) // 4)))
        systems = {
            _OURS: lambda: names.encode(terms),
            _BERT: lambda: bert.encode(terms),
            _PEER: lambda: peer.encode(terms, chosen),
        }
        for encode in systems.values():
            encode()  # warm
        rounds = alternate(systems, args.rounds)
    row = {
        "model": name_of(args.model),
        "source": source,
        "num_terms": len(terms),
        "words": len(words),
        "distinct_words": len(set(words)),
        "max_length": bert.settings.max_length,
        "device": jax.devices()[0].device_kind,
        "peer": str(chosen),
        "peers_tried": rates,
        "seconds": medians(rounds),
        "rounds": rounds,
    }
    return [row]


def table(rows: list[Row]) -> str:
    """The three as a Markdown table."""
    (row,) = rows
    seconds = row["seconds"]
    lines = [
        f"| {row['num_terms']:,} terms | s | terms/s | BNE, times as fast |",
        "|---|---:|---:|---:|",
    ]
    for name, taken in seconds.items():
        rate = row["num_terms"] / taken
        lines.append(f"| {name} | {taken:.2f} | {rate:,.0f} | {taken / seconds[_OURS]:.1f} |")
    lines.append(
        f"\n{row['source']}: {row['words']:,} words, {row['distinct_words']:,} distinct; the BERT "
        f"is {row['model']}; sentence-transformers with {row['peer']}."
    )
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = parser_of("encode_names", __doc__)
    parser.add_argument("--names", required=True, help="folder of an export of BNE")
    parser.add_argument("--model", help="folder or hub id of a BERT (default: all-MiniLM-L6-v2)")
    parser.add_argument("--max-length", type=int, help="tokens (default: the BERT's own)")
    parser.add_argument("--data", type=Path, help="dataset, .obo or lines of terms (default: HPO)")
    parser.add_argument("--terms", type=int, default=20_000, help="of them (default: 20000)")
    parser.add_argument(
        "--batch-sizes",
        type=int,
        nargs="+",
        default=[16, 32, 64, 128],
        help="of sentence-transformers, to choose from (default: 16 to 128)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    return run_measured(parse(argv), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
