"""A vocabulary of keywords from a dictionary alone: frequent endings of names, and frequent parts.

The vocabulary of Liang, Xue and Ruan (arXiv 2101.09101) was made by hand and is not published. In
many terminologies the type of a thing stands at the end of its name ("syndrome", "procedure", 术),
and what it is about before: so endings are types, and parts that keep to one branch of the
dictionary's tree, such as a chapter, are sites.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from data_pipeline.process import stopping
from data_pipeline.process.progress import progress_bar, tell
from data_pipeline.terminology.keywords.vocabulary import UNSPACED, lower, units

SITE, TYPE = "site", "type"
# How many units an ending and a part have: characters, or words where blanks divide them.
ENDING_CHARACTERS, ENDING_WORDS = (3, 4), (1,)
PART_CHARACTERS, PART_WORDS = (2, 3, 4), (1, 2, 3)
SHORTEST_WORD = 3  # in letters, of what a keyword begins or ends with: not "of", "in", "II"
JOINTS = ("", " ", "-")  # between the units of one keyword


def derive_keywords(
    names: Sequence[str],
    branches: Sequence[Collection[str]],
    *,
    ending_names: int = 15,
    part_names: int = 5,
    purity: float = 0.6,
) -> dict[str, list[str]]:
    """The keywords of a dictionary, those of most names first.

    Args:
      names: preferred names, [N].
      branches: of each name, the branches of the tree that its concept is on.
      ending_names: fewest names that have an ending.
      part_names: fewest names that have a part.
      purity: least share of a part's names on one branch. A dictionary in which fewer than half
        of the names are on a branch with `part_names` names has no such tree; there all parts
        count.

    Returns:
      "site" and "type", each with its words in lower case.
    """
    texts = [lower(name) for name in names]
    ends = Counter(one for text in texts for one in _endings(text))
    types = {ending: count for ending, count in ends.items() if count >= ending_names}
    for ending in {piece for one in types for piece in _pieces(one, _endings(one), ends)}:
        types.pop(ending, None)
    counts: Counter[str] = Counter()
    for text in progress_bar(texts, desc="count parts", unit="name"):
        stopping.poll()
        counts.update(set(_parts(text)))
    frequent = {part: count for part, count in counts.items() if count >= part_names}
    kept = _pure(texts, branches, frequent, part_names, purity)
    # What is a type, has one at its end or is a piece of one is no site, and takes none away.
    pieces = {part for ending in types for part in _parts(ending)}
    kept = {one for one in kept - pieces if types.keys().isdisjoint(_endings(one))}
    sites = {part: frequent[part] for part in _maximal(kept, frequent)}
    return {SITE: _ordered(sites), TYPE: _ordered(types)}


def _ordered(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))


def _endings(text: str) -> list[str]:
    """The ends of a name that may be its type, without what stands behind the last word."""
    spans = units(text)
    found = []
    for length in (*ENDING_CHARACTERS, *ENDING_WORDS):
        some = spans[-length:]
        if len(some) == length and _is_keyword(text, some, ENDING_CHARACTERS, ENDING_WORDS):
            found.append(text[some[0][0] : some[-1][1]])
    return found


def _parts(text: str) -> Iterator[str]:
    """What of a name may be a keyword."""
    spans = units(text)
    for first in range(len(spans)):
        for length in {*PART_CHARACTERS, *PART_WORDS}:
            some = spans[first : first + length]
            if len(some) == length and _is_keyword(text, some, PART_CHARACTERS, PART_WORDS):
                yield text[some[0][0] : some[-1][1]]


def _is_keyword(
    text: str, spans: Sequence[tuple[int, int]], characters: Sequence[int], words: Sequence[int]
) -> bool:
    """Whether units that follow each other are one keyword of an allowed number of them."""
    between = zip(spans, spans[1:], strict=False)
    if any(text[last:first] not in JOINTS for (_, last), (first, _) in between):
        return False
    is_unspaced = [UNSPACED.match(text[first:last]) is not None for first, last in spans]
    if all(is_unspaced):
        return len(spans) in characters
    if any(is_unspaced) or len(spans) not in words:
        return False
    edges = (text[slice(*spans[0])], text[slice(*spans[-1])])
    return all(
        len(edge) >= SHORTEST_WORD and edge.isalpha() and edge not in ENGLISH_STOP_WORDS
        for edge in edges
    )


def _pure(
    texts: Sequence[str],
    branches: Sequence[Collection[str]],
    frequent: Collection[str],
    part_names: int,
    purity: float,
) -> set[str]:
    """The parts most of whose names are on one branch; all where the dictionary has no tree."""
    sizes = Counter(branch for some in branches for branch in set(some))
    on_branch = sum(any(sizes[branch] >= part_names for branch in some) for some in branches)
    if 2 * on_branch < len(texts):
        tell(
            "the dictionary has no tree of branches with several names: parts are kept by their "
            "frequency alone; look through the words"
        )
        return set(frequent)
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for text, some in zip(texts, branches, strict=True):
        for part in set(_parts(text)).intersection(frequent):
            total[part] += 1
            found[part].update(set(some))
    most = {part: max(counts.values(), default=0) for part, counts in found.items()}
    return {part for part, count in most.items() if count >= purity * total[part]}


def _maximal(kept: Collection[str], counts: Mapping[str, int]) -> set[str]:
    """Those without what a longer part has in as many names: pieces of words, mostly."""
    return set(kept) - {piece for part in kept for piece in _pieces(part, _parts(part), counts)}


def _pieces(whole: str, parts: Iterable[str], counts: Mapping[str, int]) -> set[str]:
    """Those of the parts of a keyword that are in no other names than the whole."""
    return {part for part in parts if part != whole and counts.get(part) == counts[whole]}
