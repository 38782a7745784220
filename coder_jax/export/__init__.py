"""A trained encoder as a folder for the Hugging Face Hub, checked before it gets its name."""
