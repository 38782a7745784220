"""CODER++ (Zeng, Yuan and Yu 2022)."""
