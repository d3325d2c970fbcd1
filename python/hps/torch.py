"""PyTorch modules over a store: `Embedding` and `EmbeddingBag`, with the arguments of torch.nn.

    layer = hps.torch.Embedding(store, "dlrm/user")
    bag = hps.torch.EmbeddingBag(store, "dlrm/item", mode="sum")

Rows are float32, where the keys are: in host memory or on a GPU that the store has in level 1. They
have no gradient; per-sample weights get theirs. Keys are any 64-bit integers: a key that the table
lacks gets its default row. `torch.compile` and `torch.export` see the operator
`torch.ops.hps.lookup`; a program that was exported finds its store by the path, which must be open
in the process that runs it.
"""

from __future__ import annotations

import weakref
from typing import Any

from hps._errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from hps._store import Store

try:
    import torch
except ImportError:
    raise ImportError("hps.torch needs PyTorch: pip install 'hps[torch]'") from None

__all__ = ["Embedding", "EmbeddingBag", "lookup"]

# The open stores of modules, by path.
_stores: weakref.WeakValueDictionary[str, Store] = weakref.WeakValueDictionary()


@torch.library.custom_op("hps::lookup", mutates_args=())
def lookup(keys: torch.Tensor, store: str, table: str, dim: int) -> torch.Tensor:
    """Rows [.., dim] of `table` ("model/table") in the open store at the path `store`."""
    opened = _stores.get(store)
    if opened is None:
        raise FailedPreconditionError(f"store: no module of this process has '{store}' open; open "
                                      "it, and make an hps.torch.Embedding over it, first")
    rows = _session(opened, table, keys).lookup(table, keys.contiguous())
    if rows.shape[-1] != dim:
        raise FailedPreconditionError(f"table '{table}': expected the dim {dim}, found "
                                      f"{rows.shape[-1]}")
    return rows


@lookup.register_fake
def _(keys: torch.Tensor, store: str, table: str, dim: int) -> torch.Tensor:  # noqa: ARG001
    return keys.new_empty((*keys.shape, dim), dtype=torch.float32)


def _session(store: Store, table: str, keys: torch.Tensor | None = None) -> Any:
    """Of the table's model, for keys on a GPU one of that GPU."""
    device = keys.device.index if keys is not None and keys.is_cuda else None
    return store._shared_session(table.partition("/")[0], device)


class _Table(torch.nn.Module):
    """What the two modules share."""

    def __init__(self, store: Store, table: str, padding_idx: int | None):
        super().__init__()
        if not isinstance(store, Store):
            raise TypeError(f"store: expected an hps.Store, found {type(store).__name__}")
        dims = _session(store, table).tables
        name = table.partition("/")[2]
        if name not in dims:
            raise NotFoundError(f"table: the store has no table '{table}'")
        self.embedding_dim = dims[name]
        self.padding_idx = padding_idx
        self.table = table
        self._store = store
        self._path = store.path
        _stores[self._path] = store

    def _rows(self, keys: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return lookup(keys, self._path, self.table, self.embedding_dim)
        return _session(self._store, self.table, keys).lookup(self.table,
                                                              keys.contiguous())


class Embedding(_Table):
    """As torch.nn.Embedding, with the rows of a table. `padding_idx`: a key whose row is zeros."""

    def __init__(self, store: Store, table: str, *, padding_idx: int | None = None):
        super().__init__(store, table, padding_idx)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002, torch's name
        """Rows of the shape [*input.shape, embedding_dim]."""
        rows = self._rows(input)
        if self.padding_idx is None:
            return rows
        return rows.masked_fill((input == self.padding_idx).unsqueeze(-1), 0.0)

    def extra_repr(self) -> str:
        return f"{self.table!r}, embedding_dim={self.embedding_dim}"


class EmbeddingBag(_Table):
    """As torch.nn.EmbeddingBag, with the rows of a table.

    mode: "sum", "mean" or "max". include_last_offset, padding_idx: as in torch.nn; keys that are
    `padding_idx` do not count.
    """

    def __init__(self, store: Store, table: str, *, mode: str = "mean",
                 include_last_offset: bool = False, padding_idx: int | None = None):
        if mode not in ("sum", "mean", "max"):
            raise InvalidArgumentError(f"mode: expected 'sum', 'mean' or 'max', found {mode!r}")
        super().__init__(store, table, padding_idx)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input: torch.Tensor,  # noqa: A002, torch's name
                offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        """[bags, embedding_dim]: `input` is [bags, keys of each], or [keys] with the `offsets` at
        which its bags begin."""
        rows = self._rows(input).reshape(-1, self.embedding_dim)
        numbers = torch.arange(rows.shape[0], device=input.device).reshape(input.shape)
        padding = None
        if self.padding_idx is not None:
            padding = rows.shape[0]
            rows = torch.cat([rows, rows.new_zeros(1, self.embedding_dim)])
            numbers = torch.where(input == self.padding_idx, padding, numbers)
        return torch.nn.functional.embedding_bag(
            numbers, rows, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=padding)

    def extra_repr(self) -> str:
        return f"{self.table!r}, embedding_dim={self.embedding_dim}, mode={self.mode!r}"
