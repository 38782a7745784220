"""Figures of a report: relation matrices, heat map, scales, training curves."""

import numpy as np
import pytest

from coder_jax.report import curves
from coder_jax.report.heat_map import HeatMap
from coder_jax.report.relation_matrices import clustered, compare_relations, cosines
from coder_jax.report.scales import path_of, scale_to


def test_spectrum_and_similarity_are_numpys():
    rng = np.random.default_rng(0)
    size = np.array([0.0, 0.5, 0.1, 0.3, 0.2])
    matrices = np.eye(6) + size[:, None, None] * rng.normal(size=(5, 6, 6))
    labels = [f"RO|r{i}" for i in range(5)]
    figure = compare_relations(matrices.astype(np.float32), labels, shown=3)
    assert set(figure.labels) == {"RO|r1", "RO|r3", "RO|r4"} and figure.total == 5
    for label, spectrum, moved, rank in zip(
        figure.labels, figure.spectrum, figure.moved, figure.effective_rank, strict=True
    ):
        matrix = matrices[labels.index(label)]
        values = np.sqrt(np.linalg.eigvalsh(matrix.T @ matrix))[::-1]
        np.testing.assert_allclose(spectrum, values, atol=1e-5)
        assert moved == pytest.approx(np.sqrt(((matrix - np.eye(6)) ** 2).sum()), rel=1e-5)
        shares = values / values.sum()
        assert rank == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-5)
    one, other = (matrices[labels.index(label)] - np.eye(6) for label in figure.labels[:2])
    expected = (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other)
    assert figure.similarity[0, 1] == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(np.diag(figure.similarity), 1)


def test_untouched_relations_are_like_none():
    figure = compare_relations(np.stack([np.eye(4)] * 3), ["a", "b", "c"])
    np.testing.assert_array_equal(figure.similarity, np.zeros((3, 3)))
    np.testing.assert_allclose(figure.effective_rank, 4)
    assert HeatMap.of(figure).cells == []


def test_alike_ones_stand_side_by_side():
    rng = np.random.default_rng(0)
    family = np.array([0, 1, 2] * 6)
    rows = rng.normal(size=(3, 40))[family] + 0.3 * rng.normal(size=(18, 40))
    ordered = family[clustered(cosines(rows))]
    assert (np.diff(ordered) != 0).sum() == 2, ordered
    assert clustered(np.eye(2)).tolist() == [0, 1]


def test_heat_map_has_a_rectangle_for_each_cosine():
    rng = np.random.default_rng(0)
    label = "RO|biological_process_has_initiator_chemical_or_drug"
    figure = compare_relations(np.eye(5) + rng.normal(size=(3, 5, 5)), [label, "a", "b"])
    heat = HeatMap.of(figure)
    assert len(heat.cells) == 9 and heat.labels == figure.labels
    assert any(name.endswith("…") and label.startswith(name[:-1]) for name in heat.names)
    off_diagonal = np.abs(figure.similarity[~np.eye(3, dtype=bool)])
    assert heat.scale == pytest.approx(off_diagonal.max())
    x, y, positive, opacity = heat.cells[1]
    assert (x - heat.margin, y - heat.margin) == (heat.cell, 0)
    assert positive == (figure.similarity[0, 1] > 0)
    assert opacity == pytest.approx(abs(figure.similarity[0, 1]) / heat.scale, abs=0.01)


# Curves and scales


@pytest.mark.parametrize(
    "low, high, ticks",
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (10, 60, ["10", "20", "30", "40", "50", "60"]),
        (0, 4.7e-5, ["0", "1e-05", "2e-05", "3e-05", "4e-05"]),
        (0, 0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_ticks_are_round(low, high, ticks):
    scale = scale_to(low, high)
    assert [text for text, _ in scale.ticks] == ticks
    assert all(-1e-6 <= place <= 1000 + 1e-6 for _, place in scale.ticks)


def test_whole_ticks_and_paths_by_hand():
    assert [text for text, _ in scale_to(1, 3, whole=True).ticks] == ["1", "2", "3"]
    scale = scale_to(0, 4)
    path = path_of(scale.places(np.array([0, 2, 4])), scale.places(np.array([4, 1, 0])))
    assert path == "M0.0 0.0L500.0 750.0L1000.0 1000.0"


def test_panels_of_a_run():
    lines = [{"step": 10 * i, "loss": 1 / i, "fill": 0.9, "data_wait": None} for i in range(1, 9)]
    lines.append({"step": 80, "eval": {"heldout": {"acc@1": 0.25, "acc@5": 0.5, "mrr": 0.3}}})
    evaluation, loss, packing = curves.training_panels(lines)
    assert [curve.name for curve in evaluation.curves] == ["heldout acc@1", "heldout acc@5"]
    assert evaluation.curves[0].y == [25.0] and evaluation.x == loss.x
    assert (loss.title, loss.unit, loss.x.low, loss.x.high, loss.y.low) == ("Loss", "", 10, 80, 0)
    assert [curve.name for curve in packing.curves] == ["filled tokens"]
    assert curves.training_panels([]) == []


def test_long_runs_are_drawn_by_means():
    points = [(step, float(step % 2)) for step in range(10 * curves.MOST_POINTS)]
    thin = curves.thinned(points)
    assert len(thin) == curves.MOST_POINTS and thin[-1][0] == points[-1][0]
    assert {value for _, value in thin} == {0.5}
    assert curves.thinned_to(3, 11).tolist() == [0, 5, 10]
    assert curves.thinned_to(9, 2).tolist() == [0, 1]


# Results
