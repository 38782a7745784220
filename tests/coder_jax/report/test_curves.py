"""Figures of a report: relation matrices and the curves of a run."""

import json

import numpy as np
import pytest
from toy_report import LEARNING

from coder_jax.report import curves
from coder_jax.report.build import _learning_panels
from coder_jax.report.curves import read_panels, write_panels
from coder_jax.report.pictures import (
    _LEAST_SCALE,
    _SPECTRUM_POINTS,
    _clustered,
    _cosines,
    compare_relations,
    spectrum_panel,
)
from data_pipeline.process import BadInput


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
    assert figure.scale == _LEAST_SCALE


def test_alike_ones_stand_side_by_side():
    rng = np.random.default_rng(0)
    family = np.array([0, 1, 2] * 6)
    rows = rng.normal(size=(3, 40))[family] + 0.3 * rng.normal(size=(18, 40))
    ordered = family[_clustered(_cosines(rows))]
    assert (np.diff(ordered) != 0).sum() == 2, ordered
    assert _clustered(np.eye(2)).tolist() == [0, 1]


def test_scale_and_spectra():
    rng = np.random.default_rng(0)
    small = compare_relations(np.eye(5) + rng.normal(size=(3, 5, 5)), ["a", "b", "c"])
    assert _LEAST_SCALE < small.scale == np.abs(small.similarity[[0, 0, 1], [1, 2, 2]]).max()
    figure = compare_relations(np.eye(120) + rng.normal(size=(3, 120, 120)), ["c", "a", "b"])
    panel = spectrum_panel(figure)
    assert [curve.name for curve in panel.curves] == figure.labels and panel.many
    for curve, values in zip(panel.curves, figure.spectrum, strict=True):
        assert len(curve.x) == _SPECTRUM_POINTS and (curve.x[0], curve.x[-1]) == (1, 120)
        assert curve.y == [values[rank - 1] for rank in curve.x]


# Curves


def drawn(lines):
    """title -> name of each curve -> its points."""
    return {
        panel.title: {
            curve.name: list(zip(curve.x, curve.y, strict=True)) for curve in panel.curves
        }
        for panel in curves.training_panels(lines)
    }


def test_panels_of_a_run():
    lines = [{"step": 10 * i, "loss": 1 / i, "fill": 0.9, "data_wait": None} for i in range(1, 9)]
    scores = {"acc@1": 0.25, "acc@5": 0.5, "mrr": 0.3, "terms": 495}
    lines.append({"step": 80, "eval": {"heldout": scores}, "seconds": 3.5})
    evaluation, other, loss, packing = curves.training_panels(lines)
    assert [curve.name for curve in evaluation.curves] == ["heldout acc@1", "heldout acc@5"]
    assert (evaluation.unit, evaluation.curves[0].y) == ("mentions, %", [25.0])
    assert [(curve.name, curve.y) for curve in other.curves] == [("heldout mrr", [0.3])]
    assert evaluation.x_range == loss.x_range == (0, 80), "all begin at step 0"
    assert evaluation.title == "Evaluation, among 495 terms" and "--eval-terms" in evaluation.note
    assert other.title == "Other scores, among 495 terms"
    assert other.note == loss.note == packing.note == "", "it is said once"
    assert (loss.title, loss.unit, loss.curves[0].x[-1], loss.curves[0].y[1]) == (
        "Loss",
        "",
        80,
        0.5,
    )
    assert [curve.name for curve in packing.curves] == ["filled tokens"]
    assert curves.training_panels([]) == []


def test_among_how_many_terms():
    """Counts that change from one evaluation to the next, at any depth; or none, or no counts."""
    assert curves.evaluated_among([{"step": 0}, {"step": 1, "eval": {"acc": 0.5}}]) == ""
    lines = [
        {"step": step, "eval": {"deep": {"er": {"acc@1": 0.5, "terms": terms}}}}
        for step, terms in enumerate((10_000, 9_000, True, 9_500.0))
    ]
    assert curves.evaluated_among(lines[:1]) == "10,000"
    assert curves.evaluated_among(lines) == "9,000 to 10,000"
    (panel,) = curves.training_panels(lines[2:3])
    assert (panel.title, panel.note) == ("Evaluation", "")


def test_a_curve_of_scores_has_its_zero():
    """Scores before the first step; two benchmarks, of which one has a score less."""
    lines = [{"step": 0, "eval": {"a": {"acc@1": 0.1}, "b": {"acc@1": 0.2, "acc@5": 0.25}}}]
    lines += [{"step": 5, "loss": 1.0}, {"step": 9, "eval": {"a": {"acc@1": 0.5}}}]
    evaluation, loss = curves.training_panels(lines)
    assert evaluation.x_range == loss.x_range == (0, 9), "one axis for all"
    of_a, of_b, of_b_at_5 = evaluation.curves
    assert list(zip(of_a.x, of_a.y, strict=True)) == [(0, 10.0), (9, 50.0)]
    assert of_a.colour == of_b.colour != of_b_at_5.colour, "a colour for a score"
    assert of_a.dash != of_b.dash == of_b_at_5.dash, "a line style for a benchmark"


def test_scores_that_no_one_knows():
    """Of a system whose scores have no benchmark, and counts, which are whole numbers."""
    lines = [
        {"step": s, "eval": {"dev_accuracy": s / 8, "deep": {"er": {"x": 2.5}}}} for s in (0, 4)
    ]
    lines[1]["eval"] |= {"mentions": 7, "bad": float("nan")}
    assert drawn(lines) == {
        "Evaluation": {"dev accuracy": [(0, 0.0), (4, 0.5)], "deep/er x": [(0, 2.5), (4, 2.5)]}
    }


def test_gradient_norms_of_parts():
    old = [{"step": 1, "grad_norm": 3.0}]
    (alone,) = curves.training_panels(old)
    assert (alone.title, alone.log) == ("Gradient norm", False)
    assert [curve.name for curve in alone.curves] == ["gradient norm"]
    parts = {"grad_norm": 3.0, "grad_norm/encoder": 2.9, "grad_norm/relations": 0.09}
    (panel,) = curves.training_panels([*old, {"step": 2, **parts}, {"step": 3, **parts}])
    assert [curve.name for curve in panel.curves] == ["all parts", "encoder", "relations"]
    assert panel.log, "a linear axis would hide the relations"
    assert [curve.x for curve in panel.curves] == [[1, 2, 3], [2, 3], [2, 3]], "older lines stay"
    (alike,) = curves.training_panels([{"step": 2, **parts, "grad_norm/relations": 0.5}])
    assert not alike.log
    (still,) = curves.training_panels([{"step": 2, **parts, "grad_norm/relations": 0.0}])
    assert not still.log, "of what is positive the largest is near the least"


def test_metrics_of_another_system_are_grouped_by_name():
    line = {"loss": 2.0, "loss_recall": 1.5, "loss/rank": 0.5, "count_accuracy": 0.75}
    line |= {"class_entropy": 3.5, "class_top1": 0.5, "margin": 0.1, "names_per_s": 9.0}
    line |= {"learning_rate/encoder": 1e-5, "note": "text", "flag": True, "nan": float("nan")}
    assert drawn([{"step": 3, **line}]) == {
        "Loss": {"total": [(3, 2.0)], "recall": [(3, 1.5)], "rank": [(3, 0.5)]},
        "Accuracy": {"count accuracy": [(3, 0.75)]},
        "Learning rate": {"encoder": [(3, 1e-5)]},
        "Speed": {"names": [(3, 9.0)]},
        "Class": {"entropy": [(3, 3.5)], "top1": [(3, 0.5)]},
        "Margin": {"margin": [(3, 0.1)]},
    }


def test_long_runs_are_drawn_by_means():
    count = 10 * curves._MOST_POINTS
    points = [(step, float(step % 2)) for step in range(count)]
    (thin, late), each = curves._thinned([points, points[count // 2 :]])
    assert each == 10
    assert len(thin) == curves._MOST_POINTS and thin[-1][0] == points[-1][0]
    assert {value for _, value in thin} == {0.5}
    assert late == thin[curves._MOST_POINTS // 2 :], "curves of a panel have their points together"
    assert curves._thinned([points[:9]]) == ([points[:9]], 1)
    assert curves.thinned_to(3, 11).tolist() == [0, 5, 10]
    assert curves.thinned_to(9, 2).tolist() == [0, 1]


def test_the_same_as_numbers():
    lines = [{"step": s, "loss": s / 3, **({"loss_term": 1.0} if s > 5 else {})} for s in range(11)]
    (panel,) = curves.training_panels(lines)
    assert curves.panel_table(panel, 3) == [
        (0, ["0", ""]), (5, ["1.6667", ""]), (10, ["3.3333", "1"])
    ]  # fmt: skip


def test_classes_are_told_from_nearest_terms():
    """And both begin at step 0."""
    lines = [
        {
            "step": step,
            "eval": {
                "heldout": {"acc@1": 0.5, "mrr": 0.6, "terms": 10_000},
                "classes": {"acc@1": step / 1000, "mrr": 0.1, "classes": 13_255},
            },
        }
        for step in (0, 400)
    ]
    shares, other = curves.training_panels(lines)
    assert shares.title == "Evaluation, among 10,000 terms"
    assert {curve.name: curve.y for curve in shares.curves} == {
        "nearest term acc@1": [50, 50],
        "class acc@1": [0, 40],
    }
    assert all(curve.x == [0, 400] for curve in shares.curves)
    assert "the most probable of all 13,255 concepts" in shares.note and not other.note
    alone = [{"step": 3, "eval": {"classes": {"acc@1": 0.5, "classes": 7}}}]
    (panel,) = curves.training_panels(alone)
    assert panel.title == "Evaluation" and "--eval-terms" not in panel.note
    del lines[0]["eval"]["classes"], lines[1]["eval"]["classes"]
    plain, _ = curves.training_panels(lines)
    assert [curve.name for curve in plain.curves] == ["heldout acc@1"]
    assert plain.note == curves._QUICK_LOOK


# -------------------------------------------------------------------------------------------------
# Files of panels: what is written is read again, and nothing else is taken for one.


def test_what_is_written_is_read_again(tmp_path):
    write_panels([LEARNING], tmp_path / "curves.json")
    assert read_panels(tmp_path / "curves.json") == [LEARNING]
    write_panels([LEARNING], tmp_path / "others.json")
    paths = [str(tmp_path / name) for name in ("curves.json", "others.json")]
    assert _learning_panels(paths[:1]) == [LEARNING]
    assert [one.note for one in _learning_panels(paths)] == [f"{path}." for path in paths]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda panel: panel.update(curves=[]), "has 0 curves"),
        (lambda panel: panel["curves"][0].update(y=[1.0]), "has 2 x and 1 y"),
        (lambda panel: panel["curves"][0].update(y=[1.0, None]), "null; expected `float`|float"),
        (lambda panel: panel["curves"][0].update(errors=[1.0]), "2 y and 1 errors, the least 1"),
        (lambda panel: panel["curves"][0].update(errors=[1.0, -2.0]), "2 errors, the least -2"),
        (lambda panel: panel["curves"][0].update(x=[1000, 250]), "x rising"),
        (lambda panel: panel["curves"][0].update(x=[0, 250]), "the least x is 0"),
        (lambda panel: panel["curves"][0].update(x=["0", 250]), "expected int"),
        (lambda panel: panel["curves"][0].update(colour="red"), "colour is .red.; expected int"),
        (lambda panel: panel.update(title=3), "title is 3; expected str"),
        (lambda panel: panel.pop("x_range"), "x_range is missing"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, change, said):
    write_panels([LEARNING], tmp_path / "curves.json")
    found = json.loads((tmp_path / "curves.json").read_text())
    change(found["panels"][0])
    (tmp_path / "curves.json").write_text(json.dumps(found))
    with pytest.raises(BadInput, match=f"curves.json.*({said}).*write it again"):
        read_panels(tmp_path / "curves.json")


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 2, "panels": []}',
        '{"rows": []}',
        "[1]",
        '{"format": 1}',
        '{"format": 1, "panels": []}',
    ],
)
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(BadInput, match="table.json.*write it again"):
        read_panels(tmp_path / "table.json")
