"""An open store."""

from __future__ import annotations

import json
import os
import time
import weakref
from typing import Any

import numpy as np

from hps import _hps
from hps._admin import Progress, _as_path, _import_into, _key_memory, _progress, _row_memory
from hps._arguments import seconds, text
from hps._errors import (DeadlineExceededError, Error, FailedPreconditionError,
                         InvalidArgumentError, UnavailableError)
from hps._model import Model
from hps._session import Session

# A wait is made in pieces, so that Ctrl-C can end it.
_PIECE_S = 0.2
_SHOWN_MAX = 20  # tables of a repr


class Store:
    """An open store; made by `hps.open`. Any thread may use it. A context manager that closes it.

    At most one process has a store open for writing ("rw", "create"); others may read it ("r").
    A process that was forked must open the store itself.

    A pickle names the store; reading it opens the store with the same settings, read-only if
    another process has it open for writing. A copy (`copy.deepcopy`) is the object itself.
    """

    def __init__(self, store: Any, opened: tuple[bytes | None, bytes | None, str]):
        self._store = store
        self._opened = opened  # path, configuration, mode
        self._lookup_timeout: float = store.lookup_timeout
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._models: weakref.WeakSet[Model] = weakref.WeakSet()
        self._shared: dict[tuple[str, int | None], Session] = {}
        self.path: str = store.path

    def __reduce__(self) -> tuple:
        return _reopen, self._opened

    def __copy__(self) -> Store:
        return self

    def __deepcopy__(self, _: dict) -> Store:
        return self

    def __repr__(self) -> str:
        return f"<hps.Store {self.path!r} ({self._opened[2]}), {self._tables_text()}>"

    def _tables_text(self, model: str | None = None) -> str:
        """The tables of the store, or of one model, for a repr."""
        try:
            tables = self.tables()
        except Error as error:
            return str(error)
        if model is not None:
            tables = [table for table in tables if table["name"].startswith(f"{model}/")]
        lines = [f"  {table['name']}: {table['rows']:,} rows, dim {table['dim']}, {table['dtype']}"
                 for table in tables[:_SHOWN_MAX]]
        if len(tables) > _SHOWN_MAX:
            lines.append(f"  and {len(tables) - _SHOWN_MAX} more")
        return "\n".join([f"tables: {len(tables)}", *lines])

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes this object, its sessions and its models. Their later calls raise
        FailedPreconditionError. The store itself closes with the last object that `hps.open` has
        returned for it."""
        for session in list(self._sessions):
            session.close()
        for model in list(self._models):
            model.close()
        self._store.close()

    def session(self, model: str, device: str | int | None = None, *,
                keys_max: int = 1 << 20) -> Session:
        """Lookups of `model`.

        device: "cuda:0": level 1 of this GPU is asked first, for arrays in host memory and for
            torch tensors on this GPU. None: levels 2 and 3 only.
        keys_max: sets the size of the session's buffers. A lookup of more keys is answered in
            pieces of this size, from one version of the model.
        Raises: NotFoundError (with the nearest name), UnavailableError (the model is not loaded, or
        there is no such device), UnimplementedError (a device in a build without GPU support).
        """
        session = Session(self, model, _device_number(device), keys_max)
        self._sessions.add(session)
        return session

    def model(self, name: str) -> Model:
        """Predictions of the model `name` in this process, without a server.

            scores = store.model("dlrm").predict({"user": user_keys, "dense": numbers})["score"]

        Compiles the model's dense network, which can take seconds. Keep the model: each call of
        this method compiles the network again.
        Raises: NotFoundError (with the nearest name), UnavailableError (the model is not loaded),
        UnimplementedError (it has a dense network, and there is no OpenVINO: `hps[openvino]`).
        """
        model = Model(self, name)
        self._models.add(model)
        return model

    def _shared_session(self, model: str, device: int | None) -> Session:
        """The session of the modules of hps.torch for keys on a device (None: on the host)."""
        session = self._shared.get((model, device))
        if session is None:
            session = self._shared[model, device] = self.session(model, device)
        return session

    def tables(self) -> list[dict]:
        """The tables of the store, each as a dictionary: name, dim, dtype, rows, bytes, ..."""
        return _hps.tables(self._store)

    def import_table(self, table: str, keys: Any = None, rows: Any = None, *,
                     from_path: str | os.PathLike | None = None,
                     format: str | None = None,  # noqa: A002, the name of the command's option
                     dim: int | None = None, dtype: str | None = None,
                     default: float | None = None, default_file: str | os.PathLike | None = None,
                     tensor: str | None = None, threads: int | None = None,
                     progress: Progress = None, import_id: str | None = None,
                     stream_from: str | None = None, partitions: int | None = None,
                     key_column: str | None = None) -> dict:
        """As `hps.import_table`, into this open store. Its model switches before this returns."""
        return _import_into(self._store, table, keys, rows, {
            "from_path": from_path, "format": format, "dim": dim, "dtype": dtype,
            "default": default, "default_file": default_file, "tensor": tensor,
            "threads": threads, "progress": progress, "import_id": import_id,
            "stream_from": stream_from, "partitions": partitions, "key_column": key_column})

    def export(self, table: str, to: str | os.PathLike | None = None, *,
               format: str | None = None,  # noqa: A002, the name of the command's option
               progress: Progress = None) -> Any:
        """The rows of a table in ascending order of keys, as of this call.

        Without `to` returns (keys, rows) as NumPy arrays in the table's type (bfloat16 as uint16).
        With `to`, a directory that holds no table yet, writes files of `format`, "hugectr" (the
        default) or "npy", and returns {"rows", "bytes", "seconds"}. `format` and `progress` (as of
        `import_table`) are for files only.
        """
        text(table, "table")
        if to is not None:
            return _hps.export(self._store, table, _as_path(to, "to"), format or "hugectr",
                               _progress(progress, f"export {table}"))
        for name, value in (("format", format), ("progress", progress)):
            if value is not None:
                raise InvalidArgumentError(f"{name}: expected none without `to`, found {value!r}")
        keys, rows, dim, dtype = _hps.export_to_memory(self._store, table)
        element = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}[dtype]
        return np.frombuffer(keys, np.int64), np.frombuffer(rows, element).reshape(-1, dim)

    def drop(self, table: str) -> None:
        """Removes a table or a model, as `hps.drop`."""
        self._store.drop(table)

    def apply(self, table: str, keys: Any, rows: Any, *, timeout: float = 10.0) -> None:
        """Changes rows now, as one atomic write. When it returns, the rows are on the disk, and all
        later lookups see them.

        rows: [n, dim] in the table's type, or float32, which becomes the nearest values (those
            beyond the type are an InvalidArgumentError); float64 becomes float32 first. At most
            16 MiB. If a key occurs twice, its last row counts.
        timeout: longest wait in seconds until the change can begin. Ctrl-C does not end it.
        Raises: InvalidArgumentError, NotFoundError, FailedPreconditionError (the store is open
        read-only, or the table has an import id or takes its changes from an update stream),
        UnavailableError (the change could not begin within the timeout), ResourceExhaustedError
        (the disk is full).
        """
        if rows is None:
            raise InvalidArgumentError("rows: expected an array; `delete` removes keys")
        self._store.apply(text(table, "table"), _key_memory(keys), _row_memory(rows),
                          seconds(timeout, "timeout"))

    def delete(self, table: str, keys: Any, *, timeout: float = 10.0) -> None:
        """Removes the rows of keys [n], at most 16 MiB of keys; otherwise as `apply`."""
        self._store.apply(text(table, "table"), _key_memory(keys), None,
                          seconds(timeout, "timeout"))

    def load(self) -> None:
        """Commits imports that other processes have staged, and switches the models to them."""
        self._store.load()

    def drain(self, timeout: float = 10.0) -> None:
        """Waits until the rows that earlier lookups fetched have been copied into levels 1 and 2.
        Raises DeadlineExceededError after `timeout` seconds."""
        end = time.monotonic() + seconds(timeout, "timeout")
        while True:
            left = max(end - time.monotonic(), 0.0)
            try:
                return self._store.drain(min(left, _PIECE_S))
            except DeadlineExceededError:
                if left <= _PIECE_S:
                    raise

    def statistics(self) -> dict:
        """Counters and sizes since the store was opened, as nested dictionaries; "tables" is a list
        of dictionaries, for `pandas.json_normalize`."""
        return json.loads(self._store.statistics())


def open(path: str | os.PathLike | None = None, *,  # noqa: A001, the name of the API
         config: str | os.PathLike | None = None, mode: str = "rw") -> Store:
    """Opens the store at `path`.

    config: a configuration file in TOML (docs/configuration.md); without `path`, it names the store
        too.
    mode: "rw" opens the store for writing, "create" also makes it if there is none, "r" opens it
        read-only, which also works while it is open for writing, here or in another process.

    If this process has the store open for writing already, "rw" and "create" give another object
    for the same open store, which closes when the last of them is closed. "r" is always a view of
    its own, of what the store has now; `Store.load` renews it.
    Raises: NotFoundError (no store there), UnavailableError (another process has it open for
    writing, or this one with other settings, which the message names), DataLossError (it is
    damaged).
    """
    named = None if path is None else _as_path(path, "path")
    file = None if config is None else _as_path(config, "config")
    return Store(_hps.open(named, file, mode), (
        None if named is None else os.path.abspath(named),
        None if file is None else os.path.abspath(file), mode))


def _reopen(path: bytes | None, config: bytes | None, mode: str) -> Store:
    """The store of a pickle."""
    mode = "r" if mode == "r" else "rw"
    try:
        return Store(_hps.open(path, config, mode), (path, config, mode))
    except (FailedPreconditionError, UnavailableError):
        # Another process has it open for writing, or this one was forked.
        if mode == "r":
            raise
        return _reopen(path, config, "r")


class OpenStores:
    """The stores of this process whose paths compiled programs name. It keeps none of them."""

    def __init__(self) -> None:
        self._stores: dict[str, list[weakref.ref[Store]]] = {}

    def add(self, store: Store) -> None:
        known = self._stores.get(store.path, [])
        self._stores[store.path] = [weakref.ref(store)] + [
            one for one in known if one() not in (None, store)]

    def find(self, path: str) -> Store | None:
        """The store that was added last and is open; else one that is closed, or None."""
        stores = [store for one in self._stores.get(path, ()) if (store := one()) is not None]
        return next((store for store in stores if store._store.is_open),
                    stores[0] if stores else None)


def _device_number(device: str | int | None) -> int:
    if device is None or device == "cpu":
        return -1
    if isinstance(device, int) and device >= 0:
        return device
    name, _, number = str(device).partition(":")
    if name == "cuda" and (number or "0").isdigit():
        return int(number or 0)
    raise InvalidArgumentError(f"device: expected None, 'cpu' or 'cuda:N', found {device!r}")
