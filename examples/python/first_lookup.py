#!/usr/bin/env python3
"""Imports a table of known rows, looks some up, and checks them: first_lookup.py DIRECTORY"""

import pathlib
import sys

import numpy as np

import hps


def main() -> int:
    path = pathlib.Path(sys.argv[1]) / "store"
    keys = np.random.default_rng(1).permutation(10_000)
    rows = np.stack([keys, keys + 0.5], axis=1).astype(np.float32)
    hps.import_table(path, "example/user", keys, rows)
    with hps.open(path) as store:
        asked = np.array([3, 9_999, -5])
        found, status = store.session("example").lookup("user", asked, status=True)
    for key, row, how in zip(asked, found, status):
        print(f"key {key}: {hps.Status(how).name.lower()} {row.tolist()}")
    right = found[:2, 0].tolist() == [3, 9_999] and status[2] == hps.Status.ABSENT
    print("all right" if right else "wrong rows")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
