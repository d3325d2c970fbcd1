"""`hps serve` for the demonstration, and its predictions over HTTP."""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from running_server import RunningServer  # noqa: E402 pylint: disable=wrong-import-position

DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}


class Served(RunningServer):
    """The server of a store, on ports of its own; ends with the block."""

    def __init__(self, hps: pathlib.Path, store: pathlib.Path) -> None:
        super().__init__(hps, ["--store", store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                               "--metrics", ""])

    def predict(self, model: str, inputs: dict[str, np.ndarray], output: str) -> np.ndarray:
        """The binary form of the protocol."""
        arrays = [np.ascontiguousarray(array) for array in inputs.values()]
        tensors = [(name, DATATYPES[str(array.dtype)], array.shape, array.tobytes())
                   for name, array in zip(inputs, arrays)]
        return np.frombuffer(self.infer(model, tensors, [output]), np.float32)

    def mean_us(self, model: str) -> dict[str, float]:
        """Mean microseconds of a request in each of the server's stages."""
        stages = json.loads(self.ask("GET", f"/v2/models/{model}/stats")[1])
        stages = stages["model_stats"][0]["inference_stats"]
        names = {"queue": "waiting", "compute_input": "decoding",
                 "compute_infer": "lookup and network", "compute_output": "encoding"}
        return {names[name]: stages[name]["ns"] / max(stages[name]["count"], 1) / 1000
                for name in names}
