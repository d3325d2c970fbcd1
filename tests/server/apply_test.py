"""hps apply, refresh and snapshot: commands that change a running server, and what they say when it
refuses."""

import http.server
import json
import os
import shutil
import subprocess
import threading
import unittest

import numpy as np

import support
from support import MODEL, ROWS, TABLES
from waiting import WAIT_S, await_true

TOKEN = "the-token-of-the-test"
ADMIN = "the-token-of-the-administrator"


class CommandsTest(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        for name, token in (("token", TOKEN), ("admin", ADMIN)):
            (self.directory / name).touch(0o600)
            (self.directory / name).write_text(token + "\n")
        self.security = (f'updates = true\nrepository_control = true\n'
                         f'token_file = "{self.directory}/token"\n')

    def run_hps(self, *arguments, token: str | None = "token") -> subprocess.CompletedProcess:
        if token:
            arguments = (*arguments, "--token-file", self.directory / token)
        return subprocess.run([str(support.HPS), *map(str, arguments)], capture_output=True,
                              text=True, timeout=WAIT_S, check=False)

    def succeed(self, *arguments, **keywords) -> dict:
        done = self.run_hps(*arguments, "--json", **keywords)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return json.loads(done.stdout)

    def fail_with(self, code: str, part: str, *arguments, **keywords) -> None:
        self.assert_failed(self.run_hps(*arguments, **keywords), code, part)

    def assert_failed(self, done: subprocess.CompletedProcess, code: str, part: str) -> None:
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertTrue(done.stderr.startswith(f"hps: {code}: "), done.stderr)
        self.assertIn(part, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def changed(self, name: str, keys, rows) -> str:
        path = self.directory / name
        path.mkdir()
        np.save(path / "keys.npy", np.asarray(keys, np.int64))
        np.save(path / "rows.npy", np.asarray(rows, np.float32))
        return path

    def ask(self, server, table: str, keys) -> tuple[np.ndarray, list]:
        body = json.dumps({
            "inputs": [{"name": table, "datatype": "INT64", "shape": [len(keys)],
                        "data": [int(key) for key in keys]}],
            "outputs": [{"name": table}, {"name": table + ".status"}]}).encode()
        status, answer = server.get(f"/v2/models/{MODEL}/infer",
                                    {"Authorization": f"Bearer {TOKEN}"}, data=body, method="POST")
        self.assertEqual(status, 200, answer)
        outputs = {output["name"]: output["data"] for output in json.loads(answer)["outputs"]}
        rows = np.array(outputs[table], "<f4").reshape(-1, TABLES[table])
        return rows, outputs[f"{table}.status"]

    def apply(self, server, *more) -> tuple:
        return ("apply", "--server", server.url(""), "--table", f"{MODEL}/user", "--timeout",
                f"{WAIT_S}s", *more)

    def test_rows_change_over_the_server_in_pieces(self) -> None:
        server = self.serve_ready(security=self.security)
        count = 900_000  # 36 MB: three changes
        keys = self.random.permutation(count)
        rows = np.repeat(keys[:, None], 8, axis=1).astype(np.float32)
        report = self.succeed(*self.apply(server, "--from", self.changed("big", keys, rows)))
        self.assertEqual((report["table"], report["rows"]), (f"{MODEL}/user", count))
        self.assertGreater(report["seconds"], 0)
        asked = [0, 1, count // 2, count - 1]
        np.testing.assert_array_equal(self.ask(server, "user", asked)[0][:, 0], asked)
        np.save(self.directory / "gone.npy", np.array([1, 2], np.int64))
        report = self.succeed(*self.apply(server, "--from", self.directory / "gone.npy",
                                          "--delete"))
        self.assertEqual(report["rows"], 2)
        self.assertEqual(self.ask(server, "user", [1, 2])[1], [0, 0])
        changes = [table for table in self.inspect()["tables"]
                   if table["name"] == f"{MODEL}/user"][0]["positions"]
        self.assertEqual(changes, [{"partition": 0, "offset": 5, "generation": 0}])

    def inspect(self) -> dict:
        return self.succeed("inspect", "--store", self.directory / "store", token=None)

    def test_what_the_server_refuses_is_said(self) -> None:
        server = self.serve_ready(security=self.security)
        source = self.changed("rows", [1], np.ones((1, 8)))
        narrow = self.changed("narrow", [1], np.ones((1, 7)))
        command = self.apply(server, "--from", source)
        self.fail_with("UNAUTHENTICATED", "401", *command, token=None)
        self.fail_with("INVALID_ARGUMENT", "dim 7", *self.apply(server, "--from", narrow))
        self.fail_with("NOT_FOUND", "usr", "apply", "--server", server.url(""), "--table",
                       f"{MODEL}/usr", "--from", source)
        self.fail_with("FAILED_PRECONDITION", "--server", "apply", "--store",
                       self.directory / "store", "--table", f"{MODEL}/user", "--from", source,
                       token=None)
        self.fail_with("NOT_FOUND", "nosuch", "refresh", "--server", server.url(""), "--model",
                       "nosuch")
        server.stop()
        self.fail_with("UNAVAILABLE", "can't connect", *command)
        server = self.serve_ready(security=self.security.replace("updates = true\n", ""))
        self.fail_with("PERMISSION_DENIED", "403", *self.apply(server, "--from", source))

    def busy_front(self, server, refusals: list[int]) -> tuple[str, list[bytes]]:
        """The address of a front of the server that refuses as many requests before it passes them
        on, and the bodies that it got."""
        bodies: list[bytes] = []

        class Front(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = refusals.pop(0) if refusals else 0, b'{"error": "busy"}'
                if not status:
                    status, answer = server.get(self.path, dict(self.headers), data=bodies[-1],
                                                method="POST")
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_) -> None:
                pass

        front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
        threading.Thread(target=front.serve_forever, daemon=True).start()
        self.addCleanup(front.server_close)
        self.addCleanup(front.shutdown)
        return f"http://127.0.0.1:{front.server_port}", bodies

    def test_a_busy_server_is_asked_again(self) -> None:
        server = self.serve_ready(security=self.security)
        source = self.changed("rows", [1, 2], np.full((2, 8), 0.25))
        url, bodies = self.busy_front(server, [429, 503, 429])
        command = ("apply", "--table", f"{MODEL}/user", "--from", source, "--server")
        self.assertEqual(self.succeed(*command, url, "--timeout", f"{WAIT_S}s")["rows"], 2)
        self.assertEqual(len(bodies), 4)
        self.assertEqual(len(set(bodies)), 1, "the same change each time")
        self.assertEqual(self.ask(server, "user", [1])[0][0, 0], 0.25)
        for status, code in ((429, "RESOURCE_EXHAUSTED"), (503, "UNAVAILABLE")):
            self.ask_until_the_timeout(server, code, status, *command)
            url, bodies = self.busy_front(server, [400])
            self.fail_with("INVALID_ARGUMENT", "400", *command, url)
            self.assertEqual(len(bodies), 1, "what is wrong is not sent again")

    def ask_until_the_timeout(self, server, code: str, status: int, *command) -> None:
        """A command that is paused asks once, or gets no answer in its time: then it is run
        again."""
        def asks_twice() -> subprocess.CompletedProcess | None:
            url, bodies = self.busy_front(server, [status] * 1000)
            done = self.run_hps(*command, url, "--timeout", "400ms")
            in_time = not done.stderr.startswith("hps: DEADLINE_EXCEEDED: ")
            return done if len(bodies) > 1 and in_time else None

        done = await_true(asks_twice, "command that asks twice")
        self.assert_failed(done, code, f"{status}: busy")

    def test_the_administrators_token_is_needed_where_there_is_one(self) -> None:
        server = self.serve_ready(
            security=self.security + f'admin_token_file = "{self.directory}/admin"\n')
        source = self.changed("rows", [1], np.ones((1, 8)))
        for command in (self.apply(server, "--from", source),
                        ("refresh", "--server", server.url(""), "--model", MODEL),
                        ("snapshot", "--server", server.url(""), "--name", "s")):
            self.fail_with("PERMISSION_DENIED", "403", *command)
            self.succeed(*command, token="admin")

    def test_https_is_verified(self) -> None:
        certificate, key = self.directory / "server.pem", self.directory / "server.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-subj", "/CN=hps", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
             key, "-out", certificate], check=True, capture_output=True, timeout=WAIT_S)
        server = self.serve(security=self.security + f'tls_certificate = "{certificate}"\n'
                            f'tls_key = "{key}"\n')
        count = 200_000  # more than the socket takes at once
        source = self.changed("rows", np.arange(count), np.full((count, 8), 7))
        command = self.apply(server, "--from", source)
        self.fail_with("UNAUTHENTICATED", "certificate is not trusted", *command)
        report = self.succeed(*command, "--tls-ca", certificate)
        self.assertEqual(report["rows"], count)

    def test_a_busy_server_is_asked_again(self) -> None:
        """A load of the model holds changes back; the command waits for its end."""
        server = self.serve_ready(security=self.security)
        source = self.changed("rows", [1], np.ones((1, 8)))
        loads = threading.Thread(target=lambda: [
            server.get(f"/v2/repository/models/{MODEL}/load",
                       {"Authorization": f"Bearer {TOKEN}"}, data=b"", method="POST")
            for _ in range(10)])
        loads.start()
        for _ in range(5):
            self.succeed(*self.apply(server, "--from", source))
        loads.join()

    def test_refresh(self) -> None:
        server = self.serve_ready(security=self.security)
        answer = self.succeed("refresh", "--server", server.url(""), "--model", MODEL)
        self.assertEqual(answer["model"], MODEL)

    def test_a_node_begins_from_a_snapshot_made_under_changes(self) -> None:
        """The rows of the copy are those of a prefix of the changes, as its position says."""
        server = self.serve_ready(security=self.security)
        ended = threading.Event()
        done = [0]

        def write() -> None:
            while not ended.is_set():
                step = done[0] + 1
                body = json.dumps({"inputs": [
                    {"name": "keys", "datatype": "INT64", "shape": [1], "data": [step % 40]},
                    {"name": "rows", "datatype": "FP32", "shape": [1, 8], "data": [step] * 8}]})
                status, _ = server.get(f"/v2/hps/tables/{MODEL}/user/rows",
                                       {"Authorization": f"Bearer {TOKEN}"}, data=body.encode(),
                                       method="POST")
                self.assertEqual(status, 200)
                done[0] = step

        writer = threading.Thread(target=write)
        writer.start()
        try:
            await_true(lambda: done[0] >= 60 or not writer.is_alive(), "60 changes")
            self.assertTrue(writer.is_alive())
            before = done[0]
            command = ("snapshot", "--server", server.url(""), "--name", "monday")
            report = self.succeed(*command)
            self.assertEqual(report["name"], "monday")
            self.assertGreater(report["bytes"], ROWS * 8 * 4)
            self.fail_with("FAILED_PRECONDITION", "monday", *command)
            self.fail_with("INVALID_ARGUMENT", "name of a snapshot", *command[:-1], "../x")
        finally:
            ended.set()
            writer.join()
        server.stop()
        store = self.directory / "store"
        copy = self.directory / "copy"
        shutil.copytree(store / "snapshots" / "monday", copy)
        for checked in (copy, store):
            self.succeed("verify", "--store", checked, token=None)
        os.rename(store, self.directory / "old")
        os.rename(copy, store)
        position = [table for table in self.inspect()["tables"]
                    if table["name"] == f"{MODEL}/user"][0]["positions"][0]
        self.assertEqual(position["generation"], 0)
        changes = position["offset"] - 1
        self.assertGreaterEqual(changes, before)
        node = self.serve_ready(security=self.security)
        keys = np.arange(40)
        last = changes - (changes - keys) % 40
        np.testing.assert_array_equal(self.ask(node, "user", keys)[0],
                                      np.repeat(last[:, None], 8, axis=1))
        self.succeed(*self.apply(node, "--from", self.changed("rows", [1], np.ones((1, 8)))))


if __name__ == "__main__":
    unittest.main()
