#!/usr/bin/env bash
# Measures penstock-matvec and its baselines on made matrices, and checks that all of them write the same result.
#
#   tools/matvec-bench.sh BIN_DIR DATA_DIR OUT_DIR
#
# BIN_DIR holds penstock-matvec. DATA_DIR gets a matrix and a vector for each case, and loses them when the case is done unless they are
# to be kept; what is there with the right size is used as it is. OUT_DIR gets matvec.json (the form of bench/results), table.txt and
# what each run said. docs/apps/matrix.md says what the methods do.
#
# Variables: MATVEC_CACHE (16GiB), MATVEC_SIZES ("0.25 1 1.5": sizes of the matrix, as parts of the cache), MATVEC_COLUMNS (32768),
# MATVEC_RUNS (3 processes of each method), MATVEC_REPEAT (3 products in each: the first one finds an empty cache), MATVEC_TIMEOUT (200 s a
# run), MATVEC_BACKEND (gpu; cpu runs Penstock on CPU threads and leaves the CUDA baseline out), MATVEC_PAGE (64KiB), MATVEC_KEEP (empty:
# matrices are deleted), MATVEC_COMMIT (asked of git).
#
# Exit status 0 only if every run ended well, all results are equal and one of each case was checked against double precision.
set -u
if [ $# -ne 3 ]; then
  echo "usage: tools/matvec-bench.sh BIN_DIR DATA_DIR OUT_DIR" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
program=$1/penstock-matvec data=$2 out=$3
cache=${MATVEC_CACHE:-16GiB} sizes=${MATVEC_SIZES:-0.25 1 1.5} columns=${MATVEC_COLUMNS:-32768} runs=${MATVEC_RUNS:-3} repeat=${MATVEC_REPEAT:-3}
limit=${MATVEC_TIMEOUT:-200} backend=${MATVEC_BACKEND:-gpu} page=${MATVEC_PAGE:-64KiB}
export MATVEC_COMMIT=${MATVEC_COMMIT:-$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)}
. "$here/product_bench.sh"

for size in $sizes; do
  rows=$(python3 -c '
import re, sys
number, unit = re.fullmatch(r"([0-9.]+)([KMGT]i)?B?", sys.argv[1]).groups()
print(max(1, round(float(number) * {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}[unit] * float(sys.argv[2]) / 4 / int(sys.argv[3]))))' \
    "$cache" "$size" "$columns") || { echo "matvec-bench: MATVEC_CACHE '$cache' or a size of MATVEC_SIZES '$sizes' cannot be used; give sizes such as 16GiB and 0.25" >&2; exit 2; }
  case=x${size/./_}
  inputs=("$data/$case.A" "$data/$case.x")
  if has "${inputs[0]}" $((rows * columns)) && has "${inputs[1]}" "$columns"; then
    echo "data: $data has a matrix of $rows rows of $columns columns"
  else
    echo "data: making a matrix of $rows rows of $columns columns"
    timeout 600 "$program" make --rows "$rows" --cols "$columns" -o "${inputs[0]}" -x "${inputs[1]}" --quiet || { echo "FAILED: make"; exit 1; }
  fi
  cat "${inputs[@]}" >/dev/null  # into the operating system's page cache: the disk is not what is measured
  all_methods "$case" "$runs" "$repeat"
  [ -n "${MATVEC_KEEP:-}" ] || rm -f "${inputs[@]}"
done

finish matvec_report.py
