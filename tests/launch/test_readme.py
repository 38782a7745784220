"""What README.md and the pages of docs/ tell a user to type: it is there, it is spelled right, and
it works.

The slow test is a new user's first hour: a copy of the repository with an environment of its own,
the blocks of the README and of the pages after it one after the other, with less training and an
invented release in the place of a licensed one; and at its end an export that is opened elsewhere.
"""

import csv
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coder_jax.__main__ import _VERBS
from coder_jax.commands import train
from coder_jax.systems.recipes import RECIPES
from data_pipeline.build_dataset.options import BuildOptions
from data_pipeline.build_mentions.build import MentionOptions
from data_pipeline.derive_keywords import KeywordOptions
from data_pipeline.flags import parsed
from data_pipeline.skip_gram.options import SkipGramOptions

MOST_BYTES_OF_A_PICTURE = 300_000
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}|\$(\w+)")
ASSIGNMENT = re.compile(r"\w+=")
LINK = re.compile(r"\]\(([^)#]*)(#[^)]*)?\)")
CITED = ("README.md", "CONTRIBUTING.md", "launch/README.md", "benchmarks/README.md")
MOST_LINES, MOST_WORDS = 110, 1_100
# A heading and how many of the blocks below it the first hour runs, after those of the README.
FIRST_HOUR = (
    ("docs/train.md", "# Train on your terminology", 2),
    ("docs/evaluate.md", "## Score an encoder", 1),
    ("docs/evaluate.md", "## Look at an encoder", 1),
    ("docs/systems/recall_rank.md", "## Recipes", 1),
)
# What a command may begin with that is no program of ours.
ELSEWHERE = {"source", "pip", "docker", "kubectl", "sbatch", "jupyter", "export", "tensorboard"}
ELSEWHERE |= {"curl"}
SHORT = "--steps 8 --warmup-steps 2 --log-steps 4"
# What stands in the README for files of the user's own and for models of the hub.
STAND_INS = {
    "bash launch/train.sh\n": f"bash launch/train.sh demo {SHORT}\n",
    "mine.obo --hold-out 0.1": "invented --hold-out 20",
    "sentence-transformers/all-MiniLM-L6-v2": "$MINILM",
    "--epochs 10": f"--init $MINILM {SHORT}",
    "--interpolate auto": "",  # eight steps may be worse than none
    "=list.tsv": "=runs/demo/dataset/heldout/mentions.tsv",
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": "$MINILM",
    "cadec=yours/cadec similarity=yours/umnsrs-sim.txt": "",
    "SapBERT=cambridgeltl/SapBERT-from-PubMedBERT-fulltext": "before=$MINILM",
    "terms.tsv": "runs/demo/dataset/heldout/dictionary.tsv",
    "coded.tsv": "runs/demo/dataset/heldout/mentions.tsv",
    "coded_test.tsv": "runs/demo/dataset/heldout/mentions.tsv",
    "--recipe recall": f"--recipe recall_small {SHORT} --eval-steps 8",
    "--recipe rank": f"--recipe rank_small {SHORT} --eval-steps 8",
}


def blocks(repo: Path) -> list[tuple[str, str]]:
    """(language, text) of each block of code in the README."""
    return BLOCK.findall((repo / "README.md").read_text(encoding="utf-8"))


def first_hour(repo: Path) -> list[tuple[str, str]]:
    """The blocks of the README, and those of FIRST_HOUR."""
    found = blocks(repo)
    for page, heading, count in FIRST_HOUR:
        _, below = (repo / page).read_text(encoding="utf-8").split(f"{heading}\n", 1)
        found += BLOCK.findall(below)[:count]
    return found


def pages(repo: Path) -> list[str]:
    """The pages of docs/, as paths in the repository."""
    return sorted(str(path.relative_to(repo)) for path in (repo / "docs").rglob("*.md"))


def commands(text: str) -> list[list[str]]:
    """The words of each command of a block, with the values of the variables that it sets."""
    found, open_line = [], ""
    values: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        line = VARIABLE.sub(lambda name: values.get(name[1] or name[2], "VALUE"), open_line + line)
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a string in quotes that goes on
            open_line = line + "\n"
            continue
        open_line = ""
        while words and ASSIGNMENT.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            values[name] = value
        if words:
            found.append(words)
    return found


def headings(file: Path) -> set[str]:
    """The anchors of a file's headings, as GitHub makes them."""
    found = re.findall("^#+ (.*)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in found}


def test_its_links_and_pictures_lead_somewhere(repo):
    text = (repo / "README.md").read_text(encoding="utf-8")
    for file in (*CITED, *pages(repo)):
        for target, anchor in LINK.findall((repo / file).read_text(encoding="utf-8")):
            if "://" not in target:
                there = (repo / file).parent / target if target else repo / file
                assert there.exists(), f"{file}: {target}"
                assert not anchor or anchor[1:] in headings(there), f"{file}: {target}{anchor}"
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert 0 < (repo / picture).stat().st_size <= MOST_BYTES_OF_A_PICTURE


def test_it_is_read_in_minutes(repo):
    text = (repo / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES and len(text.split()) <= MOST_WORDS


def test_its_table_names_recipes(repo):
    text = (repo / "README.md").read_text(encoding="utf-8")
    table = text.split("| recipe |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named and named <= RECIPES.keys(), named - RECIPES.keys()


def test_its_commands_are_spelled_right(repo):
    """Each flag is known, and each file that is run is there."""
    seen = [words for _, text in blocks(repo) for words in commands(text) if words[0] == "bash"]
    assert [words[1:] for words in seen] == [["launch/train.sh"], ["launch/test.sh"]]


def bash_blocks(repo: Path, files: tuple[str, ...] | list[str]) -> list[tuple[str, list[str]]]:
    """(file, command) for each command of the bash blocks of some files."""
    return [
        (file, words)
        for file in files
        for language, text in BLOCK.findall((repo / file).read_text(encoding="utf-8"))
        if language == "bash"
        for words in commands(text)
    ]


def test_the_commands_of_all_pages_are_spelled_right(repo):
    """Each flag is known, and each file that is run is there."""
    seen = set()
    for file, words in bash_blocks(repo, [*CITED, *pages(repo)]):
        if words[0] == "bash":
            assert (repo / words[1]).is_file(), (file, words)
            if words[1] == "launch/train.sh":
                parse_launched(words[2:])
        elif words[0] == "uvx":
            assert words[1:4] == ["--from", ".", "coder-jax"], (file, words)
            parse(["coder_jax", *words[4:]])
        elif words[:2] == ["python", "-m"]:
            seen.add(words[2] if words[2] != "coder_jax" else words[3])
            if words[2].startswith(("benchmarks.", "launch.")):
                check_measurement(repo, words[2:])
            else:
                parse(words[2:])
            if words[3:4] == ["evaluate"]:
                assert {"--json", "--compare", "--help"} & set(words), (file, words)
        else:
            assert words[0] in ELSEWHERE or words[0].startswith(".ci/"), (file, words)
    data = ("build", "build_mentions", "derive_keywords", "skip_gram")
    assert seen >= (_VERBS.keys() - {"build", "train", "demo"}) | {
        f"data_pipeline.{name}" for name in data
    }


def parse_launched(words: list[str]) -> None:
    """Parses what stands behind launch/train.sh."""
    if not words or words[0] in ("demo", "...", "build") or "--help" in words:
        return
    if words[0] in _VERBS:
        parse(["coder_jax", *words])
    else:
        train.parse(words)


def check_measurement(repo: Path, words: list[str]) -> None:
    """A module of benchmarks/ or launch/ is there, and its package knows the flags."""
    module, *rest = words
    path = repo / module.replace(".", "/")
    assert path.with_suffix(".py").is_file(), words
    known = "".join(file.read_text(encoding="utf-8") for file in path.parent.glob("*.py"))
    for flag in (word for word in rest if word.startswith("--") and word != "--help"):
        assert f'"{flag}"' in known or f'"{flag.replace("--no-", "--")}"' in known, (flag, words)


def parse(words: list[str]) -> None:
    """Parses a command of ours; BadInput if it has a flag that is not known."""
    module, *rest = words
    if module.startswith("data_pipeline."):
        options = {
            "data_pipeline.build": BuildOptions,
            "data_pipeline.build_mentions": MentionOptions,
            "data_pipeline.derive_keywords": KeywordOptions,
            "data_pipeline.skip_gram": SkipGramOptions,
        }[module]
    else:
        assert module == "coder_jax" and rest[0] in _VERBS, words
        command = f"coder_jax.commands.{rest.pop(0)}".replace("-", "_")
        if command.endswith(".demo"):
            return
        options = importlib.import_module(command).OPTIONS
    if "--help" in rest:
        return
    if ">" in rest:
        rest = rest[: rest.index(">")]
    parsed(options, rest)


OPENED_ELSEWHERE = """
from transformers import AutoModel, AutoTokenizer
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("mine")
assert model.encode(["heart attack"]).shape == (1, 384)
assert AutoModel.from_pretrained("mine").config.hidden_size == 384
assert AutoTokenizer.from_pretrained("mine")
"""


@pytest.mark.slow
def test_the_first_hour(repo, minilm_path, tmp_path):
    home = tmp_path / "coder_jax"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repo, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repo / name, home / name)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CODER_JAX", "JAX", "PYTHON", "VIRTUAL_ENV"))
    } | {"MINILM": str(minilm_path), "HF_HUB_OFFLINE": "1"}

    def run(command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}"
        assert "Traceback" not in done.stdout, done.stdout[-6000:]
        return done.stdout

    def bash(text: str) -> str:
        for there, stand_in in STAND_INS.items():
            text = text.replace(there, stand_in)
        active = "if [ -d .venv ]; then source .venv/bin/activate; fi\n"
        return run(["bash", "-euo", "pipefail", "-c", active + text])

    printed = {}
    (home / "mentions.txt").write_text("strange heart beat\nshort fingers and toes\n")
    for number, (language, text) in enumerate(first_hour(home)):
        if language == "python":
            printed[number] = run([str(home / ".venv/bin/python"), "-c", text])
        elif language == "bash" and "launch/test.sh" not in text:
            if "mine.obo" in text:
                bash("python -m benchmarks.synthetic_release --scale 0.0005 --out invented")
            printed[number] = bash(text)

    assert "acc@1" in printed[0] and (home / "runs" / "demo" / "report.html").is_file()
    # The line that the demo prints to be copied does the same as the README's.
    line = printed[0].strip().splitlines()[-1].strip()
    run(["bash", "-euo", "pipefail", "-c", line])
    coded = (home / "coded.csv").read_text(encoding="utf-8")
    assert (home / "runs" / "demo" / "coded.csv").read_text(encoding="utf-8") == coded
    rows = list(csv.DictReader(coded.splitlines()))
    assert [row["status"] for row in rows[6:7] + rows[-1:]] == ["exact", "no answer"]
    # What the review page saves is taken back.
    assert (home / "review.html").stat().st_size > 100_000
    (home / "list_decisions.csv").write_text(
        "mention,concept,preferred_name,decision,note\n"
        f"{rows[0]['local_term']},{rows[1]['concept']},,accepted,\n"
    )
    mapping = next(text for _, text in blocks(home) if "--review" in text)
    bash(mapping.replace("--review review.html", "--decided list_decisions.csv"))
    again = list(csv.DictReader((home / "coded.csv").read_text(encoding="utf-8").splitlines()))
    assert (again[0]["status"], again[0]["concept"]) == ("decided", rows[1]["concept"])
    assert [{name: row[name] for name in rows[0]} for row in again[1:]] == rows[1:]
    assert (home / "runs" / "mine" / "report.html").is_file()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(home / "mine", elsewhere / "mine")
    done = subprocess.run(
        [sys.executable, "-P", "-c", OPENED_ELSEWHERE], cwd=elsewhere, check=False
    )
    assert done.returncode == 0
