"""Rules by which strings of terms are cleaned, in Python and in tokenizers."""
