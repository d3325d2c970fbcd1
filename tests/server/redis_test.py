"""Level 2 on Redis: a server before real Redis servers that are killed, paused, emptied and
restarted with old rows. Every answer is right, in time, and never older than one before."""

import json
import random
import shutil
import subprocess
import sys
import threading
import unittest

import numpy as np

import support
from support import HPS, MODEL, ROWS, TABLES
from waiting import WAIT_S, await_true, trials

sys.path.insert(0, str(support.ROOT / "tools" / "redis"))
import servers as redis_servers  # noqa: E402

TOKEN = "the-token-of-the-test"
HIT_L2, HIT_L3, DEGRADED = 2, 3, 5
REQUEST_TIMEOUT_US = 20_000_000  # of each lookup


@unittest.skipUnless(support.is_built_with("REDIS"), "this build has no Redis client")
class RedisTestCase(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        (self.directory / "token").touch(0o600)
        (self.directory / "token").write_text(TOKEN + "\n")
        self.all_keys = np.arange(0, ROWS, 5, dtype=np.int64)

    def redis(self, *arguments, **keywords) -> redis_servers.Servers:
        servers = redis_servers.Servers(*arguments, **keywords)
        self.addCleanup(servers.close)
        return servers

    def start(self, redis: redis_servers.Servers, more: str = "", level2: str = "",
              of_tables: str = "", timeout: str = "5s",
              kind: str = "redis") -> support.RunningServer:
        """With the default time-out no server is bypassed because the machine is busy."""
        cluster = "cluster = true\n" if len(redis.addresses) > 1 else ""
        return self.serve_ready(
            security=f'updates = true\nrepository_control = true\n'
                     f'token_file = "{self.directory}/token"\n',
            level2=f'kind = "{kind}"\n{level2}',
            sections=f'[l2.redis]\nnodes = {json.dumps(redis.addresses)}\n{cluster}'
                     f'timeout = "{timeout}"\n{more}',
            of_tables=of_tables)

    def post(self, server, path: str, body: bytes, head_bytes: int) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {TOKEN}",
                   "Inference-Header-Content-Length": str(head_bytes)}
        return server.get(path, headers, data=body, method="POST")

    def ask_tables(self, server, keys, tables) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Rows and statuses of the same keys in tables that one request asks. None is late."""
        data = np.asarray(keys, "<i8").tobytes()
        binary = {"binary_data": True}
        head = json.dumps({
            "parameters": {"timeout": REQUEST_TIMEOUT_US},
            "inputs": [{"name": table, "datatype": "INT64", "shape": [len(keys)],
                        "parameters": {"binary_data_size": len(data)}} for table in tables],
            "outputs": [{"name": name, "parameters": binary}
                        for table in tables for name in (table, f"{table}.status")]}).encode()
        code, body = self.post(server, f"/v2/models/{MODEL}/infer", head + data * len(tables),
                               len(head))
        self.assertEqual(code, 200, body[:300])
        answers = {}
        end = len(body)
        for table in reversed(tables):
            begin = end - len(keys) * (4 * TABLES[table] + 1)
            status = np.frombuffer(body[end - len(keys):end], np.uint8)
            rows = np.frombuffer(body[begin:end - len(keys)], "<f4")
            self.assertNotIn(DEGRADED, status)
            answers[table] = (rows.reshape(len(keys), TABLES[table]), status)
            end = begin
        return answers

    def ask(self, server, keys, table: str = "user") -> tuple[np.ndarray, np.ndarray]:
        return self.ask_tables(server, keys, [table])[table]

    def expect(self, server, keys, version=1) -> np.ndarray:
        """The rows of both tables are right; the statuses of the first."""
        answers = self.ask_tables(server, keys, ["user", "item"])
        self.assert_stamped("user", keys, answers["user"][0], version)
        self.assert_stamped("item", keys, answers["item"][0])
        return answers["user"][1]

    def await_hits(self, server, keys, version=1, share: float = 1.0) -> np.ndarray:
        """Asks until that share of the keys is answered by level 2."""
        status = np.array([])

        def are_hit() -> bool:
            nonlocal status
            status = self.expect(server, keys, version)
            return (status == HIT_L2).mean() >= share

        await_true(are_hit, lambda: f"hits of level 2: {np.bincount(status)}")
        return status

    def change(self, server, keys, rows=None) -> int:
        """Without rows a deletion. The HTTP status."""
        keys = np.asarray(keys, "<i8")
        inputs = [{"name": "keys", "datatype": "INT64", "shape": [len(keys)],
                   "parameters": {"binary_data_size": keys.nbytes}}]
        data = keys.tobytes()
        if rows is not None:
            rows = np.asarray(rows, "<f4")
            inputs.append({"name": "rows", "datatype": "FP32", "shape": list(rows.shape),
                           "parameters": {"binary_data_size": rows.nbytes}})
            data += rows.tobytes()
        parameters = {"delete": True} if rows is None else {}
        head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
        return self.post(server, f"/v2/hps/tables/{MODEL}/user/rows", head + data, len(head))[0]

    def set_version(self, server, keys, version: int) -> None:
        self.assertEqual(self.change(server, keys, support.stamped("user", keys, version)), 200)

    def metric(self, server, name: str) -> float:
        """The sum of the samples whose name and first labels are these."""
        text = server.get("/metrics", {"Authorization": f"Bearer {TOKEN}"})[1].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith(name) and line[len(name)] in " ,{")

    def level2(self, server) -> dict:
        answer = server.get("/api/overview", {"Authorization": f"Bearer {TOKEN}"})[1]
        return next(level for level in json.loads(answer)["levels"] if level["name"] == "l2")

    def await_up(self, server, up: bool) -> None:
        """Pages are made at most four times a second: what has happened may not be there yet."""
        await_true(lambda: self.level2(server)["up"] == up, f"level 2 with up = {up}")
        await_true(lambda: self.metric(server, 'hps_tier_up{tier="l2"}') == up, f"metric {up}")


class RedisTest(RedisTestCase):

    def test_rows_are_promoted_and_found_again(self) -> None:
        redis = self.redis()
        server = self.start(redis)
        self.assertTrue((self.expect(server, self.all_keys) == HIT_L3).all())
        self.await_hits(server, self.all_keys)
        rows, status = self.ask(server, [ROWS + 7, 3])
        self.assertTrue((rows[0] == -1).all())
        self.assertEqual(status[0], 0, "absent")
        await_true(lambda: self.level2(server)["insertions"] >= len(self.all_keys), "insertions")
        level = self.level2(server)
        self.assertEqual((level["kind"], level["up"]), ("redis", True))
        self.assertEqual(level["nodes"], [{"address": redis.addresses[0], "bypassed": False,
                                           "failures": 0}])
        hits = f'hps_lookup_keys_total{{table="{MODEL}/user",status="hit_l2"}}'
        await_true(lambda: self.metric(server, hits) >= len(self.all_keys), hits)
        self.assertEqual(self.metric(server, "hps_breaker_state"), 0)
        top = subprocess.run([str(HPS), "top", "--server", server.url(""), "--token-file",
                              self.directory / "token", "--count", "1"], capture_output=True,
                             text=True, timeout=WAIT_S, check=False)
        self.assertIn(f"{redis.addresses[0]}  answers", top.stdout + top.stderr)
        server.stop()
        # What a run has written is its own: the next one reads none of it.
        server = self.start(redis)
        self.assertTrue((self.expect(server, self.all_keys) == HIT_L3).all())
        self.await_hits(server, self.all_keys)

    def test_tables_are_preloaded_and_kept_out(self) -> None:
        redis = self.redis()
        server = self.start(redis, level2="preload = 1.0\n",
                            of_tables='[[model.table]]\nname = "item"\nl2_share = 0.0\n')
        self.assertTrue((self.expect(server, self.all_keys) == HIT_L2).all())
        self.assertTrue((self.ask(server, self.all_keys, "item")[1] == HIT_L3).all())
        self.assertEqual(redis.ask(0, "DBSIZE"), b":%d\r\n" % ROWS)

    def test_a_new_import_replaces_the_rows(self) -> None:
        redis = self.redis()
        server = self.start(redis)
        self.await_hits(server, self.all_keys)
        self.import_version(2)
        status, answer = server.get(f"/v2/repository/models/{MODEL}/load",
                                    {"Authorization": f"Bearer {TOKEN}"}, data=b"", method="POST")
        self.assertEqual(status, 200, answer)
        for _ in range(20):
            for table in TABLES:
                self.assert_stamped(table, self.all_keys,
                                    self.ask(server, self.all_keys, table)[0], 2)

    def test_a_server_that_is_killed_costs_only_hits(self) -> None:
        redis = self.redis()
        server = self.start(redis)
        logged = 0
        for _ in range(2):
            self.await_hits(server, self.all_keys)
            redis.kill(0)
            for _ in range(20):
                self.assertTrue((self.expect(server, self.all_keys) == HIT_L3).all())
            logged = self.await_log("lookups bypass it", logged)
            self.await_up(server, False)
            self.assertTrue(self.level2(server)["nodes"][0]["bypassed"])
            self.assertGreater(self.metric(server, 'hps_tier_errors_total{tier="l2"'), 0)
            self.assertEqual(self.metric(server, "hps_breaker_state"), 1)
            self.assertEqual(self.metric(server, 'hps_tier_up{tier="l3"}'), 1)
            self.assertTrue(server.is_ready())
            redis.start(0)
            self.await_hits(server, self.all_keys)
            logged = self.await_log("answers again", logged)
            self.await_up(server, True)

    def test_a_server_that_does_not_answer_is_bypassed(self) -> None:
        redis = self.redis()
        server = self.start(redis, timeout="200ms")
        self.await_hits(server, self.all_keys)
        redis.pause(0)
        for _ in range(20):
            self.expect(server, self.all_keys)
        self.await_log("no answer within 200 ms")
        redis.resume(0)
        self.await_hits(server, self.all_keys)

    def test_a_server_that_is_emptied_fills_again(self) -> None:
        redis = self.redis()
        server = self.start(redis)
        for _ in range(3):
            self.await_hits(server, self.all_keys)
            self.assertEqual(redis.ask(0, "FLUSHALL"), b"+OK\r\n")
            self.expect(server, self.all_keys)

    def test_no_server_at_the_start(self) -> None:
        redis = self.redis()
        redis.kill(0)
        server = self.start(redis, level2="preload = 1.0\n")
        self.assertTrue((self.expect(server, self.all_keys) == HIT_L3).all())
        redis.start(0)
        self.await_hits(server, self.all_keys)

    def test_a_wrong_password_is_said(self) -> None:
        redis = self.redis(settings={"requirepass": "right"})
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text("mistaken\n")
        server = self.start(redis, f'password_file = "{password}"\n')
        self.assertTrue((self.expect(server, self.all_keys) == HIT_L3).all())
        self.await_log(f"redis node {redis.addresses[0]}: the server refuses the connection: "
                       "WRONGPASS")
        self.assertNotIn("mistaken", (self.directory / "hps.log").read_text())
        self.await_up(server, False)
        self.assertGreater(
            self.metric(server, 'hps_tier_errors_total{tier="l2",code="PERMISSION_DENIED"}'), 0)
        password.write_text("right\n")
        self.await_hits(server, self.all_keys)

    def test_a_user_may_do_only_what_is_needed(self) -> None:
        """The rules are those of docs/redis.md."""
        page = (support.ROOT / "docs" / "redis.md").read_text()
        rules = next(line.split() for line in page.splitlines() if "ACL SETUSER" in line)
        rules = [{"PASSWORD": "secret"}.get(rule.lstrip(">"), rule) for rule in rules]
        rules = [">" + rule if rule == "secret" else rule for rule in rules]
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text("secret\n")
        redis = self.redis()
        self.assertEqual(redis.ask(0, *rules[rules.index("ACL"):]), b"+OK\r\n")
        server = self.start(redis, f'user = "hps"\npassword_file = "{password}"\n')
        self.await_hits(server, self.all_keys)
        self.set_version(server, self.all_keys, 2)
        self.expect(server, self.all_keys, 2)
        self.assertEqual(self.change(server, self.all_keys[:3]), 200)
        self.await_hits(server, self.all_keys[3:], 2)
        self.assertEqual(self.metric(server, "hps_redis_failures_total"), 0)

    def test_a_cluster_of_three_masters(self) -> None:
        redis = self.redis(3, cluster=True)
        server = self.start(redis)
        self.await_hits(server, self.all_keys)
        await_true(lambda: sorted(node["address"] for node in self.level2(server)["nodes"])
                   == sorted(redis.addresses), "three nodes")
        self.assertTrue(all(redis.ask(index, "DBSIZE") != b":0\r\n" for index in range(3)))
        redis.kill(1)
        status = self.expect(server, self.all_keys)
        self.set_version(server, self.all_keys, 2)
        status = self.await_hits(server, self.all_keys, 2, share=0.5)
        self.assertIn(HIT_L3, status, "those of the killed one")
        redis.start(1)
        self.await_hits(server, self.all_keys, 2)


class MemoryRedisTest(RedisTestCase):
    """A part in memory that has no room for all rows, before Redis."""

    # Little: see test_memory_is_small.
    LEVEL2 = 'bytes_max = "256KiB"\n'

    def start_both(self, redis: redis_servers.Servers, **keywords) -> support.RunningServer:
        keywords = {"level2": self.LEVEL2} | keywords
        return self.start(redis, kind="memory+redis", **keywords)

    def test_both_parts_answer(self) -> None:
        redis = self.redis()
        server = self.start_both(redis, level2='bytes_max = "64MiB"\n')
        self.await_hits(server, self.all_keys)
        level = self.level2(server)
        self.assertEqual((level["kind"], level["up"]), ("memory+redis", True))
        self.assertEqual(level["nodes"][0]["address"], redis.addresses[0])
        await_true(lambda: self.level2(server)["rows"] >= len(self.all_keys), "rows in memory")
        self.assertEqual(redis.ask(0, "FLUSHALL"), b"+OK\r\n")
        for _ in range(20):  # memory has them all
            self.assertTrue((self.expect(server, self.all_keys) == HIT_L2).all())
        redis.kill(0)
        for _ in range(20):
            self.assertTrue((self.expect(server, self.all_keys) == HIT_L2).all())

    def test_memory_is_small(self) -> None:
        redis = self.redis()
        server = self.start_both(redis)
        self.await_hits(server, self.all_keys)
        rows = f'hps_level_rows{{table="{MODEL}/user",level="l2"}}'
        await_true(lambda: self.metric(server, rows) > 0, "rows in memory")
        self.assertLess(self.metric(server, rows), len(self.all_keys), "memory has no room for all")
        redis.kill(0)
        status = self.expect(server, self.all_keys)
        self.assertEqual(set(status) - {HIT_L2, HIT_L3}, set())
        redis.start(0)
        self.await_hits(server, self.all_keys)

    def test_changes_show_at_once(self) -> None:
        redis = self.redis()
        server = self.start_both(redis)
        for version in range(2, 12):
            self.await_hits(server, self.all_keys, version - 1)
            self.set_version(server, self.all_keys, version)
            self.assertTrue((self.expect(server, self.all_keys, version) == HIT_L2).any())
        self.assertEqual(self.change(server, self.all_keys[:100]), 200)
        rows, status = self.ask(server, self.all_keys[:100])
        self.assertTrue((rows == -1).all() and (status == 0).all(), "deleted")

    def test_changes_that_redis_did_not_hear_of(self) -> None:
        redis = self.redis()
        server = self.start_both(redis, timeout="200ms")
        self.await_hits(server, self.all_keys)
        redis.pause(0)
        self.set_version(server, self.all_keys, 2)
        for _ in range(10):
            self.expect(server, self.all_keys, 2)
        redis.resume(0)
        self.await_hits(server, self.all_keys, 2)
        redis.kill(0)
        self.set_version(server, self.all_keys, 3)
        self.expect(server, self.all_keys, 3)
        redis.start(0)
        self.await_hits(server, self.all_keys, 3)

    def test_preload_fills_redis_beyond_the_memory(self) -> None:
        redis = self.redis()
        server = self.start_both(redis, level2=self.LEVEL2 + "preload = 1.0\n")
        self.assertEqual(redis.ask(0, "DBSIZE"), b":%d\r\n" % (len(TABLES) * ROWS))
        self.assertTrue((self.expect(server, self.all_keys) == HIT_L2).all())


class TlsTest(RedisTestCase):

    def test_rows_travel_by_tls(self) -> None:
        redis = self.redis(tls=True, settings={"tls-auth-clients": "yes"})
        files = {name: redis.directory / file for name, file in (
            ("tls_ca", "ca.pem"), ("tls_certificate", "client.pem"), ("tls_key", "client.key"))}
        more = "tls = true\n" + "".join(f'{name} = "{file}"\n' for name, file in files.items())
        server = self.start(redis, more)
        self.await_hits(server, self.all_keys)
        self.set_version(server, self.all_keys, 2)
        self.await_hits(server, self.all_keys, 2)
        self.await_up(server, True)

    def test_a_server_that_is_not_trusted_is_said(self) -> None:
        redis = self.redis(tls=True)
        ca = self.directory / "ca.pem"
        shutil.copy(redis.directory / "other_ca.pem", ca)
        server = self.start(redis, f'tls = true\ntls_ca = "{ca}"\n')
        self.assertTrue((self.expect(server, self.all_keys) == HIT_L3).all())
        self.await_log(f"redis node {redis.addresses[0]}: TLS: the server's certificate is not "
                       "trusted: self-signed certificate")
        self.await_up(server, False)
        shutil.copy(redis.directory / "ca.pem", ca)
        self.await_hits(server, self.all_keys)
        self.await_up(server, True)


class ChangesTest(RedisTestCase):
    """Rows of this process's level 2 are under names of its own: no other writer can reach them."""

    def test_a_change_shows_at_once(self) -> None:
        server = self.start(self.redis())
        for version in range(2, 12):
            self.await_hits(server, self.all_keys, version - 1)
            self.set_version(server, self.all_keys, version)
            self.assertTrue((self.expect(server, self.all_keys, version) == HIT_L2).any())
        self.assertEqual(self.change(server, self.all_keys[:100]), 200)
        rows, status = self.ask(server, self.all_keys[:100])
        self.assertTrue((rows == -1).all() and (status == 0).all(), "deleted")
        self.set_version(server, self.all_keys, 20)
        self.await_hits(server, self.all_keys, 20)

    def test_the_command_apply(self) -> None:
        server = self.start(self.redis())
        self.await_hits(server, self.all_keys)
        source = self.directory / "changed"
        source.mkdir()
        np.save(source / "keys.npy", self.all_keys)
        np.save(source / "rows.npy", support.stamped("user", self.all_keys, 7))
        done = subprocess.run(
            [str(HPS), "apply", "--server", server.url(""), "--table", f"{MODEL}/user", "--from",
             source, "--token-file", self.directory / "token", "--timeout", f"{WAIT_S}s"],
            capture_output=True, text=True,
            timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect(server, self.all_keys, 7)
        self.await_hits(server, self.all_keys, 7)

    def test_a_change_that_redis_did_not_hear_of(self) -> None:
        """Down, hanging, or back with the rows of before: no old row is answered."""
        redis = self.redis()
        server = self.start(redis, timeout="200ms")
        self.await_hits(server, self.all_keys)
        redis.kill(0)
        self.set_version(server, self.all_keys, 2)
        self.expect(server, self.all_keys, 2)
        redis.start(0)
        self.await_hits(server, self.all_keys, 2)
        redis.pause(0)
        self.set_version(server, self.all_keys, 3)
        redis.resume(0)
        self.await_hits(server, self.all_keys, 3)
        self.assertEqual(redis.ask(0, "SAVE"), b"+OK\r\n")
        self.set_version(server, self.all_keys, 4)
        self.expect(server, self.all_keys, 4)
        redis.kill(0)
        redis.start(0)
        self.assertNotEqual(redis.ask(0, "DBSIZE"), b":0\r\n", "it has the old rows")
        self.expect(server, self.all_keys, 4)
        self.await_hits(server, self.all_keys, 4)

    def test_no_row_goes_back_under_changes_and_faults(self) -> None:
        """A reader never sees a row that is older than the last acknowledged change."""
        redis = self.redis()
        server = self.start(redis, timeout="200ms")
        block = self.all_keys[:200]
        self.await_hits(server, block)
        acknowledged, ending, wrong = [1], threading.Event(), []

        def read() -> None:
            seen = np.full(len(block), 1)
            while not ending.is_set() and not wrong:
                least = acknowledged[0]
                rows, _ = self.ask(server, block)
                versions = (rows[:, 0] // support.STAMP).astype(int)
                whole = [(rows[i] == support.stamped("user", block[i:i + 1], versions[i])[0]).all()
                         for i in range(len(block))]
                if not all(whole):
                    wrong.append("a torn or foreign row")
                if (versions < np.maximum(seen, least)).any():
                    wrong.append(f"a row went back: {versions.min()} after {least}")
                seen = versions

        def keep(task) -> None:
            try:
                task()
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(repr(error))

        readers = [threading.Thread(target=keep, args=(read,)) for _ in range(2)]
        for reader in readers:
            reader.start()
        faults = [number % 6 for number in range(max(6, trials(60)))]
        random.Random(18).shuffle(faults)
        try:
            for version, fault in enumerate(faults, start=2):
                self.set_version(server, block, version)
                acknowledged[0] = version
                if fault == 0:
                    redis.ask(0, "SAVE")
                elif fault == 1:
                    redis.kill(0)
                    redis.start(0)
                elif fault == 2:
                    redis.pause(0)
                    self.set_version(server, block, version)
                    redis.resume(0)
                elif fault == 3:
                    redis.ask(0, "FLUSHALL")
        finally:
            ending.set()
            for reader in readers:
                reader.join()
        self.assertEqual(wrong, [])
        self.await_hits(server, block, 1 + len(faults))


class SettingsTest(RedisTestCase):

    def serve_command(self, text: str, *more) -> subprocess.CompletedProcess:
        self.config = self.directory / "bad.toml"
        self.config.write_text(f'[store]\npath = "store"\n{text}')
        return subprocess.run([str(HPS), "serve", "--config", self.config, *more],
                              capture_output=True, text=True, timeout=WAIT_S, check=False)

    def test_what_is_wrong_is_said(self) -> None:
        redis = '[l2]\nkind = "redis"\n[l2.redis]\n'
        for text, parts in (
                (redis + 'tls_ca = "ca.pem"\n', ("tls_ca", "they need l2.redis.tls = true")),
                (redis + "replica_reads = true\n", ("replica_reads needs l2.redis.cluster",)),
                (redis + 'nodes = ["nowhere"]\n', ("l2.redis.nodes: 'nowhere'", "host:port")),
                (redis + 'nodes = ["a:1", "b:1"]\n', ("2 addresses", "l2.redis.cluster = true"))):
            done = self.serve_command(text)
            self.assertEqual(done.returncode, 2, done.stderr)
            for part in (str(self.config), *parts):
                self.assertIn(part, done.stderr)
        done = self.serve_command(redis + 'password_file = "none"\n')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"l2.redis.password_file = {self.directory}/none", done.stderr)
        secret = self.directory / "secret"
        secret.write_text("secret\n")
        secret.chmod(0o644)
        for name, more in (("password_file", ""),
                           ("tls_key", f'tls = true\ntls_certificate = "{secret}"\n')):
            done = self.serve_command(f'{redis}{more}{name} = "{secret}"\n')
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"[l2.redis] {name}: the mode of '{secret}', 0644, lets every user "
                          "read it", done.stderr)
        done = self.serve_command(redis + 'nodes = ["h:1"]\ntimeout = "7ms"\n', "--print-config")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r'l2\.redis\.nodes = \["h:1"\]  # .*bad.toml:6')
        self.assertRegex(done.stdout, r'l2\.redis\.timeout = "7ms"  # .*bad.toml:7')


if __name__ == "__main__":
    unittest.main()
