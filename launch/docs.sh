#!/usr/bin/env bash
# Build the documentation site, strictly: a warning is an error.
#
#   bash launch/docs.sh                  build/site, to open in a browser or to put on a web server
#   bash launch/docs.sh serve            show it at http://127.0.0.1:8000 while you write
#   bash launch/docs.sh serve -a :9000   any argument of mkdocs
#
# Makes a small environment of its own the first time (build/docs, 170 MB).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' launch/docs.sh
    exit
fi

python=build/docs/bin/python
if ! cmp -s requirements-docs.txt build/docs/installed.txt; then
    "${CODER_JAX_PYTHON:-python3}" -m venv build/docs
    "$python" -m pip install --quiet -r requirements-docs.txt
    cp requirements-docs.txt build/docs/installed.txt
fi
export NO_MKDOCS_2_WARNING=1
[ $# -gt 0 ] || set -- build
if [ "$1" = serve ]; then
    exec "$python" -m mkdocs "$@"
fi
exec "$python" -m mkdocs "$@" --strict
