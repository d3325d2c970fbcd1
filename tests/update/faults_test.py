"""The update stream through `hps publish`, Kafka and `hps serve` while something fails: brokers,
leaders, the network, the disk, the server, the clock.

Every published value is known: the value of a key only grows, from one publication to the next. A
reader asks the server all the time, and no row that it sees is torn or older than one that it has
seen of the same key. In the end the server answers with the last value of every key, and has read
every message of the topic to its end; the topic has each message that was acknowledged once.
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import unittest

import numpy as np

import kafka_proxy
import raw_producer
import stream_case
import support
from stream_case import DIM, PARTITIONS, TABLE, TOPIC, redis_servers
from support import HPS, MODEL, is_built_with
from waiting import WAIT_S, await_true, trials

TESTS = HPS.parent.parent / "tests"
WITH_FAULTS = TESTS / "hps_with_faults"
FULL_DISK = TESTS / "libfull_disk.so"
FAKE_TIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR_S = 3600

# In the order in which a change passes them.
STEPS = ["update.change.before_l3", "l3.write.before_commit", "l3.write.after_commit",
         "update.change.before_l2", "update.change.before_publish"]
KILLS = max(len(STEPS) + 1, trials(80))  # at each step, and at any moment
BOUNCES = trials(40)
MESSAGES = trials(200_000)
MESSAGES_PER_S_MIN = 5000  # what waits allow for
KEYS = 2000  # that change
CHANGED = 500  # of them, by one publication


class Reader:
    """Asks for all keys again and again. A server that is down gives no answer, which is no error:
    `wrong` has what no server may ever answer."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.newest = np.zeros(KEYS, dtype=np.float32)
        self.answers = self.failures = 0
        self.wrong: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        keys = np.arange(KEYS, dtype=np.int64)
        data = keys.astype("<i8").tobytes()
        head = json.dumps({
            "inputs": [{"name": TABLE, "datatype": "INT64", "shape": [KEYS],
                        "parameters": {"binary_data_size": len(data)}}],
            "outputs": [{"name": TABLE, "parameters": {"binary_data": True}}]}).encode()
        imported = support.stamped(TABLE, keys)
        while not self._stopped.wait(0.02):
            try:
                answer = self._ask(head, data)
            except (OSError, http.client.HTTPException):
                self.failures += 1
                continue
            rows = np.frombuffer(answer, "<f4").reshape(KEYS, DIM)
            is_imported = (rows == imported).all(axis=1)
            values = np.where(is_imported, 0, rows[:, 0])
            if not (is_imported | (rows == rows[:, :1]).all(axis=1)).all():
                self.wrong.append("a torn row")
            if (values < self.newest).any():
                key = int(np.argmax(values < self.newest))
                self.wrong.append(f"key {key}: {values[key]} after {self.newest[key]}")
            self.newest = np.maximum(self.newest, values)
            self.answers += 1

    def _ask(self, head: bytes, data: bytes) -> bytes:
        connection = http.client.HTTPConnection(self.address, timeout=WAIT_S)
        with contextlib.closing(connection):
            connection.request("POST", f"/v2/models/{MODEL}/infer", head + data,
                               {"Inference-Header-Content-Length": str(len(head))})
            response = connection.getresponse()
            body = response.read()
            if response.status != 200:
                raise OSError(f"{response.status}: {body[:200]}")
            return body[-4 * DIM * KEYS:]

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(WAIT_S)


class FaultsTest(stream_case.StreamTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.ports = support.held_ports(self, "http", "grpc", "metrics")
        self.value = 0.0
        self.batches = 0  # that were acknowledged
        self.publishing = threading.Event()
        self.failure: AssertionError | None = None

    def begin(self, more: str = "", brokers: str = "", **keywords) -> support.RunningServer:
        server = self.serve_ready(sections=self.update_section(more, brokers), ports=self.ports,
                                  **keywords)
        self.reader = Reader(server.http)
        self.addCleanup(self.reader.stop)
        return server

    def publish_next(self) -> None:
        keys = np.sort(self.random.choice(KEYS, CHANGED, replace=False)).astype(np.int64)
        self.value += 1
        report = self.publish(keys, self.value, "--timeout", f"{WAIT_S}s")
        self.assertEqual(report["rows"], CHANGED)
        self.batches += report["batches"]

    @contextlib.contextmanager
    def publishing_all_the_time(self):
        def run() -> None:
            try:
                while not self.publishing.is_set():
                    self.publish_next()
            except AssertionError as error:
                self.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self.publishing.set()
            thread.join()
        if self.failure:
            raise self.failure

    def await_answers(self, count: int = 20) -> None:
        """Of the reader, from now on."""
        wanted = self.reader.answers + count
        await_true(lambda: self.reader.answers >= wanted, "answers of the server")

    def verify(self, server: support.RunningServer, always_up: bool = True, parked: int = 0,
               beacons: int = 0) -> None:
        """Everything has come, once, and nothing went back meanwhile."""
        self.assertGreater(self.value, 0)
        self.await_all(server)
        self.await_answers(3)
        self.reader.stop()
        self.assertEqual(self.reader.wrong, [])
        if always_up:
            self.assertEqual(self.reader.failures, 0)
        ends = self.brokers.end_offsets(TOPIC)
        self.assertEqual(sum(ends.values()), self.batches + parked + beacons,
                         "messages that nobody acknowledged")
        self.assertEqual(self.metric(server, "hps_update_parked_total"), parked)
        self.assertEqual(server.stop(), 0)
        inspected = subprocess.run(
            [str(HPS), "inspect", "--store", str(self.directory / "store"), "--json"],
            capture_output=True, text=True, timeout=WAIT_S, check=True)
        table = next(table for table in json.loads(inspected.stdout)["tables"]
                     if table["name"] == f"{MODEL}/{TABLE}")
        self.assertEqual({position["partition"]: position["offset"]
                          for position in table["positions"]}, ends)

    def test_brokers_bounced_and_leaders_moved(self) -> None:
        self.start_brokers(3)
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.begin()
        with self.publishing_all_the_time():
            for bounce in range(BOUNCES):
                broker = bounce % 3
                if bounce % 2 == 0:
                    self.brokers.kill(broker)
                else:
                    self.brokers.stop(broker)
                self.brokers.start(broker)
                if bounce % 3 == 2:
                    self.brokers.elect_preferred_leaders()
            self.await_answers()
        self.verify(server)

    def test_a_network_that_delays_cuts_and_holds(self) -> None:
        proxy = kafka_proxy.Proxy()
        self.addCleanup(proxy.close)
        self.start_brokers(advertised=[proxy.address])
        proxy.forward_to(self.brokers.advertised_ports[0].number)
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.begin('[update.kafka]\n"socket.timeout.ms" = "3000"', proxy.address)
        self.publish_next()
        self.await_all(server)
        with self.publishing_all_the_time():
            proxy.mode = "delay"
            seen = self.reader.newest.max()
            await_true(lambda: self.reader.newest.max() > seen + 2, "changes that come late")
            proxy.mode = "cut"
            await_true(lambda: proxy.cuts >= 3, "connections that are cut")
            proxy.mode = "hold"
            await_true(lambda: self.metric(server, "hps_update_up") == 0,
                       "sign that no broker answers")
            proxy.mode = "pass"
            await_true(lambda: self.metric(server, "hps_update_up") == 1,
                       "sign that brokers answer again")
        self.verify(server)

    def test_a_full_disk_pauses_the_stream(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        low, full = self.directory / "low", self.directory / "full"
        server = self.begin(environment={"LD_PRELOAD": str(FULL_DISK), "HPS_LOW_DISK": str(low),
                                         "HPS_FULL_DISK": str(full)})
        self.publish_next()
        self.await_all(server)
        paused = 'hps_update_paused{reason="disk_full"}'
        for fault in (low, full, low):
            fault.touch()
            self.publish_next()
            await_true(lambda: self.metric(server, paused) == 1, "pause of the stream")
            self.assertEqual(server.overview()["stream"]["paused"],
                             {f"{MODEL}/{TABLE}": "disk_full"})
            self.publish_next()
            self.await_answers()
            await_true(lambda: server.overview()["stream"]["lag_records"] >= 2,
                       "lag that grows while it is paused")
            fault.unlink()
            self.await_all(server)
            await_true(lambda: self.metric(server, paused) == 0, "end of the pause")
        log = (self.directory / "hps.log").read_text()
        self.assertIn("paused, will be tried again", log)
        self.assertIn("goes on", log)
        self.verify(server)

    def serve_until_it_dies(self, fault: str) -> int:
        with (self.directory / "armed.txt").open("w") as output:
            process = subprocess.Popen(
                [*support.ENDS_WITH_US, str(WITH_FAULTS), "serve", "--config",
                 str(self.directory / "hps.toml")], stdout=output, stderr=output,
                env=os.environ | {"HPS_FAULT_ARM": fault})
        try:
            await_true(lambda: process.poll() is not None, f"end at {fault}")
            return process.returncode
        finally:
            process.kill()
            process.wait()

    def test_killed_at_every_step(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.begin()
        with self.publishing_all_the_time():
            await_true(lambda: self.reader.newest.max() > 0, "first change")
            for kill in range(KILLS):
                if kill % (len(STEPS) + 1) == len(STEPS):
                    time.sleep(self.random.uniform(0, 0.5))
                    server.kill()  # at any moment
                    server = self.serve_ready(sections=self.update_section(), ports=self.ports)
                    continue
                server.kill()
                step = STEPS[kill % (len(STEPS) + 1)]
                # Changes in a row before it, so that it is not always the first one.
                status = self.serve_until_it_dies(f"{step}=abort@{self.random.integers(1, 12)}")
                self.assertEqual(status, -signal.SIGKILL,
                                 (self.directory / "armed.txt").read_text())
                server = self.serve_ready(sections=self.update_section(), ports=self.ports)
        self.verify(server, always_up=False)

    @unittest.skipUnless(FAKE_TIME.exists(), "there is no libfaketime")
    def test_a_clock_that_jumps(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)

        def jump(offset_s: int) -> None:
            new = self.directory / "offset.new"
            new.write_text(f"{offset_s:+d}\n")
            os.rename(new, self.directory / "offset")  # the server sees the one or the other

        jump(0)
        server = self.begin(environment={
            "LD_PRELOAD": str(FAKE_TIME), "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_TIMESTAMP_FILE": str(self.directory / "offset"), "FAKETIME_NO_CACHE": "1"})
        for offset_s in (HOUR_S, 0, -HOUR_S, 0):
            jump(offset_s)
            for _ in range(3):
                self.publish_next()
            self.await_all(server)
        self.verify(server)

    @unittest.skipUnless(is_built_with("REDIS"), "this build has no Redis client")
    def test_level_2_is_down_while_changes_are_applied(self) -> None:
        """It dies, loses its rows and comes back, and it hangs and comes back with old rows."""
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        redis = self.enterContext(redis_servers.Servers())
        server = self.begin(f'[l2.redis]\nnodes = ["{redis.addresses[0]}"]',
                            level2='kind = "redis"')
        keys = np.arange(KEYS, dtype=np.int64)
        with self.publishing_all_the_time():
            self.await_hits(server, keys)
            for fail, mend in ((redis.kill, redis.start), (redis.pause, redis.resume)) * 2:
                fail(0)
                seen = self.reader.newest.max()
                await_true(lambda seen=seen: self.reader.newest.max() > seen + 2,
                           "changes that are shown without level 2")
                self.await_answers()
                mend(0)
                self.await_answers()
        self.await_hits(server, keys)
        self.verify(server)

    def hostile_messages(self) -> list[tuple[str, bytes]]:
        """What nobody can apply, with the reason for which each is to be parked."""
        table, keys = f"{MODEL}/{TABLE}", np.arange(8, dtype=np.int64)
        rows = np.full((8, DIM), 1e9, np.float32)
        good = raw_producer.message(table, keys, rows)
        record = keys[:1].tobytes() + rows[:1].tobytes()

        def wrong(**fields) -> bytes:
            return raw_producer.message(table, keys, rows, **fields)

        flipped = bytearray(good)
        flipped[100] ^= 4
        return [
            ("checksum", bytes(flipped)), ("checksum", good[:-100]), ("checksum", good + b"more"),
            ("truncated", good[:20]), ("truncated", raw_producer.seal(good[:-108])),
            ("truncated", wrong(count=2**32 - 1)), ("truncated", wrong(count=9)),
            ("truncated", wrong(name_bytes=2**16 - 1)), ("truncated", wrong(kind=1)),
            ("truncated", b"HPSU"), ("truncated", b"HCTR\0"),
            ("truncated", raw_producer.hugectr(4 * DIM, record + b"12345")),
            ("wrong_shape", wrong(dim=2**32 - 1)), ("wrong_shape", wrong(dim=DIM + 1)),
            ("wrong_shape", wrong(dtype=0)), ("wrong_shape", wrong(dtype=255)),
            ("wrong_shape", raw_producer.message(table, keys, rows.repeat(2, axis=1))),
            ("wrong_shape", raw_producer.hugectr(0, record)),
            ("wrong_shape", raw_producer.hugectr(2**32 - 1, record)),
            ("wrong_shape", raw_producer.hugectr(4 * DIM + 4, record)),
            ("key_width", raw_producer.hugectr(4 * DIM, record[4:])),
            ("wrong_table", raw_producer.message(f"{MODEL}/item", keys, rows)),
            ("wrong_table", raw_producer.message("\x7f" * 300, keys, rows)),
            ("newer_format", wrong(format=2)),
            ("unknown_format", wrong(kind=7)), ("unknown_format", b""),
            ("unknown_format", b"\0" * 1000), ("unknown_format", b"{}"),
            ("oversized", good + b"\0" * (17 << 20)),
        ]

    def test_hostile_messages_are_parked_and_the_stream_goes_on(self) -> None:
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS, **{"max.message.bytes": str(32 << 20)})
        server = self.begin()
        producer = raw_producer.RawProducer(self.brokers.bootstrap)
        self.addCleanup(producer.close)
        self.publish_next()
        hostile = self.hostile_messages()
        reasons: dict[str, int] = {}
        for number, (reason, payload) in enumerate(hostile):
            producer.send(TOPIC, number % PARTITIONS, payload)
            reasons[reason] = reasons.get(reason, 0) + 1
        producer.flush()
        self.publish_next()  # behind them in every partition
        self.await_all(server)
        # Damage of any kind: every message of random bytes has some reason.
        damaged = bytearray(raw_producer.message(f"{MODEL}/{TABLE}", np.arange(8),
                                                 np.full((8, DIM), 1e9, np.float32)))
        for number in range(500):
            payload = damaged.copy()
            for _ in range(1 + number % 5):
                payload[self.random.integers(len(payload))] ^= 1 << self.random.integers(8)
            producer.send(TOPIC, number % PARTITIONS, bytes(payload[:len(payload) - number % 7]))
        for partition in range(PARTITIONS):
            producer.send(TOPIC, partition, raw_producer.hugectr(4 * DIM, b""))  # a beacon
        producer.flush()
        self.publish_next()
        self.await_all(server)
        total = len(hostile) + 500
        await_true(lambda: self.metric(server, "hps_update_parked_total") == total,
                   "parked messages")
        for reason, count in reasons.items():
            metric = self.metric(server, f'hps_update_parked_total{{reason="{reason}"}}')
            self.assertGreaterEqual(metric, count, reason)
            if reason not in ("checksum", "truncated", "unknown_format", "newer_format"):
                self.assertEqual(metric, count, reason)
        parked = self.directory / "store" / "parked" / "messages"
        self.assertEqual(parked.stat().st_mode & 0o777, 0o600)
        listed = json.loads(subprocess.run(
            [str(HPS), "parked", "--store", str(self.directory / "store"), "--json"],
            capture_output=True, text=True, timeout=WAIT_S, check=True).stdout)["messages"]
        self.assertEqual(len(listed), total)
        self.assertEqual({message["topic"] for message in listed}, {TOPIC})
        self.verify(server, parked=total, beacons=PARTITIONS)

    def test_many_messages_in_bounded_memory(self) -> None:
        """Kafka's own load generator sends HugeCTR's messages of one row, any of them again and
        again; the rows of a key are all alike. The write buffer of level 3 is full many times: it
        grows with the rows until then."""
        self.start_brokers()
        self.brokers.create_topic(TOPIC, PARTITIONS)
        server = self.begin(store='write_buffer_bytes = "1MiB"')
        keys = np.arange(100, dtype=np.int64)
        values = np.array([2.0, 8.0, 32.0], np.float32)[keys % 3]
        messages = [b"HCTR" + (4 * DIM).to_bytes(4, "little") + int(key).to_bytes(8, "little")
                    + np.full(DIM, value, "<f4").tobytes()
                    for key, value in zip(keys, values, strict=True)]
        payloads = self.directory / "payloads"
        payloads.write_bytes(b"#####".join(messages))
        self.generate(MESSAGES // 5, payloads)
        self.await_records(server, MESSAGES // 5)
        early = server.memory()
        self.generate(MESSAGES - MESSAGES // 5, payloads)
        self.await_records(server, MESSAGES)
        self.assertLess(server.memory() - early, 16 << 20)
        np.testing.assert_array_equal(self.lookup(server, keys)[:, 0], values)
        self.reader.stop()
        self.assertEqual(self.reader.wrong + [self.reader.failures], [0])
        self.assertEqual(self.metric(server, "hps_update_parked_total"), 0)

    def generate(self, count: int, payloads: pathlib.Path) -> None:
        """Has Kafka's own load generator send as many messages out of a file."""
        stream_case.kafka.run_tool(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records",
            str(count), "--throughput", "-1", "--payload-file", str(payloads),
            "--payload-delimiter", "#####", "--producer-props",
            f"bootstrap.servers={self.brokers.bootstrap}",
            timeout_s=WAIT_S + count / MESSAGES_PER_S_MIN)

    def await_records(self, server: support.RunningServer, count: int) -> None:
        def all_are_applied() -> bool:
            stream = server.overview()["stream"]
            positions = sum(partition["position"] for partition in stream["partitions"])
            return positions == count and stream["lag_records"] == 0

        await_true(all_are_applied, f"{count} applied messages",
                   max(WAIT_S, count / MESSAGES_PER_S_MIN), 0.2)


if __name__ == "__main__":
    unittest.main()
