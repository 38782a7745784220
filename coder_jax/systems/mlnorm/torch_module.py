"""The concept classifier of MLNorm in PyTorch.

Needs torch, transformers and safetensors; nothing of coder_jax. It lies in each export:

    import sys; sys.path.insert(0, FOLDER)
    from concept_classifier import TorchConceptClassifier

    classifier = TorchConceptClassifier(FOLDER)
    for concept, probability in classifier(["mal de tête"], ["DISO"], k=3)[0]:
        print(concept, probability)
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer


class TorchConceptClassifier(torch.nn.Module):
    """The softmax of 20 x cosine over all concepts of a mention's semantic group.

    Attributes:
        concepts: the identifier of each class.
        groups: the set of semantic groups of each.
    """

    def __init__(self, folder):
        super().__init__()
        folder = Path(folder)
        self.settings = json.loads((folder / "classifier.json").read_text(encoding="utf-8"))
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32)
        tensors = load_file(folder / "classes.safetensors")
        rows = torch.nn.functional.normalize(tensors.pop("classes"), dim=1)
        self.register_buffer("rows", rows)
        kernel = tensors.pop("kernel")
        self.linear = torch.nn.Linear(*kernel.shape)
        self.norm = torch.nn.BatchNorm1d(kernel.shape[1])
        with torch.no_grad():
            self.linear.weight.copy_(kernel.T)
            self.linear.bias.copy_(tensors.pop("bias"))
            self.norm.weight.copy_(tensors.pop("scale"))
            self.norm.bias.copy_(tensors.pop("shift"))
        self.norm.running_mean.copy_(tensors.pop("mean"))
        self.norm.running_var.copy_(tensors.pop("variance"))
        lines = (folder / "classes.tsv").read_text(encoding="utf-8").splitlines()
        self.concepts = [line.split("\t")[0] for line in lines]
        self.groups = [set(line.split("\t")[1].split()) for line in lines]
        self.eval()

    def vectors(self, mentions):
        """float32 [M, D]: unit vectors that are compared with the class rows."""
        batch = self.tokenizer(mentions, padding=True, truncation=True, return_tensors="pt")
        hidden = self.encoder(**batch.to(self.rows.device)).last_hidden_state
        mask = batch["attention_mask"]
        pieces = mask * mask.roll(-1, 1)  # without [SEP]
        pieces[:, [0, -1]] = 0  # nor [CLS]
        pieces = pieces[:, :, None]
        pooled = (hidden * pieces).sum(1) / pieces.sum(1).clamp(min=1)
        normal = self.norm(torch.relu(self.linear(pooled)))
        return torch.nn.functional.normalize(normal, dim=1)

    def probabilities(self, mentions, groups):
        """float32 [M, C]: the probability of each concept; 0 outside the group; group None allows
        all.
        """
        scores = self.settings["scale"] * self.vectors(mentions) @ self.rows.T
        allowed = [[group is None or group in of for of in self.groups] for group in groups]
        allowed = torch.tensor(allowed, device=scores.device)
        scores = torch.where(allowed, scores, torch.tensor(-torch.inf, device=scores.device))
        return torch.softmax(scores, dim=1)

    @torch.inference_mode()
    def forward(self, mentions, groups, k=1):
        """The k most probable concepts of each mention, [(concept, probability), ...]."""
        best = self.probabilities(mentions, groups).topk(min(k, len(self.concepts)), dim=1)
        return [
            [(self.concepts[i], p) for i, p in zip(index, probability, strict=True)]
            for index, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
