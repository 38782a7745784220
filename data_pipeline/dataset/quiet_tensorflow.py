"""TensorFlow for reading data only: no GPU memory taken, no start-up messages; its tensors.

Import `tf` and `tfds` from here wherever data_pipeline needs them. What the user sets in the
environment stays as it is.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its notice ignores the level above

import absl.logging  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

from data_pipeline.dataset.aligned import is_aligned  # noqa: E402

absl.logging.set_verbosity(absl.logging.ERROR)
tf.config.set_visible_devices([], "GPU")  # JAX or PyTorch own the accelerators

__all__ = ["as_tensor", "tf", "tfds"]


def as_tensor(array: np.ndarray) -> tf.Tensor:
    """An array as a tensor that shares its memory where that can be; `tf.constant` always copies.

    An array that begins where `aligned` says can; from now on it must not be written to.
    """
    if not (array.size and is_aligned(array)):
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
