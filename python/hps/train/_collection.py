"""EmbeddingCollection: tables as one module of PyTorch."""

import collections.abc
import threading
import warnings
import weakref

import torch
import torch.distributed

from hps.train import _checkpoint, _export, _state
from hps.train._keys import Keys, pack
from hps.train._local import LocalTables
from hps.train._ranks import RankedTables
from hps.train._rows import Call, Rows, Work, hidden
from hps.train._table import Feature
from hps.train._torch_optimizer import TablesOptimizer
from hps.train._updates import BackwardUpdates, StepUpdates

_UPDATES = ("backward", "step")


class _Lookup(torch.autograd.Function):
    """Rows of all tables. Its backward takes their gradients and gives the anchor a zero: when
    PyTorch has added up the zeros of all look-ups of a backward pass, the rows are updated."""

    @staticmethod
    def forward(ctx, _anchor, _weights, collection, work):
        ctx.collection, ctx.work = collection, work
        ctx.set_materialize_grads(False)
        blocks = collection._engine.forward(work, True)
        shown = len(blocks) - (len(work.call.names) - work.shown)
        work.hidden_blocks = blocks[shown:]
        return tuple(blocks[:shown])

    @staticmethod
    def backward(ctx, *gradients):
        if ctx.work is None:
            raise RuntimeError("the rows of this step have been updated; backward runs once")
        work, collection = ctx.work, ctx.collection
        ctx.work = ctx.collection = None
        weights = None
        if work.weights is not None:
            with collection._engine.telling():
                weights = work.weight_gradients(gradients)
        collection._updates.take(work, [*gradients, *[None] * len(work.hidden_blocks)])
        return collection._zero, weights, None, None


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
    """

    def __init__(self, tables, process_group=None, grad_scaler=None, hot_steps=20,
                 share_memory=True, update="backward"):
        super().__init__()
        tables = list(tables)
        names = [table.name for table in tables]
        if len(set(names)) != len(names):
            raise ValueError(f"two tables have one name: {names}")
        self.tables = {table.name: table for table in tables}
        self._features = _features_of(tables)
        # With those for the gradients of weights; and the number of each, the same on all ranks.
        self._all_features = self._features | {
            hidden(name): (Feature(f"{name} (rows)", "none"), table)
            for name, (_, table) in self._features.items()}
        self._ids = {name: i for i, name in enumerate(self._all_features)}
        self._calls = {}  # by the names of their features
        if update not in _UPDATES:
            raise ValueError(f"update must be one of {list(_UPDATES)}, not {update!r}")
        if grad_scaler is not None:
            warnings.warn('grad_scaler will be removed: make the collection with update="step", '
                          "which needs no argument for a GradScaler", FutureWarning, stacklevel=2)
        self.anchor = torch.nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))
        self._zero = torch.zeros(1, dtype=torch.float32, device="cpu")
        self._publication = threading.Lock()  # also of exports: the later must not come first
        is_ranked = torch.distributed.is_available() and torch.distributed.is_initialized()
        if is_ranked and torch.distributed.get_world_size(process_group) > 1:
            self._engine = RankedTables(tables, process_group, hot_steps, share_memory)
        else:
            self._engine = LocalTables(tables)
        self.update = update
        self._updates = (StepUpdates(self._engine, self.anchor) if update == "step" else
                         BackwardUpdates(self._engine, self.anchor, grad_scaler))
        self._optimizer = None
        self._is_scaler_known = update == "step" or grad_scaler is not None

    @torch.compiler.disable
    def forward(self, inputs):
        """The rows of `inputs`, a `Keys` or a dict as `Keys.from_dict` takes it, as `Rows`.

        The features may be some of those of the tables, in any order.
        """
        is_training = self.training and torch.is_grad_enabled() and self.anchor.requires_grad
        if is_training and not self._is_scaler_known and _is_half_precision():
            self._is_scaler_known = True
            warnings.warn("float16 under autocast needs a GradScaler, and rows that are updated in "
                          'backward would be updated with scaled gradients; make the collection '
                          'with update="step"', stacklevel=2)
        try:
            if is_training and self.anchor is not self._updates.anchor:
                raise RuntimeError("an EmbeddingCollection can't be trained with other parameters, "
                                   "as torch.func.functional_call gives it: its rows are not in "
                                   "its parameters")
            work = self._work(inputs, is_training)
        except Exception:
            self._engine.refuse(is_training)
            raise
        if is_training:
            self._updates.before_forward()
            self._engine.steps += 1
            blocks = _Lookup.apply(self.anchor, work.weights, self, work)
        else:
            blocks = self._engine.forward(work, False)
        return Rows(work, blocks)

    def _work(self, inputs, is_training):
        if not isinstance(inputs, (Keys, collections.abc.Mapping)):
            raise TypeError("expected {feature: keys} or Keys, not "
                            f"{type(inputs).__name__}; for a KeyedJaggedTensor, pass "
                            "Keys.from_kjt(jagged)")
        call = self._call(inputs.features if isinstance(inputs, Keys) else tuple(inputs))
        keys = inputs if isinstance(inputs, Keys) else pack(inputs, self._describe)
        weights = keys.weights
        if weights is None or not weights.requires_grad or not is_training:
            return Work(call, keys)
        keys = keys.with_rows_of_weighted(hidden)
        work = Work(self._call(keys.features), keys)
        work.weights, work.shown = weights, len(call.names)
        return work

    def _call(self, names):
        call = self._calls.get(names)
        if call is None:
            for name in names:
                if name not in self._all_features:
                    raise KeyError(f"no table has the feature {name!r}; there are "
                                   f"{list(self._features)}")
            call = self._calls[names] = Call(names, self._all_features, self._ids)
        return call

    def _describe(self, name):
        return f"feature {name!r} of table {self._features[name][1].name!r}"

    def optimizer(self):
        """The tables as a torch.optim.Optimizer, always the same one; see `TablesOptimizer`."""
        if self._optimizer is None:
            self._optimizer = TablesOptimizer(list(self.tables.values()), self._updates)
            self._engine.optimizer = weakref.ref(self._optimizer)
        return self._optimizer

    @property
    def skipped_steps(self):
        """Steps that changed no row, because of NaN, infinite or overflowing gradients."""
        return self._updates.skipped

    def _apply(self, fn, recurse=True):
        """The rows are on the CPU, and float32, wherever the model is moved."""
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
            f"{name}: {counted[name]['rows']:,} rows, dim {table.dim}, "
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


def _features_of(tables):
    """{feature: (Feature, Table)}."""
    found = {}
    for table in tables:
        for feature in table.features:
            if feature.name in found:
                raise ValueError(f"two tables, or two of one, have the feature {feature.name!r}: "
                                 f"{found[feature.name][1].name!r} and {table.name!r}")
            found[feature.name] = feature, table
    return found


def _shown_features(table):
    poolings = {feature.name: feature.pooling for feature in table.features}
    if list(poolings) == [table.name]:
        return f"pooling {poolings[table.name]!r}"
    return f"features {poolings}"


def _is_half_precision():
    """Whether autocast is on, with the type that needs a GradScaler."""
    return any(torch.is_autocast_enabled(device) and
               torch.get_autocast_dtype(device) is torch.float16 for device in ("cuda", "cpu"))
