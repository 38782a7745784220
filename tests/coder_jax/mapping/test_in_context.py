"""Mentions that say more than a name: leave them out, code the name in them, or keep them."""

import pytest

from coder_jax.mapping.coded_list import Answer, Candidate, Status
from coder_jax.mapping.in_context import ContextNormalizer
from data_pipeline.dataset.dictionary import Dictionary

TERMS = {
    "fever": "FEVER",
    "pneumonia": "PNEU",
    "no pain": "NOPAIN",
    "pain": "PAIN",
    "family history of breast cancer": "FHBC",
}


class Strings:
    """A normalizer that knows strings, and that every other mention is 0.8 from its last words."""

    dictionary = Dictionary(list(TERMS), list(TERMS.values()), "toy")

    def write_out(self, mention):
        return mention.replace("NO ", "nitric oxide ")

    def answers(self, mentions, k=1):
        return [self.answer(mention) for mention in mentions]

    def answer(self, mention):
        term = mention.lower()
        if term in TERMS:
            return Answer(mention, Status.EXACT, [Candidate(TERMS[term], term, 1.0)])
        found = [one for one in TERMS if term.endswith(one)]
        if not found:
            return Answer(mention, Status.NO_ANSWER, [], reason="a placeholder")
        near = [Candidate(TERMS[one], one, 0.8) for one in sorted(found, key=len, reverse=True)]
        return Answer(mention, Status.NEAR, near, confidence=0.97)


def answers(mentions, **options):
    return ContextNormalizer(Strings(), **options).answers(mentions)


def test_what_is_denied_or_suspected_has_no_concept():
    no, suspected, plain = answers(["no fever", "rule out pneumonia", "Fever"])
    assert (no.mention, no.concept, no.status) == ("no fever", None, Status.NO_ANSWER)
    assert (no.context, no.reason) == (("negated",), "context: negated")
    assert no.candidates[0].concept == "FEVER"  # what was nearest
    assert (suspected.concept, suspected.context) == (None, ("possible",))
    assert (plain.concept, plain.status, plain.context) == ("FEVER", Status.EXACT, ())


def test_code_looks_the_name_up_and_never_says_exact():
    no, near = answers(["no fever", "no high fever"], mode="code")
    assert (no.mention, no.concept, no.status) == ("no fever", "FEVER", Status.CONTEXT)
    assert (no.candidates[0].similarity, no.context) == (1.0, ("negated",))
    assert (near.concept, near.status, near.confidence) == ("FEVER", Status.CONTEXT, 0.97)


def test_what_a_user_abbreviates_is_no_context():
    own, denied = answers(["NO pneumonia", "no pneumonia"], mode="code")
    assert (own.context, own.status) == ((), Status.NEAR)
    assert (denied.context, denied.status) == (("negated",), Status.CONTEXT)
    assert answers(["no " + "very " * 200 + "fever"])[0].context == (), "a text is no mention"


def test_keep_looks_the_mention_up_as_it_stands():
    (answer,) = answers(["no fever"], mode="keep")
    assert (answer.concept, answer.status, answer.context) == (
        "FEVER",
        Status.CONTEXT,
        ("negated",),
    )
    assert answer.candidates[0].similarity == 0.8


@pytest.mark.parametrize("mode", ["leave-out", "code", "keep"])
def test_a_term_of_the_dictionary_is_a_term(mode):
    mentions = ["No pain", "Family history of breast cancer", "no known", "n/a"]
    pain, family, nothing, placeholder = answers(mentions, mode=mode)
    assert (pain.concept, pain.status, pain.context) == ("NOPAIN", Status.EXACT, ())
    assert (family.concept, family.status, family.context) == ("FHBC", Status.EXACT, ())
    assert nothing.context == placeholder.context == ()


def test_a_near_term_that_says_the_same_context_is_an_answer():
    """The whole is as near to "no pain" as the name to "pain"; and both say that it is denied."""
    (answer,) = answers(["denies no pain"], mode="code")
    assert (answer.concept, answer.context) == ("PAIN", ("possible",))
    (answer,) = answers(["absolutely no pain"])
    assert (answer.concept, answer.status, answer.context) == ("NOPAIN", Status.NEAR, ())
