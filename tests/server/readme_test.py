"""The snippets of README.md's "Serve it" do what it says, but for ports and directory as pasted."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import support
from waiting import await_true

TEXT = (support.ROOT / "README.md").read_text()
TIMEOUT_S = 120
ABSENT, HIT_L2 = 0, 2


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(text: str) -> list:
    return [line.strip() for line in text.split("\n") if line.startswith("    ")]


class ReadmeTest(unittest.TestCase):

    addresses: dict = {}

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_readme_"))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        tour = commands(section("Five minutes"))
        for line in tour:
            if line.startswith(("hps generate", "hps import --store /tmp/store --model")):
                cls.run_line(line)
        serve = commands(section("Serve it"))[0]
        if not serve.startswith("hps serve"):
            raise AssertionError(f"the first command is no server: {serve}")
        grpc = "127.0.0.1:0" if support.has_grpc() else "''"
        cls.server = subprocess.Popen(
            [*support.ENDS_WITH_US, "bash", "-c",
             f"exec {cls.here(serve)} --http 127.0.0.1:0 --grpc {grpc} "
             "--metrics 127.0.0.1:0 --json"],
            env=cls.environment(), stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.stop)
        cls.addresses = json.loads(cls.server.stdout.readline())
        cls.run_line("curl -s --retry 100 --retry-delay 1 --retry-max-time 110 --fail "
                     "http://127.0.0.1:8000/v2/health/ready")
        cls.warm_up()
        shown = re.search(r"^8199580975773293796 \w+ (.+) \.\.\.$", TEXT, re.MULTILINE)[1]
        cls.row = np.array(shown.split(), dtype=np.float32)  # how it begins

    @classmethod
    def warm_up(cls) -> None:
        """The rows of the snippets come to level 2, where nothing is late: the snippets are
        answered by the default time-out on a busy machine, too."""
        body = json.dumps({
            "parameters": {"timeout": TIMEOUT_S * 1_000_000},
            "inputs": [{"name": "t0", "datatype": "INT64", "shape": [2],
                        "data": [8199580975773293796, 7]}],
            "outputs": [{"name": "t0.status"}, {"name": "t0"}]})

        def statuses() -> list[int]:
            answer = cls.run_line(
                f"curl -s http://127.0.0.1:8000/v2/models/dlrm/infer -d '{body}'")
            return json.loads(answer)["outputs"][0]["data"]

        await_true(lambda: statuses() == [HIT_L2, ABSENT], "rows in level 2")

    @classmethod
    def stop(cls) -> None:
        cls.server.send_signal(signal.SIGTERM)
        cls.server.communicate(timeout=TIMEOUT_S)

    @staticmethod
    def environment() -> dict:
        return os.environ | {"PATH": f"{support.HPS.parent}:{os.environ['PATH']}"}

    @classmethod
    def here(cls, text: str) -> str:
        text = text.replace("/tmp/", f"{cls.directory}/")
        for address, name in (("127.0.0.1:8000", "http"), ("127.0.0.1:8001", "grpc")):
            text = text.replace(address, cls.addresses.get(name, address))
        return text

    @classmethod
    def run_line(cls, line: str) -> str:
        done = subprocess.run(["bash", "-c", cls.here(line)], env=cls.environment(), text=True,
                              timeout=TIMEOUT_S, check=False, capture_output=True)
        if done.returncode != 0:
            raise AssertionError(f"{line}: {done.stdout}{done.stderr}")
        return done.stdout

    def assert_rows(self, rows: np.ndarray) -> None:
        np.testing.assert_allclose(rows[0, :len(self.row)], self.row, rtol=1e-6)
        np.testing.assert_array_equal(rows[1], np.zeros(16))

    def test_curl(self) -> None:
        lines = [line for line in commands(section("Serve it")) if line.startswith("curl")]
        self.assertEqual(len(lines), 1)
        answer = json.loads(self.run_line(lines[0]))
        outputs = {output["name"]: output for output in answer["outputs"]}
        self.assertEqual(sorted(outputs), ["t0", "t0.status"])
        self.assertEqual(outputs["t0"]["shape"], [2, 16])
        self.assert_rows(np.array(outputs["t0"]["data"], dtype=np.float32).reshape(2, 16))
        found, absent = outputs["t0.status"]["data"]
        self.assertNotEqual(found, absent)
        self.assertEqual(absent, 0)

    def run_client(self, code: str) -> None:
        self.assertIn("print(", code)
        code = self.here(code).replace("print(", "result = (")
        path = self.directory / "client.py"
        path.write_text(f"{code}\nprint(result.tolist())\n")
        done = subprocess.run([sys.executable, str(path)], text=True, timeout=TIMEOUT_S,
                              check=False, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_rows(np.array(json.loads(done.stdout)))

    def client(self) -> str:
        return re.findall(r"^```python\n(.*?)^```", section("Serve it"),
                          re.MULTILINE | re.DOTALL)[0]

    def test_triton_client_over_http(self) -> None:
        self.run_client(self.client())

    def test_triton_client_over_grpc(self) -> None:
        code = self.client()
        self.assertIn("tritonclient.http", code)
        self.assertIn("`tritonclient.grpc` and port 8001", TEXT)
        if not support.has_grpc():
            self.skipTest("this build has no gRPC")
        self.run_client(code.replace("tritonclient.http", "tritonclient.grpc")
                        .replace(":8000", ":8001"))


if __name__ == "__main__":
    unittest.main()
