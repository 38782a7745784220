"""CODER's train step in PyTorch, twice: as the paper's authors would, and as fast as it gets."""
