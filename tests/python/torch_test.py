"""Tensors in and out, and the modules of hps.torch, against torch.nn on the same rows."""

import gc
import os
import resource
import subprocess
import sys
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

    def test_views_of_negatives(self) -> None:
        """PyTorch has views whose values are the negatives of what is in their memory."""
        keys = torch._neg_view(torch.tensor([-3, -4]))
        self.assertEqual(keys.tolist(), [3, 4])
        plain = np.array([3, 4])
        store = self.session._store
        self.assert_rows("user", plain, self.session.lookup("user", keys).numpy())
        self.assert_rows("user", plain, self.session.lookup("user", keys, status=True)[0].numpy())
        self.assert_rows("user", plain, hps.torch.Embedding(store, "ctr/user")(keys).numpy())
        for rows in hps.torch.Embeddings(store, ["ctr/user", "ctr/user"])([keys, keys]):
            self.assert_rows("user", plain, rows.numpy())
        store.apply("ctr/user", keys, torch._neg_view(torch.full((2, 8), -9.0)))
        self.assertEqual(self.session.lookup("user", plain).tolist(), [[9.0] * 8] * 2)
        memory = torch.zeros(2, 8)
        with self.assertRaisesRegex(hps.InvalidArgumentError, "out of table 'user'"):
            self.session.lookup("user", keys, out=torch._neg_view(memory))

    def test_out_and_autograd(self) -> None:
        keys, weight = torch.tensor([3]), torch.ones(1, 8, requires_grad=True)
        for out in (weight, weight * 1):
            for some in (keys, keys.numpy()):
                with self.assertRaisesRegex(hps.InvalidArgumentError, "out of table .*gradient"):
                    self.session.lookup("user", some, out=out)
        for some in (keys, keys.numpy()):
            factor = torch.ones(1, 8)
            product = (weight * factor).sum()
            self.session.lookup("user", some, out=factor)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                product.backward()
        with torch.inference_mode():
            out = torch.zeros(1, 8)
        self.session.lookup("user", keys, out=out)
        self.assert_rows("user", keys.numpy(), out.numpy())

    def test_out_that_shares_memory(self) -> None:
        keys, block = torch.arange(4), torch.zeros(100)
        asked = {"ctr/user": keys, "user": keys}
        for second in (block[:32], block[31:63]):
            out = {"ctr/user": block[:32].view(4, 8), "user": second.view(4, 8)}
            with self.assertRaisesRegex(hps.InvalidArgumentError, "memory of two tables"):
                self.session.lookup(asked, out=out)
        out["user"] = block[32:64].view(4, 8)
        self.session.lookup(asked, out=out)
        self.assert_rows("user", keys.numpy(), out["user"].numpy())

    def test_memory_that_can_not_be_used(self) -> None:
        keys, freed = torch.arange(4), torch.zeros(4, 8)
        freed_keys = torch.arange(4)
        for tensor in (freed, freed_keys):
            tensor.untyped_storage().resize_(0)
        odd = torch.frombuffer(bytearray(4 * 32 + 1), dtype=torch.float32, offset=1).view(4, 8)
        block = torch.zeros(4, 8)
        inside = block.view(-1)[8:16].view(torch.int64)
        for out, some, text in ((freed, keys, "out of table 'ctr/user': it has no memory"),
                                (odd, keys, "out of table 'ctr/user': not aligned"),
                                (torch.zeros(1).expand(4, 8), keys, "out .*not contiguous"),
                                (block, inside, "out of table 'ctr/user': overlaps"),
                                (None, freed_keys, "keys of table 'ctr/user': it has no memory")):
            with self.subTest(text=text), self.assertRaisesRegex(hps.InvalidArgumentError, text):
                self.session.lookup("user", some, out=out, status=True)

    def test_messages_name_the_argument(self) -> None:
        store = self.session._store
        one = hps.torch.Embedding(store, "ctr/user")
        bag = hps.torch.EmbeddingBag(store, "ctr/user")
        several = hps.torch.Embeddings(store, ["ctr/user", "ctr/item"])
        array = np.array([1, 2])
        for part, call in (
                ("table: .*NoneType", lambda: hps.torch.Embedding(store, None)),
                ("tables: .*NoneType", lambda: hps.torch.Embeddings(store, [None])),
                ("input: .*list", lambda: one([1, 2])),
                ("input: .*ndarray", lambda: one(array)),
                ("input: .*ndarray", lambda: bag(array)),
                ("keys: .*ndarray", lambda: several(array)),
                ("keys: .*ndarray", lambda: several([array, array]))):
            with self.subTest(part=part), self.assertRaisesRegex(TypeError, part):
                call()
        with self.assertRaisesRegex(hps.InvalidArgumentError, "expected integers, found float16"):
            self.session.lookup("user", torch.tensor([1], dtype=torch.float16))
        with self.assertRaisesRegex(hps.InvalidArgumentError, "found float64"):
            self.session.lookup("user", torch.tensor([1]), out=torch.zeros(1, 8).double())
        with self.assertRaisesRegex(hps.InvalidArgumentError, "rows: .*int64"):
            store.apply("ctr/user", torch.tensor([1]), torch.zeros(1, 8).long())

    def test_an_answer_is_the_callers(self) -> None:
        keys = torch.arange(support.ROWS).repeat(3)  # rows of 0.6 MB
        kept = self.session.lookup({"user": keys, "item": keys})["item"][7]
        expected = kept.clone()
        layer = hps.torch.Embeddings(self.session._store, ["ctr/user", "ctr/item"])
        of_layer = layer([keys, keys])[1][7]
        for _ in range(3):
            self.session.lookup({"user": keys, "item": keys * 0})
            layer([keys, keys * 0])
            torch.testing.assert_close(kept, expected, rtol=0, atol=0)
            torch.testing.assert_close(of_layer, expected, rtol=0, atol=0)

    def test_inside_a_compiled_function(self) -> None:
        def doubled(user: torch.Tensor, item: torch.Tensor) -> tuple:
            rows = self.session.lookup({"user": user, "item": item})
            return rows["user"] * 2, rows["item"] * 2

        keys = torch.arange(5), torch.arange(7)
        compiled = torch.compile(doubled, backend="aot_eager")
        for _ in range(2):
            torch.testing.assert_close(compiled(*keys), doubled(*keys))

    def test_after_a_fork(self) -> None:
        keys = torch.arange(3)
        layer = hps.torch.Embedding(self.session._store, "ctr/user")
        layer(keys)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                layer(keys)
            except hps.FailedPreconditionError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_bad_tensors(self) -> None:
        wrong = [(torch.arange(3.0), hps.InvalidArgumentError),
                 (torch.tensor([True]), hps.InvalidArgumentError),
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
        path, both = str(self.path), "ctr/user:8\nctr/item:16"
        torch.library.opcheck(torch.ops.hps.lookup.default,
                              ([self.keys(4), self.keys(2, 3)], path, both))
        torch.library.opcheck(torch.ops.hps.lookup_stacked.default,
                              (self.keys(2, 4), path, "ctr/user:8\nctr/user:8"))
        wrong = [([self.keys(4)], "nowhere", "ctr/user:8", "FAILED_PRECONDITION.*nowhere"),
                 ([self.keys(4)], path, "ctr/user:9", "FAILED_PRECONDITION.*the dim 9, found 8"),
                 ([self.keys(4)], path, "ctr/usr:8", "NOT_FOUND.*ctr/usr"),
                 ([self.keys(4)], path, "ctr/user", "INVALID_ARGUMENT.*model/table:dim"),
                 ([self.keys(4)], path, both, "INVALID_ARGUMENT.*of 2 tables, found"),
                 ([torch.rand(4)], path, "ctr/user:8", "keys of table 'ctr/user': expected int64"),
                 ([self.keys(4), self.keys(4)[::2]], path, both,
                  "keys of table 'ctr/item': not contiguous")]
        for keys, source, tables, text in wrong:
            with self.subTest(text=text), self.assertRaisesRegex(RuntimeError, text):
                torch.ops.hps.lookup(keys, source, tables)
            with self.subTest(text=text), self.assertRaisesRegex(RuntimeError, text):
                torch.ops.hps.lookup_shared(keys, [], source, tables)
        with self.assertRaisesRegex(RuntimeError, "tables of one dim"):
            torch.ops.hps.lookup_stacked(self.keys(2, 4), path, both)

    def test_blocks_of_the_operator(self) -> None:
        """Rows are written through a pointer: only into memory that has room for all of them."""
        hps.torch.Embedding(self.store, "ctr/user")
        keys, arguments = self.keys(4), (str(self.path), "ctr/user:8")
        memory, freed = torch.zeros(64), torch.zeros(32)
        freed.untyped_storage().resize_(0)
        odd = torch.frombuffer(bytearray(4 * 32 + 1), dtype=torch.float32, offset=1)
        for blocks, text in (([torch.zeros(1).expand(32)], "not contiguous"),
                             ([memory[::2]], "not contiguous"),
                             ([memory.view(8, 8)[:, :4]], "not contiguous"),
                             ([memory[:31]], "expected 32 float32"),
                             ([memory], "expected 32 float32"),
                             ([memory[:32].double()], "expected 32 float32"),
                             ([memory[:32].int()], "expected 32 float32"),
                             ([freed], "no memory"),
                             ([odd], "not aligned"),
                             ([memory[:32], memory[32:]], "one tensor")):
            with self.subTest(text=text), self.assertRaisesRegex(RuntimeError, f"block: .*{text}"):
                torch.ops.hps.lookup_shared([keys], blocks, *arguments)
        for begin in (0, 8, 24):
            some = memory[begin:begin + 8].view(torch.int64)
            with self.assertRaisesRegex(RuntimeError, "block: overlaps the keys"):
                torch.ops.hps.lookup_shared([some], [memory[:32]], *arguments)
        self.assertEqual(memory.count_nonzero(), 0)
        beside = memory[32:40].view(torch.int64)
        for some in (keys, beside):
            rows, = torch.ops.hps.lookup_shared([some], [memory[:32]], *arguments)
            self.assertEqual(rows.data_ptr(), memory.data_ptr())
            self.assert_rows("user", some.numpy(), memory[:32].view(4, 8).numpy())
        freed_keys = torch.zeros(4, dtype=torch.int64)
        freed_keys.untyped_storage().resize_(0)
        with self.assertRaisesRegex(RuntimeError, "keys of table 'ctr/user': it has no memory"):
            torch.ops.hps.lookup([freed_keys], *arguments)

    def test_an_error_is_that_of_its_call(self) -> None:
        """What another call on this thread has left is not told again."""
        layer, nowhere = hps.torch.Embedding(self.store, "ctr/user"), torch.empty(3, device="meta")
        session, keys = self.store.session("ctr"), torch.zeros_like(nowhere, dtype=torch.int64)

        @torch.compile(backend="aot_eager")
        def wrong(some: torch.Tensor) -> torch.Tensor:
            return torch.ops.hps.lookup([some], str(self.path), "ctr/usr:8")[0]

        with self.assertRaisesRegex(RuntimeError, "NOT_FOUND.*ctr/usr"):
            wrong(self.keys(3))
        with self.assertRaises(NotImplementedError) as caught:  # PyTorch's
            layer(keys)
        self.assertNotIsInstance(caught.exception, hps.Error)
        with self.assertRaisesRegex(RuntimeError, "NOT_FOUND.*ctr/usr"):
            wrong(self.keys(3))
        with self.assertRaisesRegex(hps.InvalidArgumentError, "keys of table 'user'"):
            session.lookup({"user": keys})
        self.store.close()
        with self.assertRaisesRegex(hps.FailedPreconditionError, "^store: .*is closed"):
            layer(self.keys(3))

    def test_the_operator_sees_a_closed_store_and_its_successor(self) -> None:
        layer = hps.torch.Embedding(self.store, "ctr/user")
        keys, arguments = self.keys(4), (str(self.path), "ctr/user:8")
        rows = torch.ops.hps.lookup([keys], *arguments)[0]
        self.store.close()
        with self.assertRaisesRegex(RuntimeError, "FAILED_PRECONDITION.*closed"):
            torch.ops.hps.lookup([keys], *arguments)
        with self.assertRaisesRegex(hps.FailedPreconditionError, "closed"):
            layer(keys)
        hps.torch.Embedding(self.open_store(), "ctr/user")
        torch.testing.assert_close(torch.ops.hps.lookup([keys], *arguments)[0], rows)

    def test_embeddings_of_several_tables(self) -> None:
        layer = hps.torch.Embeddings(self.store, ["ctr/item", "ctr/user", "ctr/item"])
        self.assertEqual(layer.embedding_dims, [16, 8, 16])
        keys = [self.keys(3, 2), self.keys(0), self.keys(5)]
        rows = layer(keys)
        for table, some, found in zip(("item", "user", "item"), keys, rows):
            self.assert_rows(table, some.numpy(), found.numpy())
        same = hps.torch.Embeddings(self.store, ["ctr/user", "ctr/user"])
        stacked = self.keys(2, 6, 3)
        self.assert_rows("user", stacked.numpy(), same(stacked).numpy())
        self.assert_rows("user", stacked.numpy(), same(stacked.int()).numpy())
        transposed = self.keys(6, 2).t()
        self.assert_rows("user", transposed.numpy(), same(transposed).numpy())
        invalid = hps.InvalidArgumentError
        for call in (lambda: layer(stacked), lambda: layer(keys[:2]), lambda: same(self.keys(3, 2)),
                     lambda: hps.torch.Embeddings(self.store, "ctr/user"),
                     lambda: hps.torch.Embeddings(self.store, ["ctr/user", "other/user"])):
            self.assertRaises(invalid, call)

    def test_embeddings_compiled_and_exported(self) -> None:
        class Model(torch.nn.Module):
            def __init__(self, store: hps.Store):
                super().__init__()
                self.each = hps.torch.Embeddings(store, ["ctr/user", "ctr/item"])
                self.all = hps.torch.Embeddings(store, ["ctr/user"] * 2)

            def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
                rows = self.each([user, item])
                both = self.all(torch.stack([user, item]))
                return torch.cat([rows[0] * 2, rows[1], both[0], both[1]], dim=1)

        model = Model(self.store)
        arguments = (self.keys(6), self.keys(6))
        expected = model(*arguments)
        for backend in ("aot_eager", "inductor"):
            compiled = torch.compile(model, fullgraph=True, backend=backend)
            torch.testing.assert_close(compiled(*arguments), expected)
        batch = torch.export.Dim("batch")
        program = torch.export.export(model, arguments, dynamic_shapes=({0: batch}, {0: batch}))
        fewer = tuple(keys[:4] for keys in arguments)
        torch.testing.assert_close(program.module()(*fewer), expected[:4])

    def test_an_exported_program_in_another_process(self) -> None:
        path = self.directory / "program.pt2"
        keys = self.keys(5)
        layer = hps.torch.Embedding(self.store, "ctr/user")
        torch.export.save(torch.export.export(layer, (keys,)), path)
        torch.save((keys, layer(keys)), self.directory / "expected.pt")
        self.store.close()
        code = f"""if True:
            import hps, hps.torch, torch
            layer = hps.torch.Embedding(hps.open({str(self.path)!r}), "ctr/user")
            keys, expected = torch.load({str(self.directory / 'expected.pt')!r})
            program = torch.export.load({str(path)!r}).module()
            torch.testing.assert_close(program(keys), expected, rtol=0, atol=0)"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

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
