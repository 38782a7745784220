"""A small MANTRA GSC, as brat files and as XML."""

from data_pipeline.dataset.dictionary import Dictionary

DICTIONARY = Dictionary(
    ["pain", "cough", "fever", "wrist"],
    ["C0000001", "C0000002", "C0000003", "C0000004"],
    "toy.tsv",
)
TEXT = "Douleur et toux de la main gauche."
ANN = (
    "T1\tC0000001 0 7\tDouleur\n"
    '#1\tAnnotatorNotes T1\t"C0000001", "Pain", "Sign or Symptom" ,"DISO"\n'
    "T2\tC0000004 22 26\tmain\nT3\tC0000009 22 26\tmain\n"
    "T4\tC0000002 11 15;22 26\ttoux main\n"
)
XML = f"""<?xml version="1.0" encoding="UTF-8"?>
<Corpus id="Medline" lang="fr"><document id="d1"><unit id="d1.u1"><text>{TEXT}</text>
<e offset="0" len="7" cui="C0000001" type="Sign or Symptom" grp="DISO">Douleur</e>
<e offset="22" len="4" cui="C0000004" grp="ANAT">main</e>
<e offset="22" len="4" cui="C0000009" grp="ANAT">main</e></unit>
<unit id="d1.u2"><text>Toux</text><e offset="0" len="4" cui="C0000002" grp="DISO">Toux</e></unit>
<unit id="d1.u3"><text>Rien</text></unit></document></Corpus>
"""


def write_brat(folder):
    """The corpus as brat files; returns its folder."""
    folder = folder / "Mantra-GSC"
    french = folder / "French" / "Medline_EN_FR_ec22-cui-best_man"
    french.mkdir(parents=True)
    (french / "0001_d1.u1.txt").write_text(TEXT)
    (french / "0001_d1.u1.ann").write_text(ANN)
    (french / "0002_d2.u1.txt").write_text("Rien")
    (french / "0002_d2.u1.ann").write_text("")
    return folder
