"""Rule sets of `cleaning.rules` as the first normalizers of a tokenizer, and a tokenizer without.

An exported encoder is opened by libraries that know nothing of this project. Their tokenizer then
cleans each string by itself, letter for letter as `clean` does. Here terms are cleaned before they
are tokenized, by rules that may be chosen, so `load_tokenizer` takes these normalizers off.

What a tokenizer sees as one of its special tokens, such as "[MASK]", it cuts out of a string before
anything is normalized; such strings may come out in another way.
"""

from __future__ import annotations

import functools
import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers

from data_pipeline.files.json_files import read_json
from data_pipeline.files.whole_files import write_json
from data_pipeline.terminology.cleaning.character_map import character_map
from data_pipeline.terminology.cleaning.rules import (
    BRACKETED,
    SEMANTIC_TAGS,
    TO_ASCII,
    check_rules,
    either,
)

# The one letter whose lower case depends on its neighbours, at the end of a word (Unicode, 3.13).
_CASED = r"[\p{Cased}&&[^\p{Case_Ignorable}]]"  # what is both counts as the latter
_FINAL_SIGMA = _CASED + r"\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*" + _CASED + ")"
_BREAK = "\u0080"  # a control character: what a reader sees as one character ends before it
# Replaced by itself, it tells where a tokenizer's own rules begin.
_END = "\u0080end of cleaning\u0080"
_NOWHERE = "\u0080in no clean string\u0080"  # before the name of an added token


def cleaning_normalizers(rules: str) -> list[Any]:
    """What gives `clean(terms, rules)` of each string, to be applied one after the other.

    Raises BadInput for an unknown name; the names are the keys of `CLEANING`.
    """
    check_rules(rules)
    fold_blanks = [_replace(r"\s+", " "), normalizers.Strip()]
    if rules == "paper":
        return [
            _replace(_FINAL_SIGMA, "ς"),
            normalizers.Lowercase(),
            _replace(r"(?<=\A|\s)nos(?=\s|\z)", ""),
            _replace(BRACKETED, ""),
            normalizers.Replace("-", " "),
            *fold_blanks,
        ]
    if rules == "lookup":
        return [*fold_blanks, _replace(rf"(?i)(?<=\S)\s+\((?:{either(SEMANTIC_TAGS)})\)$", "")]
    if rules == "mlnorm":
        return [
            *_to_ascii(),
            normalizers.Lowercase(),
            *(normalizers.Replace(mark, f" {mark} ") for mark in string.punctuation),
            _replace(r"(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])", " "),
            *fold_blanks,
        ]
    return fold_blanks


def _replace(pattern: str, by: str) -> Any:
    return normalizers.Replace(Regex(pattern), by)


@functools.cache
def _to_ascii() -> tuple[Any, ...]:
    """What gives `str.translate(TO_ASCII)` of each string.

    `normalizers.Precompiled` takes together what a reader sees as one character, such as a letter
    with its marks, and may drop all but the first code point: so these are parted before.
    """
    beyond = (point for point in range(0x80, 0x110000) if not 0xD800 <= point < 0xE000)
    ascii_of = {chr(point): TO_ASCII[point] for point in beyond}
    return (
        _replace(r"(?<=[^\x00-\x7F])", _BREAK),
        normalizers.Precompiled(character_map({a: b for a, b in ascii_of.items() if b})),
        _replace(r"[^\x00-\x7F]", ""),
    )


def with_cleaning(tokenizer: Tokenizer, rules: str) -> Tokenizer:
    """The tokenizer, which is changed, as one that cleans what it is given.

    See `cleaning_normalizers`. Tokens that were added to a vocabulary, such as the runs of blanks
    of ModernBERT's, are looked for in clean strings, and cleaned for that themselves: one that no
    clean string has would be found where it is not, or be empty. It gets a name that no string has.
    """
    clean = normalizers.Sequence(cleaning_normalizers(rules)).normalize_str
    added = tokenizer.get_added_tokens_decoder().values()
    looked_for = [one.content for one in added if one.normalized and not one.special]
    hidden = {name: _NOWHERE + name for name in looked_for if clean(name) != name}
    tokenizer = _renamed(tokenizer, hidden, normalized=False)
    own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    end = normalizers.Replace(_END, _END)
    tokenizer.normalizer = normalizers.Sequence([*cleaning_normalizers(rules), end, *own])
    return tokenizer


def _renamed(tokenizer: Tokenizer, names: Mapping[str, str], *, normalized: bool) -> Tokenizer:
    """A tokenizer with other names of added tokens, by the old ones; their ids are the same.

    Args:
      tokenizer: left as it is.
      names: if there are none, the tokenizer itself comes back.
      normalized: whether they are looked for in normalized strings.
    """
    if not names:
        return tokenizer
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:
        if token["content"] in names:
            token |= {"content": names[token["content"]], "normalized": normalized}
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        renamed: Any = {names.get(piece, piece): number for piece, number in vocabulary.items()}
    else:  # of SentencePiece
        renamed = [[names.get(piece, piece), score] for piece, score in vocabulary]
    content["model"]["vocab"] = renamed
    return Tokenizer.from_str(json.dumps(content))


def clean_in(folder: Path, rules: str) -> None:
    """Makes the tokenizer that was saved in a folder clean what it is given.

    Args:
      folder: of tokenizer.json and tokenizer_config.json.
      rules: the rule set, in place of one that it had.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = with_cleaning(without_cleaning(tokenizer), rules)
    tokenizer.save(str(folder / "tokenizer.json"))
    # The class of one model makes its own normalizers; this one takes those of tokenizer.json.
    path = folder / "tokenizer_config.json"
    write_json(path, {**read_json(path), "tokenizer_class": "PreTrainedTokenizerFast"})


def without_cleaning(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, which is changed, without what `with_cleaning` made of it, if it did.

    Its definition is then what it was before, to the letter.
    """
    normalizer = tokenizer.normalizer
    if not isinstance(normalizer, normalizers.Sequence):
        return tokenizer
    parts = [normalizer[place] for place in range(len(normalizer))]
    ends = [place for place, part in enumerate(parts) if _is_end(part)]
    if not ends:
        return tokenizer
    own = parts[ends[-1] + 1 :]
    tokenizer.normalizer = (own[0] if own else None) if len(own) < 2 else normalizers.Sequence(own)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    hidden = [name for name in added if name.startswith(_NOWHERE)]
    names = {name: name.removeprefix(_NOWHERE) for name in hidden}
    return _renamed(tokenizer, names, normalized=True)


def _is_end(part: Any) -> bool:
    return isinstance(part, normalizers.Replace) and part.content == _END
