"""hps.train within torch.compile: programs train as the same code does without a compiler."""

import gc
import json
import multiprocessing
import pathlib
import tempfile
import unittest
import unittest.mock
import weakref

import numpy as np
import torch
import torch.distributed as dist
import torch.utils.checkpoint

import hps.train as ht
from hps.train import _look_ups, _operators

DIM = 4
RANKS = 2
WAIT_S = 240  # for what hangs


def tables() -> list[ht.Table]:
    return [ht.Table("a", DIM, optimizer=ht.Adam(lr=0.1)),
            ht.Table("b", DIM, optimizer=ht.Adagrad(lr=0.1),
                     features=["b", ht.Feature("none", "none"), ht.Feature("mean", "mean")])]


def collection(**arguments) -> ht.EmbeddingCollection:
    return ht.EmbeddingCollection(tables(), **arguments)


def momentum() -> ht.EmbeddingCollection:
    """Whose rows move on with gradients of zeros."""
    return ht.EmbeddingCollection([
        ht.Table(name, DIM, optimizer=ht.SGD(lr=0.1, momentum=0.9),
                 pooling="none" if name == "none" else "sum") for name in ("a", "b", "none")])


def compiled(function, backend: str = "aot_eager", **arguments):
    return torch.compile(function, fullgraph=True, backend=backend, **arguments)


def two(count: int) -> dict[str, torch.Tensor]:
    return {"a": torch.arange(count) * 3 % 7, "b": torch.arange(count)}


def ragged(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and offsets of `count` bags; the second bag is empty."""
    offsets = torch.tensor([0, 2, 2, *range(3, count), count + 4])
    return torch.arange(count + 4) % 5, offsets


def squares(rows: ht.Rows) -> torch.Tensor:
    return sum((each * torch.arange(1, DIM + 1)).square().sum() for each in rows.values())


def with_weights(embed, keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return squares(embed({"a": (keys, None, weights), "b": keys[:, 0].contiguous()}))


def stacked(embed, inputs) -> torch.Tensor:
    stack = embed(inputs).stack()
    return (stack[:, 0] * stack[:, 1] * torch.arange(DIM)).sum()


def some_columns(embed, inputs) -> torch.Tensor:
    """The gradients of the others are zeros, as they are for code that is not compiled here."""
    columns = embed(inputs).tensor.split(DIM, 1)
    return columns[len(inputs["a"]) % 2].square().sum()


def of_several_look_ups(embed, inputs) -> torch.Tensor:
    other = embed({"a": inputs["b"]})["a"]
    return squares(embed(inputs)) + (embed(inputs)["b"] * other).sum()


def weights_of(count: int, need_gradients: bool) -> tuple[torch.Tensor, torch.Tensor]:
    keys = torch.arange(2 * count).view(count, 2) % 7
    return keys, torch.linspace(0, 1, 2 * count).view(count, 2).requires_grad_(need_gradients)


# {case: (the function to compile, a function that makes its arguments for a batch of n samples)}
CASES = {
    "one key a sample": (lambda embed, inputs: squares(embed(inputs)), lambda n: (two(n),)),
    "side by side": (lambda embed, inputs: embed(inputs).tensor.tanh().sum(), lambda n: (two(n),)),
    "stacked": (stacked, lambda n: (two(n),)),
    "some columns": (some_columns, lambda n: (two(n),)),
    "several look-ups": (of_several_look_ups, lambda n: (two(n),)),
    "other integers": (lambda embed, inputs: squares(embed(inputs)),
                       lambda n: ({name: keys.int() for name, keys in two(n).items()},)),
    "no pooling": (lambda embed, inputs: squares(embed(inputs)),
                   lambda n: (two(n) | {"none": torch.arange(3 * n).view(n, 3) % 5},)),
    "no pooling alone": (lambda embed, keys: squares(embed({"none": keys})),
                         lambda n: (torch.arange(n),)),
    "ragged bags": (lambda embed, inputs: squares(embed(inputs)),
                    lambda n: ({"a": torch.arange(n), "mean": ragged(n)},)),
    "ragged rows": (lambda embed, inputs: squares(embed(inputs)),
                    lambda n: ({"none": ragged(n), "a": ragged(n)},)),
    "batches of other sizes": (lambda embed, inputs: squares(embed(inputs)),
                               lambda n: ({"a": torch.arange(n), "b": torch.arange(2 * n)},)),
    "Keys made within": (
        lambda embed, values, offsets: squares(embed(ht.Keys(["a", "mean"], values, offsets))),
        lambda n: (torch.arange(2 * n), torch.arange(2 * n + 1))),
    "Keys made outside": (lambda embed, keys: squares(embed(keys)),
                          lambda n: (ht.Keys(["b", "a"], torch.arange(2 * n)),)),
    "nested tensors": (
        lambda embed, nested: squares(embed(ht.Keys.from_nested({"a": nested}))),
        lambda n: (torch.nested.nested_tensor_from_jagged(*ragged(n)),)),
    "weights": (with_weights, lambda n: weights_of(n, False)),
    "weights with gradients": (with_weights, lambda n: weights_of(n, True)),
}


class Tensor(torch.nn.Module):
    def forward(self, rows: ht.Rows) -> torch.Tensor:
        return rows.tensor


class CompileTest(unittest.TestCase):
    def setUp(self) -> None:
        torch.compiler.reset()

    def expect_equal(self, one: ht.EmbeddingCollection, other: ht.EmbeddingCollection) -> None:
        for name in one.tables:
            if one.statistics()[name]["rows"] or other.statistics()[name]["rows"]:
                keys, rows = one.rows(name)
                other_keys, other_rows = other.rows(name)
                np.testing.assert_array_equal(keys, other_keys)
                np.testing.assert_allclose(rows, other_rows, rtol=0, atol=1e-6)

    def train(self, case: str, backend: str, dynamic: bool | None = None, sizes=(5, 5, 8),
              **settings) -> None:
        """Steps with and without a compiler, with batches of these sizes."""
        function, arguments = CASES[case]
        program = compiled(function, backend, dynamic=dynamic)
        plain, embed = collection(**settings), collection(**settings)
        for count in sizes:
            for_plain, for_program = arguments(count), arguments(count)
            expected, found = function(plain, *for_plain), program(embed, *for_program)
            torch.testing.assert_close(found, expected)
            expected.backward()
            found.backward()
            for each, other in zip(for_plain, for_program):
                if isinstance(each, torch.Tensor) and each.requires_grad:
                    torch.testing.assert_close(other.grad, each.grad)
            for each in (plain, embed):
                each.optimizer().step()
                each.optimizer().zero_grad()
            self.expect_equal(embed, plain)

    def test_programs_train_as_plain_code(self) -> None:
        for case in CASES:
            with self.subTest(case=case):
                torch.compiler.reset()
                self.train(case, "aot_eager")

    def test_updates_in_steps(self) -> None:
        for case in ("some columns", "several look-ups", "weights with gradients"):
            with self.subTest(case=case):
                torch.compiler.reset()
                self.train(case, "aot_eager", update="step")

    def test_inductor(self) -> None:
        for case in ("several look-ups", "weights with gradients"):
            with self.subTest(case=case):
                torch.compiler.reset()
                self.train(case, "inductor")

    def test_sizes(self) -> None:
        for case, dynamic in [("one key a sample", False), ("no pooling", True),
                              ("batches of other sizes", True), ("weights with gradients", True)]:
            with self.subTest(case=case):
                torch.compiler.reset()
                self.train(case, "aot_eager", dynamic, (3, 1, 0, 6))

    def test_a_model_as_without_a_compiler(self) -> None:
        """A network, autocast, accumulation, clipping and a GradScaler."""
        found = []
        for compile_it in (compiled, lambda function: function):
            torch.manual_seed(1)
            embed, network = collection(update="step"), torch.nn.Linear(2 * DIM, 1)
            program = compile_it(lambda inputs: network(embed(inputs).tensor).square().mean())
            parameters = [*embed.parameters(), *network.parameters()]
            optimizers = [torch.optim.Adam(parameters, lr=0.1), embed.optimizer()]
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            for step in range(3):
                for part in range(2):
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        loss = program(two(5 + part))
                    scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
                scaler.unscale_(optimizers[0])
                torch.nn.utils.clip_grad_norm_(parameters, 0.05)
                for optimizer in optimizers:
                    scaler.step(optimizer)
                scaler.update()
                for optimizer in optimizers:
                    optimizer.zero_grad()
            self.assertEqual(embed.skipped_steps, 1)
            found.append((embed, network.weight))
        self.expect_equal(found[0][0], found[1][0])
        torch.testing.assert_close(found[0][1], found[1][1])

    def test_rows_are_an_output(self) -> None:
        plain, embed = collection(), collection()
        program = compiled(embed)
        for count in (5, 6):
            expected, found = plain(two(count)), program(two(count))
            self.assertIs(type(found), ht.Rows)
            self.assertEqual(list(found), ["a", "b"])
            for rows in (expected, found):
                (squares(rows) + rows.stack().sum() + rows.tensor.prod(1).sum()).backward()
            self.expect_equal(embed, plain)

    def test_evaluation_changes_nothing(self) -> None:
        embed = collection()
        squares(embed(two(5))).backward()
        before = {name: embed.rows(name) for name in embed.tables}
        program = compiled(lambda inputs: embed(inputs).tensor * 2)

        def expect_rows() -> None:
            torch.testing.assert_close(program(two(9)), embed(two(9)).tensor * 2)
            for name, rows in before.items():
                for found, expected in zip(embed.rows(name), rows):
                    np.testing.assert_array_equal(found, expected)

        for mode in (torch.no_grad, torch.inference_mode):
            with self.subTest(mode=mode), mode():
                expect_rows()
        embed.eval()
        expect_rows()
        embed.train().requires_grad_(False)
        torch.compiler.reset()
        expect_rows()

    def test_a_network_trains_over_tables_that_do_not(self) -> None:
        for freeze in (ht.EmbeddingCollection.eval,
                       lambda embed: embed.requires_grad_(False)):
            embed, network = collection(), torch.nn.Linear(2 * DIM, 1)
            squares(embed(two(5))).backward()
            freeze(embed)
            before = {name: embed.rows(name) for name in embed.tables}
            program = compiled(lambda inputs, embed=embed, network=network: network(
                embed(inputs).tensor).square().sum())
            gradients = []
            for function in (lambda inputs, embed=embed, network=network: network(
                    embed(inputs).tensor).square().sum(), program):
                network.zero_grad()
                function(two(7)).backward()
                gradients.append(network.weight.grad.clone())
            torch.testing.assert_close(*gradients)
            for name, rows in before.items():
                for found, expected in zip(embed.rows(name), rows):
                    np.testing.assert_array_equal(found, expected)

    def test_freezing_after_compilation_is_an_error(self) -> None:
        """PyTorch does not compile a program again when `requires_grad` of a parameter changes."""
        for was_frozen in (False, True):
            with self.subTest(was_frozen=was_frozen):
                torch.compiler.reset()
                embed, network = collection(), torch.nn.Linear(2 * DIM, 1)
                program = compiled(torch.nn.Sequential(embed, Tensor(), network))
                embed.requires_grad_(not was_frozen)
                program(two(5)).sum().backward()
                before = embed.statistics()
                embed.requires_grad_(was_frozen)
                with self.assertRaisesRegex(RuntimeError, "requires_grad.*torch.compiler.reset"):
                    program(two(5))
                self.assertEqual(embed.statistics(), before)
                torch.compiler.reset()
                program(two(5)).sum().backward()
                self.assertEqual(embed.statistics()["a"]["step"], 1)

    def test_float16_without_a_scaler(self) -> None:
        embed = collection()
        program = compiled(lambda inputs: embed(inputs).tensor.sum())
        with torch.autocast("cpu", dtype=torch.float16), self.assertWarnsRegex(
                UserWarning, "float16 under autocast needs a GradScaler"):
            program(two(5))

    def test_two_losses_of_one_backward(self) -> None:
        plain, embed = collection(), collection()
        program = compiled(lambda inputs: squares(embed(inputs)))
        for function in (lambda inputs: squares(plain(inputs)), program):
            (function(two(5)) + function(two(7))).backward()  # one update
            losses = function(two(3)), function(two(4))
            for loss in losses:
                loss.backward()
        self.expect_equal(embed, plain)

    def test_other_gradients_change_no_row(self) -> None:
        embed, network = collection(), torch.nn.Linear(2 * DIM, 1)
        program = compiled(lambda inputs: network(embed(inputs).tensor).sum())
        loss = program(two(5))
        before = embed.rows("a")[1]
        torch.autograd.grad(loss, [network.weight])
        np.testing.assert_array_equal(embed.rows("a")[1], before)
        program(two(5)).backward()
        self.assertFalse((embed.rows("a")[1] == before).all())

    def test_a_second_backward_is_an_error(self) -> None:
        embed = collection()
        loss = compiled(lambda inputs: squares(embed(inputs)))(two(5))
        loss.backward(retain_graph=True)
        before = embed.rows("a")[1]
        with self.assertRaisesRegex(RuntimeError, "taken before: backward runs once"):
            loss.backward()
        np.testing.assert_array_equal(embed.rows("a")[1], before)

    def test_what_is_dropped_is_freed(self) -> None:
        embed = collection()
        program = compiled(lambda inputs: embed(inputs).tensor.tanh())
        gc.collect()
        others = len(_operators._open)
        rows = [program(two(5)) for _ in range(3)]
        self.assertEqual(len(_operators._open), others + 3)  # a backward may still come
        rows.pop().sum().backward()
        rows.clear()
        self.assertEqual(len(_operators._open), others)
        collected = weakref.ref(embed)
        loss = program(two(5)).sum()
        del embed, program
        loss.backward()
        del loss
        torch.compiler.reset()
        gc.collect()
        self.assertIsNone(collected())

    def test_a_feature_without_gradients(self) -> None:
        """It gets zeros, as if the rows were taken from `tensor`."""
        plain, embed = collection(), collection()

        def loss_of(name: str, inputs: dict) -> torch.Tensor:
            return embed(inputs)[name].square().sum()
        program = compiled(loss_of)
        for name, column in (("a", 0), ("b", 1), ("a", 0)):
            program(name, two(5)).backward()
            plain(two(5)).tensor.split(DIM, 1)[column].square().sum().backward()
            self.expect_equal(embed, plain)

    def test_rows_of_each_key_without_gradients(self) -> None:
        """They have a tensor of their own: no gradients within a program, zeros as its output."""
        def only(embed, inputs):
            rows = embed(inputs)
            return rows["a"].square().sum(), rows["none"] if is_output else None
        for is_output in (False, True):
            torch.compiler.reset()
            plain, embed = momentum(), momentum()
            inputs = two(5) | {"none": torch.arange(5)}
            for each in (plain, embed):
                squares(each(inputs)).backward()
            rows = plain(inputs)
            (rows["a"].square().sum() + (0 * rows["none"].sum() if is_output else 0) +
             0 * rows["b"].sum()).backward()
            compiled(only)(embed, inputs)[0].backward()
            self.expect_equal(embed, plain)

    def test_a_graph_break_within(self) -> None:
        """PyTorch then compiles one part of the forward, and runs the rest without a compiler."""
        plain, embed = collection(), collection()
        jagged = {"a": ragged(6), "b": torch.arange(6)}
        pack = _look_ups.pack

        def broken(*arguments):
            torch._dynamo.graph_break()
            return pack(*arguments)

        program = torch.compile(lambda inputs: squares(embed(inputs)), backend="aot_eager")
        torch._dynamo.utils.counters.clear()
        for inputs in (two(5), jagged):
            with unittest.mock.patch.object(_look_ups, "pack", broken):
                loss = program(inputs)
            loss.backward()
            squares(plain(inputs)).backward()
        self.assertTrue(torch._dynamo.utils.counters["graph_break"])
        self.expect_equal(embed, plain)

    def test_a_whole_step(self) -> None:
        """PyTorch leaves `backward` and optimizers out of its graphs, and with them the tables."""
        for update in ("backward", "step"):
            with self.subTest(update=update):
                plain, embed = collection(update=update), collection(update=update)

                def step(embed, inputs: dict) -> None:
                    embed.optimizer().zero_grad()
                    squares(embed(inputs)).backward()
                    torch.nn.utils.clip_grad_norm_(embed.parameters(), 0.1)
                    embed.optimizer().step()
                program = torch.compile(step, backend="aot_eager")
                for count in (5, 5, 8):
                    step(plain, two(count))
                    program(embed, two(count))
                    self.expect_equal(embed, plain)

    def test_a_network_that_takes_rows(self) -> None:
        plain, embed = collection(), collection()
        network = compiled(squares)
        for count in (5, 5, 8):
            squares(plain(two(count))).backward()
            rows = embed(two(count))
            (network(rows) + 0 * rows["a"].sum()).backward()  # rows["a"] outside the program, too
            self.expect_equal(embed, plain)

    def test_activation_checkpoints(self) -> None:
        found = []
        for compile_it in (compiled, lambda function: function):
            embed = collection()
            program = compile_it(lambda inputs, embed=embed: torch.utils.checkpoint.checkpoint(
                lambda each: squares(embed(each)), inputs, use_reentrant=False))
            for _ in range(2):
                program(two(5)).backward()
            found.append(embed)
        self.expect_equal(*found)

    def test_wrong_keys(self) -> None:
        """What a program can't know when it is compiled is found when it runs."""
        embed = collection()
        program = compiled(lambda inputs: squares(embed(inputs)))
        four = torch.arange(4)
        descending = torch.tensor([0, 3, 2, 4])
        for inputs, text in [
                ({"a": (four, descending)}, "feature 'a' of table 'a'.*must ascend"),
                ({"b": torch.arange(3), "a": (four, torch.tensor([1, 2, 3, 4]))},
                 "feature 'a'.*offsets must ascend"),
                ({"a": (four, torch.tensor([0, 2, 3, 3])), "b": torch.arange(3)},
                 "feature 'a'.*offsets must ascend"),
                (ht.Keys(["none", "a"], four, torch.tensor([0, 1, 4, 3, 2])), "must ascend")]:
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                program(inputs)
        for inputs, text in [({"x": four}, "no table has the feature 'x'"),
                             ({"a": torch.rand(4)}, "feature 'a' of table 'a': keys must be"),
                             ({"a": four.view(1, 2, 2)}, "keys must be .batch. or"),
                             ({"a": (four, torch.tensor([4]))}, "offsets must ascend"),
                             ({}, "no feature is given"), (3, "expected .feature: keys. or Keys")]:
            with self.subTest(text=text), self.assertRaisesRegex(Exception, text):
                program(inputs)
        for counted in embed.statistics().values():
            self.assertEqual((counted["rows"], counted["step"]), (0, 0))

    def test_other_parameters_are_refused(self) -> None:
        embed = collection()
        program = compiled(lambda anchor, inputs: torch.func.functional_call(
            embed, {"anchor": anchor}, (inputs,)).tensor.sum())
        with self.assertRaisesRegex(Exception, "can't be trained with other parameters"):
            program(torch.zeros(1, requires_grad=True), two(5))


class Model(torch.nn.Module):
    def __init__(self, share_memory: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = collection(share_memory=share_memory)
        self.network = torch.nn.Linear(2 * DIM, 1)

    def forward(self, inputs: dict) -> torch.Tensor:
        return self.network(self.embed(inputs).tensor).square().sum()


def leave_out_a_pass() -> None:
    """The gradients of other things than rows are computed between two backward passes."""
    found = []
    for make in (compiled, lambda function: function):
        embed, network = collection(update="step"), torch.nn.Linear(2 * DIM, 1)
        torch.nn.init.ones_(network.weight)
        torch.nn.init.ones_(network.bias)
        program = make(lambda inputs, embed=embed, network=network: sum(
            network(embed(inputs).tensor).square().sum() for _ in range(2)))
        losses = program(two(4)), program(two(9))
        torch.autograd.grad(losses[0], [network.weight])
        losses[1].backward()
        embed.optimizer().step()
        found.append([embed.rows(name)[1] for name in "ab"])
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def hold_back_a_pass() -> None:
    """Other gradients are computed within a backward pass. If they and those of the pass are in one
    sum, that can only be dropped: the step changes no row, and is counted."""
    embed = ht.EmbeddingCollection([ht.Table("a", DIM, optimizer=ht.SGD(lr=0.1))])
    weights = torch.ones(4, requires_grad=True)
    keys = torch.arange(4)
    for count in (0, 1, 2):
        inner = sum(embed({"a": (keys, torch.arange(5), weights)})["a"].sum()
                    for _ in range(count))
        loss = sum(embed({"a": keys})["a"].sum() for _ in range(2))

        def within(_, inner=inner, count=count) -> None:
            if count:
                torch.autograd.grad(inner, [weights])
        hook = embed.anchor.register_hook(within)
        before, skipped = embed.rows("a")[1], embed.skipped_steps
        loss.backward()
        hook.remove()
        are_held_back = embed.skipped_steps == skipped + 1
        assert are_held_back == (count == 2), count
        np.testing.assert_allclose(embed.rows("a")[1], before - (0 if are_held_back else 0.2),
                                   rtol=0, atol=1e-6)


def train_ranks(rank: int, directory: pathlib.Path) -> None:
    """A model with and without a compiler; then a batch of one rank that can't be looked up."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/ranks", rank=rank,
                            world_size=RANKS)
    parallel = torch.nn.parallel.DistributedDataParallel
    programs = [parallel, lambda model: parallel(compiled(model)),
                lambda model: torch.compile(parallel(model), backend="aot_eager")]
    for share_memory in (True, False):
        found = []
        for make in programs:
            model = Model(share_memory)
            program = make(model)
            optimizer = torch.optim.SGD(model.network.parameters(), lr=0.01)
            for step in range(4):
                program({name: keys + rank + step for name, keys in two(4 + step).items()}
                        ).backward()
                optimizer.step()
                optimizer.zero_grad()
            found.append((model.network.weight.detach(),
                          *(torch.from_numpy(model.embed.rows(name)[1]) for name in "ab")))
        for other in found[1:]:
            torch.testing.assert_close(other, found[0])
    leave_out_a_pass()
    hold_back_a_pass()
    wrong = torch.tensor([0, 1, 4 - rank])
    errors = []
    for inputs in ({"a": (torch.arange(4), wrong), "b": torch.arange(2)},
                   ht.Keys(["none", "a"], torch.arange(4),
                           torch.tensor([0, 1, 2, 4 - 3 * rank, 4]))):
        program = compiled(lambda inputs, embed=model.embed: squares(embed(inputs)))
        try:
            program(inputs)
        except ValueError as error:
            errors.append(str(error))
    (directory / f"errors.{rank}").write_text(json.dumps(errors))
    dist.destroy_process_group()


class RanksTest(unittest.TestCase):
    def test_two_ranks(self) -> None:
        with tempfile.TemporaryDirectory(prefix="hps_compile_") as name:
            directory = pathlib.Path(name)
            context = multiprocessing.get_context("forkserver")
            processes = [context.Process(target=train_ranks, args=(rank, directory))
                         for rank in range(RANKS)]
            for process in processes:
                process.start()
            for process in processes:
                process.join(WAIT_S)
                process.kill()
            self.assertEqual([process.exitcode for process in processes], [0] * RANKS)
            errors = [json.loads((directory / f"errors.{rank}").read_text())
                      for rank in range(RANKS)]
            for of_one, of_other in zip(*errors, strict=True):
                self.assertIn("rank 1", of_one)
                self.assertIn("must ascend", of_other)
            self.assertEqual(len(errors[0]), 2)


if __name__ == "__main__":
    unittest.main()
