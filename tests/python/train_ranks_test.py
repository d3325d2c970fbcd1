"""hps.train on 1, 2 and 4 processes (Gloo): all placements train as one process does."""

import itertools
import multiprocessing
import pathlib
import shutil
import tempfile
import unittest

import numpy as np
import torch
import torch.distributed as dist

import hps.train as ht

STEPS = 20
BATCH = 16
PLACEMENTS = ["distributed", "localized", "replicated", "hybrid", "auto"]
ERROR_MAX = 2e-6  # sums of a few gradients in another order


def tables() -> list[ht.Table]:
    kinds = [(4, lambda: ht.SGD(lr=0.1), "sum"), (7, lambda: ht.Adam(lr=0.01), "mean"),
             (3, lambda: ht.Adagrad(lr=0.05), "none")]
    return [ht.Table(f"{placement}{dim}", dim, optimizer=optimizer(), pooling=pooling,
                     placement=placement, admit_after=1 + dim % 2, expire_after=6)
            for placement, (dim, optimizer, pooling) in itertools.product(PLACEMENTS, kinds)]


def samples(step: int, rank: int, rank_count: int):
    """This rank's part of a step: few keys are frequent, weights and ragged bags too."""
    random = torch.Generator().manual_seed(step)
    part = slice(rank * BATCH // rank_count, (rank + 1) * BATCH // rank_count)
    inputs = {}
    for table in tables():
        keys = (torch.rand(BATCH, 3, generator=random)**3 * 100).long() - 5
        weights = torch.rand(BATCH, 3, generator=random)
        if table.pooling == "sum":
            offsets = torch.arange(BATCH // rank_count + 1) * 3
            inputs[table.name] = (keys[part].flatten(), offsets, weights[part].flatten())
        else:
            inputs[table.name] = keys[part]
    return inputs, torch.rand(BATCH, generator=random)[part]


def train(embed: ht.EmbeddingCollection, steps: range, rank: int, rank_count: int) -> None:
    for step in steps:
        inputs, target = samples(step, rank, rank_count)
        out = embed(inputs)
        logits = sum(rows.view(len(target), -1, rows.shape[-1]).mean((1, 2))
                     for rows in out.values())
        (torch.sigmoid(logits) - target).square().mean().backward()


def start(rank: int, rank_count: int, directory: pathlib.Path) -> None:
    torch.set_num_threads(1)
    if rank_count > 1:
        dist.init_process_group("gloo", init_method=f"file://{directory}/ranks", rank=rank,
                                world_size=rank_count)


def run_rank(rank: int, rank_count: int, directory: pathlib.Path) -> None:
    """Half of the steps, a checkpoint, and the other half from it."""
    start(rank, rank_count, directory)
    embed = ht.EmbeddingCollection(tables(), hot_steps=5)
    train(embed, range(STEPS // 2), rank, rank_count)
    embed.save(directory / "half")
    resumed = ht.EmbeddingCollection(tables(), hot_steps=5)
    resumed.load(directory / "half")
    train(resumed, range(STEPS // 2, STEPS), rank, rank_count)
    resumed.export(directory / "model")
    # A NaN of one rank changes no row of any rank.
    inputs, _ = samples(STEPS, rank, rank_count)
    out = resumed(inputs)
    before = {name: resumed.rows(name)[1] for name in inputs}
    factor = float("nan") if rank == 0 else 1.0
    sum((rows * factor).sum() for rows in out.values()).backward()
    assert resumed.skipped_steps == 1
    for name in inputs:
        np.testing.assert_array_equal(resumed.rows(name)[1], before[name])
    resumed.eval()
    evaluated = resumed(samples(STEPS + 1, 0, 1)[0])
    if rank == 0:
        torch.save(evaluated, directory / "evaluated.pt")
    if rank_count > 1:
        dist.destroy_process_group()


class RanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_ranks_"))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        context = multiprocessing.get_context("spawn")
        cls.failed = []
        for count in (1, 2, 4):
            directory = cls.directory / str(count)
            directory.mkdir()
            processes = [context.Process(target=run_rank, args=(rank, count, directory))
                         for rank in range(count)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
                if process.exitcode != 0:
                    cls.failed.append((count, process.exitcode))

    def setUp(self) -> None:
        self.assertEqual(self.failed, [])

    def rows(self, count: int, table: ht.Table) -> tuple[np.ndarray, np.ndarray]:
        folder = self.directory / str(count) / "model" / table.name
        return (np.fromfile(folder / "key", np.int64),
                np.fromfile(folder / "emb_vector", np.float32))

    def test_all_ranks_train_as_one(self) -> None:
        for count, table in itertools.product((2, 4), tables()):
            with self.subTest(count=count, table=table.name):
                keys, rows = self.rows(1, table)
                found_keys, found_rows = self.rows(count, table)
                np.testing.assert_array_equal(found_keys, keys)
                np.testing.assert_allclose(found_rows, rows, rtol=0, atol=ERROR_MAX)

    def test_evaluation_is_the_same(self) -> None:
        one = torch.load(self.directory / "1" / "evaluated.pt", weights_only=True)
        for count in (2, 4):
            other = torch.load(self.directory / str(count) / "evaluated.pt", weights_only=True)
            for name, rows in one.items():
                torch.testing.assert_close(other[name], rows, rtol=0, atol=ERROR_MAX)

    def test_a_checkpoint_of_four_ranks_is_read_by_one(self) -> None:
        embed = ht.EmbeddingCollection(tables())
        embed.load(self.directory / "4" / "half")
        train(embed, range(STEPS // 2, STEPS), 0, 1)
        for table in tables():
            keys, rows = embed.rows(table.name)
            expected_keys, expected_rows = self.rows(1, table)
            np.testing.assert_array_equal(keys, expected_keys)
            np.testing.assert_allclose(rows.flatten(), expected_rows, rtol=0, atol=ERROR_MAX)


if __name__ == "__main__":
    unittest.main()
