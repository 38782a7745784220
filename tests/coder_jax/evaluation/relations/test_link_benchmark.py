"""Link prediction: the file that it is read from, what it asks for, its table."""

import dataclasses

import pytest
from evaluating import ENCODER

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.relations.link_benchmark import LinkBenchmark
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput


def test_a_file_of_triplets(write):
    path = write("l.tsv", "head\ttail\tlabel\nC1\tC2\tisa\nC3\tC1\tRO|has_part\n")
    links = read_benchmark("links", path, dictionary=Dictionary(["pain"], ["C2"], "toy"))
    assert (links.pairs.heads, links.pairs.tails) == (["C1", "C3"], ["C2", "C1"])
    assert links.pairs.labels == ["isa", "RO|has_part"]
    assert links.keys("terms") == ["C1", "C3", "pain"] and links.unnamed == 2
    assert links.takes_features and links.takes_relations
    other = write("l.tsv", "head\ttail\tlabel\nC3\tC1\tRO|has_part\nC1\tC2\tisa\n")
    assert read_benchmark("links", other).content_hash == links.content_hash
    with pytest.raises(BadInput, match="and no names for them; give --dictionary"):
        read_benchmark("links", other).keys("terms")


@pytest.mark.parametrize(
    "rows, message",
    [("", "found a header and no rows"), ("C1\tC2\n", r"l.tsv:2: found \['C1', 'C2'\]; expected")],
)
def test_files_that_cannot_be_used(write, rows, message):
    with pytest.raises(BadInput, match=message):
        read_benchmark("links", write("l.tsv", "head\ttail\tlabel\n" + rows))


def test_scores_stand_beside_those_of_the_cosine():
    names = ("mrr", "hits@1", "hits@10", "mrr_cosine", "hits@1_cosine", "hits@10_cosine")
    counts = {"triplets": 4321, "relations": 2, "concepts": 9, "without_relation": 1}
    record = EvaluationRecord(
        **{"benchmark": "l", "kind": "link prediction", "path": "p", "content_hash": "h"},
        **{"scores": {name: i / 10 for i, name in enumerate(names, 1)}, "counts": counts},
        **{"scoring": {}, "encoder": ENCODER},
    )
    header, (row,) = LinkBenchmark.table([record], {})
    shown = dict(zip(header, row.cells, strict=True))
    assert (shown["triplets"], shown["no relation"], "missing" in shown) == ("4,321", "1", False)
    assert [shown[name] for name in ("MRR", "Hits@1", "Hits@10")] == ["10.00", "20.00", "30.00"]
    assert [shown[f"cosine {name}"] for name in ("MRR", "Hits@1")] == ["40.00", "50.00"]
    some = dataclasses.replace(record, counts=counts | {"missing": 3})
    header, (_, row) = LinkBenchmark.table([record, some], {})
    assert row.cells[header.index("missing")] == "3"
