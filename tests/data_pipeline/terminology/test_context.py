"""What a mention says beside the name in it: denied, suspected, of the family, in the past."""

import pytest

from data_pipeline.process import BadInput
from data_pipeline.terminology.context import OWN_RULES, ContextRules


@pytest.fixture(scope="module")
def rules():
    return ContextRules()


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
        ("Z.n. Appendektomie", "history", "Appendektomie"),
        ("Z. n. Hüft-TEP rechts", "history", "Hüft-TEP rechts"),
        ("Ausschluss Pneumonie", "negated", "Pneumonie"),
        ("Lungenembolie nicht ausgeschlossen", "possible", "Lungenembolie"),
        ("Mutter hatte Brustkrebs", "family", "Brustkrebs"),
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
NO synthase deficiency|No. 10 blade|Differential blood count|früher Abort""".replace(
        "\n", "|"
    ).split("|"),
)
def test_names_that_begin_alike(rules, mention):
    assert rules.read(mention) == ((), mention)


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
    ],
)
def test_broken_rules_name_their_line(tmp_path, line, message):
    (tmp_path / "own.tsv").write_text(line + "\n")
    with pytest.raises(BadInput, match=message):
        ContextRules([tmp_path / "own.tsv"])
