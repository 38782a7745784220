"""Lists of retired CUIs: what is read from each format, what they change, messages."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from evaluating import ENCODER
from tiny_rrf import write_release

from coder_jax.evaluation.benchmarks import options_with, read_benchmark
from data_pipeline.build_dataset.build import _write_small_tables
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput
from data_pipeline.sources.obo import read_obo
from data_pipeline.sources.rrf import read_rrf
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.retired_cuis import choose_list, read_retired_cuis
from data_pipeline.terminology.terminology import read_terminology

DICTIONARY = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


def test_retired_cuis_of_gold_and_dictionary(write):
    retired = read_retired_cuis(write("r.tsv", "old\tnew\nC7\tC8\nC8\tC2\nC5\tC6\nC1\tC4\n"))
    assert retired.successor == {"C7": "C2", "C8": "C2", "C5": "C6", "C1": "C4"}
    path = write("m.tsv", "a\tC7\nb\tC1|C8\nc\tC2\nd\tC8|C7\n")
    plain = read_benchmark("toy", path, dictionary=DICTIONARY)
    benchmark = read_benchmark("toy", path, dictionary=DICTIONARY, retired_cuis=retired)
    (fold,) = benchmark.folds
    assert fold.gold == ["C2", "C4|C2", "C2", "C2"]
    assert fold.dictionary.concepts == ["C4", "C4", "C2"]
    assert (benchmark.retired, fold.dictionary.retired) == (3, 2)
    assert benchmark.content_hash == plain.content_hash, "of the file as it is"
    assert benchmark.retired_cuis is retired
    assert (plain.retired, plain.folds[0].dictionary.retired) == (0, 0)


def test_a_dictionary_as_old_as_the_gold(write):
    # The list is newer than both: what they share they still share, and merged concepts are one.
    retired = read_retired_cuis(write("r.tsv", "C1\tC9\nC2\tC9\n"))
    path = write("m.tsv", "a\tC1\nb\tC2\n")
    (fold,) = read_benchmark("toy", path, dictionary=DICTIONARY, retired_cuis=retired).folds
    assert fold.gold == ["C9", "C9"] and fold.dictionary.concept_set == {"C9"}


class Table:
    keyed_by = "concepts"

    def __init__(self, **vectors):
        self.table = vectors

    def encode(self, keys):
        return np.array([self.table.get(key, (0, 0)) for key in keys], np.float32)

    def known(self, keys):
        return np.array([key in self.table for key in keys])


MERGED = "old\tnew\nC1\tC7\nC2\tC8\nC3\tC9\n"


def test_pairs_are_looked_up_under_what_their_cuis_were_merged_into(write):
    retired = read_retired_cuis(write("r.tsv", MERGED))
    rows = "Mean,CUI1,CUI2,TERM1,TERM2\n3,C1,C2,a,b\n2,C2,C4,b,d\n1,C3,C1,c,a\n"
    benchmark = read_benchmark("mayo", write("mayo.csv", rows), retired_cuis=retired)
    assert benchmark.keys("concepts") == ["C1", "C2", "C3", "C4", "C7", "C8", "C9"]
    assert benchmark.keys("terms") == ["a", "b", "c", "d"]
    # C1 has its own vector, C2 that of C8, and C3 none.
    table = Table(C1=(1, 0), C7=(-1, 0), C8=(9, 1), C4=(1, 1))
    record = benchmark.score(table, ENCODER, options_with())
    assert (record.counts["missing"], record.counts["retired"]) == (1, 1)
    assert record.scores["spearman_known"] == pytest.approx(1)
    assert record.scoring["retired_cuis"]["content_hash"] == retired.content_hash


def test_concepts_are_looked_up_under_what_they_were_merged_into(write):
    retired = read_retired_cuis(write("r.tsv", MERGED + "C5\tC4\nC6\tC7\n"))
    rows = "".join(f"C{i}\tCell\tterm {i}\n" for i in range(1, 7))
    path = write("c.tsv", f"CUI\tsemantic types\tterm\n{rows}")
    benchmark = read_benchmark(
        "mcsm", path, options=options_with(types=["Cell"]), retired_cuis=retired
    )
    assert benchmark.keys("concepts")[6:] == ["C7", "C8", "C9"]
    table = Table(C7=(1, 0), C2=(0, 1), C8=(1, 1), C4=(1, 2))
    # C3 has no vector under either; C5 is C4 today and C6 is C1: the set holds both already.
    keys = benchmark.looked_up("concepts", table.known)
    assert keys == ["C7", "C2", "C9", "C4", "C5", "C6"]
    record = benchmark.score(table, ENCODER, options_with(neighbours=1))
    assert record.counts == {"concepts": 6, "missing": 3, "retired": 1}
    assert record.scoring["retired_cuis"]["source"] == str(retired.source)
    terms = benchmark.looked_up("terms", table.known)
    assert terms == benchmark.keys("terms") == [f"term {i}" for i in range(1, 7)]


def test_a_case_study_lists_the_concepts_of_today(write):
    retired = read_retired_cuis(write("r.tsv", MERGED))
    for path in (write("look.tsv", "term\nsore\n"), "paper:knowledge"):
        study = read_benchmark("look", path, dictionary=DICTIONARY, retired_cuis=retired)
        assert study.dictionary.concepts == ["C7", "C7", "C8"]
        record = study.score(Table(), ENCODER, options_with())
        assert record.dictionary["retired"] == 3
        assert record.scoring["retired_cuis"] == retired.description


ROWS = ["C1|SY|C5", "C2|RO|C6", "C3|DEL|", "C5|SY|C9", "C6|RB|C1", "C6|SY|C2", "C7|RN|C1"]
SPLIT = ["C4|SY|C7", "C4|SY|C8"]


def test_only_merges_count_of_a_dataset(write):
    rows = [f"{row}|{str('|SY|' in row).lower()}".replace("|", "\t") for row in [*ROWS, *SPLIT]]
    path = write("r.tsv", "\n".join(["retired\trelation\tcui\tmerged", *rows]))
    assert read_retired_cuis(path).successor == {"C1": "C9", "C5": "C9", "C6": "C2"}


def test_only_merges_count_of_mrcui(write):
    rows = [row.split("|") for row in [*ROWS, *SPLIT]]
    lines = [f"{old}|2019AA|{rel}|||{new}|{'Y' if new else ''}|\r\n" for old, rel, new in rows]
    path = write("MRCUI.RRF", "".join(lines))
    retired = read_retired_cuis(path)
    assert retired.successor == {"C1": "C9", "C5": "C9", "C6": "C2"}
    assert retired.source == str(path) and len(retired.content_hash) == 64
    with pytest.raises(BadInput, match="MRCUI.RRF, line 2: found 6 columns, expected 7"):
        read_retired_cuis(write("MRCUI.RRF", lines[0] + "C2|2019AA|SY|||C3|\n"))


# A:5 became A:4, that A:6, and that A:3, as two places say; A:7 was split, and nothing is now A:8.
ONTOLOGY = """ontology: toy

[Term]
id: A:1
name: limb
relationship: part_of A:5
relationship: part_of A:7

[Term]
id: A:3
name: hand
synonym: "manus" EXACT []
alt_id: A:6
is_a: A:8

[Term]
id: A:4
name: obsolete hand
is_obsolete: true
replaced_by: A:6

[Term]
id: A:5
name: obsolete older hand
is_obsolete: true
replaced_by: A:4

[Term]
id: A:6
name: obsolete paw
is_obsolete: true
replaced_by: A:3

[Term]
id: A:7
name: obsolete limbs
is_obsolete: true
replaced_by: A:1
replaced_by: A:3

[Term]
id: A:8
name: obsolete thing
is_obsolete: true
"""
NOW = {"A:4": "A:3", "A:5": "A:3", "A:6": "A:3"}


def test_a_build_follows_chains_as_an_evaluation_does(write, tmp_path):
    source = read_obo(write("toy.obo", ONTOLOGY))
    excluded = pl.DataFrame({"mention": ["manus", "limb"], "CUI": ["A:5", "A:7"]})
    found = read_terminology(source, Filters(), "none", excluded)
    assert dict(found.successors.rows()) == NOW
    assert found.terms.select("concept", "term").rows() == [(0, "limb"), (1, "hand")]
    labels = [found.relation_labels[number] for number in found.relations]
    triplets = list(zip(found.heads.tolist(), labels, found.tails.tolist(), strict=True))
    assert triplets == [(0, "RO|inverse_part_of", 1), (1, "RO|part_of", 0)], "of A:5, not A:7"
    assert found.cuis.gather(found.concepts_of(pl.Series(["A:5", "A:7"]))).to_list() == ["A:3"]
    # The list that the build writes says the same to an evaluation.
    _write_small_tables(source, tmp_path)
    assert read_retired_cuis(tmp_path / "retired_cuis.tsv").successor == NOW


def test_a_build_refuses_a_chain_that_leads_back_to_itself(write):
    looped = ONTOLOGY.replace("replaced_by: A:6", "replaced_by: A:5")
    with pytest.raises(BadInput, match="toy unknown, .* leads back to itself .A:[45] -> A:.*remo"):
        read_terminology(read_obo(write("toy.obo", looped)), Filters(), "none")


def test_a_merger_into_nothing_is_refused_in_builds_and_evaluations(tmp_path):
    folder = write_release(tmp_path / "META", MRCUI="C9|2019AA|SY||||Y|\n", MRFILES=None)
    message = "found 'C9' merged into ''; expected two CUIs"
    with pytest.raises(BadInput, match=message):
        read_terminology(read_rrf(folder, tmp_path / "scratch"), Filters(), "none")
    with pytest.raises(BadInput, match=message):
        read_retired_cuis(folder / "MRCUI.RRF")


def test_which_list_counts(tmp_path, write):
    write("data/retired_cuis.tsv", "C1\tC2\n")
    own = tmp_path / "data" / "retired_cuis.tsv"
    assert choose_list(None, str(tmp_path / "data")) == own
    assert choose_list("r.tsv", str(tmp_path / "data")) == Path("r.tsv")
    assert choose_list("none", str(tmp_path / "data")) is None
    assert choose_list(None, None) is choose_list(None, str(own)) is None


def test_retired_cuis_that_cannot_be_used(write):
    with pytest.raises(BadInput, match=r"r.tsv:2: found 1 columns \('C2'\); expected 2: old CUI"):
        read_retired_cuis(write("r.tsv", "C1\tC3\nC2\n"))
    with pytest.raises(BadInput, match=r"r.tsv:1: found an empty column; expected two CUIs"):
        read_retired_cuis(write("r.tsv", "\tC3\n"))
    with pytest.raises(BadInput, match=r"leads back to itself \(C1 -> C2 -> C1\).*remove the row"):
        read_retired_cuis(write("r.tsv", "C1\tC2\nC2\tC1\n"))
    with pytest.raises(BadInput, match=r"leads back to itself \(C3 -> C3\)"):
        read_retired_cuis(write("r.tsv", "C3\tC3\n"))
