"""The tables of training in one process, on the CPU. One call works on all tables."""

import contextlib
import math
import secrets

import torch

from hps._hps import train as _engine
from hps.train._optimizers import learning_rates


class Engine:
    """What all engines have in common. `_all`: the `Table`s."""

    _all: list
    device = torch.device("cpu")  # of rows, keys and outputs
    optimizer = None  # a weak reference to the TablesOptimizer, if there is one
    run = ""       # names this collection, the same on all ranks
    steps = 0      # training steps, with those of the checkpoint that was loaded
    loaded = None  # (run, steps) of that checkpoint
    saved = None   # the last save: (directory, its entry in the manifest)

    def _rates(self, tables):
        optimizer = self.optimizer and self.optimizer()
        return learning_rates(tables, optimizer and optimizer.rates())


class Alone:
    """What an engine answers that has no other ranks: all rows are its own."""

    rank = 0
    rank_count = 1
    is_shared = False
    plans = ()  # placements of a loaded checkpoint; the next checkpoint keeps them

    def take_gradients(self, work, gradients, scale, is_applied=True):  # noqa: ARG002, for ranks
        """Takes the gradients of the blocks; a None has no effect on the rows."""
        work.take_gradients(gradients)

    def forget(self, works, others):  # noqa: ARG002, for ranks
        """Drops the gradients of a backward pass that makes no update. `others`: the `Work`s of
        passes that are under way. Returns whether the sums of the tables have some of the gradients
        already, which they never have in one process."""
        return False

    def telling(self):
        """An error in here concerns this process only."""
        return contextlib.nullcontext()

    def owns(self, table, keys):
        """A mask of the keys whose rows this process exports and saves; None: all."""
        return None

    def loads(self, table, keys):
        """A mask of the keys whose rows this process reads from a checkpoint; None: all."""
        return None

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


class HostTables(Engine):
    """What LocalTables and RankedTables have in common: steps, and the sums of gradients. `_tables`
    has the tables of the engine."""

    _tables: dict

    def _new_step(self, call):
        if call.free_steps:
            return call.free_steps.pop()
        return _engine.RankStep.make(self.rank, self.rank_count,
                                     [self._tables[table.name] for table in call.tables],
                                     call.features)

    def scale_sums(self, factor):
        _engine.scale_sums(list(self._tables.values()), factor)

    def drop_sums(self):
        _engine.drop_sums(list(self._tables.values()))

    def _update_together(self, works, scale, agree):
        """One update with the gradients of several look-ups. `agree(flag)`: whether all ranks may
        go on."""
        try:
            is_allowed = self.add(works)
            sums = list(self._tables.values())
            if not agree(is_allowed and _engine.sums_allow(sums, scale)):
                return False
            _engine.apply_sums(sums, self._rates(self._all), scale)
            return True
        finally:
            self.drop_sums()


class LocalTables(Alone, HostTables):
    """The tables' shards (rows and optimizer states), for one process without ranks."""

    def __init__(self, tables):
        self._all = tables
        self.shards = {table.name: table.make_shard() for table in tables}
        self._tables = {name: _engine.RankTable(shard, 0, False)
                        for name, shard in self.shards.items()}
        self.run = secrets.token_hex(8)

    def forward(self, work, is_training):
        """Returns the blocks of the outputs."""
        call = work.call
        step = self._new_step(call)
        blocks = work.new_blocks()
        step.forward(work.keys.arguments(self.device), is_training, work.places(blocks))
        if is_training:
            work.step = step
        else:
            call.free_steps.append(step)
        return blocks

    def update(self, works, scale):
        """Updates the rows once, with the gradients of all `works`. Returns False, and changes no
        row, if a gradient is NaN or infinite, or so large that a sum of gradients may overflow. A
        table without gradients keeps its rows."""
        if len(works) > 1:
            return self._update_together(works, scale, bool)
        work = works[0]
        return work.step.backward(work.gradients, self._rates(work.call.tables), scale)

    def add(self, works):
        """Adds the gradients of `works` to the sums. Returns False if one of them is not allowed,
        see `update`; then the sums are of no use."""
        return all([work.step.backward(work.gradients, [], 1.0) for work in works])

    def norm(self):
        """The 2-norm of the sums of all tables."""
        return math.sqrt(_engine.squared_norm(list(self._tables.values()), 0, 1))

    def apply(self, factor):
        """Updates the rows with the sums, multiplied by `factor`. The sums stay."""
        _engine.apply_sums(list(self._tables.values()), self._rates(self._all), factor)
