#!/usr/bin/env python3
"""Lookups from Python beside the same calls in C, in one process; prints the table of
docs/python.md.

    .venv-python/bin/python bench/python/lookups.py     after `make test`

Both ask a store of 26 tables, 20,000 rows of 32 floats each, all in level 2. The rounds of the two
alternate; a figure is the median of the rounds: of the calling thread's processor time, which
includes page faults, or of wall time for several threads.
"""

import concurrent.futures
import ctypes
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch

import hps

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBRARY = ROOT / "build" / "cpu" / "lib"
TABLES, ROWS, DIM = 26, 20_000, 32
ROUNDS = 31
SECONDS_OF_ROUND = 0.05


class OpenOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("path", ctypes.c_char_p),
                ("config_file", ctypes.c_char_p), ("mode", ctypes.c_int32)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("device", ctypes.c_int32),
                ("output_dtype", ctypes.c_int32), ("keys_max", ctypes.c_size_t)]


class Query(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("table", ctypes.c_uint32),
                ("keys", ctypes.c_void_p), ("key_count", ctypes.c_size_t),
                ("rows", ctypes.c_void_p), ("rows_bytes", ctypes.c_size_t),
                ("row_stride_bytes", ctypes.c_size_t), ("status", ctypes.c_void_p)]


class InC:
    """A store that is open through libhps.so."""

    def __init__(self, path: pathlib.Path, scratch: pathlib.Path):
        source = pathlib.Path(__file__).with_name("time_lookups.c")
        subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", str(source),
                        f"-I{ROOT / 'include'}", f"-L{LIBRARY}", "-lhps",
                        f"-Wl,-rpath,{LIBRARY}", "-o", str(scratch / "loop.so")], check=True)
        self.loop = ctypes.CDLL(str(scratch / "loop.so"))
        self.loop.time_lookups.restype = ctypes.c_double
        self.store = ctypes.c_void_p()
        options = OpenOptions(ctypes.sizeof(OpenOptions), str(path).encode(), None, 2)
        self.check(self.loop.hps_open(ctypes.byref(options), ctypes.byref(self.store)))

    @staticmethod
    def check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"code {code}")

    def session(self) -> ctypes.c_void_p:
        session = ctypes.c_void_p()
        options = SessionOptions(ctypes.sizeof(SessionOptions), -1, 1, 0)
        self.check(self.loop.hps_session_new(self.store, b"m", ctypes.byref(options),
                                             ctypes.byref(session)))
        return session

    def time(self, session: ctypes.c_void_p, keys: list, rounds: int) -> float:
        """Seconds of one lookup of the first len(keys) tables."""
        rows = [np.empty((len(some), DIM), np.float32) for some in keys]
        queries = (Query * len(keys))(*[
            Query(ctypes.sizeof(Query), i, keys[i].ctypes.data, len(keys[i]), rows[i].ctypes.data,
                  rows[i].nbytes, 0, None) for i in range(len(keys))])
        seconds = self.loop.time_lookups(session, queries, ctypes.c_size_t(len(keys)), rounds)
        if seconds < 0:
            raise RuntimeError("a lookup failed")
        return seconds


def time_python(call, rounds: int) -> float:
    begin = time.thread_time()
    for _ in range(rounds):
        call()
    return (time.thread_time() - begin) / rounds


def medians(*measures) -> list[float]:
    """Of calls measure(rounds) -> seconds, in turns."""
    rounds = [max(1, int(SECONDS_OF_ROUND / measure(3))) for measure in measures]
    figures = [[] for _ in measures]
    for _ in range(ROUNDS):
        for measure, count, seconds in zip(measures, rounds, figures):
            seconds.append(measure(count))
    return [statistics.median(seconds) for seconds in figures]


def on_threads(count: int, rounds: int, work) -> float:
    """Seconds of wall time of a round, when `count` threads make them side by side."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        begin = time.perf_counter()
        for future in [pool.submit(work, i) for i in range(count)]:
            future.result()
        return (time.perf_counter() - begin) / rounds


def measure(store: hps.Store, native: InC) -> None:
    random = np.random.default_rng(1)
    session, in_c = store.session("m"), native.session()
    asked = {f"t{i}": random.integers(0, ROWS, 1024) for i in range(TABLES)}
    key_list = list(asked.values())
    everything = {f"t{i}": np.arange(ROWS) for i in range(TABLES)}
    for _ in range(2):
        session.lookup(everything)
        store.drain(60)
        native.time(in_c, list(everything.values()), 1)
        time.sleep(1)  # what it promotes has no other end
    out = {name: np.empty((1024, DIM), np.float32) for name in asked}
    tensors = {name: torch.from_numpy(keys) for name, keys in asked.items()}
    one, few = np.array([5]), [np.array([5])]

    def line(name: str, ours: float, theirs: float, peer: str) -> None:
        print(f"| {name} | {ours * 1e6:,.1f} us | {peer} {theirs * 1e6:,.1f} us | "
              f"{ours / theirs:.2f} | {(ours - theirs) * 1e6:+.1f} us |", flush=True)

    print("| call | Python | peer | ratio | difference |\n| --- | --- | --- | --- | --- |")
    c, fresh, given, torch_s = medians(
        lambda n: native.time(in_c, key_list, n),
        lambda n: time_python(lambda: session.lookup(asked), n),
        lambda n: time_python(lambda: session.lookup(asked, out=out), n),
        lambda n: time_python(lambda: session.lookup(tensors), n))
    line("26 tables x 1,024 keys, NumPy", fresh, c, "C")
    line("the same with `out=`", given, c, "C")
    line("the same, torch tensors", torch_s, c, "C")
    c, ours = medians(lambda n: native.time(in_c, few, n),
                      lambda n: time_python(lambda: session.lookup("t0", one), n))
    line("1 table, 1 key", ours, c, "C")
    sessions = [native.session() for _ in range(8)]
    c, ours = medians(
        lambda n: on_threads(8, n, lambda i: native.time(sessions[i], key_list, n)),
        lambda n: on_threads(8, n, lambda _: time_python(lambda: session.lookup(asked), n)))
    line("26 x 1,024 on 8 threads at once", ours, c, "C")
    weight = [torch.rand(ROWS, DIM) for _ in range(TABLES)]
    bags, offsets = list(tensors.values()), torch.arange(1024)
    functional = torch.nn.functional.embedding_bag
    theirs, = medians(lambda n: time_python(
        lambda: [functional(keys, weight[i], offsets, mode="sum") for i, keys in enumerate(bags)],
        n))
    line("26 x 1,024 beside torch's embedding_bag", torch_s, theirs, "torch")


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="hps_bench_python_") as directory:
        path = pathlib.Path(directory, "store")
        for i in range(TABLES):
            table = pathlib.Path(directory, "model", f"t{i}")
            table.mkdir(parents=True)
            np.save(table / "keys.npy", np.arange(ROWS))
            np.save(table / "rows.npy", np.random.default_rng(i).random((ROWS, DIM), np.float32))
        hps.import_table(path, "m", from_path=pathlib.Path(directory, "model"))
        with hps.open(path) as store:
            measure(store, InC(path, pathlib.Path(directory)))


if __name__ == "__main__":
    main()
