"""hps.train on two processes whose steps differ, or that place rows that are there already."""

import datetime
import errno
import functools
import json
import multiprocessing
import pathlib
import resource
import shutil
import tempfile
import time
import traceback
import unittest

import numpy as np
import torch
import torch.distributed as dist
from waiting import MissedWait

import hps.train as ht

RANKS = 2
TIMEOUT_S = 120  # no test waits for it
WAIT_S = 240
LOCAL_STEPS = 3


def table(name: str, placement: str = "auto", **arguments) -> ht.Table:
    """A row is zeros less its gradients."""
    return ht.Table(name, 2, optimizer=ht.SGD(lr=1.0), init=ht.Uniform(0, 0), placement=placement,
                    **arguments)


def keys(step: int) -> torch.Tensor:
    return torch.arange(8) + 100 * step


def first_error(work) -> list:
    """[step, type, text] of the step that fails; [] if none does."""
    for step in range(6):
        try:
            work(step)
        except Exception as error:
            return [step, type(error).__name__, str(error)]
    return []


def sums(embed: ht.EmbeddingCollection, name: str) -> dict[str, float]:
    """What each step has left in its rows."""
    found, rows = embed.rows(name)
    return {str(key // 100): float(row[0]) for key, row in zip(found.tolist(), rows)}


def leave_out_a_backward(rank: int, _: pathlib.Path, placement: str, share_memory: bool) -> dict:
    embed = ht.EmbeddingCollection([table("a", placement)], share_memory=share_memory)

    def work(step: int) -> None:
        out = embed({"a": keys(step)})["a"]
        if rank != 1 or step != 3:
            out.sum().backward()

    return {"error": first_error(work), "sums": sums(embed, "a")}


def evaluate_beside_training(rank: int, _: pathlib.Path, share_memory: bool) -> dict:
    embed = ht.EmbeddingCollection([table("a")], share_memory=share_memory)

    def work(step: int) -> None:
        embed.train(rank != 1 or step != 3)
        out = embed({"a": keys(step)})["a"]
        if out.requires_grad:
            out.sum().backward()

    return {"error": first_error(work)}


def go_backward_in_another_order(rank: int, _: pathlib.Path, share_memory: bool) -> dict:
    embed = ht.EmbeddingCollection([table("a", "distributed")], share_memory=share_memory)

    def work(step: int) -> None:
        outs = [embed({"a": keys(2 * step + i)})["a"].sum() for i in range(2)]
        for out in outs[::-1 if rank == 1 and step == 2 else 1]:
            out.backward()

    return {"error": first_error(work)}


def leave_out_the_last_of_two_backwards(rank: int, _: pathlib.Path) -> dict:
    embed = ht.EmbeddingCollection([table("a", "distributed")])

    def work(step: int) -> None:
        outs = [embed({"a": keys(2 * step + i)})["a"].sum() for i in range(2)]
        for out in outs[:1 if rank == 1 and step == 2 else 2]:
            out.backward()

    return {"error": first_error(work)}


def save_beside_training(rank: int, directory: pathlib.Path, share_memory: bool) -> dict:
    embed = ht.EmbeddingCollection([table("a")], share_memory=share_memory)

    def work(step: int) -> None:
        if rank == 1 and step == 2:
            embed.save(directory / "beside")
        embed({"a": keys(step)})["a"].sum().backward()

    return {"error": first_error(work)}


def train_at_other_rates(rank: int, _: pathlib.Path, share_memory: bool) -> dict:
    embed = ht.EmbeddingCollection([table("a", "replicated")], share_memory=share_memory)

    def work(step: int) -> None:
        embed.tables["a"].optimizer.lr = 0.5 if rank == 1 and step == 2 else 1.0
        embed({"a": keys(step)})["a"].sum().backward()

    return {"error": first_error(work), "sums": sums(embed, "a")}


def step_at_other_factors(rank: int, _: pathlib.Path, share_memory: bool, at: str) -> dict:
    """Gradients are clipped, and the steps are those of an optimizer."""
    embed = ht.EmbeddingCollection([table("a", "replicated")], share_memory=share_memory,
                                   update="step")
    optimizer = embed.optimizer()

    def work(step: int) -> None:
        is_other = rank == 1 and step == 2
        optimizer.param_groups[0]["lr"] = 0.5 if is_other and at == "rate" else 1.0
        optimizer.zero_grad()
        embed({"a": keys(step)})["a"].sum().backward()
        if is_other and at == "clip":
            torch.nn.utils.clip_grad_norm_(embed.parameters(), 1.0)
        if not (is_other and at == "nothing"):
            optimizer.step()

    return {"error": first_error(work), "sums": sums(embed, "a")}


def fail_in_one_of_three_look_ups(_: int, __: pathlib.Path, share_memory: bool) -> dict:
    """A backward fails on all ranks, after a part of its gradients was added to the sums. The next
    step then changes no row, and training goes on."""
    embed = ht.EmbeddingCollection([table("a", "replicated")], share_memory=share_memory,
                                   update="step")

    def fail(_: torch.Tensor) -> None:
        raise OSError
    embed({"a": keys(0)})["a"].sum().backward()
    outs = [embed({"a": keys(step)}).tensor for step in (1, 2, 3)]
    outs[0].register_hook(fail)  # its backward comes last
    try:
        sum(out.sum() for out in outs).backward()
    except OSError:
        pass
    embed({"a": keys(0)})["a"].sum().backward()
    embed.optimizer().step()
    held_back = sums(embed, "a")
    embed.optimizer().zero_grad()
    embed({"a": keys(0)})["a"].sum().backward()
    embed.optimizer().step()
    return {"held back": held_back, "skipped": embed.skipped_steps, "sums": sums(embed, "a")}


def go_backward_with_views_of_negatives(_: int, __: pathlib.Path, share_memory: bool) -> dict:
    embed = ht.EmbeddingCollection([table("a", "distributed")], share_memory=share_memory)
    out = embed({"a": torch._neg_view(-keys(1))})["a"]
    out.register_hook(lambda gradient: torch._neg_view(gradient.clone()))  # the gradient is -1
    out.sum().backward()
    return {"sums": sums(embed, "a")}


def make_other_collections(rank: int, _: pathlib.Path) -> dict:
    errors = []
    for other in (lambda: ht.EmbeddingCollection([table("a", admit_after=1 + rank)]),
                  lambda: ht.EmbeddingCollection([table(name) for name in "ab"[:2 - rank]]),
                  lambda: ht.EmbeddingCollection([table("a")], hot_steps=rank)):
        try:
            other()
        except ValueError as error:
            errors.append(str(error))
    return {"errors": errors}


def begin_without_keys(rank: int, _: pathlib.Path) -> dict:
    """The first step tells nothing of "c" and "d"; in the first of all, of no table."""
    holders = []
    for used in ("ab", ""):
        embed = ht.EmbeddingCollection([table(name) for name in "abcd"])
        for names in (used, "abcd"):
            embed({name: keys(0) if name in names else keys(0)[:0] for name in embed.tables})
        holders.append(embed._engine._holders)
    return {"holders": holders, "rows": {name: len(embed.rows(name)[0]) for name in embed.tables}}


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)  # has buffers, which DistributedDataParallel sends

    def forward(self, rows):
        return self.norm(rows)


def export_a_parallel_network(rank: int, directory: pathlib.Path) -> dict:
    """One rank has rows of one table, and there are none of another."""
    network = torch.nn.parallel.DistributedDataParallel(Network())
    embed = ht.EmbeddingCollection([table("a", "localized"), table("b"), table("none")])
    rows = embed({name: keys(0) if name != "none" else keys(0)[:0] for name in embed.tables})
    network(rows["a"] + rows["b"]).sum().backward()
    embed.export(directory / "parallel", network, {"a": torch.zeros(2, 2)})
    network(embed({"a": keys(0)})["a"]).sum().backward()
    return {}


def export_to_a_full_disk(rank: int, directory: pathlib.Path) -> dict:
    """The last bytes of one rank's rows find no room."""
    embed = ht.EmbeddingCollection([table("a", "distributed")])
    embed({"a": torch.arange(100)})
    size = embed.rows("a")[1].nbytes - 8 if rank == 1 else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        embed.export(directory / "full")
    except OSError as error:
        return {"errno": error.errno, "text": str(error)}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return {}


def go_on_after_bad_batches(rank: int, _: pathlib.Path, share_memory: bool) -> dict:
    """One rank's batch of step 0 has no whole numbers, that of step 2 wrong offsets."""
    embed = ht.EmbeddingCollection([table("a"), table("b")], share_memory=share_memory)
    errors = []
    for step in range(4):
        inputs = {name: (keys(step), torch.arange(9)) for name in embed.tables}
        if rank == 1 and step == 0:
            inputs["b"] = torch.ones(3)
        if rank == 1 and step == 2:
            inputs["b"] = (keys(step), torch.tensor([0, 5]))
        try:
            sum(out.sum() for out in embed(inputs).values()).backward()
        except (TypeError, ValueError) as error:
            errors.append([step, str(error)])
    return {"errors": errors, "a": sums(embed, "a"), "b": sums(embed, "b")}


def fail_in_backward(rank: int, _: pathlib.Path) -> dict:
    embed = ht.EmbeddingCollection([table("a")])

    def work(step: int) -> None:
        embed.tables["a"].optimizer.lr = float("nan") if rank == 1 and step == 2 else 1.0
        embed({"a": keys(step)})["a"].sum().backward()

    return {"error": first_error(work), "sums": sums(embed, "a")}


def look_up_twice(rank: int, _: pathlib.Path) -> dict:
    """Hot rows are chosen while steps with two look-ups are made; one step is never finished."""
    embed = ht.EmbeddingCollection([table("a", "hybrid")], hot_steps=5)
    kept = []
    for step in range(12):
        out = [embed({"a": torch.arange(50)})["a"] for _ in range(2)]
        if step == 1:
            kept.append(embed({"a": torch.arange(50)}))
        if step == 8:
            kept.clear()
        (0.1 * out[0].sum() + 0.01 * (out[1] - rank).square().sum()).backward()
    hot = embed._engine._hot["a"].size
    return {"hot": hot, "rows": embed.eval()({"a": torch.arange(50)})["a"].tolist()}


def local_step(embed: ht.EmbeddingCollection, step: int) -> None:
    out = embed({name: torch.arange(step, 300 + 7 * step) for name in embed.tables})
    sum((rows * (1 + step)).sum() for rows in out.values()).backward()


def continue_from_one(rank: int, directory: pathlib.Path) -> dict:
    """From a checkpoint of one process, and back to one."""
    embed = ht.EmbeddingCollection([table("a", admit_after=2), table("b")])
    embed.load(directory / "one")
    local_step(embed, LOCAL_STEPS)
    embed.save(directory / "many")
    return {"holders": embed._engine._holders,
            "rows": {name: len(embed.rows(name)[0]) for name in embed.tables}}


def load_with_other_placements(rank: int, directory: pathlib.Path) -> dict:
    """A saved plan that localized tables, for tables that cannot be, or that are not there."""
    first = ht.EmbeddingCollection([table("a"), table("b")])
    local_step(first, 0)
    first.save(directory / "plan")
    found = {"holders": first._engine._holders}
    for what, tables in {"distributed": [table("a", "distributed"), table("b")],
                         "bounded": [table("a", rows_max=1000), table("b")],
                         "part": [table("a")]}.items():
        embed = ht.EmbeddingCollection(tables)
        embed.load(directory / "plan")
        local_step(embed, 1)
        found[what] = {name: len(embed.rows(name)[0]) for name in embed.tables}
    return found


def load_from_one_folder_only(rank: int, directory: pathlib.Path) -> dict:
    """One rank does not see the checkpoint."""
    embed = ht.EmbeddingCollection([table("a", admit_after=2), table("b")])
    try:
        embed.load(directory / ("one" if rank == 0 else "nowhere"))
    except (ValueError, FileNotFoundError) as error:
        return {"error": str(error), "rows": embed.statistics()["a"]["rows"]}
    return {}


def train_on_another_default_device(rank: int, _: pathlib.Path, share_memory: bool) -> dict:
    torch.set_default_device("meta")
    try:
        embed = ht.EmbeddingCollection([table("a"), table("b", "distributed")], hot_steps=2,
                                       share_memory=share_memory)
        for _ in range(4):
            pairs = torch.arange(8, device="cpu").view(4, 2)
            sum(out.sum() for out in embed({"a": pairs, "b": pairs}).values()).backward()
        return {"sums": [sums(embed, name) for name in embed.tables]}
    finally:
        torch.set_default_device("cpu")


def use_a_group_of_devices(rank: int, _: pathlib.Path) -> dict:
    group = dist.new_group(backend="cuda:gloo")
    try:
        ht.EmbeddingCollection([table("a")], process_group=group)
    except ValueError as error:
        return {"error": str(error)}
    return {}


CASES = {
    **{f"backward {placement} {share}": functools.partial(
        leave_out_a_backward, placement=placement, share_memory=share)
       for placement in ("distributed", "localized", "replicated") for share in (True, False)},
    **{f"{name} {share}": functools.partial(case, share_memory=share)
       for name, case in {"evaluate": evaluate_beside_training,
                          "order": go_backward_in_another_order,
                          "save": save_beside_training,
                          "rates": train_at_other_rates,
                          "negatives": go_backward_with_views_of_negatives,
                          "bad batch": go_on_after_bad_batches,
                          "device": train_on_another_default_device}.items()
       for share in (True, False)},
    **{f"{at} in step {share}": functools.partial(step_at_other_factors, share_memory=share, at=at)
       for at in ("rate", "clip", "nothing") for share in (True, False)},
    **{f"failed look-up {share}": functools.partial(fail_in_one_of_three_look_ups,
                                                    share_memory=share) for share in (True, False)},
    "last of two": leave_out_the_last_of_two_backwards,
    "fail in backward": fail_in_backward,
    "twice": look_up_twice,
    "from one": continue_from_one,
    "plan": load_with_other_placements,
    "nowhere": load_from_one_folder_only,
    "arguments": make_other_collections,
    "no keys": begin_without_keys,
    "parallel": export_a_parallel_network,
    "full": export_to_a_full_disk,
    "group": use_a_group_of_devices,
}


def run_cases(rank: int, directory: pathlib.Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/ranks", rank=rank,
                            world_size=RANKS, timeout=datetime.timedelta(seconds=TIMEOUT_S))
    for name, case in CASES.items():
        try:
            found = case(rank, directory)
        except Exception:
            found = {"failed": traceback.format_exc()}
        (directory / f"{name}.{rank}").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


class StepsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_steps_"))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.one = ht.EmbeddingCollection([table("a", admit_after=2), table("b")])
        for step in range(LOCAL_STEPS):
            local_step(cls.one, step)
        cls.one.save(cls.directory / "one")
        local_step(cls.one, LOCAL_STEPS)
        context = multiprocessing.get_context("forkserver")  # imports torch once
        context.set_forkserver_preload(["hps.train", "torch.distributed"])
        processes = [context.Process(target=run_cases, args=(rank, cls.directory))
                     for rank in range(RANKS)]
        for process in processes:
            process.start()
        end = time.monotonic() + WAIT_S
        for process in processes:
            process.join(max(0.0, end - time.monotonic()))
        # None has failed, and one has not come to its end.
        cls.are_late = {process.exitcode for process in processes} in ({None}, {None, 0})
        for process in processes:
            process.kill()

    def results(self, name: str) -> list[dict]:
        found = []
        for rank in range(RANKS):
            path = self.directory / f"{name}.{rank}"
            if self.are_late and not path.exists():
                raise MissedWait(f"no {path.name}", WAIT_S)
            self.assertTrue(path.exists(), f"rank {rank} has not come to this")
            found.append(json.loads(path.read_text()))
            self.assertNotIn("failed", found[-1])
        return found

    def expect_errors(self, name: str, steps: list[int], text: str) -> None:
        for found, step in zip(self.results(name), steps):
            self.assertEqual(found["error"][:2], [step, "RuntimeError"], found)
            self.assertRegex(found["error"][2], text + ".*the last checkpoint")

    def test_a_left_out_backward_is_an_error_on_all_ranks(self) -> None:
        for placement in ("distributed", "localized", "replicated"):
            for share in (True, False):
                with self.subTest(placement=placement, share_memory=share):
                    name = f"backward {placement} {share}"
                    self.expect_errors(name, [3, 4], "rank 0 is at gradients of training call 4; "
                                       "rank 1 is at keys of training call 5")
                    steps = {}
                    for found in self.results(name):
                        steps |= found["sums"]
                    self.assertEqual({step: steps[step] for step in "0123"},
                                     {"0": -1, "1": -1, "2": -1, "3": 0})

    def test_other_calls_are_an_error_on_all_ranks(self) -> None:
        for share in (True, False):
            with self.subTest(share_memory=share):
                self.expect_errors(f"evaluate {share}", [3, 3],
                                   "rank 1 is at keys of evaluation call 4")
                self.expect_errors(f"order {share}", [2, 2], "rank 0 is at gradients of training "
                                   "call 5; rank 1 is at gradients of training call 6")
        self.expect_errors("last of two", [2, 3], "rank 1 is at keys of training call 7")

    def test_a_rank_that_saves_alone_is_told(self) -> None:
        for share in (True, False):
            self.expect_errors(f"save {share}", [2, 2], "rank 1 is at a save, load or export after "
                               "training call 2")

    def test_other_learning_rates_are_an_error_on_all_ranks(self) -> None:
        for share in (True, False):
            self.expect_errors(f"rates {share}", [2, 2], "different learning rates.*no row has")
            for found in self.results(f"rates {share}"):
                self.assertEqual(found["sums"]["2"], 0)

    def test_other_factors_of_a_step_are_an_error_on_all_ranks(self) -> None:
        for share in (True, False):
            for at in ("rate", "clip"):
                self.expect_errors(f"{at} in step {share}", [2, 2], "learning rates, scales of "
                                   "their GradScaler or factors of clipping, and no row has")
                for found in self.results(f"{at} in step {share}"):
                    self.assertEqual(found["sums"]["2"], 0)
                    self.assertNotEqual(found["sums"]["1"], 0)
            self.expect_errors(f"nothing in step {share}", [2, 3],
                               "rank 0 is at a meeting of training call 3")

    def test_a_backward_that_fails_is_held_back_with_what_was_accumulated(self) -> None:
        for share in (True, False):
            for found in self.results(f"failed look-up {share}"):
                self.assertEqual(found["held back"]["0"], 0)
                self.assertEqual(found["skipped"], 1)
                self.assertNotEqual(found["sums"]["0"], 0)
                self.assertEqual(found["sums"]["1"], 0)

    def test_views_of_negatives(self) -> None:
        for share in (True, False):
            for found in self.results(f"negatives {share}"):
                self.assertEqual(found["sums"], {"1": 1.0})

    def test_ranks_must_make_the_same_collection(self) -> None:
        here, there = self.results("arguments")
        self.assertEqual(here, there)
        for text, expected in zip(here["errors"], ("admit_after=2.*rank 0 has .*admit_after=1",
                                                   "rank 1 has nothing where rank 0 has .*'b'",
                                                   "rank 1 has hot_steps=1 .*hot_steps=0"),
                                  strict=True):
            self.assertRegex(text, expected)

    def test_tables_without_keys_are_not_all_given_to_one_rank(self) -> None:
        here, there = self.results("no keys")
        self.assertEqual(here["holders"], [{"a": 0, "b": 1}, {}])
        for name, count in here["rows"].items():
            self.assertEqual(count + there["rows"][name], 8)

    def test_the_export_of_several_ranks(self) -> None:
        self.results("parallel")
        folder = self.directory / "parallel"
        self.assertEqual({path.name for path in folder.iterdir()},
                         {"a", "b", "none", "dense.onnx", "model.toml"})
        for name in "ab":
            np.testing.assert_array_equal(np.fromfile(folder / name / "key", np.int64), keys(0))
        self.assertEqual(np.load(folder / "none" / "rows.npy").shape, (0, 2))

    def test_an_export_of_one_rank_to_a_full_disk_is_an_error_on_all(self) -> None:
        for found in self.results("full"):
            self.assertEqual(found["errno"], errno.EFBIG)
            self.assertRegex(found["text"], "was not written .rank 1: OSError")
        self.assertEqual(list((self.directory / "full").iterdir()), [])

    def test_a_bad_batch_of_one_rank_is_left_out_by_all(self) -> None:
        for share in (True, False):
            with self.subTest(share_memory=share):
                here, there = self.results(f"bad batch {share}")
                self.assertEqual([step for step, _ in here["errors"]], [0, 2])
                self.assertEqual([step for step, _ in there["errors"]], [0, 2])
                for _, text in here["errors"]:
                    self.assertRegex(text, "rank 1 could not begin this step.*no rank has made it"
                                     "|rank 1 could not begin this step.*no rank has made the step")
                self.assertIn("keys must be torch.int64", there["errors"][0][1])
                self.assertIn("offsets must ascend", there["errors"][1][1])
                for name in "ab":
                    self.assertEqual(here[name] | there[name], {"1": -1, "3": -1})

    def test_an_error_in_backward_is_told_at_once(self) -> None:
        here, there = self.results("fail in backward")
        self.assertEqual(here["error"][:2], [2, "RuntimeError"])
        self.assertRegex(here["error"][2], "rank 1 failed in a step.*the last checkpoint")
        self.assertEqual(there["error"][:2], [2, "ValueError"])
        self.assertIn("table 'a': the learning rate is nan", there["error"][2])
        self.assertEqual((here["sums"] | there["sums"])["2"], 0)

    def test_copies_of_hot_rows_stay_equal_with_two_lookups_in_a_step(self) -> None:
        here, there = self.results("twice")
        self.assertEqual((here["hot"], there["hot"]), (50, 50))
        self.assertEqual(here["rows"], there["rows"])

    def test_a_checkpoint_of_one_process_is_continued_by_two_and_again_by_one(self) -> None:
        here, there = self.results("from one")
        self.assertEqual(set(here["holders"].values()), {0, 1})  # both tables were localized
        again = ht.EmbeddingCollection([table("a", admit_after=2), table("b")])
        again.load(self.directory / "many")
        for name in self.one.tables:
            expected, rows = self.one.rows(name)
            self.assertEqual(here["rows"][name] + there["rows"][name], len(expected))
            found, found_rows = again.rows(name)
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(found_rows, rows)

    def test_a_saved_plan_is_followed_as_far_as_the_tables_allow(self) -> None:
        here, there = self.results("plan")
        self.assertEqual(set(here["holders"].values()), {0, 1})
        for what in ("distributed", "bounded", "part"):
            with self.subTest(what):
                for name in here[what]:
                    self.assertEqual(here[what][name] + there[what][name], 307)

    def test_a_checkpoint_that_one_rank_cannot_load_is_loaded_by_none(self) -> None:
        here, there = self.results("nowhere")
        self.assertIn("rank 1", here["error"])
        for found in (here, there):
            self.assertIn("nowhere has no manifest.json", found["error"])
            self.assertEqual(found["rows"], 0)

    def test_the_default_device_is_not_used(self) -> None:
        for share in (True, False):
            here, there = self.results(f"device {share}")
            for sums_here, sums_there in zip(here["sums"], there["sums"]):
                self.assertEqual(sums_here | sums_there, {"0": -4})

    def test_a_group_without_the_cpu_is_refused(self) -> None:
        for found in self.results("group"):
            self.assertIn("exchanges no tensors of the CPU", found["error"])


if __name__ == "__main__":
    unittest.main()
