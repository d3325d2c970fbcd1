"""PyTorch modules over a store: `Embedding` and `EmbeddingBag`, with the arguments of torch.nn,
`Embeddings` for several tables at once, and `EmbeddingBagCollection` for the `KeyedJaggedTensor` of
torchrec.

    layer = hps.torch.Embedding(store, "dlrm/user")
    bag = hps.torch.EmbeddingBag(store, "dlrm/item", mode="sum")

Rows are float32, where the keys are: in host memory or on a GPU that the store has in level 1. They
have no gradient; per-sample weights get theirs. Keys are any 64-bit integers: a key that the table
lacks gets its default row. `torch.compile` and `torch.export` see the operators
`torch.ops.hps.lookup` and `lookup_stacked`; a program that was exported finds its store by the
path, which must be open in the process that runs it. A pickle of a module names its store, and
reading it opens the store (`hps.Store`); a copy shares the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hps._arguments import text
from hps._arrays import plain_keys
from hps._errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from hps._store import Store

try:
    import torch
except ImportError:
    raise ImportError("hps.torch needs PyTorch: pip install 'hps[torch]'") from None
try:
    from hps import _torch
except FailedPreconditionError as error:
    raise ImportError(f"hps.torch: {error}: pip install 'hps[torch]'") from None

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingBagCollection", "Embeddings"]

_MODES = ("sum", "mean", "max")


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
    dims = _session(store, text(table, "table")).tables
    name = table.partition("/")[2]
    if name not in dims:
        raise NotFoundError(f"table: the store has no table '{table}'")
    return dims[name]


def _prepare(keys: torch.Tensor, argument: str) -> torch.Tensor:
    """Keys as the operators take them."""
    if not isinstance(keys, torch.Tensor):
        raise TypeError(f"{argument}: expected a torch tensor, found {type(keys).__name__}")
    return plain_keys(keys, torch)


class _Tables(torch.nn.Module):
    """Tables of one model in a store, for one lookup."""

    def __init__(self, store: Store, tables: Sequence[str]):
        super().__init__()
        self._dims = [_dim(store, table) for table in tables]
        self._text = _torch.tables_text(list(zip(tables, self._dims)))
        self._model = tables[0].partition("/")[0]
        self._store = store
        self._path = store.path
        self._sessions: dict[int, Any] = {}  # by device, -1: the host
        _torch.stores.add(store)

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_sessions": {}}  # which are made where the module is read

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        _torch.stores.add(self._store)

    def _look_up(self, keys: list[torch.Tensor], argument: str) -> list[torch.Tensor]:
        """Compiled programs name the store; others the session, because the store may be one of
        several that are open at this path."""
        keys = [_prepare(some, argument) for some in keys]
        if not torch.compiler.is_compiling():
            device = keys[0].get_device()
            session = self._sessions.get(device)
            if session is None:
                session = self._sessions[device] = _session(self._store, self._model, keys[0])
            return _torch.rows(keys, session, self._text, self._dims)
        if len(keys) == 1 and len(self._dims) > 1:
            return [_torch.lookup_stacked(keys[0], self._path, self._text)]
        return _torch.lookup(keys, self._path, self._text)


class _Table(_Tables):
    """What the modules of one table share."""

    def __init__(self, store: Store, table: str, padding_idx: int | None):
        super().__init__(store, [table])
        self.embedding_dim = self._dims[0]
        self.padding_idx = padding_idx
        self.table = table

    def _rows(self, keys: torch.Tensor) -> torch.Tensor:
        return self._look_up([keys], "input")[0]


class Embeddings(_Tables):
    """As torch.nn.Embedding for each of several tables of one model, with one lookup for all.

    tables: "model/table", one for each tensor of keys; a table may occur more than once.
    """

    def __init__(self, store: Store, tables: Sequence[str]):
        if isinstance(tables, str) or not tables:
            raise InvalidArgumentError("tables: expected a list of 'model/table'")
        if len({text(table, "tables").partition("/")[0] for table in tables}) != 1:
            raise InvalidArgumentError("tables: expected tables of one model, 'model/table', found "
                                       f"{sorted(set(tables))}")
        super().__init__(store, tables)
        self.tables = list(tables)
        self.embedding_dims = self._dims
        self._has_one_dim = len(set(self._dims)) == 1

    def forward(self, keys: Any) -> Any:
        """Rows of the keys of each table, in the order of `tables`.

        keys: a list of tensors gives a list of tensors [*keys.shape, dim]. One tensor
            [tables, ...], for tables of one dim, gives one tensor [tables, ..., dim]; this is the
            fastest way on a GPU.
        """
        if isinstance(keys, torch.Tensor):
            if not self._has_one_dim:
                raise InvalidArgumentError("keys: expected a list of tensors, because the tables "
                                           f"have the dims {self.embedding_dims}")
            if keys.dim() < 1 or keys.shape[0] != len(self.tables):
                raise InvalidArgumentError(f"keys: expected the shape [{len(self.tables)}, ...], "
                                           f"found {list(keys.shape)}")
            return self._look_up([keys], "keys")[0]
        if not isinstance(keys, (list, tuple)):
            raise TypeError("keys: expected a torch tensor or a list of them, found "
                            f"{type(keys).__name__}")
        if len(keys) != len(self.tables):
            raise InvalidArgumentError(f"keys: expected {len(self.tables)} tensors, found "
                                       f"{len(keys)}")
        return self._look_up(list(keys), "keys")

    def extra_repr(self) -> str:
        return f"{self.tables!r}, embedding_dims={self.embedding_dims}"


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
    mode: "sum", "mean" or "max".
    is_weighted: True: a row counts as often as the weight of its key in the KeyedJaggedTensor says;
        needs the mode "sum". False: weights are ignored.
    """

    def __init__(self, store: Store, tables: Mapping[str, str], *, mode: str = "sum",
                 is_weighted: bool = False):
        super().__init__()
        try:
            from torchrec.sparse.jagged_tensor import KeyedTensor
        except ImportError:
            raise ImportError("hps.torch.EmbeddingBagCollection needs torchrec: pip install "
                              "torchrec") from None
        _check_mode(mode)
        if is_weighted and mode != "sum":
            raise InvalidArgumentError(f"is_weighted: expected the mode 'sum', found {mode!r}")
        if len({text(table, "tables").partition("/")[0] for table in tables.values()}) != 1:
            raise InvalidArgumentError("tables: expected tables of one model, 'model/table', found "
                                       f"{sorted(set(tables.values()))}")
        self.embedding_dims = {feature: _dim(store, table) for feature, table in tables.items()}
        self.tables = dict(tables)
        self.mode = mode
        self._is_weighted = is_weighted
        self._store = store
        self._keyed_tensor = KeyedTensor

    def is_weighted(self) -> bool:
        """Whether rows are weighted, as torchrec's."""
        return self._is_weighted

    @torch.compiler.disable
    def forward(self, features: Any) -> Any:
        """A KeyedTensor [batch, sum of the dims] with the features of `tables`, in that order, from
        one lookup. Other features of the KeyedJaggedTensor are ignored."""
        if len(set(features.stride_per_key())) > 1:
            raise InvalidArgumentError("features: expected as many bags of one feature as of each "
                                       f"other, found {features.stride_per_key()}")
        if self._is_weighted and features.weights_or_none() is None:
            raise InvalidArgumentError("features: expected weights, because is_weighted is True")
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
        the weights of its keys, or None if they do not count."""
        try:
            number = features.keys().index(name)
        except ValueError:
            raise InvalidArgumentError(f"features: there is no feature {name!r}, only "
                                       f"{features.keys()}") from None
        batch = features.stride_per_key()
        begin = sum(batch[:number])
        offsets = features.offsets()[begin:begin + batch[number] + 1]
        span = slice(int(offsets[0]), int(offsets[-1]))
        return (features.values()[span], offsets - offsets[0],
                features.weights()[span] if self._is_weighted else None)

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
        return f"{self.tables!r}, mode={self.mode!r}, is_weighted={self._is_weighted}"
