"""Lookups of hps.jax on a GPU: rows go there from level 1, in the order of XLA's stream.

Skipped where JAX has no GPU, or where the package was built without CUDA (`make wheel-gpu`).
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

# Before JAX is imported: it would take three quarters of the GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
import support
from jax import lax

import hps
import hps.jax

ROWS, DIM = 20_000, 32
ABSENT = 100  # keys after the last row that tests ask for
TABLES = [f"t{number}" for number in range(4)]
ERRORS = (jax.errors.JaxRuntimeError, ValueError)  # of a lookup in a compiled function

# A process in which JAX takes half of the GPU's memory before hps opens the store.
BESIDE_PREALLOCATED_MEMORY = """
import sys
import jax, jax.numpy as jnp
import numpy as np
jax.block_until_ready(jnp.ones((1000, 1000)) @ jnp.ones((1000, 1000)))
import hps, hps.jax
with hps.open(sys.argv[1], mode="r") as store:
    session = store.session("m", "cuda:0")
    found = jax.jit(lambda keys: hps.jax.lookup(session, "t0", keys, status=True))
    for _ in range(10):
        rows, status = found(jnp.arange(5000))
    np.save(sys.argv[2], np.asarray(rows))
"""


@unittest.skipUnless(jax.default_backend() == "gpu" and support.has_device(),
                     "needs a GPU, JAX with CUDA and a package with CUDA")
class JaxCudaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name) / "store"
        random = np.random.default_rng(1)
        cls.rows = {table: random.standard_normal((ROWS, DIM), np.float32) for table in TABLES}
        for table, rows in cls.rows.items():
            hps.import_table(cls.path, f"m/{table}", np.arange(ROWS), rows, default=-1.0)
        cls.store = hps.open(cls.path)
        cls.addClassCleanup(cls.store.close)
        cls.session = cls.store.session("m", "cuda:0")

    def setUp(self) -> None:
        self.random = np.random.default_rng(2)

    def keys(self, *shape: int) -> np.ndarray:
        return self.random.integers(0, ROWS + ABSENT, shape).astype(np.int32)

    def expected(self, table: str, keys: np.ndarray) -> np.ndarray:
        absent = np.full((ABSENT, DIM), -1.0, np.float32)
        return np.concatenate([self.rows[table], absent])[np.asarray(keys)]

    def expect(self, table: str, keys: np.ndarray, rows: jax.Array) -> None:
        self.assertEqual({device.platform for device in rows.devices()}, {"gpu"})
        np.testing.assert_array_equal(np.asarray(rows), self.expected(table, keys))

    def lookup_of(self, table: str, session: hps.Session | None = None):
        session = session or self.session
        return jax.jit(lambda keys: hps.jax.lookup(session, table, keys))

    def use_64_bits(self) -> None:
        jax.config.update("jax_enable_x64", True)
        self.addCleanup(jax.config.update, "jax_enable_x64", False)

    def test_eager(self) -> None:
        for shape in ((5,), (0,), (3, 4), ()):
            for dtype in (np.int32, np.uint32, np.int64):
                keys = self.keys(*shape).astype(dtype)
                with self.subTest(shape=shape, dtype=dtype):
                    self.expect("t0", keys, hps.jax.lookup(self.session, "t0", keys))

    def test_jit(self) -> None:
        found = self.lookup_of("t1")
        for size in (1, 31, 32, 33, 4096, 100_000):
            for dtype in (np.int32, np.uint32):
                keys = self.keys(size, 2)
                self.expect("t1", keys, found(keys.astype(dtype)))

    def test_keys_of_64_bits(self) -> None:
        self.use_64_bits()
        found = self.lookup_of("t1")
        for dtype in (np.int32, np.uint32, np.int64, np.uint64):
            keys = self.keys(1000)
            self.expect("t1", keys, found(keys.astype(dtype)))

    def test_signs_and_high_bits(self) -> None:
        self.store.apply("m/t3", [-5, 2**32 - 5, 2**40 + 3],
                         np.arange(1, 4, dtype=np.float32)[:, None].repeat(DIM, 1))
        self.addCleanup(self.store.delete, "m/t3", [-5, 2**32 - 5, 2**40 + 3])
        found = self.lookup_of("t3")
        self.assertEqual(found(np.array([-5], np.int32))[0, 0], 1)
        self.assertEqual(found(np.array([2**32 - 5], np.uint32))[0, 0], 2)
        self.use_64_bits()
        self.assertEqual(found(np.array([-5, 2**32 - 5, 2**40 + 3]))[:, 0].tolist(), [1, 2, 3])

    def test_several_tables_with_status(self) -> None:
        found = jax.jit(lambda asked: hps.jax.lookup(self.session, asked, status=True))
        for _ in range(20):
            asked = {table: self.keys(100 + number, 3) for number, table in enumerate(TABLES)}
            rows, status = found(asked)
            for table, keys in asked.items():
                self.expect(table, keys, rows[table])
                self.assertEqual(status[table].dtype, np.uint8)
                absent = np.asarray(status[table]) == hps.Status.ABSENT
                np.testing.assert_array_equal(absent, keys >= ROWS)

    def test_rows_come_from_level_1(self) -> None:
        keys = np.arange(1000, dtype=np.int32)
        found = jax.jit(lambda keys: hps.jax.lookup(self.session, "t2", keys, status=True))
        for _ in range(10):
            found(keys)
            self.store.drain(60)
        hits = np.asarray(found(keys)[1]) == hps.Status.HIT_L1
        self.assertGreater(hits.mean(), 0.99)

    def test_vmap(self) -> None:
        keys, other = self.keys(6, 5), self.keys(7)
        found = jax.vmap(lambda line: hps.jax.lookup(self.session, "t0", line))
        self.expect("t0", keys, found(keys))
        cube = self.keys(2, 3, 4)
        self.expect("t0", cube, jax.jit(jax.vmap(found))(cube))
        rows, status = jax.jit(jax.vmap(lambda line: hps.jax.lookup(
            self.session, {"t0": line, "t1": other}, status=True)))(keys)
        self.expect("t0", keys, rows["t0"])
        self.expect("t1", np.tile(other, (6, 1)), rows["t1"])
        np.testing.assert_array_equal(np.asarray(status["t0"]) == hps.Status.ABSENT, keys >= ROWS)

    def test_between_operations_of_one_function(self) -> None:
        """Long work makes the keys, and a product takes the rows, on one stream."""
        weights = self.random.standard_normal((DIM, 8), np.float32)

        @jax.jit
        def score(keys: jax.Array, matrix: jax.Array) -> tuple:
            matrix = lax.fori_loop(0, 30, lambda _, m: m @ m / jnp.max(m), matrix)
            keys = (keys + 1 + (matrix[0, 0] * 0).astype(jnp.int32)) % ROWS
            rows = hps.jax.lookup(self.session, "t0", keys)
            return keys, jnp.matmul(rows, weights, precision="highest")

        for _ in range(20):
            keys = self.keys(4096)
            moved, scores = score(keys, jnp.ones((1024, 1024)))
            np.testing.assert_array_equal(np.asarray(moved), (keys + 1) % ROWS)
            np.testing.assert_allclose(np.asarray(scores), self.expected("t0", moved) @ weights,
                                       rtol=1e-4, atol=1e-4)

    def test_keys_that_are_not_there_yet(self) -> None:
        @jax.jit
        def slow_keys(keys: jax.Array, matrix: jax.Array) -> jax.Array:
            matrix = lax.fori_loop(0, 30, lambda _, m: m @ m / jnp.max(m), matrix)
            return (keys + 7 + (matrix[0, 0] * 0).astype(jnp.int32)) % ROWS

        found = self.lookup_of("t1")
        double = jax.jit(lambda rows: rows * 2)
        for _ in range(50):
            keys = self.keys(4096)
            rows = double(found(slow_keys(jnp.asarray(keys), jnp.ones((1024, 1024)))))
            self.expect("t1", (keys + 7) % ROWS, rows / 2)

    def test_in_a_loop_of_xla(self) -> None:
        def step(number: jax.Array, total: jax.Array) -> jax.Array:
            return total + hps.jax.lookup(self.session, "t0", keys + number)

        keys = self.keys(500) % 1000
        total = jax.jit(lambda: lax.fori_loop(0, 10, step, jnp.zeros((500, DIM))))()
        expected = np.zeros((500, DIM), np.float32)
        for number in range(10):
            expected += self.expected("t0", keys + number)
        np.testing.assert_allclose(np.asarray(total), expected, rtol=1e-5, atol=1e-5)

    def test_gradients_of_what_follows(self) -> None:
        def loss(weights: jax.Array, keys: jax.Array) -> jax.Array:
            return (hps.jax.lookup(self.session, "t0", keys) * weights).sum()

        keys = self.keys(9)
        gradient = jax.jit(jax.grad(loss))(jnp.ones(DIM), keys)
        np.testing.assert_allclose(np.asarray(gradient), self.expected("t0", keys).sum(axis=0),
                                   rtol=1e-5, atol=1e-5)

    def test_many_calls(self) -> None:
        found = {table: self.lookup_of(table) for table in TABLES[:2]}
        kept = []
        for number in range(2000):
            table = TABLES[number % 2]
            keys = self.keys(300)
            rows = found[table](keys)
            if number % 100 < 2:
                kept.append((table, keys, rows))
        for table, keys, rows in kept:
            self.expect(table, keys, rows)

    def test_threads(self) -> None:
        found = self.lookup_of("t1")

        def work(keys: np.ndarray) -> None:
            for _ in range(50):
                self.expect("t1", keys, found(keys))

        all_keys = [self.keys(200) for _ in range(4)]
        self.assertEqual(support.errors_of_threads(work, all_keys), [])

    def test_a_compiled_function_sees_changes(self) -> None:
        found = self.lookup_of("t2")
        jax.block_until_ready(found(np.array([7])))
        self.store.apply("m/t2", [7], np.full((1, DIM), 0.25, np.float32))
        self.addCleanup(self.store.apply, "m/t2", [7], self.rows["t2"][7:8])
        self.assertEqual(found(np.array([7])).tolist(), [[0.25] * DIM])

    def test_on_the_cpu_of_the_same_process(self) -> None:
        keys = self.keys(40)
        with jax.default_device(jax.devices("cpu")[0]):
            for session in (self.session, self.store.session("m")):
                rows = self.lookup_of("t0", session)(keys)
                self.assertEqual({device.platform for device in rows.devices()}, {"cpu"})
                np.testing.assert_array_equal(np.asarray(rows), self.expected("t0", keys))

    def test_a_session_of_the_host(self) -> None:
        host = self.store.session("m")
        with self.assertRaisesRegex(ERRORS, "INVALID_ARGUMENT: keys: on a GPU, and the session is "
                                            "of the host; make one with device='cuda:N'"):
            jax.block_until_ready(self.lookup_of("t0", host)(self.keys(3)))
        keys = self.keys(3)
        self.expect("t0", keys, hps.jax.lookup(self.session, "t0", keys))

    def test_a_closed_session(self) -> None:
        session = self.store.session("m", "cuda:0")
        keys = self.keys(3)
        found = self.lookup_of("t0", session)
        self.expect("t0", keys, found(keys))
        session.close()
        with self.assertRaisesRegex(ERRORS, "FAILED_PRECONDITION: this session is closed"):
            jax.block_until_ready(found(keys))
        self.expect("t0", keys, hps.jax.lookup(self.session, "t0", keys))

    def test_beside_memory_that_jax_has_taken(self) -> None:
        out = pathlib.Path(self.folder.name) / "rows.npy"
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
                       "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}
        subprocess.run([sys.executable, "-c", BESIDE_PREALLOCATED_MEMORY, str(self.path), str(out)],
                       env=environment, check=True, timeout=90)
        np.testing.assert_array_equal(np.load(out), self.rows["t0"][:5000])


if __name__ == "__main__":
    unittest.main()
