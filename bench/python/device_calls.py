"""What the measurements of lookups on a GPU share: the store, the call in C, the clock.

26 tables of 100,000 rows of 128 floats, all in level 1; 4,096 keys of each.
"""

import argparse
import contextlib
import ctypes
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import lookups
import numpy as np

import hps

TABLES, ROWS, DIM, KEYS = 26, 100_000, 128, 4096
ROUNDS, CALLS_OF_ROUND = 10, 50
WARM_UP_CALLS = 200
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


def library_of_arguments(documentation: str) -> ctypes.CDLL:
    parser = argparse.ArgumentParser(description=documentation,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=lookups.ROOT / "build" / "cuda" / "lib" / "libhps.so")
    return ctypes.CDLL(str(parser.parse_args().library))


@contextlib.contextmanager
def made_store() -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """The path of a store, and that of its settings."""
    with tempfile.TemporaryDirectory(prefix="hps_bench_cuda_") as directory:
        path, config = pathlib.Path(directory, "store"), pathlib.Path(directory, "hps.toml")
        config.write_text(CONFIG.format(path=path))
        for i in range(TABLES):
            rows = np.random.default_rng(i).random((ROWS, DIM), np.float32)
            hps.import_table(path, f"m/t{i}", np.arange(ROWS), rows)
        yield path, config


def medians(wait: Callable, *calls: Callable) -> list[float]:
    """Microseconds of each call and of wait(its result), in turns of CALLS_OF_ROUND. The first
    tenth does not count."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, seconds in zip(calls, times):
            for number in range(CALLS_OF_ROUND):
                begin = time.perf_counter()
                wait(call())
                if number >= CALLS_OF_ROUND // 10:
                    seconds.append(time.perf_counter() - begin)
    return [statistics.median(seconds) * 1e6 for seconds in times]


def warm_up(call: Callable) -> None:
    for _ in range(WARM_UP_CALLS):
        call()
    time.sleep(2)


def median_in_c(library: ctypes.CDLL, config: pathlib.Path, keys: list[int], rows: list[int],
                stream: int | None, wait: Callable) -> float:
    """Microseconds of the call in C, with its arguments ready. `keys` and `rows` are addresses on
    the GPU. stream: None: the call itself waits for the rows."""
    store, session = ctypes.c_void_p(), ctypes.c_void_p()
    opened = lookups.OpenOptions(ctypes.sizeof(lookups.OpenOptions), None, str(config).encode(), 0)
    assert library.hps_open(ctypes.byref(opened), ctypes.byref(store)) == 0
    made = lookups.SessionOptions(ctypes.sizeof(lookups.SessionOptions), 0, 1, 0)
    assert library.hps_session_new(store, b"m", ctypes.byref(made), ctypes.byref(session)) == 0
    queries = (lookups.Query * TABLES)(*[
        lookups.Query(ctypes.sizeof(lookups.Query), i, keys[i], KEYS, rows[i], KEYS * DIM * 4, 0,
                      None) for i in range(TABLES)])
    options = LookupOptions(ctypes.sizeof(LookupOptions), -1, -1.0, None, 1, stream)
    lookup, by_reference = library.hps_lookup, ctypes.byref(options)

    def call() -> None:
        if lookup(session, queries, ctypes.c_size_t(TABLES), by_reference, None) != 0:
            raise RuntimeError("the lookup failed")

    warm_up(call)
    median, = medians(wait, call)
    library.hps_session_free(session)
    library.hps_close(store)
    return median
