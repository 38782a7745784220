#!/usr/bin/env bash
# Check format (ruff format), style (ruff check), types (mypy), the scripts (shellcheck) and the
# Dockerfile (hadolint); all run, even if one fails:
#
#   bash launch/check.sh
#
# 'ruff format . && ruff check --fix .' with the environment's ruff mends most of what it finds.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=$(bash launch/environment.sh requirements.txt requirements-demo.txt requirements-test.txt \
    requirements-cloud.txt)
status=0
"$python" -m ruff format --check . || status=1
"$python" -m ruff check . || status=1
"$python" -m mypy || status=1
"$(dirname "$python")/shellcheck" launch/*.sh launch/slurm.sbatch benchmarks/*.sh .ci/run \
    || status=1
"$(dirname "$python")/hadolint" launch/Dockerfile || status=1
exit $status
