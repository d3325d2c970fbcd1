"""The layers of hps.tensorflow: eager, in tf.function, in a SavedModel that another process loads,
against TensorFlow's own on the same rows."""

import subprocess
import sys
import textwrap
import threading
import unittest

import numpy as np
import support
import tensorflow as tf

import hps
import hps.tensorflow


class TensorflowTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()
        self.weight = support.row_of("user", np.arange(support.ROWS))

    def layer(self, kind: type = hps.tensorflow.LookupLayer, **options) -> tf.keras.layers.Layer:
        arguments = {"model_name": "ctr", "table_id": 0, "emb_vec_size": 8,
                     "emb_vec_dtype": tf.float32, "ps_config_file": self.store,
                     "global_batch_size": 64}
        return kind(**{**arguments, **options})

    def keys(self, *shape: int) -> np.ndarray:
        return self.random.integers(-5, support.ROWS + 5, shape)

    def test_rows(self) -> None:
        layer = self.layer()
        for shape in ((5,), (0,), (3, 4), ()):
            for dtype in (tf.int32, tf.int64):
                keys = self.keys(*shape)
                with self.subTest(shape=shape, dtype=dtype):
                    rows = layer(tf.constant(keys, dtype))
                    self.assert_rows("user", keys, rows.numpy())
        self.assert_rows("user", np.array([3, 7]), layer(np.array([3, 7])).numpy())

    def test_a_table_by_name(self) -> None:
        layer = self.layer(table_id="item", emb_vec_size=16)
        keys = self.keys(9)
        self.assert_rows("item", keys, layer(tf.constant(keys)).numpy())

    def test_inside_a_function(self) -> None:
        layer = self.layer()
        specification = tf.TensorSpec([None, 3], tf.int64)
        found = tf.function(layer.call, input_signature=[specification])
        self.assertEqual(found.get_concrete_function().output_shapes.as_list(), [None, 3, 8])
        for size in (1, 31, 500):
            keys = self.keys(size, 3)
            self.assert_rows("user", keys, found(tf.constant(keys)).numpy())

    def test_a_function_sees_changes(self) -> None:
        layer = self.layer()
        found = tf.function(lambda: layer(tf.constant([7])))
        found()
        self.store.apply("ctr/user", [7], np.full((1, 8), 0.25, np.float32))
        self.assertEqual(found().numpy().tolist(), [[0.25] * 8])

    def test_several_tables_at_once(self) -> None:
        @tf.function
        def found(user: tf.Tensor, item: tf.Tensor) -> dict:
            return hps.tensorflow.lookup(self.store, "ctr", {"item": item, "user": user})

        user, item = self.keys(4, 2), self.keys(7)
        rows = found(tf.constant(user, tf.int32), tf.constant(item))
        self.assert_rows("user", user, rows["user"].numpy())
        self.assert_rows("item", item, rows["item"].numpy())
        self.assertEqual(hps.tensorflow.lookup(self.store, "ctr", {}), {})

    def test_max_norm(self) -> None:
        keys = tf.constant([0, 1, 50])
        rows = self.layer()(keys, max_norm=20.0)
        theirs = tf.nn.embedding_lookup(tf.constant(self.weight), keys, max_norm=20.0)
        np.testing.assert_allclose(rows, theirs, rtol=1e-6)

    def sparse(self, values: np.ndarray) -> tf.SparseTensor:
        """Four rows of keys; the third has none."""
        return tf.SparseTensor([[0, 0], [0, 2], [1, 1], [3, 0], [3, 1], [3, 2]], values, [4, 3])

    def test_sparse_as_tensorflow(self) -> None:
        layer = self.layer(hps.tensorflow.SparseLookupLayer)
        ids = self.sparse(self.random.integers(0, support.ROWS, 6))
        weights = self.sparse(self.random.random(6).astype(np.float32))
        for combiner in ("sum", "mean", "sqrtn", None):
            for some in (None, weights):
                for max_norm in (None, 100.0):
                    rows = tf.function(layer.call)(ids, some, combiner=combiner,
                                                   max_norm=max_norm)
                    theirs = tf.nn.safe_embedding_lookup_sparse(
                        tf.constant(self.weight), ids, some, combiner=combiner or "mean",
                        max_norm=max_norm)
                    with self.subTest(combiner=combiner, weights=some, max_norm=max_norm):
                        self.assertEqual(rows.shape, (4, 8))
                        np.testing.assert_allclose(rows, theirs, rtol=1e-5)

    def model(self, source: object) -> tf.keras.Model:
        users = tf.keras.Input([3], dtype=tf.int64)
        rows = self.layer(ps_config_file=source)(users)
        dense = tf.keras.layers.Dense(2, kernel_initializer="ones")
        return tf.keras.Model(users, dense(tf.keras.layers.Flatten()(rows)))

    def in_a_new_process(self, code: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True,
                              text=True, check=False)

    def test_a_saved_model_in_another_process(self) -> None:
        model = self.model(self.path)
        keys = self.keys(6, 3)
        expected = model(tf.constant(keys)).numpy()
        folder = self.directory / "saved"
        model.export(folder, verbose=False)
        np.save(self.directory / "keys.npy", keys)
        answer = self.directory / "answer.npy"
        # Once beside this process, which has the store open, and once alone.
        for mode in ("r", "rw"):
            if mode == "rw":
                self.store.close()
            done = self.in_a_new_process(f"""
                import numpy as np
                import tensorflow as tf
                import hps.tensorflow
                model = tf.saved_model.load({str(folder)!r})
                keys = np.load({str(self.directory / 'keys.npy')!r})
                np.save({str(answer)!r}, model.serve(tf.constant(keys)).numpy())
                """)
            self.assertEqual(done.returncode, 0, done.stderr)
            np.testing.assert_allclose(np.load(answer), expected, rtol=1e-6)
            answer.unlink()

    def test_a_keras_file(self) -> None:
        model = self.model(self.path)
        path = self.directory / "model.keras"
        model.save(path)
        again = tf.keras.models.load_model(path)
        keys = tf.constant(self.keys(4, 3))
        np.testing.assert_allclose(again(keys), model(keys), rtol=1e-6)

    def test_init(self) -> None:
        layer = self.layer(ps_config_file="")
        self.assertEqual(hps.tensorflow.Init(ps_config_file=self.store, global_batch_size=8), "OK")
        self.addCleanup(setattr, hps.tensorflow, "_default_source", "")
        keys = self.keys(5)
        self.assert_rows("user", keys, layer(tf.constant(keys)).numpy())

    def test_wrong_arguments(self) -> None:
        invalid, keys = hps.InvalidArgumentError, tf.constant([1])
        with self.assertRaisesRegex(invalid, "emb_vec_dtype"):
            self.layer(emb_vec_dtype=tf.float16)
        with self.assertRaisesRegex(invalid, "from_hugectr"):
            self.layer(ps_config_file="/tmp/ps.json")
        with self.assertRaisesRegex(TypeError, "ps_config_file"):
            self.layer(ps_config_file=3)
        with self.assertRaisesRegex(invalid, "expected int32 or int64, found float32"):
            hps.tensorflow.lookup(self.store, "ctr", {"user": tf.constant([1.0])})
        with self.assertRaisesRegex(TypeError, "dictionary"):
            hps.tensorflow.lookup(self.store, "ctr", [1])
        with self.assertRaisesRegex(hps.NotFoundError, "usr"):
            hps.tensorflow.lookup(self.store, "ctr", {"usr": keys})
        sparse = self.layer(hps.tensorflow.SparseLookupLayer)
        with self.assertRaisesRegex(invalid, "combiner"):
            sparse.call(self.sparse(np.arange(6)), combiner="max")
        with self.assertRaisesRegex(TypeError, "sp_ids"):
            sparse.call(keys)

    def test_a_layer_of_no_table(self) -> None:
        keys = tf.constant([1])
        for options, kind, text in (({"emb_vec_size": 9}, hps.InvalidArgumentError, "dim 8"),
                                    ({"table_id": 2}, hps.NotFoundError, "tables 0 to 1"),
                                    ({"table_id": "usr"}, hps.NotFoundError, "'usr'"),
                                    ({"model_name": "other"}, hps.NotFoundError, "other"),
                                    ({"ps_config_file": ""}, hps.FailedPreconditionError, "Init"),
                                    ({"ps_config_file": self.directory / "nothing"},
                                     hps.NotFoundError, "nothing")):
            with self.subTest(options=options), self.assertRaisesRegex(kind, text):
                self.layer(**options).call(keys)

    def test_errors_of_the_operator(self) -> None:
        operator, keys = hps.tensorflow._operators.hps_lookup, [tf.constant([1, 2, 3])]
        path = str(self.path)
        for source, tables, kind, text in (
                (path, "ctr/user:9", tf.errors.FailedPreconditionError, "expected the dim 9"),
                (path, "ctr/usr:8", tf.errors.NotFoundError, "ctr/usr"),
                (path, "ctr/user", tf.errors.InvalidArgumentError, "model/table:dim"),
                (path, f"ctr/user:{2**62}", tf.errors.InvalidArgumentError, "model/table:dim"),
                (path, "ctr/user:8\nctr/item:16", tf.errors.InvalidArgumentError, "each table"),
                (str(self.directory / "nothing"), "ctr/user:8", tf.errors.NotFoundError,
                 "nothing")):
            with self.subTest(tables=tables), self.assertRaisesRegex(kind, text):
                operator(keys=keys, source=source, tables=tables)

    def test_a_closed_store(self) -> None:
        layer = self.layer()
        found = tf.function(layer.call)
        found(tf.constant([1]))
        self.store.close()
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "closed"):
            found(tf.constant([1]))

    def test_threads(self) -> None:
        layer, wrong = self.layer(), []
        found = tf.function(layer.call, input_signature=[tf.TensorSpec([None], tf.int64)])

        def work(number: int) -> None:
            for round_number in range(50):
                keys = np.arange(number, number + 20 + round_number)
                if not (found(tf.constant(keys)).numpy() == support.row_of("user", keys)).all():
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
