"""The vocabulary of a WordPiece tokenizer: words in, their pieces out; new pieces at its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from data_pipeline.dataset.tokenize_terms import tokenize_uncut
from data_pipeline.process.errors import BadInput


@dataclass(frozen=True)
class WordPieceVocabulary:
    """Pieces of words and their ids (Devlin et al. 2019, after Wu et al. 2016, section 4.1).

    A word becomes its longest piece from the left, then the longest of what is left, and so on;
    where none fits, all of the word is the unknown token.

    Attributes:
      pieces: piece -> id.
      unknown: the unknown token.
      prefix: what pieces begin with that go on with a word, "##".
      longest_word: characters; a longer word is unknown.
      size: one more than the largest id of the tokenizer, tokens added to it included.
    """

    pieces: dict[str, int]
    unknown: str
    prefix: str
    longest_word: int
    size: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, source: str) -> WordPieceVocabulary:
        """That of a tokenizer; `source` names it in messages.

        Raises:
          BadInput: it has another kind of vocabulary.
        """
        model = json.loads(tokenizer.to_str())["model"]
        if model["type"] != "WordPiece":
            kind = {"Unigram": "SentencePiece (Unigram), as of XLM-R"}.get(
                model["type"], f"{model['type']}, as of RoBERTa and ModernBERT"
            )
            raise BadInput(
                f"{source}: the vocabulary is of the kind {kind}; expected WordPiece, as of BERT. "
                "It spells any string by pieces or bytes that it has: train the encoder as it is, "
                "or give a BERT"
            )
        return cls(
            model["vocab"],
            model["unk_token"],
            model["continuing_subword_prefix"],
            model["max_input_chars_per_word"],
            max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1,
        )

    def with_pieces(self, new: Sequence[str]) -> WordPieceVocabulary:
        """The same with new pieces at its end: no other id changes."""
        ids = range(self.size, self.size + len(new))
        return replace(
            self,
            pieces=self.pieces | dict(zip(new, ids, strict=True)),
            size=self.size + len(new),
        )

    def split(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of words as `Words` has them: (int32 [sum], start int64 [n + 1])."""
        model = WordPiece(
            vocab=self.pieces,
            unk_token=self.unknown,
            max_input_chars_per_word=self.longest_word,
            continuing_subword_prefix=self.prefix,
        )
        return tokenize_uncut(Tokenizer(model), words, special=False)

    def pieces_of(self, words: Sequence[str]) -> list[list[str]]:
        """The pieces of words."""
        names = {number: piece for piece, number in self.pieces.items()}
        ids, start = self.split(words)
        return [[names[one] for one in part.tolist()] for part in np.split(ids, start[1:-1])]

    def put_into(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with these pieces as those of its model, all else unchanged."""
        content = json.loads(tokenizer.to_str())
        # A token that was added behind the model's pieces keeps its id only if the model knows it.
        added = {token["content"]: token["id"] for token in content["added_tokens"]}
        content["model"]["vocab"] = added | self.pieces
        return Tokenizer.from_str(json.dumps(content))
