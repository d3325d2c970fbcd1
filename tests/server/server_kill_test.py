"""A server that is killed under load and started again: what is answered is right, and what is not
is not while it was up."""

import time
import unittest

import support
from load import LoadTestCase
from waiting import trials

KILLS = trials(60)  # over each protocol

needs_grpc = unittest.skipUnless(support.has_grpc(), "this build has no gRPC")


class KillTest(LoadTestCase):

    def test_kill_and_restart_under_load(self) -> None:
        ports = support.held_ports(self, "http", "grpc", "metrics")
        server = self.serve_ready(ports=ports)
        down = []
        with self.load(server) as load:
            for number in range(KILLS):
                load.await_ok(number % 20 * 5 + 1)  # of a server that is old or new
                killed = time.monotonic()
                server.kill()
                server = self.serve_ready(ports=ports)
                down.append((killed, time.monotonic()))
            load.await_ok(100)
        self.assertEqual(load.wrong, [])
        for answer in load.failed():
            self.assertTrue(any(begin <= answer.ended and answer.begun <= end
                                for begin, end in down), f"while it was up: {answer}")
        self.assertEqual({answer.version for answer in load.all() if answer.version}, {1})
        self.assertEqual(server.stop(), 0)


@needs_grpc
class GrpcKillTest(KillTest):
    protocol = "grpc"


if __name__ == "__main__":
    unittest.main()
