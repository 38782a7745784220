"""The verbs of `python -m coder_jax`, one module each: add_arguments(parser), run(args)."""
