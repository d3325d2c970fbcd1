#!/usr/bin/env python3
"""A small click model whose embeddings lie in a store: torch_model.py DIRECTORY

Imports the embeddings of a torch model, then serves the same model from the store, and compares."""

import pathlib
import sys

import torch

import hps
import hps.torch

USERS, ITEMS, DIM = 5_000, 2_000, 16


class ClickModel(torch.nn.Module):
    """Two tables and a dense network over their rows."""

    def __init__(self, user: torch.nn.Module, items: torch.nn.Module):
        super().__init__()
        self.user, self.items = user, items
        self.dense = torch.nn.Sequential(torch.nn.Linear(2 * DIM, 32), torch.nn.ReLU(),
                                         torch.nn.Linear(32, 1), torch.nn.Sigmoid())

    def forward(self, user: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.user(user), self.items(items)], dim=1))


def main() -> int:
    path = pathlib.Path(sys.argv[1]) / "store"
    torch.manual_seed(1)
    trained = ClickModel(torch.nn.Embedding(USERS, DIM),
                         torch.nn.EmbeddingBag(ITEMS, DIM, mode="mean")).eval()
    hps.import_table(path, "click/user", trained.user)
    hps.import_table(path, "click/items", trained.items)
    with hps.open(path) as store, torch.no_grad():
        served = ClickModel(hps.torch.Embedding(store, "click/user"),
                            hps.torch.EmbeddingBag(store, "click/items", mode="mean")).eval()
        served.dense.load_state_dict(trained.dense.state_dict())
        user, items = torch.randint(USERS, (64,)), torch.randint(ITEMS, (64, 10))
        difference = (served(user, items) - trained(user, items)).abs().max().item()
    print(f"largest difference of 64 predictions: {difference:.1e}")
    return 0 if difference < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
