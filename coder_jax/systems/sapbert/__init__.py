"""SapBERT, self-alignment pre-training on synonyms (Liu et al. 2021)."""
