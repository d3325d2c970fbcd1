#!/usr/bin/env python3
"""Rows change while they are served: published to Kafka, or changed by direct calls.

    demo_updates.py HPS [stream|direct]      (HPS: the command)

Makes a table, imports it and serves it. Then it publishes changed rows for 20 seconds, shows how
fresh the server is meanwhile, and at the end compares the row of every key with the last one that
was published. With `stream` the rows go through a Kafka broker of its own (.kafka/, on a free port
of this machine); with `direct` they go to the server over HTTP, and no broker is needed. It stops
everything that it started. Needs Python's standard library alone. Exit status: 0 when every row was
right, else 1.
"""

import array
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples"))
import running_server  # noqa: E402 pylint: disable=wrong-import-position

MODEL, TABLE = "demo", "user"
DIM = 32
KEYS = 100_000
ROUNDS = 4
ROUND_SECONDS = 5
ROWS_PER_SECOND = 20_000
PARTITIONS = 4
KEYS_PER_CALL = 4096
ROWS_PER_CHANGE = 2_000
TOKEN = "demo"
SETTLE_S = 60


def row(key: int, version: int) -> list[float]:
    return [float((key * 31 + version * 7 + j) % 8192) for j in range(DIM)]


def write_table(directory: pathlib.Path, keys: list[int], version: int) -> pathlib.Path:
    """HugeCTR's two files."""
    directory.mkdir(parents=True)
    (directory / "key").write_bytes(array.array("q", keys).tobytes())
    with (directory / "emb_vector").open("wb") as file:
        for key in keys:
            file.write(array.array("f", row(key, version)).tobytes())
    return directory


def run(*command: str) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[:2]}: {done.stderr}{done.stdout}")


class Server(running_server.RunningServer):
    def __init__(self, hps: str, directory: pathlib.Path, brokers: str) -> None:
        (directory / "token").touch(0o600)
        (directory / "token").write_text(TOKEN)
        update = f'[update]\nbrokers = ["{brokers}"]\n' if brokers else ""
        config = directory / "hps.toml"
        config.write_text(
            f'[store]\npath = "{directory}/store"\n[l2]\nbytes_max = "256MiB"\n{update}'
            '[server]\nhttp = "127.0.0.1:0"\ngrpc = ""\nmetrics = ""\n'
            f'[server.security]\ntoken_file = "{directory}/token"\nupdates = true\n'
            f'[log]\nfile = "{directory}/hps.log"\n')
        super().__init__(hps, ["--config", config], TOKEN)

    def rows(self, keys: list[int]) -> array.array:
        rows = array.array("f")
        rows.frombytes(self.lookup(MODEL, TABLE, array.array("q", keys).tobytes()))
        return rows

    def set_rows(self, keys: list[int], version: int) -> None:
        self.change(MODEL, TABLE, array.array("q", keys).tobytes(),
                    b"".join(array.array("f", row(key, version)).tobytes() for key in keys))


def percentile_ms(histogram: dict, bounds: list[float], share: float) -> str:
    left = share * sum(histogram["counts"])
    for bound, count in zip(bounds, histogram["counts"]):
        left -= count
        if left <= 0:
            return f"<= {bound * 1000:.0f} ms"
    return f"> {bounds[-1]:.0f} s"


def show(server: Server, ending: threading.Event) -> None:
    """A line every two seconds, while the changes come in."""
    while not ending.wait(2):
        overview = server.overview()
        line = f"  {overview['updates']['rows_upserted']:>9,} rows changed"
        if stream := overview["stream"]:
            fresh = stream["freshness"]["l3"]
            line += (f"   lag {stream['lag_records']} records   publishing to level 3: p50 "
                     f"{percentile_ms(fresh, stream['freshness_bucket_seconds'], 0.5)}, p99 "
                     f"{percentile_ms(fresh, stream['freshness_bucket_seconds'], 0.99)}")
        print(line, flush=True)


def publish_round(hps: str, brokers: str, source: pathlib.Path) -> None:
    run(hps, "publish", "--brokers", brokers, "--table", f"{MODEL}/{TABLE}", "--from", source,
        "--rate", ROWS_PER_SECOND)


def change_round(server: Server, keys: list[int], version: int) -> None:
    begin = time.monotonic()
    for first in range(0, len(keys), ROWS_PER_CHANGE):
        server.set_rows(keys[first:first + ROWS_PER_CHANGE], version)
        time.sleep(max(0.0, begin + (first + ROWS_PER_CHANGE) / ROWS_PER_SECOND
                       - time.monotonic()))


def count_wrong(server: Server, last: dict[int, int]) -> int:
    wrong = 0
    keys = list(last)
    for first in range(0, len(keys), KEYS_PER_CALL):
        some = keys[first:first + KEYS_PER_CALL]
        rows = server.rows(some)
        for i, key in enumerate(some):
            wrong += rows[i * DIM:(i + 1) * DIM].tolist() != row(key, last[key])
    return wrong


def demonstrate(hps: str, server: Server, directory: pathlib.Path, brokers: str) -> bool:
    chance = random.Random(20)
    last = dict.fromkeys(range(KEYS), 0)
    print(f"the dashboard: http://{server.address}/  (token: {TOKEN})\n"
          f"changing {ROWS_PER_SECOND:,} rows/s for {ROUNDS * ROUND_SECONDS} s ...", flush=True)
    count_wrong(server, dict(list(last.items())[:20_000]))  # level 2 has some rows
    ending = threading.Event()
    shower = threading.Thread(target=show, args=(server, ending))
    shower.start()
    try:
        for version in range(1, ROUNDS + 1):
            keys = [chance.randrange(KEYS + 5_000) for _ in range(ROUND_SECONDS * ROWS_PER_SECOND)]
            keys = list(dict.fromkeys(keys))  # a table of files has each key once
            if brokers:
                publish_round(hps, brokers, write_table(directory / f"c{version}", keys, version))
            else:
                change_round(server, keys, version)
            last.update(dict.fromkeys(keys, version))
    finally:
        ending.set()
        shower.join()
    end = time.monotonic() + SETTLE_S
    while (wrong := count_wrong(server, last)) and brokers and time.monotonic() < end:
        time.sleep(0.2)
    print(f"checked the last row of each of {len(last):,} keys: {wrong} wrong", flush=True)
    return wrong == 0


def main() -> int:
    hps = str(pathlib.Path(sys.argv[1]).resolve())
    source = sys.argv[2] if len(sys.argv) > 2 else "stream"
    if source not in ("stream", "direct"):
        print(f"demo-updates: SOURCE is stream or direct, not '{source}'", file=sys.stderr)
        return 2
    brokers = None
    server = None
    with tempfile.TemporaryDirectory(prefix="hps_demo_updates_") as name:
        directory = pathlib.Path(name)
        try:
            print(f"importing {KEYS:,} rows of dim {DIM} ...", flush=True)
            run(hps, "import", "--store", directory / "store", "--table", f"{MODEL}/{TABLE}",
                "--from", write_table(directory / "base", list(range(KEYS)), 0))
            if source == "stream":
                print("starting a Kafka broker ...", flush=True)
                sys.path.insert(0, str(ROOT / "tools" / "kafka"))
                import brokers as kafka  # pylint: disable=import-outside-toplevel
                brokers = kafka.Brokers()
                brokers.create_topic(f"hps_et.{MODEL}.{TABLE}", PARTITIONS)
            server = Server(hps, directory, brokers.bootstrap if brokers else "")
            right = demonstrate(hps, server, directory, brokers.bootstrap if brokers else "")
            right &= server.stop() == 0
        finally:
            if server is not None:
                server.kill()
            if brokers is not None:
                brokers.close()
    print("everything is stopped" if right else "NOT every row was right")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
