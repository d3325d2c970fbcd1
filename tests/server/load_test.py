"""What the clients of load.py make of answers that a server does not send to their end."""

import json
import socket
import struct
import threading
import types
import unittest

import numpy as np

from load import Answer, HttpConnection
from support import TABLES

KEYS = {table: np.zeros(16, dtype=np.int64) for table in TABLES}
BODY = json.dumps({"outputs": []}).encode()
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class CutOffTest(unittest.TestCase):

    def ask(self, sent: bytes, *, reset: bool) -> Answer:
        """The answer to a request, where that is all that a server sends before it closes."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = threading.Thread(target=self.serve, args=(listener, sent, reset))
            server.start()
            host, port = listener.getsockname()
            connection = HttpConnection(types.SimpleNamespace(http=f"{host}:{port}"), {})
            answer = Answer(begun=0, ended=0)
            try:
                connection.ask(KEYS, answer)
            except HttpConnection.FAILURES as error:
                answer.error = repr(error)
            connection.close()
            server.join()
        return answer

    @staticmethod
    def serve(listener: socket.socket, sent: bytes, reset: bool) -> None:
        connection, _ = listener.accept()
        with connection:
            asked = b""
            while not asked.endswith(b"]}]}"):
                asked += connection.recv(65536)
            connection.sendall(sent)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                      struct.pack("ii", 1, 0))

    def test_a_connection_that_ends_without_a_byte_was_idle(self) -> None:
        for reset in (False, True):
            self.assertFalse(self.ask(b"", reset=reset).cut_off)

    def test_part_of_an_answer_is_one_that_was_cut_off(self) -> None:
        for length in (1, 10, 20, 30, len(WHOLE) - len(BODY), len(WHOLE) - 1):
            for reset in (False, True):
                with self.subTest(length=length, reset=reset):
                    answer = self.ask(WHOLE[:length], reset=reset)
                    self.assertTrue(answer.cut_off, answer)

    def test_a_whole_answer_is_none(self) -> None:
        answer = self.ask(WHOLE, reset=False)
        self.assertEqual((answer.status, answer.error, answer.cut_off), (200, "", False))


if __name__ == "__main__":
    unittest.main()
