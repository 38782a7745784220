"""Files of mentions: one reader, whatever header they have; the same rows for all who use them."""

import pytest

from coder_jax.evaluation.normalization.mentions import read_mentions
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.mentions import mention_rows
from data_pipeline.terminology.heldout.synonyms import mention_table

ROWS = [("x", "C1|C2"), ("y", "C3"), ("z z", "C4")]
FILES = {
    "header": "mention\tCUI\nx\tC1|C2\ny\tC3\nz z\tC4\n",
    "none": "x\tC1|C2\ny\tC3\nz z\tC4\n",
    "blanks": "Term\tconcept_id\n x \tC1 | C2\ny\tC3|\n\nz z\t|C4\n",
    "more": "id\tCUI\tmention\n1\tC1|C2\tx\n2\tC3\ty\n3\tC4\tz z\n",
    "turned": "CUI\tMention\nC1|C2\tx\nC3\ty\nC4\tz z\n",
}


@pytest.mark.parametrize("name", FILES)
def test_the_rows(name, write):
    path = write("mentions.tsv", FILES[name])
    assert mention_rows(path) == ROWS
    assert mention_table(path).rows() == [("x", "C1"), ("x", "C2"), ("y", "C3"), ("z z", "C4")]
    fold = read_mentions(path, Dictionary(["a"], ["C1"], "toy"))
    assert list(zip(fold.mentions, fold.gold, strict=True)) == ROWS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mentions.tsv: found no lines; expected tab-separated rows"),
        (b"mention\tCUI\n", "found a header and no rows; expected mention<TAB>CUI"),
        (b"mention\tCUI\nd\xe9j\xe0\tC1\n", "mentions.tsv:2: found byte 0xe9, which is not UTF-8"),
        (b"x\tC1\ny\n", "mentions.tsv:2: found 1 columns; expected 2: mention<TAB>CUI"),
        (b"term\tsynonym\tCUI\nx\ty\tC1\n", "mentions.tsv:1: found 3 columns; expected 2"),
        (b"id\tmention\tCUI\n", "found a header and no rows; expected mentions and their CUIs"),
        (b"id\tmention\tCUI\n1\tx\n", "mentions.tsv:2: found 2 columns; expected the 3 of its h"),
        (b"id\tmention\tCUI\n1\t\tC1\n", "the mention '' with the CUIs 'C1'; expected a mention"),
        (b"x\tC1\ny\t|\n", "found the mention 'y' with the CUIs '|'; expected .* mend or remove"),
        (b"x\tC1\ny\t\n", "mentions.tsv:2: found an empty column; expected mention<TAB>CUI"),
    ],
)
def test_files_that_are_refused(content, message, tmp_path):
    path = tmp_path / "mentions.tsv"
    with pytest.raises(BadInput, match="mentions.tsv: cannot be read .No such file"):
        mention_rows(path)
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message.replace("|", r"\|")):
        mention_rows(path)
