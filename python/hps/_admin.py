"""Tables of stores that need not be open: import, drop, verify, inspect, generate."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hps import _hps
from hps._arrays import kind_of
from hps._errors import InvalidArgumentError

__all__ = ["drop", "generate", "import_table", "inspect", "verify"]

_IMPORT_OPTIONS = {"from_path", "format", "dim", "dtype", "default", "default_file", "tensor",
                   "threads", "progress", "import_id", "stream_from"}


def import_table(store: str | os.PathLike, table: str, keys: Any = None, rows: Any = None,
                 **options: Any) -> dict:
    """Imports a table into the store at `store`, which is made if there is none.

    import_table(path, "m/t", keys, rows): arrays; rows [n, dim] float32, float16 or (uint16 for
        NumPy) bfloat16; keys in any order, none twice.
    import_table(path, "m/t", rows): rows alone, an array or a `torch.nn.Embedding`: row i gets the
        key i.
    import_table(path, "m/t", from_path=PATH): files. import_table(path, "m", from_path=PATH): a
        folder with a sub-folder for each table of the model, which switch together.

    Options: format ("auto", "hugectr", "npy", "safetensors", "hugectr-bin", "hugectr-rocksdb"), dim
    and dtype (where files do not tell; another dtype converts float32), default (a number: what
    every element of an absent key's row is) or default_file, tensor (of a safetensors file),
    threads, progress (a function of (step, done, total), or True for a bar of tqdm), stream_from
    (where the table begins to read its update stream: "import", the default, is the time when the
    import begins; "earliest", "latest", or a time as in "2026-11-24T18:00:00Z"), import_id (names
    this version of the rows on all nodes that share a level 2 on Redis, docs/redis.md; give the
    same id and the same stream_from, "earliest" or a time, on all of them).

    All or nothing: a failed import leaves the table as it was. If another process has the store
    open, the import is staged, and that process takes it at its next load ("staged").
    Returns {"tables", "seconds", "staged", "warnings"}.
    """
    return _import_into((_as_path(store, "store"), None), table, keys, rows, options)


def _import_into(target: Any, table: str, keys: Any, rows: Any, options: dict) -> dict:
    unknown = set(options) - _IMPORT_OPTIONS
    if unknown:
        raise TypeError(f"{min(unknown)}: no such option; there are {sorted(_IMPORT_OPTIONS)}")
    if (keys is None) == (options.get("from_path") is None):
        raise InvalidArgumentError("from_path: expected either arrays or a path")
    for name in ("from_path", "default_file"):
        if options.get(name) is not None:
            options[name] = _as_path(options[name], name)
    options["progress"] = _progress(options.get("progress"), f"import {table}")
    if keys is None:
        return _hps.import_table(target, table, None, None, options)
    if rows is None:
        rows = _weight(keys)
        keys = np.arange(len(rows), dtype=np.int64)
    else:
        rows = _weight(rows)
    return _hps.import_table(target, table, _key_memory(keys), _row_memory(rows), options)


def drop(store: str | os.PathLike, table: str) -> None:
    """Removes a table ("model/table") or a model ("model") of a store that no process has open for
    writing. Raises NotFoundError, and FailedPreconditionError for a table that the model's dense
    network reads."""
    _hps.drop(_as_path(store, "store"), None, table)


def inspect(store: str | os.PathLike) -> dict:
    """What a store holds: {"format_version", "tables", "staged"}; also while it is served."""
    return _hps.inspect(_as_path(store, "store"), None)


def verify(store: str | os.PathLike, *, repair: bool = False, progress: Any = None) -> dict:
    """Reads every row and checksum of a store that no process has open for writing.

    Damage is part of the report: {"rows", "rows_lost", "damage_count", "damage", ...}. `repair`
    records which rows are lost, so that lookups answer DEFAULT_DEGRADED for them, never ABSENT.
    """
    return _hps.verify(_as_path(store, "store"), None, repair, _progress(progress, "verify"))


def generate(out: str | os.PathLike, *, tables: int = 1, rows: int, dim: int = 16,
             alpha: float = 1.2, seed: int = 1, requests: int = 1000,
             format: str = "hugectr",  # noqa: A002, the name of the command's option
             progress: Any = None) -> None:
    """Writes synthetic tables, `rows` in all, into the new directory `out`, one folder each (t0,
    t1, ...), and requests.npy, [requests, tables] keys of a power-law stream."""
    _hps.generate(_as_path(out, "out"), {
        "tables": tables, "rows": rows, "dim": dim, "alpha": alpha, "seed": seed,
        "requests": requests, "format": format, "progress": _progress(progress, "generate")})


def _as_path(path: Any, argument: str) -> bytes:
    try:
        return os.fsencode(path)
    except TypeError:
        raise TypeError(f"{argument}: expected a path, found {type(path).__name__}") from None


def _weight(rows: Any) -> Any:
    """The rows of a torch.nn.Embedding, else `rows`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(rows, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        rows = rows.weight
    return rows


def _key_memory(keys: Any) -> Any:
    kind = kind_of(keys)
    return kind.memory(kind.keys(keys, "keys"), "keys")


def _row_memory(rows: Any) -> Any:
    """Rows for the extension, which wants to see their shape: a torch tensor as a NumPy view."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(rows, torch.Tensor):
        return rows
    if rows.device.type != "cpu":
        raise InvalidArgumentError(f"rows: expected a tensor in host memory, found one on "
                                   f"{rows.device}")
    rows = rows.detach()
    return rows.view(torch.int16).numpy().view(np.uint16) if rows.dtype is torch.bfloat16 \
        else rows.numpy()


def _progress(progress: Any, title: str) -> Callable[[str, int, int], None] | None:
    if progress is not True:
        return progress or None
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("progress: True needs tqdm: pip install tqdm") from None
    bar = tqdm(desc=title)

    def show(step: str, done: int, total: int) -> None:
        bar.total = total or None
        bar.set_postfix_str(step, refresh=False)
        bar.update(done - bar.n)

    return show
