"""What answers mentions by the nearest terms of a dictionary: the options, and what they make.

`normalize`, `serve` and the component of spaCy have them in common.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from coder_jax.commands.arguments import (
    MODEL,
    CacheOptions,
    CandidateKind,
    DictionaryOptions,
    EncodingOptions,
    Pooling,
    check_one_model,
    load_encoder,
    warn_of_languages,
)
from coder_jax.mapping.context import (
    OWN_RULES,
    ContextMode,
    ContextNormalizer,
    ContextRules,
    own_rules,
)
from data_pipeline.files.identity import CUTOFFS
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, did_you_mean, tell
from data_pipeline.terminology.cleaning import lookup_rules
from data_pipeline.terminology.retired_cuis import read_retired_cuis

if TYPE_CHECKING:
    from coder_jax.mapping.confidence import Cutoffs
    from coder_jax.mapping.normalizer import Normalizer, Rule
    from data_pipeline.dataset.dictionary import Dictionary

# Letters of more terms would need gigabytes: vectors alone then, if nothing else is asked for.
_MOST_TERMS_BY_LETTERS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(DictionaryOptions, CacheOptions, EncodingOptions):
    """What answers mentions: an encoder, a dictionary, and a rule."""

    codes_of: Annotated[
        tuple[str, ...],
        Flag(
            "write only codes of these vocabularies, such as SNOMEDCT_US,ICD10CM (default: all); "
            "in --map-file these come first",
            "SAB,SAB",
            commas=True,
            one_word=True,
            heading="answers",
        ),
    ] = ()
    min_similarity: Annotated[
        float | None,
        Flag(
            "leave terms empty whose nearest concept is less similar, or whose class is less "
            "probable (default: none)",
            "S",
        ),
    ] = None
    precision: Annotated[
        float | None,
        Flag(
            "leave uncertain terms empty, so that about this share of answers is right (0.9 = 9 of "
            "10); needs a cutoffs.json of `evaluate --cutoffs`",
            "P",
        ),
    ] = None
    language: Annotated[
        str | None,
        Flag(
            "language of the list, such as GER: use the cut-offs that were measured for it "
            "(default: those of all languages)",
            "LANGUAGE",
        ),
    ] = None
    cutoffs: Annotated[
        Path | None,
        Flag(
            "cut-offs for --precision, from `evaluate --cutoffs` (default: cutoffs.json of the "
            "model; with --ranker none)",
            "FILE",
        ),
    ] = None
    candidates: CandidateKind = None
    context: Annotated[
        ContextMode,
        Flag(
            "what a mention such as 'no fever' or 'mother had cancer' gets, unless the dictionary "
            "has it as a term: no concept (leave-out), the concept of the name in it, such as "
            "fever (code), or that of the mention as it stands (keep)"
        ),
    ] = "leave-out"
    context_rules: Annotated[
        Path | None,
        Flag(
            "more phrases that tell a context, beside those of seven languages: lines of "
            "phrase<TAB>kind<TAB>place, such as 'query<TAB>possible<TAB>before'",
            "FILE",
        ),
    ] = None
    abbreviations: Annotated[
        str | None,
        Flag(
            "write out your own abbreviations before a look-up: a .tsv, .csv or .xlsx file with "
            "the columns abbreviation and words",
            "FILE",
        ),
    ] = None
    dictionary: Annotated[
        str | None,
        Flag(
            "terms to search: a table with columns term and concept, an ontology (.obo), a folder "
            "with an ontology and tables of further names, a release of the UMLS, RxNorm, SNOMED "
            "CT or LOINC, OMOP's vocabularies from Athena (folder or .zip), a dataset folder, or "
            "an https:// address of one",
            "PATH",
            heading="dictionary",
        ),
    ] = None
    dictionary_vectors: Annotated[
        Path | None,
        Flag("vectors of the dictionary, made by `encode --dictionary`, to save time", "NPY"),
    ] = None
    retired_cuis: Annotated[
        str | None,
        Flag(
            "list of merged CUIs, to replace them in the dictionary (default: none); MRCUI.RRF, a "
            "dataset's retired_cuis.tsv, or a TSV file of old<TAB>new",
            "FILE",
        ),
    ] = None
    models: Annotated[
        tuple[str, ...],
        Flag(
            "the encoder: a folder, such as an export, a hub id, or a run of mlnorm or recall; "
            "only for recall several (--model A --model B), which are averaged",
            MODEL,
            name="--model",
            one_word=True,
            heading="encoder",
        ),
    ]
    pooling: Pooling = None

    @property
    def model(self) -> str:
        """The encoder, or the first of several."""
        return self.models[0]


TERMS_TO_SEARCH = (
    "terms to search (a table with the columns term and concept, a dataset folder, an ontology, "
    "the MRCONSO.RRF of a release, or a download from Athena)"
)


def check_rule(options: AnswerOptions) -> None:
    """BadInput for cut-offs that cannot be."""
    if options.min_similarity is not None and not -1 <= options.min_similarity <= 1:
        raise BadInput(f"--min-similarity is {options.min_similarity}; expected -1 to 1")
    if options.precision is not None and not 0 < options.precision < 1:
        raise BadInput(
            f"--precision is {options.precision}; expected a share between 0 and 1, such as 0.9"
        )
    if options.precision is not None and options.min_similarity is not None:
        raise BadInput("found --precision and --min-similarity; expected one of them")


class _Chosen(NamedTuple):
    """How candidates are found, and which are answers."""

    kind: str
    weight: float | None  # of letters
    rule: Rule


def _choose(options: AnswerOptions, terms: int) -> _Chosen:
    """The rule of the arguments and of what was measured of the model; said in a line.

    Args:
      options: of the command.
      terms: rows of the dictionary.

    Raises:
      BadInput: a precision that was not measured, or was never reached.
    """
    from coder_jax.mapping.confidence import RANKER, Cutoffs
    from coder_jax.mapping.normalizer import Rule
    from coder_jax.models.hf_files import find_folder

    path = options.cutoffs or find_folder(options.model) / CUTOFFS.file
    measured = Cutoffs.read(path) if options.cutoffs or path.is_file() else None
    least = -1.0 if options.min_similarity is None else options.min_similarity
    wanted = options.candidates or ("vectors" if terms > _MOST_TERMS_BY_LETTERS else "both")
    if measured is None or not measured.rules:
        if options.precision is not None:
            raise BadInput(
                f"--precision {options.precision}: found no {path}; expected what was measured on "
                "terms whose concept is known. Measure it: python -m coder_jax evaluate --model "
                f"{options.model} --dictionary {options.dictionary} --benchmark own=TERMS.tsv "
                f"--cutoffs {path} --json results.json, or give --min-similarity"
            )
        tell(
            "warning: how often near terms are right was not measured for this model, so "
            "confidence stays empty; measure it with `evaluate --cutoffs`, or look at each near "
            "term"
        )
        return _Chosen(wanted, None, Rule(least))
    kind = measured.candidates
    if kind == RANKER:
        raise BadInput(
            f"{path}: found what was measured of a ranker; expected what was measured of an "
            "encoder: give that --ranker to `normalize`, or another file as --cutoffs"
        )
    if options.candidates not in (None, kind):
        if options.precision is not None:
            raise BadInput(
                f"--candidates {options.candidates}: {path} was measured with {kind}; leave it "
                f"out, or measure anew: `evaluate --cutoffs {path} "
                f"--candidates {options.candidates}`"
            )
        return _Chosen(wanted, None, Rule(least))
    language = options.language if options.language in measured.tables else None
    rule = measured.rules[language or "all"]
    if options.language and language is None:
        there = ", ".join(measured.tables)
        tell(
            f"{path}: nothing was measured for {options.language} (there is {there}); all is taken"
        )
    if warning := measured.of_another_dictionary(terms):
        tell(f"warning: {warning}")
    sure = (
        0.0
        if options.precision is None
        else _least_confidence(options.precision, measured, language, path)
    )
    return _Chosen(str(kind), rule.weight_of_letters, Rule(least, rule.confidence, sure))


def rules_of_ranker(options: AnswerOptions, terms: int, ordered_by: str) -> dict[str, Rule] | None:
    """What makes a ranker sure enough, as --cutoffs measured it; None without --cutoffs.

    Args:
      options: of the command.
      terms: rows of the dictionary.
      ordered_by: the score that orders the candidates.

    Raises:
      BadInput: a precision without cut-offs, or that no answer reached; other cut-offs.
    """
    from coder_jax.mapping.confidence import ALL, RANKER, Cutoffs, cutoff_for
    from coder_jax.mapping.normalizer import LIKELY, Rule

    path, wanted = options.cutoffs, options.precision
    if path is None and wanted is None:
        return None
    if path is None or (measured := Cutoffs.read(path)).candidates != RANKER:
        raise BadInput(
            f"--cutoffs: found {f'{path}, measured of an encoder' if path else 'none'}; expected "
            "what `evaluate --ranker ... --cutoffs FILE` measures on a folder of mentions"
        )
    if measured.ordered_by != ordered_by:
        raise BadInput(
            f"{path} was measured with candidates ordered by {measured.ordered_by}, and here they "
            f"are by {ordered_by}; give the same --fusion, or measure anew"
        )
    if warning := measured.of_another_dictionary(terms):
        tell(f"warning: {warning}")
    rules = {}
    for name, rule in measured.rules.items():
        least: float | None = LIKELY
        if wanted is not None and name == ALL:
            least = _least_confidence(wanted, measured, None, path)
        elif wanted is not None:
            least = cutoff_for(measured.tables[name], wanted)
        if least is None:
            tell(f"no answer will be broader: none reached --precision {wanted} in {path}")
        else:
            rules[name] = Rule(-1.0, rule.confidence, least)
    return rules


def _least_confidence(
    precision: float, measured: Cutoffs, language: str | None, path: Path
) -> float:
    """The confidence that makes so many answers right; BadInput if none did."""
    from coder_jax.mapping.confidence import cutoff_for

    table = measured.of(language)
    cutoff = cutoff_for(table, precision)
    what = f"of {language}" if language else "of all languages"
    if cutoff is None:
        best = max((row.precision for row in table.rows if row.answered >= 30), default=0.0)
        raise BadInput(
            f"--precision {precision}: {path} has no cut-off {what} that reached it on "
            f"{table.mentions:,} terms (the best is {best:.2f}); give less, or train longer"
        )
    row = next(row for row in table.rows if row.cutoff == cutoff)
    tell(
        f"answers from confidence {cutoff:.3f} on: on {table.mentions:,} terms {what} that are no "
        f"strings of the dictionary, {row.precision:.1%} of the answers were right and "
        f"{row.coverage:.1%} had one"
    )
    return cutoff


def _check_codes_of(vocabularies: tuple[str, ...], dictionary: Dictionary) -> None:
    """BadInput for a vocabulary that no code of the dictionary is of."""
    known = dictionary.code_vocabularies if vocabularies else []
    if missing := [one for one in vocabularies if one not in known]:
        raise BadInput(
            f"--codes-of {missing[0]}: {dictionary.source} has no code of it; it has "
            f"{', '.join(known) or 'no codes'}{did_you_mean(missing[0], known)}"
        )


def chosen_abbreviations(options: AnswerOptions, encoding: str | None = None) -> dict[str, str]:
    from coder_jax.mapping.normalizer import read_abbreviations

    return read_abbreviations(options.abbreviations, encoding) if options.abbreviations else {}


def chosen_context_rules(options: AnswerOptions, encoding: str | None = None) -> ContextRules:
    if options.context_rules is None:
        return own_rules()
    return ContextRules([*OWN_RULES, options.context_rules], encoding)


def chosen_dictionary(options: AnswerOptions, encoding: str | None = None) -> Dictionary:
    """The dictionary with the identifiers of today; without one, an empty one."""
    from data_pipeline.dataset.dictionary import Dictionary, read_dictionary

    dictionary = Dictionary([], [], options.model)
    if options.dictionary:
        choices = options.choices()
        dictionary = read_dictionary(options.dictionary, **choices, raw=True, encoding=encoding)
        _check_codes_of(options.codes_of, dictionary)
    if options.retired_cuis:
        dictionary = dictionary.with_successors(read_retired_cuis(options.retired_cuis))
    return dictionary


def make_normalizer(
    options: AnswerOptions,
    dictionary: Dictionary,
    abbreviations: dict[str, str],
    names: list[tuple[str, str]] | None = None,
) -> Normalizer:
    """The encoder with the dictionary, and the rule by which it answers; `names` of --learn."""
    from coder_jax.encoding.encoder import EncodedDictionary
    from coder_jax.encoding.vector_files import TERMS_PER_CHUNK, JoinedRows, TermList, read_vectors
    from coder_jax.mapping.candidates import Candidates
    from coder_jax.mapping.normalizer import Normalizer, new_names

    cleaning = options.cleaning or lookup_rules(dictionary.terms)
    chosen = _choose(options, len(dictionary.terms))
    encoder = load_encoder(options.model, options.pooling, replace(options, cleaning=cleaning))
    warn_of_languages(encoder, dictionary)
    terms = dictionary.terms
    if options.dictionary_vectors is None:
        encoded = encoder.encode_dictionary(dictionary, progress=True, cache=not options.no_cache)
    else:
        listed = TermList(terms, TERMS_PER_CHUNK)
        assert encoder.weights_hash is not None, "it was loaded from a folder"
        vectors = read_vectors(options.dictionary_vectors, encoder, encoder.weights_hash, listed)
        encoded = EncodedDictionary(terms, dictionary.concepts, vectors, encoder)
    learnt = new_names(names or [], dictionary, abbreviations)
    if names is not None:
        tell(f"learnt {len(learnt):,} names of --decided that the dictionary does not have")
    if learnt:  # behind the others, whose vectors are kept
        dictionary = dictionary.with_names(learnt)
        both = JoinedRows([encoded.vectors, encoder.encode([name for name, _ in learnt])])
        encoded = EncodedDictionary(dictionary.terms, dictionary.concepts, both, encoder)
    candidates = Candidates(encoder, encoded, chosen.kind, chosen.weight)
    if candidates.kind == "both":
        tell(f"similarity: by vectors, and by letters with weight {candidates.weight:g}")
    return Normalizer(
        dictionary, candidates, rule=chosen.rule, abbreviations=abbreviations, learnt=learnt
    )


def open_normalizer(
    options: AnswerOptions, encoding: str | None = None
) -> tuple[ContextNormalizer, Normalizer]:
    """What answers mentions by the nearest terms of --dictionary, and the same without context.

    `encoding` is of files that are not UTF-8.

    Raises:
      BadInput: several models, or one that is no encoder; no dictionary; what cannot be read.
    """
    check_one_model(options.models, "one encoder answers here")
    check_rule(options)
    if not options.dictionary:
        raise BadInput(f"--dictionary is missing; expected {TERMS_TO_SEARCH}")
    abbreviations = chosen_abbreviations(options, encoding)
    rules = chosen_context_rules(options, encoding)
    normalizer = make_normalizer(options, chosen_dictionary(options, encoding), abbreviations)
    return ContextNormalizer(normalizer, rules, options.context), normalizer
