"""The ranks of a process group: which of them has a row, and what they exchange in a step.

Unless a table is localized, a row is owned by the rank that a hash of its key names. Hot rows are
held by every rank: of a "replicated" table all, of a "distributed" one none, of "hybrid" and "auto"
tables those that were measured as hot (none of a bounded table: its ranks drop rows on their own).
In a step every rank sends each of its different keys once:
a hot key to all ranks, another to its owner. So all ranks that hold a row see the same keys and
gradients in the same order, the order of ranks, and copies of a hot row stay equal bit for bit. An
owner sends the rows of cold keys back; hot rows are read at home. Bags are pooled at home.

The keys of a localized table travel to its rank with their bags, and pooled rows come back, so that
its sums have the order of one process.

Exchanges are all-to-all calls of torch.distributed, three in a step: sizes, keys, rows; and in
backward one of gradients.
"""

import dataclasses

import numpy as np
import torch
import torch.distributed as dist

from hps._hps import train as _engine
from hps.train import _checkpoint
from hps.train._batch import Batch
from hps.train._local import LocalTables

_HOT_SHARE = 0.5  # a key is hot if at least half of the ranks' batches have it


def _int64(array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.int64))


class _Exchange:
    """All-to-all of flat arrays."""

    def __init__(self, group):
        self.group = group
        self.rank_count = dist.get_world_size(group)

    def sizes(self, sent: list[int]) -> list[int]:
        received = torch.empty(self.rank_count, dtype=torch.int64)
        dist.all_to_all_single(received, torch.tensor(sent, dtype=torch.int64), group=self.group)
        return received.tolist()

    def arrays(self, pieces: list[torch.Tensor], received: list[int]) -> list[torch.Tensor]:
        """pieces[r] goes to rank r; received[r] elements come from it."""
        sent = [piece.numel() for piece in pieces]
        target = torch.empty(sum(received), dtype=pieces[0].dtype)
        dist.all_to_all_single(target, torch.cat(pieces), received, sent, group=self.group)
        return list(target.split(received))


class _KeyedPart:
    """One table's part of a step, for tables whose rows are owned by key.

    Sent to rank r: [number of hot keys, number of cold keys, hot keys, cold keys of r].
    """

    def __init__(self, tables, batch: Batch):
        self.batch, self.table, self.tables = batch, batch.table, tables
        keys, self.places = _engine.unique(batch.keys.numpy())
        self.keys = keys
        self.received = []
        hot = tables.is_hot(self.table, keys)
        self.hot = np.flatnonzero(hot)
        owners = _engine.owners(keys, tables.rank_count)
        cold = np.flatnonzero(~hot)
        cold = cold[np.argsort(owners[cold], kind="stable")]
        bounds = np.searchsorted(owners[cold], np.arange(tables.rank_count + 1))
        self.cold = [cold[bounds[r]:bounds[r + 1]] for r in range(tables.rank_count)]
        self.rows = keys.size

    def message(self, rank):
        cold = self.cold[rank]
        return np.concatenate([[self.hot.size, cold.size], self.keys[self.hot], self.keys[cold]])

    def take(self, message):
        """Reads this part from the front of a rank's message; returns the rest."""
        hot, cold = int(message[0]), int(message[1])
        self.received.append((hot, cold, message[2:2 + hot + cold]))
        return message[2 + hot + cold:]

    def owner_batch(self) -> Batch:
        keys = torch.cat([keys for _, _, keys in self.received])
        table = self.tables.row_tables[self.table.name]
        return Batch(table, keys, None, None, (keys.numel(), table.dim))

    def split_rows(self, rows):
        """From the rows of all received keys: what goes back to each rank."""
        pieces, at = [], 0
        for rank, (hot, cold, _) in enumerate(self.received):
            if rank == self.tables.rank:
                self.hot_rows = rows[at:at + hot]
            pieces.append(rows[at + hot:at + hot + cold].reshape(-1))
            at += hot + cold
        return pieces

    def rows_from(self, rank):
        """How many values come back from a rank."""
        return self.cold[rank].size * self.table.dim

    def output(self, pieces):
        rows = torch.empty(self.rows, self.table.dim)
        rows[self.hot] = self.hot_rows
        for cold, piece in zip(self.cold, pieces):
            rows[cold] = piece.view(-1, self.table.dim)
        return rows

    def gradients_to(self, rank, gradient):
        return torch.cat([gradient[self.hot], gradient[self.cold[rank]]]).reshape(-1)

    def gradients_from(self, rank):
        hot, cold, _ = self.received[rank]
        return (hot + cold) * self.table.dim

    def pool(self, rows):
        """The batch's output from the rows of its different keys, in autograd."""
        places = torch.from_numpy(self.places)
        batch = self.batch
        if self.table.pooling == "none":
            return rows[places]
        offsets = batch.offsets
        if offsets is None:
            offsets = torch.arange(places.numel() + 1)
        return torch.nn.functional.embedding_bag(
            places, rows, offsets, mode=self.table.pooling, per_sample_weights=batch.weights,
            include_last_offset=True)


class _LocalizedPart:
    """One localized table's part of a step.

    Sent to the table's rank: [number of keys, number of offsets, 1 if weighted, keys, offsets,
    weights' bits].
    """

    def __init__(self, tables, batch: Batch):
        self.batch, self.table, self.tables = batch, batch.table, tables
        self.owner = tables.owner_of_table(self.table)
        self.rows = batch.rows
        self.received = []

    def message(self, rank):
        if rank != self.owner:
            return np.empty(0, np.int64)
        batch, offsets, weights = self.batch, np.empty(0, np.int64), np.empty(0, np.int64)
        if batch.offsets is not None:
            offsets = batch.offsets.numpy()
        if batch.weights is not None:
            weights = batch.weights.numpy().view(np.int32).astype(np.int64)
        return np.concatenate([[batch.keys.numel(), offsets.size, weights.size],
                               batch.keys.numpy(), offsets, weights])

    def take(self, message):
        if self.tables.rank != self.owner:
            self.received.append((0, None, None, None))
            return message
        sizes = [int(size) for size in message[:3]]
        keys, offsets, weights = message[3:3 + sum(sizes)].split(sizes)
        rows = keys.numel()
        if sizes[1] and self.table.pooling != "none":
            rows = sizes[1] - 1
        self.received.append((rows, keys, offsets, weights))
        return message[3 + sum(sizes):]

    def owner_batch(self):
        if self.tables.rank != self.owner:
            return None
        keys = torch.cat([part[1] for part in self.received])
        offsets, weights, start = None, None, 0
        if any(part[2].numel() for part in self.received):
            shifted = [torch.zeros(1, dtype=torch.int64)]
            for _, part_keys, part_offsets, _ in self.received:
                shifted.append(part_offsets[1:] + start)
                start += part_keys.numel()
            offsets = torch.cat(shifted)
        if any(part[3].numel() for part in self.received):
            weights = torch.cat([part[3] for part in self.received]).to(torch.int32).view(
                torch.float32)
        rows = sum(part[0] for part in self.received)
        return Batch(self.table, keys, offsets, weights, (rows, self.table.dim))

    def split_rows(self, rows):
        return [piece.reshape(-1) for piece in rows.split([part[0] for part in self.received])]

    def rows_from(self, rank):
        return self.rows * self.table.dim if rank == self.owner else 0

    def output(self, pieces):
        return pieces[self.owner].view(-1, self.table.dim)

    def gradients_to(self, rank, gradient):
        return gradient.reshape(-1) if rank == self.owner else torch.empty(0)

    def gradients_from(self, rank):
        return self.received[rank][0] * self.table.dim

    def pool(self, rows):
        """Rows are pooled already."""
        return rows


class RankedTables:
    """As LocalTables, for the ranks of a process group together."""

    def __init__(self, tables, group, hot_steps):
        self._exchange = _Exchange(group)
        self._group = group
        self.rank = dist.get_rank(group)
        self.rank_count = self._exchange.rank_count
        self._local = LocalTables(tables)
        self.shards = self._local.shards
        # An owner answers a row for every key; the optimizer is the table's own.
        self.row_tables = {}
        for table in tables:
            row_table = dataclasses.replace(table, pooling="none")
            row_table.optimizer = table.optimizer
            self.row_tables[table.name] = row_table
        self._owner_of_table = {
            table.name: i % self.rank_count
            for i, table in enumerate(t for t in tables if t.placement == "localized")}
        self._hot = {table.name: np.empty(0, np.int64) for table in tables}
        self._balanced = {table.name: table for table in tables
                          if table.placement in ("auto", "hybrid") and not table.rows_max}
        self._counted = {name: [] for name in self._balanced}
        self._hot_steps, self._steps_left = hot_steps, hot_steps if self._balanced else 0

    def owner_of_table(self, table) -> int:
        return self._owner_of_table[table.name]

    def owns(self, table, keys):
        """Which keys' rows this rank exports and saves."""
        if table.placement == "localized":
            return np.full(keys.size, self.owner_of_table(table) == self.rank)
        return _engine.owners(keys, self.rank_count) == self.rank

    def loads(self, table, keys):
        """Which keys' rows this rank reads from a checkpoint; hot rows are chosen anew."""
        return None if table.placement == "replicated" else self.owns(table, keys)

    def is_hot(self, table, keys):
        if table.placement == "replicated":
            return np.ones(keys.size, bool)
        hot = self._hot[table.name]
        if not hot.size:
            return np.zeros(keys.size, bool)
        at = np.minimum(np.searchsorted(hot, keys), hot.size - 1)
        return hot[at] == keys

    def _count(self, parts):
        for part in parts:
            if part.table.name in self._counted:
                self._counted[part.table.name].append(part.keys)

    def barrier(self):
        dist.barrier(group=self._group)

    def _parts(self, batches):
        return [_LocalizedPart(self, batch) if batch.table.placement == "localized"
                else _KeyedPart(self, batch) for batch in batches]

    def _look_up(self, parts, training):
        """The outputs of the parts, and the owner's work for backward."""
        exchange, ranks = self._exchange, range(self.rank_count)
        messages = [_int64(np.concatenate([part.message(rank) for part in parts]))
                    for rank in ranks]
        sizes = exchange.sizes([message.numel() for message in messages])
        for message in exchange.arrays(messages, sizes):
            for part in parts:
                message = part.take(message)
        batches = [part.owner_batch() for part in parts]
        held = [i for i, batch in enumerate(batches) if batch is not None]
        rows, work = self._local.forward([batches[i] for i in held], training)
        pieces = [[] for _ in ranks]
        for i, part_rows in zip(held, rows):
            for rank, piece in enumerate(parts[i].split_rows(part_rows)):
                pieces[rank].append(piece)
        sizes = [[part.rows_from(rank) for part in parts] for rank in ranks]
        received = exchange.arrays([torch.cat(p) if p else torch.empty(0) for p in pieces],
                                   [sum(s) for s in sizes])
        by_rank = [values.split(s) for values, s in zip(received, sizes)]
        outputs = [part.output([by_rank[rank][i] for rank in ranks])
                   for i, part in enumerate(parts)]
        return outputs, (parts, held, work)

    def forward(self, batches, training: bool = True):
        parts = self._parts(batches)
        if training and self._steps_left:
            self._count(parts)
        outputs, work = self._look_up(parts, training)
        self._last_parts = parts
        return outputs, work

    def pool(self, batches, rows):
        parts, self._last_parts = self._last_parts, None
        return [part.pool(part_rows) for part, part_rows in zip(parts, rows)]

    def evaluate(self, batches):
        outputs, _ = self.forward(batches, training=False)
        return self.pool(batches, outputs)

    def backward(self, work, gradients, scale: float) -> bool:
        parts, held, local_work = work
        ranks = range(self.rank_count)
        gradients = [torch.zeros(part.rows, part.table.dim) if gradient is None
                     else gradient.detach().to(torch.float32)
                     for part, gradient in zip(parts, gradients)]
        pieces = [torch.cat([part.gradients_to(rank, gradient)
                             for part, gradient in zip(parts, gradients)]) for rank in ranks]
        sizes = [[parts[i].gradients_from(rank) for i in held] for rank in ranks]
        received = self._exchange.arrays(pieces, [sum(s) for s in sizes])
        # All ranks leave the step out, or none.
        finite = torch.tensor([all(bool(torch.isfinite(r).all()) for r in received)],
                              dtype=torch.int32)
        dist.all_reduce(finite, dist.ReduceOp.MIN, group=self._group)
        if not finite.item():
            return False
        by_rank = [values.split(s) for values, s in zip(received, sizes)]
        owned = [torch.cat([by_rank[rank][at] for rank in ranks]).view(-1, parts[i].table.dim)
                 for at, i in enumerate(held)]
        return self._local.backward(local_work, owned, scale / self.rank_count)

    def finish_step(self):
        if self._steps_left:
            self._steps_left -= 1
            if not self._steps_left:
                self.balance()

    def balance(self):
        """Chooses the hot rows anew from the counted steps. All ranks must call it."""
        for name, table in self._balanced.items():
            keys = np.concatenate(self._counted[name] or [np.empty(0, np.int64)])
            self._counted[name] = []
            keys, counts = np.unique(keys, return_counts=True)
            gathered = [None] * self.rank_count
            dist.all_gather_object(gathered, (keys, counts), group=self._group)
            keys, places = np.unique(np.concatenate([k for k, _ in gathered]),
                                     return_inverse=True)
            totals = np.bincount(places, np.concatenate([c for _, c in gathered]),
                                 minlength=keys.size)
            hot = keys[totals >= _HOT_SHARE * self._hot_steps * self.rank_count]
            self._move(table, np.setdiff1d(hot, self._hot[name]),
                       np.setdiff1d(self._hot[name], hot))
            self._hot[name] = hot

    def _move(self, table, hotter, colder):
        """Copies rows to every rank, and drops copies."""
        shard = self.shards[table.name]
        rows = shard.read_rows(True)
        rows = _checkpoint.pick(rows, np.isin(rows["keys"], hotter) & self.owns(
            table, rows["keys"]), np.zeros(rows["pending_keys"].size, bool))
        gathered = [None] * self.rank_count
        dist.all_gather_object(gathered, rows, group=self._group)
        for rank, part in enumerate(gathered):
            if rank != self.rank:
                shard.write_rows(part)
        shard.erase_rows(colder[~self.owns(table, colder)])
