"""What a run keeps to prove what leaves it: outputs of some terms, as training itself gives them.

At each save the notes of the checkpoint get, under PROOF, `terms` and `outputs`; and under START
the same of the parameters before the first step. Whoever reads the run must find these outputs
again.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import jax
import numpy as np

from coder_jax.training.system import Params, SavedRun, Tree
from data_pipeline.process.errors import BadInput

PROOF, START = "proof", "proof of the start"
TOLERANCE = 1e-5  # of unit vectors, cosines and probabilities, float32


@dataclasses.dataclass(frozen=True)
class Proof:
    """What training makes of some terms."""

    terms: Sequence[str]
    outputs: Callable[[Params, Tree], dict[str, jax.Array]]
    """Of (params, extra), as they lie in training: float32, the first dimension counts the terms.
    It is compiled, and all hosts call it."""


class Proved(TypedDict):
    """What notes have under PROOF and START; plain JSON."""

    terms: list[str]
    outputs: dict[str, Any]


def proved(
    proof: Proof | None, params: Params, extra: Tree, one_host: Callable[[Any], Any]
) -> Proved | None:
    """What is to be noted of parameters; all hosts call it.

    Args:
        proof: of `System.proof`.
        params, extra: of the state.
        one_host: of `Step`.
    """
    if proof is None:
        return None
    outputs = jax.device_get(one_host(proof.outputs(params, extra)))
    # Nine digits give a float32 back as it was.
    rounded = np.vectorize(lambda value: float(f"{value:.9g}"), otypes=[float])
    return Proved(
        terms=list(proof.terms),
        outputs={name: rounded(array).tolist() for name, array in outputs.items()},
    )


def check_proof(
    found: Callable[[list[str]], Mapping[str, np.ndarray]],
    run: SavedRun,
    what: str,
    under: str = PROOF,
) -> bool:
    """Whether a run has kept a proof.

    Args:
        found: what is made of terms by what was read of the run, by the name of each output.
        run: it.
        what: was read, for messages.
        under: PROOF or START.

    Raises:
        BadInput: if what is found is not what training found.
    """
    kept = run.notes.get(under)
    if kept is None:
        return False
    for name, array in found(kept["terms"]).items():
        expected = np.array(kept["outputs"][name], np.float32)
        apart = np.abs(np.asarray(array) - expected).reshape(len(expected), -1).max(axis=1)
        worst = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
        if not apart[worst] <= TOLERANCE:  # catches NaN too
            raise BadInput(
                f"{what} gives other {name} than training gave: they differ by {apart[worst]:.2e} "
                f"for the term {kept['terms'][worst]!r}; expected at most {TOLERANCE:.0e}. It was "
                "read otherwise than it was trained, and is of no use: take another checkpoint, or "
                "the version of coder_jax by which the run was trained"
            )
    return True
