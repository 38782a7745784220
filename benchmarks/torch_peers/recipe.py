"""CODER's step as the paper's authors would write it in PyTorch.

The BERT of transformers, every term padded to 32, one group after the other with its gradients
added up (the paper's accumulation), a matrix for each of the k pairs, the losses and the miner of
pytorch-metric-learning, plain AdamW over the encoder and all relation matrices. Float32; products
in TF32 on a GPU unless the work is float32.
"""

from typing import Any

import numpy as np
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner

from benchmarks.torch_peers import training
from benchmarks.train_step_work import Terms, Work

_MAX_LENGTH = 32


class Recipe:
    """The system; see `benchmarks.train_step_process.MeasuredSystem`."""

    def __init__(self, work: Work):
        self.work, self.device = work, training.use_device()
        torch.backends.cuda.matmul.allow_tf32 = work.dtype != "float32"
        self.bert = training.load_torch_encoder(work).to(self.device)
        self.matrices = training.load_table(work, self.bert.config.hidden_size, self.device)
        groups = training.parameter_groups(self.bert, self.matrices, work)
        self.optimizer, self.schedule = training.make_torch_optimizer(groups, work.optimizer)
        self.losses, self.miners = [], []
        for part in (work.coder.term, work.coder.relation):
            self.losses.append(MultiSimilarityLoss(part.alpha, part.beta, part.base))
            self.miners.append(MultiSimilarityMiner(part.margin))

    def prepare(self, step: int, terms: Terms) -> list[list[Any]]:
        """For each group: ids and mask [N, 32], concepts [N], the relation of each pair [k]."""
        groups, count = terms.lengths.shape
        mask = np.arange(_MAX_LENGTH) < terms.lengths.reshape(-1, 1)
        ids = np.zeros(mask.shape, np.int32)
        ids[mask] = terms.tokens
        relations = np.repeat(terms.relations, count // 2 // terms.relations.shape[1], axis=1)
        shape = (groups, count, _MAX_LENGTH)
        arrays = (ids.reshape(shape), mask.reshape(shape), terms.concepts, relations)
        return [training.on(self.device, group) for group in zip(*arrays, strict=True)]

    def group_loss(self, ids: Any, mask: Any, concepts: Any, relations: Any) -> Any:
        """L_MS + mu L_MS^rel of a group."""
        vectors = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
        total = self.losses[0](vectors, concepts, self.miners[0](vectors, concepts))
        pairs = len(relations)
        queries = torch.einsum("kd,kde->ke", vectors[:pairs], self.matrices[relations])
        tails, reached = vectors[pairs:], concepts[pairs:]
        # A copy: given the same tensor twice, the library treats them as the same terms.
        against = {"ref_emb": tails, "ref_labels": reached.clone()}
        mined = self.miners[1](queries, reached, **against)
        related = self.losses[1](queries, reached, mined, **against)
        return total + self.work.coder.mu * related

    def step(self, batch: list[list[Any]]) -> Any:
        """One optimizer step; the mean loss over the groups, on the device."""
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for group in batch:
            loss = self.group_loss(*group) / len(batch)
            loss.backward()
            total += loss.detach()
        parameters = [*self.bert.parameters(), self.matrices]
        torch.nn.utils.clip_grad_norm_(parameters, self.work.optimizer.clip_norm)
        self.optimizer.step()
        self.schedule.step()
        return total

    def wait(self) -> None:
        """Waits until the device has finished."""
        training.wait(self.device)

    def peak_device_memory(self) -> int | None:
        """Bytes on a GPU; None on a CPU."""
        return training.peak_device_memory(self.device)
