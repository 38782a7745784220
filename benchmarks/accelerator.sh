#!/usr/bin/env bash
# Measure this project on an accelerator, beside PyTorch and the CPU. No TensorFlow is needed there.
#
#   bash benchmarks/accelerator.sh --prepare OUT
#       First, on a machine with TensorFlow: writes OUT/prepared, the few megabytes that have to
#       travel (batches of the paper's step, their tokenizer, terms), by default made of the Human
#       Phenotype Ontology. --data DATASET takes a built dataset; --wheels 3.12 adds the small
#       packages that a machine with jax and PyTorch often lacks, for its version of Python.
#   bash benchmarks/accelerator.sh OUT
#       Then, where OUT was copied to: measures for at most nine minutes and writes
#       OUT/accelerator.json, the tables OUT/accelerator.md and OUT/accelerator.log. The parts: step
#       and vectors as on the CPU; train steps beside their peers; large groups with and without
#       --cache-chunks; encoding and search; memory planned and used; flags of XLA.
#       Each has a process and a time limit of its own: what fails or lacks a package costs only
#       itself, and the file says why.
#   bash benchmarks/accelerator.sh OUT --parts search flags
#       Some parts alone, such as those that found no time; the others stay in the file as they are.
#   bash benchmarks/accelerator.sh OUT --small
#       Everything tiny, to see in a minute or two that it runs, on a CPU too; results go to
#       OUT/accelerator_small.json and its like.
#   bash benchmarks/accelerator.sh OUT --list
#       The parts, and what each runs.
#
# Python is CODER_JAX_PYTHON, or python3: nothing is installed. All options:
# 'python -m benchmarks.accelerator --help'.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

if [ $# -eq 0 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit
fi

python=${CODER_JAX_PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "coder_jax: '$python' is no Python of version 3.11 or later; set CODER_JAX_PYTHON to one that" \
        "has jax" >&2
    exit 2
fi
# Without these not even what is missing for which part could be found out.
for package in jax numpy tqdm; do
    if ! "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$package'))"; then
        echo "coder_jax: the Python package $package is not installed for '$python'; set CODER_JAX_PYTHON" \
            "to a Python that has jax, flax and their like" >&2
        exit 2
    fi
done
export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
# -P: a folder of the caller's that is named like a module must not be imported instead.
exec "$python" -P -m benchmarks.accelerator "$@"
