"""Concepts, terms and relations: filtered, cleaned, held out."""
