"""A TCP proxy between a client and a Kafka broker: it cuts, delays or holds what passes.

    proxy = Proxy()
    brokers = kafka.Brokers(advertised=[proxy.address])
    proxy.forward_to(brokers.advertised_ports[0].number)

Clients that begin at `proxy.address` stay there, because the broker names that address as its own.
"""

import contextlib
import random
import socket
import threading
import time

PIECE_BYTES = 64 << 10
DELAY_S = 0.3  # of each piece
CUT_BYTES_MAX = 200_000  # after at most so many, a connection is cut
TICK_S = 0.02


class Proxy:
    """One address. `mode` is "pass", "delay", "hold" (nothing passes, as in a network that loses
    every packet: what was sent comes later) or "cut" (each connection ends after a random number
    of bytes)."""

    def __init__(self, seed: int = 1) -> None:
        self.mode = "pass"
        self.cuts = 0  # connections that were cut
        self._random = random.Random(seed)
        self._target = 0
        self._sockets: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def forward_to(self, port: int) -> None:
        self._target = port

    def _start(self, run, *arguments) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        while self.mode == "hold" and not self._closed:
            time.sleep(TICK_S)
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        self._sockets |= {client, server}
        self._start(self._pump, client, server)
        self._pump(server, client)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        left = self._random.randrange(1, CUT_BYTES_MAX)
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                while self.mode == "hold" and not self._closed:
                    time.sleep(TICK_S)
                if self.mode == "delay":
                    time.sleep(DELAY_S)
                if self.mode == "cut":
                    piece, left = piece[:left], left - len(piece)
                target.sendall(piece)
                if left <= 0:
                    self.cuts += 1
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            self._sockets.discard(end)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in list(self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
