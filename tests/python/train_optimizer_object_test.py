"""hps.train's tables as an optimizer of PyTorch: schedulers, accumulation, clipping, GradScaler."""

import copy
import importlib
import unittest
import warnings

import numpy as np
import torch
import torch.utils.checkpoint

import hps.train as ht

ROWS = 20
DIM = 4
STEPS = 30


def table(name: str = "t", **arguments) -> ht.Table:
    return ht.Table(name, DIM, **{"optimizer": ht.SGD(lr=1.0), "init": ht.Uniform(0, 0),
                                  **arguments})


def row(embed: ht.EmbeddingCollection, key: int, name: str = "t") -> float:
    keys, rows = embed.rows(name)
    return rows[keys.tolist().index(key), 0].item()


class Model(torch.nn.Module):
    """Two tables, and a network over their rows."""

    def __init__(self, optimizer) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.network = torch.nn.Linear(2 * DIM, 1)
        self.embed = ht.EmbeddingCollection(
            [ht.Table(name, DIM, optimizer=optimizer) for name in "ab"], update="step")
        self.embed({name: torch.arange(ROWS) for name in "ab"})

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.network(self.embed({"a": a, "b": b}).tensor).squeeze(1)


class Peer(torch.nn.Module):
    """The same with nn.Embedding."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network = copy.deepcopy(model.network)
        self.rows = torch.nn.ModuleList(torch.nn.Embedding.from_pretrained(
            torch.from_numpy(model.embed.rows(name)[1]), freeze=False) for name in "ab")

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat([self.rows[0](a), self.rows[1](b)], 1)).squeeze(1)


def part_of(step: int, part: int, parts: int) -> tuple[torch.Tensor, ...]:
    """Keys and targets. Every key is in some part of each step, so that an optimizer that updates
    all rows does what one does that updates those of the step."""
    random = torch.Generator().manual_seed(step)
    keys = [torch.cat([torch.randperm(ROWS, generator=random),
                       torch.randint(ROWS, (10,), generator=random)]) for _ in range(2)]
    target = torch.randn(30, generator=random)
    return tuple(each.chunk(parts)[part] for each in (*keys, target))


class AgainstTorchTest(unittest.TestCase):
    def compare(self, optimizer, make_optimizer, clip: float | None = None, parts: int = 1,
                scale: float | None = None) -> None:
        model = Model(optimizer)
        peer = Peer(model)
        trained = [(model, [make_optimizer(model.parameters()), model.embed.optimizer()]),
                   (peer, [make_optimizer(peer.parameters())])]
        for step in range(STEPS):
            norms = [self.step(*each, step, clip, parts, scale) for each in trained]
            if clip is not None:
                np.testing.assert_allclose(norms[0], norms[1], rtol=1e-5)
            for name, peer_rows in zip("ab", peer.rows):
                np.testing.assert_allclose(model.embed.rows(name)[1], peer_rows.weight.detach(),
                                           atol=1e-5)
            np.testing.assert_allclose(model.network.weight.detach(),
                                       peer.network.weight.detach(), atol=1e-5)

    @staticmethod
    def step(model, optimizers, step: int, clip, parts: int, scale) -> float:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
        for optimizer in optimizers:
            optimizer.zero_grad()
        for part in range(parts):
            a, b, target = part_of(step, part, parts)
            scaler.scale((model(a, b) - target).square().mean() / parts).backward()
        norm = 0.0
        if clip is not None:
            scaler.unscale_(optimizers[0])
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        return norm

    def test_a_plain_loop(self) -> None:
        self.compare(ht.SGD(lr=0.1), lambda rows: torch.optim.SGD(rows, lr=0.1))

    def test_accumulation(self) -> None:
        for own, peer in ((ht.SGD(lr=0.1), torch.optim.SGD), (ht.Adam(lr=0.1), torch.optim.Adam),
                          (ht.Adagrad(lr=0.1), torch.optim.Adagrad)):
            self.compare(own, lambda rows, peer=peer: peer(rows, lr=0.1), parts=3)

    def test_clipping(self) -> None:
        self.compare(ht.SGD(lr=0.1), lambda rows: torch.optim.SGD(rows, lr=0.1), clip=0.3)

    def test_clipping_what_was_accumulated(self) -> None:
        self.compare(ht.Adam(lr=0.1), lambda rows: torch.optim.Adam(rows, lr=0.1), clip=0.3,
                     parts=2)

    def test_grad_scaler(self) -> None:
        for scale in (1.0, 2.0**16, 3.0):
            self.compare(ht.SGD(lr=0.1), lambda rows: torch.optim.SGD(rows, lr=0.1), scale=scale)

    def test_grad_scaler_clipping_and_accumulation(self) -> None:
        for scale in (1.0, 2.0**16):
            self.compare(ht.SGD(lr=0.1), lambda rows: torch.optim.SGD(rows, lr=0.1), clip=0.3,
                         parts=2, scale=scale)


class StepTest(unittest.TestCase):
    def setUp(self) -> None:
        self.embed = ht.EmbeddingCollection([table(), table("u")], update="step")
        self.optimizer = self.embed.optimizer()

    def backward(self, factor: float = 1.0) -> None:
        (self.embed({"t": [1, 1, 2], "u": [1, 1, 1]}).tensor[:, :DIM].sum() * factor).backward()

    def test_backward_changes_no_row_and_step_does(self) -> None:
        self.backward()
        self.assertEqual(row(self.embed, 1), 0)
        self.assertAlmostEqual(self.embed.anchor.grad.item(), (DIM * (2**2 + 1))**0.5, places=5)
        self.optimizer.step()
        self.assertEqual((row(self.embed, 1), row(self.embed, 2)), (-2, -1))

    def test_gradients_are_removed_between_a_step_and_the_next_backward(self) -> None:
        self.backward()
        self.optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "call zero_grad.. between the step"):
            self.backward()
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()
        self.assertEqual(row(self.embed, 2), -2)

    def test_what_removes_the_anchors_gradient_removes_the_sums(self) -> None:
        network = torch.optim.SGD(self.embed.parameters(), lr=1.0)
        for remove in (self.optimizer.zero_grad, network.zero_grad, self.embed.zero_grad):
            self.backward()
            remove()
            with self.assertRaisesRegex(RuntimeError, "the tables have no gradients"):
                self.optimizer.step()
            self.assertEqual(row(self.embed, 2), 0)
            self.backward(0.0)
            self.optimizer.step()
            self.assertEqual(row(self.embed, 2), 0)
            self.optimizer.zero_grad()

    def test_what_sets_the_anchors_gradient_to_zero(self) -> None:
        network = torch.optim.SGD(self.embed.parameters(), lr=1.0)
        for number in range(3):
            self.backward()
            network.zero_grad(set_to_none=False)
            if number == 1:
                self.backward()
            self.optimizer.step()
            self.assertEqual(row(self.embed, 2), -float(number > 0))
            network.zero_grad(set_to_none=False)
        self.assertEqual(self.embed.skipped_steps, 2)

    def test_what_scales_the_anchors_gradient_before_another_backward(self) -> None:
        self.backward()
        self.embed.anchor.grad *= 0.5
        self.backward()
        self.optimizer.step()
        self.assertEqual((row(self.embed, 1), row(self.embed, 2)), (-3, -1.5))

    def test_a_step_without_a_backward(self) -> None:
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "call backward before the step"):
                self.optimizer.step()
        self.backward()
        self.optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "call backward before the step"):
            self.optimizer.step()
        self.assertEqual(row(self.embed, 2), -1)

    def test_a_network_that_is_not_finite_changes_no_row(self) -> None:
        """clip_grad_norm_ multiplies all gradients by 0 then, or by NaN."""
        network = torch.nn.Linear(1, 1)
        for special in (float("inf"), float("nan")):
            self.backward()
            network(torch.ones(1, 1)).sum().backward()
            network.bias.grad.fill_(special)
            torch.nn.utils.clip_grad_norm_([*self.embed.parameters(), *network.parameters()], 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.assertEqual((row(self.embed, 2), self.embed.skipped_steps), (0, 2))

    def test_a_backward_without_a_look_up(self) -> None:
        for embed in (self.embed, ht.EmbeddingCollection([table(), table("u")])):
            self.embed = embed
            self.backward()
            embed.anchor.grad *= 0.5
            before = embed.anchor.grad.item()
            sum(each.square().sum() for each in embed.parameters()).backward()
            self.assertEqual(embed.anchor.grad.item(), before)

    def test_an_optimizer_that_moves_the_anchor(self) -> None:
        network = torch.optim.Adam(self.embed.parameters(), lr=0.1)
        for factor in (1.0, 1e30, 1.0):
            self.backward(factor)
            self.optimizer.step()
            network.step()
            network.zero_grad()
        norm = sum(each.square().sum() for each in self.embed.parameters())
        self.embed({"t": [1]})
        self.assertEqual(self.embed.anchor.item(), 0)
        norm.backward()
        self.assertEqual(row(self.embed, 2), -2)

    def test_a_backward_that_fails(self) -> None:
        self.backward()

        def fail(_: torch.Tensor) -> None:
            raise OSError("of another part of the network")
        first = self.embed({"t": [2]}).tensor  # its backward comes last
        first.register_hook(fail)
        with self.assertRaisesRegex(OSError, "of another part"):
            (self.embed({"t": [2]}).tensor + first).sum().backward()
        self.backward()
        self.optimizer.step()
        self.assertEqual(row(self.embed, 2), -2)

    def test_a_pass_within_a_pass(self) -> None:
        """Activation checkpointing, as it was at first, goes backward within a backward."""
        for update in ("step", "backward"):
            embed = ht.EmbeddingCollection([table()], update=update)

            def look_up(factor: torch.Tensor, key: int, embed=embed) -> torch.Tensor:
                return embed({"t": [key]}).tensor.sum() * factor
            one = torch.ones(1, requires_grad=True)
            loss = look_up(one, 1) + torch.utils.checkpoint.checkpoint(
                look_up, one, 2, use_reentrant=True) + look_up(one, 3)
            loss.sum().backward()
            embed.optimizer().step()
            self.assertEqual([row(embed, key) for key in (1, 2, 3)], [-1, -1, -1])

    def test_other_parameters(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "can't be trained with other parameters"):
            torch.func.functional_call(self.embed, {"anchor": torch.zeros(1, requires_grad=True)},
                                       ({"t": [1]},))

    def test_a_closure(self) -> None:
        def closure() -> float:
            self.backward()
            return 7.0
        self.assertEqual(self.optimizer.step(closure), 7.0)
        self.assertEqual(row(self.embed, 2), -1)

    def test_special_gradients_change_nothing(self) -> None:
        for special in (float("nan"), float("inf"), 1e30):
            self.backward(special)
            self.backward()
            self.assertEqual(self.embed.anchor.grad.item(), float("inf"))
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.assertEqual((row(self.embed, 1), self.embed.skipped_steps), (0, 3))
        self.backward()
        self.optimizer.step()
        self.assertEqual(row(self.embed, 2), -1)

    def test_sums_that_overflow_change_nothing(self) -> None:
        for _ in range(3):
            self.backward(2.0**45)
        self.optimizer.step()
        self.assertEqual((row(self.embed, 1), self.embed.skipped_steps), (0, 1))

    def test_a_wrong_update(self) -> None:
        with self.assertRaisesRegex(ValueError, "update must be one of"):
            ht.EmbeddingCollection([table()], update="forward")


class LearningRateTest(unittest.TestCase):
    def test_a_group_for_each_table(self) -> None:
        embed = ht.EmbeddingCollection([table("a"), table("b", optimizer=ht.Adam(lr=0.5))])
        optimizer = embed.optimizer()
        self.assertIsInstance(optimizer, torch.optim.Optimizer)
        self.assertIs(embed.optimizer(), optimizer)
        self.assertEqual([(group["name"], group["lr"]) for group in optimizer.param_groups],
                         [("a", 1.0), ("b", 0.5)])

    def test_schedulers(self) -> None:
        for update in ("backward", "step"):
            embed = ht.EmbeddingCollection([table()], update=update)
            optimizer = embed.optimizer()
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            for _ in range(3):
                embed({"t": [1]}).tensor.sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
            self.assertEqual(row(embed, 1), -1.75)

    def test_a_scheduler_begins_with_the_rate_that_was_set_last(self) -> None:
        optimizer_of_both = ht.SGD(lr=1.0)
        embed = ht.EmbeddingCollection([table(name, optimizer=optimizer_of_both) for name in "ab"])
        optimizer = embed.optimizer()
        optimizer_of_both.lr = 0.5
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda _: 1.0, lambda _: 0.5])
        embed({"a": [1], "b": [1]}).tensor.sum().backward()
        self.assertEqual((row(embed, 1, "a"), row(embed, 1, "b")), (-0.5, -0.25))
        self.assertEqual(scheduler.base_lrs, [0.5, 0.5])

    def test_the_last_change_counts(self) -> None:
        embed = ht.EmbeddingCollection([table()])
        optimizer = embed.optimizer()
        for change, expected in ((lambda: optimizer.param_groups[0].update(lr=0.5), -0.5),
                                 (lambda: setattr(embed.tables["t"].optimizer, "lr", 4.0), -4.5),
                                 (lambda: optimizer.param_groups[0].update(lr=0.25), -4.75),
                                 (lambda: optimizer.param_groups[0].update(
                                     lr=torch.tensor(0.125)), -4.875)):
            change()
            embed({"t": [1]}).tensor.sum().backward()
            self.assertEqual(row(embed, 1), expected)

    def test_parameters_and_states_of_others_are_refused(self) -> None:
        optimizer = ht.EmbeddingCollection([table("a"), table("b")]).optimizer()
        with self.assertRaisesRegex(ValueError, "give other parameters to an optimizer of their"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
        other = ht.EmbeddingCollection([table("b"), table("a")]).optimizer()
        with self.assertRaisesRegex(ValueError, "of the tables .'a', 'b'., but here are .'b', 'a'"):
            other.load_state_dict(optimizer.state_dict())

    def test_state_dict(self) -> None:
        embeds = [ht.EmbeddingCollection([table()]) for _ in range(2)]
        optimizers = [embed.optimizer() for embed in embeds]
        optimizers[0].param_groups[0]["lr"] = 0.25
        optimizers[1].load_state_dict(optimizers[0].state_dict())
        embeds[1]({"t": [1]}).tensor.sum().backward()
        self.assertEqual(row(embeds[1], 1), -0.25)


class GradScalerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, backoff_factor=0.5,
                                           growth_interval=10**9)

    def step(self, embed, network, optimizers, row_factor=1.0, network_factor=1.0) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = (embed({"t": [1]}).tensor.sum() * row_factor
                + network(torch.ones(1, 1)).sum() * network_factor)
        self.scaler.scale(loss).backward()
        for optimizer in optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()

    def test_an_overflow_holds_back_rows_and_network(self) -> None:
        """Whichever of them it is in."""
        for update in ("step", "backward"):
            embed = ht.EmbeddingCollection([table()], update=update)
            network = torch.nn.Linear(1, 1)
            optimizers = [torch.optim.SGD([*network.parameters(), *embed.parameters()], lr=1.0)]
            if update == "step":
                optimizers.append(embed.optimizer())
            before = network.weight.item()
            scale = self.scaler.get_scale()
            self.step(embed, network, optimizers, row_factor=float("inf"))
            self.assertEqual((row(embed, 1), network.weight.item()), (0, before))
            self.assertEqual(self.scaler.get_scale(), scale / 2)
            self.assertEqual(embed.skipped_steps, 1)
            if update == "backward":
                continue
            self.step(embed, network, optimizers, network_factor=float("inf"))
            self.assertEqual((row(embed, 1), network.weight.item()), (0, before))
            self.assertEqual(self.scaler.get_scale(), scale / 4)
            self.assertEqual(embed.skipped_steps, 2)
            self.step(embed, network, optimizers)
            self.assertEqual((row(embed, 1), embed.skipped_steps), (-1, 2))
            self.assertAlmostEqual(network.weight.item(), before - 1, places=6)

    def test_an_overflow_at_a_scale_of_1(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**9)
        embed = ht.EmbeddingCollection([table()], update="step")
        network = torch.nn.Linear(1, 1)
        optimizers = [torch.optim.SGD([*network.parameters(), *embed.parameters()], lr=1.0),
                      embed.optimizer()]
        self.step(embed, network, optimizers)
        self.scaler.update(1.0)
        self.step(embed, network, optimizers, network_factor=float("inf"))
        self.assertEqual((row(embed, 1), embed.skipped_steps), (-1, 1))

    def test_an_overflow_at_a_scale_of_1_at_once(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        embed = ht.EmbeddingCollection([table()], update="step")
        network = torch.nn.Linear(1, 1)
        optimizers = [torch.optim.SGD([*network.parameters(), *embed.parameters()], lr=1.0),
                      embed.optimizer()]
        self.step(embed, network, optimizers, network_factor=float("inf"))
        self.assertEqual((row(embed, 1), embed.skipped_steps), (0, 1))

    def test_a_clipped_overflow(self) -> None:
        """The loop of the documentation: the norm is infinite, so that all is multiplied by 0."""
        embed = ht.EmbeddingCollection([table()], update="step")
        network = torch.nn.Linear(1, 1)
        parameters = [*network.parameters(), *embed.parameters()]
        optimizers = [torch.optim.SGD(parameters, lr=1.0), embed.optimizer()]
        for factor, expected in ((float("inf"), 0), (1e-3, -1 / 3), (float("nan"), -1 / 3)):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = embed({"t": [1]}).tensor.sum() + network(torch.ones(1, 1)).sum() * factor
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(optimizers[0])
            torch.nn.utils.clip_grad_norm_(parameters, 2.0 / 3)
            for optimizer in optimizers:
                self.scaler.step(optimizer)
            self.scaler.update()
            self.assertAlmostEqual(row(embed, 1), expected, places=5)
        self.assertEqual(embed.skipped_steps, 2)

    def test_a_fused_optimizer_of_the_network(self) -> None:
        """A GradScaler leaves it to this one to unscale the gradients, and to leave out a step."""
        embed = ht.EmbeddingCollection([table()], update="step")
        network = torch.nn.Linear(1, 1)
        optimizers = [torch.optim.SGD([*network.parameters(), *embed.parameters()], lr=1.0,
                                      fused=True), embed.optimizer()]
        before = network.weight.item()
        self.step(embed, network, optimizers, network_factor=float("inf"))
        self.assertEqual((row(embed, 1), network.weight.item()), (0, before))
        self.step(embed, network, optimizers)
        self.assertAlmostEqual(row(embed, 1), -1)

    def test_a_network_optimizer_without_the_collections_parameter(self) -> None:
        embed = ht.EmbeddingCollection([table()], update="step")
        network = torch.nn.Linear(1, 1)
        optimizers = [torch.optim.SGD(network.parameters(), lr=1.0), embed.optimizer()]
        with self.assertRaisesRegex(RuntimeError, "must have the parameter of the Embedding"):
            self.step(embed, network, optimizers)
        self.assertEqual(row(embed, 1), 0)
        optimizers[1].step()  # by itself, which needs no GradScaler
        self.assertEqual(row(embed, 1), -1024)

    def test_a_wrong_order(self) -> None:
        embed = ht.EmbeddingCollection([table()], update="step")
        network = torch.nn.Linear(1, 1)
        optimizers = [embed.optimizer(),
                      torch.optim.SGD([*network.parameters(), *embed.parameters()], lr=1.0)]
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "it must come after it"):
                self.step(embed, network, optimizers)
            self.scaler.update()
            self.assertEqual(row(embed, 1), 0)
        optimizers.reverse()
        self.step(embed, network, optimizers)
        self.assertEqual(row(embed, 1), -1)

    def test_the_argument_warns(self) -> None:
        with self.assertWarnsRegex(FutureWarning, "grad_scaler will be removed"):
            ht.EmbeddingCollection([table()], grad_scaler=self.scaler)

    def test_float16_without_a_scaler_warns_once(self) -> None:
        embed = ht.EmbeddingCollection([table()])
        with torch.autocast("cpu", dtype=torch.float16):
            with self.assertWarnsRegex(UserWarning, "float16 under autocast needs a GradScaler"):
                embed({"t": [1]})
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                embed({"t": [1]})
                ht.EmbeddingCollection([table()], update="step")({"t": [1]})


class AnchorTest(unittest.TestCase):
    def test_clipping_beside_update_backward_is_of_the_network_alone(self) -> None:
        embed = ht.EmbeddingCollection([table()])
        network = torch.nn.Linear(DIM, 1, bias=False)
        network(embed({"t": [1]}).tensor * 0 + 1).sum().backward()
        parameters = [*network.parameters(), *embed.parameters()]
        self.assertEqual(torch.nn.utils.clip_grad_norm_(parameters, 1.0), DIM**0.5)
        torch.testing.assert_close(network.weight.grad.norm(), torch.tensor(1.0))

    def test_a_frozen_collection_is_evaluated(self) -> None:
        embed = ht.EmbeddingCollection([table()])
        embed.requires_grad_(False)
        self.assertFalse(embed({"t": [1]}).tensor.requires_grad)
        self.assertEqual(embed.statistics()["t"]["rows"], 0)

    def test_a_model_that_is_moved_leaves_its_tables(self) -> None:
        for update in ("backward", "step"):
            embed = ht.EmbeddingCollection([table()], update=update)
            torch.nn.Sequential(embed).to(torch.float64).to("meta").half()
            embed({"t": [1]}).tensor.sum().backward()
            embed.optimizer().step()
            self.assertEqual(row(embed, 1), -1)

    def test_a_collection_is_not_copied(self) -> None:
        embed = ht.EmbeddingCollection([table()], update="step")
        with self.assertRaisesRegex(TypeError, "can't be copied or pickled: its rows are in the"):
            copy.deepcopy(torch.nn.Sequential(embed))

    def test_a_collection_that_is_gone_leaves_no_hook(self) -> None:
        hooks = importlib.import_module("torch.optim.optimizer")._global_optimizer_pre_hooks
        before = len(hooks)
        embed = ht.EmbeddingCollection([table()], update="step")
        embed.optimizer()
        self.assertEqual(len(hooks), before + 1)
        del embed
        self.assertEqual(len(hooks), before)


if __name__ == "__main__":
    unittest.main()
