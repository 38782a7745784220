"""Abbreviations that a text explains."""

import logging

from data_pipeline.sources.text.abbreviations import abbreviations_of

TEXT = (
    "Wilson disease (WD) in dogs.\n"
    "Copper toxicosis (CT) is like WD. Patients (n = 12) with ataxia-telangiectasia (AT) had none."
)


def test_what_stands_before_the_brackets():
    found = abbreviations_of(TEXT)
    assert found == {
        **{"WD": "Wilson disease", "CT": "Copper toxicosis"},
        "AT": "ataxia-telangiectasia",
    }
    assert {type(one) for pair in found.items() for one in pair} == {str}
    assert abbreviations_of("") == abbreviations_of("No brackets.") == {}


def test_the_library_does_not_set_up_logging(repo):
    import subprocess
    import sys

    code = (
        "import logging; from data_pipeline.sources.text.abbreviations import abbreviations_of;"
        "abbreviations_of('a b (AB)'); root = logging.getLogger(); print(root.handlers, root.level)"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True)
    assert told.stdout.split() == ["[]", str(logging.WARNING)]
