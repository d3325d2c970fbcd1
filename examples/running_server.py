"""A running `hps serve`, for the demos: start it, ask it over HTTP, stop it.

Needs Python's standard library alone. Rows and keys are bytes, as the protocol sends them.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import signal
import subprocess
import threading
import time

START_S = 120


class RunningServer:
    """`hps serve` with the arguments `arguments`. It is ready when the constructor returns.

    `addresses` has "http", "grpc" and "metrics" as host:port; `address` is that of HTTP. A context
    manager that stops the server.
    """

    def __init__(self, hps: str | pathlib.Path, arguments: list, token: str = "") -> None:
        self._threads = threading.local()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.process = subprocess.Popen([str(hps), "serve", "--json", *map(str, arguments)],
                                        stdout=subprocess.PIPE, text=True)
        try:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the server did not start")
            self.addresses = json.loads(line)
            self.address = self.addresses["http"]
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _await_ready(self) -> None:
        end = time.monotonic() + START_S
        while self.ask("GET", "/v2/health/ready")[0] != http.client.OK:
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"the server is not ready after {START_S} s")
            time.sleep(0.05)

    def ask(self, method: str, path: str, body: bytes = b"",
            json_bytes: int = 0) -> tuple[int, bytes, int]:
        """Status, body, and how many bytes of the body are JSON, if tensors follow it.

        json_bytes: the same of the request's body.
        """
        connection = self._connection()
        length = {"Inference-Header-Content-Length": str(json_bytes)} if json_bytes else {}
        try:
            connection.request(method, path, body, self._headers | length)
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()  # the next call connects again
            raise
        return (response.status, answer,
                int(response.getheader("Inference-Header-Content-Length") or 0))

    def _connection(self) -> http.client.HTTPConnection:
        """The calling thread's own."""
        if not hasattr(self._threads, "connection"):
            self._threads.connection = http.client.HTTPConnection(self.address, timeout=START_S)
        return self._threads.connection

    def infer(self, model: str, inputs: list[tuple], outputs: list[str]) -> bytes:
        """The outputs' bytes, one after the other.

        inputs: name, datatype ("INT64", ...), shape and bytes of each.
        """
        wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
        status, answer, length = self._send(f"/v2/models/{model}/infer", inputs,
                                            {"outputs": wanted})
        if status != http.client.OK:
            raise RuntimeError(f"HTTP {status}: {answer.decode(errors='replace')}")
        return answer[length:]

    def lookup(self, model: str, table: str, keys: bytes) -> bytes:
        """Rows of int64 keys."""
        return self.infer(model, [(table, "INT64", [len(keys) // 8], keys)], [table])

    def change(self, model: str, table: str, keys: bytes, rows: bytes) -> None:
        """Sets float32 rows of int64 keys. Waits while the server is busy."""
        count = len(keys) // 8
        inputs = [("keys", "INT64", [count], keys),
                  ("rows", "FP32", [count, len(rows) // count // 4], rows)]
        path = f"/v2/hps/tables/{model}/{table}/rows"
        while (found := self._send(path, inputs, {}))[0] == http.client.TOO_MANY_REQUESTS:
            time.sleep(0.05)
        if found[0] != http.client.OK:
            raise RuntimeError(f"a change of rows: HTTP {found[0]}: {found[1][:300]!r}")

    def _send(self, path: str, inputs: list[tuple], more: dict) -> tuple[int, bytes, int]:
        described = [{"name": name, "datatype": datatype, "shape": list(shape),
                      "parameters": {"binary_data_size": len(data)}}
                     for name, datatype, shape, data in inputs]
        head = json.dumps({"inputs": described, **more}).encode()
        return self.ask("POST", path, head + b"".join(data for *_, data in inputs), len(head))

    def overview(self) -> dict:
        """What the dashboard shows."""
        status, answer, _ = self.ask("GET", "/api/overview")
        if status != http.client.OK:
            raise RuntimeError(f"HTTP {status}: {answer.decode(errors='replace')}")
        return json.loads(answer)

    def stop(self) -> int:
        """Drains the server. Returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=START_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
