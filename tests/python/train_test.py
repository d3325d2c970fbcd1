"""hps.train in one process: collections, batches, gradients that are refused."""

import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np
import torch

import hps.train as ht


class Served:
    """What serving would have."""

    def __init__(self) -> None:
        self.rows: dict[int, np.ndarray] = {}

    def upsert(self, _: str, keys: np.ndarray, rows: np.ndarray) -> None:
        self.rows.update(zip(keys.tolist(), rows.copy()))

    def delete(self, _: str, keys: np.ndarray) -> None:
        for key in keys.tolist():
            del self.rows[key]

    def flush(self) -> None:
        """Changes are there already."""


class CollectionTest(unittest.TestCase):
    def test_views_of_negatives(self) -> None:
        """PyTorch makes views whose elements are the negated elements in memory. Keys, weights and
        gradients may be such views."""
        embed = ht.EmbeddingCollection([ht.Table("a", 2, optimizer=ht.SGD(lr=1.0),
                                                 init=ht.Uniform(0, 0))])
        keys, weights = torch._neg_view(torch.tensor([-3])), torch._neg_view(torch.tensor([-5.0]))
        out = embed({"a": (keys, None, weights)})["a"]
        out.register_hook(lambda gradient: torch._neg_view(gradient.clone()))
        out.sum().backward()  # the gradient is -1
        keys, rows = embed.rows("a")
        self.assertEqual((keys.tolist(), rows.tolist()), ([3], [[5.0, 5.0]]))

    def test_shapes(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("one", 4), ht.Table("none", 3, pooling="none")])
        keys = torch.tensor([[1, -1, 2**63 - 1], [5, 5, -2**63]])
        out = embed({"one": keys, "none": keys})
        self.assertEqual(out["one"].shape, (2, 4))
        self.assertEqual(out["none"].shape, (2, 3, 3))
        self.assertEqual(embed({"one": keys[0]})["one"].shape, (3, 4))
        self.assertEqual(embed({"none": (keys[0], torch.tensor([0, 3]))})["none"].shape, (3, 3))
        self.assertEqual(embed({"one": torch.empty(0, dtype=torch.int64)})["one"].shape, (0, 4))
        torch.testing.assert_close(out["none"][1, 0], out["none"][1, 1])

    def test_tables_may_come_from_a_generator(self) -> None:
        embed = ht.EmbeddingCollection(ht.Table(name, 2) for name in ("a", "b"))
        self.assertEqual(set(embed({"a": torch.arange(3), "b": torch.arange(3)})), {"a", "b"})

    def test_weights(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("t", 2, optimizer=ht.SGD(lr=1.0))])
        keys, offsets = torch.tensor([3, 4]), torch.tensor([0, 2])
        before = embed({"t": keys})["t"].detach()
        out = embed({"t": (keys, offsets, torch.tensor([2.0, -0.5]))})["t"]
        torch.testing.assert_close(out[0], 2 * before[0] - before[1] / 2)
        out.sum().backward()
        torch.testing.assert_close(embed({"t": keys})["t"],
                                   before - torch.tensor([[2.0], [-0.5]]))

    def test_evaluation_changes_nothing(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("t", 2)])
        with torch.no_grad():
            self.assertEqual(embed({"t": torch.tensor([1])})["t"].tolist(), [[0, 0]])
        embed.eval()
        self.assertFalse(embed({"t": torch.tensor([1])})["t"].requires_grad)
        self.assertEqual(embed.statistics()["t"]["rows"], 0)

    def test_a_table_without_gradient_stays(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("a", 2), ht.Table("b", 2)])
        out = embed({"a": torch.tensor([1]), "b": torch.tensor([1])})
        before = embed.rows("b")[1]
        out["a"].sum().backward()
        np.testing.assert_array_equal(embed.rows("b")[1], before)
        with self.assertRaisesRegex(RuntimeError, "backward runs once"):
            out["a"].sum().backward()

    def test_special_gradients_change_nothing(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("a", 2), ht.Table("b", 2)])
        keys = torch.tensor([1, 2])
        for special in (float("nan"), float("inf")):
            out = embed({"a": keys, "b": keys})
            before = embed.rows("a")[1]
            (out["a"].sum() + (out["b"] * special).sum()).backward()
            np.testing.assert_array_equal(embed.rows("a")[1], before)
        self.assertEqual(embed.skipped_steps, 2)

    def test_gradients_whose_sum_overflows_change_nothing(self) -> None:
        keys = torch.zeros(4, dtype=torch.int64)
        for optimizer in (ht.SGD(), ht.Adagrad(), ht.Adam()):
            embed = ht.EmbeddingCollection([ht.Table("t", 2, optimizer=optimizer)])
            for gradient in (2e38, 1e20):  # the sum overflows, or its square
                out = embed({"t": keys})["t"]
                before = embed.rows("t")[1]
                out.backward(torch.full((4, 2), gradient))
                np.testing.assert_array_equal(embed.rows("t")[1], before)
            self.assertEqual(embed.skipped_steps, 2)
        embed = ht.EmbeddingCollection([ht.Table("t", 2)])
        out = embed({"t": (keys, None, torch.full((4,), float("inf")))})["t"]
        out.backward(torch.ones(4, 2))
        self.assertTrue(np.isfinite(embed.rows("t")[1]).all())

    def test_an_infinite_learning_rate_is_an_error(self) -> None:
        table = ht.Table("t", 2, optimizer=ht.Adam(lr=float("nan")))
        embed = ht.EmbeddingCollection([table])
        out = embed({"t": torch.tensor([1])})["t"]
        before = embed.rows("t")[1]
        with self.assertRaisesRegex(ValueError, "table 't': the learning rate is nan"):
            out.sum().backward()
        np.testing.assert_array_equal(embed.rows("t")[1], before)

    def test_one_thread_trains_while_another_publishes(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("t", 4, expire_after=5)])
        served = Served()
        is_over = threading.Event()

        def publish() -> None:
            while not is_over.is_set():
                embed.publish(served)
                embed.statistics()

        thread = threading.Thread(target=publish)
        thread.start()
        random = torch.Generator().manual_seed(1)
        for _ in range(150):
            keys = torch.randint(10**6, (2048,), generator=random)
            embed({"t": keys})["t"].sum().backward()
        is_over.set()
        thread.join()
        embed.publish(served)
        keys, rows = embed.rows("t")
        self.assertEqual(sorted(served.rows), keys.tolist())
        np.testing.assert_array_equal([served.rows[key] for key in keys.tolist()], rows)

    def test_the_default_device_is_not_used(self) -> None:
        torch.set_default_device("meta")
        self.addCleanup(torch.set_default_device, "cpu")
        embed = ht.EmbeddingCollection([ht.Table("t", 2, optimizer=ht.SGD(lr=1.0),
                                                 init=ht.Uniform(0, 0))])
        embed({"t": torch.tensor([[1, 2]], device="cpu")})["t"].sum().backward()
        embed({"t": [1, 3]})["t"].sum().backward()
        self.assertEqual(embed.rows("t")[1][:, 0].tolist(), [-2, -1, -1])

    def test_a_script_that_ends_with_an_error_reports_no_leaks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script.py"
            script.write_text("import torch, hps.train as ht\n"
                              "embed = ht.EmbeddingCollection([ht.Table('t', 2)])\n"
                              "out = embed({'t': torch.tensor([1])})\n"
                              "raise SystemError('the end')\n")
            ended = subprocess.run([sys.executable, script], capture_output=True, text=True,
                                   check=False)
        self.assertIn("the end", ended.stderr)
        self.assertNotIn("nanobind", ended.stderr)

    def test_grad_scaler_is_taken_out(self) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        embed = ht.EmbeddingCollection([ht.Table("t", 2, optimizer=ht.SGD(lr=1.0))],
                                       grad_scaler=scaler)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = embed({"t": torch.tensor([7])})["t"]
            loss = out.sum()
        before = embed.rows("t")[1]
        scaler.scale(loss).backward()
        np.testing.assert_allclose(embed.rows("t")[1], before - 1, rtol=1e-6)

    def test_learning_rate_may_change(self) -> None:
        table = ht.Table("t", 2, optimizer=ht.SGD(lr=1.0))
        embed = ht.EmbeddingCollection([table])
        table.optimizer.lr = 0.5
        out = embed({"t": torch.tensor([7])})["t"]
        before = embed.rows("t")[1]
        out.sum().backward()
        np.testing.assert_allclose(embed.rows("t")[1], before - 0.5, rtol=1e-6)

    def test_duplicates_by_the_million(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("t", 4, optimizer=ht.SGD(lr=2.0**-20))])
        keys = torch.tensor([-2**63, -1, 7])[torch.arange(3 * 2**20) % 3]
        before = embed({"t": torch.tensor([-2**63, -1, 7])})["t"].detach()
        out = embed({"t": keys})["t"]
        torch.testing.assert_close(out[-3:].detach(), before, rtol=0, atol=0)
        out.sum().backward()
        self.assertEqual(embed.statistics()["t"]["rows"], 3)
        torch.testing.assert_close(torch.from_numpy(embed.rows("t")[1]), before - 1)

    def test_batches_of_zero_and_empty_bags(self) -> None:
        for pooling in ("sum", "mean", "none"):
            embed = ht.EmbeddingCollection([ht.Table("t", 3, pooling=pooling)])
            embed({"t": torch.empty(0, dtype=torch.int64)})["t"].sum().backward()
            out = embed({"t": (torch.empty(0, dtype=torch.int64), torch.tensor([0, 0, 0]))})["t"]
            self.assertEqual(out.abs().sum().item(), 0)
            out.sum().backward()
            self.assertEqual(embed.statistics()["t"]["rows"], 0)

    def test_wrong_arguments(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("t", 2)])
        with self.assertRaisesRegex(KeyError, "no table has the feature 'u'"):
            embed({"u": torch.tensor([1])})
        with self.assertRaisesRegex(TypeError, "keys must be torch.int64"):
            embed({"t": torch.tensor([1.0])})
        with self.assertRaisesRegex(Exception, "offsets must ascend"):
            embed({"t": (torch.tensor([1, 2]), torch.tensor([0, 3]))})
        for weights in (torch.ones(0), torch.ones(3)):
            with self.assertRaisesRegex(ValueError, "weights for 2 keys"):
                embed({"t": (torch.tensor([1, 2]), torch.tensor([0, 2]), weights)})
        none = ht.EmbeddingCollection([ht.Table("t", 2, pooling="none")])
        for offsets in ([0, 3], [1, 2], [0, 2, 1, 2]):
            with self.assertRaisesRegex(ValueError, "offsets must ascend"):
                none({"t": (torch.tensor([1, 2]), torch.tensor(offsets))})
        with self.assertRaisesRegex(ValueError, "pooling must be one of"):
            ht.Table("t", 2, pooling="max")
        for argument, value, kind in (
                ("dim", 0, ValueError), ("dim", 8.0, TypeError), ("dim", 4097, ValueError),
                ("admit_after", -1, ValueError), ("admit_after", 0, ValueError),
                ("expire_after", -1, ValueError), ("rows_max", -1, ValueError),
                ("rows_max", "9", TypeError)):
            with self.assertRaisesRegex(kind, f"table 't': {argument} must be"):
                ht.Table(**{"name": "t", "dim": 2, argument: value})
        for name in ("x/y", "../x", "", "a b", "t" * 121, 7):
            with self.assertRaisesRegex(ValueError, "a name has 1 to 120"):
                ht.Table(name, 2)
        with self.assertRaisesRegex(ValueError, "one name"):
            ht.EmbeddingCollection([ht.Table("t", 1), ht.Table("t", 1)])


if __name__ == "__main__":
    unittest.main()
