"""Tests of `hps publish` against a Kafka broker."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "kafka"))
import brokers as kafka  # noqa: E402

HPS = pathlib.Path(os.environ.get("HPS_COMMAND", ROOT / "build" / "cpu" / "bin" / "hps"))
DIM = 8
TIMEOUT_S = 120
HEADER_BYTES = 48  # of a message of table "m/..." with a short name, with its checksum


def has_kafka() -> bool:
    """Whether this build has the Kafka client: the options that it was configured with say it."""
    options = (HPS.parent.parent / "CMakeCache.txt").read_text()
    return re.search(r"^HPS_KAFKA:BOOL=ON$", options, re.MULTILINE) is not None


@unittest.skipUnless(has_kafka(), "this build has no Kafka client")
class PublishTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.brokers = kafka.Brokers()
        cls.addClassCleanup(cls.brokers.close)

    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_publish_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        name = self.id().rsplit(".", 1)[-1]
        self.table, self.topic = f"m/{name}", f"hps_et.m.{name}"

    def write_table(self, keys: np.ndarray) -> pathlib.Path:
        table = self.directory / "table"
        table.mkdir(exist_ok=True)
        np.save(table / "keys.npy", keys)
        np.save(table / "rows.npy", np.repeat(keys, DIM).reshape(-1, DIM).astype(np.float32))
        return table

    def publish(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(HPS), "publish", "--brokers", self.brokers.bootstrap, "--table", self.table,
             "--json", *map(str, arguments)],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def succeed(self, *arguments) -> dict:
        done = self.publish(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return json.loads(done.stdout)

    def fail_with(self, status: int, code: str, *arguments) -> str:
        done = self.publish(*arguments)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        self.assertTrue(done.stderr.startswith(f"hps: {code}: "), done.stderr)
        self.assertEqual(json.loads(done.stdout)["error"]["code"], code)
        return done.stderr

    def test_publishes_every_row_once(self) -> None:
        self.brokers.create_topic(self.topic, 3)
        table = self.write_table(np.arange(50_000, dtype=np.int64))
        report = self.succeed("--from", table)
        self.assertEqual(report["table"], self.table)
        self.assertEqual(report["rows"], 50_000)
        self.assertGreaterEqual(report["bytes"], 50_000 * (8 + 4 * DIM))
        self.assertGreater(report["seconds"], 0)
        ends = self.brokers.end_offsets(self.topic)
        self.assertEqual(sum(ends.values()), report["batches"])
        self.assertEqual(sorted(ends), [0, 1, 2])
        self.assertTrue(all(end > 0 for end in ends.values()), ends)

    def test_deletes_keys_of_a_file_or_a_table(self) -> None:
        self.brokers.create_topic(self.topic, 1)
        keys = np.arange(-1000, 1000, dtype=np.int64)
        np.save(self.directory / "gone.npy", keys)
        report = self.succeed("--from", self.directory / "gone.npy", "--delete")
        self.assertEqual(report["rows"], 2000)
        self.assertLess(report["bytes"], 2000 * 8 + 10 * HEADER_BYTES)
        report = self.succeed("--from", self.write_table(keys), "--delete")
        self.assertEqual(report["rows"], 2000)
        self.assertLess(report["bytes"], 2000 * 8 + 10 * HEADER_BYTES)

    def test_another_element_type_halves_the_bytes(self) -> None:
        self.brokers.create_topic(self.topic, 1)
        table = self.write_table(np.arange(10_000, dtype=np.int64))
        wide = self.succeed("--from", table)
        narrow = self.succeed("--from", table, "--dtype", "float16")
        self.assertAlmostEqual(wide["bytes"] - narrow["bytes"], 10_000 * 2 * DIM, delta=1000)

    def test_keeps_to_a_rate(self) -> None:
        self.brokers.create_topic(self.topic, 1)
        table = self.write_table(np.arange(3000, dtype=np.int64))
        start = time.monotonic()
        report = self.succeed("--from", table, "--rate", 2000)
        # The last of the rows is due after 3000 / 2000 s, less one chunk.
        self.assertGreaterEqual(time.monotonic() - start, 1.4)
        self.assertEqual(report["rows"], 3000)

    def test_a_topic_that_does_not_exist_is_not_created(self) -> None:
        table = self.write_table(np.arange(10, dtype=np.int64))
        self.assertIn(self.topic, self.fail_with(1, "NOT_FOUND", "--from", table))
        self.assertNotIn(self.topic, self.brokers.topics("--list"))

    def test_brokers_that_are_away(self) -> None:
        table = self.write_table(np.arange(10, dtype=np.int64))
        done = subprocess.run(
            [str(HPS), "publish", "--brokers", "127.0.0.1:1", "--table", self.table, "--from",
             str(table), "--timeout", "500ms"],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr,
                         r"^hps: (UNAVAILABLE|DEADLINE_EXCEEDED): .*127\.0\.0\.1:1.*\n$")

    def test_wrong_usage_and_wrong_files(self) -> None:
        self.fail_with(1, "NOT_FOUND", "--from", self.directory / "nothing")
        self.fail_with(2, "INVALID_ARGUMENT", "--from", self.directory, "--rate", 0)
        self.fail_with(2, "INVALID_ARGUMENT")
        done = subprocess.run([str(HPS), "publish", "--table", self.table, "--from", "x"],
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--brokers", done.stderr)


if __name__ == "__main__":
    unittest.main()
