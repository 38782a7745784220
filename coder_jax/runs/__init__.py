"""What a training run keeps on disk: identity, checkpoints, metrics, lock."""
