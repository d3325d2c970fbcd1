"""The keys of one table in one step, as the engine takes them."""

import dataclasses

import torch

from hps.train._table import POOLINGS, Table


_NARROW = (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint32)


@dataclasses.dataclass
class Batch:
    """Keys, and the offsets at which their bags begin. Without offsets, every key is a bag."""

    table: Table
    keys: torch.Tensor                   # int64 [n]
    offsets: torch.Tensor | None         # int64 [bags + 1]
    weights: torch.Tensor | None         # float32 [n]
    shape: tuple[int, ...]               # of the output

    @property
    def rows(self) -> int:
        if self.table.pooling == "none" or self.offsets is None:
            return self.keys.numel()
        return self.offsets.numel() - 1

    def arguments(self) -> tuple[int, ...]:
        """Addresses and sizes; this object keeps the memory alive."""
        offsets, weights = self.offsets, self.weights
        return (self.keys.data_ptr(), self.keys.numel(),
                offsets.data_ptr() if offsets is not None else 0,
                offsets.numel() if offsets is not None else 0,
                weights.data_ptr() if weights is not None else 0,
                weights.numel() if weights is not None else 0,
                POOLINGS[self.table.pooling])


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The values in memory as the engine reads it: without gaps, and not as their negatives."""
    return tensor.detach().contiguous().resolve_neg()


def _plain(table: Table, name: str, tensor, dtype) -> torch.Tensor:
    tensor = torch.as_tensor(tensor, device="cpu")
    if dtype == torch.int64 and tensor.dtype in _NARROW:
        tensor = tensor.to(torch.int64)
    if dtype == torch.int64 and tensor.dtype == torch.uint64:
        tensor = tensor.view(torch.int64)
    if tensor.dtype != dtype:
        raise TypeError(f"table {table.name!r}: {name} must be {dtype}, not {tensor.dtype}")
    return plain(tensor)


def make_batch(table: Table, value) -> Batch:
    """From keys [batch], keys [batch, k], (keys, offsets) or (keys, offsets, weights)."""
    parts = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(parts) <= 3:
        raise TypeError(f"table {table.name!r}: give keys, (keys, offsets) or "
                        "(keys, offsets, weights)")
    keys = _plain(table, "keys", parts[0], torch.int64)
    weights = None
    if len(parts) == 3:
        weights = _plain(table, "weights", parts[2], torch.float32).view(-1)
        if weights.numel() != keys.numel():
            raise ValueError(f"table {table.name!r}: {weights.numel()} weights for "
                             f"{keys.numel()} keys")
    if len(parts) > 1 and parts[1] is not None:
        offsets = _plain(table, "offsets", parts[1], torch.int64)
        if keys.dim() != 1 or offsets.dim() != 1 or offsets.numel() == 0:
            raise ValueError(f"table {table.name!r}: keys [n] and offsets [batch + 1] expected")
        rows = keys.numel() if table.pooling == "none" else offsets.numel() - 1
        return Batch(table, keys, offsets, weights, (rows, table.dim))
    if keys.dim() == 1:
        return Batch(table, keys, None, weights, (keys.numel(), table.dim))
    if keys.dim() != 2:
        raise ValueError(f"table {table.name!r}: keys must be [batch] or [batch, k], "
                         f"not {list(keys.shape)}")
    batch, k = keys.shape
    flat = keys.view(-1)
    if table.pooling == "none":
        return Batch(table, flat, None, weights, (batch, k, table.dim))
    offsets = torch.arange(batch + 1, dtype=torch.int64, device="cpu") * k
    return Batch(table, flat, offsets, weights, (batch, table.dim))
