#!/bin/bash
# Runs what needs a GPU: tests, the tests again under compute-sanitizer, lookups from a
# device against those from the host, predictions of a server, the benchmarks of level 1, of dense
# networks and of predictions. Under 8 minutes.
#
#   tools/gpu_check.sh BUILD_DIR OUT_DIR
#
# BUILD_DIR is build/cuda or, on a machine that has nothing else of hps (no compiler, no sources, no
# Python), what tools/gpu_pack.sh made of it. OUT_DIR gets the benchmarks' JSON, a log of each step
# and summary.json. The last line is "N passed, N failed[, N skipped]", in test cases where a step
# has any, else in steps. Exit status: 0 when something passed and nothing failed; 1 otherwise, also
# where there is no GPU, for then nothing was checked.
#
# HPS_GPU_CHECK_STEPS names the steps to run (default: all but those of training), e.g. "tests
# bench_l1".
set -u

if [[ $# -ne 2 || ! -x $1/bin/hps || ! -r $1/gpu_tests.txt ]]; then
  echo "gpu_check: usage: tools/gpu_check.sh BUILD_DIR OUT_DIR;" \
    "BUILD_DIR is a build of \`make gpu-tests\` or a pack of one" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
mkdir -p "$2" && out=$(cd "$2" && pwd)
readonly seconds_max=470
# What compute-sanitizer, which makes it a hundred times slower, has the time for; nor does it go
# with cases about the whole memory, or about time, or with those that fork. It waits itself
# for what a test keeps from ending.
readonly small_cases="-*Random*:*Concurren*:*Lru*:*ThreeQuarters*:*Beside*:*Leak*:*LargerThan*:\
*Hangs*:*CantBeHad*:*MoreThanTheDevice*:*DeviceMemoryComesBack*:*Deadlines*:*DeathTest*"
all_steps="tests lookup demo predictions bench_l1 bench_session bench_dense bench_ctr memcheck \
racecheck multi_gpu"
# Training has a call of its own, HPS_GPU_CHECK_STEPS="train train_python train_demo bench_train":
# the steps above fill their time. All but the first need a pack with the package.
training_steps="train train_python train_demo bench_train"
steps=" ${HPS_GPU_CHECK_STEPS:-$all_steps} "
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch TEST_TMPDIR=$scratch
passed=0 failed=0 skipped=0 rows=()

# note STEP STATUS SECONDS PASSED FAILED SKIPPED REASON: a row of the summary.
note() {
  passed=$((passed + $4)) failed=$((failed + $5)) skipped=$((skipped + $6))
  local row='{"step": "%s", "status": "%s", "seconds": %d, '
  row+='"passed": %d, "failed": %d, "skipped": %d, "reason": "%s"}'
  # shellcheck disable=SC2059
  rows+=("$(printf "$row" "$1" "$2" "$3" "$4" "$5" "$6" "$(tr -d '"\\[:cntrl:]' <<<"$7")")")
  printf '== %-28s %-8s %4d s  %d passed, %d failed, %d skipped%s\n' "$1" "$2" "$3" "$4" "$5" "$6" \
    "${7:+  ($7)}"
}

skip() { note "$1" skipped 0 0 0 1 "$2"; }

# run STEP LIMIT_S COMMAND...: runs it with a log of its own and a time limit; sets `seconds`.
run() {
  local step=$1 limit=$2 start=$SECONDS status
  shift 2
  if ((limit > seconds_max - SECONDS)); then limit=$((seconds_max - SECONDS)); fi
  if ((limit < 5)); then limit=5; fi
  echo "-- $step: at most $limit s: $*"
  timeout -k 5 "$limit" "$@" >"$out/$step.log" 2>&1
  status=$?
  seconds=$((SECONDS - start))
  if ((status == 124 || status == 137)); then echo "timed out after $limit s" >>"$out/$step.log"; fi
  return $status
}

# run_step: as run, a step that is one case.
run_step() {
  if run "$@"; then
    note "$1" passed "$seconds" 1 0 0 ""
  else
    local status=$?
    note "$1" failed "$seconds" 0 1 0 "exit status $status: $(tail -n 1 "$out/$1.log")"
    tail -n 40 "$out/$1.log"
    return 1
  fi
}

# run_tests STEP LIMIT_S COMMAND...: a GoogleTest program; its cases count. A case that found no GPU
# on a machine that has one is a failure.
run_tests() {
  local step=$1 status=0 ok bad left reason=""
  run "$@" || status=$?
  ok=$(grep -cE '^\[       OK \] ' "$out/$step.log")
  bad=$(grep -cE '^\[  FAILED  \] \S+(, where .*)? \([0-9]+ ms\)$' "$out/$step.log")
  left=$(grep -cE '^\[  SKIPPED \] \S+ \([0-9]+ ms\)$' "$out/$step.log")
  if ((status != 0 && bad == 0)); then
    bad=1 reason="exit status $status: $(tail -n 1 "$out/$step.log")"
  elif ((ok + bad + left == 0)); then
    bad=1 reason="no test in it"
  elif ((devices > 0)) && grep -q "needs a GPU" "$out/$step.log"; then
    # nvidia-smi knows one that CUDA can't use: then nothing was checked.
    bad=1 reason="cases were skipped for lack of a GPU: $(grep -m 1 "needs a GPU" "$out/$step.log")"
  fi
  if ((bad > 0)); then
    note "$step" failed "$seconds" "$ok" "$bad" "$left" "$reason"
    grep -vE '^\[ RUN|^\[       OK' "$out/$step.log" | tail -n 60
  elif ((ok == 0)); then
    note "$step" skipped "$seconds" 0 0 "$left" ""
  else
    note "$step" passed "$seconds" "$ok" 0 "$left" ""
  fi
}

wanted() { [[ $steps == *" $1 "* ]]; }

# look_up DEVICE TABLE OUT KEYS...: rows and statuses.
look_up() {
  "$build/bin/hps" lookup --store "$scratch/store" --table "demo/$2" --device "$1" "${@:4}" >"$3"
}

# As look_up, of a device whose level 1 was loaded at start.
look_up_loaded() {
  printf '[store]\npath = "%s"\n[l1]\npreload = 1.0\n' "$scratch/store" >"$scratch/loaded.toml"
  "$build/bin/hps" lookup --config "$scratch/loaded.toml" --table "demo/$2" --device "$1" \
    "${@:4}" >"$3"
}

# Level 1 is loaded beside what goes on, and may lack a few rows: FILE says who gave how many.
most_from_l1() {
  sed -nE 's/.*: ([0-9]+) rows .* ([0-9]+) hit_l1.*/\1 \2/p' "$1" |
    { read -r rows hits && ((hits * 10 > rows * 9)); }
}

# The rows of a table that is asked of a device are byte for byte those that the host gives, absent
# keys included; and where level 1 was loaded, nearly all come from there.
check_lookup() {
  local host=$scratch/host device=$scratch/device keys=$scratch/tables/t0/keys.npy
  look_up -1 t0 "$host.txt" --keys-file "$keys" --out "$host.npy" &&
    look_up "$1" t0 "$device.txt" --keys-file "$keys" --out "$device.npy" &&
    cmp "$host.npy" "$device.npy" &&
    look_up_loaded "$1" t0 "$device.txt" --keys-file "$keys" --out "$device.loaded.npy" &&
    cmp "$host.npy" "$device.loaded.npy" &&
    most_from_l1 "$device.txt" &&
    look_up -1 t1 "$host.txt" --keys 7,-1,7,12345678901 &&
    look_up "$1" t1 "$device.txt" --keys 7,-1,7,12345678901 &&
    cmp "$host.txt" "$device.txt"
}

# The demo goes on without a GPU that it can't use: that is a failure here.
check_demo() {
  "$build/bin/hps_demo" "$scratch/demo" | tee "$scratch/demo.txt" &&
    grep -q '^  L1 whole' "$scratch/demo.txt"
}

make_store() {
  "$build/bin/hps" generate --out "$scratch/tables" --tables 4 --rows 400000 --dim 32 \
    --format npy &&
    "$build/bin/hps" import --store "$scratch/store" --model demo --from "$scratch/tables"
}
export -f look_up look_up_loaded most_from_l1 check_lookup check_demo make_store
export build scratch

write_summary() {
  local gpu commit separator=""
  gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | paste -sd';')
  commit=$(grep -ohE '"commit": *"[^"]*"' "$out"/*.json 2>/dev/null | head -n 1)
  {
    printf '{"gpu": "%s", %s"date": "%s", "seconds": %d,\n' "$gpu" "${commit:+$commit, }" \
      "$(date -u +%FT%TZ)" "$SECONDS"
    printf ' "passed": %d, "failed": %d, "skipped": %d,\n "steps": [' "$passed" "$failed" "$skipped"
    for row in "${rows[@]}"; do
      printf '%s\n  %s' "$separator" "$row"
      separator=,
    done
    printf ']}\n'
  } >"$out/summary.json"
}

# The package of the pack.
with_package() {
  env PYTHONPATH="$build/package:$build/tests/python" LD_LIBRARY_PATH="$build/lib" "$@"
}
check_training_in_python() {
  with_package python3 -m unittest -v train_device_test train_device_precision_test \
    train_autocast_test
}
check_training_demo() {
  with_package python3 "$build/examples/train/demo_train.py" "$build/bin/hps" --device cuda
}
bench_training() {
  with_package python3 -m hps.bench train --device cuda --out "$1"
}
export -f with_package check_training_in_python check_training_demo bench_training

devices=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l)
if ((devices == 0)); then
  echo "gpu_check: this machine has no GPU (nvidia-smi knows none): what needs one is skipped"
fi

# The tests come first: they skip by themselves what needs a device where there is none. Here, and
# only here, they read as many rows and do as many operations as level 1 has to stand.
while read -r test; do
  if [[ $test == train_* ]]; then continue; fi  # of the step `train`
  test_rows=10000000000
  # Its rows come from level 2, a hundred times slower.
  if [[ $test == query_gpu_direct_test ]]; then test_rows=5000000; fi
  if wanted tests; then
    run_tests "$test" 240 env HPS_TEST_ROWS=$test_rows HPS_TEST_OPERATIONS=100000000 \
      "$build/tests/$test"
  fi
done <"$build/gpu_tests.txt"

if ((devices == 0)); then
  for step in $all_steps $training_steps; do
    if [[ $step != tests ]] && wanted "$step"; then skip "$step" "no GPU"; fi
  done
else
  if wanted lookup || wanted multi_gpu; then
    if run_step make_store 60 bash -c make_store && wanted lookup; then
      run_step lookup 60 bash -c "check_lookup 0"
    fi
  fi
  # The demo's rows come through level 1 and are checked one by one.
  if wanted demo; then run_step demo 60 bash -o pipefail -c check_demo; fi
  if wanted predictions; then
    tests=$build/tests/server
    if [[ ! -d $tests ]]; then tests=$(dirname "$0")/../tests/server; fi
    if ! grep -qs '^HPS_OPENVINO:BOOL=ON$' "$build/CMakeCache.txt"; then
      skip predictions "the build has no dense networks"
    elif ! python3 -c 'import numpy' 2>/dev/null; then
      skip predictions "there is no Python with NumPy"
    else
      run_step predictions 100 env HPS_COMMAND="$build/bin/hps" python3 "$tests/dense_gpu_test.py"
    fi
  fi
  if wanted bench_l1; then
    run_step bench_l1 120 "$build/bin/hps" bench l1 --device 0 --out "$out/l1.json"
  fi
  if wanted bench_session; then
    run_step bench_session 60 "$build/bin/hps" bench session --device 0 --out "$out/session.json"
  fi
  if wanted bench_dense; then
    run_step bench_dense 60 "$build/bin/hps" bench dense --device 0 --out "$out/dense.json"
  fi
  if wanted bench_ctr; then
    run_step bench_ctr 100 "$build/bin/hps" bench ctr --device 0 --out "$out/ctr.json"
  fi
  if wanted train; then
    run_tests train_host_and_device_test 120 "$build/tests/train_host_and_device_test"
    test=train_gpu_test
    run_tests $test 60 "$build/tests/$test"
    if ! command -v compute-sanitizer >/dev/null; then
      skip "sanitizer_$test" "compute-sanitizer is not on the PATH"
    else
      run_tests memcheck_$test 100 compute-sanitizer --tool memcheck --error-exitcode 9 \
        --report-api-errors no "$build/tests/$test" \
        --gtest_filter="-*WithoutMemory*:*DoesNotWait*:*NoReaderHasHad*"
      # It looks at shared memory; these tests reach all kernels that have some.
      run_tests racecheck_$test 100 compute-sanitizer --tool racecheck --error-exitcode 9 \
        --report-api-errors no "$build/tests/$test" \
        --gtest_filter="DeviceTablesTest.*-*WithoutMemory*:*DoesNotWait*:*BoundedMemory*"
    fi
  fi
  for step in $training_steps; do
    if [[ $step == train ]] || ! wanted "$step"; then continue; fi
    if [[ ! -d $build/package ]]; then
      skip "$step" "the pack has no Python package"
    elif ! python3 -c 'import torch' 2>/dev/null; then
      skip "$step" "there is no Python with PyTorch"
    elif [[ $step == train_python ]]; then
      run_step train_python 200 bash -c check_training_in_python
    elif [[ $step == train_demo ]]; then
      run_step train_demo 200 bash -c check_training_demo
    else
      run_step bench_train 300 bash -c "bench_training '$out/train.json'"
    fi
  done
  for tool in memcheck racecheck; do
    if ! wanted $tool; then continue; fi
    if ! command -v compute-sanitizer >/dev/null; then
      skip $tool "compute-sanitizer is not on the PATH"
      continue
    fi
    while read -r test; do
      if [[ $test == train_* ]]; then continue; fi
      run_tests "${tool}_$test" 90 compute-sanitizer --tool $tool --error-exitcode 9 \
        --report-api-errors no "$build/tests/$test" --gtest_filter="$small_cases"
    done <"$build/gpu_tests.txt"
  done
  if wanted multi_gpu; then
    if ((devices == 1)); then
      skip multi_gpu "one GPU"
    else
      for ((device = 1; device < devices; ++device)); do
        run_step "lookup_device_$device" 60 bash -c "check_lookup $device"
      done
    fi
  fi
fi

write_summary
cat "$out/summary.json"
line="$passed passed, $failed failed"
if ((skipped > 0)); then line+=", $skipped skipped"; fi
if ((devices == 0)); then echo "gpu_check: FAILED: nothing was checked on a GPU"; fi
echo "$line"
((failed == 0 && passed > 0 && devices > 0))
