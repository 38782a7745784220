"""The 15 semantic groups of the UMLS Semantic Network, and the 127 semantic types in each.

The NLM's file SemGroups.txt says which type is of which group; each is of one. A concept may have
several types, and so be of several groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from data_pipeline.process import BadInput, did_you_mean

# Group -> the identifiers (TUI) of its semantic types.
_TYPES = {
    "ACTI": "T051 T052 T053 T054 T055 T056 T057 T064 T066",
    "ANAT": "T017 T018 T021 T022 T023 T024 T025 T026 T029 T030 T031",
    "CHEM": "T103 T104 T109 T114 T116 T120 T121 T122 T123 T125 T126 T127 T129 T130 T131 T192 T195 "
    "T196 T197 T200",
    "CONC": "T077 T078 T079 T080 T081 T082 T089 T102 T169 T170 T171 T185",
    "DEVI": "T074 T075 T203",
    "DISO": "T019 T020 T033 T037 T046 T047 T048 T049 T050 T184 T190 T191",
    "GENE": "T028 T085 T086 T087 T088",
    "GEOG": "T083",
    "LIVB": "T001 T002 T004 T005 T007 T008 T010 T011 T012 T013 T014 T015 T016 T096 T097 T098 T099 "
    "T100 T101 T194 T204",
    "OBJC": "T071 T072 T073 T167 T168",
    "OCCU": "T090 T091",
    "ORGA": "T092 T093 T094 T095",
    "PHEN": "T034 T038 T067 T068 T069 T070",
    "PHYS": "T032 T039 T040 T041 T042 T043 T044 T045 T201",
    "PROC": "T058 T059 T060 T061 T062 T063 T065",
}
GROUPS: tuple[str, ...] = tuple(_TYPES)
"""The groups by their four letters, A to Z; a group's place is its number."""
ANY = len(GROUPS)  # the number that stands for "no group given": every concept is in it
_group_of_type: Mapping[str, str] = MappingProxyType(
    {tui: group for group, types in _TYPES.items() for tui in types.split()}
)
"""TUI -> group, of the 127 semantic types."""


def group_number(name: str) -> int:
    """The number (0 to 14) of a group from its four-letter name, in any case.

    Raises:
      BadInput: there is no such group.
    """
    if name.upper() not in GROUPS:
        raise BadInput(
            f"found the semantic group {name!r}; expected one of {', '.join(GROUPS)}"
            f"{did_you_mean(name, GROUPS)}"
        )
    return GROUPS.index(name.upper())


def group_of(semantic_type: str) -> str | None:
    """The group of a dataset's semantic type: "T047 Disease or Syndrome" and "T047" give DISO.

    A group itself may stand in its place ("DISO"). None: no type of the Semantic Network.
    """
    first = semantic_type.partition(" ")[0]
    return first if first in GROUPS else _group_of_type.get(first)


def group_bits(names: Sequence[str], type_start: np.ndarray, types: np.ndarray) -> np.ndarray:
    """The semantic groups of each of C concepts.

    Args:
      names: the semantic types.
      type_start, types: int [C + 1] and int; concept c has those of the numbers
        types[type_start[c] : type_start[c + 1]].

    Returns:
      uint16 [C], bit sets: bit i for group i of `GROUPS`, and always bit `ANY`.
    """
    groups = map(group_of, names)
    of_type = np.array([1 << GROUPS.index(group) if group else 0 for group in groups], np.uint16)
    bits = np.full(len(type_start) - 1, 1 << ANY, np.uint16)
    concepts = np.repeat(np.arange(len(bits)), np.diff(type_start))
    np.bitwise_or.at(bits, concepts, of_type[types])
    return bits
