"""Abbreviations that a text explains."""

import logging
import os
import subprocess
import sys

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


def in_a_new_process(repo, tmp_path, *options, after=""):
    code = (
        "from data_pipeline.sources.text.abbreviations import abbreviations_of;"
        f"abbreviations_of('a b (AB)');{after}"
    )
    nothing_compiled = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=repo, env=nothing_compiled, capture_output=True, text=True)


def test_the_library_does_not_set_up_logging(repo, tmp_path):
    after = "import logging; root = logging.getLogger(); print(root.handlers, root.level)"
    told = in_a_new_process(repo, tmp_path, after=after)
    assert told.stdout.split() == ["[]", str(logging.WARNING)]


def test_the_first_import_of_the_library_warns_of_nothing(repo, tmp_path):
    told = in_a_new_process(repo, tmp_path, "-W", "always")
    assert (told.returncode, told.stderr) == (0, "")
