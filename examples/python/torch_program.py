#!/usr/bin/env python3
"""A compiled and an exported model with 8 tables, one lookup for all: torch_program.py DIRECTORY

The exported program has no rows: a process that runs it opens the store first.
"""

import pathlib
import sys

import numpy as np
import torch

import hps
import hps.torch

TABLES, ROWS, DIM = 8, 1_000, 16


class Score(torch.nn.Module):
    """A number for each sample, from its key in each of the tables."""

    def __init__(self, store: hps.Store):
        super().__init__()
        self.rows = hps.torch.Embeddings(store, [f"score/t{i}" for i in range(TABLES)])
        self.dense = torch.nn.Linear(TABLES * DIM, 1)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        rows = self.rows(keys)  # [tables, batch, dim] of keys [tables, batch]
        return self.dense(rows.transpose(0, 1).flatten(1)).sigmoid()


def main() -> int:
    directory = pathlib.Path(sys.argv[1])
    random = np.random.default_rng(1)
    for number in range(TABLES):
        rows = random.standard_normal((ROWS, DIM), np.float32)
        hps.import_table(directory / "store", f"score/t{number}", rows)
    with hps.open(directory / "store") as store, torch.no_grad():
        model = Score(store)
        keys = torch.from_numpy(random.integers(0, ROWS, (TABLES, 64)))
        expected = model(keys)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        exported = torch.export.export(
            model, (keys,), dynamic_shapes=({1: torch.export.Dim("batch", min=2)},))
        torch.export.save(exported, directory / "score.pt2")
        program = torch.export.load(directory / "score.pt2").module()
        difference = max((answer(keys) - expected).abs().max().item()
                         for answer in (compiled, program))
    print(f"largest difference of 64 scores: {difference:.1e}")
    return 0 if difference < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
