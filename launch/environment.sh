#!/usr/bin/env bash
# Make the Python environment ready and print its python on stdout (everything else goes to stderr).
#
# In:  names of requirement files in the repository, e.g.  bash launch/environment.sh requirements.txt
#      After them perhaps '--' and the arguments of a run: if one is an address in a bucket (s3://,
#      gs://), requirements-cloud.txt is installed as well.
# Out: the path of a python in which they are installed at the versions of constraints.txt. With
#      requirements.txt the project itself is installed too, as it lies here (editable): then
#      'coder-jax', 'python -m coder_jax' and 'import coder_jax' work from any folder.
#
# The environment remembers what was installed; while the requirement files stay the same, a second
# call does nothing. Of several calls at once, also from machines that share the folder, one makes
# it and the others wait. It understands:
#   CODER_JAX_PYTHON       use this python as it is (conda, a container): nothing is made or installed
#   CODER_JAX_VENV         where the environment lies (default: .venv in the repository)
#   CODER_JAX_ACCELERATOR  cpu, cuda12, cuda13 or tpu: which build of jax (default: what is found here)
#
# Nothing but the environment is written into the repository, which may be read-only. From a
# repository that was moved the project is installed anew.
#
# Written for bash 3.2 too, the one that macOS has.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"
    exit
fi

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${CODER_JAX_VENV:-$repo/.venv}
longest_wait=1800

say() { echo "coder_jax: $*" >&2; }
fail() { say "$*"; exit 1; }

# TensorFlow at the version of constraints.txt has wheels for Python 3.11 to 3.13.
# The order is: the version that was tested most, then whatever else will do.
find_python() {
    local name
    for name in python3.11 python3 python3.12 python3.13 python; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    fail "found no Python 3.11, 3.12 or 3.13 on PATH (python3 is" \
        "'$(python3 --version 2>&1 || true)'). Install one: 'apt-get install python3 python3-venv'" \
        "on Debian 12 and later, 'brew install python@3.12' on macOS."
}

# Google's PCI vendor number is on its network cards too, so the device number decides.
has_tpu() {
    local device
    for device in /sys/bus/pci/devices/*; do
        [ -r "$device/vendor" ] && [ "$(cat "$device/vendor")" = 0x1ae0 ] || continue
        case $(cat "$device/device") in
            0x0027 | 0x005e | 0x0062 | 0x0063 | 0x006f | 0x0076) return 0 ;;
        esac
    done
    [ -n "${TPU_NAME:-}${TPU_ACCELERATOR_TYPE:-}" ] || compgen -G '/dev/accel[0-9]*' >/dev/null
}

# NVIDIA's driver 580 is the first for CUDA 13, 525 the first for CUDA 12.
find_accelerator() {
    local driver
    if driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null); then
        driver=${driver%%.*}
        case $driver in
            '' | *[!0-9]*) echo cpu ;;
            *) if [ "$driver" -ge 580 ]; then echo cuda13
               elif [ "$driver" -ge 525 ]; then echo cuda12
               else
                   say "NVIDIA driver $driver is older than 525, the oldest that jax supports: using the CPU"
                   echo cpu
               fi ;;
        esac
    elif has_tpu; then
        echo tpu
    else
        echo cpu
    fi
}

# A killed first run leaves an environment without pip; it is made afresh. A folder that is anything
# but an environment is never touched.
make_venv() {
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    if [ -e "$venv" ] && [ ! -e "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
        fail "'$venv' exists and is no Python environment; set CODER_JAX_VENV to another folder."
    fi
    local python
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail \
        "'$python' cannot make environments. On Debian and Ubuntu: apt-get install python3-venv"
    say "making the environment $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
}

# What has to be installed for one requirement file, as text: it is kept in the environment once it
# is installed, and compared at the next call.
wanted() {
    if [ "$1" = "$itself" ]; then
        echo "$repo"
        cat "$repo/pyproject.toml"
    else
        echo "# jax for $accelerator"
        cat "$repo/constraints.txt" "$repo/$1"
    fi
}
itself=coder-jax # the project, among the names of requirement files

installed() { [ "$(cat "$venv/installed-$1" 2>/dev/null)" = "$(wanted "$1")" ]; }

# Whether nothing is left to do.
ready() {
    local name
    "$venv/bin/python" -c '' 2>/dev/null || return 1
    for name in "$@"; do
        installed "$name" && continue
        # The launch scripts find the project themselves: where nothing can be written, that will do.
        [ "$name" = "$itself" ] && [ ! -w "$venv" ] || return 1
    done
}

# Only one may write into the environment. A link is the lock, and the text in it says whose it is:
# making one either succeeds or fails as a whole, on network file systems too.
lock() {
    local holder waited=0
    mkdir -p "$(dirname "$venv")"
    until ln -s "$me" "$venv.lock" 2>/dev/null; do
        [ -w "$(dirname "$venv")" ] || fail \
            "$(dirname "$venv") cannot be written to; set CODER_JAX_VENV to another folder."
        holder=$(readlink "$venv.lock" || true)
        if was_killed "$holder" && take_away "$holder"; then continue; fi
        [ "$waited" -ne 0 ] || say "waiting for another process (${holder:-just ending}) that makes $venv"
        waited=$((waited + 1))
        [ "$waited" -lt "$longest_wait" ] || fail \
            "waited $longest_wait s for process '$holder' (machine, id), which makes $venv." \
            "If it is no longer there: rm -f $venv.lock $venv.lock.gone"
        sleep 1
    done
    trap 'rm -f "$venv.lock"' EXIT
}
me="$(uname -n) $$"

# Whether process $1 was on this machine and is no longer.
was_killed() {
    [ "${1%% *}" = "$(uname -n)" ] && ! kill -0 "${1##* }" 2>/dev/null && [ ! -d "/proc/${1##* }" ]
}

# Take the lock of process $1, which was killed, away. Of several that see it one may, and only while
# it is still there: else the lock of the next process would go.
take_away() {
    ln -s "$me" "$venv.lock.gone" 2>/dev/null || return 1
    [ "$(readlink "$venv.lock" || true)" != "$1" ] || rm -f "$venv.lock"
    rm -f "$venv.lock.gone"
}

install() {
    local name
    for name in "$@"; do
        installed "$name" && continue
        [ "$name" = "$itself" ] ||
            say "installing $name into $venv (minutes, the first time; to watch: tail -f $venv/pip.log)"
        # The demo's packages are only opened as data: their dependencies would be dead weight.
        case $name in
            # By the environment's own setuptools: an isolated build would fetch one.
            "$itself") pip_install --no-deps --no-build-isolation -e "$repo" ;;
            requirements-demo.txt) pip_install --no-deps -r "$repo/$name" ;;
            requirements.txt)
                if [ "$accelerator" = cpu ]; then
                    pip_install -r "$repo/$name"
                else
                    pip_install -r "$repo/$name" "jax[$accelerator]"
                fi ;;
            *) pip_install -r "$repo/$name" ;;
        esac
        wanted "$name" >"$venv/installed-$name.part"
        mv "$venv/installed-$name.part" "$venv/installed-$name"
    done
}

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
        -c "$repo/constraints.txt" "$@" >"$venv/pip.log" 2>&1 && return
    tail -n 15 "$venv/pip.log" >&2
    fail "pip could not install this (all it said is in $venv/pip.log)." \
        "Once the cause is gone, the same command goes on from here."
}

if [ -n "${CODER_JAX_PYTHON:-}" ]; then
    command -v "$CODER_JAX_PYTHON" >/dev/null || fail "CODER_JAX_PYTHON: found no '$CODER_JAX_PYTHON'"
    command -v "$CODER_JAX_PYTHON"
    exit
fi
accelerator=${CODER_JAX_ACCELERATOR:-$(find_accelerator)}
case $accelerator in
    cpu | cuda12 | cuda13 | tpu) ;;
    *) fail "CODER_JAX_ACCELERATOR is '$accelerator'; expected cpu, cuda12, cuda13 or tpu" ;;
esac
names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    names+=("$1")
    shift
done
case " $*" in *[\ =]s3://* | *[\ =]gs://*) names+=(requirements-cloud.txt) ;; esac
set -- ${names[@]+"${names[@]}"}
for name in "$@"; do
    [ -f "$repo/$name" ] || fail "found no requirement file '$repo/$name'"
done
# Last, as requirements.txt brings what builds it.
case " $* " in *' requirements.txt '*) set -- "$@" "$itself" ;; esac
if ! ready "$@"; then
    lock
    make_venv
    install "$@"
fi
echo "$venv/bin/python"
