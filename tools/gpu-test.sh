#!/usr/bin/env bash
# Everything that needs a GPU, in one command: builds, runs the GPU tests and benchmarks, prints a
# short table.
#
#   tools/gpu-test.sh [--build DIR] [--prebuilt DIR] [--out DIR] [--words FILE] [--pictures DIR]
#                     [PART...]
#
# --build DIR      only build, into DIR, programs that run on another machine with a GPU (libraries
#                  linked in)
# --prebuilt DIR   run what --build made, instead of building; for a GPU machine without the
#                  development packages
# --out DIR        where full logs and results go (default: build/gpu-results)
# --words FILE     dictionary for the word count (default: the words of the tree that is searched)
# --pictures DIR   photographs for the collage's library; without them collage_devices makes
#                  pictures
# PART             device canary examples apps model grep cat hit miss element gather request cold
#                  write append fsync merge sanitize: the default;
#                  write_model, write_canary: the model test of writing, and that it catches a
#                  broken run;
#                  regions buffer: regions and mounts, and the buffer of host and device frames;
#                  regions_bench, buffer_bench: what they cost;
#                  buffer_figures: what figures 4 to 6 of the paper on GRAM and DEDU show, by
#                  tools/buffer_figures.py, for tools/buffer_plots.py;
#                  collage wordcount match vector product cp: the programs beside their baselines,
#                  by tools/app_bench.py;
#                  collage_devices: the collage by 2, 4 and 8 GPUs beside one;
#                  several_gpus: linked caches and a table's rows on several GPUs;
#                  sweep: reports for tools/plots.py, which take long
#
# PENSTOCK_BENCH_REPEATS: of each case of penstock bench (default: the case's own).
# PENSTOCK_MODEL_OPERATIONS: a seed (1000000).
# PENSTOCK_FIGURES_SCALE: of the buffer's figures (1/64).
# PENSTOCK_COMMIT: what the reports name (asked of git).
# PENSTOCK_TEST_BACKEND=cpu: benchmarks and programs on CPU threads, to try the script itself.
# PENSTOCK_COLLAGE_BENCH, and likewise GREP, MATCH, VECTOR, PRODUCT: arguments for
# tools/app_bench.py, such as 'repeats=1 images=65536'.
# CP_BYTES: what cp copies (4G).
#
# Every program runs under a time limit. Exit status 0 only if every part passed.
set -u
cd "$(dirname "$0")/.." || exit 1

prebuilt='' build_only='' out=build/gpu-results words='' pictures='' parts=()
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build_only=$2; shift 2 ;;
    --prebuilt) prebuilt=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --words) words=$2; shift 2 ;;
    --pictures) pictures=$2; shift 2 ;;
    -*) echo "gpu-test: unknown option '$1'; see the head of this file" >&2; exit 2 ;;
    *) parts+=("$1"); shift ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(device canary examples apps model grep cat hit element gather miss
  request cold write append fsync merge sanitize)

region_tests=(region_test region_model_test region_views_test mount_region_test mount_litmus_test)
buffer_tests=(buffer_moves_test buffer_manager_test)
programs=(bin/penstock bin/penstock-grep bin/penstock-collage bin/penstock-match
  bin/penstock-matrix bin/penstock-stitch bin/penstock-sssp)
examples=(example_01_read example_02_kernel example_03_map example_04_write example_06_buffer)

build() {  # DIR
  cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_CUDA=ON \
    -DPENSTOCK_PORTABLE=ON -DPENSTOCK_BUILD_EXAMPLES=ON \
    -DCMAKE_CUDA_ARCHITECTURES="${PENSTOCK_GPU_ARCH:-90-real}" >/dev/null &&
    ninja -C "$1" device_test guest_test penstock_model_gpu penstock_write_model_gpu \
      "${programs[@]}" "${region_tests[@]}" "${buffer_tests[@]}" "${examples[@]}" &&
    # Only where there is cuBLAS.
    { ! grep -q '^build examples/05_libraries:' "$1/build.ninja" ||
      ninja -C "$1" examples/05_libraries; }
}
if [ -n "$build_only" ]; then build "$build_only"; exit; fi
dir=${prebuilt:-build/gpu}
[ -n "$prebuilt" ] || build "$dir" || exit 1
mkdir -p "$out" || exit 1
out=$(realpath "$out") dir=$(realpath "$dir")
[ -z "$words" ] || words=$(realpath "$words") || exit 2
[ -z "$pictures" ] || pictures=$(realpath "$pictures") || exit 2
backend=${PENSTOCK_TEST_BACKEND:-gpu}
commit=${PENSTOCK_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
table=() failed=0

note() { table+=("$(printf '%-10s %-6s %s' "$1" "$2" "$3")"); [ "$2" = ok ] || failed=1; }

# part NAME SECONDS LOG COMMAND...: runs it, keeps its output, notes how it went.
part() {
  local name=$1 limit=$2 log=$3 start=$SECONDS reason; shift 3
  if timeout "$limit" "$@" >"$out/$log" 2>&1; then
    note "$name" ok "$((SECONDS - start)) s, $log"
  else
    reason=$(grep -E 'FAILED|rror|differ' "$out/$log" | head -1 | cut -c1-90)
    note "$name" FAILED "$((SECONDS - start)) s, $log: $reason"
  fi
}

run_device() {
  part device 300 device_test.log "$dir/tests/device_test"
  part guest 200 guest_test.log "$dir/tests/guest_test"
}

# Each test program is a part of the table.
test_programs() {
  local name
  for name in "$@"; do part "$name" 200 "$name.log" "$dir/tests/$name"; done
}
run_regions() { test_programs "${region_tests[@]}"; }
run_buffer() {
  test_programs "${buffer_tests[@]}"
  PENSTOCK_TEST_FLAGS="--backend $backend" part replay 200 replay.log \
    python3 -B tests/buffer/replay_run_test.py "$dir/bin/penstock"
  local policy
  for policy in gram dedu; do
    PENSTOCK_TEST_FLAGS="--backend $backend" part "mount_$policy" 200 "mount_$policy.log" \
      python3 -B tests/mount/buffer_test.py "$dir/bin/penstock" --policy $policy
  done
}

model() {  # NAME PROGRAM
  part "$1" 580 "$1.log" "$dir/tests/$2" --seeds 5 \
    --operations "${PENSTOCK_MODEL_OPERATIONS:-1000000}"
}
run_write_model() { model write_model penstock_write_model_gpu; }
run_model() { model model penstock_model_gpu; }

run_examples() { in_shell 200 examples.log examples; }
examples() {
  local program
  for program in 01_read 02_kernel 03_map; do
    python3 tests/examples/run_example.py "$dir/examples/$program" || return 1
    echo "$program printed what it should for every file"
  done
  "$dir/examples/04_write" "$scratch/example" || return 1
  "$dir/examples/06_buffer" "$scratch/bank" || return 1
  [ ! -x "$dir/examples/05_libraries" ] || "$dir/examples/05_libraries" "$scratch" 8192
}

# The tests of the programs, as ctest runs them, on the GPU.
run_apps() { in_shell 580 apps.log apps; }
apps() {
  export PENSTOCK_TEST_FLAGS='--backend gpu' PENSTOCK_TEST_METHODS='penstock cpu cuda'
  local name count=0
  each() { echo "== $*"; "$@" || exit 1; count=$((count + 1)); }
  each python3 tests/apps/grep_differential.py "$dir/bin/penstock-grep" --rounds 25
  each python3 -B tests/apps/grep_lines.py "$dir/bin/penstock-grep" --rounds 60
  each python3 tests/apps/grep_binary.py "$dir/bin/penstock-grep" --rounds 15
  each python3 tests/apps/grep_bad_input.py "$dir/bin/penstock-grep"
  for name in headers walk output interrupt changing large; do
    each python3 tests/apps/grep_trees.py "$dir/bin/penstock-grep" $name
  done
  tests_of() {  # PROGRAM PATH NAME...: PATH and NAME give the scripts.
    local program=$1 path=$2; shift 2
    for name in "$@"; do each python3 "tests/$path${name}_test.py" "$dir/bin/$program"; done
  }
  tests_of penstock-collage apps_collage/ library make bad_input
  tests_of penstock-match apps_match/ search order make bad_input
  tests_of penstock-matrix apps_matrix/vector_ numbers make bad_input
  tests_of penstock-matrix apps_matrix/product_ numbers bad_input
  tests_of penstock-stitch apps_stitch/ image bad_input
  tests_of penstock-sssp apps_sssp/ numbers updates bad_input ends
  tests_of penstock apps_penstock/ cat cp info bad_input bench
  echo "$count programs' tests passed on the GPU"
}

run_canary() {
  local broken
  for broken in --canary --shift; do
    timeout 60 "$dir/tests/penstock_model_gpu" $broken --operations 100000 \
      >"$out/canary$broken.log" 2>&1
    if grep -q 'FAILED: [1-9][0-9]* wrong bytes' "$out/canary$broken.log"; then continue; fi
    note canary FAILED "a kernel that expects other bytes ($broken) was not caught"
    return
  done
  note canary ok 'the broken runs were caught'
}

run_write_canary() {
  timeout 60 "$dir/tests/penstock_write_model_gpu" --drop --operations 100000 \
    >"$out/write_canary.log" 2>&1
  if grep -q 'FAILED: ' "$out/write_canary.log"; then
    note write_canary ok 'the broken run was caught'
  else note write_canary FAILED 'a lost pwrite was not caught'; fi
}

# A tree of source files from whatever this machine has, at least 30,000 if it can be had.
make_tree() {
  local want=${PENSTOCK_TREE_FILES:-36000}
  mkdir -p "$scratch/tree"
  find / -xdev -path /proc -prune -o -type f \( -name '*.py' -o -name '*.h' -o -name '*.hpp' \
    -o -name '*.c' -o -name '*.cuh' -o -name '*.pyi' \) -size -2048k -print 2>/dev/null |
    grep -v "^$scratch" | sort | head -n "$want" >"$scratch/files"
  tar -C / -cf - -T <(sed 's|^/||' "$scratch/files") 2>/dev/null |
    tar -C "$scratch/tree" -xf - 2>/dev/null
  find "$scratch/tree" -type f | wc -l
}

# penstock-grep against grep: words of letters, digits and _ by one grep run over all words, the
# others one by one.
compare_grep() {
  local files; files=$(make_tree)
  if [ -z "$words" ]; then
    words=$scratch/words
    find "$scratch/tree" -type f | head -n 2000 | xargs cat | grep -ao '[A-Za-z_][A-Za-z0-9_]*' |
      sort -u | awk 'length < 200' | head -n 50000 >"$words"
  fi
  LC_ALL=C sort -u "$words" >"$scratch/all"
  LC_ALL=C grep -v '[^A-Za-z0-9_]' "$scratch/all" >"$scratch/plain"
  LC_ALL=C grep '[^A-Za-z0-9_]' "$scratch/all" >"$scratch/special"
  ( cd "$scratch/tree" || exit 1
    # One grep for many files: building the automaton of all words takes longer than searching a
    # file. Each batch writes a file of its own, for batches that share a pipe cut each other's
    # lines.
    find . -type f -print0 | LC_ALL=C xargs -0 -n 400 -P "$(nproc)" sh -c \
      'grep -HowF --null -f "$0/plain" -- "$@" 2>/dev/null | tr "\000" "\t" |
        sort | uniq -c | awk "{
          n = \$1; sub(/^ *[0-9]+ /, \"\"); split(\$0, part, \"\t\")
          print part[2] \"\t\" part[1] \"\t\" n
        }" >"$0/part.$$"' "$scratch"
    cat "$scratch"/part.*
    while IFS= read -r word; do
      LC_ALL=C grep -rlwF -e "$word" . 2>/dev/null | while IFS= read -r f; do
        n=$(LC_ALL=C grep -owF -e "$word" -- "$f" 2>/dev/null | wc -l)
        [ "$n" -eq 0 ] || printf '%s\t%s\t%s\n' "$word" "$f" "$n"
      done
    done <"$scratch/special" ) | LC_ALL=C sort -t "$(printf '\t')" -k2,2 -k1,1 >"$scratch/expected"
  echo "$SECONDS s: grep found $(wc -l <"$scratch/expected") lines in $files files"
  local program; program=$(realpath "$dir/bin/penstock-grep")
  local backend
  for backend in gpu cpu; do
    ( cd "$scratch/tree" && "$program" --backend $backend --json --dict "$words" \
        --out "$scratch/got.$backend" . ) >"$out/grep.$backend.json" || return 1
    cmp "$scratch/expected" "$scratch/got.$backend" || {
      diff "$scratch/expected" "$scratch/got.$backend" | head -n 20
      return 1
    }
    echo "$SECONDS s: penstock-grep --backend $backend equals grep"
  done
  ( cd "$scratch/tree" && "$program" --backend gpu --compare --json --dict "$words" \
      --out "$scratch/got.compare" . ) >"$out/grep.compare.json" || return 1
  cmp "$scratch/expected" "$scratch/got.compare" || return 1
  echo "$files files, $(wc -l <"$scratch/all") words, $(wc -l <"$scratch/expected") lines:" \
    "penstock-grep on gpu and cpu equals grep"
}
compare_cat() {
  local program=$dir/bin/penstock f=$scratch/cat
  mkdir -p "$f"
  : >"$f/empty"
  head -c 1 /dev/urandom >"$f/one"
  head -c 100000001 /dev/urandom >"$f/random"
  truncate -s 300M "$f/sparse"
  printf end >>"$f/sparse"
  printf middle | dd of="$f/sparse" bs=1 seek=150000000 conv=notrunc 2>/dev/null
  truncate -s 5G "$f/large"
  head -c 70000 /dev/urandom | dd of="$f/large" bs=1M seek=4000 conv=notrunc 2>/dev/null
  local name
  for name in empty one random sparse large; do
    "$program" cat --backend gpu "$f/$name" | cmp - "$f/$name" || {
      echo "cat $name differs"
      return 1
    }
    echo "cat $name equals the file"
  done
  ( for _ in $(seq 200); do head -c 10000 "$f/random"; sleep 0.005; done >"$f/growing" ) &
  sleep 0.3
  "$program" cat --backend gpu "$f/growing" >"$f/seen" || return 1
  wait
  head -c "$(stat -c %s "$f/seen")" "$f/growing" | cmp - "$f/seen" || {
    echo 'cat of a growing file differs'
    return 1
  }
  [ -s "$f/seen" ] && echo "cat of a growing file is a prefix of it, $(stat -c %s "$f/seen") bytes"
}

# Functions under `timeout` need a shell of their own.
in_shell() {  # LIMIT LOG FUNCTION
  local start=$SECONDS
  export dir out scratch words backend
  export -f "$3" make_tree
  if timeout "$1" bash -c "$3" >"$out/$2" 2>&1; then
    note "${3#compare_}" ok "$((SECONDS - start)) s: $(tail -n 1 "$out/$2")"
  else
    note "${3#compare_}" FAILED "$((SECONDS - start)) s: $(tail -n 1 "$out/$2" | cut -c1-100)"
  fi
}
run_grep() { in_shell 580 grep.log compare_grep; }
run_cat() { in_shell 300 cat.log compare_cat; }

# Each leaves one JSON object, as bench/results keeps them; tools/plots.py draws from it.
bench() {  # NAME SECONDS CASE...
  local name=$1 limit=$2; shift 2
  part "$name" "$limit" "$name.json" "$dir/bin/penstock" bench "$@" --backend "$backend" --quiet \
    --dir "$scratch" --commit "$commit" \
    ${PENSTOCK_BENCH_REPEATS:+--repeats "$PENSTOCK_BENCH_REPEATS"}
}
run_hit() { bench hit 200 hit map; }
run_element() { bench element 200 element; }
run_gather() { bench gather 400 gather; }
run_miss() { bench miss 400 miss sequential; }
run_request() { bench request 200 request; }
run_write() { bench write 300 write; }
run_append() { bench append 200 append; }
run_fsync() { bench fsync 300 fsync; }
run_merge() { bench merge 200 merge; }
run_cold() { bench cold 300 cold; }
run_several_gpus() { bench several_gpus 590 links table-devices; }
run_regions_bench() {
  local name
  for name in acquire sharing peer mount; do bench "$name" 300 "$name"; done
}
run_buffer_bench() {
  local name
  for name in signature exchange buffer; do bench "$name" 200 "$name"; done
}
# Keeps the measurements so far when its time is over. Its files go where TMPDIR says: that disk is
# measured.
run_buffer_figures() {
  part buffer_figures 590 buffer_figures.log python3 -B tools/buffer_figures.py \
    "$dir/bin/penstock" -o "$out/buffer_figures.json" --backend "$backend" --data "$scratch" \
    --commit "$commit" --time-limit 540 \
    ${PENSTOCK_BENCH_REPEATS:+--repeats "$PENSTOCK_BENCH_REPEATS"} \
    ${PENSTOCK_FIGURES_SCALE:+--scale "$PENSTOCK_FIGURES_SCALE"}
}
run_sweep() {
  bench sweep 590 hit map miss sequential policy --sweep --repeats 3
  bench sweep_request 590 request --sweep --page 4KiB,64KiB --repeats 3
}

# The programs beside their baselines; each leaves a folder with its report and table. A variable
# such as PENSTOCK_MATCH_BENCH has further arguments, as words.
app_bench() {  # PART APPLICATION DATA_DIR ARGUMENT...
  local name=$1 application=$2 data=$3 more; shift 3
  more=PENSTOCK_${application^^}_BENCH
  # shellcheck disable=SC2086
  part "$name" 580 "$name.log" python3 -B tools/app_bench.py "$application" "$dir/bin" "$data" \
    "$out/$name" --backend "$backend" --commit "$commit" "$@" ${!more:-}
}
run_collage() {
  [ -n "$pictures" ] || { note collage FAILED 'needs --pictures DIR'; return; }
  app_bench collage collage "$scratch/library" "pictures=$pictures"
}
# Each GPU has a cache of a sixteenth of the library, which lies in the page cache of the host.
run_collage_devices() {
  local there count devices from=$pictures
  there=$(nvidia-smi -L 2>/dev/null | wc -l)
  [ "$backend" != cpu ] || there=2
  [ "$there" -ge 2 ] || { note collage_devices FAILED 'needs two GPUs'; return; }
  if [ -z "$from" ]; then
    from=$scratch/pictures
    python3 -B tools/make_pictures.py "$from" ||
      { note collage_devices FAILED 'no pictures'; return; }
  fi
  PENSTOCK_TEST_FLAGS="--backend $backend" part collage_devices_test 200 collage_devices_test.log \
    python3 -B tests/apps_collage/devices_test.py "$dir/bin/penstock-collage"
  for count in 2 4 8; do
    [ "$count" -le "$there" ] || break
    devices=$(seq -s, 0 $((count - 1)))
    app_bench "collage_devices_$count" collage_devices "$scratch/library" "pictures=$from" \
      "devices=$devices"
  done
}
run_wordcount() { app_bench wordcount grep "$scratch/sources" ${words:+"words=$words"}; }
run_match() { app_bench match match "$scratch/match"; }
run_vector() { app_bench vector vector "$scratch/vector"; }
run_product() { app_bench product product "$scratch/product"; }
run_cp() { in_shell 120 cp.log compare_cp; }
# A file of 4 GiB in the page cache to a new one, twice each; GNU cp may not share blocks.
compare_cp() {
  local from=$scratch/cp-from to=$scratch/cp-to i start
  head -c "${CP_BYTES:-4G}" /dev/urandom >"$from" || return 1
  for i in 1 2; do
    rm -f "$to"; start=$(date +%s%N)
    cp --reflink=never "$from" "$to" || return 1
    echo "cp: $((($(date +%s%N) - start) / 1000000)) ms"
    rm -f "$to"; start=$(date +%s%N)
    "$dir/bin/penstock" cp --backend "$backend" "$from" "$to" || return 1
    echo "penstock cp: $((($(date +%s%N) - start) / 1000000)) ms"
    cmp "$from" "$to" || return 1
  done
  rm -f "$from" "$to"
  echo "copies by penstock cp equal the file"
}

run_sanitize() {
  command -v compute-sanitizer >/dev/null || {
    note sanitize FAILED 'no compute-sanitizer on PATH'
    return
  }
  local tool small='device_open.wrong*:device_open.a_change*:device_gpufs*'
  small+=':device_bounded_wait.all_frames*:device_windows.warps_of_4096*:device_windows.changes*'
  small+=':device_write.host_calls'
  for tool in memcheck racecheck initcheck synccheck; do
    part "$tool" 280 "$tool.log" compute-sanitizer --tool $tool --error-exitcode 9 \
      "$dir/tests/device_test" --gtest_filter="$small"
    [ $tool = initcheck ] || part "$tool-m" 280 "$tool-model.log" \
      compute-sanitizer --tool $tool --error-exitcode 9 \
      "$dir/tests/penstock_model_gpu" --seeds 2 --operations 20000
  done
}

for one in "${parts[@]}"; do
  declare -F "run_$one" >/dev/null || { echo "gpu-test: no part '$one'" >&2; exit 2; }
  "run_$one"
done
printf '\n'
printf '%s\n' "${table[@]}"
passed=$(printf '%s\n' "${table[@]}" | grep -c ' ok ')
echo "$passed passed, $((${#table[@]} - passed)) failed"
exit $failed
