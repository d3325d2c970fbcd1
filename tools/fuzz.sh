#!/bin/bash
# Runs libFuzzer's programs one after the other.
#
#   tools/fuzz.sh BUILD SECONDS [PROGRAM...]     all programs of BUILD/fuzz without names
#
# Each begins with the inputs in tests/fuzz_seeds/PROGRAM, where there are any, and in
# BUILD/corpus/PROGRAM, to which it adds those that reach new code. What
# libFuzzer says is in BUILD/logs/PROGRAM.log. The first program that finds something ends the run
# with status 1; the input is then in BUILD/found.
set -euo pipefail

if [[ $# -lt 2 || ! $2 =~ ^[1-9][0-9]*$ ]]; then
  echo "fuzz: expected BUILD SECONDS [PROGRAM...]" >&2
  exit 2
fi
build=$1 seconds=$2
shift 2
if [[ $# -gt 0 ]]; then programs=("$@"); else programs=("$build"/fuzz/fuzz_*); fi

for path in "${programs[@]}"; do
  program=$(basename "$path")
  if [[ ! -x $build/fuzz/$program ]]; then
    echo "fuzz: there is no program $build/fuzz/$program: build fuzz-programs" >&2
    exit 2
  fi
  corpus=$build/corpus/$program log=$build/logs/$program.log
  mkdir -p "$corpus" "$build/found" "$build/logs"
  inputs=("$corpus") seeds=$(dirname "$0")/../tests/fuzz_seeds/$program
  if [[ -d $seeds ]]; then inputs+=("$seeds"); fi
  # HPS_FUZZ_SEEDS: fuzz_grpc_wire writes its first inputs there.
  if ! HPS_FUZZ_SEEDS=$corpus "$build/fuzz/$program" -max_total_time="$seconds" -max_len=8192 \
    -timeout=60 -artifact_prefix="$build/found/" -print_final_stats=1 "${inputs[@]}" \
    >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "fuzz: $program failed; all that it said is in $log, the input in $build/found" >&2
    exit 1
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "fuzz: $program passed: $runs inputs in $seconds s, $(find "$corpus" -type f | wc -l) kept"
done
