"""How ranks exchange the pieces of a step: through the process group, or through shared memory.

    addresses = exchange.room(KEYS, counts)        # memory for the piece of every rank
    ...                                            # the engine writes the pieces
    addresses, counts = exchange.swap(KEYS)        # where the piece of every rank for this one lies

What lies there is valid until the next room of the same kind. The piece of a rank for itself stays
where it is.
"""

import contextlib
import mmap
import os
import secrets

import numpy as np
import torch
import torch.distributed as dist

KEYS, ROWS, GRADIENTS = range(3)
_NAMES = ("keys", "rows", "gradients")
_DTYPES = (torch.int64, torch.float32, torch.float32)
_ITEM_BYTES = (8, 4, 4)
_LINE_BYTES = 64
_GROWTH_BYTES = 2 << 20
_TOKEN_BYTES = 16


def make_exchange(group, share_memory: bool):
    """Shared memory if all ranks are on one machine and may open each other's, else the group."""
    exchange = GroupExchange(group)
    if share_memory:
        shared = SharedExchange.connect(exchange)
        if shared is not None:
            return shared
    return exchange


class GroupExchange:
    """All-to-all calls of torch.distributed carry the pieces."""

    is_shared = False

    def __init__(self, group):
        self.group = group
        self.rank = dist.get_rank(group)
        self.rank_count = dist.get_world_size(group)
        self._sent = [None] * 3      # (tensor, counts) by kind
        # To send and to receive, by kind: used again, because new memory is slow at first use.
        self._buffers = [[torch.empty(0, dtype=dtype) for _ in range(2)] for dtype in _DTYPES]

    def room(self, kind, counts):
        """The own piece is the last, so that the others are what an all-to-all call takes."""
        tensor = self._memory(kind, 0, sum(counts))
        others = [0 if rank == self.rank else count for rank, count in enumerate(counts)]
        self._sent[kind] = tensor, counts, others
        starts = np.concatenate([[0], np.cumsum(others)])
        starts[self.rank] = sum(others)
        return [tensor.data_ptr() + _ITEM_BYTES[kind] * int(start)
                for start in starts[:self.rank_count]]

    def _memory(self, kind, direction, size):
        if self._buffers[kind][direction].numel() < size:
            self._buffers[kind][direction] = torch.empty(size * 5 // 4, dtype=_DTYPES[kind])
        return self._buffers[kind][direction][:size]

    def swap(self, kind, received=None):
        """`received`: how much comes from each rank; None: not known."""
        tensor, counts, others = self._sent[kind]
        if received is None:
            received = self.integers(_NAMES[kind], counts)
        pieces = [0 if rank == self.rank else count for rank, count in enumerate(received)]
        target = self._memory(kind, 1, sum(pieces))
        with self.guarded(_NAMES[kind]):
            dist.all_to_all_single(target, tensor[:sum(others)], pieces, others, group=self.group)
        starts = np.concatenate([[0], np.cumsum(pieces)])
        addresses = [target.data_ptr() + _ITEM_BYTES[kind] * int(start)
                     for start in starts[:self.rank_count]]
        addresses[self.rank] = tensor.data_ptr() + _ITEM_BYTES[kind] * sum(others)
        return addresses, received

    def integers(self, what, sent):
        """One integer, or one row of them, to each rank and from each."""
        sent = torch.tensor(sent, dtype=torch.int64)
        received = torch.empty_like(sent)
        with self.guarded(what):
            dist.all_to_all_single(received, sent, group=self.group)
        return received.tolist()

    def barrier(self):
        with self.guarded("a barrier"):
            dist.barrier(group=self.group)

    def gather(self, value):
        """The values of all ranks, small or rare ones."""
        gathered = [None] * self.rank_count
        with self.guarded("state"):
            dist.all_gather_object(gathered, value, group=self.group)
        return gathered

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
    """Memory of this process that other processes can open, without a name that could stay."""

    def __init__(self, kind):
        self.descriptor = os.memfd_create(f"hps_train_{_NAMES[kind]}")
        self.bytes = 0
        self.address = 0
        self._memory = None

    def reserve(self, size):
        if size > self.bytes:
            self.bytes = -(-max(size, 2 * self.bytes) // _GROWTH_BYTES) * _GROWTH_BYTES
            os.ftruncate(self.descriptor, self.bytes)
            self._memory = np.frombuffer(mmap.mmap(self.descriptor, self.bytes), np.uint8)
            self.address = self._memory.ctypes.data

    def __del__(self):
        os.close(self.descriptor)


class _PeerSegment:
    """Another rank's segment."""

    def __init__(self, process, descriptor):
        self.descriptor = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDONLY)
        self.bytes = 0
        self.address = 0
        self._memory = None

    def reach(self, size):
        if size > self.bytes:
            self.bytes = size
            self._memory = np.frombuffer(
                mmap.mmap(self.descriptor, size, prot=mmap.PROT_READ), np.uint8)
            self.address = self._memory.ctypes.data

    def __del__(self):
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class SharedExchange:
    """Pieces are read where the rank that made them wrote them; the group says that they are there.

    Nobody writes a segment that another rank may still read: keys are read before the swap of rows,
    rows before the next swap of keys, and gradients before the next swap of anything.
    """

    is_shared = True

    def __init__(self, exchange, segments, peers):
        self._group = exchange
        self.rank, self.rank_count = exchange.rank, exchange.rank_count
        self.barrier, self.gather = exchange.barrier, exchange.gather
        self._segments, self._peers = segments, peers
        self._sent = [None] * 3
        self._last = None

    @classmethod
    def connect(cls, exchange):
        """None if a rank cannot open another's memory."""
        token = secrets.token_bytes(_TOKEN_BYTES)
        segments = [_Segment(kind) for kind in range(3)]
        for segment in segments:
            os.write(segment.descriptor, token)
        infos = exchange.gather((os.getpid(), [s.descriptor for s in segments], token))
        peers = {}
        try:
            for rank, (process, descriptors, token) in enumerate(infos):
                if rank != exchange.rank:
                    peers[rank] = [_PeerSegment(process, d) for d in descriptors]
                    if any(os.pread(p.descriptor, _TOKEN_BYTES, 0) != token for p in peers[rank]):
                        raise OSError("another machine's process")
            is_connected = True
        except OSError:
            is_connected = False
        # Also tells that all have opened what they need.
        if not all(exchange.gather(is_connected)):
            return None
        return cls(exchange, segments, peers)

    def room(self, kind, counts):
        if kind == GRADIENTS and self._last == GRADIENTS:
            self.barrier()  # two backward calls without a forward call between them
        starts, end = [], 0
        for count in counts:
            starts.append(end)
            end += -(-count * _ITEM_BYTES[kind] // _LINE_BYTES) * _LINE_BYTES
        self._segments[kind].reserve(max(end, 1))
        self._sent[kind] = starts, counts
        return [self._segments[kind].address + start for start in starts]

    def swap(self, kind, received=None):
        starts, counts = self._sent[kind]
        size = self._segments[kind].bytes
        heads = self._group.integers(
            _NAMES[kind], [[start, count, size] for start, count in zip(starts, counts)])
        self._last = kind
        addresses = []
        for rank, (start, _, size) in enumerate(heads):
            if rank == self.rank:
                addresses.append(self._segments[kind].address + start)
                continue
            peer = self._peers[rank][kind]
            peer.reach(size)
            addresses.append(peer.address + start)
        return addresses, [count for _, count, _ in heads]
