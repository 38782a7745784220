#!/usr/bin/env bash
# A run on a TPU slice of Google Cloud: asks for the slice, brings this code to all its hosts, runs
# launch/train.sh on them, and starts again after a preemption.
#
#   bash launch/tpu_pod.sh --name eng --zone us-west4-a --type v5litepod-16 --spot -- \
#       --recipe coder_eng --data gs://BUCKET/umls --out gs://BUCKET/runs/eng \
#       --init microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract
#
# Before '--' (after it: arguments of launch/train.sh, where files must be on gs://, as the hosts of
# a slice share no disk; for 'encode', CODER++ and 'mlnorm_classes' --prepare must mount one on all,
# see docs/scale/machines.md):
#   --name NAME        of the slice; one of that name that is there already is used (default coder-jax)
#   --zone ZONE        where
#   --type TYPE        which slice: v5litepod-16 (v5e, 16 chips), v6e-64, ...
#   --project PROJECT  (default: gcloud's own)
#   --runtime VERSION  software of the hosts (default: that of v5e or v6e)
#   --spot             cheaper, may be taken away at any time
#   --create-flag F    one more flag for 'gcloud compute tpus queued-resources create'; repeatable
#   --env NAME=VALUE   environment variable of the run; repeatable
#   --prepare COMMAND  run on each host first, after Python 3.11 was installed where it is missing
#   --restarts N       start again at most N times (default 100)
#   --delete           delete the slice at the end, also after an error (but not if the terminal is
#                      closed); else it stays and costs
#   --dry-run          only print the commands
#
# Needs a git clone of this repository and gcloud, logged in, and stays in the foreground (use
# tmux). Ctrl-C and SIGTERM make the run save and stop. Exit status: that of the run.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
poll_seconds=30

say() { echo "tpu_pod: $*" >&2; }
fail() { say "$*"; exit 2; }

name=coder-jax zone='' type='' project='' runtime='' spot='' restarts=100 delete='' dry_run='' there=''
prepare=''
create_flags=() variables=''
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "${BASH_SOURCE[0]}"; exit ;;
        --spot) spot=yes; shift; continue ;;
        --delete) delete=yes; shift; continue ;;
        --dry-run) dry_run=yes; shift; continue ;;
    esac
    [ $# -gt 1 ] || fail "$1 needs a value, or is no option (see --help)"
    case $1 in
        --name) name=$2 ;;
        --zone) zone=$2 ;;
        --type) type=$2 ;;
        --project) project=$2 ;;
        --runtime) runtime=$2 ;;
        --create-flag) create_flags+=("$2") ;;
        --env)
            case $2 in [A-Za-z_]*=*) ;; *) fail "--env is '$2'; expected NAME=VALUE" ;; esac
            variables="$variables $(printf '%s=%q' "${2%%=*}" "${2#*=}")" ;;
        --prepare) prepare=$2 ;;
        --restarts)
            case $2 in '' | *[!0-9]*) fail "--restarts is '$2'; expected a whole number" ;; esac
            restarts=$2 ;;
        *) fail "there is no option '$1'; the arguments of the run come after '--' (see --help)" ;;
    esac
    shift 2
done
[ $# -gt 1 ] || fail "found no '-- ARGUMENTS' of launch/train.sh (see --help)"
shift
[ -n "$zone" ] || fail "--zone is missing: where shall the slice be?"
[ -n "$type" ] || fail "--type is missing: which slice, such as v5litepod-16 or v6e-16?"
if [ -z "$runtime" ]; then
    case $type in
        v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
        v6e-*) runtime=v2-alpha-tpuv6e ;;
        *) fail "--runtime is missing: the software version for $type" ;;
    esac
fi
where=(--zone "$zone")
[ -z "$project" ] || where+=(--project "$project")
[ -z "$spot" ] || create_flags+=(--spot)

run() {
    if [ -n "$dry_run" ]; then
        printf '%q ' "$@"
        echo
    else
        "$@"
    fi
}

# What Google says of the slice: ACTIVE, WAITING_FOR_RESOURCES, SUSPENDED, ...; empty if there is none.
state() {
    local answer
    if answer=$(gcloud compute tpus queued-resources describe "$name" "${where[@]}" \
        --format='value(state.state)' 2>&1); then
        echo "$answer"
    else
        case $answer in
            *NOT_FOUND* | *"not found"*) ;;
            *) say "gcloud: $answer"; exit 1 ;;
        esac
    fi
}

create() {
    say "asking for $type in $zone"
    there=yes # it may be, even if the answer gets lost
    run gcloud compute tpus queued-resources create "$name" --node-id "$name" "${where[@]}" \
        --accelerator-type "$type" --runtime-version "$runtime" \
        ${create_flags[@]+"${create_flags[@]}"}
}

remove() {
    run gcloud compute tpus queued-resources delete "$name" "${where[@]}" --force --quiet
}

on_all_hosts() {
    run gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --worker=all --command "$1"
}

# Until the slice is there: waits, asks for it, and asks again for one that was taken away.
get_slice() {
    local now before=''
    if [ -n "$dry_run" ]; then
        create
        return
    fi
    while :; do
        stop_if_asked
        now=$(state)
        [ -z "$now" ] || there=yes
        case $now in
            ACTIVE) return ;;
            '') create ;;
            SUSPENDED) say "the slice was taken away"; remove ;;
            FAILED) fail "the request for the slice failed: 'gcloud compute tpus queued-resources" \
                "describe $name --zone $zone' says why" ;;
        esac
        [ "$now" = "$before" ] || say "the slice is ${now:-not there yet}"
        before=$now
        sleep "$poll_seconds"
    done
}

# The files that git knows, as they are here now. Its status is 255 where they did not arrive, else
# that of what then fails on a host.
send_code() {
    local archive sent=0
    archive=$(mktemp "${TMPDIR:-/tmp}/coder_jax.XXXXXX") || fail "found no place for a file in ${TMPDIR:-/tmp}"
    (
        cd "$repo"
        git ls-files -z | while IFS= read -r -d '' file; do
            if [ -e "$file" ]; then printf '%s\0' "$file"; fi
        done | tar --null -T - -czf "$archive"
    ) || fail "the files of $repo cannot be packed into $archive"
    run gcloud compute tpus tpu-vm scp "$archive" "$name:coder_jax.tgz" "${where[@]}" --worker=all ||
        sent=255
    rm -f "$archive"
    # What fails on a host, such as a download, is tried three times; after a lost connection (255)
    # all of it is.
    for pause in "$poll_seconds" "$poll_seconds" ''; do
        [ "$sent" -ne 255 ] || break
        stop_if_asked
        sent=0
        on_all_hosts "$install_python" && { [ -z "$prepare" ] || on_all_hosts "$prepare"; } &&
            on_all_hosts "$unpack" || sent=$?
        [ "$sent" -ne 0 ] && [ -n "$pause" ] || break
        say "the hosts could not be prepared (status $sent); trying it again"
        sleep "$pause"
    done
    return "$sent"
}
# A new machine may be updating itself: apt-get waits ten minutes for that.
install_python='command -v python3.11 >/dev/null || { sudo add-apt-repository -y ppa:deadsnakes/ppa && sudo apt-get -o DPkg::Lock::Timeout=600 install -y python3.11 python3.11-venv; }'
# Beside what is there, so that the environment stays.
unpack='mkdir -p coder_jax && tar -xzf coder_jax.tgz -C coder_jax && CODER_JAX_ACCELERATOR=tpu bash coder_jax/launch/environment.sh requirements.txt requirements-demo.txt'

# A lost ssh connection leaves a host's process behind, which would keep the chips.
# shellcheck disable=SC2016  # these run on the hosts
signal_run='pid=$(cat coder_jax.pid 2>/dev/null) && grep -q coder_jax "/proc/$pid/cmdline" 2>/dev/null && kill -TERM "$pid"'
end_leftover="if $signal_run; then for i in \$(seq 120); do kill -0 \$pid 2>/dev/null || break; sleep 1; done; kill -KILL \$pid 2>/dev/null; fi; true"
train="echo \$\$ >coder_jax.pid; export CODER_JAX_ACCELERATOR=tpu$variables; exec bash coder_jax/launch/train.sh $(printf '%q ' "$@")"

asked=0 # signals so far
# Called by the traps below.
# shellcheck disable=SC2329
ask_to_stop() {
    asked=$((asked + 1))
    say "asking all hosts to save and stop"
    on_all_hosts "$signal_run" || true
}
trap ask_to_stop INT TERM
stop_if_asked() { [ "$asked" -eq 0 ] || exit 130; }

# Job control keeps a Ctrl-C at the terminal away from ssh, which must stay to the end. Sets `status`.
run_once() {
    local asked_before
    on_all_hosts "$end_leftover" || { status=255; return; }
    stop_if_asked
    set -m
    on_all_hosts "$train" &
    set +m
    while :; do
        asked_before=$asked status=0
        wait $! || status=$?
        [ "$asked" -ne "$asked_before" ] || break # else it was the trap that ended the wait
    done
}

[ -n "$dry_run" ] || command -v gcloud >/dev/null || fail "found no gcloud; install Google's Cloud SDK"
[ -n "$(git -C "$repo" ls-files launch/tpu_pod.sh)" ] ||
    fail "$repo: git tracks no files here; expected a git clone (not the ZIP file), as the slice gets these files"

# Called by the trap below, also if the script ends while it waits for the slice.
# shellcheck disable=SC2329
at_end() {
    if [ -z "$there" ]; then
        return
    elif [ -n "$delete" ]; then
        remove || true
    elif [ -z "$dry_run" ]; then
        say "the slice $name is still there, or asked for, and costs; to delete it: gcloud compute tpus" \
            "queued-resources delete $name ${where[*]} --force"
    fi
}
trap at_end EXIT
trap 'delete=; exit 129' HUP # a closed terminal deletes nothing
while :; do
    get_slice
    if send_code; then run_once; else status=$?; fi
    [ "$status" -ne 0 ] && [ "$asked" -eq 0 ] && [ "$restarts" -gt 0 ] || break
    # 75: asked to stop, or a host was lost; 134, 137: ended by jax or killed, as a host was lost;
    # 143: asked to stop before it could listen; 255: ssh lost its connection. A slice that was taken
    # away may look like anything.
    case $status in
        75 | 134 | 137 | 143 | 255) ;;
        *) [ "$(state)" != ACTIVE ] || break ;;
    esac
    restarts=$((restarts - 1))
    say "it ended with status $status; starting again, to go on where it stopped"
    [ "$status" -ne 255 ] || sleep "$poll_seconds"
done
[ "$status" -eq 0 ] || say "it ended with status $status"
exit "$status"
