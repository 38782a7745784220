"""The nearest term of a semantic group: against a loop over all terms."""

import numpy as np
import pytest

from coder_jax.evaluation.normalization.group_normalizer import GroupNormalizer, NearestTerms
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS

DISO, ANAT, PROC = (1 << GROUPS.index(name) for name in ("DISO", "ANAT", "PROC"))


@pytest.fixture
def toy():
    """60 terms of 20 concepts in random places; concept 0 is in two groups, some in none."""
    rng = np.random.default_rng(5)
    terms = [f"t{number}" for number in range(60)]
    concepts = [f"C{rng.integers(20)}" for _ in terms]
    concepts[7] = "C0|C3"
    mentions = [f"m{number}" for number in range(9)]
    table = dict(zip([*terms, *mentions], rng.normal(size=(69, 6)), strict=True))
    table |= {name: vector / np.linalg.norm(vector) for name, vector in table.items()}

    def encode(strings):
        return np.array([table[one] for one in strings], np.float32)

    groups = {f"C{n}": 1 << ANY | (DISO, ANAT, 0)[n % 3] for n in range(20)}
    groups["C0"] |= ANAT
    return encode, Dictionary(terms, concepts, "toy"), groups, mentions


def by_hand(encode, dictionary, groups, mention, group, k):
    bit = 1 << (ANY if group is None else GROUPS.index(group))
    best = {}
    for _, term, concept in dictionary.pairs():
        if groups[concept] & bit:
            cosine = float(encode([term])[0] @ encode([mention])[0])
            best[concept] = max(cosine, best.get(concept, -2))
    return sorted(best.items(), key=lambda pair: -pair[1])[:k]


@pytest.mark.parametrize("k", [1, 3, 12])
def test_as_a_loop_over_all_terms(toy, k):
    encode, dictionary, groups, mentions = toy
    normalizer: GroupNormalizer = NearestTerms(encode, dictionary, groups)
    asked = ["DISO", "ANAT", None, "PROC", "diso", "ANAT", "DISO", None, "ANAT"]
    numbers, scores = normalizer.nearest(mentions, asked, k)
    assert numbers.shape == scores.shape == (9, k)
    for row, (mention, group) in enumerate(zip(mentions, asked, strict=True)):
        expected = by_hand(encode, dictionary, groups, mention, group and group.upper(), k)
        found = [normalizer.concepts[number] for number in numbers[row] if number >= 0]
        assert found == [concept for concept, _ in expected]
        assert scores[row, : len(found)] == pytest.approx([s for _, s in expected], abs=1e-6)
        assert (numbers[row, len(found) :] == -1).all() and (scores[row, len(found) :] < -1).all()
    for concept, bits in zip(normalizer.concepts, normalizer.groups, strict=True):
        assert bits == groups[concept]


def test_an_unknown_group_is_refused(toy):
    encode, dictionary, groups, mentions = toy
    with pytest.raises(BadInput, match="found the semantic group 'DISA'; .*did you mean DISO"):
        NearestTerms(encode, dictionary, groups).nearest(mentions[:1], ["DISA"], 1)
