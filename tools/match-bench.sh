#!/usr/bin/env bash
# Measures penstock-match and its baselines on made images, and checks that all of them find the same matches.
#
#   tools/match-bench.sh BIN_DIR DATA_DIR OUT_DIR
#
# BIN_DIR holds penstock-match. DATA_DIR gets queries and databases; what is there with the right size is used as it is. OUT_DIR
# gets match.json (the form of bench/results), table.txt and what each run said. docs/apps/match.md says what the methods do.
#
# Variables: MATCH_IMAGES (131072: databases of 2 GiB), MATCH_DATABASES (3), MATCH_QUERIES (2016), MATCH_SHAPE (64x64),
# MATCH_REPEATS (3), MATCH_CPU_REPEATS (2), MATCH_CASES ("whole half-whole none first"), MATCH_TIMEOUT (120 s a run),
# MATCH_BACKEND (gpu; cpu runs Penstock on CPU threads and leaves the CUDA baseline out), MATCH_CACHE (the program's default),
# MATCH_PAGE (64KiB), MATCH_COMMIT (asked of git).
#
# Cases: `whole`, no query has a match and every pair is compared to its end; `half-whole`, half of the queries have one, at random
# places; `none`, no match, and pairs are given up when nothing can come of them; `first`, every query is like the first image.
#
# Exit status 0 only if every run ended well and all matches are equal.
set -u
if [ $# -ne 3 ]; then
  echo "usage: tools/match-bench.sh BIN_DIR DATA_DIR OUT_DIR" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
program=$1/penstock-match data=$2 out=$3
images=${MATCH_IMAGES:-131072} databases=${MATCH_DATABASES:-3} queries=${MATCH_QUERIES:-2016} shape=${MATCH_SHAPE:-64x64}
repeats=${MATCH_REPEATS:-3} cpu_repeats=${MATCH_CPU_REPEATS:-2} cases=${MATCH_CASES:-whole half-whole none first}
limit=${MATCH_TIMEOUT:-120} backend=${MATCH_BACKEND:-gpu} page=${MATCH_PAGE:-64KiB}
export MATCH_COMMIT=${MATCH_COMMIT:-$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)}
[ -x "$program" ] || { echo "match-bench: $program is no program; build penstock-match and name its folder" >&2; exit 2; }
mkdir -p "$out/runs" || exit 1
rm -f "$out"/runs/*
scratch=$(mktemp -d "$out/scratch-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

# What was made is remembered beside it.
asked="$images $databases $queries $shape"
if [ "$(cat "$data/asked" 2>/dev/null)" = "$asked" ]; then
  echo "data: $data has $databases databases of $images images of $shape"
else
  echo "data: making $databases databases of $images images of $shape, and $queries queries"
  timeout 600 "$program" make "$data" --images "$images" --databases "$databases" --queries "$queries" --shape "$shape" --quiet --json \
    >"$out/make.json" || { echo "FAILED: make"; exit 1; }
  cp "$out/make.json" "$data/make.json"
  echo "$asked" >"$data/asked"
fi
planted=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["threshold"])' "$data/make.json") || exit 1
files=("$data/queries.images")
for number in $(seq "$databases"); do files+=("$data/database-$number.images"); done
cat "${files[@]}" >/dev/null  # into the operating system's page cache: the disk is not what is measured

# one CASE NAME RUN FLAG...: a search, its report, and a comparison of its lines with the first ones of that case.
one() {
  local case=$1 name=$2 run=$3 lines=$scratch/lines flags=()
  shift 3
  case $case in
    whole) flags=(--threshold 1e-12 --whole) ;;
    half-whole) flags=(--threshold "$planted" --whole) ;;
    none) flags=(--threshold 1e-12) ;;
    first) flags=(--threshold 1e30) ;;
    *) echo "match-bench: no case '$case'; see the head of this file" >&2; exit 2 ;;
  esac
  if ! timeout "$limit" "$program" "${files[@]}" "${flags[@]}" "$@" --out "$lines" --quiet --json >"$out/runs/$case.$name.$run.json" \
    2>"$out/runs/$case.$name.$run.log"; then
    echo "FAILED: $case $name $run: $(tail -n 1 "$out/runs/$case.$name.$run.log")"
    rm -f "$out/runs/$case.$name.$run.json"
    failed=1
  elif [ ! -f "$scratch/$case" ]; then mv "$lines" "$scratch/$case"
  elif ! cmp -s "$lines" "$scratch/$case"; then
    echo "DIFFERENT: $case by $name"
    failed=1
  fi
}

cache=()
[ -z "${MATCH_CACHE:-}" ] || cache=(--cache "$MATCH_CACHE")
for case in $cases; do
  for run in $(seq "$cpu_repeats"); do one "$case" cpu "$run" --method cpu; done
  for run in $(seq "$repeats"); do
    one "$case" penstock "$run" --backend "$backend" --page "$page" "${cache[@]}"
    [ "$backend" = gpu ] || continue
    one "$case" requests "$run" --backend gpu --no-windows --page "$page" "${cache[@]}"
    one "$case" cuda "$run" --method cuda
  done
done

python3 "$here/match_report.py" "$out" || failed=1
[ "$failed" -eq 0 ] && echo "all matches are equal"
exit $failed
