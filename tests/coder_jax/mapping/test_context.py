"""What a mention says beside the name in it: denied, suspected, of the family, in the past."""

import pytest

from coder_jax.mapping.coded_list import Answer, Candidate, Status
from coder_jax.mapping.context import OWN_RULES, ContextNormalizer, ContextRules, own_rules
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput


@pytest.fixture(scope="module")
def rules():
    return own_rules()


@pytest.mark.parametrize(
    ("mention", "contexts", "name"),
    [
        # denied
        ("no fever", "negated", "fever"),
        ("No evidence of pneumonia", "negated", "pneumonia"),
        ("denies chest pain", "negated", "chest pain"),
        ("Patient denies any fever or chills", "negated", "fever or chills"),
        ("no known hypertension", "negated", "hypertension"),
        ("without fever", "negated", "fever"),
        ("fever: no", "negated", "fever"),
        ("fever (no)", "negated", "fever"),
        ("fever was ruled out", "negated", "fever"),
        ("hepatitis A ruled out", "negated", "hepatitis A"),
        ("HIV negative", "negated", "HIV"),
        ("no, denies fever", "negated", "fever"),
        # two denials one after the other: nobody knows
        ("denies no fever", "possible", "fever"),
        ("not without pain", "possible", "pain"),
        # suspected
        ("rule out pneumonia", "possible", "pneumonia"),
        ("r/o PE", "possible", "PE"),
        ("?pneumonia", "possible", "pneumonia"),
        ("pneumonia ?", "possible", "pneumonia"),
        ("possible pneumonia", "possible", "pneumonia"),
        ("pneumonia not ruled out", "possible", "pneumonia"),
        ("cannot rule out PE", "possible", "PE"),
        ("if fever", "hypothetical", "fever"),
        ("at risk for falls", "hypothetical", "falls"),
        # of the family, in the past
        ("mother had breast cancer", "family", "breast cancer"),
        ("Patient's mother died of MI", "family", "MI"),
        ("FH: breast cancer", "family", "breast cancer"),
        ("breast cancer (mother)", "family", "breast cancer"),
        ("breast cancer, family history", "family", "breast cancer"),
        ("no family history of breast cancer", "negated family", "breast cancer"),
        ("Hx of MI", "history", "MI"),
        ("h/o stroke", "history", "stroke"),
        ("s/p appendectomy", "history", "appendectomy"),
        # the scope of a phrase
        ("no fever but cough", "negated", "fever"),
        ("cough, no fever", "negated", "fever"),
        ("chest pain, r/o MI", "possible", "MI"),
        # German
        ("keine Übelkeit", "negated", "Übelkeit"),
        ("kein Anhalt für Thrombose", "negated", "Thrombose"),
        ("V.a. Pneumonie", "possible", "Pneumonie"),
        ("DD Pneumonie", "possible", "Pneumonie"),
        ("Z.n. Appendektomie", "history", "Appendektomie"),
        ("Z. n. Hüft-TEP rechts", "history", "Hüft-TEP rechts"),
        ("Ausschluss Pneumonie", "negated", "Pneumonie"),
        ("Lungenembolie nicht ausgeschlossen", "possible", "Lungenembolie"),
        ("Mutter hatte Brustkrebs", "family", "Brustkrebs"),
        # French, with and without accents
        ("pas de fièvre", "negated", "fièvre"),
        ("pas d’oedème", "negated", "oedème"),
        ("absence de signe de phlébite", "negated", "phlébite"),
        ("suspicion d'appendicite", "possible", "appendicite"),
        ("Embolie pulmonaire a eliminer", "possible", "Embolie pulmonaire"),
        ("ATCD d'infarctus", "history", "infarctus"),
        ("antécédents familiaux de cancer du sein", "family", "cancer du sein"),
        ("sa mère avait un cancer du sein", "family", "cancer du sein"),
        # Spanish, Portuguese, Italian, Dutch
        ("niega dolor torácico", "negated", "dolor torácico"),
        ("neumonía descartada", "negated", "neumonía"),
        ("apendicitis a descartar", "possible", "apendicitis"),
        ("antecedentes familiares de cáncer de mama", "family", "cáncer de mama"),
        ("antecedentes de infarto", "history", "infarto"),
        ("não apresenta dor", "negated", "dor"),
        ("possivel pneumonia", "possible", "pneumonia"),
        ("mãe com diabetes", "family", "diabetes"),
        ("senza febbre", "negated", "febbre"),
        ("polmonite da escludere", "possible", "polmonite"),
        ("anamnesi positiva per ictus", "history", "ictus"),
        ("geen aanwijzingen voor trombose", "negated", "trombose"),
        ("verdenking op longembolie", "possible", "longembolie"),
        ("status na appendectomie", "history", "appendectomie"),
        # what may be absent, between words
        ("colon cancer runs in the family", "family", "colon cancer"),
        ("colon cancer runs in family", "family", "colon cancer"),
        # a sign for no
        ("fever (-)", "negated", "fever"),
        ("[-] fever", "negated", "fever"),
        ("Ø Fieber", "negated", "Fieber"),
        ("∅ Fieber", "negated", "Fieber"),
        ("fathers' asthma", "family", "asthma"),
        ("keinerlei Schmerzen", "negated", "Schmerzen"),
        # what belongs to the name is not taken off
        ("absence of fever", "negated", "fever"),
        ("absence de fièvre", "negated", "fièvre"),
        ("ausencia de fiebre", "negated", "fiebre"),
        ("assenza di febbre", "negated", "febbre"),
        ("ausência de febre", "negated", "febre"),
        ("ex-smoker", "history", "smoker"),
        ("Ex-Raucher", "history", "Raucher"),
        ("ex fumeur", "history", "fumeur"),
        # as they are abbreviated and spoken
        ("hypertension denied by patient", "negated", "hypertension"),
        ("neg. for malignancy", "negated", "malignancy"),
        ("isn't pregnant", "negated", "pregnant"),
        ("poss. pneumonia", "possible", "pneumonia"),
        ("c/w pneumonia", "possible", "pneumonia"),
        ("rule-out pneumonia", "possible", "pneumonia"),
        ("provisional diagnosis: pneumonia", "possible", "pneumonia"),
        ("Verd. auf Pneumonie", "possible", "Pneumonie"),
        ("a.e. Pneumonie", "possible", "Pneumonie"),
        ("sosp. polmonite", "possible", "polmonite"),
        ("se descarta neumonía", "negated", "neumonía"),
        ("two sisters with breast cancer", "family", "breast cancer"),
        ("breast cancer in first degree relative", "family", "breast cancer"),
        ("Mammakarzinom der Mutter", "family", "Mammakarzinom"),
        ("familiäre Belastung mit Darmkrebs", "family", "Darmkrebs"),
        ("cáncer de mama en madre", "family", "cáncer de mama"),
        ("vader hartinfarct", "family", "hartinfarct"),
        ("prev. stroke", "history", "stroke"),
        ("old MI", "history", "MI"),
        ("anamn. Hepatitis", "history", "Hepatitis"),
        ("AVC ancien", "history", "AVC"),
        ("ictus previo", "history", "ictus"),
        ("ictus pregresso", "history", "ictus"),
        ("st na CVA", "history", "CVA"),
    ],
)
def test_contexts(rules, mention, contexts, name):
    assert rules.read(mention) == (tuple(contexts.split()), name)


@pytest.mark.parametrize(
    "mention",
    """nonspecific abdominal pain|normal heart|Nose bleed|noncompliance|father|family planning
history taking|history of present illness|FH|no|Gram negative sepsis|status epilepticus|falls
mother-to-child transmission|no-reflow phenomenon|asthma without exacerbation|non-smoker|Norovirus
Not otherwise specified|Type 2 diabetes mellitus without complications|no appetite|Absent femur
negative regulation of growth|twin-to-twin transfusion|Vater-Pacini corpuscle|keine Angabe
Historical|Nocturia|Ohnmacht|likely to fall|Epilepsy, unspecified, not intractable
Diabetes mellitus, not stated as uncontrolled|Nicht primär insulinabhängiger Diabetes mellitus
Nicht allergisches Asthma|Spinal TBC|VATER association|MoM hip replacement|IF antibody
NO synthase deficiency|No. 10 blade|Differential blood count|früher Abort|non-Hodgkin lymphoma
Tibia ausente|Arco di cupido assente|Vésicule biliaire absente|Anomalie de la pie-mère|PAS complex
Infection à gram négatif|sepsis por gram negativos|Mort dans l'enfance|Fractura sin especificar
Sans autre indication|hepatitis E|LE edema|Geen diagnose
Transient ischemic attack (TIA)|Stroke, TIA|CVA - TIA|TIA: left hemisphere|SEM grade 2/6|SIN III
Rh (-)|gram (-)|46,XX,del(5)(p-)|placenta previa|old age|Hodgkin ex vivo|absence of kidney
Zn deficiency|ZN stain|meniscus derangement due to old tear|old tuberculin|old scar
(-)-epinephrine|Ø 5 mm|Stent, Ø 3 mm|complete previa|POSS score|WBC, differential: bands|FMH test
zus. Fraktur|remote afterloading|remote memory loss
Plasminogen activator inhibitor (PAI)|Osteomalacia (TIO)|PAI: high""".replace("\n", "|").split("|"),
)
def test_names_that_begin_alike(rules, mention):
    assert rules.read(mention) == ((), mention)


def test_rules_of_a_user_in_an_older_encoding(tmp_path):
    own = tmp_path / "own.tsv"
    own.write_bytes("verdächtig\tpossible\tbefore\rfraglos\tname\r".encode("cp1252"))
    rules = ContextRules([own], "cp1252")
    assert rules.read("verdächtig Pneumonie") == (("possible",), "Pneumonie")


def test_rules_of_a_user_come_beside_the_others(tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text("# ours\nkein (Nachweis|Zeichen) für\tnegated\tbefore\ncave\tpossible\tafter\n")
    rules = ContextRules([*OWN_RULES, own])
    assert rules.read("kein Zeichen für Anämie") == (("negated",), "Anämie")
    assert rules.read("Anämie, cave") == (("possible",), "Anämie")
    assert rules.read("no fever").contexts == ("negated",)
    assert ContextRules([own]).read("no fever").contexts == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no\tnegatd\tbefore", r"own.tsv:1: found \['no', 'negatd', 'before'\].*mean negated"),
        ("no\tnegated", "own.tsv:1: found the place '' of 'no'; expected before or start or after"),
        ("but\tend\tafter", "own.tsv:1: found the place 'after' of 'but'; expected none"),
        ("(no|not\tnegated\tbefore", "own.tsv:1: found '.no.not', whose brackets do not close"),
        ("\tnegated\tbefore", "own.tsv:1: found '', which may be empty; expected a word"),
        ("(maybe|)\tpossible\tbefore", "own.tsv:1: found .*, which may be empty; expected a word"),
    ],
)
def test_broken_rules_name_their_line(tmp_path, line, message):
    (tmp_path / "own.tsv").write_text(line + "\n")
    with pytest.raises(BadInput, match=message):
        ContextRules([tmp_path / "own.tsv"])


# The answer to a mention in context: left out, the name in it coded, or kept.

TERMS = {
    "fever": "FEVER",
    "pneumonia": "PNEU",
    "no pain": "NOPAIN",
    "pain": "PAIN",
    "hiv negative (finding)": "HIVNEG",
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
        if tagged := next((one for one in TERMS if one == f"{term} (finding)"), None):
            return Answer(mention, Status.EXACT, [Candidate(TERMS[tagged], tagged, 1.0)])
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


def test_a_term_whose_tag_hides_the_context_is_a_term():
    (answer,) = answers(["HIV negative"])
    assert (answer.concept, answer.status, answer.context) == ("HIVNEG", Status.EXACT, ())


def test_a_near_term_that_says_the_same_context_is_an_answer():
    """The whole is as near to "no pain" as the name to "pain"; and both say that it is denied."""
    (answer,) = answers(["denies no pain"], mode="code")
    assert (answer.concept, answer.context) == ("PAIN", ("possible",))
    (answer,) = answers(["absolutely no pain"])
    assert (answer.concept, answer.status, answer.context) == ("NOPAIN", Status.NEAR, ())


@pytest.mark.parametrize(
    ("before", "name", "behind", "contexts"),
    [
        ("She denies any ", "pain", " or fever", ("negated",)),
        ("no fever, cough or ", "chills", "", ("negated",)),
        ("no fever but ", "cough", "", ()),
        ("Mother had no ", "pain", "", ("negated", "family")),
        ("", "pneumonia", " was ruled out yesterday", ("negated",)),
        ("", "pneumonia", " was not ruled out", ("possible",)),
        ("", "fever", " , no cough", ()),
        ("", "fever", " no cough", ()),
        ("", "fever", " : no", ("negated",)),
        ("rule out ", "pneumonia", "", ("possible",)),
        ("no ", "no pain", "", ()),  # what it says itself is told when it is answered
        ("a severe ", "pain", " in the limb", ()),
        ("", "pain", "", ()),
    ],
)
def test_the_words_around_a_name_in_a_text(rules, before, name, behind, contexts):
    words = [[f"{one} " for one in text.split()] for text in (before, behind)]
    assert rules.around(words[0], name, words[1]) == contexts


def test_a_context_that_the_text_says_counts_for_a_term_of_the_dictionary(rules):
    class Exact:
        dictionary = Dictionary(["Fever"], ["C1"], "d")

        def write_out(self, mention):
            return mention

        def answers(self, mentions, k=1):
            found = [Candidate("C1", "Fever", 1.0)]
            return [Answer(one, Status.EXACT, found) for one in mentions]

    mentions, around = ["fever", "fever"], [("negated",), ()]
    denied, plain = ContextNormalizer(Exact(), rules).answers(mentions, 1, around)
    assert (denied.concept, denied.context) == (None, ("negated",))
    assert (plain.concept, plain.status, plain.context) == ("C1", Status.EXACT, ())
    coded, _ = ContextNormalizer(Exact(), rules, "code").answers(mentions, 1, around)
    assert (coded.concept, coded.status) == ("C1", Status.CONTEXT)
