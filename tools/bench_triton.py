#!/usr/bin/env python3
"""Predictions of one DLRM: `hps serve` beside Triton, which has it as an ensemble of our backend
(rows) and ONNX Runtime in the Python backend (network), and beside our backend with the network.

    .venv-python/bin/python tools/bench_triton.py build/cpu [--quick] [--seconds 2]
        [--network-threads 1] [--out F.json]

The model is that of tools/bench_ctr_torch.py: 26 tables, rows of 32 numbers, all in level 2. All
sides get the same requests, but for the name of the model, from the same client. Each looks up and
computes with as many instances as the machine has cores; an instance computes with one thread.
(--network-threads gives ONNX Runtime fewer instances of more threads.) First all answers are
compared with PyTorch's. Then the sides are measured in turns, and the best of three rounds counts.
perf_analyzer is not used: it asks for all outputs that a server lists, so that `hps serve` would
send all rows beside the scores. Exit status: 0 when all answers were equal.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import grpc
import numpy as np
import torch
import tritonclient.http
from tritonclient.grpc import service_pb2

import dlrm_torch as dlrm
from bench_ctr_torch import DIM, QUICK_SCALE, SCALE

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "triton_peer"))
import triton_peer  # noqa: E402

VENV = ROOT / ".venv-bench"
INSTANCES = os.cpu_count()
BATCHES, CONCURRENCY = (1, 64, 1024), (1, 4)
REQUESTS = 8  # of each batch size, sent in turn
ROUNDS = 3
ERROR_MAX = 1e-5
OPSET = 17
WAIT_S = 120
SERVE, ENSEMBLE, BACKEND = "hps serve", "ensemble", "backend"
MODELS = {SERVE: "dlrm", ENSEMBLE: "scores", BACKEND: "dlrm"}  # the names that requests have

HPS_TOML = f"""[store]
path = "store"
[l2]
bytes_max = "2GiB"
preload = 1.0
[server]
lookups = {INSTANCES}
"""
HPS_MODEL = f"""backend: "hps"
max_batch_size: 4096
parameters {{ key: "config" value: {{ string_value: "CONFIGURATION" }} }}
instance_group {{ count: {INSTANCES} kind: KIND_CPU }}
"""


class Model:
    """The DLRM in PyTorch, its requests with the scores that are expected, and its files."""

    def __init__(self, hps: pathlib.Path, work: pathlib.Path, quick: bool) -> None:
        self.rows = dlrm.table_rows(QUICK_SCALE if quick else SCALE)
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.torch = dlrm.Dlrm(self.rows, DIM).eval()
        self.export(work / "model.onnx")
        split = run(hps, "split-onnx", work / "model.onnx", "--out", work / "model")
        (work / "model.onnx").unlink()
        self.tables = [table["table"] for table in json.loads(split)["tables"]]
        self.network_inputs = {table["table"]: table["network_input"]
                               for table in json.loads(split)["tables"]}

    def export(self, path: pathlib.Path) -> None:
        names = ["dense", *(f"ids{i}" for i in range(len(self.rows)))]
        inputs = (torch.zeros(3, dlrm.DENSE), *[torch.zeros(3, dtype=torch.int64)] * len(self.rows))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(self.torch, inputs, str(path), input_names=names,
                              output_names=["score"], opset_version=OPSET, dynamo=False,
                              dynamic_axes={name: {0: "batch"} for name in [*names, "score"]})

    def samples(self, batch: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The inputs of a request, each [batch, ...], and PyTorch's scores [batch]."""
        ids = torch.from_numpy(dlrm.draw(self.rows, batch, np.random.default_rng(seed)))
        dense = torch.randn(batch, dlrm.DENSE)
        with torch.inference_mode():
            scores = self.torch(dense, *ids).numpy().reshape(-1)
        keys = {table: one.numpy().reshape(-1, 1) for table, one in zip(self.tables, ids)}
        return {"dense": dense.numpy(), **keys}, scores


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command), "--json"], check=False, capture_output=True,
                          text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"bench_triton: {command[1]}: {done.stdout}{done.stderr}")
    return done.stdout


def import_model(hps: pathlib.Path, work: pathlib.Path) -> None:
    """A store for `hps serve` and one for Triton, which also has the tables alone, as `rows`."""
    for side in ("serve", "triton"):
        (work / side).mkdir()
        (work / side / "hps.toml").write_text(HPS_TOML)
        run(hps, "import", "--store", work / side / "store", "--model", "dlrm", "--from",
            work / "model")
    (work / "model" / "dense.onnx").rename(work / "dense.onnx")
    (work / "model" / "model.toml").unlink()
    run(hps, "import", "--store", work / "triton" / "store", "--model", "rows", "--from",
        work / "model")


def io(direction: str, name: str, datatype: str, *dims: int) -> str:
    return f'{direction} {{ name: "{name}" data_type: TYPE_{datatype} dims: {list(dims)} }}\n'


def write_triton_models(model: Model, directory: pathlib.Path, network: pathlib.Path,
                        threads: int) -> None:
    hps_model = HPS_MODEL.replace("CONFIGURATION", str(directory / "hps.toml"))
    score, dense = io("output", "score", "FP32", 1), io("input", "dense", "FP32", dlrm.DENSE)
    keys = "".join(io("input", table, "INT64", 1) for table in model.tables)
    rows = "".join(io("output", table, "FP32", 1, DIM) for table in model.tables)
    triton_peer.write_model(directory, "rows", 'name: "rows"\n' + hps_model + keys + rows)
    triton_peer.write_model(directory, "dlrm", 'name: "dlrm"\n' + hps_model + dense + keys + score)
    rows = "".join(io("input", name, "FP32", 1, DIM) for name in model.network_inputs.values())
    version = triton_peer.write_model(directory, "network", f"""name: "network"
backend: "python"
max_batch_size: 4096
dynamic_batching {{ }}
parameters {{ key: "network" value: {{ string_value: "{network}" }} }}
parameters {{ key: "threads" value: {{ string_value: "{threads}" }} }}
instance_group {{ count: {max(1, INSTANCES // threads)} kind: KIND_CPU }}
{dense}{rows}{score}""")
    triton_peer.write_python_model(version, ROOT / "tools" / "triton_peer" / "onnx_model.py",
                                   triton_peer.find(VENV, "onnxruntime/__init__.py").parent.parent)

    def maps(direction: str, names: dict[str, str]) -> str:
        return "".join(f'    {direction}_map {{ key: "{key}" value: "{value}" }}\n'
                       for key, value in names.items())

    own = {table: table for table in model.tables}
    between = {table: f"{table}_between" for table in model.tables}
    into = {model.network_inputs[table]: name for table, name in between.items()}
    triton_peer.write_model(directory, MODELS[ENSEMBLE], f"""name: "{MODELS[ENSEMBLE]}"
platform: "ensemble"
max_batch_size: 4096
{dense}{keys}{score}ensemble_scheduling {{
  step {{ model_name: "rows" model_version: -1
{maps("input", own)}{maps("output", between)}  }}
  step {{ model_name: "network" model_version: -1
{maps("input", {"dense": "dense", **into})}{maps("output", {"score": "score"})}  }}
}}
""")


class Http:
    """A connection for requests that were made before: it takes little time of the cores, which
    the servers need."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    @staticmethod
    def request(model: str, inputs: dict[str, np.ndarray]) -> bytes:
        module = tritonclient.http
        body, head_bytes = module.InferenceServerClient.generate_request_body(
            triton_peer.tensors(module, inputs), outputs=[module.InferRequestedOutput("score")])
        return (f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n"
                f"Inference-Header-Content-Length: {head_bytes}\r\n\r\n").encode() + body

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """The size of the answer's JSON, and the answer."""
        self.socket.sendall(request)
        status = self.file.readline()
        headers = {}
        while (line := self.file.readline().strip()):
            name, value = line.lower().split(b":", 1)
            headers[name] = value
        answer = self.file.read(int(headers[b"content-length"]))
        if b" 200 " not in status:
            raise SystemExit(f"bench_triton: {status.decode()}{answer.decode(errors='replace')}")
        return int(headers[b"inference-header-content-length"]), answer

    @staticmethod
    def scores(answer: tuple[int, bytes]) -> np.ndarray:
        return np.frombuffer(answer[1][answer[0]:], np.float32)

    def close(self) -> None:
        self.file.close()
        self.socket.close()


class Grpc:
    """The same over gRPC: messages are not made or read while the time is taken."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.call = self.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    @staticmethod
    def request(model: str, inputs: dict[str, np.ndarray]) -> bytes:
        message = service_pb2.ModelInferRequest(model_name=model)
        for name, array in inputs.items():
            message.inputs.add(name=name, datatype=triton_peer.DATATYPES[str(array.dtype)],
                               shape=array.shape)
            message.raw_input_contents.append(array.tobytes())
        message.outputs.add(name="score")
        return message.SerializeToString()

    def ask(self, request: bytes) -> bytes:
        return self.call(request, timeout=WAIT_S)

    @staticmethod
    def scores(answer: bytes) -> np.ndarray:
        message = service_pb2.ModelInferResponse.FromString(answer)
        return np.frombuffer(message.raw_output_contents[0], np.float32)

    def close(self) -> None:
        self.channel.close()


PROTOCOLS = {"http": Http, "grpc": Grpc}


def compare_answers(model: Model, sides: dict[str, dict[str, str]]) -> bool:
    """Whether the scores of all sides are PyTorch's."""
    all_equal = True
    for batch in BATCHES:
        inputs, expected = model.samples(batch, seed=batch)
        for protocol, connect in PROTOCOLS.items():
            for side, addresses in sides.items():
                with contextlib.closing(connect(addresses[protocol])) as connection:
                    scores = connect.scores(
                        connection.ask(connect.request(MODELS[side], inputs)))
                error = float(np.abs(scores - expected).max())
                equal = scores.shape == expected.shape and error <= ERROR_MAX
                all_equal &= equal
                print(f"  {protocol}, batch {batch:4}, {side:9}: largest difference {error:.1e}: "
                      f"{'equal' if equal else 'NOT EQUAL'}", flush=True)
        print(f"  batch {batch:4}: scores from {expected.min():.3f} to {expected.max():.3f}")
    return all_equal


def measure(connect, address: str, requests: list[bytes], concurrency: int,
            seconds: float) -> dict[str, float]:
    """Requests/s and median latency of threads that each wait for an answer before they ask again.
    The first answers do not count."""
    start = threading.Barrier(concurrency)

    def ask_on(first: int) -> tuple[list[float], float]:
        times: list[float] = []
        with contextlib.closing(connect(address)) as connection:
            connection.ask(requests[first])
            start.wait(WAIT_S)
            begun = now = time.perf_counter()
            while now - begun < seconds:
                connection.ask(requests[(first + len(times)) % len(requests)])
                before, now = now, time.perf_counter()
                times.append(now - before)
        return times, len(times) / (now - begun)

    with concurrent.futures.ThreadPoolExecutor(concurrency) as threads:
        results = list(threads.map(ask_on, range(concurrency)))
    return {"per_second": sum(rate for _, rate in results),
            "p50_us": statistics.median(time for times, _ in results for time in times) * 1e6}


def compare_speed(model: Model, sides: dict[str, dict[str, str]], seconds: float) -> list[dict]:
    results = []
    for batch in BATCHES:
        inputs = [model.samples(batch, seed)[0] for seed in range(REQUESTS)]
        for protocol, connect in PROTOCOLS.items():
            requests = {side: [connect.request(MODELS[side], one) for one in inputs]
                        for side in sides}
            for concurrency in CONCURRENCY:
                rounds = [{side: measure(connect, addresses[protocol], requests[side], concurrency,
                                         seconds) for side, addresses in sides.items()}
                          for _ in range(ROUNDS)]
                best = {side: max((one[side] for one in rounds), key=lambda got: got["per_second"])
                        for side in sides}
                results.append({"batch": batch, "protocol": protocol, "concurrency": concurrency,
                                "sides": best} | ratios(best))
                print(line(results[-1]), flush=True)
    return results


def ratios(best: dict[str, dict]) -> dict[str, float]:
    of_ensemble = {side: best[side]["per_second"] / best[ENSEMBLE]["per_second"] for side in best}
    return {"ratio": of_ensemble[SERVE], "backend_ratio": of_ensemble[BACKEND]}


def line(result: dict) -> str:
    """A row of the table in docs/triton.md."""
    cells = [f"{got['per_second']:,.0f} ({got['p50_us'] / 1000:.2f} ms)"
             for got in result["sides"].values()]
    return (f"| {result['batch']:,} | {result['protocol']}, {result['concurrency']} "
            f"| {result['ratio']:.2f} | {' | '.join(cells[:2])} | {result['backend_ratio']:.2f} "
            f"| {cells[2]} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="with `hps` and the backend of Triton")
    parser.add_argument("--quick", action="store_true",
                        help="small tables and short rounds: shows only that it works")
    parser.add_argument("--seconds", type=float, default=2, help="of one round of one side")
    parser.add_argument("--network-threads", type=int, default=1,
                        help="threads of each instance of ONNX Runtime; so many fewer instances")
    parser.add_argument("--out", type=pathlib.Path, help="also write the figures as JSON")
    asked = parser.parse_args()
    hps = asked.build.resolve() / "bin" / "hps"
    with tempfile.TemporaryDirectory(prefix="hps_bench_triton_") as name:
        work = pathlib.Path(name)
        print("1. exporting a DLRM, splitting and importing it", flush=True)
        model = Model(hps, work, asked.quick)
        import_model(hps, work)
        write_triton_models(model, work / "triton", work / "dense.onnx",
                            asked.network_threads)
        triton_peer.add_backends(VENV, work / "triton", asked.build)
        with triton_peer.serve_hps(str(hps), work / "serve" / "hps.toml") as ours, \
                triton_peer.serve_triton(VENV, work / "triton") as (theirs, _):
            sides = {SERVE: ours, ENSEMBLE: theirs, BACKEND: theirs}
            print("2. comparing the answers with PyTorch's", flush=True)
            if not compare_answers(model, sides):
                return 1
            print(f"3. measuring; load average {os.getloadavg()[0]:.1f} on {INSTANCES} cores\n"
                  "| batch | protocol, requests at a time | hps serve / ensemble | hps serve "
                  "| ensemble | backend / ensemble | backend |", flush=True)
            results = compare_speed(model, sides, 0.1 if asked.quick else asked.seconds)
            print(f"   load average {os.getloadavg()[0]:.1f}")
    if asked.out:
        asked.out.write_text(json.dumps({"scenario": "triton_ensemble", "instances": INSTANCES,
                                         "network_threads": asked.network_threads,
                                         "machine": triton_peer.machine(), "results": results},
                                        indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
