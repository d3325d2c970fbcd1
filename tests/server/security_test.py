"""TLS and the bearer token: who is let in, who is not, and that no secret shows anywhere."""

import contextlib
import http.client
import importlib
import json
import os
import signal
import socket
import ssl
import subprocess
import time
import unittest
import urllib.request

import support
from support import MODEL
from waiting import WAIT_S, await_true

TOKEN = "the-token-of-the-test"
SECRET_PATHS = ["/metrics", "/api/overview", "/api/lookup?table=ctr/user&key=1", "/v2",
                f"/v2/models/{MODEL}"]


class TokenTest(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.file = self.directory / "token"
        self.file.touch(0o600)
        self.file.write_text(TOKEN + "\n")
        self.security = f'token_file = "{self.file}"'

    def status(self, server, path: str, token: str | None = None, **more) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return server.get(path, headers, **more)[0]

    def test_the_token_opens_what_is_closed_without(self) -> None:
        server = self.serve_ready(security=self.security)
        for path in SECRET_PATHS:
            with self.subTest(path):
                self.assertEqual(self.status(server, path), 401)
                for wrong in ("", "x", TOKEN + "x", TOKEN[:-1], TOKEN.upper()):
                    self.assertEqual(self.status(server, path, wrong), 401, wrong)
                self.assertEqual(self.status(server, path, TOKEN), 200)
        for path in ("/v2/health/live", "/v2/health/ready", "/", "/assets/dashboard.js"):
            self.assertEqual(self.status(server, path), 200, path)
        counted = f"hps_auth_failures_total {6 * len(SECRET_PATHS)}\n"

        def page() -> str:
            metrics = server.get("/metrics", {"Authorization": f"Bearer {TOKEN}"})[1].decode()
            return metrics if counted in metrics else ""

        metrics = await_true(page, counted)  # the page is made anew four times a second
        self.assertEqual(server.stop(), 0)
        for text in (metrics, "\n".join(server.output), (self.directory / "hps.log").read_text()):
            self.assertNotIn(TOKEN, text)

    def test_without_a_token_it_answers_to_its_names_only(self) -> None:
        server = self.serve_ready(security='hosts = ["hps.internal"]')
        for address in (server.http, server.metrics):
            for host, code in (("evil.example", 421), ("127.evil.example:80", 421),
                               ("localhost", 200), ("HPS.internal:80", 200)):
                with self.subTest(address=address, host=host):
                    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
                    connection.request("GET", "/metrics", headers={"Host": host})
                    self.assertEqual(connection.getresponse().status, code)
                    connection.close()
        self.assertEqual(server.stop(), 0)
        with_token = self.serve_ready(security=self.security)
        self.assertEqual(with_token.get("/v2", {"Host": "evil.example",
                                                "Authorization": f"Bearer {TOKEN}"})[0], 200)

    def test_control_needs_switch_and_token(self) -> None:
        path = f"/v2/repository/models/{MODEL}/load"
        server = self.serve_ready(security=self.security + "\nrepository_control = true")
        self.assertIn(self.status(server, path, data=b"", method="POST"), (401, 403))
        self.assertEqual(self.status(server, path, TOKEN, data=b"", method="POST"), 200)
        server.stop()
        server = self.serve_ready(security=self.security)
        self.assertEqual(self.status(server, path, TOKEN, data=b"", method="POST"), 403)

    def test_a_new_token_after_sighup(self) -> None:
        server = self.serve_ready(security=self.security)
        self.file.write_text("another-token\n")
        server.process.send_signal(signal.SIGHUP)
        await_true(lambda: self.status(server, "/v2", "another-token") == 200, "new token")
        self.assertEqual(self.status(server, "/v2", TOKEN), 401)

    def test_a_token_that_cannot_be_read_changes_nothing(self) -> None:
        server = self.serve_ready(security=self.security)
        self.file.unlink()
        os.mkfifo(self.file)  # nobody writes to it: who waited for that would hang
        server.process.send_signal(signal.SIGHUP)
        self.await_log("token_file: " + str(self.file) + " is not a regular file")
        self.assertEqual(self.status(server, "/v2", TOKEN), 200)
        self.assertEqual(self.status(server, "/v2"), 401)
        self.assertEqual(server.stop(), 0)
        done = subprocess.run([str(support.HPS), "serve", "--config",
                               str(self.directory / "hps.toml")], timeout=WAIT_S,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^hps: INVALID_ARGUMENT: .*not a regular file\n$")

    def test_a_token_that_all_may_read_is_refused(self) -> None:
        server = self.serve_ready(security=self.security)
        self.file.write_text("another-token\n")
        self.file.chmod(0o644)
        server.process.send_signal(signal.SIGHUP)
        found = (f"[server.security] token_file: the mode of '{self.file}', 0644, lets every user "
                 "read it; run `chmod o-r` on it, or mount it with the mode 0440")
        told = found + ", or set [server.security] secrets_readable_by_all = true"
        self.await_log("the former certificates or token stay in use: FAILED_PRECONDITION: " + told)
        self.assertEqual(self.status(server, "/v2", TOKEN), 200)
        self.assertEqual(self.status(server, "/v2", "another-token"), 401)
        self.assertEqual(server.stop(), 0)
        done = subprocess.run([str(support.HPS), "serve", "--config",
                               str(self.directory / "hps.toml")], timeout=WAIT_S,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"hps: FAILED_PRECONDITION: {told}\n"))
        server = self.serve_ready(security=self.security + "\nsecrets_readable_by_all = true")
        self.assertEqual(self.status(server, "/v2", "another-token"), 200)
        self.await_log("warning " + found)

    def test_the_log_tells_what_an_operator_did(self) -> None:
        server = self.serve_ready(security=self.security + "\nrepository_control = true")
        for verb, code in (("unload", 200), ("load", 200)):
            self.assertEqual(self.status(server, f"/v2/repository/models/{MODEL}/{verb}", TOKEN,
                                         data=b"", method="POST"), code)
        self.status(server, "/v2/repository/models/none/load", TOKEN, data=b"", method="POST")
        server.process.send_signal(signal.SIGHUP)
        self.await_log("certificates and token were read again")
        self.assertEqual(server.stop(), 0)
        for told in ("ready after", f"model '{MODEL}' was unloaded", f"model '{MODEL}' was loaded",
                     "the load of model 'none' has failed: NOT_FOUND", "draining", "drained"):
            self.await_log(told)

    def test_a_load_takes_no_parameters(self) -> None:
        server = self.serve_ready(security=self.security + "\nrepository_control = true")
        path = f"/v2/repository/models/{MODEL}/load"
        for body, code in ((b"", 200), (b"{}", 200), (b'{"parameters":{}}', 200), (b"{", 400),
                           (b"[]", 400), (b'{"parameters":{"config":"{}"}}', 501)):
            self.assertEqual(self.status(server, path, TOKEN, data=body, method="POST"), code)
        self.load_with_parameters("http", server.http)

    @unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
    def test_a_load_takes_no_parameters_over_grpc(self) -> None:
        server = self.serve_ready(security=self.security + "\nrepository_control = true")
        self.load_with_parameters("grpc", server.grpc)

    def load_with_parameters(self, protocol: str, address: str) -> None:
        client = importlib.import_module(f"tritonclient.{protocol}")
        with client.InferenceServerClient(address) as connection:
            token = {"authorization": f"Bearer {TOKEN}"}
            connection.load_model(MODEL, headers=dict(token))
            with self.assertRaises(Exception) as caught:
                connection.load_model(MODEL, headers=dict(token), config="{}")
            self.assertIn("a load takes no parameters", str(caught.exception))

    @unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
    def test_grpc_needs_the_token(self) -> None:
        client = importlib.import_module("tritonclient.grpc")
        server = self.serve_ready(security=self.security)
        with client.InferenceServerClient(server.grpc) as connection:
            self.assertTrue(connection.is_server_ready())
            for headers in (None, {"authorization": "Bearer x"}):
                with self.assertRaises(Exception) as caught:
                    connection.get_model_metadata(MODEL, headers=headers)
                self.assertIn("UNAUTHENTICATED", str(caught.exception.status()))
            connection.get_model_metadata(MODEL, headers={"authorization": f"Bearer {TOKEN}"})


class TlsTest(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.certificate, self.key = self.make_certificate("server")
        self.security = f'tls_certificate = "{self.certificate}"\ntls_key = "{self.key}"'

    def handshake(self, address: str, ciphers: str = "", offered: tuple = ()) -> tuple:
        """Version, cipher and protocol that a server chooses; of TLS 1.2 with these ciphers."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if ciphers:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(ciphers + ":@SECLEVEL=0")
        if offered:
            context.set_alpn_protocols(list(offered))
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as secure:
                return secure.version(), secure.cipher()[0], secure.selected_alpn_protocol()

    def test_tls_1_2_has_forward_secrecy_and_authenticated_encryption(self) -> None:
        self.certificate, self.key = self.make_certificate("rsa", of_key=("rsa:2048",))
        server = self.serve(
            security=f'tls_certificate = "{self.certificate}"\ntls_key = "{self.key}"')
        self.await_tls(server, self.certificate)
        for address in filter(None, (server.http, server.grpc, server.metrics)):
            for cipher in ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-RSA-AES256-SHA",
                           "ECDHE-RSA-AES128-SHA256", "DHE-RSA-AES128-GCM-SHA256"):
                with self.assertRaises(ssl.SSLError, msg=f"{address} {cipher}"):
                    self.handshake(address, cipher)
            for cipher in ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"):
                self.assertEqual(self.handshake(address, cipher), ("TLSv1.2", cipher, None))
            self.assertEqual(self.handshake(address)[0], "TLSv1.3")

    def test_the_protocol_of_a_port_is_chosen(self) -> None:
        server = self.serve(security=self.security)
        self.await_tls(server, self.certificate)
        for address, protocol, other in ((server.http, "http/1.1", "h2"),
                                         (server.metrics, "http/1.1", "h2"),
                                         (server.grpc, "h2", "http/1.1")):
            if not address:
                continue
            for ciphers in ("", "ECDHE+AESGCM"):
                self.assertEqual(self.handshake(address, ciphers)[2], None)
                self.assertEqual(self.handshake(address, ciphers, (other, protocol))[2], protocol)
                with self.assertRaisesRegex(ssl.SSLError, "(?i)no.application.protocol"):
                    self.handshake(address, ciphers, (other,))

    def sign_again(self, days: int) -> int:
        """The certificate is valid for so many days from now on; the Unix time of its end."""
        subprocess.run(["openssl", "x509", "-in", self.certificate, "-signkey", self.key, "-days",
                        str(days), "-out", self.certificate], check=True, capture_output=True,
                       timeout=WAIT_S)
        told = subprocess.check_output(["openssl", "x509", "-in", self.certificate, "-noout",
                                        "-enddate"], text=True, timeout=WAIT_S)
        return ssl.cert_time_to_seconds(told.strip().removeprefix("notAfter="))

    def await_end(self, server, end: int) -> None:
        """The metrics have this end of the certificate."""
        def page() -> str:
            request = urllib.request.Request(f"https://{server.metrics}/metrics")
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with urllib.request.urlopen(request, timeout=WAIT_S, context=context) as answer:
                return answer.read().decode()

        name = "hps_tls_certificate_not_after_seconds"
        await_true(lambda: f"\n{name} {end}\n" in page(), f"{name} {end}")

    def test_the_end_of_the_certificate_is_told(self) -> None:
        end = self.sign_again(90)
        server = self.serve(security=self.security)
        self.await_end(server, end)
        log = self.directory / "hps.log"
        prefix = "the certificate of [server.security] tls_certificate "
        self.assertNotIn(prefix, log.read_text())
        for days, told in ((-1, "expired at "), (20, "expires in less than 30 days, at ")):
            end = self.sign_again(days)
            server.process.send_signal(signal.SIGHUP)
            date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(end))
            self.await_log("warning " + prefix + told + date)
            self.await_end(server, end)
        server.process.send_signal(signal.SIGHUP)  # is told again
        self.await_log(prefix, self.await_log("less than 30 days"))
        self.key.write_text("nonsense")
        self.certificate.write_text("nonsense")
        begin = len(log.read_text())
        server.process.send_signal(signal.SIGHUP)
        self.await_log("the former certificates or token stay in use", begin)
        self.await_end(server, end)  # of the one in use
        self.assertEqual(server.stop(), 0)
        self.make_certificate("server")  # for two days
        begin = len(log.read_text())
        self.serve(security=self.security)
        self.await_log(f"warning {prefix}expires", begin)

    def test_a_key_that_all_may_read_is_refused(self) -> None:
        server = self.serve(security=self.security)
        self.await_tls(server, self.certificate)
        self.key.chmod(0o604)
        server.process.send_signal(signal.SIGHUP)
        self.await_log(f"[server.security] tls_key: the mode of '{self.key}', 0604, "
                       "lets every user read it")
        self.await_tls(server, self.certificate)

    def ask(self, server, trusted, own: tuple | None = None) -> int:
        context = ssl.create_default_context(cafile=str(trusted))
        if own:
            context.load_cert_chain(*own)
        connection = http.client.HTTPSConnection(server.http, context=context, timeout=WAIT_S)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status
        finally:
            connection.close()

    def await_tls(self, server, trusted, own: tuple | None = None) -> None:
        server.await_sign(lambda: self.ask(server, trusted, own) == 200, "readiness over TLS")

    def test_only_who_trusts_it_is_answered(self) -> None:
        server = self.serve(security=self.security)
        self.await_tls(server, self.certificate)
        stranger, _ = self.make_certificate("stranger")
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.ask(server, stranger)
        plain = http.client.HTTPConnection(server.http, timeout=WAIT_S)
        with self.assertRaises((OSError, http.client.HTTPException)):
            plain.request("GET", "/v2/health/ready")
            plain.getresponse()
        plain.close()
        self.await_tls(server, self.certificate)
        self.assertEqual(server.stop(), 0)

    def test_client_certificates(self) -> None:
        own = self.make_certificate("client")
        server = self.serve(security=f'{self.security}\ntls_client_ca = "{own[0]}"')
        self.await_tls(server, self.certificate, own)
        for other in (None, self.make_certificate("stranger")):
            with self.assertRaises((OSError, http.client.HTTPException)):
                self.ask(server, self.certificate, other)

    def top(self, server, *options) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(support.HPS), "top", "--server", f"https://{server.http}", "--count", "1",
             "--interval", "100ms", "--json", *map(str, options)], timeout=WAIT_S,
            capture_output=True, text=True, check=False)

    def test_top_asks_who_has_the_right_certificate(self) -> None:
        own, own_key = self.make_certificate("client")
        stranger, stranger_key = self.make_certificate("stranger")
        server = self.serve(security=f'{self.security}\ntls_client_ca = "{own}"')
        self.await_tls(server, self.certificate, (own, own_key))
        done = self.top(server, "--tls-ca", self.certificate, "--tls-certificate", own,
                        "--tls-key", own_key)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["samples"][0]["state"], "ready")
        for options, why in (
                (("--tls-ca", stranger), "is not trusted: self-signed certificate"),
                ((), "is not trusted: self-signed certificate"),
                (("--tls-ca", self.certificate), "certificate required"),
                (("--tls-ca", self.certificate, "--tls-certificate", stranger,
                  "--tls-key", stranger_key), "unknown ca")):
            done = self.top(server, *options)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"^hps: UNAUTHENTICATED: .*{why}")

    def test_top_asks_the_right_host_alone(self) -> None:
        self.certificate, self.key = self.make_certificate("server", "DNS:elsewhere")
        server = self.serve(security=self.security)
        done = self.top(server, "--tls-ca", self.certificate)
        self.assertEqual(done.returncode, 1)
        self.assertIn("IP address mismatch", done.stderr)

    def test_a_new_certificate_after_sighup(self) -> None:
        server = self.serve(security=self.security)
        self.await_tls(server, self.certificate)
        former = self.directory / "former.pem"
        former.write_bytes(self.certificate.read_bytes())
        self.make_certificate("server")
        server.process.send_signal(signal.SIGHUP)

        def is_new() -> bool:
            with contextlib.suppress(ssl.SSLCertVerificationError):
                self.assertEqual(self.ask(server, self.certificate), 200)
                return True
            return False

        await_true(is_new, "new certificate")
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.ask(server, former)


if __name__ == "__main__":
    unittest.main()
