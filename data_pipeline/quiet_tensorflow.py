"""TensorFlow for data only: it uses no GPU memory and prints nothing when it starts.

Import `tf` from here wherever it is needed. What the user sets in the environment stays as it is.
"""

import importlib.util
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its notice ignores the level above

# PyTorch for Linux brings Triton along. Loaded after TensorFlow it ends the process (SIGSEGV: both
# bring an LLVM), for instance when a run is exported by the process that trained it.
if importlib.util.find_spec("triton"):
    importlib.import_module("triton")

import absl.logging  # noqa: E402
import tensorflow as tf  # noqa: E402

absl.logging.set_verbosity(absl.logging.ERROR)
tf.config.set_visible_devices([], "GPU")  # JAX or PyTorch own the accelerators
