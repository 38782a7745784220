"""Normalization over a dictionary of the UMLS's size: memory and time, with the limit beside them.

Writes an invented dictionary in the order of its concepts, a float16 file of a vector for each of
its terms, and mentions, whose cosine with their concept's terms is about that of the best of so
many random vectors. Then `evaluate`'s scores and `normalize`'s nearest concepts are computed, each
in a process of its own, whose peak memory is what the system reports: Python, the dictionary's
strings, the blocks, and the part of the files that is mapped. The vectors are as `encode` would
write them; no encoder is run.

    python -m benchmarks.dictionary_size --work /big/disk --terms 15500000 --width 768 \\
        --json benchmarks/results/dictionary_size.json
    python -m benchmarks.dictionary_size --work /tmp/small --terms 200000
"""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import plain_parser
from benchmarks.machine import machine, one_line
from benchmarks.process import in_a_process
from coder_jax.encoding.vector_files import unit
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput, peak_memory, run_command

_LIMIT_GB = 16.0  # what the project promises for 15.5 million terms of width 768
_PARTS = {"evaluate": "evaluate: acc@k and MRR", "normalize": "normalize: the 5 nearest concepts"}
_TERMS_PER_CONCEPT = 3.6  # as UMLS 2020AA
_SHARED = 0.02  # of the terms belong to a second concept, too
_CONCEPTS_AT_A_TIME = 16384
_KINDS = ("acute", "chronic", "familial", "primary", "secondary", "recurrent", "benign", "severe")
_THINGS = ("fracture of femur", "pain in limb", "renal failure", "infarction", "skin disorder")
_DICTIONARY, _MENTIONS = "dictionary.tsv", "mentions.tsv"
_TERM_VECTORS, _MENTION_VECTORS = "terms.npy", "mentions.npy"


def _terms_of_concepts(terms: int, seed: int) -> np.ndarray:
    """The number of terms of each concept; `terms` in all."""
    rng = np.random.default_rng(seed)
    counts = rng.geometric(1 / _TERMS_PER_CONCEPT, int(terms / _TERMS_PER_CONCEPT * 1.2) + 10)
    counts = counts[: np.searchsorted(np.cumsum(counts), terms) + 1]
    counts[-1] -= counts.sum() - terms
    return counts


def _write_files(work: Path, terms: int, width: int, mentions: int, seed: int = 0) -> None:
    """Writes dictionary, mentions and the vectors of both into a folder.

    Terms and mentions of a concept are its own direction, which they share, plus noise: the cosine
    of a mention with a term of its concept is that of the best of `terms` random vectors, give or
    take what random vectors differ by, so that about half of the mentions find their concept.
    """
    rng = np.random.default_rng(seed)
    counts = _terms_of_concepts(terms, seed)
    share = np.float32(min(0.9, (2 * np.log(terms) / width) ** 0.25))  # its square is the cosine
    is_asked = np.zeros(len(counts), bool)
    is_asked[rng.choice(len(counts), min(mentions, len(counts)), replace=False)] = True
    asked = []
    with (
        (work / _TERM_VECTORS).open("wb") as vectors,
        (work / _DICTIONARY).open("w", encoding="utf-8") as dictionary,
        (work / _MENTIONS).open("w", encoding="utf-8") as file,
    ):
        header = {"descr": "<f2", "fortran_order": False, "shape": (terms, width)}
        np.lib.format.write_array_header_1_0(vectors, header)
        row = 0
        for first in range(0, len(counts), _CONCEPTS_AT_A_TIME):
            here = counts[first : first + _CONCEPTS_AT_A_TIME]
            concepts = np.arange(first, first + len(here))
            of_concepts = _random_units(rng, len(here), width) * share
            chosen = is_asked[concepts]
            asked.append(_noisy(rng, of_concepts[chosen], share))
            file.writelines(f"mention of C{c:07}\tC{c:07}\n" for c in concepts[chosen])
            of_terms = np.repeat(concepts, here)
            dictionary.writelines(_lines(rng, row, of_terms, len(counts)))
            block = _noisy(rng, np.repeat(of_concepts, here, axis=0), share)
            block.astype("<f2").tofile(vectors)
            row += len(block)
    np.save(work / _MENTION_VECTORS, np.concatenate(asked))


def _random_units(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    found = rng.standard_normal((rows, width), dtype=np.float32)
    found *= np.float32(width**-0.5)
    return found


def _noisy(rng: np.random.Generator, shared: np.ndarray, share: np.float32) -> np.ndarray:
    """Unit vectors that are `shared` with noise added."""
    noise = _random_units(rng, *shared.shape)
    noise *= np.sqrt(1 - share**2)
    noise += shared
    return unit(noise)


def _lines(
    rng: np.random.Generator, first: int, concepts: np.ndarray, all_concepts: int
) -> Iterator[str]:
    """The lines of consecutive terms of a dictionary, all different."""
    kinds, things = (rng.integers(len(words), size=len(concepts)) for words in (_KINDS, _THINGS))
    others = rng.integers(all_concepts, size=len(concepts))
    is_shared = (rng.random(len(concepts)) < _SHARED) & (others != concepts)
    for place, concept in enumerate(concepts):
        cuis = f"C{concept:07}" + (f"|C{others[place]:07}" if is_shared[place] else "")
        yield f"{_KINDS[kinds[place]]} {_THINGS[things[place]]} {first + place}\t{cuis}\n"


def _evaluate(work: Path) -> dict[str, Any]:
    """Scores the mentions, as `python -m coder_jax evaluate` does once terms are encoded."""
    from coder_jax.encoding.vector_files import RowsOfFile
    from coder_jax.evaluation.benchmarks import read_benchmark
    from coder_jax.evaluation.normalization import NormalizationBenchmark, evaluate_normalization
    from coder_jax.evaluation.vectors import TERMS, EncodedTerms
    from data_pipeline.dataset.dictionary import read_dictionary

    class Encoded(EncodedTerms):
        """An encoder that returns the vectors of the files of dictionary and mentions."""

        def __init__(self, mentions: Sequence[str], terms: Sequence[str]):
            super().__init__(None, terms, RowsOfFile(work / _TERM_VECTORS))  # type: ignore[arg-type]
            self.mentions = EncodedTerms(None, mentions, RowsOfFile(work / _MENTION_VECTORS))  # type: ignore[arg-type]

        def encode(self, keys: Sequence[str]) -> np.ndarray:
            first = sum(key in self.mentions.row_of for key in keys)  # mentions come first
            if first == 0:
                return super().encode(keys)
            parts = self.mentions.encode(keys[:first]), super().encode(keys[first:])
            return np.concatenate(parts, dtype=np.float32)

    dictionary = read_dictionary(work / _DICTIONARY)
    benchmark = read_benchmark("invented", work / _MENTIONS, dictionary=dictionary)
    assert isinstance(benchmark, NormalizationBenchmark)
    read = time.monotonic()
    strings = benchmark.keys(TERMS)
    mentions = len(strings) - len(dictionary.terms)
    vectors = Encoded(strings[:mentions], strings[mentions:])
    del strings
    result = evaluate_normalization(vectors.encode, benchmark)
    scored = time.monotonic()
    described = dictionary.description  # the record has it
    return {
        "score_s": scored - read,
        "describe_s": time.monotonic() - scored,
        "terms": described["terms"],
        "concepts": described["concepts"],
        "mentions": result.mentions,
        "acc@1": result.scores["acc@1"],
        "mrr": result.scores["mrr"],
    }


def _normalize(work: Path) -> dict[str, Any]:
    """Finds the nearest concepts, as `python -m coder_jax normalize --dictionary-vectors` does."""
    from coder_jax.encoding.encoder import EncodedDictionary, nearest_concepts
    from coder_jax.encoding.vector_files import RowsOfFile
    from data_pipeline.dataset.dictionary import read_dictionary
    from data_pipeline.files.tables import two_columns

    dictionary = read_dictionary(work / _DICTIONARY)
    terms = EncodedDictionary(
        dictionary.terms, dictionary.concepts, RowsOfFile(work / _TERM_VECTORS)
    )
    gold = [concept for _, concept in two_columns(work / _MENTIONS, "mention<TAB>CUI")]
    queries = unit(np.load(work / _MENTION_VECTORS))
    read = time.monotonic()
    found = nearest_concepts(queries, terms, min(5, terms.num_concepts))
    right = [matches[0].concept == one for matches, one in zip(found, gold, strict=True)]
    return {
        "score_s": time.monotonic() - read,
        "mentions": len(gold),
        "concepts": terms.num_concepts,
        "acc@1": float(np.mean(right)),
    }


def measure(work: Path, terms: int, width: int, mentions: int) -> dict[str, Any]:
    """The figures of both parts, each from a process of its own."""
    result: dict[str, Any] = {"terms": terms, "width": width, "machine": machine()}
    needed, free = 2 * terms * width + 100 * terms, shutil.disk_usage(work).free
    if needed > free:
        raise BadInput(
            f"{work}: {needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB free; give --work a "
            "folder on a larger disk, or fewer --terms"
        )
    started = time.monotonic()
    _write_files(work, terms, width, mentions)
    result["write_s"] = time.monotonic() - started
    result["vectors_gb"] = (work / _TERM_VECTORS).stat().st_size / 1e9
    for part in _PARTS:
        started = time.monotonic()
        result[part] = in_a_process(_part, part, work)
        result[part]["seconds"] = time.monotonic() - started
    return result


def _part(part: str, work: Path) -> dict[str, Any]:
    """The figures of a part; to be called in a process of its own."""
    from coder_jax.devices.xla_settings import set_up_xla

    set_up_xla()  # as the commands do
    found = {"evaluate": _evaluate, "normalize": _normalize}[part](work)
    return found | {"peak_gb": peak_memory()}


def table(result: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| what | seconds | of these comparing | peak memory, GB | limit, GB |",
        "|---|---:|---:|---:|---|",
    ]
    for part, what in _PARTS.items():
        found = result[part]
        missed = "" if found["peak_gb"] <= _LIMIT_GB else ", MISSED"
        lines.append(
            f"| {what} | {found['seconds']:,.0f} | {found['score_s']:,.0f} "
            f"| {found['peak_gb']:.1f} | at most {_LIMIT_GB:g}{missed} |"
        )
    scored = result["evaluate"]
    lines.append(
        f"\n{result['terms']:,} terms of {scored['concepts']:,} concepts, width {result['width']}: "
        f"{result['vectors_gb']:.1f} GB of vectors in float16; {scored['mentions']:,} mentions, "
        f"acc@1 {scored['acc@1']:.3f}, by `normalize` {result['normalize']['acc@1']:.3f}. "
        f"{one_line(result['machine'])}."
    )
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    parser = plain_parser("dictionary_size", __doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for the files (25 GB)")
    parser.add_argument("--terms", type=int, default=15_500_000, help="default: 15500000")
    parser.add_argument("--width", type=int, default=768, help="of the vectors (default: 768)")
    parser.add_argument("--mentions", type=int, default=1000, help="default: 1000")
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark."""
    args = parse(argv)

    def work() -> int:
        args.work.mkdir(parents=True, exist_ok=True)
        result = measure(args.work, args.terms, args.width, args.mentions)
        print(table(result))
        for name in (_DICTIONARY, _MENTIONS, _TERM_VECTORS, _MENTION_VECTORS):
            (args.work / name).unlink()
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            write_json(args.json, result)
        return 0

    return run_command(work, when_asked=None)


if __name__ == "__main__":
    sys.exit(main())
