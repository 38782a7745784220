"""Evaluation: vectors of terms scored on benchmarks.

benchmark.py        the protocol: what a kind of benchmark says of itself
benchmarks.py       all kinds, a line each: which one a path is of, reading it, scoring it; tables
record.py           what was measured, on what and how, as JSON
results.py          cells of tables, intervals; comparison.py: two results; published.py: papers
vectors.py          what benchmarks ask of vectors: of an encoder, of words, of concepts

normalization.py    mentions -> concepts: mentions, folds (Cadec, PsyTar), XL-BEL; accuracy
mantra.py           the MANTRA corpus; given_groups.py: mentions whose semantic group is given
several_concepts.py mentions of one concept or several -> accuracy of sets, recall; baselines
similarity.py       pairs with human scores -> Spearman's rank correlation
concepts.py         concepts with semantic types -> MCSM; case_studies.py: their nearest terms
relations.py        pairs of concepts -> their relation (DDBRC); links.py: link prediction
annotated_text.py   mentions in annotated text; name_pairs.py: synonyms by BM25, coverage
"""
