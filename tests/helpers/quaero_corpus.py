"""A small QUAERO corpus, made up, with the odd cases of the real one."""

LEAFLET = (
    "EMEA / H / C / 0\n Qu ’ est ce que Douxium ?\n Douxium traite les métastases hépatiques , "
    "les douleurs chroniques ou du dos , et donne somnolence .\n"
)
TITLE = "Fractures des sinus de la face et brûlures."


def line(number, group, text, words, note=None, spans=None):
    """A mention, where its words first stand in the text, and its note."""
    start = text.index(words) if spans is None else 0
    places = spans or f"{start} {start + len(words)}"
    mention = f"T{number}\t{group} {places}\t{words}\n"
    return mention + ("" if note is None else f"#{number}\tAnnotatorNotes T{number}\t{note}\n")


def at(text, *pieces):
    """The places of pieces of a mention, in the order given."""
    return ";".join(f"{text.index(one)} {text.index(one) + len(one)}" for one in pieces)


def leaflet():
    """Nested, in pieces, of two CUIs, and one place of two groups."""
    gaps = at(LEAFLET, "douleurs", "du dos")
    return "".join(
        [
            line(1, "CHEM", LEAFLET, "Douxium", "C0000001"),
            line(2, "DISO", LEAFLET, "métastases hépatiques", "C0494165"),
            line(3, "ANAT", LEAFLET, "hépatiques", "C0023884"),
            line(4, "DISO", LEAFLET, "douleurs chroniques", "C0150055"),
            line(5, "DISO", LEAFLET, "douleurs du dos", "C0004604", gaps),
            line(6, "DISO", LEAFLET, "somnolence", "C0013144 C2830004"),
            line(7, "PHYS", LEAFLET, "somnolence", "C0013144"),
        ]
    )


def title():
    """Pieces out of order, two CUIs with a comma, mistyped ones, and no note."""
    turned = at(TITLE, "sinus de la face", "Fractures")
    return "".join(
        [
            line(1, "DISO", TITLE, "Fractures", "C001665"),
            line(2, "DISO", TITLE, "sinus de la face Fractures", "C0272460", turned),
            line(3, "DISO", TITLE, "brûlures", "C0006434,C0274287"),
            line(4, "ANAT", TITLE, "sinus", " C0030471"),
            line(5, "ANAT", TITLE, "face", "C0015450\t  "),
            line(6, "ANAT", TITLE, "sinus de la face"),
            line(7, "ANAT", TITLE, "la face", ""),
        ]
    )


def write_quaero(folder):
    """train and dev, EMEA and MEDLINE, of the folder QUAERO_FrenchMed, which is returned."""
    root = folder / "QUAERO_FrenchMed"
    for one in ("train", "dev"):
        for part, name, text, ann in (
            ("EMEA", "318_2", LEAFLET, leaflet()),
            ("MEDLINE", "1050806", TITLE, title()),
        ):
            document = root / "corpus" / one / part / name
            document.parent.mkdir(parents=True)
            document.with_suffix(".txt").write_text(text)
            document.with_suffix(".ann").write_text(ann)
            # An editor's copy, which is never read.
            document.with_suffix(".ann~").write_text("T1\tDISO 0 900\tbroken\n")
    (root / "README.txt").write_text("made up")
    return root
