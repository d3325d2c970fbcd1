"""`hps serve` with level 1 on two GPUs. Skipped where there are fewer, or in a build without CUDA.

Set HPS_COMMAND to the command of a build with CUDA (`make gpu`).
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
import support  # noqa: E402
from support import HPS, MODEL, ROWS, TABLES  # noqa: E402
from waiting import await_true  # noqa: E402

L1_BYTES = 1 << 30
WITH_FAULTS = HPS.parent.parent / "tests" / "hps_with_device_faults"
CONTEXT_BYTES = 1 << 30  # of CUDA, and the buffers of calls
MIB = 1 << 20
TOKEN = "two-gpus"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}


def gpu_count() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return len(re.findall(r"^GPU ", listed.stdout, re.MULTILINE))


def used_bytes() -> list[int]:
    """Memory that is used on the first two GPUs, by whomever."""
    answer = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=True)
    return [int(line) * MIB for line in answer.stdout.split()[:2]]


@unittest.skipUnless(gpu_count() >= 2 and support.is_built_with("CUDA"),
                     "needs two GPUs and a build with CUDA")
class TwoGpusTest(support.ServerTestCase):
    def start(self, environment: dict | None = None, **more) -> support.RunningServer:
        return self.serve_ready(
            "lookups = 8", "repository_control = true",
            {"HPS_TOKEN": TOKEN} | (environment or {}),
            sections=f"[l1]\ndevices = [0, 1]\nbytes_max = {L1_BYTES}\npreload = 1.0\n", **more)

    def start_with_faults(self) -> support.RunningServer:
        self.faults = self.directory / "faults"
        self.faults.mkdir()
        return self.start({"HPS_DEVICE_FAULTS": str(self.faults)}, program=WITH_FAULTS)

    def let_device(self, device: int, fault: str) -> None:
        (self.faults / "new").write_text(str(device))
        (self.faults / "new").rename(self.faults / fault)
        await_true(lambda: not (self.faults / fault).exists(), f"fault '{fault}'", pause_s=0.005)

    def assert_only_one_answers(self, server: support.RunningServer, device: int) -> None:
        before = self.keys_by_device(server)
        self.load(server, threads=8, requests=40)
        after = self.keys_by_device(server)
        self.assertGreater(after[device], before[device])
        self.assertEqual(after[1 - device], before[1 - device])

    def control(self, server: support.RunningServer, action: str) -> None:
        status, body = server.get(f"/v2/repository/models/{MODEL}/{action}", AUTHORIZATION,
                                  method="POST")
        self.assertEqual(status, 200, body)

    def look_up(self, server: support.RunningServer, table: str, keys: np.ndarray) -> np.ndarray:
        data = keys.astype("<i8").tobytes()
        head = json.dumps({
            "inputs": [{"name": table, "datatype": "INT64", "shape": [len(keys)],
                        "parameters": {"binary_data_size": len(data)}}],
            "outputs": [{"name": table, "parameters": {"binary_data": True}}]}).encode()
        status, body = server.get(f"/v2/models/{MODEL}/infer",
                                  AUTHORIZATION
                                  | {"Inference-Header-Content-Length": str(len(head))},
                                  data=head + data, method="POST")
        self.assertEqual(status, 200, body[:300])
        size = 4 * TABLES[table] * len(keys)
        return np.frombuffer(body[-size:], "<f4").reshape(-1, TABLES[table])

    def load(self, server: support.RunningServer, threads: int, requests: int,
             version: int = 1) -> None:
        """Requests from `threads` threads at once; each row of each answer is compared."""
        errors: list[BaseException] = []

        def ask(seed: int) -> None:
            random = np.random.default_rng(seed)
            try:
                for number in range(requests):
                    table = list(TABLES)[number % len(TABLES)]
                    keys = random.integers(0, ROWS, size=2000, dtype=np.int64)
                    self.assert_stamped(table, keys, self.look_up(server, table, keys), version)
            except BaseException as error:  # noqa: BLE001: told by the test's own thread
                errors.append(error)

        askers = [threading.Thread(target=ask, args=(seed,)) for seed in range(threads)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        if errors:
            raise errors[0]

    def keys_by_device(self, server: support.RunningServer) -> list[float]:
        text = server.get("/metrics", AUTHORIZATION)[1].decode()
        return [sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                    if line.startswith("hps_device_keys_total{") and f'device="{device}"' in line
                    and 'outcome="hit"' in line)
                for device in (0, 1)]

    def await_hits(self, server: support.RunningServer, device: int) -> None:
        """Until it answers again."""
        before = self.keys_by_device(server)[device]

        def answers() -> bool:
            self.load(server, threads=8, requests=5)
            return self.keys_by_device(server)[device] > before

        await_true(answers, f"hits of device {device}")

    def test_requests_are_spread_over_both(self) -> None:
        server = self.start()
        self.load(server, threads=8, requests=100)
        first, second = self.keys_by_device(server)
        self.assertGreater(min(first, second), 0.2 * (first + second), (first, second))

    def test_memory_stays_within_the_budget_of_each_and_comes_back(self) -> None:
        before = used_bytes()
        server = self.start()
        self.load(server, threads=8, requests=20)
        loaded = used_bytes()
        for device in (0, 1):
            self.assertLess(loaded[device] - before[device], L1_BYTES + CONTEXT_BYTES)
            self.assertGreater(loaded[device], before[device])
        for _ in range(5):
            self.control(server, "unload")
            self.control(server, "load")
            self.load(server, threads=4, requests=10)
        again = used_bytes()
        for device in (0, 1):
            self.assertLessEqual(again[device], loaded[device] + 16 * MIB)
        self.assertEqual(server.stop(), 0)
        await_true(lambda: all(now <= then + 16 * MIB for now, then in zip(used_bytes(), before)),
                   lambda: f"memory given back: {used_bytes()} of {before}", pause_s=0.1)

    def test_a_new_version_is_served_by_both(self) -> None:
        server = self.start()
        self.load(server, threads=4, requests=10)
        self.import_version(2)
        self.control(server, "load")
        self.load(server, threads=8, requests=50, version=2)
        self.assertGreater(min(self.keys_by_device(server)), 0)

    def test_a_device_that_hangs_leaves_the_other_serving(self) -> None:
        for device in (0, 1):
            with self.subTest(device=device):
                server = self.start_with_faults()
                self.load(server, threads=8, requests=20)
                self.let_device(device, "hang")
                self.assert_only_one_answers(server, 1 - device)
                (self.faults / "release").touch()
                self.await_hits(server, device)
                self.assertEqual(server.stop(), 0)
                shutil.rmtree(self.faults)

    # When code fails on a device, CUDA refuses both to the process, until it ends.
    def test_a_device_that_fails_leaves_the_host_serving(self) -> None:
        for device in (0, 1):
            with self.subTest(device=device):
                server = self.start_with_faults()
                self.load(server, threads=8, requests=20)
                self.let_device(device, "fail")
                self.load(server, threads=8, requests=40)
                metrics = server.get("/metrics", AUTHORIZATION)[1].decode()
                for down in (0, 1):
                    self.assertIn(f'hps_device_up{{device="{down}"}} 0\n', metrics)
                log = (self.directory / "hps.log").read_text()
                self.assertIn("this process can use no GPU any more", log)
                self.import_version(2)
                self.control(server, "load")
                self.load(server, threads=8, requests=20, version=2)
                server.stop()
                self.import_version(1)
                self.assert_works_again()
                shutil.rmtree(self.faults)

    def assert_works_again(self) -> None:
        """A new process can use both devices."""
        server = self.start()
        self.load(server, threads=8, requests=40)
        self.assertGreater(min(self.keys_by_device(server)), 0)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
