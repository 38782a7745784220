"""The one rule by which names and text become words: whatever looks a word up goes through it.

BNE's authors use the English rules of spaCy 2.0, drop single marks and a few stop words, and
lower-case (preprocessing of minhcp/BNE, of which the paper says nothing; Phan et al. 2019, section
4, has lower case and spaCy for text). The rules here are those that matter in names of medicine, as
one regular expression that any other program can have, too:

- A hyphen between two letters, or between two digits, divides ("non-small" is two words, "10-20"
  too); between a letter and a digit it does not ("il-2", "5-ht" are one).
- ".", "," and "/" between two digits do not divide ("2.5", "1,25"); elsewhere they do.
- "'s" is a word of its own; another apostrophe between letters does not divide ("o'nyong").
- Every other mark stands alone. It is no word, but names are matched with their marks.
"""

import hashlib
import re
from collections.abc import Iterable

STOP_WORDS = frozenset(("an", "the", "and", "of", "in", "on", "at", "other", "others", "nos"))
HYPHENS = frozenset("-\u2010\u2011\u2012\u2013\u2014")
POSSESSIVE = "'s"

_ALNUM = "[^\\W_\u0300-\u036f]"
_LETTER = "[^\\W\\d_]"
_WORD = "(?:[^\\W_]|[\u0300-\u036f])+"  # accents may stand as characters of their own
_HYPHEN = "[-\u2010\u2011\u2012\u2013]"
_JOINTS = (
    f"(?<=\\d){_HYPHEN}(?={_LETTER})",
    f"(?<={_LETTER}){_HYPHEN}(?=\\d)",
    "(?<=\\d)[.,/](?=\\d)",
    f"(?<={_LETTER})['\u2019](?!s(?!{_ALNUM}))(?={_LETTER})",
)
TOKEN = re.compile(
    f"(?P<possessive>(?<={_ALNUM})['\u2019]s(?!{_ALNUM}))"
    f"|{_WORD}(?:(?:{'|'.join(_JOINTS)}){_WORD})*|\\S"
)


def token_spans(text: str) -> list[tuple[str, int, int]]:
    """(token, first character, the one behind its last) of each word and mark of a text.

    Tokens are in lower case and hold no blank and no "_" beside others. Hyphens that divide are
    none, so that "non-small cell" and "non small cell" are the same.
    """
    found = []
    for match in TOKEN.finditer(text):
        token = POSSESSIVE if match["possessive"] else match[0].lower()
        if token not in HYPHENS:
            found.append((token, match.start(), match.end()))
    return found


def is_word(token: str) -> bool:
    """Whether a token is a word: no mark, and none of the stop words."""
    return token not in STOP_WORDS and (token == POSSESSIVE or token[0].isalnum())


def only_words(tokens: Iterable[str]) -> list[str]:
    """The tokens that are words, in their order."""
    return [token for token in tokens if is_word(token)]


def words_of(name: str) -> list[str]:
    """The words of a name; of one without any, such as "the", what stands between its blanks.

    Empty only for a name of blanks.
    """
    return only_words(token for token, _, _ in token_spans(name)) or name.lower().split()


def rules_hash() -> str:
    """SHA-256 of the rules: things whose words are made by the same rules have the same."""
    return hashlib.sha256("\n".join([TOKEN.pattern, *sorted(STOP_WORDS)]).encode()).hexdigest()
