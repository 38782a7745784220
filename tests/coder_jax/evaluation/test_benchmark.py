"""Benchmark and dictionary files: what is read from each format, and each message for bad input."""

import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.process.errors import BadInput

DICTIONARY = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


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
        ("", r"m.tsv: found no lines; expected tab-separated rows: fetch or"),
        ("mention\tCUI\n", r"m.tsv: found a header and no rows; expected mention<TAB>CUI"),
        ("sore\tC1\nhot\n", r"m.tsv:2: found 1 columns; expected 2: mention<TAB>CUI"),
        ("sore\tC1\nhot\t \n", r"m.tsv:2: found an empty column; expected mention<TAB>CUI"),
        (b"sore\tC1\nh\xe4mat\tC1\n", r"m.tsv:2: found byte 0xe4, which is not UTF-8; fetch"),
        ("one column\n", r"(?s)m.tsv:1: found 1 tab-separated columns; expected one of.*folds:"),
        ("a\tb\tc\td\n", r"(?s)m.tsv:1: found 4 tab-separated columns; expected one of.*pairs:"),
        (
            "C1\tsore\n",
            r"none of the gold concepts of 1 mentions \(such as 'sore' of 'C1'\) in the ",
        ),
        ("a\tb\tisa\nc\td\tisa\n", r"m.tsv:2: found 'c', 'd', 'isa'; expected two .*: mend the li"),
        ("a\tb\t27O\nc\td\t1\ne\tf\t2\n", r"m.tsv:1: found 'a', 'b', '27O'; expected two terms"),
        ("a\tb\tNA\nc\td\t1\ne\tf\t2\n", r"m.tsv:1: found 'a', 'b', 'NA'; expected two terms"),
        ("a\tb\t\nc\td\t1\ne\tf\t2\n", r"m.tsv:1: found 'a', 'b', ''; expected two terms"),
        ("a\tb\t1\nc\td\n", r"m.tsv:2: found 2 columns; expected 3: term1<TAB>term2<TAB>score"),
        (
            "a\tb\t1\nc\td\tnan\n",
            r"m.tsv:2: found 'c', 'd', 'nan'; expected two terms and a number",
        ),
        ("a\tb\t1\nc\td\t1\n", r"2 pairs with 1 distinct scores; expected 2 .*: give the file"),
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
    with pytest.raises(BadInput, match="fold: found a fold without standard.txt; expected test"):
        read_benchmark("toy", tmp_path)
    given = read_benchmark("toy", tmp_path, dictionary=Dictionary(["heat"], ["1"], "toy"))
    assert given.folds[0].dictionary.terms == ["heat"]


@pytest.mark.parametrize("file", ["standard.txt", "train.txt", None, "notes.txt"])
def test_a_fold_that_is_not_whole_is_refused_beside_others(write, tmp_path, file):
    for fold in ("fold_1", "fold_2"):
        write(f"{fold}/test.txt", "1\thot\n")
        write(f"{fold}/standard.txt", "1\theat\n")
    write("scripts/run.sh", "no fold")
    (tmp_path / "fold_3").mkdir()
    if file:
        write(f"fold_3/{file}", "1\thot\n")
    lost = "test.txt" if file == "standard.txt" else "test.txt and standard.txt"
    with pytest.raises(BadInput, match=f"fold_3: found a fold without {lost}; .*: fetch it again"):
        read_benchmark("toy", tmp_path)
    (tmp_path / "fold_3").rename(tmp_path / "more")
    if file in ("standard.txt", "train.txt"):
        with pytest.raises(BadInput, match="more: found a fold without"):
            read_benchmark("toy", tmp_path)
    else:
        assert len(read_benchmark("toy", tmp_path).folds) == 2


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


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "found no lines; expected CUI"),
        ("404: Not Found", "found '404: Not Found'; expected CUI"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1f\n", "found 'version .* expect"),
    ],
)
def test_a_language_of_xl_bel_that_is_broken_is_refused(write, tmp_path, content, message):
    write("x/de_1k_test_query.txt", "C1||Armeria\n")
    write("x/._de_1k_test_query.txt", b"\x00\xff")
    assert len(read_benchmark("xl", tmp_path / "x", dictionary=DICTIONARY).folds) == 1
    write("x/tr_1k_test_query.txt", content)
    with pytest.raises(BadInput, match=f"tr_1k_test_query.txt.*: {message}.*: .*fetch"):
        read_benchmark("xl", tmp_path / "x", dictionary=DICTIONARY)
    # Where none has its columns, such names alone do not make a folder one of XL-BEL.
    write("x/de_1k_test_query.txt", content)
    with pytest.raises(BadInput, match="found a folder with .*; expected one of"):
        read_benchmark("xl", tmp_path / "x", dictionary=DICTIONARY)


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
    assert mayo.keys("concepts") == ["C1", "C3", "C2", "C4"]
    assert (mayo.scores, mayo.concepts) == ([6.5, 1], (["C1", "C3"], ["C2", "C4"]))
    assert mayo.sides("concepts") == mayo.concepts and mayo.sides("terms")[1] == ["limp", "nevus"]
    rows = ["Physicians,Coders,CUI1,CUI2,TERM1,TERM2", "4,3,C1,C1,Heart,Cor", "1,2,C2,C3,Skin,Toe"]
    mini = read_benchmark("mini", write("MiniMayoSRS.csv", "\n".join(rows)))
    assert mini.scores == [3.5, 1.5]
    assert mini.groups == {"physicians": [4, 1], "coders": [3, 2]}
    plain = read_benchmark("toy", write("p.tsv", "a\tb\t1\nc\td\t2\n"))
    with pytest.raises(BadInput, match="p.tsv: found no CUIs, and concept vectors to compare"):
        plain.keys("concepts")
    with pytest.raises(BadInput, match=r"MiniMayoSRS.csv:3: found 'Skin', 'Toe', '1', ''; expect"):
        read_benchmark("mini", write("MiniMayoSRS.csv", "\n".join(rows).replace("1,2", "1,")))


def test_hashes_ignore_order_and_see_each_change(write):
    rows = ["sore\tC1\n", "hot\tC2\n", "cold\tC2\n"]

    def hashes(rows):
        benchmark = read_benchmark("toy", write("m.tsv", "".join(rows)), dictionary=DICTIONARY)
        dictionary = read_dictionary(write("d.tsv", "".join(rows)))
        return benchmark.content_hash, dictionary.description["content_hash"]

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
    assert len({fold.dictionary.description["content_hash"] for fold in benchmark.folds}) == 1
    for fold in benchmark.folds:
        # One standard name for each target concept, in another order in each fold.
        assert len(fold.dictionary.terms) == len(fold.dictionary.concept_set) == 181
        assert fold.dictionary.concept_set.issuperset(fold.gold)


def test_umnsrs_and_openmeta(shared_data):
    folder = shared_data / "openmeta/eval"
    for name, count in (("umnsrs-rel", 587), ("umnsrs-sim", 566), ("umnsrs-sim_noRepeat", 550)):
        assert len(read_benchmark(name, folder / f"umnsrs/{name}.txt").scores) == count
    links = read_benchmark("links", folder / "relations_test.tsv")
    assert len(links.pairs.labels) == 955 and len(set(links.pairs.labels)) == 14
    dictionary = Dictionary(["asthma"], ["C0002390"], "toy")
    mentions = read_benchmark("zh", folder / "normalization_zh.tsv", dictionary=dictionary)
    assert (mentions.folds[0].mentions[0], mentions.folds[0].gold[0]) == ("过敏性肺炎", "C0002390")
