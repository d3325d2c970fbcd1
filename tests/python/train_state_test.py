"""state_dict of models with hps.train's tables, and PyTorch Lightning."""

import copy
import pathlib
import tempfile
import unittest
import warnings

import numpy as np
import pytorch_lightning as lightning
import torch

import hps.train as ht


class Model(torch.nn.Module):
    def __init__(self, **arguments) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed = ht.EmbeddingCollection([ht.Table("a", 4), ht.Table("b", 4)], **arguments)
        self.network = torch.nn.Linear(8, 1)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        return self.network(self.embed({"a": keys, "b": keys + 7}).tensor).squeeze(1)

    def train_step(self, step: int) -> None:
        self(torch.arange(5) + step).sum().backward()

    def rows(self) -> list:
        return [array.tolist() for name in "ab" for array in self.embed.rows(name)]


class StateTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.directory = pathlib.Path(folder.name)
        self.model = Model()
        for step in range(3):
            self.model.train_step(step)

    def state(self) -> dict:
        """As a file has it."""
        torch.save(self.model.state_dict(), self.directory / "state.pt")
        return torch.load(self.directory / "state.pt", weights_only=True)

    def test_rows_that_were_saved_are_loaded_first(self) -> None:
        self.model.embed.save(self.directory / "rows")
        state = self.state()
        self.assertEqual(set(state), {"network.weight", "network.bias", "embed._extra_state"})
        self.assertEqual(state["embed._extra_state"]["rows"], {"a": 7, "b": 7})
        other = Model()
        place = str((self.directory / "rows").resolve())
        with self.assertRaisesRegex(ValueError, f"the 14 rows of this one; .*load.'{place}"):
            other.load_state_dict(state)
        self.assertEqual(other.embed.statistics()["a"]["rows"], 0)
        other.embed.load(self.directory / "rows")
        other.load_state_dict(state)
        self.assertEqual(other.rows(), self.model.rows())
        torch.testing.assert_close(other.network.weight, self.model.network.weight)
        for model in (self.model, other):
            model.train_step(9)
        self.assertEqual(other.rows(), self.model.rows())
        with self.assertRaisesRegex(ValueError, "do not have the 14 rows"):
            other.load_state_dict(state)

    def test_rows_that_were_not_saved(self) -> None:
        with self.assertRaisesRegex(ValueError, "the 14 rows of this one were never saved"):
            Model().load_state_dict(self.state())
        self.model.embed.save(self.directory / "rows")
        self.model.train_step(4)
        state = self.state()
        other = Model()
        other.embed.load(self.directory / "rows")
        with self.assertRaisesRegex(ValueError, "were trained on after their last save"):
            other.load_state_dict(state)

    def test_rows_of_another_run(self) -> None:
        self.model.embed.save(self.directory / "rows")
        other = Model()
        for step in range(3):
            other.train_step(step)
        with self.assertRaisesRegex(ValueError, "do not have the 14 rows"):
            other.load_state_dict(self.state())

    def test_the_state_of_a_model_goes_back_into_it(self) -> None:
        state = copy.deepcopy(self.model.state_dict())
        with torch.no_grad():
            self.model.network.weight.zero_()
            self.model(torch.arange(100))  # evaluation changes no row
        self.model.load_state_dict(state)
        self.assertNotEqual(self.model.network.weight.abs().sum(), 0)
        self.model.train_step(0)
        with self.assertRaisesRegex(ValueError, "were never saved"):
            self.model.load_state_dict(state)

    def test_untrained_models(self) -> None:
        Model().load_state_dict(Model().state_dict())
        Model(update="step").load_state_dict(Model().state_dict(), assign=True)
        with self.assertRaisesRegex(ValueError, "were never saved|do not have"):
            self.model.load_state_dict(Model().state_dict())

    def test_a_state_that_is_loaded_by_assignment_leaves_the_parameter(self) -> None:
        model = Model()
        model.load_state_dict(Model().state_dict(), assign=True)
        before = model.rows()
        model.train_step(0)
        self.assertNotEqual(model.rows(), before)
        self.assertEqual(model.embed.statistics()["a"]["rows"], 5)

    def test_other_tables_and_other_states(self) -> None:
        state = self.state()
        embed = ht.EmbeddingCollection([ht.Table("a", 4)])
        with self.assertRaisesRegex(ValueError, "of the tables .'a', 'b'., but here are .'a'."):
            embed.load_state_dict({"_extra_state": state["embed._extra_state"]})
        for wrong in (None, {}, {"format": 2}):
            with self.assertRaisesRegex(ValueError, "expected format 1"):
                embed.load_state_dict({"_extra_state": wrong})
        with self.assertRaisesRegex(RuntimeError, "Missing key.*_extra_state"):
            embed.load_state_dict({})


class Module(lightning.LightningModule):
    """Trains on the keys of a batch; remembers how far it has come."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return (self.model(batch) - batch / 100).square().mean()

    def test_step(self, batch: torch.Tensor, _: int) -> None:
        self.log("loss", self.training_step(batch, 0))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class LightningTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.directory = pathlib.Path(folder.name)
        self.loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=16)
        warnings.simplefilter("ignore")
        self.addCleanup(warnings.resetwarnings)

    def trainer(self, epochs: int, name: str, **arguments) -> lightning.Trainer:
        checkpoint = ht.LightningCheckpoint(dirpath=self.directory / name, save_last=True,
                                            **arguments)
        return lightning.Trainer(max_epochs=epochs, accelerator="cpu", logger=False,
                                 enable_progress_bar=False, enable_model_summary=False,
                                 callbacks=[checkpoint])

    def test_resumed_equals_uninterrupted(self) -> None:
        modules = [Module() for _ in range(3)]
        self.trainer(4, "one").fit(modules[0], self.loader)
        self.trainer(2, "two").fit(modules[1], self.loader)
        last = self.directory / "two" / "last.ckpt"
        self.trainer(4, "three").fit(modules[2], self.loader, ckpt_path=last)
        self.assertEqual(modules[2].model.rows(), modules[0].model.rows())
        self.assertNotEqual(modules[2].model.rows(), modules[1].model.rows())
        np.testing.assert_array_equal(modules[2].model.network.weight.detach(),
                                      modules[0].model.network.weight.detach())

    def test_a_test_reads_the_rows(self) -> None:
        module = Module()
        trainer = self.trainer(3, "one")
        trainer.fit(module, self.loader)
        expected = trainer.test(module, self.loader, verbose=False)
        found = self.trainer(3, "one").test(Module(), self.loader, verbose=False,
                                            ckpt_path=self.directory / "one" / "last.ckpt")
        self.assertEqual(found, expected)

    def test_rows_go_with_their_checkpoint(self) -> None:
        self.trainer(3, "one").fit(Module(), self.loader)
        names = sorted(path.name for path in (self.directory / "one").iterdir())
        self.assertEqual(names, ["epoch=2-step=12.ckpt", "epoch=2-step=12.ckpt.rows", "last.ckpt",
                                 "last.ckpt.rows"])

    def test_a_checkpoint_without_rows_is_refused(self) -> None:
        plain = lightning.callbacks.ModelCheckpoint(dirpath=self.directory / "one")
        trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False,
                                    enable_progress_bar=False, enable_model_summary=False,
                                    callbacks=[plain])
        trainer.fit(Module(), self.loader)
        with self.assertRaisesRegex(ValueError, "rows of this one were never saved"):
            trainer.test(Module(), self.loader, ckpt_path=plain.best_model_path)


if __name__ == "__main__":
    unittest.main()
