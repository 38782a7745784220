"""The cleaning rules: what each does to awkward terms, column and single term alike."""

import json
import random
import unicodedata

import polars as pl
import pytest
import tiny_bert
import tiny_modernbert
import tokenizers
from tokenizers import Regex, normalizers
from transformers import AutoTokenizer

from data_pipeline.dataset.tokenizer import load_tokenizer, save_tokenizer, tokenizer_hash
from data_pipeline.process import BadInput
from data_pipeline.terminology.cleaning import (
    _SEMANTIC_TAGS,
    _TO_ASCII,
    CLEANING,
    IN_WORDS,
    _character_map,
    _cleaning_normalizers,
    clean,
    clean_in,
    semantic_tags,
    with_cleaning,
    without_cleaning,
    without_tags,
)

PAPER = {
    "Pain NOS": "pain",
    "NOS pain": "pain",
    "Pain nos NOS knee": "pain knee",
    "pain, NOS": "pain,",
    "Nosocomial infection": "nosocomial infection",
    "NOS": "",
    "Cold (disorder)": "cold",
    "Cold (a (b (c) d) e) sore": "cold sore",
    "(disorder)": "",
    "2-(4-x)ethyl[5] {6}": "2 ethyl[5] {6}",
    "open ( bracket": "open ( bracket",
    "X-ray of the arm--left": "x ray of the arm left",
    "  a\t b\n\u00a0 c\u2028d ": "a b c d",
    "Ödem ΟΔΟΣ": "ödem οδος",
    "痛み（腰）": "痛み（腰）",
    "Disease NOS (disorder)": "disease",
    "": "",
}


def cleaned(term, rules):
    """One term, as a column of one row."""
    return clean(pl.Series([term]), rules)[0]


@pytest.mark.parametrize("term", PAPER)
def test_paper_rules(term):
    assert cleaned(term, "paper") == PAPER[term]


def test_none_only_folds_blanks():
    assert cleaned("  Pain\n NOS (x-ray)\t", "none") == "Pain NOS (x-ray)"


LOOKUP = {
    "  Cold\t(disorder) ": "Cold",
    "COLD (DISORDER)": "COLD",
    "Bed rest (regime/therapy)": "Bed rest",
    "Ward (environment / location)": "Ward",
    "SNOMED CT Concept (SNOMED RT+CTV3)": "SNOMED CT Concept",
    "Excision (left) (procedure)": "Excision (left)",
    "Hemiplegia (left)": "Hemiplegia (left)",
    "Diabetes mellitus (type 2)": "Diabetes mellitus (type 2)",
    "Cold (disorder) of nose": "Cold (disorder) of nose",
    "Pain NOS, x-ray": "Pain NOS, x-ray",
    "poly(product)": "poly(product)",
    "(disorder)": "(disorder)",
    "Melanoma (disorder) (finding)": "Melanoma (disorder)",
    "Mood (mental disorder)": "Mood (mental disorder)",
    "": "",
}


@pytest.mark.parametrize("term", LOOKUP)
def test_lookup_drops_a_semantic_tag_and_nothing_else(term):
    assert cleaned(term, "lookup") == LOOKUP[term]


def test_the_tags_of_a_dictionary():
    """Whose brackets mean something else keeps them."""
    terms = [
        "Cold (disorder)",
        "Sneezing (FINDING)",
        "Left (side)",
        "Rest (regime/therapy) at home",
    ]
    tags = semantic_tags(terms)
    assert tags == {"disorder", "finding"} == semantic_tags(pl.Series(terms))
    mentions = pl.Series(["Cold (Disorder)", "Sneezing (finding)", "Saw (physical object)"])
    assert without_tags(mentions, tags).to_list() == ["Cold", "Sneezing", "Saw (physical object)"]
    assert semantic_tags(["Cold (left)", "(disorder)"]) == semantic_tags([]) == frozenset()
    assert without_tags(mentions, frozenset()).to_list() == mentions.to_list()


MLNORM = {
    "Œdème de l’œil (droit)": "oedeme de l ' oeil ( droit )",
    "Fie\u0300vre  À 40°C": "fievre a 40 degc",
    "IL2-Rβ1, β-η φ": "il 2 - rb 1 , b - e ph",
    "≥ 5µg/mL ×3": "> = 5 ug / ml x 3",
    "“Pain” NOS—“x”…": '" pain " nos - " x " . . .',
    "a1b22c T4N0M0": "a 1 b 22 c t 4 n 0 m 0",
    "a-b_c\\d[e]^f`{g|h}~!@i": "a - b _ c \\ d [ e ] ^ f ` { g | h } ~ ! @ i",
    "Straße Łódź №5": "strasse lodz no 5",
    "a\u2028b\u00a0\u3000c\u200bd": "a b cd",
    "()": "( )",
    "\u0301 ": "",
    "": "",
}


@pytest.mark.parametrize("term", MLNORM)
def test_mlnorm_rules(term):
    assert cleaned(term, "mlnorm") == MLNORM[term]
    assert cleaned(MLNORM[term], "mlnorm") == MLNORM[term]


def test_mlnorm_makes_ascii_of_every_character():
    """Also where a column is read in parts, and where a value is missing."""
    letters = [chr(point) for point in range(0x3000) if not 0xD800 <= point < 0xE000]
    column = clean(pl.Series([*letters, None, "É"]), "mlnorm")
    assert column[-2:].to_list() == [None, "e"]
    assert all(term.isascii() and term == term.lower() for term in column.drop_nulls())


def test_words_for_all_rules():
    assert set(IN_WORDS) == set(CLEANING)


@pytest.mark.parametrize("rules", CLEANING)
def test_column_expression_and_single_term_agree(rules):
    terms = [*PAPER, *LOOKUP, *MLNORM, *(f"{a} {b}" for a in PAPER for b in PAPER)]
    column = clean(pl.Series(terms), rules).to_list()
    lazy = pl.LazyFrame({"t": terms}).select(clean(pl.col("t"), rules)).collect()["t"].to_list()
    assert column == lazy == [cleaned(term, rules) for term in terms]
    assert not any(set(term) & set("\t\n\r") for term in column)


def test_unknown_rules_are_refused():
    with pytest.raises(
        BadInput, match="unknown cleaning 'papper'; expected one of lookup, mlnorm, none, paper"
    ):
        cleaned("x", "papper")


# -------------------------------------------------------------------------------------------------
# A tokenizer that cleans terms does so as `clean` does, letter for letter, and can be undone.

# What the rules are about, and what is lower-cased, folded or grouped in a way of its own.
PARTS = (
    "( ) ((a)b) - nos NOS nosocomial (disorder) (Finding) pain x K 1 2b [ ] \\ $1 ' \" <= é É İ "
    "ß ẞ ﬁ Σ ς ΟΔΥΣΣΕΥΣ Ὀδυσσεύς ſ \u212a œ β µg ≥ \u0301 \u05d0\u05b8 \u0600 \u0964 🫀 "
    "👩\u200d⚕ 心筋 \u1100\u1161"
).split(" ")
BLANKS = [
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\u00a0",
    "\u2028",
    "\x85",
    "\x1c",
    "\x1f",
    "\u3000",
    "\x0b",
]
BLANKS += ["\u200b", "\ufeff", "\u180e", "\u00ad", "\x80", "\x00", ""]


def random_letter(rng: random.Random) -> str:
    """One of those that Unicode has for so long that all libraries know it."""
    while True:
        letter = chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x20, 0x20000)]))
        if unicodedata.ucd_3_2_0.category(letter) not in ("Cn", "Cs"):
            return letter


def random_terms(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    tags = [f" ({tag})" for tag in sorted(_SEMANTIC_TAGS)]
    kinds = (PARTS, PARTS, BLANKS, tags)

    def part() -> str:
        return random_letter(rng) if rng.random() < 0.2 else rng.choice(rng.choice(kinds))

    return ["".join(part() for _ in range(rng.randint(0, 12))) for _ in range(count)]


@pytest.mark.parametrize("rules", sorted(CLEANING))
@pytest.mark.parametrize(
    "seed, count", [(0, 1_500), *(pytest.param(n, 100_000, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_normalizers_clean_as_the_rules_do(rules, seed, count):
    terms = random_terms(seed, count)
    normalizer = normalizers.Sequence(_cleaning_normalizers(rules))
    cleaned = clean(pl.Series(terms, dtype=pl.String), rules)
    differ = [
        (term, ours, theirs)
        for term, ours in zip(terms, cleaned, strict=True)
        if ours != (theirs := normalizer.normalize_str(term))
    ]
    assert differ == []
    assert sum(one != term for one, term in zip(cleaned, terms, strict=True)) > count / 3


@pytest.mark.slow
def test_every_letter_becomes_the_same_ascii():
    normalizer = normalizers.Sequence(_cleaning_normalizers("mlnorm")[:3])
    letters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    # A line break parts them, and stays.
    assert normalizer.normalize_str("\n".join(letters)) == "\n".join(letters).translate(_TO_ASCII)


@pytest.mark.parametrize("unit", ["(", "(a", "((a)(b", "(" + 40 * "a", "nos ", " ", "Σ", "\u00ad"])
def test_long_strings_take_no_longer_than_their_length(unit):
    # A loop of loops, "([^()]+|...)*", would try 2^40 ways to part 40 letters. At the end is what
    # brackets need to be looked for at all.
    term = unit * 2_000 + ")"
    cleaned = normalizers.Sequence(_cleaning_normalizers("paper")).normalize_str(term)
    assert cleaned == clean(pl.Series([term]), "paper")[0]


def test_an_unknown_rule_set():
    with pytest.raises(BadInput, match="unknown cleaning 'umls'; expected one of lookup, mlnorm"):
        _cleaning_normalizers("umls")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer").mkdir()
    tiny_bert.write_tokenizer(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.mark.parametrize("rules", sorted(CLEANING))
@pytest.mark.parametrize(
    "own",
    [
        None,
        normalizers.Lowercase(),
        normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex("a+"), "a")]),
    ],
    ids=["none", "one", "two"],
)
def test_a_tokenizer_gets_its_definition_back(folder, own, rules):
    tokenizer = load_tokenizer(folder)
    tokenizer.normalizer = own
    before = tokenizer.to_str()
    assert without_cleaning(tokenizer).to_str() == before
    again = tokenizers.Tokenizer.from_str(with_cleaning(tokenizer, rules).to_str())
    assert again.to_str() != before
    assert without_cleaning(again).to_str() == before


@pytest.mark.parametrize("rules", sorted(CLEANING))
def test_added_tokens_that_no_clean_string_has_are_not_looked_for(rules):
    """Runs of blanks are, in ModernBERT's tokenizer; cleaned, they would be empty."""
    plain = tokenizers.Tokenizer.from_str(tiny_modernbert.tokenizer_json())
    before, ids = plain.to_str(), sorted(plain.get_vocab().values())
    cleaning = with_cleaning(tokenizers.Tokenizer.from_str(before), rules)
    assert sorted(cleaning.get_vocab().values()) == ids
    terms = [*random_terms(3, 500), "  ", "a   b", "to |||EMAIL_ADDRESS||| and |||IP_ADDRESS|||"]
    cleaned = clean(pl.Series(terms, dtype=pl.String), rules).to_list()
    expected = [one.ids for one in plain.encode_batch(cleaned)]
    assert [one.ids for one in cleaning.encode_batch(terms)] == expected
    again = without_cleaning(tokenizers.Tokenizer.from_str(cleaning.to_str()))
    assert again.to_str() == before


def test_a_saved_tokenizer_cleans_in_transformers_and_not_here(folder, tmp_path):
    plain = load_tokenizer(folder)
    save_tokenizer(folder, tmp_path / "out")
    clean_in(tmp_path / "out", "mlnorm")
    clean_in(tmp_path / "out", "paper")  # in place of the other
    given = " Heart   Attack-NOS nos (disorder)"
    peer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert peer(given)["input_ids"] == plain.encode("heart attack nos").ids
    assert plain.encode(given).ids != peer(given)["input_ids"]
    assert tokenizer_hash(load_tokenizer(tmp_path / "out")) == tokenizer_hash(plain)
    # Nor in what is copied of it, such as the tokenizer of a dataset.
    save_tokenizer(tmp_path / "out", tmp_path / "copy")
    copy = AutoTokenizer.from_pretrained(tmp_path / "copy")
    assert copy(given)["input_ids"] == plain.encode(given).ids
    about = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
    assert about["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_a_saved_tokenizer_of_modernbert_does_so_too(tmp_path):
    for name in ("own", "out", "copy"):
        (tmp_path / name).mkdir()
    tiny_modernbert.write_tokenizer(tmp_path / "own")
    plain, given = load_tokenizer(tmp_path / "own"), " Heart   Attack \t nos (disorder) "
    assert plain.encode("a  b").tokens == ["[CLS]", "a", "  ", "b", "[SEP]"]
    save_tokenizer(tmp_path / "own", tmp_path / "out")
    clean_in(tmp_path / "out", "mlnorm")
    clean_in(tmp_path / "out", "paper")
    peer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert peer(given)["input_ids"] == plain.encode("heart attack").ids
    assert peer(given).keys() == {"input_ids", "attention_mask"}
    assert tokenizer_hash(load_tokenizer(tmp_path / "out")) == tokenizer_hash(plain)
    save_tokenizer(tmp_path / "out", tmp_path / "copy")
    copy = AutoTokenizer.from_pretrained(tmp_path / "copy")
    assert copy(given)["input_ids"] == plain.encode(given).ids


def test_a_tokenizer_that_fails_at_any_term_is_refused(folder, tmp_path):
    """Its marks are not in its table: Rust stops, with what is no Exception."""
    save_tokenizer(folder, tmp_path / "out")
    clean_in(tmp_path / "out", "none")
    path = tmp_path / "out/tokenizer.json"
    spoiled = json.loads(path.read_text())
    spoiled["post_processor"]["special_tokens"].pop("[CLS]")
    path.write_text(json.dumps(spoiled))
    with pytest.raises(BadInput, match="fails at any term: .*tokenizer.json is damaged"):
        load_tokenizer(tmp_path / "out")


# -------------------------------------------------------------------------------------------------
# The table that SentencePiece's normalizer reads, with `tokenizers` as the reader.


def test_each_key_gives_its_string_and_others_stay():
    rng = random.Random(0)
    letters = rng.sample([chr(point) for point in range(0x80, 0xD800)], 2_000)
    letters += rng.sample([chr(point) for point in range(0x10000, 0x20000)], 500)
    strings = {letter: rng.choice(["", "a", "ss", "oe", "ἀ", letter * 2]) for letter in letters}
    others = set(rng.sample([chr(point) for point in range(0x20, 0x20000)], 4_000)) - set(strings)
    others -= {chr(point) for point in range(0xD800, 0xE000)}
    normalizer = normalizers.Precompiled(_character_map({a: b for a, b in strings.items() if b}))
    for letter, string in strings.items():
        assert normalizer.normalize_str(letter) == (string or letter)
    for letter in others:
        assert normalizer.normalize_str(letter) == letter


def test_one_key():
    normalizer = normalizers.Precompiled(_character_map({"œ": "oe"}))
    assert normalizer.normalize_str("cœur") == "coeur"
