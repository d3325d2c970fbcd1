"""Lookups of hps.jax: eager, inside jit and vmap, and what goes wrong in them."""

import unittest

import jax
import jax.numpy as jnp
import numpy as np
import support

import hps
import hps.jax


class JaxTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()
        self.session = self.store.session(support.MODEL)

    def keys(self, *shape: int) -> np.ndarray:
        return self.random.integers(-5, support.ROWS + 5, shape).astype(np.int32)

    def assert_found(self, table: str, keys: np.ndarray, rows: jax.Array) -> None:
        self.assertIsInstance(rows, jax.Array)
        self.assert_rows(table, keys, np.asarray(rows))

    def test_eager(self) -> None:
        for shape in ((5,), (0,), (3, 4), ()):
            for dtype in (np.int32, np.int64):
                keys = self.keys(*shape).astype(dtype)
                with self.subTest(shape=shape, dtype=dtype):
                    self.assert_found("user", keys, hps.jax.lookup(self.session, "user", keys))
        rows = hps.jax.lookup(self.session, "ctr/item", [3, 7])
        self.assert_found("item", np.array([3, 7]), rows)

    def test_jit(self) -> None:
        found = jax.jit(lambda keys: hps.jax.lookup(self.session, "user", keys))
        for size in (1, 31, 1000):
            keys = self.keys(size, 2)
            self.assert_found("user", keys, found(jnp.asarray(keys)))

    def test_tables_at_once_with_status(self) -> None:
        @jax.jit
        def found(user: jax.Array, item: jax.Array) -> tuple:
            return hps.jax.lookup(self.session, {"item": item, "user": user}, status=True)

        user, item = self.keys(4, 3), self.keys(7)
        rows, status = found(user, item)
        self.assertEqual(set(rows), {"user", "item"})
        for name, keys in (("user", user), ("item", item)):
            self.assert_found(name, keys, rows[name])
            self.assertEqual(status[name].dtype, np.uint8)
            present = (keys >= 0) & (keys < support.ROWS)
            np.testing.assert_array_equal(status[name] != hps.Status.ABSENT, present)

    def test_a_compiled_function_sees_changes(self) -> None:
        found = jax.jit(lambda keys: hps.jax.lookup(self.session, "user", keys))
        found(jnp.array([7]))
        self.store.apply("ctr/user", [7], np.full((1, 8), 0.25, np.float32))
        self.assertEqual(found(jnp.array([7])).tolist(), [[0.25] * 8])

    def test_vmap_and_gradients_of_what_follows(self) -> None:
        keys = self.keys(6, 5)
        rows = jax.vmap(lambda line: hps.jax.lookup(self.session, "user", line))(keys)
        self.assert_found("user", keys, rows)

        def loss(weights: jax.Array, keys: jax.Array) -> jax.Array:
            return (hps.jax.lookup(self.session, "user", keys) @ weights).sum()

        gradient = jax.jit(jax.grad(loss))(jnp.ones(8), jnp.array([1, 2]))
        np.testing.assert_array_equal(gradient,
                                      support.row_of("user", np.array([1, 2])).sum(axis=0))

    def test_vmap_over_keys_of_one_table_alone(self) -> None:
        user, item = self.keys(6, 5), self.keys(3)
        rows, status = jax.jit(jax.vmap(lambda line: hps.jax.lookup(
            self.session, {"user": line, "item": item}, status=True)))(user)
        self.assert_found("user", user, rows["user"])
        self.assert_found("item", np.tile(item, (6, 1)), rows["item"])
        present = (user >= 0) & (user < support.ROWS)
        np.testing.assert_array_equal(status["user"] != hps.Status.ABSENT, present)

    def test_signs_and_high_bits_of_keys(self) -> None:
        keys = np.array([-5, 2**31 - 1, 2**31, 2**32 - 5])
        self.store.apply("ctr/user", keys, np.arange(4, dtype=np.float32)[:, None].repeat(8, 1))
        found = jax.jit(lambda keys: hps.jax.lookup(self.session, "user", keys)[..., 0])
        self.assertEqual(found(keys[:2].astype(np.int32)).tolist(), [0, 1])
        self.assertEqual(found(keys[1:].astype(np.uint32)).tolist(), [1, 2, 3])

    def test_keys_of_64_bits(self) -> None:
        for wide in (2**40 + 3, -2**40):
            with self.assertRaisesRegex(hps.InvalidArgumentError, "jax_enable_x64"):
                hps.jax.lookup(self.session, "user", np.array([wide]))
        self.store.apply("ctr/user", [2**40 + 3], np.full((1, 8), 2.5, np.float32))
        jax.config.update("jax_enable_x64", True)
        self.addCleanup(jax.config.update, "jax_enable_x64", False)
        keys = np.array([3, 2**40 + 3])
        for dtype in (np.int64, np.uint64):
            rows = jax.jit(lambda keys: hps.jax.lookup(self.session, "user", keys))(
                keys.astype(dtype))
            self.assertEqual(rows[1].tolist(), [2.5] * 8)
            self.assert_rows("user", keys[:1], np.asarray(rows[:1]))

    def test_threads(self) -> None:
        found = jax.jit(lambda keys: hps.jax.lookup(self.session, "item", keys))

        def work(keys: np.ndarray) -> None:
            for _ in range(20):
                self.assert_rows("item", keys, np.asarray(found(keys)))

        all_keys = [self.keys(200) for _ in range(4)]
        self.assertEqual(support.errors_of_threads(work, all_keys), [])

    def test_wrong_arguments(self) -> None:
        wrong = [("user", np.array([1.5]), hps.InvalidArgumentError, "keys of table 'user'"),
                 ("user", jnp.array([True]), hps.InvalidArgumentError, "keys of table 'user'"),
                 ("user", "7", TypeError, "keys of table 'user'"),
                 ("usr", np.array([1]), hps.NotFoundError, "did you mean 'user'"),
                 ({"user": [1]}, np.array([1]), TypeError, "keys: expected none"),
                 (7, None, TypeError, "table: expected a name")]
        for table, keys, kind, message in wrong:
            with self.subTest(table=table, keys=keys), self.assertRaisesRegex(kind, message):
                hps.jax.lookup(self.session, table, keys)
        with self.assertRaisesRegex(TypeError, "session: expected an hps.Session"):
            hps.jax.lookup(self.store, "user", np.array([1]))

    def test_a_program_that_another_has_made(self) -> None:
        """The handler does not write past what it is given."""
        keys, dim = self.keys(3), self.session.tables["user"]
        for shape, dtype in [((3, dim + 1), np.float32), ((3, dim), np.int32),
                             ((2, dim), np.float32)]:
            call = jax.ffi.ffi_call("hps_lookup", [jax.ShapeDtypeStruct(shape, dtype)])
            with self.subTest(shape=shape), self.assertRaisesRegex(
                    (jax.errors.JaxRuntimeError, ValueError), "output 0: expected"):
                jax.block_until_ready(call(keys, session=self.session._name,
                                           tables=f"{support.MODEL}/user:{dim}"))

    def assert_fails(self, session: hps.Session, keys: np.ndarray, message: str) -> None:
        found = jax.jit(lambda keys: hps.jax.lookup(session, "user", keys))
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, message):
            jax.block_until_ready(found(keys))

    def test_errors_of_a_lookup(self) -> None:
        closed = self.store.session(support.MODEL)
        closed.close()
        self.assert_fails(closed, self.keys(3), "FAILED_PRECONDITION: this session is closed")
        open_at_first = self.store.session(support.MODEL)
        found = jax.jit(lambda keys: hps.jax.lookup(open_at_first, "user", keys))
        self.assert_found("user", many := self.keys(301), found(many))
        open_at_first.close()
        with self.assertRaisesRegex((jax.errors.JaxRuntimeError, ValueError),
                                    "FAILED_PRECONDITION: this session is closed"):
            jax.block_until_ready(found(many))
        small = self.store.session(support.MODEL, keys_max=100)
        found = jax.jit(lambda keys: hps.jax.lookup(small, "user", keys))(many)
        np.testing.assert_array_equal(np.asarray(found), self.session.lookup("user", many))
        keys = self.keys(3)
        self.assert_found("user", keys, hps.jax.lookup(self.session, "user", keys))

    def test_a_session_that_is_gone(self) -> None:
        session = self.store.session(support.MODEL)
        names = {"session": session}
        found = jax.jit(lambda keys: hps.jax.lookup(names["session"], "user", keys))
        jax.block_until_ready(found(self.keys(3)))
        del session, names["session"]
        # Of a function that has run before, JAX makes it a ValueError.
        with self.assertRaisesRegex((jax.errors.JaxRuntimeError, ValueError),
                                    "FAILED_PRECONDITION: .*keep it for as long"):
            jax.block_until_ready(found(self.keys(3)))


if __name__ == "__main__":
    unittest.main()
