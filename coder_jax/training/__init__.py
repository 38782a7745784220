"""The training run: it knows no paper."""
