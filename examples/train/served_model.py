"""A trained model in `hps serve`: import, start, ask, stop."""

from __future__ import annotations

import http.client
import json
import pathlib
import signal
import subprocess
import time

import numpy as np

import hps.train as ht

START_S = 60


class ServedModel:
    """Imports the directory `trained` into a new store and serves it."""

    def __init__(self, hps: pathlib.Path, trained: pathlib.Path, work: pathlib.Path, name: str):
        self.name = name
        store = work / "store"
        subprocess.run([str(hps), "import", "--store", str(store), "--model", name, "--from",
                        str(trained)], check=True, timeout=START_S)
        token = work / "token"
        token.write_text("demo")
        token.chmod(0o600)
        config = work / "hps.toml"
        config.write_text(f"""
[store]
path = "{store}"
[server]
http = "127.0.0.1:0"
grpc = ""
metrics = ""
[server.security]
updates = true
admin_token_file = "{token}"
""")
        self.process = subprocess.Popen([str(hps), "serve", "--config", str(config), "--json"],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server did not start")
        self.address = json.loads(line)["http"]
        self.connection = self._connect()

    def __enter__(self) -> ServedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _connect(self) -> http.client.HTTPConnection:
        host, _, port = self.address.rpartition(":")
        end = time.monotonic() + START_S
        while True:
            connection = http.client.HTTPConnection(host, int(port), timeout=START_S)
            connection.request("GET", "/v2/health/ready")
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                return connection
            if time.monotonic() > end:
                raise RuntimeError(f"the server is not ready after {START_S} s")
            time.sleep(0.05)

    def lookup(self, table: str, keys: np.ndarray) -> np.ndarray:
        """Rows [n, dim]."""
        head = json.dumps({
            "inputs": [{"name": table, "datatype": "INT64", "shape": [len(keys)],
                        "parameters": {"binary_data_size": keys.nbytes}}],
            "outputs": [{"name": table, "parameters": {"binary_data": True}}]}).encode()
        self.connection.request("POST", f"/v2/models/{self.name}/infer", head + keys.tobytes(),
                                {"Inference-Header-Content-Length": str(len(head))})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {answer.decode(errors='replace')}")
        rows = answer[int(response.getheader("Inference-Header-Content-Length")):]
        return np.frombuffer(rows, np.float32).reshape(len(keys), -1).copy()

    def overview(self) -> dict:
        """What the dashboard shows."""
        self.connection.request("GET", "/api/overview")
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {answer.decode(errors='replace')}")
        return json.loads(answer)

    def target(self) -> ht.ServerTarget:
        """Where a trainer publishes its changes."""
        return ht.ServerTarget(f"http://{self.address}", self.name, token="demo")

    def stop(self) -> int:
        self.connection.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=START_S)
