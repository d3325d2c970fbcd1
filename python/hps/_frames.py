"""Tables of other programs as arrays of keys and rows: data frames, Parquet and NumPy's .npz."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from hps._errors import InvalidArgumentError, NotFoundError

__all__ = ["is_frame", "of_file", "of_frame"]

_FORMATS = ("npz", "parquet")


def is_frame(value: Any) -> bool:
    """Whether it has named columns, as a DataFrame of pandas or polars."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def of_frame(frame: Any, key_column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Keys and rows of a DataFrame."""
    return _of_columns(list(frame.columns), lambda name: frame[name].to_numpy(), key_column,
                       "the data frame")


def of_file(path: bytes, table_format: Any, key_column: Any) -> tuple | None:
    """Keys (None: the numbers of the rows) and rows of a Parquet or .npz file; None for a path of
    another format."""
    name = os.fsdecode(path)
    if table_format in (None, "auto"):
        table_format = name.rpartition(".")[2].lower()
    if table_format not in _FORMATS:
        return None
    if not os.path.exists(name):
        raise NotFoundError(f"from_path: there is no file '{name}'")
    return _of_parquet(name, key_column) if table_format == "parquet" else _of_npz(name)


def _of_parquet(path: str, key_column: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("from_path: Parquet needs pyarrow: pip install pyarrow") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InvalidArgumentError(f"from_path: '{path}': {error}") from error

    def column(name: str) -> np.ndarray:
        if table[name].null_count > 0:
            raise InvalidArgumentError(f"column {name!r} of '{path}' has "
                                       f"{table[name].null_count} nulls")
        return table[name].to_numpy()

    return _of_columns(table.column_names, column, key_column, f"'{path}'")


def _of_npz(path: str) -> tuple[np.ndarray | None, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "rows" not in arrays:
                raise InvalidArgumentError(f"from_path: '{path}': expected the arrays 'keys' and "
                                           f"'rows', found {list(arrays)}")
            return arrays["keys"] if "keys" in arrays else None, arrays["rows"]
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"from_path: '{path}': {error}") from error


def _of_columns(names: list, column: Callable[[Any], np.ndarray], key_column: Any,
                source: str) -> tuple[np.ndarray, np.ndarray]:
    """One column is the keys. The others, in their order, are the elements of the rows, or the one
    other column has lists that are the rows."""
    if key_column not in names:
        raise InvalidArgumentError(f"key_column: expected one of the columns {names} of {source}, "
                                   f"found {key_column!r}")
    if len(set(names)) != len(names):
        raise InvalidArgumentError(f"two columns of {source} have one name: {names}")
    keys = column(key_column)
    if keys.dtype.kind not in "iu":
        raise InvalidArgumentError(f"keys: column {key_column!r} of {source}: expected integers, "
                                   f"found {keys.dtype}")
    others = {name: column(name) for name in names if name != key_column}
    if len(others) == 1 and len(keys) > 0:
        (name, lists), = others.items()
        if lists.dtype == object:
            try:
                return keys, np.stack([np.asarray(row) for row in lists])
            except ValueError as error:
                raise InvalidArgumentError(f"rows: column {name!r} of {source}: {error}") from error
    for name, values in others.items():
        if values.dtype.kind != "f":
            raise InvalidArgumentError(f"rows: column {name!r} of {source}: expected floats, found "
                                       f"{values.dtype}")
    if not others:
        raise InvalidArgumentError(f"rows: {source} has no column but {key_column!r}")
    return keys, np.stack(list(others.values()), axis=1)
