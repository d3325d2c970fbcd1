"""The ranks of a process group: which rank has which rows, and what ranks exchange in a step.

Every row has one owner, the rank that saves and exports it. For a localized table that is the
table's holder; otherwise it is the rank that a hash of the row's key selects. Hot rows are also
copied to every other rank. Which rows are hot depends on the table's placement:

    "distributed"       none
    "replicated"        all
    "hybrid", "auto"    those whose keys were in at least half of the ranks' batches of the first
                        steps; none if the table has `rows_max`, because each rank then erases rows
                        without asking the others

If ranks share memory, "auto" tables become localized, as long as the work is spread evenly over the
ranks. The work is measured in each table's first step. With shared memory an exchange costs little,
and the keys of a localized table are looked up on one rank only.

A step has three exchanges, each for all tables: keys, rows, gradients (src/train_cpu/rank_step.h).
"""

import math
import secrets
import struct
import weakref
import zlib

import numpy as np

from hps._hps import train as _engine
from hps.train import _checkpoint
from hps.train._exchange import FILES, GRADIENTS, KEYS, MEETING, ROWS, make_exchange
from hps.train._local import HostTables

_HOT_SHARE = 0.5  # a key is hot if at least half of the ranks' batches have it
_IMBALANCE_MAX = 1.1  # work of the busiest rank / mean over all ranks, of localized tables


def _spread(loads, rank_count):
    """Gives tables to ranks, the largest table first, each to the rank with the least load so far.
    Returns {table: rank}, and the load of the busiest rank divided by the mean."""
    totals, found = [0] * rank_count, {}
    for name in sorted(loads, key=lambda name: (-loads[name], name)):
        rank = totals.index(min(totals))
        totals[rank] += loads[name]
        found[name] = rank
    return found, max(totals) * rank_count / max(1, sum(totals))


class RankedTables(HostTables):
    """Has the interface of LocalTables; the tables are shared by the ranks of a process group."""

    def __init__(self, tables, group, hot_steps, share_memory):
        settings = [f"{hot_steps=}", f"{share_memory=}", *map(repr, tables)]
        self._exchange = make_exchange(group, share_memory, settings)
        self.rank, self.rank_count = self._exchange.rank, self._exchange.rank_count
        self.run = self._exchange.gather(secrets.token_hex(8))[0]
        self._all = tables
        self.shards = {table.name: table.make_shard() for table in tables}
        self._holders, _ = _spread({t.name: t.dim for t in tables if t.placement == "localized"},
                                   self.rank_count)
        self._tables = {
            table.name: _engine.RankTable(self.shards[table.name], self._holders.get(table.name),
                                          table.placement == "replicated") for table in tables}
        self._hot = {table.name: np.empty(0, np.int64) for table in tables}
        self._balanced = {table.name: table for table in tables
                          if table.placement in ("auto", "hybrid") and not table.rows_max}
        self._counted = {name: [] for name in self._balanced}
        self._undecided = {t.name for t in self._balanced.values() if t.placement == "auto"}
        self.plans = []  # the loads by which tables were placed; a checkpoint keeps them
        self._hot_steps, self._steps_left = hot_steps, hot_steps if self._balanced else 0
        self._is_balance_due = False
        self._calls = 0  # calls of forward so far
        self._open = weakref.WeakSet()  # Work of steps whose backward has not been called yet
        self._has_sums = False
        self._received = None  # Work whose sums of gradients lie in memory of the exchange

    @property
    def is_shared(self):
        return self._exchange.is_shared

    def owns(self, table, keys):
        """A mask of the keys whose rows this rank exports and saves."""
        if table.name in self._holders:
            return np.full(keys.size, self._holders[table.name] == self.rank)
        return _engine.owners(keys, self.rank_count) == self.rank

    def loads(self, table, keys):
        """A mask of the keys whose rows this rank reads from a checkpoint; None: all. Copies of hot
        rows are not read: hot rows are chosen again after a load."""
        return None if table.placement == "replicated" else self.owns(table, keys)

    def gather(self, value):
        """The values of all ranks. Only for a save, a load or an export."""
        self._meet(FILES)
        return self._exchange.gather(value)

    def _meet(self, kind):
        """Called before an exchange that is not part of a step. Raises on all ranks if one of them
        is at another call than the others."""
        self._exchange.check(kind, self._exchange.meet(kind))

    def _decide(self, work):
        """Decides the placement of "auto" tables in their first step. A table that becomes
        localized and has rows already, from a checkpoint, is moved to its holder."""
        self._meet(MEETING)
        loads = dict.fromkeys((table.name for table in work.call.tables
                               if table.name in self._undecided), 0)
        for i, count in zip(work.call.feature_tables, work.keys.key_counts()):
            table = work.call.tables[i]
            if table.name in loads:
                loads[table.name] += count * table.dim
        gathered = self._exchange.gather(loads)
        localized = self._follow_plan({name: sum(part.get(name, 0) for part in gathered)
                                       for name in loads})
        for name in localized:
            self._bring_together(name)

    def begin_load(self, plans):
        """Called before the rows of a checkpoint are written. Places tables as the ranks that saved
        it had placed them. Forgets which rows were hot, because only its owner writes a row."""
        for loads in plans:
            self._follow_plan(loads)
        for name in self._balanced:
            self._hot[name] = np.empty(0, np.int64)
            self._tables[name].set_hot(self._hot[name])
            self._counted[name] = []
        self._steps_left = self._hot_steps if self._balanced else 0
        self._is_balance_due = False

    def _follow_plan(self, loads):
        """Decides about the undecided tables among `loads`, and returns the names of those that are
        localized now. Tables without load are not localized, because nothing is known of them.
        While the ranks' work would be too uneven, the largest table is left out."""
        left = {name: load for name, load in loads.items() if name in self._undecided}
        self._undecided -= left.keys()
        if left:
            self.plans.append(dict(left))
        if not self._exchange.is_shared:
            return []
        left = {name: load for name, load in left.items() if load}
        while left:
            holders, imbalance = _spread(left, self.rank_count)
            if imbalance <= _IMBALANCE_MAX:
                break
            del left[max(left, key=lambda name: (left[name], name))]
        for name in left:
            self._holders[name] = holders[name]
            self._tables[name].set_holder(holders[name])
            del self._balanced[name], self._counted[name]
        return list(left)

    def _bring_together(self, name):
        """Moves all rows of a table to its holder. Before, a hash of the key placed each row."""
        shard, holder = self.shards[name], self._holders[name]
        rows = shard.read_rows(True)
        if not any(self._exchange.gather(rows["keys"].size + rows["pending_keys"].size)):
            return
        for sender in range(self.rank_count):
            part = self._exchange.send(rows, sender, holder)
            if self.rank == holder and sender != holder:
                shard.write_rows(part)
        if self.rank != holder:
            shard.erase_rows(rows["keys"])

    def refuse(self, is_training):
        """Tells the other ranks that this rank cannot begin the step."""
        self._begin_call(is_training)
        self._exchange.refuse()

    def _begin_call(self, is_training):
        self._calls += 1
        self._exchange.begin(self._calls, is_training)

    def forward(self, work, is_training):
        """Returns the blocks of the outputs."""
        self._begin_call(is_training)
        call, exchange = work.call, self._exchange
        if not self._undecided.isdisjoint(table.name for table in call.tables):
            self._decide(work)
        if is_training and self._is_balance_due:
            self._balance_between_steps()
        with exchange.telling():
            step = self._new_step(call)
            step.begin(work.keys.arguments(self.device), is_training)
            if is_training and self._steps_left:
                self._count(call, step)
            blocks = work.new_blocks()
            step.write_messages(exchange.room(KEYS, self._sizes(step)[0]))
        messages = exchange.swap(KEYS)
        places = work.places(blocks)
        with exchange.telling():
            step.read_messages(*messages)
            step.look_up(exchange.room(ROWS, self._sizes(step)[1]), places)
        rows = exchange.swap(ROWS)
        with exchange.telling():
            step.pool(*rows, places)
        if is_training:
            work.step, work.call_number = step, self._calls
            self._open.add(work)
        else:
            call.free_steps.append(step)
        return blocks

    def _sizes(self, step):
        """The sizes of the pieces to and from each rank, one list for each kind of piece; see
        PieceSizes in src/train_cpu/rank_part.h."""
        return list(zip(*(step.sizes(rank) for rank in range(self.rank_count))))

    def take_gradients(self, work, gradients, scale, is_applied=True):
        """Takes the gradients of the blocks, and exchanges their sums with the other ranks.
        `is_applied`: `update` follows, else `add`."""
        step, exchange, scale = work.step, self._exchange, scale / self.rank_count
        self._open.discard(work)
        if self._received is not None:  # the memory of its sums is needed
            self._add(self._received)
        exchange.begin(work.call_number, True)
        exchange.settle(GRADIENTS)
        with exchange.telling():
            factors = 0
            if is_applied:
                work.rates = self._rates(work.call.tables)
                factors = _checksum(work.rates, scale)
            work.take_gradients(gradients)
            step.sum_gradients(work.gradients, scale,
                               exchange.room(GRADIENTS, self._sizes(step)[3]))
        work.sums = exchange.swap(GRADIENTS, factors)
        self._received = work

    def _add(self, work):
        """Adds the gradients to the sums of the tables, the first time it is called. Returns
        whether that is allowed."""
        if work is self._received:
            self._received = None
            work.is_allowed = False
            with self._exchange.telling():
                work.is_allowed = work.step.update(*work.sums, [], 1.0)
        return work.is_allowed

    def update(self, works, scale):
        scale /= self.rank_count
        if len(works) > 1 or works[0] is not self._received:
            return self._update_together(
                works, scale, lambda flag: not self._add_up([float(not flag)])[0])
        work, self._received = works[0], None
        with self._exchange.telling():
            return work.step.update(*work.sums, work.rates, scale)

    def add(self, works):
        self._has_sums = True
        return all([self._add(work) for work in works])  # each of them

    def norm(self):
        """That of the sums divided by the number of ranks: gradients are averaged."""
        own = _engine.squared_norm(list(self._tables.values()), self.rank, self.rank_count)
        return math.sqrt(self._add_up([own])[0]) / self.rank_count

    def apply(self, factor):
        with self._exchange.telling():
            rates = self._rates(self._all)
        factors = _checksum(rates, factor)
        self._exchange.check(MEETING, self._exchange.meet(MEETING, factors), factors)
        _engine.apply_sums(list(self._tables.values()), rates, factor / self.rank_count)

    def _add_up(self, values):
        """The sums of the ranks' values."""
        self._meet(MEETING)
        return self._exchange.add_up(values)

    def drop_sums(self):
        super().drop_sums()
        self._has_sums = False

    def forget(self, works, others):
        """As in LocalTables."""
        if self._received in works:
            self._received = None
        are_in_sums = any(work.is_allowed is not None for work in works)
        if are_in_sums and not self._has_sums:
            self.drop_sums()
            for work in others:
                if work.is_allowed is not None:  # its gradients were dropped, too
                    work.is_allowed = False
        return are_in_sums

    def telling(self):
        """An error in here is told to the other ranks."""
        return self._exchange.telling()

    def _count(self, call, step):
        for i, table in enumerate(call.tables):
            if table.name in self._counted:
                self._counted[table.name].append(step.keys(i))

    def finish_step(self):
        if self._steps_left:
            self._steps_left -= 1
            self._is_balance_due = not self._steps_left

    def _balance_between_steps(self):
        """Chooses the hot rows if no rank has a step between its forward and its update; otherwise
        the next step tries again. Such a step would update the copies of the rows that were hot
        when it looked them up, and copies of a row would differ."""
        self._meet(MEETING)
        if not any(self._exchange.gather(len(self._open) or self._has_sums)):
            self._is_balance_due = False
            self._balance()

    def _balance(self):
        """Chooses the hot rows from the keys of the counted steps."""
        for name, table in self._balanced.items():
            keys = np.concatenate(self._counted[name] or [np.empty(0, np.int64)])
            self._counted[name] = []
            keys, counts = np.unique(keys, return_counts=True)
            gathered = self._exchange.gather((keys, counts))
            keys, places = np.unique(np.concatenate([k for k, _ in gathered]),
                                     return_inverse=True)
            totals = np.bincount(places, np.concatenate([c for _, c in gathered]),
                                 minlength=keys.size)
            hot = keys[totals >= _HOT_SHARE * self._hot_steps * self.rank_count]
            moved = self._move(table, np.setdiff1d(hot, self._hot[name]),
                               np.setdiff1d(self._hot[name], hot))
            self._hot[name] = np.union1d(np.intersect1d(hot, self._hot[name]), moved)
            self._tables[name].set_hot(self._hot[name])

    def _move(self, table, hotter, colder):
        """Copies the rows of the keys `hotter` to every rank, and erases the copies of `colder`.
        Returns the keys whose rows were copied: a key of `hotter` that still waits for admission
        has no row to copy."""
        shard = self.shards[table.name]
        rows = shard.read_rows(True)
        rows = _checkpoint.pick(rows, np.isin(rows["keys"], hotter) & self.owns(
            table, rows["keys"]), np.zeros(rows["pending_keys"].size, bool))
        parts = self._exchange.gather(rows)
        for rank, part in enumerate(parts):
            if rank != self.rank:
                shard.write_rows(part)
        shard.erase_rows(colder[~self.owns(table, colder)])
        return np.concatenate([part["keys"] for part in parts])


def _checksum(rates, scale):
    """Of what gradients are multiplied by. Ranks compare it."""
    return zlib.crc32(struct.pack(f"{len(rates) + 1}d", *rates, scale))
