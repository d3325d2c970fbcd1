"""Lookups from a server, with the calls of a session."""

from __future__ import annotations

import math
import random
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import numpy as np

from hps import _errors
from hps._arrays import kind_of
from hps._errors import Error, InvalidArgumentError

_CODES = {400: _errors.InvalidArgumentError, 401: _errors.UnauthenticatedError,
          403: _errors.PermissionDeniedError, 404: _errors.NotFoundError,
          409: _errors.FailedPreconditionError, 413: _errors.ResourceExhaustedError,
          429: _errors.ResourceExhaustedError, 500: _errors.InternalError,
          501: _errors.UnimplementedError, 503: _errors.UnavailableError,
          504: _errors.DeadlineExceededError}
_OVERLOADED = "429"
_BACKOFF_S = 0.01  # before the second attempt; doubles
_BACKOFF_S_MAX = 1.0


class Client:
    """Asks a server (`hps serve`, `hps.serve`, Triton with the backend hps) by HTTP.

        client = hps.Client("http://127.0.0.1:8000")
        rows = client.lookup("dlrm", {"t0": keys})
        session = client.session("dlrm")    # has the `lookup` of Store.session

    token: the server's bearer token. timeout: longest time of one lookup, retries included, in
    seconds. A server that is over its capacity (429) is asked again, after a pause that grows,
    until the timeout. With https:// the server's certificate and name are verified; `ca_file` is a
    PEM file of authorities, None the system's. Any thread may use a client. Needs `hps[client]`.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 10.0,
                 ca_file: str | None = None):
        try:
            import tritonclient.http as triton
        except (ImportError, RuntimeError):  # the latter: installed without [http]
            raise ImportError("hps.Client needs tritonclient: pip install 'hps[client]'") from None
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidArgumentError(f"url: expected http://HOST:PORT or https://HOST:PORT, "
                                       f"found {url!r}")
        self._triton = triton
        self._address = parts.netloc + parts.path.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._ca_file = ca_file
        self._headers = {"Authorization": f"Bearer {token}"} if token else None
        self._timeout = timeout
        self._local = threading.local()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes this thread's connection; those of other threads end with their threads."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def session(self, model: str) -> ClientSession:
        """Lookups of one model."""
        return ClientSession(self, model)

    def lookup(self, model: str, table: str | Mapping[str, Any], keys: Any = None, *,
               status: bool = False, timeout: float | None = None) -> Any:
        """As `Session.lookup`, of one of the server's models. `timeout` is that of this call: the
        server answers what it has by then."""
        if isinstance(table, str):
            answer, statuses = self._lookup(model, {table: keys}, status, timeout)
            return (answer[table], statuses[table]) if status else answer[table]
        if keys is not None:
            raise TypeError("keys: expected none beside a dictionary of keys by table")
        answer, statuses = self._lookup(model, table, status, timeout)
        return (answer, statuses) if status else answer

    def predict(self, model: str, inputs: Mapping[str, Any], *,
                outputs: list[str] | None = None, timeout: float | None = None) -> dict[str, Any]:
        """Predictions of a model with a dense network: its outputs by name, as float32.

            scores = client.predict("dlrm", {"user": user_keys, "dense": numbers})["score"]

        inputs: by name, the keys of each table that the network reads, [batch] or [batch, k]
            (ragged: NAME and NAME.offsets), and the network's other inputs, in its types.
        outputs: those that are wanted; None: all of the network.
        """
        kind = kind_of(next(iter(inputs.values()), None))
        tensors = []
        for name, value in inputs.items():
            array = np.ascontiguousarray(np.asarray(value))
            datatype = self._datatype(array)
            if datatype is None:
                raise InvalidArgumentError(f"input '{name}': {array.dtype} is no type of the "
                                           f"protocol")
            tensor = self._triton.InferInput(name, list(array.shape), datatype)
            tensor.set_data_from_numpy(array)
            tensors.append(tensor)
        wanted = [self._triton.InferRequestedOutput(name) for name in outputs] if outputs else None
        result = self._infer(model, tensors, wanted, timeout)
        names = outputs or [output["name"] for output in result.get_response()["outputs"]]
        return {name: _as_kind(kind, result.as_numpy(name)) for name in names}

    @staticmethod
    def _datatype(array: np.ndarray) -> str | None:
        from tritonclient.utils import np_to_triton_dtype
        return np_to_triton_dtype(array.dtype)

    def is_ready(self, model: str | None = None) -> bool:
        """Whether the server, or one of its models, answers lookups."""
        connection = self._connection()
        try:
            return connection.is_model_ready(model, headers=self._headers) if model else \
                connection.is_server_ready(headers=self._headers)
        except OSError:
            return False

    def _connection(self) -> Any:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._triton.InferenceServerClient(
                self._address, connection_timeout=self._timeout, network_timeout=self._timeout,
                ssl=self._is_tls, ssl_context_factory=self._context if self._is_tls else None)
        return connection

    def _context(self) -> ssl.SSLContext:
        from gevent.ssl import create_default_context
        return create_default_context(cafile=self._ca_file)

    def _lookup(self, model: str, asked: Mapping[str, Any], want_status: bool,
                timeout: float | None) -> tuple[dict, dict]:
        kind = kind_of(next(iter(asked.values()), None))
        inputs, outputs, shapes = [], [], {}
        for name, keys in asked.items():
            array = np.asarray(kind.keys(keys, "keys", name))
            if array.dtype.kind not in "iu":
                raise InvalidArgumentError(f"keys of table '{name}': expected integers, found "
                                           f"{array.dtype}")
            shapes[name] = array.shape
            flat = np.ascontiguousarray(array).reshape(-1).astype(np.int64, copy=False)
            tensor = self._triton.InferInput(name, list(flat.shape), "INT64")
            tensor.set_data_from_numpy(flat)
            inputs.append(tensor)
            outputs.append(self._triton.InferRequestedOutput(name))
            if want_status:
                outputs.append(self._triton.InferRequestedOutput(f"{name}.status"))
        result = self._infer(model, inputs, outputs, timeout)
        rows, statuses = {}, {}
        for name, shape in shapes.items():
            found = result.as_numpy(name)
            rows[name] = _as_kind(kind, found.reshape((*shape, found.shape[-1])))
            if want_status:
                statuses[name] = _as_kind(kind, result.as_numpy(f"{name}.status").reshape(shape))
        return rows, statuses

    def _infer(self, model: str, inputs: list, outputs: list | None,
               timeout: float | None) -> Any:
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        pause = _BACKOFF_S
        while True:
            left = max(end - time.monotonic(), 0.001)
            try:
                return self._connection().infer(model, inputs, outputs=outputs,
                                                headers=self._headers,
                                                timeout=math.ceil(left * 1e6))
            except self._triton.InferenceServerException as error:
                if error.status() != _OVERLOADED or time.monotonic() + pause >= end:
                    raise _error_of(error) from None
            except OSError as error:
                self.close()
                raise _errors.UnavailableError(
                    f"no answer from {self._address}: {error}") from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _BACKOFF_S_MAX)


class ClientSession:
    """Lookups of one model of a server; made by `Client.session`."""

    def __init__(self, client: Client, model: str):
        self._client = client
        self.model = model

    def lookup(self, table: str | Mapping[str, Any], keys: Any = None, *, status: bool = False,
               timeout: float | None = None) -> Any:
        """As `Session.lookup`."""
        return self._client.lookup(self.model, table, keys, status=status, timeout=timeout)

    def predict(self, inputs: Mapping[str, Any], *, outputs: list[str] | None = None,
                timeout: float | None = None) -> dict[str, Any]:
        """As `Client.predict`."""
        return self._client.predict(self.model, inputs, outputs=outputs, timeout=timeout)


def _error_of(error: Any) -> Error:
    status = error.status() or ""
    kind = _CODES.get(int(status), _errors.UnknownError) if status.isdigit() else \
        _errors.UnknownError
    return kind(error.message())


def _as_kind(kind: Any, array: np.ndarray) -> Any:
    if kind.name != "torch":
        return array
    import torch
    return torch.from_numpy(array if array.flags.writeable else array.copy())
