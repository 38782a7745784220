"""Recall and rank: mentions that mean one or several concepts (Liang, Xue, Ruan 2021)."""
