"""A coded list of 2,000 mentions, made-up ones and some that look like markup or formulas."""

from coder_jax.mapping.coded_list import Answer, Candidate, Status
from data_pipeline.dataset.dictionary import AboutConcept, Dictionary

ROWS = 2000
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    '=HYPERLINK("http://x", "click, please")',
    "'=1+1",
    "-5 mg; per day",
    "two\nlines and a \ttab",
    " <!-- {{ 7 * 7 }} \u2028 µ 痛み ",
]
PARTS = ["heart", "liver", "kidney", "spine", "skin", "eye", "lung", "ear", "hand", "foot"]
KINDS = ["pain", "tumour", "fracture", "infection", "atrophy"]
STATUSES = [Status.EXACT, Status.NEAR, Status.NEAR, Status.TIED, Status.NO_ANSWER]


def toy_dictionary(concepts=3000):
    """Of each concept two terms: C0000 is "Heart pain 0000", its codes are M0 and I0.1."""
    names = [f"{PARTS[i % 10].capitalize()} {KINDS[i // 10 % 5]} {i:04}" for i in range(concepts)]
    ids = [f"C{i:04}" for i in range(concepts)]
    about = {
        concept: AboutConcept(name, (("MSH", f"M{i}"), ("ICD10", f"I{i}.1")), (f"T{i % 7} Kind",))
        for i, (concept, name) in enumerate(zip(ids, names, strict=True))
    }
    terms = [term for i, name in enumerate(names) for term in (name, f"syndrome of {name}")]
    return Dictionary(
        terms, [one for one in ids for _ in range(2)], "toy.tsv", about_concepts=about
    )


def toy_answers(rows=ROWS):
    """Row i has the status STATUSES[i % 5] and three candidates from C(i) on."""
    names = toy_dictionary().terms[::2]
    answers = []
    for i in range(rows):
        mention = HOSTILE[i] if i < len(HOSTILE) else f"{names[i].lower()} of unit {i}"
        status = STATUSES[i % len(STATUSES)]
        similarity = round(1 - i / rows, 4)
        candidates = [
            Candidate(f"C{i + step:04}", names[i + step], similarity - step / 100)
            for step in range(3)
        ]
        if i % 10 == 9:  # a placeholder, which is not looked up
            candidates = []
        reason = "below 0.5" if candidates else "a placeholder"
        reason = reason if status == Status.NO_ANSWER else ""
        answers.append(Answer(mention, status, candidates, int(status == Status.TIED), reason))
    return answers


def toy_columns(rows=ROWS):
    return {
        "ward": [f"ward {i % 4} <b>" for i in range(rows)],
        "seen": [str(i) for i in range(rows)],
    }
