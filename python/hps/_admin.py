"""Tables of stores that need not be open: import, drop, verify, inspect, generate."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hps import _frames, _hps
from hps._arguments import text
from hps._arrays import kind_of
from hps._errors import InvalidArgumentError

__all__ = ["drop", "generate", "import_table", "inspect", "verify"]

# A function of (step, done, total), or True for a bar of tqdm.
Progress: TypeAlias = "Callable[[str, int, int], object] | bool | None"

# Options of import_table that say how files are to be read.
_FILE_OPTIONS = ("format", "dim", "tensor", "partitions")


def import_table(store: str | os.PathLike, table: str, keys: Any = None, rows: Any = None, *,
                 from_path: str | os.PathLike | None = None,
                 format: str | None = None,  # noqa: A002, the name of the command's option
                 dim: int | None = None, dtype: str | None = None, default: float | None = None,
                 default_file: str | os.PathLike | None = None, tensor: str | None = None,
                 threads: int | None = None, progress: Progress = None,
                 import_id: str | None = None, stream_from: str | None = None,
                 partitions: int | None = None, key_column: str | None = None) -> dict:
    """Imports a table into the store at the path `store`, which is created if it does not exist.

    import_table(path, "m/t", keys, rows): arrays. rows [n, dim] are float32, float16, bfloat16 (as
        uint16 in NumPy) or float64, which is cast to float32; keys [n] are in any order, none
        twice.
    import_table(path, "m/t", rows): rows alone, an array or a `torch.nn.Embedding`. Row i gets the
        key i.
    import_table(path, "m/t", frame, key_column=NAME): a DataFrame of pandas or polars. The other
        columns, in their order, are the elements of the rows; if there is one other, it may have
        lists that are the rows.
    import_table(path, "m/t", from_path=PATH): the files of one table (docs/table_formats.md).
        NAME.parquet, or a folder with format="parquet", is read as a DataFrame, by pyarrow.
        NAME.npz has the arrays "keys" and "rows", or "rows" alone. Both are read into memory.
    import_table(path, "m", from_path=PATH): a folder with a sub-folder for each table of the model.
        All of its tables switch together.
    import_table(path, "m", from_path="redis://HOST:PORT"): tables in a Redis of HugeCTR.

    Options for files only:
    format: "auto" (the default), "hugectr", "npy", "safetensors", "hugectr-bin", "hugectr-rocksdb",
        "hugectr-redis", "parquet" or "npz".
    dim: elements of a row, required if the files do not tell, otherwise compared.
    tensor: the tensor of a safetensors file.
    partitions: HugeCTR's num_partitions, for a Redis; None: 8.

    Options for all sources:
    dtype: element type of the stored rows; None: that of the source. Only float32 is converted.
    default: the value of every element of an absent key's row; None: 0.
    default_file: a .npy file with this row, [dim], instead of `default`.
    threads: None: the number of cores.
    progress: a function of (step, done, total), or True for a bar of tqdm.
    stream_from: where reading of the table's update stream begins: "import" (None: the time when
        the import begins), "earliest", "latest", or a time as in "2026-11-24T18:00:00Z".
    import_id: a name for this version of the rows, for nodes that share a level 2 on Redis
        (docs/redis.md). Give the same id and the same stream_from ("earliest" or a time) on all of
        them.

    A failed import leaves the table as it was. If another process has the store open, the import is
    staged ("staged" is True), and that process commits it at its next load.
    Returns {"tables", "seconds", "staged", "warnings"}.
    Raises: InvalidArgumentError (an argument, or the files), NotFoundError (no such files),
    ResourceExhaustedError (no disk or memory), UnavailableError.
    """
    return _import_into((_as_path(store, "store"), None), table, keys, rows, {
        "from_path": from_path, "format": format, "dim": dim, "dtype": dtype, "default": default,
        "default_file": default_file, "tensor": tensor, "threads": threads, "progress": progress,
        "import_id": import_id, "stream_from": stream_from, "partitions": partitions,
        "key_column": key_column})


def _import_into(target: Any, table: str, keys: Any, rows: Any, options: dict) -> dict:
    text(table, "table")
    if (keys is None and rows is None) == (options["from_path"] is None):
        raise InvalidArgumentError("from_path: expected either arrays or a path")
    for name in ("from_path", "default_file"):
        if options[name] is not None:
            options[name] = _as_path(options[name], name)
    options["progress"] = _progress(options["progress"], f"import {table}")
    keys, rows = _read_frames(keys, rows, options)
    if options["from_path"] is not None:
        return _hps.import_table(target, table, None, None, options)
    for name in _FILE_OPTIONS:
        if options[name] is not None:
            raise InvalidArgumentError(f"{name}: expected none beside arrays, found "
                                       f"{options[name]!r}")
    if keys is None or rows is None:
        rows = _row_memory(_weight(keys if rows is None else rows))
        keys = np.arange(_count(rows), dtype=np.int64)
    else:
        rows = _row_memory(_weight(rows))
    return _hps.import_table(target, table, _key_memory(keys), rows, options)


def _read_frames(keys: Any, rows: Any, options: dict) -> tuple[Any, Any]:
    """Keys and rows, also of a DataFrame or of a file that Python reads. Removes the options that
    are for these."""
    key_column, path = options.pop("key_column"), options["from_path"]
    if path is not None:
        found = _frames.of_file(path, options["format"], key_column)
        if found is not None:
            options["from_path"] = options["format"] = None
            return found
    elif rows is None and _frames.is_frame(keys):
        return _frames.of_frame(keys, key_column)
    if key_column is not None:
        raise InvalidArgumentError("key_column: expected none without a DataFrame or a Parquet "
                                   f"file, found {key_column!r}")
    return keys, rows


def _count(rows: Any) -> int:
    try:
        return len(rows)
    except TypeError:
        raise TypeError("rows: expected an array [n, dim], found one without dimensions") from None


def drop(store: str | os.PathLike, table: str) -> None:
    """Removes a table ("model/table"), or a model with all of its tables ("model"), from a store
    that no process has open for writing.

    Raises: NotFoundError, UnavailableError (a process has the store open), FailedPreconditionError
    (the model's dense network reads the table).
    """
    _hps.drop(_as_path(store, "store"), None, table)


def inspect(store: str | os.PathLike) -> dict:
    """What a store holds: {"format_version", "tables", "staged"}, as in the JSON of `hps inspect`
    (docs/command_line.md).

    Also works while a server has the store. Raises NotFoundError (no store there).
    """
    return _hps.inspect(_as_path(store, "store"), None)


def verify(store: str | os.PathLike, *, repair: bool = False, progress: Progress = None) -> dict:
    """Reads every row and checksum of a store that no process has open for writing.

    Damage is no exception but part of the report: {"rows", "rows_lost", "damage_count", "damage",
    ...}. Lookups answer DEFAULT_DEGRADED for damaged rows, never ABSENT. `repair` mends what can be
    mended without the rows: it removes damaged dense networks ("networks_removed").
    Raises: NotFoundError (no store there), UnavailableError (a process has it open).
    """
    return _hps.verify(_as_path(store, "store"), None, repair, _progress(progress, "verify"))


def generate(out: str | os.PathLike, *, tables: int = 1, rows: int, dim: int = 16,
             alpha: float = 1.2, seed: int = 1, requests: int = 1000,
             format: str = "hugectr",  # noqa: A002, the name of the command's option
             progress: Progress = None) -> None:
    """Writes synthetic tables into the new directory `out`, one folder for each (t0, t1, ...), and
    requests.npy, [requests, tables] int64 keys that follow a power law.

    rows: of all tables together. alpha: exponent of the power law. The same arguments give the same
    files. format: "hugectr" or "npy".
    """
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
    """Keys for the extension: a torch tensor as a NumPy view."""
    kind = kind_of(keys)
    keys = kind.keys(keys, "keys")
    return keys if isinstance(keys, np.ndarray) else _as_numpy(keys, "keys").numpy()


def _row_memory(rows: Any) -> Any:
    """Rows for the extension, which wants to see their shape: a torch tensor as a NumPy view,
    float64 as float32."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(rows, torch.Tensor):
        rows = _as_numpy(rows, "rows")
        rows = rows.view(torch.int16).numpy().view(np.uint16) if rows.dtype is torch.bfloat16 \
            else rows.numpy()
    elif not any(hasattr(rows, name) for name in ("__dlpack__", "__array_interface__",
                                                  "__array__")):
        raise TypeError(f"rows: expected an array [n, dim], found {type(rows).__name__}")
    elif not hasattr(rows, "__dlpack__") or str(getattr(rows, "dtype", "")) == "float64":
        rows = np.asarray(rows)
    if not isinstance(rows, np.ndarray):
        return rows
    if rows.dtype == np.float64:
        rows = _as_float32(rows)
    return np.require(rows, requirements=("C_CONTIGUOUS", "ALIGNED"))


def _as_float32(rows: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32)
    beyond = np.isinf(narrow) & np.isfinite(rows)
    if beyond.any():
        at = np.unravel_index(beyond.argmax(), rows.shape)
        raise InvalidArgumentError(f"rows: {rows[at]} at {list(map(int, at))} is beyond the range "
                                   "of float32")
    return narrow


def _as_numpy(tensor: Any, argument: str) -> Any:
    """A torch tensor of which NumPy can have a view."""
    if tensor.device.type != "cpu":
        raise InvalidArgumentError(f"{argument}: expected a tensor in host memory, found one on "
                                   f"{tensor.device}")
    if str(tensor.layout) != "torch.strided":
        raise InvalidArgumentError(f"{argument}: expected a dense tensor, found {tensor.layout}")
    # A view may say that its memory has the negatives or conjugates of its values.
    return tensor.detach().resolve_conj().resolve_neg()


def _progress(progress: Any, title: str) -> Callable[[str, int, int], object] | None:
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError("progress: expected a function, True or None, found "
                        f"{type(progress).__name__}")
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
