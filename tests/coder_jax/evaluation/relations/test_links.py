"""Triplets by number: directions of labels, and what is known beside them."""

import dataclasses

import numpy as np
import pytest
from tiny_build import write_tokenizer
from tiny_rrf import write_release

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.relations.links import (
    known_links,
    numbered_links,
    relation_numbers,
)
from data_pipeline.build.build_dataset import build_dataset
from data_pipeline.build.options import BuildOptions
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.process.errors import BadInput

LABELS = ["RO|has_part", "RO|part_of", "PAR|isa", "CHD|isa", "RB|"]


def rows(links):
    return np.stack([links.heads, links.relations, links.tails], axis=1).tolist()


def links_of(folder, *rows):
    file = folder / "links.tsv"
    file.write_text("\n".join(["head\ttail\tlabel", *rows]) + "\n")
    return read_benchmark("links", file)


def test_labels_are_read_in_their_direction(tmp_path):
    """Of CUI1=hand, CUI2=finger the dataset's label RO|part_of says: finger part_of hand."""
    benchmark = links_of(
        tmp_path,
        "hand\tfinger\tRO|part_of",  # as in the dataset
        "finger\thand\tpart_of",  # as a sentence: the same
        "finger\thand\tknows",
        "hand\tfinger\tRO|knows",
    )
    assert benchmark.concepts() == ["hand", "finger"]
    links = numbered_links(benchmark, relation_numbers(benchmark, LABELS))
    assert links.heads.tolist() == [0, 0, 0, 0] and links.tails.tolist() == [1, 1, 1, 1]
    assert links.relations.tolist() == [1, 1, -3, -4], "unknown ones are kept apart"


def test_a_name_that_two_relations_have(tmp_path):
    benchmark = links_of(tmp_path, "a\tb\tisa")
    with pytest.raises(BadInput, match="'isa', which may be PAR.isa or CHD.isa; expected one of"):
        relation_numbers(benchmark, LABELS)
    assert relation_numbers(benchmark, ()) == {"isa": -1}


def test_triplets_of_the_dataset_are_known(tmp_path):
    """Those between concepts of the file, with its relations; a dictionary alone knows none."""
    source = write_release(tmp_path / "META")
    (tmp_path / "tokenizer").mkdir()
    options = {"tokenizer": write_tokenizer(tmp_path / "tokenizer"), "out": tmp_path / "data"}
    dictionary = read_dictionary(build_dataset(BuildOptions(source=source, **options)))
    rows_of_file = (
        "C0000001\tC0000002\tPAR|inverse_isa",
        "C0000001\tC0000002\tisa",  # as a sentence: C0000002 is CUI1
        "C0000001\tC0000002\tRO|seen_in",
    )
    links_of(tmp_path, *rows_of_file, "C0000002\tC0000001\tRO|finding_of")
    benchmark = read_benchmark("x", tmp_path / "links.tsv", dictionary=dictionary)
    assert benchmark.concepts() == ["C0000001", "C0000002"]
    numbers = relation_numbers(benchmark, ["RO|", "PAR|inverse_isa", "CHD|isa"])
    assert numbers == {"PAR|inverse_isa": 1, "isa": 2, "RO|seen_in": -3, "RO|finding_of": -4}
    assert rows(known_links(benchmark, numbers)) == [[0, 1, 1], [1, 2, 0]]
    links_of(tmp_path, *rows_of_file, "C0000003\tC0000001\tRO|finding_of")
    benchmark = read_benchmark("x", tmp_path / "links.tsv", dictionary=dictionary)
    assert benchmark.concepts() == ["C0000001", "C0000003", "C0000002"]
    # The release says it of C0000009, which is C0000002 today; no relation of the encoder.
    assert [2, -4, 1] in rows(known_links(benchmark, relation_numbers(benchmark, ())))
    alone = dataclasses.replace(dictionary, dataset=None)
    assert rows(known_links(dataclasses.replace(benchmark, dictionary=alone), numbers)) == []
