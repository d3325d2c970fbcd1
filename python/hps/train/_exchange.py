"""How ranks exchange data: through the process group, or through shared memory. In each exchange
of a step, every rank has one piece of data for every rank.

    exchange.begin(call, is_training)              # the call that the next pieces belong to
    with exchange.telling():                       # an error in here fails the swap on all ranks
        addresses = exchange.room(KEYS, counts)    # memory for the pieces, one for each rank
        ...                                        # the engine writes the pieces
    addresses, counts = exchange.swap(KEYS)        # the pieces for this rank, one from each rank

These pieces are valid until the next call of `room` with the same kind. The piece of a rank for
itself is not copied.

A swap compares what the ranks exchange: the kind of the pieces, the call that they belong to, and a
checksum of the factors that gradients are multiplied by. If one rank has left out a call that the
others make, or has another learning rate, the next swap raises an error on all of them.
"""

import contextlib
import itertools
import mmap
import os
import secrets
import select
import time

import numpy as np
import torch
import torch.distributed as dist

from hps._hps import train as _engine

KEYS, ROWS, GRADIENTS, MEETING, FAILURE, FILES = range(6)
_NAMES = ("keys", "rows", "gradients", "a meeting", "a failure", "a save, load or export")
_DTYPES = (torch.int64, torch.float32, torch.float32)
_ITEM_BYTES = (8, 4, 4)
_LINE_BYTES = 64
_GROWTH_BYTES = 2 << 20
_TOKEN_BYTES = 16
_HEAD = 6              # integers in a head
_WORD_BYTES = 64       # of the counter of swaps, which lies before the heads
_LOOK_SECONDS = 0.05   # how often a waiting rank looks whether the others are alive


def make_exchange(group, share_memory: bool, settings: list[str]):
    """Shared memory if all ranks are on one machine and may open each other's, else the group.
    Raises ValueError if the group has no backend for tensors of the CPU, and on all ranks if their
    settings differ."""
    _backend_of(group)
    exchange = GroupExchange(group)
    _compare(exchange.gather(settings))
    if share_memory:
        shared = SharedExchange.connect(exchange)
        if shared is not None:
            return shared
    return exchange


def _compare(settings):
    """Raises ValueError if the lists of the ranks differ."""
    for rank, other in enumerate(settings):
        for own, expected in itertools.zip_longest(other, settings[0], fillvalue="nothing"):
            if own != expected:
                raise ValueError(f"rank {rank} has {own} where rank 0 has {expected}; all ranks "
                                 "must make a collection with the same arguments")


class _Exchange:
    """What both kinds of exchange have in common. A subclass has `meet(kind)`, which tells the
    other ranks what this rank is at, and returns what every rank told: (kind, turn, factors, ...).
    `factors` is a checksum of the numbers that gradients are multiplied by."""

    rank = rank_count = 0
    _turn = 0  # of the call, and whether it trains

    def begin(self, call, is_training):
        """The pieces that follow belong to this call of forward."""
        self._turn = 2 * call + is_training

    @contextlib.contextmanager
    def telling(self):
        """An error in here is told to the other ranks, so that their next swap fails at once."""
        try:
            yield
        except Exception:
            self.refuse()
            raise

    def refuse(self):
        """Fails the next swap of the other ranks."""
        with contextlib.suppress(RuntimeError):  # the error of this rank is the one to show
            self.meet(FAILURE)

    def settle(self, kind):
        """Called before room(kind). Waits until no rank reads the earlier pieces of this kind."""

    def check(self, kind, told, factors=0):
        """Raises if a rank is at another exchange than this rank."""
        if all(head[:3] == [kind, self._turn, factors] for head in told):
            return
        failed = [rank for rank, head in enumerate(told) if head[0] == FAILURE]
        if failed and kind in (KEYS, MEETING) and told[failed[0]][1] == self._turn:
            raise ValueError(f"rank {failed[0]} could not begin this step, and its own error says "
                             "why; no rank has made the step")
        if failed:
            raise RuntimeError(f"rank {failed[0]} failed in a step, and its own error says why; "
                               "start all ranks again from the last checkpoint")
        if all(head[:2] == [kind, self._turn] for head in told):
            raise RuntimeError("the ranks have different learning rates, scales of their "
                               "GradScaler or factors of clipping, and no row has changed; start "
                               "all ranks again from the last checkpoint")
        raise RuntimeError("; ".join(
            f"rank {rank} is at {_describe(*head[:2])}" for rank, head in enumerate(told))
            + ": all ranks must call forward and backward in the same order, and leave out none; "
            "start all ranks again from the last checkpoint")


def _describe(kind, turn):
    relation = "after" if kind == FILES else "of"
    call = f"{'training' if turn % 2 else 'evaluation'} call {turn // 2}"
    return f"{_NAMES[kind]} {relation} {call}"


class GroupExchange(_Exchange):
    """All-to-all calls of torch.distributed carry the pieces."""

    is_shared = False

    def __init__(self, group):
        self.group = group
        self.rank = dist.get_rank(group)
        self.rank_count = dist.get_world_size(group)
        self._sent = [None] * 3      # (tensor, counts) by kind
        # To send and to receive, by kind: used again, because new memory is slow at first use.
        self._buffers = [[torch.empty(0, dtype=dtype, device="cpu") for _ in range(2)]
                         for dtype in _DTYPES]

    def room(self, kind, counts):
        """The rank's piece for itself comes last: the others then are one array, as an all-to-all
        call takes it."""
        tensor = self._memory(kind, 0, sum(counts))
        others = [0 if rank == self.rank else count for rank, count in enumerate(counts)]
        self._sent[kind] = tensor, counts, others
        starts = np.concatenate([[0], np.cumsum(others)])
        starts[self.rank] = sum(others)
        return [tensor.data_ptr() + _ITEM_BYTES[kind] * int(start)
                for start in starts[:self.rank_count]]

    def _memory(self, kind, direction, size):
        if self._buffers[kind][direction].numel() < size:
            self._buffers[kind][direction] = torch.empty(size * 5 // 4, dtype=_DTYPES[kind],
                                                         device="cpu")
        return self._buffers[kind][direction][:size]

    def swap(self, kind, factors=0):
        tensor, counts, others = self._sent[kind]
        told = self.meet(kind, factors, counts)
        self.check(kind, told, factors)
        received = [head[3] for head in told]
        pieces = [0 if rank == self.rank else count for rank, count in enumerate(received)]
        target = self._memory(kind, 1, sum(pieces))
        with self.guarded(_NAMES[kind]):
            dist.all_to_all_single(target, tensor[:sum(others)], pieces, others, group=self.group)
        starts = np.concatenate([[0], np.cumsum(pieces)])
        addresses = [target.data_ptr() + _ITEM_BYTES[kind] * int(start)
                     for start in starts[:self.rank_count]]
        addresses[self.rank] = tensor.data_ptr() + _ITEM_BYTES[kind] * sum(others)
        return addresses, received

    def meet(self, kind, factors=0, counts=None):
        counts = counts or [0] * self.rank_count
        sent = torch.tensor([[kind, self._turn, factors, count] for count in counts],
                            dtype=torch.int64, device="cpu")
        told = torch.empty_like(sent)
        with self.guarded(_NAMES[kind]):
            dist.all_to_all_single(told, sent, group=self.group)
        return told.tolist()

    def barrier(self):
        with self.guarded("a barrier"):
            dist.barrier(group=self.group)

    def add_up(self, values):
        """The sums of the ranks' numbers."""
        total = torch.tensor(values, dtype=torch.float64, device="cpu")
        with self.guarded("sums"):
            dist.all_reduce(total, group=self.group)
        return total.tolist()

    def gather(self, value):
        """The values of all ranks. Slow, for small values or rare calls."""
        gathered = [None] * self.rank_count
        with self.guarded("state"):
            dist.all_gather_object(gathered, value, group=self.group)
        return gathered

    def send(self, value, sender, receiver):
        """Returns the sender's value on the receiver, and None on the other ranks."""
        values = [None] * self.rank_count if self.rank == receiver else None
        with self.guarded("state"):
            dist.gather_object(value if self.rank == sender else None, values,
                               dist.get_global_rank(self._group(), receiver), group=self.group)
        return values[sender] if values else None

    def _group(self):
        return self.group if self.group is not None else dist.group.WORLD

    @contextlib.contextmanager
    def guarded(self, what):
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {self.rank} of {self.rank_count}: the exchange of {what} failed, because "
                "another rank has ended, hangs or makes another step; start all ranks again from "
                f"the last checkpoint ({error})") from error


class _Segment:
    """Memory of this process that other processes can open. It has no name in a file system, so
    nothing is left behind after a crash."""

    def __init__(self):
        self.descriptor = os.memfd_create("hps_train")
        self.bytes = 0
        self.address = 0
        self.memory = None

    def reserve(self, size):
        if size > self.bytes:
            self.bytes = -(-max(size, 2 * self.bytes) // _GROWTH_BYTES) * _GROWTH_BYTES
            os.ftruncate(self.descriptor, self.bytes)
            self.memory = np.frombuffer(mmap.mmap(self.descriptor, self.bytes), np.uint8)
            self.address = self.memory.ctypes.data

    def __del__(self):
        os.close(self.descriptor)


class _PeerSegment:
    """Another rank's segment."""

    def __init__(self, process, descriptor):
        self.descriptor = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDONLY)
        self.bytes = 0
        self.address = 0
        self.memory = None

    def reach(self, size):
        if size > self.bytes:
            self.bytes = size
            self.memory = np.frombuffer(
                mmap.mmap(self.descriptor, size, prot=mmap.PROT_READ), np.uint8)
            self.address = self.memory.ctypes.data

    def __del__(self):
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class _Peer:
    """Another rank's process and its segments: one for each kind of piece, and the heads."""

    def __init__(self, process, descriptors, token):
        self.process = os.pidfd_open(process)
        self.segments = [_PeerSegment(process, descriptor) for descriptor in descriptors]
        if any(os.pread(s.descriptor, _TOKEN_BYTES, 0) != token for s in self.segments):
            raise OSError("another machine has a process of this number")

    def has_ended(self):
        poll = select.poll()
        poll.register(self.process, select.POLLIN)
        return bool(poll.poll(0))

    def __del__(self):
        if hasattr(self, "process"):
            os.close(self.process)


class SharedExchange(_Exchange):
    """A rank reads pieces in the memory of the rank that wrote them.

    Each rank has a segment of heads. It begins with a counter of the rank's swaps. Then follows one
    head for each rank: [kind, turn, factors, count, start, bytes of the segment], which says what
    this rank is at and where its piece for that rank is. There are two sets of heads, used in
    turns, because a rank can be one swap ahead of another.

    No rank writes a piece over one that another rank may still read, because ranks read keys before
    the swap of rows, rows before the next swap of keys, and gradients before the next swap of any
    kind.
    """

    is_shared = True

    def __init__(self, exchange, segments, peers):
        self._group = exchange
        self.rank, self.rank_count = exchange.rank, exchange.rank_count
        self.barrier, self.gather, self.send = exchange.barrier, exchange.gather, exchange.send
        self.add_up = exchange.add_up
        self._segments, self._peers = segments[:3], peers
        self._sent = [None] * 3
        self._last = None
        self._swaps = 0
        self._timeout = _timeout_of(exchange.group)
        # Both sets of heads, of each rank: [2, rank_count, _HEAD].
        self._word = segments[3].address
        self._heads = _heads_of(segments[3], self.rank_count)
        self._peer_heads = {rank: _heads_of(peer.segments[3], self.rank_count)
                            for rank, peer in peers.items()}

    @classmethod
    def connect(cls, exchange):
        """Returns None if a rank cannot open the memory of another rank."""
        token = secrets.token_bytes(_TOKEN_BYTES)
        segments = [_Segment() for _ in range(4)]
        for segment in segments:
            os.write(segment.descriptor, token)
        segments[3].reserve(_heads_bytes(exchange.rank_count))
        infos = exchange.gather((os.getpid(), [s.descriptor for s in segments], token))
        peers = {}
        try:
            for rank, info in enumerate(infos):
                if rank != exchange.rank:
                    peers[rank] = _Peer(*info)
                    peers[rank].segments[3].reach(_heads_bytes(exchange.rank_count))
            is_connected = True
        except OSError:
            is_connected = False
        if not all(exchange.gather(is_connected)):
            return None
        # The token has done its work; the counter takes its place.
        segments[3].memory[:_WORD_BYTES] = 0
        exchange.barrier()
        return cls(exchange, segments, peers)

    def settle(self, kind):
        if kind == GRADIENTS and self._last == GRADIENTS:
            # Two backward calls without a forward call between them.
            self.check(MEETING, self.meet(MEETING))

    def room(self, kind, counts):
        starts, end = [], 0
        for count in counts:
            starts.append(end)
            end += -(-count * _ITEM_BYTES[kind] // _LINE_BYTES) * _LINE_BYTES
        self._segments[kind].reserve(max(end, 1))
        self._sent[kind] = starts, counts
        return [self._segments[kind].address + start for start in starts]

    def swap(self, kind, factors=0):
        starts, counts = self._sent[kind]
        own = self._segments[kind]
        told = self.meet(kind, factors, counts, starts, own.bytes)
        self.check(kind, told, factors)
        addresses, sizes = [], []
        for rank, (_, _, _, count, start, size) in enumerate(told):
            segment = own if rank == self.rank else self._peers[rank].segments[kind]
            if rank != self.rank:
                segment.reach(size)
            addresses.append(segment.address + start)
            sizes.append(count)
        return addresses, sizes

    def meet(self, kind, factors=0, counts=0, starts=0, size=0):
        self._last = kind
        self._swaps += 1
        heads = self._heads[self._swaps % 2]
        for at, value in enumerate((kind, self._turn, factors, counts, starts, size)):
            heads[:, at] = value
        _engine.raise_word(self._word, self._swaps % 2**32)
        # All are waited for, also if one is at something else: the heads before may be in use.
        for rank in self._peers:
            self._wait_for(rank, kind)
        told = {rank: peer[self._swaps % 2][self.rank].tolist()
                for rank, peer in self._peer_heads.items()}
        told[self.rank] = heads[self.rank].tolist()
        return [told[rank] for rank in range(self.rank_count)]

    def _wait_for(self, rank, kind):
        word, swap = self._peers[rank].segments[3].address, self._swaps % 2**32
        began = None
        while not _engine.wait_for_word(word, swap, _LOOK_SECONDS):
            began = began or time.monotonic() - _LOOK_SECONDS
            with self._group.guarded(_NAMES[kind]):
                if self._peers[rank].has_ended() and not _engine.wait_for_word(word, swap, 0):
                    raise RuntimeError(f"rank {rank} has ended")
                if time.monotonic() - began > self._timeout:
                    raise RuntimeError(f"rank {rank} has not come within {self._timeout} s")


def _backend_of(group):
    """The group's backend for tensors of the CPU. Raises ValueError if it has none."""
    group = group if group is not None else dist.group.WORLD
    try:
        return group._get_backend(torch.device("cpu"))
    except RuntimeError as error:
        raise ValueError(
            "the process group exchanges no tensors of the CPU, where hps.train has its rows; use "
            'init_process_group("cpu:gloo,cuda:nccl"), or give the collection a group of its own: '
            'process_group=torch.distributed.new_group(backend="gloo")') from error


def _timeout_of(group):
    """The time-out of the group in seconds."""
    options = getattr(_backend_of(group), "options", None)
    timeout = getattr(options, "_timeout", dist.constants.default_pg_timeout)
    return timeout.total_seconds()


def _heads_bytes(rank_count):
    return _WORD_BYTES + 2 * rank_count * _HEAD * 8


def _heads_of(segment, rank_count):
    heads = segment.memory[_WORD_BYTES:_heads_bytes(rank_count)]
    return heads.view(np.int64).reshape(2, rank_count, _HEAD)
