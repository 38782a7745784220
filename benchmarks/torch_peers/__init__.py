"""CODER's train step in PyTorch, twice: as the paper's authors would write it, and hand-tuned."""
