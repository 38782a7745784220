"""Networks on packed rows, and the files and weights of Hugging Face."""
