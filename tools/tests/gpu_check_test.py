"""Runs tools/gpu_check.sh over a planted build: a check that cannot fail checks nothing."""

import json
import os
import pathlib
import subprocess

from planted import PlantedTest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "gpu_check.sh"

# Stands in for the command: writes what it is asked for; level 1's rows are those in
# $ROWS_OF_GPU, and it answers $HITS_OF_L1 of 100.
HPS = """#!/bin/bash
while [[ $# -gt 0 ]]; do
  case "$1" in
    --out) out=$2 ;;
    --device) device=$2 ;;
    bench) what=bench ;;
  esac
  shift
done
if [[ ${what:-} == bench ]]; then echo "${BENCH:-{\\}}" >"$out"; exit "${BENCH_STATUS:-0}"; fi
rows=right
if [[ ${device:--1} != -1 ]]; then rows=${ROWS_OF_GPU:-right}; fi
if [[ -n ${out:-} && $out == *.npy ]]; then
  echo "$rows" >"$out"
  echo "$out: 100 rows of dim 8, ${HITS_OF_L1:-97} hit_l1"
else
  echo "$rows"
fi
"""
DEMO = """#!/bin/bash
echo "${DEMO_PASS:-  L1 whole, preloaded}"
"""
PASSES = """#!/bin/bash
echo "[       OK ] Cache.Holds (1 ms)"
echo "[  SKIPPED ] Cache.Needs (0 ms)"
echo "[  SKIPPED ] 1 test, listed below:"
echo "[  SKIPPED ] Cache.Needs"
"""
FINDS_NO_GPU = """#!/bin/bash
echo "[       OK ] Cache.Holds (1 ms)"
echo "cache_test.cc:1: Skipped"
echo "needs a GPU: no CUDA-capable device is detected"
echo "[  SKIPPED ] Cache.Needs (0 ms)"
"""
FAILS = """#!/bin/bash
echo "[       OK ] Cache.Holds (1 ms)"
echo "[  FAILED  ] Cache.Tears (1 ms)"
echo "[  FAILED  ] Cache.Tears"
exit 1
"""
CRASHES = """#!/bin/bash
echo "[       OK ] Cache.Holds (1 ms)"
kill -SEGV $$
"""


class GpuCheckTest(PlantedTest):
    def check(self, test: str = PASSES, gpus: int = 1, **environment) -> tuple[int, dict, str]:
        files = {"build/bin/hps": HPS, "build/bin/hps_demo": DEMO, "build/tests/l1_gpu_test": test,
                 "build/gpu_tests.txt": "l1_gpu_test\n",
                 "tools/nvidia-smi": f"#!/bin/bash\nseq {gpus}\n",
                 "tools/compute-sanitizer": '#!/bin/bash\nexec "${@:7:1}"\n'}
        root = self.plant(files)
        for name in files:
            (root / name).chmod(0o755)
        path = f"{root}/tools:{os.environ['PATH']}"
        done = subprocess.run([SCRIPT, root / "build", root / "out"], check=False, text=True,
                              capture_output=True, env=os.environ | environment | {"PATH": path})
        summary = json.loads((root / "out" / "summary.json").read_text())
        return done.returncode, summary, done.stdout.splitlines()[-1]

    def status_of(self, summary: dict, step: str) -> str:
        return {row["step"]: row["status"] for row in summary["steps"]}[step]

    def test_passes_and_counts_cases(self):
        status, summary, line = self.check()
        self.assertEqual(status, 0, summary)
        # Three runs of one case; store, lookup, demo, four benchmarks; three skipped, predictions
        # and the GPUs.
        self.assertEqual(line, "10 passed, 0 failed, 5 skipped")
        self.assertEqual((summary["passed"], summary["failed"], summary["skipped"]), (10, 0, 5))

    def test_a_failing_or_crashing_test_fails(self):
        for test, reason in ((FAILS, ""), (CRASHES, "exit status 139"),
                             ("#!/bin/bash\n", "no test in it")):
            status, summary, line = self.check(test)
            self.assertEqual(status, 1)
            self.assertIn("3 failed", line)
            self.assertEqual(self.status_of(summary, "l1_gpu_test"), "failed")
            self.assertIn(reason, summary["steps"][0]["reason"])

    def test_a_gpu_that_the_tests_cannot_use_fails(self):
        status, summary, _ = self.check(FINDS_NO_GPU)
        self.assertEqual(status, 1)
        self.assertIn("for lack of a GPU", summary["steps"][0]["reason"])
        status, summary, _ = self.check(FINDS_NO_GPU, gpus=0)
        self.assertEqual(self.status_of(summary, "l1_gpu_test"), "passed")

    def test_rows_that_differ_fail(self):
        status, summary, _ = self.check(ROWS_OF_GPU="wrong")
        self.assertEqual(status, 1)
        self.assertEqual(self.status_of(summary, "lookup"), "failed")

    def test_a_silent_fall_back_to_the_host_fails(self):
        status, summary, _ = self.check(HITS_OF_L1="3")
        self.assertEqual(status, 1)
        self.assertEqual(self.status_of(summary, "lookup"), "failed")

    def test_a_demo_without_level_1_fails(self):
        _, summary, _ = self.check(DEMO_PASS="no level 1: no driver")
        self.assertEqual(self.status_of(summary, "demo"), "failed")

    def test_a_benchmark_that_fails_fails(self):
        status, summary, _ = self.check(BENCH_STATUS="1")
        self.assertEqual(status, 1)
        self.assertEqual(self.status_of(summary, "bench_l1"), "failed")

    def test_without_a_gpu_nothing_is_said_to_pass(self):
        status, summary, line = self.check(gpus=0)
        self.assertEqual(status, 1)
        self.assertEqual(line, "1 passed, 0 failed, 11 skipped")
        self.assertEqual(self.status_of(summary, "bench_l1"), "skipped")

    def test_every_gpu_is_asked(self):
        _, summary, _ = self.check(gpus=3)
        self.assertEqual(self.status_of(summary, "lookup_device_2"), "passed")
