"""The operators torch.ops.hps_train by themselves."""

import unittest

import numpy as np
import torch

import hps.train as ht

DIM = 4
OPS = torch.ops.hps_train


def collection() -> ht.EmbeddingCollection:
    return ht.EmbeddingCollection([
        ht.Table("a", DIM, optimizer=ht.Adam(lr=0.1)),
        ht.Table("b", DIM, optimizer=ht.Adagrad(lr=0.1), features=["b", "c", "d"])])


class OperatorsTest(unittest.TestCase):
    def look_up(self, embed, is_training: bool = True, **changed) -> torch.Tensor:
        arguments = {"collection": embed._look_ups.number, "keys": torch.arange(6), "offsets": None,
                     "weights": None, "features": [0, 1], "bag_counts": [3, 3], "is_weighted": [],
                     "is_training": is_training, "is_frozen": False,
                     "weights_need_gradients": False, "dtype": torch.float32}
        return OPS.look_up(*(arguments | changed).values())

    def test_opcheck(self) -> None:
        embed = collection()
        keys, offsets = torch.arange(6), torch.tensor([0, 1, 2, 3, 4, 5, 6])
        weights = torch.rand(6)
        # Each look-up has a number of its own; its rows are handed out once, and its gradients
        # taken once. So a test of each kind gets its own look-up, and
        # "test_aot_dispatch_dynamic", which compares two equal calls, is left to
        # train_compile_test.py.
        for kind in ("test_schema", "test_autograd_registration", "test_faketensor"):
            for is_training in (False, True):
                for arguments in ((keys, None, None), (keys, offsets, None),
                                  (keys, offsets, weights)):
                    torch.library.opcheck(
                        OPS.look_up.default,
                        (embed._look_ups.number, *arguments, [0, 1], [3, 3], [], is_training,
                         False, False, torch.bfloat16), test_utils=kind)
            torch.library.opcheck(
                OPS.look_up.default, (embed._look_ups.number, keys, offsets, weights, [0, 1],
                                      [3, 3], [True, False], True, False, True, torch.float32),
                test_utils=kind)
            for requires_grad in (False, True):
                anchor = torch.zeros(1, requires_grad=requires_grad)
                torch.library.opcheck(
                    OPS.rows.default,
                    (self.look_up(embed, dtype=torch.bfloat16), anchor, None, [3], [2 * DIM],
                     torch.bfloat16), test_utils=kind)
            for gradients in ([torch.rand(3, 2 * DIM)], [None]):
                torch.library.opcheck(
                    OPS.take_gradients.default, (self.look_up(embed), gradients, 0),
                    test_utils=kind)

    def test_without_a_compiler(self) -> None:
        """They are complete: a program of one's own can use them."""
        plain, embed = collection(), collection()
        for _ in range(3):
            found, = OPS.rows(self.look_up(embed), embed.anchor, None, [3], [2 * DIM],
                              torch.float32)
            expected = plain(ht.Keys(["a", "b"], torch.arange(6))).tensor
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
            found.square().sum().backward()
            expected.square().sum().backward()
            for name in plain.tables:
                np.testing.assert_array_equal(embed.rows(name)[1], plain.rows(name)[1])

    def test_a_collection_made_in_inference_mode(self) -> None:
        with torch.inference_mode():
            embed = collection()
        program = torch.compile(embed, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            self.assertEqual(program({"a": torch.arange(3)}).tensor.abs().sum(), 0)

    def test_errors(self) -> None:
        embed = collection()
        for changed, kind, text in [
                ({"keys": torch.arange(5)}, ValueError, "5 bags, but the features have .3, 3."),
                ({"keys": torch.rand(6)}, TypeError, "keys must be torch.int64"),
                ({"features": [0, 9]}, ValueError, "numbers from 0 to 3, not .0, 9."),
                ({"features": [0, 0]}, ValueError, "one or more different names"),
                ({"offsets": torch.tensor([0, 1, 2, 3, 4, 5, 7])}, ValueError, "must ascend"),
                ({"weights": torch.rand(5)}, ValueError, "5 weights for 6 keys"),
                ({"is_weighted": [True]}, ValueError, "is_weighted"),
                ({"weights_need_gradients": True}, ValueError, "there are no weights"),
                ({"keys": torch.arange(6, device="meta")}, ValueError, "keys are on meta, but"),
                ({"dtype": torch.float64}, ValueError, "dtype must be one of"),
                ({"collection": torch.tensor([0])}, RuntimeError, "or is in another process")]:
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                self.look_up(embed, **changed)
        look_up = self.look_up(embed)
        with self.assertRaisesRegex(ValueError, "blocks of .*3, 8.*, not"):
            OPS.rows(look_up, embed.anchor, None, [4], [8], torch.float32)
        OPS.rows(self.look_up(embed), embed.anchor, None, [3], [8], torch.float32)
        with self.assertRaisesRegex(ValueError, "made with torch.float32, not torch.bfloat16"):
            OPS.rows(self.look_up(embed), embed.anchor, None, [3], [8], torch.bfloat16)
        look_up = self.look_up(embed)
        OPS.rows(look_up, embed.anchor, None, [3], [8], torch.float32)
        with self.assertRaisesRegex(RuntimeError, "were handed out before"):
            OPS.rows(look_up, embed.anchor, None, [3], [8], torch.float32)
        with self.assertRaisesRegex(ValueError, "weights must be given if, and only if"):
            OPS.rows(self.look_up(embed), embed.anchor, torch.ones(6), [3], [8], torch.float32)
        with self.assertRaisesRegex(RuntimeError, "is_training=False has no gradients"):
            OPS.take_gradients(self.look_up(embed, False), [None], 0)
        for gradients in ([], [torch.rand(3, 7)], [torch.rand(3, 8)] * 2):
            with self.subTest(count=len(gradients)), self.assertRaisesRegex(
                    ValueError, "gradients of the shapes"):
                OPS.take_gradients(look_up, gradients, 0)
        with self.assertRaisesRegex(RuntimeError, "there is no such look-up"):
            OPS.take_gradients(torch.tensor([-1]), [None], 0)


if __name__ == "__main__":
    unittest.main()
