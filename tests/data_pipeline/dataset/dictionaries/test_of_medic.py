"""MEDIC as a dictionary that is searched."""

from data_pipeline.dataset.dictionary import read_dictionary

MEDIC = (
    "C567755|613097||Tooth Agenesis, Selective, 6|STHAG6\n"
    "D003920||Diabetes Mellitus|STHAG6|Diabetes Mellitus\nMESH:D001|X||x\n"
)


def test_names_of_a_line_have_its_first_identifier(write):
    dictionary = read_dictionary(write("medic.txt", MEDIC))
    assert list(zip(dictionary.terms, dictionary.concepts, strict=True)) == [
        ("Tooth Agenesis, Selective, 6", "C567755"),
        ("STHAG6", "C567755"),
        ("Diabetes Mellitus", "D003920"),
        ("STHAG6", "D003920"),
        ("x", "D001"),
    ]
    about = dictionary.about("C567755")
    assert about.preferred == "Tooth Agenesis, Selective, 6"
    assert about.codes == (("MSH", "C567755"), ("OMIM", "613097"))
    assert dictionary.description["terms"] == 5


def test_concepts_of_umls_stay_as_they_are(write):
    """A CUI has a digit more than an identifier of MeSH; "|" in its line is no separator."""
    dictionary = read_dictionary(write("umls.txt", "C0567755|C0000001||a|b\n"))
    assert (dictionary.terms, dictionary.concepts) == (["a|b"], ["C0567755|C0000001"])


def test_the_medic_of_ncbi_disease(shared_data):
    path = shared_data / "benchmarks/ncbi_disease/dictionary/medic_06Jul2012.txt"
    dictionary = read_dictionary(path)
    assert len(dictionary.terms) == 76_237 and len(dictionary.concept_set) == 11_915
    concepts: dict[str, set[str]] = {}
    for _, name, concept in dictionary.pairs():
        concepts.setdefault(name.lower(), set()).add(concept)
    assert sum(len(some) > 1 for some in concepts.values()) == 957
    assert ("OMIM", "613097") in dictionary.about("C567755").codes
