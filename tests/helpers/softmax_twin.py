"""The training of a linear softmax on pairs of vectors in PyTorch, as its users write it."""

import numpy as np

# optax has the 0.999 of Adam's bias correction in float32, which makes its rate 6e-6 lower.
OPTAX_ADAM = float(np.sqrt((1 - np.float64(np.float32(0.999))) / 0.001))


def torch_training(vectors_of, trainable, rows, start, settings):
    """The same steps on the same pairs: kernel, bias and the mean loss of the last epoch.

    Args:
      vectors_of: the vectors of concepts, int64 [n] -> float [n, D].
      trainable: the parameters behind them that are trained along, changed in place.
      rows: int32 [n, 3], head, tail and label of the training pairs.
      start: W and b to begin with.
    """
    import torch

    layer = torch.nn.Linear(*start["W"].shape)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.asarray(start["W"]).T))
        layer.bias.copy_(torch.tensor(np.asarray(start["b"])))
    rate = settings.learning_rate * OPTAX_ADAM
    optimizer = torch.optim.Adam([*layer.parameters(), *trainable], lr=rate)
    size = settings.batch_pairs
    steps = settings.epochs * -(-len(rows) // size)
    rising = int(steps * (settings.warmup or 0))

    def factor(step):
        if settings.warmup is None:
            return 1.0
        return step / rising if step < rising else (steps - step) / (steps - rising)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    rng = np.random.default_rng(settings.seed)
    for _ in range(settings.epochs):
        order = rng.permutation(len(rows))
        losses = 0.0
        for first in range(0, len(rows), size):
            batch = torch.tensor(rows[order[first : first + size]], dtype=torch.long)
            joined = torch.cat([vectors_of(batch[:, 0]), vectors_of(batch[:, 1])], dim=1)
            loss = torch.nn.functional.cross_entropy(layer(joined), batch[:, 2])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses += loss.item() * len(batch)
    return layer.weight.detach().numpy().T, layer.bias.detach().numpy(), losses / len(rows)
