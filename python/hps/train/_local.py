"""The engine of one process: calls that work on all tables at once."""

import torch

from hps._hps import train as _engine
from hps.train._batch import Batch
from hps.train._table import learning_rate


class LocalTables:
    """The shards of this process by table name, and index work to use again."""

    def __init__(self, tables):
        self.tables = tables
        self.shards = {table.name: table.make_shard() for table in tables}
        self._steps = {table.name: [] for table in tables}
        self.plans = []  # placements that ranks decided before a checkpoint, for the next one
        self.saved = None  # the last save: (directory, its entry in the manifest)

    def forward(self, batches: list[Batch], training: bool = True):
        """The outputs [rows, dim], views of one buffer, and what `backward` needs."""
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
        """False, and nothing has changed, if a gradient is NaN, infinite, or so large that a sum of
        gradients may be. Without a gradient, a table's rows stay as they are."""
        tables, steps = work
        kept, calls = [], []
        for table, step, gradient in zip(tables, steps, gradients):
            if gradient is None:
                continue
            gradient = gradient.detach().to(torch.float32).contiguous()
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
        """Which keys' rows this process exports: all."""
        return None

    def loads(self, table, keys):
        """Which keys' rows this process reads from a checkpoint: all."""
        return None

    rank = 0
    rank_count = 1

    is_shared = False

    def gather(self, value):
        """The values of all processes."""
        return [value]

    def refuse(self, is_training):
        """There is nobody to tell that a step cannot begin."""

    def begin_load(self, plans):
        """One process has all tables; ranks that load its checkpoints follow the plans."""
        self.plans = plans

    def finish_step(self):
        """Nothing to balance."""
