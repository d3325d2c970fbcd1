"""The tables of training in one process. One call works on all tables."""

from hps._hps import train as _engine
from hps.train._optimizers import learning_rates


class LocalTables:
    """The tables' shards (rows and optimizer states), for one process without ranks."""

    def __init__(self, tables):
        self.shards = {table.name: table.make_shard() for table in tables}
        self._tables = {name: _engine.RankTable(shard, 0, False)
                        for name, shard in self.shards.items()}
        self.plans = []  # placements of a loaded checkpoint; the next checkpoint keeps them
        self.saved = None  # the last save: (directory, its entry in the manifest)

    def forward(self, work, is_training=True):
        """Returns the blocks of the outputs."""
        call = work.call
        step = call.free_steps.pop() if call.free_steps else _engine.RankStep.make(
            0, 1, [self._tables[table.name] for table in call.tables], call.features)
        blocks = work.new_blocks()
        step.forward(work.keys.arguments(), is_training, work.places(blocks))
        if is_training:
            work.step = step
        else:
            call.free_steps.append(step)
        return blocks

    def take_gradients(self, work, gradients, scale):
        """Takes the gradients of the blocks; a None has no effect on the rows."""
        work.take_gradients(gradients)

    def update(self, works, scale):
        """Updates the rows once, with the gradients of all `works`. Returns False, and changes no
        row, if a gradient is NaN or infinite, or so large that a sum of gradients may overflow. A
        table without gradients keeps its rows."""
        if len(works) == 1:
            work = works[0]
            is_updated = work.step.backward(work.gradients, learning_rates(work.call.tables), scale)
        else:
            is_updated = update_together(
                self._tables, works, scale,
                lambda work: work.step.backward(work.gradients, [], scale))
        for work in works:
            work.call.free_steps.append(work.step)
        return is_updated

    def drop(self):
        """Nothing is kept of a backward pass that failed."""

    def evaluate(self, work):
        return self.forward(work, is_training=False)

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


def update_together(rank_tables, works, scale, add, agree=all):
    """One update with the gradients of several look-ups. `add(work)` adds those of one to the sums
    of its tables and returns whether it may; `agree([flag])` is whether all ranks may go on."""
    tables = list({table.name: table for work in works for table in work.call.tables}.values())
    sums = [rank_tables[table.name] for table in tables]
    try:
        rates = learning_rates(tables)
        is_allowed = all([add(work) for work in works])  # each of them: other ranks do so, too
        if not agree([is_allowed and _engine.sums_allow(sums, scale)]):
            return False
        _engine.apply_sums(sums, rates, scale)
        return True
    finally:
        _engine.drop_sums(sums)
