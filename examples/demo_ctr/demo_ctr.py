#!/usr/bin/env python3
"""From clicks to served predictions: train DeepFM with PyTorch, export ONNX, split, import, serve,
ask over HTTP and gRPC, compare, stop.

    demo_ctr.py HPS PYTHON     (the command; a Python that has Triton's client with gRPC)

Exit status: 0 when every check held.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from planted import auc, clicks
from requests_of import by_columns, by_names
from served import Served

import fields  # from examples/models, which planted.py has made known
from deepfm import DeepFm

SEEN, HELD_OUT = 30_000, 4_000
EPOCHS, BATCH = 6, 512
MODEL = "deepfm"
ERROR_MAX = 1e-5
AUC_MIN = 0.68
HERE = pathlib.Path(__file__).resolve().parent
COMMAND_S = 300


def train() -> DeepFm:
    samples, labels = clicks(SEEN, seed=1)
    torch.manual_seed(7)
    model = DeepFm()
    for table in model.children():
        if isinstance(table, torch.nn.Embedding):
            torch.nn.init.normal_(table.weight, std=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, EPOCHS + 1):
        order = np.random.default_rng(epoch).permutation(SEEN)
        losses = []
        model.train()
        for begin in range(0, SEEN, BATCH):
            part = order[begin:begin + BATCH]
            scores = model(*fields.tensors({name: array[part] for name, array in samples.items()}))
            loss = torch.nn.functional.binary_cross_entropy(scores, torch.from_numpy(labels[part]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"  epoch {epoch}: loss {np.mean(losses):.4f}", flush=True)
    return model


def run(*arguments: object) -> dict:
    done = subprocess.run([*map(str, arguments), "--json"], check=True, timeout=COMMAND_S,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


class Checks:
    """Compares scores with PyTorch's, and remembers whether all were equal."""

    def __init__(self, labels: np.ndarray, expected: np.ndarray) -> None:
        self.labels, self.expected = labels, expected
        self.all_held = True

    def compare(self, what: str, scores: np.ndarray) -> None:
        error = float(np.abs(scores - self.expected).max())
        difference = abs(auc(self.labels, scores) - auc(self.labels, self.expected))
        held = scores.shape == self.expected.shape and error <= ERROR_MAX and difference <= 1e-4
        self.all_held &= held
        print(f"  {what}: {len(scores)} predictions, largest difference {error:.1e}, "
              f"AUC {auc(self.labels, scores):.4f}: {'equal' if held else 'NOT EQUAL'}", flush=True)


def ask_http(served: Served, samples: dict, make, output: str, batch: int) -> np.ndarray:
    scores = []
    for begin in range(0, HELD_OUT, batch):
        part = {name: array[begin:begin + batch] for name, array in samples.items()}
        scores.append(served.predict(MODEL, make(part), output))
    return np.concatenate(scores)


def show_latency(served: Served, tables: list[str], samples: dict) -> None:
    for batch in (1, 64, 1024):
        part = by_names(tables, {name: array[:batch] for name, array in samples.items()})
        times = []
        for _ in range(50):
            begun = time.perf_counter()
            served.predict(MODEL, part, "score")
            times.append(time.perf_counter() - begun)
        print(f"  batch {batch:4}: p50 {np.median(times) * 1e3:.2f} ms, measured by the client")
    for stage, us in served.mean_us(MODEL).items():
        print(f"  {stage}: {us:.0f} us for each request, mean over all of them")


def main() -> int:
    hps, grpc_python = sys.argv[1:]
    torch.set_num_threads(1)
    print(f"1. training DeepFM on {SEEN} clicks with a planted truth", flush=True)
    model = train()
    samples, labels = clicks(HELD_OUT, seed=3)
    checks = Checks(labels, fields.predict(model, samples))
    reached = auc(labels, checks.expected)
    print(f"  AUC of {HELD_OUT} clicks that training did not see: {reached:.4f}")
    with tempfile.TemporaryDirectory(prefix="hps_ctr_") as name:
        work = pathlib.Path(name)
        print("2. exporting ONNX, splitting it into tables and network", flush=True)
        fields.export(model, work / "model.onnx")
        report = run(hps, "split-onnx", work / "model.onnx", "--out", work / "model")
        tables = [table["table"] for table in report["tables"]]
        for table in report["tables"]:
            print(f"  {table['table']}: {table['rows']} rows of dim {table['dim']}, "
                  f"pooling {table['pooling']}")
        print("3. importing tables and network, and serving", flush=True)
        run(hps, "import", "--store", work / "store", "--model", MODEL, "--from", work / "model")
        with Served(pathlib.Path(hps), work / "store") as served:
            print("4. asking", flush=True)
            for batch in (1000, 7):
                checks.compare(f"HTTP, by names, batch {batch}", ask_http(
                    served, samples, lambda part: by_names(tables, part), "score", batch))
            checks.compare("HTTP, DES / CATCOLUMN / ROWINDEX", ask_http(
                served, samples, lambda part: by_columns(tables, part), "OUTPUT0", 500))
            np.savez(work / "samples.npz", **samples)
            subprocess.run([grpc_python, str(HERE / "ask_grpc.py"), served.addresses["grpc"], MODEL,
                            str(work / "samples.npz"), ",".join(tables), str(work / "scores.npy"),
                            "500"], check=True, timeout=COMMAND_S)
            checks.compare("gRPC, by names", np.load(work / "scores.npy"))
            print("5. latency", flush=True)
            show_latency(served, tables, samples)
        status = served.process.returncode
    print(f"6. stopped, exit status {status}")
    if reached < AUC_MIN:
        print(f"AUC {reached:.4f} is below {AUC_MIN}: the model has learnt too little")
    return 0 if checks.all_held and reached >= AUC_MIN and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
