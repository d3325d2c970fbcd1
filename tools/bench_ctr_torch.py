#!/usr/bin/env python3
"""PyTorch's eager predictions beside those of `hps bench ctr`: the same DLRM, in one run.

    .venv-python/bin/python tools/bench_ctr_torch.py build/cpu/bin/hps [--threads 2] [--quick]
        [--out F.json]

26 tables in memory (the sizes of `hps bench ctr`), rows of 32 numbers; MLPs of 512-256-32 and
512-512-256-1. Ids are row numbers, drawn by a power law of exponent 1.05. hps runs first, then
PyTorch, then hps again: where its two runs differ much, the machine was not idle. Prints the ratio
of hps' samples/s to PyTorch's and what is asked for: 3 at batch 1, 1.5 at 64, 1.1 at 1,024.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

import dlrm_torch as dlrm

SCALE, QUICK_SCALE = 0.05, 0.002  # of larger ones, as bench/ctr/ctr_scenario.cc
DIM = 32
ID_SETS = 16
RUNS = {1: 2000, 64: 600, 1024: 120}
WANTED = {1: 3.0, 64: 1.5, 1024: 1.1}


def pytorch_us(rows: list[int], quick: bool) -> dict[int, float]:
    """Median microseconds of a batch, by its size."""
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    model = dlrm.Dlrm(rows, DIM).eval()
    figures = {}
    for batch, runs in RUNS.items():
        runs = 4 if quick else runs
        sets = [torch.from_numpy(dlrm.draw(rows, batch, random)) for _ in range(ID_SETS)]
        dense = torch.randn(batch, dlrm.DENSE)
        times = []
        with torch.inference_mode():
            for run in range(runs + runs // 10 + ID_SETS):
                begun = time.perf_counter()
                model(dense, *sets[run % ID_SETS])
                times.append(time.perf_counter() - begun)
        figures[batch] = statistics.median(times[-runs:]) * 1e6
    return figures


def hps_results(hps: str, quick: bool) -> dict[int, dict]:
    command = [hps, "bench", "ctr", "--json", *(["--quick"] if quick else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return {int(result["params"]["batch"]): result for result in json.loads(done.stdout)["results"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hps", help="the command")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="few runs: shows only that it works")
    parser.add_argument("--out", help="also write the figures as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    rows = dlrm.table_rows(QUICK_SCALE if asked.quick else SCALE)
    before = hps_results(asked.hps, asked.quick)
    pytorch = pytorch_us(rows, asked.quick)
    after = hps_results(asked.hps, asked.quick)
    results = []
    for batch, wanted in WANTED.items():
        best = min(before[batch], after[batch], key=lambda result: result["figure"])
        share = best["ratio"]
        ratio = pytorch[batch] / best["figure"]
        results.append({"batch": batch, "hps_us": [before[batch]["figure"], after[batch]["figure"]],
                        "pytorch_us": pytorch[batch], "ratio": ratio, "target": f">= {wanted}",
                        "over_network_alone": share})
        print(f"batch {batch:5}  hps {before[batch]['figure']:8.0f} and "
              f"{after[batch]['figure']:8.0f} us, PyTorch {pytorch[batch]:8.0f} us: "
              f"{ratio:5.2f} times as fast, wanted >= {wanted} "
              f"({'ok' if ratio >= wanted else 'missed'}); {share:.2f} times the network alone, "
              f"wanted <= 1.15 ({'ok' if share <= 1.15 else 'missed'})")
    if asked.out:
        with open(asked.out, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "threads": asked.threads, "results": results},
                      file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
