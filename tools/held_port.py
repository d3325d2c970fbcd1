"""Ports of 127.0.0.1 for servers that tests start, kill and start again."""

import socket


class Port:
    """A port that a server can take again after it was killed: a socket that is bound, but does not
    listen, keeps it from everybody who asks for any port."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()
