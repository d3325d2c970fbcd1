"""Tensors in and out, and the modules of hps.torch, against torch.nn on the same rows."""

import gc
import resource
import unittest
import weakref

import numpy as np
import support
import torch

import hps
import hps.torch


class TensorTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.session = self.open_store().session(support.MODEL)

    def test_tensors_give_tensors(self) -> None:
        keys = torch.tensor([[1, -4], [5, 1999]])
        rows, status = self.session.lookup("user", keys, status=True)
        self.assertIsInstance(rows, torch.Tensor)
        self.assert_rows("user", keys.numpy(), rows.numpy())
        self.assertEqual(status.tolist(), [[3, 0], [3, 3]])
        both = self.session.lookup({"user": keys, "item": keys.to(torch.int32)})
        self.assert_rows("item", keys.numpy(), both["item"].numpy())
        out = torch.empty(2, 2, 8)
        self.assertIs(self.session.lookup("user", keys, out=out), out)
        self.assert_rows("user", keys.numpy(), out.numpy())

    def test_an_answer_is_the_callers(self) -> None:
        keys = torch.arange(support.ROWS)
        kept = self.session.lookup({"user": keys, "item": keys})["item"][7]
        expected = kept.clone()
        for _ in range(3):
            self.session.lookup({"user": keys, "item": keys * 0})
            torch.testing.assert_close(kept, expected, rtol=0, atol=0)

    def test_bad_tensors(self) -> None:
        wrong = [(torch.arange(3.0), hps.InvalidArgumentError),
                 (torch.tensor([True]), hps.InvalidArgumentError),
                 (torch.arange(10)[::2], hps.InvalidArgumentError),
                 (torch.arange(3, device="meta"), hps.InvalidArgumentError)]
        for keys, kind in wrong:
            with self.subTest(keys=keys), self.assertRaisesRegex(kind, "keys of table"):
                self.session.lookup("user", keys)
        with self.assertRaisesRegex(TypeError, "keys of table 'item'"):
            self.session.lookup({"user": torch.arange(3), "item": np.arange(3)})
        with self.assertRaisesRegex(hps.InvalidArgumentError, "out of table"):
            self.session.lookup("user", torch.arange(3),
                                out=torch.empty(3, 8, dtype=torch.float64))

    def test_no_memory_is_lost(self) -> None:
        keys = torch.arange(100)

        def work(rounds: int) -> None:
            for _ in range(rounds):
                self.session.lookup({"user": keys, "item": keys}, status=True)
            gc.collect()

        work(500)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work(3000)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 2048)  # KiB


class ModuleTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()
        rows = torch.from_numpy(support.row_of("user", np.arange(support.ROWS)))
        self.weight = rows

    def keys(self, *shape: int) -> torch.Tensor:
        return torch.from_numpy(self.random.integers(0, support.ROWS, shape))

    def test_embedding(self) -> None:
        layer = hps.torch.Embedding(self.store, "ctr/user")
        self.assertEqual(layer.embedding_dim, 8)
        self.assertEqual(list(layer.parameters()), [])
        for shape in ((5,), (0,), (3, 4), ()):
            keys = self.keys(*shape)
            torch.testing.assert_close(layer(keys), self.weight[keys], rtol=0, atol=0)
        self.assertTrue((layer(torch.tensor([-7])) == support.DEFAULT).all())
        padded = hps.torch.Embedding(self.store, "ctr/user", padding_idx=3)
        self.assertEqual(padded(torch.tensor([3])).abs().sum(), 0)

    def test_embedding_bag_as_torch(self) -> None:
        for mode in ("sum", "mean", "max"):
            for padding in (None, 7):
                ours = hps.torch.EmbeddingBag(self.store, "ctr/user", mode=mode,
                                              padding_idx=padding)
                theirs = torch.nn.EmbeddingBag.from_pretrained(
                    self.weight, mode=mode, padding_idx=padding)
                keys = self.keys(6, 5)
                keys[2, 1] = keys[4, 4] = 7
                offsets = torch.tensor([0, 3, 3, 11])
                with self.subTest(mode=mode, padding=padding):
                    torch.testing.assert_close(ours(keys), theirs(keys))
                    torch.testing.assert_close(ours(keys.view(-1), offsets),
                                               theirs(keys.view(-1), offsets))
                    torch.testing.assert_close(ours(keys.view(-1)[:0], torch.tensor([0, 0])),
                                               theirs(keys.view(-1)[:0], torch.tensor([0, 0])))

    def test_weights_and_last_offset(self) -> None:
        ours = hps.torch.EmbeddingBag(self.store, "ctr/user", mode="sum", include_last_offset=True)
        theirs = torch.nn.EmbeddingBag.from_pretrained(self.weight, mode="sum",
                                                       include_last_offset=True)
        keys, offsets = self.keys(10), torch.tensor([0, 4, 10])
        weights = torch.rand(10, requires_grad=True)
        torch.testing.assert_close(ours(keys, offsets, weights), theirs(keys, offsets, weights))
        gradients = [torch.autograd.grad(bag(keys, offsets, weights).sum(), weights)[0]
                     for bag in (ours, theirs)]
        torch.testing.assert_close(*gradients)

    def test_wrong_arguments(self) -> None:
        with self.assertRaisesRegex(hps.InvalidArgumentError, "mode"):
            hps.torch.EmbeddingBag(self.store, "ctr/user", mode="min")
        with self.assertRaises(hps.NotFoundError):
            hps.torch.Embedding(self.store, "ctr/usr")
        with self.assertRaisesRegex(TypeError, "store"):
            hps.torch.Embedding("/tmp", "ctr/user")

    def test_operator(self) -> None:
        hps.torch.Embedding(self.store, "ctr/user")
        arguments = (self.keys(4), str(self.path), "ctr/user", 8)
        torch.library.opcheck(torch.ops.hps.lookup.default, arguments)
        with self.assertRaisesRegex(hps.FailedPreconditionError, "nowhere"):
            torch.ops.hps.lookup(self.keys(4), "nowhere", "ctr/user", 8)

    def test_compile_and_export(self) -> None:
        class Model(torch.nn.Module):
            def __init__(self, store: hps.Store):
                super().__init__()
                self.bag = hps.torch.EmbeddingBag(store, "ctr/user", mode="sum")
                self.dense = torch.nn.Linear(8, 3)

            def forward(self, keys: torch.Tensor) -> torch.Tensor:
                return self.dense(self.bag(keys))

        model = Model(self.store).eval()
        keys = self.keys(6, 5)
        with torch.no_grad():
            expected = model(keys)
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(compiled(keys), expected)
            program = torch.export.export(
                model, (keys,), dynamic_shapes={"keys": {0: torch.export.Dim("batch")}})
            torch.testing.assert_close(program.module()(keys[:4]), expected[:4])

    def test_import_of_an_embedding(self) -> None:
        embedding = torch.nn.Embedding(20, 6)
        self.store.import_table("ctr/trained", embedding)
        half = torch.rand(20, 6).to(torch.bfloat16)
        self.store.import_table("ctr/half", half)
        session = self.store.session("ctr")
        keys = torch.arange(20)
        torch.testing.assert_close(session.lookup("trained", keys), embedding.weight.detach(),
                                   rtol=0, atol=0)
        torch.testing.assert_close(session.lookup("half", keys), half.float(), rtol=0, atol=0)
        self.store.apply("ctr/half", torch.tensor([3]), torch.ones(1, 6, dtype=torch.bfloat16))
        self.assertEqual(session.lookup("half", torch.tensor(3)).sum(), 6)

    def test_a_store_is_not_kept_by_the_operator(self) -> None:
        store = hps.open(self.path, mode="r")
        hps.torch.Embedding(store, "ctr/user")(self.keys(3))
        gone = weakref.ref(store)
        del store
        gc.collect()
        self.assertIsNone(gone())


if __name__ == "__main__":
    unittest.main()
