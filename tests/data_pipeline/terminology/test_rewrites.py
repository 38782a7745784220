"""Names rewritten as people write them: each kind, what is never written, and that it is fixed."""

import numpy as np
import pytest

from data_pipeline.batches.order import key
from data_pipeline.terminology.rewrites import KINDS, Rewriter

NAMES = [  # of each concept those up to the next
    ("magnetic resonance imaging (MRI)", 0),
    ("chronic kidney disease", 1),
    ("CKD", 1),
    ("ischaemic stroke", 2),
    ("ischemic stroke", 2),
    ("left kidney", 3),
    ("right kidney", 4),
    ("fracture of femur", 5),
    ("femoral fracture", 5),
    ("femur neoplasm", 6),
    ("other femur neoplasm", 7),
    ("neoplasms of femur", 8),
    ("contusion of skin", 9),
    ("contact dermatitis", 10),
    ("CD", 10),
    ("Crohn disease", 11),
    ("CD", 11),
]


@pytest.fixture(scope="module")
def rewriter():
    names, concepts = zip(*NAMES, strict=True)
    return Rewriter(names, np.array(concepts))


def forms(rewriter, name, language="ENG", tries=600):
    """Each kind with all that it makes of a name."""
    random = key(7, "permutation", np.arange(tries))
    found = {}
    names = [name] * tries
    for kind, written in zip(*rewriter(names, [language] * tries, random)[::-1], strict=True):
        found.setdefault(kind, set()).add(written)
    return found


def test_abbreviations_that_the_terminology_has(rewriter):
    found = forms(rewriter, "acute chronic kidney disease")
    assert found["abbreviation"] == {"acute CKD"}
    assert forms(rewriter, "stage 5 CKD")["abbreviation"] == {"stage 5 chronic kidney disease"}
    # One that is explained is not written twice.
    explained = "fetal magnetic resonance imaging (MRI) scan"
    assert forms(rewriter, explained)["abbreviation"] == {"fetal MRI scan"}
    # CD stands for two things, and so for none; both may be written so.
    assert "abbreviation" not in forms(rewriter, "acute CD")
    assert forms(rewriter, "acute Crohn disease")["abbreviation"] == {"acute CD"}


def test_spelling_sides_and_plurals(rewriter):
    assert forms(rewriter, "Ischaemic colitis")["spelling"] == {"Ischemic colitis"}
    assert forms(rewriter, "ischemic colitis")["spelling"] == {"ischaemic colitis"}
    assert "spelling" not in forms(rewriter, "haematoma"), "the terminology has it in one spelling"
    sides = forms(rewriter, "kidney stone")["side"]
    assert {"left kidney stone", "kidney stone, right", "kidney stone left"} <= sides
    assert "side" not in forms(rewriter, "skin lesion"), "it shows no left and right skin"
    sides = forms(rewriter, "pain of left arm")["side"]
    assert {"pain of lt arm", "pain of L arm", "pain of arm, left", "pain of arm (lt.)"} <= sides
    assert forms(rewriter, "biopsy of skin")["plural"] == {"biopsies of skin"}
    assert forms(rewriter, "skin boxes")["plural"] == {"skin box"}
    assert "plural" not in forms(rewriter, "sinusitis")


def test_word_order_and_unspecified(rewriter):
    assert forms(rewriter, "lesion of the skin")["word order"] == {
        "skin lesion",
        "lesion, skin",
        "skin, lesion",
    }
    assert forms(rewriter, "chronic skin lesion")["word order"] == {"lesion, chronic skin"}
    assert forms(rewriter, "burn, hand, left")["word order"] == {"left hand burn"}
    assert "word order" not in forms(rewriter, "pain, not in limb")
    assert "word order" not in forms(rewriter, "hepatitis B")
    assert forms(rewriter, "skin lesion")["unspecified"] == {
        "skin lesion, unspecified",
        "skin lesion NOS",
        "unspecified skin lesion",
        "skin lesion, other",
    }
    assert forms(rewriter, "skin lesion, NOS")["unspecified"] == {"skin lesion"}


def test_one_typing_error_in_a_long_word(rewriter):
    found = forms(rewriter, "big lesion")["typing error"]
    one_away = {"big leison", "big lesin", "big lession", "big lesiom"}
    assert one_away & found
    assert all(name.startswith("big l") for name in found)
    assert all(abs(len(name) - len("big lesion")) <= 1 for name in found)
    assert "typing error" not in forms(rewriter, "short words only NSCLCX")
    assert "typing error" not in forms(rewriter, "хроническая боль"), "no keyboard here has them"


def test_other_languages_have_fewer_kinds(rewriter):
    found = forms(rewriter, "œdème aigu", "FRE")
    assert set(found) == {"accents"} and found["accents"] == {"oedeme aigu"}
    found = forms(rewriter, "Überdruck", "GER")
    assert found["accents"] == {"Ueberdruck", "Uberdruck"} and "typing error" in found
    assert set(forms(rewriter, "lésion, peau", "FRE")) <= set(KINDS[:4])
    assert forms(rewriter, "心筋梗塞", "JPN") == {"": {"心筋梗塞"}}


def test_never_a_name_of_another_concept(rewriter):
    """Nor one of its own: neither "femur, neoplasms" nor "femur neoplasm" teaches anything."""
    for name in ("femur neoplasm", "fracture of femur", "left kidney", "contusion of skin"):
        found = {written.lower() for made in forms(rewriter, name).values() for written in made}
        assert not found & {other.lower() for other, _ in NAMES} - {name}
    plurals = forms(rewriter, "femur neoplasm").get("plural", set())
    assert not plurals, "that has the words of another concept's name"
    assert "side" not in forms(rewriter, "kidney"), "left kidney is another concept"


def test_a_name_is_written_the_same_whatever_stands_beside_it(rewriter):
    names = ["kidney stone", "lesion of the skin", "x", "burn, hand"] * 5
    random = key(3, "permutation", np.arange(len(names)))
    whole = rewriter(names, ["ENG"] * len(names), random)
    alone = [rewriter([name], ["ENG"], random[row : row + 1]) for row, name in enumerate(names)]
    assert whole[0] == [written for (written,), _ in alone]
    assert whole[1] == [kind for _, (kind,) in alone]
    assert len(set(whole[0])) > 8
    assert rewriter([], [], random[:0]) == ([], [])
