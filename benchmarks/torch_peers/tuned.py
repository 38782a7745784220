"""CODER's step in hand-tuned PyTorch: the same losses from the same numbers.

All groups in one pass over packed rows (`packed_bert`), a matrix for each distinct triplet, the
losses of all groups at once with masks instead of mined indices, fused AdamW. The gradient of the
relation matrices stays in place between steps: only rows that a step touched are written, summed
for the norm and cleared; the update itself goes over the whole table, as the recipe's does.
On a GPU bfloat16 through autocast and torch.compile; docs/results/training.md says what was tried.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.torch_peers import training
from benchmarks.torch_peers.packed_bert import PackedBert
from benchmarks.train_step_work import Terms, Work
from coder_jax.systems.group_losses import MultiSimilarity
from data_pipeline.batches.packing import pack_rows

_ROW_LENGTH = 32  # the shortest that holds every term: rows are 98 % full and attention is cheapest


def _multi_similarity(sim_GAB: Any, positive_GAB: Any, negative_GAB: Any, of: MultiSimilarity):
    """The mean over groups and anchors of the loss with its mining, by masks."""
    hardest_positive = sim_GAB.masked_fill(~positive_GAB, math.inf).amin(2, keepdim=True)
    hardest_negative = sim_GAB.masked_fill(~negative_GAB, -math.inf).amax(2, keepdim=True)
    mined_negative = negative_GAB & (sim_GAB > hardest_positive - of.margin)
    mined_positive = positive_GAB & (sim_GAB < hardest_negative + of.margin)

    def log_one_plus_sum_exp(exponent_GAB: Any, mined_GAB: Any) -> Any:
        masked_GAB = exponent_GAB.masked_fill(~mined_GAB, -math.inf)
        return torch.logsumexp(F.pad(masked_GAB, (0, 1)), 2)  # the padded 0 is the 1

    positive = log_one_plus_sum_exp(-of.alpha * (sim_GAB - of.base), mined_positive) / of.alpha
    negative = log_one_plus_sum_exp(of.beta * (sim_GAB - of.base), mined_negative) / of.beta
    return (positive + negative).mean()


class _Objective(nn.Module):
    """The loss of a step."""

    def __init__(self, work: Work, bert: PackedBert):
        super().__init__()
        self.work, self.bert = work, bert

    def forward(self, rows: list[Any], concepts_GN: Any, matrices_GUDD: Any) -> Any:
        """The mean of L_MS + mu L_MS^rel over the groups."""
        bf16 = self.work.dtype == "bfloat16"
        with torch.autocast(concepts_GN.device.type, torch.bfloat16, enabled=bf16):
            vectors_ND = self.bert(*rows)
        vectors_GND = vectors_ND.float().unflatten(0, concepts_GN.shape)
        groups, count, width = vectors_GND.shape
        heads_GUmD = vectors_GND[:, : count // 2].reshape(*matrices_GUDD.shape[:2], -1, width)
        queries_GkD = F.normalize((heads_GUmD @ matrices_GUDD).flatten(1, 2), dim=2)
        vectors_GND = F.normalize(vectors_GND, dim=2)
        same_GNN = concepts_GN[:, :, None] == concepts_GN[:, None, :]
        itself_NN = torch.eye(count, dtype=torch.bool, device=same_GNN.device)
        coder, tails_GkD = self.work.coder, vectors_GND[:, count // 2 :]
        term = _multi_similarity(
            vectors_GND @ vectors_GND.mT, same_GNN & ~itself_NN, ~same_GNN, coder.term
        )
        reached_Gkk = same_GNN[:, count // 2 :, count // 2 :]
        relation = _multi_similarity(
            queries_GkD @ tails_GkD.mT, reached_Gkk, ~reached_Gkk, coder.relation
        )
        return term + coder.mu * relation


class Tuned:
    """The system; see `benchmarks.train_step_process.MeasuredSystem`."""

    def __init__(self, work: Work):
        self.work, self.device = work, training.use_device()
        torch.set_float32_matmul_precision("highest")  # what is float32 here, ours has exact too
        bert = PackedBert(training.load_torch_encoder(work)).to(self.device)
        width = bert.norm.normalized_shape[0]
        self.table = training.load_table(work, width, self.device)
        self.table.grad = torch.zeros_like(self.table)
        groups = training.parameter_groups(bert, self.table, work)
        self.optimizer, self.schedule = training.make_torch_optimizer(
            groups, work.optimizer, fused=True
        )
        self.encoder = list(bert.parameters())
        self.objective: Any = _Objective(work, bert)
        if self.device.type == "cuda":
            self.objective.compile()

    def prepare(self, step: int, terms: Terms) -> tuple[Any, ...]:
        """Packed rows and the places of [CLS]; concepts; the relation of each triplet, and the
        distinct relations.
        """
        starts = np.concatenate([[0], np.cumsum(terms.lengths, dtype=np.int64)])
        packed = pack_rows(terms.tokens, starts, _ROW_LENGTH)
        first = np.flatnonzero((packed["positions"] == 0) & (packed["segments"] > 0))
        cls = first[np.argsort(packed["segments"].ravel()[first])]
        rows = training.on(self.device, [*packed.values(), cls])
        others = (terms.concepts, terms.relations, np.unique(terms.relations))
        return rows, *training.on(self.device, others)

    def step(self, batch: tuple[Any, ...]) -> Any:
        """One optimizer step; the loss, on the device."""
        rows, concepts_GN, relations_GU, touched = batch
        matrices_GUDD = self.table.detach()[relations_GU].requires_grad_()
        loss = self.objective(rows, concepts_GN, matrices_GUDD)
        loss.backward()
        with torch.no_grad():
            self.table.grad.index_add_(0, relations_GU.flatten(), matrices_GUDD.grad.flatten(0, 1))
            self.clip(touched)
            self.optimizer.step()
            self.schedule.step()
            for parameter in self.encoder:
                parameter.grad = None
            self.table.grad.index_fill_(0, touched, 0.0)
        return loss.detach()

    def clip(self, touched: Any) -> None:
        """Clips the global norm to `clip_norm`; untouched rows of the table have gradient 0."""
        limit = self.work.optimizer.clip_norm
        of_table = self.table.grad[touched]
        grads = [one.grad for one in self.encoder if one.grad is not None]
        norm = torch.stack([*torch._foreach_norm(grads), of_table.norm()]).norm()
        factor = (limit / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, factor)
        self.table.grad.index_copy_(0, touched, of_table * factor)

    def wait(self) -> None:
        """Waits until the device has finished."""
        training.wait(self.device)

    def peak_device_memory(self) -> int | None:
        """Bytes on a GPU; None on a CPU."""
        return training.peak_device_memory(self.device)
