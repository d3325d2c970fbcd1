"""Requests to one server over HTTP/1.1, each within a deadline.

The connections are those of the standard library. Its time-out bounds each wait for the network;
here one deadline bounds all waits of a request together, so that a server that sends a byte now and
then can't hold a call for longer.
"""

from __future__ import annotations

import collections
import http.client
import io
import json
import math
import os
import socket
import ssl
import time
import urllib.parse
from typing import Any

from hps import _errors
from hps._arguments import text
from hps._errors import DeadlineExceededError, Error, InvalidArgumentError, UnavailableError

__all__ = ["Answer", "Connections", "context_of", "error_of", "headers_of", "parts_of"]

_CODES = {400: _errors.InvalidArgumentError, 401: _errors.UnauthenticatedError,
          403: _errors.PermissionDeniedError, 404: _errors.NotFoundError,
          409: _errors.FailedPreconditionError, 413: _errors.ResourceExhaustedError,
          414: _errors.InvalidArgumentError, 421: _errors.InvalidArgumentError,
          429: _errors.ResourceExhaustedError, 500: _errors.InternalError,
          501: _errors.UnimplementedError, 503: _errors.UnavailableError,
          504: _errors.DeadlineExceededError, 507: _errors.ResourceExhaustedError}
_WAIT_S_MAX = 86400.0  # of one wait; the system has a maximum of its own


class Answer:
    """The status, the headers and the body of a server's answer."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, body: bytearray):
        self.status = status
        self.headers = headers
        self.body = body


class Connections:
    """Connections to one server. Any thread may make requests.

    A request has a connection for itself. Afterwards the connection waits for the next request, so
    that there are never more connections than there were requests at one time.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None):
        self._host = host
        self._port = port
        self._context = context
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http{'' if context is None else 's'}://{shown}:{port}"
        # Both ends of a deque may be used by several threads without a lock.
        self._idle: collections.deque[_Connection] = collections.deque()
        self._process = os.getpid()

    def close(self) -> None:
        """Closes the connections that no request uses."""
        while (connection := self._take()) is not None:
            connection.shut()

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str],
                end: float) -> Answer:
        """The server's answer, whatever its status is.

        end: time by `time.monotonic` at which the request fails. The system's lookup of the host's
            name is not bounded by it.
        Raises: DeadlineExceededError, UnavailableError (no server there, the connection broke, or
        what came is not HTTP).
        """
        try:
            while True:
                connection = self._take()
                if connection is None:
                    return self._ask(self._connect(end), method, path, body, headers, end)
                try:
                    return self._ask(connection, method, path, body, headers, end)
                except (http.client.RemoteDisconnected, ConnectionError):
                    # The server had closed the connection while it was idle. Others may be just so.
                    self.close()
        except TimeoutError as error:
            raise DeadlineExceededError(f"no answer from {self.url} within the timeout") from error
        except http.client.IncompleteRead as error:
            raise UnavailableError(f"{self.url} closed the connection in the middle of its "
                                   "answer") from error
        except ConnectionError as error:
            raise UnavailableError(f"no answer from {self.url}: {error}") from error
        except (http.client.HTTPException, MemoryError, OverflowError, ValueError) as error:
            if isinstance(error, OSError):  # as errors of certificates are
                raise UnavailableError(f"no answer from {self.url}: {error}") from error
            raise UnavailableError(f"the answer of {self.url} is not valid HTTP: "
                                   f"{error!r}") from error
        except OSError as error:
            raise UnavailableError(f"no answer from {self.url}: {error}") from error

    def _take(self) -> _Connection | None:
        if self._process != os.getpid():
            # The connections of the process that this one was forked from.
            self._idle = collections.deque()
            self._process = os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self, end: float) -> _Connection:
        connection = _Connection(self._host, self._port)
        connection.open(self._context, end)
        return connection

    def _ask(self, connection: _Connection, method: str, path: str, body: bytes | None,
             headers: dict[str, str], end: float) -> Answer:
        try:
            connection.deadline.end = end
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.headers, _body_of(response))
        except BaseException:
            # A later request must not get what is still to come of this answer.
            connection.shut()
            raise
        if response.will_close:
            connection.shut()
        else:
            self._idle.append(connection)
        return answer


class _Deadline:
    """The time, by `time.monotonic`, at which the waits on a socket fail."""

    def __init__(self, end: float):
        self.end = end

    def apply(self, to: socket.socket) -> None:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the timeout passed")
        to.settimeout(None if math.isinf(left) else min(left, _WAIT_S_MAX))


class _Connection(http.client.HTTPConnection):
    """A connection whose waits end at its deadline. It is made once and never made again."""

    def __init__(self, host: str, port: int):
        self._plain: socket.socket | None = None
        super().__init__(host, port)
        self.deadline = _Deadline(math.inf)

    def __del__(self) -> None:
        self.shut()

    def open(self, context: ssl.SSLContext | None, end: float) -> None:
        self.deadline.end = end
        self._plain = self._reach()
        self._plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.deadline.apply(self._plain)
            self._plain = context.wrap_socket(self._plain, server_hostname=self.host)
        self.sock: Any = _Socket(self._plain, self.deadline)

    def shut(self) -> None:
        """Closes the socket, which `close`, called by http.client, leaves open: an answer after
        which the server closes is still to be read then."""
        if self._plain is not None:
            self._plain.close()

    def connect(self) -> None:
        raise ConnectionError("the connection is closed")

    def _reach(self) -> socket.socket:
        """A socket that is connected to the first of the host's addresses that answers."""
        refused: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM):
            plain = socket.socket(family, kind, protocol)
            try:
                self.deadline.apply(plain)
                plain.connect(address)
                return plain
            except TimeoutError:
                plain.close()
                raise
            except OSError as error:
                plain.close()
                refused = error
        raise refused or OSError("the host has no address")


class _Socket:
    """What http.client uses of a socket, within a deadline."""

    def __init__(self, plain: socket.socket, deadline: _Deadline):
        self._plain = plain
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._deadline.apply(self._plain)
            rest = rest[self._plain.send(rest):]

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._plain, self._deadline))

    def close(self) -> None:
        """Nothing: see `_Connection.shut`."""


class _Reader(io.RawIOBase):
    """What comes in on a socket. http.client makes one for each answer."""

    def __init__(self, plain: socket.socket, deadline: _Deadline):
        super().__init__()
        self._plain = plain
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._deadline.apply(self._plain)
        return self._plain.recv_into(buffer)


def _body_of(response: http.client.HTTPResponse) -> bytearray:
    if response.length is None:
        return bytearray(response.read())
    body = bytearray(response.length)
    rest = memoryview(body)
    while rest:
        count = response.readinto(rest)
        if count == 0:
            raise http.client.IncompleteRead(bytes(body[:len(body) - len(rest)]), len(rest))
        rest = rest[count:]
    response.read()  # ends the answer, also one without a body
    return body


def parts_of(url: Any) -> tuple[str, int, str, bool]:
    """Host, port, path without a slash at its end, and whether it is https."""
    wrong = InvalidArgumentError("url: expected http://HOST:PORT or https://HOST:PORT, found "
                                 f"{url!r}")
    try:
        parts = urllib.parse.urlsplit(text(url, "url"))
        is_tls = parts.scheme == "https"
        port = parts.port if parts.port is not None else 443 if is_tls else 80
        host = parts.hostname or ""
        host.encode("idna")
        http.client.HTTPConnection(host, port)  # refuses control characters
    except (http.client.InvalidURL, ValueError):
        raise wrong from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or \
            parts.query or parts.fragment:
        raise wrong
    return host, port, urllib.parse.quote(parts.path.rstrip("/"), safe="/%"), is_tls


def headers_of(token: Any) -> dict[str, str]:
    if token is None or not text(token, "token"):
        return {}
    if not (token.isascii() and token.isprintable()):
        raise InvalidArgumentError("token: expected printable ASCII characters")
    return {"Authorization": f"Bearer {token}"}


def context_of(is_tls: bool, ca_file: Any) -> ssl.SSLContext | None:
    if not is_tls:
        if ca_file is not None:
            raise InvalidArgumentError("ca_file: expected none, because the url is not https://")
        return None
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else os.fspath(ca_file))
    except TypeError:
        raise TypeError(f"ca_file: expected a path, found {type(ca_file).__name__}") from None
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"ca_file: {os.fspath(ca_file)!r}: {error}") from error


def error_of(answer: Answer, url: str) -> Error:
    """The exception for an answer that is not 200: with the server's own message, if it has one."""
    message = None
    try:
        message = json.loads(answer.body)["error"]
    except (ValueError, LookupError, TypeError):
        pass
    if not isinstance(message, str):
        message = f"{url} answered the status {answer.status}"
    return _CODES.get(answer.status, _errors.UnknownError)(message)
