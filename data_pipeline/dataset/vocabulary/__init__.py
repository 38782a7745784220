"""The word pieces of an encoder, and new ones for it that are learnt from terms."""
