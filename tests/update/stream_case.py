"""What the tests of the update stream share: a Kafka broker, `hps publish`, a server that reads the
stream, and what it must answer.

The verifier is a plain dictionary of what was published last for each key: the server must come to
answer exactly that, whatever happens on the way.
"""

import json
import pathlib
import subprocess
import sys
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
sys.path.insert(0, str(ROOT / "tools" / "kafka"))
sys.path.insert(0, str(ROOT / "tools" / "redis"))
import brokers as kafka  # noqa: E402
import servers as redis_servers  # noqa: E402
import support  # noqa: E402
from support import HPS, MODEL, TABLES, is_built_with  # noqa: E402
from waiting import WAIT_S, await_true  # noqa: E402

TABLE = "user"
DIM = TABLES[TABLE]
TOPIC = f"hps_et.{MODEL}.{TABLE}"
PARTITIONS = 3


@unittest.skipUnless(is_built_with("KAFKA"), "this build has no Kafka client")
class StreamTestCase(support.ServerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.published: dict[int, float] = {}
        self.headers: dict[str, str] = {}
        self.count = 0

    def start_brokers(self, *arguments, **keywords) -> None:
        self.brokers = kafka.Brokers(*arguments, **keywords)
        self.addCleanup(self.brokers.close)

    def update_section(self, more: str = "", brokers: str = "") -> str:
        addresses = json.dumps((brokers or self.brokers.bootstrap).split(","))
        return f'[update]\nbrokers = {addresses}\nrefresh_interval = "20ms"\n{more}\n'

    def start(self, more: str = "", **keywords) -> support.RunningServer:
        return self.serve_ready(sections=self.update_section(more), **keywords)

    def write(self, keys: np.ndarray, value: float) -> pathlib.Path:
        self.count += 1
        source = self.directory / f"change{self.count}"
        source.mkdir()
        np.save(source / "keys.npy", keys)
        np.save(source / "rows.npy", np.full((len(keys), DIM), value, dtype=np.float32))
        return source

    def publish(self, keys: np.ndarray, value: float | None, *arguments) -> dict:
        """Returns the command's report. A value of None deletes the keys."""
        source = self.write(keys, value or 0)
        if value is None:
            arguments = (*arguments, "--delete")
            source = source / "keys.npy"
        done = subprocess.run(
            [str(HPS), "publish", "--brokers", self.brokers.bootstrap, "--table",
             f"{MODEL}/{TABLE}", "--from", str(source), "--json", *map(str, arguments)],
            capture_output=True, text=True, timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for key in keys.tolist():
            self.published[key] = -1.0 if value is None else value  # -1: the default row
        return json.loads(done.stdout)

    def lookup(self, server: support.RunningServer, keys: np.ndarray) -> np.ndarray:
        data = keys.astype("<i8").tobytes()
        head = json.dumps({
            "inputs": [{"name": TABLE, "datatype": "INT64", "shape": [len(keys)],
                        "parameters": {"binary_data_size": len(data)}}],
            "outputs": [{"name": TABLE, "parameters": {"binary_data": True}}]}).encode()
        headers = self.headers | {"Inference-Header-Content-Length": str(len(head))}
        status, body = server.get(f"/v2/models/{MODEL}/infer", headers, data=head + data,
                                  method="POST")
        self.assertEqual(status, 200, body[:300])
        return np.frombuffer(body[-4 * DIM * len(keys):], "<f4").reshape(-1, DIM)

    def wrong_rows(self, server: support.RunningServer) -> int:
        keys = np.array(sorted(self.published), dtype=np.int64)
        expected = np.array([self.published[key] for key in keys.tolist()], dtype=np.float32)
        rows = self.lookup(server, keys)
        whole = (rows == rows[:, :1]).all(axis=1)
        for version in (1, 2):
            whole |= (rows == support.stamped(TABLE, keys, version)).all(axis=1)
        self.assertTrue(whole.all(), "a torn row")
        return int((rows[:, 0] != expected).sum())

    def await_all(self, server: support.RunningServer) -> None:
        await_true(lambda: not self.wrong_rows(server),
                   lambda: f"right rows for {self.wrong_rows(server)} of the keys")

    def await_hits(self, server: support.RunningServer, keys: np.ndarray) -> None:
        """Asks until level 2 answers all of them."""
        await_true(lambda: set(self.statuses(server, keys)) == {2}, "hits of level 2")

    def statuses(self, server: support.RunningServer, keys: np.ndarray) -> list[int]:
        body = json.dumps({
            "inputs": [{"name": TABLE, "datatype": "INT64", "shape": [len(keys)],
                        "data": keys.tolist()}],
            "outputs": [{"name": f"{TABLE}.status"}, {"name": TABLE}]}).encode()
        answer = server.get(f"/v2/models/{MODEL}/infer", self.headers, data=body, method="POST")
        self.assertEqual(answer[0], 200, answer[1][:300])
        return json.loads(answer[1])["outputs"][0]["data"]

    def metric(self, server: support.RunningServer, name: str) -> float:
        text = server.get("/metrics", self.headers)[1].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith((name + " ", name + "{")))
