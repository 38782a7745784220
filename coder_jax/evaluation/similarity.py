"""Term similarity: Spearman's rank correlation of cosines with human scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.published import SIMILARITY, PublishedRow
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord, RatedPairs
from coder_jax.evaluation.results import ABOUT, Row, Table, half, published_rows, spearman_interval
from coder_jax.evaluation.vectors import TERMS, ComparedStrings, Vectors
from data_pipeline.files.tables import content_hash, read_rows, tab_separated
from data_pipeline.process import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

# -------------------------------------------------------------------------------------------------
# Cosines of term pairs, and their rank correlation with human scores.
#
# For benchmarks such as UMNSRS and MayoSRS; and pairs of synonyms and of random terms to look at.


def _spearman(cosines: np.ndarray, human_scores: np.ndarray) -> float | None:
    """Spearman's rho of float [n] and float [n], tied values at their mean rank.

    None where there are no ranks: all values of a side are equal, or there is one pair, or none.
    BadInput for a cosine that is not finite.
    """
    import scipy.stats

    if len(cosines) < 2:
        return None
    if not np.isfinite(cosines).all():
        raise BadInput(
            f"found {int((~np.isfinite(cosines)).sum())} similarities of {len(cosines)} that are "
            "NaN or infinite; expected finite numbers: check the weights"
        )
    if any((values == values[0]).all() for values in (cosines, human_scores)):
        return None
    return float(scipy.stats.spearmanr(cosines, human_scores).statistic)


def pair_cosines(
    encode: Callable[[list[str]], np.ndarray], first: Sequence[str], second: Sequence[str]
) -> np.ndarray:
    """Cosine of first[i] and second[i], float64 [n]; each distinct string is encoded once."""
    strings = list(dict.fromkeys([*first, *second]))
    row_of = {string: row for row, string in enumerate(strings)}
    vectors = unit(encode(strings), dtype=np.float64)
    first_rows, second_rows = ([row_of[term] for term in side] for side in (first, second))
    return np.sum(vectors[first_rows] * vectors[second_rows], axis=1)


# -------------------------------------------------------------------------------------------------
# The benchmark: pairs of terms with human similarity scores.
#
# - TSV: term1<TAB>term2<TAB>score, as UMNSRS is distributed with CODER; a first line whose last
#   field has no digit, and is no sign of a missing score, is a header;
# - CSV, as the authors distribute theirs, columns in any order: Term1, Term2, Mean (UMNSRS,
#   MayoSRS),
#   or Term1, Term2, Physicians, Coders (MiniMayoSRS: two benchmarks, one for each group of raters).
#   CUI1 and CUI2, where the file has them, let concept vectors be compared.
# - TSV with a header, as EHR-Rel is distributed: snomed_label_1, snomed_label_2, mean_rating.

_COLUMNS = ("Term1", "Term2")
_NO_SCORE = {"", "-", "?", "na", "n/a", "nan", "null", "none", "inf", "-inf"}
_MEAN, _GROUPS = "Mean", ("Physicians", "Coders")
_EHR_REL = ("snomed_label_1", "snomed_label_2", "mean_rating")


@dataclass(frozen=True)
class SimilarityBenchmark(Benchmark):
    """Pairs of terms, each with its mean human score.

    Attributes:
      scores: the mean over all raters.
      groups: the scores of each group of raters, where the file has them apart.
      concepts: the CUIs of the first and of the second terms, where the file has them.
      retired_cuis: where a CUI without a vector is looked up under the one that it was merged into.
    """

    name: str
    path: str
    first: list[str]
    second: list[str]
    scores: list[float]
    content_hash: str
    groups: Mapping[str, list[float]] = field(default_factory=dict)
    concepts: tuple[list[str], list[str]] | None = None
    retired_cuis: RetiredCuis | None = None

    kind: ClassVar[str] = "similarity"
    formats: ClassVar[str] = (
        "pairs:    a TSV file of term1<TAB>term2<TAB>score, a CSV file with Term1, Term2, Mean, "
        "or a TSV file of EHR-Rel"
    )
    about: ClassVar[str] = """\
pairs     a TSV file of term1<TAB>term2<TAB>score, the CSV files of UMNSRS and MayoSRS, or the
          TSV files of EHR-Rel. Scored by Spearman's rank correlation of cosines and human
          scores."""
    published: ClassVar[tuple[PublishedRow, ...]] = SIMILARITY

    @classmethod
    def claims(cls, found: Found) -> bool:
        return {*_EHR_REL} <= {*found.header}  # others have no header that is only theirs

    @classmethod
    def would_take(cls, found: Found) -> bool:
        fields = found.first_row
        return len(fields) == 3 or (len(fields) == 1 and "," in fields[0])

    @classmethod
    def read(cls, given: Given) -> SimilarityBenchmark:
        return replace(_read_pairs(given.name, given.path), retired_cuis=given.retired_cuis)

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct terms or concepts of all pairs; BadInput if the file has no concepts.

        Behind the concepts stand those that retired ones were merged into.
        """
        keys = [key for side in self.sides(keyed_by) for key in side]
        if keyed_by != TERMS and self.retired_cuis is not None:
            keys += [self.retired_cuis.now(key) for key in keys]
        return list(dict.fromkeys(keys))

    def sides(self, keyed_by: str) -> tuple[list[str], list[str]]:
        """The first and the second terms or concepts of the pairs; BadInput as in `keys`."""
        if keyed_by == TERMS:
            return self.first, self.second
        if self.concepts is None:
            raise BadInput(
                f"{self.path}: found no CUIs, and concept vectors to compare; expected the CSV "
                "file of the authors, with the columns CUI1 and CUI2"
            )
        return self.concepts

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        """The record. In "spearman" a pair of which one has no vector has the cosine 0.

        Beside it are "spearman_GROUP" for each group of raters that the file has apart; and, where
        a term or concept has no vector, "spearman_known" over the other pairs. `retired` concepts
        have the vector of the one that they were merged into.
        """
        first, second = self.sides(vectors.keyed_by)
        retired, merged = 0, self.retired_cuis
        if vectors.keyed_by != TERMS and merged is not None:
            looked_up = [merged.looked_up(side, vectors.known) for side in (first, second)]
            became = dict(zip([*first, *second], [*looked_up[0], *looked_up[1]], strict=True))
            retired = sum(old != new for old, new in became.items() if vectors.known([new])[0])
            first, second = looked_up
        if isinstance(vectors, ComparedStrings):
            compared = vectors.of_pairs(first, second)
        else:
            compared = pair_cosines(vectors.encode, first, second)
        both = vectors.known(first) & vectors.known(second)
        cosines = np.where(both, compared, 0)
        ratings = {"spearman": self.scores}
        ratings |= {f"spearman_{group}": scores for group, scores in self.groups.items()}
        sides = {name: (cosines, np.array(human)) for name, human in ratings.items()}
        if not both.all():
            sides["spearman_known"] = cosines[both], np.array(self.scores)[both]
        scores = {name: _spearman(*pairs) for name, pairs in sides.items()}
        intervals = {}
        for name, pairs in sides.items():
            if scores[name] is not None and (found := spearman_interval(*pairs, options.seed)):
                intervals[name] = found
        return EvaluationRecord(
            benchmark=self.name,
            kind=self.kind,
            path=self.path,
            content_hash=self.content_hash,
            scores=scores,
            intervals=intervals,
            counts={"pairs": len(first), "missing": int((~both).sum()), "retired": retired},
            scoring={
                "similarity": "cosine; 0 for a pair without two vectors",
                "correlation": "Spearman, ties at their mean rank",
                "intervals": f"{ABOUT}, pairs drawn anew",
                "retired_cuis": merged and merged.description,
            },
            encoder=encoder,
            pairs=RatedPairs(cosines=cosines.tolist(), ratings=ratings),
        )

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """Spearman's rho of each way to count (all pairs, groups of raters, pairs with vectors)."""
        rows = []
        for record in records:
            for name, rho in record.scores.items():
                part = name.removeprefix("spearman").removeprefix("_")
                sure = half(record.intervals.get(name), 1, 3)
                shown = "undefined (all values are equal)" if rho is None else f"{rho:.4f}{sure}"
                pairs = record.counts["pairs"] - record.counts["missing"] * (part == "known")
                label = f"{record.benchmark}, {part}" if part else record.benchmark
                missing = f"{record.counts['missing']:,}"
                cells = [label, record.encoder.pooling, f"{pairs:,}", missing, shown]
                rows.append(Row(cells, record.encoder.model))
        header = ["similarity", "pooling", "pairs", "missing", "Spearman"]
        return header, rows + published_rows(
            records, cls.published, ["spearman"], len(header), before=4, digits=3
        )


@dataclass(frozen=True)
class _Pair:
    place: str  # file:line, for messages
    first: str
    second: str
    ratings: tuple[str, ...]  # the mean, or that of each group
    concepts: tuple[str, str] | None = None


def _read_pairs(name: str, path: Path) -> SimilarityBenchmark:
    """Reads a TSV or CSV file of pairs; BadInput for broken rows or one score for all."""
    rows = tab_separated(path)
    is_csv = len(rows[0][1]) == 1
    groups: tuple[str, ...] = ()
    if {*_EHR_REL} <= {name.lower() for name in rows[0][1]}:
        pairs = _pairs_of_ehr_rel(path, rows)
    else:
        pairs, groups = _pairs_of_csv(path) if is_csv else (_pairs_of_tsv(path, rows), ())
    ratings = []
    for pair in pairs:
        values = [_number(rating) for rating in pair.ratings]
        if None in values or not pair.first or not pair.second:
            shown = ", ".join(repr(text) for text in (pair.first, pair.second, *pair.ratings))
            raise BadInput(
                f"{pair.place}: found {shown}; expected two terms and a number: mend the line, or "
                "take it out"
            )
        ratings.append([value for value in values if value is not None])
    scores = [sum(values) / len(values) for values in ratings]
    if len(set(scores)) < 2:
        raise BadInput(
            f"{path}: found {len(scores)} pairs with {len(set(scores))} distinct scores; expected "
            "2 or more, or no rank correlation is defined: give the file with people's scores"
        )
    first, second = [pair.first for pair in pairs], [pair.second for pair in pairs]
    concepts = [pair.concepts for pair in pairs if pair.concepts]
    return SimilarityBenchmark(
        name,
        str(path),
        first,
        second,
        scores,
        content_hash((a, b, str(s)) for a, b, s in zip(first, second, scores, strict=True)),
        groups={group: [values[i] for values in ratings] for i, group in enumerate(groups)},
        concepts=([a for a, _ in concepts], [b for _, b in concepts]) if concepts else None,
    )


def _pairs_of_tsv(path: Path, rows: list[tuple[int, list[str]]]) -> list[_Pair]:
    last = rows[0][1][2]
    is_header = last.lower() not in _NO_SCORE and not any(letter.isdigit() for letter in last)
    if len(rows) > 1 and is_header:
        rows = rows[1:]
    for number, fields in rows:
        if len(fields) != 3:
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns; expected 3: "
                "term1<TAB>term2<TAB>score"
            )
    return [_Pair(f"{path}:{number}", a, b, (score,)) for number, (a, b, score) in rows]


def _pairs_of_ehr_rel(path: Path, rows: list[tuple[int, list[str]]]) -> list[_Pair]:
    (_, header), *others = rows
    places = [[name.lower() for name in header].index(name) for name in _EHR_REL]
    pairs = []
    for number, fields in others:
        if len(fields) != len(header):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns; expected {len(header)}, as in the "
                "first line: fetch the file again"
            )
        first, second, rating = (fields[place].strip() for place in places)
        pairs.append(_Pair(f"{path}:{number}", first, second, (rating,)))
    return pairs


def _pairs_of_csv(path: Path) -> tuple[list[_Pair], tuple[str, ...]]:
    """The pairs, and the groups of raters where there is no mean over all."""
    rows = [row for row in read_rows(path, separator=",")[1] if row[1]]
    header = rows[0][1] if rows else []
    column = {name.strip().lower(): place for place, name in enumerate(header)}
    by_group = _MEAN.lower() not in column and any(group.lower() in column for group in _GROUPS)
    rated = _GROUPS if by_group else (_MEAN,)
    missing = [name for name in (*_COLUMNS, *rated) if name.lower() not in column]
    if missing:
        raise BadInput(
            f"{path}:1: found the columns {', '.join(header)}, without "
            f"{', '.join(missing)}; expected Term1, Term2 and Mean (UMNSRS, MayoSRS), or Term1, "
            "Term2, Physicians and Coders (MiniMayoSRS)"
        )
    with_concepts = {"cui1", "cui2"} <= column.keys()
    pairs = []
    for number, fields in rows[1:]:
        filled = [field.strip() for field in fields] + [""] * (len(header) - len(fields))
        held = {name: filled[place] for name, place in column.items()}
        ratings = tuple(held[name.lower()] for name in rated)
        concepts = (held["cui1"], held["cui2"]) if with_concepts else None
        pairs.append(_Pair(f"{path}:{number}", held["term1"], held["term2"], ratings, concepts))
    return pairs, tuple(group.lower() for group in rated) if by_group else ()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
