"""BERT on packed rows: token ids of many terms in, hidden states or one vector per term out.

Several terms lie in one row; attention is block-diagonal, so that a term never sees its
neighbours, and positions restart at every term. Hence the vector of a term is the same as if it
had been encoded alone.

Devlin et al. 2019, 'BERT: Pre-training of Deep Bidirectional Transformers', with the post-layer
normalization of the released weights. Shapes: R rows, L tokens per row, N terms, D hidden width,
H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from coder_jax.models.bert_config import POOLINGS, BertConfig
from coder_jax.models.bert_layers import (
    DROPOUT_SITES_PER_LAYER,
    MASKED,
    AttentionMask,
    Embeddings,
    Layer,
    drop_features,
    linear,
)
from coder_jax.models.packed.pooling import first_tokens, inner_segments, mean_by_term
from coder_jax.models.packed.probes import Probes

__all__ = ["POOLINGS", "Bert", "BertConfig", "merge_encoder", "split_encoder"]


class Bert(nnx.Module):
    """BERT encoder over packed rows; parameters float32, computing in `dtype`.

    An architecture that differs in embeddings and layers alone is a subclass (`ModernBert`).

    Attributes:
      config: sizes, activation and dropout rates (`BertConfig`).
      dtype: compute type, float32 (matmuls in full precision) or bfloat16.
      pooler: the dense layer of tanh pooling, or None where the weights have none.
    """

    embeddings: Any  # their class is of the architecture
    layers: Any

    def __init__(
        self, config: BertConfig, *, dtype: Any = jnp.float32, pooler: bool = True, rngs: nnx.Rngs
    ):
        self.config, self.dtype = config, jnp.dtype(dtype)
        self.embeddings = Embeddings(config, rngs=rngs)
        self.layers = nnx.List(
            [Layer(config, dtype=self.dtype, rngs=rngs) for _ in range(config.num_layers)]
        )
        width = config.hidden_size
        self.pooler = linear(config, width, width, jnp.float32, rngs) if pooler else None

    def __call__(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        dropout_ids_RL: jax.Array | None = None,
        probes: Probes | None = None,
    ) -> jax.Array:
        """Hidden states of the last layer, [R, L, D] in the compute dtype.

        Args:
          tokens_RL: int32 word pieces of packed terms.
          positions_RL: int32 place of each token within its own term, from 0.
          segments_RL: int32, equal for the tokens of one term; 0 = padding. Token i sees token j
            iff their segments are equal (padding sees padding, so no row is empty).
          dropout_ids_RL: uint32, one number per token that no other (step, term, position)
            shares; None = no dropout. Masks depend on these numbers only, never on the place
            in the pack.
          probes: of sequences that begin with probes for keywords; None for terms.
        """
        x_RLD, attended_RLD, site = self._attended(
            tokens_RL, positions_RL, segments_RL, dropout_ids_RL, probes
        )
        return self._finished(x_RLD, attended_RLD, dropout_ids_RL, site)

    def _attended(self, tokens_RL, positions_RL, segments_RL, dropout_ids_RL, probes=None):
        """The last layer's input, what its attention makes of it, and the layer's dropout site."""
        x_RLD = self.embeddings(tokens_RL, positions_RL, probes)
        x_RLD = drop_features(x_RLD, dropout_ids_RL, 0, self.config.hidden_dropout)
        x_RLD = x_RLD.astype(self.dtype)
        seen_RLL = segments_RL[:, :, None] == segments_RL[:, None, :]
        kept_R1LL = None
        if probes is not None and probes.after:
            kept_R1LL = probes.sees()[:, None].astype(jnp.float32)
        elif probes is not None:
            seen_RLL &= probes.sees()
        mask = AttentionMask(
            jnp.where(seen_RLL, 0.0, MASKED)[:, None],
            kept_R1LL,
            segments_RL if probes is None else None,
        )
        *layers, last = self.layers
        site = 1
        for layer in layers:
            x_RLD = layer(x_RLD, mask, positions_RL, dropout_ids_RL, site)
            site += DROPOUT_SITES_PER_LAYER
        return x_RLD, last.attend(x_RLD, mask, positions_RL, dropout_ids_RL, site), site

    def _finished(self, x_TD, attended_TD, dropout_ids_T, site):
        """Hidden states of tokens of any axes, from what `_attended` gives of them."""
        return self.layers[-1].transform(x_TD, attended_TD, dropout_ids_T, site)

    def term_vectors(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        num_terms: int,
        pooling: str,
        dropout_ids_RL: jax.Array | None = None,
    ) -> jax.Array:
        """One float32 vector per term, [N, D], not normalized; `pooling` as in POOLINGS.

        A term that no token carries gets a zero vector.

        Raises:
          ValueError: another pooling, or 'pooler' without a pooler.
        """
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; expected one of {', '.join(POOLINGS)}")
        if pooling == "pooler" and self.pooler is None:
            raise ValueError("pooling 'pooler' needs weights with a pooler; these have none")
        if pooling in ("mean", "pieces"):
            hidden_RLD = self(tokens_RL, positions_RL, segments_RL, dropout_ids_RL)
            if pooling == "pieces":
                segments_RL = inner_segments(segments_RL)
            return mean_by_term(hidden_RLD, segments_RL, num_terms)
        # Only [CLS] is read: nothing else needs the last layer's dense part.
        x_RLD, attended_RLD, site = self._attended(
            tokens_RL, positions_RL, segments_RL, dropout_ids_RL
        )
        first_N = first_tokens(segments_RL, num_terms)

        def of_first(values: jax.Array) -> jax.Array:
            return values.at[first_N].get(mode="fill", fill_value=0)

        width = x_RLD.shape[-1]
        hidden_ND = self._finished(
            of_first(x_RLD.reshape(-1, width)),
            of_first(attended_RLD.reshape(-1, width)),
            None if dropout_ids_RL is None else of_first(dropout_ids_RL.reshape(-1)),
            site,
        )
        there_N1 = (first_N < positions_RL.size)[:, None]
        cls_ND = jnp.where(there_N1, hidden_ND.astype(jnp.float32), 0.0)
        return cls_ND if self.pooler is None or pooling == "cls" else jnp.tanh(self.pooler(cls_ND))

    def vectors_and_first(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        num_terms: int,
        pooling: str,
        dropout_ids_RL: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """(vectors, [CLS]) of one pass, float32 [N, D] each: as of `term_vectors` and 'cls'.

        Args:
          pooling: cls, mean or pieces.
        """
        hidden_RLD = self(tokens_RL, positions_RL, segments_RL, dropout_ids_RL)
        first_N = first_tokens(segments_RL, num_terms)
        flat = hidden_RLD.reshape(-1, hidden_RLD.shape[-1]).astype(jnp.float32)
        first_ND = flat.at[first_N].get(mode="fill", fill_value=0)
        if pooling == "cls":
            return first_ND, first_ND
        inner = inner_segments(segments_RL) if pooling == "pieces" else segments_RL
        return mean_by_term(hidden_RLD, inner, num_terms), first_ND

    def pair_vectors(
        self,
        tokens_RL: jax.Array,
        positions_RL: jax.Array,
        segments_RL: jax.Array,
        probes: Probes,
        num_pairs: int,
        dropout_ids_RL: jax.Array | None = None,
    ) -> jax.Array:
        """float32 [N, D], one vector per pair: the mean over [CLS] and its probes.

        Liang, Xue, Ruan 2021, equation 10. The arguments are those of a call; a segment is a pair.
        """
        hidden_RLD = self(tokens_RL, positions_RL, segments_RL, dropout_ids_RL, probes)
        read_RL = jnp.where(positions_RL <= probes.number, segments_RL, 0)
        return mean_by_term(hidden_RLD, read_RL, num_pairs)

    def with_dtype(self, dtype: Any) -> Bert:
        """The same parameters, computing in another dtype."""
        kept = {"dtype": dtype, "pooler": self.pooler is not None}
        structure = nnx.eval_shape(lambda: type(self)(self.config, **kept, rngs=nnx.Rngs(0)))
        graph, _ = nnx.split(structure)
        return nnx.merge(graph, nnx.state(self))


class Structure(NamedTuple):
    """An encoder without its parameters.

    Attributes:
      graph: what nnx makes it of.
      names: of its parameters, such as ('layers', 10, 'output', 'bias'), in the order of the graph.
    """

    graph: nnx.GraphDef
    names: tuple[tuple[Any, ...], ...]


def split_encoder(bert: Bert) -> tuple[Structure, dict[str, Any]]:
    """The structure of an encoder, and its parameters as nested dictionaries of arrays."""
    graph, params = nnx.split(bert, nnx.Param)
    return Structure(graph, tuple(nnx.to_flat_state(params).paths)), nnx.to_pure_dict(params)


def merge_encoder(structure: Structure, params: Mapping[str, Any]) -> Bert:
    """The encoder with these parameters, arrays or tracers.

    nnx.merge pairs them with the graph by their sorted order, so their names must be the graph's.

    Raises:
      ValueError: they have other names; a number of a layer is an integer, never text.
    """
    state = nnx.State(params)
    found = tuple(nnx.to_flat_state(state).paths)
    if found != structure.names:
        ours, theirs = ({*found} - {*structure.names}), ({*structure.names} - {*found})
        first = [min(names, key=repr, default="no other") for names in (ours, theirs)]
        raise ValueError(
            f"the parameters are not those of the encoder: found {first[0]}, expected {first[1]} "
            f"(and {len(ours) + len(theirs)} differences in all); names and integers must be those "
            "of split_encoder, as arrays are paired by their order"
        )
    return nnx.merge(structure.graph, state)
