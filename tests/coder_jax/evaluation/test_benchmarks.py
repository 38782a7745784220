"""All kinds of benchmarks: which one a path is of, options, and each message for bad input."""

import dataclasses
import re
import subprocess
import sys

import pytest

from coder_jax.commands import evaluate
from coder_jax.evaluation import benchmarks
from coder_jax.evaluation.annotated_text import AnnotatedText
from coder_jax.evaluation.benchmarks import (
    BENCHMARKS,
    _makers_of_tables,
    kind_of,
    options_with,
    print_records,
    print_table,
    read_benchmark,
    tables_of,
)
from coder_jax.evaluation.case_studies import CaseStudy
from coder_jax.evaluation.coded_terms import CodedTerms
from coder_jax.evaluation.concepts import ConceptSet
from coder_jax.evaluation.given_groups import Quaero
from coder_jax.evaluation.links import LinkBenchmark
from coder_jax.evaluation.mantra import Mantra
from coder_jax.evaluation.name_pairs import Coverage
from coder_jax.evaluation.normalization import Folds, Mentions, NormalizationOptions, XlBel
from coder_jax.evaluation.record import EvaluationRecord, VectorFileProtocol
from coder_jax.evaluation.relations import RelationBenchmark
from coder_jax.evaluation.results import Row
from coder_jax.evaluation.several_concepts import MultipleNames
from coder_jax.evaluation.similarity import SimilarityBenchmark
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.flags import parsed
from data_pipeline.process import BadInput

DICTIONARY = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


@pytest.mark.parametrize(
    "content, message",
    [
        ("", r"m.tsv: found no lines; expected tab-separated rows: fetch or"),
        ("mention\tCUI\n", r"m.tsv: found a header and no rows; expected mention<TAB>CUI"),
        ("sore\tC1\nhot\n", r"m.tsv:2: found 1 columns; expected 2: mention<TAB>CUI"),
        ("sore\tC1\nhot\t \n", r"m.tsv:2: found an empty column; expected mention<TAB>CUI"),
        (b"sore\tC1\nh\xe4mat\tC1\n", r"m.tsv:2: found byte 0xe4, which is not UTF-8; fetch"),
        ("one column\n", r"(?s)m.tsv:1: found 1 columns; expected one of.*folds:"),
        ("a\tb\tc\td\n", r"(?s)m.tsv:1: found 4 columns; expected one of.*pairs:"),
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


def test_umnsrs_and_openmeta(shared_data):
    folder = shared_data / "openmeta/eval"
    for name, count in (("umnsrs-rel", 587), ("umnsrs-sim", 566), ("umnsrs-sim_noRepeat", 550)):
        assert len(read_benchmark(name, folder / f"umnsrs/{name}.txt").scores) == count
    links = read_benchmark("links", folder / "relations_test.tsv")
    assert len(links.pairs.labels) == 955 and len(set(links.pairs.labels)) == 14
    dictionary = Dictionary(["asthma"], ["C0002390"], "toy")
    mentions = read_benchmark("zh", folder / "normalization_zh.tsv", dictionary=dictionary)
    assert (mentions.folds[0].mentions[0], mentions.folds[0].gold[0]) == ("过敏性肺炎", "C0002390")


KINDS = {
    Mentions: {"a.tsv": "sore\tC1\n", "b/mentions.tsv": "sore\tC1\n"},
    Folds: {"c/fold_1/test.txt": "1\thot\n", "d/test.txt": "1\thot\n"},
    XlBel: {"e/de_1k_test_query.txt": "C1||Armeria\n", "f.txt": "C1||Armeria\tx\n"},
    CodedTerms: {"aa.tsv": "filename\tlabel\tspan\tcode\n", "ab.tsv": "term\tconcept\tpredicate\n"},
    SimilarityBenchmark: {"g.tsv": "a\tb\t1\n", "h.csv": "Mean,Term1,Term2\n"},
    Quaero: {"t/corpus/dev/EMEA/1.ann": "", "u/train/MEDLINE/1.ann": ""},
    Mantra: {"i/x/y.ann": "", "j/Medline_GSC_fr_man.xml": "", "k.zip": b"PK\xff", "l.xml": "\t\n"},
    MultipleNames: {"v/manifest.json": '{"format": "coder_jax mentions 1"}'},
    AnnotatedText: {"y.txt": "7|t|Wilson disease.\n", "z.PubTator": "\n7|a|x\n"},
    Coverage: {"w/heldout/concepts.tsv": "term\tCUI\n", "x/concepts.tsv": "term\tCUI\n"},
    ConceptSet: {"concepts.tsv": "CUI\tSemantic types\tterm\n", "n/manifest.json": ""},
    RelationBenchmark: {"o/x_train.txt": "", "p/relations_train.tsv": ""},
    LinkBenchmark: {"q.tsv": "Head\ttail\tlabel\n"},
    CaseStudy: {"r.tsv": "term\n", "s.tsv": "language\tterm\n"},
}
PATHS = [(kind, name, text) for kind, files in KINDS.items() for name, text in files.items()]


@pytest.mark.parametrize("kind, name, content", PATHS)
def test_what_a_path_is_shows_in_its_content(write, tmp_path, kind, name, content):
    write(name, content)
    assert kind_of(tmp_path / name.split("/")[0]) is kind


def test_every_kind_is_listed_once_and_in_the_order_of_tables():
    assert tuple(KINDS) == BENCHMARKS
    assert kind_of("paper:knowledge") is kind_of("paper:unknown") is CaseStudy
    tables = [
        "normalization",
        "similarity",
        "semantic group given",
        "MANTRA GSC",
        "several concepts",
        "mentions in text",
        "coverage",
        "concept similarity",
    ]
    tables += ["relation classification", "link prediction", "nearest terms"]
    assert list(_makers_of_tables()) == tables
    assert _makers_of_tables()["normalization"] is Mentions


@pytest.mark.parametrize(
    "names, kind",
    [
        (["mentions.tsv", "manifest.json"], Mentions),
        (["mentions.tsv", "test.txt"], Mentions),
        (["manifest.json", "test.txt", "x.ann"], ConceptSet),
        (["manifest.json", "heldout/concepts.tsv", "heldout/mentions.tsv"], Coverage),
        (["mentions.tsv", "concepts.tsv"], Mentions),
        (["x_train.txt", "x.ann", "fold/test.txt"], RelationBenchmark),
        (["de_1k_test_query.txt", "test.txt", "x.ann"], XlBel),
        (["test.txt", "x.ann"], Folds),
    ],
)
def test_a_file_that_only_one_kind_has_decides(write, tmp_path, names, kind):
    """Before one that a folder of anything may have, and before what lies deep inside."""
    for name in names:
        write(f"set/{name}", "C1||x\n")
    assert kind_of(tmp_path / "set") is kind


def test_which_paths_bring_a_dictionary_along(write, tmp_path):
    def brings(name, *names):
        for one in names:
            write(f"{name}/{one}", "1\tx\n")
        return kind_of(tmp_path / name).brings_dictionary(tmp_path / name)

    write("alone.tsv", "sore\tC1\n")
    assert brings("mentions", "mentions.tsv") and not brings("alone.tsv")
    assert brings("folds", "f_1/test.txt", "f_1/standard.txt") and not brings("no", "f_1/test.txt")
    assert not brings("relations", "x_train.txt", "y/standard.txt")
    assert not brings("q.xml", "Medline_GSC_fr_man.xml") and not brings("data", "manifest.json")


def test_options_have_the_defaults_of_their_flags(capsys):
    assert dataclasses.asdict(options_with()) == {
        **{"seed": 0, "k": (), "types": (), "neighbours": None, "epochs": 50},
        **{"only_these_types": False, "sample": None, "features": "frozen", "predictions": None},
        **{"threshold": (), "semantic_groups": (), "count_as": "mlnorm", "given_groups": False},
        **{"split": "test", "exact_match": (), "training_names": (), "wmd": False},
        **{"cometa": "specific"},
    }
    assert options_with(k=(2,)).k == (2,)
    with pytest.raises(TypeError, match="unexpected keyword argument 'ks'"):
        options_with(ks=(2,))
    with pytest.raises(SystemExit):
        parsed(evaluate.OPTIONS, ["--help-all"])
    shown = capsys.readouterr().out
    for heading, flags in {
        "mentions and terms": ["--k", "--predictions", "--cometa"],
        "mentions with semantic groups": [
            *("--threshold", "--semantic-groups", "--count-as", "--given-groups"),
        ],
        "mentions of several concepts": ["--split"],
        "names": ["--exact-match", "--training-names", "--wmd"],
        "concepts": ["--types", "--neighbours", "--only-these-types", "--sample"],
        "relations": ["--features", "--epochs"],
    }.items():
        (group,) = re.findall(rf"^{heading}:\n((?:  .*\n)+)", shown, re.MULTILINE)
        assert re.findall(r"^  (--[a-z-]+)", group, re.MULTILINE) == flags


def test_help_tells_of_every_kind():
    told = [kind.about.splitlines() for kind in BENCHMARKS]
    assert "\n".join(f"  {line}" for lines in told for line in lines) in evaluate.__doc__
    assert all(kind.formats.split()[0] == kind.about.split()[0] + ":" for kind in BENCHMARKS[:5])


# What is loaded counts in a process that has loaded nothing yet.
LOADED = "import sys, importlib; importlib.import_module(sys.argv[1]); print(*sys.modules)"


def modules_with(module, repo):
    words = [sys.executable, "-c", LOADED, module]
    return set(subprocess.run(words, cwd=repo, capture_output=True, text=True).stdout.split())


@pytest.mark.slow
def test_kinds_are_known_without_jax_and_the_look_of_a_run_loads_one(repo):
    known = modules_with("coder_jax.commands.evaluate", repo)
    assert "coder_jax.evaluation.links" in known
    assert not known & {"jax", "scipy", "transformers", "tokenizers"}
    look = modules_with("coder_jax.evaluation.normalization", repo)
    rooms = {name.split(".")[2] for name in look if name.startswith("coder_jax.evaluation.")}
    assert rooms == {
        *("benchmark", "normalization", "published", "ranks", "record", "results", "vectors"),
    }
    assert not any(
        "coder_jax.evaluation" in name
        for name in modules_with("coder_jax.encoding.vector_files", repo)
    )


# -------------------------------------------------------------------------------------------------
# Tables of records of several kinds, with the papers' rows below ours.

ENCODER = VectorFileProtocol(
    **{"model": "w.bin", "weights_hash": "1f", "keyed_by": "words", "pooling": "mean of words"},
    **{"width": 3, "vectors": 9, "used": 4, "look_up": "as they stand"},
)


def test_published_rows_stand_below_ours_and_are_marked(capsys):
    folds = {"Medline fr": {"scores": {"f1": 0.5}}}
    record = EvaluationRecord(
        **{"benchmark": "mantra", "kind": "MANTRA GSC", "path": "p", "content_hash": "h"},
        **{"scores": {"precision": 0.6, "recall": 0.4, "f1": 0.48}, "unreachable": None},
        **{"counts": {"mentions": 5, "annotations": 7, "unreachable": 1}, "dictionary": None},
        **{"scoring": {}, "folds": folds, "encoder": ENCODER},
    )
    concepts = dataclasses.replace(
        record,
        benchmark="mcsm",
        kind="concept similarity",
        counts={"concepts": 9, "missing": 2},
        folds={"Finding": {"scores": {"mcsm": 3.14, "chance": 1.0}}},
    )
    relations = dataclasses.replace(
        record,
        benchmark="ddbrc",
        kind="relation classification",
        scores={"accuracy": 0.9, "macro_f1": 0.8, "most_frequent": 0.1},
        counts={"train": 4, "test": 2, "labels": 2, "unseen": 0, "missing": 0, "unnamed": 0},
        scoring={"features": "fine-tuned"},
    )
    print_records([relations, concepts, record], NormalizationOptions(k=(1,)))
    blocks = [block.splitlines() for block in capsys.readouterr().out.split("\n\n")]
    assert [block[0].split()[0] for block in blocks] == ["MANTRA", "MCSM", "relation"]
    mantra, mcsm, ddbrc = blocks
    assert mantra[0].endswith("  encoder")
    assert mantra[2].split()[-5:] == ["50.0", "60.0", "40.0", "48.0", "w.bin"]
    assert any(
        "CODER_ALL (published, CODER, table 2)" in line and "58.9" in line for line in mantra
    )
    assert "3.1" in mcsm[2] and "by chance" in mcsm[3] and mcsm[3].endswith("1.0")
    assert any(line.startswith("mcsm: cui2vec (published, CODER, table 3)") for line in mcsm)
    assert ddbrc[2].split()[-4:] == ["90.00", "80.00", "10.00", "w.bin"]
    sap = next(line for line in ddbrc if "SapBERT (published" in line)
    assert sap.split()[-2:] == ["91.80", "98.79"]


def test_columns_are_as_wide_as_their_longest_cell(capsys):
    rows = [Row(["a", "cls", "1,234", "5"], "m"), Row(["bcd", "", "6", ""], "X", "P, table 2")]
    print_table(["name", "pooling", "n", "score"], rows)
    assert capsys.readouterr().out == (
        "name                            pooling      n  score\n"
        "------------------------------  -------  -----  -----\n"
        "a                               cls      1,234      5\n"
        "bcd: X (published, P, table 2)               6\n"
    )


def test_classes_of_one_kind_share_a_table_and_unknown_kinds_have_none(monkeypatch):
    class Other(SimilarityBenchmark):
        @classmethod
        def table(cls, records, options):
            raise AssertionError("the first class of a kind makes its table")

    monkeypatch.setattr(benchmarks, "BENCHMARKS", (SimilarityBenchmark, Other))
    record = EvaluationRecord(
        **{"benchmark": "sim", "kind": "similarity", "path": "p", "content_hash": "h"},
        **{"scores": {"spearman": 0.5}, "counts": {"pairs": 3, "missing": 0}, "scoring": {}},
        encoder=ENCODER,
    )
    ((header, rows),) = tables_of([record, dataclasses.replace(record, kind="of a later version")])
    assert header[0] == "similarity" and len(rows) == 1
    assert rows[0].cells == ["sim", "mean of words", "3", "0", "0.5000"]
