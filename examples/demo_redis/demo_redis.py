#!/usr/bin/env python3
"""Level 2 on a Redis Cluster, of which a master is killed while it serves.

    demo_redis.py HPS      (HPS: the command)

Starts six Redis servers on free ports of this machine: a cluster of three masters and three
replicas. Imports a table, serves it with level 2 on the cluster, and asks for rows from several
threads; every row of every answer is compared with the one that was imported or changed last. In
the middle it changes rows, kills a master with SIGKILL, changes rows again, waits until the
master's replica has taken over and level 2 answers everything again, and starts the killed server.
It stops everything that it started. Needs Python's standard library alone. Exit status: 0 when
every check held, else 1.
"""

import array
import http.client
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools" / "redis"), str(ROOT / "examples")]
import running_server  # noqa: E402 pylint: disable=wrong-import-position
import servers as redis_servers  # noqa: E402 pylint: disable=wrong-import-position

MODEL, TABLE = "demo", "user"
DIM = 32
KEYS = 20_000
KEYS_PER_CALL = 1_000
CALLERS = 2
CHANGED = 2_000
TOKEN = "demo"
SETTLE_S = 120
CALM_S = 4  # of load before and after each event
HIT_L2, DEGRADED = 2, 5


def row(key: int, version: int) -> list[float]:
    return [float((key * 31 + j) % 8192 + 8192 * version) for j in range(DIM)]


def packed_row(key: int, version: int) -> bytes:
    return array.array("f", row(key, version)).tobytes()


def write_table(directory: pathlib.Path, keys: range) -> pathlib.Path:
    """HugeCTR's two files."""
    directory.mkdir(parents=True)
    (directory / "key").write_bytes(array.array("q", keys).tobytes())
    (directory / "emb_vector").write_bytes(b"".join(packed_row(key, 0) for key in keys))
    return directory


class Server(running_server.RunningServer):
    """`hps serve` with level 2 on the cluster."""

    def __init__(self, hps: str, directory: pathlib.Path, nodes: list[str]) -> None:
        (directory / "token").touch(0o600)
        (directory / "token").write_text(TOKEN)
        self.log = directory / "hps.log"
        config = directory / "hps.toml"
        config.write_text(
            f'[store]\npath = "{directory}/store"\n[l2]\nkind = "redis"\n'
            f'[l2.redis]\nnodes = {json.dumps(nodes)}\ncluster = true\n'
            '[server]\nhttp = "127.0.0.1:0"\ngrpc = ""\nmetrics = ""\n'
            f'[server.security]\ntoken_file = "{directory}/token"\nupdates = true\n'
            f'[log]\nfile = "{self.log}"\n')
        super().__init__(hps, ["--config", config], TOKEN)

    def rows(self, keys: list[int]) -> tuple[bytes, bytes]:
        """The rows' bytes, and a status per key."""
        asked = (TABLE, "INT64", [len(keys)], array.array("q", keys).tobytes())
        found = self.infer(MODEL, [asked], [TABLE, f"{TABLE}.status"])
        return found[:-len(keys)], found[-len(keys):]

    def set_rows(self, keys: list[int], version: int) -> None:
        self.change(MODEL, TABLE, array.array("q", keys).tobytes(),
                    b"".join(packed_row(key, version) for key in keys))

    def level2(self) -> dict:
        return next(level for level in self.overview()["levels"] if level["name"] == "l2")


class Load:
    """Callers that compare every row of every answer. `least[key]` is the version of the last
    change that was acknowledged, `most[key]` that of the last one that was sent."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.least = [0] * KEYS
        self.most = [0] * KEYS
        self.lock = threading.Lock()
        self.counts = {"answers": 0, "rows": 0, "of level 2": 0, "late": 0}
        self.problems: list[str] = []
        self.slowest_s = 0.0
        self.ending = threading.Event()
        self.callers = [threading.Thread(target=self.call, args=(number,))
                        for number in range(CALLERS)]

    def __enter__(self) -> "Load":
        for caller in self.callers:
            caller.start()
        return self

    def __exit__(self, *_) -> None:
        self.ending.set()
        for caller in self.callers:
            caller.join()

    def call(self, number: int) -> None:
        chance = random.Random(number)
        while not self.ending.is_set():
            try:
                self.check([chance.randrange(KEYS) for _ in range(KEYS_PER_CALL)])
            except (RuntimeError, OSError, http.client.HTTPException) as error:
                self.problems.append(f"an answer failed: {error}")

    def check(self, keys: list[int]) -> bytes:
        least = [self.least[key] for key in keys]
        begin = time.monotonic()
        rows, status = self.server.rows(keys)
        seconds = time.monotonic() - begin
        wrong = 0
        for i, key in enumerate(keys):
            found = rows[i * 4 * DIM:(i + 1) * 4 * DIM]
            if status[i] != DEGRADED:
                wrong += all(found != packed_row(key, version)
                             for version in range(least[i], self.most[key] + 1))
        with self.lock:
            self.slowest_s = max(self.slowest_s, seconds)
            self.counts["answers"] += 1
            self.counts["rows"] += len(keys)
            self.counts["of level 2"] += status.count(HIT_L2)
            self.counts["late"] += status.count(DEGRADED)
            if wrong:
                self.problems.append(f"{wrong} rows of an answer were wrong or old")
        return status

    def change(self, keys: list[int], version: int) -> None:
        for key in keys:
            self.most[key] = version
        self.server.set_rows(keys, version)
        for key in keys:
            self.least[key] = version

    def report(self, what: str) -> None:
        with self.lock:
            counts, self.counts = self.counts, dict.fromkeys(self.counts, 0)
            slowest, self.slowest_s = self.slowest_s, 0.0
        share = 100 * counts["of level 2"] / max(1, counts["rows"])
        print(f"  {what:<34} {counts['answers']:>6,} answers, {counts['rows']:>9,} rows checked, "
              f"{share:5.1f} % from Redis, {counts['late']} late, slowest {slowest * 1000:.0f} ms, "
              f"{len(self.problems)} wrong", flush=True)
        if counts["late"]:
            self.problems.append(f"{counts['late']} rows came too late ({what})")

    def await_hits(self) -> None:
        """Until level 2 has every row."""
        end = time.monotonic() + SETTLE_S
        missing = list(range(KEYS))
        while missing:
            part = missing[:KEYS_PER_CALL]
            status = self.check(part)
            missing = missing[len(part):] + [key for key, one in zip(part, status)
                                             if one != HIT_L2]
            if time.monotonic() > end:
                raise RuntimeError(f"level 2 lacks {len(missing)} rows after {SETTLE_S} s")


def demonstrate(redis: redis_servers.Servers, server: Server) -> list[str]:
    chance = random.Random(20)
    print(f"the dashboard: http://{server.address}/  (token: {TOKEN})", flush=True)
    with Load(server) as load:
        load.await_hits()
        load.report("level 2 fills")
        load.change(chance.sample(range(KEYS), CHANGED), 1)
        time.sleep(CALM_S)
        load.report("level 2 has every row; changes")
        print(f"killing the master {redis.addresses[0]} (SIGKILL) ...", flush=True)
        redis.kill(0)
        load.change(chance.sample(range(KEYS), CHANGED), 2)
        time.sleep(CALM_S)
        load.report("a master is gone; changes")
        load.await_hits()
        masters = [node["address"] for node in server.level2()["nodes"]]
        load.report("its replica has taken over")
        if redis.addresses[0] in masters or len(masters) != 3:
            load.problems.append(f"the masters are {masters} after the take-over")
        print(f"the masters are {', '.join(masters)} now; starting {redis.addresses[0]} again ...",
              flush=True)
        redis.start(0)
        load.change(chance.sample(range(KEYS), CHANGED), 3)
        time.sleep(CALM_S)
        load.report("six servers again; changes")
        for first in range(0, KEYS, KEYS_PER_CALL):
            load.check(list(range(first, first + KEYS_PER_CALL)))
        load.report("every key once more")
    for line in server.log.read_text().splitlines():
        if "redis" in line:
            print(f"  log: {line}")
    return load.problems


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: demo_redis.py HPS", file=sys.stderr)
        return 2
    hps = str(pathlib.Path(sys.argv[1]).resolve())
    redis = None
    server = None
    with tempfile.TemporaryDirectory(prefix="hps_demo_redis_") as name:
        directory = pathlib.Path(name)
        try:
            print("starting a Redis Cluster of 3 masters and 3 replicas ...", flush=True)
            redis = redis_servers.Servers(6, cluster=True, replicas=1)
            print(f"importing {KEYS:,} rows of dim {DIM} ...", flush=True)
            subprocess.run([hps, "import", "--store", directory / "store", "--table",
                            f"{MODEL}/{TABLE}", "--from",
                            write_table(directory / "base", range(KEYS))], check=True,
                           stdout=subprocess.DEVNULL, timeout=600)
            server = Server(hps, directory, redis.addresses)
            problems = demonstrate(redis, server)
            if server.stop() != 0:
                problems.append("the server's exit status is not 0")
        except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as error:
            problems = [str(error)]
        finally:
            if server is not None:
                server.kill()
            if redis is not None:
                redis.close()
    for problem in problems[:10]:
        print(f"NOT right: {problem}", file=sys.stderr)
    print("NOT everything was right" if problems
          else "every answer was right; everything is stopped")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
