"""The clock of the day jumps an hour forth and back under a server: nothing comes of it.

libfaketime stands before the server's clock. The monotonic clock stays as it is, as it does when
somebody sets a machine's clock.
"""

import contextlib
import json
import os
import pathlib
import socket
import time
import unittest

import support
from load import Load
from support import MODEL
from waiting import WAIT_S, await_true

TOKEN = "a-token-of-this-test"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
LIBRARY = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR_S = 3600
JUMPS = [HOUR_S, 0, -HOUR_S, 0]
BODY = json.dumps({"inputs": [{"name": "user", "shape": [1], "datatype": "INT64",
                               "data": [1]}]}).encode()
HEAD = (f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(BODY)}\r\n").encode()


def connect(server: support.RunningServer) -> socket.socket:
    host, port = server.http.split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def receive_head(connection: socket.socket) -> bytes:
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(1)  # and nothing of what follows
        assert part, "the server has closed the connection"
        answer += part
    return answer


class Idle:
    """A connection that asks before a jump and after it."""

    def __init__(self, server: support.RunningServer) -> None:
        self.connection = connect(server)
        self.ask()

    def ask(self) -> None:
        self.connection.sendall(b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert receive_head(self.connection).startswith(b"HTTP/1.1 200 ")


class UnderWay:
    """A request whose body comes after a jump."""

    def __init__(self, server: support.RunningServer) -> None:
        self.connection = connect(server)
        self.connection.sendall(HEAD + b"Expect: 100-continue\r\n\r\n")
        assert receive_head(self.connection).startswith(b"HTTP/1.1 100 ")

    def end(self) -> bytes:
        self.connection.sendall(BODY)
        answer = receive_head(self.connection)
        self.connection.close()
        return answer


@unittest.skipUnless(LIBRARY.exists(), "there is no libfaketime")
class ClockTest(support.ServerTestCase):

    def jump(self, offset_s: int) -> None:
        new = self.directory / "offset.new"
        new.write_text(f"{offset_s:+d}\n")
        os.rename(new, self.directory / "offset")  # the server sees the one or the other

    def serve_faked(self, settings: str = "") -> support.RunningServer:
        self.jump(0)
        return self.serve_ready(settings, "repository_control = true", environment={
            "HPS_TOKEN": TOKEN, "LD_PRELOAD": str(LIBRARY), "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_TIMESTAMP_FILE": str(self.directory / "offset"), "FAKETIME_NO_CACHE": "1"})

    def offset_of(self, server: support.RunningServer) -> float:
        status, body = server.get(f"/v2/models/{MODEL}/stats", AUTHORIZATION)
        self.assertEqual(status, 200)
        last = json.loads(body)["model_stats"][0]["last_inference"]
        return last / 1000 - time.time()

    def await_offset(self, server: support.RunningServer, offset_s: int) -> None:
        """Until the last request was at that time, to half an hour."""
        await_true(lambda: abs(self.offset_of(server) - offset_s) <= HOUR_S / 2, "jump")

    def load_version(self, server: support.RunningServer, version: int) -> None:
        self.assertTrue(self.import_version(version).get("staged"))
        status, body = server.get(f"/v2/repository/models/{MODEL}/load", AUTHORIZATION, data=b"",
                                  method="POST")
        self.assertEqual(status, 200, body)

    def check_jumps(self, protocol: str) -> None:
        server = self.serve_faked()
        idle = Idle(server)
        with Load(server, protocol, headers=AUTHORIZATION) as load:
            load.await_ok(50)
            for version, offset_s in enumerate(JUMPS, start=2):
                under_way = UnderWay(server)
                self.jump(offset_s)
                self.await_offset(server, offset_s)
                self.load_version(server, version)
                load.await_ok(100)
                load.await_version(version)
                self.assertTrue(under_way.end().startswith(b"HTTP/1.1 200 "))
                idle.ask()
        idle.connection.close()
        self.assertEqual(load.wrong + load.failed(), [])
        for answers in load.answers:
            versions = [answer.version for answer in answers]
            self.assertEqual(versions, sorted(versions), "a connection saw an older version")
            self.assertEqual(versions[-1], 1 + len(JUMPS))
        self.assertEqual(server.stop(), 0)  # long before its time for a drain is over

    def test_http_load(self) -> None:
        self.check_jumps("http")

    @unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
    def test_grpc_load(self) -> None:
        self.check_jumps("grpc")

    def begin(self, kind: type, server: support.RunningServer):
        """A test that is paused comes too late for a short time-out: then it begins again."""
        def begun():
            with contextlib.suppress(AssertionError, OSError):
                return kind(server)

        return await_true(begun, "request that begins in time")

    def test_time_outs_come_in_their_time(self) -> None:
        """An hour back, and they would come in an hour."""
        server = self.serve_faked('body_timeout = "2s"\nidle_timeout = "2s"')
        for offset_s in JUMPS:
            idle, under_way = self.begin(Idle, server), self.begin(UnderWay, server)
            self.jump(offset_s)
            self.assertEqual(idle.connection.recv(1), b"")
            self.assertIn(b" 408 ", receive_head(under_way.connection))
            idle.connection.close()
            under_way.connection.close()
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
