"""Settings of XLA, made before jax starts: faster code on CPUs, and a cache of compiled programs.
And the peak rates of devices, for those who must not start jax.

Only through the environment, where what the user has set stays, but for 64 bits; nothing here
imports jax.
"""

import importlib.metadata
import os

from data_pipeline.files.buckets import cache_folder

# On CPUs jaxlib gives matrix products to YNNPACK, which on the shapes of a BERT is slower than
# Eigen (by 10 to 20 % in a product); it keeps its reductions. An unknown flag would end the
# process: these versions know it.
_YNN, _VERSIONS = "--xla_cpu_experimental_ynn_fusion_type", ("0.10.", "0.11.", "0.12.")

# TFLOP/s of one device with bfloat16 and dense matrices, by the beginning of jax's name for it, the
# longer name first. TPUs: docs.cloud.google.com/tpu/docs, "peak compute per chip (bf16)". GPUs: the
# data sheets at nvidia.com/data-center, most of whose figures are "with sparsity", twice these.
PEAK_TFLOPS = {
    "TPU v4": 275.0,
    "TPU v5 lite": 197.0,  # v5e
    "TPU v5": 459.0,  # v5p
    "TPU v6 lite": 918.0,  # v6e
    "NVIDIA A100": 312.0,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100 NVL": 835.0,
    "NVIDIA H100": 989.0,  # SXM, "NVIDIA H100 80GB HBM3"
    "NVIDIA H200 NVL": 835.0,
    "NVIDIA H200": 989.0,
    "NVIDIA GH200": 989.0,
    "NVIDIA L40S": 362.0,
    "NVIDIA L4": 121.0,
}


def set_up_xla() -> None:
    """Set the environment; call it before jax is imported.

    A program that was compiled once is read from CODER_JAX_CACHE (default ~/.cache/coder_jax) when
    a run starts again.
    """
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder() / "compiled"))
    os.environ.pop("JAX_ENABLE_X64", None)  # for other programs: all arrays here are of 32 bits
    flags = os.environ.get("XLA_FLAGS", "")
    if _YNN not in flags and importlib.metadata.version("jaxlib").startswith(_VERSIONS):
        os.environ["XLA_FLAGS"] = f"{flags} {_YNN}=reduce".strip()
