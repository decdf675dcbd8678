#!/usr/bin/env bash
# Measures penstock-matmul and its baselines on made matrices, and checks that all of them write the same result.
#
#   tools/matmul-bench.sh BIN_DIR DATA_DIR OUT_DIR
#
# BIN_DIR holds penstock-matmul. DATA_DIR gets two matrices for each case, and loses them when the case is done unless they are to be kept; what
# is there with the right size is used as it is. OUT_DIR gets matmul.json (the form of bench/results), table.txt and what each run said.
# docs/apps/matrix.md says what the methods do.
#
# Variables: MATMUL_CACHE (16GiB, also the most of B that the CUDA baseline holds), MATMUL_SIZES ("16384x16384x16384 131072x16384x16384": m, n and k of
# each case), MATMUL_RUNS (3 processes of each method, one of cpu), MATMUL_REPEAT (2 products in each, one of cpu: the first one finds an empty
# cache), MATMUL_TIMEOUT (300 s a run), MATMUL_BACKEND (gpu; cpu runs Penstock on CPU threads and leaves the CUDA baseline out), MATMUL_PAGE
# (64KiB), MATMUL_KEEP (empty: matrices are deleted), MATMUL_COMMIT (asked of git).
#
# Exit status 0 only if every run ended well, all results are equal and one of each case was checked against double precision.
set -u
if [ $# -ne 3 ]; then
  echo "usage: tools/matmul-bench.sh BIN_DIR DATA_DIR OUT_DIR" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
program=$1/penstock-matmul data=$2 out=$3
cache=${MATMUL_CACHE:-16GiB} sizes=${MATMUL_SIZES:-16384x16384x16384 131072x16384x16384} runs=${MATMUL_RUNS:-3} repeat=${MATMUL_REPEAT:-2}
limit=${MATMUL_TIMEOUT:-300} backend=${MATMUL_BACKEND:-gpu} page=${MATMUL_PAGE:-64KiB}
export MATMUL_COMMIT=${MATMUL_COMMIT:-$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)}
. "$here/product_bench.sh"

for case in $sizes; do
  if ! [[ $case =~ ^([0-9]+)x([0-9]+)x([0-9]+)$ ]]; then
    echo "matmul-bench: MATMUL_SIZES '$sizes' cannot be used; give m, n and k of each case, as in 16384x16384x16384" >&2
    exit 2
  fi
  m=${BASH_REMATCH[1]} n=${BASH_REMATCH[2]} k=${BASH_REMATCH[3]}
  files=("$data/$case.A" "$data/$case.B")
  inputs=("${files[@]}" --m "$m" --n "$n" --k "$k")
  if has "${files[0]}" $((m * k)) && has "${files[1]}" $((k * n)); then
    echo "data: $data has matrices of $m x $k and $k x $n"
  else
    echo "data: making matrices of $m x $k and $k x $n"
    timeout 600 "$program" make --m "$m" --n "$n" --k "$k" -a "${files[0]}" -b "${files[1]}" --quiet || { echo "FAILED: make"; exit 1; }
  fi
  cat "${files[@]}" >/dev/null  # into the operating system's page cache: the disk is not what is measured
  all_methods "$case" 1 1
  [ -n "${MATMUL_KEEP:-}" ] || rm -f "${files[@]}"
done

finish matmul_report.py
