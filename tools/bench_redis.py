#!/usr/bin/env python3
"""Measures level 2 on Redis with servers of its own: `hps bench redis`.

    tools/bench_redis.py HPS --out DIR [--quick]      (HPS: the command)

Starts one Redis server and a cluster of three masters on free ports of this machine
(`tools/bootstrap.sh redis`), runs the scenario, which writes DIR/redis.json, and stops the servers.
The scenario takes the servers from the environment variables HPS_BENCH_REDIS and
HPS_BENCH_REDIS_CLUSTER; with other servers, which must be empty, run it by hand. With
HPS_BENCH_REDIS_END=1 it ends a server of the cluster at last. Exit status: 0 when it ran.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "redis"))
import servers  # pylint: disable=wrong-import-position


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hps", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with servers.Servers() as alone, servers.Servers(3, cluster=True) as cluster:
        command = [options.hps.resolve(), "bench", "redis", "--out", options.out / "redis.json"]
        command += ["--quick"] if options.quick else []
        environment = os.environ | {"HPS_BENCH_REDIS": ",".join(alone.addresses),
                                    "HPS_BENCH_REDIS_CLUSTER": ",".join(cluster.addresses),
                                    "HPS_BENCH_REDIS_END": "1"}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
