"""Results: tables of records, intervals of scores, and two results compared."""
