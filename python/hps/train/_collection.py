"""EmbeddingCollection: tables as one module of PyTorch."""

import threading
import weakref

import torch
import torch.distributed

from hps.train import _checkpoint, _export
from hps.train._keys import Keys, pack
from hps.train._local import LocalTables
from hps.train._ranks import RankedTables
from hps.train._rows import Call, Rows, Work


class _Lookup(torch.autograd.Function):
    """Rows of all tables. Its backward takes their gradients and gives the anchor a zero: when
    PyTorch has added up the zeros of all look-ups of a backward pass, the rows are updated."""

    @staticmethod
    def forward(ctx, _anchor, collection, work):
        ctx.collection, ctx.work = collection, work
        ctx.set_materialize_grads(False)
        return tuple(collection._engine.forward(work))

    @staticmethod
    def backward(ctx, *gradients):
        if ctx.work is None:
            raise RuntimeError("the rows of this step have been updated; backward runs once")
        work, collection = ctx.work, ctx.collection
        ctx.work = ctx.collection = None
        collection._take_gradients(work, gradients)
        return collection._zero, None, None


class EmbeddingCollection(torch.nn.Module):
    """Embedding tables whose rows are updated in `backward`, once in each backward pass, with the
    gradients of all look-ups of the pass.

    In training mode a key without a row gets one. In evaluation mode, or without gradients, nothing
    changes, and a key without a row has zeros, as in serving.

    The ranks of `process_group` (None: the default group, if there is one) share the tables. All of
    them must call forward, in evaluation too, and backward, with the same tables in the same order.
    If a rank leaves out a call, the next call raises an error on all ranks. Tables, learning rates
    and the scale of `grad_scaler` must be equal on all ranks; a difference is an error on all of
    them. As with DistributedDataParallel, gradients are averaged over the ranks.

    While one thread trains, another may call `publish`, `rows` and `statistics`.

    grad_scaler   the GradScaler of the training loop, if there is one: gradients are divided by
                  its scale. A step with NaN, infinite or overflowing gradients changes no row
    hot_steps     number of steps whose keys are counted; then the hot rows of "auto" and "hybrid"
                  tables are chosen
    share_memory  True: ranks exchange rows through shared memory, if all are on one machine.
                  False, or if ranks are on several machines: the process group carries them
    """

    def __init__(self, tables, process_group=None, grad_scaler=None, hot_steps=20,
                 share_memory=True):
        super().__init__()
        tables = list(tables)
        names = [table.name for table in tables]
        if len(set(names)) != len(names):
            raise ValueError(f"two tables have one name: {names}")
        self.tables = {table.name: table for table in tables}
        self._features = _features_of(tables)
        self._calls = {}  # by the names of their features
        self.grad_scaler = grad_scaler
        self.skipped_steps = 0  # steps with NaN, infinite or overflowing gradients
        # What autograd holds look-ups by. The hook must not keep this object alive.
        self._anchor = torch.zeros(1, requires_grad=True, device="cpu")
        self._zero = torch.zeros(1, device="cpu")
        update = weakref.WeakMethod(self._update)
        self._anchor.register_post_accumulate_grad_hook(lambda _: update()())
        self._works = []  # look-ups whose gradients have come in the backward pass under way
        self._pass = None  # its number
        self._publication = threading.Lock()  # also of exports: the later must not come first
        is_ranked = torch.distributed.is_available() and torch.distributed.is_initialized()
        if is_ranked and torch.distributed.get_world_size(process_group) > 1:
            self._engine = RankedTables(tables, process_group, hot_steps,
                                        share_memory)
        else:
            self._engine = LocalTables(tables)

    @torch.compiler.disable
    def forward(self, inputs):
        """The rows of `inputs`, a `Keys` or a dict as `Keys.from_dict` takes it, as `Rows`.

        The features may be some of those of the tables, in any order.
        """
        is_training = self.training and torch.is_grad_enabled()
        try:
            work = self._work(inputs)
        except Exception:
            self._engine.refuse(is_training)
            raise
        if is_training:
            blocks = _Lookup.apply(self._anchor, self, work)
        else:
            blocks = self._engine.evaluate(work)
        return Rows(work, blocks)

    def _work(self, inputs):
        names = inputs.features if isinstance(inputs, Keys) else tuple(inputs)
        call = self._calls.get(names)
        if call is None:
            for name in names:
                if name not in self._features:
                    raise KeyError(f"no table has the feature {name!r}; there are "
                                   f"{list(self._features)}")
            ids = {name: i for i, name in enumerate(self._features)}
            call = self._calls[names] = Call(names, self._features, ids)
        return Work(call, inputs if isinstance(inputs, Keys) else pack(inputs, self._describe))

    def _describe(self, name):
        return f"feature {name!r} of table {self._features[name][1].name!r}"

    def _scale(self):
        if self.grad_scaler is None or not self.grad_scaler.is_enabled():
            return 1.0
        return 1.0 / self.grad_scaler.get_scale()

    def _take_gradients(self, work, gradients):
        number = torch._C._current_graph_task_id()
        if self._works and number != self._pass:  # a backward pass that failed before its end
            self._works = []
            self._engine.drop()
        self._pass = number
        self._engine.take_gradients(work, gradients, self._scale())
        self._works.append(work)

    def _update(self):
        self._anchor.grad = None
        works, self._works = self._works, []
        if not self._engine.update(works, self._scale()):
            self.skipped_steps += 1
        for _ in works:
            self._engine.finish_step()

    def __reduce_ex__(self, protocol):
        raise TypeError("an EmbeddingCollection can't be copied or pickled: its rows are in the "
                        "engine of this process; use `save` and `load`, or `export`")

    def extra_repr(self):
        counted = self.statistics()
        return "\n".join(
            f"{name}: {counted[name]['rows']:,} rows, dim {table.dim}, "
            f"{type(table.optimizer).__name__}, "
            + ", ".join(f"{feature.name}: {feature.pooling}" for feature in table.features)
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
