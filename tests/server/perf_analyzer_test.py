"""Triton's perf_analyzer drives the server: nothing is measured here, it has to get its answers.

It comes in a wheel that wants an environment of its own, made once in build/perf_analyzer. Where
that can't be had, the test is skipped, and counts as skipped.
"""

import csv
import os
import pathlib
import subprocess
import unittest

import support
from support import MODEL

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


class PerfAnalyzerTest(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            self.program = install()
        except (OSError, StopIteration, subprocess.SubprocessError) as error:
            self.skipTest(f"perf_analyzer can't be installed: {error}")
        runtime = next(PLACE.rglob("libcudart.so.12")).parent
        self.environment = os.environ | {"LD_LIBRARY_PATH": str(runtime)}

    def drive(self, protocol: str, address: str) -> None:
        report = self.directory / f"{protocol}.csv"
        done = subprocess.run(
            [str(self.program), "-m", MODEL, "-u", address, "-i", protocol,
             "--concurrency-range", "1:4:3", "--measurement-mode", "count_windows",
             "--measurement-request-count", "200", "--stability-percentage", "999",
             "--max-trials", "3", "--shape", "user:64", "--shape", "item:32",
             "--input-data", str(self.input_data()), "-f", str(report)],
            capture_output=True, text=True, timeout=120, check=False, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with report.open() as file:
            rows = list(csv.DictReader(file))
        # Its report is in the order of throughput, which is not this test's business.
        self.assertEqual(sorted(row["Concurrency"] for row in rows), ["1", "4"])
        for row in rows:
            self.assertGreater(float(row["Inferences/Second"]), 0)

    def input_data(self) -> pathlib.Path:
        import json
        path = self.directory / "input.json"
        path.write_text(json.dumps({"data": [
            {"user": {"content": self.keys(64).tolist(), "shape": [64]},
             "item": {"content": self.keys(32).tolist(), "shape": [32]}}]}))
        return path

    def test_http(self) -> None:
        self.check("http")

    @unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
    def test_grpc(self) -> None:
        self.check("grpc")

    def check(self, protocol: str) -> None:
        server = self.serve_ready()
        self.drive(protocol, getattr(server, protocol))
        overview = server.overview()
        answered = next(model for model in overview["models"] if model["name"] == MODEL)
        self.assertGreaterEqual(answered["requests"], 400)
        self.assertEqual(answered["requests_failed"], 0)


if __name__ == "__main__":
    unittest.main()
