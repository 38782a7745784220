"""Whole concepts held out: which may be, how they are chosen, what stays."""

import numpy as np
import polars as pl
import pytest
from tiny_ontology import write_ontology
from tiny_rrf import write_release

from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import mention_languages
from data_pipeline.sources.obo import read_obo
from data_pipeline.sources.rrf import read_rrf
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.heldout import (
    hold_out,
    hold_out_concepts,
    mention_table,
    write_heldout,
    write_heldout_concepts,
)
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


# -------------------------------------------------------------------------------------------------
# Synonyms held out: which may be, how they are chosen, what is written.


@pytest.fixture(scope="module")
def terminology_of_synonyms(tmp_path_factory):
    path = write_ontology(tmp_path_factory.mktemp("obo") / "tiny.obo", 300)
    return read_terminology(read_obo(path), Filters(), "paper")


def pairs(table: pl.DataFrame) -> set[tuple]:
    return set(table.rows())


def test_a_mention_leaves_its_concept_behind(terminology_of_synonyms):
    without, mentions = hold_out(terminology_of_synonyms, 50, seed=1)
    assert mentions.height == mentions["concept"].n_unique() == 50
    assert pairs(mentions.select("concept", "mention")) == pairs(
        terminology_of_synonyms.terms.select("concept", "term")
    ) - pairs(without.terms.select("concept", "term"))
    assert without.terms["concept"].n_unique() == 300
    assert not set(mentions["mention"]) & set(without.terms["term"])
    assert all(mention.startswith("acute") for mention in mentions["mention"])  # never the name
    assert (
        terminology_of_synonyms.cuis.gather(mentions["concept"]).to_list()
        == mentions["CUI"].to_list()
    )
    assert without.report["terms held out"] == 50
    assert without.report["terms kept"] == without.terms.height


def test_only_terms_with_one_right_answer_are_eligible(tmp_path):
    source = read_rrf(write_release(tmp_path), tmp_path / "scratch")
    english_first = read_terminology(source, Filters(), "none")
    # In English: C1's "HEART ATTACK" is its name but for case; "(NOS)", names and French are out.
    _, mentions = hold_out(english_first, 3, seed=0)
    assert set(mentions["mention"]) == {
        "Myocardial infarction NOS", "Cardiac disease", '"Pain" in limb',
    }  # fmt: skip
    with pytest.raises(BadInput, match="asks for 4 concepts; 3 have a term that can be held out"):
        hold_out(english_first, 4, seed=0)


def test_each_language_gives_its_own(tmp_path):
    source = read_rrf(write_release(tmp_path), tmp_path / "scratch")
    terminology = read_terminology(source, Filters(), "none")
    _, english = hold_out(terminology, 1, seed=0)
    without, mentions = hold_out(terminology, 1, seed=0, languages=["FRE", "ENG"])
    assert mentions["language"].to_list() == ["FRE", "ENG"]
    assert pairs(mentions.filter(pl.col("language") == "ENG")) == pairs(english)
    of_french = set(terminology.terms.filter(
        pl.col("language") == terminology.languages.index("FRE"))["term"])  # fmt: skip
    assert mentions["mention"][0] in of_french
    assert not set(mentions["mention"]) & set(without.terms["term"])
    write_heldout(tmp_path / "heldout", without, mentions, 50_000, seed=0)
    lines = (tmp_path / "heldout" / "mentions.tsv").read_text().splitlines()
    assert lines[0] == "mention\tCUI\tlanguage" and len(lines) == 3
    assert mention_languages(tmp_path / "heldout" / "mentions.tsv") == ["FRE", "ENG"]
    with pytest.raises(BadInput, match="--hold-out-languages GER: no term that is kept is in it"):
        hold_out(terminology, 1, seed=0, languages=["GER"])


def test_the_choice_depends_on_seed_and_concepts_alone_of_synonyms(
    terminology_of_synonyms, tmp_path
):
    chosen = {seed: pairs(hold_out(terminology_of_synonyms, 40, seed)[1]) for seed in (0, 1)}
    assert chosen[0] != chosen[1]
    assert pairs(hold_out(terminology_of_synonyms, 40, 0)[1]) == chosen[0]
    assert pairs(hold_out(terminology_of_synonyms, 60, 0)[1]) > chosen[0]
    larger = read_obo(write_ontology(tmp_path / "tiny.obo", 320))  # 14 more concepts to choose from
    wide = hold_out(read_terminology(larger, Filters(), "paper"), 40, 0)[1]
    assert len(pairs(wide) & chosen[0]) >= 40 - 14


def test_fraction(terminology_of_synonyms):
    eligible = hold_out(terminology_of_synonyms, 200, 0)[
        1
    ].height  # two of three concepts have a synonym
    assert hold_out(terminology_of_synonyms, 0.1, 0)[1].height == eligible // 10
    with pytest.raises(BadInput, match="--hold-out 1.5: expected a fraction between 0 and 1"):
        hold_out(terminology_of_synonyms, 1.5, 0)
    with pytest.raises(BadInput, match="--hold-out -1: expected .* leave it out"):
        hold_out(terminology_of_synonyms, -1.0, 0)


def test_no_string_of_the_source_is_a_mention(tmp_path):
    """A cleaned term is another one when it is cleaned again: so the name of one is the mention."""
    path = tmp_path / "pain.obo"
    path.write_text(
        '[Term]\nid: A:1\nname: Ache\nsynonym: "Pain-NOS" EXACT []\nsynonym: "PAIN  nos" EXACT []\n'
        'synonym: "Pain (x)" EXACT []\n'
    )
    terminology = read_terminology(read_obo(path), Filters(), "paper")

    def strings(held):
        return dict(held.terms.select("term", "strings").rows())

    assert strings(terminology) == {
        "ache": ["Ache"],
        "pain nos": ["Pain-NOS"],
        "pain": ["PAIN  nos", "Pain (x)"],
    }
    for seed in range(20):
        without, mentions = hold_out(terminology, 1, seed)
        if mentions["mention"].to_list() == ["pain nos"]:
            assert strings(without) == {"ache": ["Ache"], "pain": [None, "Pain (x)"]}
            break
    else:
        pytest.fail("no seed holds 'pain nos' out")


def test_files(terminology_of_synonyms, tmp_path):
    without, mentions = hold_out(terminology_of_synonyms, 20, seed=0)
    counts = write_heldout(tmp_path, without, mentions, 50_000, seed=0)
    dictionary = pl.read_csv(tmp_path / "dictionary.tsv", separator="\t")
    assert counts == {"mentions": 20, "dictionary": without.terms.height}
    assert dictionary.columns == ["term", "CUI"]
    assert dictionary["term"].to_list() == without.terms["term"].to_list()
    written = mention_table(tmp_path / "mentions.tsv")
    assert pairs(written) == pairs(mentions.select("mention", "CUI"))


def test_a_small_dictionary_keeps_whole_concepts_and_all_answers(terminology_of_synonyms, tmp_path):
    without, mentions = hold_out(terminology_of_synonyms, 20, seed=0)
    count = write_heldout(tmp_path, without, mentions, 100, seed=0)["dictionary"]
    dictionary = pl.read_csv(tmp_path / "dictionary.tsv", separator="\t")
    assert dictionary.height == count and 98 <= count <= 100
    assert set(mentions["CUI"]) < set(dictionary["CUI"])
    whole = without.terms.select("term", CUI=without.cuis.gather(without.terms["concept"]))
    listed = whole.filter(pl.col("CUI").is_in(dictionary["CUI"].unique().to_list()))
    assert pairs(listed) == pairs(dictionary)
    tested = without.cuis.filter(~without.cuis.is_in(dictionary["CUI"].unique().to_list()))[:3]
    write_heldout(tmp_path, without, mentions, 100, 0, pl.DataFrame({"CUI": [*tested, "C9999999"]}))
    dictionary = pl.read_csv(tmp_path / "dictionary.tsv", separator="\t")
    assert {*mentions["CUI"], *tested} < set(dictionary["CUI"]) and dictionary.height <= 100
    message = (
        "--heldout-dictionary 5: the concepts of held-out terms have [0-9]+ terms, those of "
        "--exclude-terms [1-9] more. Give [0-9]+ or more"
    )
    with pytest.raises(BadInput, match=message):
        write_heldout(tmp_path, without, mentions, 5, 0, pl.DataFrame({"CUI": tested}))


@pytest.mark.slow
def test_hpo_reference(hpo_path):
    """The set that facts about the project's first measurements were taken on: 1,149 mentions."""
    terminology = read_terminology(read_obo(hpo_path), Filters(), "paper")
    without, mentions = hold_out(terminology, 1149, seed=0)
    assert mentions.height == 1149
    assert without.terms.height == terminology.terms.height - 1149
