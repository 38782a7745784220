"""Concepts, terms and relations: what is kept, cleaned, held out."""
