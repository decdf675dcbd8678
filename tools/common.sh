# Functions that demo.sh and test.sh share; sourced, not run. Needs the variable `root`: the
# repository's folder.
#
# The build folder is build/, or PENSTOCK_BUILD_DIR. As many compilers run at a time as there are
# processors, or PENSTOCK_JOBS.

build_dir=${PENSTOCK_BUILD_DIR:-$root/build}
jobs=${PENSTOCK_JOBS:-$(nproc)}

# nvcc is often installed but not on PATH.
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
    PATH=$PATH:/usr/local/cuda/bin
fi

say() { printf '\n== %s\n' "$*"; }

# configure FOLDER OPTION...: cmake, quiet unless it fails. Without ccache everything is compiled
# afresh. The compiler takes eight C++ sources of a target at once (CMake's unity build) and so
# reads their headers once.
configure() {
    local folder=$1 log
    shift
    local launcher=()
    if command -v ccache >/dev/null; then
        launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    fi
    mkdir -p "$folder" || return 1
    log=$folder/configure.log
    if ! cmake -S "$root" -B "$folder" -G Ninja "${launcher[@]}" -DCMAKE_UNITY_BUILD=ON "$@" \
        >"$log" 2>&1; then
        cat "$log"
        return 1
    fi
    grep -E '^-- (CUDA [0-9]|no nvcc|nvcc |liburing not found)' "$log" || true
}

gpu_is_here() { nvidia-smi -L >/dev/null 2>&1; }

# The main build: optimised, with the gpu back end if there is a GPU to run it and nvcc to compile
# it. demo.sh and test.sh share its objects.
configure_main() {
    local cuda=OFF
    ! gpu_is_here || cuda=AUTO
    configure "$build_dir" -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_CUDA="$cuda" -DPENSTOCK_SANITIZE= \
        -UCMAKE_CUDA_ARCHITECTURES -UCMAKE_CUDA_FLAGS "$@"
}

# A build of its own for code of GPUs where there is none: compiled to intermediate code alone,
# which a driver can still translate, and optimised as little as the compilers know how. Nothing is
# run of it but the checks of the compiler's output and the messages that a GPU is missing.
configure_gpu_code() {
    local flags=()
    [[ $(nvcc --help 2>/dev/null) != *--Ofast-compile* ]] || flags=(-DCMAKE_CUDA_FLAGS=-Ofc=max)
    configure "$1" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
        -DCMAKE_CUDA_FLAGS_RELEASE="-O0 -DNDEBUG" -DPENSTOCK_CUDA=ON -DPENSTOCK_SANITIZE= \
        -DCMAKE_CUDA_ARCHITECTURES=80-virtual -DPENSTOCK_JOIN_CUDA=ON -DPENSTOCK_TEST_PYTHON=OFF \
        "${flags[@]}"
}

build() { cmake --build "$1" --parallel "$jobs" "${@:2}"; }
