"""What training makes of some terms by its encoder, in float32, and what is read of a run does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import polars as pl

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.models.bert import Structure, merge_encoder, split_encoder
from coder_jax.systems.encoders.trained import encoder_of
from coder_jax.training.proof import Proof, check_proof
from coder_jax.training.system import Params, SavedRun, Tree
from data_pipeline.batches.packing import pack_rows
from data_pipeline.batches.spec import BatchSource
from data_pipeline.dataset.tokenize_terms import load_tokenizer, tokenize
from data_pipeline.terminology.cleaning.rules import clean

if TYPE_CHECKING:
    from coder_jax.systems.encoders.encoder_system import EncoderSystem

Rows = Mapping[str, Any]


def encoder_proof(system: EncoderSystem, source: BatchSource, about: Mapping[str, Any]) -> Proof:
    """Of some terms of the data what `EncoderSystem.proof_outputs` makes."""
    terms = source.some_terms()
    rows = {**packed_terms(source, terms), **system.rows_beside(source, terms)}
    # What the program does not depend on is left out, so that it is compiled once.
    model = dataclasses.replace(system.model, init="", dtype="float32")
    plain = dataclasses.replace(system, model=model)
    structure, _ = split_encoder(plain.structure(about))

    def outputs(params: Params, extra: Tree) -> dict[str, jax.Array]:
        how = {"system": plain, "structure": structure, "terms": len(terms)}
        return compiled_outputs(params, extra, rows, **how)

    return Proof(terms, outputs)


def packed_terms(source: BatchSource, terms: list[str]) -> dict[str, np.ndarray]:
    """Terms as a batch has them: cleaned, as word pieces, in packed rows."""
    cleaned = clean(pl.Series(terms, dtype=pl.String), source.manifest["cleaning"]).to_list()
    longest = source.manifest["tokenizer"]["max_length"]
    tokens, start = tokenize(load_tokenizer(source.folder / "tokenizer"), cleaned, longest)
    return pack_rows(tokens, start, longest)


@partial(jax.jit, static_argnames=("system", "structure", "terms"))
def compiled_outputs(
    params: Params,
    extra: Tree,
    rows: Rows,
    *,
    system: EncoderSystem,
    structure: Structure,
    terms: int,
) -> dict[str, jax.Array]:
    bert = merge_encoder(structure, params["encoder"])
    return system.proof_outputs(bert, params, extra, rows, terms)


def check_encoder(run: SavedRun, what: str) -> None:
    """BadInput if the encoder that was read of a run is not the one that it trained."""

    def found(terms: list[str]) -> dict[str, np.ndarray]:
        encoder: TermEncoder = encoder_of(run)
        return {"vectors": encoder.encode(terms)}

    check_proof(found, run, what)
