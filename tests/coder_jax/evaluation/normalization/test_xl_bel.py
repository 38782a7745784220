"""XL-BEL: a fold for each language, and files that are broken."""

import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.process.errors import BadInput

DICTIONARY = Dictionary(["pain", "ache", "fever"], ["C1", "C1", "C2"], "toy")


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
