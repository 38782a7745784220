"""Where the sentences of a text end.

A skip-gram's window stops there. The rule is simple and sure of speed: a sentence ends at ".", "!"
or "?" before blanks and a capital, a digit or an opening mark, unless the dot ends an abbreviation
or an initial; and at a blank line.
"""

import re
from collections.abc import Iterator

END = re.compile(r"[.!?][\"')\]\u201d]*\s+(?=[\"'(\[\u201c]*[^\W_a-z])|\n\s*\n")
LAST_WORD = re.compile(r"[^\s(\[]*$")
ABBREVIATIONS = frozenset(
    "e.g i.e vs cf fig figs ref refs dr mr mrs ms prof st no nos approx ca al resp vol pp".split()
)


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """(first character, the one behind its last) of each sentence, blanks around it included."""
    first = 0
    for match in END.finditer(text):
        if match[0][0] == "." and _is_abbreviated(text, match.start()):
            continue
        if text[first : match.end()].strip():
            yield first, match.end()
            first = match.end()
    if text[first:].strip():
        yield first, len(text)


def _is_abbreviated(text: str, dot: int) -> bool:
    """Whether the dot ends an abbreviation, or an initial such as that of "E. coli"."""
    match = LAST_WORD.search(text, max(0, dot - 12), dot)
    word = match[0] if match else ""
    return word.lower() in ABBREVIATIONS or (len(word) == 1 and word.isupper())
