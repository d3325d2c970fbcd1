"""What the tests of a whole server share: a store whose rows say what they are, and the process.

Row of `key` in table number `table`, import number `version`, element j:
    (key * 31 + table * 7 + j) mod 8192 + 8192 * version
so that a foreign, torn or old row is seen; exact in float32 up to version 2047.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "common")]
from held_port import Port  # noqa: E402
from waiting import TEST_SEED, WAIT_S, await_true  # noqa: E402

HPS = pathlib.Path(os.environ.get("HPS_COMMAND", ROOT / "build" / "cpu" / "bin" / "hps"))
MODEL = "ctr"
TABLES = {"user": 8, "item": 16}  # name -> dim, in declared order
ROWS = 5000
STAMP = 8192
# Before a command: it is killed with the test that started it, so that no server is left behind.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
# Nothing is late because a machine is busy: what ends by its time is tested with times of its own.
PATIENCE = '[lookup]\ntimeout = "1min"\n'
TIMEOUTS = ("drain_timeout", "header_timeout", "body_timeout", "write_timeout", "idle_timeout",
            "stream_idle_timeout")


def stamped(table: str, keys: np.ndarray, version: int = 1) -> np.ndarray:
    number, dim = list(TABLES).index(table), TABLES[table]
    flat = keys.reshape(-1, 1) * 31 + number * 7 + np.arange(dim)
    return (flat % STAMP + STAMP * version).astype(np.float32).reshape(*keys.shape, dim)


def is_built_with(part: str) -> bool:
    """Whether this build has a part, as "KAFKA": the options of its configuration say it."""
    options = (HPS.parent.parent / "CMakeCache.txt").read_text()
    return re.search(rf"^HPS_{part}:BOOL=ON$", options, re.MULTILINE) is not None


def has_grpc() -> bool:
    return is_built_with("GRPC")


def patient_timeouts(settings: str) -> str:
    """Those of a server that these settings of it leave open."""
    return "".join(f'{name} = "10min"\n' for name in TIMEOUTS
                   if not re.search(rf"^{name} *=", settings, re.MULTILINE))


def held_ports(case: unittest.TestCase, *names: str) -> dict[str, int]:
    """Numbers of ports that a server of the test can take again after it was killed."""
    ports = {name: Port() for name in names}
    for port in ports.values():
        case.addCleanup(port.close)
    return {name: port.number for name, port in ports.items()}


class RunningServer:
    """A child process `hps serve` on ports of its own."""

    def __init__(self, directory: pathlib.Path, settings: str = "", security: str = "",
                 environment: dict | None = None, ports: dict | None = None,
                 cache_bytes: str = "64MiB", store: str = "", sections: str = "",
                 level2: str = 'bytes_max = "64MiB"', of_tables: str = "",
                 program: pathlib.Path = HPS,
                 models: str = f'[[model]]\nname = "{MODEL}"\ntables = {json.dumps(list(TABLES))}\n'
                 ) -> None:
        ports = ports or {}
        config = directory / "hps.toml"
        grpc = f"127.0.0.1:{ports.get('grpc', 0)}" if has_grpc() else ""
        config.write_text(
            f'[store]\npath = "{directory}/store"\ncache_bytes = "{cache_bytes}"\n'
            f'{store}\n[l2]\n{level2}\n{PATIENCE}'
            f'[server]\nhttp = "127.0.0.1:{ports.get("http", 0)}"\ngrpc = "{grpc}"\n'
            f'metrics = "127.0.0.1:{ports.get("metrics", 0)}"\n{settings}\n'
            f'{patient_timeouts(settings)}'
            f'[server.security]\n{security}\n{sections}\n'
            f'[log]\nlevel = "info"\nfile = "{directory}/hps.log"\n{models}{of_tables}')
        self.output: list[str] = []
        self.process = subprocess.Popen(
            [*ENDS_WITH_US, str(program), "serve", "--config", str(config)], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=os.environ | (environment or {}))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.scheme = "https" if "tls_certificate" in security else "http"
        self.http, self.metrics = self.address("http"), self.address("metrics")
        self.grpc = self.address("grpc") if grpc else ""

    def read(self) -> None:
        for line in self.process.stdout:
            self.output.append(line.rstrip("\n"))

    def address(self, name: str) -> str:
        pattern = re.compile(rf"^{name} +(?:https?://)?(127\.0\.0\.1:\d+)", re.MULTILINE)
        return self.await_sign(lambda: pattern.search("\n".join(self.output)), f"{name} address")[1]

    def await_sign(self, holds, what: str):
        return await_true(holds, lambda: f"{what} of hps serve:\n" + "\n".join(self.output),
                          process=self.process)

    def url(self, path: str) -> str:
        return f"{self.scheme}://{self.http}{path}"

    def get(self, path: str, headers: dict | None = None, **more) -> tuple[int, bytes]:
        request = urllib.request.Request(self.url(path), headers=headers or {}, **more)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.get("/v2/health/ready")[0] == 200
        return False

    def await_ready(self) -> None:
        self.await_sign(self.is_ready, "readiness")

    def overview(self) -> dict:
        return json.loads(self.get("/api/overview")[1])

    def memory(self) -> int:
        """Bytes that it has of the machine's."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10

    def stop(self) -> int:
        # A second SIGTERM would end a drain at once.
        if self.process.poll() is None and "draining" not in self.output:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.close()
        return status

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        self.reader.join(timeout=WAIT_S)  # what it has said last is in its output
        self.process.stdout.close()


class ServerTestCase(unittest.TestCase):
    """A directory with a stamped store; servers that a test starts end with it."""

    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_server_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.random = np.random.default_rng(20261121 + TEST_SEED)
        self.import_version(1)

    def import_version(self, version: int) -> dict:
        source = self.directory / f"tables{version}"
        keys = np.arange(ROWS, dtype=np.int64)
        for table in TABLES:
            (source / table).mkdir(parents=True)
            np.save(source / table / "keys.npy", keys)
            np.save(source / table / "rows.npy", stamped(table, keys, version))
        done = subprocess.run(
            [str(HPS), "import", "--store", str(self.directory / "store"), "--model", MODEL,
             "--from", str(source), "--default", "-1", "--json"],
            capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.rmtree(source)
        return json.loads(done.stdout)

    def serve(self, *arguments, **keywords) -> RunningServer:
        server = RunningServer(self.directory, *arguments, **keywords)
        self.addCleanup(server.kill)
        return server

    def serve_ready(self, *arguments, **keywords) -> RunningServer:
        server = self.serve(*arguments, **keywords)
        server.await_ready()
        return server

    def await_log(self, text: str, begin: int = 0) -> int:
        """Until the log has the text behind its first `begin` characters; where the text ends."""
        def log() -> str:
            return (self.directory / "hps.log").read_text()

        return await_true(lambda: (at := log().find(text, begin)) >= 0 and at + len(text),
                          lambda: f"'{text}' in the log:\n{log()}")

    def make_certificate(self, name: str, of: str = "IP:127.0.0.1,DNS:localhost",
                         of_key: tuple = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")) -> tuple:
        """Signs itself; the files of the certificate and of its key."""
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", *of_key, "-nodes", "-days", "2", "-subj",
             "/CN=localhost", "-addext", f"subjectAltName={of}",
             "-keyout", key, "-out", certificate],
            check=True, capture_output=True, timeout=60)
        return certificate, key

    def keys(self, *shape) -> np.ndarray:
        return self.random.integers(0, ROWS, size=shape, dtype=np.int64)

    def assert_stamped(self, table: str, keys: np.ndarray, rows: np.ndarray, version=1) -> None:
        np.testing.assert_array_equal(rows, stamped(table, keys, version))
