"""Keys and rows as NumPy, pandas and PyTorch give them: with gaps, narrow, as float64."""

import sys
import unittest
from unittest import mock

import numpy as np
import support
import torch

import hps
import hps.jax
import hps.tensorflow
import hps.torch

try:
    import pandas
except ImportError:
    pandas = None
try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

NARROW = (np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32)
TORCH_NARROW = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32)
HUGE = 1e39  # more than float32 can hold


def arrays() -> list[np.ndarray]:
    """Keys with gaps, backwards, transposed, repeated, at an odd address, and read-only ones."""
    matrix = np.arange(60).reshape(12, 5)
    odd = np.frombuffer(bytes(1) + np.arange(7).tobytes(), np.int64, offset=1)
    frozen = matrix.astype(np.int16)[:, 1]
    frozen.flags.writeable = False
    return [matrix[:, 0], matrix[::-2, 1:4], matrix.T, matrix[3:3, ::2], odd, frozen,
            np.broadcast_to(np.int64(7), (3, 2)), np.asfortranarray(matrix),
            np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
            *(matrix.astype(dtype)[:, ::3] for dtype in NARROW)]


class KeysTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()
        self.session = self.store.session(support.MODEL)

    def assert_rows(self, table: str, keys: np.ndarray, rows: np.ndarray) -> None:
        super().assert_rows(table, keys.astype(np.int64), rows)

    def test_arrays(self) -> None:
        for keys in arrays():
            with self.subTest(keys=keys):
                self.assert_rows("user", keys, self.session.lookup("user", keys))
                both, status = self.session.lookup({"user": keys, "item": keys[:1]}, status=True)
                self.assert_rows("user", keys, both["user"])
                self.assert_rows("item", keys[:1], both["item"])
                self.assertEqual(status["user"].shape, keys.shape)

    def test_signs(self) -> None:
        for dtype, expected in ((np.int8, -1), (np.uint8, 255), (np.int16, -1), (np.uint16, 65535)):
            self.store.apply("ctr/user", [expected], np.full((1, 8), 5, np.float32))
            keys = np.array([-1, 0]).astype(dtype)[:1]
            self.assertEqual(self.session.lookup("user", keys).tolist(), [[5.0] * 8])
            self.store.delete("ctr/user", keys)
            found = self.session.lookup("user", [expected], status=True)[1]
            self.assertEqual(found.tolist(), [hps.Status.ABSENT])

    def test_tensors(self) -> None:
        matrix = torch.arange(60).reshape(12, 5)
        layer = hps.torch.Embedding(self.store, "ctr/user")
        bag = hps.torch.EmbeddingBag(self.store, "ctr/user", mode="sum")
        several = hps.torch.Embeddings(self.store, ["ctr/user", "ctr/user"])
        for keys in (matrix[:, 0], matrix.t(), matrix[:, ::2], torch.tensor(7).expand(3, 2),
                     *(matrix.to(dtype)[:, ::3] for dtype in TORCH_NARROW)):
            plain = keys.long().contiguous()
            with self.subTest(keys=keys):
                for rows in (self.session.lookup("user", keys), layer(keys),
                             self.session.lookup("user", keys, status=True)[0],
                             *several([keys, keys])):
                    self.assertIsInstance(rows, torch.Tensor)
                    self.assert_rows("user", plain.numpy(), rows.numpy())
                if keys.dim() == 2:
                    torch.testing.assert_close(bag(keys), layer(plain).sum(1))

    def test_tensors_in_a_compiled_function(self) -> None:
        layer = hps.torch.Embedding(self.store, "ctr/user")

        @torch.compile(backend="aot_eager")
        def rows_of(keys: torch.Tensor) -> tuple:
            return layer(keys[:, 0]), self.session.lookup("user", keys[:, 1].to(torch.int16))

        keys = torch.arange(60).reshape(12, 5)
        for column, rows in enumerate(rows_of(keys)):
            self.assert_rows("user", keys[:, column].numpy(), rows.numpy())

    def test_jax_and_tensorflow(self) -> None:
        for keys in arrays():
            with self.subTest(keys=keys):
                self.assert_rows("user", keys,
                                 np.asarray(hps.jax.lookup(self.session, "user", keys)))
                rows = hps.tensorflow.lookup(self.store, "ctr", {"user": keys})["user"]
                self.assert_rows("user", keys, rows.numpy())

    def test_a_client(self) -> None:
        self.store.close()
        with hps.serve(self.path, http="127.0.0.1:0", grpc="", metrics="") as server:
            client = hps.Client(server.url, timeout=60)
            for keys in arrays():
                with self.subTest(keys=keys):
                    self.assert_rows("user", keys, client.lookup("ctr", "user", keys))
            keys = torch.arange(60, dtype=torch.int16).reshape(12, 5)[:, 1]
            self.assert_rows("user", keys.numpy(), client.lookup("ctr", "user", keys).numpy())
            client.close()

    @unittest.skipIf(pandas is None, "needs pandas")
    def test_pandas(self) -> None:
        frame = pandas.DataFrame({"id": [3, 1, 2], "other": [1, 2, 3]})
        keys = np.array([3, 1, 2])
        for series in (frame["id"], frame["id"][::-1][::-1], pandas.Index(keys),
                       *(frame["id"].astype(name) for name in ("int8", "uint16", "Int64"))):
            with self.subTest(type=series.dtype):
                self.assert_rows("user", keys, self.session.lookup("user", series))
                self.assert_rows("user", keys, np.asarray(
                    hps.jax.lookup(self.session, "user", series)))
                rows = hps.tensorflow.lookup(self.store, "ctr", {"user": series})["user"]
                self.assert_rows("user", keys, rows.numpy())
        both = frame[["id", "other"]]
        self.assert_rows("user", both.to_numpy(), self.session.lookup("user", both))
        self.store.delete("ctr/user", frame["id"])
        self.assertEqual(self.session.lookup("user", frame["id"], status=True)[1].tolist(), [0] * 3)
        for series in (frame["id"].astype(float), pandas.Series([1, None], dtype="Int64"),
                       pandas.Series(["a"]), frame["id"] > 1):
            with self.subTest(series=series), self.assertRaisesRegex(
                    hps.InvalidArgumentError, "keys of table '.*user': expected integers"):
                self.session.lookup("user", series)


class RowsTest(support.StoreTestCase):
    def rows_of(self, table: str, keys: list[int]) -> list:
        with hps.open(self.path) as store:
            return store.session("m").lookup(table, keys).tolist()

    def test_float64_and_gaps(self) -> None:
        matrix = np.arange(40, dtype=np.float64).reshape(10, 4) / 4
        odd = np.frombuffer(bytes(1) + matrix.astype(np.float32).tobytes(), np.float32, offset=1)
        expected = matrix.tolist()
        for number, rows in enumerate((
                matrix, matrix.astype(np.float32), np.asfortranarray(matrix), odd.reshape(10, 4),
                np.repeat(matrix, 2, axis=1)[:, ::2], matrix.astype(np.float16).T.copy().T,
                torch.from_numpy(matrix), torch.from_numpy(matrix).float().t().contiguous().t(),
                torch.from_numpy(matrix).bfloat16().t().contiguous().t())):
            with self.subTest(number=number):
                hps.import_table(self.path, f"m/t{number}", np.arange(20)[::2], rows)
                hps.import_table(self.path, f"m/u{number}", rows)
                self.assertEqual(self.rows_of(f"t{number}", range(0, 20, 2)), expected)
                self.assertEqual(self.rows_of(f"u{number}", range(10)), expected)
        with hps.open(self.path) as store:
            store.apply("m/t0", np.arange(20)[::10], -matrix[:2])
            self.assertEqual(store.session("m").lookup("t0", [0, 10]).tolist(),
                             (-matrix[:2]).tolist())

    def test_beyond_float32(self) -> None:
        rows = np.ones((3, 4))
        rows[2, 1] = -HUGE
        hps.import_table(self.path, "m/t", np.ones((3, 4), np.float32))
        calls = [lambda: hps.import_table(self.path, "m/t", some)
                 for some in (rows, torch.from_numpy(rows))]
        with hps.open(self.path) as store:
            for call in (*calls, lambda: store.apply("m/t", [0, 1, 2], rows)):
                with self.assertRaisesRegex(hps.InvalidArgumentError,
                                            r"rows: -1e\+39 at \[2, 1\] is beyond .* float32"):
                    call()
        self.assertEqual(self.rows_of("t", [2]), [[1.0] * 4])
        rows[2, 1] = np.inf  # a value of float32
        hps.import_table(self.path, "m/t", rows)
        self.assertEqual(self.rows_of("t", [2]), [[1.0, np.inf, 1.0, 1.0]])

    @unittest.skipIf(pandas is None, "needs pandas")
    def test_pandas(self) -> None:
        frame = pandas.DataFrame({"id": [7, 9], "a": [1.0, 2.0], "b": [3.0, 4.0]})
        hps.import_table(self.path, "m/t", frame["id"], frame[["a", "b"]])
        self.assertEqual(self.rows_of("t", [9, 7]), [[2.0, 4.0], [1.0, 3.0]])

    @unittest.skipIf(pandas is None, "needs pandas")
    def test_a_frame_with_a_key_column(self) -> None:
        frame = pandas.DataFrame({"a": [1.0, 2.0], "id": [7, 9], "b": [3.0, 4.0]})
        lists = pandas.DataFrame({"id": [7, 9], "row": [[1.0, 3.0], np.array([2.0, 4.0])]})
        for some in (frame, lists, frame.astype({"a": np.float32, "id": np.int16}), frame[::-1]):
            hps.import_table(self.path, "m/t", some, key_column="id")
            self.assertEqual(self.rows_of("t", [9, 7]), [[2.0, 4.0], [1.0, 3.0]])
        with hps.open(self.path) as store:
            store.import_table("m/u", frame, key_column="id")
            wrong = frame.assign(a=["x", "y"])
            ragged = pandas.DataFrame({"id": [7, 9], "row": [[1.0], [2.0, 4.0]]})
            for some, name, text in ((frame, None, r"key_column: .*'a', 'id', 'b'.*found None"),
                                     (frame, "ids", "key_column: .*found 'ids'"),
                                     (frame, "a", "keys: column 'a' .* found float64"),
                                     (wrong, "id", "rows: column 'a' .*expected floats"),
                                     (ragged, "id", "rows: column 'row'"),
                                     (frame[["id"]], "id", "rows: .*no column but 'id'"),
                                     (np.ones((2, 2)), "id", "key_column: expected none")):
                with self.subTest(text=text), \
                        self.assertRaisesRegex(hps.InvalidArgumentError, text):
                    store.import_table("m/u", some, key_column=name)
        self.assertEqual(self.rows_of("u", [9, 7]), [[2.0, 4.0], [1.0, 3.0]])

    def test_npz(self) -> None:
        path, rows = self.directory / "t.npz", np.arange(8.0).reshape(2, 4)
        np.savez_compressed(path, keys=np.array([9, 7], np.uint16), rows=rows)
        hps.import_table(self.path, "m/t", from_path=path)
        self.assertEqual(self.rows_of("t", [9, 7]), rows.tolist())
        np.savez(path, rows=rows)
        path.rename(self.directory / "other")
        hps.import_table(self.path, "m/t", from_path=self.directory / "other", format="npz")
        self.assertEqual(self.rows_of("t", [0, 1]), rows.tolist())
        np.savez(path, weight=rows)
        pickled = self.directory / "pickled.npz"
        np.savez(pickled, rows=np.array([{}], object))
        damaged = self.directory / "damaged.npz"
        damaged.write_bytes(path.read_bytes()[:50])
        for wrong, text in ((path, "'keys' and 'rows', found .*weight"), (pickled, "pickled.npz"),
                            (damaged, "damaged.npz")):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(hps.InvalidArgumentError, text):
                hps.import_table(self.path, "m/t", from_path=wrong)
        for name in ("none.npz", "none.parquet"):
            with self.assertRaisesRegex(hps.NotFoundError, name):
                hps.import_table(self.path, "m/t", from_path=self.directory / name)

    @unittest.skipIf(pyarrow is None, "needs pyarrow")
    def test_parquet(self) -> None:
        keys, rows = pyarrow.array([9, 7], pyarrow.uint32()), [[1.0, 2.0], [3.0, 4.0]]
        path = self.directory / "t.parquet"
        for number, column in enumerate((pyarrow.array(rows),
                                         pyarrow.array(rows, pyarrow.list_(pyarrow.float32(), 2)))):
            pyarrow.parquet.write_table(pyarrow.table({"row": column, "id": keys}), path)
            hps.import_table(self.path, f"m/t{number}", from_path=path, key_column="id")
            self.assertEqual(self.rows_of(f"t{number}", [9, 7]), rows)
        folder = self.directory / "parts"
        folder.mkdir()
        for part in range(2):
            columns = {"id": [part], "x": [part + 0.5], "y": [part + 0.25]}
            pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{part}.parquet")
        hps.import_table(self.path, "m/u", from_path=folder, format="parquet", key_column="id")
        self.assertEqual(self.rows_of("u", [0, 1]), [[0.5, 0.25], [1.5, 1.25]])
        with self.assertRaisesRegex(hps.InvalidArgumentError, "key_column: .*'row', 'id'"):
            hps.import_table(self.path, "m/t0", from_path=path)
        columns = {"id": [1, 2], "x": pyarrow.array([0.5, None], pyarrow.float32())}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        with self.assertRaisesRegex(hps.InvalidArgumentError, "column 'x' .* has 1 nulls"):
            hps.import_table(self.path, "m/t0", from_path=path, key_column="id")
        path.write_bytes(b"PAR1 and nothing else")
        with self.assertRaisesRegex(hps.InvalidArgumentError, "t.parquet"):
            hps.import_table(self.path, "m/t0", from_path=path, key_column="id")

    def test_parquet_without_pyarrow(self) -> None:
        path = self.directory / "t.parquet"
        path.touch()
        with mock.patch.dict(sys.modules, {"pyarrow": None}), \
                self.assertRaisesRegex(ImportError, "pip install pyarrow"):
            hps.import_table(self.path, "m/t", from_path=path, key_column="id")


if __name__ == "__main__":
    unittest.main()
