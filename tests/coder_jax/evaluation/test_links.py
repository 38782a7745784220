"""Link prediction: the file that it is read from, what it asks for, its table."""

import dataclasses

import numpy as np
import pytest
from evaluating import ENCODER
from tiny_build import write_tokenizer
from tiny_rrf import write_release

from coder_jax.evaluation import links as link_prediction
from coder_jax.evaluation.benchmark import Options
from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.links import (
    LinkBenchmark,
    _known_links,
    _link_scores,
    _link_values,
    _Links,
    _numbered_links,
    _rank_links,
    _relation_numbers,
    _score_links,
)
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.vectors import EncodedTerms
from coder_jax.export.relations import ExportedRelations
from data_pipeline.build_dataset.build import build_dataset
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.process import BadInput


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
    header, (row,) = LinkBenchmark.table([record], Options())
    shown = dict(zip(header, row.cells, strict=True))
    assert (shown["triplets"], shown["no relation"], "missing" in shown) == ("4,321", "1", False)
    assert [shown[name] for name in ("MRR", "Hits@1", "Hits@10")] == ["10.00", "20.00", "30.00"]
    assert [shown[f"cosine {name}"] for name in ("MRR", "Hits@1")] == ["40.00", "50.00"]
    some = dataclasses.replace(record, counts=counts | {"missing": 3})
    header, (_, row) = LinkBenchmark.table([record, some], Options())
    assert row.cells[header.index("missing")] == "3"


# -------------------------------------------------------------------------------------------------
# Link prediction: ranks against a loop over all concepts, one score at a time.

C, D, R = 12, 6, 3
RNG = np.random.default_rng(0)
FEATURES = 3 * RNG.normal(size=(C, D)).astype(np.float32)
FEATURES[7] = FEATURES[3]  # a tie
# The first relation leads from 0 to two tails; the encoder does not know the one from 0 to 9.
LINKS = _Links(
    np.array([0, 0, 1, 4, 5, 0, 8]),
    np.array([0, 0, 1, 2, 2, -1, 0]),
    np.array([3, 5, 2, 3, 7, 9, 5]),
)
# True as well, outside the file: some in the place of a triplet of the file, one nowhere near.
KNOWN = _Links(np.array([0, 2, 4, 10]), np.array([0, 1, 2, 1]), np.array([8, 2, 11, 1]))
NONE = _Links(*np.zeros((3, 0), int))
MATRICES = ExportedRelations(RNG.normal(size=(R, D, D)).astype(np.float32), ["a", "b", "c"])
TRANSLATIONS = ExportedRelations(RNG.normal(size=(R, D)).astype(np.float32), ["a", "b", "c"])


def evaluate_links(features, links, relations, known=NONE):
    ranks = _rank_links(features, links, relations, known)
    return _link_scores(ranks, np.ones(len(links.heads), bool))


def rows(links):
    return np.stack([links.heads, links.relations, links.tails], axis=1).tolist()


def score(relations, head, relation, tail):
    e_h, e_t = FEATURES[head].astype(np.float64), FEATURES[tail].astype(np.float64)
    if relations is not None and relation >= 0:
        table = relations.table[relation].astype(np.float64)
        if table.ndim == 1:
            return -np.linalg.norm(e_h + table - e_t)
        e_h = table.T @ e_h
    return e_h @ e_t / np.linalg.norm(e_h) / np.linalg.norm(e_t)


def naive_ranks(relations, known):
    """(concepts ahead, concepts tied) with each tail, then with each head."""
    triplets = rows(LINKS) + rows(known)
    found = []
    for place in (2, 0):
        for triplet in rows(LINKS):
            own, others = score(relations, *triplet), []
            for concept in range(C):
                other = list(triplet)
                other[place] = concept
                if other not in triplets and concept != triplet[2 - place]:
                    others.append(score(relations, *other))
            ahead = sum(x > own + 1e-6 for x in others)
            found.append((ahead, sum(x >= own - 1e-6 for x in others) - ahead))
    return found


def naive_scores(ranks):
    """Means over all orders of the tied concepts."""
    places = [range(ahead + 1, ahead + tied + 2) for ahead, tied in ranks]
    return {
        "mrr": np.mean([np.mean([1 / place for place in some]) for some in places]),
        "hits@1": np.mean([np.mean([place <= 1 for place in some]) for some in places]),
        "hits@10": np.mean([np.mean([place <= 10 for place in some]) for some in places]),
    }


@pytest.mark.parametrize("known", [NONE, KNOWN], ids=["", "known"])
@pytest.mark.parametrize("block", [{"_BLOCK": 2}, {"_BLOCK_SCORES": 3 * C}, {}], ids=str)
@pytest.mark.parametrize("relations", [MATRICES, TRANSLATIONS, None], ids=["M", "r", "none"])
def test_equals_the_loop(relations, block, known, monkeypatch):
    for name, value in block.items():
        monkeypatch.setattr(link_prediction, name, value)
    found = evaluate_links(FEATURES, LINKS, relations, known)
    ranks, cosine = naive_ranks(relations, known), naive_ranks(None, known)
    assert known is NONE or cosine != naive_ranks(None, NONE), "known ones are in play"
    assert any(tied for _, tied in ranks), "the tie is in play"
    half = len(LINKS.heads)
    parts = {"": ranks, "_tails": ranks[:half], "_heads": ranks[half:], "_cosine": cosine}
    want = {
        f"{name}{part}": value
        for part, some in parts.items()
        for name, value in naive_scores(some).items()
    }
    assert found == pytest.approx(want)


def test_as_many_scores_are_held_at_a_time_as_allowed(monkeypatch):
    held, counts = [], link_prediction._counts

    def watched(score_nC, *more):
        held.append(score_nC.shape)
        return counts(score_nC, *more)

    monkeypatch.setattr(link_prediction, "_counts", watched)
    for most, triplets in ((3 * C, 3), (3 * C - 1, 2), (1, 1), (99 * C, len(LINKS.heads))):
        monkeypatch.setattr(link_prediction, "_BLOCK_SCORES", most)
        held.clear()
        evaluate_links(FEATURES, LINKS, None)
        assert max(held) == (triplets, C)


def test_the_right_relations_find_all():
    """Matrices that rotate each head onto its tail."""
    heads, tails = np.arange(4), np.arange(4, 8)
    features = np.concatenate([np.eye(4), np.roll(np.eye(4), 1, axis=1)]).astype(np.float32)
    turn = np.roll(np.eye(4), 1, axis=1).astype(np.float32)[None]
    found = evaluate_links(
        features, _Links(heads, np.zeros(4, int), tails), ExportedRelations(turn, ["turn"])
    )
    assert found["hits@10_cosine"] == 1 and found["mrr_cosine"] < 0.6
    assert found["mrr_tails"] == pytest.approx(0.75)  # a head of another triplet is the same vector


class Encoder:
    """Vectors of the names t0, t1, ..."""

    def encode(self, terms, *, unit):
        assert not unit
        return FEATURES[[int(term[1:]) for term in terms]]


def test_the_record(tmp_path):
    """The triplets of LINKS as a file, with names from a dictionary."""
    names = {0: "RO|a", 1: "RO|b", 2: "RO|c", -1: "RO|other"}
    lines = [f"C{head}\tC{tail}\t{names[r]}\n" for head, r, tail in rows(LINKS)]
    (tmp_path / "links.tsv").write_text("".join(["head\ttail\tlabel\n", *lines]))
    terms = tmp_path / "terms.tsv"
    terms.write_text("".join(f"t{number}\tC{number}\n" for number in range(C)))
    benchmark = read_benchmark("toy", tmp_path / "links.tsv", dictionary=read_dictionary(terms))
    relations = ExportedRelations(MATRICES.table, ["RO|a", "RO|b", "RO|c"])
    vectors = EncodedTerms(Encoder(), [], np.zeros((0, D)), relations)
    record = _score_links(vectors, benchmark, ENCODER)
    concepts = [int(concept[1:]) for concept in benchmark.concepts()]
    place = {concept: number for number, concept in enumerate(concepts)}
    links = _Links(
        np.array([place[c] for c in LINKS.heads]),
        LINKS.relations,
        np.array([place[c] for c in LINKS.tails]),
    )
    assert record.scores == pytest.approx(evaluate_links(FEATURES[concepts], links, MATRICES))
    assert len(record.scoring["relations_hash"]) == 64 and record.counts["known"] == 0
    assert record.counts["triplets"] == 7 and record.counts["without_relation"] == 1
    assert record.counts["relations"] == 4 and set(record.folds) == set(names.values())
    of_a = record.folds["RO|a"]
    assert of_a["scores"] == pytest.approx(
        _link_scores(_rank_links(FEATURES[concepts], links, MATRICES, NONE), LINKS.relations == 0)
    )
    without = _score_links(EncodedTerms(Encoder(), [], np.zeros((0, D))), benchmark, ENCODER)
    for name, value in without.scores.items():
        if name.endswith("_cosine"):
            assert value == record.scores[name] == without.scores[name.removesuffix("_cosine")]
    assert of_a["counts"]["triplets"] == 3 and of_a["scores"]["mrr"] != record.scores["mrr"]


def test_scores_are_the_means_of_what_triplets_add():
    rng = np.random.default_rng(0)
    ranks = {"_tails": 1, "_heads": 1, "_cosine": 2}
    ranks = {name: rng.integers(0, 3, (places, 2, 30)) for name, places in ranks.items()}
    scores = _link_scores(ranks, np.ones(30, bool))
    values = _link_values(ranks)
    assert {name: len(one) for name, one in values.items()} == dict.fromkeys(
        [f"{name}{of}" for of in ("", "_cosine") for name in ("hits@1", "hits@10", "mrr")], 30
    )
    for name, one in values.items():
        assert one.mean() == pytest.approx(scores[name])


# -------------------------------------------------------------------------------------------------
# Triplets by number: directions of labels, and what is known beside them.

LABELS = ["RO|has_part", "RO|part_of", "PAR|isa", "CHD|isa", "RB|"]


def rows_of_links(links):
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
    links = _numbered_links(benchmark, _relation_numbers(benchmark, LABELS))
    assert links.heads.tolist() == [0, 0, 0, 0] and links.tails.tolist() == [1, 1, 1, 1]
    assert links.relations.tolist() == [1, 1, -3, -4], "unknown ones are kept apart"


def test_a_name_that_two_relations_have(tmp_path):
    benchmark = links_of(tmp_path, "a\tb\tisa")
    with pytest.raises(BadInput, match="'isa', which may be PAR.isa or CHD.isa; expected one of"):
        _relation_numbers(benchmark, LABELS)
    assert _relation_numbers(benchmark, ()) == {"isa": -1}


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
    numbers = _relation_numbers(benchmark, ["RO|", "PAR|inverse_isa", "CHD|isa"])
    assert numbers == {"PAR|inverse_isa": 1, "isa": 2, "RO|seen_in": -3, "RO|finding_of": -4}
    assert rows_of_links(_known_links(benchmark, numbers)) == [[0, 1, 1], [1, 2, 0]]
    links_of(tmp_path, *rows_of_file, "C0000003\tC0000001\tRO|finding_of")
    benchmark = read_benchmark("x", tmp_path / "links.tsv", dictionary=dictionary)
    assert benchmark.concepts() == ["C0000001", "C0000003", "C0000002"]
    # The release says it of C0000009, which is C0000002 today; no relation of the encoder.
    assert [2, -4, 1] in rows_of_links(_known_links(benchmark, _relation_numbers(benchmark, ())))
    alone = dataclasses.replace(dictionary, dataset=None)
    assert (
        rows_of_links(_known_links(dataclasses.replace(benchmark, dictionary=alone), numbers)) == []
    )
