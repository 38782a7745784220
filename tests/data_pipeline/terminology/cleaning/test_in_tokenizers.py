"""A tokenizer that cleans terms does so as `clean` does, letter for letter, and can be undone."""

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

from data_pipeline.dataset.tokenize_terms import load_tokenizer, save_tokenizer, tokenizer_hash
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.cleaning.in_tokenizers import (
    clean_in,
    cleaning_normalizers,
    with_cleaning,
    without_cleaning,
)
from data_pipeline.terminology.cleaning.rules import CLEANING, SEMANTIC_TAGS, TO_ASCII, clean

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
    tags = [f" ({tag})" for tag in sorted(SEMANTIC_TAGS)]
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
    normalizer = normalizers.Sequence(cleaning_normalizers(rules))
    cleaned = clean(pl.Series(terms, dtype=pl.String), rules)
    differ = [
        (term, ours, theirs)
        for term, ours in zip(terms, cleaned, strict=True)
        if ours != (theirs := normalizer.normalize_str(term))
    ]
    assert differ == []
    assert sum(one != term for one, term in zip(cleaned, terms, strict=True)) > count / 3


def test_every_letter_becomes_the_same_ascii():
    normalizer = normalizers.Sequence(cleaning_normalizers("mlnorm")[:3])
    letters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    # A line break parts them, and stays.
    assert normalizer.normalize_str("\n".join(letters)) == "\n".join(letters).translate(TO_ASCII)


@pytest.mark.parametrize("unit", ["(", "(a", "((a)(b", "(" + 40 * "a", "nos ", " ", "Σ", "\u00ad"])
def test_long_strings_take_no_longer_than_their_length(unit):
    # A loop of loops, "([^()]+|...)*", would try 2^40 ways to part 40 letters. At the end is what
    # brackets need to be looked for at all.
    term = unit * 2_000 + ")"
    cleaned = normalizers.Sequence(cleaning_normalizers("paper")).normalize_str(term)
    assert cleaned == clean(pl.Series([term]), "paper")[0]


def test_an_unknown_rule_set():
    with pytest.raises(BadInput, match="unknown cleaning 'umls'; expected one of lookup, mlnorm"):
        cleaning_normalizers("umls")


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
