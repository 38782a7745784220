"""MLNorm's two steps in well-written PyTorch.

Step 1: a dense product, PyTorch's cross-entropy, and Adam in one kernel (`fused`). Step 2: an
`Embedding` with a sparse gradient and `SparseAdam`, which touch only the rows that a step uses;
what is used is found beforehand, as a loader would. Nothing is compiled.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertModel

from benchmarks.class_work import ENCODER_RATE, RATE, ClassTerms, ClassWork, class_group_bits
from benchmarks.torch_peers.training import on, peak_device_memory, use_device, wait

_SCALE = 20.0


def _falling(optimizer: Any, steps: int) -> Any:
    """The schedule: linear to 0 from the first step on."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (steps - step) / steps)


def _table_of(work: ClassWork, device: torch.device) -> torch.Tensor:
    """float32 [C, D]: the initial table of all systems."""
    block = torch.from_numpy(work.rows()).to(device)
    return block.repeat(-(-work.classes // len(block)), 1)[: work.classes].clone()


class _Peer:
    """What both steps share; see `benchmarks.train_step_process.MeasuredSystem`."""

    optimizer: Any
    schedule: Any

    def __init__(self, work: ClassWork):
        self.work, self.device = work, use_device()
        config = work.optimizer
        self.adam = {"betas": (config.b1, config.b2), "eps": config.eps}

    def moved(self, scores: Any, gold: Any) -> Any:
        """Takes an optimizer step on these scores; returns the loss."""
        loss = functional.cross_entropy(scores, gold)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def wait(self) -> None:
        """Waits until the device has finished."""
        wait(self.device)

    def peak_device_memory(self) -> int | None:
        """Peak bytes of tensors on a GPU; None on a CPU."""
        return peak_device_memory(self.device)


class AllClasses(_Peer):
    """Step 1: encoder, head and all classes."""

    def __init__(self, work: ClassWork, weights: dict[str, Any]):
        """
        Args:
            work: what to do.
            weights: of the encoder, under the names of `BertModel`.
        """
        super().__init__(work)
        bert = BertModel(BertConfig(**work.encoder.to_hf()), add_pooling_layer=False)
        held = bert.state_dict().keys()
        bert.load_state_dict(
            {name: torch.from_numpy(array) for name, array in weights.items() if name in held}
        )
        head = work.head()
        linear, norm = nn.Linear(*head["kernel"].shape), nn.BatchNorm1d(work.width)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(head["kernel"].T))
            linear.bias.zero_()
        self.bert, self.head = bert.to(self.device), nn.Sequential(linear, nn.ReLU(), norm)
        self.head.to(self.device)
        self.table = nn.Parameter(_table_of(work, self.device))
        bits = class_group_bits(torch.arange(work.classes).numpy()).astype("int32")
        self.bits = torch.from_numpy(bits).to(self.device)
        trained = [
            {"params": self.bert.parameters(), "lr": ENCODER_RATE},
            {"params": [*self.head.parameters(), self.table], "lr": RATE},
        ]
        self.optimizer = torch.optim.Adam(trained, **self.adam, fused=True)
        self.schedule = _falling(self.optimizer, work.optimizer.steps)

    def prepare(self, step: int, terms: ClassTerms) -> list[Any]:
        """Tokens, own classes and groups, on the device."""
        return on(self.device, (terms.tokens, terms.classes[:, 0], terms.semantic_groups))

    def step(self, batch: list[Any]) -> Any:
        """One optimizer step; the loss."""
        tokens, gold, groups = batch
        hidden = self.bert(tokens).last_hidden_state
        vectors = functional.normalize(self.head(hidden[:, 1:-1].mean(1)), dim=1)
        scores = _SCALE * vectors @ functional.normalize(self.table, dim=1).T
        others = (self.bits[None, :] >> groups[:, None]) & 1 == 0
        return self.moved(scores.masked_fill_(others, -torch.inf), gold)


class CandidateClasses(_Peer):
    """Step 2: only the rows that are a candidate of some term of the step."""

    def __init__(self, work: ClassWork):
        super().__init__(work)
        table = _table_of(work, self.device)
        self.table = nn.Embedding.from_pretrained(table, freeze=False, sparse=True)
        self.optimizer = torch.optim.SparseAdam(self.table.parameters(), lr=RATE, **self.adam)
        self.schedule = _falling(self.optimizer, work.optimizer.steps)

    def prepare(self, step: int, terms: ClassTerms) -> list[Any]:
        """Vectors, the rows in use, each term's own row among them, and the rows outside its
        group.
        """
        classes = torch.from_numpy(terms.classes).long()
        used, place = classes.unique(return_inverse=True)
        bits = torch.from_numpy(class_group_bits(used.numpy()).astype("int64"))
        groups = torch.from_numpy(terms.semantic_groups).long()
        others = (bits[None, :] >> groups[:, None]) & 1 == 0
        vectors = torch.from_numpy(terms.vectors)
        return [one.to(self.device) for one in (vectors, used, place[:, 0].contiguous(), others)]

    def step(self, batch: list[Any]) -> Any:
        """One optimizer step; the loss."""
        vectors, used, gold, others = batch
        scores = _SCALE * vectors @ functional.normalize(self.table(used), dim=1).T
        return self.moved(scores.masked_fill_(others, -torch.inf), gold)
