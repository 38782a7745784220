"""The tables of Phan et al. 2019 (BNE), as printed, to be set beside our own rows.

The paper searches the names that UMLS 2018AA has for the diseases or chemicals of CTD, a larger
dictionary than MEDIC alone: compare the distances between rows, not their levels. XM answers a
mention that the training annotations have as they do. What others reached is as the paper
quotes it.
"""

from coder_jax.evaluation.results.published import PublishedRow, parsed

PAPER = "BNE"
NCBI, BC5CDR = "ncbi", "bc5cdr"
TYPES = ((NCBI, "Disease"), (BC5CDR, "Disease"), (BC5CDR, "Chemical"))
TABLE_2 = """
Jaccard | .424 .410 .607
SG_W | .499 .494 .598
SG_W + WMD | .532 .526 .637
SG_S | .487 .472 .623
SG_S.C | .531 .510 .628
BNE + SG_W | .695 .718 .664
BNE + SG_S.C | .713 .734 .672
"""
TABLE_3 = """
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
TABLE_3_XM = """
BNE + SG_W | .873 .905 .954
BNE + SG_S.C | .877 .906 .958
"""
TABLE_4 = """
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
PAIRS = ("umnsrs-sim", "umnsrs-rel", "mayosrs")


def rows_of_text(text: str, table: str, score: str) -> list[PublishedRow]:
    """Rows for NCBI disease, and for both types of BC5CDR, out of a table that has the three."""
    columns = [f"{benchmark} {kind} {score}" for benchmark, kind in TYPES]
    rows = []
    for benchmark in (NCBI, BC5CDR):
        for row in parsed(text, benchmark, PAPER, table, columns, ""):
            own = {
                name.removeprefix(f"{benchmark} "): value
                for name, value in row.scores.items()
                if name.startswith(benchmark)
            }
            rows.append(PublishedRow(benchmark, PAPER, table, row.encoder, "", own))
    return rows


def rows_of_pairs() -> list[PublishedRow]:
    """Rows for each list of pairs."""
    rows = []
    for row in parsed(TABLE_4, "", PAPER, "4", PAIRS, ""):
        for name, value in row.scores.items():
            rows.append(PublishedRow(name, PAPER, "4", row.encoder, "", {"spearman": value}))
    return rows


MENTIONS_IN_TEXT: tuple[PublishedRow, ...] = (
    *rows_of_text(TABLE_2, "2", "map"),
    *rows_of_text(TABLE_3, "3", "acc@1"),
    *rows_of_text(TABLE_3_XM, "3", "acc@1 + XM"),
)
SIMILARITY: tuple[PublishedRow, ...] = tuple(rows_of_pairs())
