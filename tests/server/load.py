"""Steady requests from several threads over kept-alive connections; every answer is checked."""

import dataclasses
import http.client
import json
import threading
import time

import numpy as np

from support import MODEL, ROWS, STAMP, TABLES, WAIT_S, stamped

KEYS = 16


@dataclasses.dataclass
class Answer:
    begun: float
    ended: float
    version: int = 0      # of the rows; 0 = no answer
    status: int = 0       # of HTTP; 0 = the connection ended
    error: str = ""


class Load:
    """with Load(address) as load: ...; then load.answers, by thread."""

    def __init__(self, address: str, threads: int = 4, headers: dict | None = None) -> None:
        self.address = address
        self.headers = headers or {}
        self.answers: list[list[Answer]] = [[] for _ in range(threads)]
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
        return sum(answer.version > 0 for answers in self.answers for answer in list(answers))

    def await_ok(self, more: int, timeout_s: float = WAIT_S) -> None:
        goal, deadline = self.count_ok() + more, time.monotonic() + timeout_s
        while self.count_ok() < goal and not self.wrong:
            if time.monotonic() > deadline:
                raise AssertionError(f"only {self.count_ok()} of {goal} answers")
            time.sleep(0.01)

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
                    connection = http.client.HTTPConnection(self.address, timeout=WAIT_S)
                self.ask(connection, random, answer)
            except (OSError, http.client.HTTPException, ValueError) as error:
                answer.error = f"{type(error).__name__}: {error}"
            answer.ended = time.monotonic()
            self.answers[number].append(answer)
            if answer.version == 0:
                if connection is not None:
                    connection.close()
                connection = None
                self.stopping.wait(0.005)
        if connection is not None:
            connection.close()

    def ask(self, connection: http.client.HTTPConnection, random, answer: Answer) -> None:
        keys = {table: random.integers(0, ROWS, KEYS) for table in TABLES}
        body = json.dumps({"inputs": [
            {"name": table, "shape": [KEYS], "datatype": "INT64", "data": asked.tolist()}
            for table, asked in keys.items()]})
        connection.request("POST", f"/v2/models/{MODEL}/infer", body,
                           {"Content-Type": "application/json"} | self.headers)
        response = connection.getresponse()
        answer.status = response.status
        content = response.read()
        if response.status != 200:
            answer.error = content.decode(errors="replace")
            return
        rows = {output["name"]: np.array(output["data"], dtype=np.float32).reshape(KEYS, -1)
                for output in json.loads(content)["outputs"]}
        versions = {int(version) for table in TABLES for version in np.unique(rows[table] // STAMP)}
        if len(versions) != 1:
            self.wrong.append(f"one answer has rows of versions {versions}")
            return
        answer.version = versions.pop()
        for table, asked in keys.items():
            if not np.array_equal(rows[table], stamped(table, asked, answer.version)):
                self.wrong.append(f"wrong rows of {table} for {asked}: {rows[table]}")
