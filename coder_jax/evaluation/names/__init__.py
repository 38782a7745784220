"""Names as Phan et al. 2019 (BNE) measure them: synonyms by nearness, mentions in text."""
