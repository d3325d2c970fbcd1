"""Triton's perf_analyzer drives the server: nothing is measured here, it has to get its answers.

It asks for every output that the model's metadata names. It comes in a wheel that wants an
environment of its own, made once in build/perf_analyzer. Where that can't be had, the tests are
skipped, and count as skipped.
"""

import csv
import json
import os
import pathlib
import subprocess
import unittest

import numpy as np

import ctr_test
import support
from support import MODEL, RunningServer

PLACE = support.ROOT / "build" / "perf_analyzer"
PACKAGES = ["tritonclient==2.50.0", "nvidia-cuda-runtime-cu12==12.9.79"]
INSTALL_S = 150


def install() -> pathlib.Path:
    """The program; raises what keeps it from being there."""
    if not (PLACE / "complete").exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", str(PLACE)], check=True,
                       timeout=INSTALL_S, capture_output=True)
        subprocess.run([str(PLACE / "bin" / "pip"), "install", "--quiet", "--no-deps",
                        "--disable-pip-version-check", *PACKAGES],
                       check=True, timeout=INSTALL_S, capture_output=True)
        (PLACE / "complete").touch()
    return next(PLACE.rglob("perf_analyzer/perf_analyzer"), None) or next(
        path for path in PLACE.rglob("perf_analyzer") if path.is_file())


class PerfAnalyzer:
    """What the tests below share; they have a directory of their own."""

    def setUp(self) -> None:
        super().setUp()
        try:
            self.program = install()
        except (OSError, StopIteration, subprocess.SubprocessError) as error:
            self.skipTest(f"perf_analyzer can't be installed: {error}")
        runtime = next(PLACE.rglob("libcudart.so.12")).parent
        self.environment = os.environ | {"LD_LIBRARY_PATH": str(runtime)}

    def drive(self, model: str, protocol: str, address: str, inputs: dict) -> None:
        report = self.directory / f"{protocol}.csv"
        data = self.directory / "input.json"
        data.write_text(json.dumps({"data": [
            {name: {"content": array.ravel().tolist(), "shape": list(array.shape)}
             for name, array in inputs.items()}]}))
        shapes = [option for name, array in inputs.items()
                  for option in ("--shape", f"{name}:{','.join(map(str, array.shape))}")]
        done = subprocess.run(
            [str(self.program), "-m", model, "-u", address, "-i", protocol,
             "--concurrency-range", "1:4:3", "--measurement-mode", "count_windows",
             "--measurement-request-count", "200", "--stability-percentage", "999",
             "--max-trials", "3", *shapes, "--input-data", str(data), "-f", str(report)],
            capture_output=True, text=True, timeout=120, check=False, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with report.open() as file:
            rows = list(csv.DictReader(file))
        # Its report is in the order of throughput, which is not this test's business.
        self.assertEqual(sorted(row["Concurrency"] for row in rows), ["1", "4"])
        for row in rows:
            self.assertGreater(float(row["Inferences/Second"]), 0)

    def check(self, server: RunningServer, model: str, protocol: str, inputs: dict) -> None:
        def counted() -> dict:
            models = server.overview()["models"]
            return next(counts for counts in models if counts["name"] == model)

        before = counted()
        self.drive(model, protocol, getattr(server, protocol), inputs)
        after = counted()
        self.assertGreaterEqual(after["requests"] - before["requests"], 400)
        self.assertEqual(after["requests_failed"], before["requests_failed"])


class LookupTest(PerfAnalyzer, support.ServerTestCase):
    def keys_of_tables(self) -> dict[str, np.ndarray]:
        return {"user": self.keys(64), "item": self.keys(32)}

    def test_http(self) -> None:
        self.check(self.serve_ready(), MODEL, "http", self.keys_of_tables())

    @unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
    def test_grpc(self) -> None:
        self.check(self.serve_ready(), MODEL, "grpc", self.keys_of_tables())


class PredictionTest(PerfAnalyzer, ctr_test.CtrTestCase):
    """A model with a network: scores, rows, statuses and OUTPUT0 in each answer."""

    def test_by_name(self) -> None:
        tables, samples = self.make("dcn")
        server = self.serve()
        inputs = ctr_test.by_name(tables, samples, slice(0, 8))
        for protocol in ("http", "grpc") if support.has_grpc() else ("http",):
            with self.subTest(protocol=protocol):
                self.check(server, "dcn", protocol, inputs)


if __name__ == "__main__":
    unittest.main()
