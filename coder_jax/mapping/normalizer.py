"""Mentions in, concepts of a dictionary out: the same string before the nearest term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

import numpy as np

from coder_jax.encoding.encoder import EncodedDictionary, Match, TermEncoder, nearest_concepts
from coder_jax.mapping.abbreviations import writer_out
from coder_jax.mapping.answers import Answer, Candidate, Status
from coder_jax.mapping.exact import SameStrings, folded
from coder_jax.mapping.unanswerable import why_unanswerable
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import split_concepts
from data_pipeline.process.errors import BadInput

# Cosines closer than this are the same: rounding and the place in a packed batch move them so far.
SAME = 1e-6
# So many concepts are looked at for ties, even where fewer are asked for.
LOOKED_AT = 10


class Normalizer:
    """Maps mentions to the concepts of one dictionary.

    Example:
      encoder = TermEncoder.from_pretrained("runs/demo/export")
      dictionary = read_dictionary("terms.tsv")
      normalizer = Normalizer(encoder, dictionary, encoder.encode_dictionary("terms.tsv"))
      for answer in normalizer.answers(["heart attack", "n/a"], k=3):
          print(answer.mention, answer.status, answer.concept)
    """

    def __init__(
        self,
        encoder: TermEncoder,
        dictionary: Dictionary,
        encoded: EncodedDictionary,
        *,
        least_similarity: float = -1.0,
        abbreviations: Mapping[str, str] | None = None,
    ):
        """
        Args:
          encoder: of mentions; the one that `encoded` was made with.
          dictionary: with its terms as the source writes them.
          encoded: the same rows with their vectors.
          least_similarity: a mention whose nearest term is further away has no answer.
          abbreviations: what they stand for; mentions are looked up with these written out.
        """
        if dictionary.concepts != encoded.concepts:
            raise BadInput(
                f"the dictionary has {len(dictionary.concepts):,} rows and its vectors are of "
                f"{len(encoded.concepts):,} others; encode the same dictionary"
            )
        self.encoder, self.dictionary, self.encoded = encoder, dictionary, encoded
        self.least_similarity = least_similarity
        self.write_out = writer_out(abbreviations or {})
        self.same_strings = SameStrings(dictionary.terms)

    def answers(self, mentions: Sequence[str], k: int = 1) -> list[Answer]:
        """The answer to each mention, with up to k candidates.

        1. What names nothing (`why_unanswerable`) has no answer.
        2. A string of the dictionary, case and blanks aside, is the answer, whatever is near it. Of
           several concepts that have it, those that write it exactly as the mention does come
           first; if they are several still, the answer is tied.
        3. Else the concept of the nearest term. Of several that are equally near, the one whose
           term is written most like the mention.

        Args:
          mentions: strings.
          k: candidates per mention, at least 1.
        """
        if k < 1:
            raise BadInput(f"k is {k}; expected at least 1 concept per mention")
        why = [why_unanswerable(mention) for mention in mentions]
        strings = [self.write_out(mention) for mention in mentions]
        exact = self._exact(strings)
        # Nothing is encoded that needs no candidates beside those of its own string.
        asked = [row for row in range(len(strings)) if not why[row] and (k > 1 or not exact[row])]
        near = self._near([strings[row] for row in asked], max(k, LOOKED_AT))
        near_of = dict(zip(asked, near, strict=True))
        answers = []
        for row, mention in enumerate(mentions):
            if why[row]:
                answers.append(Answer(mention, Status.NO_ANSWER, [], reason=why[row]))
            elif exact[row]:
                answers.append(of_same_string(mention, exact[row], near_of.get(row, []), k))
            else:
                least = self.least_similarity
                answers.append(of_nearest(mention, strings[row], near_of[row], k, least))
        return answers

    def _exact(self, mentions: Sequence[str]) -> list[list[tuple[bool, Candidate]]]:
        """For each mention the concepts with its string, those that write it so (True) first."""
        found = []
        for mention, rows in zip(mentions, self.same_strings.rows(mentions), strict=True):
            as_written = " ".join(mention.split())
            by_concept: dict[str, tuple[bool, bool, str]] = {}
            for row in rows:
                term = self.dictionary.terms[row]
                for concept in split_concepts(self.dictionary.concepts[row]):
                    is_preferred = self.dictionary.about(concept).preferred == term
                    held = (" ".join(term.split()) == as_written, is_preferred, term)
                    by_concept[concept] = max(by_concept.get(concept, held), held)
            # A stable order: where nothing tells concepts apart, the dictionary's.
            ranked = sorted(by_concept.items(), key=lambda one: one[1][:2], reverse=True)
            found.append(
                [(written, Candidate(concept, term, 1.0)) for concept, (written, _, term) in ranked]
            )
        return found

    def _near(self, strings: Sequence[str], k: int) -> list[list[Match]]:
        """For each string the k nearest concepts, or more where those are all equally near."""
        most = self.encoded.num_concepts
        k = min(k, most)
        vectors = self.encoder.encode(list(strings))
        found = nearest_concepts(vectors, self.encoded, k)
        open_rows = np.arange(len(found))
        while k < most:
            open_rows = np.array(
                [
                    row
                    for row in open_rows
                    if found[row][0].similarity - found[row][-1].similarity <= SAME
                ],
                np.int64,
            )
            if not len(open_rows):
                break
            k = min(8 * k, most)
            for row, matches in zip(
                open_rows, nearest_concepts(vectors[open_rows], self.encoded, k), strict=True
            ):
                found[row] = matches
        return found


def of_same_string(
    mention: str, exact: list[tuple[bool, Candidate]], near: list[Match], k: int
) -> Answer:
    """The answer to a mention that is a string of the dictionary.

    Args:
      mention: as it was given.
      exact: the concepts that have its string, best first, and whether they write it as it does.
      near: the concepts with the nearest terms, for the places behind those.
      k: candidates.
    """
    rivals = sum(written == exact[0][0] for written, _ in exact) - 1
    candidates = [candidate for _, candidate in exact]
    held = {candidate.concept for candidate in candidates}
    candidates += [Candidate(*match) for match in near if match.concept not in held]
    status = Status.TIED if rivals else Status.EXACT
    return Answer(mention, status, candidates[:k], ties=len(exact) - 1)


def of_nearest(mention: str, string: str, near: list[Match], k: int, least: float) -> Answer:
    """The answer to a mention that is no string of the dictionary.

    Args:
      mention: as it was given.
      string: as it was looked up.
      near: the concepts with the nearest terms, best first: all that are as near as the first.
      k: candidates.
      least: similarity that an answer must have.
    """
    best = near[0].similarity
    tied = [match for match in near if best - match.similarity <= SAME]
    likeness = {match: written_like(string, match.term) for match in tied}
    ranked = sorted(tied, key=likeness.__getitem__, reverse=True) + near[len(tied) :]
    rivals = sum(likeness[match] == likeness[ranked[0]] for match in tied) - 1
    candidates, ties = [Candidate(*match) for match in ranked[:k]], len(tied) - 1
    if best < least:
        reason = f"similarity {best:.3f} is below {least:.3f}"
        return Answer(mention, Status.NO_ANSWER, candidates, ties, reason)
    return Answer(mention, Status.TIED if rivals else Status.NEAR, candidates, ties)


def written_like(mention: str, term: str) -> float:
    """How alike two strings are in their letters, 0 to 1; case and blanks aside."""
    one, other = folded([mention, term])
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
