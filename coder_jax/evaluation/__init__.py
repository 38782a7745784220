"""Evaluation: one benchmark, format or metric, one file.

benchmarks.py  files of any benchmark -> the benchmark; what a file is shows in its content
score.py       a benchmark and vectors -> the record of its scores
protocol.py    what was measured, on what and how: the record that is written as JSON
table.py       records -> tables, with the papers' rows (published.py) below ours

normalization_files.py, mantra_files.py  mentions and gold: Cadec, PsyTar, XL-BEL, MANTRA GSC
normalization.py, ranks.py               term vectors -> acc@k and MRR, ties counted openly
mantra.py                                precision, recall and F1 of MANTRA GSC
pair_files.py, similarity.py             pairs with human scores -> Spearman's rank correlation
concept_similarity.py                    concepts with semantic types -> MCSM
relation_files.py                        pairs of concepts and their relation: DDBRC
relation_classification.py               features of head and tail -> accuracy of a linear softmax
relation_fine_tuning.py                  the same, the encoder trained along
softmax_classifier.py                    its training
case_studies.py                          terms -> the nearest terms of a dictionary

vectors.py               what benchmarks ask of vectors; those of an encoder
word_concept_vectors.py  those of words or concepts
word2vec_files.py        a file of them -> a table of vectors
dictionary.py            a TSV file, a dataset or a release -> terms and concepts to search
retired_cuis.py          MRCUI and its like -> the CUI that stands for each retired one today
rows.py                  tab-separated text -> rows; hashes of rows
"""
