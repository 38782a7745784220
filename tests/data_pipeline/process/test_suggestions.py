"""What a mistyped name may have meant."""

import argparse

import pytest

from data_pipeline.process.errors import BadInput
from data_pipeline.process.suggestions import check_flags, did_you_mean


def test_the_nearest_name_is_offered_if_any_is_near():
    names = ["coder_eng", "coder_all", "small"]
    assert did_you_mean("smal", names) == "; did you mean small?"
    assert did_you_mean("CODER_ENG", names) == "; did you mean coder_eng?"
    assert did_you_mean("dance", names) == ""


def test_unknown_flags_are_named_before_what_is_missing_because_of_them():
    parser = argparse.ArgumentParser(prog="python -m coder_jax encode")
    parser.add_argument("--model", required=True)
    parser.add_argument("--dictionary")
    with pytest.raises(BadInput, match="no option --modle; did you mean --model. .*encode --help"):
        check_flags(parser, ["--modle", "m"])
    with pytest.raises(BadInput, match="no option --modle; did you mean --model"):
        check_flags(parser, ["--modle=m"])
    # The beginning of a flag is enough for argparse, and what comes after -- is no flag.
    check_flags(parser, ["--model", "-", "--dict=x", "-h", "--", "--modle"])
