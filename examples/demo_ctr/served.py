"""`hps serve` for the demonstration, and its predictions over HTTP."""

from __future__ import annotations

import http.client
import json
import pathlib
import signal
import subprocess
import time

import numpy as np

START_S = 60
DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}


class Served:
    """The server of a store, on ports of its own; ends with the block."""

    def __init__(self, hps: pathlib.Path, store: pathlib.Path) -> None:
        self.process = subprocess.Popen(
            [str(hps), "serve", "--store", str(store), "--http", "127.0.0.1:0", "--grpc",
             "127.0.0.1:0", "--metrics", "", "--json"], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server did not start")
        addresses = json.loads(line)
        self.http, self.grpc = addresses["http"], addresses["grpc"]
        self.connection = http.client.HTTPConnection(self.http, timeout=START_S)
        self.await_ready()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def await_ready(self) -> None:
        end = time.monotonic() + START_S
        while True:
            self.connection.request("GET", "/v2/health/ready")
            response = self.connection.getresponse()
            response.read()
            if response.status == 200:
                return
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("the server does not become ready")
            time.sleep(0.05)

    def predict(self, model: str, inputs: dict[str, np.ndarray], output: str) -> np.ndarray:
        """The binary form of the protocol."""
        arrays = [np.ascontiguousarray(array) for array in inputs.values()]
        head = json.dumps({
            "inputs": [{"name": name, "datatype": DATATYPES[str(array.dtype)],
                        "shape": array.shape, "parameters": {"binary_data_size": array.nbytes}}
                       for name, array in zip(inputs, arrays)],
            "outputs": [{"name": output, "parameters": {"binary_data": True}}]}).encode()
        self.connection.request("POST", f"/v2/models/{model}/infer",
                                head + b"".join(array.tobytes() for array in arrays),
                                {"Inference-Header-Content-Length": str(len(head))})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {answer.decode(errors='replace')}")
        return np.frombuffer(answer[int(response.getheader("Inference-Header-Content-Length")):],
                             np.float32)

    def mean_us(self, model: str) -> dict[str, float]:
        """Mean microseconds of a request in each of the server's stages."""
        self.connection.request("GET", f"/v2/models/{model}/stats")
        stages = json.loads(self.connection.getresponse().read())
        stages = stages["model_stats"][0]["inference_stats"]
        names = {"queue": "waiting", "compute_input": "decoding",
                 "compute_infer": "lookup and network", "compute_output": "encoding"}
        return {names[name]: stages[name]["ns"] / max(stages[name]["count"], 1) / 1000
                for name in names}

    def stop(self) -> int:
        self.connection.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=START_S)
