"""The peers of `benchmarks.search`: faiss, and torch on a GPU."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from data_pipeline.process import BadInput

_BLOCK_QUERIES, _BLOCK_KEYS = 1024, 131_072  # of torch on a GPU: 0.5 GB of similarities


class SearchResult(NamedTuple):
    """The result of a search."""

    similarity: np.ndarray  # float32 [q, k], best first
    key: np.ndarray  # int64 [q, k], the index of each


Search = Callable[[np.ndarray, int], SearchResult]


def load_peers(keys: np.ndarray) -> dict[str, Search]:
    """The peers available on this machine, each with the keys already in its own memory.

    Raises:
        BadInput: if there is none.
    """
    peers = _faiss_search(keys) | _torch_search(keys)
    if not peers:
        raise BadInput(
            "no rival: neither faiss nor a GPU with torch is here; expected faiss-cpu on a CPU "
            "(pip install -r requirements-benchmarks.txt)"
        )
    return peers


def _faiss_search(keys: np.ndarray) -> dict[str, Search]:
    """IndexFlatIP on all cores, and on the GPU if faiss supports it."""
    if importlib.util.find_spec("faiss") is None:
        return {}
    import faiss

    faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
    index = faiss.IndexFlatIP(keys.shape[1])
    index.add(keys)
    if not getattr(faiss, "get_num_gpus", int)():
        return {"faiss-cpu": lambda queries, k: SearchResult(*index.search(queries, k))}
    on_gpu = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    return {"faiss-gpu": lambda queries, k: SearchResult(*on_gpu.search(queries, k))}


def _torch_search(keys: np.ndarray) -> dict[str, Search]:
    """torch.topk over blocks on a GPU, with the keys in GPU or host memory; nothing without a
    GPU.
    """
    import torch

    if not torch.cuda.is_available():
        return {}
    torch.set_float32_matmul_precision("highest")
    here = torch.from_numpy(keys).pin_memory()
    there = here.cuda()

    def search(all_keys: Any, queries: np.ndarray, k: int) -> SearchResult:
        on_gpu = torch.from_numpy(queries).cuda()
        best: Any = None
        for start in range(0, len(all_keys), _BLOCK_KEYS):
            block = all_keys[start : start + _BLOCK_KEYS].cuda(non_blocking=True)
            parts = []
            for part in on_gpu.split(_BLOCK_QUERIES):
                values, numbers = torch.topk(part @ block.T, min(k, len(block)), dim=1)
                parts.append((values, numbers + start))
            found = [torch.cat(pieces) for pieces in zip(*parts, strict=True)]
            if best is not None:
                found = [torch.cat(pair, dim=1) for pair in zip(best, found, strict=True)]
            values, places = torch.topk(found[0], min(k, found[0].shape[1]), dim=1)
            best = values, found[1].gather(1, places)
        return SearchResult(best[0].cpu().numpy(), best[1].cpu().numpy())

    return {
        "torch, keys on the GPU": lambda queries, k: search(there, queries, k),
        "torch, keys on the host": lambda queries, k: search(here, queries, k),
    }
