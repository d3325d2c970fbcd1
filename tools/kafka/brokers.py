#!/usr/bin/env python3
"""Starts and stops Apache Kafka brokers for tests, on free ports of 127.0.0.1.

    tools/kafka/brokers.py [--count 3] [--setting name=value ...]

Prints "ready HOST:PORT,..." and then obeys one command per line of its standard input, answering
each with "done" or "failed: why": "kill N" (SIGKILL), "stop N" (SIGTERM), "start N" (which waits
until the broker serves). The end of the input stops everything, so brokers never outlive the test.

Python suites use the class Brokers. `tools/bootstrap.sh test` installs the broker into .kafka/.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "common")]
from held_port import Port  # noqa: E402
from obey import end_all, obey  # noqa: E402
from waiting import WAIT_S, await_true  # noqa: E402

LIBRARIES = pathlib.Path(os.environ.get("HPS_KAFKA_JARS", ROOT / ".kafka" / "lib"))
LOGGING = pathlib.Path(__file__).resolve().parent / "log4j.properties"
READY = "Kafka Server started"
SIGTERM_STATUS = 143  # of Java: 128 + SIGTERM
# Before a command: it is killed with the process that started it.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        f"-Dlog4j.configuration=file:{LOGGING}"]

# Small topics of its own, quick to see a dead neighbour, quick to delete.
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "3000",
    "log.segment.delete.delay.ms": "100",
    "message.max.bytes": "20000000",
    "replica.fetch.max.bytes": "20000000",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.enable": "false",
}


def java(*arguments: str) -> list[str]:
    return [*JAVA, "-cp", f"{LIBRARIES}/*", *map(str, arguments)]


def run_tool(*arguments: str, timeout_s: float = WAIT_S) -> str:
    """Runs one of Kafka's tools to its end; returns what it printed."""
    done = subprocess.run(java(*arguments), capture_output=True, text=True, timeout=timeout_s,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{arguments}: {done.stdout}{done.stderr}")
    return done.stdout


class Brokers:
    """`count` brokers, which are also the controllers. Topics are replicated to at most three.

    `advertised`: addresses, one for each broker, that it gives to clients which reach it over its
    port of `advertised_ports`: those of proxies that forward to these ports.
    """

    def __init__(self, count: int = 1, settings: dict[str, str] | None = None,
                 advertised: list[str] | None = None) -> None:
        if not any(LIBRARIES.glob("kafka_*.jar")):
            raise RuntimeError(f"there is no Kafka in {LIBRARIES}: run tools/bootstrap.sh test")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hps_kafka_"))
        self.ports = [Port() for _ in range(2 * count)]
        self.addresses = [f"127.0.0.1:{port.number}" for port in self.ports[:count]]
        self.bootstrap = ",".join(self.addresses)
        self._advertised = advertised or []
        self.advertised_ports = [Port() for _ in self._advertised]
        self._processes: list[subprocess.Popen | None] = [None] * count
        try:
            self._format(settings or {})
            for index in range(count):
                self._launch(index)
            for index in range(count):  # one alone has no quorum
                self._wait_until_ready(index)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Brokers":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _format(self, settings: dict[str, str]) -> None:
        count = len(self.addresses)
        voters = ",".join(f"{i + 1}@127.0.0.1:{self.ports[count + i].number}"
                          for i in range(count))
        cluster = run_tool("kafka.tools.StorageTool", "random-uuid").split()[-1]

        def format_one(index: int) -> None:
            own = SETTINGS | settings | {
                "node.id": str(index + 1),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{self.addresses[index]},"
                             f"CONTROLLER://127.0.0.1:{self.ports[count + index].number}",
                "log.dirs": str(self.directory / f"data{index}"),
                "offsets.topic.replication.factor": str(min(count, 3)),
                "transaction.state.log.replication.factor": str(min(count, 3)),
                "default.replication.factor": str(min(count, 3)),
                "min.insync.replicas": "2" if count >= 3 else "1",
            }
            if self._advertised:
                port = self.advertised_ports[index].number
                own["listeners"] += f",PROXIED://127.0.0.1:{port}"
                own["listener.security.protocol.map"] += ",PROXIED:PLAINTEXT"
                own["advertised.listeners"] = (f"PLAINTEXT://{self.addresses[index]},"
                                               f"PROXIED://{self._advertised[index]}")
            self._properties(index).write_text(
                "".join(f"{name}={value}\n" for name, value in own.items()))
            run_tool("kafka.tools.StorageTool", "format", "-t", cluster, "-c",
                     str(self._properties(index)))

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(format_one, range(count)))

    def _properties(self, index: int) -> pathlib.Path:
        return self.directory / f"server{index}.properties"

    def _log(self, index: int) -> pathlib.Path:
        return self.directory / f"broker{index}.log"

    def _launch(self, index: int) -> None:
        # The broker ends with the thread that starts it, so this must not be one of a pool.
        with self._log(index).open("w") as log:
            self._processes[index] = subprocess.Popen(
                [*ENDS_WITH_US, *java("kafka.Kafka", str(self._properties(index)))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def _wait_until_ready(self, index: int) -> None:
        def log() -> str:
            return self._log(index).read_text(errors="replace")

        await_true(lambda: READY in log(), lambda: f"ready broker {index}:\n{log()[-4000:]}",
                   pause_s=0.05, process=self._processes[index])

    def start(self, index: int) -> None:
        """Starts a broker that was stopped; returns when it serves."""
        self._launch(index)
        self._wait_until_ready(index)

    def kill(self, index: int) -> None:
        process = self._processes[index]
        process.kill()
        process.wait(WAIT_S)

    def stop(self, index: int) -> None:
        """Ends a broker as an operator does: its partitions get other leaders first."""
        process = self._processes[index]
        process.send_signal(signal.SIGTERM)
        status = process.wait(WAIT_S)
        if status not in (0, SIGTERM_STATUS, -signal.SIGTERM):
            raise RuntimeError(f"broker {index} ended with status {status}")

    def create_topic(self, topic: str, partitions: int, **settings: str) -> None:
        arguments = ["--create", "--topic", topic, "--partitions", str(partitions)]
        for name, value in settings.items():
            arguments += ["--config", f"{name.replace('_', '.')}={value}"]
        self.topics(*arguments)

    def topics(self, *arguments: str) -> str:
        """Runs kafka-topics.sh."""
        return run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server",
                        self.bootstrap, *arguments)

    def elect_preferred_leaders(self) -> None:
        """Moves leaders back to the brokers that had them at first. One that has just started
        can't lead yet what it has not caught up with: then it is asked for again."""
        told = ""

        def elect() -> bool:
            nonlocal told
            try:
                run_tool("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server",
                         self.bootstrap, "--election-type", "preferred", "--all-topic-partitions")
            except RuntimeError as error:
                told = str(error)
                return False
            return True

        await_true(elect, lambda: f"election of the preferred leaders: {told}")

    def end_offsets(self, topic: str) -> dict[int, int]:
        """By partition: the number of records ever written."""
        lines = run_tool("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server",
                         self.bootstrap, "--topic", topic).splitlines()
        return {int(line.split(":")[1]): int(line.split(":")[2])
                for line in lines if line.startswith(topic + ":")}

    def close(self) -> None:
        end_all(self._processes, WAIT_S)
        for port in self.ports + self.advertised_ports:
            port.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.setting)
    return obey(lambda: Brokers(arguments.count, settings), ["kill", "stop", "start"],
                lambda brokers: brokers.bootstrap)


if __name__ == "__main__":
    sys.exit(main())
