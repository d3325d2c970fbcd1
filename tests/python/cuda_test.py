"""torch tensors on a GPU: rows go there from level 1 and never through Python's memory.

Skipped where there is no GPU, or where the package was built without CUDA (`make wheel-gpu`).
"""

import pathlib
import tempfile
import unittest

import numpy as np
import support

import hps

try:
    import torch

    import hps.torch
except ImportError:
    torch = None

ROWS, DIM = 20_000, 32
TABLES = [f"t{number}" for number in range(4)]


@unittest.skipUnless(torch is not None and torch.cuda.is_available() and support.has_device(),
                     "needs a GPU, PyTorch with CUDA and a package with CUDA")
class CudaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        path = pathlib.Path(cls.folder.name) / "store"
        random = np.random.default_rng(1)
        cls.rows = {table: random.standard_normal((ROWS, DIM), np.float32) for table in TABLES}
        for table, rows in cls.rows.items():
            hps.import_table(path, f"m/{table}", np.arange(ROWS), rows, default=-1.0)
        cls.store = hps.open(path)
        cls.addClassCleanup(cls.store.close)
        cls.session = cls.store.session("m", "cuda:0")

    def keys(self, *shape: int) -> torch.Tensor:
        return torch.randint(0, ROWS + 100, shape, device="cuda:0")  # some are absent

    def expect(self, table: str, keys: torch.Tensor, rows: torch.Tensor) -> None:
        self.assertEqual(rows.device, keys.device)
        whole = np.concatenate([self.rows[table], np.full((100, DIM), -1.0, np.float32)])
        np.testing.assert_array_equal(rows.cpu().numpy(), whole[keys.cpu().numpy()])

    def test_rows_of_several_tables(self) -> None:
        for _ in range(20):
            asked = {table: self.keys(100 + number, 3) for number, table in enumerate(TABLES)}
            rows, status = self.session.lookup(asked, status=True)
            for table, keys in asked.items():
                self.expect(table, keys, rows[table])
                absent = status[table] == hps.Status.ABSENT
                self.assertTrue(torch.equal(absent, keys >= ROWS))

    @unittest.skipUnless(torch is not None and torch.cuda.device_count() > 1, "needs two GPUs")
    def test_a_block_on_another_device(self) -> None:
        hps.torch.Embedding(self.store, "m/t0")
        keys = self.keys(4)
        for place in ("cpu", "cuda:1"):
            block = torch.zeros(4 * DIM, device=place)
            with self.assertRaisesRegex(RuntimeError, "block: expected .* device of the keys"):
                torch.ops.hps.lookup_shared([keys], [block], self.store.path, f"m/t0:{DIM}")
            self.assertEqual(block.count_nonzero(), 0)

    def test_keys_with_gaps_and_narrow_ones(self) -> None:
        layer = hps.torch.Embedding(self.store, "m/t0")
        for dtype in (torch.int64, torch.int32, torch.int16, torch.uint8):
            keys = torch.arange(120, device="cuda:0").reshape(12, 10).to(dtype)[:, ::3]
            for rows in (self.session.lookup("t0", keys), layer(keys),
                         self.session.lookup("t0", keys, status=True)[0]):
                self.expect("t0", keys.long(), rows)

    def test_on_a_stream_of_the_caller(self) -> None:
        for _ in range(50):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                keys = self.keys(4096)
                torch.cuda._sleep(1_000_000)  # the keys change behind it, in stream order
                keys += 1
                keys.clamp_(max=ROWS - 1)
                rows = self.session.lookup("t0", keys)
                doubled = rows * 2
            stream.synchronize()
            self.expect("t0", keys, doubled / 2)

    def test_keys_of_32_bits_and_output_of_the_caller(self) -> None:
        keys = self.keys(1000).int()
        self.expect("t1", keys.long(), self.session.lookup("t1", keys))
        out = torch.zeros(1000, DIM, device="cuda:0")
        self.assertIs(self.session.lookup("t1", keys, out=out), out)
        self.expect("t1", keys.long(), out)
        self.assertEqual(self.session.lookup("t1", keys[:0]).shape, (0, DIM))

    def test_what_is_refused(self) -> None:
        host = self.store.session("m")
        with self.assertRaisesRegex(hps.InvalidArgumentError, "session is of the host"):
            host.lookup("t0", self.keys(3))
        with self.assertRaisesRegex(hps.InvalidArgumentError, "t1.*found one on cpu"):
            self.session.lookup({"t0": self.keys(3), "t1": self.keys(3).cpu()})
        with self.assertRaisesRegex(hps.InvalidArgumentError, "out.*found one on cpu"):
            self.session.lookup("t0", self.keys(3), out=torch.zeros(3, DIM))
        with self.assertRaisesRegex(hps.InvalidArgumentError, "expected integers"):
            self.session.lookup("t0", torch.zeros(3, device="cuda:0"))

    def test_a_host_array_of_a_session_on_the_device(self) -> None:
        keys = np.arange(500)
        np.testing.assert_array_equal(self.session.lookup("t2", keys), self.rows["t2"][:500])

    def test_modules(self) -> None:
        layer = hps.torch.Embedding(self.store, "m/t3", padding_idx=7)
        keys = self.keys(64, 5)
        expected = layer(keys.cpu())
        self.assertTrue(torch.equal(layer(keys).cpu(), expected))
        bag = hps.torch.EmbeddingBag(self.store, "m/t3", mode="sum")
        self.assertTrue(torch.allclose(bag(keys).cpu(), bag(keys.cpu()), atol=1e-5))
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(keys).cpu(), expected))

    def test_several_tables_in_one_operator(self) -> None:
        layer = hps.torch.Embeddings(self.store, [f"m/{table}" for table in TABLES])
        for _ in range(20):
            keys = [self.keys(50 + number) for number in range(len(TABLES))]
            for table, some, rows in zip(TABLES, keys, layer(keys)):
                self.expect(table, some, rows)
            stacked = self.keys(len(TABLES), 30, 2)
            for table, some, rows in zip(TABLES, stacked, layer(stacked)):
                self.expect(table, some, rows)
        narrow = self.keys(len(TABLES), 9)
        self.assertTrue(torch.equal(layer(narrow.int()), layer(narrow)))
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(narrow), layer(narrow)))

    def test_the_operator_on_a_stream_of_the_caller(self) -> None:
        layer = hps.torch.Embeddings(self.store, ["m/t0", "m/t1"])
        for _ in range(50):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                keys = self.keys(2, 4096)
                torch.cuda._sleep(1_000_000)  # the keys change behind it, in stream order
                keys += 1
                keys.clamp_(max=ROWS - 1)
                doubled = layer(keys) * 2
            stream.synchronize()
            self.expect("t1", keys[1], doubled[1] / 2)

    def test_what_the_operator_refuses(self) -> None:
        layer = hps.torch.Embeddings(self.store, ["m/t0", "m/t1"])
        with self.assertRaisesRegex(hps.InvalidArgumentError, "t1.*another device"):
            layer([self.keys(3), self.keys(3).cpu()])
        with self.assertRaisesRegex(hps.InvalidArgumentError, "t0.*expected int64"):
            layer([self.keys(3).float(), self.keys(3)])


if __name__ == "__main__":
    unittest.main()
