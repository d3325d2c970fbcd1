"""Stores: who may write, what is staged beside an owner, damage."""

import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import unittest

import numpy as np

import support


class Owner:
    """A process that has the store open as a server would."""

    def __init__(self, store) -> None:
        self.process = subprocess.Popen(
            [*support.ENDS_WITH_US, str(support.OWNER), str(store)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.first_line = self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.communicate("quit\n", timeout=support.TIMEOUT_S)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=support.TIMEOUT_S)


class OwnerTest(support.CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.import_constant("m/t", 1)

    def import_constant(self, table: str, value: float) -> dict:
        """Keys 0 to 99, every element of every row the same."""
        source = self.directory / f"{table.replace('/', '_')}_{value}"
        support.write_npy(source, np.arange(100), np.full((100, 4), value, dtype=np.float32))
        return self.succeed("import", "--store", self.store, "--table", table, "--from", source)

    def own(self) -> Owner:
        owner = Owner(self.store)
        self.addCleanup(owner.end)
        self.assertEqual(owner.first_line, "ready")
        return owner

    def test_a_second_writer_is_refused(self) -> None:
        self.own()
        second = Owner(self.store)
        second.process.communicate(timeout=support.TIMEOUT_S)
        self.assertTrue(second.first_line.startswith("UNAVAILABLE: "), second.first_line)
        self.fail_with(1, "UNAVAILABLE", [self.store], "drop", "--store", self.store, "--table",
                       "m/t")
        self.expect_rows("m/t", np.arange(100), np.ones((100, 4), dtype=np.float32))

    def test_commands_that_read_run_beside_an_owner(self) -> None:
        owner = self.own()
        before = support.snapshot(self.store)
        self.assertEqual(len(self.succeed("inspect", "--store", self.store)["tables"]), 1)
        self.expect_rows("m/t", np.arange(100), np.ones((100, 4), dtype=np.float32))
        self.succeed("export", "--store", self.store, "--table", "m/t", "--to",
                     self.directory / "out", "--format", "npy")
        self.assertEqual(support.snapshot(self.store), before)
        self.assertEqual(owner.ask("lookup m/t 5"), "hit_l3 1.000000")

    def test_closed_streams_are_not_taken_for_files_of_the_store(self) -> None:
        """Once what a server with a closed stderr logged went into the file that had its number."""
        server = subprocess.Popen(
            [*support.ENDS_WITH_US, "bash", "-c", 'exec "$@" <&- 2>&-', "bash", str(support.HPS),
             "serve", "--store", str(self.store), "--http", "127.0.0.1:0", "--grpc", "",
             "--metrics", ""], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        while not server.stdout.readline().startswith("ready"):
            self.assertIsNone(server.poll())
        self.assertEqual(os.readlink(f"/proc/{server.pid}/fd/2"), "/dev/null")
        server.terminate()
        self.assertEqual(server.wait(support.TIMEOUT_S), 0)

    def test_an_import_beside_an_owner_is_staged(self) -> None:
        owner = self.own()
        self.assertEqual(owner.ask("lookup m/t 5"), "hit_l3 1.000000")
        report = self.import_constant("m/t", 2)
        self.assertTrue(report["staged"])
        self.assertIn("1.000000", owner.ask("lookup m/t 5"))
        self.expect_rows("m/t", np.arange(100), np.ones((100, 4), dtype=np.float32))
        # A newer import replaces a staged one, and another table may be staged beside it.
        self.assertTrue(self.import_constant("m/t", 3)["staged"])
        self.assertTrue(self.import_constant("m/u", 4)["staged"])
        inspected = self.succeed("inspect", "--store", self.store)
        self.assertEqual([table["name"] for table in inspected["tables"]], ["m/t"])
        self.assertEqual([[(table["name"], table["rows"], table["dim"]) for table in one["tables"]]
                          for one in inspected["staged"]],
                         [[("m/t", 100, 4)], [("m/u", 100, 4)]])
        self.assertEqual(owner.ask("reload"), "OK")
        self.assertEqual(self.succeed("inspect", "--store", self.store)["staged"], [])
        self.assertIn("3.000000", owner.ask("lookup m/t 5"))
        self.assertIn("4.000000", owner.ask("lookup m/u 5"))
        self.expect_rows("m/t", np.arange(100), np.full((100, 4), 3, dtype=np.float32))

    def test_a_staged_import_is_taken_at_the_next_start(self) -> None:
        owner = self.own()
        self.assertTrue(self.import_constant("m/t", 2)["staged"])
        owner.kill()
        owner = self.own()
        self.assertIn("2.000000", owner.ask("lookup m/t 5"))

    def test_a_killed_owner_leaves_no_lock(self) -> None:
        self.own().kill()
        self.assertFalse(self.import_constant("m/t", 2)["staged"])
        self.expect_rows("m/t", np.arange(100), np.full((100, 4), 2, dtype=np.float32))

    def test_commands_wait_for_each_other(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(lambda i: self.import_constant(f"m/t{i}", i), range(4)))
        self.assertFalse(any(report["staged"] for report in reports))
        inspected = self.succeed("inspect", "--store", self.store)
        names = {table["name"] for table in inspected["tables"]}
        self.assertEqual(names, {"m/t", "m/t0", "m/t1", "m/t2", "m/t3"})

    def test_drop(self) -> None:
        self.import_constant("m/u", 2)
        answer = self.succeed("drop", "--store", self.store, "--table", "m/t")
        self.assertEqual((answer["table"], answer["dropped"]), ("m/t", True))
        inspected = self.succeed("inspect", "--store", self.store)
        names = [table["name"] for table in inspected["tables"]]
        self.assertEqual(names, ["m/u"])
        self.fail_with(1, "NOT_FOUND", ["m/t"], "drop", "--store", self.store, "--table", "m/t")
        source = support.write_npy(self.directory / "other", np.arange(3), np.ones((3, 9), "f4"))
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)

    def test_inspect(self) -> None:
        self.import_constant("other/u", 2)
        shown = self.succeed("inspect", "--store", self.store)
        self.assertEqual(shown["format_version"], 6)
        first, second = shown["tables"]
        self.assertEqual((first["name"], second["name"]), ("m/t", "other/u"))
        self.assertEqual({name: first[name] for name in ("dim", "dtype", "rows", "default",
                                                         "positions")},
                         {"dim": 4, "dtype": "float32", "rows": 100, "default": 0, "positions": []})
        self.assertGreater(first["bytes"], 0)
        self.assertTrue(0 < first["incarnation"] < 2**52)
        self.assertNotEqual(first["incarnation"], second["incarnation"])


class DamageTest(support.CommandTestCase):
    """Flipped bits: verify finds what a lookup would have met; no lookup gives a wrong row."""

    ROWS = 4000
    FLIPS = 100

    def setUp(self) -> None:
        super().setUp()
        self.keys, self.rows = self.random_keys(self.ROWS), self.random_rows(self.ROWS, 8)
        source = support.write_npy(self.directory / "t", self.keys, self.rows)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        np.save(self.directory / "asked.npy", self.keys)

    def verify(self, *options) -> tuple[int, dict]:
        done = self.run_hps("verify", "--store", self.store, "--json", *options)
        self.assertEqual(done.stderr.count("\n"), done.returncode, done.stderr)
        return done.returncode, json.loads(done.stdout)

    def look_up(self) -> tuple[bool, bool]:
        """Asks every key. Returns whether anything was not answered (an error, or a default row
        that says so); a wrong row fails the test."""
        rows_file = self.directory / "answer.npy"
        done = self.run_hps("lookup", "--store", self.store, "--table", "m/t", "--keys-file",
                            self.directory / "asked.npy", "--out", rows_file, "--json")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        answer = json.loads(done.stdout)
        if done.returncode == 1:
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            return True
        status = np.array(answer["status"])
        self.assertEqual(set(status) - {"hit_l3", "default_degraded"}, set())
        hit = status == "hit_l3"
        np.testing.assert_array_equal(np.load(rows_file)[hit], self.rows[hit])
        return not hit.all()

    def test_a_whole_store_is_found_whole(self) -> None:
        status, report = self.verify()
        self.assertEqual((status, report["damage_count"], report["damage"]), (0, 0, []))
        self.assertEqual((report["tables"], report["rows"]), (1, self.ROWS))

    def test_flipped_bits(self) -> None:
        whole = self.directory / "whole"
        shutil.copytree(self.store, whole)
        files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
        data = [path for path in files if (whole / path).stat().st_size > 0]
        pages = [path for path in data if path.parent.name == "pages"]
        met = 0
        for flip in range(self.FLIPS):
            path = self.random.choice(pages) if flip % 2 == 0 else self.random.choice(data)
            shutil.rmtree(self.store)
            shutil.copytree(whole, self.store)
            content = bytearray((whole / path).read_bytes())
            bit = int(self.random.integers(len(content) * 8))
            content[bit // 8] ^= 1 << (bit % 8)
            (self.store / path).write_bytes(content)
            with self.subTest(path=str(path), bit=bit):
                not_answered = self.look_up()
                status, report = self.verify()
                if not_answered:
                    met += 1
                    self.assertEqual(status, 1, "a lookup met damage that verify has not found")
                    self.assertTrue(report.get("damage_count", 0) > 0 or "error" in report)
        self.assertGreater(met, 0, "no flip was met by a lookup: the test shows nothing")

    def test_a_damaged_page_is_lost_until_the_next_import(self) -> None:
        (pages,) = (self.store / "pages").iterdir()
        content = bytearray(pages.read_bytes())
        content[len(content) // 3] ^= 0x10
        pages.write_bytes(content)
        self.assertTrue(self.look_up())
        status, report = self.verify("--repair")
        self.assertEqual((status, report["networks_removed"]), (1, []))
        self.assertGreater(report["rows_lost"], 0)
        self.assertIn("import the table again", report["damage"][0]["what"])
        answer, status = self.lookup("m/t", self.keys)
        lost = np.array(status) == "default_degraded"
        self.assertEqual(lost.sum(), report["rows_lost"])
        self.assertEqual(set(status), {"hit_l3", "default_degraded"})
        np.testing.assert_array_equal(answer[~lost], self.rows[~lost])
        np.testing.assert_array_equal(answer[lost], np.zeros_like(answer[lost]))
        self.succeed("import", "--store", self.store, "--table", "m/t",
                     "--from", self.directory / "t")
        self.assertFalse(self.look_up())
        self.assertEqual(self.verify()[0], 0)


if __name__ == "__main__":
    unittest.main()
