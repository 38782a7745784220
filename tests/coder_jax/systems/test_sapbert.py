"""SapBERT: loss, gradient and miner against pytorch-metric-learning; settings that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coder_jax.systems.group_losses import Group
from coder_jax.systems.sapbert import SapBertSystem, _mined_triplets
from data_pipeline.batches.spec import BatchSpec
from data_pipeline.process import BadInput

SYSTEM = SapBertSystem(batch=BatchSpec(draw="pairs", groups=1, triplets=8, repeats=1))
RNG = np.random.default_rng(0)
CASES = {
    "pairs": (RNG.normal(size=(24, 8)), np.tile(np.arange(12), 2)),
    "a concept twice": (RNG.normal(size=(24, 8)), np.tile(np.arange(12) // 2, 2)),
    "far apart": (np.eye(8)[np.tile(np.arange(8), 2)] + 1e-3 * RNG.normal(size=(16, 8)), None),
    "close together": (1 + 0.05 * RNG.normal(size=(20, 8)), None),
}


@pytest.mark.parity
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_the_released_code(case):
    torch = pytest.importorskip("torch")
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import losses, miners

    vectors, labels = CASES[case]
    labels = np.tile(np.arange(len(vectors) // 2), 2) if labels is None else labels
    embeddings = torch.tensor(vectors, dtype=torch.float64, requires_grad=True)
    mined = miners.TripletMarginMiner(margin=0.2, type_of_triplets="all")(
        embeddings, torch.tensor(labels)
    )
    want = losses.MultiSimilarityLoss(alpha=1, beta=60, base=0.5)(
        embeddings, torch.tensor(labels), mined
    )
    want.backward()

    def loss(vectors):
        group = Group(vectors=vectors, concepts=jnp.asarray(labels), relations=-jnp.ones(1, int))
        total, metrics = SYSTEM.group_loss(group)
        return total, metrics

    with jax.enable_x64(True):
        (value, metrics), slope = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(vectors))
    assert float(value) == pytest.approx(want.item(), abs=1e-12)
    np.testing.assert_allclose(slope, embeddings.grad.numpy(), atol=1e-12)
    pairs = {(a, p) for a, p in zip(mined[0].tolist(), mined[1].tolist(), strict=True)}
    assert float(metrics["mined_positives"]) == pytest.approx(len(pairs) / len(vectors))
    assert (len(pairs) == 0) == (case == "far apart")


def test_by_hand():
    """Unit vectors at 0, 60 and 120 degrees: distances 1 and sqrt(3) of the first."""
    similarity = jnp.array([[1.0, 0.5, -0.5]])
    first = jnp.array([[False, True, False]])
    third = jnp.array([[False, False, True]])
    kept = _mined_triplets(similarity, first, third, margin=0.2)
    assert [bool(part.any()) for part in kept] == [False, False]  # farther by 0.73
    kept = _mined_triplets(similarity, first, third, margin=0.8)
    np.testing.assert_array_equal(kept, (first, third))
    kept = _mined_triplets(similarity, third, first, margin=0.2)
    np.testing.assert_array_equal(kept, (third, first))


@pytest.mark.parametrize(
    "changes, words",
    [
        (
            {"repeats": 2},
            "--draw is pairs and --repeats is 2: .* give --repeats 1, or",
        ),
        ({"names": "unlike"}, "--names is unlike: .* give --names any, or another"),
    ],
)
def test_settings_that_pairs_have_not(changes, words):
    with pytest.raises(BadInput, match=words):
        BatchSpec(**{"draw": "pairs", "repeats": 1, **changes}).validate()
