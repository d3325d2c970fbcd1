"""mypy over the package, its extension's stub and uses of it."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Each line that is marked is wrong.
WRONG_USE = """
import numpy as np
import hps
import hps.jax
import hps.tensorflow
import hps.torch

keys = np.arange(3)
store = hps.open("/tmp/store", mode=1)  # wrong: arg-type
store.sesion("dlrm")  # wrong: attr-defined
session = store.session(7)  # wrong: arg-type
session.lookup("user", keys, stats=True)  # wrong: call-overload
session.lookup(3, keys)  # wrong: call-overload|arg-type
session.lookup("user", keys, timeout="1")  # wrong: call-overload|arg-type
session.tables["user"] = "8"  # wrong: assignment
store.apply("dlrm/user", keys)  # wrong: call-arg
hps.import_table()  # wrong: call-arg
hps.import_table("/tmp/store", "dlrm/user", keys, foo=1)  # wrong: call-arg
hps.import_table("/tmp/store", "dlrm/user", keys, progress=5)  # wrong: arg-type
store.import_table("dlrm/user", keys, foo=1)  # wrong: call-arg
names: list[str] = session.lookup("user", keys)  # wrong: assignment
hps.Client("http://h").lookup("dlrm", 3, keys)  # wrong: call-overload
hps.Client("http://h").lookup("dlrm", "user", keys, hit_rate_threshold=1)  # wrong: call-overload
hps.Client(8000)  # wrong: arg-type
hps.serve("/tmp/store", http=8000)  # wrong: arg-type
hps.jax.lookup(store, "user", keys)  # wrong: arg-type
hps.tensorflow.lookup("/tmp/store", "dlrm")  # wrong: call-arg
hps.torch.Embeddings("/tmp/store", ["dlrm/user"])  # wrong: arg-type
hps.torch.EmbeddingBag(store, "dlrm/user", "sum")  # wrong: misc|call-arg
hps.torch.Embedding("/tmp/store", "dlrm/user")  # wrong: arg-type
hps.NoSuchError  # wrong: attr-defined
"""

RIGHT_USE = """
import numpy as np
import numpy.typing as npt
import torch
import hps
import hps.jax
import hps.tensorflow
import hps.torch

keys = np.arange(3)
rows = np.zeros((3, 4), np.float32)
version: str = hps.__version__
hps.import_table("/tmp/store", "dlrm/user", keys, rows, default=1.0)
with hps.open("/tmp/store", mode="r") as store:
    session: hps.Session = store.session("dlrm", "cuda:0", keys_max=5)
    dims: dict[str, int] = session.tables
    of_one: npt.NDArray[np.float32] = session.lookup("user", keys)
    of_lists, its_status = session.lookup("user", [1, 2], status=True)
    its_status.astype(np.int64)
    by_table: dict[str, np.ndarray] = session.lookup({"user": keys}, timeout=0.5)
    found, status = session.lookup({"user": keys, "item": [1]}, status=True, timeout=0.5)
    tensor: torch.Tensor = session.lookup("user", torch.tensor([1]))
    session.lookup("user", keys, out=rows, status=bool(len(keys)))
    found = hps.jax.lookup(session, {"user": keys})
    layer = hps.torch.EmbeddingBag(store, "dlrm/user", mode="max", padding_idx=0)
    all_rows = hps.torch.Embeddings(store, ["dlrm/user", "dlrm/item"])([keys, keys])
    rows_of_keras = hps.tensorflow.LookupLayer("dlrm", 0, 16, ps_config_file=store)(keys)
    named: dict = hps.tensorflow.lookup("/tmp/store", "dlrm", {"user": keys})
    store.apply("dlrm/user", keys, rows)
with hps.serve("/tmp/store", http="127.0.0.1:0") as server:
    hps.Client(server.url, token="t").session("dlrm").lookup("user", keys)
try:
    store.close()
except hps.NotFoundError as error:
    code: str = error.code
"""


class TypesTest(unittest.TestCase):
    directory: pathlib.Path  # with the files, and what mypy keeps for the next run

    @classmethod
    def setUpClass(cls) -> None:
        directory = tempfile.TemporaryDirectory(prefix="hps_types_")
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)

    def mypy(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"),
             "--python-executable", sys.executable, "--no-error-summary", "--show-error-codes",
             *arguments],
            cwd=self.directory, capture_output=True, text=True, check=False)

    def check(self, source: str) -> subprocess.CompletedProcess:
        file = self.directory / "use.py"
        file.write_text(source)
        return self.mypy(file.name)

    def test_the_package(self) -> None:
        done = self.mypy("--package", "hps")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_right_use(self) -> None:
        done = self.check(RIGHT_USE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_wrong_use(self) -> None:
        done = self.check(WRONG_USE)
        found: dict[int, set[str]] = {}
        for number, code in re.findall(r"^use\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout,
                                       re.MULTILINE):
            found.setdefault(int(number), set()).add(code)
        expected = {number: set(line.partition("# wrong: ")[2].split("|"))
                    for number, line in enumerate(WRONG_USE.splitlines(), start=1)
                    if "# wrong: " in line}
        self.assertEqual(set(found), set(expected), done.stdout + done.stderr)
        for number, codes in found.items():
            self.assertTrue(codes & expected[number], f"line {number}: {codes}")


if __name__ == "__main__":
    unittest.main()
