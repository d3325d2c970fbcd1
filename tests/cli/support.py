"""What the tests of the command share: running it, and making tables with NumPy."""

import json
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import tempfile
import unittest

import numpy as np

from waiting import TEST_SEED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HPS = pathlib.Path(os.environ.get("HPS_COMMAND", ROOT / "build" / "cpu" / "bin" / "hps"))
OWNER = HPS.parent / "hps_store_owner"
TIMEOUT_S = 120
# Before a command: it is killed with the test that started it, so that no server is left behind.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


def has_gpus() -> bool:
    """Whether this build has level 1 on GPUs: the options that it was configured with say it."""
    options = (HPS.parent.parent / "CMakeCache.txt").read_text()
    return re.search(r"^HPS_CUDA:BOOL=ON$", options, re.MULTILINE) is not None


def hold_port(case: unittest.TestCase) -> str:
    """An address that a server can take again after it was killed: a socket that is bound, but does
    not listen, keeps it from everybody who asks for any port."""
    held = socket.socket()
    case.addCleanup(held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{held.getsockname()[1]}"


class CommandTestCase(unittest.TestCase):
    """A test with a directory of its own and a store in it."""

    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_cli_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.store = self.directory / "store"
        self.random = np.random.default_rng(20261120 + TEST_SEED)
        self.limits = {}  # of the commands that run next: by resource.RLIMIT_...

    def run_hps(self, *arguments) -> subprocess.CompletedProcess:
        def limit() -> None:
            for what, value in self.limits.items():
                resource.setrlimit(what, (value, value))

        return subprocess.run([str(HPS), *map(str, arguments)], capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False,
                              preexec_fn=limit if self.limits else None)

    def succeed(self, *arguments) -> dict:
        """Runs a command with --json that must succeed; returns its object."""
        done = self.run_hps(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def succeed_in_text(self, *arguments) -> str:
        """Runs a command without --json that must succeed; returns what it printed."""
        done = self.run_hps(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def fail_with(self, status: int, code: str, parts: list, *arguments) -> str:
        """Runs a command that must fail: exit status, one line on stderr with code and parts, and
        with --json the same in one object. Returns the line."""
        for extra in ([], ["--json"]):
            done = self.run_hps(*arguments, *extra)
            line = done.stderr.removesuffix("\n")
            self.assertEqual(done.returncode, status, f"{arguments}: {done.stderr}{done.stdout}")
            self.assertNotIn("\n", line, arguments)
            self.assertTrue(line.startswith(f"hps: {code}: "), line)
            for part in parts:
                self.assertIn(str(part), line, arguments)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["code"], code)
        self.assertEqual(f"hps: {code}: {error['message']}", line)
        return line

    def lookup(self, table: str, keys: np.ndarray) -> tuple[np.ndarray, list]:
        """Rows and statuses of keys, by files."""
        keys_file, rows_file = self.directory / "asked.npy", self.directory / "answer.npy"
        np.save(keys_file, keys)
        answer = self.succeed("lookup", "--store", self.store, "--table", table, "--keys-file",
                              keys_file, "--out", rows_file)
        self.assertNotIn("rows", answer)
        rows = np.load(rows_file)
        self.assertEqual(rows.dtype, np.float32)
        return rows, answer["status"]

    def expect_rows(self, table: str, keys: np.ndarray, rows: np.ndarray) -> None:
        """The table has exactly these rows, bit for bit, among absent keys."""
        absent = np.setdiff1d(self.random.integers(-2**63, 2**63, 1000), keys)
        asked = self.random.permutation(np.concatenate([keys, absent]))
        answer, status = self.lookup(table, asked)
        order = np.argsort(keys)
        place = order[np.minimum(np.searchsorted(keys, asked, sorter=order), len(keys) - 1)]
        present = keys[place] == asked
        self.assertEqual(status, ["hit_l3" if p else "absent" for p in present])
        expected = np.where(present[:, None], rows[place], np.float32(0))
        np.testing.assert_array_equal(answer.view(np.uint32), expected.view(np.uint32))

    def random_keys(self, count: int) -> np.ndarray:
        """Distinct, in no order, the extremes among them."""
        extremes = np.array([0, -1, 2**63 - 1, -2**63], dtype=np.int64)
        drawn = np.setdiff1d(self.random.integers(-2**63, 2**63, count + 16), extremes)
        chosen = self.random.permutation(drawn)[:count - len(extremes)]
        return self.random.permutation(np.concatenate([extremes, chosen]))

    def random_rows(self, count: int, dim: int) -> np.ndarray:
        return self.random.standard_normal((count, dim)).astype(np.float32)


def write_hugectr(path: pathlib.Path, keys: np.ndarray, rows: np.ndarray) -> pathlib.Path:
    path.mkdir(parents=True)
    keys.astype("<i8").tofile(path / "key")
    rows.astype("<f4").tofile(path / "emb_vector")
    return path


def write_npy(path: pathlib.Path, keys: np.ndarray, rows: np.ndarray) -> pathlib.Path:
    path.mkdir(parents=True)
    np.save(path / "keys.npy", keys)
    np.save(path / "rows.npy", rows)
    return path


SAFETENSORS_DTYPES = {"int64": "I64", "uint64": "U64", "float32": "F32", "float16": "F16",
                      "uint16": "BF16"}


def safetensors_bytes(tensors: dict) -> bytes:
    header, data = {}, b""
    for name, array in tensors.items():
        begin = len(data)
        data += array.tobytes()
        header[name] = {"dtype": SAFETENSORS_DTYPES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def write_safetensors(path: pathlib.Path, tensors: dict) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(safetensors_bytes(tensors))
    return path


def snapshot(directory: pathlib.Path) -> dict:
    """Every file below a directory with its content: to see that nothing has changed."""
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file()}
