"""JSON files of `evaluate` in, tables of their records beside the papers' rows out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from coder_jax.evaluation.protocol import EvaluationRecord, read_records
from coder_jax.evaluation.published import rows_for
from coder_jax.evaluation.table import Table, tables_of


def read_results(files: Sequence[tuple[str | None, str]]) -> list[EvaluationRecord]:
    """The records of several files.

    Args:
      files: (name for the encoder in the tables or None for the model of the record, path).

    Raises:
      BadInput: a file that `evaluate --json` did not write.
    """
    records = []
    for name, path in files:
        for record in read_records(path):
            encoder = replace(record.encoder, model=name) if name else record.encoder
            records.append(replace(record, encoder=encoder))
    return sorted(records, key=lambda record: record.benchmark)  # a benchmark's stand together


def result_tables(records: Sequence[EvaluationRecord]) -> list[Table]:
    """A table for each benchmark of the papers, then one for each kind of the other benchmarks.

    acc@k is shown for the k that all records have.
    """
    scored = [record.scores for record in records if record.kind == "normalization"]
    common = set.intersection(*map(set, scored)) if scored else set()
    ks = sorted(int(name[4:]) for name in common if re.fullmatch(r"acc@\d+", name))
    published = dict.fromkeys(one.benchmark for one in records if rows_for(one.benchmark))
    tables = []
    for name in published:
        tables += tables_of([record for record in records if record.benchmark == name], ks)
    return tables + tables_of([one for one in records if one.benchmark not in published], ks)
