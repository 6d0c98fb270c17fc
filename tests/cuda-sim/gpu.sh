#!/usr/bin/env bash
# Everything that a machine with GPUs has to prove, without a network: the suites on the real driver, compute-sanitizer, and
# what is measured. docs/testing.md says more.
#
#   gpu.sh prepare [PACK]         builds the programs, and puts them into a folder that may be taken to another machine
#   gpu.sh run RESULTS [PACK]     runs them; everything that is said goes into a folder, with a line for each step at the end
#
# PACK is target/gpu unless given. PACELINE_GPU_SECONDS bounds the run as a whole (570 unless set). PACELINE_GPU_PROFILE=dev
# builds without optimising, and PACELINE_GPU_SMALL=1 measures tiny sizes: for trying this out on the software driver.
set -euo pipefail
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
absolute() { case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }

prepare() {
    local pack folder name program profile=${PACELINE_GPU_PROFILE:-release}
    pack=$(absolute "${1:-$root/target/gpu}")
    cd "$root"
    # Debuggers have no use for these programs, which have to travel.
    export CARGO_PROFILE_RELEASE_STRIP=symbols
    cargo build --profile "$profile" -p paceline-tools --bins
    cargo build --profile "$profile" -p paceline-benches --bin device
    folder=${CARGO_TARGET_DIR:-target}/${profile/dev/debug}
    rm -rf "$pack"
    mkdir -p "$pack/release/deps"
    for name in device paceline all_reduce_perf all_gather_perf alltoall_perf sendrecv_perf hypercube_perf; do
        cp "$folder/$name" "$pack/release/"
    done
    while read -r name program; do
        cp "$program" "$pack/release/deps/$name"
    done < <(
        tests() { cargo test --profile "$profile" --no-run --message-format=json "$@" | sed -n "s/.*\"target\":{\"kind\":\[\"test\"\].*\"name\":\"\([a-z]*\)\".*\"executable\":\"\([^\"]*\)\".*/\1 \2/p"; }
        tests -p paceline-cuda-sim --features gpu-tests --test collectives --test perf
        tests -p paceline-transport --features cuda --test cuda
    )
    for name in collectives perf cuda; do
        [ -x "$pack/release/deps/$name" ] || { echo "gpu.sh: $name was not built" >&2; exit 1; }
    done
    cp "$0" "$pack/gpu.sh"
    du -sh "$pack"
}

seconds_left() { echo $((${PACELINE_GPU_SECONDS:-570} - SECONDS)); }

say() { echo "$*" | tee -a "$results/summary.txt"; }

# step NAME SECONDS COMMAND...: runs it for so many seconds at most.
step() {
    local name=$1 limit=$2 log status=0 began=$SECONDS left why skipped
    shift 2
    log=$results/$name.log
    left=$(seconds_left)
    if ((left < 5)); then
        say "skipped: $name: no time is left"
        return
    fi
    timeout --kill-after=10 $((limit < left ? limit : left)) "$@" >"$log" 2>&1 </dev/null || status=$?
    skipped=$(grep -o 'skipped: .*' "$log" | sort -u | tr '\n' ';') || true
    case $status in
    0) why=$(grep -m1 '^not run: ' "$log") && say "skipped: $name: ${why#not run: }" ||
        say "passed: $name: $((SECONDS - began)) s${skipped:+; within it $skipped}" ;;
    124 | 137) failures=$((failures + 1)) && say "failed: $name: not done after $((SECONDS - began)) s" ;;
    *) failures=$((failures + 1)) && say "failed: $name: status $status: $(grep -v '^ *$' "$log" | tail -1 | cut -c1-300)" ;;
    esac
}

sanitize() {
    local tool
    for tool in memcheck racecheck synccheck; do
        if ! command -v compute-sanitizer >/dev/null; then
            say "skipped: $tool: there is no compute-sanitizer"
            continue
        fi
        # Ranks that wait for each other would need kernels that run at the same time, which a sanitizer may not let them.
        step "$tool-collectives" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$pack/release/deps/collectives" conformance::a_rank_alone_conforms --exact --nocapture --test-threads=1
        step "$tool-reductions" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$pack/release/device" --worker local --small --rounds 1
    done
}

run() {
    [ -n "${1:-}" ] || usage
    mkdir -p "$1"
    results=$(absolute "$1")
    pack=$(absolute "${2:-$root/target/gpu}")
    [ -x "$pack/release/device" ] || { echo "gpu.sh: $pack holds no programs; gpu.sh prepare $pack" >&2; exit 2; }
    cache=$(mktemp -d)
    trap 'rm -rf "$cache"' EXIT
    : >"$results/summary.txt"
    failures=0
    local name nvrtc tests=("--nocapture" "--test-threads=1")
    for nvrtc in "$pack/nvrtc" "$root/target/nvrtc"; do
        if [ -z "${PACELINE_NVRTC:-}" ] && [ -d "$nvrtc" ]; then export PACELINE_NVRTC=$nvrtc; fi
    done
    # Streams of ranks that are threads must not share a queue, since their kernels wait for each other; and a kernel that is
    # loaded only when it is launched waits for those that run.
    export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
    export PACELINE_TEST_CUDA=1 PACELINE_CACHE=$cache
    cd "$results"

    if command -v nvidia-smi >/dev/null; then step nvidia-smi 30 nvidia-smi -q; else say "skipped: nvidia-smi: it is not there"; fi
    step layer 90 "$pack/release/deps/cuda" "${tests[@]}"
    step collectives 180 "$pack/release/deps/collectives" "${tests[@]}"
    step tools 90 "$pack/release/deps/perf" "${tests[@]}"
    sanitize
    local size=()
    if [ -n "${PACELINE_GPU_SMALL:-}" ]; then size=(--small --rounds 1 -n 2); fi
    step device-local 90 "$pack/release/device" --only local --json local.json "${size[@]}"
    step device-ranks 240 "$pack/release/device" --only ranks --json ranks.json "${size[@]}"
    # The same sizes three times: copied to boards, read where they lie, and messages.
    local range=(-b 8 -e 256M -f 8 -n 20)
    if [ -n "${PACELINE_GPU_SMALL:-}" ]; then range=(-b 8 -e 256K -f 32 -n 2); fi
    for name in all_reduce all_gather alltoall; do
        step "perf-$name" 60 "$pack/release/${name}_perf" -g 2 "${range[@]}" --device cuda
        step "perf-$name-registered" 60 "$pack/release/${name}_perf" -g 2 "${range[@]}" --device cuda -R 2
    done
    step perf-sendrecv 60 "$pack/release/sendrecv_perf" -g 2 "${range[@]}" --device cuda
    step device-nccl 90 "$pack/release/device" --only nccl --json nccl.json "${size[@]}"
    if ((failures > 0)); then
        say "$failures failed, after $SECONDS s"
        exit 1
    fi
    say "none failed, after $SECONDS s"
}

case ${1:-} in
prepare) prepare "${2:-}" ;;
run) run "${2:-}" "${3:-}" ;;
*) usage ;;
esac
