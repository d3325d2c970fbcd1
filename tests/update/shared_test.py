"""Nodes that share a level 2 on Redis, from end to end: two stores of one import id, two servers,
one Redis, one Kafka broker. No reader of a node sees a row go back, however far the other node is.
"""

import contextlib
import json
import re
import subprocess
import threading
import unittest

import numpy as np

import raw_producer
import stream_case
import support
from stream_case import PARTITIONS, TABLE, TOPIC, redis_servers
from support import HPS, MODEL, ROWS, is_built_with
from waiting import WAIT_S, MissedWait, await_true

KEYS = np.arange(0, 600, dtype=np.int64)
OTHER = "item"
OTHER_TOPIC = f"hps_et.{MODEL}.{OTHER}"
GROUP = 'shared_group = "hps-shared"\n[update.kafka]\n"session.timeout.ms" = 6000'


@unittest.skipUnless(is_built_with("REDIS"), "this build has no Redis client")
class SharedTest(stream_case.StreamTestCase):

    def run_hps(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run([str(HPS), *map(str, arguments)], capture_output=True, text=True,
                              timeout=WAIT_S, check=False)

    def import_rows(self, node: str, *options) -> subprocess.CompletedProcess:
        source = self.directory / "rows"
        if not source.exists():
            keys = np.arange(ROWS, dtype=np.int64)
            for table in support.TABLES:
                (source / table).mkdir(parents=True)
                np.save(source / table / "keys.npy", keys)
                np.save(source / table / "rows.npy", support.stamped(table, keys, 1))
        return self.run_hps("import", "--store", self.directory / node / "store", "--model", MODEL,
                            "--from", source, "--default", "-1", "--json", *options)

    def start_redis(self, count: int = 1, **settings) -> None:
        self.redis_timeout = "30s"
        self.redis = redis_servers.Servers(count, cluster=count > 1, settings=settings)
        self.addCleanup(self.redis.close)

    def start_node(self, node: str, more: str = "", partitions: int = PARTITIONS,
                   level2: str = 'kind = "redis"') -> support.RunningServer:
        directory = self.directory / node
        if not directory.exists():
            directory.mkdir()
            done = self.import_rows(node, "--import-id", "v1", "--stream-from", "earliest")
            self.assertEqual(done.returncode, 0, done.stderr)
        redis = (f'[l2.redis]\nnodes = {json.dumps(self.redis.addresses)}\n'
                 f'cluster = {"true" if len(self.redis.addresses) > 1 else "false"}\n'
                 f'timeout = "{self.redis_timeout}"\n')
        server = support.RunningServer(
            directory, level2=level2, sections=redis + self.update_section(more))
        self.addCleanup(server.kill)
        server.await_ready()
        await_true(lambda: len(server.overview()["stream"]["partitions"]) >= partitions,
                   "partitions")
        return server

    def await_metric(self, server: support.RunningServer, name: str, value: float) -> None:
        await_true(lambda: self.metric(server, name) == value,
                   lambda: f"{name} of {value}, only {self.metric(server, name)}")

    def test_what_one_node_has_asked_for_is_warm_for_the_next(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis()
        first = self.start_node("first")
        self.publish(KEYS[:100], 5.0)
        self.await_all(first)
        self.await_hits(first, KEYS)
        second = self.start_node("second")
        self.await_all(second)
        self.assertEqual(set(self.statuses(second, KEYS[100:])), {2}, "it asks for the first time")
        self.assertEqual(self.wrong_rows(second), 0)
        self.assertIn('"import_id":"v1"',
                      self.run_hps("inspect", "--store", self.directory / "second" / "store",
                                   "--json").stdout)

    def read_until(self, server: support.RunningServer, done: threading.Event,
                   problems: list[str]) -> None:
        """Notes every row that goes back. Each publication of a key has a greater value."""
        newest = np.full(len(KEYS), -np.inf, dtype=np.float32)
        while not done.is_set():
            try:
                rows = self.lookup(server, KEYS)
            except (OSError, AssertionError) as error:
                if not done.is_set():
                    problems.append(repr(error))
                return
            if not (rows == rows[:, :1]).all():
                problems.append("a torn row")
            back = rows[:, 0] < newest
            if back.any():
                problems.append(f"keys {KEYS[back].tolist()} went back from "
                                f"{newest[back].tolist()} to {rows[back, 0].tolist()}")
                return
            newest = rows[:, 0].copy()

    def watch(self, *servers: support.RunningServer):
        """Readers of the servers; the function that is returned ends them."""
        done, problems = threading.Event(), []
        readers = [threading.Thread(target=self.read_until, args=(server, done, problems))
                   for server in servers]
        for reader in readers:
            reader.start()

        def end() -> None:
            done.set()
            for reader in readers:
                reader.join(timeout=WAIT_S)
            self.assertEqual(problems, [])

        self.addCleanup(done.set)
        return end

    def run_at_different_speeds(self, level2: str) -> list[support.RunningServer]:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis(**{"maxmemory": "2mb", "maxmemory-policy": "allkeys-random"})
        fast = self.start_node("fast", level2=level2)
        slow = self.start_node("slow", "rows_per_second_max = 1500", level2=level2)
        self.publish(KEYS, 1.0)
        self.await_all(fast)
        self.await_all(slow)
        end = self.watch(fast, fast, slow, slow)
        for value in range(2, 22):
            self.publish(self.random.permutation(KEYS)[:300], float(value))
        self.await_all(fast)
        self.await_all(slow)
        end()
        self.await_all(fast)
        self.await_all(slow)
        for server in (fast, slow):
            text = server.get("/metrics")[1].decode()
            hits = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                    if line.startswith("hps_lookup_keys_total") and '"hit_l2"' in line]
            self.assertGreater(sum(hits), 0)
        return [fast, slow]

    def test_nodes_at_different_speeds_over_a_redis_that_evicts(self) -> None:
        self.run_at_different_speeds('kind = "redis"')

    def test_memory_in_front_of_shared_rows(self) -> None:
        servers = self.run_at_different_speeds('kind = "memory+redis"\nbytes_max = "256KiB"')
        for server in servers:
            self.assertGreater(self.metric(server, "hps_level_updates_total"), 0)
            self.assertGreater(self.metric(server, "hps_level_rows"), 0, "memory has rows")
        self.redis.kill(0)
        self.publish(KEYS, max(self.published.values()) + 1)
        for server in servers:
            self.await_all(server)
            self.assertIn(2, self.statuses(server, KEYS), "memory has followed the changes")

    def test_nodes_that_divide_the_writing_end_in_turn(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis()
        nodes = {name: self.start_node(name, GROUP) for name in ("one", "two")}
        self.publish(KEYS, 1.0)
        for server in nodes.values():
            self.await_all(server)
            self.await_hits(server, KEYS)
        for ended, stays in (("one", "two"), ("two", "one")):
            end = self.watch(nodes[stays])
            for round_number in range(6):
                self.publish(self.random.permutation(KEYS)[:200],
                             max(self.published.values()) + 1)
                if round_number == 2:
                    nodes[ended].kill()
            self.await_all(nodes[stays])
            end()
            self.await_writes(nodes[stays])
            nodes[ended] = self.start_node(ended, GROUP)
            self.await_all(nodes[ended])
        for server in nodes.values():
            self.await_hits(server, KEYS)
            self.assertEqual(self.wrong_rows(server), 0)

    def test_a_dead_master_holds_up_no_change_of_the_others(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis(3)
        self.redis_timeout = "500ms"
        nodes = [self.start_node("one", GROUP), self.start_node("two", GROUP)]
        for server in nodes:
            self.publish(KEYS, max(self.published.values(), default=0) + 1)
            self.await_all(server)
            self.await_hits(server, KEYS)
        await_true(lambda: sum(self.metric(server, "hps_shared_partitions")
                               for server in nodes) == PARTITIONS, "writers of all partitions")
        end = self.watch(*nodes)
        self.redis.kill(1)
        for _ in range(3):
            self.publish(KEYS, max(self.published.values()) + 1)
            for server in nodes:
                self.await_all(server)
        await_true(lambda: sum(self.metric(server, "hps_redis_changes_given_up_total")
                               for server in nodes) > 0, "change that was given up")
        for server in nodes:
            self.await_metric(server, "hps_shared_lag_records", 0)
        self.redis.start(1)
        for server in nodes:
            self.await_hits(server, KEYS)
        self.publish(KEYS, max(self.published.values()) + 1)
        for server in nodes:
            self.await_all(server)
        end()
        for server in nodes:
            self.await_hits(server, KEYS)
            self.assertEqual(self.wrong_rows(server), 0)

    def test_a_table_that_stands_still_holds_up_no_other(self) -> None:
        self.start_brokers()
        for topic in (TOPIC, OTHER_TOPIC):
            self.brokers.create_topic(topic, PARTITIONS)
        self.start_redis()
        memory = 'memory_bytes_max = "32MiB"\n'
        both = self.start_node("one", memory + GROUP, partitions=2 * PARTITIONS)
        # Its stream begins with the first position that is stored.
        self.await_metric(both, "hps_shared_partitions", 2 * PARTITIONS)
        self.assertEqual(both.stop(), 0)
        server = self.start_node("one", f'{memory}tables = ["{MODEL}/{TABLE}"]\n{GROUP}')
        self.await_metric(server, "hps_shared_partitions", 2 * PARTITIONS)
        self.publish(KEYS, 1.0)
        self.await_all(server)
        producer = raw_producer.RawProducer(self.brokers.bootstrap)
        self.addCleanup(producer.close)
        keys = np.zeros(60_000, dtype=np.int64)
        rows = np.zeros((len(keys), support.TABLES[OTHER]), dtype=np.float32)
        partition = raw_producer.partition_of(0, PARTITIONS)
        for _ in range(6):
            producer.send(OTHER_TOPIC, partition,
                          raw_producer.message(f"{MODEL}/{OTHER}", keys, rows))
        producer.flush()
        self.await_metric(server, "hps_shared_left_tables", 1)
        self.await_metric(server, "hps_shared_partitions", PARTITIONS)
        self.await_writes(server)
        self.assertIn("which applies none", (self.directory / "one" / "hps.log").read_text())
        self.assertEqual(server.stop(), 0)
        # Its own subscription goes on, and then the writing does.
        both = self.start_node("one", memory + GROUP, partitions=2 * PARTITIONS)
        self.await_metric(both, "hps_shared_partitions", 2 * PARTITIONS)
        self.await_metric(both, "hps_update_lag_records", 0)
        self.await_metric(both, "hps_shared_lag_records", 0)

    def test_a_message_in_the_wrong_partition_is_set_aside(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis()
        server = self.start_node("one", GROUP)
        self.publish(KEYS, 1.0)
        self.await_all(server)
        producer = raw_producer.RawProducer(self.brokers.bootstrap)
        self.addCleanup(producer.close)
        right = raw_producer.partition_of(7, PARTITIONS)
        wrong = raw_producer.message(
            f"{MODEL}/{TABLE}", np.array([7]), np.full((1, stream_case.DIM), 9, np.float32))
        producer.send_with_count(TOPIC, (right + 1) % PARTITIONS, wrong, PARTITIONS)
        producer.flush()
        self.await_metric(server, 'hps_update_parked_total{reason="wrong_partition"}', 1)
        self.publish(KEYS, 2.0)
        self.await_all(server)
        self.await_hits(server, KEYS)
        self.assertEqual(server.stop(), 0)
        listed = self.run_hps("parked", "--store", self.directory / "one" / "store").stdout
        self.assertIn("wrong_partition", listed)
        self.assertIn(f"key 7 belongs into partition {right} of {PARTITIONS}", listed)

    def test_a_key_without_an_order_is_not_taken_after_a_restart(self) -> None:
        """A node has a change that came in a wrong partition; the other node lags, and puts the
        row of before into Redis."""
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis()
        ahead = self.start_node("ahead")
        behind = self.start_node("behind", "rows_per_second_max = 1")
        right = raw_producer.partition_of(7, PARTITIONS)
        keys = np.array([key for key in KEYS.tolist()
                         if raw_producer.partition_of(key, PARTITIONS) == right])
        producer = raw_producer.RawProducer(self.brokers.bootstrap)
        self.addCleanup(producer.close)

        def send(partition: int, changed: np.ndarray, value: float) -> None:
            rows = np.full((len(changed), stream_case.DIM), value, np.float32)
            producer.send(TOPIC, partition,
                          raw_producer.message(f"{MODEL}/{TABLE}", changed, rows))
            producer.flush()

        send(right, keys, 5.0)
        self.published = dict.fromkeys(keys.tolist(), 5.0)
        for server in (ahead, behind):
            self.await_all(server)
        # The slow node reads nothing more for len(keys) seconds.
        send((right + 1) % PARTITIONS, np.array([7]), 9.0)
        await_true(lambda: (self.lookup(ahead, np.array([7])) == 9).all(), "new row")
        self.await_hits(behind, keys)
        ahead.kill()
        ahead = self.start_node("ahead")
        self.assertTrue((self.lookup(ahead, np.array([7])) == 9).all(), "the row went back")
        others = keys[keys != 7]
        self.assertEqual(set(self.statuses(ahead, others)), {2}, "they are shared as before")
        self.assertNotEqual(self.statuses(ahead, np.array([7])), [2])
        self.assertTrue((self.lookup(behind, np.array([7])) == 5).all(), "it did not lag")

    def test_a_server_ends_though_redis_and_the_brokers_do_not_answer(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis()
        self.redis_timeout = "2s"
        server = self.start_node("one", GROUP)
        self.await_metric(server, "hps_shared_partitions", PARTITIONS)
        self.publish(KEYS, 1.0)
        self.await_all(server)
        self.await_hits(server, KEYS)
        self.redis.pause(0)
        self.publish(KEYS, 2.0)
        self.await_all(server)
        self.brokers.kill(0)
        self.assertEqual(server.stop(), 0)
        self.assertNotIn("left behind", "\n".join(server.output))

    def test_the_panels_and_alerts_of_the_stream_and_the_shared_group(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        self.start_redis()
        server = self.start_node("one", GROUP)
        self.await_metric(server, "hps_shared_partitions", PARTITIONS)
        self.publish(KEYS, 1.0)  # the lag of a partition is known when a record of it was read

        def page_with_lag() -> str:
            page = server.get("/metrics")[1].decode()
            return page if "hps_shared_lag_records" in page else ""

        page = await_true(page_with_lag, "lag")
        documented = (stream_case.ROOT / "docs" / "metrics.md").read_text()
        deploy = stream_case.ROOT / "deploy"
        drawn = set()
        for file in (deploy / "grafana" / "hps.json", deploy / "prometheus" / "hps_alerts.yml"):
            found = re.findall(r"\bhps_(?:shared|redis|update|recovery)_\w+", file.read_text())
            self.assertGreater(len(found), 5, file)
            drawn |= {name.removesuffix("_bucket") for name in found}
        for name in drawn:
            self.assertIn(f"`{name}`", documented)
            if name != "hps_update_table_stale":  # a table has no sample unless it is stale
                self.assertTrue(f"\n# TYPE {name} " in page, name)
        for family in re.findall(r"^# TYPE (hps_\w+)", page, re.MULTILINE):
            if family.startswith(("hps_shared_", "hps_redis_")):
                self.assertIn(f"`{family}`", documented)

    def await_writes(self, server: support.RunningServer) -> None:
        """Until the node writes the changes of every partition: it replaces all rows that are held.
        Nobody may ask for rows meanwhile: what a lookup promotes needs no replacement."""
        def replaces_all() -> bool:
            self.await_hits(server, KEYS)
            before = self.metric(server, "hps_level_updates_total")
            self.publish(KEYS, max(self.published.values()) + 1)
            with contextlib.suppress(MissedWait):
                return await_true(lambda: self.metric(server, "hps_level_updates_total") - before
                                  >= len(KEYS), wait_s=5, pause_s=0.1)
            self.await_all(server)
            return False

        await_true(replaces_all, "node that takes the partitions over")

    def test_what_an_import_id_demands(self) -> None:
        def refused(code: str, text: str, *options) -> None:
            done = self.import_rows("refused", *options)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"hps: {code}: ", done.stderr)
            self.assertIn(text, done.stderr)

        refused("INVALID_ARGUMENT", "--stream-from earliest or TIME", "--import-id", "v1")
        refused("INVALID_ARGUMENT", "--stream-from earliest or TIME", "--import-id", "v1",
                "--stream-from", "latest")
        store = self.directory / "refused" / "store"
        earliest = ("--import-id", "v1", "--stream-from", "earliest")
        self.assertEqual(self.import_rows("refused", *earliest).returncode, 0)
        refused("FAILED_PRECONDITION", "had the import id 'v1' before", *earliest)
        changed = self.run_hps("apply", "--store", store, "--table", f"{MODEL}/{TABLE}", "--from",
                               self.write(KEYS, 1.0))
        self.assertEqual(changed.returncode, 1, changed.stderr)
        self.assertIn("hps: FAILED_PRECONDITION: ", changed.stderr)
        self.assertIn("imported with an import id", changed.stderr)
        self.assertEqual(self.import_rows("refused").returncode, 0)
        changed = self.run_hps("apply", "--store", store, "--table", f"{MODEL}/{TABLE}", "--from",
                               self.write(KEYS, 1.0))
        self.assertEqual(changed.returncode, 0, changed.stderr)


if __name__ == "__main__":
    unittest.main()
