"""hps.train with tables on a GPU, against PyTorch and against the same tables on the CPU.

What a GPU computes is skipped where there is none, or where the package was built without CUDA
(`make wheel-gpu`).
"""

import contextlib
import importlib.util
import pathlib
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import torch

import hps
import hps.train as ht

DEVICE = "cuda:0"
ERROR_MAX = 1e-5  # of the largest value
BATCH = 24
KEY_COUNT = 60
LEAST = -2**63


def has_gpu() -> bool:
    if not torch.cuda.is_available():
        return False
    try:
        ht.EmbeddingCollection([ht.Table("t", 1)], device=DEVICE)
    except (hps.UnimplementedError, hps.UnavailableError):
        return False
    return True


HAS_GPU = has_gpu()

OPTIMIZERS = {
    "SGD": lambda: ht.SGD(lr=0.1),
    "SGD with weight decay": lambda: ht.SGD(lr=0.1, weight_decay=0.1),
    "momentum": lambda: ht.SGD(lr=0.1, momentum=0.9),
    "Nesterov": lambda: ht.SGD(lr=0.1, momentum=0.9, nesterov=True),
    "Adagrad": lambda: ht.Adagrad(lr=0.1),
    "RowwiseAdagrad": lambda: ht.RowwiseAdagrad(lr=0.1),
    "Adam": lambda: ht.Adam(lr=0.01),
    "Adam by steps": lambda: ht.Adam(lr=0.01, bias_correction="step"),
    "Ftrl": lambda: ht.Ftrl(lr=0.1, l1=0.01, l2=0.01),
}


def tables_with(optimizer: Callable) -> list[ht.Table]:
    """Several widths and poolings, and features that share a table."""
    return [ht.Table("plain", 4, optimizer=optimizer()),
            ht.Table("shared", 8, optimizer=optimizer(), pooling="mean",
                     features=["ragged", ht.Feature("pairs", "sum")]),
            ht.Table("single", 3, optimizer=optimizer(), pooling="none"),
            ht.Table("weighted", 17, optimizer=optimizer())]


def ragged(random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """(keys, offsets) with some empty bags."""
    lengths = torch.randint(4, (BATCH,), generator=random)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return torch.randint(KEY_COUNT, (int(offsets[-1]),), generator=random), offsets


def batch_of(seed: int) -> dict:
    """Inputs of `tables_with`, on the CPU."""
    random = torch.Generator().manual_seed(seed)
    keys, offsets = ragged(random)
    return {"plain": torch.randint(KEY_COUNT, (BATCH,), generator=random),
            "ragged": ragged(random),
            "pairs": torch.randint(KEY_COUNT, (BATCH, 2), generator=random),
            "single": torch.randint(KEY_COUNT, (BATCH, 2), generator=random),
            "weighted": (keys, offsets, torch.rand(keys.numel(), generator=random))}


def moved(inputs: dict, device: object) -> dict:
    def move(value: object) -> object:
        return tuple(map(move, value)) if isinstance(value, tuple) else value.to(device)
    return {name: move(value) for name, value in inputs.items()}


def loss_of(out: ht.Rows) -> torch.Tensor:
    """Its gradients depend on the rows, and are not the same for all."""
    return sum((0.5 * rows.square() + rows * (1 + i)).sum() for i, rows in enumerate(out.values()))


def train(embed: ht.EmbeddingCollection, steps: range, device: object) -> None:
    for step in steps:
        loss_of(embed(moved(batch_of(step), device))).backward()


def zeros(name: str, dim: int = 2, **options) -> ht.Table:
    """Its rows are minus the sums of their gradients."""
    return ht.Table(name, dim, optimizer=ht.SGD(lr=1.0), init=ht.Constant(0), **options)


def contents(embed: ht.EmbeddingCollection) -> dict:
    return {name: [array.tolist() for array in embed.rows(name)] for name in embed.tables}


class ArgumentsTest(unittest.TestCase):
    """Errors and conversions that need no GPU."""

    def test_tables_on_the_cpu(self) -> None:
        for device in (None, "cpu", "cpu:0", torch.device("cpu")):
            embed = ht.EmbeddingCollection([zeros("t")], device=device)
            embed({"t": [1]}).tensor.sum().backward()
            self.assertEqual(contents(embed), {"t": [[1], [[-1, -1]]]})
            self.assertEqual(embed.anchor.device, torch.device("cpu"))

    def test_what_is_no_device(self) -> None:
        for device, text in (("meta", 'must be "cpu" or a GPU'), ("nowhere", "'nowhere' is none")):
            with self.subTest(device), self.assertRaisesRegex(ValueError, text):
                ht.EmbeddingCollection([zeros("t")], device=device)

    def test_what_a_gpu_does_not_have_yet(self) -> None:
        scaler = torch.amp.GradScaler("cpu")
        for text, options in (("updated in backward only", {"update": "step"}),
                              ("take no grad_scaler; .* bfloat16", {"grad_scaler": scaler})):
            with self.subTest(text), warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                with self.assertRaisesRegex(NotImplementedError, text):
                    ht.EmbeddingCollection([zeros("t")], device=DEVICE, **options)
        with mock.patch("torch.distributed.is_initialized", return_value=True), \
                mock.patch("torch.distributed.get_world_size", return_value=2), \
                self.assertRaisesRegex(NotImplementedError, "of one process only"):
            ht.EmbeddingCollection([zeros("t")], device=DEVICE)

    @unittest.skipIf(HAS_GPU, "there is a GPU")
    def test_no_gpu(self) -> None:
        for device in ("cuda", DEVICE, torch.device(DEVICE)):
            with self.assertRaises((hps.UnimplementedError, hps.UnavailableError)) as raised:
                ht.EmbeddingCollection([zeros("t")], device=device)
            if isinstance(raised.exception, hps.UnimplementedError):
                self.assertIsInstance(raised.exception, NotImplementedError)
                self.assertIn("make wheel-gpu", str(raised.exception))

    def test_keys_are_brought_to_a_device(self) -> None:
        weights = torch.ones(3, requires_grad=True)
        keys = ht.Keys.from_dict({"a": (torch.arange(3), torch.tensor([0, 1, 3]), weights),
                                  "b": torch.arange(4).view(2, 2)})
        copy = keys.to("cpu", non_blocking=True)
        self.assertEqual(copy.features, ("a", "b"))
        self.assertEqual(copy.values.tolist(), keys.values.tolist())
        self.assertEqual(copy.offsets.tolist(), keys.offsets.tolist())
        embed = ht.EmbeddingCollection([zeros("a"), zeros("b", pooling="none")])
        out = embed(copy)
        self.assertEqual(out["b"].shape, (2, 2, 2))
        (out["a"].sum() + out["b"].sum()).backward()
        self.assertEqual(weights.grad.tolist(), [0, 0, 0])
        away = keys.to("meta")
        self.assertEqual({away.values.device.type, away.offsets.device.type,
                          away.weights.device.type}, {"meta"})
        with self.assertRaisesRegex(ValueError, r"^keys of the features \['a', 'b'\] are on meta, "
                                                r"but the tables are on the CPU; pass keys.to\('c"):
            embed(away)

    def test_keys_of_several_devices(self) -> None:
        two = torch.arange(2)
        for text, make in (
                (r"\['a'\]: offsets are on meta, but the keys are on the CPU; pass offsets.cpu",
                 lambda: ht.Keys(["a"], two, torch.arange(3, device="meta"))),
                (r"\['a'\]: weights are on meta, but the keys are on the CPU",
                 lambda: ht.Keys(["a"], two, None, torch.ones(2, device="meta"))),
                ("feature 'b': keys are on meta, but the keys of feature 'a' are on the CPU; pass "
                 r"keys.cpu\(\)", lambda: ht.Keys.from_dict({"a": two, "b": two.to("meta")})),
                ("feature 'a': keys are on meta, but the tables are on the CPU or on a GPU",
                 lambda: ht.Keys.from_dict({"a": (two.to("meta"), None)}))):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                make()


@unittest.skipUnless(HAS_GPU, "needs a GPU")
class DeviceTest(unittest.TestCase):
    def assert_close(self, found: np.ndarray, expected: np.ndarray) -> None:
        scale = float(np.abs(expected).max(initial=0))
        np.testing.assert_allclose(found, expected, rtol=0, atol=ERROR_MAX * scale)

    def assert_same_rows(self, found: ht.EmbeddingCollection,
                         expected: ht.EmbeddingCollection) -> None:
        for name in expected.tables:
            (keys, rows), (own_keys, own_rows) = expected.rows(name), found.rows(name)
            np.testing.assert_array_equal(own_keys, keys)
            self.assert_close(own_rows, rows)

    def pair(self, make: Callable) -> tuple[ht.EmbeddingCollection, ht.EmbeddingCollection]:
        """The tables on the CPU, and on the GPU."""
        return ht.EmbeddingCollection(make()), ht.EmbeddingCollection(make(), device=DEVICE)

    def test_as_embedding_bag(self) -> None:
        embed = ht.EmbeddingCollection([ht.Table("t", 16, optimizer=ht.SGD(lr=0.5))], device=DEVICE)
        embed({"t": torch.arange(200, device=DEVICE)})
        bag = torch.nn.EmbeddingBag(200, 16, mode="sum", sparse=True, device=DEVICE)
        with torch.no_grad():
            bag.weight.copy_(torch.from_numpy(embed.rows("t")[1]))
        optimizer = torch.optim.SGD(bag.parameters(), lr=0.5)
        random = torch.Generator().manual_seed(1)
        for _ in range(50):
            keys = torch.randint(200, (64, 3), generator=random).to(DEVICE)
            target = torch.rand(64, 16, generator=random).to(DEVICE)
            out, expected = embed({"t": keys})["t"], bag(keys)
            self.assertEqual(out.device, expected.device)
            self.assert_close(out.detach().cpu().numpy(), expected.detach().cpu().numpy())
            optimizer.zero_grad()
            for rows in (out, expected):
                (rows - target).square().sum(1).mean().backward()
            optimizer.step()
        self.assert_close(embed.rows("t")[1], bag.weight.detach().cpu().numpy())

    def test_as_on_the_cpu(self) -> None:
        for name, optimizer in OPTIMIZERS.items():
            with self.subTest(name):
                host, device = self.pair(lambda optimizer=optimizer: tables_with(optimizer))
                for step in range(10):
                    inputs = batch_of(step)
                    expected, found = host(inputs), device(moved(inputs, DEVICE))
                    for feature in inputs:
                        self.assertEqual(found[feature].shape, expected[feature].shape)
                        self.assert_close(found[feature].detach().cpu().numpy(),
                                          expected[feature].detach().numpy())
                    loss_of(expected).backward()
                    loss_of(found).backward()
                self.assert_same_rows(device, host)
                self.assertEqual(device.statistics()["plain"]["step"], 10)
                self.assertEqual(device.skipped_steps, 0)

    def test_a_collection_made_in_inference_mode(self) -> None:
        with torch.inference_mode():
            embed = ht.EmbeddingCollection([zeros("t")], device=DEVICE)
        embed({"t": torch.tensor([1], device=DEVICE)}).tensor.sum().backward()
        self.assertEqual(contents(embed), {"t": [[1], [[-1, -1]]]})

    def test_packed_keys(self) -> None:
        host, device = self.pair(lambda: [ht.Table("a", 4), ht.Table("b", 6, pooling="mean")])
        random = torch.Generator().manual_seed(3)
        for _ in range(5):
            (one, first), (two, second) = ragged(random), ragged(random)
            keys = ht.Keys(["b", "a"], torch.cat([one, two]),
                           torch.cat([first, second[1:] + one.numel()]))
            for embed, own in ((host, keys), (device, keys.pin_memory().to(
                    DEVICE, non_blocking=True))):
                embed(own).tensor.square().sum().backward()
        self.assert_same_rows(device, host)

    def test_keys_of_any_integers(self) -> None:
        host, device = self.pair(lambda: [zeros("t")])
        every = [LEAST, -1, -2, 0, 2**63 - 1]
        for dtype in (torch.int64, torch.uint64, torch.int32, torch.uint8):
            keys = torch.tensor([key for key in every if dtype in (torch.int64, torch.uint64) or
                                 0 <= key < 256]).view(torch.int64)
            keys = keys.view(dtype) if dtype == torch.uint64 else keys.to(dtype)
            for embed, own in ((host, keys), (device, keys.to(DEVICE))):
                embed({"t": own})["t"].sum().backward()
        self.assertEqual(device.rows("t")[0].tolist(), sorted(every))
        self.assertEqual(contents(device), contents(host))

    def test_weights_that_require_gradients(self) -> None:
        host, device = self.pair(lambda: tables_with(OPTIMIZERS["Adam"]))
        for step in range(3):
            gradients = []
            for embed, place in ((host, "cpu"), (device, DEVICE)):
                inputs = moved(batch_of(step), place)
                keys, offsets, weights = inputs["weighted"]
                weights.requires_grad_()
                loss_of(embed(inputs)).backward()
                gradients.append(weights.grad.cpu().numpy())
            self.assert_close(gradients[1], gradients[0])
        self.assert_same_rows(device, host)

    def test_gradients_of_some_outputs(self) -> None:
        host, device = self.pair(lambda: tables_with(OPTIMIZERS["momentum"]))
        for feature in ("ragged", "single", "weighted", "plain"):
            for embed, place in ((host, "cpu"), (device, DEVICE)):
                embed(moved(batch_of(5), place))[feature].square().sum().backward()
        self.assert_same_rows(device, host)

    def test_a_batch_without_keys(self) -> None:
        host, device = self.pair(lambda: [zeros("a"), zeros("b", pooling="none")])
        for embed, place in ((host, "cpu"), (device, DEVICE)):
            nothing = torch.zeros(0, dtype=torch.int64, device=place)
            out = embed({"a": (nothing, torch.zeros(4, dtype=torch.int64, device=place)),
                         "b": nothing})
            self.assertEqual(out["a"].tolist(), [[0, 0]] * 3)
            self.assertEqual(out["b"].shape, (0, 2))
            (out["a"].sum() + out["b"].sum()).backward()
        self.assertEqual(contents(device), contents(host))

    def test_gradients_that_are_not_finite(self) -> None:
        embed = ht.EmbeddingCollection([zeros("a"), zeros("b", 3)], device=DEVICE)
        inputs = moved({"a": torch.tensor([1, 2]), "b": torch.tensor([3, 4])}, DEVICE)
        loss_of(embed(inputs)).backward()
        self.assertEqual(embed.anchor.grad.tolist(), [0])
        before = contents(embed)
        for count, factor in enumerate((np.nan, np.inf, 1e30), 1):
            embed.zero_grad()
            out = embed(inputs)
            (out["a"].sum() + (out["b"] * torch.tensor([1.0, 1.0, factor], device=DEVICE)).sum()
             ).backward()
            self.assertEqual(embed.anchor.grad.tolist(), [np.inf])
            self.assertEqual(contents(embed), before)
            self.assertEqual(embed.skipped_steps, count)
        embed(inputs).tensor.sum().backward()
        self.assertEqual(embed.anchor.grad.tolist(), [np.inf])  # there was no zero_grad
        self.assertNotEqual(contents(embed), before)
        self.assertEqual(embed.skipped_steps, 3)

    def test_an_optimizer_that_moves_the_anchor(self) -> None:
        embed = ht.EmbeddingCollection([zeros("t")], device=DEVICE)
        for _ in range(2):
            with torch.no_grad():
                embed.anchor.fill_(3)
            embed({"t": torch.tensor([1], device=DEVICE)}).tensor.sum().backward()
            self.assertEqual(embed.anchor.tolist(), [0])

    def test_several_look_ups_in_one_pass(self) -> None:
        """They make one update, which momentum and Adam show."""
        for name in ("momentum", "Adam"):
            host, device = self.pair(lambda name=name: tables_with(OPTIMIZERS[name]))
            for step in range(0, 12, 4):
                for embed, place in ((host, "cpu"), (device, DEVICE)):
                    inputs = [moved(batch_of(step + i), place) for i in range(4)]
                    plain = {"plain": inputs[1]["plain"]}
                    some = {name: inputs[2][name] for name in ("weighted", "plain")}
                    sum(loss_of(embed(each)) for each in
                        (inputs[0], plain, some, inputs[3])).backward()
                    sum(loss_of(embed(plain)) for _ in range(2)).backward()
            self.assert_same_rows(device, host)

    def test_a_pass_that_fails_is_forgotten(self) -> None:
        host, device = self.pair(lambda: [zeros("t")])
        for embed, place in ((host, "cpu"), (device, DEVICE)):
            keys = {"t": torch.tensor([1, 2], device=place)}
            broken = embed(keys).tensor.clone()
            broken.register_hook(lambda _: 1 / 0)
            with self.assertRaises(ZeroDivisionError):
                (embed(keys).tensor.sum() + broken.sum()).backward()
            loss_of(embed(keys)).backward()
        self.assertEqual(contents(device), contents(host))

    def test_evaluation_changes_nothing(self) -> None:
        embed = ht.EmbeddingCollection(tables_with(OPTIMIZERS["Adam"]), device=DEVICE)
        train(embed, range(2), DEVICE)
        before = [contents(embed), embed.statistics()]
        embed.eval()
        inputs = moved(batch_of(0), DEVICE)
        self.assertFalse(embed(inputs)["plain"].requires_grad)
        out = embed({"plain": torch.tensor([10**6, int(before[0]["plain"][0][0])], device=DEVICE)})
        self.assertEqual(out["plain"][0].tolist(), [0] * 4)
        self.assertEqual(out["plain"][1].tolist(), before[0]["plain"][1][0])
        embed.train()
        with torch.no_grad():
            embed(inputs)
        self.assertEqual([contents(embed), embed.statistics()], before)

    def test_checkpoints_of_the_other_device(self) -> None:
        for name, optimizer in OPTIMIZERS.items():
            for saved, resumed in (("cpu", DEVICE), (DEVICE, "cpu")):
                with self.subTest(name, saved=saved), tempfile.TemporaryDirectory() as folder:
                    first = ht.EmbeddingCollection(tables_with(optimizer), device=saved)
                    train(first, range(3), saved)
                    first.save(folder, incremental=True)
                    train(first, range(3, 5), saved)
                    first.save(folder, incremental=True)
                    second = ht.EmbeddingCollection(tables_with(optimizer), device=resumed)
                    second.load(folder)
                    self.assertEqual(contents(second), contents(first))
                    train(first, range(5, 8), saved)
                    train(second, range(5, 8), resumed)
                    self.assert_same_rows(second, first)

    def test_state_dict(self) -> None:
        embed = ht.EmbeddingCollection([zeros("t")], device=DEVICE)
        model = torch.nn.Sequential(embed).to("cpu").half()
        self.assertEqual(embed.anchor.device, torch.device(DEVICE))
        embed({"t": torch.tensor([1], device=DEVICE)}).tensor.sum().backward()
        model.load_state_dict(model.state_dict())
        self.assertEqual((embed.anchor.device, embed.anchor.dtype),
                         (torch.device(DEVICE), torch.float32))

    def test_export(self) -> None:
        embed = ht.EmbeddingCollection(tables_with(OPTIMIZERS["SGD"]), device=DEVICE)
        train(embed, range(3), DEVICE)
        network = torch.nn.Linear(4, 1, device=DEVICE)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            embed.export(folder)
            for table in embed.tables.values():
                keys, rows = embed.rows(table.name)
                np.testing.assert_array_equal(
                    np.fromfile(folder / table.name / "key", np.int64), keys)
                np.testing.assert_array_equal(np.fromfile(
                    folder / table.name / "emb_vector", np.float32).reshape(-1, table.dim), rows)
            if importlib.util.find_spec("onnx"):
                embed.export(folder, network, {"plain": torch.zeros(2, 4)})
                self.assertTrue((folder / "dense.onnx").stat().st_size)
                self.assertEqual(network.weight.device, torch.device(DEVICE))

    def test_publish(self) -> None:
        embed = ht.EmbeddingCollection([zeros("t"), zeros("other")], device=DEVICE)
        target = mock.Mock()

        def look_up(*keys: int) -> None:
            embed({"t": torch.tensor(keys, device=DEVICE)}).tensor.sum().backward()
        look_up(1, 2, 3)
        self.assertEqual(embed.publish(target), {"t": (3, 0), "other": (0, 0)})
        look_up(2, 9)
        self.assertEqual(embed.publish(target), {"t": (2, 0), "other": (0, 0)})
        name, keys, rows = target.upsert.call_args.args
        self.assertEqual((name, dict(zip(keys.tolist(), rows.tolist()))),
                         ("t", {2: [-2, -2], 9: [-1, -1]}))
        self.assertEqual(embed.publish(target), {"t": (0, 0), "other": (0, 0)})

    @contextlib.contextmanager
    def no_wait(self) -> Iterator[None]:
        """PyTorch raises where it would wait for the GPU."""
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_a_step_does_not_wait(self) -> None:
        embed = ht.EmbeddingCollection(tables_with(OPTIMIZERS["Adam"]), device=DEVICE)
        one = moved(batch_of(1), DEVICE)
        keys, offsets = one["ragged"]
        batches = [{"plain": one["plain"]}, {"pairs": one["pairs"]}, {"ragged": one["ragged"]}, one,
                   ht.Keys(["ragged"], keys, offsets), ht.Keys(["plain"], one["plain"])]

        def steps() -> None:
            for inputs in batches:
                loss_of(embed(inputs)).backward()
            (loss_of(embed(one)) + loss_of(embed(batches[0]))).backward()
            with torch.no_grad():
                embed(one)
        steps()
        torch.cuda.synchronize()
        with self.no_wait():
            for _ in range(3):
                steps()
        self.assertEqual(embed.skipped_steps, 0)

    def test_another_stream(self) -> None:
        host, device = self.pair(lambda: tables_with(OPTIMIZERS["Adam"]))
        train(host, range(12), "cpu")
        batches = [moved(batch_of(step), DEVICE) for step in range(12)]
        for number in range(3):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for inputs in batches[4 * number:4 * number + 4]:
                    loss_of(device(inputs)).backward()
            torch.cuda.current_stream().wait_stream(stream)
        self.assert_same_rows(device, host)

    def test_wrong_offsets_change_nothing(self) -> None:
        tables = [zeros("a"), zeros("b"), ht.Table("c", 2, pooling="none", init=ht.Constant(0))]
        embed = ht.EmbeddingCollection(tables, device=DEVICE)
        good = moved({name: torch.tensor([1, 2]) for name in "abc"}, DEVICE)
        loss_of(embed(good)).backward()
        before = contents(embed)
        two = torch.tensor([7, 8], device=DEVICE)
        for ends in ([0, 1, 1], [1, 1, 2], [0, 3, 2], [0, -2**62, 2]):
            for training in (True, False):
                # What PyTorch's allocator gives has old values, as a rule.
                torch.full((1 << 20,), 0x7f7f7f7f, device=DEVICE)
                embed.train(training)
                wrong = {"a": (two, torch.tensor(ends, device=DEVICE)), "b": good["b"],
                         "c": good["c"]}
                out = embed(wrong)
                if training:
                    loss_of(out).backward()
                torch.cuda.synchronize()
                with self.subTest(ends), self.assertRaisesRegex(ValueError, "offsets"):
                    for _ in range(2):
                        embed(good)
                        torch.cuda.synchronize()
        embed.train()
        self.assertEqual(contents(embed)["a"], before["a"])

    def test_keys_on_another_device(self) -> None:
        host, device = self.pair(lambda: [zeros("a"), ht.Table("b", 2, pooling="none")])
        two = torch.arange(2)
        away = two.to(DEVICE)
        fault = "are on the CPU, but the tables are on cuda:0; pass keys.to\\('cuda:0'\\)"
        for embed, text, inputs in (
                (device, f"^keys of the features .'a'. {fault}", ht.Keys(["a"], two)),
                (device, f"^feature 'b' of table 'b': keys {fault}", {"a": away, "b": two}),
                (device, f"^feature 'a' of table 'a': keys {fault}", {"a": [1, 2]}),
                (device, "'a': offsets are on the CPU", {"a": (away, torch.arange(3))}),
                (host, r"^feature 'a' of table 'a': keys are on cuda:0, but the tables are on the "
                 r"CPU; pass keys.cpu\(\)", {"a": away}),
                (host, "^keys of the features .'a'. are on cuda:0, but the tables are on the CPU",
                 ht.Keys(["a"], away))):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                embed(inputs)
        with self.assertRaisesRegex(ValueError, "offsets are on the CPU, but the keys are on cuda"):
            ht.Keys(["a"], away, torch.arange(3))

    def test_admission_expiry_and_bounds(self) -> None:
        for options in ({"admit_after": 2}, {"expire_after": 2}, {"rows_max": 20},
                        {"admit_after": 2, "expire_after": 4, "rows_max": 25}):
            host, device = self.pair(lambda options=options: [
                ht.Table("a", 4, optimizer=ht.Adam(lr=0.01), **options),
                ht.Table("b", 4, optimizer=ht.Adam(lr=0.01))])
            for step in range(20):
                keys = torch.from_numpy(np.random.default_rng(step).integers(0, 60, 12))
                inputs = {"a": keys, "b": keys + step}
                loss_of(host(inputs)).backward()
                loss_of(device(moved(inputs, DEVICE))).backward()
            with self.subTest(options):
                self.assert_same_rows(device, host)
                self.assertEqual(device.statistics()["a"]["pending"],
                                 host.statistics()["a"]["pending"])
                self.assertLess(len(device.rows("a")[0]), len(device.rows("b")[0]))

    def test_a_cuda_graph_is_refused_in_words(self) -> None:
        embed = ht.EmbeddingCollection([zeros("t")], device=DEVICE)
        keys = torch.arange(4, device=DEVICE)
        embed({"t": keys})
        torch.cuda.synchronize()
        with self.assertRaisesRegex(Exception, "CUDA graph"), torch.cuda.graph(
                torch.cuda.CUDAGraph()):
            embed({"t": keys})
        embed({"t": keys})

    def test_compiled(self) -> None:
        plain, compiled = (ht.EmbeddingCollection(tables_with(OPTIMIZERS["Adam"]), device=DEVICE)
                           for _ in range(2))
        program = torch.compile(lambda inputs: loss_of(compiled(inputs)), fullgraph=True,
                                backend="aot_eager")
        for step in range(3):
            inputs = moved({name: value for name, value in batch_of(step).items()
                            if not isinstance(value, tuple)}, DEVICE)
            loss_of(plain(inputs)).backward()
            program(inputs).backward()
        self.assert_same_rows(compiled, plain)


if __name__ == "__main__":
    unittest.main()
