"""hps.serve, hps.Client and hps.Producer."""

import contextlib
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import sys
import threading
import unittest

import numpy as np
import support
from waiting import await_true

import hps

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "kafka"))
import brokers as kafka  # noqa: E402

ANY_PORT = "127.0.0.1:0"


class ServeTest(support.StoreTestCase):
    def serve(self, **options) -> hps.Server:
        if not self.path.exists():
            self.make_store()
        server = hps.serve(self.path, http=ANY_PORT, grpc="", metrics="", **options)
        self.addCleanup(server.close)
        return server

    def test_the_calls_of_a_session(self) -> None:
        client = hps.Client(self.serve().url)
        self.assertTrue(client.is_ready())
        self.assertTrue(client.is_ready(support.MODEL))
        keys = {"user": self.random.integers(-5, 100, (3, 4)), "item": np.arange(1995, 2005)}
        rows, status = client.lookup(support.MODEL, keys, status=True)
        for name in keys:
            self.assert_rows(name, keys[name], rows[name])
            self.assertEqual(status[name].shape, keys[name].shape)
        np.testing.assert_array_equal(status["item"] == hps.Status.ABSENT, keys["item"] >= 2000)
        session = client.session(support.MODEL)
        self.assert_rows("user", keys["user"], session.lookup("user", keys["user"]))
        self.assert_rows("user", np.array([1, 2]), session.lookup("user", [1, 2]))

    def test_errors(self) -> None:
        server = self.serve()
        client = hps.Client(server.url, timeout=5)
        with self.assertRaises(hps.NotFoundError):
            client.lookup("crt", {"user": [1]})
        with self.assertRaisesRegex(hps.NotFoundError, "did you mean 'user'"):
            client.lookup(support.MODEL, {"usr": [1]})
        with self.assertRaisesRegex(hps.InvalidArgumentError, "keys of table 'user'"):
            client.lookup(support.MODEL, "user", np.arange(3.0))
        with self.assertRaisesRegex(hps.InvalidArgumentError, "url"):
            hps.Client("127.0.0.1:8000")
        server.close()
        with self.assertRaises(hps.UnavailableError):
            client.lookup(support.MODEL, {"user": [1]})
        self.assertFalse(client.is_ready())

    def test_threads_share_a_client(self) -> None:
        client, wrong = hps.Client(self.serve().url), []

        def ask() -> None:
            for _ in range(20):
                keys = np.arange(10)
                rows = client.lookup(support.MODEL, "user", keys)
                if (rows != support.row_of("user", keys)).any():
                    wrong.append(1)
            client.close()

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_closed_server_gives_the_store_back(self) -> None:
        server = self.serve()
        with self.assertRaises(hps.UnavailableError):
            hps.open(self.path)
        server.close()
        server.close()
        hps.open(self.path).close()
        with self.assertRaises(hps.NotFoundError):
            hps.serve(self.directory / "nothing", http=ANY_PORT, grpc="", metrics="")

    def test_tls_is_verified(self) -> None:
        self.make_store()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", "key.pem", "-out", "cert.pem"], cwd=self.directory, check=True,
                       capture_output=True)
        config = self.directory / "hps.toml"
        config.write_text(f'[store]\npath = "{self.path}"\n[server.security]\n'
                          'tls_certificate = "cert.pem"\ntls_key = "key.pem"\n')
        with hps.serve(config=config, http=ANY_PORT, grpc="", metrics="") as server:
            url = server.url.replace("http:", "https:")
            trusting = hps.Client(url, ca_file=str(self.directory / "cert.pem"), timeout=5)
            self.assert_rows("user", np.array([3]), trusting.lookup(support.MODEL, "user", [3]))
            with self.assertRaises((hps.UnavailableError, ssl.SSLError)):
                hps.Client(url, timeout=5).lookup(support.MODEL, "user", [3])

    def test_a_token(self) -> None:
        self.make_store()
        (self.directory / "token").write_text("secret\n")
        os.chmod(self.directory / "token", 0o600)
        config = self.directory / "hps.toml"
        config.write_text(f'[store]\npath = "{self.path}"\n[server.security]\n'
                          'token_file = "token"\n')
        with hps.serve(config=config, http=ANY_PORT, grpc="", metrics="") as server:
            right = hps.Client(server.url, token="secret")
            self.assert_rows("user", np.array([3]), right.lookup(support.MODEL, "user", [3]))
            with self.assertRaises(hps.UnauthenticatedError):
                hps.Client(server.url).lookup(support.MODEL, "user", [3])


class BusyHandler(http.server.BaseHTTPRequestHandler):
    """Answers 429."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # noqa: N802, the library's name
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        body = json.dumps({"error": "over capacity"}).encode()
        self.send_response(429)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class RetryTest(unittest.TestCase):
    def test_an_overloaded_server_is_asked_again_until_the_timeout(self) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BusyHandler)
        server.asked = 0
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            client = hps.Client(f"http://127.0.0.1:{server.server_port}", timeout=0.5)

            def asks_again() -> bool:  # a client that is paused asks once, or hears nothing in time
                server.asked = 0
                with contextlib.suppress(hps.DeadlineExceededError), \
                        self.assertRaisesRegex(hps.ResourceExhaustedError, "over capacity"):
                    client.lookup("m", "t", [1])
                return server.asked > 2

            await_true(asks_again, "client that asks again")
            client.close()
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class ProducerTest(support.StoreTestCase):
    def test_rows_reach_the_topic(self) -> None:
        brokers = kafka.Brokers()
        self.addCleanup(brokers.close)
        brokers.create_topic("hps_et.ctr.user", 3)
        keys = np.arange(1000)
        with hps.Producer(brokers.bootstrap, "ctr/user", 8) as producer:
            self.assertEqual(producer.partitions, 3)
            producer.upsert(keys, support.row_of("user", keys))
            producer.delete(keys[:10])
            with self.assertRaisesRegex(hps.InvalidArgumentError, "rows"):
                producer.upsert(keys, np.zeros((1000, 4), np.float32))
            producer.flush()
            self.assertEqual(producer.statistics()["rows_delivered"], 1010)
        self.assertGreater(sum(brokers.end_offsets("hps_et.ctr.user").values()), 0)
        with self.assertRaises(hps.FailedPreconditionError):
            producer.flush()
        with self.assertRaises(hps.NotFoundError):
            hps.Producer(brokers.bootstrap, "ctr/nothing", 8)

    def test_float32_rows_become_those_of_the_producer(self) -> None:
        brokers = kafka.Brokers()
        self.addCleanup(brokers.close)
        keys, rows = np.arange(100), self.random.normal(size=(100, 8)).astype(np.float32)
        short = {"float16": rows.astype(np.float16),
                 "bfloat16": ((rows.view(np.uint32) + 0x7fff + (rows.view(np.uint32) >> 16 & 1))
                              >> 16).astype(np.uint16)}
        config = self.directory / "hps.toml"
        config.write_text('[server]\nhttp = "127.0.0.1:0"\ngrpc = ""\nmetrics = ""\n'
                          f'[update]\nbrokers = ["{brokers.bootstrap}"]\n')
        for dtype in short:
            brokers.create_topic(f"hps_et.ctr.{dtype}", 1)
            hps.import_table(self.path, f"ctr/{dtype}", keys, np.zeros_like(rows), dtype=dtype)
            with hps.Producer(brokers.bootstrap, f"ctr/{dtype}", 8, dtype=dtype) as producer:
                with self.assertRaisesRegex(hps.InvalidArgumentError,
                                            f"8 elements of the rows .* large for {dtype}"):
                    producer.upsert(keys[:1], np.full((1, 8), np.finfo(np.float32).max))
                producer.upsert(keys, rows)
        with hps.serve(self.path, config=config) as server:
            server.wait_until_ready()
            client = hps.Client(server.url)
            for dtype in short:
                await_true(lambda dtype=dtype: client.lookup("ctr", dtype, keys[-1:]).any(),
                           "rows of the stream")
            client.close()
        with support.open_patiently(self.path, mode="r") as store:
            for dtype, expected in short.items():
                found_keys, found = store.export(f"ctr/{dtype}")
                np.testing.assert_array_equal(found[np.argsort(found_keys)], expected)


if __name__ == "__main__":
    unittest.main()
