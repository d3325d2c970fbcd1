"""The update stream from end to end: `hps publish`, a Kafka broker, `hps serve`.

The verifier of these tests is a plain dictionary of what was published last for each key: the
server must come to answer exactly that, whatever happens on the way.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
sys.path.insert(0, str(ROOT / "tools" / "kafka"))
sys.path.insert(0, str(ROOT / "tools" / "redis"))
import brokers as kafka  # noqa: E402
import servers as redis_servers  # noqa: E402
import support  # noqa: E402
from support import HPS, MODEL, ROWS, TABLES, WAIT_S  # noqa: E402

TABLE = "user"
DIM = TABLES[TABLE]
TOPIC = f"hps_et.{MODEL}.{TABLE}"
PARTITIONS = 3


def is_built_with(part: str) -> bool:
    """The options that the build was configured with say it."""
    options = (HPS.parent.parent / "CMakeCache.txt").read_text()
    return re.search(rf"^HPS_{part}:BOOL=ON$", options, re.MULTILINE) is not None


@unittest.skipUnless(is_built_with("KAFKA"), "this build has no Kafka client")
class StreamTest(support.ServerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.brokers = kafka.Brokers()
        self.addCleanup(self.brokers.close)
        self.published: dict[int, float] = {}
        self.headers: dict[str, str] = {}
        self.count = 0

    def update_section(self, more: str = "") -> str:
        return (f'[update]\nbrokers = ["{self.brokers.bootstrap}"]\nrefresh_interval = "20ms"\n'
                f"{more}\n")

    def start(self, more: str = "", **keywords) -> support.RunningServer:
        return self.serve_ready(sections=self.update_section(more), **keywords)

    def write(self, keys: np.ndarray, value: float) -> pathlib.Path:
        self.count += 1
        source = self.directory / f"change{self.count}"
        source.mkdir()
        np.save(source / "keys.npy", keys)
        np.save(source / "rows.npy", np.full((len(keys), DIM), value, dtype=np.float32))
        return source

    def publish(self, keys: np.ndarray, value: float | None, *arguments) -> None:
        """A value of None deletes the keys."""
        source = self.write(keys, value or 0)
        if value is None:
            arguments = (*arguments, "--delete")
            source = source / "keys.npy"
        done = subprocess.run(
            [str(HPS), "publish", "--brokers", self.brokers.bootstrap, "--table",
             f"{MODEL}/{TABLE}", "--from", str(source), "--json", *map(str, arguments)],
            capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for key in keys.tolist():
            self.published[key] = -1.0 if value is None else value  # -1: the default row

    def lookup(self, server: support.RunningServer, keys: np.ndarray) -> np.ndarray:
        data = keys.astype("<i8").tobytes()
        head = json.dumps({
            "inputs": [{"name": TABLE, "datatype": "INT64", "shape": [len(keys)],
                        "parameters": {"binary_data_size": len(data)}}],
            "outputs": [{"name": TABLE, "parameters": {"binary_data": True}}]}).encode()
        headers = self.headers | {"Inference-Header-Content-Length": str(len(head))}
        status, body = server.get(f"/v2/models/{MODEL}/infer", headers, data=head + data,
                                  method="POST")
        self.assertEqual(status, 200, body[:300])
        return np.frombuffer(body[-4 * DIM * len(keys):], "<f4").reshape(-1, DIM)

    def wrong_rows(self, server: support.RunningServer) -> int:
        keys = np.array(sorted(self.published), dtype=np.int64)
        expected = np.array([self.published[key] for key in keys.tolist()], dtype=np.float32)
        rows = self.lookup(server, keys)
        whole = (rows == rows[:, :1]).all(axis=1)
        for version in (1, 2):
            whole |= (rows == support.stamped(TABLE, keys, version)).all(axis=1)
        self.assertTrue(whole.all(), "a torn row")
        return int((rows[:, 0] != expected).sum())

    def await_all(self, server: support.RunningServer) -> None:
        end = time.monotonic() + WAIT_S
        while wrong := self.wrong_rows(server):
            self.assertLess(time.monotonic(), end, f"{wrong} rows are wrong")
            time.sleep(0.05)

    def metric(self, server: support.RunningServer, name: str) -> float:
        text = server.get("/metrics", self.headers)[1].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith((name + " ", name + "{")))

    def test_what_is_published_is_served(self) -> None:
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.start()
        keys = np.arange(0, ROWS + 500, dtype=np.int64)  # some are new
        self.lookup(server, keys)  # now level 2 has the old rows
        self.publish(keys, 7.0)
        self.await_all(server)
        self.publish(keys[::3], None)
        self.publish(keys[1::3], float("inf"))
        self.await_all(server)
        self.assertEqual(self.metric(server, "hps_update_parked_total"), 0)
        self.assertGreaterEqual(self.metric(server, "hps_update_rows_total"), 2 * len(keys) // 3)
        end = time.monotonic() + WAIT_S
        while (stream := server.overview()["stream"])["lag_records"] or not stream["partitions"]:
            self.assertLess(time.monotonic(), end, stream)
        self.assertEqual(len(stream["partitions"]), PARTITIONS)
        self.assertGreater(sum(stream["freshness"]["l3"]["counts"]), 0)
        self.assertEqual(stream["missing_topics"], [f"{MODEL}/item"])
        # What cannot be applied is set aside, and the stream goes on.
        before = dict(self.published)
        self.publish(keys[:10], 2.0, "--dtype", "float16")
        self.published = before
        self.publish(keys[10:20], 3.0)
        self.await_all(server)
        end = time.monotonic() + WAIT_S  # it may lie in a partition of its own, read later
        while not self.metric(server, "hps_update_parked_total"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.assertEqual(self.metric(server, 'hps_update_parked_total{reason="wrong_shape"}'),
                         self.metric(server, "hps_update_parked_total"))

    @unittest.skipUnless(is_built_with("REDIS"), "this build has no Redis client")
    def test_level_2_on_redis_takes_the_changes(self) -> None:
        """Also those that it missed while it was down."""
        self.brokers.create_topic(TOPIC, PARTITIONS)
        keys = np.arange(0, ROWS, dtype=np.int64)
        with redis_servers.Servers() as redis:
            node = f'[l2.redis]\nnodes = ["{redis.addresses[0]}"]\n'
            server = self.serve_ready(level2='kind = "redis"', sections=node +
                                      self.update_section())
            for value in range(1, 5):
                self.await_hits(server, keys)
                if value == 3:
                    redis.kill(0)
                self.publish(keys[value::2], float(value))
                self.await_all(server)
                if value == 3:
                    redis.start(0)
                    self.assertEqual(self.wrong_rows(server), 0)
            self.await_hits(server, keys)
            self.assertEqual(self.wrong_rows(server), 0)
            server.stop()

    def await_hits(self, server: support.RunningServer, keys: np.ndarray) -> None:
        """Asks until level 2 answers all of them."""
        body = json.dumps({
            "inputs": [{"name": TABLE, "datatype": "INT64", "shape": [len(keys)],
                        "data": keys.tolist()}],
            "outputs": [{"name": f"{TABLE}.status"}, {"name": TABLE}]}).encode()
        end = time.monotonic() + WAIT_S
        statuses: set[int] = set()
        while statuses != {2}:
            self.assertLess(time.monotonic(), end, statuses)
            answer = json.loads(server.get(f"/v2/models/{MODEL}/infer", self.headers, data=body,
                                           method="POST")[1])
            statuses = set(answer["outputs"][0]["data"])

    def test_a_restart_goes_on_and_repeats_nothing(self) -> None:
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.start()
        self.publish(np.arange(100, dtype=np.int64), 1.0)
        self.await_all(server)
        for value in range(2, 6):
            server.kill()  # SIGKILL
            self.publish(self.keys(3000), float(value))
            server = self.start()
            self.publish(self.keys(50), value + 0.5)
            self.await_all(server)
        self.assertEqual(server.stop(), 0)

    def test_killed_while_it_applies(self) -> None:
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.start("rows_per_second_max = 20000")
        for value in range(1, 9):
            self.publish(self.keys(8000), float(value))
            if value % 2 == 0:
                server.kill()
                server = self.start("rows_per_second_max = 20000")
        self.await_all(server)

    def test_without_brokers_the_server_answers_what_it_has(self) -> None:
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.start()
        self.publish(self.keys(1000), 1.0)
        self.await_all(server)
        self.brokers.kill(0)
        end = time.monotonic() + WAIT_S
        while self.metric(server, "hps_update_up"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertEqual(self.wrong_rows(server), 0)
        server.kill()
        server = self.start('ready_timeout = "1s"')
        self.assertEqual(self.metric(server, "hps_recovery_unverified"), 1)
        self.assertEqual(self.wrong_rows(server), 0)
        self.brokers.start(0)
        self.publish(self.keys(1000), 2.0)
        self.await_all(server)

    def test_an_import_supersedes_what_was_published_before_it(self) -> None:
        self.brokers.create_topic(TOPIC, PARTITIONS)
        token = self.directory / "token"
        token.write_text("secret")
        server = self.start(security=f'token_file = "{token}"\nrepository_control = true')
        self.headers = {"Authorization": "Bearer secret"}
        self.publish(np.arange(ROWS, dtype=np.int64), 1.0)
        self.await_all(server)
        self.published.clear()
        time.sleep(0.01)  # the stream has milliseconds
        self.import_version(2)
        self.publish(np.arange(10, dtype=np.int64), 3.0)
        status, body = server.get(f"/v2/repository/models/{MODEL}/load", self.headers, data=b"{}",
                                  method="POST")
        self.assertEqual(status, 200, body)
        self.await_all(server)
        keys = np.arange(10, ROWS, dtype=np.int64)
        np.testing.assert_array_equal(self.lookup(server, keys), support.stamped(TABLE, keys, 2))

    def test_a_topic_that_comes_later_is_found_and_excludes_direct_changes(self) -> None:
        token = self.directory / "token"
        token.write_text("secret")
        server = self.start(security=f'token_file = "{token}"\nupdates = true')
        self.headers = {"Authorization": "Bearer secret"}
        body = json.dumps({"inputs": [
            {"name": "keys", "datatype": "INT64", "shape": [1], "data": [1]},
            {"name": "rows", "datatype": "FP32", "shape": [1, DIM], "data": [0.5] * DIM}]}).encode()
        path = f"/v2/hps/tables/{MODEL}/{TABLE}/rows"
        self.brokers.create_topic(TOPIC, 1)
        self.publish(self.keys(100), 4.0)
        self.await_all(server)
        status, answer = server.get(path, self.headers, data=body, method="POST")
        self.assertEqual(status, 409, answer)
        self.assertIn("update stream", answer.decode())
        other = path.replace(TABLE, "item")
        body = body.replace(f"[1, {DIM}]".encode(), b"[1, 16]").replace(
            json.dumps([0.5] * DIM).encode(), json.dumps([0.5] * 16).encode())
        self.assertEqual(server.get(other, self.headers, data=body, method="POST")[0], 200)


if __name__ == "__main__":
    unittest.main()
