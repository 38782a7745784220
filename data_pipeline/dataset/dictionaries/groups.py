"""The semantic groups of the concepts of a dictionary, by what its source says of their types."""

from __future__ import annotations

from data_pipeline.dataset.dictionaries.rows import ConceptTable
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS, group_bits, group_of


def groups_of_concepts(dictionary: Dictionary) -> dict[str, int]:
    """Concept -> its groups: bit i for group i of `GROUPS`, and always bit `ANY`.

    BadInput for a dictionary that says no semantic group of any concept.
    """
    about = dictionary.about_concepts
    if isinstance(about, ConceptTable):
        columns = about.columns
        bits = group_bits(columns.semantic_types, columns.type_start, columns.types)
        known = dict(zip(columns.concepts, bits.tolist(), strict=True))
    else:
        known = {concept: _bits_of(one.types) for concept, one in about.items()}
    formerly = dictionary.formerly
    found = {
        concept: known.get(concept) or known.get(formerly.get(concept, concept), 1 << ANY)
        for concept in dictionary.concept_set
    }
    if not any(bits != 1 << ANY for bits in found.values()):
        raise BadInput(
            f"{dictionary.source}: found no semantic types of its concepts (such as "
            f"{dictionary.concepts[0]!r}); expected them, as they say which semantic group a "
            "concept is of: give a dataset folder, the MRCONSO.RRF of a release with MRSTY.RRF "
            "beside it, or a table with a column semantic_type of types such as T047, or of groups "
            "such as DISO"
        )
    return found


def _bits_of(types: tuple[str, ...]) -> int:
    bits = 1 << ANY
    for group in map(group_of, types):
        bits |= 1 << GROUPS.index(group) if group else 0
    return bits
