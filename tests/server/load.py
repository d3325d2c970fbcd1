"""Steady requests from several threads over kept-alive connections; every answer is checked."""

import dataclasses
import http.client
import importlib
import json
import socket
import threading
import time

import numpy as np

from support import MODEL, ROWS, STAMP, TABLES, RunningServer, ServerTestCase, stamped
from waiting import WAIT_S, await_true

KEYS = 16


@dataclasses.dataclass
class Answer:
    begun: float
    ended: float
    version: int = 0      # of the rows; 0 = no answer
    status: int = 0       # as HTTP counts them, also over gRPC; 0 = the connection ended
    error: str = ""
    cut_off: bool = False  # something of an answer had come when the connection ended


class HttpConnection:
    """Asks over HTTP, with JSON."""

    FAILURES = (OSError, http.client.HTTPException, ValueError)

    def __init__(self, server: RunningServer, headers: dict) -> None:
        self.connection = http.client.HTTPConnection(server.http, timeout=WAIT_S)
        self.headers = {"Content-Type": "application/json"} | headers

    def ask(self, keys: dict, answer: Answer) -> dict | None:
        """Rows by table; None and why: there are none."""
        body = json.dumps({"inputs": [
            {"name": table, "shape": [KEYS], "datatype": "INT64", "data": asked.tolist()}
            for table, asked in keys.items()]})
        self.connection.request("POST", f"/v2/models/{MODEL}/infer", body, self.headers)
        # A connection that is closed while it is idle ends without a byte, whatever was just sent.
        answer.cut_off = bool(self.connection.sock.recv(1, socket.MSG_PEEK))
        response = self.connection.getresponse()
        answer.status = response.status
        content = response.read()
        answer.cut_off = response.length != 0  # none: the fields have not come to their end
        if response.status != 200:
            answer.error = content.decode(errors="replace")
            return None
        return {output["name"]: np.array(output["data"], dtype=np.float32).reshape(KEYS, -1)
                for output in json.loads(content)["outputs"]}

    def close(self) -> None:
        self.connection.close()


class GrpcConnection:
    """Asks over gRPC, by Triton's client. A channel of its own, so that one which has lost its
    server makes no other wait."""

    FAILURES = (OSError, ValueError)
    STATUSES = {"NOT_FOUND": 404, "UNAVAILABLE": 503}
    CUT_OFF = "Stream removed"  # what is said of a call that the server had accepted
    OPTIONS = [("grpc.use_local_subchannel_pool", 1)]

    def __init__(self, server: RunningServer, headers: dict) -> None:
        self.triton = importlib.import_module("tritonclient.grpc")
        self.client = self.triton.InferenceServerClient(server.grpc, channel_args=self.OPTIONS)
        self.headers = {name.lower(): value for name, value in headers.items()}

    def ask(self, keys: dict, answer: Answer) -> dict | None:
        inputs = []
        for table, asked in keys.items():
            inputs.append(self.triton.InferInput(table, asked.shape, "INT64"))
            inputs[-1].set_data_from_numpy(asked)
        utilities = importlib.import_module("tritonclient.utils")
        try:
            result = self.client.infer(MODEL, inputs, headers=self.headers, client_timeout=WAIT_S)
        except utilities.InferenceServerException as error:
            answer.status = self.STATUSES.get(str(error.status()).rpartition(".")[2], 500)
            answer.error = str(error)
            answer.cut_off = self.CUT_OFF in answer.error
            return None
        answer.status = 200
        return {table: result.as_numpy(table) for table in keys}

    def close(self) -> None:
        self.client.close()


CONNECTIONS = {"http": HttpConnection, "grpc": GrpcConnection}


class Load:
    """with Load(server, "grpc") as load: ...; then load.answers, by thread."""

    def __init__(self, server: RunningServer, protocol: str = "http", threads: int = 4,
                 headers: dict | None = None) -> None:
        self.server = server
        self.connect = CONNECTIONS[protocol]
        self.headers = headers or {}
        self.answers: list[list[Answer]] = [[] for _ in range(threads)]
        self.ok = [0] * threads  # answers with rows, by thread
        self.wrong: list[str] = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True)
                        for number in range(threads)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(timeout=WAIT_S)

    def count_ok(self) -> int:
        return sum(self.ok)

    def await_ok(self, more: int) -> None:
        goal = self.count_ok() + more
        await_true(lambda: self.count_ok() >= goal or self.wrong,
                   lambda: f"{goal} answers, only {self.count_ok()}", pause_s=0.01)

    def await_version(self, version: int) -> None:
        """Until each connection has got rows of this version."""
        await_true(lambda: self.wrong or all(answers and answers[-1].version == version
                                             for answers in self.answers),
                   f"version {version} on each connection")

    def all(self) -> list[Answer]:
        return [answer for answers in self.answers for answer in answers]

    def failed(self) -> list[Answer]:
        return [answer for answer in self.all() if answer.version == 0]

    def run(self, number: int) -> None:
        random = np.random.default_rng(number)
        connection = None
        while not self.stopping.is_set():
            answer = Answer(begun=time.monotonic(), ended=0)
            try:
                if connection is None:
                    connection = self.connect(self.server, self.headers)
                self.ask(connection, random, answer)
            except self.connect.FAILURES as error:
                answer.error = f"{type(error).__name__}: {error}"
            answer.ended = time.monotonic()
            self.answers[number].append(answer)
            self.ok[number] += answer.version > 0
            if answer.version == 0:
                if connection is not None:
                    connection.close()
                connection = None
                self.stopping.wait(0.005)
        if connection is not None:
            connection.close()

    def ask(self, connection, random, answer: Answer) -> None:
        keys = {table: random.integers(0, ROWS, KEYS) for table in TABLES}
        rows = connection.ask(keys, answer)
        if rows is None:
            return
        versions = {int(version) for table in TABLES for version in np.unique(rows[table] // STAMP)}
        if len(versions) != 1:
            self.wrong.append(f"one answer has rows of versions {versions}")
            return
        answer.version = versions.pop()
        for table, asked in keys.items():
            if not np.array_equal(rows[table], stamped(table, asked, answer.version)):
                self.wrong.append(f"wrong rows of {table} for {asked}: {rows[table]}")


class LoadTestCase(ServerTestCase):
    """What holds while requests come in, over one protocol; the other one inherits it."""

    protocol = "http"

    def load(self, server: RunningServer, **more) -> Load:
        return Load(server, self.protocol, **more)
