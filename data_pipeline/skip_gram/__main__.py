"""Learn vectors of words, names and concepts from text: what BNE begins with.

Text is JSON lines (.jsonl) with a field "text", and if need be "cuis" and "names" of what it is
about; PubTator; an OBO ontology, whose definitions are read; or plain text with a blank line
between documents. Each may be packed (.gz). Odd lines are left out, counted, and named in
odd_lines.txt.

Names are those that PubTator annotates, those of what a text is about, and those of a dictionary,
found by longest match of whole words. Case does not count, but a name of one word that the
dictionary writes in capitals alone (AIDS) is matched in capitals only. Text and names become words
by one rule, which drops stop words and marks; with --keep-stop-words the text keeps them.

  words           a vector for each word (the paper's SG_W)
  names           and for each name, which stands as one token in place of its words (SG_S)
  names_concepts  and for each concept: each sentence with names comes twice, the name and its
                  concept on the left of the name's words, then on their right (SG_S.C)

The same command with one worker gives the same bytes; --workers 2 takes half the time and does not.
Look at the most frequent names that are printed: one that means nothing is for --stop-names.
"""

from __future__ import annotations

import sys

from data_pipeline.flags import run_parsed
from data_pipeline.skip_gram.options import SkipGramOptions

_EXAMPLES = """\
examples:
  words alone, of any text:
    python -m data_pipeline.skip_gram --text abstracts.jsonl.gz notes.txt --variant words \\
        --out vectors/sgw

  names and concepts of a dataset, without those on which an encoder will be measured:
    python -m data_pipeline.skip_gram --text abstracts.jsonl.gz hp.obo \\
        --dictionary data/diseases --dictionary-languages ENG --variant names_concepts \\
        --exclude-concepts heldout_concepts.txt --workers 2 --out vectors/sgsc

  abstracts with annotated names, as PubTator has them, and no dictionary:
    python -m data_pipeline.skip_gram --text CDR_TrainingSet.PubTator.txt \\
        --variant names_concepts --out vectors/cdr
"""

_COMMON = (
    *("--text", "--variant", "--out", "--dictionary", "--dictionary-languages"),
    *("--exclude-concepts", "--stop-names", "--size", "--epochs", "--workers", "--overwrite"),
)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; its exit status is that of `run_command`."""
    name = "python -m data_pipeline.skip_gram"
    return run_parsed(
        name, __doc__, _EXAMPLES, lambda: SkipGramOptions, _build, argv, common=_COMMON
    )


def _build(options: SkipGramOptions) -> int:
    """Makes the folder and prints what it holds."""
    # Imported here: what is not installed is then said by name, and --help is quick.
    from data_pipeline.skip_gram.build import build_skip_grams, skip_gram_report

    print(skip_gram_report(build_skip_grams(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
