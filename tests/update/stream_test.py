"""The update stream from end to end: `hps publish`, a Kafka broker, `hps serve`."""

import json
import shutil
import subprocess
import time
import unittest

import numpy as np

import stream_case
import support
from stream_case import DIM, PARTITIONS, TABLE, TOPIC, redis_servers
from support import HPS, MODEL, ROWS, is_built_with
from waiting import WAIT_S, await_true


class StreamTest(stream_case.StreamTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.start_brokers()

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

        def without_lag() -> dict | None:
            stream = server.overview()["stream"]
            return stream if stream["partitions"] and not stream["lag_records"] else None

        stream = await_true(without_lag, "end of the lag")
        self.assertEqual(len(stream["partitions"]), PARTITIONS)
        self.assertGreater(sum(stream["freshness"]["l3"]["counts"]), 0)
        self.assertEqual(stream["missing_topics"], [f"{MODEL}/item"])
        # What cannot be applied is set aside, and the stream goes on.
        before = dict(self.published)
        self.publish(keys[:10], 2.0, "--dtype", "float16")
        self.published = before
        self.publish(keys[10:20], 3.0)
        self.await_all(server)
        # It may lie in a partition of its own, read later.
        await_true(lambda: self.metric(server, "hps_update_parked_total"), "parked message")
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
        await_true(lambda: not self.metric(server, "hps_update_up"), "sign that no broker answers")
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
        token.touch(0o600)
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
        token.touch(0o600)
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

    def run_hps(self, *arguments) -> dict:
        done = subprocess.run([str(HPS), *map(str, arguments), "--json"], capture_output=True,
                              text=True, timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return json.loads(done.stdout)

    def values_in_store(self, keys: np.ndarray) -> list[float]:
        exported = self.directory / "exported"
        self.run_hps("export", "--store", self.directory / "store", "--table", f"{MODEL}/{TABLE}",
                     "--to", exported, "--format", "npy")
        found = dict(zip(np.load(exported / "keys.npy").tolist(),
                         np.load(exported / "rows.npy")[:, 0].tolist(), strict=True))
        shutil.rmtree(exported)
        return [found.get(key) for key in keys.tolist()]

    def test_parked_messages_are_replayed_where_they_belong(self) -> None:
        store, table = self.directory / "store", f"{MODEL}/{TABLE}"
        self.brokers.create_topic(TOPIC, 1)
        server = self.start()
        keys = np.arange(100, dtype=np.int64)
        self.publish(keys, 2.0, "--dtype", "float16")  # of the table that is imported later
        self.publish(keys[:10], 3.0)
        self.published = dict.fromkeys(keys[:10].tolist(), 3.0)
        self.await_all(server)
        self.assertEqual(self.metric(server, 'hps_update_parked_total{reason="wrong_shape"}'), 1)
        beside = self.run_hps("parked", "--store", store)["messages"]
        self.assertEqual([(message["topic"], message["partition"], message["offset"],
                           message["reason"]) for message in beside],
                         [(TOPIC, 0, 0, "wrong_shape")])
        self.assertGreater(beside[0]["time_ms"], 0)
        self.assertEqual(server.stop(), 0)
        report = self.run_hps("parked", "--store", store, "--replay")
        self.assertEqual((report["replayed"], len(report["messages"])), (0, 1), "still wrong")

        # Now it fits. A server that begins later reads it from the topic, too, and newer rows.
        rows = self.write(np.arange(ROWS, dtype=np.int64), 1.0)
        self.run_hps("drop", "--store", store, "--table", table)
        self.run_hps("import", "--store", store, "--table", table, "--from", rows, "--dtype",
                     "float16", "--default", "-1", "--stream-from", "earliest")
        server = self.start()
        self.publish(keys[50:60], 4.0, "--dtype", "float16")
        self.await_position(server, 3)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(self.values_in_store(keys[45:65]), [2.0] * 5 + [4.0] * 10 + [2.0] * 5)
        report = self.run_hps("parked", "--store", store, "--replay")
        # The message of the first table; that of float32 rows is wrong now.
        self.assertEqual((report["replayed"], report["rows"]), (1, 90), "newer rows stay")
        self.assertEqual([message["offset"] for message in report["messages"]], [1])
        self.assertEqual(self.values_in_store(keys[45:65]), [2.0] * 5 + [4.0] * 10 + [2.0] * 5)

    def await_position(self, server: support.RunningServer, position: int) -> None:
        """Until the server has stored all records before this one of partition 0."""
        def positions() -> list[int]:
            return [partition["position"] for partition in server.overview()["stream"]["partitions"]
                    if partition["table"] == f"{MODEL}/{TABLE}"]

        await_true(lambda: positions() == [position],
                   lambda: f"position {position}, only {positions()}")


if __name__ == "__main__":
    unittest.main()
