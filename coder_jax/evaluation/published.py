"""Results that papers report, as printed, for the rows below ours in a table."""

from collections.abc import Iterable
from dataclasses import dataclass

# -------------------------------------------------------------------------------------------------
# The tables of the CODER papers and of MLNorm, as printed.
#
# They are the papers' own measurements with their dictionaries, cleaning and versions, none of
# which is published; rows marked "published" are to look at, not to compare to the second digit.
# "CODER" is Yuan et al. 2022 (arXiv 2011.02947v3), "CODER v1" its first version.
#
# Left as printed: CODER's table 1 gives BioBERT 3.62 on Cadec, where v1 has 13.62; and both say
# that Cadec has 1,029 standard terms and PsyTar 618, where the files of their repository hold 181
# and 167.

_CODER, _V1 = "CODER", "CODER v1"
_ACC = ("acc@1", "acc@3")
# The semantic types of the tables, in their order and with their abbreviations.
MCSM_TYPES = {
    "Pharmacologic Substance": "PS",
    "Disease or Syndrome": "DS",
    "Neoplastic Process": "NP",
    "Clinical Drug": "CD",
    "Finding": "FD",
    "Injury or Poisoning": "IP",
}
_MANTRA_CORPORA = (
    *("Medline es", "Medline fr", "Medline nl", "Medline de"),
    *("EMEA es", "EMEA fr", "EMEA nl", "EMEA de", "Patent fr", "Patent de"),
)


@dataclass(frozen=True)
class PublishedRow:
    """A row of a paper's table.

    Attributes:
      benchmark: cadec, psytar, mantra, mcsm, ddbrc, quaero, "biosyn ncbi", ...
      pooling: cls (e), mean (e_avg), or "" for word and concept vectors.
      scores: as printed: percent, or MCSM; by the name of the score, type or sub-corpus.
    """

    benchmark: str
    paper: str
    table: str
    encoder: str
    pooling: str
    scores: dict[str, float]


def rows_for(name: str, rows: Iterable[PublishedRow]) -> list[PublishedRow]:
    """The rows of the benchmark that a name such as "cadec" or "my PsyTar" contains."""
    return [row for row in rows if row.benchmark in name.lower()]


def _parsed(
    text: str, benchmark: str, paper: str, table: str, columns: Iterable[str], pooling: str
) -> list[PublishedRow]:
    """Rows of "encoder | values", a dash where the paper has none."""
    rows = []
    for line in text.strip().splitlines():
        encoder, _, values = (part.strip() for part in line.partition("|"))
        numbers = zip(columns, values.split(), strict=True)
        scores = {column: float(number) for column, number in numbers if number != "-"}
        is_static = encoder in _STATIC
        rows.append(
            PublishedRow(benchmark, paper, table, encoder, "" if is_static else pooling, scores)
        )
    return rows


_STATIC = (
    *("cui2vec", "DeVine-etal-200", "claims-codes-hs-300", "GoogleNews-vectors"),
    *("Wiki-pubmed-PMC", "BioNLP-2016-win-2", "BioNLP-2016-win-30"),
    *("BTM (translation)", "GB (translation)", "combi_transf"),
)

# Cadec acc@1 acc@3, PsyTar acc@1 acc@3.
_NORMALIZATION_MEAN = """
GoogleNews-vectors | 39.15 52.41 29.75 47.52
Wiki-pubmed-PMC | 35.04 47.14 23.97 36.02
BioNLP-2016-win-2 | 35.47 48.30 25.29 37.70
BioNLP-2016-win-30 | 38.78 51.64 28.27 43.26
BERT-base-cased | 19.64 25.65 15.16 19.84
BioBERT | 3.62 17.62 7.64 10.98
ClinicalBERT (Huang) | 17.04 23.25 13.97 19.40
ClinicalBERT | 13.77 18.40 11.12 15.47
SciBERT | 12.50 17.95 11.04 15.12
BlueBERT | 14.64 20.62 13.24 18.07
PubMedBERT | 11.50 15.88 9.76 13.78
SapBERT | 54.05 71.42 52.45 66.04
CODER_ENG | 59.77 76.24 53.92 71.12
CODER_ALL | 56.02 72.11 43.86 60.20
"""
_NORMALIZATION_CLS = """
BERT-base-cased | 8.03 11.03 7.07 9.66
BioBERT | 8.33 11.58 4.36 6.38
ClinicalBERT (Huang) | 9.91 14.78 9.02 12.60
ClinicalBERT | 7.18 8.84 5.92 7.83
SciBERT | 10.61 14.66 8.79 12.55
BlueBERT | 11.42 15.13 9.08 12.10
PubMedBERT | 11.32 14.79 8.93 13.32
SapBERT | 49.26 62.61 44.22 58.62
CODER_ENG | 58.53 75.96 55.27 73.31
CODER_ALL | 52.93 66.53 38.36 52.48
"""
_NORMALIZATION_ABLATION = """
CODER_ENG without S^rel | 54.18 71.40 50.58 67.22
CODER_ENG with S^rel,TransE | 57.35 73.61 51.35 69.23
"""
# The rows of v1 that CODER's tables do not repeat.
_V1_NORMALIZATION_CLS = """
PubMedBERT(abs+text) | 17.19 23.81 16.65 22.42
CODER_ENG v1 | 54.76 70.66 40.86 57.92
CODER_ALL v1 | 52.24 69.00 41.28 59.03
"""
_V1_NORMALIZATION_MEAN = """
BioBERT v1.1 | 13.62 17.62 7.64 10.98
PubMedBERT(abs+text) | 21.96 29.70 20.24 26.15
CODER_ENG v1 | 55.23 72.15 43.55 62.47
CODER_ALL v1 | 53.02 70.86 41.99 62.32
"""
_V1_NORMALIZATION_ABLATION = """
v1 MS+REL+STY | 48.81 64.39 38.94 57.41
v1 MS+STY | 46.44 60.27 35.29 48.50
v1 MS | 52.56 65.96 42.25 56.70
"""
_MANTRA_F1 = {
    "cls": """
BTM (translation) | 69.1 67.4 61.4 66.3 - - - - - -
GB (translation) | 68.7 68.6 64.8 67.9 - - - - - -
mBERT | 13.6 16.7 16.3 17.3 17.9 25.5 16.3 14.3 25.6 19.8
CODER_ALL | 70.1 58.6 58.6 69.0 68.1 62.9 61.7 65.3 70.8 69.0
""",
    "mean": """
mBERT | 20.6 19.8 17.1 21.4 22.2 29.0 20.1 18.4 32.4 24.3
CODER_ALL | 70.4 58.9 59.5 68.4 68.1 61.1 62.9 65.6 71.1 70.2
""",
}
_V1_MANTRA_F1 = {
    "cls": """
combi_transf | 67.1 - - - 71.3 - - - - -
CODER_ALL v1 | 78.2 72.2 74.8 77.8 76.4 75.0 75.5 75.3 79.7 76.2
""",
    "mean": """
CODER_ALL v1 | 78.8 74.8 77.4 78.7 75.4 73.2 75.5 73.9 79.6 76.9
""",
}
_MCSM_MEAN = """
cui2vec | 4.2 7.2 7.6 4.3 7.2 8.4
DeVine-etal-200 | 7.3 6.9 6.3 1.2 4.6 2.5
claims-codes-hs-300 | 9.4 7.7 7.5 - 3.4 8.6
GoogleNews-vectors | 9.1 9.3 9.6 10.0 8.5 10.3
Wiki-pubmed-PMC | 8.6 9.4 10.0 9.8 8.9 10.3
BioNLP-2016-win-2 | 9.1 9.4 10.0 10.2 8.9 10.4
BioNLP-2016-win-30 | 8.3 9.3 10.0 9.6 8.8 10.3
BERT-base-cased | 8.6 8.4 8.7 9.7 8.4 9.3
BioBERT | 8.7 8.8 9.3 9.5 7.8 9.3
ClinicalBERT (Huang) | 8.3 7.5 7.8 9.7 7.5 9.3
ClinicalBERT | 8.4 8.5 8.9 9.6 7.5 9.6
SciBERT | 7.6 6.9 6.2 8.5 6.3 7.5
BlueBERT | 8.1 7.4 8.5 9.3 7.4 9.2
PubMedBERT | 9.4 9.4 9.5 10.0 8.7 10.2
SapBERT | 8.2 8.3 8.5 7.9 8.6 9.1
CODER_ENG | 10.2 9.4 9.4 10.7 9.6 10.1
CODER_ALL | 10.2 9.5 10.1 10.6 9.8 10.3
"""
_MCSM_CLS = """
BERT-base-cased | 8.1 7.2 6.2 9.0 6.3 8.2
BioBERT | 8.6 8.3 8.5 9.2 6.9 9.0
ClinicalBERT (Huang) | 7.5 6.4 5.7 8.6 5.5 8.5
ClinicalBERT | 7.0 7.1 7.2 8.9 5.9 8.0
SciBERT | 7.6 6.9 6.2 8.5 6.3 7.5
BlueBERT | 7.0 6.3 6.4 8.4 5.9 7.7
PubMedBERT | 9.3 9.4 9.1 10.0 8.4 10.0
SapBERT | 9.4 8.8 9.3 9.7 9.1 9.8
CODER_ENG | 10.3 9.5 9.6 10.7 9.5 10.1
CODER_ALL | 10.4 9.5 9.8 10.7 9.7 10.1
"""
_V1_MCSM_MEAN = """
PubMedBERT(abs+text) | 8.4 8.1 8.3 9.5 7.1 8.9
CODER_ENG v1 | 10.4 9.7 10.0 10.5 9.8 10.2
CODER_ALL v1 | 10.0 9.2 9.0 10.4 9.2 9.8
"""
_V1_MCSM_CLS = """
PubMedBERT(abs+text) | 8.6 7.9 7.9 9.5 7.1 8.7
CODER_ENG v1 | 10.5 9.6 10.3 10.6 9.8 10.2
CODER_ALL v1 | 10.5 9.6 9.6 10.7 9.6 10.1
"""
_V1_MCSM_ABLATION_MEAN = """
v1 MS+REL+STY | 10.7 10.4 10.6 10.7 10.3 10.7
v1 MS+STY | 10.9 10.8 10.7 11.0 10.9 10.9
v1 MS | 9.7 8.7 8.3 10.6 8.7 9.3
"""
_V1_MCSM_ABLATION_CLS = """
v1 MS+REL+STY | 10.7 10.3 10.5 10.7 10.3 10.6
v1 MS+STY | 10.9 10.8 10.6 11.0 10.8 10.8
v1 MS | 9.7 8.4 7.5 10.5 8.4 8.8
"""
# Fixed features, then fine-tuned; for word and concept vectors see `relation_classifiers`.
_DDBRC = """
cui2vec | 88.95 88.92
DeVine-etal-200 | 80.42 80.44
claims-codes-hs-300 | 72.02 71.99
GoogleNews-vectors | 90.96 90.85
Wiki-pubmed-PMC | 91.67 91.16
BioNLP-2016-win-2 | 91.94 92.00
BioNLP-2016-win-30 | 92.00 91.46
BERT-base-cased | 78.22 98.74
BioBERT | 83.47 98.73
ClinicalBERT (Huang) | 75.82 98.77
ClinicalBERT | 76.12 98.76
SciBERT | 77.79 98.80
BlueBERT | 79.70 98.78
PubMedBERT | 75.93 98.81
SapBERT | 91.80 98.79
CODER_ENG | 96.05 98.85
CODER_ALL | 95.82 98.81
"""
_V1_DDBRC = """
PubMedBERT(abs+text) | 84.54 98.80
CODER_ENG v1 | 95.50 98.82
CODER_ALL v1 | 95.45 98.73
v1 MS+REL+STY | 95.92 98.90
v1 MS+STY | 95.57 98.80
v1 MS | 94.64 98.85
"""


def _normalization_rows(text: str, paper: str, table: str, pooling: str) -> list[PublishedRow]:
    """Rows of Cadec and of PsyTar out of a table that has both."""
    both = (*(f"cadec {k}" for k in _ACC), *(f"psytar {k}" for k in _ACC))
    rows = []
    for benchmark in ("cadec", "psytar"):
        for row in _parsed(text, benchmark, paper, table, both, pooling):
            own = {k: row.scores[f"{benchmark} {k}"] for k in _ACC}
            rows.append(PublishedRow(benchmark, paper, table, row.encoder, row.pooling, own))
    return rows


# BioSyn (Sung et al. 2020, table 4) and the models of its repository (README, 2021). Its acc@5 is
# of five names, of which one concept may have several.
_BIOSYN = {
    "biosyn ncbi": """
BioSyn | 91.1 93.9
BioSyn from SapBERT | 92.4 95.8
""",
    "biosyn bc5cdr-disease": """
BioSyn | 93.2 96.0
BioSyn from SapBERT | 93.5 96.4
""",
    "biosyn bc5cdr-chemical": """
BioSyn | 96.6 97.2
BioSyn from SapBERT | 96.6 98.3
""",
}
_DDBRC_COLUMNS = ("frozen", "fine-tuned")
# The rows that each kind of benchmark shows below its own.
NORMALIZATION = (
    *_normalization_rows(_NORMALIZATION_MEAN, _CODER, "1", "mean"),
    *_normalization_rows(_NORMALIZATION_CLS, _CODER, "9", "cls"),
    *_normalization_rows(_NORMALIZATION_ABLATION, _CODER, "5", "mean"),
    *_normalization_rows(_V1_NORMALIZATION_CLS, _V1, "1", "cls"),
    *_normalization_rows(_V1_NORMALIZATION_MEAN, _V1, "1", "mean"),
    *_normalization_rows(_V1_NORMALIZATION_ABLATION, _V1, "6", "mean"),
    *(
        row
        for name, text in _BIOSYN.items()
        for row in _parsed(text, name, "BioSyn", "4 and README", ("acc@1", "acc@5"), "cls")
    ),
)
MANTRA = (
    *_parsed(_MANTRA_F1["cls"], "mantra", _CODER, "2", _MANTRA_CORPORA, "cls"),
    *_parsed(_MANTRA_F1["mean"], "mantra", _CODER, "2", _MANTRA_CORPORA, "mean"),
    *_parsed(_V1_MANTRA_F1["cls"], "mantra", _V1, "2", _MANTRA_CORPORA, "cls"),
    *_parsed(_V1_MANTRA_F1["mean"], "mantra", _V1, "2", _MANTRA_CORPORA, "mean"),
)
MCSM = (
    *_parsed(_MCSM_MEAN, "mcsm", _CODER, "3", MCSM_TYPES, "mean"),
    *_parsed(_MCSM_CLS, "mcsm", _CODER, "10", MCSM_TYPES, "cls"),
    *_parsed(_V1_MCSM_MEAN, "mcsm", _V1, "3", MCSM_TYPES, "mean"),
    *_parsed(_V1_MCSM_CLS, "mcsm", _V1, "9", MCSM_TYPES, "cls"),
    *_parsed(_V1_MCSM_ABLATION_MEAN, "mcsm", _V1, "10", MCSM_TYPES, "mean"),
    *_parsed(_V1_MCSM_ABLATION_CLS, "mcsm", _V1, "10", MCSM_TYPES, "cls"),
)
RELATIONS = (
    *_parsed(_DDBRC, "ddbrc", _CODER, "4", _DDBRC_COLUMNS, "cls"),
    *_parsed(_V1_DDBRC, "ddbrc", _V1, "4 and 6", _DDBRC_COLUMNS, "cls"),
)
# Of Wajsbürt et al. 2021: precision, recall, F1 of MEDLINE 2015, EMEA 2015, MEDLINE 2016, EMEA
# 2016. The rows of 2016 of its supervised variant and of the best of CLEF 2016 are not at hand; of
# Roller et al. the running text gives one F1.
_QUAERO_COLUMNS = tuple(
    f"{one} {score}"
    for one in ("MEDLINE 2015", "EMEA 2015", "MEDLINE 2016", "EMEA 2016")
    for score in ("precision", "recall", "f1")
)
_QUAERO_TABLE_3 = """
MLNorm S2, distant | 75.6 71.9 73.7 79.7 73.6 76.5 77.5 73.4 75.4 74.6 70.9 72.7
MLNorm S2, supervised | 80.6 77.5 79.0 87.5 82.7 85.1 - - - - - -
best of CLEF 2015 | 80.5 57.5 67.1 100.0 77.4 87.2 - - - - - -
Roller et al. 2018 | 83.1 66.1 73.6 90.9 77.2 83.5 - - - - - 73.4
"""
_QUAERO_TABLE_4 = """
mBERT, machine translation | 73.5 70.2 71.8 78.4 74.6 76.5
BERT, machine translation | 75.1 69.8 72.4 77.4 73.7 75.5
"""
# The names of these rows are inferred from the paper's text; the two of CamemBERT and BERT (75.5,
# 76.8) are left out, as which is which is not known.
_QUAERO_TABLE_5 = """
MLNorm S1, French only | 64.4
MLNorm S1, English only | 55.1
MLNorm S1 | 67.8
MLNorm S2, 2019AB | 76.0
MLNorm in one step | 76.2
"""
_QUAERO_PAPER = "MLNorm"
QUAERO = (
    *_parsed(_QUAERO_TABLE_3, "quaero", _QUAERO_PAPER, "3", _QUAERO_COLUMNS, ""),
    *_parsed(_QUAERO_TABLE_4, "quaero", _QUAERO_PAPER, "4", _QUAERO_COLUMNS[:6], ""),
    *_parsed(_QUAERO_TABLE_5, "quaero", _QUAERO_PAPER, "5", ["EMEA 2015 f1"], ""),
)


# -------------------------------------------------------------------------------------------------
# The tables of Phan et al. 2019 (BNE), as printed.
#
# The paper searches names of UMLS and maps their concepts to CTD's identifiers (4.3), a larger
# dictionary than MEDIC alone: compare the distances between rows, not their levels. XM answers a
# mention that the training annotations have as they do. What others reached is as the paper
# quotes it.

_BNE_PAPER = "BNE"
_NCBI, _BC5CDR = "ncbi", "bc5cdr"
_TYPES = ((_NCBI, "Disease"), (_BC5CDR, "Disease"), (_BC5CDR, "Chemical"))
_BNE_TABLE_2 = """
Jaccard | .424 .410 .607
SG_W | .499 .494 .598
SG_W + WMD | .532 .526 .637
SG_S | .487 .472 .623
SG_S.C | .531 .510 .628
BNE + SG_W | .695 .718 .664
BNE + SG_S.C | .713 .734 .672
"""
_BNE_TABLE_3 = """
Jaccard | .843 .772 .935
SG_W | .800 .725 .771
SG_W + WMD | .779 .731 .919
SG_S | .815 .790 .929
SG_S.C | .838 .811 .929
BNE + SG_W | .854 .829 .930
BNE + SG_S.C | .857 .829 .934
Wieting et al. 2015 | .822 .813 .930
D'Souza and Ng 2015 | .847 .841 -
TaggerOne (Leaman and Lu 2016) | .877 .889 .941
NormCo (Wright et al. 2019) | .878 .880 -
"""
_BNE_TABLE_3_XM = """
BNE + SG_W | .873 .905 .954
BNE + SG_S.C | .877 .906 .958
"""
_BNE_TABLE_4 = """
SG_W | .645 .584 .518
Pakhomov et al. 2016 | .620 .580 -
Chen et al. 2018 (BioSentVec) | .630 .575 .501
Beam et al. 2018 (cui2vec) | .411 .334 .427
SG_S | .614 .566 .516
SG_S.C | .654 .592 .557
BNE + SG_W | .606 .580 .626
BNE + SG_S.C | .637 .593 .602
BNE + SG_S.C, synonym loss alone | .496 .445 .564
Wieting et al. 2015 | .639 .565 .595
"""
_PAIRS = ("umnsrs-sim", "umnsrs-rel", "mayosrs")


def _rows_of_text(text: str, table: str, score: str) -> list[PublishedRow]:
    """Rows for NCBI disease, and for both types of BC5CDR, out of a table that has the three."""
    columns = [f"{benchmark} {kind} {score}" for benchmark, kind in _TYPES]
    rows = []
    for benchmark in (_NCBI, _BC5CDR):
        for row in _parsed(text, benchmark, _BNE_PAPER, table, columns, ""):
            own = {
                name.removeprefix(f"{benchmark} "): value
                for name, value in row.scores.items()
                if name.startswith(benchmark)
            }
            rows.append(PublishedRow(benchmark, _BNE_PAPER, table, row.encoder, "", own))
    return rows


def _rows_of_pairs() -> list[PublishedRow]:
    """Rows for each list of pairs."""
    rows = []
    for row in _parsed(_BNE_TABLE_4, "", _BNE_PAPER, "4", _PAIRS, ""):
        for name, value in row.scores.items():
            rows.append(PublishedRow(name, _BNE_PAPER, "4", row.encoder, "", {"spearman": value}))
    return rows


MENTIONS_IN_TEXT: tuple[PublishedRow, ...] = (
    *_rows_of_text(_BNE_TABLE_2, "2", "map"),
    *_rows_of_text(_BNE_TABLE_3, "3", "acc@1"),
    *_rows_of_text(_BNE_TABLE_3_XM, "3", "acc@1 + XM"),
)
SIMILARITY: tuple[PublishedRow, ...] = tuple(_rows_of_pairs())


# -------------------------------------------------------------------------------------------------
# The tables of Liang, Xue and Ruan (arXiv 2101.09101), as printed.
#
# CHIP-2019, the two parts of its test set as one: 2,851 mentions of one name and 149 of several,
# among 9,867 codes. BERT is Google's for Chinese; the best row very likely is an ensemble of five.

_RECALL_RANK_PAPER = "recall and rank"
_ACCURACY = ("uni", "multi", "total")
_RECALL = ("recall@2", "recall@5", "recall@7", "recall@10")
_NUMBER = ("number uni", "number multi", "number total")

_RECALL_RANK_TABLE_2 = """
TF-IDF | 49.3 - 46.8
edit distance | 50.8 - 48.3
BERT ranking | 88.6 - 84.2
Zhang | 37.76 - 37.76
Liang | 69.63 - 69.63
Transformer (Yan et al. 2020) | 91.1 52.4 89.3
"""
_RECALL_RANK_TABLE_3 = """
recall and rank | 93.48 53.02 91.47
without MTCG | 72.21 - 68.62
without KAR | 92.63 41.61 90.1
without fusion | 92.9 51.68 90.85
"""
_RECALL_RANK_TABLE_6 = """
negatives: keyword replacing | 43.83
negatives: random | 65.10
negatives: tree | 79.03
negatives: TF-IDF | 86.17
negatives: online | 90.10
"""
_RECALL_RANK_TABLE_7 = """
Transformer (Yan et al. 2020) | 88 88.7 89.1 89.2
12 layers | 94.20 97.23 97.83 98.30
10 layers | 93.63 96.80 97.40 97.83
8 layers | 93.93 96.93 97.47 97.97
6 layers | 93.23 96.90 97.43 97.70
2 layers | 91.43 95.07 96.23 96.57
2 layers, TF-IDF negatives | 83.93 90.17 91.33 92.43
"""
_RECALL_RANK_TABLE_8 = """
BERT ranking | 100 - 96.3
delimiter | 96.6 70.3 95.6
Transformer (Yan et al. 2020) | 98.6 76.4 97
BERT alone | 99.26 65.77 97.8
MTCG | 99.58 70.71 98.23
"""
MULTIPLE_NAMES: tuple[PublishedRow, ...] = (
    *_parsed(_RECALL_RANK_TABLE_2, "chip", _RECALL_RANK_PAPER, "2", _ACCURACY, ""),
    *_parsed(_RECALL_RANK_TABLE_3, "chip", _RECALL_RANK_PAPER, "3", _ACCURACY, ""),
    *_parsed(_RECALL_RANK_TABLE_6, "chip", _RECALL_RANK_PAPER, "6", ["total"], ""),
    *_parsed(_RECALL_RANK_TABLE_7, "chip", _RECALL_RANK_PAPER, "7", _RECALL, ""),
    *_parsed(_RECALL_RANK_TABLE_8, "chip", _RECALL_RANK_PAPER, "8", _NUMBER, ""),
)
