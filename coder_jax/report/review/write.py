"""A coded list in; one HTML file on which people decide on it out, without network or server.

Mentions, candidates and terms are in the file as JSON, packed by gzip, in base64: browsers unpack
it themselves, and nothing in it can be taken for HTML.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from coder_jax.mapping.answers import Answer
from coder_jax.mapping.decisions import Decision
from coder_jax.report.page.offline import fill, write_html
from coder_jax.report.review.contents import MOST_TERMS, review_contents
from data_pipeline.dataset.dictionary import Dictionary

HERE = "coder_jax.report.review"  # the template, the style and the scripts
SCRIPTS = [
    f"{part}.js"
    for part in ("decisions", "csv", "terms", "list", "search", "filters", "detail", "review")
]


def write_review(
    out: Path,
    answers: Sequence[Answer],
    dictionary: Dictionary,
    *,
    title: str,
    encoder_line: str,
    columns: Mapping[str, Sequence[str]] | None = None,
    decisions: Mapping[str, Decision] | None = None,
    most_terms: int = MOST_TERMS,
) -> int:
    """Writes the review page of a coded list, whole or not at all.

    What is decided stays in the browser under a hash of all that the page holds: the same list
    coded alike and written again goes on where it was.

    Args:
      out: the HTML file.
      answers: in the order of the list, each with all candidates that are to be seen.
      dictionary: in which they were found.
      title: such as the name of the list.
      encoder_line: what they were found with, for the foot of the page.
      columns: of the list, to show beside a mention: name -> value for each of the answers.
      decisions: what is decided already; the page begins with it.
      most_terms: of the dictionary, to search in; those of candidates count and are there.

    Returns:
      bytes of the page.

    Raises:
      BadInput: if it cannot be written.
    """
    contents = review_contents(answers, dictionary, columns or {}, decisions or {}, most_terms)
    text = json.dumps(contents, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    data = text.encode()
    page = fill(
        HERE,
        "review.html",
        "review.css",
        SCRIPTS,
        title=title,
        encoder_line=encoder_line,
        dictionary=dictionary.source,
        key=hashlib.sha256(data).hexdigest()[:16],
        contents=base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode(),
    )
    return write_html(page, out, "--review")
