"""Pictures of what training gave on held-out terms."""

import dataclasses

import numpy as np
import pytest
from evaluating import ENCODER, write_toy

from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.report.pictures import heldout_plots

TOY = ["heart attack", "high blood pressure", "kidney stone"]
FIRST = ["myocardial infarction", "hypertension", "nephrolithiasis"]


class Encoder:
    """Vectors at random, but those of synonyms alike."""

    def __init__(self, noise):
        rng = np.random.default_rng(0)
        middles = rng.normal(size=(3, 8))
        self.vectors = dict(zip(TOY, middles, strict=True))
        self.vectors |= dict(zip(FIRST, middles + noise * rng.normal(size=(3, 8)), strict=True))

    def encode(self, terms):
        rows = np.array([self.vectors[term] for term in terms])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def mentions(tmp_path):
    path = write_toy(tmp_path) / "heldout" / "mentions.tsv"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("novel")]
    path.write_text("\n".join(kept) + "\n")
    return path


def test_pairs_of_synonyms(mentions):
    assert heldout_plots.heldout_pairs(mentions) == (TOY, FIRST)


def test_scores_and_similarities_before_and_after(mentions, tmp_path, monkeypatch):
    drawn = {}
    for name in ("plot_scores", "plot_similarities"):
        monkeypatch.setattr(
            heldout_plots, name, lambda *of, name=name, **_: drawn.update({name: of})
        )
    scored = []
    for share, noise in ((0.25, 5.0), (0.5, 0.1)):
        parts = {"benchmark": "held-out", "kind": "normalization", "path": "", "content_hash": ""}
        scores = {"acc@1": share, "acc@5": None, "mrr": 0.5}
        record = EvaluationRecord(
            **parts, scores=scores, counts={}, scoring={}, encoder=dataclasses.replace(ENCODER)
        )
        scored.append((Encoder(noise), record))
    heldout_plots.plot_heldout(tmp_path, mentions, *scored, ("acc@1", "acc@5"))
    before, after, path = drawn["plot_scores"]
    assert before == {"held-out": {"acc@1": 0.25, "acc@5": 0.0}} and path == tmp_path / "scores.png"
    assert after == {"held-out": {"acc@1": 0.5, "acc@5": 0.0}}
    (_, _), (near, far), path = drawn["plot_similarities"]
    assert path == tmp_path / "similarities.png"
    assert near.shape == far.shape == (3,) and near.min() > 0.9 > far.max(), "others' synonyms"
