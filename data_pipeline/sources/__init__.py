"""Readers of terminologies: UMLS, SNOMED CT, LOINC, OBO ontologies, tables of terms, archives."""
