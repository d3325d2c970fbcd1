"""`hps serve` as a process: what it prints, its signals, kill -9, what it refuses."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import threading
import time
import unittest

import numpy as np

import support
from waiting import await_true

ROWS = 2000
DIM = 8
LOOPBACK = "127.0.0.1:0"


class ServeProcess:
    """A server on a port that the system chose."""

    def __init__(self, *arguments, address: str = LOOPBACK) -> None:
        self.process = subprocess.Popen(
            [*support.ENDS_WITH_US, str(support.HPS), "serve", "--http", address, "--grpc", "",
             "--metrics", "", *map(str, arguments), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.started = json.loads(line) if line else {}
        self.address = self.started.get("http", "")

    def connect(self) -> http.client.HTTPConnection:
        host, _, port = self.address.rpartition(":")
        return http.client.HTTPConnection(host, int(port), timeout=support.TIMEOUT_S)

    def get(self, path: str) -> int:
        connection = self.connect()
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def await_ready(self) -> None:
        await_true(lambda: self.get("/v2/health/ready") == 200, "ready server")

    def refuses(self) -> bool:
        with contextlib.closing(self.connect()) as connection:
            try:
                connection.connect()
            except OSError:
                return True
        return False

    drains = False

    def begin_drain(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.drains = True

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and stderr. A second signal would end a drain at once."""
        if not self.drains and self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=support.TIMEOUT_S)
        return self.process.returncode, errors


def ask(connection: http.client.HTTPConnection, keys: np.ndarray) -> np.ndarray:
    """Rows of m/t by the binary tensor extension."""
    data = keys.astype("<i8").tobytes()
    head = json.dumps({
        "inputs": [{"name": "t", "datatype": "INT64", "shape": [len(keys)],
                    "parameters": {"binary_data_size": len(data)}}],
        "outputs": [{"name": "t", "parameters": {"binary_data": True}}]}).encode()
    connection.request("POST", "/v2/models/m/infer", head + data,
                       {"Inference-Header-Content-Length": str(len(head))})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise ConnectionError(f"{response.status}: {body!r}")
    return np.frombuffer(body[int(response.getheader("Inference-Header-Content-Length")):],
                         dtype="<f4").reshape(len(keys), DIM)


class ServeTest(support.CommandTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.rows = self.random_rows(ROWS, DIM)
        source = support.write_npy(self.directory / "t", np.arange(ROWS), self.rows)
        self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        self.config = self.directory / "hps.toml"
        self.configure("")

    def configure(self, more: str) -> None:
        """Of `serve`. Nothing is late, and no drain is cut short, because a machine is busy."""
        self.config.write_text(f"[store]\npath = \"{self.store}\"\n[lookup]\ntimeout = \"1min\"\n"
                               "[server]\ndrain_timeout = \"10min\"\nbody_timeout = \"10min\"\n"
                               f"{more}")

    def serve(self, *arguments, **options) -> ServeProcess:
        server = ServeProcess(*(arguments or ("--config", self.config)), **options)
        self.addCleanup(server.process.stdout.close)
        self.addCleanup(server.end, signal.SIGKILL)
        self.assertTrue(server.address, "it did not start")
        return server

    def expect_answer(self, connection: http.client.HTTPConnection) -> None:
        keys = self.random.integers(0, ROWS, 100)
        np.testing.assert_array_equal(ask(connection, keys), self.rows[keys])

    def test_it_serves_until_sigterm_and_ends_with_0(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            self.assertIn("server.http = \"127.0.0.1:0\"  # --http",
                          server.started["configuration"])
            server.await_ready()
            self.assertEqual(server.get("/v2/health/live"), 200)
            connection = server.connect()  # stays open, idle
            self.expect_answer(connection)
            # Idle connections close at once, long before its time for a drain is over.
            self.assertEqual(server.end(number), (0, ""))
            connection.close()

    def test_a_request_that_has_begun_is_answered_while_it_drains(self) -> None:
        server = self.serve()
        server.await_ready()
        connection = server.connect()
        self.expect_answer(connection)
        keys = np.arange(3)
        data = keys.astype("<i8").tobytes()
        head = json.dumps({"inputs": [{"name": "t", "datatype": "INT64", "shape": [3],
                                       "parameters": {"binary_data_size": len(data)}}]}).encode()
        connection.putrequest("POST", "/v2/models/m/infer")
        connection.putheader("Inference-Header-Content-Length", str(len(head)))
        connection.putheader("Content-Length", str(len(head) + len(data)))
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        # So the server says that it has seen the beginning.
        self.assertEqual(connection.sock.recv(65536), b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.send(head)
        server.begin_drain()
        await_true(server.refuses, "drain that refuses connections")
        connection.send(data)
        response = connection.getresponse()
        answer = json.loads(response.read())
        self.assertEqual(response.status, 200, answer)
        np.testing.assert_allclose(np.array(answer["outputs"][0]["data"]).reshape(3, DIM),
                                   self.rows[:3])
        self.assertEqual(server.end()[0], 0)

    def test_text_says_where_and_when(self) -> None:
        process = subprocess.Popen(
            [*support.ENDS_WITH_US, str(support.HPS), "serve", "--store", str(self.store), "--http",
             LOOPBACK, "--grpc", "", "--metrics", LOOPBACK], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        lines = []
        while not (lines and lines[-1].startswith("ready after")):
            lines.append(process.stdout.readline())
            self.assertTrue(lines[-1], lines)
        text = "".join(lines)
        self.assertIn("l2.kind = \"memory\"  # default", text)
        self.assertRegex(text, r"\nhttp     http://127\.0\.0\.1:\d+/\n")
        self.assertRegex(text, r"\nmetrics  http://127\.0\.0\.1:\d+/metrics\n")
        self.assertRegex(text, r"ready after .* 1 model \(the store was open and recovered after")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(support.TIMEOUT_S), 0)

    def test_after_kill_9_it_starts_again_and_answers_right(self) -> None:
        """A client sees errors only while the server is down; every answer is right."""
        port = support.hold_port(self)
        server = self.serve(address=port)
        server.await_ready()
        stop = threading.Event()
        failures, wrong, answered = [], [], [0]

        def client() -> None:
            keys = np.arange(0, ROWS, 7)
            while not stop.is_set():
                host, _, number = port.rpartition(":")
                connection = http.client.HTTPConnection(host, int(number),
                                                        timeout=support.TIMEOUT_S)
                try:
                    while not stop.is_set():
                        if not np.array_equal(ask(connection, keys), self.rows[keys]):
                            wrong.append(answered[0])
                        answered[0] += 1
                except (OSError, http.client.HTTPException) as error:
                    failures.append(error)
                    time.sleep(0.01)
                finally:
                    connection.close()

        thread = threading.Thread(target=client)
        thread.start()
        try:
            for _ in range(3):
                self.await_more(answered)
                server.end(signal.SIGKILL)
                server = self.serve(address=port)
                server.await_ready()
                down = len(failures)
                self.await_more(answered)
                self.assertLessEqual(len(failures) - down, 1, "it was up again")
        finally:
            stop.set()
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(server.end()[0], 0)

    def await_more(self, answered: list) -> None:
        count = answered[0] + 5
        await_true(lambda: answered[0] >= count, "5 more answers", pause_s=0.005)

    def test_what_it_refuses(self) -> None:
        server = self.serve()
        self.fail_with(1, "UNAVAILABLE", [self.store], "serve", "--store", self.store, "--http",
                       LOOPBACK, "--grpc", "", "--metrics", "")
        other = self.directory / "other"
        source = support.write_npy(self.directory / "u", np.arange(5), self.random_rows(5, 2))
        self.succeed("import", "--store", other, "--table", "n/u", "--from", source)
        self.fail_with(1, "UNAVAILABLE", [server.address, "in use"], "serve", "--store", other,
                       "--http", server.address, "--grpc", "", "--metrics", "")
        self.fail_with(1, "NOT_FOUND", ["none"], "serve", "--store", self.directory / "none")
        self.fail_with(2, "INVALID_ARGUMENT", ["server.http", "host:port"], "serve", "--store",
                       other, "--http", "nowhere")
        config = self.directory / "other.toml"
        config.write_text(f"[store]\npath = \"{other}\"\n[server]\nhttp = \"\"\ngrpc = \"\"\n")
        self.fail_with(2, "INVALID_ARGUMENT", [f"server.http ({config}:4)", "nothing to serve"],
                       "serve", "--config", config)
        config.write_text(f"[store]\npath = \"{other}\"\n[server.security]\n"
                          "repository_control = true\n")
        self.fail_with(2, "INVALID_ARGUMENT", ["needs a token"], "serve", "--config", config,
                       "--http", LOOPBACK, "--grpc", "", "--metrics", "")
        config.write_text(f"[store]\npath = \"{other}\"\n[[model]]\nname = \"nn\"\n")
        self.fail_with(1, "NOT_FOUND", ["'nn'", "'n'"], "serve", "--config", config, "--http",
                       LOOPBACK, "--grpc", "", "--metrics", "")

    def test_others_are_warned_of(self) -> None:
        server = self.serve(address="0.0.0.0:0")
        status, errors = server.end()
        self.assertEqual(status, 0)
        self.assertIn("without TLS and without a token", errors)

    def test_sighup_opens_the_log_anew(self) -> None:
        log = self.directory / "hps.log"
        self.configure(f"[log]\nlevel = \"info\"\nformat = \"json\"\nfile = \"{log}\"\n")
        server = self.serve()
        server.await_ready()
        await_true(lambda: "ready after" in log.read_text(), "readiness in the log")
        for line in log.read_text().splitlines():
            json.loads(line)
        log.rename(self.directory / "hps.log.1")
        server.process.send_signal(signal.SIGHUP)
        await_true(log.exists, "new log")
        self.assertEqual(server.end(), (0, ""))

    def test_a_log_that_is_no_file_is_refused(self) -> None:
        log = self.directory / "hps.log"
        self.configure(f"[log]\nlevel = \"info\"\nfile = \"{log}\"\n")
        os.mkfifo(log)  # nobody reads it: who waited for that would hang
        refused = ServeProcess("--config", self.config)
        _, errors = refused.process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual(refused.process.returncode, 1)
        wrong = f"INVALID_ARGUMENT: log: '{log}': expected a regular file, found something else"
        self.assertTrue(errors.startswith(f"hps: {wrong}"), errors)
        log.unlink()
        server = self.serve()
        server.await_ready()
        log.rename(self.directory / "hps.log.1")
        os.mkfifo(log)
        server.process.send_signal(signal.SIGHUP)
        told = server.process.stderr.readline()
        self.assertTrue(told.startswith(f"hps: log: {wrong}"), told)
        server.await_ready()
        self.assertEqual(server.end(), (0, ""))
        self.assertIn("draining", (self.directory / "hps.log.1").read_text())

    def test_load_takes_what_was_imported_beside_it(self) -> None:
        token = self.directory / "token"
        token.touch(0o600)
        token.write_text("secret-of-the-test\n")
        self.configure(f"[server.security]\nrepository_control = true\n"
                       f"token_file = \"{token}\"\n")
        server = self.serve()
        server.await_ready()
        self.assertNotIn("secret-of-the-test", server.started["configuration"])
        newer = self.random_rows(ROWS, DIM)
        source = support.write_npy(self.directory / "t2", np.arange(ROWS), newer)
        report = self.succeed("import", "--store", self.store, "--table", "m/t", "--from", source)
        self.assertTrue(report["staged"])
        connection = server.connect()
        connection.request("POST", "/v2/repository/models/m/load", b"{}")
        self.assertEqual((response := connection.getresponse()).status, 401, response.read())
        response.read()
        headers = {"Authorization": "Bearer secret-of-the-test"}
        connection.request("POST", "/v2/repository/models/m/load", b"{}", headers)
        response = connection.getresponse()
        self.assertEqual((response.status, response.read()), (200, b"{}"))
        body = json.dumps({"inputs": [{"name": "t", "datatype": "INT64", "shape": [1],
                                       "data": [5]}]})
        connection.request("POST", "/v2/models/m/infer", body, headers)
        answer = json.loads(connection.getresponse().read())
        self.assertEqual(answer["model_version"], "2")
        np.testing.assert_allclose(answer["outputs"][0]["data"], newer[5])
        connection.close()
        self.assertEqual(server.end(), (0, ""))


if __name__ == "__main__":
    unittest.main()
