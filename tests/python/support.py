"""What the tests of the Python package share: a store whose rows are known."""

import json
import pathlib
import shutil
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterable

import numpy as np
from waiting import TEST_SEED

import hps

MODEL = "ctr"
TABLES = {"user": 8, "item": 16}  # name -> dim, in declared order
ROWS = 2000
DEFAULT = -1.0


def row_of(table: str, keys: np.ndarray) -> np.ndarray:
    """The rows of keys 0 to ROWS - 1: each says its table, key and element. Exact in float32."""
    flat = keys.reshape(-1, 1) * 31 + list(TABLES).index(table) * 7 + np.arange(TABLES[table])
    return flat.astype(np.float32).reshape(*keys.shape, TABLES[table])


def open_patiently(path: pathlib.Path, mode: str = "rw") -> hps.Store:
    """A busy machine may stop a lookup for longer than the default time-out, and then it answers
    with default rows: here it waits for a minute."""
    config = path.with_name(f"{path.name}.toml")
    config.write_text(f'[store]\npath = {json.dumps(str(path))}\n[lookup]\ntimeout = "1min"\n')
    store = hps.open(config=config, mode=mode)
    store._lookup_timeout = 1.0  # lookups take the way of the default time-out all the same
    return store


def has_device() -> bool:
    """Whether this machine has a GPU and the package level 1 on it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "store"
        hps.import_table(path, "m/t", np.array([1]), np.ones((1, 4), np.float32))
        with hps.open(path) as store:
            try:
                store.session("m", "cuda:0").close()
            except (hps.UnimplementedError, hps.UnavailableError):
                return False
    return True


def errors_of_threads(work: Callable, arguments: Iterable) -> list[BaseException]:
    """Runs work(argument) on a thread for each argument, all at once; what they raised."""
    errors = []

    def run(argument: object) -> None:
        try:
            work(argument)
        except BaseException as error:  # noqa: BLE001, the caller asserts on it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


class StoreTestCase(unittest.TestCase):
    """A test with a directory of its own, `self.path`, where a store can be."""

    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_python_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.path = self.directory / "store"
        self.random = np.random.default_rng(20261124 + TEST_SEED)

    def make_store(self) -> None:
        for table in TABLES:
            keys = self.random.permutation(ROWS)
            hps.import_table(self.path, f"{MODEL}/{table}", keys, row_of(table, keys),
                             default=DEFAULT)

    def open_store(self, **options) -> hps.Store:
        if not self.path.exists():
            self.make_store()
        store = open_patiently(self.path, **options)
        self.addCleanup(store.close)
        return store

    def assert_rows(self, table: str, keys: np.ndarray, rows: np.ndarray) -> None:
        self.assertEqual(rows.dtype, np.float32)
        self.assertEqual(rows.shape, (*keys.shape, TABLES[table]))
        present = (keys >= 0) & (keys < ROWS)
        expected = np.where(present[..., None], row_of(table, keys), np.float32(DEFAULT))
        np.testing.assert_array_equal(rows, expected)
