"""hps.train with rows and outputs of 16 bits on a GPU, against the same tables on the CPU."""

import dataclasses
import itertools
import tempfile
import unittest
import warnings
from collections.abc import Callable

import torch
from train_device_test import (DEVICE, HAS_GPU, OPTIMIZERS, batch_of, contents, moved,
                               tables_with)

import hps.train as ht


@unittest.skipUnless(HAS_GPU, "needs a GPU")
class DevicePrecisionTest(unittest.TestCase):
    def pair(self, make: Callable) -> tuple[ht.EmbeddingCollection, ht.EmbeddingCollection]:
        """The tables on the CPU, and on the GPU."""
        return ht.EmbeddingCollection(make()), ht.EmbeddingCollection(make(), device=DEVICE)

    def test_rows_of_16_bits(self) -> None:
        """The same bits as on the CPU, where sums of gradients are exact."""
        for dtype in ("bfloat16", "float16"):
            for name in ("SGD", "momentum", "Adagrad", "Adam", "Ftrl"):
                host, device = self.pair(lambda name=name, dtype=dtype: [
                    dataclasses.replace(table, dtype=dtype)
                    for table in tables_with(OPTIMIZERS[name])])
                for step in range(10):
                    for embed, place in ((host, "cpu"), (device, DEVICE)):
                        out = embed(moved(batch_of(step) | {"weighted": torch.arange(step, 60)},
                                          place))
                        random = torch.Generator().manual_seed(step)
                        gradients = [torch.randint(-8, 8, rows.shape, generator=random)
                                     .to(place, torch.float32) for rows in out.values()]
                        gradients[1].zero_()  # its pooling is the mean
                        torch.autograd.backward(list(out.values()), gradients)
                with self.subTest(dtype=dtype, optimizer=name):
                    self.assertEqual(contents(device), contents(host))

    def test_outputs_of_16_bits(self) -> None:
        """Of 16-bit rows: of the same type and of the other one, of several widths, side by side
        and apart, pooled and with weights."""
        for rows, outputs in itertools.product(("bfloat16", "float16"),
                                               (torch.bfloat16, torch.float16)):
            for dims in ((8, 128), (16, 12), (40, 3)):
                embed = ht.EmbeddingCollection([
                    ht.Table(f"t{dim}", dim, dtype=rows, features=[f"a{dim}", ht.Feature(
                        f"b{dim}", "none")]) for dim in dims], device=DEVICE)
                keys = torch.arange(40, device=DEVICE)
                offsets = torch.arange(0, 41, 4, device=DEVICE)
                weights = torch.rand(40, device=DEVICE)
                some = keys.view(10, 4)
                for pooled in (keys, some, (keys, offsets, weights)):
                    inputs = {f"{name}{dim}": pooled if name == "a" else keys
                              for dim in dims for name in "ab"}
                    expected = embed(inputs)
                    with self.subTest(rows=rows, outputs=outputs, dims=dims), \
                            torch.autocast("cuda", dtype=outputs), warnings.catch_warnings():
                        warnings.simplefilter("ignore", UserWarning)  # no GradScaler
                        for name, found in embed(inputs).items():
                            self.assertTrue(torch.equal(found, expected[name].to(outputs)), name)

    def test_memory_of_16_bits(self) -> None:
        found = []
        for dtype in ("float32", torch.bfloat16):
            embed = ht.EmbeddingCollection([ht.Table("t", 128, dtype=dtype)], device=DEVICE)
            embed({"t": torch.arange(1000, device=DEVICE)})
            found.append(embed.statistics()["t"]["bytes"])
        self.assertEqual(found[0] - found[1], 1000 * 128 * 2)

    def test_a_checkpoint_of_16_bits(self) -> None:
        """It goes on, on the other device and with other rows, as if there had been none."""
        def make() -> list:
            return [ht.Table("t", 12, optimizer=ht.Adam(lr=0.1), dtype="bfloat16")]

        def step(embed: ht.EmbeddingCollection, number: int) -> None:
            keys = torch.arange(number, 40, device=embed.anchor.device)
            out = embed({"t": keys}).tensor
            out.backward(torch.ones_like(out))

        host, device = self.pair(make)
        for number in range(4):
            step(host, number)
            step(device, number)
        with tempfile.TemporaryDirectory() as folder:
            host.save(folder + "/host")
            device.save(folder + "/device")
            before = contents(host)
            for saved in ("host", "device"):
                next_host, next_device = self.pair(make)
                wide = ht.EmbeddingCollection([ht.Table("t", 12, optimizer=ht.Adam(lr=0.1))],
                                              device=DEVICE)
                for embed in (next_host, next_device, wide):
                    embed.load(f"{folder}/{saved}")
                self.assertEqual(contents(wide), before)
                for number in range(4, 8):
                    step(next_host, number)
                    step(next_device, number)
                    if saved == "host":
                        step(host, number)
                self.assertEqual(contents(next_host), contents(host))
                self.assertEqual(contents(next_device), contents(host))


if __name__ == "__main__":
    unittest.main()
