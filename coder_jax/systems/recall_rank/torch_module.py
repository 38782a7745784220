"""The ranker of recall and rank in PyTorch.

Needs torch, transformers and safetensors; nothing of coder_jax. It lies in each export:

    import sys; sys.path.insert(0, FOLDER)
    from term_ranker import TorchTermRanker

    ranker = TorchTermRanker(FOLDER)
    print(ranker.score("attack of the heart", ["heart attack", "heart disease"]))
"""

import json
import re
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers.normalizers import Sequence
from transformers import AutoModel, AutoTokenizer

_END = "\u0080end of cleaning\u0080"  # what begins a tokenizer's own rules
# Scripts without blanks between words: a keyword may be anywhere.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)


def _lower(string):
    """A string in lower case, character by character, so that offsets stay."""
    return "".join(one.lower() if len(one.lower()) == 1 else one for one in string)


def _cleaning_of(tokenizer):
    """Removes the cleaning rules from a tokenizer and returns them; keywords are matched in cleaned
    strings.
    """
    normalizer = tokenizer.normalizer
    rules = [normalizer[place] for place in range(len(normalizer))]
    end = max(place for place, rule in enumerate(rules) if getattr(rule, "content", "") == _END)
    tokenizer.normalizer = Sequence(rules[end + 1 :])
    return rules[:end]


def _divides(text, place):
    """Whether a word may begin or end at a position of a text."""
    if not 0 < place < len(text) or not (text[place - 1].isalnum() and text[place].isalnum()):
        return True
    return bool(_UNSPACED.match(text[place - 1]) or _UNSPACED.match(text[place]))


class TorchTermRanker(torch.nn.Module):
    """The probability that a candidate is a name of what a mention means."""

    def __init__(self, folder):
        super().__init__()
        folder = Path(folder)
        self.settings = json.loads((folder / "ranker.json").read_text(encoding="utf-8"))
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.cleaning = _cleaning_of(self.tokenizer.backend_tokenizer)
        self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32)
        tensors = load_file(folder / "ranker.safetensors")
        self.head = torch.nn.Linear(self.encoder.config.hidden_size, len(tensors["bias"]))
        with torch.no_grad():
            self.head.weight.copy_(tensors["kernel"].T)
            self.head.bias.copy_(tensors["bias"])
        self.words = {kind: set() for kind in self.settings["keyword_kinds"]}
        for line in (folder / "keywords.tsv").read_text(encoding="utf-8").splitlines():
            word, kind = line.split("\t")
            self.words[kind].add(_lower(word))
        names = [f"[unused{number}]" for number in range(1, len(self.words) + 1)]
        self.probes = self.tokenizer.convert_tokens_to_ids(names)
        self.eval()

    def kinds_of_characters(self, string):
        """For each character the kinds of the keywords that contain it, as bits."""
        text, bits = _lower(string), [0] * len(string)
        for kind, words in enumerate(self.words.values()):
            kept, seen = [], set()
            for length in sorted(map(len, words), reverse=True):
                for first in range(len(text) - length + 1):
                    last, word = first + length, text[first : first + length]
                    if word not in words or word in seen:
                        continue
                    if not (_divides(text, first) and _divides(text, last)):
                        continue
                    seen.add(word)
                    if not any(one <= first and last <= other for one, other in kept):
                        kept.append((first, last))
            for first, last in kept:
                for place in range(first, last):
                    bits[place] |= 2 << kind
        return bits

    def pieces(self, string):
        """(ids, kinds) of a string, without [CLS] and [SEP]."""
        for rule in self.cleaning:
            string = rule.normalize_str(string)
        read = self.tokenizer(string, return_offsets_mapping=True, verbose=False)
        bits, kinds = self.kinds_of_characters(string), []
        for first, last in read["offset_mapping"]:
            kind = 1
            for one in bits[first:last]:
                kind |= one
            kinds.append(kind)
        most = self.settings["max_length"] - 2
        return read["input_ids"][1:-1][:most], kinds[1:-1][:most]

    def inputs(self, mention, name):
        """(ids, kinds, types) of a pair: [CLS] probes mention [SEP] name [SEP]."""
        (a, of_a), (b, of_b) = self.pieces(mention), self.pieces(name)
        free = self.settings["pair_length"] - len(self.probes) - 3
        if len(a) + len(b) > free:
            half = free // 2
            if len(a) <= half:
                kept = len(a), free - len(a)
            elif len(b) <= half:
                kept = free - len(b), len(b)
            else:
                kept = free - half, half
            a, of_a, b, of_b = a[: kept[0]], of_a[: kept[0]], b[: kept[1]], of_b[: kept[1]]
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        probes = [2 << kind for kind in range(len(self.probes))]
        types = [0] * (len(self.probes) + len(a) + 2) + [1] * (len(b) + 1)
        return [cls, *self.probes, *a, sep, *b, sep], [1, *probes, *of_a, 1, *of_b, 1], types

    def hidden(self, ids, kinds, types):
        """Hidden states of one pair, [L, D], with attention restricted by the kinds of tokens."""
        bert, count, on = self.encoder, len(self.probes), self.head.weight.device
        kinds = torch.tensor(kinds, device=on)
        sees = (kinds[:, None] & kinds[None, :]) != 0
        places = torch.arange(len(ids), device=on).sub(count).clamp(min=0)[None]
        x = bert.embeddings(
            input_ids=torch.tensor([ids], device=on),
            token_type_ids=torch.tensor([types], device=on),
            position_ids=places,
        )
        heads = bert.config.num_attention_heads
        for layer in bert.encoder.layer:
            own = layer.attention.self
            query, key, value = (
                part(x).view(len(ids), heads, -1).transpose(0, 1)
                for part in (own.query, own.key, own.value)
            )
            logits = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
            if self.settings["mask"] == "before":
                logits = logits.masked_fill(~sees, -1e30)
            shares = torch.softmax(logits, dim=-1)
            if self.settings["mask"] == "after":
                shares = shares * sees
            attended = (shares @ value).transpose(0, 1).reshape(1, len(ids), -1)
            x = layer.attention.output(attended, x)
            x = layer.output(layer.intermediate(x), x)
        return x[0]

    @torch.inference_mode()
    def score_pairs(self, pairs):
        """float32 [n, A]: the probabilities of each pair (mention, name): that the name is of the
        concept, and perhaps that it is of a broader one.
        """
        count = len(self.probes)
        vectors = [self.hidden(*self.inputs(*pair))[: count + 1].mean(0) for pair in pairs]
        logits = self.head(torch.stack(vectors))
        neither = torch.zeros_like(logits[:, :1])
        return torch.softmax(torch.cat([neither, logits], dim=1), dim=1)[:, 1:]

    def score(self, mention, candidates):
        """float32 [k]: the probability of each candidate."""
        return self.score_pairs([(mention, name) for name in candidates])[:, 0]
