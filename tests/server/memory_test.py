"""The server's memory does not grow with the requests that it has answered."""

import json
import re
import socket
import struct
import unittest

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

import support
from support import MODEL, ROWS
from waiting import WAIT_S, trials

KEYS = 64
AT_ONCE = 100  # on one connection
REQUESTS = {"http": 950_000, "grpc": 50_000}
GROWTH_MAX = 1 << 20  # little, so that an eighth of the requests shows a small leak, too


class HttpClient:
    """One connection, with many requests on their way."""

    def __init__(self, server: support.RunningServer) -> None:
        host, _, port = server.http.partition(":")
        self.connection = socket.create_connection((host, int(port)), timeout=WAIT_S)

    def ask(self, keys: np.ndarray, count: int) -> None:
        data = keys.astype("<i8").tobytes()
        head = json.dumps({
            "inputs": [{"name": "user", "datatype": "INT64", "shape": [len(keys)],
                        "parameters": {"binary_data_size": len(data)}}],
            "outputs": [{"name": "user", "parameters": {"binary_data": True}}]}).encode()
        request = (f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: localhost\r\n"
                   f"Inference-Header-Content-Length: {len(head)}\r\n"
                   f"Content-Length: {len(head) + len(data)}\r\n\r\n").encode() + head + data
        self.connection.sendall(request * count)
        self.take_answers(count)

    def take_answers(self, count: int) -> None:
        """All are as long as the first."""
        received = self.receive(1)
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self.receive(1)
        length = end + 4 + int(re.search(rb"Content-Length: (\d+)", received[:end])[1])
        received += self.receive(length * count - len(received))
        assert received[::length] == b"H" * count
        assert received.count(b"HTTP/1.1 200 ") == count, received[:end]

    def receive(self, size: int) -> bytes:
        parts, missing = [], size
        while missing > 0:
            parts.append(self.connection.recv(missing))
            assert parts[-1], "the server has closed the connection"
            missing -= len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        self.connection.close()


class GrpcClient:

    def __init__(self, server: support.RunningServer) -> None:
        self.channel = grpc.insecure_channel(server.grpc)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def ask(self, keys: np.ndarray, count: int) -> None:
        request = service_pb2.ModelInferRequest(model_name=MODEL)
        request.inputs.add(name="user", datatype="INT64", shape=[len(keys)])
        request.raw_input_contents.append(struct.pack(f"<{len(keys)}q", *keys.tolist()))
        for answer in [self.stub.ModelInfer.future(request, timeout=WAIT_S)
                       for _ in range(count)]:
            answer.result()

    def close(self) -> None:
        self.channel.close()


class MemoryTest(support.ServerTestCase):

    def check(self, connect, requests: int) -> None:
        server = self.serve_ready()
        client = connect(server)
        self.addCleanup(client.close)
        for _ in range(requests // 20 // AT_ONCE):  # what the first ones need is there then
            client.ask(self.keys(KEYS), AT_ONCE)
        client.ask(np.arange(ROWS), 1)
        before = server.memory()
        for _ in range(trials(requests) // AT_ONCE):
            client.ask(self.keys(KEYS), AT_ONCE)
        self.assertLess(server.memory() - before, GROWTH_MAX)
        self.assertEqual(server.stop(), 0)

    def test_http(self) -> None:
        self.check(HttpClient, REQUESTS["http"])

    @unittest.skipUnless(support.has_grpc(), "this build has no gRPC")
    def test_grpc(self) -> None:
        self.check(GrpcClient, REQUESTS["grpc"])


if __name__ == "__main__":
    unittest.main()
