"""RRF in every packing; and each way in which a release can be broken, by its message."""

import gzip
import zipfile

import polars as pl
import pytest
from tiny_rrf import ATOMS, RELATIONS, tiny_files, write_release

from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.process import BadInput
from data_pipeline.sources.read_source import read_source
from data_pipeline.sources.rrf import _scan, read_retired, read_rrf


def gz_parts(name: str, text: str, size: int) -> dict[str, bytes]:
    """The file in gzipped parts of `size` bytes, which cut lines and UTF-8 sequences anywhere."""
    data = text.encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return {f"{name}.a{chr(97 + i)}.gz": gzip.compress(p) for i, p in enumerate(pieces)}


def all_parts(size: int = 333) -> dict[str, bytes]:
    parts = [gz_parts(name, text, size) for name, text in tiny_files().items()]
    return {name: data for some in parts for name, data in some.items()}


def write_zip(target, members: dict[str, bytes], compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def as_folder(tmp):
    return write_release(tmp / "2020AA" / "META")


def as_parent(tmp):
    return write_release(tmp / "2020AA" / "META").parent


def as_gz(tmp):
    folder = tmp / "2020AA"
    folder.mkdir()
    for name, text in tiny_files().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def as_zip(tmp):
    members = {f"2020AA/META/{name}": text.encode() for name, text in tiny_files().items()}
    write_zip(tmp / "release.zip", members, zipfile.ZIP_DEFLATED)
    return tmp / "release.zip"


def as_nlm_folder(tmp):
    """Parts of one file spread over two .nlm files, as the NLM does it."""
    parts = sorted(all_parts().items())
    folder = tmp / "2020AA-full"
    folder.mkdir()
    for number, members in enumerate((parts[::2], parts[1::2]), start=1):
        inside = {f"2020AA/META/{name}": data for name, data in members}
        write_zip(folder / f"2020aa-{number}-meta.nlm", inside)
    return folder


def as_zip_of_nlm(tmp, compression=zipfile.ZIP_STORED):
    folder = as_nlm_folder(tmp)
    members = {f"2020AA-full/{f.name}": f.read_bytes() for f in folder.iterdir()}
    write_zip(tmp / "umls.zip", members | {"2020AA-full/README.txt": b"read me"}, compression)
    return tmp / "umls.zip"


def as_zip_of_nlm_deflated(tmp):
    return as_zip_of_nlm(tmp, zipfile.ZIP_DEFLATED)


PACKINGS = [
    as_folder, as_parent, as_gz, as_zip, as_nlm_folder, as_zip_of_nlm, as_zip_of_nlm_deflated,
]  # fmt: skip


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_packing_gives_the_same_rows(packing, tmp_path):
    source = read_rrf(packing(tmp_path), tmp_path / "scratch")
    plain = read_rrf(write_release(tmp_path / "plain"), tmp_path / "unused")
    assert source.release == "2020AA"
    assert source.atoms.collect().equals(plain.atoms.collect())
    assert source.relations.collect().equals(plain.relations.collect())
    assert source.types.collect().equals(plain.types.collect())
    assert source.retired.equals(plain.retired)
    assert not (tmp_path / "unused").exists()  # plain files are read where they lie


def test_columns(tmp_path):
    source = read_rrf(write_release(tmp_path), tmp_path / "scratch")
    atoms, relations = source.atoms.collect(), source.relations.collect()
    assert atoms.height == len(ATOMS) and relations.height == len(RELATIONS)
    assert atoms.row(0) == ("C0000001", "ENG", "MSH", "MH", "N", 0, "Heart attack", "0")
    assert atoms["term"][8] == '"Pain" in limb'  # quotes mean nothing in RRF
    assert atoms["rank"].to_list()[:5] == [0, 4, 2, 0, 4]
    assert relations.row(0) == ("C0000002", "CHD", "isa", "C0000001", "MSH", "N")
    assert relations.row(3) == ("C0000001", "RO", "", "C0000003", "MSH", "N")
    assert source.types.collect().row(2) == ("C0000003", "T184 Sign or Symptom")
    assert source.licenses.sort("source").collect().rows() == [
        ("MSH", "UMLS, restriction level 0"),
        ("MSHFRE", "UMLS, restriction level 3"),
        ("SNOMEDCT_US", "UMLS, restriction level 9"),
    ]
    assert source.retired.rows() == [
        ("C0000007", "RB", "C0000003", False),
        ("C0000008", "DEL", "", False),
        ("C0000009", "SY", "C0000002", True),
    ]


def test_no_code_is_none(tmp_path):
    """The UMLS writes NOCODE where a vocabulary has no codes."""
    text = tiny_files()["MRCONSO.RRF"].replace("|MH|0|Heart", "|MH|NOCODE|Heart")
    atoms = read_rrf(write_release(tmp_path, MRCONSO=text), tmp_path / "scratch").atoms
    assert atoms.select("code").collect()["code"].to_list()[:3] == ["", "1", "2"]


def test_the_terms_alone(tmp_path):
    source = read_rrf(write_release(tmp_path) / "MRCONSO.RRF", tmp_path / "scratch")
    assert source.relations is None and source.types is None
    assert "no relations" in source.warnings[0]


def test_windows_line_ends_and_no_last_line_end(tmp_path):
    folder = write_release(tmp_path, MRSTY=tiny_files()["MRSTY.RRF"].replace("\n", "\r\n").rstrip())
    types = _scan(folder / "MRSTY.RRF", "MRSTY").collect()
    assert types["CVF"].unique().to_list() == [""] and types.height == 5
    assert read_rrf(folder, tmp_path / "scratch").types is not None


def broken(tmp_path, **changes) -> str:
    with pytest.raises(BadInput) as error:
        read_rrf(write_release(tmp_path / "META", **changes), tmp_path / "scratch")
    return str(error.value)


def test_missing_source(tmp_path):
    with pytest.raises(BadInput, match="nowhere does not exist; expected a UMLS release"):
        read_rrf(tmp_path / "nowhere", tmp_path / "scratch")


def test_missing_terms(tmp_path):
    message = broken(tmp_path, MRCONSO=None)
    assert "no MRCONSO.RRF at" in message and "expected a UMLS META folder" in message


@pytest.mark.parametrize("name", ["MRREL", "MRSTY"])
def test_missing_table(tmp_path, name):
    message = broken(tmp_path, **{name: None})
    assert f"but no {name}.RRF" in message and "give the MRCONSO.RRF file itself" in message


def test_cut_off_last_line(tmp_path):
    message = broken(tmp_path, MRREL=tiny_files()["MRREL.RRF"][:-20])
    assert "MRREL.RRF, line 11 at its end: the file is cut off: found 8 columns" in message
    assert "expected 16" in message


@pytest.mark.parametrize(("change", "found"), [("|N||", "|N|"), ("|N||", "|N|||")])
def test_wrong_column_count(tmp_path, change, found):
    lines = tiny_files()["MRCONSO.RRF"].splitlines()
    lines[4] = lines[4].replace(change, found)
    message = broken(tmp_path, MRCONSO="\n".join(lines) + "\n")
    columns = 17 if found == "|N|" else 19
    assert f"MRCONSO.RRF, line 5: found {columns} columns, expected 18" in message
    assert "'C0000002|ENG" in message


def test_two_wrong_lines_do_not_make_up_for_each_other(tmp_path):
    lines = tiny_files()["MRSTY.RRF"].splitlines()
    lines[1], lines[2] = lines[1][:-1], lines[2] + "|"
    assert "MRSTY.RRF, line 2: found 5 columns" in broken(tmp_path, MRSTY="\n".join(lines) + "\n")


def test_text_behind_the_last_pipe(tmp_path):
    message = broken(tmp_path, MRSTY=tiny_files()["MRSTY.RRF"].replace("|\n", "|x\n", 1))
    assert "MRSTY.RRF, line 1: found 7 columns, expected 6, each closed by '|'" in message


def test_blank_line(tmp_path):
    message = broken(tmp_path, MRSTY=tiny_files()["MRSTY.RRF"].replace("\n", "\n\n", 1))
    assert "MRSTY.RRF, line 2: found 1 columns, expected 6" in message


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("MRCONSO", "C0000003|ENG|S|", "|ENG|S|", "line 9: CUI is ''; expected 1 to 40 chara"),
        (
            "MRCONSO",
            "|ENG|P|L2|",
            "|english|P|L2|",
            "line 3: LAT is 'english'; expected three lett",
        ),
        ("MRCONSO", "|Old name|0|E|", "|Old name|0|?|", "line 11: SUPPRESS is '?'; expected N, E,"),
        ("MRREL", "|C7777777|", f"|{'C' * 90}|", f"line 8: CUI2 is '{'C' * 80}'; expected 1 to 40"),
        ("MRSTY", "T184", "", "line 3: TUI is ''; expected 1 to 40 characters. Mend the line"),
        ("MRCUI", "|DEL|", "||", "line 2: REL is ''; expected 1 to 40 characters"),
    ],
)
def test_a_value_that_its_column_cannot_have(tmp_path, name, old, new, message):
    text = tiny_files()[f"{name}.RRF"]
    assert old in text
    changed = {name: text.replace(old, new, 1)}
    assert f"{name}.RRF, {message}" in broken(tmp_path, **changed)


def test_bytes_that_are_not_utf8(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "data_pipeline.sources.release_files._CHECKED_BYTES", 200
    )  # lines are counted over chunks
    folder = write_release(tmp_path / "META")
    data = (folder / "MRCONSO.RRF").read_bytes().replace("ë".encode(), b"\xeb")
    (folder / "MRCONSO.RRF").write_bytes(data)
    with pytest.raises(BadInput, match="MRCONSO.RRF, line 13: byte 0xeb is not UTF-8; expected"):
        read_rrf(folder, tmp_path / "scratch")


def test_empty_file(tmp_path):
    assert "MRREL.RRF is empty; expected rows of 16 columns" in broken(tmp_path, MRREL="")


def test_row_counts_of_mrfiles(tmp_path):
    shorter = "\n".join(tiny_files()["MRREL.RRF"].splitlines()[:-1]) + "\n"
    message = broken(tmp_path, MRREL=shorter)
    assert "MRREL.RRF has 10 rows, but MRFILES.RRF lists 11" in message


def test_row_counts_that_are_no_numbers(tmp_path):
    listed = tiny_files()["MRFILES.RRF"].replace("|11|", "|eleven|")
    message = broken(tmp_path, MRFILES=listed)
    assert "MRFILES.RRF lists 'eleven' rows for MRREL.RRF; expected a number" in message


def test_missing_part(tmp_path):
    for name, data in all_parts(size=200).items():
        if name != "MRREL.RRF.ab.gz":
            (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match="MRREL.RRF comes in parts aa, .*but part ab is missing"):
        read_rrf(tmp_path, tmp_path / "scratch")


def test_cut_off_gzip(tmp_path):
    folder = as_gz(tmp_path)
    packed = folder / "MRCONSO.RRF.gz"
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(BadInput, match="MRCONSO.RRF.gz is damaged or cut off"):
        read_rrf(folder, tmp_path / "scratch")


def test_cut_off_zip(tmp_path):
    release = as_zip(tmp_path)
    release.write_bytes(release.read_bytes()[:-200])
    with pytest.raises(BadInput, match="release.zip cannot be read as a zip archive"):
        read_rrf(release, tmp_path / "scratch")


def test_two_releases_in_one_folder(tmp_path):
    write_release(tmp_path / "2019AB")
    write_release(tmp_path / "2020AA")
    with pytest.raises(BadInput, match="holds 2 releases: .*2019AB, .*2020AA; give one"):
        read_rrf(tmp_path, tmp_path / "scratch")


def test_head_of_openmeta(shared_data, tmp_path):
    """Real rows, quotes and eleven scripts in them, cut to a head to be quick."""
    folder = tmp_path / "openmeta"
    folder.mkdir()
    lines = {"MRCONSO": 20_000, "MRREL": 5_000, "MRSTY": 5_000}
    for name, count in lines.items():
        with gzip.open(shared_data / "openmeta" / f"{name}.RRF.gz", "rt", encoding="utf-8") as file:
            head = "".join(line for _, line in zip(range(count), file, strict=False))
        (folder / f"{name}.RRF").write_text(head, encoding="utf-8")
    source = read_rrf(folder, tmp_path / "scratch")
    texts = [line.split("|")[14] for line in (folder / "MRCONSO.RRF").read_text().splitlines()]
    assert source.atoms.collect()["term"].to_list() == texts
    assert source.relations.select(pl.len()).collect().item() == lines["MRREL"]


def test_a_member_that_is_there_twice(tmp_path):
    members = {f"META/{name}": text.encode() for name, text in tiny_files().items()}
    write_zip(tmp_path / "r.zip", members)
    with zipfile.ZipFile(tmp_path / "r.zip", "a") as archive, pytest.warns(UserWarning):
        archive.writestr("META/MRSTY.RRF", "C1|T1|A|b|||\n")
    message = "r.zip: META/MRSTY.RRF is there twice, with 184 and 13 bytes, .*: unpack the right"
    with pytest.raises(BadInput, match=message):
        read_rrf(tmp_path / "r.zip", tmp_path / "scratch")


def test_a_file_that_is_in_two_folders(tmp_path):
    folder = write_release(tmp_path / "a")
    (folder / "old").mkdir()
    (folder / "old" / "MRSTY.RRF").write_text("C1|T1|A|b|||\n")
    message = r"a holds MRSTY.RRF twice: .*a/MRSTY.RRF \(184 bytes\) and .*old/MRSTY.RRF \(13 bytes"
    with pytest.raises(BadInput, match=message):
        read_rrf(folder, tmp_path / "scratch")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, 1, "MRCONSO.RRF is encrypted; expected .* unpack it with the password"),
        (
            2,
            9,
            r"MRCONSO.RRF is packed by a method that cannot be read here \(number 9\); expected",
        ),
    ],
)
def test_members_that_cannot_be_read(tmp_path, place, value, message):
    write_zip(tmp_path / "r.zip", {name: text.encode() for name, text in tiny_files().items()})
    content = bytearray((tmp_path / "r.zip").read_bytes())
    content[content.index(b"PK\x01\x02") + 8 + place] = value  # of its first entry
    (tmp_path / "r.zip").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_rrf(tmp_path / "r.zip", tmp_path / "scratch")


# -------------------------------------------------------------------------------------------------
# RxNorm: the same columns under other names, of which some are always empty.

RXNCONSO = """\
161|ENG||||||8717795||161||MMSL|CD|161|Acetaminophen tab||N||
161|ENG||||||1||161||RXNORM|SY|161|APAP||N|4096|
161|ENG||||||2||161||RXNORM|IN|161|acetaminophen||N|4096|
161|ENG||||||3||161||RXNORM|TMSY|161|acetaMINOPHEN||O||
202433|ENG||||||4||202433||RXNORM|BN|202433|Tylenol||N|4096|
"""
RXNREL = """\
161||CUI|RN|202433||CUI|tradename_of|5||RXNORM|RXNORM|||N||
202433||CUI|RB|161||CUI|has_tradename|6||RXNORM|RXNORM|||N||
|8717795|AUI|SY||2|AUI||7||MMSL|MMSL|||N||
"""
RXNSTY = "161|T121|A1.4.1.1.1|Pharmacologic Substance|||\n"


@pytest.fixture
def rxnorm(tmp_path):
    folder = tmp_path / "RxNorm_full_11032025" / "rrf"
    folder.mkdir(parents=True)
    for name, text in {"RXNCONSO": RXNCONSO, "RXNREL": RXNREL, "RXNSTY": RXNSTY}.items():
        (folder / f"{name}.RRF").write_text(text)
        (folder / f"{name.lower()}.old.sql").write_text("no data")
    return folder


def read_back(root, tmp_path):
    source = read_source(root, tmp_path / "scratch")
    atoms = source.atoms.sort("cui", "rank").select("cui", "source", "term", "rank", "suppress")
    relations = source.relations
    return (
        source,
        atoms.collect().rows(),
        [] if relations is None else relations.collect().rows(),
    )


def test_rxnorm_with_its_relations(rxnorm, tmp_path):
    source, atoms, relations = read_back(rxnorm, tmp_path)
    assert (source.name, source.release) == ("rxnorm", "RxNorm_full_11032025")
    assert atoms == [
        ("161", "RXNORM", "acetaminophen", 0, "N"),
        ("161", "RXNORM", "APAP", 1, "N"),
        ("161", "RXNORM", "acetaMINOPHEN", 1, "O"),
        ("161", "MMSL", "Acetaminophen tab", 2, "N"),
        ("202433", "RXNORM", "Tylenol", 0, "N"),
    ]
    assert relations == [
        ("161", "RN", "tradename_of", "202433", "RXNORM", "N"),
        ("202433", "RB", "has_tradename", "161", "RXNORM", "N"),
    ], "relations of atoms are none of concepts"
    assert source.types.collect().rows() == [("161", "T121 Pharmacologic Substance")]


def test_rxnorm_zipped_with_what_is_prescribed(rxnorm, tmp_path):
    members = {f"rrf/{path.name}": path.read_bytes() for path in rxnorm.iterdir()}
    members |= {
        f"prescribe/rrf/{path.name}": path.read_bytes().partition(b"\n")[0] + b"\n"
        for path in rxnorm.iterdir()
    }
    write_zip(tmp_path / "RxNorm.zip", members)
    assert read_back(tmp_path / "RxNorm.zip", tmp_path)[1:] == read_back(rxnorm, tmp_path)[1:]


def test_rxnconso_alone_is_a_dictionary(rxnorm, tmp_path):
    source, atoms, relations = read_back(rxnorm / "RXNCONSO.RRF", tmp_path)
    assert len(atoms) == 5 and not relations
    assert source.warnings == ("RXNCONSO.RRF was given alone: no relations, no semantic types",)
    dictionary = read_dictionary(rxnorm / "RXNCONSO.RRF")
    assert list(zip(dictionary.terms, dictionary.concepts, strict=True)) == [
        ("acetaminophen", "161"),
        ("APAP", "161"),
        ("Acetaminophen tab", "161"),
        ("Tylenol", "202433"),
    ]
    about = dictionary.about("161")
    assert about.preferred == "acetaminophen" and about.types == ("T121 Pharmacologic Substance",)


def test_rxnorm_without_its_relations(rxnorm, tmp_path):
    (rxnorm / "RXNREL.RRF").unlink()
    with pytest.raises(BadInput, match="but no RXNREL.RRF.* give the RXNCONSO.RRF file itself"):
        read_source(rxnorm, tmp_path / "scratch")


def test_rxncui_says_what_to_give_instead(tmp_path):
    path = tmp_path / "RXNCUI.RRF"
    path.write_text("1000|2|20AA|1|1001|\n")
    with pytest.raises(BadInput, match="found RxNorm's RXNCUI; expected MRCUI, or lines of old"):
        read_retired(path)
