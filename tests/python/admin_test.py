"""Tables in and out, changes of rows, statistics, from Python."""

import pathlib
import subprocess
import sys
import tomllib
import unittest

import numpy as np
import support

import hps

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class ImportTest(support.StoreTestCase):
    def read(self, table: str, keys: np.ndarray) -> np.ndarray:
        with support.open_patiently(self.path, mode="r") as store:
            return store.session(table.partition("/")[0]).lookup(table, keys)

    def test_arrays_of_every_type(self) -> None:
        keys = self.random.permutation(100)
        rows = self.random.standard_normal((100, 4)).astype(np.float32)
        report = hps.import_table(self.path, "m/full", keys, rows, default=2.5)
        self.assertEqual(report["tables"][0]["rows"], 100)
        self.assertFalse(report["staged"])
        hps.import_table(self.path, "m/half", keys.astype(np.uint32), rows.astype(np.float16))
        hps.import_table(self.path, "m/short", keys, rows, dtype="float16")
        np.testing.assert_array_equal(self.read("m/full", keys), rows)
        np.testing.assert_array_equal(self.read("m/full", np.array([-1])), [[2.5] * 4])
        for table in ("m/half", "m/short"):
            np.testing.assert_array_equal(self.read(table, keys), rows.astype(np.float16))

    def test_version(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self.assertEqual(hps.__version__, project["version"])

    def test_rows_alone_have_their_numbers_as_keys(self) -> None:
        rows = self.random.standard_normal((10, 4)).astype(np.float32)
        hps.import_table(self.path, "m/t", rows)
        np.testing.assert_array_equal(self.read("m/t", np.arange(10)), rows)

    def test_generated_files(self) -> None:
        hps.generate(self.directory / "files", tables=2, rows=500, dim=4, requests=10)
        steps = []
        hps.import_table(self.path, "m", from_path=self.directory / "files",
                         progress=lambda step, done, total: steps.append((step, done, total)))
        self.assertIn("committing", {step for step, _, _ in steps})
        found = hps.inspect(self.path)
        self.assertEqual([table["name"] for table in found["tables"]], ["m/t0", "m/t1"])
        self.assertEqual(sum(table["rows"] for table in found["tables"]), 500)
        keys = np.fromfile(self.directory / "files" / "t0" / "key", np.int64)
        rows = np.fromfile(self.directory / "files" / "t0" / "emb_vector", np.float32)
        np.testing.assert_array_equal(self.read("m/t0", keys), rows.reshape(-1, 4))

    def test_errors_leave_the_table_as_it_was(self) -> None:
        keys, rows = np.arange(10), np.zeros((10, 4), np.float32)
        hps.import_table(self.path, "m/t", keys, rows)
        wrong = [({"keys": np.zeros(10, np.int64), "rows": rows + 1}, "key 0 occurs twice"),
                 ({"keys": keys[:9], "rows": rows}, "rows"),
                 ({"keys": keys, "rows": rows.reshape(-1)}, "rows"),
                 ({"keys": keys.astype(float), "rows": rows}, "keys"),
                 ({"keys": keys, "rows": rows, "format": "csv"}, "format"),
                 ({"keys": keys, "rows": rows, "dtype": "int8"}, "dtype"),
                 ({}, "from_path")]
        for arguments, part in wrong:
            with self.subTest(part=part), \
                    self.assertRaisesRegex(hps.InvalidArgumentError, part):
                hps.import_table(self.path, "m/t", **arguments)
        with self.assertRaisesRegex(TypeError, "formt"):
            hps.import_table(self.path, "m/t", keys, rows, formt="npy")
        np.testing.assert_array_equal(self.read("m/t", keys), rows)

    def test_an_import_id_and_where_the_stream_begins(self) -> None:
        rows = np.ones((3, 4), np.float32)
        hps.import_table(self.path, "m/t", rows, import_id="v1", stream_from="earliest")
        table = hps.inspect(self.path)["tables"][0]
        self.assertEqual((table["import_id"], table["stream_from"]), ("v1", "earliest"))
        with hps.open(self.path) as store:
            with self.assertRaises(hps.FailedPreconditionError):  # it would reach one node
                store.delete("m/t", np.arange(3))
            with self.assertRaisesRegex(hps.FailedPreconditionError, "'v1'"):
                store.import_table("m/t", rows, import_id="v1", stream_from="earliest")
            store.import_table("m/t", rows, import_id="v2", stream_from="2023-11-14T22:13:20Z")
            table = store.tables()[0]
            self.assertEqual((table["import_id"], table["stream_from"]),
                             ("v2", "2023-11-14T22:13:20.000Z"))
            for options, part in (({"import_id": "v3"}, "stream_from"),
                                  ({"import_id": "v3", "stream_from": "latest"}, "stream_from"),
                                  ({"import_id": "a b", "stream_from": "earliest"}, "import id"),
                                  ({"stream_from": "yesterday"}, "stream_from: 'yesterday'")):
                with self.subTest(part=part), \
                        self.assertRaisesRegex(hps.InvalidArgumentError, part):
                    store.import_table("m/t", rows, **options)
            self.assertEqual(store.tables()[0]["import_id"], "v2")
            store.import_table("m/t", rows)
            self.assertEqual(store.tables()[0]["import_id"], "")

    def test_arguments_are_named(self) -> None:
        rows = np.zeros((3, 4), np.float32)
        wrong = hps.InvalidArgumentError
        for kind, part, arguments, options in (
                (wrong, "format: .*beside arrays.*npy", (rows,), {"format": "npy"}),
                (wrong, "dim: .*beside arrays.*4", (rows,), {"dim": 4}),
                (wrong, "tensor: .*beside arrays.*weight", (rows,), {"tensor": "weight"}),
                (wrong, "from_path", (rows,), {"from_path": self.directory}),
                (TypeError, "progress: .*int", (rows,), {"progress": 5}),
                (TypeError, "foo", (rows,), {"foo": 1}),
                (TypeError, "rows: .*int", (3,), {}),
                (TypeError, "rows: .*list", ([[1.0]],), {}),
                (TypeError, "rows: .*list", ([1], [[1.0]]), {}),
                (TypeError, "rows: .*without dimensions", (rows[0, 0],), {}),
                (TypeError, "keys: .*str", ("keys", rows), {})):
            with self.subTest(part=part), self.assertRaisesRegex(kind, part):
                hps.import_table(self.path, "m/t", *arguments, **options)
        with self.assertRaisesRegex(TypeError, "table: .*NoneType"):
            hps.import_table(self.path, None, rows)
        self.assertFalse(self.path.exists())
        hps.import_table(self.path, "m/t", rows=rows)

    def test_beside_another_process_an_import_is_staged(self) -> None:
        rows = np.zeros((3, 4), np.float32)
        hps.import_table(self.path, "m/t", rows)
        with support.open_patiently(self.path) as store:
            session = store.session("m")
            done = subprocess.run(
                [sys.executable, "-c", "import sys, numpy, hps; print(hps.import_table(sys.argv[1],"
                 "'m/t', numpy.ones((3, 4), numpy.float32))['staged'])", str(self.path)],
                capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, "True\n")
            self.assertEqual(session.lookup("t", 0).sum(), 0)
            store.load()
            self.assertEqual(session.lookup("t", 0).sum(), 4)


class StoreTest(support.StoreTestCase):
    def test_export_gives_what_was_imported(self) -> None:
        store = self.open_store()
        keys, rows = store.export("ctr/user")
        np.testing.assert_array_equal(keys, np.arange(support.ROWS))
        np.testing.assert_array_equal(rows, support.row_of("user", keys))
        report = store.export("ctr/item", self.directory / "item", format="npy")
        self.assertEqual(report["rows"], support.ROWS)
        np.testing.assert_array_equal(np.load(self.directory / "item" / "rows.npy"),
                                      support.row_of("item", np.arange(support.ROWS)))
        with self.assertRaises(hps.AlreadyExistsError):
            store.export("ctr/item", self.directory / "item", format="npy")
        with self.assertRaises(hps.NotFoundError):
            store.export("ctr/itme")
        with self.assertRaisesRegex(hps.InvalidArgumentError, "format: .*`to`"):
            store.export("ctr/item", format="npy")
        with self.assertRaisesRegex(TypeError, "progress: .*int"):
            store.export("ctr/item", self.directory / "other", progress=5)
        with self.assertRaisesRegex(TypeError, "table"):
            store.export(5)

    def test_changes_are_seen_at_once(self) -> None:
        store = self.open_store()
        session = store.session("ctr")
        keys = np.array([1, 5000, 3])
        session.lookup("user", keys)
        store.apply("ctr/user", keys, np.full((3, 8), 9, np.float32))
        np.testing.assert_array_equal(session.lookup("user", keys), np.full((3, 8), 9))
        store.delete("ctr/user", keys[:1])
        self.assertEqual(session.lookup("user", 1, status=True)[1], hps.Status.ABSENT)
        self.assertEqual(store.statistics()["updates"]["changes"], 2)
        with self.assertRaisesRegex(hps.InvalidArgumentError, "dim"):
            store.apply("ctr/user", keys, np.zeros((3, 4), np.float32))
        with self.assertRaisesRegex(hps.InvalidArgumentError, "rows"):
            store.apply("ctr/user", keys, None)
        with self.assertRaises(hps.NotFoundError):
            store.delete("ctr/usr", keys)
        with self.assertRaisesRegex(TypeError, "timeout: .*str"):
            store.delete("ctr/user", keys, timeout="x")
        with self.assertRaisesRegex(TypeError, "table: .*NoneType"):
            store.delete(None, keys)
        with self.assertRaisesRegex(hps.InvalidArgumentError, "timeout"):
            store.drain(float("nan"))

    def test_a_reader_changes_nothing(self) -> None:
        store = self.open_store(mode="r")
        with self.assertRaises(hps.FailedPreconditionError):
            store.delete("ctr/user", np.arange(3))

    def test_drop(self) -> None:
        store = self.open_store()
        store.drop("ctr/user")
        self.assertEqual([table["name"] for table in store.tables()], ["ctr/item"])
        store.close()
        hps.drop(self.path, "ctr/item")
        self.assertEqual(hps.inspect(self.path)["tables"], [])
        with self.assertRaises(hps.NotFoundError):
            hps.drop(self.path, "ctr/item")

    def test_import_into_an_open_store(self) -> None:
        store = self.open_store()
        store.import_table("ctr/new", np.ones((5, 3), np.float32))
        self.assertEqual(store.session("ctr").tables, {**support.TABLES, "new": 3})

    def test_verify(self) -> None:
        self.make_store()
        report = hps.verify(self.path)
        self.assertEqual((report["rows"], report["damage_count"]), (2 * support.ROWS, 0))
        file = max((self.path / "pages").iterdir(), key=lambda path: path.stat().st_size)
        data = bytearray(file.read_bytes())
        data[1000] ^= 0xff
        file.write_bytes(data)
        self.assertGreater(hps.verify(self.path)["damage_count"], 0)

    def test_open(self) -> None:
        with self.assertRaises(hps.NotFoundError):
            hps.open(self.path)
        with self.assertRaisesRegex(hps.InvalidArgumentError, "mode"):
            hps.open(self.path, mode="w")
        with self.assertRaisesRegex(hps.InvalidArgumentError, "path"):
            hps.open()
        with self.assertRaises(TypeError):
            hps.open(7)
        self.make_store()
        config = self.directory / "hps.toml"
        config.write_text(f'[store]\npath = "{self.path}"\n[l2]\nbytes_max = "16MiB"\n')
        with hps.open(config=config) as store:
            self.assertEqual(store.statistics()["tables"][0]["name"], "ctr/user")
            with self.assertRaises(hps.UnavailableError):
                hps.open(self.path)
        config.write_text("[stor]\n")
        with self.assertRaisesRegex(hps.InvalidArgumentError, "stor"):
            hps.open(config=config)


if __name__ == "__main__":
    unittest.main()
