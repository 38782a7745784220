"""Filters of whole concepts: semantic groups, the mirror of a language, sources by language."""

import dataclasses

import polars as pl
import pytest
from tiny_rrf import tiny_files, write_release

from data_pipeline.process import BadInput
from data_pipeline.sources.rrf import read_rrf
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.terminology import read_terminology

MORE = [  # C0000003 gets a French name, C0000010 has names in three languages, C0000011 in English
    "C0000003|FRE|P|L1|PF|S1|Y|A1||||MSHFRE|MH|D3|Douleur d'un membre|0|N||",
    "C0000010|FRE|P|L1|PF|S1|Y|A1||||SNOMEDFRE|PT|D4|Main|0|N||",
    "C0000010|ENG|P|L1|PF|S1|Y|A1||||SNOMEDCT_US|PT|D5|Hand|0|N||",
    "C0000010|SPA|P|L1|PF|S1|Y|A1||||MSHSPA|PT|D6|Mano|0|N||",
    "C0000011|ENG|P|L1|PF|S1|Y|A1||||SNOMEDCT_US|PT|D7|Foot|0|N||",
    "C0000011|ENG|S|L1|PF|S1|Y|A1||||MSH|SY|D8|Pes|0|N||",
    "C0000012|FRE|P|L1|PF|S1|Y|A1||||MSHFRE|PT|D9|(rien)|0|N||",  # empty, once cleaned
    "C0000012|ENG|P|L1|PF|S1|Y|A1||||MSH|PT|D9|Nothing|0|N||",
]
TYPES = [
    "C0000010|T023|A1|Body Part, Organ, or Organ Component|||",
    "C0000011|T023|A1|Body Part, Organ, or Organ Component|||",
    "C0000011|T061|A1|Therapeutic or Preventive Procedure|||",
    "C0000012|T023|A1|Body Part, Organ, or Organ Component|||",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    texts = tiny_files()
    release = write_release(
        folder,
        MRCONSO=texts["MRCONSO.RRF"] + "\n".join([*MORE, ""]),
        MRSTY=texts["MRSTY.RRF"] + "\n".join([*TYPES, ""]),
        MRFILES=None,
    )
    return read_rrf(release, folder / "scratch")


def terms_of(terminology) -> dict[str, list[str]]:
    """Terms by CUI, in order."""
    grouped = terminology.terms.group_by("concept", maintain_order=True).agg("term")
    return {terminology.cuis[concept]: terms for concept, terms in grouped.rows()}


def built(source, **filters):
    return read_terminology(source, Filters(**filters), "paper")


def counts_add_up(found) -> bool:
    """Whether each row, and each concept, that was read is kept or counted as dropped."""
    return all(
        found.report[f"{what} read"]
        == kept + sum(n for name, n in found.report.items() if name.startswith(f"{what} dropped"))
        for what, kept in (
            ("terms", found.terms.height),
            ("concepts", len(found.cuis)),
            ("relations", len(found.heads)),
        )
    )


LISTED = {  # what a list has -> the concepts that it means
    "C0000011": ["C0000011"],
    "MESH:D9": ["C0000012"],  # MSHFRE has D9, too, and is not asked
    "mesh:D8": ["C0000011"],
    "D5": [],  # SNOMED's
    "C0000009": ["C0000002"],  # retired
}


def test_concepts_of_a_list(source):
    for identifier, concepts in LISTED.items():
        listed = [identifier, "C0000003", "OMIM:999999"]
        found = read_terminology(source, Filters(), "paper", listed=listed)
        assert found.cuis.to_list() == sorted([*concepts, "C0000003"]), identifier
        assert found.report["identifiers in --concepts-of"] == 3
        assert found.report["identifiers in --concepts-of found"] == 1 + bool(concepts)
        assert counts_add_up(found)
    assert found.report["concepts dropped: not in --concepts-of"] == 9 - 2
    both = read_terminology(source, Filters(semantic_groups=("ANAT",)), "paper", listed=[*LISTED])
    assert both.cuis.to_list() == ["C0000011", "C0000012"] and counts_add_up(both)


def test_a_list_of_nothing_that_the_source_has(source):
    message = (
        "--concepts-of: found 2 identifiers, such as '600001', none of which umls .* has; expected "
        "its concepts, such as 'C00000.*', or codes of MeSH or OMIM, such as "
    )
    with pytest.raises(BadInput, match=message):
        read_terminology(source, Filters(), "paper", listed=["OMIM:600001", "600001"])
    none = dataclasses.replace(source, atoms=source.atoms.with_columns(source=pl.lit("HPO")))
    with pytest.raises(BadInput, match="codes of MeSH or OMIM, of which it has none"):
        read_terminology(none, Filters(), "paper", listed=["D9"])


def test_concepts_of_some_semantic_groups(source):
    found = built(source, semantic_groups=("ANAT",))
    assert found.cuis.to_list() == ["C0000010", "C0000011", "C0000012"]
    assert found.report["concepts dropped: semantic group not asked for"] == 6
    assert found.report["concepts dropped: no term left"] == 0
    assert found.report["terms dropped: semantic group not asked for"] == 14 - 2  # two suppressed
    assert len(found.heads) == 0 and found.report["relations dropped: unknown concept"] > 0
    assert found.codes["code"].sort().to_list() == ["D4", "D5", "D6", "D7", "D8", "D9", "D9"]
    assert counts_add_up(found)
    both = built(source, semantic_groups=("PROC", "DISO"))
    assert both.cuis.to_list() == ["C0000001", "C0000002", "C0000003", "C0000011"]
    assert counts_add_up(both)
    # All types of a concept stay, also those of other groups.
    assert both.semantic_types[0] == "T023 Body Part, Organ, or Organ Component"


def test_types_of_a_retired_concept_are_those_of_its_successor(tmp_path):
    types = "C0000009|T023|A1|Body Part, Organ, or Organ Component|||\n"
    folder = write_release(tmp_path, MRSTY=types, MRFILES=None)
    found = built(read_rrf(folder, tmp_path / "scratch"), semantic_groups=("ANAT",))
    assert found.cuis.to_list() == ["C0000002"]  # into which C0000009 was merged


MIRROR = {
    "C0000001": ["infarctus", "heart attack", "myocardial infarction"],
    "C0000002": ["cardiac disease", "heart disease"],
    "C0000003": ["douleur d'un membre", "limb pain", '"pain" in limb'],
    "C0000006": ["douleur aiguë"],
    "C0000010": ["main", "hand"],
}


def test_mirror(source):
    """Also that the French string survives where English has the same."""
    found = built(source, languages=("FRE", "ENG"), mirror="FRE")
    assert terms_of(found) == MIRROR
    languages = [found.languages[number] for number in found.terms["language"]]
    assert languages == "FRE ENG ENG FRE ENG FRE ENG ENG FRE FRE ENG".split()
    assert found.report["concepts dropped: concept without a term in FRE"] == 2
    assert found.report["terms dropped: concept without a term in FRE"] == 3
    assert counts_add_up(found)
    # Codes only of rows that stay: not those of "Foot" and "Nothing".
    by_cui = found.codes.with_columns(cui=found.cuis.gather(found.codes["concept"]))
    assert set(by_cui["cui"]) == MIRROR.keys()


def test_the_mirror_is_taken_after_the_semantic_groups(source):
    found = built(source, languages=("FRE", "ENG"), mirror="FRE", semantic_groups=("ANAT",))
    assert terms_of(found) == {"C0000010": ["main", "hand"]}
    assert counts_add_up(found)


def test_the_mirror_is_taken_of_terms_that_the_other_filters_keep(source):
    found = built(source, languages=("FRE", "ENG"), mirror="FRE", without_sources=("SNOMEDFRE",))
    assert terms_of(found).keys() == MIRROR.keys() - {"C0000010"}
    excluded = pl.DataFrame({"mention": ["Main"], "CUI": ["C0000010"]})
    filters = Filters(languages=("FRE", "ENG"), mirror="FRE")
    found = read_terminology(source, filters, "paper", excluded)
    assert terms_of(found).keys() == MIRROR.keys() - {"C0000010"}
    assert counts_add_up(found)


def test_sources_by_language(source):
    found = built(source, language_sources={"ENG": ("SNOMEDCT_US",), "FRE": ("MSHFRE",)})
    assert terms_of(found) == {
        "C0000001": ["heart attack", "myocardial infarction", "infarctus"],
        "C0000002": ["cardiac disease"],
        "C0000003": ["douleur d'un membre"],
        "C0000006": ["douleur aiguë"],
        "C0000010": ["hand", "mano"],  # Spanish is not named: it keeps all
        "C0000011": ["foot"],
    }
    assert (
        found.report["relations dropped: unknown concept"]
        == 3
        == (built(source).report["relations dropped: unknown concept"])
    )
    assert counts_add_up(found)


def test_a_mirror_beside_sources_keeps_all_its_terms(source):
    """Step 2 of MLNorm: other concepts come in with the English terms of some vocabularies."""
    asked = {"mirror": "FRE", "language_sources": {"ENG": ("SNOMEDCT_US",)}}
    found = built(source, languages=("FRE", "ENG", "SPA"), **asked)
    spanish = {"C0000010": ["main", "hand", "mano"]}
    assert terms_of(found) == MIRROR | spanish | {"C0000011": ["foot"]}  # without "pes" of MSH
    assert counts_add_up(found)
    codes = found.codes.with_columns(cui=found.cuis.gather(found.codes["concept"]))
    assert codes.filter(cui="C0000011")["code"].to_list() == ["D7"]
    # What is named of the mirror's own language holds for the mirror, too.
    asked["language_sources"] = {"ENG": ("SNOMEDCT_US",), "FRE": ("SNOMEDFRE",)}
    found = built(source, languages=("FRE", "ENG"), **asked)
    assert terms_of(found) == {
        "C0000001": ["heart attack", "myocardial infarction"],
        "C0000010": ["main", "hand"],
        "C0000011": ["foot"],
    }


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"mirror": "GER"}, "--mirror: no term of the source is in GER. It has ENG, FRE, SPA"),
        ({"language_sources": {"GER": ("X",)}}, "--sources: no term of the source is in GER"),
        (
            {"language_sources": {"FRE": ("MSHFRE", "MSH")}},
            "--sources FRE=MSH: no term of the source in FRE has it. It has MSHFRE, SNOMEDFRE",
        ),
        ({"semantic_groups": ("ANAT", "DEVI", "XXXX")}, "semantic group 'XXXX'; expected one of"),
        ({"semantic_groups": ("DEVI",)}, "no concept is left: .*semantic group not asked for: 19"),
        ({"mirror": "FRE", "sources": ("SNOMEDCT_US",)}, "no concept is left: .*a term in FRE: 4"),
    ],
)
def test_filters_that_cannot_be_met(source, filters, message):
    with pytest.raises(BadInput, match=message):
        built(source, **filters)


def test_groups_of_a_source_without_types(tmp_path):
    terms_alone = write_release(tmp_path / "without", MRSTY=None, MRFILES=None) / "MRCONSO.RRF"
    with pytest.raises(BadInput, match="--semantic-groups DISO: .* has no semantic types; expect"):
        built(read_rrf(terms_alone, tmp_path / "1"), semantic_groups=("DISO",))
    folder = write_release(tmp_path / "own", MRSTY="C0000001|own||illness|||\n", MRFILES=None)
    with pytest.raises(BadInput, match="--semantic-groups DISO: umls has own illness; expected t"):
        built(read_rrf(folder, tmp_path / "2"), semantic_groups=("DISO",))


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"semantic_groups": ("DISOS",)}, "--semantic-groups: found .* did you mean DISO"),
        ({"mirror": "FRA"}, "--mirror: FRA is none of --languages FRE ENG; .*you mean FRE"),
        ({"language_sources": {"SPA": ("MSHSPA",)}}, "--sources SPA=...: SPA is none of --lang"),
    ],
)
def test_filters_that_contradict_each_other(filters, message):
    Filters(languages=("FRE", "ENG"), mirror="FRE", semantic_groups=("DISO",)).validate()
    with pytest.raises(BadInput, match=message):
        Filters(languages=("FRE", "ENG"), **filters).validate()


TEN = ("ANAT", "CHEM", "DEVI", "DISO", "GEOG", "LIVB", "OBJC", "PHEN", "PHYS", "PROC")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mirror", "concepts", "terms", "french"),
    [("FRE", 13_255, 57_694, 17_852), (None, 296_772, 519_968, 17_852)],
)
def test_french_openmeta(shared_data, tmp_path, mirror, concepts, terms, french):
    """Counts that were found in another way: distinct cleaned strings of each concept."""
    source = read_rrf(shared_data / "openmeta", tmp_path / "scratch")
    filters = Filters(
        languages=("FRE", "ENG"),
        term_types=("PT", "SY", "MH", "HT"),
        semantic_groups=TEN,
        mirror=mirror,
    )
    found = read_terminology(source, filters, "mlnorm")
    assert (len(found.cuis), found.terms.height) == (concepts, terms)
    assert found.terms.filter(language=0).height == french
    assert counts_add_up(found)
