"""A server that is drained, reloaded and rotated while requests come in."""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import numpy as np

import support
from load import Load, LoadTestCase
from support import MODEL
from waiting import WAIT_S, await_true, trials

TOKEN = "a-token-of-this-test"
CONTROL = "repository_control = true"
GROWTH_MAX = 8 << 20
LOADS = trials(100)


needs_grpc = unittest.skipUnless(support.has_grpc(), "this build has no gRPC")


class DrainTest(LoadTestCase):

    def test_drain_under_load_answers_what_it_accepted(self) -> None:
        for _ in range(3):
            server = self.serve_ready()
            with self.load(server) as load:
                load.await_ok(200)
                begun = time.monotonic()
                self.assertEqual(server.stop(), 0)  # long before its time for a drain is over
            self.assertEqual(load.wrong, [])
            for answer in load.failed():
                self.assertGreaterEqual(answer.ended, begun, answer)
                # Refused with a reason, or a connection that had nothing of an answer.
                self.assertIn(answer.status, (0, 503), answer)
                self.assertFalse(answer.cut_off, answer)


@needs_grpc
class GrpcDrainTest(DrainTest):
    protocol = "grpc"


def can_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], check=False,
                          capture_output=True).returncode == 0


@unittest.skipUnless(can_mount(), "no rights to mount a store read-only")
class ReadOnlyFileSystemTest(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        store = self.directory / "store"
        self.program = self.directory / "hps_on_read_only_store"
        self.program.write_text(
            "#!/bin/sh\nexec unshare --mount sh -ec '"
            f"mount --bind {store} {store}; mount -o remount,ro,bind {store}; "
            f"exec {support.HPS} \"$@\"' sh \"$@\"\n")
        self.program.chmod(0o755)

    def run_hps(self, *arguments) -> subprocess.CompletedProcess:
        return subprocess.run([str(self.program), *map(str, arguments)], check=False, text=True,
                              capture_output=True, timeout=WAIT_S,
                              env=os.environ | {"HPS_TOKEN": TOKEN})

    def infer(self, server) -> tuple[int, bytes]:
        body = {"inputs": [{"name": "user", "datatype": "INT64", "shape": [2],
                            "data": [7, support.ROWS]}]}
        return server.get(f"/v2/models/{MODEL}/infer", data=json.dumps(body).encode(),
                          method="POST")

    def test_a_store_is_served_and_read(self) -> None:
        servers = []
        for _ in range(2):  # two servers at once: no lock is taken
            servers.append(self.serve_ready(program=self.program))
            status, answer = self.infer(servers[-1])
            self.assertEqual(status, 200, answer)
            rows = json.loads(answer)["outputs"][0]["data"]
            self.assertEqual(rows, [*support.stamped("user", np.array([7]))[0], *[-1.0] * 8])
        overview = servers[0].overview()
        self.assertEqual(overview["problems"], [])
        self.await_log("its file system is mounted read-only: it is served read-only")
        store = self.directory / "store"
        for command in (["lookup", "--store", store, "--table", f"{MODEL}/user", "--keys", "7"],
                        ["inspect", "--store", store],
                        ["export", "--store", store, "--table", f"{MODEL}/user", "--to",
                         self.directory / "exported", "--format", "npy"]):
            done = self.run_hps(*command)
            self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_hps("drop", "--store", store, "--model", MODEL)
        self.assertIn("PERMISSION_DENIED", done.stderr)
        for server in servers:
            self.assertEqual(server.stop(), 0)

    def test_a_setting_that_writes_is_named(self) -> None:
        for security, sections, setting in (
                ("updates = true", "", "[server.security] updates"),
                ("", '[update]\nbrokers = ["127.0.0.1:1"]', "[update] brokers")):
            config = self.directory / "hps.toml"
            config.write_text(f'[store]\npath = "{self.directory}/store"\n[server]\n'
                              'http = "127.0.0.1:0"\ngrpc = ""\nmetrics = ""\n'
                              f"[server.security]\n{security}\n{sections}\n")
            done = self.run_hps("serve", "--config", config)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("PERMISSION_DENIED", done.stderr)
            self.assertIn(f"read-only, and {setting} changes rows", done.stderr)


class ConnectionDrainTest(support.ServerTestCase):

    def test_a_request_under_way_is_answered(self) -> None:
        server = self.serve_ready()
        body = json.dumps({"inputs": [{"name": "user", "shape": [1], "datatype": "INT64",
                                       "data": [1]}]}).encode()
        host, port = server.http.split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.sendall(f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: localhost\r\n"
                               f"Content-Length: {len(body)}\r\n"
                               "Expect: 100-continue\r\n\r\n".encode())
            # The server says that it has this much of it, and not more, when it is told to end.
            self.assertEqual(connection.recv(65536), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(body[:10])
            server.process.send_signal(signal.SIGTERM)
            server.await_sign(lambda: "draining" in server.output, "drain")
            # The metrics tell of it, on a new connection.
            with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=WAIT_S) as page:
                self.assertIn("\nhps_draining 1\n", page.read().decode())
            with self.assertRaises(urllib.error.HTTPError) as ready:
                urllib.request.urlopen(f"http://{server.metrics}/v2/health/ready", timeout=WAIT_S)
            self.assertEqual(ready.exception.code, 503)
            connection.sendall(body[10:])
            answer = b""
            while part := connection.recv(65536):
                answer += part
        # Answered, or refused for the drain: never cut off.
        self.assertRegex(answer.split(b"\r\n")[0].decode(), r"HTTP/1\.1 (200|503)")
        self.assertEqual(server.stop(), 0)

    def test_idle_connections_do_not_hold_it_up(self) -> None:
        server = self.serve_ready()
        host, port = server.http.split(":")
        idle = [socket.create_connection((host, int(port)), timeout=WAIT_S) for _ in range(50)]
        # Each has had an answer, so the server has accepted it: what still waits in the system's
        # queue is reset with the listener.
        for connection in idle:
            connection.sendall(b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(65536)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
        self.assertEqual(server.stop(), 0)  # long before its time for a drain is over
        for connection in idle:
            self.assertEqual(connection.recv(1), b"")
            connection.close()


class FewFilesTest(support.ServerTestCase):
    """Connections of clients, however many, leave files for the store and the metrics port."""

    MOST = "hps_http_connections_max"

    def samples(self, server) -> dict[str, str]:
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=WAIT_S) as page:
            return dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines())

    def hold(self, address: str, count: int) -> None:
        host, port = address.split(":")
        for _ in range(count):
            held = socket.create_connection((host, int(port)), timeout=WAIT_S)
            self.addCleanup(held.close)
            self.held.append(held)

    def test_idle_connections_take_no_place_of_the_metrics_port(self) -> None:
        self.held: list[socket.socket] = []
        limited = self.directory / "limited"
        limited.write_text(f'#!/bin/sh\nulimit -n 64\nexec "{support.HPS}" "$@"\n')
        limited.chmod(0o700)
        server = self.serve_ready(program=limited)
        most = int(self.samples(server)[self.MOST])
        self.assertGreaterEqual(most, 2)
        self.await_log(f"warning [server] connections_max = 4096 is lowered to {most}: this "
                       "process may open 64 files; raise the limit (LimitNOFILE, ulimit -n)")
        self.hold(server.http, 100)
        if server.grpc:
            self.hold(server.grpc, 100)

        def refused() -> int:
            return int(self.samples(server)['hps_requests_refused_total{reason="connections"}'])

        await_true(lambda: refused() >= len(self.held) - 2 * most, "refused connections")
        self.assertEqual(int(self.samples(server)["hps_http_connections"]), most)
        # The last that came is told so, and probes are answered on the metrics port.
        self.assertIn(b"HTTP/1.1 503 ", self.held[99].recv(4096))
        with urllib.request.urlopen(f"http://{server.metrics}/v2/health/ready",
                                    timeout=WAIT_S) as ready:
            self.assertEqual(ready.status, 200)
        # Those who ask it too often refuse each other alone.
        self.hold(server.metrics, 100)
        for held in self.held:
            held.close()
        server.await_ready()
        self.assertNotIn("no file or memory is left", (self.directory / "hps.log").read_text())
        self.assertEqual(server.stop(), 0)


class ReloadTest(LoadTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.token = {"Authorization": f"Bearer {TOKEN}"}
        # A cache that is soon full: it keeps blocks of versions that are gone.
        self.server = self.serve_ready(security=CONTROL, environment={"HPS_TOKEN": TOKEN},
                                       cache_bytes="1MiB")

    def try_control(self, action: str) -> str:
        """What the server says against it; empty: it is done."""
        if self.protocol == "grpc":
            client = importlib.import_module("tritonclient.grpc")
            errors = importlib.import_module("tritonclient.utils")
            with client.InferenceServerClient(self.server.grpc) as connection:
                headers = {name.lower(): value for name, value in self.token.items()}
                try:
                    getattr(connection, f"{action}_model")(MODEL, headers=headers)
                except errors.InferenceServerException as error:
                    return str(error)
            return ""
        status, body = self.server.get(f"/v2/repository/models/{MODEL}/{action}", self.token,
                                       data=b"", method="POST")
        return "" if status == 200 else f"[{status}] {body.decode()}"

    def control(self, action: str) -> None:
        self.assertEqual(self.try_control(action), "")

    @contextlib.contextmanager
    def memory_returns(self, load: Load):
        """What happens in it leaves the server no larger, once what was replaced is given back."""
        load.await_ok(500)
        before = self.server.memory()
        yield
        await_true(lambda: self.server.memory() < before + GROWTH_MAX,
                   lambda: f"return to {before} bytes, from {self.server.memory()}")

    def load_versions(self, load: Load, versions: range) -> None:
        for version in versions:
            load.await_ok(30)
            self.assertTrue(self.import_version(version).get("staged"))
            self.control("load")

    def test_new_versions_under_load_fail_no_request(self) -> None:
        with self.load(self.server, headers=self.token) as load:
            self.load_versions(load, range(2, 7))
            with self.memory_returns(load):
                self.load_versions(load, range(7, 7 + LOADS))
            load.await_ok(30)
        self.assertEqual(load.wrong, [])
        self.assertEqual(load.failed(), [])
        for answers in load.answers:
            versions = [answer.version for answer in answers]
            self.assertEqual(versions, sorted(versions), "a connection saw an older version")
        self.assertEqual(max(answer.version for answer in load.all()), 6 + LOADS)

    def unload_and_load(self, load: Load, count: int, absent: list) -> None:
        for _ in range(count):
            load.await_ok(30)
            begun = time.monotonic()
            self.control("unload")
            self.control("load")
            absent.append((begun, time.monotonic()))

    def test_unload_and_load_under_load(self) -> None:
        absent = []
        with self.load(self.server, headers=self.token) as load:
            self.unload_and_load(load, 5, absent)
            with self.memory_returns(load):
                self.unload_and_load(load, LOADS, absent)
        self.assertEqual(load.wrong, [])
        for answer in load.failed():
            self.assertIn(answer.status, (404, 503), answer)
            self.assertTrue(any(begin <= answer.ended and answer.begun <= end
                                for begin, end in absent), answer)

    def test_loading_in_vain_changes_nothing(self) -> None:
        with self.load(self.server, headers=self.token) as load, self.memory_returns(load):
            for _ in range(8):
                load.await_ok(5)
                self.control("load")
        self.assertEqual(load.wrong + load.failed(), [])

    def test_what_can_not_be_loaded_changes_nothing(self) -> None:
        with self.load(self.server, headers=self.token) as load, self.memory_returns(load):
            for version in range(2, 9):
                load.await_ok(5)
                self.assertTrue(self.import_version(version).get("staged"))
                (manifest,) = self.directory.glob("store/staging/*/manifest")
                damaged = bytearray(manifest.read_bytes())
                damaged[len(damaged) // 2] ^= 0xFF
                manifest.write_bytes(damaged)
                told = self.try_control("load")
                self.assertRegex(told, r"\[(409|StatusCode.FAILED_PRECONDITION)\]")
                self.assertIn(f"model '{MODEL}'", told)
                self.assertNotIn(str(self.directory), told)
                self.control("load")  # there is nothing that is to be loaded any more
        self.assertEqual(load.wrong + load.failed(), [])
        self.assertEqual({answer.version for answer in load.all()}, {1})
        self.assertEqual(self.server.stop(), 0)  # and the log is whole
        log = (self.directory / "hps.log").read_text(encoding="utf-8")
        self.assertEqual(log.count("manifest is damaged"), 7)


@needs_grpc
class GrpcReloadTest(ReloadTest):
    protocol = "grpc"


class RotationTest(support.ServerTestCase):

    def test_sighup_opens_the_log_anew(self) -> None:
        server = self.serve_ready()
        log, moved = self.directory / "hps.log", self.directory / "hps.log.1"
        self.assertTrue(log.exists())
        os.rename(log, moved)
        server.process.send_signal(signal.SIGHUP)
        await_true(log.exists, "new log")
        self.assertTrue(server.is_ready())
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
