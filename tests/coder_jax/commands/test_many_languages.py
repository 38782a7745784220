"""Names in several languages, from a table to an encoder of XLM-R's layout that knows them."""

import json

import pytest
from tiny_roberta import write_model

from coder_jax.__main__ import main
from data_pipeline.build_dataset import __main__ as build

NAMES = {
    "C1": ("heart attack", "infarctus du myocarde", "心筋梗塞"),
    "C2": ("fever", "fièvre", "発熱"),
    "C3": ("headache", "céphalée", "頭痛"),
    "C4": ("asthma", "asthme", "喘息"),
    "C5": ("kidney stone", "calcul rénal", "腎結石"),
    "C6": ("fracture", "cassure", "骨折"),
    "C7": ("skin rash", "éruption cutanée", "皮疹"),
    "C8": ("deafness", "surdité", "難聴"),
}
LANGUAGES = ("ENG", "FRE", "JPN")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """An XLM-R of two layers with random weights, whose pieces were learnt from these names."""
    folder = tmp_path_factory.mktemp("model") / "tiny-xlm-r"
    write_model(folder, texts=tuple(name for names in NAMES.values() for name in names))
    return folder


def right(model, mentions, dictionary, out):
    """Of the French and Japanese names: the share whose nearest English name is the right one."""
    words = ["evaluate", "--model", model, "--pooling", "cls", "--json", out, "--no-cache"]
    words += ["--benchmark", f"names={mentions}", "--dictionary", dictionary]
    assert main([str(word) for word in words]) == 0
    (record,) = json.loads(out.read_text())["records"]
    assert record["counts"]["mentions"] == 2 * len(NAMES)
    return record["scores"]["acc@1"]


@pytest.mark.slow
def test_names_of_other_languages_come_to_the_english_one(encoder, tmp_path):
    rows = [
        (concept, name, language)
        for concept, names in NAMES.items()
        for name, language in zip(names, LANGUAGES, strict=True)
    ]
    table = tmp_path / "terms.tsv"
    table.write_text(
        "\n".join(map("\t".join, [("concept", "name", "language"), *rows])), encoding="utf-8"
    )
    words = ["--source", table, "--tokenizer", encoder, "--out", tmp_path / "data"]
    assert build.main([str(word) for word in words]) == 0
    words = ["train", "--recipe", "small_all", "--init", encoder, "--data", tmp_path / "data"]
    words += ["--out", tmp_path / "run", "--eval-steps", 0, "--triplets", 4, "--dropout", 0]
    words += ["--learning-rate", 1e-3]
    words += ["--steps", 150, "--warmup-steps", 15, "--save-steps", 150]
    assert main([str(word) for word in words]) == 0
    words = ["export", "--checkpoint", tmp_path / "run", "--out", tmp_path / "export"]
    assert main([str(word) for word in words]) == 0
    mentions, english = tmp_path / "mentions.tsv", tmp_path / "english.tsv"
    for path, wanted in ((mentions, LANGUAGES[1:]), (english, LANGUAGES[:1])):
        lines = [f"{name}\t{concept}" for concept, name, language in rows if language in wanted]
        path.write_text("\n".join(["term\tCUI", *lines]), encoding="utf-8")
    before = right(encoder, mentions, english, tmp_path / "before.json")
    after = right(tmp_path / "export", mentions, english, tmp_path / "after.json")
    assert before < 0.5 and after > 0.9
