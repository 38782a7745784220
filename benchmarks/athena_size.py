"""A list mapped to all of Athena: minutes and memory, by the command that users run.

Writes an invented download from Athena (OMOP) of full size, 9 million concepts with 11 million
names, and a list of terms: names of standard concepts, such names with a typing error, and names
that nothing has. Then two processes are measured: one reads the dictionary of standard concepts;
the other is `python -m coder_jax normalize`. The vectors of the dictionary are random, where a user
has them from `encode`: how near is no question here, and encoding is measured by
`benchmarks.encode`.

    python -m benchmarks.athena_size --work /big/disk --json benchmarks/results/athena_size.json
    python -m benchmarks.athena_size --work /tmp/small --scale 0.01
"""

import csv
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import plain_parser
from benchmarks.default_model import model_or_default
from benchmarks.machine import machine, one_line
from benchmarks.process import in_a_process, run_child
from benchmarks.synthetic_release import ATHENA_CONCEPTS, ATHENA_NAMES, write_athena
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput, peak_memory, run_command

_LIST, _CODED, _VECTORS = "list.csv", "coded.csv", "vectors.npy"
_ROWS_AT_ONCE = 1 << 18
_BYTES_A_NAME = 1000  # on disk: tables and vectors


def _prepare(work: Path, model: str, mentions: int) -> dict[str, Any]:
    """Reads the dictionary, and writes vectors and a list for it."""
    from coder_jax.devices.xla_settings import set_up_xla

    set_up_xla()  # as the commands do
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.encoding.vector_files import (
        TERMS_PER_CHUNK,
        TermList,
        about_file,
        about_vectors,
    )
    from data_pipeline.dataset.dictionary import read_dictionary
    from data_pipeline.files.identity import VECTORS, write_identity
    from data_pipeline.terminology.cleaning import lookup_rules

    started = time.monotonic()
    dictionary = read_dictionary(work / "athena", standard=True, raw=True)
    read = time.monotonic() - started
    terms = dictionary.terms
    rules = lookup_rules(terms)
    encoder = TermEncoder.from_pretrained(model, cleaning=rules)
    assert encoder.weights_hash is not None
    rng = np.random.default_rng(0)
    with (work / _VECTORS).open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (len(terms), encoder.width)}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, len(terms), _ROWS_AT_ONCE):
            rows = min(_ROWS_AT_ONCE, len(terms) - first)
            drawn = rng.standard_normal((rows, encoder.width), dtype=np.float32)
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
            drawn.astype("<f2").tofile(file)
    listed = TermList(terms, TERMS_PER_CHUNK)
    about = about_vectors(encoder, model, encoder.weights_hash, listed, "float16")
    write_identity(about_file(work / _VECTORS), VECTORS, about)
    with (work / _LIST).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["term", "kind"])
        for number, row in enumerate(rng.choice(len(terms), mentions, replace=False).tolist()):
            kind = ("same", "misspelt", "other")[number % 3]
            name = terms[row]
            middle = len(name) // 2
            if kind == "misspelt":
                name = name[:middle] + name[middle + 1 :]
            writer.writerow([f"{name} of nothing" if kind == "other" else name, kind])
    return {
        "read_s": read,
        "terms": len(terms),
        "concepts": len(set(dictionary.concepts)),
        "cleaning": rules,
        "peak_gb": peak_memory(),
    }


def measure(work: Path, scale: float, model: str, mentions: int) -> dict[str, Any]:
    """The figures of both processes."""
    sizes = [round(count * scale) for count in (ATHENA_CONCEPTS, ATHENA_NAMES)]
    needed, free = _BYTES_A_NAME * sizes[1], shutil.disk_usage(work).free
    if needed > free:
        raise BadInput(
            f"{work}: {needed / 1e9:,.1f} GB are needed and {free / 1e9:.1f} GB free; give --work "
            "a folder on a larger disk, or a smaller --scale"
        )
    result: dict[str, Any] = {"scale": scale, "names": sizes[1], "machine": machine()}
    started = time.monotonic()
    write_athena(work / "athena", *sizes)
    result["write_s"] = time.monotonic() - started
    result["read"] = in_a_process(_prepare, work, model, mentions)
    command = [sys.executable, "-m", "coder_jax", "normalize", str(work / _LIST), "--model", model]
    command += ["--column", "term", "--dictionary", str(work / "athena"), "--dictionary-standard"]
    command += ["--dictionary-vectors", str(work / _VECTORS), "--out", str(work / _CODED)]
    ended = run_child(command)
    with (work / _CODED).open(encoding="utf-8-sig", newline="") as file:
        found = Counter((row["kind"], row["status"]) for row in csv.DictReader(file))
    asked = Counter(kind for (kind, _), rows in found.items() for _ in range(rows))
    result["normalize"] = {
        "seconds": ended.seconds,
        "peak_gb": ended.peak_gb,
        "mentions": sum(asked.values()),
        "same_found": found["same", "exact"] / asked["same"],
        "misspelt_found": found["misspelt", "misspelt"] / asked["misspelt"],
    }
    return result


def table(result: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    read, mapped = result["read"], result["normalize"]
    return "\n".join(
        [
            "| what | minutes | peak memory, GB |",
            "|---|---:|---:|",
            f"| the dictionary is read | {read['read_s'] / 60:.1f} | {read['peak_gb']:.1f} |",
            f"| `normalize`, from start to end | {mapped['seconds'] / 60:.1f} "
            f"| {mapped['peak_gb']:.1f} |",
            "",
            f"{result['names']:,} names in Athena, {read['terms']:,} of them of "
            f"{read['concepts']:,} standard concepts; a list of {mapped['mentions']:,}. Found: "
            f"{mapped['same_found']:.1%} of names as they are, {mapped['misspelt_found']:.1%} of "
            f"names with a typing error. {one_line(result['machine'])}.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    parser = plain_parser("athena_size", __doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for the files (11 GB)")
    parser.add_argument("--scale", type=float, default=1.0, help="1: 11 million names (default)")
    parser.add_argument("--model", help="the encoder (default: MiniLM)")
    parser.add_argument("--mentions", type=int, default=999, help="rows of the list (default: 999)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args(argv)

    def work() -> int:
        model = str(model_or_default(args.model))
        args.work.mkdir(parents=True, exist_ok=True)
        result = measure(args.work, args.scale, model, args.mentions)
        print(table(result))
        shutil.rmtree(args.work / "athena")
        for name in (_LIST, _CODED, _VECTORS, f"{_VECTORS}.json"):
            (args.work / name).unlink()
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            write_json(args.json, result)
        return 0

    return run_command(work, when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
