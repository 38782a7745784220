"""JSON files of `evaluate` in, tables of their records beside the papers' rows out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from coder_jax.evaluation.benchmarks import published_for
from coder_jax.evaluation.cells import Table
from coder_jax.evaluation.record import EvaluationRecord, read_records
from coder_jax.evaluation.tables import tables_of
from coder_jax.report.answers import STAGES
from data_pipeline.process.errors import BadInput

TINY = 1e-6  # ends are means that were added up in another order


def read_results(files: Sequence[tuple[str | None, str]]) -> list[EvaluationRecord]:
    """The records of several files.

    Args:
      files: (name for the encoder in the tables or None for the model of the record, path). The
        names "before" and "after" say when its records were made, and leave the model's name.

    Raises:
      BadInput: a file that `evaluate --json` did not write.
    """
    records = []
    for name, path in files:
        for number, record in enumerate(read_records(path)):
            check_record(record, f"{path}: records[{number}]")
            records.append(named_record(record, name))
    return sorted(records, key=lambda record: record.benchmark)  # a benchmark's stand together


def check_record(record: EvaluationRecord, where: str) -> None:
    """BadInput for a record of which no table can be made."""
    again = "make the file again with `python -m coder_jax evaluate --json`"
    scores = record.scores
    for best in (name for name in scores if name.endswith("_optimistic")):
        name = best.removesuffix("_optimistic")
        found = [scores.get(one) for one in (f"{name}_pessimistic", name, best)]
        if not rising([-TINY, *found, 1 + TINY]):
            raise BadInput(
                f"{where}: {name} is {found[1]}, from {found[0]} to {found[2]} by how ties are "
                f"counted; expected numbers from 0 to 1, none less than the one before; {again}"
            )
    try:
        tables = tables_of([record], k=common_ks([record]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Which scores and counts there are depends on the benchmark: its table asks for them.
        raise BadInput(
            f"{where} is not whole ({type(error).__name__}: {error}); {again}"
        ) from error
    if not tables:
        raise BadInput(
            f"{where} is of the kind {record.kind!r}, which this version of coder_jax does not "
            f"know; {again}"
        )


def rising(numbers: Sequence[float | None]) -> bool:
    """Whether all are numbers, and none is less than the one before but for rounding."""
    there = [number for number in numbers if number is not None]
    return len(there) == len(numbers) and all(low <= high + TINY for low, high in pairwise(there))


def named_record(record: EvaluationRecord, name: str | None) -> EvaluationRecord:
    """A record that is called `name`, or was made then."""
    if name in STAGES:
        return replace(record, stage=name)
    encoder = replace(record.encoder, model=name) if name else record.encoder
    return replace(record, encoder=encoder)


def with_stage(record: EvaluationRecord) -> EvaluationRecord:
    """A record whose encoder's name begins with when it was made, where that is known."""
    if not record.stage:
        return record
    model = f"{record.stage}: {record.encoder.model}"
    return replace(record, encoder=replace(record.encoder, model=model))


def result_tables(records: Sequence[EvaluationRecord]) -> list[Table]:
    """A table for each benchmark of the papers, then one for each kind of the other benchmarks.

    acc@k is shown for the k that all records of a table have.

    Raises:
      BadInput: records of a table that have no k in common.
    """
    records = [with_stage(record) for record in records]
    published = dict.fromkeys(one.benchmark for one in records if published_for(one.benchmark))
    groups = [[one for one in records if one.benchmark == name] for name in published]
    groups.append([one for one in records if one.benchmark not in published])
    return [table for group in groups for table in tables_of(group, k=common_ks(group))]


def common_ks(records: Sequence[EvaluationRecord]) -> list[int]:
    """The k of acc@k that all records of normalization have; BadInput if there are none."""
    held: list[tuple[str, set[int]]] = []
    for record in records:
        if record.kind == "normalization":
            ks = {int(name[4:]) for name in record.scores if re.fullmatch(r"acc@\d+", name)}
            held.append((f"{record.benchmark} of {record.encoder.model}", ks))
    common = sorted(set.intersection(*(ks for _, ks in held))) if held else []
    if held and not common:
        found = dict.fromkeys(f"{name} has acc@k for k of {sorted(ks)}" for name, ks in held)
        raise BadInput(
            f"--results: {'; '.join(found)}; expected one k that all have: evaluate with the same "
            "--k"
        )
    return common
