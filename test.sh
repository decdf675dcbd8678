#!/usr/bin/env bash
# Builds Penstock and runs every test that this machine can run: ./test.sh [--sanitizers | --all]
#
#   1. the optimised build, with the gpu back end where there are a GPU and nvcc, and all its tests;
#   2. where there is nvcc and no GPU: every CUDA file compiled once, in a build of its own, and the
#      tests of what the compiler makes.
#
# --sanitizers: the engine's tests again, in two builds of their own, and nothing of the above:
#
#   3. AddressSanitizer and UndefinedBehaviorSanitizer, over the tests labelled unit, region, model,
#      fault and fuzz;
#   4. ThreadSanitizer, over the tests labelled unit, region, model and fault.
#
# --all: the four steps; tests that repeat themselves run at their full length, and step 3 includes
# the programs and their tests. Without it they run a quarter of their rounds.
#
# Installs missing Debian packages first. The last line counts the tests: "N passed, N failed, N
# skipped"; the exit status is 0 only if none failed. Suites that need a GPU report themselves as
# skipped where there is none.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root" || exit 1
plain=true sanitizers=false with_programs=OFF long_tests=OFF
asan_labels='unit|region|model|fault|fuzz'
case "$*" in
    "") ;;
    --sanitizers) plain=false sanitizers=true ;;
    --all) sanitizers=true with_programs=ON long_tests=ON asan_labels+='|apps' ;;
    *)
        echo "usage: ./test.sh [--sanitizers | --all]" >&2
        exit 2
        ;;
esac
# What the mount is tried with. PostgreSQL is used if it is there; its package would start a server.
on_the_mount=()
[ ! -e /dev/fuse ] || on_the_mount=(git fio make)
if ! bash tools/install_packages.sh "${on_the_mount[@]}"; then
    echo "0 passed, 1 failed"
    exit 1
fi
# The format of the source is checked where this one can be had.
timeout 180 bash tools/install_packages.sh clang-format >/dev/null 2>&1 ||
    echo "clang-format: not installed, so the format of the source is not checked"
# A baseline of penstock-matrix.
timeout 180 bash tools/install_packages.sh libopenblas0-pthread >/dev/null 2>&1 ||
    echo "libopenblas0: not installed, so what penstock-matrix does with OpenBLAS is not tested"
# The Python package, with what pip adds (tools/python_environment.py).
timeout 180 bash tools/install_packages.sh python3-dev python3-venv >/dev/null 2>&1 ||
    echo "python3-dev, python3-venv: not installed, so the Python package may not be tested"
# Judges of what administrators get: pages of the manual, packages, metrics.
timeout 180 bash tools/install_packages.sh man-db groff-base dpkg-dev lintian \
    python3-prometheus-client >/dev/null 2>&1 ||
    echo "lintian and others: not installed, so pages, packages and metrics are judged less"
. tools/common.sh

passed=0 failed=0 skipped=0 began=$SECONDS

# A step that is no test of its own counts only if it fails.
step() {
    local title=$1 start=$SECONDS
    shift
    say "$title"
    if "$@"; then
        echo "-- $title: done in $((SECONDS - start)) s"
        return 0
    fi
    failed=$((failed + 1))
    echo "-- $title: FAILED after $((SECONDS - start)) s"
    return 1
}

# suite TITLE FOLDER OPTION...: ctest, its results added to the counts. Three tests more run at a
# time than there are processors, since many of them wait most of the time. Tests that send signals
# need their defaults: nohup ignores HUP, a job in the background INT and QUIT. ThreadSanitizer
# makes each process that has threads wait before it ends, for threads that race with its end: a
# tenth of the usual second.
# Of a test that fails only what failed is printed, so that a long log cannot hide it.
suite() {
    local title=$1 folder=$2 start=$SECONDS results counts status
    shift 2
    results=$folder/results.xml
    say "$title"
    rm -f "$results"
    (cd "$folder" &&
        env --default-signal GTEST_BRIEF=1 \
            TSAN_OPTIONS="atexit_sleep_ms=100:${TSAN_OPTIONS:-}" \
            ctest --output-on-failure --no-tests=error --output-junit "$results" \
            --parallel "$((jobs + 3))" "$@" </dev/null)
    status=$?
    counts=$(python3 tools/count_tests.py "$results") || counts="0 0 0"
    read -r p f s <<<"$counts"
    # ctest failing without one failed test is a failure too (no tests found, or it was killed).
    [ "$status" -eq 0 ] || [ "$f" -gt 0 ] || f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    echo "-- $title: $p passed, $f failed, $s skipped in $((SECONDS - start)) s"
}

# sanitized NAME SANITIZERS LABELS PROGRAMS OPTIMISATION: a build of its own, and the tests with
# these labels.
sanitized() {
    local name=$1 sanitizers=$2 labels=$3 programs=$4 optimise=$5 folder=$build_dir/$1
    # Lines without variables: what sanitizers see is the same. -Og halves what checks of undefined
    # behaviour cost to compile; under ThreadSanitizer the tests take longer than compiling, so -O1.
    step "$name: configure" configure "$folder" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$optimise -g1 -DNDEBUG" -DPENSTOCK_CUDA=OFF \
        -DPENSTOCK_SANITIZE="$sanitizers" -DPENSTOCK_BUILD_APPS="$programs" \
        -DPENSTOCK_BUILD_EXAMPLES=OFF -DPENSTOCK_LONG_TESTS="$long_tests" || return
    step "$name: build" build "$folder" || return
    suite "$name: tests" "$folder" --label-regex "^($labels)$"
}

# All objects of CUDA files, and the programs that need a GPU; not the programs of other builds.
build_gpu_code() {
    local folder=$1 objects
    objects=$(ninja -C "$folder" -t targets all |
        sed -n -e 's/^\([^ ]*\.cu\.o\): CUDA_COMPILER.*/\1/p' \
            -e 's/^\(examples\/0[245][^ ]*\): .*/\1/p') || return
    # shellcheck disable=SC2086  # one target a word
    build "$folder" --target $objects penstock penstock_mount device_test guest_test \
        gpufs_samples gpufs_samples_rdc penstock_model_gpu penstock_write_model_gpu \
        penstock_share_process_gpu
}

gpu_code() {
    local folder=$build_dir/gpu tests
    tests='^(device_test|guest_test|gpufs_samples(_rdc)?|model_gpu|write_model_gpu|codegen_.*'
    tests+='|share_kill_gpu|install_cuda|example_0[245].*)$'
    step "gpu code: configure" configure_gpu_code "$folder" || return
    step "gpu code: build" build_gpu_code "$folder" || return
    suite "gpu code: tests" "$folder" --tests-regex "$tests"
}

release_and_gpu_code() {
    step "release: configure" configure_main -DPENSTOCK_LONG_TESTS="$long_tests" || return
    step "release: build" build "$build_dir" || return
    suite "release: tests" "$build_dir"
    if ! command -v nvcc >/dev/null; then
        say "gpu code: not compiled, there is no nvcc"
    elif gpu_is_here; then
        say "gpu code: built and tested above"
    else
        gpu_code
    fi
}

if $plain; then
    release_and_gpu_code
fi
if $sanitizers; then
    sanitized asan address,undefined "$asan_labels" "$with_programs" -Og
    sanitized tsan thread 'unit|region|model|fault' OFF -O1
fi

say "test.sh took $((SECONDS - began)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
