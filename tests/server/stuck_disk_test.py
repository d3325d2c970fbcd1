"""A server whose disk does not answer: deadlines, drains and capacity hold all the same."""

import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import threading
import unittest

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

import support
from support import MODEL
from waiting import WAIT_S, await_true

STUCK_READS = support.HPS.parent.parent / "tests" / "libstuck_reads.so"
HOUR_US = 3_600_000_000
LATE_US = 2_000_000  # too soon for a stuck disk, and time enough for a busy machine
PATIENT_US = 60_000_000
HIT_L2, HIT_L3 = 2, 3


def body(keys: list[int], timeout_us: int) -> bytes:
    return json.dumps({
        "parameters": {"timeout": timeout_us},
        "inputs": [{"name": "user", "shape": [len(keys)], "datatype": "INT64", "data": keys}],
        "outputs": [{"name": "user"}, {"name": "user.status"}]}).encode()


class StuckDiskTest(support.ServerTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.pipe = self.directory / "stuck"
        self.environment = {"LD_PRELOAD": str(STUCK_READS), "HPS_STUCK_READS": str(self.pipe)}

    def serve_stuck(self, settings: str = "") -> support.RunningServer:
        server = self.serve_ready(settings=settings, environment=self.environment)
        os.mkfifo(self.pipe)
        self.addCleanup(self.unstick)
        return server

    def unstick(self) -> None:
        if self.pipe.exists():
            writer = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
            self.pipe.unlink()
            os.close(writer)

    def ask(self, server, timeout_us: int) -> tuple[int, dict]:
        status, answer = server.get(f"/v2/models/{MODEL}/infer", data=body([1, 2], timeout_us))
        return status, json.loads(answer)

    def answered(self, server) -> tuple[int, dict] | None:
        """504: a server that was paused has not begun in that time."""
        answer = self.ask(server, LATE_US)
        return answer if answer[0] != 504 else None

    def await_keys(self, server, keys: int) -> None:
        def now() -> int:
            return server.overview()["server"]["keys_in_flight"]

        await_true(lambda: now() == keys, lambda: f"{keys} keys in flight, but {now()}")

    def send(self, server, timeout_us: int) -> socket.socket:
        host, port = server.http.split(":")
        connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
        asked = body([1, 2], timeout_us)
        connection.sendall(f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: localhost\r\n"
                           f"Content-Length: {len(asked)}\r\n\r\n".encode() + asked)
        return connection

    def test_deadlines_are_kept(self) -> None:
        server = self.serve_stuck()
        for _ in range(5):  # also when the workers all hang
            status, answer = await_true(lambda: self.answered(server), "answer in time")
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["outputs"][1]["data"], [5, 5])
        self.unstick()
        status, answer = self.ask(server, PATIENT_US)
        self.assertEqual(status, 200, answer)
        rows, statuses = (output["data"] for output in answer["outputs"])
        # Late rows may have come to level 2 before these were asked for.
        self.assertLessEqual(set(statuses), {HIT_L2, HIT_L3}, "it answers again")
        self.assert_stamped("user", np.array([1, 2]), np.array(rows).reshape(2, -1))
        self.assertEqual(server.stop(), 0)

    def test_late_answers_are_errors_where_configured(self) -> None:
        server = self.serve_stuck('late_answers = "error"')
        self.assertEqual(self.ask(server, LATE_US)[0], 504)

    def test_a_drain_ends_in_its_time(self) -> None:
        server = self.serve_stuck('drain_timeout = "4s"')
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.ask(server, HOUR_US)))
        asking.start()
        self.await_keys(server, 2)
        self.assertEqual(server.stop(), 0)
        asking.join()
        status, answer = answers[0]
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["outputs"][1]["data"], [5, 5], "answered with what was there")
        self.assertIn("left behind", "\n".join(server.output))

    @unittest.skipUnless(support.has_grpc(), "a build without gRPC")
    def test_cancelled_grpc_calls_give_their_capacity_back(self) -> None:
        server = self.serve_stuck('drain_timeout = "4s"')
        request = service_pb2.ModelInferRequest(model_name=MODEL)
        request.parameters["timeout"].int64_param = HOUR_US
        request.inputs.add(name="user", datatype="INT64", shape=[2])
        request.raw_input_contents.append(struct.pack("<qq", 1, 2))
        with grpc.insecure_channel(server.grpc) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            calls = [stub.ModelInfer.future(request) for _ in range(3)]
            self.await_keys(server, 6)
            calls[0].cancel()
            self.await_keys(server, 4)
            calls[1].cancel()
            self.await_keys(server, 2)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(timeout=WAIT_S), 0)
            self.assertEqual(len(calls[2].result().raw_output_contents[0]), 2 * 8 * 4)

    def test_a_second_signal_ends_a_drain_at_once(self) -> None:
        server = self.serve_stuck('drain_timeout = "1h"')
        connection = self.send(server, HOUR_US)
        self.await_keys(server, 2)
        server.process.send_signal(signal.SIGTERM)
        server.await_sign(lambda: "draining" in server.output, "drain")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(timeout=WAIT_S), 128 + signal.SIGTERM)
        server.reader.join(WAIT_S)
        self.assertIn("ended by SIGTERM while it drained", "\n".join(server.output))
        connection.close()

    def test_sigterm_is_heard_while_the_store_opens(self) -> None:
        self.serve_ready().stop()  # writes the configuration
        os.mkfifo(self.pipe)
        self.addCleanup(self.unstick)
        process = subprocess.Popen(
            [str(support.HPS), "serve", "--config", str(self.directory / "hps.toml")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | self.environment)
        self.addCleanup(process.kill)
        await_true(lambda: self.waits_for_the_disk(process.pid), "read", process=process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=WAIT_S)
        self.assertEqual(process.returncode, 0, output)
        self.assertIn("ended by SIGTERM while the store was opened", output)
        self.unstick()
        self.assertEqual(self.serve_ready().stop(), 0)

    def waits_for_the_disk(self, pid: int) -> bool:
        """A thread of the process is opening the pipe."""
        tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/wchan")
        return any("fifo" in task.read_text() or "wait_for_partner" in task.read_text()
                   for task in tasks)

    def test_clients_that_have_gone_give_their_capacity_back(self) -> None:
        server = self.serve_stuck()
        closed, reset, stays = (self.send(server, HOUR_US) for _ in range(3))
        self.await_keys(server, 6)
        closed.close()
        self.await_keys(server, 4)
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        self.await_keys(server, 2)
        self.unstick()
        self.assertIn(b"HTTP/1.1 200", stays.recv(65536))
        stays.close()
        self.await_keys(server, 0)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
