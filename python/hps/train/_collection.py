"""EmbeddingCollection: tables as one module of PyTorch."""

import threading

import torch
import torch.distributed

from hps.train import _checkpoint, _export
from hps.train._batch import make_batch
from hps.train._local import LocalTables
from hps.train._ranks import RankedTables


class _Lookup(torch.autograd.Function):
    """Rows of all tables; its backward updates them and returns no gradient."""

    @staticmethod
    def forward(ctx, _anchor, collection, batches):
        outputs, ctx.work = collection._engine.forward(batches)
        ctx.collection = collection
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *gradients):
        if ctx.work is None:
            raise RuntimeError("the rows of this step have been updated; backward runs once")
        work, collection = ctx.work, ctx.collection
        ctx.work = ctx.collection = None
        collection._update(work, gradients)
        return None, None, None


class EmbeddingCollection(torch.nn.Module):
    """Embedding tables whose rows are updated in `backward`.

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
        self.grad_scaler = grad_scaler
        self.skipped_steps = 0  # steps with NaN, infinite or overflowing gradients
        # What autograd holds the function by.
        self._anchor = torch.zeros(1, requires_grad=True, device="cpu")
        self._publication = threading.Lock()  # also of exports: the later must not come first
        is_ranked = torch.distributed.is_available() and torch.distributed.is_initialized()
        if is_ranked and torch.distributed.get_world_size(process_group) > 1:
            self._engine = RankedTables(tables, process_group, hot_steps,
                                        share_memory)
        else:
            self._engine = LocalTables(tables)

    @torch.compiler.disable
    def forward(self, inputs):
        """Rows for {table: keys}, as {table: tensor}.

        Keys are int64: [batch]; [batch, k], a bag of k keys in each line; (keys [n], offsets
        [batch + 1]), ragged bags; (keys, offsets or None, weights [n]), weighted sums. The output
        is [batch, dim]; with the pooling "none" [batch, k, dim], or [n, dim] for ragged bags.
        """
        is_training = self.training and torch.is_grad_enabled()
        try:
            batches = [make_batch(self._table(name), value) for name, value in inputs.items()]
        except Exception:
            self._engine.refuse(is_training)
            raise
        if is_training:
            outputs = _Lookup.apply(self._anchor, self, batches)
        else:
            outputs = self._engine.evaluate(batches)
        return {batch.table.name: output.view(batch.shape)
                for batch, output in zip(batches, outputs)}

    def _table(self, name):
        if name not in self.tables:
            raise KeyError(f"no table {name!r}; there are {list(self.tables)}")
        return self.tables[name]

    def _update(self, work, gradients):
        scale = 1.0
        if self.grad_scaler is not None and self.grad_scaler.is_enabled():
            scale /= self.grad_scaler.get_scale()
        if not self._engine.backward(work, gradients, scale):
            self.skipped_steps += 1
        self._engine.finish_step()

    def __reduce_ex__(self, protocol):
        raise TypeError("an EmbeddingCollection can't be copied or pickled: its rows are in the "
                        "engine of this process; use `save` and `load`, or `export`")

    def extra_repr(self):
        counted = self.statistics()
        return "\n".join(
            f"{name}: {counted[name]['rows']:,} rows, dim {table.dim}, "
            f"{type(table.optimizer).__name__}, pooling {table.pooling!r}"
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
