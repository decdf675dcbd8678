# What matvec-bench.sh and matmul-bench.sh share; sourced, not run. Needs the variables `here`, `program`, `data`, `out`, `runs`, `repeat`, `limit`,
# `backend`, `page` and `cache`, and the array `inputs`: what a run of the case is given before its flags.

[ -x "$program" ] || { echo "$(basename "$0" .sh): $program is no program; build $(basename "$program") and name its folder" >&2; exit 2; }
mkdir -p "$data" "$out/runs" || exit 1
rm -f "$out"/runs/*
scratch=$(mktemp -d "$out/scratch-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

# has FILE NUMBERS: the file is there and has so many numbers.
has() { [ "$(stat -c %s "$1" 2>/dev/null)" = $(($2 * 4)) ]; }

# one CASE NAME RUN FLAG...: some products, their report, and a comparison of the result with the first one of that case.
one() {
  local case=$1 name=$2 run=$3 result=$scratch/result
  shift 3
  if ! timeout "$limit" "$program" run "${inputs[@]}" -o "$result" "$@" --quiet --json >"$out/runs/$case.$name.$run.json" 2>"$out/runs/$case.$name.$run.log"; then
    echo "FAILED: $case $name $run: $(tail -n 1 "$out/runs/$case.$name.$run.log")"
    rm -f "$out/runs/$case.$name.$run.json"
    failed=1
  elif [ ! -f "$scratch/$case" ]; then mv "$result" "$scratch/$case"
  elif ! cmp -s "$result" "$scratch/$case"; then
    echo "DIFFERENT: $case by $name"
    failed=1
  fi
}

# all_methods CASE CPU_RUNS CPU_REPEAT: every method there is, one after the other in each round; the first result is checked.
all_methods() {
  local case=$1 cpu_runs=$2 cpu_repeat=$3 run
  one "$case" cpu 1 --method cpu --repeat "$cpu_repeat" --check
  for run in $(seq "$runs"); do
    [ "$run" -eq 1 ] || [ "$run" -gt "$cpu_runs" ] || one "$case" cpu "$run" --method cpu --repeat "$cpu_repeat"
    one "$case" penstock "$run" --backend "$backend" --page "$page" --cache "$cache" --repeat "$repeat"
    [ "$backend" = gpu ] || continue
    one "$case" requests "$run" --backend gpu --no-windows --page "$page" --cache "$cache" --repeat "$repeat"
    one "$case" cuda "$run" --method cuda --cache "$cache" --repeat "$repeat"
  done
  rm -f "$scratch/$case"
}

# finish REPORT: what was measured, and the exit status.
finish() {
  python3 "$here/$1" "$out" || failed=1
  [ "$failed" -eq 0 ] && echo "all results are equal"
  exit $failed
}
