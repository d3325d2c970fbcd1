"""EmbeddingCollection: tables as one module of PyTorch."""

import threading
import warnings
import weakref

import torch
import torch.distributed

from hps.train import _checkpoint, _export, _state
from hps.train._device import DeviceTables, device_of
from hps.train._local import LocalTables
from hps.train._look_ups import LookUps, features_of
from hps.train._ranks import RankedTables
from hps.train._torch_optimizer import TablesOptimizer
from hps.train._updates import BackwardUpdates, DeviceUpdates, StepUpdates

_UPDATES = ("backward", "step")


class EmbeddingCollection(torch.nn.Module):
    """Embedding tables whose rows are updated once in each backward pass, with the gradients of all
    look-ups of the pass, or in the step of an optimizer.

    In training mode a key without a row gets one. In evaluation mode, or without gradients, nothing
    changes, and a key without a row has zeros, as in serving.

    The ranks of `process_group` (None: the default group, if there is one) share the tables. All of
    them must call forward, in evaluation too, and backward, with the same tables in the same order.
    If a rank leaves out a call, the next call raises an error on all ranks. Tables, learning rates
    and the scale of `grad_scaler` must be equal on all ranks; a difference is an error on all of
    them. As with DistributedDataParallel, gradients are averaged over the ranks.

    While one thread trains, another may call `publish`, `rows` and `statistics`.

    update        "backward": the rows are updated in `backward`. "step": they are updated in the
                  step of `optimizer()`, with the gradients of all backwards since its zero_grad.
                  In both, NaN, infinite or overflowing gradients change no row
    grad_scaler   will be removed: use update="step" with a GradScaler. With update="backward",
                  gradients are divided by the scale of this one
    hot_steps     number of steps whose keys are counted; then the hot rows of "auto" and "hybrid"
                  tables are chosen
    share_memory  True: ranks exchange rows through shared memory, if all are on one machine.
                  False, or if ranks are on several machines: the process group carries them
    device        where rows, keys and outputs are: None or "cpu"; "cuda" (the current GPU),
                  "cuda:1" or a torch.device. Tables on a GPU are of one process, with
                  update="backward". Forward, backward and update do not wait for the GPU, unless a
                  table needs memory for new rows or is near its `rows_max`, a batch with offsets is
                  large for its tables, the program is several steps ahead of the GPU, only offsets
                  tell how many keys a feature with the pooling "none" has, or weights have
                  gradients
    """

    def __init__(self, tables, process_group=None, grad_scaler=None, hot_steps=20,
                 share_memory=True, update="backward", device=None):
        super().__init__()
        tables = list(tables)
        names = [table.name for table in tables]
        if len(set(names)) != len(names):
            raise ValueError(f"two tables have one name: {names}")
        self.tables = {table.name: table for table in tables}
        features = features_of(tables)
        if update not in _UPDATES:
            raise ValueError(f"update must be one of {list(_UPDATES)}, not {update!r}")
        if grad_scaler is not None:
            warnings.warn('grad_scaler will be removed: make the collection with update="step", '
                          "which needs no argument for a GradScaler", FutureWarning, stacklevel=2)
        device = device_of(device)
        is_ranked = _is_ranked(process_group)
        if device.type == "cuda":
            _check_options_of_gpu(update, grad_scaler, is_ranked)
            self._engine = DeviceTables(tables, device)
        elif is_ranked:
            self._engine = RankedTables(tables, process_group, hot_steps, share_memory)
        else:
            self._engine = LocalTables(tables)
        with torch.inference_mode(False):  # in which it would have no version
            self.anchor = torch.nn.Parameter(torch.zeros(1, dtype=torch.float32, device=device))
        self._publication = threading.Lock()  # also of exports: the later must not come first
        self.update = update
        self._updates = _updates_of(self._engine, self.anchor, update, grad_scaler)
        self._look_ups = LookUps(features, self._engine, self._updates,
                                 is_scaler_known=update == "step" or grad_scaler is not None)
        self._optimizer = None

    def forward(self, inputs):
        """The rows of `inputs`, a `Keys` or a dict as `Keys.from_dict` takes it, as `Rows`.

        The features may be some of those of the tables, in any order.
        """
        may_train = self.training and torch.is_grad_enabled()
        return self._look_ups.forward(inputs, self.anchor, may_train)

    @torch.compiler.disable
    def optimizer(self):
        """The tables as a torch.optim.Optimizer, always the same one; see `TablesOptimizer`."""
        if self._optimizer is None:
            self._optimizer = TablesOptimizer(list(self.tables.values()), self._updates)
            self._engine.optimizer = weakref.ref(self._optimizer)
        return self._optimizer

    @property
    def skipped_steps(self):
        """Steps that changed no row, because of NaN, infinite or overflowing gradients. With
        tables on a GPU, this waits for it."""
        return self._updates.skipped

    def _apply(self, fn, recurse=True):
        """The rows stay on their device, and of their type, wherever the model is moved."""
        return self

    def get_extra_state(self):
        """What `state_dict` has of the tables: which rows they have, not the rows themselves."""
        return _state.extra_state(self._engine)

    def set_extra_state(self, state):
        """Raises ValueError if the tables have other rows than when the state was taken; `load`
        reads these first."""
        _state.check_extra_state(self._engine, state)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[prefix + "anchor"]  # it has no value

    def _load_from_state_dict(self, state_dict, prefix, *arguments):
        state_dict[prefix + "anchor"] = self.anchor
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def __reduce_ex__(self, protocol):
        raise TypeError("an EmbeddingCollection can't be copied or pickled: its rows are in the "
                        "engine of this process; use `save` and `load`, or `export`")

    def extra_repr(self):
        counted = self.statistics()
        return "\n".join(
            f"{name}: {counted[name]['rows']:,} rows, dim {table.dim}, {table.dtype}, "
            f"{type(table.optimizer).__name__}, {_shown_features(table)}"
            for name, table in self.tables.items())

    @property
    def shares_memory(self):
        """Whether ranks exchange rows through shared memory."""
        return self._engine.is_shared

    def statistics(self):
        """For each table, {"rows", "bytes", "pending", "erased", "step"}: the rows of this process
        and their memory, keys that wait for admission, rows erased so far, and steps made."""
        return {name: shard.statistics() for name, shard in self._engine.shards.items()}

    def rows(self, name):
        """Returns (keys, rows) of a table, NumPy arrays of int64 [n] and float32 [n, dim], sorted
        by key. With several ranks, these are the rows that this rank owns."""
        return _export.owned_rows(self._engine, self.tables[name])

    def export(self, directory, network=None, example_inputs=None, name="model"):
        """Writes a model that `hps import --model` reads: each table as HugeCTR's `key` and
        `emb_vector`, `model.toml`, and with a network `dense.onnx`, traced with `example_inputs`,
        {input: tensor}. A table without rows is written as `keys.npy` and `rows.npy`, because
        HugeCTR's files would not tell its width. The next `publish` sends the changes made after
        the export. All ranks must call it. A failure on one rank is raised on all ranks, as OSError
        if a file could not be written, else as RuntimeError."""
        with self._publication:
            _export.export(self._engine, self.tables, directory, network, example_inputs, name)

    def publish(self, target):
        """Sends exactly the rows that changed since the last publish or export, and the keys of
        rows that were erased. Returns {table: (rows sent, keys deleted)}.

        target is a ProducerTarget, a StoreTarget, a ServerTarget, or any object with upsert(table,
        keys, rows [n, dim]), delete(table, keys) and flush(). Changes count as sent when flush has
        returned; after an error, the next call sends them again. Each rank sends the rows that it
        owns. Another thread than the training one may call it: a step waits while the changes of a
        table are collected, but not while they are sent."""
        with self._publication:
            return _export.publish(self._engine, self.tables, target)

    def save(self, directory, state=None, incremental=False):
        """Writes a checkpoint: rows and the optimizer's state of each. When it is complete, it
        replaces the earlier checkpoint in `directory`. All ranks must call it. A failure on one
        rank is raised on all ranks, as OSError if a file could not be written, else as
        RuntimeError.

        state        the dense part, for example {"network": network.state_dict()}. It may have what
                     torch.load(weights_only=True) reads. That of rank 0 is written
        incremental  writes only what changed since this collection's last save, if that save is the
                     newest in `directory`; else everything. `load` reads the last full save and all
                     incremental ones after it
        """
        _checkpoint.save(self._engine, self.tables, directory, incremental, state)

    def load(self, directory):
        """Reads a checkpoint, which any number of ranks may have written. The tables must have no
        rows yet. Returns the newest `state` that was saved, its tensors on the CPU; None if there
        is none. All ranks must call it. A damaged file is a ValueError on all ranks, and then
        nothing has changed."""
        return _checkpoint.load(self._engine, self.tables, directory)


def _is_ranked(process_group):
    """Whether other processes have rows, too."""
    return (torch.distributed.is_available() and torch.distributed.is_initialized() and
            torch.distributed.get_world_size(process_group) > 1)


def _check_options_of_gpu(update, grad_scaler, is_ranked):
    if is_ranked:
        raise NotImplementedError("tables on a GPU are of one process only, so far; give the "
                                  'ranks of a process group tables on the CPU, device="cpu"')
    if update == "step":
        raise NotImplementedError('tables on a GPU are updated in backward only, so far, with '
                                  'update="backward"; under autocast, use bfloat16, which needs '
                                  "no GradScaler")
    if grad_scaler is not None:
        raise NotImplementedError("tables on a GPU take no grad_scaler; under autocast, use "
                                  "bfloat16, which needs none")


def _updates_of(engine, anchor, update, grad_scaler):
    if engine.device.type == "cuda":
        return DeviceUpdates(engine, anchor)
    if update == "step":
        return StepUpdates(engine, anchor)
    return BackwardUpdates(engine, anchor, grad_scaler)


def _shown_features(table):
    poolings = {feature.name: feature.pooling for feature in table.features}
    if list(poolings) == [table.name]:
        return f"pooling {poolings[table.name]!r}"
    return f"features {poolings}"
