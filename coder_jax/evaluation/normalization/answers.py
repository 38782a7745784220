"""What each mention was answered, beside its gold concept: for the record, and as a table.

Scores tell how many mentions are right. Here is which, how sure the encoder was, and what else it
would have answered: the terms nearest to each mention, of which the best one of each concept
counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import polars as pl

from coder_jax.encoding.encoded_dictionary import EncodedDictionary, Match, nearest_concepts
from coder_jax.encoding.rows import unit
from coder_jax.evaluation.normalization.ranks import GoldCounts
from coder_jax.mapping.cutoffs import measure_cutoffs
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import CONCEPT_SEPARATOR, split_concepts
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.normalization.accuracy import NormalizationResult
    from coder_jax.evaluation.normalization.benchmark import (
        NormalizationBenchmark,
        NormalizationFold,
    )

ANSWERS = 5  # of each mention in a table
BINS = 40  # of the distribution of similarities
MOST_RANKS = 1 << 20  # mentions whose ranks a record keeps: 2 MB or so
LINE_BREAKS = r"[\t\r\n]"

Encode = Callable[[Sequence[str]], np.ndarray]


class TermRows:
    """Terms as the rows of their unit vectors, which are asked for where they are searched.

    Attributes:
      shape: (n, D).
    """

    def __init__(self, encode: Encode, terms: Sequence[str], width: int):
        self.encode, self.terms, self.shape = encode, terms, (len(terms), width)

    def __len__(self) -> int:
        return len(self.terms)

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        return unit(self.encode(self.terms[rows]), "dictionary vectors")


@dataclass(frozen=True)
class FoldAnswers:
    """The answers to the mentions of a fold.

    Attributes:
      answers: of each mention, one or more concepts, best first.
      right: bool [n], whether the first one is a gold concept.
      similarities: float32 [n], of the first one.
      languages: of each mention, or of the term that was nearest to it; None if neither is known.
    """

    fold: NormalizationFold
    answers: list[list[Match]]
    right: np.ndarray
    similarities: np.ndarray
    languages: list[str] | None


def answers_of(encode: Encode, benchmark: NormalizationBenchmark, most: int) -> list[FoldAnswers]:
    """The concepts nearest to each mention, exact, block by block over the dictionary.

    Args:
      encode: strings -> float32 [n, D].
      benchmark: folds that share a dictionary go through it together.
      most: answers for each mention.

    Raises:
      BadInput: a vector is not finite.
      Stopped: a signal asked for it.
    """
    sharing: dict[int, list[NormalizationFold]] = {}
    for fold in benchmark.folds:
        sharing.setdefault(id(fold.dictionary), []).append(fold)
    found = {}
    for folds in sharing.values():
        dictionary = folds[0].dictionary
        mentions = unit(encode([one for fold in folds for one in fold.mentions]), "mention vectors")
        terms = TermRows(encode, dictionary.terms, mentions.shape[1])
        encoded = EncodedDictionary(dictionary.terms, dictionary.concepts, terms)
        most_here = min(most, len(dictionary.concept_set))
        answers = iter(nearest_concepts(mentions, encoded, most_here))
        for fold in folds:
            found[fold.name] = answers_of_fold(fold, [next(answers) for _ in fold.mentions])
    return [found[fold.name] for fold in benchmark.folds]


def answers_of_fold(fold: NormalizationFold, answers: list[list[Match]]) -> FoldAnswers:
    """What the answers of a fold are worth."""
    pairs = list(zip(answers, fold.gold, strict=True))
    right = [answer[0].concept in split_concepts(gold) for answer, gold in pairs]
    languages = fold.languages
    if languages is None and fold.dictionary.languages is not None:
        of_term = languages_of({answer[0].term for answer in answers}, fold.dictionary)
        languages = [of_term[answer[0].term] for answer in answers]
    similarities = np.array([answer[0].similarity for answer in answers], np.float32)
    return FoldAnswers(fold, answers, np.array(right), similarities, languages)


def languages_of(terms: set[str], dictionary: Dictionary) -> dict[str, str]:
    """The language of some terms of a dictionary that tells it."""
    rows = zip(dictionary.terms, dictionary.languages or (), strict=True)
    return {term: language for term, language in rows if term in terms}


def described(
    benchmark: NormalizationBenchmark, result: NormalizationResult, answers: Sequence[FoldAnswers]
) -> dict[str, Any]:
    """What a record says of the answers, as `record.Answers`."""
    results = result.folds or {benchmark.folds[0].name: result}
    right = np.concatenate([one.right for one in answers])
    similarities = np.concatenate([one.similarities for one in answers])
    languages = [one.languages or [""] * len(one.right) for one in answers]
    of_each = np.array([language for part in languages for language in part])
    told = any(fold.languages is not None for fold in benchmark.folds)
    ranks = {name: results[name].ranks for name in benchmark.averaged()}
    few = len(right) <= MOST_RANKS
    return {
        "ranks": {name: one.as_text() for name, one in ranks.items() if one} if few else None,
        "order": order_hash(benchmark),
        "cutoffs": measure_cutoffs(similarities, right, of_each).described()["tables"],
        "languages": "of the mentions" if told else "of the nearest terms",
        "similarities": distribution(similarities, right),
        "predictions": {},
    }


def order_hash(benchmark: NormalizationBenchmark) -> str:
    """SHA-256 of the mentions in their order."""
    digest = hashlib.sha256()
    for fold in benchmark.folds:
        for mention in fold.mentions:
            digest.update(f"{fold.name}\t{mention}\n".encode())
    return digest.hexdigest()


def distribution(similarities: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """How many right and wrong answers have which similarity, in bins of one width."""
    low = np.floor(100 * similarities.min()) / 100
    edges = np.linspace(low, max(1.0, similarities.max()), BINS + 1)
    counts = [np.histogram(similarities[some], edges)[0].tolist() for some in (right, ~right)]
    return {
        "low": float(edges[0]),
        "high": float(edges[-1]),
        "right": counts[0],
        "wrong": counts[1],
    }


def write_predictions(
    folder: Path,
    benchmark: NormalizationBenchmark,
    result: NormalizationResult,
    answers: Sequence[FoldAnswers],
    pooling: str,
) -> dict[str, str]:
    """Writes the table of each fold, whole or not at all; the file of each, by the fold's name.

    BadInput if one cannot be written.
    """
    results = result.folds or {benchmark.folds[0].name: result}
    files = {}
    for one in answers:
        table = prediction_table(one, results[one.fold.name].ranks)
        parts = (benchmark.name, one.fold.name, pooling)
        files[one.fold.name] = write_table(folder, parts, table)
    return files


def write_table(folder: Path, parts: Sequence[str], table: pl.DataFrame) -> str:
    """Writes a table whole or not at all; the file, which is named by the parts that are not "".

    BadInput if it cannot be written.
    """
    path = folder / f"{'.'.join(as_file_name(part) for part in parts if part)}.tsv"
    try:
        with written_whole(path) as unfinished:
            table.write_csv(unfinished, separator="\t", quote_style="never")
    except OSError as error:
        raise BadInput(
            f"--predictions: {path} cannot be written ({error.strerror}); make room, or give "
            "another folder"
        ) from error
    return str(path)


def as_file_name(part: str) -> str:
    """A name as part of a file's, another one for each."""
    return quote(part, safe=" ").replace(".", "%2E")


def prediction_table(answers: FoldAnswers, counts: GoldCounts | None) -> pl.DataFrame:
    """A row for each mention: gold, its place, the first answer's similarity, and all answers.

    `rank` is the place of the gold concept (the best of several; empty where none is in the
    dictionary), `tied` how many others are as near. A gold concept is named by its preferred term.
    """
    assert counts is not None, "of a single fold"
    fold = answers.fold
    columns: dict[str, Any] = {
        "mention": fold.mentions,
        "gold": fold.gold,
        "gold_name": gold_names(fold),
        "rank": np.where(counts.reachable, counts.ahead + 1, -1),
        "tied": np.where(counts.reachable, counts.tied, -1),
        "right": np.where(answers.right, "yes", "no"),
        "similarity": answers.similarities,
    }
    if answers.languages is not None:
        columns["language"] = answers.languages
    shown = [[(m.concept, m.term, m.similarity) for m in one[:ANSWERS]] for one in answers.answers]
    table = cleaned(pl.DataFrame(columns | answer_columns(shown)))
    places = pl.col("rank", "tied")
    return table.with_columns(pl.when(places >= 0).then(places))


def answer_columns(answers: Sequence[Sequence[tuple[str, str, float]]]) -> dict[str, pl.Series]:
    """The columns of ANSWERS answers: concept, term and similarity of each; empty where none is."""
    columns = {}
    for place in range(ANSWERS):
        at = [one[place] if place < len(one) else (None, None, None) for one in answers]
        for number, (name, kind) in enumerate(
            (("concept", pl.String), ("term", pl.String), ("similarity", pl.Float32))
        ):
            values = [one[number] for one in at]
            columns[f"{name}_{place + 1}"] = pl.Series(values, dtype=kind)
    return columns


def cleaned(table: pl.DataFrame) -> pl.DataFrame:
    """A table as a TSV file can hold it: no line breaks, and similarities of six digits."""
    return table.with_columns(
        pl.col(pl.String).str.replace_all(LINE_BREAKS, " "),
        pl.col(pl.Float32).cast(pl.Float64).round(6),
    )


def gold_names(fold: NormalizationFold) -> list[str]:
    """The preferred terms of the gold concepts of each mention, joined; of unknown ones none."""
    known = fold.dictionary.concept_set
    about = fold.dictionary.about
    return [
        CONCEPT_SEPARATOR.join(about(one).preferred for one in split_concepts(gold) if one in known)
        for gold in fold.gold
    ]


def wrong_answers(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a table of `write_predictions` whose first answer is wrong, the surest first.

    BadInput for another file.
    """
    needed = ("mention", "gold", "gold_name", "right", "similarity", "concept_1", "term_1")
    try:
        table = pl.read_csv(
            path,
            separator="\t",
            quote_char=None,
            infer_schema=False,
        )
        rows = (
            table.select(needed).fill_null("").with_columns(pl.col("similarity").cast(pl.Float64))
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadInput(
            f"{path}: found no table of predictions ({error}); expected one that `python -m "
            "coder_jax evaluate --predictions` wrote"
        ) from error
    wrong = rows.filter(pl.col("right") == "no")
    return wrong.sort("similarity", descending=True, maintain_order=True).iter_rows(named=True)
