"""Tables of mentions with codes: read by their columns, scored, and refused where broken."""

import gzip

import pytest
from evaluating import ENCODER

from coder_jax.evaluation.benchmarks import kind_of, options_with, read_benchmark, score
from coder_jax.evaluation.coded_terms import CodedTerms
from coder_jax.evaluation.name_pairs import NameStrings
from coder_jax.evaluation.normalization import Mentions
from coder_jax.evaluation.similarity import SimilarityBenchmark
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process import BadInput

NAMES = Dictionary(["dolor", "fiebre", "tos", "asma"], ["22", "386", "497", "195"], "names.tsv")
DISTEMIST = (
    "filename\tmark\tlabel\toff0\toff1\tspan\tcode\tsemantic_rel\n"
    "es-1\tT1\tENFERMEDAD\t0\t4\tasmático\t195\tEXACT\n"
    "es-1\tT2\tENFERMEDAD\t9\t14\ttos con fiebre\t497+386\tEXACT\n"
    "es-2\tT1\tENFERMEDAD\t0\t4\tdolores\t22\tNARROW\n"
)
MEDPROCNER = (
    "filename\tlabel\tstart_span\tend_span\ttext\tcode\tsem_rel\tis_abbrev\n"
    "es-1\tPROCEDIMIENTO\t0\t4\tbiopsia\tNO_CODE\tNO_CODE\tFalse\n"
    "es-1\tPROCEDIMIENTO\t9\t14\tfebril\t386\tEXACT\tFalse\n"
)
COMETA = (
    "ID\tTerm\tGeneral SNOMED Label\tGeneral SNOMED ID\tSpecific SNOMED Label\t"
    "Specific SNOMED ID\tExample\n"
    "1\twheezy\tAsthma\t195\tCough\t497\tI am wheezy\n"
)
LOCAL = (
    "term\tconcept\tpredicate\n"
    "asma leve\t195\texactMatch\nquejas\t22\tskos:broadMatch\ntos\t497\texactMatch\n"
    "otra cosa\t386\tskos:relatedMatch\n"
)


def read(write, name, content, **more):
    path = write(name, content)
    assert kind_of(path) is CodedTerms
    return read_benchmark("x", path, dictionary=NAMES, **more)


def test_tables_of_the_shared_tasks(write):
    found = read(write, "a.tsv", DISTEMIST)
    (fold,) = found.folds
    assert fold.mentions == ["asmático", "dolores"] and fold.gold == ["195", "22"]
    assert found.left_out == {"several codes at once": 1}
    found = read(write, "b.tsv", MEDPROCNER)
    assert found.folds[0].mentions == ["febril"] and found.left_out == {"no code": 1}


def test_cometa_by_either_code(write):
    assert read(write, "a.csv", COMETA).folds[0].gold == ["497"]
    general = read(write, "a.csv", COMETA, options=options_with(cometa="general"))
    assert general.folds[0].gold == ["195"] and general.folds[0].mentions == ["wheezy"]


@pytest.mark.parametrize(
    "names",
    [("term", "concept", "predicate"), ("subject_label", "object_id", "predicate_id")],
)
def test_local_terms_by_their_predicate(write, names):
    content = LOCAL.replace("term\tconcept\tpredicate", "\t".join(names))
    found = read(write, "a.tsv", content)
    assert {fold.name: fold.mentions for fold in found.folds} == {
        "exactMatch": ["asma leve", "tos"],
        "broadMatch": ["quejas"],
    }
    assert found.left_out == {"predicate skos:relatedMatch": 1}


def test_folds_of_ask_a_patient_search_their_own_names(write):
    for number, mention in enumerate(("hurts", "so hot")):
        concept = ("22\tPain", "386\tFever")[number]
        write(f"aap/AskAPatient.fold-{number}.test.txt", f"{concept}\t{mention}\n")
        write(f"aap/AskAPatient.fold-{number}.train.txt", "497\tCough\tcoughing\n")
    folder = write("aap/README", "").parent
    assert kind_of(folder) is CodedTerms
    found = read_benchmark("x", folder)
    assert [fold.name for fold in found.folds] == ["fold-0", "fold-1"]
    assert found.folds[1].mentions == ["so hot"] and found.folds[1].gold == ["386"]
    assert sorted(found.folds[0].dictionary.pairs()) and found.folds[0].dictionary.terms == [
        *("Pain", "Cough", "Fever")
    ]


class Letters:
    """Vectors that are alike where strings begin alike."""

    keyed_by = "terms"

    def encode(self, keys):
        import numpy as np

        vectors = np.zeros((len(keys), 26), np.float32)
        for row, key in enumerate(keys):
            vectors[row, ord(key[0]) - ord("a")] = 1
        return vectors

    def known(self, keys):
        import numpy as np

        return np.ones(len(keys), bool)


def test_what_is_left_out_is_counted_in_the_record(write):
    found = read(write, "a.tsv", DISTEMIST)
    record = found.score(Letters(), ENCODER, options_with())
    assert record.counts["mentions"] == 2 and record.counts["several codes at once"] == 1
    assert record.scores["acc@1"] == 1 and record.kind == "normalization"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            DISTEMIST + "es-3\tT1\tX\n",
            r"a.tsv:5: found 3 columns; expected 8, with a mention in sp",
        ),
        (MEDPROCNER.rpartition("es-1")[0], "found no mention with one code; expected"),
        (DISTEMIST.replace("195", "9").replace("\t22", "\t8"), "found none of the gold concepts"),
    ],
)
def test_what_cannot_be_read(write, content, message):
    with pytest.raises(BadInput, match=message):
        read(write, "a.tsv", content)


def test_a_dictionary_is_needed(write):
    with pytest.raises(BadInput, match="found mentions with codes and no dictionary to search"):
        read_benchmark("x", write("a.tsv", DISTEMIST))
    with pytest.raises(BadInput, match="fold-0.test.txt:1: found .*expected concept<TAB>name<TAB"):
        read_benchmark("x", write("b/AskAPatient.fold-0.test.txt", "22\tPain\n").parent)


def test_plain_lists_of_mentions_stay_what_they_were(write):
    assert kind_of(write("a.tsv", "mention\tCUI\tlanguage\npain\tC1\tENG\n")) is Mentions


def test_pairs_of_ehr_rel(write):
    head = "snomed_id_1\tsnomed_label_1\tsnomed_id_2\tsnomed_label_2\trater_A\tmean_rating\n"
    path = write("EHR-RelB.tsv", head + "1\tpain\t2\tache\t3\t2.5\n3\tfever\t4\tleg\t0\t0.5\n")
    assert kind_of(path) is SimilarityBenchmark
    found = read_benchmark("x", path)
    assert (found.first, found.second, found.scores) == (
        *(["pain", "fever"], ["ache", "leg"]),
        [2.5, 0.5],
    )
    with pytest.raises(BadInput, match="EHR-RelB.tsv:2: found 2 columns; expected 6, as in the"):
        read_benchmark("x", write("EHR-RelB.tsv", head + "1\tpain\n"))


def test_ask_a_patient_as_it_is_distributed(write, tmp_path):
    """Its files are not UTF-8."""
    folder = tmp_path / "aap"
    folder.mkdir()
    content = "22\tPain\thurts\n195\tSjögren\tdry eyes\n".encode("latin-1")
    (folder / "AskAPatient.fold-0.test.txt").write_bytes(content)
    assert read_benchmark("x", folder).folds[0].dictionary.terms == ["Pain", "Sjögren"]


MEDMENTIONS = (
    "11|t|Cough and fever\n11|a|Mild cough.\n11\t0\t5\tCough\tT033\tUMLS:C0010200\n"
    "11\t10\t15\tfever\tT033\tC0015967\n\n"
    "12|t|Asthma\n12|a|None.\n12\t0\t6\tAsthma\tT038\tUMLS:C0004096\n\n"
)
CUIS = Dictionary(["cough", "asthma"], ["C0010200", "C0004096"], "umls")


@pytest.mark.parametrize("packed", [False, True])
def test_med_mentions_has_the_mentions_of_the_test_abstracts(write, packed):
    folder = write("mm/corpus_pubtator_pmids_test.txt", "11\n").parent
    name = "corpus_pubtator.txt" + ".gz" * packed
    content = MEDMENTIONS.encode()
    (folder / name).write_bytes(gzip.compress(content) if packed else content)
    assert kind_of(folder) is CodedTerms
    found = read_benchmark("x", folder, dictionary=CUIS)
    (fold,) = found.folds
    assert (fold.mentions, fold.gold) == (["Cough", "fever"], ["C0010200", "C0015967"])


BIOSYN_TEST = (
    "1||0|5||DiseaseClass||ataxia||208900\n"
    "1||8|30||CompositeMention||renal cancer|hepatic cancer||D1|D2\n"
    "1||31|35||SpecificDisease||novel||D9\n"
)


def test_biosyn_as_it_is_distributed(write):
    write("bs/processed_test/1.concept", BIOSYN_TEST)
    folder = write(
        "bs/test_dictionary.txt",
        "D001260|208900||ataxia telangiectasia\nD1||renal cancer\nD2||liver cancer\n"
        "D1+D2||renal and hepatic cancer\nD001260||ataxia\nD3||\n",
    ).parent
    assert kind_of(folder) is CodedTerms and CodedTerms.brings_dictionary(folder)
    found = read_benchmark("x", folder)
    (fold,) = found.folds
    assert fold.mentions == ["ataxia", "renal cancer", "hepatic cancer", "novel"]
    # Any field that shares an identifier: 208900 alone is in no other one.
    either = "D1|D1+D2|D2"
    assert fold.gold == ["D001260+208900", either, either, "D9"]
    assert dict(zip(fold.dictionary.terms, fold.dictionary.concepts, strict=True)) == {
        **{"ataxia telangiectasia": "D001260+208900", "renal cancer": "D1"},
        **{"liver cancer": "D2", "renal and hepatic cancer": "D1+D2", "ataxia": "D001260"},
    }
    strings = NameStrings("exact match")
    record = score(found, strings, strings.protocol)
    # The name of 208900 is another one than that of D001260; "novel" is in no dictionary.
    assert record.scores["acc@1"] == 1 / 4
    counts = record.counts
    assert (counts["queries"], counts["mentions"], counts["unreachable"]) == (3, 4, 1)
    assert counts["parts of composite mentions"] == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"corpus_pubtator.txt": MEDMENTIONS},
            "found corpus_pubtator.txt without corpus_pubtator_pmids_test.txt",
        ),
        (
            {"corpus_pubtator.txt": MEDMENTIONS, "corpus_pubtator_pmids_test.txt": "11\n13\n"},
            "found 1 of the 2 abstracts that .*; expected all: fetch both again",
        ),
        (
            {"processed_test/1.concept": BIOSYN_TEST},
            "concept without test_dictionary.txt; expected",
        ),
        (
            {"processed_test/1.concept": "1||x||y\n", "test_dictionary.txt": "D1||a\n"},
            r"1.concept:1: found '1\|\|x\|\|y'; expected PMID",
        ),
    ],
)
def test_folders_that_are_not_whole(write, files, message):
    paths = [write(f"set/{name}", content) for name, content in files.items()]
    folder = next(parent for parent in paths[0].parents if parent.name == "set")
    with pytest.raises(BadInput, match=message):
        read_benchmark("x", folder, dictionary=CUIS)
