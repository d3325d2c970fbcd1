#!/usr/bin/env python3
"""Trains for thousands of steps, with new keys in each, and tells whether memory stays as it was.

    PYTHONPATH=PACKAGE tools/train_soak.py [--device cpu] [--steps 300] [--dtype bfloat16]

PACKAGE has hps, with CUDA if the device is a GPU. 26 small tables of all optimizers: half of a
step's keys are new, the others are of the last steps; rows expire, and one table has a bound of
rows instead. Beside the training, a second thread publishes to a target that only counts. Now and
then there is a checkpoint, each fourth of them full. Prints, ten times, the memory of the device
that is taken (by whatever program; 0 on the CPU), that of this process, rows, and what was
published. Exit status: 1 if the memory of the device or of the process is more than 64 MiB larger
at the end than after a fifth of the steps, or 200 if that is more, or if a table has more rows than
it may, else 0.
"""

import argparse
import gc
import os
import pathlib
import sys
import tempfile
import threading
import time

import numpy as np
import torch

import hps.train as ht

TABLES, DIMS = 26, (4, 8, 16, 32)
KEYS = 512  # of a table in a step; half of them are new
EXPIRE_AFTER, ROWS_MAX = 100, 10_000
RECENT_STEPS = 50  # whose keys come again
SAVES, FULL_SAVE = 40, 4  # checkpoints in all; each fourth is full
REPORTS = 10
# Memory has to stay as it is after this part of the steps, and after so many.
SETTLED_PART, SETTLED_STEPS = 5, 200
MEBI = 1 << 20
GROWTH_MAX = 64 * MEBI
PUBLISH_PAUSE_S = 0.05
MULTIPLIER = -7046029254386353131  # odd: different numbers give different keys
OPTIMIZERS = [ht.SGD, ht.Adagrad, ht.RowwiseAdagrad, ht.Adam, ht.Ftrl]


class CountingTarget:
    def __init__(self) -> None:
        self.sent = self.deleted = self.flushes = 0

    def upsert(self, table: str, keys: np.ndarray, rows: np.ndarray) -> None:  # noqa: ARG002
        self.sent += len(keys)

    def delete(self, table: str, keys: np.ndarray) -> None:  # noqa: ARG002
        self.deleted += len(keys)

    def flush(self) -> None:
        self.flushes += 1


class Publisher(threading.Thread):
    """Publishes until `end` is called, which raises the error of a publish that failed."""

    def __init__(self, embed: ht.EmbeddingCollection) -> None:
        super().__init__(name="publisher")
        self._embed, self._end = embed, threading.Event()
        self._error: BaseException | None = None
        self.target = CountingTarget()

    def run(self) -> None:
        try:
            while not self._end.wait(PUBLISH_PAUSE_S):
                self._embed.publish(self.target)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        self._end.set()
        self.join()
        self.check()


def make_tables(dtype: str) -> list[ht.Table]:
    # The argument is left out where it says nothing, for packages from before there were types.
    options = {} if dtype == "float32" else {"dtype": dtype}
    found = []
    for number in range(TABLES):
        bound = {"rows_max": ROWS_MAX} if number == 0 else {"expire_after": EXPIRE_AFTER}
        found.append(ht.Table(f"t{number}", DIMS[number % len(DIMS)],
                              optimizer=OPTIMIZERS[number % len(OPTIMIZERS)](), **bound, **options))
    return found


def keys_of(step: int, random: torch.Generator) -> torch.Tensor:
    """[tables, keys]: new ones, and some of the last steps."""
    new = KEYS // 2
    first = max(0, step - RECENT_STEPS) * new
    again = torch.randint(first, (step + 1) * new, (TABLES, KEYS - new), generator=random,
                          device=random.device)
    fresh = torch.arange(step * new, (step + 1) * new, device=random.device)
    return torch.cat([fresh.expand(TABLES, -1), again], 1) * MULTIPLIER


def device_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def process_bytes() -> int:
    text = pathlib.Path("/proc/self/statm").read_text(encoding="utf-8")
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled_after(steps: int) -> int:
    return max(steps // SETTLED_PART, min(SETTLED_STEPS, steps - 1))


class Soak:
    def __init__(self, device: torch.device, dtype: str, directory: str) -> None:
        self.device, self.directory = device, directory
        self.embed = ht.EmbeddingCollection(make_tables(dtype), device=device)
        self.names = list(self.embed.tables)
        self.random = torch.Generator(device).manual_seed(1)
        self.publisher = Publisher(self.embed)
        self.saves = 0

    def step(self, step: int) -> None:
        keys = ht.Keys(self.names, keys_of(step, self.random).view(-1))
        out = self.embed(keys).tensor
        out.backward(torch.randn_like(out) * 1e-2)

    def save(self) -> None:
        self.embed.save(self.directory, incremental=self.saves % FULL_SAVE != 0)
        self.saves += 1

    def measure(self) -> tuple[int, int]:
        """Bytes of the device and of this process."""
        gc.collect()
        return device_bytes(self.device), process_bytes()

    def rows(self) -> dict[str, int]:
        return {name: counted["rows"] for name, counted in self.embed.statistics().items()}

    def report(self, step: int, seconds: float) -> None:
        on_device, own = self.measure()
        target = self.publisher.target
        print(f"step {step:6}, {seconds:6.0f} s: device {on_device / MEBI:8.0f} MiB, process "
              f"{own / MEBI:6.0f} MiB, {sum(self.rows().values()):9,} rows, published "
              f"{target.sent:11,}, deleted {target.deleted:11,} in {target.flushes:,} calls, "
              f"{self.saves} checkpoints", flush=True)

    def run(self, steps: int) -> list[tuple[int, int]]:
        """Returns what `measure` says when memory has settled, and at the end."""
        began, found = time.monotonic(), []
        self.publisher.start()
        try:
            for step in range(1, steps + 1):
                self.step(step)
                if step % max(1, steps // SAVES) == 0:
                    self.save()
                if step % max(1, steps // REPORTS) == 0:
                    self.report(step, time.monotonic() - began)
                    self.publisher.check()
                if step == settled_after(steps):
                    found.append(self.measure())
        finally:
            self.publisher.end()
        return [*found, self.measure()]


def problems(settled: tuple[int, int], end: tuple[int, int], rows: dict[str, int]) -> list[str]:
    found = [f"{name}: {(after - before) / MEBI:.0f} MiB more at the end"
             for name, before, after in zip(("device", "process"), settled, end)
             if after - before > GROWTH_MAX]
    # Rows beyond a bound go a few at a time: keys of some steps may be there yet.
    most = KEYS * (EXPIRE_AFTER + RECENT_STEPS)
    for name, count in rows.items():
        limit = 2 * ROWS_MAX if name == "t0" else most
        if count > limit:
            found.append(f"table {name}: {count} rows, more than {limit}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=10_000, help="at least 10 (default 10000)")
    parser.add_argument("--dtype", default="float32", help="of the rows")
    options = parser.parse_args()
    if options.steps < REPORTS:
        parser.error(f"--steps: at least {REPORTS}")
    with tempfile.TemporaryDirectory(prefix="hps_train_soak_") as directory:
        soak = Soak(torch.device(options.device), options.dtype, directory)
        settled, end = soak.run(options.steps)
        found = problems(settled, end, soak.rows())
    for name, before, after in zip(("device", "process"), settled, end):
        print(f"{name}: {before / MEBI:.1f} MiB after {settled_after(options.steps)} steps, "
              f"{after / MEBI:.1f} at the end (at most {GROWTH_MAX // MEBI} MiB more)")
    print("\n".join(found) or "memory stays as it was")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
