#!/usr/bin/env python3
"""Lookups of torch tensors on a GPU beside the same calls in C, in one process.

    python bench/python/cuda_lookups.py --library build/cuda/lib/libhps.so

Needs the package of `make wheel-gpu` and PyTorch with CUDA. 26 tables of 100,000 rows of 128
floats, all in level 1; 4,096 keys of each. A figure is the median wall time of a call and the wait
for its rows. That in C is called through ctypes, with its arguments ready.
"""

import argparse
import ctypes
import pathlib
import statistics
import tempfile
import time

import lookups
import numpy as np
import torch

import hps
import hps.torch

TABLES, ROWS, DIM, KEYS = 26, 100_000, 128, 4096
ROUNDS, CALLS_OF_ROUND = 10, 50
CONFIG = """[store]
path = "{path}"
[l1]
devices = [0]
preload = 1.0
[l2]
preload = 1.0
"""


class LookupOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("timeout_ns", ctypes.c_int64),
                ("hit_rate_threshold", ctypes.c_double), ("cancel", ctypes.c_void_p),
                ("is_on_device", ctypes.c_int32), ("stream", ctypes.c_void_p)]


def call_in_c(library: ctypes.CDLL, store: ctypes.c_void_p, keys: list, rows: list) -> tuple:
    """A call, and what ends its session."""
    session = ctypes.c_void_p()
    made = lookups.SessionOptions(ctypes.sizeof(lookups.SessionOptions), 0, 1, 0)
    assert library.hps_session_new(store, b"m", ctypes.byref(made), ctypes.byref(session)) == 0
    queries = (lookups.Query * TABLES)(*[
        lookups.Query(ctypes.sizeof(lookups.Query), i, keys[i].data_ptr(), KEYS,
                      rows[i].data_ptr(), KEYS * DIM * 4, 0, None) for i in range(TABLES)])
    stream = torch.cuda.current_stream().cuda_stream or 1
    options = LookupOptions(ctypes.sizeof(LookupOptions), -1, -1.0, None, 1, stream)
    lookup, by_reference = library.hps_lookup, ctypes.byref(options)

    def call() -> None:
        if lookup(session, queries, ctypes.c_size_t(TABLES), by_reference, None) != 0:
            raise RuntimeError("the lookup failed")
    return call, lambda: library.hps_session_free(session)


def medians(*calls) -> list[float]:
    """Microseconds of each, in turns of CALLS_OF_ROUND. The first tenth does not count."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, seconds in zip(calls, times):
            for number in range(CALLS_OF_ROUND):
                begin = time.perf_counter()
                call()
                torch.cuda.synchronize()
                if number >= CALLS_OF_ROUND // 10:
                    seconds.append(time.perf_counter() - begin)
    return [statistics.median(seconds) * 1e6 for seconds in times]


class Model(torch.nn.Module):
    def __init__(self, store: hps.Store):
        super().__init__()
        self.layers = torch.nn.ModuleList(hps.torch.Embedding(store, f"m/t{i}")
                                          for i in range(TABLES))

    def forward(self, keys: list) -> torch.Tensor:
        return sum(layer(some).sum() for layer, some in zip(self.layers, keys))


def measure(path: pathlib.Path, config: pathlib.Path, library: ctypes.CDLL) -> None:
    random = np.random.default_rng(1)
    all_keys = [torch.from_numpy(random.integers(0, ROWS, KEYS)).cuda() for _ in range(TABLES)]
    asked = {f"t{i}": keys for i, keys in enumerate(all_keys)}
    in_c = ctypes.c_void_p()
    options = lookups.OpenOptions(ctypes.sizeof(lookups.OpenOptions), None,
                                  str(config).encode(), 0)
    assert library.hps_open(ctypes.byref(options), ctypes.byref(in_c)) == 0
    rows = [torch.empty(KEYS, DIM, device="cuda") for _ in range(TABLES)]
    call, end = call_in_c(library, in_c, all_keys, rows)
    for _ in range(200):
        call()
    time.sleep(2)
    c_alone, = medians(call)
    end()
    library.hps_close(in_c)
    with hps.open(config=config) as store:
        session = store.session("m", "cuda:0")
        for _ in range(200):
            session.lookup(asked)
        time.sleep(2)
        layer = hps.torch.Embeddings(store, [f"m/{table}" for table in asked])
        stacked = torch.stack(all_keys)
        for _ in range(200):
            layer(stacked)
        time.sleep(2)
        out = dict(zip(asked, rows))
        operator = torch.ops.hps.lookup_stacked.default
        tables = "\n".join(f"m/{table}:{DIM}" for table in asked)
        times = medians(lambda: session.lookup(asked), lambda: layer(all_keys),
                        lambda: layer(stacked), lambda: operator(stacked, str(path), tables),
                        lambda: session.lookup(asked, out=out))
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
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=lookups.ROOT / "build" / "cuda" / "lib" / "libhps.so")
    library = ctypes.CDLL(str(parser.parse_args().library))
    with tempfile.TemporaryDirectory(prefix="hps_bench_cuda_") as directory:
        path, config = pathlib.Path(directory, "store"), pathlib.Path(directory, "hps.toml")
        config.write_text(CONFIG.format(path=path))
        for i in range(TABLES):
            rows = np.random.default_rng(i).random((ROWS, DIM), np.float32)
            hps.import_table(path, f"m/t{i}", np.arange(ROWS), rows)
        measure(path, config, library)


if __name__ == "__main__":
    main()
