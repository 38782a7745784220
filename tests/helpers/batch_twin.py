"""A second, slow implementation of the batches, in plain Python integers and lists.

It follows the text of the docstrings, not the code: one item at a time, and the textbook form of
each algorithm. The tests hold `data_pipeline.batches.order`, `draw` and `batches` to it.
"""

from fractions import Fraction

import numpy as np

from data_pipeline.batches.order import _ROUNDS, _STREAMS
from data_pipeline.batches.packing import pack_rows

WORD = 2**64


def twin_mix(value):
    value = (value + 0x9E3779B97F4A7C15) % WORD
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return value ^ (value >> 31)


def twin_key(seed, stream, *parts):
    hashed = twin_mix((seed * len(_STREAMS) + _STREAMS[stream]) % WORD)
    for part in parts:
        hashed = twin_mix(hashed ^ part)
    return hashed


def twin_below(random, size):
    return ((random >> 32) * size) >> 32


def twin_permute(index, size, key):
    width = max(1, round(size**0.5))
    height = -(-size // width)
    value = index
    while True:
        right, left = divmod(value, width)
        for number in range(_ROUNDS):
            round_key = twin_mix(key ^ number)
            if number % 2 == 0:
                left = (left + twin_mix(round_key ^ right)) % width
            else:
                right = (right + twin_mix(round_key ^ left)) % height
        value = right * width + left
        if value < size:
            return value


def twin_sample(randoms, size, *, distinct):
    """Indices of terms; a Fisher-Yates shuffle of all of them, started anew when it runs out."""
    if not distinct:
        return [twin_below(random, size) for random in randoms]
    drawn = []
    for number, random in enumerate(randoms):
        first = number % size
        if first == 0:
            order = list(range(size))
        place = first + twin_below(random, size - first)
        order[first], order[place] = order[place], order[first]
        drawn.append(order[first])
    return drawn


def twin_likeness(dataset, term, other):
    """Jaccard index of the classes of two terms' word pieces, without [CLS] and [SEP]."""
    start = dataset.token_start
    one, two = (
        {twin_mix(int(token)) >> 58 for token in dataset.tokens[start[t] + 1 : start[t + 1] - 1]}
        for t in (term, other)
    )
    return Fraction(len(one & two), len(one | two)) if one | two else Fraction(1)


def twin_unlike(dataset, candidates, number):
    """The first candidate; then, again and again, the one least like those chosen already."""
    left, chosen = list(candidates), []
    for _ in range(number):
        likeness = [max((twin_likeness(dataset, t, c) for c in chosen), default=0) for t in left]
        chosen.append(left.pop(likeness.index(min(likeness))))
    return chosen


def twin_has_synonym(dataset, spec, concept):
    first, *others = range(*dataset.term_start[concept : concept + 2].tolist())
    if spec.names == "unlike":
        return any(twin_likeness(dataset, first, t) <= Fraction(6, 10) for t in others)
    return bool(others)


def twin_draw(dataset, spec, step):
    """concepts, terms (and types) [G, N] and relations [G, U] of a step, as nested lists."""
    counts = np.diff(dataset.term_start).tolist()
    triplets = list(
        zip(dataset.heads.tolist(), dataset.relations.tolist(), dataset.tails.tolist(), strict=True)
    )
    has_synonym = [twin_has_synonym(dataset, spec, concept) for concept in range(len(counts))]
    if spec.draw == "relations":
        items = list(range(len(triplets)))
    else:
        items = [concept for concept, has in enumerate(has_synonym) if has]
    number_drawn = spec.fill_pairs or spec.triplets
    per_epoch = len(items) // number_drawn
    concepts, terms, relations = [], [], []
    for group in range(spec.groups):
        number = step * spec.groups + group
        head_terms, tail_terms, head_concepts, tail_concepts, labels = [], [], [], [], []
        corrupted_terms, corrupted_concepts = [], []
        for u in range(number_drawn):
            epoch, within = divmod(number, per_epoch)
            key = twin_key(spec.seed, "permutation", epoch)
            item = items[twin_permute(within * number_drawn + u, len(items), key)]
            slot = number * number_drawn + u
            head, relation, tail = _triplet(triplets, has_synonym, item, spec, slot)

            def draw(stream, concept, number, slot=slot):
                unlike = spec.names == "unlike"
                several = max(number, 8) if unlike else number
                randoms = [twin_key(spec.seed, stream, slot, j) for j in range(several)]
                picks = twin_sample(randoms, counts[concept], distinct=spec.names != "any")
                terms = [int(dataset.term_start[concept]) + pick for pick in picks]
                return twin_unlike(dataset, terms, number) if unlike else terms

            times = spec.repeats
            if spec.fill_pairs:
                own = counts[head] // 2 if relation < 0 else min(counts[head], counts[tail])
                times = min(own, spec.repeats)
            both = spec.repeats if spec.draw == "relations" else 2 * spec.repeats
            of_head = draw("head term", head, both)
            of_tail = of_head[times:] if relation < 0 else draw("tail term", tail, spec.repeats)
            room = spec.pairs - len(head_terms)
            times = min(times, room)
            head_terms += of_head[:times]
            tail_terms += of_tail[:times]
            head_concepts += [head] * times
            tail_concepts += [tail] * times
            labels += [relation] * (times if spec.fill_pairs else 1)
        assert len(head_terms) == spec.pairs
        if spec.corrupted_tails:
            possible = range(len(counts)) if spec.draw == "relations" else items
            for pair, tail in enumerate(tail_concepts):
                slot = number * spec.pairs + pair
                corrupted = _corrupted(spec, slot, [one for one in possible if one != tail])
                corrupted_terms += draw("corrupted tail term", corrupted, 1, slot)
                corrupted_concepts.append(corrupted)
        concepts.append(head_concepts + tail_concepts + corrupted_concepts)
        terms.append(head_terms + tail_terms + corrupted_terms)
        relations.append(labels)
    drawn = {"concepts": concepts, "terms": terms, "relations": relations}
    return drawn | _types(dataset, spec, concepts)


def _corrupted(spec, slot, others):
    return others[twin_below(twin_key(spec.seed, "corrupted tail", slot), len(others))]


def _types(dataset, spec, concepts):
    """The first semantic type of each concept, if the spec asks for them."""
    if not spec.semantic_types:
        return {}
    start = dataset.type_start
    first = [
        [int(dataset.types[start[c]]) if start[c] < start[c + 1] else -1 for c in group]
        for group in concepts
    ]
    return {"types": first}


def _triplet(triplets, has_synonym, item, spec, slot):
    if spec.draw == "relations":
        return triplets[item]
    related = [t for t in triplets if t[0] == item and has_synonym[t[2]]]
    if spec.draw == "synonyms" or not related:
        return item, -1, item
    return related[twin_below(twin_key(spec.seed, "relation", slot), len(related))]


def twin_batch(dataset, spec, step, plan, passes=1, blocks=1):
    """The packed batch of a step, with the blocks of all hosts."""
    drawn = {name: np.array(value) for name, value in twin_draw(dataset, spec, step).items()}
    packed = {"tokens": [], "positions": [], "segments": []}
    for terms in np.split(drawn["terms"], passes * blocks):
        pieces = [
            dataset.tokens[dataset.token_start[t] : dataset.token_start[t + 1]]
            for t in terms.ravel()
        ]
        start = np.cumsum([0] + [len(piece) for piece in pieces])
        block = pack_rows(np.concatenate(pieces), start, spec.row_length, plan.ample)
        for name in packed:
            packed[name].append(block[name])
    shape = (passes, blocks, spec.groups // passes // blocks, -1)
    return {
        **{
            name: np.reshape(part, (*shape[:2], plan.ample, spec.row_length))
            for name, part in packed.items()
        },
        **{name: values.reshape(shape) for name, values in drawn.items() if name != "terms"},
    }
