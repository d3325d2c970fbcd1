#!/usr/bin/env python3
"""hps beside Triton: perf_analyzer drives both in turn, over HTTP and gRPC.

    tools/bootstrap.sh bench
    tools/triton_peer/triton_peer.py [--hps build/cpu/bin/hps] [--venv .venv-bench] [--out F.json]
                                     [--seconds 1]

Triton's lookup is a gather from one array (gather_backend.cc), hps' goes through its levels. A
request has 1,024 keys, its answer 1,024 rows of 32 floats. Writes what `hps bench --out` writes.
"""

import argparse
import array
import contextlib
import csv
import datetime
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ROWS, DIM, KEYS = 100_000, 32, 1024
CONCURRENCY = (1, 4, 16)
READY_S = 120
DATATYPES = {"int64": "INT64", "int32": "INT32", "float32": "FP32"}
CONFIG = """
name: "m"
backend: "gather"
max_batch_size: 0
input [ { name: "t0", data_type: TYPE_INT64, dims: [ -1 ] } ]
output [ { name: "t0", data_type: TYPE_FP32, dims: [ -1, 32 ] } ]
instance_group [ { count: 2, kind: KIND_CPU } ]
"""


def find(venv: pathlib.Path, pattern: str) -> pathlib.Path:
    found = [path for path in sorted(venv.rglob(pattern)) if path.is_file()]
    if not found:
        raise SystemExit(f"triton_peer: no {pattern} in {venv}: run tools/bootstrap.sh bench")
    return found[0]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(command: list[str], **more):
    process = subprocess.Popen(command, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_ready(address: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://{address}/v2/health/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.05)
    raise SystemExit(f"triton_peer: {process.args[0]} did not get ready")


@contextlib.contextmanager
def serve_triton(venv: pathlib.Path, directory: pathlib.Path):
    """The addresses of a Triton over directory/models and directory/backends; its process."""
    ports = {name: free_port() for name in ("http", "grpc", "metrics")}
    with (directory / "triton.log").open("w") as log:
        with running([str(find(venv, "tritonserver")),
                      f"--model-repository={directory / 'models'}",
                      f"--backend-directory={directory / 'backends'}",
                      *(f"--{name}-address=127.0.0.1" for name in ports),
                      *(f"--{name}-port={port}" for name, port in ports.items())],
                     stdout=log, stderr=log) as process:
            await_ready(f"127.0.0.1:{ports['http']}", process)
            yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}, process


def write_model(directory: pathlib.Path, name: str, config: str) -> pathlib.Path:
    """Adds a model to directory/models. Returns the folder of its version."""
    version = directory / "models" / name / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(config)
    return version


def write_python_model(version: pathlib.Path, source: pathlib.Path, packages: pathlib.Path,
                       ) -> None:
    """The Python backend runs Debian's Python, and its models need NumPy 1.x: of `packages`."""
    (version / "model.py").write_text(
        source.read_text().replace('"PACKAGES"', repr(str(packages))))


def add_backends(venv: pathlib.Path, directory: pathlib.Path, build: pathlib.Path) -> None:
    """Puts the backend of hps and Triton's Python backend into directory/backends."""
    backends = directory / "backends"
    backends.mkdir()
    (backends / "hps").symlink_to((build / "triton" / "hps").resolve())
    server = find(venv, "tritonserver").parent.parent
    shutil.copytree(server / "backends" / "python", backends / "python")
    # A link: its libraries lie beside the original.
    (backends / "python" / "triton_python_backend_stub").symlink_to(
        server / "python_backend_stubs" / "3.11" / "triton_python_backend_stub")


def tensors(module, inputs: dict) -> list:
    """Arrays as inputs of a request; `module` is tritonclient.http or tritonclient.grpc."""
    made = []
    for name, array in inputs.items():
        tensor = module.InferInput(name, list(array.shape), DATATYPES[str(array.dtype)])
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


@contextlib.contextmanager
def triton(venv: pathlib.Path, directory: pathlib.Path):
    """The addresses of a Triton that serves the gather."""
    backend = directory / "backends" / "gather"
    write_model(directory, "m", CONFIG)
    backend.mkdir(parents=True)
    subprocess.run(["g++", "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
                    f"-I{ROOT / 'src'}", str(HERE / "gather_backend.cc"),
                    "-o", str(backend / "libtriton_gather.so")],
                   check=True)
    with serve_triton(venv, directory) as (addresses, _):
        yield addresses


@contextlib.contextmanager
def serve_hps(program: str, config: pathlib.Path):
    """The addresses of an `hps serve`; its log is beside its configuration."""
    http, grpc = free_port(), free_port()
    with config.with_name("hps.log").open("w") as log:
        with running([program, "serve", "--config", str(config), "--http", f"127.0.0.1:{http}",
                      "--grpc", f"127.0.0.1:{grpc}", "--metrics", ""],
                     stdout=log, stderr=log) as process:
            await_ready(f"127.0.0.1:{http}", process)
            yield {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}"}


@contextlib.contextmanager
def hps(program: str, directory: pathlib.Path):
    """The addresses of an `hps serve` over a table of as many rows, and keys that it has."""
    tables, store = directory / "tables", directory / "store"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([program, "generate", "--out", str(tables), "--tables", "1", "--rows",
                    str(ROWS), "--dim", str(DIM)], **quiet)
    subprocess.run([program, "import", "--store", str(store), "--model", "m", "--from",
                    str(tables)], **quiet)
    config = directory / "hps.toml"
    config.write_text('[store]\npath = "store"\n[l2]\nbytes_max = "256MiB"\npreload = 1.0\n')
    keys = array.array("q", (tables / "t0" / "key").read_bytes()).tolist()
    with serve_hps(program, config) as addresses:
        yield addresses, keys


class NoFigure(RuntimeError):
    """perf_analyzer has measured nothing: on a busy machine no request may end in a window."""


class Analyzer:
    """perf_analyzer with the same requests for every server."""

    def __init__(self, venv: pathlib.Path, directory: pathlib.Path, keys: list[int],
                 seconds: float) -> None:
        self.program = find(venv, "perf_analyzer")
        runtime = find(venv, "libcudart.so.12").parent
        self.environment = os.environ | {"LD_LIBRARY_PATH": str(runtime)}
        self.directory, self.seconds = directory, seconds
        self.input = directory / "input.json"
        choose = random.Random(1)
        self.input.write_text(json.dumps({"data": [
            {"t0": {"content": choose.choices(keys, k=KEYS), "shape": [KEYS]}}
            for _ in range(8)]}))

    def measure(self, protocol: str, address: str, concurrency: int,
                model: str = "m") -> dict[str, float]:
        """The mean of three windows, stable or not: a shared machine never is for long. Raises
        NoFigure."""
        report = self.directory / "report.csv"
        done = subprocess.run(
            [str(self.program), "-m", model, "-u", address, "-i", protocol, "--concurrency-range",
             str(concurrency), "--measurement-interval", str(int(self.seconds * 1000)),
             "--stability-percentage", "999", "--max-trials", "3", "--input-data", str(self.input),
             "-f", str(report)],
            capture_output=True, text=True, timeout=120, check=False, env=self.environment)
        if done.returncode != 0:
            raise NoFigure(f"perf_analyzer: {done.stdout}{done.stderr}")
        with report.open() as file:
            row = next(csv.DictReader(file))
        return {"per_second": float(row["Inferences/Second"]), "p50": float(row["p50 latency"]),
                "p99": float(row["p99 latency"])}


def compare(protocol: str, concurrency: int, ours: dict, theirs: dict) -> list[dict]:
    def result(name: str, unit: str, key: str, target: str) -> dict:
        return {"name": name, "unit": unit, "figure": ours[key], "bound": theirs[key],
                "ratio": ours[key] / theirs[key], "target": target, "runs": 1,
                "params": {"protocol": protocol, "concurrency": str(concurrency),
                           "keys": str(KEYS)}}
    return [{**result("triton", "requests/s", "per_second", ">= 1.2"), "p50": ours["p50"],
             "p99": ours["p99"]},
            result("triton_p50", "us", "p50", "<= 0.8"),
            result("triton_p99", "us", "p99", "<= 0.8")]


def machine() -> dict[str, str]:
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty",
                             "--abbrev=12", "--exclude=*"], capture_output=True, text=True,
                            check=False).stdout.strip()
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"cpu": cpu[1] if cpu else "unknown", "commit": commit,
            "date": now.strftime("%Y-%m-%dT%H:%M:%SZ")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hps", default=str(ROOT / "build" / "cpu" / "bin" / "hps"))
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / ".venv-bench")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="hps_triton_peer_") as name:
        directory = pathlib.Path(name)
        with triton(options.venv, directory) as theirs, \
                hps(options.hps, directory) as (ours, keys):
            analyzer = Analyzer(options.venv, directory, keys, options.seconds)
            for protocol in ("http", "grpc"):
                for concurrency in CONCURRENCY:
                    them = analyzer.measure(protocol, theirs[protocol], concurrency)
                    us = analyzer.measure(protocol, ours[protocol], concurrency)
                    results += compare(protocol, concurrency, us, them)
                    print(f"{protocol} {concurrency:2}  hps {us}  Triton {them}", flush=True)
    for one in results:
        print(f"{one['name']:12} {one['params']['protocol']} {one['params']['concurrency']:>2}  "
              f"{one['figure']:10.1f} {one['bound']:10.1f} {one['unit']:10}  "
              f"ratio {one['ratio']:.2f} ({one['target']})")
    if options.out:
        report = {"scenario": "serve", "machine": machine(), "results": results}
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
