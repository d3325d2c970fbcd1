"""The rows of EmbeddingCollections beside the checkpoints of PyTorch Lightning."""

import functools
import importlib
import os
import shutil
import sys

from hps.train._collection import EmbeddingCollection


def _lightning():
    """The package that the program uses: `lightning.pytorch` or `pytorch_lightning`."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in names:
        if name in sys.modules:
            return sys.modules[name]
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError("LightningCheckpoint needs Lightning 2: pip install lightning")


def _collections(module):
    return {name or "model": part for name, part in module.named_modules()
            if isinstance(part, EmbeddingCollection)}


def _folder(path, name):
    return os.path.join(f"{os.path.realpath(path)}.rows", name)  # "last.ckpt" may be a link


def _load_rows(trainer, name, collection, *_):
    folder = _folder(trainer.ckpt_path, name) if trainer.ckpt_path else ""
    if os.path.isdir(folder) and not any(
            table["rows"] for table in collection.statistics().values()):
        collection.load(folder)


class LightningCheckpoint(_lightning().callbacks.ModelCheckpoint):
    """Lightning's ModelCheckpoint, which also saves the rows of all collections of the model, to
    FILE.ckpt.rows beside each FILE.ckpt, and loads them before `fit(ckpt_path=...)`, `validate`,
    `test` and `predict` do.

        trainer = Trainer(callbacks=[ht.LightningCheckpoint(dirpath="checkpoints")])
        trainer.fit(model, loader, ckpt_path="checkpoints/last.ckpt")

    The checkpoint must be in a file system of this machine, or of all machines of the ranks. Tables
    that have rows already keep them.
    """

    def setup(self, trainer, pl_module, stage):
        """Lightning tells no callback of a checkpoint before it loads the model's state."""
        super().setup(trainer, pl_module, stage)
        self._hooks = [
            collection.register_load_state_dict_pre_hook(
                functools.partial(_load_rows, trainer, name))
            for name, collection in _collections(pl_module).items()]

    def teardown(self, trainer, pl_module, stage):
        super().teardown(trainer, pl_module, stage)
        for hook in self._hooks:
            hook.remove()

    def _save_checkpoint(self, trainer, filepath):
        for name, collection in _collections(trainer.lightning_module).items():
            collection.save(_folder(filepath, name))
        super()._save_checkpoint(trainer, filepath)

    def _remove_checkpoint(self, trainer, filepath):
        super()._remove_checkpoint(trainer, filepath)
        if trainer.is_global_zero:
            shutil.rmtree(f"{filepath}.rows", ignore_errors=True)
