"""Requests for predictions: by the names of tables, and as HugeCTR's Triton backend is asked."""

from __future__ import annotations

import numpy as np


def by_names(tables: list[str], samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A table's keys are those of the feature that its name begins with: user_factors -> user."""
    return {"dense": samples["dense"]} | {
        table: samples[table.split("_")[0]] for table in tables}


def by_columns(tables: list[str], samples: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """DES, CATCOLUMN and ROWINDEX: the tables' keys one after the other, each with its offsets."""
    columns, index = [], []
    batch = len(samples["dense"])
    for table in tables:
        keys = samples[table.split("_")[0]].reshape(batch, -1)
        columns.append(keys.reshape(-1))
        index.append((np.arange(batch + 1) * keys.shape[1]).astype(np.int32))
    return {"DES": samples["dense"].reshape(1, -1), "CATCOLUMN": np.concatenate(columns)[None],
            "ROWINDEX": np.concatenate(index)[None]}
