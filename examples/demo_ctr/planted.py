"""A sample of clicks with a planted truth, and how well scores rank it."""

from __future__ import annotations

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))
import fields  # noqa: E402  (it lies beside the models)


def clicks(count: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Samples, and whether each was clicked: the tastes of users and items, what the history has
    in common with the item, and two of the numbers decide."""
    truth = np.random.default_rng(2026)
    users = truth.standard_normal((fields.USERS, 6))
    items = truth.standard_normal((fields.ITEMS, 6))
    samples = fields.random_samples(count, seed)
    item = items[samples["item"]]
    logit = (users[samples["user"]] * item).sum(1)
    logit += 0.5 * (items[samples["history"]].mean(1) * item).sum(1)
    logit += samples["dense"][:, 0] - 0.5 * samples["dense"][:, 1] - 0.5
    chance = np.random.default_rng(seed + 1).random(count)
    return samples, (chance < 1 / (1 + np.exp(-logit))).astype(np.float32)


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The share of pairs of a click and a non-click that the scores rank right; ties count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    clicked = labels == 1
    positives = int(clicked.sum())
    negatives = len(labels) - positives
    return float((ranks[clicked].sum() - positives * (positives + 1) / 2) / positives / negatives)
