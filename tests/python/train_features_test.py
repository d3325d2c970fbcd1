"""hps.train's input and output: packed keys, features that share a table, look-ups that make one
update."""

import functools
import unittest
from unittest import mock

import numpy as np
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import hps.train as ht
from hps._hps import train as engine

ROWS = 40
BATCH = 16
STEPS = 50


def embed_of(*tables: ht.Table) -> ht.EmbeddingCollection:
    return ht.EmbeddingCollection(tables)


def unit_table(name: str, dim: int = 2, **arguments) -> ht.Table:
    """Rows of zeros, from which each update takes the sum of the gradients."""
    return ht.Table(name, dim, optimizer=ht.SGD(lr=1.0), init=ht.Uniform(0, 0), **arguments)


def rows_of(embed: ht.EmbeddingCollection, name: str) -> dict[int, list[float]]:
    keys, rows = embed.rows(name)
    return dict(zip(keys.tolist(), rows.tolist()))


class KeysTest(unittest.TestCase):
    def setUp(self) -> None:
        self.tables = [ht.Table("a", 4), ht.Table("b", 3, pooling="mean"),
                       ht.Table("c", 2, pooling="none")]

    def expect_equal(self, keys: ht.Keys, inputs: dict) -> None:
        """Look-ups, and the updates of their gradients, are those of the dict."""
        packed, plain = embed_of(*self.tables), embed_of(*self.tables)
        for _ in range(2):
            found, expected = packed(keys), plain(inputs)
            self.assertEqual(list(found), list(expected))
            for name in expected:
                torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)
            for out in (found, expected):
                sum((out[name] * (1 + i)).square().sum() for i, name in enumerate(out)).backward()
        for table in self.tables:
            self.assertEqual(rows_of(packed, table.name), rows_of(plain, table.name))

    def test_a_key_a_bag(self) -> None:
        values = torch.tensor([1, 2, 2, 7, 8, 9, -1, 2**63 - 1, -2**63])
        self.expect_equal(ht.Keys(["a", "b", "c"], values),
                          {"a": values[:3], "b": values[3:6], "c": values[6:]})

    def test_ragged_bags(self) -> None:
        values, offsets = torch.tensor([1, 2, 2, 7, 8, 9]), torch.tensor([0, 0, 2, 3, 5, 6, 6])
        self.expect_equal(ht.Keys(["a", "b", "c"], values, offsets),
                          {"a": (values[:2], torch.tensor([0, 0, 2])),
                           "b": (values[2:5], torch.tensor([0, 1, 3])),
                           "c": (values[5:], torch.tensor([0, 1, 1]))})

    def test_weights(self) -> None:
        values, weights = torch.tensor([1, 2, 2, 7]), torch.tensor([0.5, -2.0, 1.0, 3.0])
        self.tables[1].features = [ht.Feature("b", "sum")]
        self.expect_equal(ht.Keys(["a", "b"], values, torch.tensor([0, 1, 4]), weights),
                          {"a": (values[:1], None, weights[:1]),
                           "b": (values[1:], torch.tensor([0, 3]), weights[1:])})

    def test_gradients_of_weights(self) -> None:
        """Those of nn.EmbeddingBag, with features that share a table, and from a dict."""
        embed = embed_of(ht.Table("t", 4, optimizer=ht.SGD(lr=0.1), features=["a", "b"]),
                         ht.Table("u", 3, features=[ht.Feature("c", "mean")]))
        embed({"a": torch.arange(5), "c": torch.arange(5)})
        bag = torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(embed.rows("t")[1]), freeze=False, mode="sum",
            include_last_offset=True)
        optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)
        for step in range(6):
            random = torch.Generator().manual_seed(step)
            a, b = (torch.randint(5, (n,), generator=random) for n in (6, 3))
            offsets = torch.tensor([0, 0, 4, 6])
            weights, peers = ([torch.rand(n, generator=random).requires_grad_() for n in (6, 3)]
                              for random in (torch.Generator().manual_seed(step) for _ in "ab"))
            factor = torch.rand(3, 4, generator=random)
            if step % 2:
                out = embed(ht.Keys(["a", "b"], torch.cat([a, b]), torch.tensor(
                    [0, 0, 4, 6, 7, 8, 9]), torch.cat(weights)))
            else:
                out = embed({"a": (a, offsets, weights[0]), "c": torch.arange(3),
                             "b": (b, None, weights[1])})
                self.assertEqual(list(out), ["a", "c", "b"])
                self.assertEqual(out.tensor.shape, (3, 11))
            rows = bag(a, offsets, peers[0]), bag(b, torch.arange(4), peers[1])
            if step < 4:
                (out["a"].square() * factor + out["b"]).sum().backward()
                (rows[0].square() * factor + rows[1]).sum().backward()
            else:
                out["a"].square().sum().backward()
                rows[0].square().sum().backward()
            for weight, peer in zip(weights, peers):
                expected = torch.zeros_like(weight) if peer.grad is None else peer.grad
                torch.testing.assert_close(weight.grad, expected)
            optimizer.step()
            optimizer.zero_grad()
            np.testing.assert_allclose(embed.rows("t")[1], bag.weight.detach(), atol=1e-6)

    def test_gradients_of_weights_alone(self) -> None:
        """torch.autograd.grad updates no row."""
        embed = embed_of(ht.Table("t", 2, optimizer=ht.SGD(lr=1.0), init=ht.Uniform(2, 2)))
        weights = torch.ones(3, requires_grad=True)
        out = embed({"t": (torch.tensor([1, 2, 1]), torch.tensor([0, 2, 3]), weights)})
        found, = torch.autograd.grad(out.tensor.sum(), weights)
        self.assertEqual(found.tolist(), [4, 4, 4])
        self.assertEqual(rows_of(embed, "t"), {1: [2, 2], 2: [2, 2]})
        embed({"t": [2]}).tensor.sum().backward()
        self.assertEqual(rows_of(embed, "t"), {1: [2, 2], 2: [1, 1]})
        embed.eval()
        self.assertFalse(embed({"t": (torch.tensor([1]), None, weights[:1])})
                         .tensor.requires_grad)

    def test_from_dict(self) -> None:
        keys = ht.Keys.from_dict({"a": np.array([[1, 2], [3, 4]], np.int32), "b": [5, 6],
                                  "c": (torch.tensor([7, 8, 9]), torch.tensor([0, 2, 3]))})
        self.assertEqual(keys.values.tolist(), [1, 2, 3, 4, 5, 6, 7, 8, 9])
        self.assertEqual(keys.offsets.tolist(), [0, 2, 4, 5, 6, 8, 9])
        out = embed_of(*self.tables)(keys)
        self.assertEqual({name: tuple(rows.shape) for name, rows in out.items()},
                         {"a": (2, 4), "b": (2, 3), "c": (3, 2)})

    def test_features_with_and_without_weights(self) -> None:
        embed = embed_of(unit_table("a"), unit_table("b", pooling="mean"), unit_table("c"))
        pairs = torch.tensor([[1, 2], [2, 3]])
        embed({"a": (pairs, None, torch.tensor([[1.0, 2.0], [3.0, 4.0]])), "b": pairs,
               "c": pairs}).tensor.sum().backward()
        self.assertEqual(rows_of(embed, "a"), {1: [-1, -1], 2: [-5, -5], 3: [-4, -4]})
        self.assertEqual(rows_of(embed, "b"), {1: [-0.5] * 2, 2: [-1, -1], 3: [-0.5] * 2})
        self.assertEqual(rows_of(embed, "c"), {1: [-1, -1], 2: [-2, -2], 3: [-1, -1]})

    def test_from_torchrec(self) -> None:
        lengths = torch.tensor([2, 0, 1, 1, 1, 1])
        for dtype in (torch.int64, torch.int32):
            values = torch.tensor([1, 2, 3, 4, 5, 6], dtype=dtype)
            jagged = KeyedJaggedTensor(keys=["a", "b", "c"], values=values, lengths=lengths)
            self.expect_equal(ht.Keys.from_kjt(jagged),
                              {"a": (values[:2], torch.tensor([0, 2, 2])),
                               "b": (values[2:4], torch.tensor([0, 1, 2])),
                               "c": (values[4:], torch.tensor([0, 1, 2]))})
        weighted = ht.Keys.from_kjt(KeyedJaggedTensor(
            keys=["a"], values=torch.tensor([1, 2]), lengths=torch.tensor([2]),
            weights=torch.tensor([2.0, -3.0])))
        embed = embed_of(unit_table("a"))
        embed(weighted).tensor.sum().backward()
        self.assertEqual(rows_of(embed, "a"), {1: [-2, -2], 2: [3, 3]})

    def test_from_torchrec_with_a_batch_of_each_feature(self) -> None:
        values = torch.tensor([1, 2, 3, 4])
        jagged = KeyedJaggedTensor(keys=["a", "b"], values=values,
                                   lengths=torch.tensor([1, 1, 2]),
                                   stride_per_key_per_rank=[[2], [1]])
        self.expect_equal(ht.Keys.from_kjt(jagged),
                          {"a": values[:2], "b": (values[2:], torch.tensor([0, 2]))})

    def test_from_nested(self) -> None:
        bags = [torch.tensor([1, 2]), torch.tensor([], dtype=torch.int64), torch.tensor([3])]
        nested = torch.nested.nested_tensor(bags, layout=torch.jagged)
        values = torch.tensor([1, 2, 3])
        offsets = torch.tensor([0, 2, 2, 3])
        self.expect_equal(ht.Keys.from_nested({"a": nested, "c": nested}),
                          {"a": (values, offsets), "c": (values, offsets)})
        with self.assertRaisesRegex(TypeError, "feature 'a': expected a nested tensor"):
            ht.Keys.from_nested({"a": torch.tensor([[1]])})
        gaps = torch.nested.narrow(torch.arange(6).view(2, 3), 1, torch.tensor([0, 0]),
                                   torch.tensor([1, 2]), layout=torch.jagged)
        with self.assertRaisesRegex(ValueError, "feature 'a': the nested tensor has gaps"):
            ht.Keys.from_nested({"a": gaps})

    def test_they_can_not_be_changed(self) -> None:
        embed = embed_of(ht.Table("a", 2))
        keys = ht.Keys(["a"], torch.arange(4))
        with self.assertRaises(AttributeError):
            keys.values = torch.arange(2)
        for change in (lambda values: values.untyped_storage().resize_(0),
                       lambda values: setattr(values, "data", torch.zeros(8, 2)[:, 0]),
                       lambda values: setattr(values, "data", torch.zeros(4, dtype=torch.int32))):
            values = torch.arange(4)
            keys = ht.Keys(["a"], values)
            change(values)
            with self.assertRaisesRegex(ValueError, "was changed to another type, size or memory"):
                embed(keys)
        self.assertEqual(embed.statistics()["a"]["rows"], 0)

    def test_another_default_type(self) -> None:
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        for update in ("backward", "step"):
            embed = ht.EmbeddingCollection([unit_table(name) for name in "abc"], update=update)
            weights = torch.tensor([2.0, 3.0], dtype=torch.float32, requires_grad=True)
            out = embed({"a": (torch.tensor([1, 2]), None, weights), "b": torch.tensor([1, 2]),
                         "c": torch.tensor([1, 2])})
            (out["a"].sum() + (out.tensor * 0).sum()).backward()
            embed.optimizer().step()
            self.assertEqual(rows_of(embed, "a"), {1: [-2, -2], 2: [-3, -3]})
            self.assertEqual(rows_of(embed, "b"), {1: [0, 0], 2: [0, 0]})

    def test_values_that_need_no_copy_are_not_copied(self) -> None:
        values, offsets = torch.tensor([1, 2]), torch.tensor([0, 1, 2])
        keys = ht.Keys(["a", "b"], values, offsets)
        self.assertEqual(keys.values.data_ptr(), values.data_ptr())
        self.assertEqual(keys.offsets.data_ptr(), offsets.data_ptr())
        unsigned = ht.Keys(["a"], torch.tensor([2**64 - 1], dtype=torch.uint64))
        self.assertEqual(unsigned.values.tolist(), [-1])

    def test_wrong_keys(self) -> None:
        two = torch.tensor([1, 2])
        for kind, text, arguments in (
                (ValueError, "different names", ([], two)),
                (ValueError, "different names", (["a", "a"], two)),
                (TypeError, r"\['a'\]: keys must be torch.int64, not torch.float32",
                 (["a"], two.float())),
                (ValueError, r"values must be \[n\]", (["a"], two.view(1, 2))),
                (ValueError, "2 keys are not as many for each of 3", (["a", "b", "c"], two)),
                (ValueError, "3 bags are not as many for each of 2",
                 (["a", "b"], two, torch.tensor([0, 1, 2, 2]))),
                (TypeError, "offsets must be torch.int64", (["a"], two, torch.tensor([0.0, 2]))),
                (ValueError, "offsets must be .features", (["a"], two, two[:0])),
                (ValueError, "1 weights for 2 keys", (["a"], two, None, torch.ones(1))),
                (TypeError, "weights must be torch.float32", (["a"], two, None, two)),
                (ValueError, "keys are on meta, but the tables are on the CPU",
                 (["a"], two.to("meta")))):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                ht.Keys(*arguments)
        with self.assertRaisesRegex(ValueError, "no feature"):
            ht.Keys.from_dict({})
        with self.assertRaisesRegex(ValueError, "feature 'a': keys can't be made a tensor"):
            ht.Keys.from_dict({"a": [2**63]})
        with self.assertRaisesRegex(ValueError, "'a': 6 weights for 6 keys: .3, 2. for .2,"):
            ht.Keys.from_dict({"a": (torch.zeros(2, 3, dtype=torch.int64), None,
                                     torch.ones(3, 2))})
        self.assertEqual(embed_of(ht.Table("a", 2))({"a": []}).tensor.shape, (0, 2))
        for wrong in (torch.tensor([1]), [1], KeyedJaggedTensor(
                keys=["a"], values=torch.tensor([1]), lengths=torch.tensor([1]))):
            with self.assertRaisesRegex(TypeError, "expected {feature: keys} or Keys, not .*Keys"):
                embed_of(ht.Table("a", 2))(wrong)
        for pooling in ("none", "mean"):
            embed = embed_of(ht.Table("a", 2, features=["a", ht.Feature("b", pooling)]))
            for ends in ([0, 3, 2], [0, -2**62, 2], [0, 2**62, 2], [1, 1, 2], [0, 1, 1]):
                with self.assertRaisesRegex(ValueError, "offsets must ascend from 0 to the number"):
                    embed(ht.Keys(["a", "b"], two, torch.tensor(ends)))

    def test_errors_name_the_feature_and_the_table_and_change_nothing(self) -> None:
        embed = embed_of(ht.Table("goods", 2, features=["item", ht.Feature("seen", "mean")]),
                         ht.Table("people", 3))
        embed({"item": [1], "seen": [1], "people": [1]}).tensor.sum().backward()
        before = [embed.statistics(), rows_of(embed, "goods")]
        two = torch.tensor([1, 2])
        seen = "feature 'seen' of table 'goods': "
        for kind, text, inputs in (
                (KeyError, "no table has the feature 'goods'; there are .*'seen'", {"goods": two}),
                (TypeError, seen + "keys must be torch.int64", {"seen": two.float()}),
                (TypeError, seen + "weights must be torch.float32", {"seen": (two, None, two)}),
                (ValueError, seen + "keys must be .batch. or", {"seen": two.view(1, 1, 2)}),
                (ValueError, seen + "keys are on meta", {"item": two, "seen": two.to("meta")}),
                (ValueError, seen + "offsets must ascend from 0 to the number of keys, 2, not from "
                 "0 to 3", {"seen": (two, torch.tensor([0, 3]))}),
                (ValueError, seen + "3 weights for 2 keys", {"seen": (two, None, torch.ones(3))}),
                (ValueError, seen + "keys: weights need the pooling sum",
                 {"people": two, "seen": (two, None, torch.ones(2))}),
                (ValueError, seen + "offsets must ascend from 0 to the number of keys, 2, not from "
                 "1 to 1", ht.Keys(["people", "seen"], two, torch.tensor([0, 1, 1]))),
                (ValueError, "feature 'people' of table 'people': offsets must ascend",
                 ht.Keys(["people", "seen"], two, torch.tensor([0, 3, 2])))):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                embed(inputs)
        self.assertEqual([embed.statistics(), rows_of(embed, "goods")], before)

    def test_one_call_into_the_engine(self) -> None:
        """A forward and a backward, however many tables there are."""
        embed = embed_of(*[ht.Table(f"t{i}", 1 + i % 3) for i in range(26)])
        keys = ht.Keys([f"t{i}" for i in range(26)], torch.arange(26))
        calls = []
        for name in ("forward", "backward"):
            own = getattr(engine.RankStep, name)

            def counted(*arguments, own=own, name=name):
                calls.append(name)
                return own(*arguments)
            patch = mock.patch.object(engine.RankStep, name, counted)
            patch.start()
            self.addCleanup(patch.stop)
        embed(keys).tensor.sum().backward()
        self.assertEqual(calls, ["forward", "backward"])


class ByHand(torch.optim.Optimizer):
    """An optimizer by its formula, with two states."""

    def __init__(self, rows, formula) -> None:
        super().__init__(rows, {})
        self.formula = formula

    @torch.no_grad()
    def step(self, _=None) -> None:
        for rows in self.param_groups[0]["params"]:
            self.formula(rows, rows.grad, self.state[rows])


def rowwise_adagrad(rows: torch.Tensor, gradient: torch.Tensor, state: dict) -> None:
    total = state.setdefault("a", torch.full((len(rows), 1), 0.1))
    total += gradient.square().mean(1, keepdim=True)
    rows -= 0.05 * gradient / (total.sqrt() + 1e-10)


def ftrl(rows: torch.Tensor, gradient: torch.Tensor, state: dict) -> None:
    n = state.setdefault("n", torch.full_like(rows, 0.1))
    z = state.setdefault("z", torch.zeros_like(rows))
    before = n.sqrt()
    n += gradient.square()
    z += gradient - (n.sqrt() - before) / 0.1 * rows
    rows.copy_(torch.where(z.abs() <= 0.01, 0, (z.sign() * 0.01 - z) / (n.sqrt() / 0.1 + 0.02)))


class SharedTableTest(unittest.TestCase):
    def compare(self, optimizer, make_peer) -> None:
        """An item and the history before it, as in DIN, against one nn.Embedding. Every key occurs
        in each step, so that an optimizer that updates all rows does what one does that updates
        those of the step."""
        torch.manual_seed(2)
        embed = embed_of(ht.Table("items", 6, optimizer=optimizer, features=[
            "item", ht.Feature("history", "none"), ht.Feature("bought", "mean")]))
        embed({"item": torch.arange(ROWS)})
        peer = torch.nn.Embedding.from_pretrained(torch.from_numpy(embed.rows("items")[1]),
                                                  freeze=False)
        peer_optimizer = make_peer(peer.parameters())
        target = torch.rand(BATCH, 6)
        for step in range(STEPS):
            random = torch.Generator().manual_seed(step)
            history = torch.cat([torch.randperm(ROWS, generator=random),
                                 torch.randint(ROWS, (5 * BATCH - ROWS,), generator=random)])
            history = history.view(BATCH, 5)
            item = torch.randint(ROWS, (BATCH,), generator=random)
            out = embed({"item": item, "history": history, "bought": history[:, :2]})
            self.loss(out["item"], out["history"], out["bought"], target).backward()
            peer_optimizer.zero_grad()
            self.loss(peer(item), peer(history), peer(history[:, :2]).mean(1), target).backward()
            peer_optimizer.step()
            np.testing.assert_allclose(embed.rows("items")[1], peer.weight.detach(), atol=1e-5)

    @staticmethod
    def loss(item, history, bought, target) -> torch.Tensor:
        attention = torch.softmax((history * item.unsqueeze(1)).sum(2), 1)
        seen = (attention.unsqueeze(2) * history).sum(1)
        return (seen + bought * item - target).square().sum()

    def test_sgd(self) -> None:
        self.compare(ht.SGD(lr=0.02), lambda rows: torch.optim.SGD(rows, lr=0.02))

    def test_adagrad(self) -> None:
        self.compare(ht.Adagrad(lr=0.05, initial_accumulator=0.1), lambda rows: torch.optim.Adagrad(
            rows, lr=0.05, initial_accumulator_value=0.1))

    def test_adam(self) -> None:
        self.compare(ht.Adam(lr=0.01), lambda rows: torch.optim.Adam(rows, lr=0.01))
        self.compare(ht.Adam(lr=0.01, bias_correction="step"),
                     lambda rows: torch.optim.Adam(rows, lr=0.01))

    def test_momentum(self) -> None:
        for nesterov in (False, True):
            self.compare(ht.SGD(lr=0.01, momentum=0.9, nesterov=nesterov), functools.partial(
                torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=nesterov))

    def test_weight_decay(self) -> None:
        self.compare(ht.Adam(lr=0.01, weight_decay=0.1),
                     lambda rows: torch.optim.AdamW(rows, lr=0.01, weight_decay=0.1))

    def test_optimizers_that_torch_does_not_have(self) -> None:
        self.compare(ht.RowwiseAdagrad(lr=0.05, initial_accumulator=0.1),
                     lambda rows: ByHand(rows, rowwise_adagrad))
        self.compare(ht.Ftrl(lr=0.1, l1=0.01, l2=0.02), lambda rows: ByHand(rows, ftrl))

    def test_a_step_counts_a_key_once(self) -> None:
        embed = embed_of(unit_table("t", features=["a", "b"], admit_after=2))
        embed({"a": [1, 1], "b": [1, 2]}).tensor.sum().backward()
        self.assertEqual(rows_of(embed, "t"), {})
        embed({"a": [1, 1], "b": [1, 3]}).tensor.sum().backward()
        self.assertEqual(rows_of(embed, "t"), {1: [-3, -3]})

    def test_some_of_the_features(self) -> None:
        embed = embed_of(unit_table("t", features=["a", "b"]), unit_table("u"))
        embed({"b": [1, 2], "u": [5, 5]}).tensor.sum().backward()
        embed({"a": [1, 2]}).tensor.sum().backward()
        self.assertEqual(rows_of(embed, "t"), {1: [-2, -2], 2: [-2, -2]})
        self.assertEqual(rows_of(embed, "u"), {5: [-2, -2]})

    def test_a_feature_without_gradient_has_no_share(self) -> None:
        embed = embed_of(unit_table("t", features=["a", "b", "c"]), unit_table("u"))
        out = embed({"a": [1], "b": [2], "c": [1], "u": [1]})
        (out["a"] + out["b"]).sum().backward()
        self.assertEqual(rows_of(embed, "t"), {1: [-1, -1], 2: [-1, -1]})
        self.assertEqual(rows_of(embed, "u"), {1: [0, 0]})

    def test_wrong_features(self) -> None:
        for features, text in (([], "list of features"), ("ab", "list of features"),
                               ([""], "name must be a text"), ([7], "name must be a text")):
            with self.assertRaisesRegex(ValueError, text):
                ht.Table("t", 2, features=features)
        with self.assertRaisesRegex(ValueError, "feature 'a': pooling must be one of"):
            ht.Feature("a", "max")
        for tables in ([ht.Table("t", 2, features=["a"]), ht.Table("a", 2)],
                       [ht.Table("t", 2, features=["a", "a"])]):
            with self.assertRaisesRegex(ValueError, "have the feature 'a'"):
                ht.EmbeddingCollection(tables)


class LookupsTest(unittest.TestCase):
    """Several look-ups before a backward."""

    def test_they_make_one_update(self) -> None:
        for optimizer in (ht.SGD(lr=0.5), ht.Adagrad(lr=0.5), ht.Adam(lr=0.5)):
            twice, once = (embed_of(ht.Table("t", 3, optimizer=optimizer, features=["a", "b"]),
                                    ht.Table("u", 2, optimizer=optimizer)) for _ in range(2))
            for step in range(5):
                a, b = torch.tensor([1, 2, 2 + step]), torch.tensor([2, 9, 1])
                first, second = twice({"a": a, "u": b}), twice({"b": b})
                (first.tensor.sum() + 2 * second["b"].sum()).backward()
                out = once({"a": a, "b": b, "u": b})
                (out["a"].sum() + 2 * out["b"].sum() + out["u"].sum()).backward()
            for name in ("t", "u"):
                keys, rows = once.rows(name)
                np.testing.assert_array_equal(twice.rows(name)[0], keys)
                np.testing.assert_allclose(twice.rows(name)[1], rows, atol=1e-6)

    def test_each_pass_makes_its_own(self) -> None:
        embed = embed_of(unit_table("t"))
        outs = [embed({"t": [1]}).tensor.sum() for _ in range(2)]
        outs[0].backward()
        self.assertEqual(rows_of(embed, "t"), {1: [-1, -1]})
        outs[1].backward()
        self.assertEqual(rows_of(embed, "t"), {1: [-2, -2]})

    def test_a_nan_in_one_of_them_changes_nothing(self) -> None:
        embed = embed_of(unit_table("t"), unit_table("u"))
        for factors in ((1.0, float("nan")), (float("inf"), 1.0), (1e14, 1e14)):
            outs = [embed({"t": [1], "u": [2]}).tensor.sum() for _ in range(2)]
            sum(out * factor for out, factor in zip(outs, factors)).backward()
            self.assertEqual(rows_of(embed, "t") | rows_of(embed, "u"), {1: [0, 0], 2: [0, 0]})
        self.assertEqual(embed.skipped_steps, 3)
        sum(embed({"t": [1]}).tensor.sum() for _ in range(2)).backward()
        self.assertEqual(rows_of(embed, "t"), {1: [-2, -2]})

    def test_a_backward_that_fails_leaves_nothing_behind(self) -> None:
        embed = embed_of(unit_table("t"))

        def fail(_: torch.Tensor) -> None:
            raise OSError("of another part of the network")
        first = embed({"t": [1]}).tensor  # its backward comes last
        first.register_hook(fail)
        with self.assertRaisesRegex(OSError, "of another part"):
            (embed({"t": [1]}).tensor + first).sum().backward()
        embed({"t": [2]}).tensor.sum().backward()
        self.assertEqual(rows_of(embed, "t"), {1: [0, 0], 2: [-1, -1]})

    def test_gradients_of_a_look_up_that_are_computed_but_not_applied(self) -> None:
        embed = embed_of(unit_table("t", features=["a", "b"]))
        out = embed({"a": [1], "b": [2]})
        torch.autograd.grad((out["a"] * 100).sum(), out.tensor, retain_graph=True,
                            allow_unused=True)
        out.tensor[:, 2:].sum().backward()
        self.assertEqual(rows_of(embed, "t"), {1: [0, 0], 2: [-1, -1]})

    def test_backward_runs_once(self) -> None:
        embed = embed_of(unit_table("t", features=["a", "b"]))
        out = embed({"a": [1], "b": [2]})
        out["a"].sum().backward()
        for again in (out["b"], out.tensor):
            with self.assertRaisesRegex(RuntimeError, "backward runs once"):
                again.sum().backward()
        self.assertEqual(rows_of(embed, "t"), {1: [-1, -1], 2: [0, 0]})


class RowsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.embed = embed_of(ht.Table("a", 4), ht.Table("b", 4), ht.Table("c", 2),
                              ht.Table("s", 3, pooling="none"))
        self.keys = {name: torch.arange(5) + i for i, name in enumerate("abcs")}

    def test_views_of_one_tensor(self) -> None:
        for is_training in (True, False):
            self.embed.train(is_training)
            out = self.embed(self.keys)
            self.assertEqual(out.tensor.shape, (5, 10))
            torch.testing.assert_close(out.tensor, torch.cat([out["a"], out["b"], out["c"]], 1),
                                       rtol=0, atol=0)
            for name, column in (("a", 0), ("b", 4), ("c", 8)):
                self.assertEqual(out[name].data_ptr(), out.tensor.data_ptr() + 4 * column)
            self.assertEqual(out["s"].shape, (5, 3))
            self.assertEqual((len(out), list(out)), (4, ["a", "b", "c", "s"]))
            self.assertIn("'c': [5, 2]", repr(out))
            with self.assertRaisesRegex(KeyError, "no feature 'x' was looked up"):
                out["x"]

    def test_a_look_without_gradients(self) -> None:
        embed = embed_of(unit_table("a"), unit_table("b"))
        out = embed({"a": [1], "b": [1]})
        with torch.no_grad():
            self.assertEqual(out["a"].norm(), 0)
        out["a"].sum().backward()
        self.assertEqual(rows_of(embed, "a"), {1: [-1, -1]})

    def test_stack(self) -> None:
        out = self.embed({name: self.keys[name] for name in "abs"})
        self.assertEqual(out.stack().shape, (5, 2, 4))
        self.assertEqual(out.stack().data_ptr(), out.tensor.data_ptr())
        torch.testing.assert_close(out.stack()[:, 1], out["b"], rtol=0, atol=0)
        with self.assertRaisesRegex(ValueError, "different widths: {'a': 4, 'b': 4, 'c': 2}"):
            self.embed(self.keys).stack()
        empty = torch.empty(0, dtype=torch.int64)
        self.assertEqual(self.embed({"a": empty, "b": empty}).stack().shape, (0, 2, 4))

    def test_outputs_without_a_common_tensor(self) -> None:
        out = self.embed({"a": torch.arange(3), "b": torch.arange(2)})
        self.assertEqual((out["a"].shape, out["b"].shape), ((3, 4), (2, 4)))
        for read in (lambda: out.tensor, out.stack):
            with self.assertRaisesRegex(ValueError, "different numbers of bags, {'a': 3, 'b': 2}"):
                read()
        with self.assertRaisesRegex(ValueError, "no feature is pooled"):
            _ = self.embed({"s": torch.arange(3)}).tensor
        (out["a"].sum() + out["b"].sum()).backward()

    def test_gradients_reach_the_rows_whatever_view_they_come_by(self) -> None:
        """Of the tensor, of its parts, of both, contiguous or not, of another type."""
        def whole(out, weights):
            return (out.tensor * weights).sum()

        def parts(out, weights):
            a, b, c = weights.split([4, 4, 2], 1)
            return (out["a"] * a).sum() + (out["b"] * b).sum() + (out["c"] * c).sum()

        def joined(out, weights):
            return (torch.cat([out["c"], out["b"], out["a"]], 1) * torch.cat(
                [weights[:, 8:], weights[:, 4:8], weights[:, :4]], 1)).sum()

        def both(out, weights):
            return whole(out, weights) * 0.5 + parts(out, weights) * 0.5

        def half(out, weights):
            return (out.tensor.to(torch.float64) * weights).sum()

        def some(out, weights):
            return whole(out, torch.cat([weights[:, :8], torch.zeros(5, 2)], 1)) + (
                out["c"] * weights[:, 8:]).sum()

        weights = torch.randint(-8, 8, (5, 10)).float()
        results = []
        for loss in (whole, parts, joined, both, half, some):
            embed = embed_of(*[unit_table(name, dim) for name, dim in (("a", 4), ("b", 4),
                                                                       ("c", 2))])
            keys = torch.tensor([1, 1, 2, 3, 3])
            loss(embed(ht.Keys("abc", keys.repeat(3))), weights).backward()
            results.append({name: rows_of(embed, name) for name in "abc"})
        self.assertEqual(results[0]["a"][1], (-weights[:2, :4].sum(0)).tolist())
        for result in results[1:]:
            self.assertEqual(result, results[0])

    def test_a_large_batch(self) -> None:
        """Its gradients are gathered before they are summed."""
        batch, features = 3000, 26
        embed = embed_of(*[unit_table(f"t{i}", 5) for i in range(features)])
        keys = torch.randint(50, (features, batch))
        weights = torch.randint(-8, 8, (batch, 5 * features)).float()
        (embed(ht.Keys([f"t{i}" for i in range(features)], keys.flatten())).tensor
         * weights).sum().backward()
        for i in range(features):
            expected = torch.zeros(50, 5).index_add_(0, keys[i], -weights[:, 5 * i:5 * i + 5])
            np.testing.assert_array_equal(embed.rows(f"t{i}")[1], expected)


if __name__ == "__main__":
    unittest.main()
