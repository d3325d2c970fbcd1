"""What the models share: the features of a sample, layers, and the export to ONNX.

A sample has DENSE numbers, a user, an item, and HISTORY items that the user has seen.
"""

from __future__ import annotations

import pathlib
import warnings

import numpy as np
import torch

DENSE = 4
HISTORY = 5
USERS = 400
ITEMS = 300
DIM = 8
OPSET = 17


def mlp(*widths: int) -> torch.nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[torch.nn.Module] = []
    for width, following in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def random_samples(count: int, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"dense": random.standard_normal((count, DENSE), np.float32),
            "user": random.integers(0, USERS, count),
            "item": random.integers(0, ITEMS, count),
            "history": random.integers(0, ITEMS, (count, HISTORY))}


def tensors(samples: dict[str, np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(samples[name]))
            for name in ("dense", "user", "item", "history")]


def outputs_of(model: torch.nn.Module) -> list[str]:
    """A model of several tasks names its outputs."""
    return list(getattr(model, "outputs", ["score"]))


def predict_all(model: torch.nn.Module, samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By output, [batch]."""
    model.eval()
    with torch.no_grad():
        made = model(*tensors(samples))
    made = made if isinstance(made, tuple) else (made,)
    return {name: one.numpy() for name, one in zip(outputs_of(model), made)}


def predict(model: torch.nn.Module, samples: dict[str, np.ndarray]) -> np.ndarray:
    """Scores [batch]."""
    return predict_all(model, samples)["score"]


def export(model: torch.nn.Module, path: pathlib.Path) -> None:
    names = ["dense", "user", "item", "history"]
    model.eval()
    with warnings.catch_warnings():
        # The exporter over torch.export is to replace this one.
        warnings.simplefilter("ignore", DeprecationWarning)
        # A GRU with a batch of any size is said to depend on the batch that it was exported with:
        # the tests serve one with others.
        warnings.simplefilter("ignore", UserWarning)
        outputs = outputs_of(model)
        torch.onnx.export(model, tuple(tensors(random_samples(3))), str(path), input_names=names,
                          output_names=outputs, opset_version=OPSET, dynamo=False,
                          dynamic_axes={name: {0: "batch"} for name in [*names, *outputs]})
