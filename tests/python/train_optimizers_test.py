"""The optimizers and initial values of hps.train, against their formulas and other libraries."""

import contextlib
import dataclasses
import importlib.util
import io
import json
import logging
import math
import pathlib
import shutil
import tempfile
import unittest
import zlib

import numpy as np
import torch

import hps.train as ht

KEYS = 60
BATCH = 40
STEPS = 200
DIMS = (1, 9, 16, 33)

# One of each, with constants that all count.
OPTIMIZERS = [
    ht.SGD(lr=0.1), ht.SGD(lr=0.1, weight_decay=0.05),
    ht.SGD(lr=0.1, momentum=0.75, weight_decay=0.05),
    ht.SGD(lr=0.1, momentum=0.75, nesterov=True),
    ht.Adagrad(lr=0.1, initial_accumulator=0.1, eps=0.01, weight_decay=0.05),
    ht.RowwiseAdagrad(lr=0.1, initial_accumulator=0.1, eps=0.01, weight_decay=0.05),
    ht.Adam(lr=0.1, betas=(0.75, 0.875), eps=0.01, weight_decay=0.05),
    ht.Adam(lr=0.1, betas=(0.75, 0.875), eps=0.01, weight_decay=0.05, bias_correction="step"),
    ht.Ftrl(lr=0.1, l1=0.25, l2=0.5, beta=1.0, initial_accumulator=0.1), ht.Ftrl(lr=0.1)]


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


def some_keys(step: int) -> torch.Tensor:
    """Keys of one step: some of them, with duplicates."""
    random = torch.Generator().manual_seed(step)
    return (torch.rand(BATCH, generator=random)**2 * KEYS).long()


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

    def test_momentum(self) -> None:
        self.compare(ht.SGD(lr=0.1, momentum=0.9),
                     lambda rows: torch.optim.SGD(rows, lr=0.1, momentum=0.9))

    def test_nesterov(self) -> None:
        self.compare(ht.SGD(lr=0.1, momentum=0.9, nesterov=True),
                     lambda rows: torch.optim.SGD(rows, lr=0.1, momentum=0.9, nesterov=True))

    def test_adagrad(self) -> None:
        self.compare(ht.Adagrad(lr=0.05, initial_accumulator=0.1),
                     lambda rows: torch.optim.Adagrad(rows, lr=0.05,
                                                      initial_accumulator_value=0.1))

    def test_adam(self) -> None:
        self.compare(ht.Adam(lr=0.01), lambda rows: torch.optim.Adam(rows, lr=0.01))

    def test_adam_with_decoupled_weight_decay(self) -> None:
        self.compare(ht.Adam(lr=0.01, weight_decay=0.1),
                     lambda rows: torch.optim.AdamW(rows, lr=0.01, weight_decay=0.1))

    def test_sparse_adam_on_steps_without_every_key(self) -> None:
        for dim in (9, 16):
            embed = ht.EmbeddingCollection([
                ht.Table("t", dim, optimizer=ht.Adam(lr=0.01, bias_correction="step"))])
            embed({"t": torch.arange(KEYS)})
            peer = torch.nn.Embedding.from_pretrained(torch.from_numpy(embed.rows("t")[1]),
                                                      freeze=False, sparse=True)
            optimizer = torch.optim.SparseAdam(peer.parameters(), lr=0.01)
            for step in range(STEPS):
                keys = some_keys(step)
                self.assertLess(keys.unique().numel(), KEYS)
                for out in (embed({"t": keys})["t"], peer(keys)):
                    (out - step / STEPS).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            np.testing.assert_allclose(embed.rows("t")[1], peer.weight.detach(), atol=1e-5)

    @unittest.skipUnless(importlib.util.find_spec("fbgemm_gpu"), "needs fbgemm_gpu")
    def test_rowwise_adagrad_of_fbgemm(self) -> None:
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)
        with contextlib.redirect_stdout(io.StringIO()):
            from fbgemm_gpu.split_embedding_configs import EmbOptimType
            from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
            from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
                ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)
        for dim in (4, 36):
            embed = ht.EmbeddingCollection([
                ht.Table("t", dim, optimizer=ht.RowwiseAdagrad(lr=0.05, eps=1e-3))])
            embed({"t": torch.arange(KEYS)})
            peer = SplitTableBatchedEmbeddingBagsCodegen(
                [(KEYS, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)], learning_rate=0.05,
                optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD, eps=1e-3)
            peer.split_embedding_weights()[0].copy_(torch.from_numpy(embed.rows("t")[1]))
            for step in range(STEPS):
                keys = some_keys(step)
                for out in (embed({"t": keys})["t"], peer(keys, torch.arange(BATCH + 1))):
                    (out - step / STEPS).square().sum().backward()
            np.testing.assert_allclose(embed.rows("t")[1], peer.split_embedding_weights()[0],
                                       atol=1e-5)


def update_by_formula(optimizer, row: dict, g: np.ndarray, t: int) -> None:
    """One update of a row, {"w", "count", state}, with the table's t-th step, in float64."""
    lr = optimizer.lr
    row["count"] += 1
    row["w"] -= lr * getattr(optimizer, "weight_decay", 0) * row["w"]
    if isinstance(optimizer, ht.SGD):
        row["b"] = optimizer.momentum * row.get("b", 0) + g
        row["w"] -= lr * (g + optimizer.momentum * row["b"] if optimizer.nesterov else row["b"])
    elif isinstance(optimizer, (ht.Adagrad, ht.RowwiseAdagrad)):
        square = g**2 if isinstance(optimizer, ht.Adagrad) else (g**2).mean()
        row["a"] = row.get("a", optimizer.initial_accumulator) + square
        row["w"] -= lr * g / (np.sqrt(row["a"]) + optimizer.eps)
    elif isinstance(optimizer, ht.Adam):
        beta1, beta2 = optimizer.betas
        row["m"] = beta1 * row.get("m", 0) + (1 - beta1) * g
        row["v"] = beta2 * row.get("v", 0) + (1 - beta2) * g**2
        if optimizer.bias_correction == "row":
            first, second = 1 - beta1**row["count"], 1 - beta2**row["count"]
            row["w"] -= lr * (row["m"] / first) / (np.sqrt(row["v"] / second) + optimizer.eps)
        else:
            rate = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            row["w"] -= rate * row["m"] / (np.sqrt(row["v"]) + optimizer.eps)
    else:
        before = row.get("n", optimizer.initial_accumulator)
        row["n"] = before + g**2
        sigma = (np.sqrt(row["n"]) - np.sqrt(before)) / lr
        z = row["z"] = row.get("z", 0) + g - sigma * row["w"]
        row["w"] = np.where(np.abs(z) <= optimizer.l1, 0, -(z - np.sign(z) * optimizer.l1) / (
            (optimizer.beta + np.sqrt(row["n"])) / lr + optimizer.l2))


class FormulaTest(unittest.TestCase):
    def test_every_optimizer_follows_its_formula(self) -> None:
        for optimizer in OPTIMIZERS:
            for dim in DIMS:
                with self.subTest(optimizer=optimizer, dim=dim):
                    self.compare(optimizer, dim)

    def compare(self, optimizer, dim: int) -> None:
        random = np.random.default_rng(dim)
        embed = ht.EmbeddingCollection([ht.Table("t", dim, optimizer=optimizer)])
        expected: dict[int, dict] = {}
        for t in range(1, 21):
            keys = some_keys(t)
            out = embed({"t": keys})["t"]
            gradients = random.normal(size=(BATCH, dim)).astype(np.float32)
            sums: dict[int, np.ndarray] = {}
            for key, values, gradient in zip(keys.tolist(), out.detach().numpy(), gradients):
                if key not in expected:
                    expected[key] = {"w": values.astype(np.float64), "count": 0}
                sums[key] = sums.get(key, 0) + gradient.astype(np.float64)
            out.backward(torch.from_numpy(gradients))
            for key, total in sums.items():
                update_by_formula(optimizer, expected[key], total, t)
        keys, rows = embed.rows("t")
        self.assertEqual(sorted(expected), keys.tolist())
        self.assertLess(len({row["count"] for row in expected.values()}), len(expected))
        np.testing.assert_allclose(rows, [expected[key]["w"] for key in keys.tolist()],
                                   rtol=0, atol=2e-5)

    def test_ftrl_has_zeros_below_its_threshold(self) -> None:
        embed = ht.EmbeddingCollection([
            ht.Table("t", 2, optimizer=ht.Ftrl(lr=1.0, l1=1.0, beta=1.0, initial_accumulator=0.0),
                     init=ht.Constant(0.0))])
        out = embed({"t": torch.tensor([1, 2])})["t"]
        out.backward(torch.tensor([[1.0, -1.0], [3.0, -3.0]]))
        self.assertEqual(embed.rows("t")[1].tolist(), [[0, 0], [-0.5, 0.5]])

    def test_large_and_small_gradients_leave_numbers(self) -> None:
        for optimizer in OPTIMIZERS:
            embed = ht.EmbeddingCollection([ht.Table("t", 33, optimizer=optimizer)])
            for gradient in (0.0, 1e-30, 1e14, -1e14, 1e-30, 0.0):
                embed({"t": torch.tensor([1])})["t"].backward(torch.full((1, 33), gradient))
                self.assertTrue(np.isfinite(embed.rows("t")[1]).all(), (optimizer, gradient))
            self.assertEqual(embed.skipped_steps, 0)

    def test_a_step_that_is_skipped_does_not_count(self) -> None:
        rows = []
        for skipped in (False, True):
            embed = ht.EmbeddingCollection([
                ht.Table("t", 2, optimizer=ht.Adam(lr=0.1, bias_correction="step"))])
            for gradient in (1.0, float("nan"), 1.0) if skipped else (1.0, 1.0):
                embed({"t": torch.tensor([1])})["t"].backward(torch.full((1, 2), gradient))
            rows.append(embed.rows("t")[1])
        np.testing.assert_array_equal(*rows)

    def test_the_learning_rate_of_ftrl_is_above_zero(self) -> None:
        table = ht.Table("t", 2, optimizer=ht.Ftrl(lr=0.0))
        embed = ht.EmbeddingCollection([table])
        out = embed({"t": torch.tensor([1])})["t"]
        before = embed.rows("t")[1]
        with self.assertRaisesRegex(ValueError, "table 't': the learning rate is 0.0, but must be "
                                                "at least 1e-12 for Ftrl"):
            out.sum().backward()
        np.testing.assert_array_equal(embed.rows("t")[1], before)

    def test_wrong_arguments_are_named(self) -> None:
        nan, infinity = float("nan"), float("inf")
        for kind, argument, *values in (
                (ht.SGD, "momentum", -0.1, 1.0, nan), (ht.SGD, "weight_decay", -1, infinity),
                (ht.Adagrad, "eps", -1e-9, nan), (ht.Adagrad, "initial_accumulator", -1),
                (ht.Adagrad, "weight_decay", -1), (ht.RowwiseAdagrad, "eps", -1),
                (ht.RowwiseAdagrad, "initial_accumulator", infinity),
                (ht.RowwiseAdagrad, "weight_decay", nan), (ht.Adam, "eps", -1),
                (ht.Adam, "weight_decay", -1), (ht.Adam, "bias_correction", "table", None, 1),
                (ht.Ftrl, "l1", -1), (ht.Ftrl, "l2", nan), (ht.Ftrl, "beta", -1),
                (ht.Ftrl, "initial_accumulator", -1, 0.0)):
            for value in values:
                with self.assertRaisesRegex(ValueError, f"^{kind.__name__}: {argument} must be "):
                    kind(**{argument: value})
        for kind in (ht.SGD, ht.Adagrad, ht.RowwiseAdagrad, ht.Adam, ht.Ftrl):
            for field in dataclasses.fields(kind):
                if field.name in ("lr", "nesterov", "betas", "bias_correction"):
                    continue
                for value in ("1", None, True, [1]):
                    with self.assertRaisesRegex(
                            TypeError, f"^{kind.__name__}: {field.name} must be a number"):
                        kind(**{field.name: value})
        for betas in (0.9, (0.9,), (0.9, 0.9, 0.9), "ab"[:1]):
            with self.assertRaisesRegex(TypeError, "^Adam: betas must be two numbers"):
                ht.Adam(betas=betas)
        with self.assertRaisesRegex(ValueError, r"^Adam: betas\[1\] must be .* below 1, not 1"):
            ht.Adam(betas=(0.9, 1.0))
        with self.assertRaisesRegex(ValueError, "^SGD: nesterov must be False without a momentum"):
            ht.SGD(nesterov=True)
        with self.assertRaisesRegex(TypeError, "^SGD: nesterov must be True or False"):
            ht.SGD(momentum=0.9, nesterov=1)


def train(embed: ht.EmbeddingCollection, steps: range) -> None:
    for step in steps:
        out = embed({name: some_keys(step) for name in embed.tables})
        sum((rows - 0.5).square().sum() for rows in out.values()).backward()


class CheckpointTest(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_train_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    @staticmethod
    def collection(optimizers=OPTIMIZERS) -> ht.EmbeddingCollection:
        return ht.EmbeddingCollection([ht.Table(f"t{i}", 9, optimizer=optimizer, admit_after=2)
                                       for i, optimizer in enumerate(optimizers)])

    def assert_same_rows(self, first, second) -> None:
        for name in first.tables:
            for a, b in zip(first.rows(name), second.rows(name)):
                np.testing.assert_array_equal(a, b)

    def test_resumed_equals_uninterrupted(self) -> None:
        embed = self.collection()
        train(embed, range(5))
        embed.save(self.directory)
        train(embed, range(5, 10))
        embed.save(self.directory, incremental=True)
        # Without gradients: the numbers of steps and of updates differ.
        embed({name: some_keys(10) for name in embed.tables})
        embed.save(self.directory, incremental=True)
        resumed = self.collection()
        resumed.load(self.directory)
        self.assert_same_rows(embed, resumed)
        for each in (embed, resumed):
            train(each, range(11, 20))
        self.assert_same_rows(embed, resumed)

    def test_another_state_is_refused(self) -> None:
        for saved, loaded, words in (
                (ht.SGD(), ht.SGD(momentum=0.9), "'states': 0.* there.*'states': 1"),
                (ht.SGD(momentum=0.9), ht.SGD(), "'states': 1.* there.*'states': 0"),
                (ht.Adagrad(), ht.RowwiseAdagrad(), "'Adagrad'.* there.*'RowwiseAdagrad'"),
                (ht.Adam(), ht.Adam(bias_correction="step"), "'Adam'.* there.*'step'"),
                (ht.Adam(bias_correction="step"), ht.Adam(), "'step'.* there"),
                (ht.Adam(), ht.Ftrl(), "'Adam'.* there.*'Ftrl'")):
            embed = self.collection([saved])
            train(embed, range(2))
            embed.save(self.directory)
            with self.assertRaisesRegex(ValueError, f"checkpoint: table 't0' is .*{words}"):
                self.collection([loaded]).load(self.directory)

    def test_constants_may_change(self) -> None:
        embed = self.collection([ht.SGD(momentum=0.9)])
        train(embed, range(2))
        embed.save(self.directory)
        other = self.collection([ht.SGD(lr=0.5, momentum=0.5, nesterov=True, weight_decay=0.1)])
        other.load(self.directory)
        self.assert_same_rows(embed, other)

    def write_by_hand(self, embed: ht.EmbeddingCollection) -> None:
        """The format before tables counted their updates."""
        described = {"SGD": 0, "Adagrad": 1, "Adam": 2}
        manifest = {"version": 3, "plans": [], "saves": [{"number": 1, "ranks": 1, "files": {}}],
                    "tables": {}}
        (self.directory / "hps-save-1").mkdir()
        for name, table in embed.tables.items():
            rows = embed._engine.shards[name].read_rows(True) | {"erased": np.empty(0, np.int64)}
            arrays = [(array, dtype, rows[array].astype(dtype)) for array, dtype in (
                ("keys", "<i8"), ("values", "<f4"), ("last_seen", "<u4"), ("update_counts", "<u4"),
                ("pending_keys", "<i8"), ("pending_counts", "<u4"), ("erased", "<i8"))]
            header = {"step": rows["step"],
                      "arrays": [[array, dtype, values.size] for array, dtype, values in arrays]}
            content = json.dumps(header).encode() + b"\n" + b"".join(
                values.tobytes() for _, _, values in arrays)
            (self.directory / "hps-save-1" / f"{name}.0").write_bytes(content)
            manifest["saves"][0]["files"][f"{name}.0"] = {"bytes": len(content),
                                                          "crc32": zlib.crc32(content)}
            optimizer = type(table.optimizer).__name__
            manifest["tables"][name] = {"dim": table.dim, "optimizer": optimizer,
                                        "states": described[optimizer]}
        (self.directory / "manifest.json").write_text(json.dumps(manifest))

    def test_a_checkpoint_of_the_format_before_is_read(self) -> None:
        optimizers = [ht.SGD(lr=0.1), ht.Adagrad(lr=0.1), ht.Adam(lr=0.1)]
        embed = self.collection(optimizers)
        train(embed, range(5))
        self.write_by_hand(embed)
        resumed = self.collection(optimizers)
        resumed.load(self.directory)
        self.assertEqual(resumed._engine.shards["t0"].read_rows(True)["table_updates"], 5)
        for each in (embed, resumed):
            train(each, range(5, 10))
        self.assert_same_rows(embed, resumed)
        resumed.save(self.directory)
        manifest = json.loads((self.directory / "manifest.json").read_text())
        self.assertEqual(manifest["tables"], {
            "t0": {"dim": 9, "optimizer": "SGD", "states": 0},
            "t1": {"dim": 9, "optimizer": "Adagrad", "states": 1},
            "t2": {"dim": 9, "optimizer": "Adam", "states": 2}})


def initial_rows(init, dim: int = 33, count: int = 20_000) -> np.ndarray:
    embed = ht.EmbeddingCollection([ht.Table("t", dim, init=init)])
    return embed({"t": torch.arange(count)})["t"].detach().numpy()


class InitialValuesTest(unittest.TestCase):
    def test_moments_and_bounds(self) -> None:
        def moments(values: np.ndarray) -> tuple[float, float, float]:
            deviations = values.astype(np.float64) - values.mean(dtype=np.float64)
            variance = (deviations**2).mean()
            return values.mean(dtype=np.float64), variance, (deviations**4).mean() / variance**2

        normal = initial_rows(ht.Normal(mean=-1.0, std=0.5, seed=3))
        for found, expected in zip(moments(normal), (-1, 0.25, 3)):
            self.assertAlmostEqual(found, expected, delta=0.02)
        self.assertGreater(normal.max() - normal.min(), 4)
        truncated = initial_rows(ht.TruncatedNormal(mean=1.0, std=0.5, seed=3))
        for found, expected in zip(moments(truncated), (1, 0.25 * 0.77374, 2.36)):
            self.assertAlmostEqual(found, expected, delta=0.02)
        self.assertGreaterEqual(truncated.min(), 0)
        self.assertLessEqual(truncated.max(), 2)
        one_side = initial_rows(ht.TruncatedNormal(std=2.0, low=0.0, high=8.0))
        self.assertGreaterEqual(one_side.min(), 0)
        self.assertAlmostEqual(one_side.mean(dtype=np.float64), 2 * math.sqrt(2 / math.pi),
                               delta=0.01)
        self.assertEqual(set(initial_rows(ht.Constant(0.25), 3, 10).flatten().tolist()), {0.25})

    def test_values_do_not_depend_on_the_order_of_keys(self) -> None:
        keys = torch.tensor([7, -2**63, 0, 2**63 - 1])
        for init in (ht.Uniform(-1.0, 1.0, 1), ht.Normal(std=1.0, seed=1),
                     ht.TruncatedNormal(std=1.0, seed=1)):
            first, second = (ht.EmbeddingCollection([ht.Table("t", 5, init=init)])
                             for _ in range(2))
            rows = first({"t": keys})["t"].detach()
            for i in (2, 0, 3, 1):
                torch.testing.assert_close(second({"t": keys[i:i + 1]})["t"][0].detach(), rows[i],
                                           rtol=0, atol=0)
            other = dataclasses.replace(init, seed=2)
            self.assertFalse((initial_rows(other, 5, 9) == initial_rows(init, 5, 9)).any())

    def test_values_are_the_same_bits_on_every_machine(self) -> None:
        """Computed with Python's own inverse normal distribution (statistics.NormalDist)."""
        for init, key, *expected in (
                (ht.Uniform(-2.0, 1.0, 7), -1, "-0x1.3a572ap+0", "-0x1.8b351cp+0"),
                (ht.Normal(std=1.0, seed=7), -1, "-0x1.4d8e74p-1", "-0x1.070f82p+0"),
                (ht.Normal(std=1.0, seed=7), 2**63 - 1, "-0x1.af8282p+0", "-0x1.f337ep-1"),
                (ht.TruncatedNormal(mean=1.0, std=0.5, seed=1), 5, "0x1.a02478p+0",
                 "0x1.7ac61ap-1")):
            embed = ht.EmbeddingCollection([ht.Table("t", 2, init=init)])
            row = embed({"t": torch.tensor([key])})["t"][0].tolist()
            self.assertEqual(row, [float.fromhex(value) for value in expected])

    def test_wrong_arguments_are_named(self) -> None:
        nan, infinity = float("nan"), float("inf")
        for make, problem in (
                (lambda: ht.Uniform(nan, 1.0), "Uniform: low must be a finite number"),
                (lambda: ht.Uniform(0.0, infinity), "Uniform: high must be a finite number"),
                (lambda: ht.Uniform(1.0, 0.0), "Uniform: low must be at most high, 0.0, not 1.0"),
                (lambda: ht.Uniform(0.0, 1.0, -1), "Uniform: seed must be an integer"),
                (lambda: ht.Constant(infinity), "Constant: value must be a finite number"),
                (lambda: ht.Normal(mean=nan, std=1.0), "Normal: mean must be a finite number"),
                (lambda: ht.Normal(std=-1.0), "Normal: std must be a number of at least 0"),
                (lambda: ht.Normal(std=1.0, seed=2**64), "Normal: seed must be an integer"),
                (lambda: ht.TruncatedNormal(std=nan), "TruncatedNormal: std must be a number"),
                (lambda: ht.TruncatedNormal(std=1.0, low=-9.0), "TruncatedNormal: low must be a "),
                (lambda: ht.TruncatedNormal(std=1.0, high=9.0), "TruncatedNormal: high must be"),
                (lambda: ht.TruncatedNormal(std=1.0, low=1.0, high=1.0),
                 "TruncatedNormal: low must be below high")):
            with self.assertRaisesRegex(ValueError, f"^{problem}"):
                make()
        for make in (lambda: ht.Uniform("0", 1.0), lambda: ht.Normal(std=None),
                     lambda: ht.Normal(1.0), lambda: ht.Uniform(0.0, 1.0, 0.5),
                     lambda: ht.Constant(None), lambda: ht.TruncatedNormal(std=1.0, low="a")):
            self.assertRaises(TypeError, make)


if __name__ == "__main__":
    unittest.main()
