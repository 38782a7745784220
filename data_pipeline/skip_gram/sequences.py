"""What the skip-grams see of a sentence: its sequences of words, names and concepts.

Phan et al. 2019, sections 3.1 and 4. SG_W sees the words. SG_S sees a name as one token in place of
its words. SG_S.C sees a sentence with names twice: the token of each name, and behind it that of
its concept, stand on the left of the name's words in one sequence and on their right in the other,
so that both have the words of the name in their window, its neighbours, and each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, unquote

from data_pipeline.skip_gram.mentions import Sentence
from data_pipeline.skip_gram.options import Variant
from data_pipeline.sources.text.words import only_words

# No word has a ":" or a "_", so a token of a name or of a concept is never that of a word.
NAME, CONCEPT = "name:", "concept:"


def name_token(words: Iterable[str]) -> str:
    """The token of a name: of all names with the same words one."""
    return NAME + "_".join(words)


def concept_token(concept: str) -> str:
    """The token of a concept; blanks in an identifier are written as in an address."""
    return CONCEPT + quote(concept, safe=":")


def kind_and_string(token: str) -> tuple[str, str]:
    """Of which table a token is, and what it stands for: a word, words of a name, a concept."""
    if token.startswith(NAME):
        return "names", token.removeprefix(NAME).replace("_", " ")
    if token.startswith(CONCEPT):
        return "concepts", unquote(token.removeprefix(CONCEPT))
    return "words", token


def sequences(sentence: Sentence, variant: Variant) -> list[list[str]]:
    """The sequences of a sentence; the first has each word, name and concept as often as the text.

    "names_concepts" has two where there is a name: in the first all names are on the left of their
    words, in the second all on the right. Else there is one.
    """
    tokens, mentions = sentence
    if variant == "words" or not mentions:
        return [only_words(tokens)]
    orders: list[list[str]] = [[]] if variant == "names" else [[], []]
    behind = 0
    for mention in mentions:
        between = only_words(tokens[behind : mention.first])
        words = only_words(tokens[mention.first : mention.last])
        behind = mention.last
        tags = [name_token(words)]
        if variant == "names":
            orders[0] += between + tags
            continue
        if mention.concept:
            tags.append(concept_token(mention.concept))
        orders[0] += between + tags + words
        orders[1] += between + words + tags
    rest = only_words(tokens[behind:])
    return [order + rest for order in orders]
