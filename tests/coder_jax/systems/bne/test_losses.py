"""The losses of BNE: the paper's formulas written out, name by name, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coder_jax.systems.bne.losses import LOSSES, bne_loss, choose_negatives

B, G, N, D = 2, 2, 4, 5
RNG = np.random.default_rng(0)
WEIGHTS = {"synonym": 1.0, "concept": 0.7, "context": 1.3}


def small_batch():
    """Two pairs a group; a concept comes twice, concepts share names, targets are missing."""
    concepts = np.array([[[0, 1], [2, 3]], [[4, 1], [5, 6]]])
    wordings = np.arange(B * G * N).reshape(B, G, N) % 5
    known = RNG.random((2, B, G, N)) < 0.8
    known[:, 0, 0, 0] = False
    return {
        "concepts": np.concatenate([concepts, concepts], axis=2).astype(np.int32),
        "wordings": wordings.astype(np.int32),
        "name_known": known[0].astype(np.int32),
        "concept_known": known[1].astype(np.int32),
        "name_targets": RNG.normal(size=(B, G, N, D)),
        "concept_targets": RNG.normal(size=(B, G, N, D)),
    }


VECTORS = RNG.normal(size=(B, G, N, D))
BATCH = small_batch()
KEY = jax.random.key(3)


def softplus(x):
    return np.log1p(np.exp(x))


def by_loop(vectors, batch, chosen_of, scale=(1.0, 0.0)):
    """(total, {loss}): equations 3 to 6, one name after the other."""
    f = vectors.reshape(-1, D)
    concept, wording = batch["concepts"].ravel(), batch["wordings"].ravel()
    partner = np.arange(B * G * N).reshape(B, G, 2, N // 2)[:, :, ::-1].ravel()
    targets = {
        "synonym": (f[partner], f, np.ones(len(f), bool)),
        "concept": (batch["concept_targets"].reshape(-1, D),) * 2
        + (batch["concept_known"].ravel(),),
        "context": (batch["name_targets"].reshape(-1, D),) * 2 + (batch["name_known"].ravel(),),
    }
    losses = {}
    for number, name in enumerate(LOSSES):
        right, others, known = targets[name]
        a, b = scale if name == "synonym" else (1.0, 0.0)
        found = []
        for i in range(len(f)):
            if not known[i]:
                continue
            loss = softplus(-(a * right[i] @ f[i] + b))
            may = [
                j
                for j in range(len(f))
                if known[j] and concept[j] != concept[i] and wording[j] != wording[i]
            ]
            if may:
                j = chosen_of(number, i, may, others @ f[i])
                assert j in may
                loss += softplus(a * others[j] @ f[i] + b)
            found.append(loss)
        losses[name] = np.mean(found)
    return sum(WEIGHTS[name] * loss for name, loss in losses.items()), losses


def hardest(number, i, may, scores):
    return max(may, key=lambda j: scores[j])


def ours(vectors, negatives, weights=WEIGHTS, **options):
    batch = {name: jnp.asarray(array) for name, array in BATCH.items()}
    return bne_loss(vectors, batch, weights=weights, negatives=negatives, key=KEY, **options)


@pytest.mark.parametrize("scale", [None, (1.7, -0.4)])
def test_the_loss_is_the_paper_s_with_the_hardest_negatives(scale):
    with jax.enable_x64(True):
        given = {} if scale is None else {"scale": jnp.array(scale)}
        loss, metrics = ours(jnp.asarray(VECTORS), "hardest", **given)
        expected, losses = by_loop(VECTORS, BATCH, hardest, scale or (1.0, 0.0))
        assert float(loss) == pytest.approx(expected, abs=1e-6)
        for name in LOSSES:
            assert float(metrics[f"loss_{name}"]) == pytest.approx(losses[name], abs=1e-6)


def random_choices():
    """Of each loss the random negatives that the key gives."""
    concept, wording = BATCH["concepts"].ravel(), BATCH["wordings"].ravel()
    other = (concept[:, None] != concept) & (wording[:, None] != wording)
    known = {
        "synonym": np.ones(len(concept), bool),
        "concept": BATCH["concept_known"].ravel() > 0,
        "context": BATCH["name_known"].ravel() > 0,
    }
    return [
        choose_negatives(
            jnp.zeros(other.shape),
            jnp.asarray(other & known[name][None]),
            "random",
            jax.random.fold_in(KEY, number),
        )
        for number, name in enumerate(LOSSES)
    ]


def test_the_loss_is_the_paper_s_with_random_negatives():
    with jax.enable_x64(True):
        chosen = np.array(random_choices())
        loss, _ = ours(jnp.asarray(VECTORS), "random")
        expected, _ = by_loop(VECTORS, BATCH, lambda number, i, may, scores: chosen[number, i])
        assert float(loss) == pytest.approx(expected, abs=1e-6)
    assert (chosen[0] != chosen[1]).any() and (chosen[1] != chosen[2]).any()


def test_gradients_are_differences():
    with jax.enable_x64(True):
        gradient = jax.grad(lambda vectors: ours(vectors, "hardest")[0])(jnp.asarray(VECTORS))
        for place in [(0, 0, 0, 0), (1, 1, 0, 2), (1, 0, 3, 4)]:
            moved = [VECTORS.copy(), VECTORS.copy()]
            for one, step in zip(moved, (1e-6, -1e-6), strict=True):
                one[place] += step
            up, down = (by_loop(one, BATCH, hardest)[0] for one in moved)
            assert float(gradient[place]) == pytest.approx((up - down) / 2e-6, abs=1e-5)


def test_a_loss_of_weight_zero_is_left_out():
    for name in LOSSES:
        weights = {one: float(one == name) for one in LOSSES}
        loss, metrics = ours(jnp.asarray(VECTORS, jnp.float32), "hardest", weights)
        assert float(loss) == pytest.approx(by_loop(VECTORS, BATCH, hardest)[1][name], rel=1e-5)
        assert metrics.keys() == {f"loss_{name}", f"nearer_{name}"}


def test_random_negatives_are_any_of_the_allowed_with_equal_chance():
    allowed = jnp.array([[0, 1, 1, 0, 1]], bool).repeat(6000, axis=0)
    scores = jnp.tile(jnp.arange(5.0), (6000, 1))
    chosen = np.asarray(choose_negatives(scores, allowed, "random", jax.random.key(0)))
    counts = np.bincount(chosen, minlength=5)
    assert counts[[0, 3]].sum() == 0 and np.abs(counts[[1, 2, 4]] - 2000).max() < 150
    assert set(np.asarray(choose_negatives(scores, allowed, "hardest", KEY)).tolist()) == {4}


def test_without_others_or_targets_nothing_is_not_a_number():
    alone = {
        name: jnp.asarray(array * 0 if name in ("concepts", "name_known") else array)
        for name, array in BATCH.items()
    }
    vectors = jnp.asarray(VECTORS, jnp.float32)

    def loss(vectors):
        return bne_loss(vectors, alone, weights=WEIGHTS, negatives="random", key=KEY)

    (total, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(vectors)
    assert np.isfinite(total) and np.isfinite(gradient).all()
    assert float(metrics["loss_context"]) == 0 and float(metrics["loss_synonym"]) > 0
