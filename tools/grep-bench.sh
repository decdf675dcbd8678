#!/usr/bin/env bash
# Measures penstock-grep, its baselines, GNU grep and ripgrep over one tree and one dictionary, and checks that they count the same.
#
#   tools/grep-bench.sh BIN_DIR TREE WORDS OUT_DIR
#
# BIN_DIR holds penstock-grep. A TREE that is not there is made from this machine's source files; WORDS that is not there gets words of
# the tree. OUT_DIR gets grep.json (the form of bench/results), table.txt and what each run said. docs/apps/grep.md says what each row does.
#
# Variables: GREP_REPEATS (5), GREP_TIMEOUT (120 s a run), GREP_TOOL_TIMEOUT (60 s, for GNU grep and ripgrep),
# GREP_FILES (36000) and GREP_WORDS (58110) for what is made, GREP_BACKENDS ("gpu cpu"; gpu is left out where there is none),
# GREP_COMMIT (asked of git), RG (ripgrep's program: rg), GNU_GREP (grep), GREP_RUNS_OF_TOOLS (1: GNU grep and ripgrep take minutes with so many words).
#
# A tool that is missing, or takes too long, is a row that says so. Exit status 0 only if every run of penstock-grep ended well
# and all its methods wrote the same lines.
set -u
if [ $# -ne 4 ]; then
  echo "usage: tools/grep-bench.sh BIN_DIR TREE WORDS OUT_DIR" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$1/penstock-grep" ] || { echo "grep-bench: $1/penstock-grep is no program; build penstock-grep and name its folder" >&2; exit 2; }
program=$(realpath "$1/penstock-grep")
repeats=${GREP_REPEATS:-5} limit=${GREP_TIMEOUT:-120} tool_repeats=${GREP_RUNS_OF_TOOLS:-1} tool_limit=${GREP_TOOL_TIMEOUT:-60}
rg=${RG:-rg} gnu_grep=${GNU_GREP:-grep}
export GREP_COMMIT=${GREP_COMMIT:-$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)}
export LC_ALL=C
mkdir -p "$4/runs" || exit 1
out=$(realpath "$4")
rm -f "$out"/runs/*
scratch=$(mktemp -d "$out/scratch-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

if [ ! -d "$2" ]; then
  echo "tree: making $2 from the source files of this machine"
  mkdir -p "$2" || exit 1
  find / -xdev \( -path /proc -o -path /tmp -o -path "$(realpath "$2")" \) -prune -o -type f \( -name '*.py' -o -name '*.h' -o -name '*.hpp' \
    -o -name '*.c' -o -name '*.cuh' -o -name '*.pyi' \) -size -2048k -print 2>/dev/null | sort | head -n "${GREP_FILES:-36000}" |
    sed 's|^/||' | tar -C / -cf - -T - 2>/dev/null | tar -C "$2" -xf - 2>/dev/null
fi
tree=$(realpath "$2")
if [ ! -f "$3" ]; then
  find "$tree" -type f -print0 | sort -z | head -z -n 4000 | xargs -0 cat | grep -ao '[A-Za-z_][A-Za-z0-9_]*' | sort -u |
    awk 'length < 200' | head -n "${GREP_WORDS:-58110}" >"$3"
fi
words=$(realpath "$3")
find "$tree" -type f -exec cat {} + >/dev/null  # into the operating system's page cache: the disk is not what is measured
echo "tree: $(find "$tree" -type f | wc -l) files; $(wc -l <"$words") words"
cd "$tree" || exit 1
TIMEFORMAT='%R %U %S'

# one NAME RUN FLAG...: a search by penstock-grep, its report, and a comparison of its lines with the first search's.
one() {
  local name=$1 run=$2 lines=$scratch/lines
  shift 2
  { time timeout "$limit" "$program" "$@" --quiet --json --dict "$words" --out "$lines" . >"$out/runs/$name.$run.json" \
    2>"$out/runs/$name.$run.log"; } 2>"$out/runs/$name.$run.time"
  if [ ! -s "$out/runs/$name.$run.json" ]; then
    echo "FAILED: $name $run: $(tail -n 1 "$out/runs/$name.$run.log")"
    failed=1
  elif [ ! -f "$scratch/first" ]; then mv "$lines" "$scratch/first"
  elif ! cmp -s "$lines" "$scratch/first"; then
    echo "DIFFERENT: $name $run"
    failed=1
  fi
}

# tool NAME RUN COMMAND...: prints one number of matches a line; they are added up.
tool() {
  local name=$1 run=$2 code
  shift 2
  { time timeout "$tool_limit" "$@" >"$scratch/numbers" 2>"$out/runs/$name.$run.log"; code=$?; } 2>"$out/runs/$name.$run.time"
  [ "$code" -lt 124 ] || echo "took longer than $tool_limit s, or was stopped ($code)" >"$out/runs/$name.$run.failed"
  awk '{ sum += $1 } END { print sum + 0 }' "$scratch/numbers" >"$out/runs/$name.$run.matches"
}
missing() { echo "missing: $2" >"$out/runs/$1.1.failed"; }

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }
gpu=no
case " ${GREP_BACKENDS:-gpu cpu} " in *" gpu "*) if has_gpu; then gpu=yes; else missing penstock-gpu 'no GPU'; missing cuda 'no GPU'; fi ;; esac
for run in $(seq "$repeats"); do
  one cpu "$run" --method cpu
  [ $gpu = no ] || one penstock-gpu "$run" --backend gpu
  [ $gpu = no ] || one cuda "$run" --method cuda
  case " ${GREP_BACKENDS:-gpu cpu} " in *" cpu "*) one penstock-cpu "$run" --backend cpu ;; esac
done
export words gnu_grep
for run in $(seq "$tool_repeats"); do
  # One process for as many files as a command line takes would leave cores idle at the end: 500 files each, on all cores.
  # shellcheck disable=SC2016
  if command -v "$gnu_grep" >/dev/null; then
    tool grep "$run" bash -c 'find . -type f -print0 | xargs -0 -n 500 -P "$(nproc)" sh -c '\''"$gnu_grep" -owhF -f "$words" -- "$@" | wc -l'\'' sh'
  else missing grep "$gnu_grep"; fi
  if command -v "$rg" >/dev/null; then
    tool rg "$run" "$rg" --no-config --no-unicode -uu -owF -f "$words" --count-matches --no-filename .
    tool rg-inside "$run" "$rg" --no-config --no-unicode -uu -oF -f "$words" --count-matches --no-filename .
  else missing rg "$rg"; missing rg-inside "$rg"; fi
done

python3 "$here/grep_report.py" "$out" || failed=1
[ "$failed" -eq 0 ] && echo "all lines are equal"
exit $failed
