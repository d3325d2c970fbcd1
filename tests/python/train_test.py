"""hps.train in one process, against torch.nn and torch.optim on the same rows."""

import unittest

import numpy as np
import torch

import hps.train as ht

KEYS = 60
BATCH = 40
STEPS = 200


def batches(seed: int):
    """Bags of two keys, ragged bags, and targets. Every key occurs in every step, so that an
    optimizer that updates all rows does what one does that updates those of the step."""
    random = torch.Generator().manual_seed(seed)
    pairs = torch.cat([torch.arange(KEYS), torch.randint(KEYS, (2 * BATCH - KEYS,),
                                                         generator=random)])
    ragged = torch.cat([torch.randperm(KEYS, generator=random),
                        torch.randint(KEYS, (100,), generator=random)])
    cuts = torch.randint(len(ragged) + 1, (BATCH - 1,), generator=random).sort()[0]
    offsets = torch.cat([torch.tensor([0]), cuts, torch.tensor([len(ragged)])])
    return pairs.view(BATCH, 2), ragged, offsets, torch.rand(BATCH, 1, generator=random)


class AgainstTorchTest(unittest.TestCase):
    def compare(self, optimizer, make_peer) -> None:
        torch.manual_seed(1)
        embed = ht.EmbeddingCollection([
            ht.Table("pairs", 9, optimizer=optimizer),
            ht.Table("ragged", 16, optimizer=optimizer, pooling="mean")])
        embed({name: torch.arange(KEYS) for name in embed.tables})
        rows = {name: torch.from_numpy(embed.rows(name)[1]) for name in embed.tables}
        pairs = torch.nn.EmbeddingBag.from_pretrained(rows["pairs"], freeze=False, mode="sum")
        ragged = torch.nn.EmbeddingBag.from_pretrained(
            rows["ragged"], freeze=False, mode="mean", include_last_offset=True)
        peer = make_peer([*pairs.parameters(), *ragged.parameters()])
        network = torch.nn.Linear(25, 1)
        for step in range(STEPS):
            keys, keys2, offsets, target = batches(step)
            out = embed({"pairs": keys, "ragged": (keys2, offsets)})
            peers = pairs(keys), ragged(keys2, offsets)
            np.testing.assert_allclose(out["pairs"].detach(), peers[0].detach(), atol=1e-5)
            np.testing.assert_allclose(out["ragged"].detach(), peers[1].detach(), atol=1e-5)
            (network(torch.cat(list(out.values()), 1)) - target).square().mean().backward()
            peer.zero_grad()
            (network(torch.cat(peers, 1)) - target).square().mean().backward()
            peer.step()
        for name, bag in (("pairs", pairs), ("ragged", ragged)):
            np.testing.assert_allclose(embed.rows(name)[1], bag.weight.detach(), atol=1e-5)

    def test_sgd(self) -> None:
        self.compare(ht.SGD(lr=0.1), lambda rows: torch.optim.SGD(rows, lr=0.1))

    def test_adagrad(self) -> None:
        self.compare(ht.Adagrad(lr=0.05, initial_accumulator=0.1),
                     lambda rows: torch.optim.Adagrad(rows, lr=0.05,
                                                      initial_accumulator_value=0.1))

    def test_adam(self) -> None:
        self.compare(ht.Adam(lr=0.01), lambda rows: torch.optim.Adam(rows, lr=0.01))


class CollectionTest(unittest.TestCase):
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
        with self.assertRaisesRegex(KeyError, "no table 'u'"):
            embed({"u": torch.tensor([1])})
        with self.assertRaisesRegex(TypeError, "keys must be torch.int64"):
            embed({"t": torch.tensor([1.0])})
        with self.assertRaisesRegex(Exception, "offsets must ascend"):
            embed({"t": (torch.tensor([1, 2]), torch.tensor([0, 3]))})
        with self.assertRaisesRegex(ValueError, "pooling must be one of"):
            ht.Table("t", 2, pooling="max")
        with self.assertRaisesRegex(Exception, "dim must be"):
            ht.EmbeddingCollection([ht.Table("t", 0)])
        with self.assertRaisesRegex(ValueError, "one name"):
            ht.EmbeddingCollection([ht.Table("t", 1), ht.Table("t", 1)])


if __name__ == "__main__":
    unittest.main()
