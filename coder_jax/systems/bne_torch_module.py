"""The encoder of names of BNE in PyTorch, as a sentence-transformers module.

Needs torch, tokenizers and safetensors; nothing of coder_jax. It lies in each export:

    import sys; sys.path.insert(0, FOLDER)
    from name_encoder import NameEncoder

    encoder = NameEncoder.load(FOLDER)
    print(encoder.encode(["heart attack", "myocardial infarction"]))
"""

import json
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

# The numbers of the marks among characters; among the trained word vectors they are one less.
_WORD, _END_OF_WORD, _NAME, _END_OF_NAME, _UNKNOWN = 1, 2, 3, 4, 6
_CLEANING = "cleaning.json"  # a tokenizer whose normalizers clean a string
_FILES = ("config.json", _CLEANING, "words.txt", "word_vectors.safetensors", "name_encoder.py")


class NameEncoder(torch.nn.Module):
    """f(s): characters, BiLSTM, the word's vector, BiLSTM, max, linear layer."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)
        read = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        self.config, self.pattern = read, re.compile(read["token_pattern"])
        self.numbers = {one: 8 + place for place, one in enumerate(read["alphabet"])}
        self.cleaning = Tokenizer.from_file(str(self.folder / _CLEANING)).normalizer
        words = (self.folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]
        self.rows = {word: row for row, word in enumerate(words)}
        self.word_vectors = load_file(self.folder / "word_vectors.safetensors")["vectors"]
        self.names = {}
        for name, tensor in load_file(self.folder / "model.safetensors").items():
            self.names[name] = name.replace(".", "_")
            self.register_parameter(self.names[name], torch.nn.Parameter(tensor))
        self.eval()

    # ---- From strings to numbers ----

    def words(self, name):
        """The words of a name."""
        name, tokens = self.cleaning.normalize_str(name), []
        for match in self.pattern.finditer(name):
            tokens.append("'s" if match["possessive"] else match[0].lower())
        kept = [one for one in tokens if one == "'s" or one[0].isalnum()]
        return [one for one in kept if one not in self.config["stop_words"]] or name.lower().split()

    def spelling(self, word):
        """The numbers of a word's characters, with its marks."""
        most = self.config["most_characters"]
        return [_WORD, *(self.numbers.get(one, _UNKNOWN) for one in word[:most]), _END_OF_WORD]

    def preprocess(self, inputs, prompt=None, **kwargs):
        """Strings as tensors: the distinct words of all, and the words of each."""
        places, spelled, kinds, rows = {}, [], [], []

        def place(key, spelling, kind, row):
            if key not in places:
                places[key] = len(places)
                spelled.append(spelling)
                kinds.append(kind)
                rows.append(row)
            return places[key]

        sequences = []
        for name in inputs:
            sequence = [place((_NAME,), [_WORD, _NAME, _END_OF_WORD], _NAME, -1)]
            for word in self.words((prompt or "") + name):
                row = self.rows.get(word, -1)
                kind = 0 if row >= 0 else _UNKNOWN
                sequence.append(place(word, self.spelling(word), kind, row))
            sequence.append(
                place((_END_OF_NAME,), [_WORD, _END_OF_NAME, _END_OF_WORD], _END_OF_NAME, -1)
            )
            sequences.append(sequence)
        found = torch.zeros(len(rows), self.config["width"])
        known = torch.tensor(rows) >= 0
        found[known] = self.word_vectors[torch.tensor(rows)[known]]
        return {
            **dict(zip(("words", "lengths"), _padded(sequences), strict=True)),
            **dict(zip(("characters", "spelling_lengths"), _padded(spelled), strict=True)),
            "kinds": torch.tensor(kinds),
            "word_vectors": found,
        }

    def tokenize(self, texts, **kwargs):
        """`preprocess`, under its older name in sentence-transformers."""
        return self.preprocess(texts, **kwargs)

    # ---- From numbers to vectors ----

    def weight(self, name):
        return getattr(self, self.names[name])

    def after(self, gates, cell):
        """(cell, hidden) after a token."""
        if self.config["cell"] == "plain":
            i, f, g, o = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        else:
            j, f, o = gates.chunk(3, dim=-1)
            kept = torch.sigmoid(f + 1)
            cell = kept * cell + (1 - kept) * torch.tanh(j)
        return cell, torch.sigmoid(o) * torch.tanh(cell)

    def lstm(self, part, inputs, lengths):
        """(states [N, T, H] after each token, last state [N, H]) of one direction, in its order."""
        kernel, bias = self.weight(f"{part}.kernel"), self.weight(f"{part}.bias")
        width = inputs.shape[-1]
        into = inputs @ kernel[:width] + bias
        hidden = kernel.shape[0] - width
        start = torch.zeros(hidden, device=inputs.device)
        coupled = self.config["cell"] == "coupled"
        states = [
            (self.weight(f"{part}.{name}") if coupled else start).expand(len(inputs), hidden)
            for name in ("cell", "hidden")
        ]
        every = []
        for place in range(inputs.shape[1]):
            made = self.after(into[:, place] + states[1] @ kernel[width:], states[0])
            there = (place < lengths)[:, None]
            states = [torch.where(there, *pair) for pair in zip(made, states, strict=True)]
            every.append(states[1])
        return torch.stack(every, dim=1), states[1]

    def bilstm(self, part, inputs, lengths):
        """(states [N, T, 2 H], last states [N, 2 H]) of both directions."""
        places = torch.arange(inputs.shape[1], device=inputs.device)[None]
        turned = (lengths[:, None] - 1 - places).clamp(min=0)[:, :, None]
        forward, last = self.lstm(f"{part}.forward", inputs, lengths)
        given = inputs.gather(1, turned.expand_as(inputs))
        backward, first = self.lstm(f"{part}.backward", given, lengths)
        backward = backward.gather(1, turned.expand_as(backward))
        return torch.cat([forward, backward], dim=-1), torch.cat([last, first], dim=-1)

    def forward(self, features, **kwargs):
        """The features with `sentence_embedding`, f(s) as it is."""
        lengths, kinds = features["lengths"], features["kinds"]
        characters = self.weight("characters")[(features["characters"] - 1).clamp(min=0)]
        _, spelled = self.bilstm("spelling", characters, features["spelling_lengths"])
        marks = self.weight("marks")[(kinds - 1).clamp(min=0)]
        vectors = torch.where((kinds > 0)[:, None], marks, features["word_vectors"])
        words = torch.cat([spelled, vectors], dim=-1)[features["words"]]
        states, _ = self.bilstm("name", words, lengths)
        places = torch.arange(states.shape[1], device=states.device)[None]
        states = states.masked_fill((places >= lengths[:, None])[:, :, None], -torch.inf)
        made = states.amax(dim=1) @ self.weight("projection.kernel") + self.weight(
            "projection.bias"
        )
        squashed = self.config["projection"] == "tanh"
        return {**features, "sentence_embedding": torch.tanh(made) if squashed else made}

    @torch.inference_mode()
    def encode(self, names):
        """Vectors of length 1, float32 [n, D]."""
        vectors = self(self.preprocess(names))["sentence_embedding"]
        return torch.nn.functional.normalize(vectors, dim=-1)

    # ---- The interface of sentence-transformers ----

    save_in_root = True

    def get_embedding_dimension(self):
        return self.config["width"]

    get_sentence_embedding_dimension = get_embedding_dimension

    def save(self, output_path, *args, **kwargs):
        """Write the files of the module."""
        for name in _FILES:
            shutil.copyfile(self.folder / name, Path(output_path) / name)
        tensors = {name: self.weight(name).detach().cpu().contiguous() for name in self.names}
        save_file(tensors, Path(output_path) / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def load(cls, model_name_or_path, revision=None, token=None, cache_folder=None, **kwargs):
        """The module of a folder, or of a repository of the Hugging Face Hub."""
        if not Path(model_name_or_path).is_dir():
            from huggingface_hub import snapshot_download

            model_name_or_path = snapshot_download(
                model_name_or_path, revision=revision, token=token, cache_dir=cache_folder
            )
        return cls(model_name_or_path)


def _padded(sequences):
    """(int64 [n, longest], int64 [n]): lists of numbers as a tensor padded with 0, and their
    lengths.
    """
    tensors = [torch.tensor(sequence) for sequence in sequences]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True), lengths
