"""What leaves hps.train: model directories, changes of rows, checkpoints."""

import json
import pathlib
import shutil
import tempfile
import tomllib
import unittest

import numpy as np
import torch

import hps
import hps.train as ht


def tables() -> list[ht.Table]:
    return [ht.Table("user", 4, optimizer=ht.Adam(lr=0.1), admit_after=2, expire_after=5),
            ht.Table("item", 3, optimizer=ht.Adagrad(lr=0.1), pooling="mean")]


def train(embed: ht.EmbeddingCollection, steps: range) -> None:
    for step in steps:
        random = torch.Generator().manual_seed(step)
        out = embed({name: torch.randint(50, (8, 2), generator=random) for name in embed.tables})
        sum(rows.square().sum() for rows in out.values()).backward()


class FilesTestCase(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_train_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.embed = ht.EmbeddingCollection(tables())
        train(self.embed, range(10))

    def assert_same_rows(self, first, second) -> None:
        for name in first.tables:
            for a, b in zip(first.rows(name), second.rows(name)):
                np.testing.assert_array_equal(a, b)


class ExportTest(FilesTestCase):
    def test_tables_and_description(self) -> None:
        self.embed.export(self.directory, name="m")
        for name, table in self.embed.tables.items():
            keys, rows = self.embed.rows(name)
            self.assertTrue((np.diff(keys) > 0).all())
            np.testing.assert_array_equal(
                np.fromfile(self.directory / name / "key", np.int64), keys)
            found = np.fromfile(self.directory / name / "emb_vector", np.float32)
            np.testing.assert_array_equal(found.reshape(-1, table.dim), rows)
        description = tomllib.loads((self.directory / "model.toml").read_text())
        self.assertEqual(description, {"name": "m", "tables": ["user", "item"]})
        self.assertEqual({path.name for path in self.directory.iterdir()},
                         {"user", "item", "model.toml"})

    def test_network(self) -> None:
        network = torch.nn.Linear(4, 1)
        self.embed.export(self.directory, network, {"user": torch.zeros(2, 4)})
        self.assertGreater((self.directory / "dense.onnx").stat().st_size, 0)
        description = tomllib.loads((self.directory / "model.toml").read_text())
        self.assertEqual(description["network"], {
            "file": "dense.onnx",
            "input": [{"name": "user", "table": "user", "pooling": "sum"}]})


class PublishTest(FilesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.served = {name: dict(zip(*map(list, self.embed.rows(name))))
                       for name in self.embed.tables}

    def upsert(self, table, keys, rows) -> None:
        self.served[table].update(zip(keys, rows))

    def delete(self, table, keys) -> None:
        for key in keys:
            del self.served[table][key]

    def flush(self) -> None:
        """All is applied already."""

    def test_changes_lead_to_the_trainers_rows(self) -> None:
        self.embed.export(self.directory)
        deleted = 0
        for begin in range(10, 50, 4):
            train(self.embed, range(begin, begin + 4))
            sent = self.embed.publish(self)
            deleted += sent["user"][1]
            for name, served in self.served.items():
                keys, rows = self.embed.rows(name)
                self.assertEqual(sorted(served), keys.tolist())
                np.testing.assert_array_equal(np.array([served[key] for key in keys]), rows)
        self.assertGreater(deleted, 0)
        self.assertEqual(self.embed.publish(self),
                         {"user": (0, 0), "item": (0, 0)})

    def test_a_store_follows(self) -> None:
        store_path = self.directory / "store"
        for name in self.embed.tables:
            hps.import_table(store_path, f"m/{name}", *self.embed.rows(name))
        self.embed.export(self.directory / "model")
        train(self.embed, range(10, 40))
        with hps.open(store_path) as store:
            self.embed.publish(ht.StoreTarget(store, "m"))
            session = store.session("m")
            for name, served in self.served.items():
                keys, rows = self.embed.rows(name)
                found, status = session.lookup(name, keys, status=True)
                np.testing.assert_array_equal(found, rows)
                gone = np.array(sorted(set(served) - set(keys.tolist())), np.int64)
                self.assertFalse(session.lookup(name, gone).any())

    def test_a_failed_publication_is_sent_again(self) -> None:
        self.embed.export(self.directory)
        train(self.embed, range(10, 12))

        class Broken:
            def upsert(self, *_) -> None:
                """Takes what it loses."""

            delete = upsert

            def flush(self) -> None:
                raise OSError("no broker")
        with self.assertRaisesRegex(OSError, "no broker"):
            self.embed.publish(Broken())
        sent = self.embed.publish(self)
        self.assertGreater(sent["item"][0], 0)


class CheckpointTest(FilesTestCase):
    def test_resumed_training_equals_uninterrupted(self) -> None:
        self.embed.save(self.directory)
        other = ht.EmbeddingCollection(tables())
        other.load(self.directory)
        for embed in (self.embed, other):
            train(embed, range(10, 20))
        self.assert_same_rows(self.embed, other)

    def test_a_save_replaces_the_last_one_when_it_is_complete(self) -> None:
        self.embed.save(self.directory)
        other = ht.EmbeddingCollection(tables())
        other.load(self.directory)
        train(self.embed, range(10, 12))
        # As a full disk would: the folder of the next save can't be made.
        (self.directory / "2").mkdir()
        (self.directory / "2").chmod(0o755)
        original, ht._checkpoint._write_table = ht._checkpoint._write_table, self.fail_to_write
        try:
            with self.assertRaisesRegex(OSError, "No space"):
                self.embed.save(self.directory)
        finally:
            ht._checkpoint._write_table = original
        again = ht.EmbeddingCollection(tables())
        again.load(self.directory)
        self.assert_same_rows(other, again)
        self.embed.save(self.directory)
        last = ht.EmbeddingCollection(tables())
        last.load(self.directory)
        self.assert_same_rows(self.embed, last)
        self.assertEqual({path.name for path in self.directory.iterdir()}, {"2", "manifest.json"})

    @staticmethod
    def fail_to_write(*_):
        raise OSError(28, "No space left on device")

    def test_damage_and_differences_are_refused(self) -> None:
        self.embed.save(self.directory)
        with self.assertRaisesRegex(ValueError, "has rows already"):
            self.embed.load(self.directory)
        with self.assertRaisesRegex(FileNotFoundError, "no manifest.json"):
            ht.EmbeddingCollection(tables()).load(self.directory / "1")
        changed = tables()
        changed[0].optimizer = ht.SGD()
        with self.assertRaisesRegex(ValueError, "'user' is .*Adam.*SGD"):
            ht.EmbeddingCollection(changed).load(self.directory)
        manifest = json.loads((self.directory / "manifest.json").read_text())
        file = self.directory / str(manifest["number"]) / "item.0"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        fresh = ht.EmbeddingCollection(tables())
        with self.assertRaisesRegex(ValueError, "item.0 is damaged"):
            fresh.load(self.directory)
        self.assertEqual(fresh.statistics()["user"]["rows"], 0)


if __name__ == "__main__":
    unittest.main()
