"""What trained classes answer, and how they are handed on."""
