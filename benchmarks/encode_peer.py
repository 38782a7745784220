"""The sentence-transformers side of `benchmarks.encode`: its settings, and the fastest of them."""

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coder_jax.export.folder import write_sentence_transformers_files

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder

_MODULE_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")


class Variant(NamedTuple):
    """One setting of the peer."""

    batch_size: int
    dtype: str
    compiled: bool

    def __str__(self) -> str:
        plain = f"batch_size {self.batch_size}, {self.dtype}"
        return plain + ", compiled" * self.compiled


def variants(args: argparse.Namespace) -> list[Variant]:
    """All settings that the flags allow; lower precision includes float16, which is as fast on
    GPUs.
    """
    dtypes = ["float32"] if args.dtype == "float32" else ["bfloat16", "float16"]
    compiled = [False, True] if args.compile else [False]
    return [
        Variant(size, dtype, graph)
        for dtype, graph, size in itertools.product(dtypes, compiled, args.batch_sizes)
    ]


class Peer:
    """A SentenceTransformer in the requested settings, each loaded once."""

    def __init__(self, folder: Path):
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.folder = folder
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._models: dict[tuple[str, bool], Any] = {}

    def model(self, variant: Variant) -> Any:
        """The model in the form of a variant."""
        import torch
        from sentence_transformers import SentenceTransformer

        key = variant.dtype, variant.compiled
        if key not in self._models:
            options = {"dtype": getattr(torch, variant.dtype), "attn_implementation": "sdpa"}
            model = SentenceTransformer(str(self.folder), device=self.device, model_kwargs=options)
            if variant.compiled:
                model[0].auto_model.compile(dynamic=True)
            self._models[key] = model.eval()
        return self._models[key]

    def encode(self, terms: list[str], variant: Variant) -> np.ndarray:
        """Unit vectors, float32 [n, D]; returns when the device is done."""
        vectors = self.model(variant).encode(
            terms,
            batch_size=variant.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return np.asarray(vectors, np.float32)


@contextmanager
def load_peer(folder: Path, encoder: "TermEncoder") -> Iterator[Peer]:
    """sentence-transformers with the weights of a folder, on all cores or on the GPU.

    Pooling and length are the encoder's, whatever the folder says of them.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    settings, width = encoder.settings, encoder.bert.config.hidden_size
    with tempfile.TemporaryDirectory() as temporary:
        for file in folder.iterdir():
            if file.is_file() and file.name not in _MODULE_FILES:
                (Path(temporary) / file.name).symlink_to(file.resolve())
        write_sentence_transformers_files(
            Path(temporary),
            {},
            width=width,
            pooling=settings.pooling,
            max_length=settings.max_length,
        )
        yield Peer(Path(temporary))


def fastest(peer: Peer, among: list[Variant], terms: list[str]) -> tuple[dict[str, float], Variant]:
    """Terms per second of each setting, after a first call, and the fastest setting."""
    tried: dict[Variant, float] = {}
    for variant in among:
        peer.encode(terms, variant) if variant.compiled else peer.encode(terms[:64], variant)
        started = time.perf_counter()
        peer.encode(terms, variant)
        tried[variant] = len(terms) / (time.perf_counter() - started)
    return {str(key): rate for key, rate in tried.items()}, max(tried, key=lambda key: tried[key])
