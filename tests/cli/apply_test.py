"""Changes of rows without a server: hps apply --store, hps parked and its replay."""

import unittest

import numpy as np

import store_test
import support


class ApplyTest(support.CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.keys = self.random_keys(1000)
        self.rows = self.random_rows(1000, 4)
        source = support.write_npy(self.directory / "first", self.keys, self.rows)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)

    def apply(self, *arguments) -> tuple:
        return ("apply", "--store", self.store, "--table", "m/t", "--from", *arguments)

    def position(self) -> list:
        return self.succeed("inspect", "--store", self.store)["tables"][0]["positions"]

    def test_rows_are_changed_and_deleted(self) -> None:
        changed = self.random_rows(500, 4)
        for number, (write, part) in enumerate((
                (support.write_npy, slice(0, 250)), (support.write_hugectr, slice(250, 500)))):
            source = write(self.directory / f"change{number}", self.keys[part], changed[part])
            report = self.succeed(*self.apply(source))
            self.assertEqual((report["table"], report["rows"]), ("m/t", 250))
        self.rows[:500] = changed
        self.expect_rows("m/t", self.keys, self.rows)
        self.assertEqual(self.position(), [{"partition": 0, "offset": 3, "generation": 0}])
        np.save(self.directory / "gone.npy", self.keys[:10])
        self.assertEqual(self.succeed(*self.apply(self.directory / "gone.npy", "--delete"))["rows"],
                         10)
        self.expect_rows("m/t", self.keys[10:], self.rows[10:])
        self.assertIn("10 keys deleted", self.succeed_in_text(
            *self.apply(self.directory / "gone.npy", "--delete")))

    def test_the_table_has_the_last_word(self) -> None:
        source = support.write_npy(self.directory / "wide", self.keys, self.random_rows(1000, 5))
        self.fail_with(1, "INVALID_ARGUMENT", ["dim 5"], *self.apply(source))
        self.fail_with(1, "NOT_FOUND", ["m/tt"], "apply", "--store", self.store, "--table", "m/tt",
                       "--from", source)
        self.fail_with(1, "NOT_FOUND", ["nowhere"], *self.apply(self.directory / "nowhere"))
        self.fail_with(2, "INVALID_ARGUMENT", ["--server"], "apply", "--table", "m/t", "--from",
                       source)
        self.fail_with(2, "INVALID_ARGUMENT", ["--server"], *self.apply(source), "--server",
                       "http://127.0.0.1:1")
        self.expect_rows("m/t", self.keys, self.rows)

    def test_beside_a_server_it_names_the_option(self) -> None:
        owner = store_test.Owner(self.store)
        self.addCleanup(owner.end)
        source = support.write_npy(self.directory / "change", self.keys, self.rows)
        self.fail_with(1, "FAILED_PRECONDITION", ["--server"], *self.apply(source))

    def test_parked_messages_are_listed_and_replayed(self) -> None:
        owner = store_test.Owner(self.store)
        self.addCleanup(owner.end)
        command = ("parked", "--store", self.store)
        self.assertEqual(self.succeed(*command), {"messages": []})
        self.assertEqual(owner.ask("park m/t 7 HCTRabcd"), "OK")
        self.assertEqual(owner.ask("park m/t 8 nonsense"), "OK")
        found = self.succeed(*command)["messages"]
        self.assertEqual([message["offset"] for message in found], [7, 8])
        self.assertEqual(found[1] | {"detail": ""}, {
            "table": "m/t", "topic": "hps_et.m.t", "partition": 0, "generation": 1, "offset": 8,
            "reason": "unknown_format", "detail": "", "time_ms": 0, "bytes": 8})
        self.fail_with(1, "FAILED_PRECONDITION", ["while no server runs"], *command, "--replay")
        owner.end()
        report = self.succeed(*command, "--replay")  # the first one is a beacon
        self.assertEqual((report["replayed"], report["rows"]), (1, 0))
        self.assertEqual((report["superseded"], report["undecided"]), (0, 0))
        self.fail_with(2, "INVALID_ARGUMENT", ["--undecided", "--replay"], *command, "--undecided")
        self.assertEqual([message["offset"] for message in report["messages"]], [8])
        self.assertIn("neither", report["messages"][0]["detail"])
        text = self.succeed_in_text(*command)
        self.assertIn("hps_et.m.t partition 0 offset 8 unknown time unknown_format: ", text)
        self.assertIn("1 messages are parked", text)
        self.expect_rows("m/t", self.keys, self.rows)
        self.fail_with(1, "NOT_FOUND", ["nowhere"], "parked", "--store",
                       self.directory / "nowhere")


if __name__ == "__main__":
    unittest.main()
