"""Click data of the demos: MovieLens 100k where it is, else data with a planted truth."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import numpy as np
import torch

FIELDS = ["user", "item", "occupation", "genres"]


@dataclasses.dataclass
class Samples:
    """Inputs of an EmbeddingCollection by table, and labels 0 or 1."""

    keys: dict[str, np.ndarray]               # int64 [n]
    lists: dict[str, list[np.ndarray]]        # ragged: the keys of each sample
    labels: np.ndarray                        # float32 [n]

    def __len__(self) -> int:
        return len(self.labels)

    def inputs(self, picked: np.ndarray) -> dict[str, object]:
        """{table: keys or (keys, offsets)} of the picked samples."""
        found: dict[str, object] = {name: torch.from_numpy(keys[picked])
                                    for name, keys in self.keys.items()}
        for name, lists in self.lists.items():
            bags = [lists[i] for i in picked]
            offsets = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])])
            found[name] = (torch.from_numpy(np.concatenate(bags)), torch.from_numpy(offsets))
        return found

    def label_tensor(self, picked: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.labels[picked])


def movielens_folder() -> pathlib.Path | None:
    root = os.environ.get("HPS_REAL_DATA")
    folder = pathlib.Path(root) / "movielens-100k" if root else None
    return folder if folder and (folder / "u.data").exists() else None


def movielens(folder: pathlib.Path) -> Samples:
    """Does a user like an item (4 or 5 of 5)? With the user's occupation and the item's genres."""
    occupations: dict[str, int] = {}
    occupation_of = {}
    for line in (folder / "u.user").read_text(encoding="latin-1").splitlines():
        user, _, _, occupation, _ = line.split("|")
        occupation_of[int(user)] = occupations.setdefault(occupation, len(occupations))
    genres_of = {}
    for line in (folder / "u.item").read_text(encoding="latin-1").splitlines():
        fields = line.split("|")
        genres_of[int(fields[0])] = np.flatnonzero([flag == "1" for flag in fields[5:]])
    rated = np.loadtxt(folder / "u.data", dtype=np.int64, usecols=(0, 1, 2))
    users, items = rated[:, 0].copy(), rated[:, 1].copy()
    return Samples(
        keys={"user": users, "item": items,
              "occupation": np.array([occupation_of[user] for user in users], np.int64)},
        lists={"genres": [genres_of[item].astype(np.int64) for item in items]},
        labels=(rated[:, 2] >= 4).astype(np.float32))


def planted(count: int = 60_000, seed: int = 1) -> Samples:
    """Users and items of a power law whose keys are random 64-bit numbers; a hidden
    factorization machine says how probable a click is."""
    random = np.random.default_rng(seed)
    sizes = {"user": 2000, "item": 1000, "occupation": 20, "genres": 18}
    ids = {name: random.integers(-2**63, 2**63 - 1, size) for name, size in sizes.items()}
    hidden = {name: random.normal(0, 0.6, (size, 4)) for name, size in sizes.items()}
    bias = {name: random.normal(0, 0.5, size) for name, size in sizes.items()}
    picked = {name: np.minimum(random.zipf(1.2, count) - 1, sizes[name] - 1)
              if name in ("user", "item") else random.integers(0, sizes[name], count)
              for name in ("user", "item", "occupation")}
    item_genres = [random.choice(18, random.integers(1, 4), replace=False) for _ in range(1000)]
    genres = [item_genres[item] for item in picked["item"]]
    factors = [hidden[name][picked[name]] for name in picked]
    factors.append(np.stack([hidden["genres"][bag].mean(0) for bag in genres]))
    total = np.sum(factors, axis=0)
    logit = 0.5 * (total**2 - np.sum(np.square(factors), axis=0)).sum(1)
    logit += sum(bias[name][picked[name]] for name in picked)
    return Samples(
        keys={name: ids[name][picked[name]] for name in picked},
        lists={"genres": [ids["genres"][bag] for bag in genres]},
        labels=(random.random(count) < 1 / (1 + np.exp(-logit))).astype(np.float32))


def load() -> tuple[Samples, str]:
    folder = movielens_folder()
    if folder:
        return movielens(folder), "MovieLens 100k"
    return planted(), "planted data (set HPS_REAL_DATA for MovieLens 100k)"


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area under the ROC curve, by ranks; equal scores share theirs."""
    order = np.argsort(scores, kind="stable")
    _, first, counts = np.unique(scores[order], return_index=True, return_counts=True)
    ranks = np.empty(len(scores))
    ranks[order] = np.repeat(first + (counts + 1) / 2, counts)
    positive = labels > 0.5
    n = positive.sum()
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(labels) - n)))
