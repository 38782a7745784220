"""The training loop and its files, independent of any paper."""
