"""Rows change over HTTP while they are served: what is acknowledged is on the disk and in every
later answer; who may change them; what is refused."""

import http.client
import json
import signal
import subprocess
import threading
import unittest

import numpy as np

import support
from support import MODEL, TABLES
from waiting import WAIT_S, await_true

TOKEN = "the-token-of-the-test"
ADMIN = "the-token-of-the-administrator"


class RowsTest(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        for name, token in (("token", TOKEN), ("admin", ADMIN)):
            (self.directory / name).touch(0o600)
            (self.directory / name).write_text(token + "\n")
        self.security = f'updates = true\ntoken_file = "{self.directory}/token"\n'

    def post(self, server, path: str, body: bytes, token: str = TOKEN,
             head_bytes: int | None = None) -> tuple[int, dict]:
        headers = {"Authorization": f"Bearer {token}"}
        if head_bytes is not None:
            headers["Inference-Header-Content-Length"] = str(head_bytes)
        status, answer = server.get(path, headers, data=body, method="POST")
        return status, json.loads(answer) if answer else {}

    def change(self, server, table: str, keys, rows=None, token: str = TOKEN,
               **parameters) -> tuple[int, dict]:
        """By the binary tensor extension; without rows a delete."""
        keys = np.asarray(keys, "<i8")
        inputs = [{"name": "keys", "datatype": "INT64", "shape": [len(keys)],
                   "parameters": {"binary_data_size": keys.nbytes}}]
        data = keys.tobytes()
        if rows is not None:
            rows = np.asarray(rows, "<f4")
            inputs.append({"name": "rows", "datatype": "FP32", "shape": list(rows.shape),
                           "parameters": {"binary_data_size": rows.nbytes}})
            data += rows.tobytes()
        else:
            parameters["delete"] = True
        head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
        return self.post(server, f"/v2/hps/tables/{MODEL}/{table}/rows", head + data, token,
                         len(head))

    def ask(self, server, table: str, keys) -> tuple[np.ndarray, list]:
        body = json.dumps({
            "inputs": [{"name": table, "datatype": "INT64", "shape": [len(keys)],
                        "data": [int(key) for key in keys]}],
            "outputs": [{"name": table}, {"name": table + ".status"}],
            "parameters": {"nonfinite": "text"}}).encode()
        status, answer = self.post(server, f"/v2/models/{MODEL}/infer", body)
        self.assertEqual(status, 200, answer)
        outputs = {output["name"]: output for output in answer["outputs"]}
        return (np.array(outputs[table]["data"], "<f4").reshape(len(keys), TABLES[table]),
                outputs[table + ".status"]["data"])

    def test_a_change_shows_at_once_and_survives_kill_9(self) -> None:
        server = self.serve_ready(security=self.security)
        keys = [1, 2, 10**12]
        self.ask(server, "user", keys)  # into level 2
        rows = np.arange(24, dtype="<f4").reshape(3, 8)
        rows[0, 0], rows[1, 1] = np.inf, -np.inf
        self.assertEqual(self.change(server, "user", keys, rows), (200, {"rows": 3}))
        self.assertEqual(self.change(server, "user", [3]), (200, {"rows": 1}))
        for _ in range(2):
            found, _ = self.ask(server, "user", keys)
            np.testing.assert_array_equal(found, rows)
            found, status = self.ask(server, "user", [3, 4])
            self.assertEqual(status[0], 0, "deleted")
            np.testing.assert_array_equal(found[1:], support.stamped("user", np.array([4])))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            server = self.serve_ready(security=self.security)
        done = subprocess.run([str(support.HPS), "inspect", "--json", "--store",
                               str(self.directory / "store")], capture_output=True, text=True,
                              timeout=WAIT_S, check=True)
        inspected = json.loads(done.stdout)
        user = [t for t in inspected["tables"] if t["name"] == f"{MODEL}/user"][0]
        self.assertEqual(user["positions"], [{"partition": 0, "offset": 3, "generation": 0}])

    def test_json_works_too(self) -> None:
        server = self.serve_ready(security=self.security)
        body = json.dumps({"inputs": [
            {"name": "keys", "datatype": "INT64", "shape": [1], "data": [7]},
            {"name": "rows", "datatype": "FP32", "shape": [1, 8], "data": list(range(8))}]})
        path = f"/v2/hps/tables/{MODEL}/user/rows"
        self.assertEqual(self.post(server, path, body.encode())[0], 200)
        np.testing.assert_array_equal(self.ask(server, "user", [7])[0], [np.arange(8)])

    def test_rows_that_are_no_numbers_are_json_and_can_be_sent_back(self) -> None:
        server = self.serve_ready(security=self.security)
        rows = [["NaN", "Infinity", "-Infinity", 1.5] + [0] * (TABLES["user"] - 4)]
        change = {"inputs": [
            {"name": "keys", "datatype": "INT64", "shape": [1], "data": [7]},
            {"name": "rows", "datatype": "FP32", "shape": [1, TABLES["user"]], "data": rows}]}
        self.assertEqual(self.post(server, f"/v2/hps/tables/{MODEL}/user/rows",
                                   json.dumps(change).encode()), (200, {"rows": 1}))
        ask = {"inputs": [{"name": "user", "datatype": "INT64", "shape": [1], "data": [7]}]}
        for parameters, expected in (({}, [None] * 3), ({"nonfinite": "text"}, rows[0][:3])):
            status, answer = self.post(server, f"/v2/models/{MODEL}/infer",
                                       json.dumps(ask | {"parameters": parameters}).encode())
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["outputs"][0]["data"][:4], [*expected, 1.5])

    def test_keys_as_javascript_sends_them(self) -> None:
        server = self.serve_ready(security=self.security)
        path = f"/v2/hps/tables/{MODEL}/user/rows"
        key = 8199580975773293796

        def body(data: str, datatype: str = "INT64") -> bytes:
            return (f'{{"inputs": [{{"name": "keys", "datatype": "{datatype}", "shape": [1], '
                    f'"data": [{data}]}}, {{"name": "rows", "datatype": "FP32", "shape": [1, 8], '
                    f'"data": {list(range(8))}}}]}}').encode()

        for data, datatype in ((f'"{key}"', "INT64"), (f'"{key}"', "UINT64"), ("7.0", "INT64"),
                               ("7e0", "UINT64")):
            self.assertEqual(self.post(server, path, body(data, datatype))[0], 200, data)
        np.testing.assert_array_equal(self.ask(server, "user", [key, 7])[0], [np.arange(8)] * 2)
        for data, datatype in (("8199580975773294000.0", "INT64"), ("1e19", "INT64"),
                               ("7.5", "INT64"), ("18446744073709551616", "INT64"),
                               ("-1", "UINT64"), ('"x"', "INT64")):
            code, answer = self.post(server, path, body(data, datatype))
            self.assertEqual(code, 400, data)
            self.assertIn("input 'keys': expected an integer, found '" + data.strip('"'),
                          answer["error"])
        asked = json.dumps({"inputs": [{"name": "user", "datatype": "INT64", "shape": [2],
                                        "data": [str(key), 7.0]}]}).encode()
        code, answer = self.post(server, f"/v2/models/{MODEL}/infer", asked)
        self.assertEqual((code, answer["outputs"][0]["data"]), (200, [*range(8)] * 2))

    def test_what_is_wrong_is_said_and_changes_nothing(self) -> None:
        server = self.serve_ready(security=self.security)
        ones = np.ones((1, 8))
        for status, text, arguments in (
                (404, "usr", ("usr", [1], ones)),
                (400, "dim 9, the table has dim 8", ("user", [1], np.ones((1, 9)))),
                (400, "2 keys and 1 rows", ("user", [1, 2], ones))):
            code, answer = self.change(server, *arguments)
            self.assertEqual(code, status, answer)
            self.assertIn(text, answer["error"])
        for body in (b"", b"{", b'{"inputs": []}', b'{"inputs": [{"name": "x"}]}'):
            self.assertEqual(
                self.post(server, f"/v2/hps/tables/{MODEL}/user/rows", body)[0], 400, body)
        # The answer comes before the body, which may not get through any more.
        connection = http.client.HTTPConnection(server.http, timeout=WAIT_S)
        connection.putrequest("POST", f"/v2/hps/tables/{MODEL}/user/rows")
        for field, value in (("Authorization", f"Bearer {TOKEN}"), ("Content-Length", 17 << 20),
                             ("Inference-Header-Content-Length", 10)):
            connection.putheader(field, value)
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 413)
        connection.close()
        np.testing.assert_array_equal(self.ask(server, "user", [1])[0],
                                      support.stamped("user", np.array([1])))

    def test_a_full_disk_is_named(self) -> None:
        server = self.serve_ready(security=self.security, store='free_bytes_min = "1000TiB"')
        said = "the server's disk is full: free space on it or drop tables"
        self.assertEqual(self.change(server, "user", [1], np.zeros((1, 8))),
                         (507, {"error": said}))
        found, _ = self.ask(server, "user", [1])
        np.testing.assert_array_equal(found, support.stamped("user", np.array([1])))
        self.assertIn("[store] free_bytes_min", (self.directory / "hps.log").read_text())

    def test_it_needs_its_switch_and_its_token(self) -> None:
        token_only = self.security.replace("updates = true\n", "")
        server = self.serve_ready(security=token_only)
        self.assertEqual(self.change(server, "user", [1])[0], 403)
        server.stop()
        server = self.serve_ready(security=self.security)
        self.assertEqual(self.change(server, "user", [1], token="wrong")[0], 401)
        self.assertEqual(self.change(server, "user", [1])[0], 200)
        server.stop()
        server = self.serve_ready(security=self.security + "repository_control = true\n"
                                  f'admin_token_file = "{self.directory}/admin"\n')
        load = f"/v2/repository/models/{MODEL}/load"
        refresh = f"/v2/repository/models/{MODEL}/refresh"
        for path in (load, refresh):
            self.assertEqual(self.post(server, path, b"")[0], 403)
            self.assertEqual(self.post(server, path, b"", ADMIN)[0], 200)
        self.assertEqual(self.change(server, "user", [2])[0], 403, "it only asks")
        self.assertEqual(self.change(server, "user", [2], token=ADMIN)[0], 200)
        self.assertEqual(self.ask(server, "user", [2])[1], [0])
        self.assertEqual(self.post(server, f"{refresh}x", b"", ADMIN)[0], 404)
        missing = "/v2/repository/models/nosuch/refresh"
        self.assertEqual(self.post(server, missing, b"", ADMIN)[0], 404)

    def test_a_load_and_changes_take_turns(self) -> None:
        """Every acknowledged change is there at the end, however many loads came between."""
        server = self.serve_ready(security=self.security + "repository_control = true\n")
        written: dict[int, int] = {}
        errors: list = []
        ended = threading.Event()

        def write() -> None:
            step = 0
            while not ended.is_set():
                step += 1
                keys = [step % 50, 100 + step % 7]
                code, answer = self.change(server, "user", keys, np.full((2, 8), step))
                if code != 200:
                    errors.append((code, answer))
                    return
                written.update({key: step for key in keys})

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(10):
            self.assertEqual(self.post(server, f"/v2/repository/models/{MODEL}/load", b"")[0], 200)
        await_true(lambda: len(written) >= 57 or errors, "57 keys")
        ended.set()
        writer.join()
        self.assertEqual(errors, [])
        keys = sorted(written)
        expected = np.repeat([[written[key]] for key in keys], 8, axis=1)
        np.testing.assert_array_equal(self.ask(server, "user", keys)[0], expected)


if __name__ == "__main__":
    unittest.main()
