"""From a terminology release to batches: parse, filter, clean, tokenize, store, draw, pack.

Nothing here imports jax. Modules that need TensorFlow (`store`, `order`, `batches`, `build`) import
it themselves, so that the rest can be used where TensorFlow is not installed.
"""
