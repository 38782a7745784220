"""TensorFlow for reading data only: no GPU memory taken, no start-up messages.

Import `tf` and `tfds` from here wherever data_pipeline needs them. What the user sets in the
environment stays as it is.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its notice ignores the level above

import absl.logging  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

absl.logging.set_verbosity(absl.logging.ERROR)
tf.config.set_visible_devices([], "GPU")  # JAX or PyTorch own the accelerators

__all__ = ["tf", "tfds"]
