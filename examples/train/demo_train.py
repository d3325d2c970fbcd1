#!/usr/bin/env python3
"""From data to a served model: train DeepFM, export, import, serve, compare, stop.

    demo_train.py HPS [--device DEVICE]

HPS is the command, build/cpu/bin/hps or build/cuda/bin/hps. DEVICE is "cpu" or "cuda": where
network and tables are trained.

Exit status: 0 when the served rows, and the predictions from them, are the trainer's.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

import data
import numpy as np
import torch
from deepfm import Trainer
from served_model import ServedModel
from served_rows import served_predictions

EPOCHS = 3
ASKED = 2000
ERROR_MAX = 1e-5


def train(samples: data.Samples, device: str) -> tuple[Trainer, np.ndarray, float]:
    """The trainer, the samples that it has not seen, and their AUC."""
    order = np.random.default_rng(3).permutation(len(samples))
    held_out, seen = order[:len(order) // 10], order[len(order) // 10:]
    trainer = Trainer(data.FIELDS, device=device)
    for epoch in range(1, EPOCHS + 1):
        trainer.epoch(samples, np.random.default_rng(epoch).permutation(seen), f"epoch {epoch}")
        reached = trainer.auc(samples, held_out)
        print(f"  AUC of {len(held_out)} samples that training did not see: {reached:.4f}")
    rows = sum(table["rows"] for table in trainer.embed.statistics().values())
    print(f"  {rows} rows in {len(trainer.embed.tables)} tables")
    return trainer, held_out, reached


def compare(served: ServedModel, trainer: Trainer, samples: data.Samples,
            picked: np.ndarray) -> bool:
    """Whether the server's rows and what the network makes of them are the trainer's."""
    wrong = 0
    for name in trainer.embed.tables:
        keys, rows = trainer.embed.rows(name)
        wrong += int((served.rows(name, keys) != rows).any(axis=1).sum())
    error = np.abs(served_predictions(served, trainer.network, samples, picked) -
                   trainer.predict(samples, picked)).max()
    print(f"  rows that differ from the trainer's: {wrong}")
    print(f"  largest difference of {len(picked)} predictions: {error:.1e} "
          f"(allowed: {ERROR_MAX:.0e})")
    return wrong == 0 and error <= ERROR_MAX


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("hps", type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    samples, source = data.load()
    print(f"1. training DeepFM on {len(samples)} samples: {source}", flush=True)
    trainer, held_out, reached = train(samples, arguments.device)
    with tempfile.TemporaryDirectory(prefix="hps_train_") as name:
        work = pathlib.Path(name)
        print("2. exporting tables and network", flush=True)
        trainer.export(work / "model", "deepfm")
        print("3. importing and serving", flush=True)
        with ServedModel(arguments.hps, work / "model", work, "deepfm") as served:
            print("4. asking the server", flush=True)
            is_equal = compare(served, trainer, samples, held_out[:ASKED])
        status = served.process.returncode
    print(f"5. stopped, exit status {status}")
    is_useful = reached > 0.7
    if not is_useful:
        print(f"AUC {reached:.4f} is too low")
    return 0 if is_equal and is_useful and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
