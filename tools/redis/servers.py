#!/usr/bin/env python3
"""Starts and stops Redis servers for tests, on free ports of 127.0.0.1.

    tools/redis/servers.py [--count 6] [--cluster] [--replicas 1] [--tls]
                           [--setting name=value ...]

Prints "ready HOST:PORT,... DIRECTORY" and then obeys one command per line of its standard input,
answering each with "done" or "failed: why": "kill N" (SIGKILL), "stop N" (SIGTERM), "start N"
(which waits until the server answers), "pause N" and "resume N" (SIGSTOP, SIGCONT). With --cluster
the servers are one: the first count / (replicas + 1) are its masters. With --tls they take
connections by TLS only, and DIRECTORY has certificates (see make_certificates). The end of the
input stops everything, so servers never outlive the test.

Python suites use the class Servers. `tools/bootstrap.sh test` installs the server.
"""

import argparse
import contextlib
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "common")]
from held_port import Port  # noqa: E402
from obey import end_all, obey  # noqa: E402
from waiting import WAIT_S, await_true  # noqa: E402

# Before a command: it is killed with the process that started it.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
# Debian's package redis-tools has the server's program under this name, without the daemon of the
# package redis-server. The program is a server if it is called by that name.
PROGRAM_NAMES = ("redis-server", "redis-check-rdb")
SETTINGS = {"bind": "127.0.0.1", "save": "", "appendonly": "no", "protected-mode": "no"}
# A busy machine stops a server for seconds: none is taken for failed so soon. A test in which a
# replica takes over has a shorter time-out among its own settings.
CLUSTER_SETTINGS = {"cluster-enabled": "yes", "repl-diskless-sync-delay": "0",
                    "cluster-require-full-coverage": "no", "cluster-node-timeout": "60000",
                    "cluster-replica-no-failover": "no"}
# While the servers become a cluster: the shorter the time-out, the more they tell each other.
JOIN_SETTINGS = {"cluster-node-timeout": "2000", "cluster-replica-no-failover": "yes"}


# A new key for elliptic curves, without a pass phrase.
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def make_certificates(directory: pathlib.Path) -> None:
    """Writes NAME.pem and NAME.key: ca and other_ca sign; ca has signed server (for 127.0.0.1 and
    localhost), client, other_name (for other.example) and expired (for 127.0.0.1, until
    yesterday)."""
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True,
                       timeout=WAIT_S)

    for name in ("ca", "other_ca"):
        openssl("req", "-x509", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj",
                f"/CN={name}", "-days", "2")
    for name, hosts, days in (("server", "IP:127.0.0.1,DNS:localhost", "2"),
                              ("client", "DNS:client", "2"),
                              ("other_name", "DNS:other.example", "2"),
                              ("expired", "IP:127.0.0.1", "-1")):
        openssl("req", "-new", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                f"/CN={name}", "-addext", f"subjectAltName={hosts}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", days, "-copy_extensions", "copy", "-out", f"{name}.pem")


def server_program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAM_NAMES)), None)


class Servers:
    """`count` servers, alone or as a cluster."""

    def __init__(self, count: int = 1, cluster: bool = False, replicas: int = 0,
                 settings: dict[str, str] | None = None, tls: bool = False) -> None:
        self.program = server_program()
        if self.program is None:
            raise RuntimeError("there is no redis-server: run tools/bootstrap.sh test")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_redis_"))
        (self.directory / "redis-server").symlink_to(self.program)
        self._tls: ssl.SSLContext | None = None
        if tls:
            make_certificates(self.directory)
            self._tls = ssl.create_default_context(cafile=self.directory / "ca.pem")
            self._tls.check_hostname = False  # a test may give a server another certificate
            self._tls.verify_mode = ssl.CERT_NONE
            self._tls.load_cert_chain(self.directory / "client.pem", self.directory / "client.key")
        self.ports = [Port() for _ in range(2 * count)]
        self.addresses = [f"127.0.0.1:{port.number}" for port in self.ports[:count]]
        self._cluster = cluster
        self._settings = SETTINGS | (CLUSTER_SETTINGS if cluster else {}) | (settings or {})
        self._processes: list[subprocess.Popen | None] = [None] * count
        try:
            for index in range(count):
                self.start(index, JOIN_SETTINGS if cluster else {})
            if cluster:
                self._join(count // (replicas + 1), replicas)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def start(self, index: int, settings: dict[str, str] | None = None) -> None:
        """Starts a server, also one that was stopped; returns when it answers. `settings`: in the
        place of its own."""
        data = self.directory / f"data{index}"
        data.mkdir(exist_ok=True)
        port = str(self.ports[index].number)
        own = {"port": port, "dir": str(data)}
        if self._tls is not None:
            files = {f"tls-{name}-file": str(self.directory / file) for name, file in (
                ("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "ca.pem"))}
            own |= files | {"port": "0", "tls-port": port, "tls-auth-clients": "no",
                            "tls-replication": "yes", "tls-cluster": "yes"}
        own |= self._settings | (settings or {})
        if self._cluster:
            own["cluster-port"] = str(self.ports[len(self.addresses) + index].number)
        arguments = [argument for name, value in own.items() for argument in (f"--{name}", value)]
        with (self.directory / f"server{index}.log").open("a") as log:
            self._processes[index] = subprocess.Popen(
                [*ENDS_WITH_US, str(self.directory / "redis-server"), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        await_true(lambda: self._answers(index), lambda: f"answer of server {index}:\n"
                   + (self.directory / f"server{index}.log").read_text()[-2000:],
                   process=self._processes[index])

    def _answers(self, index: int) -> bool:
        with contextlib.suppress(OSError):
            return self.ask(index, "PING").startswith((b"+PONG", b"-NOAUTH"))
        return False

    def ask(self, index: int, *command: str) -> bytes:
        """Sends one command; returns the beginning of the reply as it came."""
        with contextlib.ExitStack() as stack:
            peer = stack.enter_context(
                socket.create_connection(("127.0.0.1", self.ports[index].number), timeout=WAIT_S))
            if self._tls is not None:
                peer = stack.enter_context(self._tls.wrap_socket(peer))
            parts = [part.encode() for part in command]
            peer.sendall(b"*%d\r\n" % len(parts)
                         + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
            return peer.recv(1 << 16)

    def _require(self, index: int, *command: str) -> None:
        answer = self.ask(index, *command)
        if answer.startswith(b"-"):
            raise RuntimeError(f"{command}: {answer.decode(errors='replace')}")

    def _join(self, masters: int, replicas: int) -> None:
        count = len(self.addresses)
        for index in range(masters):
            first, last = index * 16384 // masters, (index + 1) * 16384 // masters - 1
            self._require(index, "CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            self._require(index, "CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
        self._wait(lambda: self._have_met(count))
        for index in range(masters, masters * (replicas + 1)):
            name = self.ask(index % masters, "CLUSTER", "MYID").split(b"\r\n")[1].decode()
            self._require(index, "CLUSTER", "REPLICATE", name)
        self._wait(lambda: all(self._is_complete(index) for index in range(count)))
        self._wait(lambda: all(b"master_link_status:up" in self.ask(index, "INFO", "replication")
                               for index in range(masters, masters * (replicas + 1))))
        self._wait(lambda: all(self._replicas_in_slots(index) == masters * replicas
                               for index in range(count)))
        self._wait(self._end_join)

    def _have_met(self, count: int) -> bool:
        """A server that was stopped when it was to answer has not met the first one: it is told
        again."""
        nodes = self.ask(0, "CLUSTER", "NODES")
        for index in range(1, count):
            if f"127.0.0.1:{self.ports[index].number}@".encode() not in nodes:
                self._require(0, "CLUSTER", "MEET", "127.0.0.1", str(self.ports[index].number),
                              str(self.ports[count + index].number))
        return all(self._knows(index, count) for index in range(count))

    def _knows(self, index: int, count: int) -> bool:
        return (f"cluster_known_nodes:{count}\r".encode() in self.ask(index, "CLUSTER", "INFO")
                and b"handshake" not in self.ask(index, "CLUSTER", "NODES"))

    def _is_complete(self, index: int) -> bool:
        """Whether a server knows who has each slot. Its state is `ok` without that, too."""
        info = self.ask(index, "CLUSTER", "INFO")
        return b"cluster_state:ok" in info and b"cluster_slots_ok:16384\r" in info

    def _is_well(self, index: int) -> bool:
        """Whether a server takes no other one for failed, nor for one that may have."""
        nodes = self.ask(index, "CLUSTER", "NODES").decode().split("\r\n")[1].splitlines()
        return all({"fail", "fail?"}.isdisjoint(node.split()[2].split(",")) for node in nodes)

    def _end_join(self) -> bool:
        """Gives the servers the settings of a cluster that is complete. Where one is taken for
        failed, it stays so for two such time-outs: then it is waited for with a short one."""
        indices = range(len(self.addresses))
        self._configure(self._settings)
        if all(self._is_complete(index) and self._is_well(index) for index in indices):
            return True
        self._configure(JOIN_SETTINGS)
        return False

    def _configure(self, settings: dict[str, str]) -> None:
        for index in range(len(self.addresses)):
            for name in JOIN_SETTINGS:
                self._require(index, "CONFIG", "SET", name, settings[name])

    def _replicas_in_slots(self, index: int) -> int:
        return self.ask(index, "CLUSTER", "NODES").count(b"slave")

    def _wait(self, holds) -> None:
        def nodes() -> str:
            all_nodes = b"; ".join(self.ask(index, "CLUSTER", "NODES")
                                   for index in range(len(self.addresses)))
            return "cluster: " + " ".join(all_nodes.decode(errors="replace").split())

        await_true(holds, nodes, pause_s=0.05)

    def kill(self, index: int) -> None:
        self._processes[index].kill()
        self._processes[index].wait(WAIT_S)

    def stop(self, index: int) -> None:
        self._processes[index].send_signal(signal.SIGTERM)
        self._processes[index].wait(WAIT_S)

    def pause(self, index: int) -> None:
        self._processes[index].send_signal(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        self._processes[index].send_signal(signal.SIGCONT)

    def close(self) -> None:
        end_all(self._processes, WAIT_S)
        for port in self.ports:
            port.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--replicas", type=int, default=0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.setting)
    return obey(lambda: Servers(arguments.count, arguments.cluster, arguments.replicas, settings,
                                arguments.tls),
                ["kill", "stop", "start", "pause", "resume"],
                lambda servers: f"{','.join(servers.addresses)} {servers.directory}")


if __name__ == "__main__":
    sys.exit(main())
