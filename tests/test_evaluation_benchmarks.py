"""Benchmark and dictionary files: what is read from each format, and each message for bad input."""

from pathlib import Path

import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from coder_jax.evaluation.dictionary import Dictionary, read_dictionary
from coder_jax.evaluation.retired_cuis import choose_list, read_retired_cuis
from data_pipeline.errors import BadInput

DICTIONARY = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("header", ["", "mention\tCUI\n", "\ufeffMention\tcui\r\n"])
def test_mentions(write, header):
    # U+0085 and U+2028 are no line ends, and quotes are ordinary characters.
    path = write("m.tsv", header + 'so"re\u0085ness\tC1\r\nhot\u2028head\tC1|C2\n\n"x"\tC9\n')
    benchmark = read_benchmark("toy", path, dictionary=DICTIONARY)
    (fold,) = benchmark.folds
    assert fold.mentions == ['so"re\u0085ness', "hot\u2028head", '"x"']
    assert fold.gold == ["C1", "C1|C2", "C9"]
    assert fold.dictionary is DICTIONARY


def test_a_mention_called_term_is_no_header(write):
    path = write("m.tsv", "term\tC1\nlabour\tC2\n")
    assert read_benchmark("toy", path, dictionary=DICTIONARY).folds[0].mentions[0] == "term"


def test_dictionary_beside_the_mentions(write):
    path = write("heldout/mentions.tsv", "mention\tCUI\nsore\tC1\n")
    with pytest.raises(
        BadInput, match=r"no dictionary to search; expected .*heldout/dictionary.tsv"
    ):
        read_benchmark("toy", path)
    write("heldout/dictionary.tsv", "term\tCUI\npain\tC1\nfever\tC2\n")
    for given in (path, path.parent):
        fold = read_benchmark("toy", given).folds[0]
        assert fold.dictionary.terms == ["pain", "fever"]
        assert fold.dictionary.concepts == ["C1", "C2"]


def test_retired_cuis_of_gold_and_dictionary(write):
    retired = read_retired_cuis(write("r.tsv", "old\tnew\nC7\tC8\nC8\tC2\nC5\tC6\nC1\tC4\n"))
    assert retired.successor == {"C7": "C2", "C8": "C2", "C5": "C6", "C1": "C4"}
    path = write("m.tsv", "a\tC7\nb\tC1|C8\nc\tC2\nd\tC8|C7\n")
    plain = read_benchmark("toy", path, dictionary=DICTIONARY)
    benchmark = read_benchmark("toy", path, dictionary=DICTIONARY, retired_cuis=retired)
    (fold,) = benchmark.folds
    assert fold.gold == ["C2", "C4|C2", "C2", "C2"]
    assert fold.dictionary.concepts == ["C4", "C4", "C2"]
    assert (benchmark.retired, fold.dictionary.retired) == (3, 2)
    assert benchmark.content_hash == plain.content_hash, "of the file as it is"
    assert benchmark.retired_cuis is retired
    assert (plain.retired, plain.folds[0].dictionary.retired) == (0, 0)


def test_a_dictionary_as_old_as_the_gold(write):
    # The list is newer than both: what they share they still share, and merged concepts are one.
    retired = read_retired_cuis(write("r.tsv", "C1\tC9\nC2\tC9\n"))
    path = write("m.tsv", "a\tC1\nb\tC2\n")
    (fold,) = read_benchmark("toy", path, dictionary=DICTIONARY, retired_cuis=retired).folds
    assert fold.gold == ["C9", "C9"] and fold.dictionary.concept_set == {"C9"}


ROWS = ["C1|SY|C5", "C2|RO|C6", "C3|DEL|", "C5|SY|C9", "C6|RB|C1", "C6|SY|C2", "C7|RN|C1"]
SPLIT = ["C4|SY|C7", "C4|SY|C8"]


def test_only_merges_count_of_a_dataset(write):
    rows = [f"{row}|{str('|SY|' in row).lower()}".replace("|", "\t") for row in [*ROWS, *SPLIT]]
    path = write("r.tsv", "\n".join(["retired\trelation\tcui\tmerged", *rows]))
    assert read_retired_cuis(path).successor == {"C1": "C9", "C5": "C9", "C6": "C2"}


def test_only_merges_count_of_mrcui(write):
    rows = [row.split("|") for row in [*ROWS, *SPLIT]]
    lines = [f"{old}|2019AA|{rel}|||{new}|{'Y' if new else ''}|\r\n" for old, rel, new in rows]
    path = write("MRCUI.RRF", "".join(lines))
    retired = read_retired_cuis(path)
    assert retired.successor == {"C1": "C9", "C5": "C9", "C6": "C2"}
    assert retired.source == str(path) and len(retired.content_hash) == 64
    with pytest.raises(BadInput, match=r"MRCUI.RRF:2: found 'C2.*'; expected the columns CUI1.VER"):
        read_retired_cuis(write("MRCUI.RRF", lines[0] + "C2|2019AA|SY|||C3|\n"))


def test_which_list_counts(tmp_path, write):
    write("data/retired_cuis.tsv", "C1\tC2\n")
    own = tmp_path / "data" / "retired_cuis.tsv"
    assert choose_list(None, str(tmp_path / "data")) == own
    assert choose_list("r.tsv", str(tmp_path / "data")) == Path("r.tsv")
    assert choose_list("none", str(tmp_path / "data")) is None
    assert choose_list(None, None) is choose_list(None, str(own)) is None


def test_retired_cuis_that_cannot_be_used(write):
    with pytest.raises(BadInput, match=r"r.tsv:2: found 1 columns \('C2'\); expected 2: old CUI"):
        read_retired_cuis(write("r.tsv", "C1\tC3\nC2\n"))
    with pytest.raises(BadInput, match=r"r.tsv:1: found an empty column; expected two CUIs"):
        read_retired_cuis(write("r.tsv", "\tC3\n"))
    with pytest.raises(BadInput, match=r"leads back to itself \(C1 -> C2 -> C1\).*remove the row"):
        read_retired_cuis(write("r.tsv", "C1\tC2\nC2\tC1\n"))
    with pytest.raises(BadInput, match=r"leads back to itself \(C3 -> C3\)"):
        read_retired_cuis(write("r.tsv", "C3\tC3\n"))


def test_folds(write, tmp_path):
    for fold, mention in (("fold_2", "sore"), ("fold_1", "hot")):
        write(f"set/{fold}/test.txt", f"1\t{mention}\r\n")
        write(f"set/{fold}/standard.txt", "1\tpain\r\n2\tfever\r\n")
        write(f"set/{fold}/train.txt", b"\xff broken, and never read")
    write("set/README.md", "not a fold")
    benchmark = read_benchmark("toy", tmp_path / "set")
    assert [fold.name for fold in benchmark.folds] == ["fold_1", "fold_2"]
    assert [fold.mentions for fold in benchmark.folds] == [["hot"], ["sore"]]
    assert benchmark.folds[0].dictionary.terms == ["pain", "fever"]
    one = read_benchmark("toy", tmp_path / "set" / "fold_1")
    assert [fold.mentions for fold in one.folds] == [["hot"]]


@pytest.mark.parametrize(
    "name, content",
    [
        ("p.txt", "glaucoma\tfibrillation\t279\r\nherpes\tzona\t800.5\r\n"),
        ("p.tsv", "term1\tterm2\tscore\nglaucoma\tfibrillation\t279\nherpes\tzona\t800.5\n"),
        ("p.csv", 'Mean,Stdev,Term1,Term2\n279,1,glaucoma,fibrillation\n800.5,2,"herpes",zona\n'),
        ("p.csv", 'TERM1,"TERM2","Mean"\nglaucoma,fibrillation,279\nherpes,zona,800.5\n'),
    ],
)
def test_pairs(write, name, content):
    benchmark = read_benchmark("toy", write(name, content))
    assert benchmark.first == ["glaucoma", "herpes"]
    assert benchmark.second == ["fibrillation", "zona"]
    assert benchmark.scores == [279, 800.5]


@pytest.mark.parametrize(
    "content, message",
    [
        ("", r"m.tsv: found no lines; expected tab-separated rows"),
        ("mention\tCUI\n", r"m.tsv: found a header and no rows; expected mention<TAB>CUI"),
        ("sore\tC1\nhot\n", r"m.tsv:2: found 1 columns; expected 2: mention<TAB>CUI"),
        ("sore\tC1\nhot\t \n", r"m.tsv:2: found an empty column; expected mention<TAB>CUI"),
        (b"sore\tC1\nh\xe4mat\tC1\n", r"m.tsv:2: found byte 0xe4, which is not UTF-8; convert"),
        ("one column\n", r"(?s)m.tsv:1: found 1 tab-separated columns; expected one of.*folds:"),
        ("a\tb\tc\td\n", r"(?s)m.tsv:1: found 4 tab-separated columns; expected one of.*pairs:"),
        (
            "C1\tsore\n",
            r"none of the gold concepts of 1 mentions \(such as 'sore' of 'C1'\) in the ",
        ),
        ("a\tb\tisa\nc\td\tisa\n", r"m.tsv:2: found 'c', 'd', 'isa'; expected two terms and a num"),
        ("a\tb\t1\nc\td\n", r"m.tsv:2: found 2 columns; expected 3: term1<TAB>term2<TAB>score"),
        (
            "a\tb\t1\nc\td\tnan\n",
            r"m.tsv:2: found 'c', 'd', 'nan'; expected two terms and a number",
        ),
        ("a\tb\t1\nc\td\t1\n", r"2 pairs with 1 distinct scores; expected 2 or more"),
        (
            "Mean,Term1\n1,a\n",
            r"m.tsv:1: found the columns Mean, Term1, without Term2; expected Te",
        ),
    ],
)
def test_files_that_cannot_be_used(write, content, message):
    path = write("m.tsv", content)
    with pytest.raises(BadInput, match=message):
        read_benchmark("toy", path, dictionary=DICTIONARY)


def test_folders_that_cannot_be_used(write, tmp_path):
    with pytest.raises(BadInput, match="absent.tsv: cannot be read .No such file or directory"):
        read_benchmark("toy", tmp_path / "absent.tsv")
    with pytest.raises(BadInput, match="found a folder with nothing; expected one of"):
        read_benchmark("toy", tmp_path)
    write("notes.md", "x")
    with pytest.raises(BadInput, match="found a folder with notes.md; expected one of"):
        read_benchmark("toy", tmp_path)
    write("fold/test.txt", "1\thot\n")
    with pytest.raises(BadInput, match="fold/standard.txt: cannot be read .No such file"):
        read_benchmark("toy", tmp_path)


def test_quotes_of_a_spreadsheet_are_taken_off_folds(write, tmp_path):
    """As in PsyTar's files; a field that no CSV writer would have made stays as it is."""
    rows = ['"became ""flat"""', '"weak, tired"', '"x" and "y"', 'say "x"', '"', "flat"]
    write("fold_1/test.txt", "".join(f"7\t{row}\n" for row in rows))
    write("fold_1/standard.txt", '7\tFlat affect\n8\t"fear, mental"\n')
    benchmark = read_benchmark("psytar", tmp_path)
    (fold,) = benchmark.folds
    expected = ['became "flat"', "weak, tired", '"x" and "y"', 'say "x"', '"', "flat"]
    assert fold.mentions == expected and benchmark.quoted == 2
    assert fold.dictionary.terms == ["Flat affect", "fear, mental"]


@pytest.mark.parametrize("end", ["", "_with_context"])
def test_xl_bel(write, tmp_path, end):
    context = "||Eine <tgt>Armeria</tgt> || ist" if end else ""
    write(f"x/de_1k_test_query{end}.txt", f"C1||Armeria{context}\nC2|C9||Trichter-{context}\n")
    write(f"x/ja_1k_test_query{end}.txt", f"C2||リウマチ関節炎{context}\n")
    write(f"x/all_1k_test_query{end}.txt", f"C2||リウマチ関節炎{context}\n")
    terms = read_dictionary(write("umls.txt", "C1||Armeria\nC2||funnel | tub\nC2|C3||arthritis\n"))
    assert terms.terms == ["Armeria", "funnel | tub", "arthritis"]
    assert terms.concepts == ["C1", "C2", "C2|C3"]
    german, japanese = read_benchmark("xl", tmp_path / "x", dictionary=terms).folds
    assert (german.name, german.mentions) == ("de", ["Armeria", "Trichter-"])
    assert german.gold == ["C1", "C2|C9"]
    assert (japanese.name, japanese.mentions) == ("ja", ["リウマチ関節炎"])
    only = tmp_path / "x" / f"de_1k_test_query{end}.txt"
    assert read_benchmark("xl", only, dictionary=terms).folds[0].gold == german.gold
    with pytest.raises(BadInput, match="found XL-BEL and no dictionary to search; give --dict"):
        read_benchmark("xl", only)
    only.write_text("C1||Armeria\nC2\n")
    with pytest.raises(BadInput, match=r"query.*txt:2: found 'C2'; expected CUI\|\|mention or"):
        read_benchmark("xl", only, dictionary=terms)


def test_pairs_of_the_authors(write):
    mayo = read_benchmark(
        "mayo",
        write(
            "MayoSRS.csv",
            '"Mean","CUI1","CUI2","TERM1","TERM2"\r\n6.5,"C1","C2","gait, antalgic","limp"\r\n'
            '1,"C3","C4","rheumatoid nodule","nevus"\r\n',
        ),
    )
    assert mayo.first == ["gait, antalgic", "rheumatoid nodule"]
    assert (mayo.scores, mayo.concepts) == ([6.5, 1], (["C1", "C3"], ["C2", "C4"]))
    assert mayo.keys("concepts") == mayo.concepts and mayo.keys("terms")[1] == ["limp", "nevus"]
    rows = ["Physicians,Coders,CUI1,CUI2,TERM1,TERM2", "4,3,C1,C1,Heart,Cor", "1,2,C2,C3,Skin,Toe"]
    mini = read_benchmark("mini", write("MiniMayoSRS.csv", "\n".join(rows)))
    assert mini.scores == [3.5, 1.5]
    assert mini.groups == {"physicians": [4, 1], "coders": [3, 2]}
    plain = read_benchmark("toy", write("p.tsv", "a\tb\t1\nc\td\t2\n"))
    with pytest.raises(BadInput, match="p.tsv: found no CUIs, and concept vectors to compare"):
        plain.keys("concepts")
    with pytest.raises(BadInput, match=r"MiniMayoSRS.csv:3: found 'Skin', 'Toe', '1', ''; expect"):
        read_benchmark("mini", write("MiniMayoSRS.csv", "\n".join(rows).replace("1,2", "1,")))


def test_dictionaries_that_cannot_be_used(write, tmp_path):
    with pytest.raises(
        BadInput, match="a folder without manifest.json; expected a dictionary: a TSV"
    ):
        read_dictionary(tmp_path)
    path = write("d.tsv", "pain\tC1\n")
    with pytest.raises(
        BadInput, match=r"found a file, and a choice of languages \(ENG\); expected a"
    ):
        read_dictionary(path, ["ENG"])
    with pytest.raises(BadInput, match="d.tsv:1: found 3 columns; expected 2: term<TAB>CUI"):
        read_dictionary(write("d.tsv", "pain\tC1\tENG\n"))


def test_hashes_ignore_order_and_see_each_change(write):
    rows = ["sore\tC1\n", "hot\tC2\n", "cold\tC2\n"]

    def hashes(rows):
        benchmark = read_benchmark("toy", write("m.tsv", "".join(rows)), dictionary=DICTIONARY)
        dictionary = read_dictionary(write("d.tsv", "".join(rows)))
        return benchmark.content_hash, dictionary.content_hash

    first = hashes(rows)
    assert hashes(rows[::-1]) == first
    for changed in (["Sore\tC1\n", *rows[1:]], ["sore\tC2\n", *rows[1:]], rows[1:]):
        assert all(a != b for a, b in zip(hashes(changed), first, strict=True))
    # A row that is there twice says nothing new in a dictionary, and is a mention more.
    twice = hashes([*rows, rows[0]])
    assert twice[1] == first[1]
    assert twice[0] != first[0]


def test_cadec(shared_data):
    benchmark = read_benchmark("cadec", shared_data / "openmeta/eval/cadec")
    assert [fold.name for fold in benchmark.folds] == [f"CADEC_{i}" for i in range(5)]
    assert [len(fold.mentions) for fold in benchmark.folds] == [504, 459, 424, 397, 375]
    assert benchmark.folds[0].mentions[0] == "feel a bit weird"
    assert benchmark.folds[0].gold[0] == "367391008"
    for fold in benchmark.folds:
        # One standard name for each target concept, in another order in each fold.
        assert len(fold.dictionary.terms) == len(fold.dictionary.concept_set) == 181
        assert fold.dictionary.content_hash == benchmark.folds[0].dictionary.content_hash
        assert fold.dictionary.concept_set.issuperset(fold.gold)


def test_umnsrs_and_openmeta(shared_data):
    folder = shared_data / "openmeta/eval"
    for name, count in (("umnsrs-rel", 587), ("umnsrs-sim", 566), ("umnsrs-sim_noRepeat", 550)):
        assert len(read_benchmark(name, folder / f"umnsrs/{name}.txt").scores) == count
    with pytest.raises(
        BadInput, match=r"relations_test.tsv:2: found .* expected two terms and a num"
    ):
        read_benchmark("relations", folder / "relations_test.tsv")
    dictionary = Dictionary(["asthma"], ["C0002390"], "toy")
    mentions = read_benchmark("zh", folder / "normalization_zh.tsv", dictionary=dictionary)
    assert (mentions.folds[0].mentions[0], mentions.folds[0].gold[0]) == ("过敏性肺炎", "C0002390")
