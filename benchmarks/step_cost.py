"""What a training step costs each device: work, memory and communication of the compiled program.

Compiles the train step of a recipe for N devices ahead of time and reads the program; nothing is
run, and the devices need not be there. TPUs: the compiler comes from PyPI, in a folder of its own
(jax would try to start it if it were installed):

    pip install --target /big/libtpu --no-deps "libtpu==0.0.42.*"     # as `jax[tpu]` asks for
    python -m benchmarks.step_cost --chip v5e --libtpu /big/libtpu --devices 8 64 256
    python -m benchmarks.step_cost --chip v5e --libtpu /big/libtpu --devices 64 --groups per-device
    python -m benchmarks.step_cost --chip v6e --libtpu /big/libtpu --devices 8 256 \
        --groups per-device --encoder xlm-roberta-large --shard-encoder
    python -m benchmarks.step_cost --chip cpu --devices 8 --encoder MODEL --rows 8

On fake CPU devices floating-point operations and the kinds of communication mean something, sizes
and memory do not: they are those of float32 and of another compiler. A compilation for TPUs takes
minutes and up to 3 GB of memory.
"""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.command import plain_parser
from benchmarks.machine import machine, one_line
from benchmarks.results_file import keep_rows
from coder_jax.devices.xla_settings import PEAK_TFLOPS
from data_pipeline.process import BadInput, run_command


@dataclasses.dataclass(frozen=True)
class _Chip:
    """Peak rates of one chip, per second."""

    flops: float  # bfloat16
    memory: float  # bytes read or written
    sent: float  # bytes to other chips, by two of its four links
    bytes: int  # of memory
    source: str


# The vendor's pages give the rate of all four links in both directions: 400 and 800 GB/s. A chip
# at the corner of a slice smaller than 16x16 has two links, so that a ring through all chips uses
# two of each chip, in both directions: a quarter of the rate goes out.
_CHIPS = {
    "v5e": _Chip(
        PEAK_TFLOPS["TPU v5 lite"] * 1e12,
        819e9,
        100e9,
        16 * 10**9,
        "docs.cloud.google.com/tpu/docs/v5e",
    ),
    "v6e": _Chip(
        PEAK_TFLOPS["TPU v6 lite"] * 1e12,
        1600e9,
        200e9,
        32 * 10**9,
        "docs.cloud.google.com/tpu/docs/v6e",
    ),
}
# BERT-base with PubMedBERT's vocabulary: what CODER_ENG starts from.
BASE: dict[str, Any] = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_layers": 12,
    "num_heads": 12,
    "intermediate_size": 3072,
    "max_positions": 512,
}
# Sizes of config.json.
_LARGE: dict[str, dict[str, Any]] = {
    "xlm-roberta-large": {
        "model_type": "xlm-roberta",
        "vocab_size": 250_002,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },
    "modernbert-large": {
        "model_type": "modernbert",
        "vocab_size": 50_368,
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "intermediate_size": 2624,
        "max_position_embeddings": 8192,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        "pad_token_id": 50_283,
    },
}
_SETTINGS = (
    "chip",
    "recipe",
    "encoder",
    "devices",
    "groups",
    "passes",
    "shard_encoder",
    "rows_asked",
    "data",
)


def _use_compiler(chip: str, libtpu: Path | None, devices: int) -> None:
    """Sets the variables that jax reads at import, which must not have happened yet.

    Raises:
        BadInput: if a TPU compiler is needed and not there.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    if chip == "cpu":
        os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(devices))
        return
    library = libtpu and libtpu / "libtpu" / "libtpu.so"
    if not library or not library.exists():
        raise BadInput(
            f"no {library or 'folder --libtpu'}; it is made by `pip install --target DIR --no-deps "
            "libtpu`, in the version that jax[tpu] asks for"
        )
    sys.path.append(str(libtpu))
    os.environ["TPU_LIBRARY_PATH"] = str(library)
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    # The compiler requires them and ignores their values.
    os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-8"
    os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"


def _times(row: dict[str, Any]) -> dict[str, float]:
    """The milliseconds of each part alone at the chip's peak rate; empty without a rate."""
    chip = _CHIPS.get(row["chip"])
    if chip is None or row.get("flops") is None:
        return {}
    return {
        "compute": row["flops"] / chip.flops * 1e3,
        "memory": row["bytes_accessed"] / chip.memory * 1e3,
        "links": row["sent"] / chip.sent * 1e3,
    }


def measure(args: argparse.Namespace, count: int, groups: int) -> dict[str, Any]:
    """One row of the table."""
    from benchmarks.compiled_step import find_devices
    from benchmarks.compiled_step import measure as measure_step
    from coder_jax.models.bert_config import BertConfig
    from coder_jax.models.hf_weights import read_config
    from coder_jax.systems.recipes import RECIPES

    config = RECIPES[args.recipe]()
    system = config.system
    config = dataclasses.replace(
        config,
        system=dataclasses.replace(system, batch=dataclasses.replace(system.batch, groups=groups)),
        run=dataclasses.replace(config.run, passes=args.passes, shard_encoder=args.shard_encoder),
    )
    encoder = BertConfig(**BASE)
    if args.encoder in _LARGE:
        encoder = read_config(_LARGE[args.encoder], args.encoder)
    elif args.encoder:
        text = (Path(args.encoder) / "config.json").read_text(encoding="utf-8")
        encoder = read_config(json.loads(text), args.encoder)
    row = {"chip": args.chip, "recipe": args.recipe, "encoder": encoder.to_hf()}
    row["rows_asked"] = args.rows  # 0: as many as are usual
    row["data"] = args.data.name if args.data else None
    program = None
    if args.programs:
        args.programs.mkdir(parents=True, exist_ok=True)
        spread = "-sharded" if args.shard_encoder else ""
        named = f"-{args.encoder}" if args.encoder in _LARGE else ""
        program = args.programs / f"{args.chip}-{count}-{groups}-{args.passes}{spread}{named}.txt"
    row |= measure_step(
        config,
        encoder,
        find_devices(args.chip, count),
        dtype="float32" if args.chip == "cpu" else "bfloat16",
        data=args.data,
        rows=args.rows,
        program=program,
    )
    found = _times(row)
    bound = max(found, key=lambda name: found[name]) if found else None
    return row | {"ms_at_peak": found, "bound": bound}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table; all figures are those of one device."""
    lines = [
        "| devices | groups | rows | GFLOP | GB accessed | arguments, GB | temporaries, GB "
        "| peak, GB | sent, MB | compute, ms | memory, ms | links, ms | bound by |",
        "|---|" + 12 * "---:|",
    ]
    for row in rows:
        name = f"{row['chip']} x{row['devices']}"
        name += f", {row['passes']} passes" if row["passes"] > 1 else ""
        name += ", encoder sharded" if row["shard_encoder"] else ""
        cells = [name, str(row["groups"]), str(row["rows"])]
        if "refused" in row:
            cells += ["-"] * 4 + ["too much"] + ["-"] * 5
        else:
            cells += [_giga(row["flops"], 0), _giga(row["bytes_accessed"], 1)]
            cells += [_giga(row[part]) for part in ("arguments", "temporaries", "peak")]
            cells.append(f"{row['sent'] / 1e6:.0f}")
            found = row["ms_at_peak"]
            cells += [f"{found[part]:.1f}" if found else "-" for part in ("compute", "memory")]
            cells += [f"{found['links']:.1f}" if found else "-", row["bound"] or "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _giga(number: float | None, digits: int = 2) -> str:
    """A number in billions; "-" if the compiler gave none."""
    return "-" if number is None else f"{number / 1e9:.{digits}f}"


def _kinds(rows: list[dict[str, Any]]) -> str:
    """What is sent, by kind."""
    lines = ["| devices | groups | sent by each, MB |", "|---|---:|---|"]
    for row in rows:
        sent = row.get("sent_by_kind") or {}
        parts = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in sent.items()) or "-"
        spread = ", encoder sharded" if row["shard_encoder"] else ""
        lines.append(f"| {row['chip']} x{row['devices']}{spread} | {row['groups']} | {parts} |")
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = plain_parser("step_cost", __doc__)
    parser.add_argument("--recipe", default="coder_eng", help="default: coder_eng")
    parser.add_argument("--chip", choices=("cpu", *_CHIPS), required=True)
    parser.add_argument("--libtpu", type=Path, help="folder with the TPU compiler")
    parser.add_argument("--devices", type=int, nargs="+", default=[8], help="default: 8")
    parser.add_argument(
        "--groups", default="8", help="per step: a number, or per-device (default: 8)"
    )
    parser.add_argument("--passes", type=int, default=1, help="default: 1; with more, no FLOPs")
    parser.add_argument("--shard-encoder", action="store_true")
    parser.add_argument(
        "--encoder", help=f"folder of a BERT, or {', '.join(_LARGE)} (default: BERT-base)"
    )
    parser.add_argument("--data", type=Path, help="dataset that decides the rows of a block")
    parser.add_argument("--rows", type=int, default=0, help="rows of a block")
    parser.add_argument("--programs", type=Path, help="folder for the compiled programs as text")
    parser.add_argument("--json", type=Path, help="file for the figures; earlier ones stay in it")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    args = parse(argv)

    def work() -> int:
        _use_compiler(args.chip, args.libtpu, max(args.devices))
        rows = []
        for count in args.devices:
            groups = count if args.groups == "per-device" else int(args.groups)
            before = machine()
            rows.append(measure(args, count, groups) | {"machine": before})
            print(table(rows[-1:]), flush=True)
            if args.json:
                chips = {name: dataclasses.asdict(chip) for name, chip in _CHIPS.items()}
                keep_rows(args.json, rows[-1:], _SETTINGS, chips=chips)
        print(f"\n{table(rows)}\n\n{_kinds(rows)}\n\n{one_line(rows[-1]['machine'])}")
        return 0

    return run_command(work, when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
