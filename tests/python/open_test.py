"""Stores that are opened more than once, and what is pickled, copied and shown of them."""

import copy
import gc
import json
import multiprocessing
import pickle
import threading
import unittest

import numpy as np
import support
import torch

import hps
import hps.torch
import hps.train

try:
    import torchrec
except ImportError:
    torchrec = None


def rows_in_a_child(pickled: bytes, keys: list[int]) -> tuple[list, str]:
    """The rows of what was pickled: of a session, or of a module; and the mode of its store."""
    thing = pickle.loads(pickled)
    if isinstance(thing, hps.Session):
        rows, store = thing.lookup("user", np.array(keys)), thing._store
    else:
        rows, store = thing(torch.tensor(keys)).numpy(), thing._store
    return rows.tolist(), store._opened[2]


class OpenTwiceTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.make_store()
        self.keys = np.arange(5)

    def open(self, **options) -> hps.Store:
        store = hps.open(self.path, **options)
        self.addCleanup(store.close)
        return store

    def test_the_store_closes_with_the_last(self) -> None:
        first, second, third = self.open(), self.open(), self.open(mode="create")
        sessions = [store.session("ctr") for store in (first, second, third)]
        second.apply("ctr/user", [0], np.full((1, 8), 3, np.float32))
        for store, session in zip((first, third, second), (sessions[0], sessions[2], sessions[1])):
            self.assertEqual(session.lookup("user", [0]).tolist(), [[3.0] * 8])
            with self.assertRaisesRegex(hps.UnavailableError, "open"):
                hps.verify(self.path)
            store.close()
            for call in (store.tables, lambda: session.lookup("user", [0])):  # noqa: B023
                with self.assertRaisesRegex(hps.FailedPreconditionError, "closed"):
                    call()
        self.assertEqual(hps.verify(self.path)["damage_count"], 0)
        self.assertEqual(self.open().session("ctr").lookup("user", [0]).tolist(), [[3.0] * 8])

    def test_a_cell_that_runs_twice(self) -> None:
        names: dict = {"hps": hps, "path": self.path}
        for _ in range(2):
            exec("store = hps.open(path)\nsession = store.session('ctr')", names)
            self.assert_rows("user", self.keys, names["session"].lookup("user", self.keys))
        del names
        gc.collect()
        hps.verify(self.path)  # nothing has it open

    def test_the_names_of_one_directory(self) -> None:
        link = self.directory / "link"
        link.symlink_to(self.path)
        self.open().drop("ctr/item")
        self.assertEqual(len(hps.open(link).tables()), 1)
        gc.collect()

    def test_another_store_at_the_path(self) -> None:
        other = self.directory / "other"
        hps.import_table(other, "m/t", np.ones((2, 4), np.float32))
        old = self.open()
        self.path.rename(self.directory / "old")
        other.rename(self.path)
        with self.assertRaises(hps.UnavailableError):  # RocksDB's: it goes by the name
            hps.open(self.path)
        old.close()
        self.assertEqual([table["name"] for table in self.open().tables()], ["m/t"])

    def test_threads(self) -> None:
        opened: list = []
        together = threading.Barrier(8)

        def work(_: int) -> None:
            together.wait()
            opened.append(hps.open(self.path))

        self.assertEqual(support.errors_of_threads(work, range(8)), [])
        for store in opened:
            self.assert_rows("user", self.keys, store.session("ctr").lookup("user", self.keys))
            store.close()
        hps.verify(self.path)

    def test_other_settings(self) -> None:
        configs = []
        for number, size in enumerate(("16MiB", "32MiB", "16MiB")):
            configs.append(self.directory / f"{number}.toml")
            configs[-1].write_text(f"# {'the same settings elsewhere ' * number}\n" * number
                                   + f"[store]\npath = {json.dumps(str(self.path))}\n"
                                   f'[l2]\nbytes_max = "{size}"\n')
        first = hps.open(config=configs[0])
        with self.assertRaisesRegex(hps.UnavailableError,
                                    "this process.*0.toml.*16.*1.toml.*32"):
            hps.open(config=configs[1])
        with self.assertRaisesRegex(hps.UnavailableError, "0.toml.*the default settings"):
            hps.open(self.path)
        hps.open(config=configs[2]).close()
        self.assertEqual(len(first.tables()), 2)
        first.close()
        hps.open(config=configs[1]).close()

    def test_readers_are_views_of_their_own(self) -> None:
        """A second "r" must not answer what the first one saw."""
        early = self.open(mode="r")
        writer = self.open()
        writer.apply("ctr/user", [1], np.full((1, 8), 9, np.float32))
        late = self.open(mode="r")
        for store, expected in ((early, support.row_of("user", np.array([1])).tolist()),
                                (late, [[9.0] * 8])):
            self.assertEqual(store.session("ctr").lookup("user", [1]).tolist(), expected)
        writer.close()
        self.assertEqual(late.session("ctr").lookup("user", [1]).tolist(), [[9.0] * 8])
        with self.assertRaisesRegex(hps.FailedPreconditionError, "read-only"):
            late.delete("ctr/user", [1])

    def test_compiled_programs_find_a_store_that_is_open(self) -> None:
        layers = [hps.torch.Embedding(store, "ctr/user") for store in (self.open(), self.open())]
        keys = torch.arange(5)
        layers[1]._store.close()
        rows, = torch.ops.hps.lookup([keys], layers[0]._path, "ctr/user:8")
        self.assert_rows("user", keys.numpy(), rows.numpy())
        self.assert_rows("user", keys.numpy(), layers[0](keys).numpy())


class PickleTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.make_store()
        self.store = hps.open(self.path)
        self.addCleanup(self.store.close)
        self.keys = torch.tensor([1, 5, -1])
        self.modules = [
            hps.torch.Embedding(self.store, "ctr/user", padding_idx=5),
            hps.torch.EmbeddingBag(self.store, "ctr/user", mode="sum", include_last_offset=True),
            hps.torch.Embeddings(self.store, ["ctr/user", "ctr/item"])]
        self.arguments = [(self.keys,), (self.keys, torch.tensor([0, 2, 3])),
                          ([self.keys, self.keys],)]

    def test_modules(self) -> None:
        path = self.directory / "model.pt"
        for module, arguments in zip(self.modules, self.arguments):
            expected = module(*arguments)  # makes a session, which no pickle has
            torch.save(torch.nn.ModuleList([module]), path)
            for copied in (torch.load(path, weights_only=False)[0], copy.deepcopy(module),
                           copy.copy(module), pickle.loads(pickle.dumps(module))):
                with self.subTest(module=module):
                    self.assertEqual(repr(copied), repr(module))
                    torch.testing.assert_close(copied(*arguments), expected)

    def test_a_pickle_opens_and_a_copy_shares(self) -> None:
        pickled = pickle.dumps((self.store, self.modules[0]))
        for copied in (copy.deepcopy(self.modules[0]), copy.copy(self.store.session("ctr"))):
            self.assertIs(copied._store, self.store)
        store, module = pickle.loads(pickled)
        self.assertIs(module._store, store)
        self.store.close()
        with self.assertRaisesRegex(hps.FailedPreconditionError, "closed"):
            self.modules[0](self.keys)
        self.assertEqual(len(module(self.keys)), 3)
        store.close()
        store, module = pickle.loads(pickled)  # nothing has the store open now
        self.assertEqual(len(module(self.keys)), 3)
        self.assertEqual(store._opened[2], "rw")
        store.close()

    def test_sessions(self) -> None:
        session = self.store.session("ctr", keys_max=7)
        again = pickle.loads(pickle.dumps(session))
        self.assertEqual((again.model, again.tables, again._keys_max), ("ctr", session.tables, 7))
        self.assert_rows("user", np.arange(20), again.lookup("user", np.arange(20)))
        self.assertIs(copy.deepcopy(session), session)

    def test_another_process(self) -> None:
        """It reads, because this one has the store open for writing."""
        things = (self.store.session("ctr"), self.modules[0])
        expected = [[0.0] * 8 if key == 5 else support.row_of("user", np.array(key)).tolist()
                    for key in (1, 5)]
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            for thing in things:
                rows, mode = pool.apply(rows_in_a_child, (pickle.dumps(thing), [1, 5]))
                self.assertEqual(mode, "r")
                self.assertEqual(rows[0], expected[0])
        self.assertEqual(rows, expected)

    def test_a_configuration(self) -> None:
        config = self.directory / "hps.toml"
        config.write_text('[store]\npath = "store"\n[lookup]\ntimeout = "7s"\n')
        self.store.close()
        with hps.open(config=config) as store:
            pickled = pickle.dumps(store)
        with pickle.loads(pickled) as store:
            self.assertEqual((store.path, store._lookup_timeout), (str(self.path), 7))

    @unittest.skipIf(torchrec is None, "needs torchrec")
    def test_torchrec(self) -> None:
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
        bags = hps.torch.EmbeddingBagCollection(self.store, {"a": "ctr/user"}, is_weighted=True)
        features = KeyedJaggedTensor(keys=["a"], values=self.keys, lengths=torch.tensor([2, 1]),
                                     weights=torch.rand(3))
        for copied in (pickle.loads(pickle.dumps(bags)), copy.deepcopy(bags)):
            torch.testing.assert_close(copied(features).values(), bags(features).values())

    def test_tables_of_training(self) -> None:
        embed = hps.train.EmbeddingCollection([hps.train.Table("a", 2)])
        for call in (pickle.dumps, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, "use `save` and `load`"):
                call(torch.nn.Sequential(embed))


class ReprTest(support.StoreTestCase):
    def test_stores_and_sessions(self) -> None:
        self.make_store()
        hps.import_table(self.path, "other/t", np.ones((3, 4), np.float16))
        tables = ["  ctr/user: 2,000 rows, dim 8, float32",
                  "  ctr/item: 2,000 rows, dim 16, float32"]
        other = "  other/t: 3 rows, dim 4, float16"
        with hps.open(self.path) as store:
            session = store.session("ctr")
            head, *lines = repr(store)[:-1].split("\n")
            self.assertEqual(head, f"<hps.Store '{self.path}' (rw), tables: 3")
            self.assertCountEqual(lines, [*tables, other])
            head, *lines = repr(session)[:-1].split("\n")
            self.assertEqual(head, "<hps.Session of 'ctr' on the host, tables: 2")
            self.assertCountEqual(lines, tables)
            session.close()
            self.assertIn("this session is closed", repr(session))
            second = store.session("ctr")
        self.assertEqual(repr(store), f"<hps.Store '{self.path}' (rw), this store is closed>")
        self.assertIn("this store is closed", repr(second))

    def test_many_tables(self) -> None:
        for number in range(23):
            hps.import_table(self.path, f"m/t{number}", np.ones((1, 1), np.float32))
        with hps.open(self.path, mode="r") as store:
            self.assertTrue(repr(store).endswith("\n  and 3 more>"))

    def test_training(self) -> None:
        embed = hps.train.EmbeddingCollection([
            hps.train.Table("a", 2),
            hps.train.Table("b", 4, optimizer=hps.train.Adam(), pooling="mean"),
            hps.train.Table("c", 8, features=["item", hps.train.Feature("seen", "none")])])
        embed({"a": torch.arange(1500)})["a"].sum().backward()
        text = repr(torch.nn.Sequential(embed))
        self.assertIn("a: 1,500 rows, dim 2, float32, SGD, pooling 'sum'", text)
        self.assertIn("b: 0 rows, dim 4, float32, Adam, pooling 'mean'", text)
        self.assertIn("c: 0 rows, dim 8, float32, SGD, features {'item': 'sum', 'seen': 'none'}",
                      text)


if __name__ == "__main__":
    unittest.main()
