"""Mentions of one concept or several, each answered with a set of concepts.

Liang, Xue and Ruan (arXiv 2101.09101), section 4. Whatever gives candidates and says how many of
them are the answer is scored: `score` takes the nearest name of an encoder, always one;
`score_answers` any other, such as recall and rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from coder_jax.evaluation.benchmark import Benchmark, Flag, Found, Given, Options
from coder_jax.evaluation.multiple_names.published import MULTIPLE_NAMES
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.results.bootstrap import ABOUT
from coder_jax.evaluation.results.cells import Row, Table, percent, published_rows
from coder_jax.evaluation.results.published import PublishedRow
from coder_jax.evaluation.vectors.vectors import Vectors, terms_only
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.dataset.mentions.store import MentionDataset, MentionSplit, open_mentions
from data_pipeline.files.identity import MENTIONS, is_of_kind
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.evaluation.multiple_names.scores import Share

CANDIDATES = 10
RECALL_AT = (1, 2, 5, 7, 10)
SCORES = ("uni", "multi", "total", *(f"recall@{k}" for k in RECALL_AT))
NUMBERS = ("number uni", "number multi", "number total")
TF_IDF, EDITS = "TF-IDF of characters", "edit distance"
TRAINING, SIGNS = "nearest training mention or name", "number by the signs +"


@dataclass(frozen=True)
class MultipleNames(Benchmark):
    """The mentions of one split of a folder of mentions, and its dictionary."""

    name: str
    path: str
    data: MentionDataset
    chosen: str

    kind: ClassVar[str] = "several concepts"
    published: ClassVar[tuple[PublishedRow, ...]] = MULTIPLE_NAMES
    formats: ClassVar[str] = "mentions: a folder of `python -m data_pipeline.build_mentions`"
    about: ClassVar[str] = """\
mentions  a folder of `python -m data_pipeline.build_mentions`, whose mentions mean one concept or
          several: how many are answered with exactly their concepts, how many have all of them
          among k candidates, and how often their number is right. --ranker adds a ranker, and
          `--fusion mean recall rank` a row for both and for each alone; without a ranker, and
          without a generator of the recipe recall, the nearest name is the answer.\
"""
    flags: ClassVar[tuple[Flag, ...]] = (
        Flag(
            "--split",
            "the mentions of a folder to score: train, dev or test (default: test)",
            default="test",
            argparse={"choices": ("train", "dev", "test")},
        ),
    )
    flags_under: ClassVar[str] = "mentions of several concepts"

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.is_folder and is_of_kind(found.path / MENTIONS.file, MENTIONS)

    @classmethod
    def brings_dictionary(cls, path: Any) -> bool:
        return True

    @classmethod
    def read(cls, given: Given) -> Self:
        data, split = open_mentions(given.path), given.options.get("split", "test")
        if split not in data.splits:
            raise BadInput(
                f"--split {split}: {given.path} has the mentions of {', '.join(data.splits)}; "
                f"choose one of these, or build it with --{split}"
            )
        return cls(given.name, str(given.path), data, split)

    @property
    def split(self) -> MentionSplit:
        """What is scored."""
        return self.data.splits[self.chosen]

    @cached_property
    def mentions(self) -> list[str]:
        """Their strings."""
        return list(self.split.mentions.strings)

    @cached_property
    def dictionary(self) -> Dictionary:
        """The names that are searched."""
        concepts = list(self.data.concepts)
        of_name = [concepts[number] for number in self.data.name_concepts.tolist()]
        return Dictionary(list(self.data.names.strings), of_name, self.path)

    def keys(self, keyed_by: str) -> list[str]:
        """The distinct strings of mentions and names; BadInput for concept vectors."""
        terms_only(keyed_by, self.path)
        return list(dict.fromkeys(chain(self.mentions, self.dictionary.terms)))

    def dictionaries(self) -> list[Dictionary]:
        return [self.dictionary]

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.encoding.search import search

        names = vectors.encode(self.dictionary.terms)
        _, found = search(vectors.encode(self.mentions), names, self.names_for(CANDIDATES))
        candidates, counts = self.first_concepts(found, CANDIDATES), np.ones(len(found), np.int64)
        return self.score_answers(candidates, counts, encoder, "the concept of the nearest name")

    def score_answers(
        self,
        candidates: np.ndarray,
        counts: np.ndarray,
        encoder: EncoderRecord,
        answers: str,
        ordered_by: str = "",
    ) -> EvaluationRecord:
        """The record of whatever answers mentions with sets of concepts.

        Args:
          candidates, counts: as for `scores_of`.
          encoder: for the record.
          answers: what is answered, in words.
          ordered_by: what orders the candidates, where several things can.
        """
        from coder_jax.evaluation.multiple_names.scores import intervals_of_shares

        numbers = self.split.numbers()
        return EvaluationRecord(
            benchmark=self.name,
            kind=self.kind,
            path=self.path,
            content_hash=self.data.manifest["content_hash"],
            scores=self.scores_of(candidates, counts),
            intervals=intervals_of_shares(self.shares_of(candidates, counts)),
            counts={
                "mentions": len(self.mentions),
                "uni": int((numbers == 1).sum()),
                "multi": int((numbers > 1).sum()),
                "unreachable": sum(-1 in one for one in self.split.gold_sets()),
            },
            scoring={
                "split": self.chosen,
                "answers": answers,
                **({"ordered by": ordered_by} if ordered_by else {}),
                "right": "all concepts of a mention and no other; recall@k: all among k candidates",
                "intervals": f"{ABOUT}, mentions drawn anew; none of the number of concepts, "
                "a mean over classes of few mentions",
            },
            encoder=encoder,
            dictionary=self.dictionary.description,
            folds={name: {"scores": scores} for name, scores in self.baselines.items()},
        )

    def scores_of(self, candidates: np.ndarray, counts: np.ndarray) -> dict[str, float | None]:
        """Shares in [0, 1]; None where no mention counts.

        Args:
          candidates: concepts of each mention, best first, int [M, K].
          counts: how many of them are its answer, int [M].
        """
        from coder_jax.evaluation.multiple_names.scores import number_accuracy

        shares = self.shares_of(candidates, counts)
        numbers = number_accuracy(counts.tolist(), self.split.numbers().tolist())
        return {
            **{name: share.value for name, share in shares.items()},
            **{f"number {name}": value for name, value in numbers._asdict().items()},
        }

    def shares_of(self, candidates: np.ndarray, counts: np.ndarray) -> dict[str, Share]:
        """How many mentions are right: uni, multi, total and recall@k; as for `scores_of`."""
        from coder_jax.evaluation.multiple_names.scores import accuracy, recall

        gold, rows = self.split.gold_sets(), candidates.tolist()
        answers = [row[:count] for row, count in zip(rows, counts.tolist(), strict=True)]
        found = recall(rows, gold, [k for k in RECALL_AT if k <= candidates.shape[1]])
        return accuracy(answers, gold) | {f"recall@{k}": share for k, share in found.items()}

    def names_for(self, k: int) -> int:
        """As many ranked names as have k concepts among them, whichever they are; at most all."""
        names_of_one = int(np.bincount(self.data.name_concepts).max())
        return min(k * names_of_one, len(self.data.names))

    def first_concepts(self, names: np.ndarray, k: int) -> np.ndarray:
        """int [M, c]: the first concepts of ranked names [M, K]; c is k, or what all rows have."""
        from coder_jax.evaluation.multiple_names.scores import distinct

        rows = distinct(names, self.data.name_concepts)
        most = min(k, *map(len, rows))
        return np.array([row[:most] for row in rows])

    @cached_property
    def baselines(self) -> dict[str, dict[str, float | None]]:
        """The scores of answers without an encoder, of what they tell."""
        from coder_jax.evaluation.multiple_names.baselines import (
            answers_of_nearest,
            nearest_by_edits,
            nearest_by_tf_idf,
            numbers_by_delimiter,
        )

        names, concepts = self.dictionary.terms, self.data.name_concepts
        distinct, of = np.unique(self.mentions, return_inverse=True)
        mentions, found = distinct.tolist(), {}
        always_one = np.ones(len(self.mentions), np.int64)
        for name, nearest in ((TF_IDF, nearest_by_tf_idf), (EDITS, nearest_by_edits)):
            near = nearest(mentions, names, self.names_for(CANDIDATES))
            found[name] = self.scores_of(self.first_concepts(near, CANDIDATES)[of], always_one)
        if self.chosen != "train":
            train = self.data.splits["train"]
            training = list(train.mentions.strings), train.gold_sets()
            copied = answers_of_nearest(mentions, names, concepts, *training)
            counts = np.array([len(one) for one in copied])
            padded = np.full((len(copied), int(counts.max())), -1)
            for row, one in enumerate(copied):
                padded[row, : len(one)] = sorted(one)
            found[TRAINING] = only(self.scores_of(padded[of], counts[of]), *SCORES[:3], *NUMBERS)
        signs = np.array(numbers_by_delimiter(self.mentions))
        if (signs > 1).any():
            no_names = np.full((len(signs), int(signs.max())), -1)
            found[SIGNS] = only(self.scores_of(no_names, signs), *NUMBERS)
        return found

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """A row for each encoder, the baselines, and the paper's rows."""
        header = ["several concepts", "pooling", "mentions", *SCORES, *NUMBERS]
        rows = []
        for record in records:
            shown = [
                two_decimals(record.scores.get(name), record.intervals.get(name))
                for name in (*SCORES, *NUMBERS)
            ]
            label = f"{record.benchmark} {record.scoring['split']}"
            if ordered_by := record.scoring.get("ordered by"):
                label += f": {ordered_by}"
            start = [label, record.encoder.pooling, f"{record.counts['mentions']:,}"]
            rows.append(Row([*start, *shown], record.encoder.model))
        for record in {record.benchmark: record for record in records}.values():
            for name, fold in record.folds.items():
                shown = [two_decimals(fold["scores"].get(one)) for one in (*SCORES, *NUMBERS)]
                label = f"{record.benchmark} {record.scoring['split']}: {name}"
                rows.append(Row([label, "", f"{record.counts['mentions']:,}", *shown], name))
        width = len(header)
        columns = (*SCORES, *NUMBERS)
        rows += published_rows(records, cls.published, columns, width, before=3, digits=2)
        return header, rows


def only(scores: Mapping[str, float | None], *names: str) -> dict[str, float | None]:
    """Some of the scores."""
    return {name: scores[name] for name in names}


def two_decimals(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share in percent, as the paper prints it: "91.47", "91.47 ±1.0"; a dash for none."""
    return "-" if share is None else percent(share, interval)
