"""A trained model in `hps serve`: import, start, ask, stop."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np

import hps.train as ht

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import running_server  # noqa: E402 pylint: disable=wrong-import-position


class ServedModel(running_server.RunningServer):
    """Imports the directory `trained` into a new store and serves it."""

    def __init__(self, hps: pathlib.Path, trained: pathlib.Path, work: pathlib.Path, name: str):
        self.name = name
        store = work / "store"
        subprocess.run([str(hps), "import", "--store", str(store), "--model", name, "--from",
                        str(trained)], check=True, timeout=running_server.START_S)
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
        super().__init__(hps, ["--config", config])

    def rows(self, table: str, keys: np.ndarray) -> np.ndarray:
        """Rows [n, dim]."""
        found = self.lookup(self.name, table, keys.astype(np.int64).tobytes())
        return np.frombuffer(found, np.float32).reshape(len(keys), -1).copy()

    def target(self) -> ht.ServerTarget:
        """Where a trainer publishes its changes."""
        return ht.ServerTarget(f"http://{self.address}", self.name, token="demo")
