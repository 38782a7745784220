"""Evaluation: one benchmark or metric, one file.

normalization.py  term vectors and gold concepts -> acc@k and MRR, ties counted openly
similarity.py     term pairs with human scores -> Spearman's rank correlation
benchmarks.py     files of a benchmark -> mentions, gold concepts, dictionary, term pairs
dictionary.py     a TSV file or a built dataset -> the terms and concepts that are searched
retired_cuis.py  MRCUI and its like -> the CUI that stands for each retired one today
ranks.py          places of gold concepts, with ties -> acc@k and MRR
rows.py           tab-separated text -> rows; hashes of rows
protocol.py       what was measured, on what and how: the record that is written as JSON
plots.py          metrics and scores -> training curves, before/after bars, similarity histograms
"""
