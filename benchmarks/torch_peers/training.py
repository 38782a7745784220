"""What both PyTorch peers share: the device, the weights, the optimizer's groups and schedule."""

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from transformers import BertModel
from transformers.utils import logging

from benchmarks.train_step_work import Work, initial_relations
from coder_jax.training.system import OptimizerConfig


def use_device() -> torch.device:
    """The GPU; or the CPU, with all cores that this process may use."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(cores or 1)
    return torch.device("cpu")


def load_torch_encoder(work: Work) -> Any:
    """A transformers BERT without pooler, on the CPU, in training mode, with the work's dropout."""
    logging.set_verbosity_error()  # it would report at length that the pooler is left out
    logging.disable_progress_bar()
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    bert = BertModel.from_pretrained(
        work.encoder, add_pooling_layer=False, **({} if work.dropout else rates)
    )
    return bert.train()


def load_table(work: Work, width: int, device: torch.device) -> Any:
    """The relation matrices [R, D, D]."""
    return nn.Parameter(torch.from_numpy(initial_relations(work.relations, width)).to(device))


def parameter_groups(encoder: Any, table: Any, work: Work) -> list[dict[str, Any]]:
    """Parameters with and without weight decay, and relation matrices, as in
    `coder_jax.training.state`.
    """
    parameters = list(encoder.parameters())
    rate, decay = work.optimizer.learning_rate, work.optimizer.weight_decay
    return [
        {
            "params": [one for one in parameters if one.ndim >= 2],
            "lr": rate,
            "weight_decay": decay,
        },
        {"params": [one for one in parameters if one.ndim < 2], "lr": rate, "weight_decay": 0.0},
        {
            "params": [table],
            "lr": rate * work.coder.relation_learning_rate_factor,
            "weight_decay": 0.0,
        },
    ]


def make_torch_optimizer(
    groups: list[dict[str, Any]], config: OptimizerConfig, **options: Any
) -> Any:
    """AdamW, and its linear schedule."""
    optimizer = torch.optim.AdamW(groups, betas=(config.b1, config.b2), eps=config.eps, **options)
    warmup = config.warmup_steps

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return (config.steps - step) / (config.steps - warmup)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)


def wait(device: torch.device) -> None:
    """Waits until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_device_memory(device: torch.device) -> int | None:
    """Peak bytes of tensors on a GPU; None on a CPU."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else None


def on(device: torch.device, arrays: Iterable[Any]) -> list[Any]:
    """NumPy integers as int64 tensors on the device."""
    return [torch.from_numpy(array).long().to(device) for array in arrays]
