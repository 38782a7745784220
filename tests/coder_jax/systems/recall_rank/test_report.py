"""The report of both stages: candidates of a generator and ranks, from a run or from lists."""

import re

import numpy as np
import pytest

from coder_jax.__main__ import main
from coder_jax.systems.recall_rank.prediction.models import load_generators, load_ranker
from coder_jax.systems.recall_rank.prediction.recall_and_rank import RecallAndRank
from data_pipeline.dataset.mentions.store import open_mentions


def lists_in(page, what):
    """(number, name) of the candidates of each mention that the page shows."""
    cells = re.findall(rf'<td data-by="{what}">(.*?)</td>', page.read_text(), re.DOTALL)
    item = re.compile(
        r'<li><span class="number">([\d.]+)</span> (?:<span class="unit">[\d.]+</span> )?([^<]+)'
    )
    return [[(n, name.strip()) for n, name in item.findall(cell)] for cell in cells]


def test_a_ranker_shows_its_lists_and_a_generator_finds_them(
    mentions, lists, generator, ranker, tmp_path
):
    of_lists, of_run = tmp_path / "lists.html", tmp_path / "run.html"
    words = ["report", "--model", str(ranker[0]), "--mentions", str(lists)]
    assert main([*words, "--out", str(of_lists)]) == 0
    words = ["report", "--model", str(generator[0]), "--ranker", str(ranker[0])]
    assert main([*words, "--mentions", str(mentions), "--out", str(of_run)]) == 0
    data = open_mentions(mentions)
    names = list(data.names.strings)
    stages = RecallAndRank(
        load_generators([generator[0]]), [load_ranker(ranker[0])], names, data.name_concepts
    )
    found = stages.answer(["heart + renal disease", "renal"])  # of several concepts first
    expected = [
        [(f"{score:.2f}", names[name]) for score, name in zip(scores, row, strict=True)]
        for scores, row in zip(found.scores, found.names, strict=True)
    ]
    assert lists_in(of_run, "by score, and probability") == expected
    vectors = stages.generator.encode(names)
    near = stages.generator.lists(["heart + renal disease"], vectors, data.name_concepts, 5)
    for page, count in ((of_run, 10), (of_lists, 5)):
        first, _ = lists_in(page, "candidates by distance")
        assert len(first) == count
        assert [name for _, name in first[:5]] == [names[name] for name in near.names[0]]
        np.testing.assert_allclose([float(d) for d, _ in first[:5]], near.distances[0], atol=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "{generator}", "--ranker", "{ranker}"], "found no folder of mentions"),
        (
            ["--model", "{ranker}", "--ranker", "{ranker}", "--mentions", "{lists}"],
            "rank, a ranker itself",
        ),
        (["--model", "{ranker}", "--mentions", "{mentions}"], "has no candidates of its mentions"),
    ],
)
def test_what_cannot_be_shown_is_named(
    mentions, lists, generator, ranker, tmp_path, capsys, words, message
):
    paths = {"mentions": mentions, "lists": lists, "generator": generator[0], "ranker": ranker[0]}
    given = [word.format(**paths) for word in words]
    assert main(["report", *given, "--out", str(tmp_path / "r.html")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
