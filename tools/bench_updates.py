#!/usr/bin/env python3
"""Measures the update stream with Kafka brokers of its own: `hps bench ingest` and `freshness`.

    tools/bench_updates.py HPS --out DIR [--quick]      (HPS: the command)

For each scenario it starts a broker (.kafka/, `tools/bootstrap.sh test`) on a free port of this
machine, creates the topics, and runs the scenario, which writes DIR/SCENARIO.json. For `freshness`
the broker has the last core of the machine, so that the reader has the first one to itself. The
scenarios take the brokers from the environment variable HPS_BENCH_BROKERS; with other brokers,
create the topics there and run the scenarios by hand. Exit status: 0 when both ran.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "kafka"))
import brokers  # pylint: disable=wrong-import-position

PARTITIONS = 4
TOPICS = {"ingest": ["hps_et.dim32.t0", "hps_et.dim128.t0"],
          "freshness": ["hps_et.dim32.t0", "hps_et.m.t0"]}


def measure(hps: pathlib.Path, scenario: str, options: argparse.Namespace) -> int:
    cores = os.sched_getaffinity(0)
    if scenario == "freshness":
        os.sched_setaffinity(0, {max(cores)})
    with brokers.Brokers() as kafka:
        os.sched_setaffinity(0, cores)
        for topic in TOPICS[scenario]:
            kafka.create_topic(topic, PARTITIONS)
        command = [hps, "bench", scenario, "--out", options.out / f"{scenario}.json"]
        command += ["--quick"] if options.quick else []
        environment = os.environ | {"HPS_BENCH_BROKERS": kafka.bootstrap}
        return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hps", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    statuses = [measure(options.hps.resolve(), scenario, options) for scenario in TOPICS]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
