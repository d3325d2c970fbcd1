#!/usr/bin/env python3
"""Lookups of torch tensors on a GPU beside the same calls in C, in one process.

    python bench/python/cuda_lookups.py --library build/cuda/lib/libhps.so

Needs the package of `make wheel-gpu` and PyTorch with CUDA. 26 tables of 100,000 rows of 128
floats, all in level 1; 4,096 keys of each. A figure is the median wall time of a call and the wait
for its rows. That in C is called through ctypes, with its arguments ready.
"""

import ctypes
import pathlib

import device_calls
import numpy as np
import torch
from device_calls import DIM, KEYS, ROWS, TABLES

import hps
import hps.torch


class Model(torch.nn.Module):
    def __init__(self, store: hps.Store):
        super().__init__()
        self.layers = torch.nn.ModuleList(hps.torch.Embedding(store, f"m/t{i}")
                                          for i in range(TABLES))

    def forward(self, keys: list) -> torch.Tensor:
        return sum(layer(some).sum() for layer, some in zip(self.layers, keys))


def wait(_result: object) -> None:
    torch.cuda.synchronize()


def measure(path: pathlib.Path, config: pathlib.Path, library: ctypes.CDLL) -> None:
    random = np.random.default_rng(1)
    all_keys = [torch.from_numpy(random.integers(0, ROWS, KEYS)).cuda() for _ in range(TABLES)]
    asked = {f"t{i}": keys for i, keys in enumerate(all_keys)}
    rows = [torch.empty(KEYS, DIM, device="cuda") for _ in range(TABLES)]
    c_alone = device_calls.median_in_c(
        library, config, [keys.data_ptr() for keys in all_keys], [some.data_ptr() for some in rows],
        torch.cuda.current_stream().cuda_stream or 1, wait)
    with hps.open(config=config) as store:
        session = store.session("m", "cuda:0")
        device_calls.warm_up(lambda: session.lookup(asked))
        layer = hps.torch.Embeddings(store, [f"m/{table}" for table in asked])
        stacked = torch.stack(all_keys)
        device_calls.warm_up(lambda: layer(stacked))
        out = dict(zip(asked, rows))
        operator = torch.ops.hps.lookup_stacked.default
        tables = "\n".join(f"m/{table}:{DIM}" for table in asked)
        times = device_calls.medians(
            wait, lambda: session.lookup(asked), lambda: layer(all_keys), lambda: layer(stacked),
            lambda: operator(stacked, str(path), tables), lambda: session.lookup(asked, out=out))
        _, status = session.lookup(asked, status=True)
        hits = np.mean([(part == hps.Status.HIT_L1).float().mean().item()
                        for part in status.values()])
        explained = torch._dynamo.explain(Model(store))(all_keys)
    print(f"level 1 answered {hits:.4f} of the keys")
    print(f"C {c_alone:.1f} us")
    for name, ours in zip(("Session.lookup of a dictionary", "hps.torch.Embeddings of a list",
                           "hps.torch.Embeddings of one tensor",
                           "torch.ops.hps.lookup_stacked", "Session.lookup with out="), times):
        print(f"{name} {ours:.1f} us, ratio {ours / c_alone:.2f}")
    print(f"torch.compile: {explained.graph_break_count} graph breaks")


def main() -> None:
    library = device_calls.library_of_arguments(__doc__)
    with device_calls.made_store() as (path, config):
        measure(path, config, library)


if __name__ == "__main__":
    main()
