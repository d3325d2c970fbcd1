"""hps.Client: connections, time-outs, answers that are wrong, arguments."""

import contextlib
import gc
import os
import pathlib
import socket
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterator

import numpy as np
import support

import hps

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import held_port  # noqa: E402

WAIT_S = 60
KEYS = np.array([3])


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return (f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


@contextlib.contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server whose `serve` gets each connection, on a thread of its own; the URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def run(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                opened.append(connection)
                threads.append(threading.Thread(target=run, args=(connection,)))
                threads[-1].start()

    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


class ConnectionsTest(support.StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.make_store()
        port = held_port.Port()  # for a server that is started again
        self.addCleanup(port.close)
        self.server = hps.serve(self.path, http=f"127.0.0.1:{port.number}", grpc="", metrics="")
        self.addCleanup(self.server.close)
        self.client = hps.Client(self.server.url)
        self.addCleanup(self.client.close)

    def look_up(self) -> None:
        self.assert_rows("user", KEYS, self.client.lookup(support.MODEL, "user", KEYS))

    def test_threads_that_end_leave_nothing_open(self) -> None:
        def in_a_thread() -> None:
            thread = threading.Thread(target=self.look_up)
            thread.start()
            thread.join()

        in_a_thread()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            in_a_thread()
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 5)

    def test_a_server_that_was_started_again(self) -> None:
        self.look_up()
        address = self.server.http
        self.server.close()
        with self.assertRaisesRegex(hps.UnavailableError, self.server.url):
            self.client.lookup(support.MODEL, "user", KEYS)
        with hps.serve(self.path, http=address, grpc="", metrics=""):
            self.look_up()

    def test_a_connection_that_the_server_closed_while_it_was_idle(self) -> None:
        self.look_up()
        address = self.server.http
        self.server.close()
        with hps.serve(self.path, http=address, grpc="", metrics=""):
            self.look_up()

    def test_a_forked_process_has_connections_of_its_own(self) -> None:
        self.look_up()
        child = os.fork()
        if child == 0:
            try:
                self.look_up()
                os._exit(0)
            finally:
                os._exit(1)
        for _ in range(20):
            self.look_up()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


class CallsTest(support.StoreTestCase):
    """The same calls as those of a session."""

    def setUp(self) -> None:
        super().setUp()
        self.store = self.open_store()
        self.local = self.store.session(support.MODEL)
        copy = self.directory / "copy"
        for table in support.TABLES:
            hps.import_table(copy, f"{support.MODEL}/{table}", *self.store.export(
                f"{support.MODEL}/{table}"), default=support.DEFAULT)
        server = hps.serve(copy, http="127.0.0.1:0", grpc="", metrics="")
        self.addCleanup(server.close)
        client = hps.Client(server.url)
        self.addCleanup(client.close)
        self.remote = client.session(support.MODEL)

    def test_keys_are_treated_alike(self) -> None:
        for keys in (np.array(3), np.empty((0, 3), np.int64), np.array([2**63 + 1], np.uint64),
                     np.array([[1, 2]], np.int32), [1, 2], 7, [],
                     np.arange(9)[::2], np.arange(3).astype(">i8"), np.arange(3.0),
                     np.array([True]), np.array([1, None]), [1.5], None, "text"):
            with self.subTest(keys=keys):
                found = []
                for session in (self.local, self.remote):
                    try:
                        found.append(session.lookup("user", keys).tolist())
                    except (TypeError, hps.Error) as error:
                        found.append(type(error))
                self.assertEqual(found[0], found[1])

    def test_no_tables(self) -> None:
        self.assertEqual(self.remote.lookup({}), {})
        self.assertEqual(self.remote.lookup({}, status=True), ({}, {}))

    def test_rows_are_the_callers(self) -> None:
        rows, status = self.remote.lookup("user", KEYS, status=True)
        rows += 1
        status += 1

    def test_memory_of_the_caller(self) -> None:
        keys = {"user": np.arange(10), "item": np.arange(5)}
        out = {"item": np.empty((5, 16), np.float32), "user": np.empty((10, 8), np.float32)}
        rows = self.remote.lookup(keys, out=out)
        for name in keys:
            self.assertIs(rows[name], out[name])
            self.assert_rows(name, keys[name], out[name])
        for wrong in (np.empty((10, 8)), np.empty((9, 8), np.float32), [1],
                      np.empty((10, 16), np.float32)[:, ::2]):
            with self.assertRaisesRegex((TypeError, hps.InvalidArgumentError),
                                        "out of table 'user'"):
                self.remote.lookup("user", keys["user"], out=wrong)
        with self.assertRaisesRegex(hps.InvalidArgumentError, "out"):
            self.remote.lookup({"user": KEYS}, out={})
        with self.assertRaisesRegex(TypeError, "hit_rate_threshold"):
            self.remote.lookup("user", KEYS, hit_rate_threshold=0.5)

    def test_tensors(self) -> None:
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        keys, out = torch.tensor([3, 4]), torch.zeros(2, 8)
        self.assertIs(self.remote.lookup("user", keys, out=out), out)
        self.assert_rows("user", keys.numpy(), out.numpy())
        negative = torch._neg_view(torch.tensor([-3, -4]))
        rows = self.remote.lookup("user", torch._neg_view(negative))
        self.assert_rows("user", np.array([-3, -4]), rows.numpy())
        with self.assertRaisesRegex(hps.InvalidArgumentError, "out of table 'user'.*gradient"):
            self.remote.lookup("user", keys, out=out.requires_grad_())


class TimeoutTest(unittest.TestCase):
    """Each of these would take minutes, or for ever, without the time-out."""

    def expect(self, serve: Callable[[socket.socket], None], kind: type, *, of: float = 0.5,
               call: float | None = None) -> None:
        with raw_server(serve) as url, hps.Client(url, timeout=of) as client:
            start = time.monotonic()
            with self.assertRaises(kind):
                client.lookup("m", "t", KEYS, timeout=call)
            self.assertLess(time.monotonic() - start, WAIT_S / 2)

    def silent(self, connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            pass

    def test_a_silent_server(self) -> None:
        self.expect(self.silent, hps.DeadlineExceededError)
        self.expect(self.silent, TimeoutError, of=600, call=0.2)
        self.expect(self.silent, hps.DeadlineExceededError, call=0)

    def test_a_server_that_sends_a_byte_now_and_then(self) -> None:
        def drip(head: bytes) -> Callable[[socket.socket], None]:
            def serve(connection: socket.socket) -> None:
                connection.recv(1 << 16)
                connection.sendall(head)
                for _ in range(10 * WAIT_S):
                    connection.sendall(b" ")
                    time.sleep(0.1)
            return serve

        self.expect(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
                    hps.DeadlineExceededError)
        self.expect(drip(b"HTTP/1.1 200 OK\r\nX: "), hps.DeadlineExceededError, of=600, call=0.5)

    def test_a_server_that_is_slow_to_say_429(self) -> None:
        def serve(connection: socket.socket) -> None:
            connection.recv(1 << 16)
            connection.sendall(answer(b'{"error": "full"}', "429 X"))
            self.silent(connection)

        self.expect(serve, hps.DeadlineExceededError)


class WrongAnswerTest(unittest.TestCase):
    def test_what_is_no_answer(self) -> None:
        whole = answer(b'{"outputs": []}')
        for sent, kind in (
                (b"\0\1\2no HTTP\r\n\r\n", hps.UnavailableError),
                (b"", hps.UnavailableError),
                (answer(b"x" * 100)[:-50], hps.UnavailableError),
                (b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\nx",
                 hps.UnavailableError),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                 hps.UnavailableError),
                (answer(b"hello"), hps.InternalError),
                (answer(b""), hps.InternalError),
                (answer(b"null"), hps.InternalError),
                (answer(b"[]"), hps.InternalError),
                (whole, hps.InternalError),
                (answer(b'{"outputs": [{"name": "t"}]}'), hps.InternalError),
                (whole.replace(b"\r\n\r\n", b"\r\nInference-Header-Content-Length: x\r\n\r\n"),
                 hps.InternalError),
                (answer(b"", "302 Found"), hps.UnknownError),
                (answer(b'{"error": 5}', "500 X"), hps.InternalError)):
            with self.subTest(sent=sent[:60]):
                def serve(connection: socket.socket, sent: bytes = sent) -> None:
                    connection.recv(1 << 16)
                    connection.sendall(sent)

                with raw_server(serve) as url, hps.Client(url, timeout=WAIT_S) as client, \
                        self.assertRaisesRegex(kind, url):
                    client.lookup("m", "t", KEYS)


class ArgumentsTest(unittest.TestCase):
    URL = "http://127.0.0.1:1"

    def test_of_a_client(self) -> None:
        wrong = hps.InvalidArgumentError
        for kind, part, url, options in (
                (TypeError, "url", None, {}),
                (wrong, "url.*abc", "http://127.0.0.1:abc", {}),
                (wrong, "url", "http://127.0.0.1:99999", {}),
                (wrong, "url", "http://", {}),
                (wrong, "url", "ftp://127.0.0.1", {}),
                (wrong, "url", "http://a b", {}),
                (wrong, "url", "http://127.0.0.1:1/?x=1", {}),
                (wrong, "timeout.*nan", self.URL, {"timeout": float("nan")}),
                (wrong, "timeout.*-1", self.URL, {"timeout": -1}),
                (TypeError, "timeout.*NoneType", self.URL, {"timeout": None}),
                (TypeError, "timeout.*str", self.URL, {"timeout": "x"}),
                (TypeError, "token", self.URL, {"token": 5}),
                (wrong, "token", self.URL, {"token": "a\r\nX: y"}),
                (wrong, "ca_file.*/nothing/ca.pem", "https://127.0.0.1:1",
                 {"ca_file": pathlib.Path("/nothing/ca.pem")}),
                (wrong, "ca_file", "https://127.0.0.1:1", {"ca_file": __file__}),
                (TypeError, "ca_file", "https://127.0.0.1:1", {"ca_file": 5}),
                (wrong, "ca_file", self.URL, {"ca_file": __file__})):
            with self.subTest(url=url, **options), self.assertRaisesRegex(kind, part):
                hps.Client(url, **options)
        for timeout in (float("inf"), 1e300, 2**2000, np.float32(5)):
            with self.assertRaises(hps.UnavailableError):  # nothing listens there
                hps.Client(self.URL, timeout=timeout).lookup("m", "t", KEYS)

    def test_of_a_call(self) -> None:
        client = hps.Client(self.URL)
        for kind, part, arguments, options in (
                (TypeError, "model.*NoneType", (None, "t", KEYS), {}),
                (hps.InvalidArgumentError, "model", ("\udcff", "t", KEYS), {}),
                (TypeError, "table.*NoneType", ("m", None, KEYS), {}),
                (TypeError, "table.*bytes", ("m", b"t", KEYS), {}),
                (TypeError, "table.*list", ("m", ["t"], KEYS), {}),
                (TypeError, "table.*int", ("m", {5: KEYS}), {}),
                (TypeError, "keys", ("m", {"t": KEYS}, KEYS), {}),
                (hps.InvalidArgumentError, "timeout.*nan", ("m", "t", KEYS),
                 {"timeout": float("nan")}),
                (hps.InvalidArgumentError, "timeout.*-1", ("m", "t", KEYS), {"timeout": -1}),
                (TypeError, "timeout.*str", ("m", "t", KEYS), {"timeout": "1"})):
            with self.subTest(arguments=arguments, **options), \
                    self.assertRaisesRegex(kind, part):
                client.lookup(*arguments, **options)
        with self.assertRaisesRegex(TypeError, "model"):
            client.session(None)
        with self.assertRaisesRegex(TypeError, "model"):
            client.is_ready(7)
        with self.assertRaisesRegex(TypeError, "model"):
            client.predict(None, {"t": KEYS})


if __name__ == "__main__":
    unittest.main()
