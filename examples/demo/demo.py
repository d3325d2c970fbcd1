#!/usr/bin/env python3
"""The demo from end to end: hps_demo in this process' place, then the server.

    demo.py BIN      (the directory with hps, hps_demo and, in a build with gRPC, hps_grpc_client)

hps_demo makes a model with a planted truth and checks it level by level. Then `hps serve` answers
from the same store, and this script asks it over HTTP and over gRPC and compares every row, bit for
bit, with the files that were imported. It stops by itself; with KEEP=1 in the environment the
server stays until Ctrl-C. Needs Python's standard library alone. Exit status: 0 when every row was
right, else 1.
"""

import array
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import running_server  # noqa: E402 pylint: disable=wrong-import-position

MODEL = "criteo"
DIM = 16
ROW_BYTES = 4 * DIM
KEYS_PER_CALL = 1024
CALLS_PER_TABLE = 2
TABLES_ASKED = 5


class Table:
    """A table's files: which row a key has."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.name = directory.name
        keys = array.array("q", (directory / "key").read_bytes())
        self.rows = (directory / "emb_vector").read_bytes()
        self.place_of_key = {key: place for place, key in enumerate(keys)}
        self.keys = list(keys)

    def draw(self, chance: random.Random) -> array.array:
        """Mostly keys of the table, and some that it does not have."""
        return array.array("q", [chance.choice(self.keys) if chance.random() < 0.9
                                 else chance.getrandbits(63) for _ in range(KEYS_PER_CALL)])

    def count_wrong(self, keys: array.array, answer: bytes) -> int:
        if len(answer) != len(keys) * ROW_BYTES:
            return len(keys)
        wrong = 0
        for i, key in enumerate(keys):
            place = self.place_of_key.get(key)
            expected = (bytes(ROW_BYTES) if place is None
                        else self.rows[place * ROW_BYTES:(place + 1) * ROW_BYTES])
            wrong += answer[i * ROW_BYTES:(i + 1) * ROW_BYTES] != expected
        return wrong


def ask_grpc(client: pathlib.Path, address: str, table: str, keys: array.array,
             directory: pathlib.Path) -> bytes:
    keys_file, rows_file = directory / "keys", directory / "rows"
    keys_file.write_bytes(keys.tobytes())
    subprocess.run([str(client), address, MODEL, table, str(keys_file), str(rows_file)], check=True,
                   timeout=running_server.START_S)
    return rows_file.read_bytes()


def check(server: running_server.RunningServer, client: pathlib.Path,
          directory: pathlib.Path) -> int:
    """Asks over both protocols; returns the number of wrong rows."""
    chance = random.Random(20)
    tables = [Table(path) for path in sorted((directory / "tables").glob("t*"))]
    wrong = {"HTTP": 0}
    rows = {"HTTP": 0}
    grpc = server.addresses["grpc"]
    if grpc:
        wrong["gRPC"] = rows["gRPC"] = 0
    for table in chance.sample(tables, TABLES_ASKED):
        for _ in range(CALLS_PER_TABLE):
            keys = table.draw(chance)
            answers = {"HTTP": server.lookup(MODEL, table.name, keys.tobytes())}
            if grpc:
                answers["gRPC"] = ask_grpc(client, grpc, table.name, keys, directory)
            for protocol, answer in answers.items():
                wrong[protocol] += table.count_wrong(keys, answer)
                rows[protocol] += len(keys)
    for protocol, count in rows.items():
        print(f"  {protocol}: {count} rows checked, {wrong[protocol]} wrong")
    if stays():
        print("\n  ask it yourself:\n"
              f"    curl -s http://{server.address}/v2/models/{MODEL}/infer -d "
              f"'{{\"inputs\":[{{\"name\":\"t0\",\"datatype\":\"INT64\",\"shape\":[2],"
              f"\"data\":[{tables[0].keys[0]},7]}}]}}'\n"
              f"  the dashboard:\n    http://{server.address}/\n", flush=True)
    return sum(wrong.values())


def stays() -> bool:
    return os.environ.get("KEEP") == "1"


def serve(binaries: pathlib.Path, directory: pathlib.Path) -> int:
    client = binaries / "hps_grpc_client"
    print("\n4. serving the same store over HTTP" +
          (" and gRPC" if client.exists() else " (this build has no gRPC)"), flush=True)
    server = running_server.RunningServer(binaries / "hps", [
        "--store", directory / "store", "--http", "127.0.0.1:0", "--metrics", "",
        "--grpc", "127.0.0.1:0" if client.exists() else ""])
    try:
        wrong = check(server, client, directory)
        if stays():
            print("  the server stays until Ctrl-C (KEEP=1)", flush=True)
            server.process.wait()
        else:
            print("  stopping the server (KEEP=1 make demo leaves it up)", flush=True)
    except KeyboardInterrupt:
        wrong = 0
    finally:
        status = server.stop()
    return 0 if wrong == 0 and status == 0 else 1


def main() -> int:
    binaries = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="hps_demo_") as name:
        directory = pathlib.Path(name)
        levels = subprocess.run([str(binaries / "hps_demo"), name], check=False).returncode
        return levels or serve(binaries, directory)


if __name__ == "__main__":
    sys.exit(main())
