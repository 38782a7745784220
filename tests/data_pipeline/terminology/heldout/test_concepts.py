"""Whole concepts held out: which may be, how they are chosen, what stays."""

import numpy as np
import polars as pl
import pytest
from tiny_ontology import write_ontology
from tiny_rrf import write_release

from data_pipeline.process.errors import BadInput
from data_pipeline.sources.obo import read_obo
from data_pipeline.sources.rrf import read_rrf
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.heldout.concepts import hold_out_concepts, write_heldout_concepts
from data_pipeline.terminology.terminology import Terminology, read_terminology


@pytest.fixture(scope="module")
def terminology(tmp_path_factory):
    path = write_ontology(tmp_path_factory.mktemp("obo") / "tiny.obo", 300)
    return read_terminology(read_obo(path), Filters(), "paper")


def by_identifier(terminology: Terminology) -> dict[str, set]:
    """Terms, codes, types and triplets, by identifiers and not by numbers."""
    cuis = terminology.cuis.to_list()
    concept_of_type = np.repeat(np.arange(len(cuis)), np.diff(terminology.type_start))
    triplets = zip(
        terminology.heads.tolist(),
        terminology.relations.tolist(),
        terminology.tails.tolist(),
        strict=True,
    )
    return {
        "terms": {(cuis[c], t) for c, t in terminology.terms.select("concept", "term").rows()},
        "codes": {(cuis[c], v, code) for c, v, code in terminology.codes.rows()},
        "types": {(cuis[c], t) for c, t in zip(concept_of_type, terminology.types, strict=True)},
        "triplets": {(cuis[head], relation, cuis[tail]) for head, relation, tail in triplets},
    }


def test_all_of_a_concept_goes_and_the_rest_stays_as_it_was(terminology):
    without, names = hold_out_concepts(terminology, 20, seed=0)
    gone = set(names["CUI"])
    assert len(gone) == 20 and names.height == 40
    assert without.cuis.to_list() == [cui for cui in terminology.cuis if cui not in gone]
    before, after = by_identifier(terminology), by_identifier(without)
    for what in ("terms", "codes", "types"):
        assert after[what] == {row for row in before[what] if row[0] not in gone}
    assert after["triplets"] == {
        (head, relation, tail)
        for head, relation, tail in before["triplets"]
        if not {head, tail} & gone
    }
    assert set(names.select("CUI", "term").rows()) == before["terms"] - after["terms"]
    assert without.heads.dtype == without.tails.dtype == np.int32
    assert without.terms.schema == terminology.terms.schema
    assert without.codes.schema == terminology.codes.schema
    assert without.report["concepts held out"] == 20
    lost = len(before["triplets"]) - len(after["triplets"])
    assert without.report["triplets of concepts held out"] == lost > 0


def test_the_choice_depends_on_seed_and_concepts_alone(terminology):
    def chosen(count, seed):
        return set(hold_out_concepts(terminology, count, seed)[1]["CUI"])

    assert chosen(20, 0) == chosen(20, 0) < chosen(30, 0)
    assert chosen(20, 0) != chosen(20, 1)


def test_only_concepts_of_two_terms_that_nobody_else_has(tmp_path):
    source = read_rrf(write_release(tmp_path), tmp_path / "scratch")
    terminology = read_terminology(source, Filters(), "none")
    # C1 has four terms, C2 shares none (its French string is its own English one), C3 two.
    without, names = hold_out_concepts(terminology, 3, seed=0)
    assert set(names["CUI"]) == {"C0000001", "C0000002", "C0000003"}
    # "HEART ATTACK" is "Heart attack" but for case.
    assert sorted(names.filter(pl.col("CUI") == "C0000001")["term"].str.to_lowercase()) == [
        "heart attack", "infarctus", "myocardial infarction nos",
    ]  # fmt: skip
    assert without.successors.is_empty()  # C0000009 became C0000002
    with pytest.raises(BadInput, match=r"--hold-out-concepts 4: found 3 concepts that can be held"):
        hold_out_concepts(terminology, 4, seed=0)
    with pytest.raises(BadInput, match="expected 1 to so many"):
        hold_out_concepts(terminology, 0, seed=0)


def test_semantic_types_stay_with_their_concepts(tmp_path):
    source = read_rrf(write_release(tmp_path), tmp_path / "scratch")
    terminology = read_terminology(source, Filters(), "none")
    types = by_identifier(terminology)["types"]
    assert len(types) == 4
    for seed in range(4):
        without, names = hold_out_concepts(terminology, 1, seed)
        left = {row for row in types if row[0] != names["CUI"][0]}
        assert by_identifier(without)["types"] == left and len(left) < 4


def test_a_term_that_another_concept_has_keeps_both_in(tmp_path):
    path = tmp_path / "shared.obo"
    frames = [
        'id: T:1\nname: heart attack\nsynonym: "MI" EXACT []',
        'id: T:2\nname: mitral insufficiency\nsynonym: "mi" EXACT []',
        'id: T:3\nname: fever\nsynonym: "pyrexia" EXACT []',
    ]
    path.write_text("ontology: x\n\n" + "\n\n".join(f"[Term]\n{one}" for one in frames) + "\n")
    terminology = read_terminology(read_obo(path), Filters(), "none")
    assert set(hold_out_concepts(terminology, 1, seed=0)[1]["CUI"]) == {"T:3"}
    with pytest.raises(BadInput, match="found 1 concepts"):
        hold_out_concepts(terminology, 2, seed=0)


def test_of_a_list_of_phrases_two_are_needed_and_only_these_are_kept(terminology, write):
    lines = ["name\tcount", "Pain of the limb 1\t9", "acute-attack 1\t3", "pain of limb 2\t2"]
    phrases = write("names.tsv", "\n".join(lines))
    without, names = hold_out_concepts(terminology, 1, 0, phrases)
    assert names.rows() == [("pain of limb 1", "T:00001"), ("acute attack 1", "T:00001")]
    assert len(without.cuis) == 299
    with pytest.raises(BadInput, match=r"found 1 concepts .*, of which .*names.tsv has two\)"):
        hold_out_concepts(terminology, 2, 0, phrases)


def test_the_file(terminology, tmp_path):
    _, names = hold_out_concepts(terminology, 3, seed=0)
    assert write_heldout_concepts(tmp_path / "heldout", names) == {"concepts": 3, "terms": 6}
    lines = (tmp_path / "heldout" / "concepts.tsv").read_text().splitlines()
    assert lines[0] == "term\tCUI" and len(lines) == 7
    assert lines[1] == "\t".join(names.row(0))
