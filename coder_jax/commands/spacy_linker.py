"""The component `coder_linker` of spaCy: links the entities of a document to concepts.

    nlp.add_pipe("coder_linker", config={"model": "runs/demo/export", "dictionary": "hp.obo"})

It answers as the command `normalize` does. `ent.kb_id_` is the concept of an entity, "" where there
is none, and `ent._.coder` has the rows of a coded list: a dict for each candidate, best first.
"""

# spaCy reads the types of a factory's arguments, which may not be strings here.

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

if TYPE_CHECKING:
    from coder_jax.mapping.context import ContextNormalizer

# Every pipeline of spaCy loads the factories that are installed: what takes long is imported late.

_EXTENSION = "coder"
_WORDS_AROUND = 6  # of a name, that may say its context; NegEx has five between the two
_ENDS = frozenset(".!?;")  # of a sentence, where no component of the pipeline has told


@Language.factory(
    "coder_linker",
    assigns=["token.ent_kb_id", f"span._.{_EXTENSION}"],
    requires=["doc.ents"],
    default_config={"k": 3, "abbreviations": True, "options": {}},
)
def _make_linker(
    nlp: Language,
    name: str,
    model: str,
    dictionary: str,
    k: int,
    abbreviations: bool,
    options: dict[str, Any],
) -> "_Linker":
    """A component.

    Args:
      nlp, name: of spaCy.
      model, dictionary: as of `normalize`.
      k: rows that are kept of each entity.
      abbreviations: write out those that the document explains, as in "heart failure (HF)".
      options: further ones of `normalize`, such as {"precision": 0.9, "context": "code"}.

    Raises:
      BadInput: what cannot be read, or an option that is not known.
    """
    from coder_jax.commands.answering import AnswerOptions, open_normalizer
    from data_pipeline.flags import parsed

    words = [f"--model={model}", f"--dictionary={dictionary}"]
    for option, value in options.items():
        flag = f"--{option.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] * value
        else:
            words += [f"{flag}={one}" for one in (value if isinstance(value, list) else [value])]
    chosen, _ = parsed(AnswerOptions, words, "python -m coder_jax normalize")
    return _Linker(open_normalizer(chosen)[0], k, abbreviations, chosen.codes_of)


class _Linker:
    """Links entities.

    Args:
      normalizer: that answers.
      k: rows of each entity.
      abbreviations: whether those of the document are written out.
      codes_of: vocabularies whose codes are told; none: all.
    """

    def __init__(
        self,
        normalizer: "ContextNormalizer",
        k: int,
        abbreviations: bool,
        codes_of: tuple[str, ...],
    ):
        self.normalizer, self.k, self.codes_of = normalizer, k, codes_of
        self.abbreviations = abbreviations
        if not Span.has_extension(_EXTENSION):
            Span.set_extension(_EXTENSION, default=None)

    def __call__(self, doc: Doc) -> Doc:
        """The document with its entities linked."""
        self._link([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """The documents; the entities of `batch_size` of them are looked up together."""
        for docs in minibatch(stream, batch_size):
            self._link(docs)
            yield from docs

    def _link(self, docs: list[Doc]) -> None:
        from coder_jax.mapping.coded_list import coded_fields

        spans = [(doc, span) for doc in docs for span in doc.ents]
        mentions = [mention for doc in docs for mention in self._mentions(doc)]
        contexts = [self.normalizer.rules.around(*_around(span)) for _, span in spans]
        answers = self.normalizer.answers(mentions, self.k, contexts)
        dictionary = self.normalizer.dictionary
        for (_, span), answer in zip(spans, answers, strict=True):
            for token in span:
                token.ent_kb_id_ = answer.concept or ""
            rows = coded_fields(answer, dictionary, self.k, self.codes_of or None)
            span._.set(_EXTENSION, rows)

    def _mentions(self, doc: Doc) -> list[str]:
        """The entities as they are looked up, with the document's abbreviations written out."""
        from coder_jax.mapping.normalizer import writer_out
        from data_pipeline.sources.text import abbreviations_of

        names = [span.text for span in doc.ents]
        if not (self.abbreviations and names):
            return names
        return list(map(writer_out(abbreviations_of(doc.text)), names))


def _around(span: Span) -> tuple[list[str], str, list[str]]:
    """The words of its sentence before an entity, the entity, and the words behind it."""
    doc, before, behind = span.doc, [], []
    for token in reversed(doc[max(0, span.start - _WORDS_AROUND) : span.start]):
        if doc[token.i + 1].is_sent_start or _is_end(token.text_with_ws):
            break
        before.append(token.text_with_ws)
    for token in doc[span.end : span.end + _WORDS_AROUND]:
        if token.is_sent_start or _is_end(token.text_with_ws):
            break
        behind.append(token.text_with_ws)
    return before[::-1], span.text, behind


def _is_end(text: str) -> bool:
    return "\n" in text or text.strip() in _ENDS
