"""The tables of Liang, Xue and Ruan (arXiv 2101.09101), as printed, to be set beside our own rows.

CHIP-2019, the two parts of its test set as one: 2,851 mentions of one name and 149 of several,
among 9,867 codes. BERT is Google's for Chinese; the best row very likely is an ensemble of five.
"""

from coder_jax.evaluation.results.published import PublishedRow, parsed

PAPER = "recall and rank"
ACCURACY = ("uni", "multi", "total")
RECALL = ("recall@2", "recall@5", "recall@7", "recall@10")
NUMBER = ("number uni", "number multi", "number total")

TABLE_2 = """
TF-IDF | 49.3 - 46.8
edit distance | 50.8 - 48.3
BERT ranking | 88.6 - 84.2
Zhang | 37.76 - 37.76
Liang | 69.63 - 69.63
Transformer (Yan et al. 2020) | 91.1 52.4 89.3
"""
TABLE_3 = """
recall and rank | 93.48 53.02 91.47
without MTCG | 72.21 - 68.62
without KAR | 92.63 41.61 90.1
without fusion | 92.9 51.68 90.85
"""
TABLE_6 = """
negatives: keyword replacing | 43.83
negatives: random | 65.10
negatives: tree | 79.03
negatives: TF-IDF | 86.17
negatives: online | 90.10
"""
TABLE_7 = """
Transformer (Yan et al. 2020) | 88 88.7 89.1 89.2
12 layers | 94.20 97.23 97.83 98.30
10 layers | 93.63 96.80 97.40 97.83
8 layers | 93.93 96.93 97.47 97.97
6 layers | 93.23 96.90 97.43 97.70
2 layers | 91.43 95.07 96.23 96.57
2 layers, TF-IDF negatives | 83.93 90.17 91.33 92.43
"""
TABLE_8 = """
BERT ranking | 100 - 96.3
delimiter | 96.6 70.3 95.6
Transformer (Yan et al. 2020) | 98.6 76.4 97
BERT alone | 99.26 65.77 97.8
MTCG | 99.58 70.71 98.23
"""
MULTIPLE_NAMES: tuple[PublishedRow, ...] = (
    *parsed(TABLE_2, "chip", PAPER, "2", ACCURACY, ""),
    *parsed(TABLE_3, "chip", PAPER, "3", ACCURACY, ""),
    *parsed(TABLE_6, "chip", PAPER, "6", ["total"], ""),
    *parsed(TABLE_7, "chip", PAPER, "7", RECALL, ""),
    *parsed(TABLE_8, "chip", PAPER, "8", NUMBER, ""),
)
