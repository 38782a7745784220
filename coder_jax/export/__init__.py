"""Export of trained encoders as folders for the Hugging Face Hub, with a check of their vectors."""
