"""Outputs and gradients of hps.train in the type of autocast, on the CPU, and on a GPU if there is
one."""

import unittest
from collections.abc import Callable

import numpy as np
import torch
from train_device_test import DEVICE, HAS_GPU, OPTIMIZERS, batch_of, moved, tables_with, zeros

import hps.train as ht

PLACES = ["cpu", DEVICE] if HAS_GPU else ["cpu"]
SHORT = (torch.bfloat16, torch.float16)


def autocast(place: str, dtype: torch.dtype, enabled: bool = True) -> torch.autocast:
    return torch.autocast(torch.device(place).type, dtype=dtype, enabled=enabled)


def gradients_of(out: ht.Rows, seed: int) -> dict:
    """Of each output, in its type."""
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(rows.shape, generator=random).to(rows.device, rows.dtype)
            for name, rows in out.items()}


class AutocastTest(unittest.TestCase):
    def each(self, dtypes: tuple = SHORT) -> list:
        return [(place, dtype) for place in PLACES for dtype in dtypes]

    def collection(self, place: str, make: Callable, **options) -> ht.EmbeddingCollection:
        """Its float16 has a scaler."""
        if place == "cpu":
            options["update"] = "step"
        return ht.EmbeddingCollection(make(), device=place, **options)

    def backward(self, embed: ht.EmbeddingCollection, out: dict, gradients: dict) -> None:
        torch.autograd.backward(list(out.values()), [gradients[name] for name in out])
        if embed.update == "step":
            embed.optimizer().step()
            embed.zero_grad()

    def assert_same_rows(self, found: ht.EmbeddingCollection,
                         expected: ht.EmbeddingCollection) -> None:
        for name in expected.tables:
            for own, other in zip(found.rows(name), expected.rows(name)):
                np.testing.assert_array_equal(own, other)

    def test_outputs_and_updates(self) -> None:
        """Outputs are the float32 ones, rounded. Rows get the gradients as these are, computed in
        float32: every kind of pooling, several blocks, weights."""
        for place, dtype in self.each():
            plain, embed = (self.collection(place, lambda: tables_with(OPTIMIZERS["Adagrad"]))
                            for _ in range(2))
            for step in range(3):
                inputs = moved(batch_of(step), place)
                expected = plain(inputs)
                with self.subTest(place=place, dtype=dtype), autocast(place, dtype):
                    out = embed(inputs)
                gradients = gradients_of(out, step)
                for name, rows in out.items():
                    self.assertIs(rows.dtype, dtype)
                    self.assertTrue(torch.equal(rows, expected[name].to(dtype)), name)
                self.backward(embed, out, gradients)
                self.backward(plain, expected,
                              {name: each.float() for name, each in gradients.items()})
            self.assert_same_rows(embed, plain)

    def test_views(self) -> None:
        """`tensor` and `stack()`, and gradients that are not dense in memory."""
        for place, dtype in self.each():
            embed = ht.EmbeddingCollection([zeros("a"), zeros("b")], device=place,
                                           **({"update": "step"} if place == "cpu" else {}))
            keys = moved({"a": torch.tensor([1, 2]), "b": torch.tensor([3, 4])}, place)
            with self.subTest(place=place, dtype=dtype), autocast(place, dtype):
                out = embed(keys)
                self.assertEqual({out.tensor.dtype, out.stack().dtype, out["a"].dtype}, {dtype})
                out = embed(keys).tensor
            wide = torch.arange(16.0, device=place).to(dtype).view(2, 8)
            out.backward(wide[:, ::2])
            if embed.update == "step":
                embed.optimizer().step()
            self.assertEqual(embed.rows("a")[1].tolist(), [[0, -2], [-8, -10]])
            self.assertEqual(embed.rows("b")[1].tolist(), [[-4, -6], [-12, -14]])

    def test_without_gradients(self) -> None:
        for place, dtype in self.each():
            embed = ht.EmbeddingCollection([zeros("a")], device=place)
            keys = {"a": torch.tensor([1], device=place)}
            with self.subTest(place=place, dtype=dtype), torch.no_grad(), autocast(place, dtype):
                self.assertIs(embed(keys).tensor.dtype, dtype)
                with autocast(place, dtype, enabled=False):
                    self.assertIs(embed(keys).tensor.dtype, torch.float32)

    def test_look_ups_of_several_types_in_one_pass(self) -> None:
        for place, dtype in self.each((torch.bfloat16,)):
            plain, embed = (ht.EmbeddingCollection(tables_with(OPTIMIZERS["Adam"]), device=place)
                            for _ in range(2))
            for step in range(3):
                inputs = [moved(batch_of(2 * step + i), place) for i in range(2)]
                expected = [plain(each) for each in inputs]
                with self.subTest(place=place), autocast(place, dtype):
                    first = embed(inputs[0])
                found = [first, embed(inputs[1])]
                gradients = [gradients_of(each, step) for each in found]
                for outs, cast in ((found, lambda each: each), (expected, torch.Tensor.float)):
                    torch.autograd.backward(
                        [rows for out in outs for rows in out.values()],
                        [cast(each) for of_out in gradients for each in of_out.values()])
            self.assert_same_rows(embed, plain)

    def test_gradients_of_all_outputs_and_of_one(self) -> None:
        """Their sum has more bits than the outputs' type."""
        for place, dtype in self.each((torch.bfloat16,)):
            embed = ht.EmbeddingCollection([zeros("a"), zeros("b")], device=place)
            keys = {name: torch.tensor([1], device=place) for name in "ab"}
            with self.subTest(place=place), autocast(place, dtype):
                out = embed(keys)
            (out.tensor.float().sum() + out["a"].float().sum() / 1024).backward()
            self.assertEqual(embed.rows("a")[1].tolist(), [[-1 - 2**-10] * 2])
            self.assertEqual(embed.rows("b")[1].tolist(), [[-1, -1]])

    def test_gradients_of_weights(self) -> None:
        for place, dtype in self.each((torch.bfloat16,)):
            found = []
            for enabled in (False, True):
                embed = ht.EmbeddingCollection([ht.Table("t", 8)], device=place)
                weights = torch.tensor([0.5, 2.0, -1.0], device=place, requires_grad=True)
                keys = torch.tensor([1, 2, 3], device=place)
                offsets = torch.tensor([0, 2, 3], device=place)
                with self.subTest(place=place), autocast(place, dtype, enabled):
                    out = embed({"t": (keys, offsets, weights)}).tensor
                out.backward(torch.full_like(out, 0.25))
                found.append(weights.grad)
            self.assertIs(found[1].dtype, torch.float32)
            torch.testing.assert_close(found[1], found[0], rtol=2**-7, atol=2**-9)

    def test_infinite_gradients_change_no_row(self) -> None:
        """As float16 gradients that a GradScaler has made too large."""
        for place in PLACES:
            embed = ht.EmbeddingCollection([zeros("t")], device=place)
            keys = {"t": torch.tensor([1], device=place)}
            with self.subTest(place=place), autocast(place, torch.bfloat16):
                out = embed(keys).tensor
            out.backward(torch.tensor([[1.0, np.inf]], device=place, dtype=torch.bfloat16))
            self.assertEqual(embed.rows("t")[1].tolist(), [[0, 0]])
            self.assertEqual(embed.anchor.grad.tolist(), [np.inf])

    def test_compiled(self) -> None:
        """A program keeps the type that it was compiled with, and is compiled again for another."""
        for place, dtype in self.each((torch.bfloat16,)):
            plain, embed = (ht.EmbeddingCollection([ht.Table("t", 4)], device=place)
                            for _ in range(2))
            program = torch.compile(lambda keys, embed=embed: embed(keys)["t"] * 2,
                                    fullgraph=True, backend="aot_eager")
            for enabled in (True, False, True):
                keys = {"t": torch.tensor([1, 2, 1], device=place)}
                with self.subTest(place=place, enabled=enabled), autocast(place, dtype, enabled):
                    expected, out = plain(keys)["t"] * 2, program(keys)
                self.assertIs(out.dtype, dtype if enabled else torch.float32)
                self.assertTrue(torch.equal(out, expected))
                for each in (out, expected):
                    each.backward(torch.ones_like(each))
                self.assert_same_rows(embed, plain)


if __name__ == "__main__":
    unittest.main()
