"""How well `normalize` answers: vectors and letters, misspelt names, and promised precision.

A rule and cut-offs are measured on terms that chose nothing else (--own); then on other terms
(--test) it is counted how many answers are right, with vectors alone and with letters beside them,
also with one typing error in each term, and whether precision and coverage are as promised.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import plain_parser
from benchmarks.machine import machine
from data_pipeline.files.whole import write_json

_PRECISIONS = (0.7, 0.8, 0.9)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The figures for --json."""
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.confidence import measured_cutoffs
    from coder_jax.mapping.normalizer import Normalizer
    from data_pipeline.dataset.dictionary import read_dictionary
    from data_pipeline.sources.corpora import mention_languages, mention_rows
    from data_pipeline.terminology.cleaning import lookup_rules

    dictionary = read_dictionary(args.dictionary, args.dictionary_languages, raw=True)
    encoder = TermEncoder.from_pretrained(
        args.model, args.pooling, cleaning=args.cleaning or lookup_rules(dictionary.terms)
    )
    encoded = encoder.encode_dictionary(dictionary, progress=True)
    candidates = Candidates(encoder, encoded, "both")
    normalizer = Normalizer(dictionary, candidates)
    known = dictionary.concept_set

    def reachable(path: Path) -> tuple[list[str], list[str], list[str]]:
        languages = mention_languages(path) or [""] * len(mention_rows(path))
        rows = zip(mention_rows(path), languages, strict=True)
        kept = [(m, c, one) for (m, c), one in rows if known.intersection(c.split("|"))]
        return tuple(map(list, zip(*kept, strict=True)))  # type: ignore[return-value]

    mentions, gold, languages = reachable(args.own)
    cutoffs = measured_cutoffs(normalizer, mentions, gold, languages, tell=print)
    found = {}
    for named in args.test:
        language, _, path = named.partition("=")
        names, concepts, _ = reachable(Path(path))
        found[language] = _of_test(normalizer, cutoffs, language, names, concepts)
    return {
        "terms": len(dictionary.terms),
        "concepts": len(known),
        "cleaning": encoder.settings.cleaning,
        "own": {one: table.mentions for one, table in cutoffs.tables.items()},
        "weight_of_letters": {one: rule.weight_of_letters for one, rule in cutoffs.rules.items()},
        "tests": found,
    }


def _of_test(
    normalizer: Any, cutoffs: Any, language: str, names: list[str], gold: list[str]
) -> dict[str, Any]:
    """The shares of right answers, and promised and measured precision."""
    from coder_jax.mapping.confidence import cutoff_for, misspelt
    from coder_jax.mapping.normalizer import Normalizer, Rule

    rule, table = cutoffs.rules[language], cutoffs.of(language)
    result: dict[str, Any] = {"names": len(names)}
    for what, weight in (("vectors", 0.0), ("both", rule.weight_of_letters)):
        asked = Normalizer(normalizer.dictionary, normalizer.candidates.with_weight(weight))
        for kind, some in (("clean", names), ("misspelt", misspelt(names, seed=1))):
            result[f"{kind}_{what}"] = float(np.mean(_right_of(asked.answers(some), gold)))
    for precision in _PRECISIONS:
        least = cutoff_for(table, precision)
        if least is None:
            continue
        promised = next(row for row in table.rows if row.cutoff == least)
        sure = Rule(measured=rule.confidence, least_confidence=least)
        candidates = normalizer.candidates.with_weight(rule.weight_of_letters)
        answers = Normalizer(normalizer.dictionary, candidates, rule=sure).answers(names)
        near = [row for row, answer in enumerate(answers) if answer.confidence is not None]
        given = [row for row in near if answers[row].concept is not None]
        right = _right_of([answers[row] for row in given], [gold[row] for row in given])
        shares = (promised.precision, promised.coverage)
        counts = (len(given), len(near))
        both = (float(np.mean(right)) if given else 0.0, len(given) / max(len(near), 1))
        errors = [(p * (1 - p) / max(n, 1)) ** 0.5 for p, n in zip(shares, counts, strict=True)]
        result[str(precision)] = {
            "cutoff": least,
            "promised": shares,
            "found": both,
            "answered": len(given),
            "standard_errors_away": [
                (f - p) / e if e else 0.0 for f, p, e in zip(both, shares, errors, strict=True)
            ],
        }
    return result


def _right_of(answers: list[Any], gold: list[str]) -> list[bool]:
    """Which answers are right."""
    return [
        answer.concept in concepts.split("|")
        for answer, concepts in zip(answers, gold, strict=True)
    ]


def main(argv: list[str] | None = None) -> int:
    parser = plain_parser("mapping", __doc__)
    parser.add_argument("--model", required=True, help="folder or hub id")
    parser.add_argument("--pooling", help="cls, mean or pooler (default: the model's)")
    parser.add_argument("--cleaning", help="rules (default: those of normalize)")
    parser.add_argument("--dictionary", required=True, help="as of normalize")
    parser.add_argument("--dictionary-languages", nargs="+", help="terms in these alone")
    parser.add_argument("--own", type=Path, required=True, help="mention, CUI, language")
    parser.add_argument("--test", nargs="+", required=True, metavar="LANGUAGE=FILE")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args(argv)
    result = {**measure(args), "machine": machine()}
    write_json(args.json, result)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
