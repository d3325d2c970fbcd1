"""PyTorch modules over a store: `Embedding` and `EmbeddingBag`, with the arguments of torch.nn, and
`EmbeddingBagCollection` for the `KeyedJaggedTensor` of torchrec.

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
from collections.abc import Mapping
from typing import Any

from hps._errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from hps._store import Store

try:
    import torch
except ImportError:
    raise ImportError("hps.torch needs PyTorch: pip install 'hps[torch]'") from None

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingBagCollection", "lookup"]

_MODES = ("sum", "mean", "max")

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


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise InvalidArgumentError(f"mode: expected 'sum', 'mean' or 'max', found {mode!r}")


def _dim(store: Store, table: str) -> int:
    """The dim of a table, with the arguments of a module checked."""
    if not isinstance(store, Store):
        raise TypeError(f"store: expected an hps.Store, found {type(store).__name__}")
    dims = _session(store, table).tables
    name = table.partition("/")[2]
    if name not in dims:
        raise NotFoundError(f"table: the store has no table '{table}'")
    return dims[name]


class _Table(torch.nn.Module):
    """What the two modules share."""

    def __init__(self, store: Store, table: str, padding_idx: int | None):
        super().__init__()
        self.embedding_dim = _dim(store, table)
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
        _check_mode(mode)
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


class EmbeddingBagCollection(torch.nn.Module):
    """As torchrec.EmbeddingBagCollection, with the rows of tables: pools each feature of a
    KeyedJaggedTensor. Needs torchrec.

    tables: the table of each feature, {"user_id": "dlrm/user", ...}, all of one model. Features may
        share a table.
    mode: "sum", "mean" or "max"; weights of the KeyedJaggedTensor need "sum".
    """

    def __init__(self, store: Store, tables: Mapping[str, str], *, mode: str = "sum"):
        super().__init__()
        try:
            from torchrec.sparse.jagged_tensor import KeyedTensor
        except ImportError:
            raise ImportError("hps.torch.EmbeddingBagCollection needs torchrec: pip install "
                              "torchrec") from None
        _check_mode(mode)
        if len({table.partition("/")[0] for table in tables.values()}) != 1:
            raise InvalidArgumentError("tables: expected tables of one model, 'model/table', found "
                                       f"{sorted(set(tables.values()))}")
        self.embedding_dims = {feature: _dim(store, table) for feature, table in tables.items()}
        self.tables = dict(tables)
        self.mode = mode
        self._store = store
        self._keyed_tensor = KeyedTensor

    @torch.compiler.disable
    def forward(self, features: Any) -> Any:
        """A KeyedTensor [batch, sum of the dims] with the features of `tables`, in that order, from
        one lookup. Other features of the KeyedJaggedTensor are ignored."""
        if len(set(features.stride_per_key())) > 1:
            raise InvalidArgumentError("features: expected as many bags of one feature as of each "
                                       f"other, found {features.stride_per_key()}")
        bags = {name: self._bags(features, name) for name in self.tables}
        rows = self._rows({name: keys for name, (keys, _, _) in bags.items()})
        pooled = [torch.nn.functional.embedding_bag(
            torch.arange(len(keys), device=keys.device), rows[name], offsets, mode=self.mode,
            per_sample_weights=weights, include_last_offset=True)
            for name, (keys, offsets, weights) in bags.items()]
        return self._keyed_tensor(keys=list(bags), length_per_key=[*self.embedding_dims.values()],
                                  values=torch.cat(pooled, dim=1))

    def _bags(self, features: Any, name: str) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """The keys of one feature, the offsets of its bags, which end with the number of keys, and
        the weights of its keys, or None."""
        try:
            number = features.keys().index(name)
        except ValueError:
            raise InvalidArgumentError(f"features: there is no feature {name!r}, only "
                                       f"{features.keys()}") from None
        batch = features.stride_per_key()
        begin = sum(batch[:number])
        offsets = features.offsets()[begin:begin + batch[number] + 1]
        span = slice(int(offsets[0]), int(offsets[-1]))
        weights = features.weights_or_none()
        return (features.values()[span], offsets - offsets[0],
                None if weights is None else weights[span])

    def _rows(self, keys: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The rows of the keys of each feature."""
        asked: dict[str, list[torch.Tensor]] = {}
        for name, values in keys.items():
            asked.setdefault(self.tables[name], []).append(values)
        session = _session(self._store, next(iter(asked)), next(iter(keys.values())))
        answer = session.lookup({table: torch.cat(parts) for table, parts in asked.items()})
        parts = {table: iter(rows.split([len(part) for part in asked[table]]))
                 for table, rows in answer.items()}
        return {name: next(parts[self.tables[name]]) for name in keys}

    def extra_repr(self) -> str:
        return f"{self.tables!r}, mode={self.mode!r}"
