"""Readers of terminologies: UMLS files, OBO ontologies, archives."""
