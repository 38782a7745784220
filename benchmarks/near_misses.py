"""Terms that differ in one thing alone: how often `normalize` takes one for the other.

Of a release, pairs of terms are taken that are the same but for one value (left and right, type 1
and 2, alpha and beta, acute and chronic). The mention is the first of a pair with one typing error,
and with its value written in another way, such as (L), II or β. Strengths are made up: names of
drugs with six strengths each, which the mention has in other units or with a decimal comma. Each
mention is looked up by similarity alone and with `contradictions`, and counted: right, wrong, and
wrong without a mark. What it costs is told by the names of --names, which were drawn for no such
value, and by two names of each concept: how many contradict each other.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.command import plain_parser
from benchmarks.machine import machine
from data_pipeline.files.whole import write_json

# Kind -> values that take each other's place, and how a mention may write the first.
_SWAPS = {
    "side": (("left", "right", "L"), ("right", "left", "(R)"), ("left", "right", "lt")),
    "type, grade, stage": (
        ("type 1", "type 2", "type I"),
        ("type 2", "type 1", "type II"),
        ("type 3", "type 4", "type III"),
        ("type II", "type III", "type 2"),
        ("stage III", "stage IV", "stage 3"),
        ("grade 2", "grade 3", "grade II"),
    ),
    "Greek letter": (
        ("alpha", "beta", "α"),
        ("beta", "alpha", "ß"),
        ("beta", "gamma", "β"),
        ("gamma", "delta", "γ"),
    ),
    "acute/chronic": (("acute", "chronic", "acute"), ("chronic", "acute", "chronic")),
    "upper/lower": (("upper", "lower", "upper"), ("lower", "upper", "lower")),
    "hypo/hyper": (("hypo", "hyper", "hypo"), ("hyper", "hypo", "hyper")),
    "increased/decreased": (
        ("increased", "decreased", "elevated"),
        ("decreased", "increased", "reduced"),
    ),
    "with/without": (("without", "with", "w/o"), ("with", "without", "with")),
    "primary/secondary": (
        ("primary", "secondary", "primary"),
        ("secondary", "primary", "secondary"),
    ),
    "anterior/posterior": (
        ("anterior", "posterior", "anterior"),
        ("posterior", "anterior", "posterior"),
    ),
    "proximal/distal": (("proximal", "distal", "proximal"), ("distal", "proximal", "distal")),
    "dominant/recessive": (
        ("dominant", "recessive", "dominant"),
        ("recessive", "dominant", "recessive"),
    ),
}
_OF_A_KIND = 60
_STRENGTHS = {
    0.025: "25 mcg",
    0.05: "0,05 mg",
    0.1: "100 µg",
    0.25: "250 ug",
    0.5: "500mcg",
    1: "1g",
}
_TYPED = 4  # letters of the shortest word that gets the typing error


class _Mention(NamedTuple):
    kind: str
    mention: str
    concept: str


def _pairs(terms: Sequence[str], concepts: Sequence[str], seed: int) -> Iterator[_Mention]:
    """At most _OF_A_KIND mentions of each kind whose neighbour is a term of another concept."""
    from coder_jax.mapping.confidence import misspelt

    of_term: dict[str, set[str]] = defaultdict(set)
    for term, concept in zip(terms, concepts, strict=True):
        of_term[term.lower()].add(concept)
    for kind, swaps in _SWAPS.items():
        found: list[_Mention] = []
        for value, other, written in swaps:
            whole = re.compile(rf"(?<!\w){value}" + ("" if kind == "hypo/hyper" else r"(?!\w)"))
            for term, held in of_term.items():
                if len(whole.findall(term.replace(value.lower(), value))) != 1:
                    continue
                text = term.replace(value.lower(), value)
                neighbour = whole.sub(other, text).lower()
                if len(held) != 1 or neighbour not in of_term or of_term[neighbour] & held:
                    continue
                rest = [word for word in re.findall(r"[a-z]+", whole.sub(" ", text))]
                longest = max(rest, key=len, default="")
                if len(longest) < _TYPED:
                    continue
                typed = misspelt([longest], seed=len(found))[0]
                mention = whole.sub(written, text).replace(longest, typed, 1)
                if mention.lower() not in of_term:
                    found.append(_Mention(kind, mention, *held))
        random.Random(seed).shuffle(found)
        yield from found[:_OF_A_KIND]


def _strengths(names: Sequence[str]) -> tuple[list[tuple[str, str]], list[_Mention]]:
    """Rows of a dictionary of tablets, and a mention for each drug."""
    rows, mentions = [], []
    for number, name in enumerate(names):
        for strength in _STRENGTHS:
            amount = 1000 if strength == 1 else strength
            rows.append((f"{name} {amount} MG Oral Tablet", f"{name} {amount}"))
        asked = list(_STRENGTHS)[number % len(_STRENGTHS)]
        amount = 1000 if asked == 1 else asked
        mention = f"{name.lower()} {_STRENGTHS[asked]} tab"
        mentions.append(_Mention("strength", mention, f"{name} {amount}"))
    return rows, mentions


def _synonyms(terms: Sequence[str], concepts: Sequence[str], seed: int) -> dict[str, Any]:
    """Two names of each concept: how many pairs are taken for a contradiction, by kind."""
    from coder_jax.mapping.contradictions import contradiction

    names: dict[str, list[str]] = defaultdict(list)
    for term, concept in zip(terms, concepts, strict=True):
        names[concept].append(term)
    draw = random.Random(seed)
    pairs = [draw.sample(some, 2) for some in names.values() if len(some) > 1]
    found = [contradiction(one, other).differs for one, other in pairs]
    kinds = Counter(kind for differs in found for kind in differs)
    return {"pairs": len(pairs), "contradict": sum(map(bool, found)), "kinds": dict(kinds)}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The figures for --json."""
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.normalizer import Normalizer
    from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
    from data_pipeline.sources.corpora import mention_rows
    from data_pipeline.terminology.cleaning import lookup_rules

    release = read_dictionary(args.release, ["ENG"], args.sources, raw=True)
    drugs = read_dictionary(args.release, ["ENG"], ["DRUGBANK"], raw=True).terms
    words = sorted({term for term in drugs if re.fullmatch(r"[A-Z][a-z]{6,11}", term)})
    rows, asked = _strengths(random.Random(args.seed).sample(words, min(_OF_A_KIND, len(words))))
    asked += _pairs(release.terms, release.concepts, args.seed)
    terms = [*release.terms, *(term for term, _ in rows)]
    dictionary = Dictionary(
        terms, [*release.concepts, *(concept for _, concept in rows)], str(args.release)
    )
    encoder = TermEncoder.from_pretrained(
        args.model, args.pooling, cleaning=args.cleaning or lookup_rules(terms)
    )
    encoded = encoder.encode_dictionary(dictionary, progress=True)
    known = dictionary.concept_set
    names = [row for row in mention_rows(args.names) if known.intersection(row[1].split("|"))]
    result: dict[str, Any] = {
        "terms": len(terms),
        "concepts": len(known),
        "synonyms": _synonyms(release.terms, release.concepts, args.seed),
    }
    answered = {}
    for what, compare in (("similarity alone", False), ("compared", True)):
        candidates = Candidates(encoder, encoded, "both", compare=compare)
        normalizer = Normalizer(dictionary, candidates)
        counts = _counts(asked, normalizer.answers([one.mention for one in asked]))
        begun = time.perf_counter()
        answers = normalizer.answers([mention for mention, _ in names])
        seconds = time.perf_counter() - begun
        right = [
            answer.concept in concepts.split("|")
            for answer, (_, concepts) in zip(answers, names, strict=True)
        ]
        answered[what] = right
        marked = sum(bool(answer.candidates and answer.candidates[0].differs) for answer in answers)
        lost = sum(bool(answer.candidates and answer.candidates[0].lost) for answer in answers)
        result[what] = {
            "pairs": counts,
            "names": {
                "names": len(names),
                "right": sum(right),
                "differs": marked,
                "lost": lost,
                "seconds": seconds,
            },
        }
    both = list(zip(*answered.values(), strict=True))
    result["names"] = {
        "only before": both.count((True, False)),
        "only after": both.count((False, True)),
    }
    return result


def _counts(asked: Sequence[_Mention], answers: Sequence[Any]) -> Mapping[str, Mapping[str, int]]:
    """Of each kind: mentions, right ones, wrong ones, and wrong ones that nothing marks."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one, answer in zip(asked, answers, strict=True):
        is_right = answer.concept == one.concept
        is_marked = bool(answer.candidates and answer.candidates[0].differs)
        counts[one.kind].update(
            mentions=1,
            right=int(is_right),
            wrong=int(not is_right),
            unmarked=int(not is_right and not is_marked),
        )
    return counts


def main(argv: list[str] | None = None) -> int:
    parser = plain_parser("near_misses", __doc__)
    parser.add_argument("--model", required=True, help="folder or hub id")
    parser.add_argument("--pooling", help="cls, mean or pooler (default: the model's)")
    parser.add_argument("--cleaning", help="rules (default: those of normalize)")
    parser.add_argument("--release", type=Path, required=True, help="MRCONSO.RRF, or .gz")
    parser.add_argument(
        "--sources", nargs="+", required=True, help="vocabularies of the dictionary"
    )
    parser.add_argument("--names", type=Path, required=True, help="mention, CUI")
    parser.add_argument("--seed", type=int, default=0, help="of the pairs that are drawn")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args(argv)
    result = {**measure(args), "machine": machine()}
    write_json(args.json, result)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
