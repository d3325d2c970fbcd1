"""A server in this process."""

from __future__ import annotations

import os
import time
from typing import Any

from hps import _hps
from hps._admin import _as_path
from hps._errors import DeadlineExceededError

# A wait is made in pieces, so that Ctrl-C can end it.
_PIECE_S = 0.2


class Server:
    """A running server, made by `hps.serve`. A context manager that stops it.

    `http`, `grpc` and `metrics` are its addresses as host:port, "" for one that is off. `url` is
    the HTTP address as a URL.
    """

    def __init__(self, server: Any):
        self._server = server
        self._is_open = True
        self.http, self.grpc, self.metrics = server.addresses()

    @property
    def url(self) -> str:
        """For `hps.Client`."""
        return f"http://{self.http}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Returns when the models are loaded. Raises why they are not, or
        DeadlineExceededError."""
        end = time.monotonic() + timeout
        while not self._server.wait_until_loaded(_PIECE_S):
            if time.monotonic() >= end:
                raise DeadlineExceededError(f"the models were not loaded within {timeout} s")

    def close(self) -> None:
        """Answers the requests that it has accepted, then stops and closes the store."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._server.drain()
        finally:
            self._server.close()


def serve(store: str | os.PathLike | None = None, *, config: str | os.PathLike | None = None,
          http: str | None = None, grpc: str | None = None, metrics: str | None = None,
          ready_timeout: float = 60.0) -> Server:
    """Serves a store from threads of this process, and returns when its models are loaded.

    http, grpc, metrics: "host:port"; port 0 lets the system choose, "" is off, None is the
        configuration's.

        with hps.serve("/tmp/store", http="127.0.0.1:0", grpc="", metrics="") as server:
            hps.Client(server.url).lookup("dlrm", {"t0": keys})

    Raises: UnavailableError (an address is in use, or another process has the store open for
    writing), and the errors of `hps.open`.
    """
    server = Server(_hps.serve(None if store is None else _as_path(store, "store"),
                               None if config is None else _as_path(config, "config"),
                               http, grpc, metrics))
    try:
        server.wait_until_ready(ready_timeout)
    except BaseException:
        server.close()
        raise
    return server
