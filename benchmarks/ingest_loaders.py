"""The loaders of `benchmarks.ingest`, each run in a process of its own, and a check of equality."""

import importlib.util
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_pipeline.process import BadInput

LOADERS = {
    "ours": "data_pipeline.build",
    "pandas-c": "pandas, its C parser",
    "pandas-pyarrow": "pandas, pyarrow's parser",
    "python": "plain Python",
}
PARTS = ("parse", "tokenize", "write")
_ARRAYS = (
    "term_start",
    "term_language",
    "token_start",
    "tokens",
    "heads",
    "relations",
    "tails",
    "type_start",
    "types",
)
_STRINGS = ("cuis", "terms")
_MAX_LENGTH = 32
_BATCH = 10_000  # terms that a peer gives to the tokenizer at once


def load_ours(release: Path, out: Path, tokenizer: str) -> dict[str, float]:
    """The seconds of each part of our build."""
    from data_pipeline.build_dataset import build
    from data_pipeline.build_dataset.options import BuildOptions
    from data_pipeline.dataset.tokenizer import WordPieces

    taken = dict.fromkeys((*PARTS, "start"), 0.0)

    def timed(part: str, function: Callable) -> Callable:
        def call(*arguments):
            started = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                taken[part] += time.perf_counter() - started

        return call

    for owner, name, part in (
        (build, "_read", "parse"),
        (WordPieces, "__call__", "tokenize"),
        (build, "load_tokenizer", "start"),  # imports transformers
    ):
        setattr(owner, name, timed(part, getattr(owner, name)))
    started = time.perf_counter()
    build.build_dataset(
        BuildOptions(source=release, out=out, tokenizer=Path(tokenizer), overwrite=True)
    )
    taken["write"] = time.perf_counter() - started - sum(taken.values())
    return {part: taken[part] for part in PARTS}


def load_by_peer(name: str, release: Path, out: Path, tokenizer: str) -> dict[str, float]:
    """The seconds of each part of a peer; see `ingest_peers`."""
    from benchmarks.ingest_peers import read_with_pandas, read_with_python
    from data_pipeline.dataset.tokenizer import load_tokenizer

    pieces = load_tokenizer(tokenizer)
    pieces.enable_truncation(_MAX_LENGTH)
    started = time.perf_counter()
    if name == "python":
        found = read_with_python(release)
    else:
        found = read_with_pandas(release, name.removeprefix("pandas-"))
    parsed = time.perf_counter()
    tokens, lengths = [], []
    for first in range(0, len(found["terms"]), _BATCH):
        ids = [x.ids for x in pieces.encode_batch_fast(found["terms"][first : first + _BATCH])]
        lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        total = int(lengths[-1].sum())
        tokens.append(np.fromiter(itertools.chain.from_iterable(ids), np.uint16, total))
    found["tokens"] = np.concatenate(tokens)
    found["token_start"] = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    tokenized = time.perf_counter()
    out.mkdir()
    for array in _ARRAYS:
        np.save(out / f"{array}.npy", found[array])
    for text in _STRINGS:
        (out / f"{text}.txt").write_text("\n".join(found[text]), encoding="utf-8")
    written = time.perf_counter()
    seconds = (parsed - started, tokenized - parsed, written - tokenized)
    return dict(zip(PARTS, seconds, strict=True))


def check_same(ours: Path, peers: list[Path]) -> dict[str, int]:
    """The counts of our dataset; checks that each peer's arrays and strings equal it.

    Raises BadInput where one differs.
    """
    from data_pipeline.dataset.store import open_dataset

    dataset = open_dataset(ours, strings=True)
    for peer in peers:
        for name in _ARRAYS:
            if not np.array_equal(getattr(dataset, name), np.load(peer / f"{name}.npy")):
                raise BadInput(f"{name} of {peer.name} is not that of our build: not the same work")
        for name in _STRINGS:
            if "\n".join(getattr(dataset, name)) != (peer / f"{name}.txt").read_text("utf-8"):
                raise BadInput(f"{name} of {peer.name} are not those of our build")
    counts = dataset.manifest.counts
    return {name: getattr(counts, name) for name in ("concepts", "terms", "tokens", "triplets")}


def installed() -> list[str]:
    """The loaders whose packages are installed; prints which are left out."""
    wanted = {"pandas-c": ("pandas",), "pandas-pyarrow": ("pandas", "pyarrow")}
    names = []
    for name in LOADERS:
        missing = [p for p in wanted.get(name, ()) if importlib.util.find_spec(p) is None]
        if missing:
            print(
                f"{name} left out: {', '.join(missing)} is not installed "
                "(pip install -r requirements-benchmarks.txt -c constraints.txt)",
                file=sys.stderr,
            )
        else:
            names.append(name)
    return names
