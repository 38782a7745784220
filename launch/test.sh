#!/usr/bin/env bash
# Run the tests. Makes its own Python environment the first time (launch/environment.sh).
#
#   bash launch/test.sh                          all tests but the slow ones, two files at a time
#   bash launch/test.sh -m slow                  only the slow ones
#   bash launch/test.sh tests/coder_jax/training -x   any argument of pytest; then one file at a time
#   JAX_PLATFORMS=cuda bash launch/test.sh -n 0  on a GPU, which one process takes as a whole
#
# Paths are relative to the repository, the way pytest prints them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' launch/test.sh
    exit
fi

python=$(bash launch/environment.sh requirements.txt requirements-demo.txt requirements-test.txt \
    requirements-cloud.txt)
# Two, however many cores: many tests start processes of their own. Files come in alphabetical
# order: by their number of tests, the file of the longest test would come last, and one worker wait.
[ $# -gt 0 ] || set -- -n 2 --dist loadfile --no-loadscope-reorder
# Those processes would compile the project's Python anew, each for half a second.
unset PYTHONDONTWRITEBYTECODE

# The tests write 35,000 small files, and wait for the disk after many of them. In memory they do
# not, where there is room and programs may lie there. Whatever ends the tests, the files go.
memory=/dev/shm
if [ -z "${TMPDIR:-}" ] && [ -w $memory ] && ! grep -q " $memory [^ ]* [^ ]*noexec" /proc/mounts &&
    [ "$(df -Pk $memory | awk 'END {print $4}')" -gt 4000000 ] &&
    [ "$(awk '/MemAvailable/ {print $2}' /proc/meminfo)" -gt 12000000 ]; then
    TMPDIR=$(mktemp -d "$memory/coder_jax-tests-XXXXXX")
    export TMPDIR
    (tail --pid=$$ -f /dev/null && rm -rf "$TMPDIR") >/dev/null 2>&1 &
fi
exec "$python" -m pytest "$@"
