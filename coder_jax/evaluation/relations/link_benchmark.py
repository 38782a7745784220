"""Link prediction: triplets whose heads and tails are to be found among all concepts of a file.

Read from a TSV file with the header head, tail, label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from coder_jax.evaluation.benchmark import Found, Given, Options
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.relations.files import HEADER, RelationFile, RelationPairs, read_tsv
from coder_jax.evaluation.results.cells import Row, Table, missing_column, percent
from coder_jax.evaluation.vectors.vectors import Vectors
from data_pipeline.files.rows import content_hash


@dataclass(frozen=True)
class LinkBenchmark(RelationFile):
    """One part: triplets, whose heads and tails are to be found among all concepts."""

    kind: ClassVar[str] = "link prediction"
    formats: ClassVar[str] = "links:    a TSV file with the header head, tail, label"
    about: ClassVar[str] = """\
links     a TSV file with the header head, tail, label: link prediction. --dictionary names the
          concepts. Each head, and each tail, is looked for among all other concepts of the file,
          through the relations that were learned with the encoder; scored by MRR and Hits@1/10
          beside those of the plain cosine. Filtered: what is true by another line of the file, or
          by the dictionary where that is a dataset, is no wrong answer. A label as the dataset
          has it (RO|has_part) is read in the dataset's direction, from CUI1 to CUI2; a name alone
          (has_part) as the sentence "head label tail", which is what RELA says of CUI2 and CUI1."""
    takes_relations: ClassVar[bool] = True

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.header == HEADER

    @classmethod
    def read(cls, given: Given) -> Self:
        pairs = read_tsv(given.path)
        rows = zip(pairs.heads, pairs.tails, pairs.labels, strict=True)
        return cls(given.name, str(given.path), (pairs,), content_hash(rows)).named(given)

    @property
    def pairs(self) -> RelationPairs:
        """The only part."""
        return self.parts[0]

    def score(self, vectors: Vectors, encoder: EncoderRecord, options: Options) -> EvaluationRecord:
        from coder_jax.evaluation.relations.link_prediction import score_links

        return score_links(vectors, self, encoder, options["seed"])

    @classmethod
    def table(cls, records: Sequence[EvaluationRecord], options: Options) -> Table:
        """Filtered MRR and Hits@k, in percent, through the relations and by the plain cosine."""
        missing = missing_column(records)
        header = ["link prediction", "pooling", "triplets", "relations", "concepts", *missing]
        header += ["no relation"]
        names = ("triplets", "relations", "concepts", *missing, "without_relation")
        shown = {"MRR": "mrr", "Hits@1": "hits@1", "Hits@10": "hits@10"}
        header += [*shown, *(f"cosine {name}" for name in shown)]
        rows = []
        for record in records:
            counts = [f"{record.counts.get(name, 0):,}" for name in names]
            found = [name + of for of in ("", "_cosine") for name in shown.values()]
            scores = [percent(record.scores[one], record.intervals.get(one)) for one in found]
            label = [record.benchmark, record.encoder.pooling]
            rows.append(Row([*label, *counts, *scores], record.encoder.model))
        return header, rows
