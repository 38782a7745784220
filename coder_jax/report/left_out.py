"""What a report lacks, why, and the command that would give it."""

from __future__ import annotations

from shlex import quote

from coder_jax.report.page.render import LeftOut, Report


def left_out(
    report: Report,
    *,
    model: str,
    dictionary: str | None,
    run: bool,
    classes: bool = False,
    candidates: bool = False,
) -> list[LeftOut]:
    """What `report` lacks, in the order of the page.

    Args:
      report: with all its parts.
      model, dictionary: as they were given to the command.
      run: whether the model is the folder of a run.
      classes: whether it has classes.
      candidates: whether it is a generator or a ranker of candidates.
    """
    again = f"python -m coder_jax report --model {quote(model)}"
    no_dictionary = "no --dictionary was given"
    build = "python -m data_pipeline.build --source RELEASE --tokenizer TOKENIZER --out DATASET"
    missing = []
    if not report.answers:
        both = "".join(
            f"python -m coder_jax evaluate --model {of} --benchmark cadec=PATH --json {when}.json\n"
            for when, of in (("before", "INITIAL"), ("after", "EXPORT" if run else quote(model)))
        )
        command = f"{both}{again} --results before=before.json after=after.json"
        missing.append(LeftOut("Before and after", "no scores of both were given", command))
    if not report.tables:
        # What is scored is a model: of a run its export.
        export = f"python -m coder_jax export --checkpoint {quote(model)} --out EXPORT\n"
        evaluate = (
            f"{export if run else ''}python -m coder_jax evaluate --model "
            f"{'EXPORT' if run else quote(model)} --benchmark cadec=PATH "
            f"--json results.json\n{again} --results results.json"
        )
        missing.append(LeftOut("Results", "no --results were given", evaluate))
    if not report.panels:
        why = "the run has no metrics yet" if run else "the model is not the folder of a run"
        command = "python -m coder_jax report --model RUN"
        missing.append(LeftOut("Training", why, command))
    if classes and report.by_classes is None:
        why = no_dictionary if dictionary is None else "the dictionary holds no mentions out"
        command = f"{again} --dictionary DATASET --mentions mentions.tsv"
        missing.append(LeftOut("Answers by classes", why, command))
    if candidates and report.by_candidates is None:
        command = (
            "python -m coder_jax candidates --model RECALL --data MENTIONS --out LISTS\n"
            "python -m coder_jax report --model RANK --mentions LISTS"
        )
        missing.append(
            LeftOut("Candidates and ranks", "no folder of --mentions was given", command)
        )
    if report.by_concept is None:
        why = "too few concepts of the dictionary have several terms"
        command = f"{again} --dictionary DATASET"
        missing.append(
            LeftOut("Map of concepts", no_dictionary if dictionary is None else why, command)
        )
    if report.by_type is None:
        why = "the dictionary has no semantic types, or too few concepts of each"
        command = f"{build}\n{again} --dictionary DATASET"
        missing.append(
            LeftOut("Map of semantic types", no_dictionary if dictionary is None else why, command)
        )
    if report.relations is None:
        why = (
            "the model has no relation matrices: it is no run with --mu above 0, nor its export; "
            "or it learned translations"
        )
        command = "python -m coder_jax report --model RUN"
        missing.append(LeftOut("Relations", why, command))
    if report.explorer is None:
        missing.append(LeftOut("Explorer", no_dictionary, f"{again} --dictionary DATASET"))
    return missing
