"""coder_jax: pre-train, evaluate and export encoders of medical terms.

Shape letters, used as suffixes of array names in traced code:

    A anchors; answers  L tokens in a packed row      R packed rows; also relations in a table
    B candidates        N terms of a group or a pass  T triplets of a step
    D vector width      P passes of a step            U distinct triplets of a group
    G groups of a step  k pairs of a group, U * m     m repeats of a triplet in its group
    H attention heads   K width of a head
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder as TermEncoder
    from coder_jax.systems.recall_rank.ranking import TermRanker as TermRanker

__all__ = ["TermEncoder", "TermRanker"]


def __getattr__(name: str) -> Any:
    # Importing jax and transformers takes seconds; `python -m coder_jax --help` needs neither.
    if name == "TermEncoder":
        from coder_jax.encoding.encoder import TermEncoder

        return TermEncoder
    if name == "TermRanker":
        from coder_jax.systems.recall_rank.ranking import TermRanker

        return TermRanker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
