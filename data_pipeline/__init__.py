"""The path from a terminology release to batches: parse, filter, clean, tokenize, store, draw,
pack.

Nothing here imports jax. Building a dataset needs TensorFlow; reading it and making batches does
not, and streams them through tf.data where it is installed.
"""
