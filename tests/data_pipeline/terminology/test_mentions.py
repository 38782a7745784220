import shutil
import tarfile
from collections import Counter

import polars as pl
import pytest
from quaero_corpus import write_quaero
from tiny_rrf import write_release

from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import GoldMention, GoldMentions
from data_pipeline.sources.rrf import read_rrf
from data_pipeline.sources.source import Source
from data_pipeline.terminology.filters import Filters
from data_pipeline.terminology.mentions import (
    Entry,
    concept_names,
    gold_form,
    mention_set,
    read_supervised,
)
from data_pipeline.terminology.terminology import read_terminology

CODED = [
    Entry(("D1", "100"), ("heart attack", "infarction")),
    Entry(("D2",), ("renal failure",)),
    Entry(("100",), ("another",)),
]
NAMED = [
    Entry(("01",), ("heart",)),
    Entry(("01.1",), ("heart attack",)),
    Entry(("01.1x1",), ("heart attack",)),
    Entry(("02.1",), ("heart attack",)),
]


def read(*gold: tuple[str, ...]) -> GoldMentions:
    rows = [GoldMention(f"m{place}", one, f"f:{place}") for place, one in enumerate(gold)]
    return GoldMentions(rows, Counter({"rows left out: no gold": 2}), ["f:9: left out: no gold"])


def test_where_gold_is_names_a_concept_is_a_distinct_name_with_all_its_codes():
    found = concept_names(NAMED, "names")
    assert found.concepts == found.names == ["heart", "heart attack"]
    assert found.codes == [("01",), ("01.1", "01.1x1", "02.1")]
    assert found.branches == [("01",), ("01", "02")]
    assert found.name_concepts.tolist() == [0, 1]


def test_where_gold_is_codes_every_name_stands_for_its_concept():
    found = concept_names(CODED, "codes")
    assert found.concepts == ["D1", "D2", "100"]
    assert found.names == ["heart attack", "infarction", "renal failure", "another"]
    assert found.name_concepts.tolist() == [0, 0, 1, 2]
    assert found.branches == [("D1", "100"), ("D2",), ("100",)]
    # "100" is another identifier of D1, but the main one of its own entry.
    assert found.number == {"D1": 0, "D2": 1, "100": 2}
    assert concept_names(CODED[::-1], "codes").number == {"100": 0, "D2": 1, "D1": 2}


def test_other_codes_of_an_entry_are_gold_of_its_concept():
    assert concept_names(CODED[:2], "codes").number == {"D1": 0, "D2": 1, "100": 0}


def test_names_of_an_entry_are_concepts_where_gold_is_names():
    found = concept_names(CODED, "names")
    assert found.concepts == ["heart attack", "infarction", "renal failure", "another"]
    assert found.codes[1] == ("D1", "100")


def test_how_gold_is_written_is_found_out():
    assert gold_form(CODED, read(("D1",), ("D2|100",), ("heart attack",)).rows) == "codes"
    assert gold_form(NAMED, read(("heart",), ("01", "heart attack")).rows) == "names"


def test_gold_is_a_set_of_concepts_and_what_the_dictionary_lacks_stays_in_it():
    names = concept_names(CODED[:2], "codes")
    found = mention_set(read(("D2", "D1"), ("D1|100",), ("D9", "D1", "D8"), ("D9",)), names)
    assert found.mentions == ["m0", "m1", "m2", "m3"]
    assert found.gold_start.tolist() == [0, 2, 3, 6, 7]
    assert found.gold.tolist() == [1, 0, 0, 0, -1, -1, -1]
    assert found.counts == {
        "rows left out: no gold": 2,
        "gold of the same concept, counted once": 1,
        "gold outside the dictionary": 3,
        "mentions with gold outside the dictionary": 2,
        "mentions": 4,
        "mentions of one concept": 2,
        "mentions of several": 2,
        "gold": 7,
    }
    assert found.odd == [
        "f:9: left out: no gold",
        "f:1: gold of the same concept: ['D1', '100']",
        "f:2: gold outside the dictionary: 'D9'",
        "f:2: gold outside the dictionary: 'D8'",
        "f:3: gold outside the dictionary: 'D9'",
    ]


def test_a_dictionary_without_names_is_said():
    with pytest.raises(BadInput, match="no names"):
        concept_names([], "names")


# -------------------------------------------------------------------------------------------------
# Training mentions join the terms of a release, and each that does not is counted.

TABLE = """Mention\tCUI\tsemantic_group
crise cardiaque\tC0000001\tDISO
Infarctus\tC0000001\tDISO
cœur malade\tC0000009\tANAT
main\tC7777777|C0000003\tDISO
douleur\tC0000007\tDISO
douleur\tC0000006\t
(rien)\tC0000003\tDISO
ancien\tC0000004\tDISO
"""


@pytest.fixture
def source(tmp_path):
    return read_rrf(write_release(tmp_path / "release"), tmp_path / "scratch")


@pytest.fixture
def mentions(tmp_path):
    (tmp_path / "mentions.tsv").write_text(TABLE)
    return read_supervised([tmp_path / "mentions.tsv"], ("train",))


def terms_of(terminology) -> dict[str, list[str]]:
    grouped = terminology.terms.group_by("concept", maintain_order=True).agg("term")
    return {terminology.cuis[concept]: terms for concept, terms in grouped.rows()}


def test_mentions_join_the_terms_of_their_concepts(source, mentions):
    filters = Filters(languages=("FRE", "ENG"), sources=("MSH", "MSHFRE"), term_types=("MH",))
    found = read_terminology(source, filters, "paper", supervised=mentions)
    assert terms_of(found) == {
        "C0000001": ["infarctus", "crise cardiaque", "heart attack"],
        "C0000002": ["cardiac disease", "cœur malade", "heart disease"],  # C0000009, retired
        "C0000003": ["main", "limb pain"],
        "C0000004": ["ancien"],  # the release has it, though suppressed
        "C0000006": ["douleur aiguë", "douleur"],
    }
    assert found.vocabularies == ["MSH", "MSHFRE", "supervised"]
    by_term = dict(found.terms.select("term", "vocabularies").rows())
    assert by_term["infarctus"] == [1, 2] and by_term["crise cardiaque"] == [2]
    strings = dict(found.terms.select("term", "strings").rows())
    assert strings["infarctus"] == ["Infarctus", "Infarctus"]  # of the release, and of the text
    assert {code for code in found.codes["vocabulary"]} == {0, 1}
    report = found.report
    assert report["supervised mentions read"] == 9
    assert report["supervised mentions dropped: concept not in the release"] == 2  # one was split
    assert report["supervised mentions kept: concept without a type of their group"] == 1
    assert report["supervised mentions dropped: empty after cleaning"] == 1
    assert report["supervised mentions kept"] == 6
    assert report["terms added: supervised mentions"] == 5  # "infarctus" is there
    assert_adds_up(found)


def assert_adds_up(found):
    """Names that are read are kept or dropped, and so is each mention."""
    report = found.report
    dropped, of_mentions = (
        sum(n for name, n in report.items() if name.startswith(f"{what} dropped"))
        for what in ("terms", "supervised mentions")
    )
    added = report["terms added: supervised mentions"]
    assert report["terms read"] + added == found.terms.height + dropped
    kept = report["supervised mentions kept"]
    assert report["supervised mentions read"] == kept + of_mentions
    names = found.terms.height - added
    assert items_of(found) == names + kept


def items_of(found):
    """What an epoch over the terms and mentions shows."""
    return found.terms.height + (found.terms["more_counts"].explode().sum() or 0)


def test_mentions_of_the_same_text_count_each(source):
    """Also where the text is a name of the terminology, or that of mentions in another language."""
    rows = [
        *[("Crise cardiaque", "C0000001", "FRE")] * 2,
        ("crise cardiaque", "C0000001", "FRE"),
        *[("infarctus", "C0000001", "FRE")] * 2,
        *[("heart attack", "C0000001", "FRE")] * 4,
        ("douleur", "C0000006", "FRE"),
        *[("douleur", "C0000003", "FRE")] * 2,
        *[("douleur", "C0000003", "ENG")] * 3,
    ]
    table = dict(zip(("mention", "cui", "language"), zip(*rows, strict=True), strict=True))
    mentions = pl.DataFrame(table).with_columns(group=pl.lit(""))
    filters = Filters(languages=("ENG", "FRE"))
    found = read_terminology(source, filters, "paper", supervised=mentions)
    again = {
        (found.cuis[concept], term): list(zip(languages, counts, strict=True))
        for concept, term, languages, counts in found.terms.drop_nulls("more_counts")
        .select("concept", "term", "more_languages", "more_counts")
        .rows()
    }
    assert again == {
        ("C0000001", "crise cardiaque"): [(1, 2)],  # one of the three is the term itself
        ("C0000001", "infarctus"): [(1, 2)],
        ("C0000001", "heart attack"): [(1, 4)],  # an English name
        ("C0000002", "cardiac disease"): [(1, 0)],  # a name in both
        ("C0000003", "douleur"): [(0, 2), (1, 2)],
    }
    assert found.report["supervised mentions kept"] == len(rows)
    assert found.report["terms added: supervised mentions"] == 3
    assert_adds_up(found)
    # Excluded test terms go with all their mentions.
    excluded = pl.DataFrame({"mention": ["Infarctus"], "CUI": ["C0000001"]})
    found = read_terminology(source, filters, "paper", excluded, mentions)
    assert found.report["supervised mentions dropped: excluded by file"] == 2
    assert found.report["terms dropped: excluded by file"] == 1
    assert_adds_up(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "rows", "distinct"), [("neither", 5712, 3024), ("MEDLINE", 2706, 923)]
)
def test_all_training_rows_of_quaero_count(shared_data, tmp_path, without, rows, distinct):
    """With a terminology that has all its concepts."""
    packed = shared_data / "benchmarks" / "quaero" / "QUAERO_FrenchMed.tar.gz"
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.rglob("corpus")
    shutil.rmtree(root / "train" / without, ignore_errors=True)
    mentions = read_supervised([root.parent], ("train",))
    assert mentions.height == rows
    concepts = mentions["cui"].unique().sort()
    same = {"language": "ENG", "source": "MSH", "term_type": "MH", "suppress": "N", "code": ""}
    atoms = pl.LazyFrame({"cui": concepts, "term": concepts}).with_columns(
        *(pl.lit(text).alias(name) for name, text in same.items()), rank=pl.lit(0, pl.UInt8)
    )
    source = Source("all", "1", [], atoms, None, None)
    found = read_terminology(source, Filters(), "mlnorm", supervised=mentions)
    assert found.report["supervised mentions kept"] == rows
    assert found.report["terms added: supervised mentions"] == distinct
    assert items_of(found) == len(concepts) + rows


def test_concepts_of_mentions_join_the_mirror(source, mentions):
    filters = Filters(languages=("FRE", "ENG"), mirror="FRE")
    assert "C0000003" not in read_terminology(source, filters, "paper").cuis
    found = read_terminology(source, filters, "paper", supervised=mentions)
    assert terms_of(found)["C0000003"] == ["main", "limb pain", '"pain" in limb']
    # Excluded test terms go, be they mentions or not.
    excluded = pl.DataFrame({"mention": ["Main"], "CUI": ["C0000003"]})
    found = read_terminology(source, filters, "paper", excluded, mentions)
    assert "C0000003" not in found.cuis


def test_mentions_of_other_groups_and_languages_are_dropped(source, mentions):
    filters = Filters(languages=("FRE",), semantic_groups=("DISO",))
    english = pl.DataFrame(
        {"mention": ["ill"], "cui": ["C0000001"], "language": ["ENG"], "group": [""]}
    )
    found = read_terminology(source, filters, "paper", supervised=pl.concat([mentions, english]))
    assert terms_of(found).keys() == {"C0000001", "C0000002", "C0000003", "C0000004"}
    assert found.report["supervised mentions dropped: semantic group not asked for"] == 1
    assert found.report["supervised mentions dropped: language not asked for"] == 1
    assert "ill" not in found.terms["term"]


def test_mentions_need_a_language(source, mentions):
    with pytest.raises(BadInput, match="--supervised: found mentions whose language is not told"):
        read_terminology(source, Filters(), "paper", supervised=mentions)
    found = read_terminology(source, Filters(languages=("ENG",)), "paper", supervised=mentions)
    expected = ["heart attack", "myocardial infarction", "crise cardiaque", "infarctus"]
    assert terms_of(found)["C0000001"] == expected  # the least preferred
    told = mentions.with_columns(language=pl.lit("GER"))
    found = read_terminology(source, Filters(), "paper", supervised=told)
    assert found.languages == ["ENG", "FRE", "GER"]
    assert terms_of(found)["C0000003"] == ["limb pain", '"pain" in limb', "main"]


def test_the_quaero_corpus(tmp_path):
    root = write_quaero(tmp_path)
    found = read_supervised([root], ("train",))
    rows = found.rows()
    assert len(rows) == 8 + 7 and set(found["language"]) == {"FRE"}
    assert rows[:2] == [
        ("Douxium", "C0000001", "FRE", "CHEM"),
        ("métastases hépatiques", "C0494165", "FRE", "DISO"),
    ]
    assert [row[1] for row in rows if row[0] == "somnolence"] == [
        "C0013144", "C2830004", "C0013144",
    ]  # fmt: skip
    assert ("sinus de la face", "", "FRE", "ANAT") in rows
    assert read_supervised([root / "corpus"], ("train", "dev")).height == 30
    with pytest.raises(BadInput, match="found the sets train, dev; expected test, too"):
        read_supervised([root], ("train", "test"))
    with pytest.raises(BadInput, match="expected the folder QUAERO_FrenchMed"):
        read_supervised([tmp_path / "QUAERO_FrenchMed" / "corpus" / "train" / "EMEA"], ("train",))


def test_mentions_of_quaero_without_a_known_cui_are_counted(source, tmp_path):
    mentions = read_supervised([write_quaero(tmp_path)], ("train",))
    filters = Filters(languages=("FRE", "ENG"), mirror="FRE")
    found = read_terminology(source, filters, "mlnorm", supervised=mentions)
    assert terms_of(found)["C0000001"][:2] == ["infarctus", "douxium"]
    assert found.report["supervised mentions dropped: no CUI"] == 2
    assert found.report["supervised mentions dropped: concept not in the release"] == 15 - 2 - 1
    assert found.report["supervised mentions kept: concept without a type of their group"] == 1
