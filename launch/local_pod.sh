#!/usr/bin/env bash
# Several processes of one run on this machine, to see multi-host work without a cluster.
#
#   bash launch/local_pod.sh 2 -- --recipe small --data DIR --init MODEL --out DIR
#       Two processes, each with the arguments of launch/train.sh after '--'.
#   bash launch/local_pod.sh 2 -- encode --model DIR --out vectors.npy terms.txt
#       The same for another verb.
#   bash launch/local_pod.sh 2 -- python program.py
#       The same for a program of yours that uses coder_jax.
#
# Before '--':
#   --devices-per-host D  devices of each process (default 1): fake ones on the CPU; with
#                         JAX_PLATFORMS=cuda in the environment, D of the machine's GPUs each
#   --logs DIR            where host0.log, host1.log, ... go (default: a new folder in /tmp)
#   --grace S             seconds that the others have to end by themselves when one fails (default 20)
#   --restarts R          start all again, at most R times, if they ended in a way that a new start
#                         mends: asked to stop from outside, or one was killed (default 0)
#
# The terminal shows process 0, with '[0] ' before each line. Ctrl-C and SIGTERM go to all of them.
# Exit status: 0 if all ended well, the status of one that failed by itself, else 75 (try again).
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"; }
say() { echo "local_pod: $*" >&2; }
fail() { say "$*"; exit 2; }

# A whole number; else say what is wrong with which option.
whole() { case ${2:-} in '' | *[!0-9]*) fail "$1 is '${2:-}'; expected a whole number" ;; esac; }

case ${1:-} in
    -h | --help) usage; exit ;;
    '') usage >&2; exit 2 ;;
esac
count=$1
whole "the number of processes" "$count"
[ "$count" -gt 0 ] || fail "the number of processes is 0; expected 1 or more"
shift
devices=1 logs='' restarts=0 grace=20
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --devices-per-host) whole "$1" "${2:-}"; devices=$2 ;;
        --restarts) whole "$1" "${2:-}"; restarts=$2 ;;
        --grace) whole "$1" "${2:-}"; grace=$2 ;;
        --logs) logs=${2:-}; [ -n "$logs" ] || fail "--logs needs a folder" ;;
        *) fail "there is no option '$1'; the arguments of the run come after '--' (see --help)" ;;
    esac
    shift 2
done
[ $# -gt 1 ] || fail "found no '-- ARGUMENTS'; what shall the processes run? (see --help)"
shift

# Made once, before all the processes look for it.
python=$(bash "$repo/launch/environment.sh" requirements.txt requirements-demo.txt -- "$@")
export CODER_JAX_PYTHON=$python
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
if [ "$1" = python ]; then
    shift
    export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
    command=("$python" -P)
else
    command=(bash "$repo/launch/train.sh")
fi
[ -n "$logs" ] || logs=$(mktemp -d "${TMPDIR:-/tmp}/local_pod.XXXXXX")
mkdir -p "$logs" && [ -w "$logs" ] || fail "--logs: the folder '$logs' cannot be made or written to; give another"
free_port='import socket; s = socket.socket(); s.bind(("localhost", 0)); print(s.getsockname()[1])'
# A progress bar ends its lines with a carriage return, and must be seen at once.
mark_lines='
import os, re
new_line = True
while text := os.read(0, 65536):
    marked = re.sub(rb"(?<=[\r\n])(?=[^\r\n])", b"[0] ", text)
    os.write(1, b"[0] " + marked if new_line and text[:1] not in b"\r\n" else marked)
    new_line = text[-1:] in b"\r\n"'

# Job control gives each process a group of its own, so that a Ctrl-C at the terminal reaches it
# once, from here, and its own children end with it.
set -m
hosts=() reader='' asked=''

# Send signal $1 to all processes; with '-' as $2 to the children of each, too.
tell_all() {
    local host
    for host in "${hosts[@]:-}"; do
        [ -z "$host" ] || kill "-$1" -- "$2$host" 2>/dev/null || true
    done
}
# Both are called by the traps below.
# shellcheck disable=SC2329
pass_on() { asked=$1; say "SIG$1: passed on to all processes"; tell_all "$1" ''; }
# shellcheck disable=SC2329
clean_up() { tell_all KILL -; rm -f "$logs/terminal"; }
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM
trap clean_up EXIT

# Becomes process $1 of the run.
run_host() {
    local first=$(($1 * devices)) i gpus
    gpus=$first
    for ((i = first + 1; i < ($1 + 1) * devices; i++)); do gpus=$gpus,$i; done
    case $JAX_PLATFORMS in
        cpu*) export JAX_NUM_CPU_DEVICES=$devices ;;
        *) export JAX_LOCAL_DEVICE_IDS=$gpus ;;
    esac
    export JAX_COORDINATOR_ADDRESS=localhost:$port JAX_NUM_PROCESSES=$count JAX_PROCESS_ID=$1
    local out=$logs/host$1.log
    [ "$1" -ne 0 ] || out=$logs/terminal
    shift
    exec "${command[@]}" "$@" >"$out" 2>&1
}

start_all() {
    local host
    port=$("$python" -c "$free_port")
    rm -f "$logs/terminal"
    mkfifo "$logs/terminal"
    tee "$logs/host0.log" <"$logs/terminal" | "$python" -c "$mark_lines" &
    reader=$!
    hosts=()
    for ((host = 0; host < count; host++)); do
        run_host "$host" "$@" &
        hosts[host]=$!
    done
}

# Wait for all; sets `result`. A status that only follows from another's end counts as 75.
wait_for_all() {
    local host status running=$count failed_at=''
    result=0
    while [ "$running" -gt 0 ]; do
        sleep 0.2 || true
        for ((host = 0; host < count; host++)); do
            [ -n "${hosts[host]}" ] || continue
            kill -0 "${hosts[host]}" 2>/dev/null && continue
            status=0
            wait "${hosts[host]}" 2>/dev/null || status=$?
            hosts[host]=''
            running=$((running - 1))
            [ "$status" -ne 0 ] || continue
            say "process $host ended with status $status ($logs/host$host.log)"
            failed_at=${failed_at:-$SECONDS}
            case $status in
                75 | 134 | 137 | 143) [ "$result" -ne 0 ] || result=75 ;;
                *) result=$status ;;
            esac
        done
        if [ -n "$failed_at" ] && [ $((SECONDS - failed_at)) -gt "$grace" ]; then
            tell_all KILL -
        fi
    done
    wait "$reader" || true
}

say "$count processes with $devices device(s) each; logs in $logs"
while :; do
    start_all "$@"
    wait_for_all
    if [ "$result" -ne 75 ] || [ -n "$asked" ] || [ "$restarts" -eq 0 ]; then
        break
    fi
    restarts=$((restarts - 1))
    say "starting all again ($restarts more restarts)"
done
exit "$result"
