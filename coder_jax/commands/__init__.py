"""The verbs of `python -m coder_jax`, one module each: OPTIONS, run(options)."""
