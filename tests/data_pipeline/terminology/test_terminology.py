"""Filters, numbering and counts: every row of a release is either kept or counted as dropped."""

import gzip
import json

import numpy as np
import polars as pl
import pytest
from tiny_rrf import tiny_files, write_release

from data_pipeline.process import BadInput
from data_pipeline.sources.read_source import read_source
from data_pipeline.sources.rrf import read_rrf
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.terminology import read_terminology


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    return read_rrf(write_release(folder), folder / "scratch")


def terms_of(terminology) -> dict[str, list[str]]:
    """Terms by CUI, in order."""
    grouped = terminology.terms.group_by("concept", maintain_order=True).agg("term")
    return {terminology.cuis[concept]: terms for concept, terms in grouped.rows()}


def triplets_of(terminology) -> list[tuple[str, str, str]]:
    return [
        (terminology.cuis[h], terminology.relation_labels[r], terminology.cuis[t])
        for h, r, t in zip(
            terminology.heads.tolist(),
            terminology.relations.tolist(),
            terminology.tails.tolist(),
            strict=True,
        )
    ]


def test_terms_concepts_and_their_order(source):
    found = read_terminology(source, Filters(), "paper")
    assert terms_of(found) == {
        "C0000001": ["heart attack", "myocardial infarction", "infarctus"],
        "C0000002": ["heart disease", "cardiac disease"],  # preferred first, whatever its row
        "C0000003": ["limb pain", '"pain" in limb'],
        "C0000006": ["douleur aiguë"],
    }
    assert found.languages == ["ENG", "FRE"]
    # "Cardiac disease" is there in both languages and stays English.
    assert found.terms["language"].to_list() == [0, 0, 1, 0, 0, 0, 0, 1]
    assert found.term_start().tolist() == [0, 3, 5, 7, 8]


def test_triplets(source):
    found = read_terminology(source, Filters(), "paper")
    assert triplets_of(found) == [
        ("C0000001", "PAR|inverse_isa", "C0000002"),
        ("C0000001", "RO|", "C0000003"),
        ("C0000002", "CHD|isa", "C0000001"),
        ("C0000002", "RO|finding_of", "C0000003"),  # its head was C0000009, retired
    ]
    assert found.relation_labels == ["CHD|isa", "PAR|inverse_isa", "RO|", "RO|finding_of"]
    assert {array.dtype for array in (found.heads, found.relations, found.tails)} == {
        np.dtype(np.int32)
    }


def test_a_concept_and_what_was_merged_into_it_are_the_same(tmp_path):
    rows = tiny_files()["MRREL.RRF"]
    # C0000009 was merged into C0000002.
    merged = "".join(
        f"{head}||AUI|RO|{tail}||AUI|part_of|R9||MSH|MSH|||N||\n"
        for head, tail in [("C0000009", "C0000002"), ("C0000002", "C0000009")]
    )
    folder = write_release(tmp_path, MRREL=rows + merged, MRFILES=None)
    found = read_terminology(read_rrf(folder, tmp_path / "scratch"), Filters(), "paper")
    assert not np.any(found.heads == found.tails)
    assert found.report["relations dropped: relation of a concept to itself"] == 1 + 2
    assert "RO|part_of" not in found.relation_labels


def test_semantic_types(source):
    found = read_terminology(source, Filters(), "paper")
    assert found.semantic_types == ["T033 Finding", "T047 Disease or Syndrome",
                                    "T184 Sign or Symptom"]  # fmt: skip
    assert found.type_start.tolist() == [0, 1, 2, 4, 4]
    assert found.types.tolist() == [1, 1, 0, 2]


def test_every_row_is_accounted_for(source):
    report = read_terminology(source, Filters(), "paper").report
    assert report == {
        "concepts read": 6,
        "terms read": 13,
        "terms dropped: suppressed, SUPPRESS=E": 1,
        "terms dropped: suppressed, SUPPRESS=O": 1,
        "terms dropped: empty after cleaning": 1,
        "concepts dropped: no term left": 2,
        "terms dropped: same string in the concept": 2,
        "terms kept": 8,
        "relations read": 11,
        "relations dropped: suppressed, SUPPRESS=O": 1,
        "relations dropped: empty REL and RELA": 1,
        "relations dropped: relation of a concept to itself": 1,
        "relations dropped: unknown concept": 3,
        "relations dropped: duplicate": 1,
        "triplets kept": 4,
    }


@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        Filters(languages=("ENG",)),
        Filters(sources=("MSH",)),
        Filters(without_sources=("MSH",), term_types=("SY",)),
        Filters(relations=("RO|*",), keep_suppressed=True),
    ],
)
def test_the_counts_add_up(source, filters):
    found = read_terminology(source, filters, "none")
    for what, kept in (("terms", found.terms.height), ("relations", len(found.heads))):
        dropped = sum(n for name, n in found.report.items() if name.startswith(f"{what} dropped"))
        assert found.report[f"{what} read"] == dropped + kept


def test_language_order_decides_who_keeps_a_string(source):
    found = read_terminology(source, Filters(languages=("FRE", "ENG")), "paper")
    assert found.languages == ["FRE", "ENG"]
    assert terms_of(found)["C0000002"] == ["cardiac disease", "heart disease"]
    assert found.terms["language"].to_list() == [0, 1, 1, 0, 1, 1, 1, 0]


def test_one_language(source):
    found = read_terminology(source, Filters(languages=("FRE",)), "paper")
    assert terms_of(found) == {
        "C0000001": ["infarctus"],
        "C0000002": ["cardiac disease"],
        "C0000006": ["douleur aiguë"],
    }
    assert found.report["terms dropped: language not asked for"] == 8
    assert found.report["relations dropped: unknown concept"] == 5


def test_vocabularies_filter_terms_and_relations(source):
    found = read_terminology(source, Filters(sources=("SNOMEDCT_US",)), "paper")
    assert terms_of(found) == {"C0000001": ["heart attack", "myocardial infarction"]}
    assert found.report["relations dropped: source not asked for"] == 9
    without = read_terminology(source, Filters(without_sources=("MSHFRE",)), "paper")
    assert "C0000006" not in terms_of(without)


def test_term_types_and_suppressed(source):
    found = read_terminology(source, Filters(term_types=("PT", "SY"), keep_suppressed=True), "none")
    assert terms_of(found)["C0000003"] == ['"Pain" in limb', "Sore limb"]
    assert terms_of(found)["C0000004"] == ["Old name"]
    assert ("C0000003", "RO|seen_in", "C0000001") in triplets_of(found)


def test_relation_patterns(source):
    found = read_terminology(source, Filters(relations=("RO|*", "CHD|isa")), "paper")
    assert found.relation_labels == ["CHD|isa", "RO|", "RO|finding_of"]
    assert found.report["relations dropped: relation not asked for"] == 3


def test_excluded_terms_are_cleaned_and_follow_retired_cuis(source):
    excluded = pl.DataFrame(
        {
            "mention": ["Myocardial Infarction", "Heart disease", "limb pain", "douleur aiguë"],
            "CUI": ["C0000001", "C0000009", "C0000001", "C0000006"],
        }
    )
    found = read_terminology(source, Filters(), "paper", excluded)
    assert terms_of(found) == {
        "C0000001": ["heart attack", "infarctus"],
        "C0000002": ["cardiac disease"],
        "C0000003": ["limb pain", '"pain" in limb'],  # excluded from another concept
    }
    assert found.report["terms dropped: excluded by file"] == 3
    assert set(found.cuis.gather(found.concepts_of(excluded["CUI"]))) == {"C0000001", "C0000002"}


def test_strings_and_codes_of_the_source(tmp_path):
    """Of the rows that became a term, one entry each; of a concept each code once."""
    text = tiny_files()["MRCONSO.RRF"]
    more = [
        "C0000001|ENG|S|L1|PF|S1|Y|A1||||MSH|SY|0|Heart\vattack|0|N||",  # a code that is known
        "C0000009|ENG|S|L1|PF|S1|Y|A1||||MSH|SY|D9|Old heart|0|N||",  # it lives on, as C0000009
        "C0000003|ENG|S|L1|PF|S1|Y|A1||||SNOMEDCT_US|SY|99|(left)|0|N||",  # empty, once cleaned
    ]
    folder = write_release(tmp_path, MRCONSO=text + "\n".join([*more, ""]), MRFILES=None)
    found = read_terminology(read_source(folder, tmp_path / "scratch"), Filters(), "paper")
    first = found.terms.select("term", "strings", "sources").row(0)
    assert first == ("heart attack", ["Heart attack", "HEART ATTACK", "Heart attack"], [0, 2, 0])
    codes = found.codes.with_columns(cui=found.cuis.gather(found.codes["concept"]))
    assert codes.select("cui", "vocabulary", "code").rows() == [
        ("C0000001", 0, "0"), ("C0000001", 1, "3"), ("C0000001", 2, "1"), ("C0000001", 2, "2"),
        ("C0000002", 0, "4"), ("C0000002", 0, "5"), ("C0000002", 1, "6"),
        ("C0000003", 0, "7"), ("C0000003", 0, "8"), ("C0000003", 2, "99"),
        ("C0000006", 1, "12"), ("C0000009", 0, "D9"),
    ]  # fmt: skip
    as_cleaned = read_terminology(read_source(folder, tmp_path / "scratch"), Filters(), "none")
    held = dict(as_cleaned.terms.select("term", "strings").rows())
    assert held["Heart attack"] == [None, None] and held["HEART ATTACK"] == [None]


def test_excluded_terms_leave_no_string(source):
    excluded = pl.DataFrame({"mention": ["heart attack"], "CUI": ["C0000001"]})
    found = read_terminology(source, Filters(), "paper", excluded)
    strings = found.terms["strings"].explode().drop_nulls().to_list()
    assert "Myocardial infarction NOS" in strings
    assert not [string for string in strings if string.lower() == "heart attack"]


def test_a_filter_that_leaves_nothing(source):
    filters = Filters(sources=("SNOMEDCT_US",), languages=("FRE",))
    with pytest.raises(BadInput, match="no concept is left: .*source not asked for: .*Loosen"):
        read_terminology(source, filters, "paper")


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (Filters(languages=("EN",)), "--languages EN: no term .* It has ENG, FRE"),
        (Filters(sources=("SNOMED",)), "--sources SNOMED: no term .* MSH, MSHFRE, SNOMEDCT_US"),
        (Filters(without_sources=("X",)), "--without-sources X: no term"),
        (Filters(term_types=("XX",)), "--term-types XX: no term .* It has MH, PT, SY"),
        (Filters(relations=("isa",)), r"no relation label matches 'isa'; .* has CHD\|isa, PAR"),
    ],
)
def test_filter_values_that_are_not_there(source, filters, message):
    with pytest.raises(BadInput, match=message):
        read_terminology(source, filters, "paper")


def test_the_order_of_the_rows_does_not_matter(source, tmp_path):
    texts = {
        name.removesuffix(".RRF"): "\n".join(sorted(text.splitlines(), reverse=True)) + "\n"
        for name, text in tiny_files().items()
    }
    turned = read_rrf(write_release(tmp_path, **texts), tmp_path / "scratch")
    one, other = (read_terminology(s, Filters(), "paper") for s in (source, turned))
    assert one.terms.equals(other.terms) and triplets_of(one) == triplets_of(other)


def write_openmeta_head(shared_data, folder, rows):
    for name in ("MRCONSO", "MRREL", "MRSTY"):
        with gzip.open(shared_data / "openmeta" / f"{name}.RRF.gz", "rt", encoding="utf-8") as f:
            text = "".join(line for _, line in zip(range(rows), f, strict=False))
        (folder / f"{name}.RRF").write_text(text, encoding="utf-8")


def test_head_of_openmeta_against_a_plain_loop(shared_data, tmp_path):
    """The same rows through dictionaries and sets, one by one."""
    write_openmeta_head(shared_data, tmp_path, rows=15_000)
    found = read_terminology(read_rrf(tmp_path, tmp_path / "scratch"), Filters(), "none")
    lines = {
        name: [line.split("|") for line in (tmp_path / f"{name}.RRF").read_text().splitlines()]
        for name in ("MRCONSO", "MRREL")
    }
    expected: dict[str, set[str]] = {}
    for row in lines["MRCONSO"]:
        if row[16] == "N":
            expected.setdefault(row[0], set()).add(" ".join(row[14].split()))
    triplets = {
        (row[0], f"{row[3]}|{row[7]}", row[4])
        for row in lines["MRREL"]
        if row[14] == "N" and row[0] != row[4] and row[0] in expected and row[4] in expected
    }
    assert {cui: set(terms) for cui, terms in terms_of(found).items()} == expected
    assert found.terms.height == sum(map(len, expected.values()))
    assert set(triplets_of(found)) == triplets and len(found.heads) == len(triplets)
    assert found.report["relations dropped: unknown concept"] > 0


@pytest.mark.slow
def test_openmeta_has_the_counts_that_its_readme_states(shared_data, tmp_path):
    stated = json.loads((shared_data / "openmeta" / "counts.json").read_text())["counts"]
    source = read_rrf(shared_data / "openmeta", tmp_path / "scratch")
    found = read_terminology(source, Filters(keep_suppressed=True), "none")
    assert found.report["terms read"] == stated["MRCONSO rows (atoms)"]
    assert len(found.cuis) == stated["concepts (CUI)"]
    assert found.report["relations read"] == stated["MRREL rows"]
    assert len(found.relation_labels) == stated["distinct REL/RELA"]
    pairs = np.unique(found.heads.astype(np.int64) * len(found.cuis) + found.tails)
    assert len(pairs) == stated["MRREL distinct pairs of concepts (ordered)"]
    for language, terms in stated["distinct terms by language"].items():
        alone = read_terminology(
            source, Filters(languages=(language,), keep_suppressed=True), "none"
        )
        assert alone.terms.height == terms, language
