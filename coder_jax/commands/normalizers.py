"""What answers the mentions of `normalize`: nearest terms, classes, or recall and rank."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from coder_jax.commands.arguments.encoder import (
    load_encoder,
    warn_of_languages,
)
from coder_jax.commands.arguments.normalize import check_of_terms, choose
from coder_jax.commands.arguments.recall_rank import generators_of, ranker_choices
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from coder_jax.mapping.normalizer import Normalizer, SameStringNormalizer
    from coder_jax.systems.mlnorm.prediction.class_normalizer import ClassNormalizer
    from coder_jax.systems.mlnorm.prediction.classifier import ConceptClassifier
    from data_pipeline.dataset.dictionary import Dictionary


def normalizer_of(
    args: argparse.Namespace,
    dictionary: Dictionary,
    classifier: ConceptClassifier | None,
    abbreviations: dict[str, str],
) -> SameStringNormalizer | ClassNormalizer:
    """What --model, --by and --ranker ask for.

    Args:
      args: of `normalize`.
      dictionary: whose terms are searched, or that names the classes.
      classifier: that answers; None: terms do.
      abbreviations: what they stand for.
    """
    from coder_jax.systems.mlnorm.prediction.class_normalizer import ClassNormalizer
    from coder_jax.systems.recall_rank.prediction.stages import has_stages, staged_normalizer

    least = 0.0 if args.min_similarity is None else args.min_similarity
    if classifier is not None:
        return ClassNormalizer(
            classifier,
            dictionary,
            group=args.semantic_group,
            threshold=least,
            abbreviations=abbreviations,
        )
    if has_stages(args.models, args.ranker):
        check_of_terms(args, "answers come from a generator or a ranker")
        check_of_stages(args)
        return staged_normalizer(
            generators_of(args, args.pooling),
            args.ranker,
            dictionary,
            ranker_choices(args)[0],
            threshold=least,
            abbreviations=abbreviations,
            cache=args.cache,
        )
    return make_normalizer(args, dictionary, abbreviations)


def check_of_stages(args: argparse.Namespace) -> None:
    """Raise BadInput for what recall and rank cannot do."""
    from coder_jax.systems.recall_rank.prediction.candidates import CANDIDATES

    for option, given in (("--review", args.review), ("--decided", args.decided)):
        if given:
            raise BadInput(
                f"{option}: people decide there on one concept for each mention, where recall and "
                f"rank may answer with several; leave {option} out"
            )
    if args.k is not None and args.k > CANDIDATES:
        raise BadInput(
            f"-k {args.k}: found more than the {CANDIDATES} candidates that recall and rank "
            f"choose from, as in the paper; expected at most {CANDIDATES}"
        )


def load_classes(args: argparse.Namespace) -> ConceptClassifier:
    """The model with classes that --model names."""
    from coder_jax.systems.class_model import has_classes, load_classifier

    if has_classes(args.model):
        return load_classifier(args.model)
    needed = "a model with classes: a run of the recipe mlnorm, or its export"
    if args.dictionary:
        raise BadInput(f"--by classes: {args.model} has no classes; expected {needed}")
    raise BadInput(
        f"--dictionary is missing, and {args.model} has no classes; expected terms to search (a "
        "table with the columns term and concept, a dataset folder, or the MRCONSO.RRF of a "
        f"release), or {needed}"
    )


def make_normalizer(
    args: argparse.Namespace, dictionary: Dictionary, abbreviations: dict[str, str]
) -> Normalizer:
    """The encoder with the dictionary, and the rule by which it answers."""
    from coder_jax.encoding.encoded_dictionary import EncodedDictionary
    from coder_jax.encoding.term_lines import TERMS_PER_CHUNK, TermList
    from coder_jax.encoding.vector_file import read_vectors
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.normalizer import Normalizer
    from data_pipeline.terminology.cleaning.rules import lookup_rules

    args.cleaning = args.cleaning or lookup_rules(dictionary.terms)
    chosen = choose(args, len(dictionary.terms))
    encoder = load_encoder(args, args.pooling)
    warn_of_languages(encoder, dictionary)
    terms = dictionary.terms
    if args.dictionary_vectors is None:
        encoded = encoder.encode_dictionary(dictionary, progress=True, cache=args.cache)
    else:
        listed = TermList(terms, TERMS_PER_CHUNK)
        assert encoder.weights_hash is not None, "it was loaded from a folder"
        vectors = read_vectors(args.dictionary_vectors, encoder, encoder.weights_hash, listed)
        encoded = EncodedDictionary(terms, dictionary.concepts, vectors, encoder)
    candidates = Candidates(encoder, encoded, chosen.kind, chosen.weight)
    return Normalizer(dictionary, candidates, rule=chosen.rule, abbreviations=abbreviations)
