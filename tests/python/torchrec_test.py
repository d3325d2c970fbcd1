"""hps.torch.EmbeddingBagCollection against torchrec's on the same rows."""

import unittest

import numpy as np
import support
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

import hps
import hps.torch

TABLES = {"viewer": "ctr/user", "seen": "ctr/item", "bought": "ctr/item"}


def features_of(lengths: list[list[int]], weighted: bool = False, **options) -> KeyedJaggedTensor:
    """Random keys of the three features, and one that no table has."""
    keys = torch.arange(sum(map(sum, lengths))) * 37 % support.ROWS
    return KeyedJaggedTensor(
        keys=["bought", "other", "viewer", "seen"], values=keys,
        lengths=torch.tensor([length for feature in lengths for length in feature]),
        weights=torch.rand(len(keys)) if weighted else None, **options)


class CollectionTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()

    def theirs(self, mode: PoolingType, is_weighted: bool = False) -> EmbeddingBagCollection:
        collection = EmbeddingBagCollection(is_weighted=is_weighted, tables=[
            EmbeddingBagConfig(name=name, embedding_dim=dim, num_embeddings=support.ROWS,
                               feature_names=features, pooling=mode)
            for (name, dim), features in zip(support.TABLES.items(),
                                             (["viewer"], ["seen", "bought"]))])
        with torch.no_grad():
            for name, bag in collection.embedding_bags.items():
                bag.weight.copy_(torch.from_numpy(
                    support.row_of(name, np.arange(support.ROWS))))
        return collection

    def assert_as_torchrec(self, ours: KeyedTensor, theirs: KeyedTensor) -> None:
        self.assertIsInstance(ours, KeyedTensor)
        self.assertEqual(ours.keys(), list(TABLES))
        for name in TABLES:
            torch.testing.assert_close(ours[name], theirs[name])

    def test_as_torchrec(self) -> None:
        features = features_of([[2, 0, 1], [1, 1, 1], [1, 3, 0], [0, 0, 4]])
        for mode, pooling in (("sum", PoolingType.SUM), ("mean", PoolingType.MEAN)):
            ours = hps.torch.EmbeddingBagCollection(self.store, TABLES, mode=mode)
            self.assertEqual(ours.embedding_dims, {"viewer": 8, "seen": 16, "bought": 16})
            with self.subTest(mode=mode):
                self.assert_as_torchrec(ours(features), self.theirs(pooling)(features))

    def test_weights(self) -> None:
        """Weights count if the module is told so, as in torchrec."""
        features = features_of([[2, 0], [0, 1], [1, 3], [0, 5]], weighted=True)
        for options in ({}, {"is_weighted": False}, {"is_weighted": True}):
            ours = hps.torch.EmbeddingBagCollection(self.store, TABLES, **options)
            theirs = self.theirs(PoolingType.SUM, **options)
            with self.subTest(options=options):
                self.assert_as_torchrec(ours(features), theirs(features))
                self.assertEqual(ours.is_weighted(), theirs.is_weighted())
        mean = hps.torch.EmbeddingBagCollection(self.store, TABLES, mode="mean")
        self.assert_as_torchrec(mean(features), self.theirs(PoolingType.MEAN)(features))

    def test_the_values_of_weights(self) -> None:
        features = KeyedJaggedTensor(keys=["viewer"], values=torch.tensor([1, 2]),
                                     lengths=torch.tensor([2]), weights=torch.tensor([10.0, 100]))
        one, two = (torch.from_numpy(support.row_of("user", np.array([key]))) for key in (1, 2))
        tables = {"viewer": "ctr/user"}
        for options, expected in (({}, one + two), ({"is_weighted": True}, 10 * one + 100 * two),
                                  ({"mode": "mean"}, (one + two) / 2),
                                  ({"mode": "max"}, torch.maximum(one, two))):
            bags = hps.torch.EmbeddingBagCollection(self.store, tables, **options)
            with self.subTest(options=options):
                torch.testing.assert_close(bags(features).values(), expected, rtol=0, atol=0)

    def test_weights_that_are_missing_or_can_not_count(self) -> None:
        weighted = hps.torch.EmbeddingBagCollection(self.store, TABLES, is_weighted=True)
        plain = features_of([[2, 0], [0, 1], [1, 3], [0, 5]])
        with self.assertRaisesRegex(AssertionError, "doesn't have weights"):
            self.theirs(PoolingType.SUM, True)(plain)
        with self.assertRaisesRegex(hps.InvalidArgumentError, "features: expected weights"):
            weighted(plain)
        for mode in ("mean", "max"):
            with self.assertRaisesRegex(hps.InvalidArgumentError, "is_weighted: .*'sum'"):
                hps.torch.EmbeddingBagCollection(self.store, TABLES, mode=mode, is_weighted=True)

    def test_absent_keys_and_empty_features(self) -> None:
        ours = hps.torch.EmbeddingBagCollection(self.store, {"viewer": "ctr/user"})
        absent = KeyedJaggedTensor(keys=["viewer"], values=torch.tensor([-5, 10**12]),
                                   lengths=torch.tensor([2, 0]))
        self.assertEqual(ours(absent).values()[:, 0].tolist(), [2 * support.DEFAULT, 0])
        empty = KeyedJaggedTensor(keys=["viewer"], values=torch.empty(0, dtype=torch.int64),
                                  lengths=torch.zeros(4, dtype=torch.int64))
        self.assertEqual(ours(empty).values().tolist(), [[0.0] * 8] * 4)

    def test_inside_a_compiled_model(self) -> None:
        collection = hps.torch.EmbeddingBagCollection(self.store, TABLES)
        dense = torch.nn.Linear(40, 1)

        def model(features: KeyedJaggedTensor) -> torch.Tensor:
            return dense(collection(features).values())

        features = features_of([[2, 0], [0, 1], [1, 3], [0, 5]])
        with torch.no_grad():
            compiled = torch.compile(model, backend="aot_eager")
            torch.testing.assert_close(compiled(features), model(features))

    def test_wrong_arguments(self) -> None:
        make = hps.torch.EmbeddingBagCollection
        for tables in ({}, {"viewer": "ctr/user", "seen": "other/item"}):
            with self.assertRaisesRegex(hps.InvalidArgumentError, "tables: expected"):
                make(self.store, tables)
        with self.assertRaisesRegex(hps.NotFoundError, "ctr/usr"):
            make(self.store, {"viewer": "ctr/usr"})
        with self.assertRaisesRegex(hps.InvalidArgumentError, "mode"):
            make(self.store, TABLES, mode="min")
        with self.assertRaisesRegex(hps.InvalidArgumentError, "no feature 'gone'"):
            make(self.store, {"gone": "ctr/user"})(features_of([[1], [1], [1], [1]]))
        uneven = features_of([[1, 1], [1], [1], [1]],
                             stride_per_key_per_rank=[[2], [1], [1], [1]])
        with self.assertRaisesRegex(hps.InvalidArgumentError, "as many bags"):
            make(self.store, TABLES)(uneven)


if __name__ == "__main__":
    unittest.main()
