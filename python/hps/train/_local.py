"""The tables of training in one process. One call works on all tables."""

import torch

from hps._hps import train as _engine
from hps.train._batch import Batch, plain
from hps.train._table import learning_rate


class LocalTables:
    """The tables' shards (rows and optimizer states), for one process without ranks."""

    def __init__(self, tables):
        self.tables = tables
        self.shards = {table.name: table.make_shard() for table in tables}
        self._steps = {table.name: [] for table in tables}
        self.plans = []  # placements of a loaded checkpoint; the next checkpoint keeps them
        self.saved = None  # the last save: (directory, its entry in the manifest)

    def forward(self, batches: list[Batch], training: bool = True):
        """Returns the outputs, [rows, dim] for each batch, which are views of one buffer, and what
        `backward` takes as `work`."""
        sizes = [batch.rows * batch.table.dim for batch in batches]
        buffer = torch.empty(sum(sizes), dtype=torch.float32, device="cpu")
        steps, calls = [], []
        address = buffer.data_ptr()
        for batch, size in zip(batches, sizes):
            name = batch.table.name
            step = None
            if training:
                free = self._steps[name]
                step = free.pop() if free else self.shards[name].new_step()
            steps.append(step)
            calls.append((self.shards[name], step, *batch.arguments(), address, size))
            address += 4 * size
        _engine.forward(calls)
        views = buffer.split(sizes)
        outputs = [view.view(-1, batch.table.dim) for view, batch in zip(views, batches)]
        return outputs, ([batch.table for batch in batches], steps)

    def backward(self, work, gradients, scale: float) -> bool:
        """Updates the rows. Returns False, and changes nothing, if a gradient is NaN or infinite,
        or so large that a sum of gradients may overflow. A table without a gradient (None) keeps
        its rows."""
        tables, steps = work
        kept, calls = [], []
        for table, step, gradient in zip(tables, steps, gradients):
            if gradient is None:
                continue
            gradient = plain(gradient.to(torch.float32))
            kept.append(gradient)
            calls.append((self.shards[table.name], step, gradient.data_ptr(), gradient.numel(),
                          learning_rate(table), scale))
        applied = _engine.backward(calls)
        for table, step in zip(tables, steps):
            self._steps[table.name].append(step)
        return applied

    def evaluate(self, batches: list[Batch]):
        return self.forward(batches, training=False)[0]

    def owns(self, table, keys):
        """A mask of the keys whose rows this process exports and saves; None: all."""
        return None

    def loads(self, table, keys):
        """A mask of the keys whose rows this process reads from a checkpoint; None: all."""
        return None

    rank = 0
    rank_count = 1

    is_shared = False

    def gather(self, value):
        """The values of all processes."""
        return [value]

    def refuse(self, is_training):
        """Does nothing: no other rank waits for this step."""

    def begin_load(self, plans):
        """Keeps the placements, for ranks that load this process's next checkpoint."""
        self.plans = plans

    def finish_step(self):
        """Nothing to balance."""
