"""CODER (Yuan et al. 2022)."""
