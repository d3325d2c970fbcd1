#!/usr/bin/env python3
"""Online training: the truth of a stream drifts, and the served model follows it.

    demo_online.py HPS      (the command, build/cpu/bin/hps)

A model is trained and served. Then, window by window: the served model predicts the window, the
trainer learns from it and publishes the rows that changed, and the keys that expired. The network
stays as it was exported. Beside it, a model that is not updated any more shows what drift costs.
Exit status: 0 when the served model stays ahead of that one and serves the trainer's rows, and the
dashboard shows as many changes as were published.
"""

from __future__ import annotations

import copy
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
from data import auc
from deepfm import BATCH, Trainer
from drift import FIELDS, Drift
from served_model import ServedModel
from served_rows import served_predictions

WARM_UP_WINDOWS, WINDOWS, SAMPLES = 8, 8, 12_000
PASSES = 2  # over each window
LATE = 4    # the last windows, by which the demo is judged
GAIN_MIN = 0.05
EXPIRE_STEPS = 4 * PASSES * SAMPLES // BATCH  # an item is forgotten after four windows


def learn(trainer: Trainer, samples, title: str) -> None:
    for number in range(PASSES):
        order = np.random.default_rng(number).permutation(len(samples))
        trainer.epoch(samples, order, title)


def follow(served: ServedModel, trainer: Trainer,
           drift: Drift) -> tuple[list[tuple[float, float]], np.ndarray]:
    """The AUC of the served model and of the frozen one on each window, before it is learned; how
    many rows and deletions were published."""
    frozen = copy.deepcopy({name: dict(zip(*map(list, trainer.embed.rows(name))))
                            for name in FIELDS})
    found, published = [], np.zeros(2, np.int64)
    for number in range(1, WINDOWS + 1):
        samples = drift.window(SAMPLES)
        everything = np.arange(len(samples))
        predicted = served_predictions(served, trainer.network, samples, everything)
        old_rows = {name: torch.from_numpy(np.stack([
            frozen[name].get(key, np.zeros(trainer.embed.tables[name].dim, np.float32))
            for key in samples.keys[name]])) for name in FIELDS}
        with torch.no_grad():
            old = trainer.network.of(old_rows).numpy()
        found.append((auc(samples.labels, predicted), auc(samples.labels, old)))
        learn(trainer, samples, f"window {number:2}")
        began = time.monotonic()
        sent = np.sum(list(trainer.embed.publish(served.target()).values()), axis=0)
        published += sent
        print(f"  AUC served {found[-1][0]:.4f}, without updates {found[-1][1]:.4f}; published "
              f"{sent[0]} rows and {sent[1]} deletions in {time.monotonic() - began:.2f} s",
              flush=True)
    return found, published


def main() -> int:
    hps = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    drift = Drift()
    trainer = Trainer(FIELDS, rate=0.02, expire_after=EXPIRE_STEPS)
    print("1. training on the first windows", flush=True)
    for _ in range(WARM_UP_WINDOWS):
        learn(trainer, drift.window(SAMPLES), "warm-up")
    with tempfile.TemporaryDirectory(prefix="hps_online_") as name:
        work = pathlib.Path(name)
        print("2. exporting, importing, serving", flush=True)
        trainer.export(work / "model", "online")
        trainer.network.requires_grad_(False)
        with ServedModel(hps, work / "model", work, "online") as served:
            print(f"3. following the stream; the dashboard: http://{served.address}/", flush=True)
            found, published = follow(served, trainer, drift)
            updates = served.overview()["updates"]
            shown = np.array([updates["rows_upserted"], updates["rows_deleted"]])
            print(f"  the dashboard shows {shown[0]} rows upserted and {shown[1]} deleted; "
                  f"published were {published[0]} and {published[1]}", flush=True)
            wrong = 0
            for table in FIELDS:
                keys, rows = trainer.embed.rows(table)
                wrong += int((served.rows(table, keys) != rows).any(axis=1).sum())
        status = served.process.returncode
    online, old = np.mean(found[-LATE:], axis=0)
    print(f"4. stopped, exit status {status}; AUC of the last {LATE} windows: served {online:.4f}, "
          f"without updates {old:.4f}; rows that differ from the trainer's: {wrong}")
    is_right = status == 0 and wrong == 0 and (shown == published).all()
    return 0 if is_right and online >= old + GAIN_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
