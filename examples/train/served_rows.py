"""What a client does that has a model's network and asks a server for the rows."""

from __future__ import annotations

import numpy as np
import torch
from data import Samples
from served_model import ServedModel


def served_rows(served: ServedModel, samples: Samples, picked: np.ndarray) -> dict:
    """The pooled rows of each field, from the server."""
    rows = {}
    for name, keys in samples.keys.items():
        rows[name] = torch.from_numpy(served.rows(name, keys[picked]))
    for name, lists in samples.lists.items():
        bags = [lists[i] for i in picked]
        found = served.rows(name, np.concatenate(bags))
        ends = np.cumsum([len(bag) for bag in bags])
        rows[name] = torch.from_numpy(np.stack([part.mean(0) for part in
                                                np.split(found, ends[:-1])]))
    return rows


def served_predictions(served: ServedModel, network: torch.nn.Module, samples: Samples,
                       picked: np.ndarray) -> np.ndarray:
    device = next(network.parameters()).device
    rows = {name: each.to(device) for name, each in served_rows(served, samples, picked).items()}
    with torch.no_grad():
        return network.of(rows).cpu().numpy()
