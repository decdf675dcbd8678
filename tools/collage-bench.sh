#!/usr/bin/env bash
# Measures penstock-collage and its baselines, picture by picture, and checks that all of them make the same collage.
#
#   tools/collage-bench.sh BIN_DIR PICTURES_DIR LIB_DIR OUT_DIR
#
# BIN_DIR holds penstock-collage. LIB_DIR becomes a library made from PICTURES_DIR; one that is there with the right number of
# tiles is used as it is. OUT_DIR gets collage.json (the form of bench/results), table.txt and what each run said.
#
# Variables: COLLAGE_TILES (2000000), COLLAGE_REPEATS (3), COLLAGE_TIMEOUT (120 s a run), COLLAGE_COMMIT (asked of git),
# COLLAGE_BACKEND (gpu; cpu runs Penstock on CPU threads and leaves the CUDA baseline out), COLLAGE_PAGE (4KiB),
# COLLAGE_CACHE (a sixteenth of the library's bytes).
#
# Exit status 0 only if every run ended well and all collages are equal.
set -u
if [ $# -ne 4 ]; then
  echo "usage: tools/collage-bench.sh BIN_DIR PICTURES_DIR LIB_DIR OUT_DIR" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
program=$1/penstock-collage pictures=$2 lib=$3 out=$4
tiles=${COLLAGE_TILES:-2000000} repeats=${COLLAGE_REPEATS:-3} limit=${COLLAGE_TIMEOUT:-120}
backend=${COLLAGE_BACKEND:-gpu} page=${COLLAGE_PAGE:-4KiB}
export COLLAGE_COMMIT=${COLLAGE_COMMIT:-$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)}
[ -x "$program" ] || { echo "collage-bench: $program is no program; build penstock-collage and name its folder" >&2; exit 2; }
mkdir -p "$out/runs" || exit 1
rm -f "$out"/runs/*
scratch=$(mktemp -d "$out/scratch-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

# The number of tiles stands in the header.
there() { [ -f "$lib/header" ] && [ "$(od -An -t u8 -j 16 -N 8 "$lib/header" | tr -d ' ')" = "$tiles" ]; }
if there; then
  echo "library: $lib has $tiles tiles"
else
  echo "library: making $tiles tiles from $pictures"
  timeout 600 "$program" index "$pictures" -o "$lib" --tiles "$tiles" --json >"$out/index.json" || { echo "FAILED: index"; exit 1; }
fi
cache=${COLLAGE_CACHE:-$((($(stat -c %s "$lib"/* | paste -sd+)) / 16))}
cat "$lib"/* >/dev/null  # into the operating system's page cache: the disk is not what is measured

# one NAME PICTURE RUN METHOD FLAG...: a collage, its report, and a comparison with the first one of that picture.
one() {
  local name=$1 picture=$2 run=$3 method=$4 base collage
  shift 4
  base=$(basename "$picture"); base=${base%.*}
  collage=$scratch/collage.ppm
  if ! timeout "$limit" "$program" make "$picture" "$lib" -o "$collage" --method "$method" "$@" --quiet --json \
    >"$out/runs/$base.$name.$run.json" 2>"$out/runs/$base.$name.$run.log"; then
    echo "FAILED: $base $name $run: $(tail -n 1 "$out/runs/$base.$name.$run.log")"
    rm -f "$out/runs/$base.$name.$run.json"
    failed=1
    return
  fi
  if [ ! -f "$scratch/$base.ppm" ]; then mv "$collage" "$scratch/$base.ppm"
  elif ! cmp -s "$collage" "$scratch/$base.ppm"; then
    echo "DIFFERENT: $base by $name"
    failed=1
  fi
}

for picture in "$pictures"/*; do
  case "$picture" in *.jpg | *.jpeg | *.png | *.ppm) ;; *) continue ;; esac
  for run in $(seq "$repeats"); do
    one cpu "$picture" "$run" cpu
    one penstock "$picture" "$run" penstock --backend "$backend" --cache "$cache" --page "$page"
    [ "$backend" != gpu ] || one cuda "$picture" "$run" cuda
  done
  [ "$backend" != gpu ] || one penstock-cpu "$picture" 1 penstock --backend cpu --cache "$cache" --page "$page"
  echo "$(basename "$picture"): done"
  rm -f "$scratch"/*.ppm
done

python3 "$here/collage_report.py" "$out" || failed=1
[ "$failed" -eq 0 ] && echo "all collages are equal"
exit $failed
