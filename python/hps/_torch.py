"""The operators of hps.torch and how they are called. Imported when PyTorch is there.

    torch.ops.hps.lookup(Tensor[] keys, str source, str tables) -> Tensor[]
    torch.ops.hps.lookup_stacked(Tensor keys, str source, str tables) -> Tensor
    torch.ops.hps.lookup_shared(Tensor[] keys, Tensor[] block, str source, str tables) -> Tensor[]

`lookup_stacked` takes keys [tables, ...] of tables of one dim. `lookup_shared` does the work of
both, with rows that are views of one tensor: of `block` if that has one, else of a new one. It is
the fastest for many tables, but compiled programs must not have it, because they take the results
of an operator for separate memory.

`source` is the path of an open store over which this process has made a module of hps.torch, or
the name of an open session. `tables` has a line "model/table:dim" for each tensor of keys; all
tables are of one model. The kernels are the extension's; this declares the schemas, and what
torch.compile and torch.export need.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any

import torch

from hps import _hps
from hps._errors import BY_NAME, Error, FailedPreconditionError, error_as_tuple
from hps._store import OpenStores

__all__ = ["block_for", "error_of_operator", "lookup", "lookup_shared", "lookup_stacked", "rows",
           "stores", "tables_text"]

# The open stores of modules.
stores = OpenStores()

# A lookup waits, which a captured CUDA graph can't.
_TAGS = tuple(getattr(torch.Tag, name) for name in ("cudagraph_unsafe",)
              if hasattr(torch.Tag, name))

# Smaller blocks come from memory that PyTorch's allocator keeps.
_BLOCK_ELEMENTS_MIN = 1 << 16

# How the kernels begin the text of an error: "hps: NOT_FOUND: ...".
_ERROR = re.compile(r"hps: ([A-Z_]+): (.*)", re.DOTALL)

_LIBRARY = torch.library.Library("hps", "FRAGMENT")
_LIBRARY.define("lookup(Tensor[] keys, str source, str tables) -> Tensor[]", tags=_TAGS)
_LIBRARY.define("lookup_shared(Tensor[] keys, Tensor[] block, str source, str tables) -> Tensor[]",
                tags=_TAGS)
_LIBRARY.define("lookup_stacked(Tensor keys, str source, str tables) -> Tensor", tags=_TAGS)


def _find_session(source: str, model: str, device: int) -> Any:
    """The name of the session for keys on a device (-1: the host), or an error. Called by the
    kernels."""
    try:
        store = stores.find(source)
        if store is None:
            raise FailedPreconditionError(
                f"store: '{source}' is closed, or no module of this process is over it; open it, "
                "and make a module of hps.torch over it, first")
        return store._shared_session(model, None if device < 0 else device)._name
    except BaseException as error:  # noqa: BLE001, none may reach the kernel
        return error_as_tuple(error)


_hps.register_torch(_find_session)
lookup = torch.ops.hps.lookup.default
lookup_shared = torch.ops.hps.lookup_shared.default
lookup_stacked = torch.ops.hps.lookup_stacked.default


def _dims(tables: str) -> list[int]:
    return [int(line.rpartition(":")[2]) for line in tables.split("\n")]


@torch.library.register_fake("hps::lookup")
def _(keys: list[torch.Tensor], source: str, tables: str) -> list[torch.Tensor]:  # noqa: ARG001
    return [some.new_empty((*some.shape, dim), dtype=torch.float32)
            for some, dim in zip(keys, _dims(tables))]


@torch.library.register_fake("hps::lookup_stacked")
def _(keys: torch.Tensor, source: str, tables: str) -> torch.Tensor:  # noqa: ARG001
    return keys.new_empty((*keys.shape, _dims(tables)[0]), dtype=torch.float32)


def tables_text(dims: Sequence[tuple[str, int]]) -> str:
    """The argument `tables` of the operators, of ("model/table", dim)."""
    return "\n".join(f"{table}:{dim}" for table, dim in dims)


def error_of_operator(raised: BaseException) -> Error | None:
    """The exception of hps that an operator's RuntimeError stands for; None if PyTorch, or another
    operator, raised it."""
    found = _ERROR.match(str(raised))
    return None if found is None else BY_NAME.get(found[1], Error)(found[2])


def block_for(memory: Any, keys: Sequence[torch.Tensor], dims: Sequence[int]) -> list:
    """The argument `block`: for many rows in host memory, memory that was used before (`Memory`),
    since new memory costs a page fault for every 4 KiB."""
    if keys[0].is_cuda:
        return []
    count = sum(map(operator.mul, [some.numel() for some in keys], dims))
    return [torch.from_numpy(memory.take(count))] if count >= _BLOCK_ELEMENTS_MIN else []


def rows(keys: list[torch.Tensor], session: Any, tables: str, dims: Sequence[int]) -> list:
    """The rows of each table, not in a compiled program. Raises the exceptions of hps.

    One tensor [tables, ...] for several tables has the keys of all; so has that of the rows.
    """
    try:
        block = block_for(session._memory, keys, dims)
        return lookup_shared(keys, block, session._name, tables)
    except RuntimeError as raised:
        error = error_of_operator(raised)
        if error is None:
            raise
    raise error
