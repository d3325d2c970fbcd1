"""What leaves hps.train: model directories, changes of rows, checkpoints."""

import contextlib
import errno
import multiprocessing
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
import unittest
import unittest.mock
import weakref

import numpy as np
import support
import torch
from waiting import await_true

import hps
import hps.train as ht

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import held_port  # noqa: E402


def tables() -> list[ht.Table]:
    return [ht.Table("user", 4, optimizer=ht.Adam(lr=0.1), admit_after=2, expire_after=5),
            ht.Table("item", 3, optimizer=ht.Adagrad(lr=0.1), pooling="mean")]


def train(embed: ht.EmbeddingCollection, steps: range) -> None:
    for step in steps:
        random = torch.Generator().manual_seed(step)
        out = embed({name: torch.randint(50, (8, 2), generator=random) for name in embed.tables})
        sum(rows.square().sum() for rows in out.values()).backward()


@contextlib.contextmanager
def full_disk(size: int):
    """No file may become larger."""
    _, limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


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

    def test_the_modes_of_a_network_stay(self) -> None:
        network = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Dropout())
        network[1].eval()  # frozen
        for inputs in ({"user": torch.zeros(2, 4)}, {"user": torch.zeros(2, 5)}):  # the last fails
            with contextlib.suppress(RuntimeError):
                self.embed.export(self.directory, network, inputs)
            self.assertEqual([module.training for module in network.modules()],
                             [True, True, False])

    def test_an_export_replaces_one_that_was_killed(self) -> None:
        (self.directory / ".parts").mkdir()
        (self.directory / ".parts" / "other.7.key").write_bytes(b"1")
        for begin in (10, 11):
            train(self.embed, range(begin, begin + 1))
            self.embed.export(self.directory)
            for name in self.embed.tables:
                np.testing.assert_array_equal(
                    np.fromfile(self.directory / name / "emb_vector", np.float32),
                    self.embed.rows(name)[1].reshape(-1))
        self.assertEqual({path.name for path in self.directory.iterdir()},
                         {"user", "item", "model.toml"})

    def test_an_export_that_fails_leaves_the_one_before(self) -> None:
        self.embed.export(self.directory)
        train(self.embed, range(10, 11))
        with self.unchanged(), self.assertRaisesRegex(RuntimeError, "was not written"):
            self.embed.export(self.directory, torch.nn.Linear(4, 1), {"user": torch.zeros(2, 5)})
        with self.unchanged(), self.assertRaisesRegex(RuntimeError, "needs example_inputs"):
            self.embed.export(self.directory, torch.nn.Linear(4, 1))

    def test_a_full_disk_leaves_the_export_before(self) -> None:
        self.embed.export(self.directory)
        keys, _ = self.embed.rows("item")
        train(self.embed, range(10, 11))
        # Each limit is reached by the last bytes of a file: those of keys, those of rows.
        for size in (8 * len(keys) - 8, 12 * len(keys) - 12):
            with self.unchanged(), full_disk(size), self.assertRaises(OSError) as raised:
                self.embed.export(self.directory)
            self.assertEqual(raised.exception.errno, errno.EFBIG)
        self.assertGreater(self.embed.publish(Untold())["item"][0], 0)

    @contextlib.contextmanager
    def unchanged(self):
        def content() -> dict:
            return {path: path.read_bytes() if path.is_file() else None
                    for path in self.directory.rglob("*")}
        before = content()
        yield
        self.assertEqual(content(), before)

    def test_a_table_without_rows_is_imported(self) -> None:
        embed = ht.EmbeddingCollection(tables())
        embed({"item": torch.arange(3)})
        embed.export(self.directory / "model")
        hps.import_table(self.directory / "store", "m", from_path=self.directory / "model")
        with support.open_patiently(self.directory / "store") as store:
            session = store.session("m")
            np.testing.assert_array_equal(session.lookup("user", np.arange(2)), np.zeros((2, 4)))
            np.testing.assert_array_equal(session.lookup("item", np.arange(3)),
                                          embed.rows("item")[1])

    def test_a_compiled_network(self) -> None:
        self.embed.export(self.directory, torch.compile(torch.nn.Linear(4, 1)),
                          {"user": torch.zeros(2, 4)})
        self.assertGreater((self.directory / "dense.onnx").stat().st_size, 0)


class Untold:
    """A target of which nobody hears."""

    def upsert(self, *_) -> None:
        """Takes what it loses."""

    delete = upsert

    def flush(self) -> None:
        """All is lost already."""


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
        with support.open_patiently(store_path) as store:
            self.embed.publish(ht.StoreTarget(store, "m"))
            session = store.session("m")
            for name, served in self.served.items():
                keys, rows = self.embed.rows(name)
                found, status = session.lookup(name, keys, status=True)
                np.testing.assert_array_equal(found, rows)
                gone = np.array(sorted(set(served) - set(keys.tolist())), np.int64)
                self.assertFalse(session.lookup(name, gone).any())

    def test_a_server_that_was_started_again(self) -> None:
        store_path, token = self.directory / "store", self.directory / "token"
        for name in self.embed.tables:
            hps.import_table(store_path, f"m/{name}", *self.embed.rows(name))
        self.embed.export(self.directory / "model")
        token.write_text("secret")
        token.chmod(0o600)
        port = held_port.Port()
        self.addCleanup(port.close)
        target = None
        for begin in (10, 20):
            config = self.directory / "hps.toml"
            config.write_text(f'[server]\nhttp = "127.0.0.1:{port.number}"\ngrpc = ""\n'
                              'metrics = ""\n'
                              f'[server.security]\nupdates = true\nadmin_token_file = "{token}"\n')
            train(self.embed, range(begin, begin + 10))
            with hps.serve(store_path, config=config) as server:
                server.wait_until_ready()
                target = target or ht.ServerTarget(server.url, "m", token="secret")
                self.embed.publish(target)  # the second time over a connection that is closed
                self.assertEqual(self.embed.publish(target), {"user": (0, 0), "item": (0, 0)})
                with self.assertRaisesRegex(hps.NotFoundError, "change of table 'items'.*items"):
                    target.delete("items", np.arange(2))
                with self.assertRaises(hps.PermissionDeniedError):
                    ht.ServerTarget(server.url, "m").delete("item", np.arange(2))
            with self.assertRaisesRegex(hps.UnavailableError, f"no answer from http://"):
                target.upsert("item", np.arange(2), np.zeros((2, 3), np.float32))
        with support.open_patiently(store_path, mode="r") as store:
            for name in self.embed.tables:
                keys, rows = self.embed.rows(name)
                np.testing.assert_array_equal(store.session("m").lookup(name, keys), rows)

    def test_a_failed_publication_is_sent_again(self) -> None:
        self.embed.export(self.directory)
        train(self.embed, range(10, 12))

        class Broken(Untold):
            def flush(self) -> None:
                raise OSError("no broker")
        with self.assertRaisesRegex(OSError, "no broker"):
            self.embed.publish(Broken())
        sent = self.embed.publish(self)
        self.assertGreater(sent["item"][0], 0)

    def test_one_table_is_in_memory_at_a_time(self) -> None:
        alive = []

        class Watching(Untold):
            def upsert(self, _, keys, rows) -> None:
                alive.append([array() is not None for array in arrays])
                arrays.extend((weakref.ref(keys), weakref.ref(rows)))

        arrays: list[weakref.ref] = []
        self.embed.publish(Watching())
        self.assertEqual(alive, [[], [False, False]])

    def test_an_export_waits_for_a_publication(self) -> None:
        """Else older rows would come after those that it has."""
        events, is_sending, may_end = [], threading.Event(), threading.Event()

        class Slow(Untold):
            def flush(self) -> None:
                is_sending.set()
                may_end.wait()
                events.append("published")

        def export() -> None:
            self.embed.export(self.directory)
            events.append("exported")

        threads = [threading.Thread(target=self.embed.publish, args=(Slow(),)),
                   threading.Thread(target=export)]
        threads[0].start()
        is_sending.wait()
        threads[1].start()
        threads[1].join(0.2)  # an export that does not wait would end
        may_end.set()
        for thread in threads:
            thread.join()
        self.assertEqual(events, ["published", "exported"])


class CheckpointTest(FilesTestCase):
    def loaded(self) -> ht.EmbeddingCollection:
        embed = ht.EmbeddingCollection(tables())
        embed.load(self.directory)
        return embed

    def test_resumed_training_equals_uninterrupted(self) -> None:
        self.embed.save(self.directory)
        other = self.loaded()
        for embed in (self.embed, other):
            train(embed, range(10, 20))
        self.assert_same_rows(self.embed, other)

    def test_incremental_saves_have_what_changed(self) -> None:
        self.embed.save(self.directory, incremental=True)  # the first one has everything
        full = sum(file.stat().st_size for file in (self.directory / "hps-save-1").iterdir())
        for number in range(2, 8):
            train(self.embed, range(8 * number, 8 * number + 1))
            self.embed.save(self.directory, incremental=True)
            saved = sum(file.stat().st_size for file in
                        (self.directory / f"hps-save-{number}").iterdir())
            self.assertLess(saved, full)
            other = self.loaded()
            self.assert_same_rows(self.embed, other)
            for embed in (self.embed, other):  # history, too: rows expire and are admitted alike
                self.assertEqual(embed.statistics()["user"]["pending"],
                                 self.embed.statistics()["user"]["pending"])
        train(other, range(100, 120))
        train(self.embed, range(100, 120))
        self.assert_same_rows(self.embed, other)
        # Another collection does not know what changed since: its save is a full one.
        other.save(self.directory, incremental=True)
        self.assertEqual({path.name for path in self.directory.iterdir()},
                         {"hps-save-8", "manifest.json"})
        self.assert_same_rows(other, self.loaded())

    def test_the_dense_part(self) -> None:
        network = torch.nn.Linear(4, 1)
        optimizer = torch.optim.Adam(network.parameters())
        network(torch.ones(4)).sum().backward()
        optimizer.step()
        self.embed.save(self.directory, {"network": network.state_dict(),
                                         "optimizer": optimizer.state_dict(), "epoch": 3})
        state = ht.EmbeddingCollection(tables()).load(self.directory)
        self.assertEqual(state["epoch"], 3)
        torch.testing.assert_close(state["network"], network.state_dict(), rtol=0, atol=0)
        torch.optim.Adam(network.parameters()).load_state_dict(state["optimizer"])
        train(self.embed, range(10, 11))
        self.embed.save(self.directory, incremental=True)  # without one: the newest one counts
        self.assertEqual(ht.EmbeddingCollection(tables()).load(self.directory)["epoch"], 3)
        self.embed.save(self.directory)
        self.assertIsNone(ht.EmbeddingCollection(tables()).load(self.directory))

    def test_a_dense_part_that_cannot_be_read_is_not_written(self) -> None:
        self.embed.save(self.directory, {"epoch": 1})
        for state in ({"auc": np.float64(0.5)}, {"hook": lambda: None}):
            with self.assertRaisesRegex(RuntimeError, "not written .*rank 0: .*whole"):
                self.embed.save(self.directory, state)
        other = ht.EmbeddingCollection(tables())
        self.assertEqual(other.load(self.directory), {"epoch": 1})
        self.assert_same_rows(self.embed, other)

    def test_a_dense_part_of_a_device_that_is_not_here(self) -> None:
        with unittest.mock.patch("torch.serialization.location_tag", return_value="cuda:0"):
            self.embed.save(self.directory, {"weight": torch.ones(3)})
        state = ht.EmbeddingCollection(tables()).load(self.directory)
        torch.testing.assert_close(state["weight"], torch.ones(3), rtol=0, atol=0)

    def test_a_save_after_that_of_another_collection_has_all_rows(self) -> None:
        self.embed.save(self.directory)
        shutil.rmtree(self.directory)
        other = ht.EmbeddingCollection(tables())
        train(other, range(1))
        other.save(self.directory)  # of the same number
        train(self.embed, range(10, 11))
        self.embed.save(self.directory, incremental=True)
        self.assert_same_rows(self.embed, self.loaded())

    def test_admission_may_change(self) -> None:
        self.embed({"user": torch.tensor([1000])})
        self.embed.save(self.directory)
        changed = [ht.Table("user", 4, optimizer=ht.Adam(lr=0.1)), tables()[1]]
        embed = ht.EmbeddingCollection(changed)
        embed.load(self.directory)
        self.assertEqual(embed.statistics()["user"]["pending"], 0)
        waiting = ht.EmbeddingCollection(tables())
        waiting({"user": torch.tensor([1000])})
        with self.assertRaisesRegex(ValueError, "'user' has rows already, or keys that wait"):
            waiting.load(self.directory)

    def test_folders_of_others_stay(self) -> None:
        self.embed.save(self.directory / "100")
        (self.directory / "hps-save-12").mkdir()  # left by a save that was killed
        for _ in range(2):
            self.embed.save(self.directory)
        self.assertEqual({path.name for path in self.directory.iterdir()},
                         {"100", "hps-save-2", "manifest.json"})
        other = ht.EmbeddingCollection(tables())
        other.load(self.directory / "100")
        self.assert_same_rows(self.embed, other)

    def test_a_full_disk_leaves_the_last_checkpoint_whole(self) -> None:
        for incremental, state in ((False, None), (True, None), (True, {"w": torch.ones(10000)})):
            with self.subTest(incremental=incremental, state=state is not None):
                directory = self.directory / f"{incremental}{state is None}"
                self.embed.save(directory)
                before = {name: self.embed.rows(name) for name in self.embed.tables}
                train(self.embed, range(10, 20))
                (directory / "manifest.json.pending").touch()  # of a save that was killed
                with full_disk(1000), self.assertRaisesRegex(
                        OSError, "was not written .*File too large.*whole") as raised:
                    self.embed.save(directory, state, incremental)
                self.assertEqual(raised.exception.errno, errno.EFBIG)
                self.assertEqual({path.name for path in directory.iterdir()},
                                 {"hps-save-1", "manifest.json"})
                again = ht.EmbeddingCollection(tables())
                again.load(directory)
                for name, rows in before.items():
                    np.testing.assert_array_equal(again.rows(name)[1], rows[1])
                self.embed.save(directory, incremental=incremental)
                last = ht.EmbeddingCollection(tables())
                last.load(directory)
                self.assert_same_rows(self.embed, last)

    def test_damage_and_differences_are_refused(self) -> None:
        self.embed.save(self.directory)
        with self.assertRaisesRegex(ValueError, "has rows already"):
            self.embed.load(self.directory)
        with self.assertRaisesRegex(FileNotFoundError, "no manifest.json"):
            ht.EmbeddingCollection(tables()).load(self.directory / "hps-save-1")
        more = [*tables(), ht.Table("more", 2)]
        with self.assertRaisesRegex(ValueError, "no table 'more'; it has .'item', 'user'"):
            ht.EmbeddingCollection(more).load(self.directory)
        other = self.directory / "other"
        other.mkdir()
        for text in ("", "[1]", '{"name": "an application"}'):
            (other / "manifest.json").write_text(text)
            for call in (self.embed.save, ht.EmbeddingCollection(tables()).load):
                with self.assertRaisesRegex(ValueError, "manifest.json is damaged, or of another"):
                    call(other)
            self.assertEqual((other / "manifest.json").read_text(), text)
        changed = tables()
        changed[0].optimizer = ht.SGD()
        with self.assertRaisesRegex(ValueError, "'user' is .*Adam.*SGD"):
            ht.EmbeddingCollection(changed).load(self.directory)
        train(self.embed, range(10, 11))
        self.embed.save(self.directory, {"epoch": 1}, incremental=True)
        for name in ("hps-save-1/item.0", "hps-save-2/user.0", "hps-save-2/dense.pt"):
            file = self.directory / name
            content = file.read_bytes()
            for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-1], b""):
                file.write_bytes(damaged)
                fresh = ht.EmbeddingCollection(tables())
                with self.assertRaisesRegex(ValueError, f"{name} is damaged"):
                    fresh.load(self.directory)
                self.assertEqual(fresh.statistics()["user"]["rows"], 0)
            file.write_bytes(content)
        self.assert_same_rows(self.embed, self.loaded())


class KilledTest(FilesTestCase):
    """A trainer that is killed at any moment, and goes on from its last checkpoint."""

    STEPS = 60

    @staticmethod
    def run_trainer(directory: pathlib.Path) -> None:
        torch.set_num_threads(1)
        embed = ht.EmbeddingCollection(tables())
        first = 0
        if (directory / "manifest.json").exists():
            first = embed.load(directory)["steps"]
        for step in range(first, KilledTest.STEPS):
            train(embed, range(step, step + 1))
            embed.save(directory, {"steps": step + 1}, incremental=step % 10 != 0)

    def test_resumed_after_kill_equals_uninterrupted(self) -> None:
        # A test that is paused kills too late.
        await_true(lambda: self.killed_until_it_ends() > 2, "trainer that is killed often")
        whole = ht.EmbeddingCollection(tables())
        train(whole, range(self.STEPS))
        resumed = ht.EmbeddingCollection(tables())
        self.assertEqual(resumed.load(self.directory)["steps"], self.STEPS)
        self.assert_same_rows(whole, resumed)

    def killed_until_it_ends(self) -> int:
        """Runs the trainer again and again, and returns how often it was killed."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["hps.train"])
        kills = 0
        for number in range(2, 30):
            process = context.Process(target=self.run_trainer, args=(self.directory,))
            process.start()
            folder = self.directory / f"hps-save-{number * number}"
            while process.is_alive() and not folder.exists():
                time.sleep(0.001)
            process.kill()
            process.join()
            if process.exitcode == 0:
                break
            self.assertEqual(process.exitcode, -signal.SIGKILL)
            kills += 1
        return kills


if __name__ == "__main__":
    unittest.main()
