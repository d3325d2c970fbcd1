"""hps.train on 1, 2 and 4 processes (Gloo): all placements train as one process does."""

import contextlib
import datetime
import itertools
import multiprocessing
import os
import pathlib
import random
import resource
import shutil
import signal
import tempfile
import time
import unittest

import numpy as np
import torch
import torch.distributed as dist
from waiting import MissedWait

import hps
import hps.train as ht

STEPS = 20
LONG_STEPS = 40
BATCH = 16
PLACEMENTS = ["distributed", "localized", "replicated", "hybrid", "auto"]
ERROR_MAX = 2e-6  # sums of a few gradients in another order
GROUP = "2 without shared memory"
RUNS = [(1, "1"), (2, "2"), (4, "4"), (2, GROUP)]
MANY = [name for _, name in RUNS if name != "1"]
TIMEOUT_S = 8
WAIT_S = 60


def tables() -> list[ht.Table]:
    kinds = [(4, lambda: ht.SGD(lr=0.1), "sum"), (7, lambda: ht.Adam(lr=0.01), "mean"),
             (3, lambda: ht.Adagrad(lr=0.05), "none"),
             (5, lambda: ht.Adam(lr=0.01, bias_correction="step"), "mean")]
    return [ht.Table(name := f"{placement}{dim}", dim, optimizer=optimizer(), pooling=pooling,
                     placement=placement, admit_after=1 + dim % 2, expire_after=6,
                     features=[name, ht.Feature(name + "again", "mean")] if dim == 7 else None)
            for placement, (dim, optimizer, pooling) in itertools.product(PLACEMENTS, kinds)]


def samples(step: int, rank: int, rank_count: int):
    """This rank's part of a step, for each feature: few keys are frequent, weights and ragged bags
    too."""
    generator = torch.Generator().manual_seed(step)
    part = slice(rank * BATCH // rank_count, (rank + 1) * BATCH // rank_count)
    inputs = {}
    for feature in itertools.chain.from_iterable(table.features for table in tables()):
        keys = (torch.rand(BATCH, 3, generator=generator)**3 * 100).long() - 5
        weights = torch.rand(BATCH, 3, generator=generator)
        if feature.pooling == "sum":
            offsets = torch.arange(BATCH // rank_count + 1) * 3
            inputs[feature.name] = (keys[part].flatten(), offsets, weights[part].flatten())
        else:
            inputs[feature.name] = keys[part]
    return inputs, torch.rand(BATCH, generator=generator)[part]


def loss_of(out: dict, target: torch.Tensor) -> torch.Tensor:
    """Each gradient is the same bits for each number of samples and each instruction set: it comes
    from differences and products of single elements, which IEEE 754 rounds in one way."""
    return sum((rows.view(len(target), -1) - target.unsqueeze(1)).square().sum()
               for rows in out.values()) / len(target)


def train(embed: ht.EmbeddingCollection, steps: range, rank: int, rank_count: int) -> None:
    """Every third step has two look-ups, which make one update."""
    for step in steps:
        losses = []
        for lookup in range(1 + (step % 3 == 0)):
            inputs, target = samples(step + STEPS * lookup, rank, rank_count)
            losses.append(loss_of(embed({name: inputs[name] for name in features_of(embed)}),
                                  target))
        sum(losses).backward()


def gradients_of_weights(embed: ht.EmbeddingCollection, rank: int,
                         rank_count: int) -> dict[str, torch.Tensor]:
    inputs, target = samples(STEPS, rank, rank_count)
    weighted = {name: value for name, value in inputs.items() if isinstance(value, tuple)}
    weights = [weights.requires_grad_() for *_, weights in weighted.values()]
    loss = sum((rows * target.unsqueeze(1)).sum() for rows in embed(weighted).values())
    return dict(zip(weighted, torch.autograd.grad(loss, weights)))  # which changes no row


class Stepped(torch.nn.Module):
    """A model whose tables are updated in the step of their optimizer."""

    def __init__(self, share_memory: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.network = torch.nn.Linear(7, 1)
        self.embed = ht.EmbeddingCollection(tables(), hot_steps=5, share_memory=share_memory,
                                            update="step")

    def forward(self, inputs: dict, target: torch.Tensor) -> torch.Tensor:
        out = self.embed(inputs)
        return loss_of(out, target) + self.network(out["auto7"]).square().mean()


def train_in_steps(rank: int, rank_count: int, directory: pathlib.Path,
                   share_memory: bool) -> None:
    """Gradients of two batches are accumulated and clipped, those of rows and network together."""
    own = Stepped(share_memory)
    model = torch.nn.parallel.DistributedDataParallel(own) if rank_count > 1 else own
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1), own.embed.optimizer()]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]
    norms = []
    for step in range(STEPS // 2):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for part in range(2):
            inputs, target = samples(2 * step + part, rank, rank_count)
            is_last = part == 1 or rank_count == 1
            with contextlib.nullcontext() if is_last else model.no_sync():
                (model(inputs, target) / 2).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0).item())
        for each in [*optimizers, *schedulers]:
            each.step()
    assert min(norms) < 5.0 < max(norms), norms  # some are clipped
    own.embed.export(directory / "stepped")
    torch.save({"network": own.network.state_dict(), "norms": torch.tensor(norms)},
               directory / f"stepped.{rank}.pt")


def features_of(embed: ht.EmbeddingCollection) -> list[str]:
    return [feature.name for table in embed.tables.values() for feature in table.features]


def forkserver():
    """Starts processes that need not import torch again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hps.train", "torch.distributed"])
    return context


def start(rank: int, rank_count: int, directory: pathlib.Path) -> None:
    torch.set_num_threads(1)
    if rank_count > 1:
        dist.init_process_group("gloo", init_method=f"file://{directory}/ranks", rank=rank,
                                world_size=rank_count)


def run_rank(rank: int, rank_count: int, directory: pathlib.Path) -> None:
    """Half of the steps, a checkpoint in two saves, and the other half from it."""
    start(rank, rank_count, directory)
    share_memory = directory.name != GROUP
    embed = ht.EmbeddingCollection(tables(), hot_steps=5, share_memory=share_memory)
    assert embed.shares_memory == (share_memory and rank_count > 1)
    train(embed, range(4), rank, rank_count)
    embed.save(directory / "half", incremental=True)
    train(embed, range(4, STEPS // 2), rank, rank_count)  # hot rows are chosen, and move
    embed.save(directory / "half", {"step": STEPS // 2}, incremental=True)
    fail_to_save(embed, directory / "half", is_full=rank == rank_count - 1)
    resumed = ht.EmbeddingCollection(tables(), hot_steps=5, share_memory=share_memory)
    assert resumed.load(directory / "half") == {"step": STEPS // 2}
    train(embed, range(STEPS // 2, STEPS), rank, rank_count)
    train(resumed, range(STEPS // 2, STEPS), rank, rank_count)
    for table in tables():  # to the bit, but for the choice of hot rows, which both make anew
        for of_one, of_other in zip(embed.rows(table.name), resumed.rows(table.name)):
            np.testing.assert_array_equal(of_one, of_other)
    resumed.export(directory / "model")
    localized = ht.EmbeddingCollection([table for table in tables()
                                        if table.placement == "localized"])
    train(localized, range(STEPS), rank, rank_count)
    localized.export(directory / "localized")
    run_odd_steps(resumed, rank)
    torch.save(gradients_of_weights(resumed, rank, rank_count), directory / f"weights.{rank}.pt")
    train_in_steps(rank, rank_count, directory, share_memory)
    # A NaN of one rank changes no row of any rank.
    inputs, _ = samples(STEPS, rank, rank_count)
    out = resumed(inputs)
    before = {name: resumed.rows(name)[1] for name in resumed.tables}
    factor = float("nan") if rank == 0 else 1.0
    sum((rows * factor).sum() for rows in out.values()).backward()
    assert resumed.skipped_steps == 1
    for name in resumed.tables:
        np.testing.assert_array_equal(resumed.rows(name)[1], before[name])
    resumed.eval()
    evaluated = resumed(samples(STEPS + 1, 0, 1)[0])
    if rank == 0:
        torch.save(dict(evaluated), directory / "evaluated.pt")
    if rank_count > 1:
        dist.destroy_process_group()


def fail_to_save(embed: ht.EmbeddingCollection, directory: pathlib.Path, is_full: bool) -> None:
    """The disk of one rank is full: all say so, and the checkpoint stays as it is."""
    _, limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    if is_full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit))
    try:
        embed.save(directory, {"step": -1}, incremental=True)
    except OSError as error:
        assert "File too large" in str(error), error
    else:
        raise AssertionError("a checkpoint was written to a full disk")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def run_odd_steps(embed: ht.EmbeddingCollection, rank: int) -> None:
    """Steps that must change no row: samples on one rank only, or none; no gradient anywhere."""
    before = {name: embed.rows(name)[1] for name in embed.tables}
    none = torch.empty(0, dtype=torch.int64)
    odd = torch.tensor([-2**63, -1, 2**63 - 1, -1, -1])
    out = embed({name: odd if rank == 0 else none for name in features_of(embed)})
    loss = sum((rows * 0).sum() for rows in out.values())
    (loss if rank == 0 else loss * 0).backward()
    embed({name: (none, torch.tensor([0, 0])) for name in features_of(embed)})
    names = [name for name, table in embed.tables.items()
             if isinstance(table.optimizer, (ht.SGD, ht.Adagrad))]
    for name in names:
        keys, rows = embed.rows(name)
        known = ~np.isin(keys, odd.numpy())
        assert known.sum() <= len(before[name]) and np.isfinite(rows).all()
        assert np.isin(rows[known], before[name]).all()


class RanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_ranks_"))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        context = forkserver()
        cls.failed = []
        for count, name in RUNS:
            directory = cls.directory / name
            directory.mkdir()
            processes = [context.Process(target=run_rank, args=(rank, count, directory))
                         for rank in range(count)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
                if process.exitcode != 0:
                    cls.failed.append((name, process.exitcode))

    def setUp(self) -> None:
        self.assertEqual(self.failed, [])

    def rows(self, name: str, table: ht.Table,
             model: str = "model") -> tuple[np.ndarray, np.ndarray]:
        folder = self.directory / name / model / table.name
        return (np.fromfile(folder / "key", np.int64),
                np.fromfile(folder / "emb_vector", np.float32))

    def test_all_ranks_train_as_one(self) -> None:
        for name, table in itertools.product(MANY, tables()):
            with self.subTest(ranks=name, table=table.name):
                keys, rows = self.rows("1", table)
                found_keys, found_rows = self.rows(name, table)
                np.testing.assert_array_equal(found_keys, keys)
                np.testing.assert_allclose(found_rows, rows, rtol=0, atol=ERROR_MAX)

    def test_steps_of_an_optimizer_are_those_of_one(self) -> None:
        """With accumulation, clipping, learning rate schedulers and DistributedDataParallel."""
        one = torch.load(self.directory / "1" / "stepped.0.pt", weights_only=True)
        for count, name in RUNS[1:]:
            for table in tables():
                with self.subTest(ranks=name, table=table.name):
                    keys, rows = self.rows("1", table, "stepped")
                    found_keys, found_rows = self.rows(name, table, "stepped")
                    np.testing.assert_array_equal(found_keys, keys)
                    np.testing.assert_allclose(found_rows, rows, rtol=0, atol=ERROR_MAX)
            for rank in range(count):
                found = torch.load(self.directory / name / f"stepped.{rank}.pt", weights_only=True)
                torch.testing.assert_close(found, one, rtol=1e-5, atol=ERROR_MAX)

    def test_gradients_of_weights_are_those_of_one(self) -> None:
        one = torch.load(self.directory / "1" / "weights.0.pt", weights_only=True)
        self.assertEqual(len(one), len(PLACEMENTS))
        for count, name in RUNS[1:]:
            parts = [torch.load(self.directory / name / f"weights.{rank}.pt", weights_only=True)
                     for rank in range(count)]
            for table, gradients in one.items():
                found = torch.cat([part[table] for part in parts])
                torch.testing.assert_close(found, gradients, rtol=0, atol=ERROR_MAX)

    def test_localized_tables_have_the_bits_of_one_process(self) -> None:
        for name, table in itertools.product(MANY, tables()):
            if table.placement == "localized":
                for found, expected in zip(self.rows(name, table, "localized"),
                                           self.rows("1", table, "localized")):
                    np.testing.assert_array_equal(found, expected)

    def test_evaluation_is_the_same(self) -> None:
        one = torch.load(self.directory / "1" / "evaluated.pt", weights_only=True)
        for name in MANY:
            other = torch.load(self.directory / name / "evaluated.pt", weights_only=True)
            for table, rows in one.items():
                torch.testing.assert_close(other[table], rows, rtol=0, atol=ERROR_MAX)

    def test_a_checkpoint_of_four_ranks_is_read_by_one(self) -> None:
        embed = ht.EmbeddingCollection(tables())
        embed.load(self.directory / "4" / "half")
        train(embed, range(STEPS // 2, STEPS), 0, 1)
        for table in tables():
            keys, rows = embed.rows(table.name)
            expected_keys, expected_rows = self.rows("1", table)
            np.testing.assert_array_equal(keys, expected_keys)
            np.testing.assert_allclose(rows.flatten(), expected_rows, rtol=0, atol=ERROR_MAX)


def fail_at(how: str, step: int) -> None:
    """Ends or stops this process in a step: before it, in it, or while others wait for it."""
    if how == "killed before forward" and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stopped" and step == 3:
        os.kill(os.getpid(), signal.SIGSTOP)


def run_until_failure(rank: int, rank_count: int, directory: pathlib.Path, how: str,
                      share_memory: bool) -> None:
    """The last rank fails; the others write what they were told, and after how long."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/ranks", rank=rank,
                            world_size=rank_count,
                            timeout=datetime.timedelta(seconds=TIMEOUT_S))
    embed = ht.EmbeddingCollection(tables(), share_memory=share_memory)
    victim = rank == rank_count - 1
    began = time.monotonic()
    try:
        for step in range(STEPS):
            began = time.monotonic()
            if victim:
                fail_at(how, step)
            if how == "killed in backward" and step == 3:
                inputs, target = samples(step, rank, rank_count)
                out = embed(inputs)
                if victim:
                    os.kill(os.getpid(), signal.SIGKILL)
                sum(rows.mean() for rows in out.values()).backward()
            elif how == "another step" and step == 3:
                names = ["distributed4", "auto4"][::-1 if victim else 1]
                embed({name: torch.arange(3) for name in names})
            else:
                train(embed, range(step, step + 1), rank, rank_count)
    except (RuntimeError, hps.Error) as error:
        assert step == 3, error
        (directory / f"error.{rank}").write_text(f"{time.monotonic() - began}\n{error}")
        os._exit(3)


class FailedRankTest(unittest.TestCase):
    def survivors(self, how: str, share_memory: bool) -> list[str]:
        """What the ranks say that live when another one fails."""
        directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_ranks_"))
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        context = forkserver()
        processes = [context.Process(target=run_until_failure,
                                     args=(rank, 4, directory, how, share_memory))
                     for rank in range(4)]
        for process in processes:
            process.start()
        for process in processes[:3]:
            process.join(WAIT_S)
            alive = process.is_alive()
            process.kill()
            if alive:
                raise MissedWait("no end of a rank that waits for one that has ended", WAIT_S)
        if how != "another step":
            processes[3].kill()
        processes[3].join(WAIT_S)
        said = []
        for rank in range(4 if how == "another step" else 3):
            seconds, _, text = (directory / f"error.{rank}").read_text().partition("\n")
            self.assertLess(float(seconds), 2 * TIMEOUT_S)
            said.append(text)
        return said

    def test_a_killed_rank_ends_the_others(self) -> None:
        for how, share_memory in (("killed before forward", True), ("killed in backward", True),
                                  ("killed in backward", False)):
            with self.subTest(how=how, share_memory=share_memory):
                for text in self.survivors(how, share_memory):
                    self.assertRegex(text, "rank . of 4: the exchange of .* failed, because "
                                     "another rank has ended.*last checkpoint")

    def test_a_rank_that_hangs_ends_the_others_at_the_time_out(self) -> None:
        for text in self.survivors("stopped", True):
            self.assertRegex(text, "another rank has ended, hangs")

    def test_a_rank_that_makes_another_step_is_told(self) -> None:
        said = self.survivors("another step", True)
        self.assertTrue(any("makes a step of other tables than rank" in text for text in said),
                        said)


def train_to_the_end(rank: int, rank_count: int, directory: pathlib.Path, group: int,
                     reached) -> None:
    """Goes on from the last checkpoint, and saves one after each second step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/ranks{group}", rank=rank,
                            world_size=rank_count,
                            timeout=datetime.timedelta(seconds=TIMEOUT_S))
    embed = ht.EmbeddingCollection([table for table in tables() if table.placement != "auto"])
    checkpoint = directory / "checkpoint"
    first = embed.load(checkpoint)["step"] if (checkpoint / "manifest.json").exists() else 0
    try:
        for step in range(first, LONG_STEPS):
            train(embed, range(step, step + 1), rank, rank_count)
            reached.value = max(reached.value, step)
            if step % 2 == 1:
                embed.save(checkpoint, {"step": step + 1}, incremental=step % 8 != 1)
    except (RuntimeError, hps.Error) as error:
        assert "another rank has ended" in str(error), error
        os._exit(3)
    embed.export(directory / "model")
    dist.destroy_process_group()


class KilledRankTest(unittest.TestCase):
    """One of several ranks is killed at any moment; all begin again from the last checkpoint."""

    RANKS = 2

    def run_group(self, directory: pathlib.Path, group: int, kill_at: int | None) -> list[int]:
        context = forkserver()
        reached = context.Value("i", -1)
        processes = [context.Process(target=train_to_the_end,
                                     args=(rank, self.RANKS, directory, group, reached))
                     for rank in range(self.RANKS)]
        for process in processes:
            process.start()
        victim = processes[group % self.RANKS]
        while kill_at is not None and victim.is_alive() and reached.value < kill_at:
            time.sleep(0.001)
        if kill_at is not None:
            time.sleep(self.random.uniform(0, 0.02))  # in a step, or while it saves
            victim.kill()
        for process in processes:
            process.join(WAIT_S)
            alive = process.is_alive()
            process.kill()
            if alive:
                raise MissedWait("no end of a rank that waits for one that has ended", WAIT_S)
        return [process.exitcode for process in processes]

    def test_resumed_equals_uninterrupted(self) -> None:
        self.random = random.Random(20261125)
        killed, whole = (pathlib.Path(tempfile.mkdtemp(prefix="hps_ranks_")) for _ in range(2))
        for directory in (killed, whole):
            self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        for group, kill_at in enumerate((2, 9, 15, 20)):
            with self.subTest(kill_at=kill_at):
                codes = self.run_group(killed, group, kill_at)
                self.assertEqual(codes[group % self.RANKS], -signal.SIGKILL, codes)
                self.assertEqual(codes[1 - group % self.RANKS], 3, codes)
        self.assertEqual(self.run_group(killed, 4, None), [0, 0])
        self.assertEqual(self.run_group(whole, 0, None), [0, 0])
        for table in tables():
            for part in ("key", "emb_vector") if table.placement != "auto" else ():
                self.assertEqual((killed / "model" / table.name / part).read_bytes(),
                                 (whole / "model" / table.name / part).read_bytes(),
                                 (table.name, part))


if __name__ == "__main__":
    unittest.main()
