"""Lookups from a server, with the calls of a session."""

from __future__ import annotations

import http.client
import math
import os
import random
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any, Literal, overload

import numpy as np

from hps import _errors
from hps._arguments import seconds, tables_of, text
from hps._arrays import (HostKeys, Kind, Rows, Statuses, check_apart, kind_of,
                         tell_written)
from hps._errors import InvalidArgumentError
from hps._http import Answer, Connections, context_of, error_of, headers_of, parts_of

_OVERLOADED = 429
_BACKOFF_S = 0.01  # before the second attempt; doubles
_BACKOFF_S_MAX = 1.0
# The server answers what it has before the client gives up: by this part of the time earlier.
_ON_THE_WAY = 0.1
_ON_THE_WAY_S_MAX = 0.1
_SERVER_TIMEOUT_S_MAX = 3600.0  # the server takes no more
_HEADER_LENGTH = "Inference-Header-Content-Length"


class Client:
    """Asks a server (`hps serve`, `hps.serve`, Triton with the backend hps) by HTTP.

        client = hps.Client("http://127.0.0.1:8000")
        rows = client.lookup("dlrm", {"t0": keys})
        session = client.session("dlrm")    # has the `lookup` of Store.session

    token: the server's bearer token.
    timeout: longest time of one call in seconds, including connecting, all attempts and the pauses
        between them. Only the system's lookup of the host's name is not bounded by it. If the
        server is over its capacity (429), the client tries again until the timeout, after pauses
        that grow.
    ca_file: PEM file of certificate authorities for https://; None: those of the system. The
        server's certificate and name are always verified.
    Needs `hps[client]`.

    Any thread may use a client, and so may a forked process. The client keeps as many connections
    open as it had concurrent calls at most.

    A call raises the exception for the code that the server answers. It also raises
    UnavailableError (no connection, it broke, or the answer is not HTTP), DeadlineExceededError (no
    answer within the timeout) and InternalError (the answer does not follow the protocol).
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 10.0,
                 ca_file: str | os.PathLike | None = None):
        try:
            import tritonclient.http as triton
        except (ImportError, RuntimeError):  # the latter: installed without [http]
            raise ImportError("hps.Client needs tritonclient: pip install 'hps[client]'") from None
        self._triton = triton
        self._timeout = seconds(timeout, "timeout")
        self._headers = headers_of(token)
        host, port, self._path, is_tls = parts_of(url)
        self._connections = Connections(host, port, context_of(is_tls, ca_file))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that no call uses. A later call makes a new one."""
        self._connections.close()

    def session(self, model: str) -> ClientSession:
        """Lookups of one model."""
        return ClientSession(self, text(model, "model"))

    @overload
    def lookup(self, model: str, table: str, keys: HostKeys, *, status: Literal[False] = ...,
               timeout: float | None = ..., out: None = ...) -> Rows: ...

    @overload
    def lookup(self, model: str, table: str, keys: HostKeys, *, status: Literal[True],
               timeout: float | None = ..., out: None = ...) -> tuple[Rows, Statuses]: ...

    @overload
    def lookup(self, model: str, table: str, keys: Any, *, status: Literal[True],
               timeout: float | None = ..., out: Any = ...) -> tuple[Any, Any]: ...

    @overload
    def lookup(self, model: str, table: Mapping[str, Any], keys: None = ..., *,
               status: Literal[False] = ..., timeout: float | None = ...,
               out: Mapping[str, Any] | None = ...) -> dict[str, Any]: ...

    @overload
    def lookup(self, model: str, table: Mapping[str, Any], keys: None = ..., *,
               status: Literal[True], timeout: float | None = ...,
               out: Mapping[str, Any] | None = ...) -> tuple[dict[str, Any], dict[str, Any]]: ...

    @overload
    def lookup(self, model: str, table: str | Mapping[str, Any], keys: Any = ..., *,
               status: bool = ..., timeout: float | None = ..., out: Any = ...) -> Any: ...

    def lookup(self, model: str, table: str | Mapping[str, Any], keys: Any = None, *,
               status: bool = False, timeout: float | None = None, out: Any = None) -> Any:
        """Looks up rows of one of the server's models; takes the same arrays as `Session.lookup`.

        timeout: of this call, in seconds; None: the client's. The server gets a slightly earlier
            deadline. Keys whose rows it does not have by then get default rows and
            DEFAULT_DEGRADED.
        out: the rows are copied into these arrays when all of them have arrived.

        There is no `hit_rate_threshold`: the protocol does not carry it, and the server's setting
        applies.
        Raises: NotFoundError (no such model or table), InvalidArgumentError, and the exceptions of
        every call (see the class).
        """
        text(model, "model")
        if isinstance(table, str):
            outs = None if out is None else {table: out}
            answer, statuses = self._lookup(model, {table: keys}, outs, status, timeout)
            return (answer[table], statuses[table]) if status else answer[table]
        asked = tables_of(table, keys)
        answer, statuses = self._lookup(model, asked, out, status, timeout)
        return (answer, statuses) if status else answer

    def predict(self, model: str, inputs: Mapping[str, Any], *,
                outputs: list[str] | None = None, timeout: float | None = None) -> dict[str, Any]:
        """Predictions of a model with a dense network: its outputs by name, as float32.

            scores = client.predict("dlrm", {"user": user_keys, "dense": numbers})["score"]

        inputs: by name, the keys of each table that the network reads, [batch] or [batch, k]
            (ragged: NAME [n] and NAME.offsets [batch + 1]), and the network's other inputs, in its
            types.
        outputs: names of the outputs to return; None: all outputs of the network.
        timeout: of this call, in seconds; None: the client's.
        Raises: NotFoundError (no such model, input or output), InvalidArgumentError, and the
        exceptions of every call (see the class).
        """
        kind = kind_of(next(iter(inputs.values()), None))
        tensors = []
        for name, value in inputs.items():
            array = np.ascontiguousarray(np.asarray(value))
            datatype = self._datatype(array)
            if datatype is None:
                raise InvalidArgumentError(f"input '{name}': {array.dtype} is not a type of the "
                                           f"protocol")
            tensors.append(self._input(text(name, "inputs"), array, datatype))
        wanted = [self._triton.InferRequestedOutput(text(name, "outputs"))
                  for name in outputs] if outputs else None
        result = self._infer(text(model, "model"), tensors, wanted, timeout)
        names = outputs or result.names()
        return {name: _as_kind(kind, result.array(name)) for name in names}

    @staticmethod
    def _datatype(array: np.ndarray) -> str | None:
        from tritonclient.utils import np_to_triton_dtype
        return np_to_triton_dtype(array.dtype)

    def is_ready(self, model: str | None = None) -> bool:
        """Whether the server, or one of its models, is ready. False also if the server does not
        answer."""
        path = "/v2/health/ready"
        if model is not None:
            path = f"/v2/models/{_quoted(text(model, 'model'))}/ready"
        end = time.monotonic() + self._timeout
        try:
            answer = self._connections.request("GET", self._path + path, None, self._headers, end)
        except (_errors.DeadlineExceededError, _errors.UnavailableError):
            return False
        return answer.status == http.client.OK

    def _input(self, name: str, array: np.ndarray, datatype: str) -> Any:
        tensor = self._triton.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        return tensor

    def _lookup(self, model: str, asked: Mapping[str, Any], out: Any, want_status: bool,
                timeout: float | None) -> tuple[dict, dict]:
        kind = kind_of(next(iter(asked.values()), None))
        inputs, outputs, shapes = [], [], {}
        for name, keys in asked.items():
            array = _keys_of(kind, keys, text(name, "table"))
            shapes[name] = array.shape
            inputs.append(self._input(name, array.reshape(-1).astype(np.int64, copy=False),
                                      "INT64"))
            outputs.append(self._triton.InferRequestedOutput(name))
            if want_status:
                outputs.append(self._triton.InferRequestedOutput(f"{name}.status"))
        if out is not None and (not isinstance(out, Mapping) or set(out) != set(asked)):
            raise InvalidArgumentError("out: expected an array for each table that is asked")
        if not asked:
            return {}, {}
        result = self._infer(model, inputs, outputs, timeout)
        rows = {name: result.rows(name, shape) for name, shape in shapes.items()}
        statuses = {name: _as_kind(kind, result.statuses(name, shape))
                    for name, shape in shapes.items()} if want_status else {}
        if out is not None:
            return _copy_to(out, rows), statuses
        return {name: _as_kind(kind, found) for name, found in rows.items()}, statuses

    def _infer(self, model: str, inputs: list, outputs: list | None,
               timeout: float | None) -> _Result:
        end = time.monotonic() + (self._timeout if timeout is None else seconds(timeout, "timeout"))
        path = f"{self._path}/v2/models/{_quoted(model)}/infer"
        pause = _BACKOFF_S
        while True:
            body, headers = self._body(inputs, outputs, end - time.monotonic())
            answer = self._connections.request("POST", path, body, headers, end)
            if answer.status == http.client.OK:
                return _Result(self._triton, answer, self._connections.url)
            if answer.status != _OVERLOADED or time.monotonic() + pause >= end:
                raise error_of(answer, self._connections.url)
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _BACKOFF_S_MAX)

    def _body(self, inputs: list, outputs: list | None,
              left: float) -> tuple[bytes, dict[str, str]]:
        """The body of a request, and its headers. left: seconds until the client gives up."""
        told = min(left - min(left * _ON_THE_WAY, _ON_THE_WAY_S_MAX), _SERVER_TIMEOUT_S_MAX)
        try:
            body, length = self._triton.InferenceServerClient.generate_request_body(
                inputs, outputs=outputs, timeout=max(math.ceil(told * 1e6), 1))
        except UnicodeError as error:
            raise InvalidArgumentError(f"the names of this call are not valid text: "
                                       f"{error}") from None
        if length is None:
            return body, self._headers
        return body, {**self._headers, _HEADER_LENGTH: str(length)}


class ClientSession:
    """Lookups of one model of a server; made by `Client.session`."""

    def __init__(self, client: Client, model: str):
        self._client = client
        self.model = model

    @overload
    def lookup(self, table: str, keys: HostKeys, *, status: Literal[False] = ...,
               timeout: float | None = ..., out: None = ...) -> Rows: ...

    @overload
    def lookup(self, table: str, keys: HostKeys, *, status: Literal[True],
               timeout: float | None = ..., out: None = ...) -> tuple[Rows, Statuses]: ...

    @overload
    def lookup(self, table: str, keys: Any, *, status: Literal[True],
               timeout: float | None = ..., out: Any = ...) -> tuple[Any, Any]: ...

    @overload
    def lookup(self, table: Mapping[str, Any], keys: None = ..., *,
               status: Literal[False] = ..., timeout: float | None = ...,
               out: Mapping[str, Any] | None = ...) -> dict[str, Any]: ...

    @overload
    def lookup(self, table: Mapping[str, Any], keys: None = ..., *,
               status: Literal[True], timeout: float | None = ...,
               out: Mapping[str, Any] | None = ...) -> tuple[dict[str, Any], dict[str, Any]]: ...

    @overload
    def lookup(self, table: str | Mapping[str, Any], keys: Any = ..., *,
               status: bool = ..., timeout: float | None = ..., out: Any = ...) -> Any: ...

    def lookup(self, table: str | Mapping[str, Any], keys: Any = None, *, status: bool = False,
               timeout: float | None = None, out: Any = None) -> Any:
        """As `Client.lookup`."""
        return self._client.lookup(self.model, table, keys, status=status, timeout=timeout,
                                   out=out)

    def predict(self, inputs: Mapping[str, Any], *, outputs: list[str] | None = None,
                timeout: float | None = None) -> dict[str, Any]:
        """As `Client.predict`."""
        return self._client.predict(self.model, inputs, outputs=outputs, timeout=timeout)


class _Result:
    """The arrays of an answer. What is wrong with them is an InternalError with the server's
    URL."""

    def __init__(self, triton: Any, answer: Answer, url: str):
        self._url = url
        length = answer.headers.get(_HEADER_LENGTH)
        self._result = self._checked(
            lambda: triton.InferenceServerClient.parse_response_body(
                answer.body, header_length=None if length is None else int(length)))

    def names(self) -> list[str]:
        """Names of the outputs."""
        return self._checked(
            lambda: [output["name"] for output in self._result.get_response()["outputs"]])

    def array(self, name: str) -> np.ndarray:
        """An output, writeable."""
        found = self._checked(lambda: self._result.as_numpy(name))
        if found is None:
            raise _errors.InternalError(f"the answer of {self._url} has no output '{name}'")
        return found if found.flags.writeable else found.copy()

    def rows(self, name: str, shape: tuple) -> np.ndarray:
        found = self.array(name)
        return self._checked(lambda: found.reshape((*shape, found.shape[-1])))

    def statuses(self, name: str, shape: tuple) -> np.ndarray:
        found = self.array(f"{name}.status")
        return self._checked(lambda: found.reshape(shape))

    def _checked(self, read: Any) -> Any:
        # The protocol's library trusts the server: it raises whatever its own steps raise.
        try:
            return read()
        except Exception as error:
            raise _errors.InternalError(
                f"the answer of {self._url} is not one of this protocol: {error!r}") from error


def _quoted(model: str) -> str:
    try:
        return urllib.parse.quote(model, safe="")
    except UnicodeError as error:
        raise InvalidArgumentError(f"model: {error}") from None


def _keys_of(kind: Kind, keys: Any, table: str) -> np.ndarray:
    """The keys of a table, with the errors of `Session.lookup`."""
    argument = f"keys of table '{table}'"
    if kind.device is not None:
        raise InvalidArgumentError(f"{argument}: on a GPU; a client takes arrays in host memory")
    keys = kind.keys(keys, "keys", table)
    kind.check_keys(keys, argument)
    return np.asarray(keys)


def _copy_to(out: Mapping[str, Any], rows: dict[str, np.ndarray]) -> dict:
    for name, found in rows.items():
        kind_of(out[name]).check_out(out[name], name, found.shape)
        kind_of(out[name]).check_memory(out[name], name)
    check_apart(out)
    for name, found in rows.items():
        kind_of(out[name]).copy_to(out[name], found)
    tell_written(out.values())
    return dict(out)


def _as_kind(kind: Kind, array: np.ndarray) -> Any:
    if kind.name != "torch":
        return array
    import torch
    return torch.from_numpy(array)
