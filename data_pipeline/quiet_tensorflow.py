"""TensorFlow for data only: it uses no GPU memory and prints nothing when it starts.

Import `tf` from here wherever it is needed. What the user sets in the environment stays as it is.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its notice ignores the level above

import absl.logging  # noqa: E402
import tensorflow as tf  # noqa: E402

absl.logging.set_verbosity(absl.logging.ERROR)
tf.config.set_visible_devices([], "GPU")  # JAX or PyTorch own the accelerators
