"""What hps.train learns: as much as plain PyTorch on the same samples, and as much as there is."""

import contextlib
import io
import pathlib
import statistics
import sys
import tempfile
import unittest

import numpy as np
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import hps.train as ht

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "train"))
import data  # noqa: E402
import deepfm  # noqa: E402

SEEDS = range(3)
EPOCHS = 2
BATCH = 512
# AdaGrad, because it is the same in both; SparseAdam counts a table's steps, and hps a row's.
RATE = 0.03


class TorchTables(torch.nn.Module):
    """The tables of DeepFM in plain PyTorch: static, with rows by number."""

    def __init__(self, samples: data.Samples, seed: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.bags = torch.nn.ModuleDict()
        self.numbers = {}
        for name in data.FIELDS:
            keys = samples.keys.get(name)
            keys = np.unique(np.concatenate(samples.lists[name]) if keys is None else keys)
            self.numbers[name] = torch.from_numpy(keys)
            rows = torch.rand(len(keys), 1 + deepfm.FACTORS, generator=random) * 0.1 - 0.05
            self.bags[name] = torch.nn.EmbeddingBag.from_pretrained(
                rows, freeze=False, mode="mean", sparse=True, include_last_offset=True)

    def forward(self, inputs: dict) -> dict[str, torch.Tensor]:
        found = {}
        for name, value in inputs.items():
            keys, offsets = value if isinstance(value, tuple) else (
                value, torch.arange(len(value) + 1))
            found[name] = self.bags[name](torch.searchsorted(self.numbers[name], keys), offsets)
        return found


def train(tables, network, optimizers, samples: data.Samples, picked: np.ndarray) -> None:
    for begin in range(0, len(picked), BATCH):
        part = picked[begin:begin + BATCH]
        predicted = network.of(tables(samples.inputs(part)))
        loss = torch.nn.functional.binary_cross_entropy(predicted, samples.label_tensor(part))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


def reached(is_hps: bool, seed: int, samples: data.Samples, order: np.ndarray) -> float:
    """AUC on samples that training did not see."""
    torch.manual_seed(seed)
    split = len(order) * 9 // 10
    network = deepfm.DeepFM(data.FIELDS)
    optimizers = [torch.optim.Adam(network.parameters(), lr=0.001)]
    if is_hps:
        tables = ht.EmbeddingCollection([
            ht.Table(name, 1 + deepfm.FACTORS, optimizer=ht.Adagrad(lr=RATE), pooling="mean",
                     init=ht.Uniform(-0.05, 0.05, seed)) for name in data.FIELDS])
    else:
        tables = TorchTables(samples, seed)
        optimizers.append(torch.optim.Adagrad(tables.parameters(), lr=RATE))
    for epoch in range(EPOCHS):
        random = np.random.default_rng(100 * seed + epoch)
        train(tables, network, optimizers, samples, random.permutation(order[:split]))
    tables.eval()
    with torch.no_grad():
        predicted = network.of(tables(samples.inputs(order[split:]))).numpy()
    return data.auc(samples.labels[order[split:]], predicted)


class UsefulTest(unittest.TestCase):
    def setUp(self) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)

    def test_as_good_as_plain_torch(self) -> None:
        samples, _ = data.load()  # MovieLens 100k where it is
        order = np.random.default_rng(5).permutation(len(samples))
        own = [reached(True, seed, samples, order) for seed in SEEDS]
        peer = [reached(False, seed, samples, order) for seed in SEEDS]
        noise = max(statistics.stdev(own), statistics.stdev(peer), 0.001)
        self.assertLess(abs(statistics.mean(own) - statistics.mean(peer)), 2 * noise, (own, peer))
        self.assertGreater(min(own), 0.65)

    def test_reaches_a_planted_teacher(self) -> None:
        random = np.random.default_rng(3)
        sizes, count = {"user": 150, "item": 100}, 200_000
        weights = {name: random.normal(0, 1, size) for name, size in sizes.items()}
        rows = {name: random.integers(size, size=count) for name, size in sizes.items()}
        logits = sum(weights[name][rows[name]] for name in sizes)
        labels = torch.from_numpy((random.random(count) < 1 / (1 + np.exp(-logits))).astype("f4"))
        keys = {name: torch.from_numpy(random.integers(-2**63, 2**63 - 1, size)[rows[name]])
                for name, size in sizes.items()}
        embed = ht.EmbeddingCollection([ht.Table(name, 1, optimizer=ht.Adam(lr=0.02))
                                        for name in sizes])
        split = count * 9 // 10

        def predict(part: slice) -> torch.Tensor:
            return sum(embed({name: k[part] for name, k in keys.items()}).values()).squeeze(1)

        for epoch in range(4):
            for table in embed.tables.values():
                table.optimizer.lr = 0.02 / 4**epoch
            for begin in range(0, split, 1000):
                part = slice(begin, begin + 1000)
                torch.nn.functional.binary_cross_entropy_with_logits(
                    predict(part), labels[part]).backward()
        embed.eval()
        held_out = slice(split, count)
        found = data.auc(labels[held_out].numpy(), predict(held_out).numpy())
        teacher = data.auc(labels[held_out].numpy(), logits[held_out])
        self.assertGreater(found, teacher - 0.002)
        self.assertGreater(teacher, 0.75)


class DocumentationTest(unittest.TestCase):
    def test_the_tutorial(self) -> None:
        with tempfile.TemporaryDirectory(prefix="hps_train_") as directory:
            text = (ROOT / "docs" / "training.md").read_text()
            blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
            code = "\n".join(blocks).replace("/tmp/hps-train", directory)
            self.assertIn(directory, code)
            names: dict = {}
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, "docs/training.md", "exec"), names)
            names["store"].close()
        self.assertGreater(names["right"].float().mean().item(), 0.75)
        self.assertIn("{'user': (", output.getvalue())

    def test_what_replaces_calls_of_other_libraries(self) -> None:
        """Every piece of code in the right column of the table runs."""
        text = (ROOT / "docs" / "training.md").read_text()
        table = text.split("## Coming from PyTorch, TorchRec, SOK")[1].split("\n## ")[0]
        lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
        self.assertGreater(len(lines), 12)
        with tempfile.TemporaryDirectory(prefix="hps_train_") as directory:
            for left, right in lines:
                keys = torch.tensor([3, 4, 5])
                names = {
                    "torch": torch, "ht": ht, "keys": keys, "offsets": torch.tensor([0, 1, 2, 3]),
                    "directory": pathlib.Path(directory) / "rows",
                    "kjt": KeyedJaggedTensor(keys=["item", "user"], values=keys.repeat(2),
                                             lengths=torch.ones(6, dtype=torch.int64)),
                    "embed": ht.EmbeddingCollection([ht.Table("user", 8, pooling="mean"),
                                                     ht.Table("item", 8)])}
                code = [piece for piece in right.split("`")[1::2] if "(" in piece]
                self.assertTrue(code, left)
                for piece in code:
                    with self.subTest(piece):
                        exec(compile(piece, left, "exec"), names)


if __name__ == "__main__":
    unittest.main()
