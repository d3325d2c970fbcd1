"""DeepFM (Guo et al., 2017) over an EmbeddingCollection: the dense half is plain PyTorch.

A row has a weight of first order, then the factors.
"""

from __future__ import annotations

import pathlib
import sys
import time

import numpy as np
import torch
from data import Samples, auc

import hps.train as ht

FACTORS = 8
BATCH = 512


class DeepFM(torch.nn.Module):
    def __init__(self, fields: list[str]) -> None:
        super().__init__()
        self.fields = fields
        self.bias = torch.nn.Parameter(torch.zeros(1))
        self.deep = torch.nn.Sequential(
            torch.nn.Linear(len(fields) * FACTORS, 64), torch.nn.ReLU(),
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, *field_rows: torch.Tensor) -> torch.Tensor:
        """Probabilities [batch] from the rows of each field, [batch, 1 + FACTORS]."""
        rows = torch.stack(field_rows, dim=1)
        factors = rows[:, :, 1:]
        pairs = 0.5 * (factors.sum(1).square() - factors.square().sum(1)).sum(1)
        deep = self.deep(factors.flatten(1)).squeeze(1)
        return torch.sigmoid(self.bias + rows[:, :, 0].sum(1) + pairs + deep)

    def of(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return self(*[rows[field] for field in self.fields])


def make_tables(fields: list[str], rate: float, **options: int) -> list[ht.Table]:
    return [ht.Table(name, dim=1 + FACTORS, optimizer=ht.Adam(lr=rate),
                     init=ht.Uniform(-0.05, 0.05),
                     pooling="mean" if name == "genres" else "sum", **options) for name in fields]


class Trainer:
    """`device`: of network and tables. `options`: those of every table."""

    def __init__(self, fields: list[str], rate: float = 0.003, device: str = "cpu",
                 **options: int) -> None:
        torch.manual_seed(7)
        self.device = device
        self.embed = ht.EmbeddingCollection(make_tables(fields, rate, **options), device=device)
        self.network = DeepFM(fields).to(device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.001)

    def step(self, inputs: dict, labels: torch.Tensor) -> float:
        self.embed.train()
        keys = ht.Keys.from_dict(inputs).to(self.device)
        loss = torch.nn.functional.binary_cross_entropy(self.network.of(self.embed(keys)),
                                                        labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()  # updates the rows, too
        self.optimizer.step()
        return loss.item()

    def predict(self, samples: Samples, picked: np.ndarray) -> np.ndarray:
        self.embed.eval()
        with torch.no_grad():
            keys = ht.Keys.from_dict(samples.inputs(picked)).to(self.device)
            return self.network.of(self.embed(keys)).cpu().numpy()

    def epoch(self, samples: Samples, picked: np.ndarray, title: str) -> float:
        """One pass over the picked samples; returns the mean loss."""
        losses, began = [], time.monotonic()
        shown = began - 1
        for begin in range(0, len(picked), BATCH):
            part = picked[begin:begin + BATCH]
            losses.append(self.step(samples.inputs(part), samples.label_tensor(part)))
            is_last = begin + BATCH >= len(picked)
            if is_last or (sys.stdout.isatty() and time.monotonic() - shown > 0.1):
                shown = time.monotonic()
                show_progress(title, (begin + len(part)) / len(picked), np.mean(losses), is_last)
        return float(np.mean(losses))

    def export(self, directory: pathlib.Path, name: str) -> None:
        example = {table.name: torch.zeros(2, table.dim) for table in self.embed.tables.values()}
        self.embed.export(directory, self.network, example, name=name)

    def auc(self, samples: Samples, picked: np.ndarray) -> float:
        return auc(samples.labels[picked], self.predict(samples, picked))


def show_progress(title: str, share: float, loss: float, is_last: bool) -> None:
    bar = "#" * round(30 * share)
    start = "\r" if sys.stdout.isatty() else ""
    print(f"{start}  {title} [{bar:30}] {share:4.0%}  loss {loss:.4f}", end="\n" if is_last else "",
          flush=True)
