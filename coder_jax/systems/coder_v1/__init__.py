"""CODER v1 (Yuan et al. 2020)."""
