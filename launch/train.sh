#!/usr/bin/env bash
# Train a CODER encoder. Makes its own Python environment the first time (launch/environment.sh).
#
#   bash launch/train.sh
#       The demo: reads a real ontology, trains for minutes on the CPU, measures before and after,
#       exports, and says where everything lies (runs/demo in the folder you call it from).
#   bash launch/train.sh demo --help
#       The same demo with options, such as --out DIR.
#   bash launch/train.sh --recipe coder_eng --data DIR --out DIR \
#           --init microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract
#       A real run: every argument goes to 'python -m coder_jax train', which lists its recipes where
#       none is given. Called again with the same --out, it goes on where it stopped.
#   bash launch/train.sh --recipe coder_eng --help
#       All options of a run.
#   bash launch/train.sh encode --model DIR --out vectors.npy terms.txt
#       Any other verb of 'python -m coder_jax' (evaluate, normalize, export, report), or build:
#       'python -m data_pipeline.build'.
#
# Paths are relative to the folder you call it from. Environment variables (which Python, where the
# environment lies, which build of jax): see docs/scale/environment.md.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit
fi

python=$(bash "$repo/launch/environment.sh" requirements.txt requirements-demo.txt -- "$@")
export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
# A step on a CPU takes its gigabytes of memory anew: in huge pages that costs a tenth less time.
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}"

# -P: a folder or file of the caller's that is named like a module must not be imported instead.
# exec: signals (Ctrl-C, a scheduler's SIGTERM) reach Python itself, which then saves and stops.
[ $# -gt 0 ] || set -- demo
case $1 in
    -*) exec "$python" -P -m coder_jax train "$@" ;;
    *) exec "$python" -P -m coder_jax "$@" ;;
esac
