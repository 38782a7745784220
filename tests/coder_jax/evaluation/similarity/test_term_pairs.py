"""Pairs of terms with human scores: the formats of their files."""

import pytest

from coder_jax.evaluation.benchmarks import read_benchmark
from data_pipeline.process.errors import BadInput


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
