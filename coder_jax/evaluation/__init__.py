"""Evaluation: vectors of terms scored on benchmarks.

benchmark.py   the protocol: what a kind of benchmark says of itself
benchmarks.py  all kinds, a line each: which one a path is of, reading it, scoring it
record.py      what was measured, on what and how, as JSON

normalization/  mentions -> concepts: mentions, folds (Cadec, PsyTar), XL-BEL, MANTRA GSC; accuracy
similarity/     pairs with human scores -> Spearman's rank correlation
concepts/       concepts with semantic types -> MCSM; case studies: terms -> their nearest terms
relations/      pairs of concepts -> their relation (DDBRC); triplets -> link prediction
names/          mentions in annotated text, synonyms found by BM25, coverage of synonyms; baselines
multiple_names/ mentions of one concept or several -> accuracy of sets, recall; baselines
results/        records -> tables and their cells, intervals, two results compared; rows of papers
vectors/        what benchmarks ask of vectors: of an encoder, of words, of concepts
"""
